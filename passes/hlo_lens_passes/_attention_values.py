"""What scores are computed from: values followed back with their axes, through fusions, calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lens.analysis.dataflow import Value, number_of, steps
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes
from hlo_lens_passes._attention_reduces import (
    REDUCES,
    in_first_part,
    in_padded,
    in_reduced,
    moved_dimensions,
    reducer,
    spread,
    spread_over,
)
from hlo_lens_passes._attention_saved import Saved
from hlo_lens_passes._calls import target_of

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation
    from hlo_lens_passes._attention_products import Products

Written = set[tuple[Instruction, tuple[int, ...]]]
"""What is written to memory: elements of the results of instructions."""

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
# What writes no array of its own: of an async-start, what it starts does.
_FREE: Final = frozenset(
    (
        "async-start", "bitcast", "call", "conditional", "constant", "get-tuple-element",
        "opt-barrier", "optimization-barrier", "parameter", "tuple", "while",
    )
)  # fmt: skip
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

    nodes: the operations; leaves: other values of as many queries and keys; ways: from an operation
    (None: the value itself) to what it takes, with what the program writes to memory in between.
    """

    nodes: list[Spot] = field(default_factory=list)
    exponentials: list[Spot] = field(default_factory=list)
    products: list[Spot] = field(default_factory=list)
    leaves: list[Spot] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    ways: list[tuple[Spot | None, Spot, Written]] = field(default_factory=list)

    def written(self, saved: Iterable[Spot] = ()) -> Written:
        """What the program writes to memory of scores, or of what is computed from them; a mask and
        the number that it fills in are not. saved: leaves that are scores or probabilities."""
        known = self.of_scores(saved)
        return {one for _, spot, written in self.ways if spot in known for one in written}

    def of_scores(self, saved: Iterable[Spot] = ()) -> set[Spot]:
        """The scores, and what is computed from them; numbers for each query besides."""
        takers: dict[Spot, list[Spot]] = {}
        for taker, spot, _ in self.ways:
            if taker is not None:
                takers.setdefault(spot, []).append(taker)
        numbers = [row.spot for row in self.rows if row.spot.axes.of_rows]
        waiting = [*self.products, *self.exponentials, *numbers, *saved]
        known = {*waiting}
        while waiting:
            for taker in takers.get(waiting.pop(), ()):
                if taker not in known:
                    known.add(taker)
                    waiting.append(taker)
        return known

    @property
    def opcodes(self) -> set[str]:
        return {node.instr.opcode for node in self.nodes}


class Values:
    """Values of one module with their axes."""

    def __init__(self, analysis: ModuleAnalysis, products: Products) -> None:
        self.graph = analysis.graph
        self.products = products
        self._fused: dict[Computation, bool] = {}
        self.saved = Saved(analysis)

    # -- going back -------------------------------------------------------------------------------

    def at(
        self,
        value: Value,
        axes: Axes,
        written: Written | None = None,
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
                number = 0
                if opcode not in _SAME_ORDER:
                    moved = _moved(instr, axes)
                    if moved is None:
                        return self._computed(value, axes)
                    number, axes = moved
                operands = instr.computation.operand_indices(instr.index)
                if not operands:
                    return None
                value = Value(Instruction(instr.computation, operands[number]), (), value.via)
        except (IndexError, ValueError):
            return None
        return None

    def _computed(self, value: Value, axes: Axes) -> Spot:
        """What computes a value of all queries and keys: of a sum that is part of a product, that
        product."""
        summed = self.products.summed(value.instr) if axes.whole else None
        if summed is None:
            return Spot(value, axes)
        return Spot(Value(summed.product, (), value.via), summed.through(axes))

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
                instr = value.instr
                if value.path:
                    return
                number = 0
                if instr.opcode not in _SAME_ORDER:
                    moved = _moved(instr, axes)
                    if moved is None:
                        return
                    number, axes = moved
                operands = instr.computation.operand_indices(instr.index)
                if not operands:
                    return
                value = Value(Instruction(instr.computation, operands[number]), (), value.via)

    def _structural(
        self,
        value: Value,
        axes: Axes,
        written: Written | None,
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

    # -- trees ------------------------------------------------------------------------------------

    def tree(self, value: Value, axes: Axes) -> Tree:
        """The operations on elements behind a value that has all queries and keys."""
        found = Tree()
        seen: dict[tuple[Instruction, tuple[int, ...], Axes], Spot] = {}
        waiting: list[tuple[Value, Axes, Spot | None, int]] = [(value, axes, None, 0)]
        while waiting and len(seen) < _MOST_NODES:
            value, axes, taker, position = waiting.pop()
            written: Written = set()
            spot = self.at(value, axes, written)
            if spot is None:
                continue
            over = spread_over(spot.instr)
            if over is not None and spot.axes.whole:
                with suppress(ValueError):
                    spot = Spot(spot.value, spread(spot.instr, over, spot.axes))
            key = (spot.instr, spot.value.path, spot.axes)
            if not spot.axes.whole:
                if taker is not None and spot.instr.opcode != "constant":
                    found.rows.append(Row(spot, taker.instr, position))
                    found.ways.append((taker, spot, written))
                continue
            found.ways.append((taker, seen.get(key, spot), written))
            if key not in seen:
                seen[key] = spot
                self._sort(spot, found, waiting)
        return found

    def _sort(
        self,
        spot: Spot,
        found: Tree,
        waiting: list[tuple[Value, Axes, Spot | None, int]],
    ) -> None:
        instr = spot.instr
        opcode = instr.opcode
        if instr in self.products:
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
                    waiting.append((operand, spot.axes, spot, number))

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
            if opcode in REDUCES and not spot.value.path:
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

    def _reduced(self, spot: Spot, kind: str) -> tuple[Value, Axes] | None:
        """What a reduce, or several in a row, reduces, and its axes."""
        axes = spot.axes
        value: Value | None = None
        while spot.instr.opcode in REDUCES and not spot.value.path:
            if reducer(spot.instr) != kind:
                break
            value = spot.operand(0)
            try:
                axes = in_reduced(spot.instr, axes)
            except (IndexError, ValueError):
                return None
            before = None if value is None else self.at(value, axes)
            if before is None:
                return None
            if before.instr.opcode not in REDUCES or reducer(before.instr) != kind:
                break
            spot, axes = before, before.axes
        return None if value is None else (value, axes)


def _moved(instr: Instruction, axes: Axes) -> tuple[int, Axes] | None:
    """Which operand an instruction only moves, and the axes in it; None where it computes."""
    if instr.opcode == "pad":
        return in_padded(instr, axes)
    if instr.opcode == "concatenate":
        first = in_first_part(instr, axes)
        return None if first is None else (0, first)
    dimensions = moved_dimensions(instr)
    return None if dimensions is None else (0, axes.through(dimensions))
