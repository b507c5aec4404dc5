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
from hlo_lens_passes._collective_values import REARRANGES, Along, Moved, Origin

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
    backward), but not in one iteration (`_Slices`). What `peeled` names is left out.
    """
    graph = analysis.graph
    left_out = frozenset(peeled)
    gathered: list[_Gather] = []
    for logical, moved in gathers:
        key = logical.instr, moved.number
        if key in origins and key not in left_out:
            loop = analysis.loop(logical.instr.computation)
            gathered.append(_Gather(key, loop, origins[key]))
    gathered.sort(key=lambda gather: execution_order(graph, gather.key[0]))
    slices = _Slices(analysis, gathered)
    seen: dict[object, list[_Gather]] = {}
    found: dict[Key, Numbered] = {}
    for gather in gathered:
        before = seen.setdefault(gather.source.key, [])
        found[gather.key] = _numbered([one for one in before if slices.same(one, gather)])
        before.append(gather)
    return found


@dataclass(frozen=True, slots=True)
class _Gather:
    """A gather, the innermost loop around it, and where its value is from."""

    key: Key
    loop: Loop | None
    source: Origin


def _numbered(before: Sequence[_Gather]) -> Numbered:
    """By the gathers of the same slice before one: in another loop, each slice of an iteration is
    gathered as often as any of them."""
    counts: dict[Instruction | None, Counter[object]] = {}
    for gather in before:
        place = None if gather.loop is None else gather.loop.instr
        counts.setdefault(place, Counter())[gather.source.places] += 1
    number = 1 + sum(max(places.values()) for places in counts.values())
    return Numbered(number, before[0].key[0] if before else None)


class _Slices:
    """Which gathers are of the same slice of their source value."""

    def __init__(self, analysis: ModuleAnalysis, gathers: Sequence[_Gather]) -> None:
        self.analysis = analysis
        # How many slices of a value one iteration of a loop gathers.
        self._places: dict[object, set[object]] = {}
        for gather in gathers:
            if gather.loop is not None:
                key = gather.source.key, gather.loop.instr
                self._places.setdefault(key, set()).add(gather.source.places)

    def same(self, one: _Gather, other: _Gather) -> bool:
        """Whether both gather the same slices. In different loops, slices at places that change are
        the same; one at a fixed place is among those of a loop that has enough iterations for all
        of them, and not of one that an iteration was peeled off."""
        if one.loop is other.loop:
            return one.source.places == other.source.places
        for cut, its in zip(one.source.cuts, other.source.cuts, strict=True):
            for along, other_along in zip(cut.along, its.along, strict=True):
                changing = [
                    (gather, at)
                    for gather, at in ((one, along), (other, other_along))
                    if isinstance(at.begin, tuple)
                ]
                if not changing and along.begin != other_along.begin:
                    return False
                if len(changing) == 1 and not self._reaches_all(*changing[0]):
                    return False
        return True

    def _reaches_all(self, gather: _Gather, along: Along) -> bool:
        """Whether a loop takes all slices along a dimension; yes where its trip count is not
        known."""
        assert isinstance(along.begin, tuple)
        loop = self.analysis.loop(along.begin[0].computation)
        if loop is None or loop.trip_count is None or along.size is None or along.whole is None:
            return True
        each = 1
        if gather.loop is loop:
            each = len(self._places[gather.source.key, loop.instr])
        return loop.trip_count * each * along.size >= along.whole


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
