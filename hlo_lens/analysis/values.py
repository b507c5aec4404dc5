"""Numbers for values: two values get one number where they are computed alike from the same.

A number stands for an operation, what it does (`detail`) and the numbers of its operands. Integers
are calculated, also those that follow the induction variable of a loop, so that `i`, `n - 1 - j`
and what jax makes of an index that may be negative meet where they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

Tree = int | tuple["Tree", ...]
"""The number of an array, or of what is not taken apart; a tuple for a tuple."""

_INTEGER: Final = "integer"
_SERIES: Final = "series"


@dataclass(frozen=True, slots=True)
class Number:
    """How a value is computed: an opcode (or a word of this module), its details, operands."""

    kind: str
    detail: Hashable
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """An integer in some iterations of a loop: the first two and the last two of `trips`.

    level: how many loops are around what the loop runs. Loops of one level and as many trips are
    taken together: the number says what the integer is in iteration k, whichever loop that is of.
    """

    level: int
    trips: int
    samples: tuple[int, ...]

    def reversed(self) -> Series:
        """The integer where the iterations are counted from the last."""
        return Series(self.level, self.trips, self.samples[::-1])


def progression(level: int, trips: int, start: int, step: int) -> Series:
    """`start + step·k`, for k = 0 … trips - 1; `trips` is at least 1."""
    iterations = sorted({k for k in (0, 1, trips - 2, trips - 1) if 0 <= k < trips})
    return Series(level, trips, tuple(start + step * k for k in iterations))


class Numbers:
    """The numbers of one module."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Hashable, tuple[int, ...]], int] = {}
        self._numbers: list[tuple[str, Hashable, tuple[int, ...]]] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, number: int) -> Number:
        return Number(*self._numbers[number])

    def make(self, kind: str, detail: Hashable = None, operands: tuple[int, ...] = ()) -> int:
        """The number of an operation."""
        key = (kind, detail, operands)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._numbers)
            self._numbers.append(key)
        return found

    def integer(self, value: int) -> int:
        return self.make(_INTEGER, value)

    def series(self, series: Series) -> int:
        """The number of a series; that of an integer where it does not change."""
        if len(set(series.samples)) == 1:
            return self.integer(series.samples[0])
        return self.make(_SERIES, series)

    def integer_of(self, number: int) -> int | None:
        kind, detail, _ = self._numbers[number]
        return detail if kind == _INTEGER and isinstance(detail, int) else None

    def series_of(self, number: int) -> Series | None:
        detail = self._numbers[number][1]
        return detail if isinstance(detail, Series) else None

    def is_integer(self, number: int) -> bool:
        """Whether it is calculated: an integer, or one in each iteration."""
        return self._numbers[number][0] in (_INTEGER, _SERIES)

    def one(self, value: Tree) -> int:
        """The number of a value that may be a tuple."""
        if isinstance(value, int):
            return value
        return self.make("tuple", None, tuple(map(self.one, value)))

    def element(self, value: Tree, index: int) -> Tree:
        """Element `index` of a tuple."""
        if isinstance(value, int):
            return self.make("element", index, (value,))
        if index < len(value):
            return value[index]
        return self.make("element", index, (self.one(value),))

    def calculated(self, operation: str, operands: tuple[int, ...]) -> int | None:
        """The number of an operation on integers, by its opcode or the direction of a compare;
        None where that is not known."""
        function = _FUNCTIONS.get(operation)
        if function is None:
            return None
        shape: Series | None = None
        columns: list[tuple[int, ...] | int] = []
        for operand in operands:
            series = self.series_of(operand)
            if series is None:
                value = self.integer_of(operand)
                if value is None:
                    return None
                columns.append(value)
                continue
            if shape is not None and (shape.level, shape.trips) != (series.level, series.trips):
                return None
            shape = series
            columns.append(series.samples)
        try:
            if shape is None:
                return self.integer(function(*columns))
            count = len(shape.samples)
            rows = zip(*((c,) * count if isinstance(c, int) else c for c in columns), strict=True)
            samples = tuple(function(*row) for row in rows)
        except (ArithmeticError, TypeError, ValueError):
            return None
        return self.series(Series(shape.level, shape.trips, samples))


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {
    "abs": abs,
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "clamp": lambda low, a, high: max(low, min(a, high)),
    "divide": _divide,
    "maximum": max,
    "minimum": min,
    "multiply": lambda a, b: a * b,
    "negate": lambda a: -a,
    "or": lambda a, b: a | b,
    "remainder": lambda a, b: a - b * _divide(a, b),
    "select": lambda chosen, a, b: a if chosen else b,
    "subtract": lambda a, b: a - b,
    "EQ": lambda a, b: int(a == b),
    "GE": lambda a, b: int(a >= b),
    "GT": lambda a, b: int(a > b),
    "LE": lambda a, b: int(a <= b),
    "LT": lambda a, b: int(a < b),
    "NE": lambda a, b: int(a != b),
}
