"""Gathers that belong together: of one source value again, and one iteration ahead of its use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._collective_flow import Flow
from hlo_lens_passes._collective_logical import Logical, execution_order
from hlo_lens_passes._collective_values import REARRANGES, Moved, Origin

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis

_FETCHING: Final = ("all-gather", "collective-permute", "collective-broadcast")
# Carries longer than this are not looked through.
_MOST_ELEMENTS: Final = 4096

Key = tuple[Instruction, int]
"""One array of a collective: what stands for the collective, and which of its arrays."""

_ByOperation = dict[Instruction, list[tuple[Logical, Moved]]]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Which gather of its source value one is, in the order of execution, and the first of them."""

    number: int
    first: Instruction | None


def numbered(
    analysis: ModuleAnalysis,
    gathers: Sequence[tuple[Logical, Moved]],
    origins: Mapping[Key, Origin],
    peeled: Iterable[Key],
) -> dict[Key, Numbered]:
    """Which gather of its source value each one is.

    Sources are followed back through moves, converts, transposes, slices, opt-barriers, fusions,
    carries that loops hand on, and what one loop stacks and another reads back. Slices of one value
    at places that change are the same source in different loops (layer by layer, forward and
    backward), but not in one iteration. What is peeled off a loop is left out.
    """
    graph = analysis.graph
    left_out = frozenset(peeled)
    ordered = sorted(gathers, key=lambda gather: execution_order(graph, gather[0].instr))
    seen: dict[object, list[tuple[Loop | None, Origin, Instruction]]] = {}
    found: dict[Key, Numbered] = {}
    for logical, moved in ordered:
        key = logical.instr, moved.number
        source = origins.get(key)
        if source is None or key in left_out:
            continue
        loop = analysis.loop(logical.instr.computation)
        before = seen.setdefault(source.key, [])
        found[key] = _numbered(before, loop, source)
        before.append((loop, source, logical.instr))
    return found


def _numbered(
    before: Sequence[tuple[Loop | None, Origin, Instruction]],
    loop: Loop | None,
    source: Origin,
) -> Numbered:
    """Of the gathers before one, those that are of the same slice: in another loop, each slice of
    an iteration is gathered as often as any of them."""
    first = None
    counts: dict[Instruction | None, Counter[object]] = {}
    for other, its_source, instr in before:
        if other is not loop or its_source.places == source.places:
            first = first or instr
            place = None if other is None else other.instr
            counts.setdefault(place, Counter())[its_source.places] += 1
    return Numbered(1 + sum(max(places.values()) for places in counts.values()), first)


# ---------------------------------------------------------------------------- one iteration ahead


@dataclass(frozen=True, slots=True)
class Ahead:
    """Gathers whose result the next iteration uses: the element of the carry that holds it. And
    gathers in front of a loop that give the first iteration's: which gather in the loop each is
    peeled off."""

    carries: dict[Key, int]
    peeled: dict[Key, tuple[Logical, Moved]]


def ahead(
    analysis: ModuleAnalysis,
    flow: Flow,
    values: Sequence[tuple[Logical, Moved]],
    origins: Mapping[Key, Origin],
) -> Ahead:
    """What is fetched ahead, and what is peeled off such a loop."""
    graph = analysis.graph
    loops: dict[Instruction, Loop] = {}
    inside: dict[Instruction, _ByOperation] = {}
    everywhere: _ByOperation = {}
    for logical, moved in values:
        if logical.logical_kind not in _FETCHING or logical.windowed is not None:
            continue
        loop = analysis.loop(logical.instr.computation)
        everywhere.setdefault(logical.operation, []).append((logical, moved))
        if loop is not None and loop.body is not None and loop.instr.operands:
            loops[loop.instr] = loop
            known = inside.setdefault(loop.instr, {})
            known.setdefault(logical.operation, []).append((logical, moved))
    found = Ahead({}, {})
    for instr, operations in inside.items():
        loop = loops[instr]
        assert loop.body is not None
        for element in range(min(len(loop.body.root.operands), _MOST_ELEMENTS)):
            given = trace(graph, Value(loop.body.root, (element,)), moves=REARRANGES)
            one = _which(operations, given)
            if one is None or not _is_ahead(analysis, flow, loop, one, origins):
                continue
            found.carries[one[0].instr, one[1].number] = element
            init = trace(graph, Value(loop.instr.operands[0], (element,)), moves=REARRANGES)
            before = _which(everywhere, init)
            if before is not None:
                found.peeled[before[0].instr, before[1].number] = one
    return found


def _which(operations: _ByOperation, value: Value) -> tuple[Logical, Moved] | None:
    """The array of a collective that a traced value is."""
    known = operations.get(value.instr, [])
    number = value.path[-1] if len(known) > 1 and value.path else 0
    return known[number] if number < len(known) else None


def _is_ahead(
    analysis: ModuleAnalysis,
    flow: Flow,
    loop: Loop,
    one: tuple[Logical, Moved],
    origins: Mapping[Key, Origin],
) -> bool:
    """Whether this iteration neither computes what is fetched nor uses what is got."""
    logical, moved = one
    origin = origins.get((logical.instr, moved.number))
    if origin is None:
        return False
    source = origin.value.instr
    inside = analysis.loop(source.computation)
    while inside is not None and inside is not loop:
        inside = inside.parent
    if inside is loop and source.opcode not in ("parameter", "constant"):
        return False
    taken = flow.uses(moved.results, REARRANGES, inside=loop.instr)
    return all(use.position is None for use in taken)
