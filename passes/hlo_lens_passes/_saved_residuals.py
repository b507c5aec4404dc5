"""What saved_residuals.json says: names of residuals, and policies that save or offload nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.facts import Finding
from hlo_lens.hlo import Instruction
from hlo_lens.program import AFTER
from hlo_lens_passes._platforms import platform_of
from hlo_lens_passes.residuals import OFFLOAD_IGNORED, SAVES_NOTHING

if TYPE_CHECKING:
    from pathlib import Path

    from hlo_lens.hlo import Module, Shape
    from hlo_lens.program import Program

HOST: Final = 5  # the memory space


# What cannot be read as expected is as good as not there.
_UNREADABLE: Final = (
    OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError
)  # fmt: skip

# The names of jax's dtypes as HLO has them.
_DTYPES: Final = {
    "bfloat16": "bf16", "bool": "pred", "complex64": "c64", "complex128": "c128",
    "float16": "f16", "float32": "f32", "float64": "f64",
    **{f"int{bits}": f"s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip

Key = tuple[str, tuple[int | None, ...]]
"""dtype and dimensions"""


@dataclass(frozen=True, slots=True)
class Saved:
    """The side file. `values`: for each dtype and shape, how often jax saved it under each name,
    None for one without; what is an argument anyway is none. `offloaded`: those for the host, with
    their name and source."""

    values: dict[Key, Counter[str | None]] = field(default_factory=dict)
    offloaded: dict[Key, dict[tuple[str | None, str | None], None]] = field(default_factory=dict)
    regions: tuple[_Region, ...] = ()
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Region:
    """Regions of one call under one policy. `asked`: the names that the policy was made with;
    `answers`: what it says of each name of the region."""

    place: str
    policy: str | None
    asked: tuple[str, ...] | None
    answers: Mapping[str, str | None]
    saves: bool | None


def read(path: Path | None) -> Saved:
    """The side file at `path`; of what is not there or cannot be read, nothing."""
    try:
        told = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except _UNREADABLE:
        return Saved()
    saved = Saved()
    try:
        for each in told["residuals"] if told.get("known") else ():
            _add(saved, each)
    except _UNREADABLE:
        saved = Saved()
    try:
        regions = tuple(_region(each) for each in told.get("checkpoints") or ())
        names = frozenset(map(str, told.get("checkpoint_names") or ()))
    except _UNREADABLE:
        return saved
    return Saved(saved.values, saved.offloaded, regions, names)


def _add(saved: Saved, each: Mapping[str, Any]) -> None:
    if each["kind"] == "argument":
        return
    dtype = str(each["dtype"])
    dtype = _DTYPES.get(dtype, dtype.replace("float8_", "f8"))
    key = dtype, tuple(int(size) for size in each["shape"])
    name = None if each["checkpoint_name"] is None else str(each["checkpoint_name"])
    saved.values.setdefault(key, Counter())[name] += int(each.get("repeats") or 1)
    if each.get("offloaded"):
        source = each.get("source")
        at = None if source is None else str(source)
        saved.offloaded.setdefault(key, {})[name, at] = None


def _region(each: Mapping[str, Any]) -> _Region:
    asked, source = each["policy_names"], each["source"]
    function = str(each["function"] or "a region")
    return _Region(
        place=f"{function} ({source})" if source else function,
        policy=None if each["policy"] is None else str(each["policy"]),
        asked=None if asked is None else tuple(map(str, asked)),
        answers={str(name): answer for name, answer in each["names"].items()},
        saves=each["saves"],
    )


def names(saved: Saved, shapes: Iterable[Shape]) -> dict[Key, str]:
    """The one name for a dtype and shape: all that jax saved of it have it, and `shapes`, of the
    residuals of a module, has it no more often than jax saved it."""
    counts = Counter((shape.dtype, shape.dimensions) for shape in shapes)
    found: dict[Key, str] = {}
    for key, known in saved.values.items():
        (name, times), *others = known.items()
        if name is not None and not others and counts[key] <= times:
            found[key] = name
    return found


# -- a policy that saves nothing --------------------------------------------------------------


def policies(saved: Saved) -> Iterator[Finding]:
    """A finding for each policy that was given to save something, and saves nothing anywhere."""
    saving = {(each.policy, each.asked) for each in saved.regions if _may_save(each)}
    for region in saved.regions:
        if region.policy in (None, "nothing_saveable") or region.asked == ():
            continue
        asked_in_vain = region.asked is not None and saved.names.isdisjoint(region.asked)
        if (region.policy, region.asked) not in saving and (region.answers or asked_in_vain):
            yield Finding(
                SAVES_NOTHING.id,
                SAVES_NOTHING.level,
                f"the policy {region.policy} of {region.place} saves nothing: {_why(region)}",
                help="give the policy a name that a checkpoint_name of the region gives; where"
                " nothing is to be saved, nothing_saveable or no policy says so",
            )


def _why(region: _Region) -> str:
    asks = "" if region.asked is None else f"it asks for {_listed(region.asked)}, and "
    if not region.answers:
        return f"{asks}no value of the program has such a name"
    return f"{asks}what is named {_listed(region.answers)} is computed again"


def _may_save(region: _Region) -> bool:
    """Whether the policy saves something, or it is not known that it does not."""
    answers = region.answers.values()
    return region.saves is not False or any(answer != "recomputed" for answer in answers)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


# -- an offload that did not happen -----------------------------------------------------------


def offloads(
    saved: Saved, program: Program, residuals: Iterable[tuple[int, Shape, bool]]
) -> Iterator[Finding]:
    """A finding for each dtype and shape to be offloaded of which the program that runs has
    nothing in host memory. `residuals` are its rows: id, shape, and whether it is there."""
    module = program.main
    position = program.index(module)
    if not saved.offloaded or program.stages[position] != AFTER:
        return
    rows = list(residuals)
    in_host = {(shape.dtype, shape.dimensions) for _, shape, there in rows if there}
    in_host |= set(_in_host_memory(module))
    parted = (module.num_partitions or 1) > 1
    for key, values in saved.offloaded.items():
        if any(_fits(key, there, parted=parted) for there in in_host):
            continue
        shape = f"{key[0]}[{','.join(map(str, key[1]))}]"
        named = dict.fromkeys(name for name, _ in values if name is not None)
        sources = dict.fromkeys(source for _, source in values if source is not None)
        what = f"{_listed(named)}, {shape}" if named else shape
        at = f" ({', '.join(sources)})" if sources else ""
        target = _target(program, module)
        yield Finding(
            OFFLOAD_IGNORED.id,
            OFFLOAD_IGNORED.level,
            f"{what}{at} is to be offloaded, but on {target} nothing of that dtype and size is in"
            " host memory",
            module=position,
            evidence=tuple(
                ("residuals", row) for row, its, _ in rows if (its.dtype, its.dimensions) == key
            ),
            help="compile for a device with host memory, or save it on the device",
        )


def _in_host_memory(module: Module) -> Iterator[Key]:
    for computation in module.computations:
        for index, text in enumerate(computation.shape_texts):
            shape = shape_of(Instruction(computation, index)) if f"S({HOST})" in text else None
            pending = [] if shape is None else [shape]
            for one in pending:  # grows while it is walked
                pending.extend(one.elements)
                if not one.is_tuple and one.memory_space == HOST:
                    yield one.dtype, one.dimensions


def _fits(key: Key, there: Key, *, parted: bool) -> bool:
    """Whether a value may be the one to be offloaded, reshaped or, of several devices, a part."""
    if key[0] != there[0] or None in there[1]:
        return key[0] == there[0]
    whole, part = (prod(size or 0 for size in dimensions) for _, dimensions in (key, there))
    return whole == part or (parted and part > 0 and whole % part == 0)


def _target(program: Program, module: Module) -> str:
    """The target of the compile, else the platform of the text."""
    path = program.side_files.get("provenance.json")
    try:
        told = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        if told:
            return str(told["target"]["name"])
    except _UNREADABLE:
        pass
    return platform_of(module)[0] or "this platform"
