"""The modules and stages of a dump folder, told from file names without reading the files.

XLA names what `--xla_dump_to` writes (xla/service/dump.cc, FilenameFor):

    module_0001.jit_step.before_optimizations.txt
    module_0001.jit_step.sm_9.0_gpu_after_optimizations.txt
    module_0001.jit_step.0013.PIPELINE.after_PASS.before_PASS.txt      (one a pass, when asked)
    module_0001.jit_step.sm_9.0_gpu_after_optimizations-buffer-assignment.txt

Folders that keep one compile each (`remat/none/before_optimizations.txt`), and names that people
give (`step.before.hlo`, `step.opt.hlo`), are read too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

BEFORE = "before_optimizations"
PARTITIONED = "after_spmd_partitioner"
AFTER = "after_optimizations"
UNKNOWN = "unknown"

# In the order of a compile; what XLA writes a pass sorts between PARTITIONED and AFTER.
STAGES = (BEFORE, PARTITIONED, AFTER)

# What people write for a stage, in a file name (behind "." or "-") or as `--stage`.
_SHORT = {
    "before": BEFORE, "before_opt": BEFORE, "unopt": BEFORE, "unoptimized": BEFORE,
    "spmd": PARTITIONED, "after_spmd": PARTITIONED,
    "after": AFTER, "after_opt": AFTER, "opt": AFTER, "optimized": AFTER,
}  # fmt: skip
_SUFFIX = re.compile(r"(\.hlo_module\.pb|\.hlo\.pb|\.hlo\.txt|\.pb|\.txt|\.hlo)(\.gz)?$")
_NUMBERED = re.compile(r"module_(\d+)\.(.+)")
_PASS = re.compile(r"(?:(?P<key>.+)\.)?(?P<stage>\d{4}\..+?\.after_.+)")
_STAGE = re.compile(
    r"(?:(?P<key>.*?)[._-])??"
    r"(?:(?P<platform>sm_\d+(?:\.\d+)?[a-z]?_gpu|gfx[0-9a-f]+_gpu|cpu|gpu|tpu|interpreter)_)?"
    rf"(?P<stage>{'|'.join(STAGES)})"
    r"(?P<extra>[-.][\w.-]+)?"
)
_SHORT_STAGE = re.compile(rf"(?:(?P<key>.*?)[.-])??(?P<stage>{'|'.join(_SHORT)})")
_PEEK = 4096  # bytes of a file whose name does not say what it is
_PARTITIONER = re.compile(
    r"\.after_(?:stateful[-_]rng[-_]|tpu[-_])?spmd-partition(?:ing|er)(?:\.|$)"
)

# Files beside a module that say more about its compile, by the key under which a Program has them.
SIDE_FILES = (
    "provenance.json",
    "saved_residuals.json",
    "memory_analysis.json",
    "cost_analysis.json",
    "mesh.json",
)
BUFFER_ASSIGNMENT = "buffer-assignment"


@dataclass(frozen=True, slots=True)
class FileName:
    """What a file name says: `key` names the module, "" where the name is only a stage."""

    key: str
    stage: str
    platform: str | None = None
    extra: str | None = None  # "buffer-assignment": a side file of that module and stage


@dataclass(frozen=True, slots=True)
class StageFile:
    """One module at one stage: a file, its size in bytes as it lies on disk."""

    stage: str
    path: Path
    bytes: int
    platform: str | None


@dataclass(frozen=True, slots=True)
class DumpedModule:
    """One compile in a dump folder, its stages in the order of the compile.

    `key` tells it from the others of the folder; `name` is the HLO module's name where the file
    names have it; `number` is XLA's, of `module_0001`.
    """

    key: str
    name: str
    number: int | None
    stages: tuple[StageFile, ...]
    side_files: Mapping[str, Path]

    def main_stages(self) -> tuple[StageFile, ...]:
        """The stages that a Program holds: the three named ones, else everything there is."""
        named = tuple(file for file in self.stages if file.stage in STAGES)
        return named or self.stages


def read_name(name: str) -> FileName | None:
    """What the file name `name` says, or None where it is no name of HLO.

    A name without a stage has stage "unknown".
    """
    suffix = _SUFFIX.search(name)
    if suffix is None:
        return None
    stem = name[: suffix.start()]
    if match := _PASS.fullmatch(stem):
        stage = PARTITIONED if _PARTITIONER.search(match["stage"]) else match["stage"]
        return FileName(match["key"] or "", stage)
    if match := _STAGE.fullmatch(stem):
        extra = match["extra"]
        return FileName(match["key"] or "", match["stage"], match["platform"], extra and extra[1:])
    if match := _SHORT_STAGE.fullmatch(stem):
        return FileName(match["key"] or "", _SHORT[match["stage"]])
    return FileName(stem, UNKNOWN)


def scan(folder: str | Path) -> tuple[DumpedModule, ...]:
    """The modules under `folder`, nested folders included, in the order of their names.

    Raises `OSError` where the folder cannot be read.
    """
    root = Path(folder)
    found: dict[str, list[StageFile]] = {}
    homes: dict[str, tuple[Path, FileName]] = {}
    extras: dict[str, dict[str, Path]] = {}
    for path in _files(root):
        name = read_name(path.name)
        if name is None:
            continue
        key = _key(root, path, name)
        if name.extra is not None:
            extras.setdefault(key, {})[name.extra] = path
        elif (stage := _stage_of(path, name)) is not None:
            file = StageFile(stage, path, path.stat().st_size, name.platform)
            found.setdefault(key, []).append(file)
            homes.setdefault(key, (path.parent, name))
    modules = []
    for key, files in found.items():
        folder_of, name = homes[key]
        number = _NUMBERED.fullmatch(name.key)
        side = _side_files(folder_of) | extras.get(key, {})
        modules.append(
            DumpedModule(
                key,
                number[2] if number else name.key.rpartition("/")[2] or key.rpartition("/")[2],
                int(number[1]) if number else None,
                _ordered(files),
                side,
            )
        )
    return tuple(sorted(modules, key=lambda module: module.key))


def side_files_of(path: Path) -> dict[str, Path]:
    """The side files that lie beside the module file `path`."""
    name = read_name(path.name)
    side = _side_files(path.parent)
    if name is not None and name.stage != UNKNOWN:
        for other in path.parent.glob("*buffer-assignment*"):
            its = read_name(other.name)
            if its is not None and (its.key, its.extra) == (name.key, BUFFER_ASSIGNMENT):
                side[BUFFER_ASSIGNMENT] = other
    return side


def choose(modules: Sequence[DumpedModule], wanted: str) -> tuple[DumpedModule, ...]:
    """The modules that `wanted` means: a key, a name, a number, a glob or a part of a key.

    The first of these that fits any module decides.
    """
    number = wanted.lstrip("0") or "0"
    tests: tuple[Callable[[DumpedModule], bool], ...] = (
        lambda m: wanted in (m.key, m.name),
        lambda m: str(m.number) == number,
        lambda m: fnmatchcase(m.key, wanted) or fnmatchcase(m.name, wanted),
        lambda m: wanted in m.key,
    )
    for test in tests:
        if chosen := tuple(module for module in modules if test(module)):
            return chosen
    return ()


def choose_stage(stages: Sequence[str], wanted: str) -> tuple[str, ...]:
    """The stages that `wanted` means: a stage's name, an alias such as "opt", or a part of one."""
    wanted = _SHORT.get(wanted, wanted)
    if wanted in (*STAGES, *stages):
        return (wanted,) if wanted in stages else ()
    return tuple(dict.fromkeys(stage for stage in stages if wanted in stage))


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            # Not `is_file()`, which raises where a link leads to what may not be read.
            if not name.startswith(".") and os.path.isfile(path):
                yield path


