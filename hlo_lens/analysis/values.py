"""Numbers for values: two values get one number where they are computed alike from the same.

A number stands for an operation, what it does (`detail`) and the numbers of its operands. Integers
are calculated, also those that follow the induction variable of a loop, so that `i`, `n - 1 - j`
and what jax makes of an index that may be negative meet where they are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from hlo_lens.analysis.contractions import Contraction, Sizes, turned
from hlo_lens.analysis.views import View, composed, exchanged, inverse, is_identity

_INTEGER: Final = "integer"
_SERIES: Final = "series"
_TUPLE: Final = "tuple"
_VIEW: Final = "view"
_FILLED: Final = "filled"
# Loops that run more often have gaps in their series.
_MOST_SAMPLES: Final = 256


@dataclass(frozen=True, slots=True)
class Number:
    """How a value is computed: an opcode (or a word of this module), its details, operands."""

    kind: str
    detail: Hashable
    operands: tuple[int, ...]


class Elementwise(NamedTuple):
    """What an operation does to each element: its attributes; of a convert that rounds, to what."""

    attributes: str
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """An integer in each iteration of a loop; in the first two and the last two, where `trips` is
    large.

    level: how many loops are around what the loop runs. Loops of one level and as many trips are
    taken together: the number says what the integer is in iteration k, whichever loop that is of.
    """

    level: int
    trips: int
    samples: tuple[int, ...]

    @property
    def has_gaps(self) -> bool:
        return len(self.samples) < self.trips

    def reversed(self) -> Series:
        """The integer where the iterations are counted from the last."""
        return Series(self.level, self.trips, self.samples[::-1])


def progression(level: int, trips: int, start: int, step: int) -> Series:
    """`start + step·k`, for k = 0 … trips - 1; `trips` is at least 1."""
    whole = trips <= _MOST_SAMPLES
    iterations = range(trips) if whole else (0, 1, trips - 2, trips - 1)
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

    def packed(self, elements: Sequence[int]) -> int:
        """The number of a tuple of values."""
        return self.make(_TUPLE, None, (*elements,))

    def elements(self, number: int) -> tuple[int, ...] | None:
        """The numbers of what a tuple holds; None where it is not known to be one."""
        kind, _, operands = self._numbers[number]
        return operands if kind == _TUPLE else None

    def element(self, number: int, index: int) -> int:
        """Element `index` of a tuple."""
        elements = self.elements(number)
        if elements is not None and index < len(elements):
            return elements[index]
        return self.make("element", index, (number,))

    def viewed(self, number: int, view: View) -> int:
        """The elements of an array in another order. What is undone is not done."""
        kind, detail, operands = self._numbers[number]
        if kind == _FILLED or is_identity(view):
            return number
        if kind == _VIEW:
            with suppress(ValueError):
                view, number = composed(cast(View, detail), view), operands[0]
        return number if is_identity(view) else self.make(_VIEW, view, (number,))

    def under(self, number: int, viewed: int) -> int:
        """What a number is a view of, where it is one in the way that `viewed` is one."""
        while self._numbers[viewed][0] == _VIEW:
            _, detail, operands = self._numbers[viewed]
            number, viewed = self.viewed(number, inverse(cast(View, detail))), operands[0]
        return number

    def filled(self, count: Hashable, scalar: int) -> int:
        """An array of `count` elements that are all this scalar."""
        return self.make(_FILLED, count, (scalar,))

    def elementwise(self, opcode: str, detail: Elementwise, operands: tuple[int, ...]) -> int:
        """An operation on each element: of arrays in another order, its result in that order."""
        view = next((v for v in map(self._view_of, operands) if v is not None), None)
        if not view:
            return self.make(opcode, detail, operands)
        back = inverse(view)
        return self.viewed(
            self.make(opcode, detail, tuple(self.viewed(one, back) for one in operands)), view
        )

    def _view_of(self, number: int) -> View | None:
        """In which order an array is taken: () for its own, None where all elements are one."""
        kind, detail, _ = self._numbers[number]
        if kind in (_FILLED, _INTEGER):
            return None
        return cast(View, detail) if kind == _VIEW else ()

    def product(self, product: Contraction, left: int, right: int) -> int:
        """What a dot or convolution gives; see `contractions`."""
        matrices = self.viewed(left, product.left), self.viewed(right, product.right)
        found = self.matrices(product.sizes, product.rest, *matrices)
        return self.viewed(found, product.result)

    def matrices(self, sizes: Sizes, rest: str, left: int, right: int) -> int:
        """A product of matrices; one number whichever comes first, as a back end exchanges them."""
        if left <= right:
            return self.make("dot", (sizes, rest), (left, right))
        found = self.make("dot", (turned(sizes), rest), (right, left))
        return self.viewed(found, exchanged(*sizes[:3]))

    def border(self, number: int, which: str, sharding: str) -> int:
        """An array that goes into a shard_map (`local`), or comes out of one (`global`)."""
        kind, detail, operands = self._numbers[number]
        if '"' not in sharding:
            return number  # by no axis: the whole
        if detail == sharding and (kind, which) in (("local", "global"), ("global", "local")):
            return operands[0]
        return self.make(which, sharding, (number,))

    def unviewed(self, number: int) -> int:
        """The array whose elements a number has in another order, or the number itself."""
        while self._numbers[number][0] == _VIEW:
            number = self._numbers[number][2][0]
        return number

    def again(self, node: Number, operands: tuple[int, ...]) -> int:
        """The number of the same operation on other operands."""
        if node.kind == _VIEW:
            return self.viewed(operands[0], cast(View, node.detail))
        if node.kind == "element" and isinstance(node.detail, int):
            return self.element(operands[0], node.detail)
        if isinstance(node.detail, Elementwise):
            return self.elementwise(node.kind, node.detail, operands)
        if node.kind in ("local", "global"):
            return self.border(operands[0], node.kind, str(node.detail))
        if node.kind == "dot" and isinstance(node.detail, tuple) and len(node.detail) == 2:
            return self.matrices(*node.detail, *operands)
        return self.make(node.kind, node.detail, operands)

    def calculated(
        self, operation: str, operands: tuple[int, ...], bounds: tuple[int, int]
    ) -> int | None:
        """The number of an operation on integers, by its opcode or the direction of a compare;
        None where that is not known, as where it leaves `bounds` and so wraps around."""
        function = _FUNCTIONS.get(operation)
        series = [each for each in map(self.series_of, operands) if each is not None]
        if function is None or len({(each.level, each.trips) for each in series}) > 1:
            return None
        columns = [self._column(operand, series[:1]) for operand in operands]
        try:
            rows = zip(*(column for column in columns if column is not None), strict=True)
            results = tuple(function(*row) for row in rows) if None not in columns else ()
        except (ArithmeticError, TypeError, ValueError):
            return None
        if not results or min(results) < bounds[0] or max(results) > bounds[1]:
            return None
        if not series:
            return self.integer(results[0])
        # What is not linear may do something else in the gaps.
        linear = operation in _LINEAR or (operation == "multiply" and len(series) == 1)
        known = operation in _MONOTONE and (results in columns or len(set(results)) == 1)
        if series[0].has_gaps and not linear and not known:
            return None
        return self.series(Series(series[0].level, series[0].trips, results))

    def _column(self, operand: int, series: Sequence[Series]) -> tuple[int, ...] | None:
        """The operand in each sample."""
        own = self.series_of(operand)
        if own is not None:
            return own.samples
        value = self.integer_of(operand)
        return None if value is None else (value,) * (len(series[0].samples) if series else 1)


class Origins:
    """For each number, what it is computed from: arguments, and marked numbers, as bits.

    What `inputs` holds counts as an argument itself, whatever that is computed from.
    """

    def __init__(
        self, numbers: Numbers, marked: Iterable[int] = (), inputs: Collection[int] = ()
    ) -> None:
        self._numbers = numbers
        self._inputs = inputs
        self._marks = {number: 1 << k for k, number in enumerate(dict.fromkeys(marked))}
        self._marked = (1 << len(self._marks)) - 1
        self._bits: list[int] = []  # of each number; operands have smaller ones
        self._next = 1 << len(self._marks)

    def arguments(self, number: int) -> int:
        """Arguments that a number is computed from."""
        return self._of(number) & ~self._marked

    def is_computed_from(self, number: int, marked: int) -> bool:
        """Whether a marked number is this one, or what this one is computed from."""
        return bool(self._of(number) & self._marks[marked])

    def _of(self, number: int) -> int:
        known = self._bits
        while len(known) <= number:
            at = len(known)
            node = self._numbers[at]
            bits = self._marks.get(at, 0)
            if node.kind == "argument" or at in self._inputs:
                bits |= self._next
                self._next <<= 1
            else:
                for operand in node.operands:
                    bits |= known[operand]
            known.append(bits)
        return known[number]


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
_LINEAR: Final = frozenset(("add", "negate", "subtract"))
# Of what is linear they are monotone: what holds in the first and in the last iteration, holds.
_MONOTONE: Final = frozenset(("clamp", "maximum", "minimum", "select", "GE", "GT", "LE", "LT"))
