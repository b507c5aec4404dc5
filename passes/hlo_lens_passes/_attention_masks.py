"""Which scores a mask leaves: causal, in a window, or what the text does not tell.

A mask that compares positions is read: two iotas, one along the queries and one along the keys, and
constants added to them. Other predicates of iotas and constants are evaluated. Positions and
segments that come as data are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, attribute_text, consumers
from hlo_lens.analysis.views import merged
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import strip_comments
from hlo_lens_passes._attention_axes import Axes, array_text, length, sizes_in
from hlo_lens_passes._attention_grids import Grid, Left, left
from hlo_lens_passes._attention_linear import iota, linear
from hlo_lens_passes._attention_predicates import grid_of, made_of
from hlo_lens_passes._attention_reduces import reducer
from hlo_lens_passes._attention_values import Spot, Values

if TYPE_CHECKING:
    from hlo_lens_passes._attention_values import Tree

_NEGATED: Final = {"GE": "LT", "GT": "LE", "LE": "GT", "LT": "GE", "EQ": "NE", "NE": "EQ"}
_COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {
    "EQ": lambda a, b: a == b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "LE": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "NE": lambda a, b: a != b,
}
_MOST_DEPTH: Final = 24
# What may stand between an exponential and what multiplies it, and leaves it as it is.
_MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape"))
# What is added to scores to leave some out is far below all of them.
_LOW: Final = -1e4
# Sizes beyond it are no lengths of attention.
_MOST_ROWS: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class Mask:
    """What is known of a mask over scores.

    low, high: bounds of query minus key of the scores that are left; `offset_known` is false where
    a number that the text does not tell is added to them. by_position: whether some part compares
    queries with keys. grids: parts that do so in another way than by bounds. data: whether some
    part is data; hidden: whether that is compared with positions, as where the text elides a
    constant; unknown: whether what some part is was not found.
    """

    low: int | None = None
    high: int | None = None
    by_position: bool = False
    offset_known: bool = True
    data: bool = False
    masked: bool = False
    hidden: bool = False
    unknown: bool = False
    grids: tuple[Grid, ...] = ()
    selects: tuple[Instruction, ...] = ()

    def causal(self, queries: int | None, keys: int | None) -> bool | None:
        """Whether a query sees no key behind it. None where that is not known."""
        if not self.masked:
            return None if self.data else False
        ahead = 0
        if queries is not None and keys is not None:
            ahead = max(0, keys - queries)
        if self.low is not None and self.low >= -ahead:
            return True
        if self.by_position and not self.offset_known:
            return True
        if self.grids:
            found = self._left(queries, keys)
            if found is None:
                return None
            if found.ahead <= ahead:
                return True
        not_told = self.hidden or self.unknown or (self.data and self.low is None)
        return None if not_told else False

    def _left(self, queries: int | None, keys: int | None) -> Left | None:
        if queries is None or keys is None:
            return None
        return left(self.grids, self.low, self.high, queries, keys)

    @property
    def window(self) -> int | None:
        """How many keys a query sees at most, itself included; of a window to both sides, None."""
        if self.high is None or self.low is None or self.low < 0:
            return None
        return self.high - self.low + 1 if self.high >= self.low else None

    def fraction(self, queries: int | None, keys: int | None) -> float | None:
        """The part of all scores that the positions leave; see `share`."""
        causal = self.causal(queries, keys)
        if causal is None or queries is None or keys is None:
            return None
        if self.hidden or self.unknown or not self.offset_known:
            return None
        if self.grids:
            found = self._left(queries, keys)
            return None if found is None else found.scores / (queries * keys)
        if self.low is None and self.high is None:
            return 1.0
        return share(queries, keys, self.low, self.high)


def share(queries: int, keys: int, low: int | None, high: int | None) -> float | None:
    """The part of queries × keys with low ≤ query − key ≤ high: (S + 1) / 2S of a causal square."""
    if not 0 < queries <= _MOST_ROWS or keys <= 0:
        return None
    left = 0
    for row in range(queries):
        last = keys - 1 if low is None else min(keys - 1, row - low)
        first = 0 if high is None else max(0, row - high)
        left += max(0, last - first + 1)
    return left / (queries * keys)


@dataclass(slots=True)
class _Reading:
    low: int | None = None
    high: int | None = None
    by_position: bool = False
    offset_known: bool = True
    data: bool = False
    masked: bool = False
    hidden: bool = False
    unknown: bool = False
    grids: list[Grid] = field(default_factory=list)

    def at_least(self, bound: int) -> None:
        self.low = bound if self.low is None else max(bound, self.low)

    def at_most(self, bound: int) -> None:
        self.high = bound if self.high is None else min(bound, self.high)


def mask_of(values: Values, tree: Tree, scores: Sequence[Spot]) -> Mask:
    """The mask of the scores behind an exponential, whose operations `tree` holds. What it holds
    besides `scores`, the products and what was saved of them, is data."""
    reading = _Reading()
    selects: list[Instruction] = []
    for choice in tree.choices:
        if choice.fill is None:
            selects.append(choice.select.instr)
            reading.data = not _added(values, choice.select, reading) or reading.data
            continue
        predicate = choice.select.operand(0)
        if predicate is not None:
            selects.append(choice.select.instr)
            _read(values, predicate, choice.select.axes, choice.fill == 2, reading, 0)
    for spot in (*tree.leaves, *tree.products):
        if spot in scores:
            continue
        reading.data = True
        selects.append(spot.instr)
    for row in tree.rows:
        if row.taker.opcode == "add":
            if _added(values, row.spot, reading):
                selects.append(row.taker)
            elif not row.spot.axes.of_rows:
                reading.data = True
                selects.append(row.taker)
    selects += _multiplied(values, tree, reading)
    return Mask(
        reading.low,
        reading.high,
        reading.by_position,
        reading.offset_known,
        reading.data,
        reading.masked,
        reading.hidden,
        reading.unknown,
        tuple(dict.fromkeys(reading.grids)),
        tuple(dict.fromkeys(selects)),
    )


def _multiplied(values: Values, tree: Tree, reading: _Reading) -> Iterator[Instruction]:
    """Where exponentials are multiplied by truth values: of positions, or of data and then summed
    (else that is dropout)."""
    top = tree.ways[0][1] if tree.ways else None
    if top is None:
        return
    for exponential in _users(values, top.instr, "exponential"):
        for taker in _users(values, exponential, "multiply"):
            if sizes_in(taker) != sizes_in(top.instr):
                continue
            found = [
                (value, spot)
                for value in map(Spot(Value(taker), top.axes).operand, (0, 1))
                if value is not None and (spot := values.at(value, top.axes)) is not None
            ]
            factors = [one for one in found if array_text(one[1].instr).startswith("pred")]
            if len(factors) != 1 or not any(spot.instr == exponential for _, spot in found):
                continue
            value = factors[0][0]
            of_positions = made_of(values, value, top.axes) == {"position"}
            if of_positions or any(map(_is_sum, _users(values, taker, "reduce"))):
                yield taker
                _read(values, value, top.axes, True, reading, 0)


def _users(values: Values, instr: Instruction, opcode: str) -> Iterator[Instruction]:
    for user in consumers(values.graph, instr, moves=_MOVES):
        if user.opcode == opcode:
            yield user


def _is_sum(reduce: Instruction) -> bool:
    return reducer(reduce) == "add"


def _added(values: Values, spot: Spot, reading: _Reading) -> bool:
    """A mask of numbers that is added: 0 where a score is left, and a low one elsewhere."""
    if spot.instr.opcode != "select":
        return False
    yes, no = (values.number(spot.operand(branch), spot.axes) for branch in (1, 2))
    predicate = spot.operand(0)
    if predicate is None or yes is None or no is None or min(yes, no) > _LOW:
        return False
    _read(values, predicate, spot.axes, yes > no, reading, 0)
    return True


def _read(
    values: Values, value: Value, axes: Axes, keeps: bool, reading: _Reading, depth: int
) -> None:
    """What a predicate says of the scores that are left: those where it is `keeps`."""
    spot = values.at_or_before(value, axes)
    if spot is None or depth > _MOST_DEPTH:
        reading.masked = reading.data = reading.unknown = True
        return
    opcode = spot.instr.opcode
    if opcode == "not":
        _read_operand(values, spot, 0, not keeps, reading, depth)
    elif opcode == ("and" if keeps else "or"):
        _read_operand(values, spot, 0, keeps, reading, depth)
        _read_operand(values, spot, 1, keeps, reading, depth)
    elif opcode == "constant":
        if values.number(value, axes) is None:
            _evaluate(values, spot, keeps, reading)
    elif opcode == "select":
        _read_select(values, spot, keeps, reading, depth)
    elif opcode == "compare":
        _read_compare(values, spot, keeps, reading, depth)
    else:
        _evaluate(values, spot, keeps, reading)


def _evaluate(values: Values, spot: Spot, keeps: bool, reading: _Reading) -> None:
    """A part that is no bound: evaluated where it is of positions, else data. What is made of both,
    or of positions in a way that is not evaluated, may leave out anything."""
    reading.masked = True
    grid = grid_of(values, spot.value, spot.axes, keeps)
    if grid is not None:
        if grid.of_both:
            reading.grids.append(grid)
            reading.by_position = True
        return  # of one side alone, such as padding: no more than so many keys
    kinds = made_of(values, spot.value, spot.axes)
    reading.data = True
    reading.hidden = reading.hidden or "position" in kinds
    reading.unknown = reading.unknown or "unknown" in kinds


def _read_operand(
    values: Values, spot: Spot, number: int, keeps: bool, reading: _Reading, depth: int
) -> None:
    operand = spot.operand(number)
    if operand is not None:
        _read(values, operand, spot.axes, keeps, reading, depth + 1)


def _read_select(values: Values, spot: Spot, keeps: bool, reading: _Reading, depth: int) -> None:
    """A select of truth values: where one branch leaves nothing, it is an `and`."""
    for branch, other, when in ((1, 2, True), (2, 1, False)):
        number = values.number(spot.operand(other), spot.axes)
        if number is not None and bool(number) != keeps:
            _read_operand(values, spot, 0, when, reading, depth)
            _read_operand(values, spot, branch, keeps, reading, depth)
            return
    _evaluate(values, spot, keeps, reading)


def _read_compare(values: Values, spot: Spot, keeps: bool, reading: _Reading, depth: int) -> None:
    direction = strip_comments(attribute_text(spot.instr, "direction") or "").strip()
    reading.masked = True
    if direction not in _NEGATED:
        reading.data = True
        return
    if _read_chosen(values, spot, direction, keeps, reading, depth):
        return
    first, last = (linear(values, spot.operand(n), spot.axes, 0) for n in (0, 1))
    if first is None or last is None:
        _evaluate(values, spot, keeps, reading)
        return
    by_query, by_key = first.by_query - last.by_query, first.by_key - last.by_key
    if by_query == 0 and by_key == 0:
        reading.data = reading.data or first.start is None or last.start is None
        return
    if by_query == 0 or by_key == 0:
        return  # of one side alone, such as padding: no more than so many keys
    if by_query != -by_key or abs(by_query) != 1 or direction in ("EQ", "NE"):
        _evaluate(values, spot, keeps, reading)
        return
    if not keeps:
        direction = _NEGATED[direction]
    reading.by_position = True
    if first.start is None or last.start is None:
        reading.offset_known = False
        return
    _bound(reading, direction, by_query, last.start - first.start)


def _bound(reading: _Reading, direction: str, sign: int, bound: int) -> None:
    """sign · (query − key) compared with a bound."""
    strict = direction in ("GT", "LT")
    if direction in ("GE", "GT"):
        bound += strict
        if sign > 0:
            reading.at_least(bound)
        else:
            reading.at_most(-bound)
    else:
        bound -= strict
        if sign > 0:
            reading.at_most(bound)
        else:
            reading.at_least(-bound)


def _read_chosen(
    values: Values, spot: Spot, direction: str, keeps: bool, reading: _Reading, depth: int
) -> bool:
    """A compare of a number with one of two numbers that a predicate chooses: that predicate, or
    its opposite."""
    for chosen, other, turned in ((0, 1, False), (1, 0, True)):
        limit = values.number(spot.operand(other), spot.axes)
        operand = spot.operand(chosen)
        inner = None if operand is None else values.at(operand, spot.axes)
        if limit is None or inner is None or inner.instr.opcode != "select":
            continue
        given = [values.number(inner.operand(branch), inner.axes) for branch in (1, 2)]
        numbers = [number for number in given if number is not None]
        if len(numbers) < 2:
            continue
        compare = _COMPARED[direction]
        yes, no = (compare(limit, n) if turned else compare(n, limit) for n in numbers)
        if yes != no:
            _read_operand(values, inner, 0, yes == keeps, reading, depth)
            return True
    return False


def positions(values: Values, tree: Tree) -> int | None:
    """How many queries stand at positions of their own, where a mask counts them; else None."""
    for choice in tree.choices:
        predicate = choice.select.operand(0)
        found = None if predicate is None else _counted(values, predicate, choice.select.axes, 0)
        if found is not None:
            return found
    return None


def _counted(values: Values, value: Value, axes: Axes, depth: int) -> int | None:
    spot = values.at_or_before(value, axes)
    if spot is None or depth > _MOST_DEPTH:
        return None
    if spot.instr.opcode == "iota":
        return _counted_by(spot)
    if spot.instr.opcode not in ("add", "and", "compare", "not", "or", "select", "subtract"):
        return None
    for number in range(len(spot.instr.computation.operand_indices(spot.instr.index))):
        operand = spot.operand(number)
        found = None if operand is None else _counted(values, operand, spot.axes, depth + 1)
        if found is not None:
            return found
    return None


def _counted_by(spot: Spot) -> int | None:
    found = iota(spot)
    if found is None or found.by_query != 1:
        return None
    kept: Sequence[tuple[int, int]] = [pair for pair in spot.axes.query if pair[1]]
    return length(merged(kept))
