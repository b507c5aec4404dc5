"""Where Q and K come from: which of their dimensions a projection takes from its weight.

A projection multiplies tokens with a weight: the batch is a dimension of its tokens, the heads are
one of its weight, in whatever order a compiler has put them. Where Q and K are not projected in the
text, the order of the dimensions of an array is left, as in all of jax's layouts (BTNH, BNTH): the
heads are the last dimension that is no position and no depth, and the batch is in front.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.views import merged, row_major
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, Axis, moved, operand_axes, sizes_in
from hlo_lens_passes._attention_reduces import listed, reducer
from hlo_lens_passes._attention_values import ELEMENTWISE, Spot

if TYPE_CHECKING:
    from hlo_lens_passes._attention_values import Values

BATCH: Final = "batch"
HEADS: Final = "heads"
POSITION: Final = "position"

_MOST_STEPS: Final = 64
_MOST_PRODUCTS: Final = 6
# What gives each element of its operand, in its place, though from another device.
_SAME_PLACES: Final = frozenset(("all-reduce", "collective-permute"))


@dataclass(slots=True)
class Labels:
    """What the digits of an index are: those from `low` up to `high`, of sizes (low, high).

    `batch` is of the batch of a product, `free` of its queries or keys. A digit that an operand
    does not depend on has no label.
    """

    batch: dict[tuple[int, int], str] = field(default_factory=dict)
    free: dict[tuple[int, int], str] = field(default_factory=dict)


def counted(total: int, *labels: dict[tuple[int, int], str]) -> dict[str, int] | None:
    """How many steps of each label an index of `total` steps has; None where a digit has no label,
    or two."""
    found: dict[str, int] = {}
    for low, high, label in parts(total, *labels) or [(0, 0, None)]:
        if label is None:
            return None
        found[label] = found.get(label, 1) * (high // low)
    return found


def parts(
    total: int, *labels: dict[tuple[int, int], str]
) -> list[tuple[int, int, str | None]] | None:
    """An index cut into digits of one label each; None where the digits of labels overlap."""
    bounds = sorted({1, total, *(bound for one in labels for digit in one for bound in digit)})
    found: list[tuple[int, int, str | None]] = []
    for low, high in pairwise(bounds):
        if high % low:
            return None
        its = {
            label
            for one in labels
            for (first, last), label in one.items()
            if first <= low and high <= last
        }
        found.append((low, high, its.pop() if len(its) == 1 else None))
    return found or [(1, 1, BATCH)]


def digits(axis: Axis) -> Iterator[tuple[tuple[int, int], int]]:
    """The digits of an axis, with their strides."""
    low = 1
    for size, stride in reversed(axis):
        yield (low, low * size), stride
        low *= size


# -- the way back ----------------------------------------------------------------------------------


def way_back(values: Values, value: Value, axes: Axes) -> list[Spot]:
    """The arrays that an operand comes from, up to a product, the nearest first: also through
    slices of stacked arrays, and operations on elements such as a rotation by position."""
    found: list[Spot] = []
    with suppress(IndexError, ValueError):
        for _ in range(_MOST_STEPS):
            found += values.passed(value, axes)
            before = _before(values, found[-1]) if found else None
            if before is None:
                break
            value, axes = before
    return found


def _before(values: Values, spot: Spot) -> tuple[Value, Axes] | None:
    """What an array is computed from, of as many queries or keys. Raises IndexError, ValueError."""
    opcode, first = spot.instr.opcode, spot.operand(0)
    if first is None or spot.value.path or spot.instr in values.products:
        return None
    if opcode in ("dynamic-slice", "slice"):
        return first, spot.axes.through(_in_operand(spot))
    if opcode == "concatenate":
        return _of_one_part(spot, first)
    if opcode in _SAME_PLACES:
        return first, spot.axes
    if opcode == "reduce":
        return _of_slices(values, spot, first)
    if opcode not in ELEMENTWISE:
        return None
    for number in range(len(spot.instr.computation.operand_indices(spot.instr.index))):
        operand = spot.operand(number)
        at = None if operand is None else values.at(operand, spot.axes)
        if operand is not None and at is not None and _as_much(at.axes, spot.axes):
            return operand, spot.axes
    return None


def _as_much(first: Axes, last: Axes) -> bool:
    """Whether arrays depend on as many steps of each axis."""
    return all(_depended(a) == _depended(b) for a, b in zip(first, last, strict=True))


def _depended(axis: Axis) -> int:
    return math.prod(size for size, stride in axis if stride)


def _in_operand(spot: Spot) -> list[tuple[int, int]]:
    of = spot.instr.computation
    given = Instruction(of, of.operand_indices(spot.instr.index)[0])
    sizes = sizes_in(spot.instr)
    return [(n, step) for n, (_, step) in zip(sizes, row_major(sizes_in(given)), strict=True)]


def _of_slices(values: Values, spot: Spot, first: Value) -> tuple[Value, Axes] | None:
    """Of a product that is summed in slices (split-K), the slices."""
    if reducer(spot.instr) != "add":
        return None
    gone = listed(spot.instr)
    places = row_major(sizes_in(first.instr))
    axes = spot.axes.through([place for d, place in enumerate(places) if d not in gone])
    at = values.at(first, axes)
    return (first, axes) if at is not None and at.instr in values.products else None


def _of_one_part(spot: Spot, first: Value) -> tuple[Value, Axes] | None:
    """Of what is concatenated along the depth alone, the first, with its depth."""
    (along,) = listed(spot.instr)
    sizes, places = sizes_in(spot.instr), _in_operand(spot)
    only = [(n, int(d == along)) for d, n in enumerate(sizes)]
    if any(_depended(moved(axis, only)) > 1 for axis in spot.axes[:2]):
        return None
    batch, free = (moved(axis, places) for axis in spot.axes[:2])
    size = sizes_in(first.instr)[along]
    return first, Axes(batch, free, merged([(size, places[along][1])]))


# -- projections -----------------------------------------------------------------------------------


def projected(values: Values, way: Sequence[Spot], products: int = 0) -> Labels | None:
    """What the dimensions of an operand are by the projection that makes it, and those in front of
    that; None where it is none, or does not tell. way: see `way_back`."""
    end = way[-1] if way else None
    if end is None or products > _MOST_PRODUCTS:
        return None
    if end.instr not in values.products or end.value.path:
        return _of_tokens(end) if products else None
    with suppress(IndexError, ValueError):
        return _of_product(values, end, products)
    return None


def _of_product(values: Values, end: Spot, products: int) -> Labels | None:
    product = values.products.matrices(end.instr)
    if product is None:
        return None
    batch, rows, columns, _ = product.sizes
    given = end.axes.through(product.result or ((batch * rows * columns, 1),))
    bounds = columns, rows * columns
    cut = [_cut(axis, bounds) for axis in given]
    (weight,) = {place for _, _, stride, place in cut[2] if stride}  # where the depth lies
    if weight == 2:
        return None
    tokens = 1 - weight
    found = Labels()
    waiting: list[list[tuple[int, int]]] = [[], []]
    side = 0 if tokens == 1 else 1
    of_batch, of_tokens, summed = operand_axes(product, side)
    for number, (axis, labels) in enumerate(zip(cut[:2], (found.batch, found.free), strict=True)):
        for digit, size, stride, place in axis:
            if stride and place == weight:
                labels[digit] = HEADS
            elif stride and number and place == tokens:
                labels[digit] = POSITION
            elif stride and number:
                return None
            there = stride // (1, *bounds)[place]
            if not stride or place == weight:
                waiting[number].append((size, 0))
            else:
                view = of_tokens if place == tokens else of_batch
                waiting[number] += moved(((size, there),), view)
    left = [(digit, place) for digit, _, stride, place in cut[0] if stride and place != weight]
    if not left:
        return found
    if HEADS in (*found.batch.values(), *found.free.values()) and all(p == tokens for _, p in left):
        found.batch.update((digit, BATCH) for digit, _ in left)
        return found
    operand = end.operand(side)
    if operand is None:
        return None
    axes = Axes(merged(waiting[0]), merged(waiting[1]), summed)
    inner = projected(values, way_back(values, operand, axes), products + 1)
    if inner is not None:
        found.batch |= inner.batch
    return found


def _cut(axis: Axis, bounds: tuple[int, int]) -> list[tuple[tuple[int, int], int, int, int]]:
    """The digits of an axis, slowest first, as (digit, size, stride, place): 0 columns, 1 rows, 2
    the batch of a product. Raises ValueError where a digit lies in two unevenly."""
    found: list[tuple[tuple[int, int], int, int, int]] = []
    for (low, high), stride in digits(axis):
        for place, (first, last) in enumerate(zip((1, *bounds), (*bounds, 0), strict=True)):
            if stride == 0 or (last and stride >= last):
                continue
            size = high // low
            if last and stride * size > last:
                if last % stride or size % (last // stride):
                    raise ValueError("a dimension is split unevenly")
                size = last // stride
            if stride < first:
                raise ValueError("a dimension is split unevenly")
            found.append(((low, low * size), size, stride, place))
            low, stride = low * size, stride * size
            if low == high:
                break
        if low < high:
            found.append(((low, high), high // low, 0, 0))
    return found[::-1]


def _of_tokens(end: Spot) -> Labels | None:
    """What is left of the batch where no weight has more: the sequences, where they are one
    dimension of the tokens."""
    kinds = _kinds(_sizes(end), end.axes)
    if not kinds or sum("batch" in one for one in kinds) > 1:
        return None
    return Labels({digit: BATCH for digit, stride in digits(end.axes.batch) if stride})


# -- the order of dimensions -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """An array read by the order of its dimensions. position: the one of positions; None where it
    has none."""

    rank: int
    position: int | None
    labels: Labels


def orders(way: Sequence[Spot], positions: int | None, *, grouped: bool) -> list[Order]:
    """The readings of the array furthest back that has dimensions for batch and heads.

    positions: how many there are, where that is known; grouped: whether heads may be free
    dimensions of the product, as of Q where several heads have one K.
    """
    for spot in reversed(way):
        sizes = _sizes(spot)
        kinds = _kinds(sizes, spot.axes)
        if kinds is None or len(sizes) < 3:
            continue
        found: list[Order] = []
        for one in _readings(sizes, kinds, positions, grouped):
            labels = _labels(spot.axes, sizes, *one)
            if labels is not None and labels not in [order.labels for order in found]:
                found.append(Order(len(sizes), one[1], labels))
        if found:
            return found
    return []


def _readings(
    sizes: Sequence[int], kinds: Sequence[set[str]], positions: int | None, grouped: bool
) -> Iterator[tuple[Sequence[int], int | None, int]]:
    """(batch, position, heads): the numbers of dimensions."""
    # What only an index goes along, such as that of a layer, is none of the array's own.
    own = [d for d, kind in enumerate(kinds) if kind or sizes[d] == 1]
    depth = [d for d in own if "depth" in kinds[d]]
    if len(depth) != 1 or kinds[depth[0]] != {"depth"}:
        return
    rest = [d for d in own if d not in depth]
    places: list[int | None] = [d for d in rest if kinds[d] <= {"position"}]
    if len(own) == 3 and not places:
        places = [None]
    for place in places:
        count = 1 if place is None else sizes[place]
        *front, heads = [d for d in rest if d != place] or [-1]
        if not front or (positions is not None and count != positions):
            continue
        if any("position" in kinds[d] for d in front):
            continue
        if "position" in kinds[heads] and (
            not grouped or (len(front) > 1 and "batch" not in kinds[heads])
        ):
            continue
        # Of heads in front of the positions, and more dimensions than four, any may be of heads.
        yield front, place, heads


def _labels(
    axes: Axes, sizes: Sequence[int], front: Sequence[int], place: int | None, heads: int
) -> Labels | None:
    found = Labels()
    try:
        for d in (*front, *(() if place is None else (place,)), heads):
            only = [(n, int(number == d)) for number, n in enumerate(sizes)]
            label = BATCH if d in front else POSITION if d == place else HEADS
            for axis, labels in ((axes.batch, found.batch), (axes.query, found.free)):
                its = [digit for digit, stride in digits(moved(axis, only)) if stride]
                labels.update(dict.fromkeys(its, label))
    except ValueError:
        return None
    return found


def _sizes(spot: Spot) -> list[int]:
    """The dimensions of an array, also of an element of a tuple; none where one is not known."""
    if not spot.value.path:
        return sizes_in(spot.instr)
    try:
        shape = spot.instr.shape
        for index in spot.value.path:
            shape = shape.elements[index]
    except (IndexError, ValueError):
        return []
    sizes = sizes_of(str(shape))
    return [int(size) for size in sizes] if all(size.isdecimal() for size in sizes) else []


def _kinds(sizes: Sequence[int], axes: Axes) -> list[set[str]] | None:
    """What each dimension of an array is of; a dimension of size 1 is of nothing."""
    kinds: list[set[str]] = [set() for _ in sizes]
    for name, axis in zip(("batch", "position", "depth"), axes, strict=True):
        for dimension, (size, _) in enumerate(row_major(sizes)):
            if size == 1:
                continue
            only = [(n, int(d == dimension)) for d, n in enumerate(sizes)]
            try:
                if any(stride for _, stride in moved(axis, only)):
                    kinds[dimension].add(name)
            except ValueError:
                return None
    return kinds
