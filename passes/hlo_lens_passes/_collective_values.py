"""The arrays that a logical collective moves, and what each of them is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.collectives import attribute, kind_of, shape_of
from hlo_lens.analysis.dataflow import JOINED, MOVES, Value, called, number_of, trace
from hlo_lens.hlo import Instruction, Shape
from hlo_lens_passes._collective_flow import Path, Place, is_shard_map_boundary
from hlo_lens_passes._collective_logical import Logical, starts

REARRANGES: Final = MOVES | {"bitcast-convert", "reduce-precision", "transpose"}
"""What gives its operand in another form; nothing is left out of it. Where a policy keeps a value,
jax rounds it to its own dtype by a reduce-precision."""

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
_BOUNDS: Final = re.compile(r"\[(\d+(?::\d+)+)\]", re.A)


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
    if (outside := _outside_shard_map(value)) is not None:
        return [outside]
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


class Along(NamedTuple):
    """A slice along one dimension: how much of how much, from where on: a number (or bounds with a
    step), or the instruction and element that it is computed from."""

    size: int | None
    whole: int | None
    begin: object


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice: its shape, and what it cuts along which dimensions. These are only those that are
    cut, in the order of their sizes, where these tell them from all others: so it is the same slice
    in front of a transpose and behind it."""

    sizes: tuple[int | None, ...]
    along: tuple[Along, ...]

    @property
    def key(self) -> object:
        """Equal for slices of one form, perhaps at different places."""
        return tuple((one.size, one.whole) for one in self.along)

    @property
    def places(self) -> tuple[object, ...]:
        """Where it begins."""
        return tuple(one.begin for one in self.along)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value is from: another, which is cut in these ways, outermost last."""

    value: Value
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> object:
        """Equal for two slices of the same value, perhaps at different places."""
        return self.value.instr, self.value.path, tuple(cut.key for cut in self.cuts)

    @property
    def places(self) -> tuple[object, ...]:
        """Where the cuts begin."""
        return tuple(cut.places for cut in self.cuts)


def origin_of(graph: CallGraph, value: Value) -> Origin:
    """Where a value is from, as far back as it is only moved, cut and stacked."""
    cuts: list[Cut] = []
    for _ in range(_MOST_PARTS):
        value = trace(graph, value, moves=REARRANGES)
        operands = value.instr.operands
        if not operands:
            break
        if (outside := _outside_shard_map(value)) is not None:
            value = outside
        elif (cut := _cut(graph, value)) is not None:
            cuts.append(cut)
            value = Value(operands[0], (), value.via)
        elif cuts and _is_stacked_so(graph, value, cuts[-1].sizes):
            # One slice of what a loop stacked is what it wrote in some iteration.
            cuts.pop()
            value = Value(operands[1], (), value.via)
        else:
            break
    return Origin(value, tuple(cuts))


def _outside_shard_map(value: Value) -> Value | None:
    """What a shard_map has another shape of in it, or the other way round; None for all else."""
    instr, path = value.instr, value.path
    if not is_shard_map_boundary(instr):
        return None
    operands, shape = instr.operands, shape_of(instr)
    number = 0
    if shape is not None and shape.is_tuple and path:
        number, path = path[0], path[1:]
    return Value(operands[number], path, value.via) if number < len(operands) else None


def _cut(graph: CallGraph, value: Value) -> Cut | None:
    """What a slice of either kind cuts; None for all else."""
    instr, operands = value.instr, value.instr.operands
    if instr.opcode not in ("dynamic-slice", "slice"):
        return None
    shape, whole = shape_of(instr), shape_of(operands[0])
    if shape is None or whole is None:
        return None
    if instr.opcode == "dynamic-slice":
        begins = tuple(_place(graph, Value(at, (), value.via)) for at in operands[1:])
    else:
        begins = tuple(map(_begin, _BOUNDS.findall(attribute(instr, "slice") or "")))
    if not len(begins) == shape.rank == whole.rank:
        return None
    along = tuple(map(Along, shape.dimensions, whole.dimensions, begins))
    cut = [one for one in along if one.size != one.whole]
    if all(one.whole is not None and whole.dimensions.count(one.whole) == 1 for one in cut):
        along = tuple(sorted(cut, key=lambda one: one.whole or 0))
    return Cut(shape.dimensions, along)


def _begin(bounds: str) -> object:
    """Of `2:4` the 2; bounds with a step are kept, as they say which elements those are."""
    begin, _, *step = bounds.split(":")
    return bounds if step and step != ["1"] else int(begin)


def _place(graph: CallGraph, index: Value) -> object:
    """What says where a slice begins: a number, or the value it is computed from."""
    end = trace(graph, index)
    number = number_of(end)
    return (end.instr, end.path) if number is None else number


def _is_stacked_so(graph: CallGraph, value: Value, sizes: tuple[int | None, ...]) -> bool:
    """Whether a value is a carry into which a loop writes slices of these sizes."""
    operands = value.instr.operands
    if value.instr.opcode != "dynamic-update-slice" or len(operands) < 2:
        return False
    written = shape_of(operands[1])
    if written is None or sizes != written.dimensions:
        return False
    buffer = trace(graph, Value(operands[0], (), value.via))
    return buffer.instr.opcode == "parameter" and bool(buffer.path)
