"""Collectives that give or send more than is needed: all of an array where a part is used, a wide
dtype where a narrow one would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.analysis.collectives import attribute, shape_of
from hlo_lens.analysis.dataflow import MOVES, PASSING_TARGETS, Value, trace
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.shape import dtype_bits
from hlo_lens_passes._calls import target_of
from hlo_lens_passes._waste_parts import (
    FORMS,
    MOVING,
    REDUCING,
    Communication,
    Part,
    Reason,
    shape_at,
)

_SCALING: Final = frozenset(("divide", "multiply"))
_MOST_CONVERTS: Final = 16


def only_sliced(found: Communication) -> Iterator[Reason]:
    """Those of which each device uses its own part."""
    for part in found.parts:
        if part.kind in ("all-gather", "all-reduce") and len(part.results) == 1:
            yield from _only_sliced(found, part)
        if part.kind == "all-gather":
            yield from _behind_a_call(found, part)


def _only_sliced(found: Communication, part: Part) -> Iterator[Reason]:
    (place,) = part.results
    cuts, shape = found.places.kept(place), shape_at(*place)
    share = found.places.fraction(cuts, None if shape is None else shape.element_count)
    if not cuts or shape is None or share is None or share >= 1:
        return
    gather = part.kind == "all-gather"
    less: int | None = None
    if _is_one_of(part, share):
        if not gather:
            less = part.sent_as("reduce-scatter")
        elif _leaves_whole(part.logical.operation, shape, cuts):
            less = part.sent_as("all-to-all")
    yield Reason(
        "gathered_then_sliced" if gather else "only_sliced",
        part,
        part.logical.instr,
        f"all that is used of {part.name} is the part of this device: {cuts[0].name} takes"
        f" {share:.3g} of it" + _instead(part, less),
        saved=None if part.wire is None or less is None else part.per_step(part.wire - less),
        kept_fraction=share,
        wasted=None if shape.bytes is None else round(shape.bytes * (1 - share)),
        partner=cuts[0],
        roles=_slices(found, cuts),
    )


def _slices(
    found: Communication, cuts: Sequence[Instruction]
) -> tuple[tuple[str, Instruction], ...]:
    devices = (found.places.device(cut) for cut in cuts)
    return (
        *(("slice", cut) for cut in cuts),
        *(("device", device) for device in devices if device is not None),
    )


def _instead(part: Part, less: int | None) -> str:
    if less is None:
        return ""
    other = "an all-to-all" if part.kind == "all-gather" else "a reduce-scatter"
    return f", which {other} would give"


def _is_one_of(part: Part, share: float) -> bool:
    """Whether each device of a group keeps as much as it would of n equal parts."""
    size = part.logical.groups.size
    return size is not None and round(share * size, 6) == 1


def _leaves_whole(gather: Instruction, shape: Shape, cuts: Sequence[Instruction]) -> bool:
    """Whether slices leave the gathered dimension whole."""
    written = (attribute(gather, "dimensions") or "").strip("{} ")
    dimension = int(written) if written.isdecimal() else len(shape.dimensions)
    for cut in cuts:
        before, after = shape_of(cut.operands[0]), shape_of(cut)
        if before is None or after is None or before.dimensions != shape.dimensions:
            return False
        if after.dimensions[dimension : dimension + 1] != shape.dimensions[dimension:][:1]:
            return False
    return dimension < len(shape.dimensions)


def _behind_a_call(found: Communication, part: Part) -> Iterator[Reason]:
    """A kernel that gets the gathered operand, and of whose result each device uses its part."""
    calls = {use.instr: use for use in found.flow.uses(part.results, FORMS)}
    if len(calls) != 1:
        return
    (call,) = calls
    shape = shape_of(call)
    if call.opcode != "custom-call" or target_of(call) in PASSING_TARGETS or shape is None:
        return
    paths = [(index,) for index in range(len(shape.elements))] if shape.is_tuple else [()]
    used = [path for path in paths if found.flow.uses([(call, path)], FORMS)]
    cuts = [found.places.kept((call, path)) for path in used]
    shapes = [each for path in used if (each := shape_at(call, path)) is not None]
    if not all(cuts) or not cuts or len(shapes) < len(used):
        return
    every = [cut for some in cuts for cut in some]
    share = found.places.fraction(every, sum(each.element_count or 0 for each in shapes))
    if share is None or share >= 1:
        return
    yield Reason(
        "only_sliced",
        part,
        call,
        f"{part.name} gathers operand {calls[call].position} of {call.name}, and all that is used"
        f" of that is the part of this device: {every[0].name} takes {share:.3g} of it (a"
        " heuristic: whether the kernel could run on the parts, the text does not say)",
        saved=part.per_step(part.wire) if _is_one_of(part, share) else None,
        kept_fraction=share,
        wasted=round(sum(each.bytes or 0 for each in shapes) * (1 - share)),
        partner=every[0],
        sure=False,
        roles=(("call", call), *_slices(found, every)),
    )


# -- dtypes


def wide_wire(found: Communication) -> Iterator[Reason]:
    """Those that send a dtype wider than what they get, or than what is made of the result.

    What moves is as good in either dtype. What is reduced is not: only where the sum is made as
    narrow again as what goes into it.
    """
    for part in found.parts:
        bits = None if part.shape is None else dtype_bits(part.shape.dtype)
        if part.shape is None or bits is None or not part.shape.rank:
            continue
        if part.kind not in (*REDUCING, *MOVING):
            continue
        front = _narrower_in_front(found, part, bits)
        behind = _narrower_behind(found, part, bits)
        if part.kind in REDUCING:
            if front is not None and behind is not None and front.scale is None:
                wider = max(front, behind, key=lambda one: one.bits)
                yield _wide(part, bits, wider, (front, behind), sure=False)
            continue
        narrow = [one for one in (front, behind) if one is not None]
        if narrow:
            best = min(narrow, key=lambda one: (one.scale is not None, one.bits))
            yield _wide(part, bits, best, narrow, sure=best.scale is None)


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A convert from a narrower dtype, or to one; `where` it is, in words. scale: what multiplies
    on the way, if something does."""

    convert: Instruction
    dtype: str
    where: str
    scale: Instruction | None = None

    @property
    def bits(self) -> int:
        return dtype_bits(self.dtype) or 0


