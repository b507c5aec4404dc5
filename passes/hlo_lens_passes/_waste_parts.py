"""What a module communicates, array by array, and the reasons found why some of it need not be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of, wire_bytes
from hlo_lens.analysis.dataflow import MOVES
from hlo_lens.hlo import Instruction, Shape
from hlo_lens_passes._collective_flow import Flow, Place
from hlo_lens_passes._collective_values import Moved, moved_values
from hlo_lens_passes._waste_motion import Motion
from hlo_lens_passes._waste_places import OwnPlaces

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis
    from hlo_lens_passes._collective_logical import Logical

FORMS: Final = (MOVES | {"transpose"}) - {"convert"}
"""What gives its operand in another form, of the same dtype."""

REDUCING: Final = frozenset(("all-reduce", "reduce-scatter"))
MOVING: Final = frozenset(
    ("all-gather", "all-to-all", "collective-broadcast", "collective-permute")
)


@dataclass(frozen=True, slots=True)
class Part:
    """One array of a collective.

    row: the collective, as its table has it. executions: None where not known. wire: what one
    device sends of the array, each time. results: where it is given; () where that is not in sight.
    """

    row: Mapping[str, object]
    logical: Logical
    moved: Moved
    loop: Loop | None
    executions: int | None
    wire: int | None
    results: tuple[Place, ...]

    @property
    def kind(self) -> str:
        return self.logical.logical_kind

    @property
    def name(self) -> str:
        return self.logical.instr.name

    @property
    def shape(self) -> Shape | None:
        """Of what one device gives."""
        return self.moved.shape

    def per_step(self, sent: int | None) -> int | None:
        """Bytes of one execution as bytes of a step."""
        return None if sent is None or self.executions is None else sent * self.executions

    def sent_as(self, kind: str) -> int | None:
        """What one device would send where it was another collective of the same array."""
        size = None if self.shape is None else self.shape.bytes
        return wire_bytes(kind, size, self.logical.groups)


@dataclass(frozen=True, slots=True)
class Reason:
    """A row in the making; the table says what each field means. sure: whether it holds whatever
    the text leaves open."""

    kind: str
    part: Part
    instr: Instruction
    evidence: str
    saved: int | None = None
    kept_fraction: float | None = None
    wasted: int | None = None
    could_leave: Loop | None = None
    carry_index: int | None = None
    blocked_by: str | None = None
    partner: Instruction | None = None
    across_phases: bool | None = None
    sure: bool = True
    roles: tuple[tuple[str, Instruction], ...] = ()


class Communication:
    """The arrays that the collectives of a module move, in their order.

    Left out is what sends nothing or what nobody takes, sends and recvs, and the permutes of
    windowed loops, which are where the einsum needs them.
    """

    def __init__(
        self,
        analysis: ModuleAnalysis,
        collectives: Sequence[Logical],
        rows: Sequence[Mapping[str, object]],
    ) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.flow = Flow(self.graph)
        self.places = OwnPlaces(self.flow)
        self.motion = Motion(self.flow)
        self.parts = [
            part
            for logical, row in zip(collectives, rows, strict=True)
            if logical.windowed is None and logical.kind not in ("recv", "send")
            for part in self._parts(logical, row)
            if part.wire != 0 and all(map(_is_taken, part.results))
        ]

    def _parts(self, logical: Logical, row: Mapping[str, object]) -> Iterator[Part]:
        computation = logical.instr.computation
        loop = self.analysis.loop(computation)
        executions = self.analysis.executions(computation).exact
        for moved in moved_values(logical, self.graph):
            size = None if moved.shape is None else moved.shape.bytes
            wire = wire_bytes(logical.logical_kind, size, logical.groups)
            results = self._results(logical, moved)
            yield Part(row, logical, moved, loop, executions, wire, results)

    def _results(self, logical: Logical, moved: Moved) -> tuple[Place, ...]:
        if logical.start is not None and logical.done is None:
            return ()
        if logical.kind == "all-reduce" and logical.logical_kind == "reduce-scatter":
            # A fused reduce-scatter gives what the fusion cuts out of its all-reduce.
            cuts = [cut for place in moved.results for cut in self.places.kept(place)]
            return tuple((cut, ()) for cut in cuts)
        return moved.results

    @cached_property
    def by_operation(self) -> Mapping[Place, Part]:
        """The array by the operation that gives it, and which of its results it is."""
        return {
            (operation, (part.moved.number,)): part
            for part in self.parts
            for operation in part.logical.operations
        }


def _is_taken(place: Place) -> bool:
    """Whether something uses a value, or an element of the same tuple."""
    instr, _ = place
    return instr.is_root or bool(instr.computation.user_indices(instr.index))


def trips_of(loops: Sequence[Loop]) -> int | None:
    """How many iterations loops inside each other have together; None where not known."""
    counts = [loop.trip_count for loop in loops]
    known = [count for count in counts if count is not None]
    return prod(known) if len(known) == len(counts) else None


def once_of(sent: int | None, trips: int | None) -> int | None:
    """What is saved where it is sent once and not in each of `trips` iterations."""
    return None if sent is None or not trips else sent - sent // trips


def shape_at(instr: Instruction, path: tuple[int, ...]) -> Shape | None:
    """The array that is an element of what an instruction gives."""
    shape = shape_of(instr)
    for index in path:
        elements = () if shape is None else shape.elements
        shape = elements[index] if index < len(elements) else None
    return shape if shape is not None and shape.is_array else None
