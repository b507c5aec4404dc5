"""The arrays that a logical collective moves, and what each of them is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.collectives import attribute, kind_of, shape_of
from hlo_lens.analysis.dataflow import MOVES, Value, called, number_of, trace
from hlo_lens.hlo import Instruction, Shape
from hlo_lens_passes._collective_flow import JOINED, Path, Place
from hlo_lens_passes._collective_logical import Logical, starts

REARRANGES: Final = MOVES | {"bitcast-convert", "transpose"}
"""What gives its operand in another form; nothing is left out of it."""

CUTS: Final = REARRANGES | {"dynamic-slice", "pad", "slice", JOINED}
"""What gives its operand in another form, or a part of it."""

ARITHMETIC: Final = frozenset(
    (
        "abs", "add", "and", "ceil", "clamp", "compare", "divide", "exponential", "floor", "log",
        "maximum", "minimum", "multiply", "negate", "not", "or", "power", "remainder",
        "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "sign", "sqrt", "subtract",
    )
)  # fmt: skip
_CONSTANTS: Final = frozenset(("constant", "iota"))
MOVING: Final = frozenset(
    ("all-gather", "all-to-all", "collective-broadcast", "collective-permute")
)
# A value that is made of more parts than this is computed.
_MOST_PARTS: Final = 64


@dataclass(frozen=True, slots=True)
class Moved:
    """One array of a collective: what it takes (None where the text does not say), and where what
    it gives is, as instructions and elements of these."""

    number: int
    shape: Shape | None
    source: Value | None
    results: tuple[Place, ...]


def moved_values(logical: Logical, graph: CallGraph) -> list[Moved]:
    """The arrays that a collective moves, in the order of its operands."""
    if logical.windowed is not None:
        return list(_of_loop(logical))
    operands, shapes = logical.operation.operands, logical.shapes or ()
    count = max(1, len(shapes))
    found = []
    for number in range(count):
        element = (number,) if count > 1 else ()
        source = _taken(logical, number, graph) if number < len(operands) else None
        shape = shapes[number] if number < len(shapes) else None
        found.append(Moved(number, shape, source, _results(logical, element)))
    return found


def _of_loop(logical: Logical) -> Iterator[Moved]:
    """Of a windowed loop: what is gathered is where it goes round, in the body."""
    windowed = logical.windowed
    assert windowed is not None
    body = called(windowed.loop, "body")
    for number, shard in enumerate(windowed.shards):
        results: tuple[Place, ...] = ()
        if windowed.logical_kind != "all-gather":
            elements = shard.elements or windowed.results
            results = tuple((windowed.loop, (element,)) for element in elements)
            results += tuple((end, ()) for end in logical.peeled_ends)
        elif body is not None and body.parameters:
            results = tuple((body.parameters[0], (element,)) for element in shard.elements)
        yield Moved(number, shard.shape, shard.source, results)


def _taken(logical: Logical, number: int, graph: CallGraph) -> Value:
    """Operand `number`; of an async call that gets operands late, what an update brings."""
    operation, site = logical.operation, logical.start or logical.instr
    of = operation.computation
    value = Value(Instruction(of, of.operand_indices(operation.index)[number]))
    if not logical.updates or operation.computation is site.computation or not starts(site):
        return value
    value = trace(graph, value)
    parameter = value.instr.parameter_number
    if parameter is None or value.instr.computation is site.computation:
        return value
    late = [operand for update in logical.updates for operand in update.operands[1:]]
    given = [*site.operands, *late]
    return Value(given[parameter]) if parameter < len(given) else value


def _results(logical: Logical, element: Path) -> tuple[Place, ...]:
    """Where one array of the result is: with the done, or in the fusion that holds the operation,
    which may hand on only a part of it."""
    operation = logical.operation
    if operation.opcode.startswith(("send", "recv")):
        return ()
    if logical.form == "fusion" or (logical.form == "sugar" and not operation.is_root):
        return ((operation, element),)
    return ((logical.done or logical.instr, element),)


# ---------------------------------------------------------------------------- what it is made of


@dataclass(frozen=True, slots=True)
class Made:
    """What a value is made of.

    `parameter`: of what the entry is given, moved about, or changed by nothing but itself and
    numbers; `of` are the parameters. `constant`: of constants. `computed`: of anything else.
    `unknown`: of what a computation is given whose callers are not known.
    """

    kind: Literal["parameter", "constant", "computed", "unknown"]
    of: tuple[Instruction, ...] = ()


COMPUTED: Final = Made("computed")


def made_of(graph: CallGraph, value: Value) -> Made:
    """What a value is made of; see `Made`. Followed back through moves, slices, pads, stacks,
    carries, collectives that only move, and arithmetic with numbers."""
    parameters: dict[Instruction, None] = {}
    seen: set[Place] = set()
    waiting = [value]
    changed = unknown = False
    while waiting:
        at = trace(graph, waiting.pop(), moves=CUTS)
        if (at.instr, at.path) in seen:
            continue
        seen.add((at.instr, at.path))
        opcode = at.instr.opcode
        if opcode == "parameter" and at.instr.computation.is_entry:
            parameters[at.instr] = None
        elif opcode in _CONSTANTS:
            continue
        elif (parts := _parts(graph, at)) is None:
            return COMPUTED
        else:
            unknown |= not parts
            changed |= opcode in ARITHMETIC
            waiting += parts
        if len(seen) > _MOST_PARTS or (changed and len(parameters) > 1):
            return COMPUTED
    if unknown:
        return Made("unknown")
    return Made("parameter", tuple(parameters)) if parameters else Made("constant")


def _parts(graph: CallGraph, value: Value) -> list[Value] | None:
    """What a value is put together from; None where it is computed, [] where that is not known."""
    instr, via = value.instr, value.via
    opcode, operands = instr.opcode, instr.operands
    if opcode == "parameter":
        return _parts_of_carry(graph, value)
    if not operands:
        return None
    if opcode in ARITHMETIC:
        parts = [Value(operand, (), via) for operand in operands]
        return [part for part in parts if not _is_spread(graph, part)] or parts
    if opcode == "concatenate" or instr.custom_call_target == JOINED:
        return [Value(operand, (), via) for operand in operands]
    if opcode == "dynamic-update-slice":
        return [Value(operand, (), via) for operand in operands[:2]]
    if opcode == "broadcast":
        return [Value(operands[0], (), via)]
    if kind_of(opcode) in MOVING:
        number = value.path[-1] if len(operands) > 1 and value.path else 0
        return [Value(operands[number], (), via)] if number < len(operands) else None
    return None


def _is_spread(graph: CallGraph, value: Value) -> bool:
    """Whether it is one number, or few, for all elements: a scale, a bound, an epsilon."""
    return trace(graph, value).instr.opcode in ("broadcast", "constant")


def _parts_of_carry(graph: CallGraph, value: Value) -> list[Value]:
    """Of an element that a loop carries and changes: what it starts with, and what becomes of it.
    [] for every other parameter of a computation."""
    caller, outer = (value.via[-1], value.via[:-1]) if value.via else (None, ())
    if caller is None:
        site = graph.only_caller(value.instr.computation)
        caller = None if site is None else site.caller
    if caller is None or caller.opcode != "while" or not caller.operands or not value.path:
        return []
    body = called(caller, "body")
    if body is None:
        return []
    init = Value(caller.operands[0], value.path, outer)
    return [init, Value(body.root, value.path, (*outer, caller))]


# ---------------------------------------------------------------------------- which slice of it


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value is from: another, which is cut in these ways, outermost last, at these
    places."""

    value: Value
    cuts: tuple[str, ...]
    places: tuple[object, ...]

    @property
    def key(self) -> object:
        """Equal for two slices of the same value, perhaps at different places."""
        return self.value.instr, self.value.path, self.cuts


