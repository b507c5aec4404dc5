"""Collectives that do again what another has done, or what a faster path would have done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import attribute, frontend_attributes, group_mode
from hlo_lens.analysis.dataflow import MOVES, Value, steps, trace
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens_passes._collective_logical import Logical, execution_order
from hlo_lens_passes._waste_parts import FORMS, Communication, Part, Reason

if TYPE_CHECKING:
    from hlo_lens.analysis.congruence import Context

_REARRANGES: Final = MOVES | {"transpose"}
_BARRIERS: Final = frozenset(("opt-barrier", "optimization-barrier"))
_BACKWARD: Final = frozenset(("bwd", "remat"))

# (first, second) over the same groups: what it amounts to, and whether the second could go.
_CHAINS: Final[Mapping[tuple[str, str], tuple[str, bool]]] = {
    ("all-gather", "all-gather"): ("every device has all of it already", True),
    ("all-gather", "all-reduce"): ("it reduces copies of one value", True),
    ("all-gather", "all-to-all"): ("every device has all of it already", True),
    ("all-gather", "reduce-scatter"): ("it reduces copies of one value", True),
    ("all-reduce", "all-gather"): ("every device has all of it already", True),
    ("all-reduce", "all-reduce"): ("it reduces copies of one value", True),
    ("all-reduce", "all-to-all"): ("every device has all of it already", True),
    ("all-reduce", "reduce-scatter"): ("it reduces copies of one value", True),
    ("reduce-scatter", "all-gather"): ("the two amount to one all-reduce", False),
}


def chained(found: Communication) -> Iterator[Reason]:
    """Those that take what another over the same groups gives, as it is. A single number may be a
    token, which puts them in an order: that is none."""
    for part in found.parts:
        first = _producer(found, part)
        if first is None or first.loop is not part.loop or part.shape is None:
            continue
        if not part.shape.rank:
            continue
        why = _CHAINS.get((first.kind, part.kind))
        if why is None or _devices(first.logical) != _devices(part.logical):
            continue
        sentence, could_go = why
        yield Reason(
            "chained",
            part,
            part.logical.instr,
            f"{part.name} takes what {first.name} gives, over the same groups: {sentence}",
            saved=part.per_step(part.wire) if could_go else 0,
            partner=first.logical.instr,
            sure=could_go,
            roles=(("partner", first.logical.instr),),
        )


def _producer(found: Communication, part: Part) -> Part | None:
    """The collective that gives what one takes, as it is."""
    if part.moved.source is None:
        return None
    end = trace(found.graph, part.moved.source, moves=_REARRANGES, into_loops=False)
    scatters = end.instr.opcode == "dynamic-slice" and found.places.is_own(end.instr)
    if scatters:
        # A fused reduce-scatter ends in a slice.
        end = trace(found.graph, Value(end.instr.operands[0], (), end.via), moves=FORMS)
    operands = end.instr.computation.operand_indices(end.instr.index)
    path = end.path[-1:] if len(operands) > 1 else (0,)
    first = found.by_operation.get((end.instr, path))
    if first is None or (scatters and first.kind != "reduce-scatter"):
        return None
    return first


def _devices(logical: Logical) -> object:
    """Which devices are together, however it is written."""
    operation = logical.operation
    text = attribute(operation, "replica_groups")
    return group_mode(operation, logical.kind), _sets(text) or logical.groups


@lru_cache(maxsize=256)
def _sets(text: str | None) -> frozenset[frozenset[int]]:
    try:
        groups = () if text is None else parse_replica_groups(text).groups
    except ValueError:
        return frozenset()
    return frozenset(map(frozenset, groups))


# -- the same collective twice


def duplicate(found: Communication) -> Iterator[Reason]:
    """Those that give what an earlier one in the same iteration gives."""
    numbers = _numbers(found)
    seen: dict[object, Part] = {}
    ordered = sorted(found.parts, key=lambda part: execution_order(found.graph, part.logical.instr))
    for part in ordered:
        known = numbers.get((part.logical.operation, part.moved.number))
        if known is None or part.shape is None:
            continue
        key = known, part.kind, part.shape.dtype, part.shape.dimensions
        first = seen.setdefault(key, part)
        if first is not part:
            yield _duplicate(found, part, first)


def _duplicate(found: Communication, part: Part, first: Part) -> Reason:
    source = part.moved.source
    passed = () if source is None else steps(found.graph, source, moves=_REARRANGES)
    barrier = next((at.instr for at in passed if at.instr.opcode in _BARRIERS), None)
    evidence = f"{part.name} has the attributes and the operand of {first.name}"
    if first.logical is part.logical:
        evidence = f"{part.name} has operand {first.moved.number} again as {part.moved.number}"
    roles = [("partner", first.logical.instr)]
    if barrier is not None:
        evidence += f", behind {barrier.name}, which keeps them apart"
        roles.append(("barrier", barrier))
    one, two = first.row["phase"], part.row["phase"]
    across = None if one is None or two is None else one == "fwd" and two in _BACKWARD
    if across:
        evidence += "; the backward has it again, so that it is not kept meanwhile"
    return Reason(
        "duplicate",
        part,
        part.logical.instr,
        evidence,
        saved=part.per_step(part.wire),
        blocked_by=None if barrier is None else barrier.opcode,
        partner=first.logical.instr,
        across_phases=across,
        sure=across is False,
        roles=tuple(roles),
    )


def _numbers(found: Communication) -> dict[tuple[Instruction, int], object]:
    """For each array of a collective the number of its value, and the loops and branches around
    it. What is called from several places has none."""
    by_computation: dict[Computation, list[Part]] = {}
    for part in found.parts if len(found.parts) > 1 else ():
        by_computation.setdefault(part.logical.operation.computation, []).append(part)
    met: dict[tuple[Instruction, int], list[object]] = {}
    if not by_computation:
        return {}
    congruence = found.analysis.congruence
    for context in congruence.contexts():
        for part in by_computation.get(context.evaluation.computation, ()):
            operation, number = part.logical.operation, part.moved.number
            value = context.evaluation.values[operation.index]
            if len(operation.computation.operand_indices(operation.index)) > 1:
                value = congruence.numbers.element(value, number)
            met.setdefault((operation, number), []).append((value, _around(context)))
    return {key: values[0] for key, values in met.items() if len(values) == 1}


def _around(context: Context) -> tuple[object, ...]:
    """The loops and branches around a place, and what is called of each."""
    inside = (*(caller.computation for caller in context.via[1:]), context.evaluation.computation)
    return tuple(
        (caller, computation)
        for caller, computation in zip(context.via, inside, strict=False)
        if caller.opcode in ("conditional", "while")
    )


# -- not on the fast path


def dtype_fallback(found: Communication) -> Iterator[Reason]:
    """Those that were asynchronous and run synchronously on the TensorCore, of a dtype that the
    SparseCore runs nothing of, in a module where it runs others."""
    offloaded: dict[str, Instruction] = {}
    for part in found.parts:
        if part.row["core"] == "sparsecore" and part.shape is not None:
            offloaded.setdefault(part.shape.dtype, part.logical.instr)
    for part in found.parts:
        if part.row["core"] != "tensorcore" or part.logical.start is not None:
            continue
        if part.shape is None or not offloaded or part.shape.dtype in offloaded:
            continue
        was = frontend_attributes(part.logical.operation).get("async_collective_name")
        if was is None:
            continue
        dtype, other = next(iter(offloaded.items()))
        yield Reason(
            "dtype_fallback",
            part,
            part.logical.instr,
            f"{part.name} was {was} and runs synchronously on the TensorCore; the SparseCore runs"
            f" {other.name} of {dtype}, and nothing of {part.shape.dtype} (a heuristic: the text"
            " does not say why)",
            blocked_by=part.shape.dtype,
            partner=other,
            sure=False,
            roles=(("partner", other),),
        )
