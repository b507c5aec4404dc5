"""Collectives that a loop repeats: the same each time, only added up, only stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._waste_invariance import Invariance
from hlo_lens_passes._waste_motion import Destination
from hlo_lens_passes._waste_parts import (
    MOVING,
    REDUCING,
    Communication,
    Part,
    Reason,
    once_of,
    trips_of,
)

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop

_ROLES: Final = {"dynamic-slice": "slice", "dynamic-update-slice": "write"}


def hoistable(found: Communication) -> Iterator[Reason]:
    """Those whose operand no iteration changes; and all-reduces that complete a reduction, of what
    is known for all iterations in front of the loop, as a statistic of each layer's weights."""
    same, known = Invariance(found.analysis), Invariance(found.analysis, counting=True)
    for part in found.parts:
        source = part.moved.source
        if part.loop is None or source is None:
            continue
        operand = trace(found.graph, source).instr
        loops = same.unchanged(source.instr)
        if loops:
            evidence = f"gets the same {operand.name} in every iteration of {_names(loops)}"
            if part.kind == "all-gather" and (size := _result_bytes(part)) is not None:
                evidence += f"; in front of it, {size:,} bytes are kept while it runs"
            yield from _hoistable(part, operand, loops, evidence, None)
        elif part.kind != "all-reduce" or operand.opcode != "reduce" or _is_added_up(found, part):
            continue
        elif loops := known.unchanged(source.instr)[:1]:
            evidence = (
                f"gets of {operand.name} what changes with the number of the iteration of"
                f" {_names(loops)} alone: for all iterations at once it sends as many bytes"
            )
            yield from _hoistable(part, operand, loops, evidence, "index")


def _hoistable(
    part: Part, operand: Instruction, loops: Sequence[Loop], evidence: str, blocked_by: str | None
) -> Iterator[Reason]:
    trips = trips_of(loops)
    if trips == 1:
        return
    yield Reason(
        "hoistable",
        part,
        part.logical.instr,
        f"{part.name} {evidence}",
        saved=0 if blocked_by else once_of(part.per_step(part.wire), trips),
        could_leave=loops[-1],
        blocked_by=blocked_by,
        partner=operand,
        roles=(("operand", operand), *(("loop", loop.instr) for loop in loops)),
    )


def _result_bytes(part: Part) -> int | None:
    """Of a gather: what one device gets of all."""
    size, n = None if part.shape is None else part.shape.bytes, part.logical.groups.size
    return None if size is None or n is None else size * n


def _is_added_up(found: Communication, part: Part) -> bool:
    end = _destination(found, part)
    return end is not None and end.kind == "sum"


def collected(found: Communication) -> Iterator[Reason]:
    """Those that a loop only adds up, or only stacks."""
    ends = {id(part): end for part in found.parts if (end := _destination(found, part)) is not None}
    joined = _joined(found, ends)
    for part in found.parts:
        end = ends.get(id(part))
        if end is None or trips_of(end.loops) == 1:
            continue
        yield from _left_out(found, part, end, joined)
        if end.kind == "sum":
            yield from _added_up(part, end)
        # Behind the loop, all of what is cut in it would have to be kept.
        elif part.kind != "reduce-scatter" and not _is_cut(found, end) and _is_exposed(part):
            yield _stacked(part, end)


def _destination(found: Communication, part: Part) -> Destination | None:
    if part.loop is None or not part.results or part.kind not in (*REDUCING, *MOVING):
        return None
    return found.motion.destination(part.loop, part.results)


def _added_up(part: Part, end: Destination) -> Iterator[Reason]:
    if part.kind not in REDUCING or not end.summing or not adds(part.logical.operation):
        return
    scatters = part.kind == "reduce-scatter"
    size = None if part.shape is None else part.shape.bytes
    kept = "" if not scatters or size is None else f"; behind it, {size:,} bytes of input are kept"
    yield Reason(
        "accumulate_only",
        part,
        part.logical.instr,
        f"{end.writes[0].name} adds what {part.name} gives to {_carried(end)}, which no iteration"
        f" uses otherwise: one {part.kind} behind the loop would do{kept}",
        saved=once_of(part.per_step(part.wire), trips_of(end.summing)),
        could_leave=end.loops[-1],
        carry_index=end.index,
        blocked_by=_blockers(end),
        partner=end.writes[0],
        sure=not scatters,
        roles=_roles(end),
    )


