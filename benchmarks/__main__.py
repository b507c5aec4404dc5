"""Print the table of measurements for one HLO text."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import measure

DEMO = Path(__file__).parents[1] / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"
LARGE = "llama2-7b.unroll32.full.opt.hlo"


def default_file() -> Path:
    """The large TPU dump where the handed material lies beside the checkout, else the demo."""
    from tests.shared import SHARED, unpacked

    if SHARED is None:
        return DEMO
    return next(unpacked("dumps/tpu-maxtext.tar.xz").rglob(LARGE))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="HLO text (default: a large dump)")
    parser.add_argument("-n", "--repeat", type=int, default=5, help="runs; the best one counts")
    given = parser.parse_args()
    file = given.file or default_file()
    text = file.read_text()
    print(
        f"{file.name}: {len(text) / 1e6:.1f} MB, best of {given.repeat}, {sys.version.split()[0]}"
    )
    results = measure.everything(file, text, given.repeat)
    for result in results:
        print(result)
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
