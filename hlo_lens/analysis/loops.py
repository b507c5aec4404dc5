"""The whiles of a module: trip counts, nesting, where they come from, what they stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hlo_lens.analysis.calls import CallGraph, CallSite
from hlo_lens.analysis.dataflow import Value, called, trace
from hlo_lens.analysis.names import last_component, own_op_name
from hlo_lens.analysis.trips import Inference, Trips, TripsKind, trips_of
from hlo_lens.hlo import Computation, Instruction, Shape

WINDOWED = "windowed_dot_general"
"""In the names of the bodies and conditions that XLA makes for a windowed einsum."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A while. `trips` says how often it runs its body, each time the while itself runs.

    body, condition: None where the text does not define them. parent: the innermost loop around
    the while; None outside of loops and where the callers of its computation differ. depth: the
    number of loops around the body, this one included; None where callers differ.
    """

    instr: Instruction
    body: Computation | None
    condition: Computation | None
    trips: Trips
    parent: Loop | None
    depth: int | None

    @property
    def trip_count(self) -> int | None:
        """The number of iterations, or None where only a bound or nothing is known."""
        return self.trips.count

    @property
    def trips_kind(self) -> TripsKind:
        return self.trips.kind

    @property
    def induction_index(self) -> int | None:
        """The element of the carry that the condition compares."""
        return self.trips.induction_index

    @property
    def step(self) -> int | None:
        """What each iteration adds to that element."""
        return self.trips.step


@dataclass(frozen=True, slots=True)
class Place:
    """Where a computation stands: the innermost loop around it and how many there are.

    loop: None outside of loops and where callers differ. depth: None where callers differ and
    where nothing calls the computation.
    """

    loop: Loop | None
    depth: int | None


NOWHERE = Place(None, None)


class Nesting:
    """The loops of a module and the place of each of its computations."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph

    @cached_property
    def trips(self) -> Mapping[Instruction, Trips]:
        """Trip counts by while, in text order."""
        whiles = (
            Instruction(computation, index)
            for computation in self.graph.module.computations
            if "while" in computation.opcodes
            for index, opcode in enumerate(computation.opcodes)
            if opcode == "while"
        )
        return {instr: trips_of(self.graph, instr) for instr in whiles}

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every while, in text order."""
        return tuple(self._places_and_loops[1].values())

    @cached_property
    def places(self) -> Sequence[Place]:
        """The place of each computation of the module."""
        return self._places_and_loops[0]

    @cached_property
    def _places_and_loops(self) -> tuple[list[Place], dict[Instruction, Loop]]:
        module = self.graph.module
        found: dict[Instruction, Loop] = {}
        places = [NOWHERE] * len(module.computations)
        inside: dict[Computation, list[Instruction]] = {}
        for instr in self.trips:
            inside.setdefault(instr.computation, []).append(instr)
        for computation in self.graph.order:
            sites = self.graph.callers(computation)
            outside = [Place(None, 0)] if computation is module.entry else []
            place = _agreed(outside + [self._place_from(site, places, found) for site in sites])
            places[computation.index] = place
            for instr in inside.get(computation, ()):
                found[instr] = self._loop(instr, place)
        for instr in self.trips:  # those in computations that call themselves
            found.setdefault(instr, self._loop(instr, NOWHERE))
        return places, {instr: found[instr] for instr in self.trips}

    def _place_from(
        self, site: CallSite, places: list[Place], loops: dict[Instruction, Loop]
    ) -> Place:
        # The condition runs in every iteration too: it is inside its loop.
        loop = loops.get(site.caller) if site.kind in ("body", "condition") else None
        return Place(loop, loop.depth) if loop else places[site.caller.computation.index]

    def _loop(self, instr: Instruction, place: Place) -> Loop:
        depth = None if place.depth is None else place.depth + 1
        trips = self.trips[instr]
        body, condition = called(instr, "body"), called(instr, "condition")
        return Loop(instr, body, condition, trips, place.loop, depth)


def _agreed(places: list[Place]) -> Place:
    if not places:
        return NOWHERE
    if len(places) == 1:
        return places[0]
    loops = {id(place.loop) for place in places}
    depths = {place.depth for place in places}
    return Place(
        places[0].loop if len(loops) == 1 else None,
        places[0].depth if len(depths) == 1 else None,
    )


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a while comes from. compiler_made: whether XLA made it out of something that is no
    loop; None where the text does not say. op: for those, the operation it stands for."""

    compiler_made: bool | None
    op: str | None


