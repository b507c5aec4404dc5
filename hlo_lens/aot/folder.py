"""The folder that a compile leaves: the stages, the side files, and provenance; a Program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hlo_lens import dumps
from hlo_lens.aot.provenance import MADE_BY
from hlo_lens.aot.scrub import Roots

__all__ = ["PROVENANCE", "clear", "collect", "write_json"]

PROVENANCE = "provenance.json"

# One pass's dump is named NNNN.PIPELINE.after_PASS.before_PASS, behind the module's own name.
_PASS = re.compile(r".*?\.(\d{4}\.[^/]*\.after_[^/]*\.txt)")
_PARTITIONER = re.compile(r"\.after_[\w-]*spmd-partition(?:ing|er)(?:\.|$)")


def clear(folder: Path) -> None:
    """Take away what an earlier compile left in `folder`, by its own provenance; nothing else."""
    try:
        earlier = json.loads((folder / PROVENANCE).read_text())
    except (OSError, ValueError):
        return
    if not isinstance(earlier, dict) or earlier.get("made_by") != MADE_BY:
        return
    for name in [*earlier.get("files", {}), *earlier.get("side_files", []), PROVENANCE]:
        if Path(name).name == name:
            (folder / name).unlink(missing_ok=True)


def collect(
    dump: Path, folder: Path, roots: Roots, *, devices: int, all_passes: bool
) -> dict[str, str]:
    """Copy the HLO of `dump` to `folder` under plain names; the sha256 of each, by name.

    A later file of a stage replaces an earlier one, as XLA writes them in the order of the compile.
    For one device there is nothing to partition, though XLA's GPU compiler says that it has.
    """
    chosen: dict[str, Path] = {}
    for path in sorted(dump.glob("*.txt")):
        for name in _plain_names(path.name, all_passes=all_passes):
            chosen[name] = path
    if devices == 1:
        chosen.pop(f"{dumps.PARTITIONED}.txt", None)
    digests = {}
    for name, path in sorted(chosen.items()):
        text = roots.text(path.read_text(encoding="utf-8", errors="replace"))
        (folder / name).write_text(text, encoding="utf-8")
        digests[name] = sha256(text.encode()).hexdigest()
    return digests


def _plain_names(name: str, *, all_passes: bool) -> Iterator[str]:
    if (match := _PASS.fullmatch(name)) is not None:
        if all_passes:
            yield match[1]
        if _PARTITIONER.search(match[1]):
            yield f"{dumps.PARTITIONED}.txt"
        return
    told = dumps.read_name(name)
    if told is None or told.stage not in dumps.STAGES:
        return
    if told.extra is None:
        yield f"{told.stage}.txt"
    elif (told.stage, told.extra) == (dumps.AFTER, dumps.BUFFER_ASSIGNMENT):
        yield f"{told.stage}-{told.extra}.txt"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """JSON as the other files have it: indented, in the order given, a newline at the end."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
