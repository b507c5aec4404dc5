"""Which scores a mask of positions leaves, counted: predicates of iotas and constants, evaluated.

A value is one number, a list along the queries or along the keys, a list along the diagonals (what
depends on query minus key alone), or, of truth values, a row of bits for each query. Nothing else
is evaluated: a mask that is more is not told.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from hlo_lens_passes._attention_axes import Axis, length

# Beyond, a mask is not counted: 8192 queries and keys take some 30 ms.
_MOST_SCORES: Final = 1 << 26
_MOST_LENGTH: Final = 1 << 15
_WORD: Final = (1 << 32) - 1

Number = bool | int | float


class Node(NamedTuple):
    """An operation on the nodes of these numbers. kind: of its elements, f (float), p (truth), s or
    u (integers). what: the direction of a compare, or the number of a constant.

    Of a leaf `iota`, `along` is what a step along the queries and the keys adds; of `listed` where
    they are in the numbers, `what`.
    """

    opcode: str
    kind: str
    args: tuple[int, ...] = ()
    what: str | Number | tuple[Number, ...] = 0
    along: tuple[Axis, Axis] = ((), ())


class Grid(NamedTuple):
    """A predicate: nodes in order, the last is its value; scores are left where it is `keeps`."""

    nodes: tuple[Node, ...]
    keeps: bool

    @property
    def of_both(self) -> bool:
        """Whether it depends on queries and on keys."""
        sides = [any(_moves(node.along[side]) for node in self.nodes) for side in (0, 1)]
        return all(sides)


class Left(NamedTuple):
    """scores: how many are left; ahead: how far behind a query its last key is, at most (below 0 in
    front of it)."""

    scores: int
    ahead: int


class _Array(NamedTuple):
    """along: `one` number, `query`, `key`, `diagonal` (key - query + queries - 1) or `rows`."""

    along: str
    values: list[Number]


def _moves(axis: Axis) -> bool:
    return any(stride for _, stride in axis)


@lru_cache(maxsize=256)
def left(
    grids: tuple[Grid, ...], low: int | None, high: int | None, queries: int, keys: int
) -> Left | None:
    """What predicates and low ≤ query - key ≤ high leave together; None where that is not told."""
    if not 0 < queries <= _MOST_LENGTH or not 0 < keys <= _MOST_LENGTH:
        return None
    if queries * keys > _MOST_SCORES:
        return None
    step = _step(grids, queries)
    if step is None:
        return None
    every = (1 << keys) - 1
    rows = [every] * queries
    try:
        for grid in grids:
            own = _Evaluation(queries, keys, step).rows_of(grid)
            rows = [a & b for a, b in zip(rows, own, strict=True)]
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return None
    count, ahead = 0, -queries
    for query, row in enumerate(rows):
        if low is not None:
            row &= (1 << max(0, query - low + 1)) - 1
        if high is not None and query > high:
            row &= -1 << (query - high)
        count += row.bit_count()
        if row:
            ahead = max(ahead, row.bit_length() - 1 - query)
    return Left(count, ahead)


def _step(grids: Sequence[Grid], queries: int) -> int | None:
    """How many rows of scores stand at one position, one after another: heads in a group. None
    where the positions are not as many as the queries."""
    low, end = None, 0
    for node in (node for grid in grids for node in grid.nodes):
        before = 1
        for size, stride in reversed(node.along[0]):
            if stride:
                low = before if low is None else min(low, before)
                end = max(end, before * size)
            before *= size
    if low is None:
        return 1
    return low if end == queries * low else None


class _Evaluation:
    """Predicates over so many queries and keys. Raises ValueError for what is not evaluated."""

    def __init__(self, queries: int, keys: int, step: int) -> None:
        self.queries, self.keys, self.step = queries, keys, step

    def rows_of(self, grid: Grid) -> list[int]:
        done: list[_Array] = []
        for node in grid.nodes:
            done.append(self._node(node, [done[number] for number in node.args]))
        rows = self._rows(done[-1])
        every = (1 << self.keys) - 1
        return rows if grid.keeps else [row ^ every for row in rows]

    def _node(self, node: Node, args: list[_Array]) -> _Array:
        if node.opcode in ("iota", "listed"):
            return self._leaf(node)
        if node.opcode == "constant":
            return _Array("one", [node.what])  # type: ignore[list-item]
        places = {one.along for one in args} - {"one"}
        if len(places) < 2 and "rows" not in places:
            return _each(node, args)
        if node.kind == "p" and node.opcode in ("and", "or", "xor", "not", "select"):
            return self._of_rows(node.opcode, [self._rows(one) for one in args])
        if places == {"query", "key"} and len(args) == 2:
            if node.opcode == "compare":
                return self._compared(str(node.what), *args)
            if node.opcode in ("add", "subtract"):
                return self._diagonal(node.opcode, *args)
        raise ValueError(f"{node.opcode} of {places}")

    def _leaf(self, node: Node) -> _Array:
        query, key = (_offsets(axis, _MOST_LENGTH * self.step) for axis in node.along)
        moved = [_moves(axis) for axis in node.along]
        query = query[0 : self.queries * self.step : self.step]
        if len(key) != self.keys or (moved[0] and len(query) != self.queries):
            raise ValueError("positions that do not fit")
        numbers = node.what if isinstance(node.what, tuple) else None
        if all(moved):
            if numbers is not None and node.kind == "p":
                return _Array("rows", [_bits([numbers[q + k] for k in key]) for q in query])
            first, last = _Array("query", [*query]), _Array("key", [*key])
            if numbers is not None:
                raise ValueError("an array of numbers")
            return self._diagonal("add", first, last)
        offsets: Sequence[Number] = query if moved[0] else key
        if numbers is not None:
            offsets = [numbers[int(one)] for one in offsets]
        if not any(moved):
            return _Array("one", [*offsets[:1]])
        return _Array("query" if moved[0] else "key", [*offsets])

    def _diagonal(self, opcode: str, first: _Array, last: _Array) -> _Array:
        """A sum or difference of what grows with the queries and with the keys, by the same."""
        signs = [1, -1 if opcode == "subtract" else 1]
        if first.along == "key":
            first, last = last, first
            signs.reverse()
        query, key = (
            [sign * n for n in one.values] for sign, one in zip(signs, (first, last), strict=True)
        )
        if self.queries == 1:
            return _Array("key", [query[0] + n for n in key])
        step = _slope(key)
        if step is None or _slope(query) != -step:
            raise ValueError("not of a difference")
        start = query[0] + key[0] - step * (self.queries - 1)
        return _Array("diagonal", [start + step * n for n in range(self.queries + self.keys - 1)])

    def _compared(self, direction: str, first: _Array, last: _Array) -> _Array:
        if first.along == "key":
            direction = _TURNED[direction]
            first, last = last, first
        if direction in ("EQ", "NE"):
            same: dict[Number, int] = {}
            for key, value in enumerate(last.values):
                same[value] = same.get(value, 0) | 1 << key
            found = [same.get(value, 0) for value in first.values]
            return _Array("rows", [*(self._opposite(found) if direction == "NE" else found)])
        # The keys below the query: to GE and LT also those that are equal to it.
        equal = direction in ("GE", "LT")
        keys = sorted(range(self.keys), key=lambda n: last.values[n])
        below: dict[Number, int] = {}
        mask = taken = 0
        for value in sorted({*first.values}):
            while taken < len(keys):
                other = last.values[keys[taken]]
                if other > value or (other == value and not equal):
                    break
                mask |= 1 << keys[taken]
                taken += 1
            below[value] = mask
        rows = [below[value] for value in first.values]
        return _Array("rows", [*(self._opposite(rows) if direction in ("LE", "LT") else rows)])

    def _opposite(self, rows: Sequence[int]) -> list[int]:
        every = (1 << self.keys) - 1
        return [row ^ every for row in rows]

    def _of_rows(self, opcode: str, args: list[list[int]]) -> _Array:
        if opcode == "not":
            return _Array("rows", [*self._opposite(args[0])])
        if opcode == "select":
            chosen = zip(*args, strict=True)
            return _Array("rows", [(p & a) | (~p & b) for p, a, b in chosen])
        of = _INTEGERS[opcode]
        return _Array("rows", [of(a, b) for a, b in zip(*args, strict=True)])

    def _rows(self, one: _Array) -> list[int]:
        """Truth values as bits, a row for each query."""
        every = (1 << self.keys) - 1
        if one.along == "rows":
            return [int(row) for row in one.values]
        if one.along == "key":
            return [_bits(one.values)] * self.queries
        if one.along == "diagonal":
            bits = _bits(one.values)
            return [(bits >> (self.queries - 1 - n)) & every for n in range(self.queries)]
        rows = [every if value else 0 for value in one.values]
        return rows if one.along == "query" else rows * self.queries


def _bits(values: Sequence[Number]) -> int:
    """Truth values as bits, the first one lowest."""
    return int("".join("1" if value else "0" for value in reversed(values)), 2)


def _slope(values: Sequence[Number]) -> Number | None:
    """What each value is more than the one in front of it; None where that differs."""
    steps = {b - a for a, b in pairwise(values)}
    return steps.pop() if len(steps) == 1 else None


def _offsets(axis: Axis, most: int) -> list[int]:
    """What each step along an axis adds."""
    if length(axis) > most:
        raise ValueError("too many positions")
    found = [0]
    for size, stride in axis:
        found = [at + n * stride for at in found for n in range(size)]
    return found


def _each(node: Node, args: list[_Array]) -> _Array:
    """An operation on elements that all lie along one side, or are one number."""
    along = next((one.along for one in args if one.along != "one"), "one")
    count = max((len(one.values) for one in args), default=0)
    spread = [one.values * count if one.along == "one" else one.values for one in args]
    of = _operation(node)
    return _Array(along, [of(*numbers) for numbers in zip(*spread, strict=True)])


def _operation(node: Node) -> Callable[..., Number]:
    opcode, kind = node.opcode, node.kind
    if opcode == "compare":
        return _COMPARED[str(node.what)]
    if opcode in _ANY:
        return _ANY[opcode]
    if kind == "p" and opcode == "not":
        return operator.not_
    if opcode in _INTEGERS and kind != "f":
        return _INTEGERS[opcode]
    if opcode in _FLOATS and kind == "f":
        return _FLOATS[opcode]
    raise ValueError(opcode)


def _divided(first: int, last: int) -> int:
    """HLO cuts off what is behind the point."""
    found = abs(first) // abs(last)
    return found if (first < 0) == (last < 0) else -found


_COMPARED: Final[dict[str, Callable[..., bool]]] = {
    "EQ": operator.eq,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
    "NE": operator.ne,
}
_TURNED: Final = {"EQ": "EQ", "GE": "LE", "GT": "LT", "LE": "GE", "LT": "GT", "NE": "NE"}
_ANY: Final[dict[str, Callable[..., Number]]] = {
    "abs": operator.abs,
    "add": operator.add,
    "clamp": lambda low, value, high: max(low, min(value, high)),
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "negate": operator.neg,
    "select": lambda chosen, yes, no: yes if chosen else no,
    "sign": lambda value: (value > 0) - (value < 0),
    "subtract": operator.sub,
    # A conversion to integers, or to truth values.
    "cut": int,
    "true": bool,
}
_INTEGERS: Final[dict[str, Callable[..., int]]] = {
    "and": operator.and_,
    "divide": _divided,
    "not": operator.invert,
    "or": operator.or_,
    "remainder": lambda first, last: first - last * _divided(first, last),
    "shift-left": lambda value, by: value << by if by < 32 else 0,
    "shift-right-arithmetic": lambda value, by: value >> min(by, 32),
    "shift-right-logical": lambda value, by: (value & _WORD) >> by if by < 32 else 0,
    "xor": operator.xor,
}
_FLOATS: Final[dict[str, Callable[..., Number]]] = {
    "ceil": math.ceil,
    "divide": operator.truediv,
    "floor": math.floor,
    "remainder": math.fmod,
}
OPERATIONS: Final = frozenset((*_ANY, *_INTEGERS, *_FLOATS, "compare"))
"""Opcodes that are evaluated."""
