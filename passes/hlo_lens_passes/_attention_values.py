"""What scores are computed from: values followed back with their axes, through fusions, calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lens.analysis.contractions import Contraction, contraction
from hlo_lens.analysis.dataflow import (
    Value,
    attribute_text,
    called,
    number_of,
    steps,
    through,
)
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.views import bitcast, transposed
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_window
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY, PLACEMENT, structural_attributes
from hlo_lens_passes._attention_axes import Axes, merged, row_major
from hlo_lens_passes._attention_saved import Saved
from hlo_lens_passes._calls import target_of

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation

_NOTHING: Final[frozenset[str]] = frozenset()
# What gives its operand in another shape or dtype, in the same order of elements.
_SAME_ORDER: Final = frozenset(("convert", "copy", "reduce-precision", "reshape"))
ELEMENTWISE: Final = frozenset(
    (
        "abs", "add", "clamp", "divide", "exponential-minus-one", "log", "log-plus-one",
        "logistic", "maximum", "minimum", "multiply", "negate", "power", "rsqrt", "select",
        "sign", "sqrt", "subtract", "tanh",
    )
)  # fmt: skip
# What writes no array of its own.
_FREE: Final = frozenset(
    (
        "bitcast", "call", "conditional", "constant", "get-tuple-element", "opt-barrier",
        "optimization-barrier", "parameter", "tuple", "while",
    )
)  # fmt: skip
_REDUCES: Final = frozenset(("reduce", "reduce-window"))
_DIMENSIONS: Final = re.compile(r", dimensions=\{([0-9,\s]*)\}", re.A)
_NOT_COMPUTED: Final = COMMENTARY | IDENTITY | PLACEMENT
# More moves in a row, and larger trees of operations on scores, do not occur.
_MOST_MOVES: Final = 128
_MOST_NODES: Final = 160


class Spot(NamedTuple):
    """An instruction that computes a value, seen from some consumer: `value.via` is the way into
    its computation; `axes` is where its queries and keys lie."""

    value: Value
    axes: Axes

    @property
    def instr(self) -> Instruction:
        return self.value.instr

    def operand(self, number: int) -> Value | None:
        """One of its operands; None where the text has fewer."""
        of = self.instr.computation
        operands = of.operand_indices(self.instr.index)
        if number >= len(operands):
            return None
        return Value(Instruction(of, operands[number]), (), self.value.via)


class Row(NamedTuple):
    """A value that is broadcast into a tree of scores, and the operation that takes it."""

    spot: Spot
    taker: Instruction
    position: int


class Choice(NamedTuple):
    """A select in a tree of scores: its predicate is `select.operand(0)`."""

    select: Spot
    # Which of its operands is a constant: 1, 2 or None.
    fill: int | None


@dataclass(slots=True)
class Tree:
    """Operations on elements behind a value of scores, back to what is none.

    nodes: the operations; leaves: other values of as many queries and keys; written: what the
    program writes to memory on the way, as (instruction, element of its tuple).
    """

    nodes: list[Spot] = field(default_factory=list)
    exponentials: list[Spot] = field(default_factory=list)
    products: list[Spot] = field(default_factory=list)
    leaves: list[Spot] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    written: set[tuple[Instruction, tuple[int, ...]]] = field(default_factory=set)

    @property
    def opcodes(self) -> set[str]:
        return {node.instr.opcode for node in self.nodes}


class Values:
    """Values of one module with their axes. `products`: its matmuls that are two-sided products,
    with the dimension numbers of those that are calls."""

    def __init__(self, analysis: ModuleAnalysis, products: dict[int, str | None]) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self._products = products
        self._contractions: dict[int, Contraction | None] = {}
        self._fused: dict[Computation, bool] = {}
        self.saved = Saved(analysis)

    # -- products ---------------------------------------------------------------------------------

    def is_product(self, instr: Instruction) -> bool:
        return not instr.implied and instr.id in self._products

    def product(self, instr: Instruction) -> Contraction | None:
        """A matmul as matrices and views; None where it is no plain product of two."""
        known = self._contractions.get(instr.id, ...)
        if known is not ...:
            return known
        found = None
        of = instr.computation
        shapes = [of.shape_of(one) for one in of.operand_indices(instr.index)[:2]]
        if len(shapes) == 2:
            attributes = self._products.get(instr.id)
            opcode = "dot"
            if attributes is None:
                opcode = instr.opcode
                attributes = structural_attributes(instr.tail, without=_NOT_COMPUTED)
            found = contraction(opcode, attributes, shapes[0], shapes[1], array_text(instr))
        self._contractions[instr.id] = found
        return found

    # -- going back -------------------------------------------------------------------------------

    def at(
        self,
        value: Value,
        axes: Axes,
        written: set[tuple[Instruction, tuple[int, ...]]] | None = None,
    ) -> Spot | None:
        """What computes a value, and its axes there; None where a shape on the way is not known or
        a reshape mixes the axes."""
        try:
            for _ in range(_MOST_MOVES):
                value = self._structural(value, axes, written)
                instr = value.instr
                opcode = instr.opcode
                if value.path:
                    return Spot(value, axes)
                if opcode not in _SAME_ORDER:
                    moved = self._dimensions(instr, opcode)
                    if moved is None:
                        return Spot(value, axes)
                    axes = axes.through(moved)
                operands = instr.computation.operand_indices(instr.index)
                if not operands:
                    return None
                value = Value(Instruction(instr.computation, operands[0]), (), value.via)
        except (IndexError, ValueError):
            return None
        return None

    def at_or_before(self, value: Value, axes: Axes) -> Spot | None:
        """As `at`, and out of the loops that carry the value without changing it."""
        spot = self.at(value, axes)
        while spot is not None and spot.instr.opcode == "parameter" and spot.value.path:
            before = self.saved.before_loop(spot.value)
            if before is None:
                break
            spot = self.at(before, spot.axes)
        return spot

    def passed(self, value: Value, axes: Axes) -> Iterator[Spot]:
        """Every array that `at` passes on its way back, the nearest first."""
        with suppress(IndexError, ValueError):
            for _ in range(_MOST_MOVES):
                value = self._structural(value, axes, None)
                yield Spot(value, axes)
                opcode = value.instr.opcode
                if value.path:
                    return
                if opcode not in _SAME_ORDER:
                    moved = self._dimensions(value.instr, opcode)
                    if moved is None:
                        return
                    axes = axes.through(moved)
                operands = value.instr.computation.operand_indices(value.instr.index)
                if not operands:
                    return
                value = Value(Instruction(value.instr.computation, operands[0]), (), value.via)

    def _structural(
        self,
        value: Value,
        axes: Axes,
        written: set[tuple[Instruction, tuple[int, ...]]] | None,
    ) -> Value:
        """Back through what only hands on, and not into a loop that changes the value."""
        last = value
        for one in steps(self.graph, value, moves=_NOTHING):
            if last.instr.opcode == "while" and len(one.via) > len(last.via):
                break
            last = one
            if written is not None and axes.whole and self._writes(one.instr):
                written.add((one.instr, one.path))
        return last

    def _writes(self, instr: Instruction) -> bool:
        """Whether an instruction gives an array of numbers in memory of its own."""
        opcode = instr.opcode
        if opcode in _FREE or opcode.endswith(("-done", "-update")) or instr.implied:
            return False
        if instr.shape_text.startswith("pred"):
            return False
        if opcode == "custom-call" and target_of(instr) == "ConcatBitcast":
            return False  # TPU: slices that were fetched, seen as one
        return not self.is_fused(instr.computation)

    def is_fused(self, computation: Computation) -> bool:
        known = self._fused.get(computation)
        if known is None:
            callers = self.graph.callers(computation)
            known = any(site.kind in ("fusion", "apply") for site in callers)
            self._fused[computation] = known
        return known

    def _dimensions(self, instr: Instruction, opcode: str) -> Sequence[tuple[int, int]] | None:
        """What an instruction that only moves its operand makes of its dimensions; else None.

        Raises ValueError where its text is at odds with itself.
        """
        if opcode == "bitcast":
            return bitcast(_given(instr), instr.shape_text)
        if opcode == "transpose":
            return transposed(_given(instr), _listed(instr))
        if opcode == "broadcast":
            return _broadcast(instr)
        return None

    # -- trees ------------------------------------------------------------------------------------

    def tree(self, value: Value, axes: Axes) -> Tree:
        """The operations on elements behind a value that has all queries and keys."""
        found = Tree()
        seen: set[tuple[Instruction, tuple[int, ...], Axes]] = set()
        waiting: list[tuple[Value, Axes, Instruction | None, int]] = [(value, axes, None, 0)]
        while waiting and len(seen) < _MOST_NODES:
            value, axes, taker, position = waiting.pop()
            spot = self.at(value, axes, found.written)
            if spot is None:
                continue
            spread = spread_over(spot.instr)
            if spread is not None and spot.axes.whole:
                spot = self._spread(spot, spread)
            key = (spot.instr, spot.value.path, spot.axes)
            if not spot.axes.whole:
                if taker is not None and spot.instr.opcode != "constant":
                    found.rows.append(Row(spot, taker, position))
                continue
            if key in seen:
                continue
            seen.add(key)
            self._sort(spot, found, waiting)
        return found

    def _spread(self, spot: Spot, over: frozenset[int]) -> Spot:
        """A reduce that gives its result to every element that it is of: one for each query."""
        places = row_major(_numbers(spot.instr.shape_text))
        kept = [(size, 0 if n in over else stride) for n, (size, stride) in enumerate(places)]
        with suppress(ValueError):
            return Spot(spot.value, spot.axes.through(kept))
        return spot

    def _sort(
        self,
        spot: Spot,
        found: Tree,
        waiting: list[tuple[Value, Axes, Instruction | None, int]],
    ) -> None:
        instr = spot.instr
        opcode = instr.opcode
        if self.is_product(instr):
            found.products.append(spot)
        elif opcode == "exponential":
            found.exponentials.append(spot)
        elif opcode not in ELEMENTWISE or spot.value.path:
            found.leaves.append(spot)
        else:
            found.nodes.append(spot)
            first = 0
            if opcode == "select":
                first = 1
                found.choices.append(Choice(spot, self._fill(spot)))
            count = len(instr.computation.operand_indices(instr.index))
            for number in range(first, count):
                operand = spot.operand(number)
                if operand is not None:
                    waiting.append((operand, spot.axes, instr, number))

    def _fill(self, select: Spot) -> int | None:
        """Which branch of a select is one number."""
        numbers = [self.number(select.operand(branch), select.axes) for branch in (1, 2)]
        if (numbers[0] is None) == (numbers[1] is None):
            return None
        return 1 if numbers[0] is not None else 2

    def number(self, value: Value | None, axes: Axes) -> float | None:
        """The one number a value is; None for others."""
        spot = None if value is None else self.at(value, axes)
        if spot is None or spot.instr.opcode != "constant":
            return None
        found = number_of(spot.value)
        return float(found) if isinstance(found, (bool, int, float)) else None

    # -- reduces ----------------------------------------------------------------------------------

    def reduces(self, row: Spot, kind: str) -> Iterator[tuple[Spot, Value, Axes]]:
        """The reduces by `kind` that a value of one number for each query is computed from, with
        what they reduce and its axes: the keys there are what is reduced."""
        waiting = [row]
        seen = {(row.instr, row.value.path)}
        for spot in waiting:  # grows while it is walked
            if len(waiting) > _MOST_MOVES:
                return
            opcode = spot.instr.opcode
            if opcode in _REDUCES and not spot.value.path:
                inner = self._reduced(spot, kind)
                if inner is not None:
                    yield spot, *inner
                continue
            if opcode not in ELEMENTWISE:
                continue
            for number in range(len(spot.instr.computation.operand_indices(spot.instr.index))):
                operand = spot.operand(number)
                before = None if operand is None else self.at(operand, spot.axes)
                if before is None or before.instr.opcode == "constant":
                    continue
                if (before.instr, before.value.path) not in seen:
                    seen.add((before.instr, before.value.path))
                    waiting.append(before)

    def reduced_over(self, reduce: Instruction, kind: str) -> tuple[Value, Axes] | None:
        """What one reduce by `kind` reduces, with what is reduced as the keys and all else as the
        queries."""
        if reducer(reduce) != kind:
            return None
        gone = set(_listed(reduce))
        places = row_major(_numbers(_given(reduce)))
        query = merged(place for n, place in enumerate(places) if n not in gone)
        key = merged(place for n, place in enumerate(places) if n in gone)
        operand = reduce.computation.operand_indices(reduce.index)[0]
        return Value(Instruction(reduce.computation, operand)), Axes((), query, key)

    def _reduced(self, spot: Spot, kind: str) -> tuple[Value, Axes] | None:
        """What a reduce, or several in a row, reduces, and its axes."""
        axes = spot.axes
        value: Value | None = None
        while spot.instr.opcode in _REDUCES and not spot.value.path:
            if reducer(spot.instr) != kind:
                break
            value = spot.operand(0)
            try:
                axes = _in_reduced(spot.instr, axes)
            except (IndexError, ValueError):
                return None
            before = None if value is None else self.at(value, axes)
            if before is None:
                return None
            if before.instr.opcode not in _REDUCES or reducer(before.instr) != kind:
                break
            spot, axes = before, before.axes
        return None if value is None else (value, axes)


def reducer(reduce: Instruction) -> str | None:
    """The opcode that a reduce applies, such as `maximum`."""
    computation = called(reduce, "to_apply")
    if computation is None or len(reduce.computation.operand_indices(reduce.index)) != 2:
        return None
    return through(computation.root).opcode


def array_text(instr: Instruction) -> str:
    """The shape of what an instruction computes: of a call with a workspace, without that."""
    text = instr.shape_text
    if not text.startswith("("):
        return text
    with suppress(ValueError):
        elements = instr.shape.elements
        if elements:
            return str(elements[0])
    return text


def elements_of(text: str) -> int | None:
    """How many elements an array of this shape has; None where that is not known."""
    count = 1
    for size in sizes_of(text):
        if not size.isdecimal() or len(size) > 18:
            return None
        count *= int(size)
    return None if text.startswith("(") else count


def sizes_in(instr: Instruction) -> list[int]:
    """The dimensions of what an instruction computes; none where one is not known."""
    sizes = sizes_of(array_text(instr))
    return [int(size) for size in sizes] if all(size.isdecimal() for size in sizes) else []


def _given(instr: Instruction) -> str:
    of = instr.computation
    return of.shape_of(of.operand_indices(instr.index)[0])


def _listed(instr: Instruction) -> list[int]:
    """The dimensions that an instruction names. Raises ValueError where they cannot be read."""
    found = _DIMENSIONS.search(instr.tail)
    if found is None or '"' in instr.tail[: found.start()]:
        return [*(instr.ints_attribute("dimensions") or ())]
    return [int(one) for one in found[1].split(",")] if found[1].strip() else []


def _numbers(text: str) -> list[int]:
    return [int(size) for size in sizes_of(text)]


def _broadcast(instr: Instruction) -> list[tuple[int, int]]:
    operand = row_major(_numbers(_given(instr)))
    result = [(size, 0) for size in _numbers(instr.shape_text)]
    for number, place in zip(_listed(instr), operand, strict=True):
        if place[0] not in (1, result[number][0]):
            raise ValueError("a broadcast of another size")
        result[number] = (result[number][0], place[1] if place[0] > 1 else 0)
    return result


@lru_cache(maxsize=1 << 10)
def _windows(text: str, dimensions: tuple[int, ...]) -> frozenset[int] | None:
    """The dimensions that a window of 2n - 1 over n elements, n - 1 of them padding to each side,
    covers from every place; None where a window is another and not of size 1."""
    try:
        window = parse_window(text)
    except ValueError:
        return None
    if len(window.size) != len(dimensions) or {*window.stride, *window.rhs_dilate} != {1}:
        return None
    covered = set()
    for number, (size, n) in enumerate(zip(window.size, dimensions, strict=True)):
        if size == 2 * n - 1 and window.pad[number] == (n - 1, n - 1):
            covered.add(number)
        elif size != 1 or window.pad[number] != (0, 0):
            return None
    return frozenset(covered) or None


def spread_over(instr: Instruction) -> frozenset[int] | None:
    """The dimensions that a reduce-window reduces whole, and gives the result to each element of,
    as TPU text writes the maximum of a softmax; None for everything else."""
    if instr.opcode != "reduce-window":
        return None
    with suppress(ValueError):
        text = attribute_text(instr, "window")
        return None if text is None else _windows(text, tuple(_numbers(instr.shape_text)))
    return None


def _in_reduced(reduce: Instruction, axes: Axes) -> Axes:
    """The axes in what is reduced, where the keys are what is reduced besides what is left of
    them: of a reduce in two steps the first has still some.

    Raises ValueError for a window that slides.
    """
    places = row_major(_numbers(_given(reduce)))
    over = spread_over(reduce)
    if over is not None:
        gone, before = [*sorted(over)], axes
    elif reduce.opcode == "reduce":
        gone = _listed(reduce)
        kept = [place for number, place in enumerate(places) if number not in gone]
        before = axes.through(kept)
    else:
        return _in_windows(reduce, axes, places)
    left = [pair for pair in before.key if pair[1]]
    return Axes(before.batch, before.query, merged([*left, *(places[number] for number in gone)]))


def _in_windows(reduce: Instruction, axes: Axes, places: Sequence[tuple[int, int]]) -> Axes:
    """The same for windows that stand side by side, as CPU text writes the first step of a reduce.

    Raises ValueError for windows that overlap or are padded.
    """
    window = parse_window(attribute_text(reduce, "window") or "")
    results = _numbers(reduce.shape_text)
    if len(results) != len(places) or tuple(window.stride) != tuple(window.size):
        raise ValueError("a window that slides")
    gone: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []
    for result, size, pad, (n, stride) in zip(
        results, window.size, window.pad, places, strict=True
    ):
        if result * size != n or pad != (0, 0):
            raise ValueError("a padded window")
        kept.append((result, stride * size))
        gone.append((size, stride))
    before = axes.through(kept)
    left = [pair for pair in before.key if pair[1]]
    return Axes(before.batch, before.query, merged([*left, *gone]))