def _wide(
    part: Part, bits: int, narrow: _Narrow, every: Sequence[_Narrow], *, sure: bool
) -> Reason:
    assert part.shape is not None
    scaled = narrow.scale
    saved = None if part.wire is None else part.wire - part.wire * narrow.bits // bits
    evidence = f"{part.name} sends {part.shape.dtype}, and {narrow.convert.name} {narrow.where}"
    if scaled is not None:
        evidence += f", which {scaled.name} scales: the scale would have to travel as well"
    if part.kind in REDUCING:
        evidence += ": the sum itself is wider"
    return Reason(
        "wide_wire",
        part,
        part.logical.instr,
        evidence,
        saved=part.per_step(saved),
        blocked_by=None if scaled is None else "scale",
        partner=narrow.convert,
        sure=sure,
        roles=tuple(("convert", one.convert) for one in every),
    )


def _narrower_in_front(found: Communication, part: Part, bits: int) -> _Narrow | None:
    """The convert from the narrowest dtype in front of a collective; values that are quantized may
    be scaled behind it."""
    value = part.moved.source
    narrowest: _Narrow | None = None
    scale: Instruction | None = None
    for _ in range(_MOST_CONVERTS if value is not None else 0):
        assert value is not None
        value = trace(found.graph, value, moves=FORMS, into_loops=False)
        instr, operands = value.instr, value.instr.operands
        if instr.opcode == "convert" and operands:
            shape = shape_of(operands[0])
            if shape is not None and 0 < (dtype_bits(shape.dtype) or 0) < bits:
                where = f"in front of it converts from {shape.dtype}"
                narrowest = _Narrow(instr, shape.dtype, where, scale)
                bits = narrowest.bits
            value = Value(operands[0], (), value.via)
        elif scale is None and instr.opcode in _SCALING and len(operands) == 2:
            if not _is_spread(found, Value(operands[1], (), value.via)):
                break
            scale, value = instr, Value(operands[0], (), value.via)
        else:
            break
    return narrowest


def _is_spread(found: Communication, value: Value) -> bool:
    """Whether a value is a smaller one, repeated."""
    return trace(found.graph, value, moves=MOVES).instr.opcode == "broadcast"


def _narrower_behind(found: Communication, part: Part, bits: int) -> _Narrow | None:
    """The convert to the widest dtype, where all that takes the result converts to narrower ones of
    the same sort."""
    assert part.shape is not None
    widest: _Narrow | None = None
    for use in found.flow.uses(part.results, FORMS):
        shape = shape_of(use.instr)
        if use.instr.opcode != "convert" or shape is None:
            return None
        less = dtype_bits(shape.dtype)
        if less is None or less >= bits or _sort(shape.dtype) != _sort(part.shape.dtype):
            return None
        if widest is None or less > widest.bits:
            where = f"behind it converts to {shape.dtype}, as does all that takes it"
            widest = _Narrow(use.instr, shape.dtype, where)
    return widest


def _sort(dtype: str) -> str:
    """What converts keep: floats stay floats, integers integers."""
    return "float" if dtype.startswith(("f", "bf")) else dtype.rstrip("0123456789")