def _stacked(part: Part, end: Destination) -> Reason:
    return Reason(
        "only_stacked",
        part,
        part.logical.instr,
        f"{end.writes[0].name} writes what {part.name} gives to {_carried(end)}, which no iteration"
        f" reads: one {part.kind} behind the loop sends as many bytes at once",
        saved=0,
        could_leave=end.loops[-1],
        carry_index=end.index,
        blocked_by=_blockers(end),
        partner=end.writes[0],
        roles=_roles(end),
    )


def _is_exposed(part: Part) -> bool:
    """Whether nothing hides it, as far as the schedule says."""
    overlapped = part.row["overlapped"]
    return overlapped is not None and not overlapped


_Joined = dict[object, list[tuple[Part, str]]]
"""Reductions that are not by themselves, and what became of them, by what is alike in them."""


def _left_out(
    found: Communication, part: Part, end: Destination, joined: _Joined
) -> Iterator[Reason]:
    """A reduction by itself, where one of an array of the same shape is combined with others or has
    left the loop, and what tells the two apart is known."""
    shape = part.shape
    if shape is None or part.kind != "all-reduce" or len(part.logical.shapes or ()) > 1:
        return
    cut = _is_cut(found, end)
    for other, what in joined.get(_likeness(part, end.loops[0], end.kind, shape.dimensions), ()):
        if other.shape is None or (other.shape.dtype == shape.dtype) is not cut:
            continue
        why = f"it is of {shape.dtype}, they of {other.shape.dtype}"
        if cut:
            why = "its result is cut at the device's own place"
        yield Reason(
            "left_out",
            part,
            part.logical.instr,
            f"{other.name}, of arrays of this shape, {what}; {part.name} stays by itself: {why}"
            " (a heuristic: arrays of one shape are taken for parameters of one kind)",
            could_leave=end.loops[-1],
            carry_index=end.index,
            blocked_by="sharding" if cut else "dtype",
            partner=other.logical.instr,
            sure=False,
            roles=(("partner", other.logical.instr), *_roles(end)),
        )
        return


def _joined(found: Communication, ends: dict[int, Destination]) -> _Joined:
    loops = {loop.instr: loop for loop in found.analysis.loops}
    joined: _Joined = {}
    for part in found.parts:
        if part.shape is None or part.kind != "all-reduce":
            continue
        end, count = ends.get(id(part)), len(part.logical.shapes or ())
        dimensions, kind = part.shape.dimensions, "stack"
        if end is not None:
            loop = None if count < 2 or _is_cut(found, end) else end.loops[0]
            kind, what = end.kind, f"is combined with {count - 1} more"
        else:
            loop = _stacked_by(found, part, loops)
            dimensions, what = dimensions[1:], "has left the loop"
        if loop is not None:
            key = _likeness(part, loop, kind, dimensions)
            joined.setdefault(key, []).append((part, what))
    return joined


def _likeness(part: Part, loop: Loop, kind: str, dimensions: tuple[int | None, ...]) -> object:
    groups = part.logical.groups
    return loop.instr, kind, dimensions, groups, adds(part.logical.operation)


def _is_cut(found: Communication, end: Destination) -> bool:
    return any(map(found.places.is_own, end.steps))


def _stacked_by(found: Communication, part: Part, loops: Mapping[Instruction, Loop]) -> Loop | None:
    """The loop that has stacked what a collective takes."""
    if part.moved.source is None:
        return None
    moves = MOVES | {"transpose"}
    end = trace(found.graph, part.moved.source, moves=moves, into_loops=False)
    loop = loops.get(end.instr)
    if loop is None or len(end.path) != 1:
        return None
    return loop if end.path[0] in found.motion.stacks(loop).values() else None


def adds(operation: Instruction) -> bool:
    """Whether a reduction adds, and does not take the maximum or such."""
    return any(callee.root.opcode == "add" for callee in operation.called)


def _names(loops: Sequence[Loop]) -> str:
    return " and ".join(loop.instr.name for loop in loops)


def _carried(end: Destination) -> str:
    element = "elements" if end.index is None else f"element {end.index}"
    return f"{element} of the carry of {end.loops[-1].instr.name}"


def _blockers(end: Destination) -> str | None:
    return ", ".join(end.blockers) or None


def _roles(end: Destination) -> tuple[tuple[str, Instruction], ...]:
    instrs = (*end.steps, *end.writes)
    roles = [(_ROLES.get(instr.opcode, instr.opcode), instr) for instr in instrs]
    return (*roles, *(("loop", loop.instr) for loop in end.loops))
