"""Rearrangements of an array: transposes, and bitcasts by the layouts and tiles of both shapes.

A view says in which order the elements of an array are taken: pairs (size, stride), the slowest
first, where a stride counts elements of the array in row-major order. `[2,3]` transposed is
((3, 1), (2, 3)). Reshapes change nothing, so the dimensions of the result are not part of it, and
neither are dimensions of size 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from hlo_lens.analysis.degenerate import sizes_of

View = tuple[tuple[int, int], ...]

_LAYOUT: Final = re.compile(r"\]\{([0-9,]*)(?::((?:T|\([0-9,]+\))*))?", re.A)
_TILE: Final = re.compile(r"\(([0-9,]+)\)", re.A)
# The product of all sizes: what is larger is no array.
_MOST_ELEMENTS: Final = 1 << 62


def is_identity(view: View) -> bool:
    """Whether it takes the elements in the order they have."""
    return len(view) == 0 or (len(view) == 1 and view[0][1] == 1)


def transposed(shape_text: str, dimensions: Sequence[int]) -> View:
    """The view that a transpose of an array of that shape is.

    Raises:
        ValueError: these are not its dimensions, or a size is not known.
    """
    sizes = _sizes(shape_text)
    if sorted(dimensions) != [*range(len(sizes))]:
        raise ValueError(f"no order of {len(sizes)} dimensions: {dimensions}")
    pairs = row_major(sizes)
    return merged(pairs[d] for d in dimensions)


def bitcast(given: str, result: str) -> View:
    """The view that a bitcast is: the elements stay where they are in memory.

    A list of other elements (the bytes of floats, say) is taken for what lies in memory.

    Raises:
        ValueError: a size or layout is not known.
    """
    tiled = [bool(found and found[2]) for found in map(_LAYOUT.search, (given, result))]
    # The TPU compiler leaves the tiles out here and there in a fusion: no array is both ways.
    first, last = (in_memory(text, all(tiled)) for text in (given, result))
    count = [math.prod(size for size, _ in view) for view in (first, last)]
    if count[0] == count[1]:
        return composed(first, inverse(last))
    if len(sizes_of(result)) == 1:
        return first
    raise ValueError("elements of another size")


@lru_cache(maxsize=1 << 14)
def in_memory(shape_text: str, tiles: bool = True) -> View:
    """The elements of an array in the order they have in memory, in its tiles or as without them.

    Tiles that do not divide their dimensions, and so need padding, are left out.

    Raises:
        ValueError: a size is not known, or the layout does not name each dimension once.
    """
    sizes = _sizes(shape_text)
    found = _LAYOUT.search(shape_text)
    text = found[1] if found else ""
    layout = [int(one) for one in text.split(",")] if text else [*range(len(sizes))][::-1]
    if sorted(layout) != [*range(len(sizes))]:
        raise ValueError(f"no layout of {len(sizes)} dimensions: {shape_text[:80]}")
    pairs = row_major(sizes)
    order = [pairs[d] for d in reversed(layout)]
    tiled: list[tuple[int, int]] | None = order
    for tile in _TILE.findall(found[2] or "") if found and tiles else ():
        tiled = _tiled(tiled, [int(size) for size in tile.split(",")]) if tiled else None
    return merged(order if tiled is None else tiled)


def _tiled(pairs: list[tuple[int, int]], tile: Sequence[int]) -> list[tuple[int, int]] | None:
    """The last dimensions in tiles: which tile, then where in it; None where they do not fit."""
    before, inside = pairs[: -len(tile)], pairs[-len(tile) :]
    if len(inside) < len(tile) or any(n % m for (n, _), m in zip(inside, tile, strict=True)):
        return None
    which = [(n // m, s * m) for (n, s), m in zip(inside, tile, strict=True)]
    return [*before, *which, *((m, s) for (_, s), m in zip(inside, tile, strict=True))]


def within(view: View, count: int) -> View | None:
    """The view of each of `count` parts that follow on each other, where a view leaves these in
    their order; else None."""
    if not view or view[0][0] % count:
        return None
    (size, stride), rest = view[0], view[1:]
    part = math.prod(n for n, _ in view) // count
    if stride * (size // count) != part or any(each >= part for _, each in rest):
        return None
    return merged(((size // count, stride), *rest))


def exchanged(batch: int, rows: int, columns: int) -> View:
    """Matrices, as a view of those whose rows are their columns."""
    return merged(((batch, rows * columns), (rows, 1), (columns, rows)))


def inverse(view: View) -> View:
    """The view that undoes another, which takes each element once."""
    strides = row_major([size for size, _ in view])
    order = sorted(range(len(view)), key=lambda k: -view[k][1])
    return merged(strides[k] for k in order)


def composed(inner: View, outer: View) -> View:
    """The view `outer` of what `inner` gives.

    Raises:
        ValueError: it is none, as where a reshape splits a dimension unevenly in between.
    """
    strides = row_major([size for size, _ in inner])
    pairs: list[tuple[int, int]] = []
    for size, stride in reversed(outer):
        for k in reversed(range(len(inner))):
            below, end = strides[k][1], strides[k][1] * inner[k][0]
            if size == 1 or stride >= end:
                continue
            step, uneven = divmod(stride, below)
            count = min(size, inner[k][0] // step) if step else 0
            if uneven or not count or inner[k][0] % step or size % count:
                raise ValueError("a dimension is split unevenly")
            pairs.append((count, inner[k][1] * step))
            size, stride = size // count, end
        if size != 1:
            raise ValueError("more elements than there are")
    return merged(reversed(pairs))


def _sizes(shape_text: str) -> list[int]:
    sizes = [int(text) for text in sizes_of(shape_text)]
    if not 0 < math.prod(sizes) < _MOST_ELEMENTS:
        raise ValueError("no elements, or too many")
    return sizes


def row_major(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The dimensions of an array of these sizes: (size, stride), the last dimension the fastest."""
    pairs, stride = [], 1
    for size in reversed(sizes):
        pairs.append((size, stride))
        stride *= size
    return pairs[::-1]


def merged(pairs: Iterable[tuple[int, int]]) -> View:
    """Pairs that are one, as one: a view has one form."""
    found: list[tuple[int, int]] = []
    for size, stride in pairs:
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            size *= found.pop()[0]
        found.append((size, stride))
    return tuple(found)
