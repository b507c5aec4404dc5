"""Batch, heads and lengths of an exposed attention: which dimensions of Q and K its axes are.

Products have them merged and in any order, so the arrays that Q and K come from are asked. Where
batch and heads are two dimensions, the batch is the one in front, as in all of jax's layouts
(BTNH, BNTH).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value
from hlo_lens.analysis.views import row_major
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import (
    Axes,
    length,
    moved,
    operand_axes,
    sides,
    sizes_in,
)

if TYPE_CHECKING:
    from hlo_lens_passes._attention_softmax import Softmax
    from hlo_lens_passes._attention_values import Spot, Values


@dataclass(frozen=True, slots=True)
class Sizes:
    """None: not known. Of grouped heads (GQA) there are more heads than heads of keys."""

    batch: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    q_length: int | None = None
    kv_length: int | None = None
    head_dim: int | None = None


NOT_KNOWN: Final = Sizes()


def sizes_of_site(values: Values, softmax: Softmax) -> Sizes:
    """The sizes of the attention that a softmax belongs to."""
    axes = softmax.exponential.axes
    queries, keys = length(axes.query), length(axes.key)
    counted = softmax.positions
    product = next(
        (one for one in softmax.scores if values.products.matrices(one.instr) is not None), None
    )
    if product is None:
        return Sizes(q_length=counted, kv_length=keys)
    as_matrices = values.products.matrices(product.instr)
    where = None if as_matrices is None else sides(as_matrices, product.axes)
    if as_matrices is None or where is None:
        return Sizes(q_length=counted, kv_length=keys)
    both = length(axes.batch) * queries
    of_query = _of_operand(values, product, where[0], counted)
    batch = heads = None
    if of_query is not None:
        batch, seen = of_query
        counted = seen
        heads = both // (batch * seen)
    of_key = _of_operand(values, product, where[1], keys)
    kv_heads = None
    if of_key is not None and batch is not None and of_key[0] == batch:
        kv_heads = _heads_of_keys(values, product, where[1], batch)
    return Sizes(batch, heads, kv_heads, counted, keys, as_matrices.sizes[3])


def _of_operand(
    values: Values, product: Spot, side: int, counted: int | None
) -> tuple[int, int] | None:
    """(batch, length) of Q or K: of the array furthest back of four dimensions where one is of
    positions alone, one of depth alone, and the one in front of the other two is of no position.
    `counted`: how many positions there are, where that is known."""
    found: tuple[int, int] | None = None
    for spot in _passed(values, product, side):
        sizes = sizes_in(spot.instr)
        kinds = _kinds(sizes, spot.axes)
        if kinds is None or len(sizes) != 4:
            continue
        positions = [d for d, kind in enumerate(kinds) if kind == {"position"}]
        if counted is not None:
            positions = [d for d in positions if sizes[d] == counted]
        depth = [d for d, kind in enumerate(kinds) if kind == {"depth"}]
        rest = [d for d in range(4) if d not in (*positions, *depth)]
        if len(positions) != 1 or len(depth) != 1 or "position" in kinds[rest[0]]:
            continue
        if any("depth" in kinds[d] for d in rest):
            continue
        found = sizes[rest[0]], sizes[positions[0]]
    return found


def _heads_of_keys(values: Values, product: Spot, side: int, batch: int) -> int | None:
    """How many heads K has: fewer than Q where it is broadcast over groups of them."""
    last: Spot | None = None
    for spot in _passed(values, product, side):
        last = spot
    if last is None:
        return None
    different = 1
    for size, stride in last.axes.batch:
        different *= size if stride else 1
    return different // batch if different % batch == 0 else None


def _passed(values: Values, product: Spot, side: int) -> Iterator[Spot]:
    """The arrays that an operand of the scores comes from, with depth as the keys."""
    as_matrices = values.products.matrices(product.instr)
    operands = product.instr.computation.operand_indices(product.instr.index)
    if as_matrices is None or side >= len(operands):
        return
    try:
        axes = Axes(*operand_axes(as_matrices, side))
    except ValueError:
        return
    value = Value(Instruction(product.instr.computation, operands[side]), (), product.value.via)
    yield from values.passed(value, axes)


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
