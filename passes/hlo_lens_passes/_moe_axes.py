"""Axes: which dimensions of the arrays of a module are one and the same, through all that moves.

Each array has a list of axes, the slowest first, in the order of its elements. Operations make axes
of different arrays one: an add those at one place, a product those that it sums over. A reshape
that joins or cuts dimensions cuts the axes accordingly. So a result `[512, 16·512]` of a product
has the axis of 16 experts where its weight has it, or where what takes it has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, cast

from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.values import Elementwise, Numbers
from hlo_lens.analysis.views import View, inverse

_LITERAL: Final = frozenset(("constant", "integer", "series", "iota", "partition-id", "replica-id"))
_MOST_AXES: Final = 64
_MOST_PARTS: Final = 4


class Axis:
    """One axis: its size, and what it is: another axis (`same`) or, from the slowest, `parts`."""

    __slots__ = ("parts", "same", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.same: Axis | None = None
        self.parts: tuple[Axis, Axis] | None = None

    def cut(self, outer: int) -> tuple[Axis, Axis]:
        self.parts = Axis(outer), Axis(self.size // outer)
        return self.parts


Axes = list[Axis]


def leaves(axes: Iterable[Axis]) -> Axes:
    """The axes as they are now: those that are one with another as that, cut ones in parts."""
    found: Axes = []
    waiting = [*axes][::-1]
    while waiting:
        axis = waiting.pop()
        while axis.same is not None:
            if axis.same.same is not None:
                axis.same = axis.same.same  # chains of many layers get short
            axis = axis.same
        if axis.parts is not None:
            waiting += axis.parts[::-1]
        elif axis.size > 1:
            found.append(axis)
    return found


def split(axes: Iterable[Axis], sizes: Sequence[int]) -> list[Axes] | None:
    """The axes of each dimension of an array of these sizes; None where they do not fit."""
    waiting = leaves(axes)[::-1]
    found: list[Axes] = []
    for size in sizes:
        mine: Axes = []
        while size > 1:
            if not waiting:
                return None
            axis = waiting.pop()
            if size % axis.size == 0:
                size //= axis.size
                mine.append(axis)
            elif axis.size % size == 0:
                outer, inner = axis.cut(size)
                mine.append(outer)
                waiting.append(inner)
                size = 1
            else:
                return None
        found.append(mine)
    return None if waiting else found


def unite(one: Iterable[Axis], other: Iterable[Axis]) -> None:
    """Make the axes of two arrays of one size the same, as far as their parts fit."""
    left, right = leaves(one)[::-1], leaves(other)[::-1]
    if math.prod(a.size for a in left) != math.prod(a.size for a in right):
        return
    while left and right:
        a, b = left.pop(), right.pop()
        if a is b:
            continue
        if a.same is not None or a.parts is not None or b.same is not None or b.parts is not None:
            # An axis that stands in both, and has just been cut or united.
            left += leaves((a,))[::-1]
            right += leaves((b,))[::-1]
        elif a.size == b.size:
            b.same = a
        elif a.size % b.size == 0:
            left += a.cut(b.size)[::-1]
            right.append(b)
        elif b.size % a.size == 0:
            right += b.cut(a.size)[::-1]
            left.append(a)
        else:
            return


def taken(axes: Iterable[Axis], view: View) -> Axes | None:
    """The axes of a view of an array; None where it cuts through one of them, or into many: where
    a bitcast leaves out tiles that one of its shapes has, and tells an order that is none."""
    if len(view) > _MOST_PARTS:
        return None
    now = leaves(axes)
    total = math.prod(axis.size for axis in now)
    cuts = sorted({1, total, *(s for _, s in view), *(n * s for n, s in view)})
    if cuts[-1] != total or any(b % a for a, b in pairwise(cuts)):
        return None
    parts = split(now, [b // a for a, b in pairwise(cuts)][::-1])
    if parts is None:
        return None
    below = dict(zip(cuts[:-1], parts[::-1], strict=True))
    return [
        axis
        for size, stride in view
        for cut in reversed(cuts[:-1])
        if stride <= cut < size * stride
        for axis in below[cut]
    ]


@lru_cache(maxsize=1 << 14)
def dims_of(shape_text: str) -> tuple[int, ...] | None:
    """The sizes of an array; None for a tuple, and where one is not known or there are none."""
    if shape_text.startswith("("):
        return None
    sizes = sizes_of(shape_text)
    if len(sizes) > _MOST_AXES or not all(s.isdecimal() and len(s) < 20 for s in sizes):
        return None
    numbers = tuple(map(int, sizes))
    return numbers if 0 < math.prod(numbers) < 1 << 62 else None


class AxisFlow:
    """The axes of each number (see `congruence`) of a module."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self._of: dict[int, Axes] = {}
        self._constant: list[bool] = []
        # When all rules have run, axes do not change any more: those an array varies in.
        self.finished = False
        self._varies: dict[int, set[Axis] | None] = {}

    def is_constant(self, number: int) -> bool:
        """Whether it is made of constants alone: equal ones stand in unrelated places."""
        known = self._constant
        while len(known) <= number:
            node = self.numbers[len(known)]
            of = node.operands
            known.append(
                node.kind in _LITERAL
                or (bool(of) and all(one < len(known) and known[one] for one in of))
            )
        return known[number]

    def known(self, number: int) -> Axes | None:
        """The axes of an array, as they are now; None where nothing is known of it."""
        found = self._of.get(number)
        if found is None:
            node = self.numbers[number]
            below = self.known(node.operands[0]) if node.kind == "view" else None
            found = None if below is None else taken(below, cast(View, node.detail))
            if found is None:
                return None
            self._of[number] = found
        return leaves(found)

    def dimensions(self, number: int, sizes: Sequence[int]) -> list[Axes]:
        """The axes of each dimension of an array of these sizes."""
        node = self.numbers[number]
        if not self.is_constant(number) and node.kind not in ("filled", "unknown"):
            axes = self.known(number)
            found = None if axes is None else split(axes, sizes)
            if found is not None:
                return found
            if axes is None:
                return self._new(number, sizes)
        return [[Axis(size)] for size in sizes]

    def _new(self, number: int, sizes: Sequence[int]) -> list[Axes]:
        axes = [Axis(size) for size in sizes]
        self._of[number] = axes
        node = self.numbers[number]
        if node.kind == "view" and node.operands[0] not in self._of:
            below = taken(axes, inverse(cast(View, node.detail)))
            if below is not None:
                self._of[node.operands[0]] = below
        return [[axis] for axis in axes]

    def varies_in(self, number: int, depth: int = 0) -> set[Axis] | None:
        """The axes along which an array is not the same throughout; None where not known."""
        if number in self._varies:
            return self._varies[number]
        found = self._find_varying(number, depth)
        if self.finished:
            self._varies[number] = found
        return found

    def _find_varying(self, number: int, depth: int) -> set[Axis] | None:
        node = self.numbers[number]
        if self.is_constant(number) or node.kind == "filled":
            return set()
        if depth < 32 and (node.kind in ("broadcast", "view") or is_elementwise(node.detail)):
            parts = [self.varies_in(one, depth + 1) for one in node.operands]
            # What is compared with an iota varies along it, too: along which axis it does not say.
            uneven = any(self.is_constant(one) and not self._is_even(one) for one in node.operands)
            if None not in parts and not uneven:
                return set().union(*(part for part in parts if part is not None))
        axes = self.known(number)
        return None if axes is None else set(axes)

    def _is_even(self, number: int) -> bool:
        """Whether a constant is one number throughout."""
        for _ in range(32):
            node = self.numbers[number]
            if node.kind in ("filled", "integer", "series", "partition-id", "replica-id"):
                return True
            if node.kind == "constant":
                return isinstance(node.detail, tuple) and node.detail[:1] == ("[]",)
            if node.kind not in ("broadcast", "view") and not is_elementwise(node.detail):
                return False
            if len(node.operands) != 1:
                return all(self.numbers[one].kind in ("filled", "integer") for one in node.operands)
            number = node.operands[0]
        return False


def is_elementwise(detail: object) -> bool:
    return isinstance(detail, Elementwise)