def _key(root: Path, path: Path, name: FileName) -> str:
    """`path` below `root` without stage and suffix; for a bare stage, the name of its folder."""
    within = path.parent.relative_to(root).parts
    parts = (*within, name.key) if name.key else within
    return "/".join(parts) or root.resolve().name


def _stage_of(path: Path, name: FileName) -> str | None:
    """The stage of the file, by its name, else by its first kilobytes; None where it is no HLO."""
    if name.stage != UNKNOWN:
        return name.stage
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK)
        if head.startswith(b"\x1f\x8b"):
            import gzip

            with gzip.open(path) as file:
                head = file.read(_PEEK)
    except (OSError, EOFError):
        head = b""  # reading it will say what is wrong
    if re.search(rb"^HloModule[^\n]*\bis_scheduled=true", head, re.MULTILINE):
        return AFTER
    is_hlo = path.name.endswith((".hlo", ".hlo.gz", ".hlo.pb", ".hlo_module.pb"))
    return UNKNOWN if is_hlo or re.search(rb"^\s*(HloModule|ENTRY)\s", head, re.MULTILINE) else None


def _ordered(files: Sequence[StageFile]) -> tuple[StageFile, ...]:
    """In the order of the compile, one file a stage: text rather than proto, the later pass."""
    best: dict[str, StageFile] = {}
    for file in files:  # in the order of names
        other = best.get(file.stage)
        if other is None or not (_is_proto(file.path) and not _is_proto(other.path)):
            best[file.stage] = file
    return tuple(sorted(best.values(), key=_stage_rank))


def _is_proto(path: Path) -> bool:
    return path.name.endswith((".pb", ".pb.gz"))


def _stage_rank(file: StageFile) -> tuple[int, str]:
    ranks = {BEFORE: 0, PARTITIONED: 2, AFTER: 3, UNKNOWN: 4}
    return ranks.get(file.stage, 1), file.stage


def _side_files(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in SIDE_FILES if (folder / name).is_file()}
