"""Collectives that a loop repeats: the same each time, only added up, only stacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    alike: dict[object, list[Part]] = {}
    for part in found.parts:
        alike.setdefault(_likeness(part), []).append(part)
    for part in found.parts:
        end = ends.get(id(part))
        if end is None or trips_of(end.loops) == 1:
            continue
        if end.kind == "sum":
            yield from _added_up(part, end)
        elif any(found.places.is_own(step) for step in end.steps):
            # Behind the loop, all of what is now cut would have to be kept.
            yield from _left_out(found, part, ends, alike[_likeness(part)])
        elif part.kind != "reduce-scatter" and _is_exposed(part):
            yield _stacked(part, end)


def _likeness(part: Part) -> object:
    """Equal for arrays that are reduced in the same way."""
    dtype = None if part.shape is None else part.shape.dtype
    return part.kind, part.logical.groups, dtype, adds(part.logical.operation)


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


def _left_out(
    found: Communication, part: Part, ends: dict[int, Destination], alike: Sequence[Part]
) -> Iterator[Reason]:
    """A reduction that is cut at the device's own place, where one of an array of the same shape
    is not, and is combined with others or has left the loop."""
    if part.shape is None or part.kind != "all-reduce":
        return
    end = ends[id(part)]
    for other in alike:
        if other.logical is part.logical or other.shape is None:
            continue
        dimensions, its_end = other.shape.dimensions, ends.get(id(other))
        count = len(other.logical.shapes or ())
        if other.loop is part.loop and its_end is not None and count > 1:
            joined = not any(map(found.places.is_own, its_end.steps))
            what = f"is combined with {count - 1} more"
        else:
            dimensions = dimensions[1:]
            joined = _is_stack_of(found, other, end.loops[0])
            what = f"has left {end.loops[0].instr.name}"
        if joined and dimensions == part.shape.dimensions:
            yield Reason(
                "left_out",
                part,
                part.logical.instr,
                f"{other.name}, of arrays of this shape, {what}; {part.name} stays by itself: its"
                " result is cut at the device's own place (a heuristic: arrays of one shape are"
                " taken for parameters of one kind)",
                could_leave=end.loops[-1],
                carry_index=end.index,
                blocked_by="sharding",
                partner=other.logical.instr,
                sure=False,
                roles=(("partner", other.logical.instr), *_roles(end)),
            )
            return


def _is_stack_of(found: Communication, part: Part, loop: Loop) -> bool:
    """Whether a collective takes what a loop has stacked."""
    if part.moved.source is None:
        return False
    moves = MOVES | {"transpose"}
    end = trace(found.graph, part.moved.source, moves=moves, into_loops=False)
    stacks = found.motion.stacks(loop).values()
    return end.instr == loop.instr and len(end.path) == 1 and end.path[0] in stacks


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
