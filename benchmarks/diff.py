"""How the time of a diff grows with the layers of a program, and what it takes beside a report:
`python -m benchmarks.diff [FILE]`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.__main__ import default_file
from benchmarks.measure import Result, process_time
from hlo_lens.diff import compare
from hlo_lens.hlo import parse
from hlo_lens.program import Program

LAYERS = (100, 200, 400)
_TWICE = 2.5  # twice the layers take at most so many times as long
_REPORTS = 4  # reports on one file that a diff of two may take as long as


def unrolled(layers: int, change: int | None = None) -> str:
    """A forward and backward pass of layers that are all alike, but for one that gives a sine."""
    lines = ["HloModule unrolled", "ENTRY main {", "  x.0 = f32[64,64] parameter(0)"]
    dot = "lhs_contracting_dims={{{}}}, rhs_contracting_dims={{{}}}".format
    for k in range(layers):
        function = "sine" if k == change else "tanh"
        lines += [
            f"  w.{k} = f32[64,64] parameter({k + 1})",
            f"  d.{k} = f32[64,64] dot(x.{k}, w.{k}), {dot(1, 0)}",
            f"  t.{k} = f32[64,64] {function}(d.{k})",
            f"  x.{k + 1} = f32[64,64] add(t.{k}, x.{k})",
        ]
    lines.append(f"  g.{layers} = f32[64,64] negate(x.{layers})")
    for k in reversed(range(layers)):
        lines += [
            f"  s.{k} = f32[64,64] multiply(t.{k}, g.{k + 1})",
            f"  wg.{k} = f32[64,64] dot(x.{k}, s.{k}), {dot(0, 0)}",
            f"  xg.{k} = f32[64,64] dot(s.{k}, w.{k}), {dot(1, 1)}",
            f"  g.{k} = f32[64,64] add(xg.{k}, g.{k + 1})",
        ]
    results = [f"wg.{k}" for k in range(layers)]
    shapes = ", ".join(["f32[64,64]"] * layers)
    lines += [f"  ROOT out = ({shapes}) tuple({', '.join(results)})", "}"]
    return "\n".join(lines) + "\n"


def growth(repeat: int) -> Iterator[Result]:
    """The time for each number of layers, against that for half as many."""
    before: float | None = None
    for layers in LAYERS:
        seconds = min(_seconds(layers) for _ in range(repeat))
        ratio = None if before is None else seconds / before
        yield Result(
            f"{layers} layers",
            f"{seconds * 1e3:.0f} ms",
            ratio,
            _TWICE,
            "" if before is None else "half as many",
        )
        before = seconds


def _seconds(layers: int) -> float:
    """Processor seconds of a diff of programs of which one layer differs, with its tables."""
    old, new = (
        Program([parse(text)]) for text in (unrolled(layers), unrolled(layers, layers // 2))
    )
    gc.collect()
    start = time.process_time()
    compare(old, new)
    return time.process_time() - start


def beside_a_report(file: Path, repeat: int) -> Iterator[Result]:
    """The processes that report on a file, and that compare it with itself."""
    inspect = process_time(["-m", "hlo_lens", "inspect", str(file)], repeat)
    diff = process_time(["-m", "hlo_lens", "diff", str(file), str(file)], repeat)
    yield Result("hlolens inspect", f"{inspect * 1e3:.0f} ms")
    yield Result("hlolens diff", f"{diff * 1e3:.0f} ms", diff / inspect, _REPORTS, "inspect")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.diff", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="HLO text (default: a large dump)")
    parser.add_argument("-n", "--repeat", type=int, default=3, help="runs; the best one counts")
    given = parser.parse_args()
    file = given.file or default_file()
    results: list[Result] = []
    print(f"two programs of which one layer differs, best of {given.repeat}")
    for result in growth(given.repeat):
        print(result)
        results.append(result)
    print(f"{file.name} with itself, best of {given.repeat}")
    for result in beside_a_report(file, given.repeat):
        print(result)
        results.append(result)
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