def origin_of(graph: CallGraph, value: Value) -> Origin:
    """Where a value is from, as far back as it is only moved, cut and stacked."""
    cuts: list[str] = []
    places: list[tuple[object, ...]] = []
    for _ in range(_MOST_PARTS):
        value = trace(graph, value, moves=REARRANGES)
        instr, operands = value.instr, value.instr.operands
        if not operands:
            break
        if instr.opcode == "slice":
            cuts.append(attribute(instr, "slice") or "")
            places.append(())
            value = Value(operands[0], (), value.via)
        elif instr.opcode == "dynamic-slice":
            cuts.append(attribute(instr, "dynamic_slice_sizes") or "")
            places.append(tuple(_place(graph, Value(at, (), value.via)) for at in operands[1:]))
            value = Value(operands[0], (), value.via)
        elif cuts and _is_stacked_so(graph, value, cuts[-1]):
            # One slice of what a loop stacked is what it wrote in some iteration.
            cuts.pop()
            places.pop()
            value = Value(operands[1], (), value.via)
        else:
            break
    return Origin(value, tuple(cuts), tuple(places))


def _place(graph: CallGraph, index: Value) -> object:
    """What says where a slice begins: a number, or the value it is computed from."""
    end = trace(graph, index)
    number = number_of(end)
    return (end.instr, end.path) if number is None else number


def _is_stacked_so(graph: CallGraph, value: Value, sizes: str) -> bool:
    """Whether a value is a carry into which a loop writes slices of these sizes."""
    operands = value.instr.operands
    if value.instr.opcode != "dynamic-update-slice" or len(operands) < 2:
        return False
    written = shape_of(operands[1])
    if written is None or sizes.strip("{}") != ",".join(map(str, written.dimensions)):
        return False
    buffer = trace(graph, Value(operands[0], (), value.via))
    return buffer.instr.opcode == "parameter" and bool(buffer.path)
