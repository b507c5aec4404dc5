"""Where the batch, query, key and depth of an attention lie in an array, through all its layouts.

An axis is a list of pairs (size, stride), as in `hlo_lens.analysis.views`: what one step along it
is in the array, in elements of row-major order. Stride 0 says that the array does not depend on it.
Nothing is decided by sizes: heads may be as many as keys are long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from hlo_lens.analysis.contractions import Contraction
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.views import View, composed, merged
from hlo_lens.hlo import Instruction

Axis = tuple[tuple[int, int], ...]


class Axes(NamedTuple):
    """The dimensions of scores in an array of them: batch (and heads), query, key."""

    batch: Axis
    query: Axis
    key: Axis

    def through(self, dimensions: Sequence[tuple[int, int]]) -> Axes:
        """In the operand whose elements an instruction takes by `dimensions`: (size, stride) of
        each dimension of its result, with stride 0 where it broadcasts.

        Raises ValueError where a reshape in between splits a dimension unevenly.
        """
        return Axes(*(moved(axis, dimensions) for axis in self))

    @property
    def whole(self) -> bool:
        """Whether an array has every query and key: neither is broadcast into it."""
        return depends(self.query) and depends(self.key)

    @property
    def of_rows(self) -> bool:
        """Whether an array has one value for all keys."""
        return not any(stride for _, stride in self.key)

    def turned(self) -> Axes:
        return Axes(self.batch, self.key, self.query)


def moved(axis: Axis, dimensions: Sequence[tuple[int, int]]) -> Axis:
    """The axis in an operand; see `Axes.through`."""
    found: list[tuple[int, int]] = []
    for size, stride in axis:
        if stride == 0:
            found.append((size, 0))
        else:
            found.extend(composed(tuple(dimensions), ((size, stride),)))
    return merged(found)


def as_set(axis: Axis) -> Axis:
    """The axis in the order of memory: which elements it is, in whatever order."""
    return merged(sorted(axis, key=lambda pair: -pair[1]))


def covers(whole: Axis, part: Axis) -> bool:
    """Whether an axis is another, or that and what follows on it in the same dimension."""
    first, last = as_set(whole), as_set(part)
    if not last or len(first) != len(last) or first[1:] != last[1:]:
        return first == last
    return first[0][1] == last[0][1] and first[0][0] >= last[0][0]


def depends(axis: Axis) -> bool:
    """Whether an array has an element for each step of the axis."""
    return all(stride for _, stride in axis)


def length(axis: Axis) -> int:
    return math.prod(size for size, _ in axis)


def operand_axes(product: Contraction, side: int) -> tuple[Axis, Axis, Axis]:
    """Batch, free and summed dimensions of an operand of a product: 0 left, 1 right.

    Raises ValueError where the text is at odds with itself.
    """
    batch, rows, columns, summed = product.sizes
    view = product.right if side else product.left
    first, free, last = split(view, (batch, columns if side else rows, summed))
    return first, free, last


def split(view: View, sizes: Sequence[int]) -> list[Axis]:
    """A view cut into axes of these sizes. Raises ValueError where it has others."""
    waiting = [*view]
    found: list[Axis] = []
    for size in reversed(sizes):
        axis: list[tuple[int, int]] = []
        while size > 1:
            if not waiting:
                raise ValueError("a view of fewer elements")
            count, stride = waiting.pop()
            taken = math.gcd(count, size)
            if taken not in (count, size):
                raise ValueError("a dimension is split unevenly")
            axis.append((taken, stride))
            if count > taken:
                waiting.append((count // taken, stride * taken))
            size //= taken
        found.append(merged(reversed(axis)))
    if any(count > 1 for count, _ in waiting):
        raise ValueError("a view of more elements")
    return found[::-1]


def sides(product: Contraction, axes: Axes) -> tuple[int, int] | None:
    """Which operand of a product the queries and the keys of its result come from, as (0, 1) or
    (1, 0); None where its dimensions are not exactly these.

    The batch has to be the batch of the product, the queries all of the free dimensions of one
    operand and the keys all of those of the other.
    """
    batch, rows, columns, _ = product.sizes
    try:
        given = axes.through(product.result or ((batch * rows * columns, 1),))
    except ValueError:
        return None
    want = [
        merged(((batch, rows * columns),)),
        merged(((rows, columns),)),
        merged(((columns, 1),)),
    ]
    found = [as_set(axis) for axis in given]
    if found == want:
        return 0, 1
    if found == [want[0], want[2], want[1]]:
        return 1, 0
    return None


def is_part(product: Contraction, axes: Axes) -> bool:
    """Whether the result of a product has the batch, queries and keys of scores, some of the batch
    as free dimensions of Q: where all heads share one K, as the rotated part of MLA's does."""
    batch, rows, columns, _ = product.sizes
    try:
        given = axes.through(product.result or ((batch * rows * columns, 1),))
    except ValueError:
        return False
    rest, key = as_set((*given.batch, *given.query)), as_set(given.key)
    by_rows = rest == merged(((batch * rows, columns),)) and key == merged(((columns, 1),))
    by_columns = as_set(((batch, rows * columns), (columns, 1)))
    return by_rows or (rest == by_columns and key == merged(((rows, columns),)))


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