def origin(loop: Loop) -> Origin:
    """Whether a loop of the program or of the compiler: a loop of the program has an op_name that
    ends in `while` (jax) or `while_N` (TensorFlow); the windowed einsum is known by its body."""
    op_name = own_op_name(loop.instr)
    last = last_component(op_name) if op_name else None
    body = loop.body.name if loop.body is not None else ""
    if WINDOWED in body:
        return Origin(True, last)
    if last is None:
        return Origin(None, None)
    if last.split("_")[0].lower() == "while":
        return Origin(False, None)
    return Origin(True, last)


@dataclass(frozen=True, slots=True)
class Stacked:
    """Element `index` of a carry into which each iteration writes one slice.

    The body gives there a dynamic-update-slice (`update`, seen through fusions, calls, copies and
    converts) of the element itself, full in all dimensions but `dimension`, where it writes at
    scale · (induction variable) + constant; `step` is what the index moves by per iteration.
    bytes: the whole buffer; bytes_per_iteration: the slice as the buffer holds it (TPU text may
    write f32 into bf16); None where the shapes do not say.
    """

    index: int
    update: Instruction
    dimension: int
    step: int
    bytes: int | None
    bytes_per_iteration: int | None


def stacked(graph: CallGraph, loop: Loop) -> Iterator[Stacked]:
    """The stacked elements of the carry of a loop, by index."""
    if loop.body is None:
        return
    inference = Inference(graph, loop.instr, loop.trip_count)
    for index in range(tuple_width(loop.body.root)):
        value = trace(graph, Value(loop.body.root, (index,)))
        if value.instr.opcode == "dynamic-update-slice":
            found = _stacked(graph, inference, value, index)
            if found is not None:
                yield found


def tuple_width(instr: Instruction) -> int:
    """The number of elements of a tuple; 0 for anything else, and where it cannot be read."""
    try:
        return len(instr.shape.elements)
    except ValueError:
        return 0


def _stacked(graph: CallGraph, inference: Inference, update: Value, index: int) -> Stacked | None:
    operands = [Value(operand, (), update.via) for operand in update.instr.operands]
    if len(operands) < 3:
        return None
    buffer = trace(graph, operands[0])
    is_own = buffer.instr.computation is inference.body and not buffer.via
    if not is_own or buffer.instr.opcode != "parameter" or buffer.path != (index,):
        return None
    try:
        whole, part = operands[0].instr.shape, operands[1].instr.shape
        carried = buffer.instr.shape.elements[index]
    except (ValueError, IndexError):  # the text leaves the shape out
        return None
    starts = operands[2:]
    if not len(whole.dimensions) == len(part.dimensions) == len(starts):
        return None
    sizes = list(zip(whole.dimensions, part.dimensions, strict=True))
    narrower = [d for d, (size, slice_size) in enumerate(sizes) if size != slice_size]
    # A loop of one iteration stacks one slice: then it is a dimension of size 1.
    candidates = narrower or [d for d, (size, _) in enumerate(sizes) if size == 1]
    if len(narrower) > 1:
        return None
    for dimension in candidates:
        values = inference.progression(starts[dimension])
        if values is not None and values.step:
            each = _bytes_as(part, carried)
            return Stacked(index, update.instr, dimension, values.step, carried.bytes, each)
    return None


def _bytes_as(part: Shape, buffer: Shape) -> int | None:
    count, bits = part.element_count, buffer.bits
    return None if count is None or bits is None else -(-count * bits // 8)
