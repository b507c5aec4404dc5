"""Where the dimensions of an operand come from, through transposes, bitcasts, copies and fusions.

A dimension of an operand is a list of factors, the slowest first: (dimension of the origin, size).
`f16[8,64]` that a bitcast makes of `f16[4,128]` has factors (0, 4), (1, 2) in its dimension 0 and
(1, 64) in its dimension 1. Dimensions of size 1 have no factors. What lies across a border, as 4 of
`f16[6,256]` in slices of 384, runs over a set of dimensions. Sizes cannot tell dimensions apart, as
K may equal N; this can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, attribute_text, operands, steps, trace
from hlo_lens.analysis.views import View, bitcast, transposed
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_ints

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

Label = int | frozenset[int]
Factor = tuple[Label, int]
Factors = tuple[tuple[Factor, ...], ...]

_Placed = tuple[Label, int, int]  # a dimension, its size, its stride
_SAME: Final = frozenset(("copy", "convert", "reduce-precision"))
# What gives part of an array, or puts parts together, and leaves its dimensions what they are.
_PARTS: Final = frozenset(("slice", "dynamic-slice", "concatenate", "all-gather", "pad"))
_NOTHING: Final[frozenset[str]] = frozenset()
_MOST_MOVES: Final = 256


@dataclass(frozen=True, slots=True)
class Origin:
    """What an array is made of. sources: where it comes from; several where it is a concatenation.
    factors: of each dimension of the array, in dimensions of the sources."""

    sources: tuple[Value, ...]
    factors: Factors

    def of(self, dimensions: Iterable[int]) -> tuple[Factor, ...]:
        """The factors of some dimensions, in that order."""
        return tuple(factor for d in dimensions for factor in self.factors[d])

    def names(self, dimensions: Iterable[int]) -> set[int]:
        """The dimensions of the sources that these run over."""
        return names_of(self.of(dimensions))


def names_of(factors: Iterable[Factor]) -> set[int]:
    """The dimensions that factors run over."""
    found: set[int] = set()
    for label, _ in factors:
        found |= {label} if isinstance(label, int) else label
    return found


def operand(value: Value, position: int) -> Value | None:
    """Operand `position` of the instruction of a value; None where the text has none."""
    of = value.instr.computation
    operands = of.operand_indices(value.instr.index)
    if position >= len(operands):
        return None
    return Value(Instruction(of, operands[position]), (), value.via)


def shape_at(value: Value) -> Shape | None:
    """The shape of the array that a value is; None for a tuple, or where the text lacks it."""
    shape = shape_of(value.instr)
    for index in value.path:
        if shape is None or index >= len(shape.elements):
            return None
        shape = shape.elements[index]
    return shape if shape is not None and shape.is_array else None


def origin_of(
    graph: CallGraph,
    value: Value,
    ends: Callable[[Value], bool] = lambda _: False,
) -> Origin | None:
    """Where an array comes from: what computes it, or a parameter.

    `ends` tells of a value whether to stop there. None where a size is not known.
    """
    try:
        found = _origin(graph, value, ends, 0)
        return found if len(found.factors) == len(_sizes(value)) else None
    except ValueError:
        return None


def _origin(graph: CallGraph, value: Value, ends: Callable[[Value], bool], depth: int) -> Origin:
    at = trace(graph, value, moves=_NOTHING)
    if ends(at):
        at = _last_before(graph, value, ends)
        return _itself(at)
    opcode = at.instr.opcode
    moves = opcode in _SAME or opcode in _PARTS or opcode in ("bitcast", "reshape", "transpose")
    given = operand(at, 0) if moves and not at.path and depth < _MOST_MOVES else None
    if given is None:
        return _itself(at)
    try:
        inner = _origin(graph, given, ends, depth + 1)
        if len(inner.factors) != len(_sizes(given)):
            raise ValueError("an operand of another rank than what it is given")
        if opcode == "concatenate":
            inner = _together(graph, at, inner, ends, depth)
        return Origin(inner.sources, _moved(at, given, inner.factors))
    except ValueError:
        return _itself(at)


def _last_before(graph: CallGraph, value: Value, ends: Callable[[Value], bool]) -> Value:
    """The last value on the way back at which the walk has not ended yet."""
    last = value
    for step in steps(graph, value, moves=_NOTHING):
        if ends(step):
            break
        last = step
    return last


def _itself(value: Value) -> Origin:
    return Origin((value,), tuple(((d, n),) if n > 1 else () for d, n in enumerate(_sizes(value))))


def _sizes(value: Value) -> list[int]:
    """Raises ValueError where one is not known, or 0."""
    shape = shape_at(value)
    sizes = [] if shape is None else [size for size in shape.dimensions if size]
    if shape is None or len(sizes) != shape.rank:
        raise ValueError("a size that is not known")
    return sizes


def _together(
    graph: CallGraph, at: Value, first: Origin, ends: Callable[[Value], bool], depth: int
) -> Origin:
    """The origin of a concatenation, whose parts are all made in one way."""
    sources = list(first.sources)
    names = [[label for label, _ in factors] for factors in first.factors]
    for part in list(operands(at))[1:]:
        other = _origin(graph, part, ends, depth + 1)
        if [[label for label, _ in factors] for factors in other.factors] != names:
            raise ValueError("parts of several kinds")
        sources += other.sources
    return Origin(tuple(dict.fromkeys(sources)), first.factors)


def _moved(at: Value, given: Value, factors: Factors) -> Factors:
    """The factors behind an instruction that moves an array. Raises ValueError."""
    instr, opcode = at.instr, at.instr.opcode
    if opcode in _SAME:
        return factors
    if opcode in _PARTS:
        return _resized(factors, _sizes(at))
    before = given.instr.shape_text
    if given.path or before.startswith("("):
        before = str(shape_at(given))
    if opcode == "transpose":
        order = parse_ints(attribute_text(instr, "dimensions") or "")
        transposed(before, order)  # raises where these are not its dimensions
        return tuple(factors[d] for d in order)
    if opcode == "bitcast":
        return _regrouped(factors, bitcast(before, instr.shape_text), _sizes(at))
    count = prod(size for each in factors for _, size in each)
    return _regrouped(factors, ((count, 1),) if count > 1 else (), _sizes(at))


def _resized(factors: Factors, sizes: Sequence[int]) -> Factors:
    if len(factors) != len(sizes):
        raise ValueError("another rank")
    found = []
    for each, size in zip(factors, sizes, strict=True):
        labels = {label for label, _ in each}
        if prod(n for _, n in each) == size:
            found.append(each)
        elif size == 1:
            found.append(())
        elif len(labels) == 1:
            found.append(((labels.pop(), size),))
        else:
            raise ValueError("a part of several dimensions")
    return tuple(found)


def _regrouped(factors: Factors, view: View, sizes: Sequence[int]) -> Factors:
    """The factors of an array of these sizes that takes the elements in another order."""
    placed: list[_Placed] = []
    stride = 1
    for label, size in reversed([factor for each in factors for factor in each]):
        placed.append((label, size, stride))
        stride *= size
    left = list(view)
    found: list[tuple[Factor, ...]] = []
    for size in reversed(sizes):
        pairs = _taken(left, size)
        found.append(tuple(factor for pair in reversed(pairs) for factor in _cut(pair, placed)))
    if prod(size for size, _ in left) != 1:
        raise ValueError("more elements than there are")
    return tuple(reversed(found))


def _taken(left: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The fastest pairs of a view that make up one dimension, the fastest first."""
    pairs = []
    while size > 1:
        if not left:
            raise ValueError("fewer elements than there are")
        count, stride = left.pop()
        if size % count and count % size:
            raise ValueError("a dimension is split unevenly")
        part = min(count, size)
        if part < count:
            left.append((count // part, stride * part))
        pairs.append((part, stride))
        size //= part
    return pairs


def _cut(pair: tuple[int, int], placed: Sequence[_Placed]) -> list[Factor]:
    """A pair of a view in the dimensions that it runs over, the slowest first; as one factor where
    it does not end where they do."""
    count, start = pair
    end = start * count
    found: list[Factor] = []
    even = True
    for label, size, stride in reversed(placed):
        low, high = max(start, stride), min(end, stride * size)
        if low < high:
            found.append((label, high // low))
            even = even and high % low == 0 and low % stride == 0
    if even and prod(size for _, size in found) == count:
        return found
    return [(frozenset(names_of(found)), count)]


def aligned(given: Sequence[Factor], other: Sequence[Factor], label: int) -> set[int]:
    """The dimensions of `other` that run along dimension `label` of `given`, where both are the
    same elements in one order, the slowest first; none where one of them is cut unevenly."""
    found: set[int] = set()
    for start, end in _spans(given, label):
        for name, low, high in _all_spans(other):
            if low < end and start < high:
                if not isinstance(name, int):
                    return set()
                found.add(name)
    return found


def _spans(factors: Sequence[Factor], label: int) -> Iterator[tuple[int, int]]:
    """From which stride to which the factors of a dimension run."""
    return ((low, high) for name, low, high in _all_spans(factors) if name == label)


def _all_spans(factors: Sequence[Factor]) -> Iterator[tuple[Label, int, int]]:
    stride = 1
    for name, size in reversed(factors):
        yield name, stride, stride * size
        stride *= size
