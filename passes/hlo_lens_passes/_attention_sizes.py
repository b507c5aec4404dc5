"""Batch, heads and lengths of an exposed attention: which dimensions of Q and K its axes are.

Products have them merged and in any order, so what Q and K come from is asked: the projections that
make them, else the order of the dimensions of the arrays that they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, length, operand_axes, sides
from hlo_lens_passes._attention_origins import (
    BATCH,
    HEADS,
    POSITION,
    Labels,
    Order,
    counted,
    digits,
    orders,
    parts,
    projected,
    way_back,
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
BY_ORDER: Final = "batch and heads by the order of the dimensions of Q or K"


@dataclass(frozen=True, slots=True)
class Told:
    """why: what the sizes are known by, where that is a convention."""

    sizes: Sizes
    why: tuple[str, ...] = ()


def told_of_site(values: Values, softmax: Softmax) -> Told:
    """The sizes of the attention that a softmax belongs to."""
    axes = softmax.exponential.axes
    queries, keys = length(axes.query), length(axes.key)
    positions = 1 if queries == 1 else softmax.positions
    for product in softmax.scores:
        operands = _Operands.of(values, product)
        if operands is not None:
            return operands.told(length(axes.batch), queries, keys, positions)
    return Told(Sizes(q_length=positions, kv_length=keys))


@dataclass(frozen=True, slots=True)
class _Operands:
    """Q and K of one product of scores: the arrays that they come from, and their depth."""

    values: Values
    query: Sequence[Spot]
    key: Sequence[Spot]
    depth: int

    @classmethod
    def of(cls, values: Values, product: Spot) -> _Operands | None:
        as_matrices = values.products.matrices(product.instr)
        where = None if as_matrices is None else sides(as_matrices, product.axes)
        if as_matrices is None or where is None:
            return None
        ways: list[Sequence[Spot]] = []
        of = product.instr.computation
        operands = of.operand_indices(product.instr.index)
        for side in where:
            if side >= len(operands):
                return None
            try:
                axes = Axes(*operand_axes(as_matrices, side))
            except ValueError:
                return None
            value = Value(Instruction(of, operands[side]), (), product.value.via)
            ways.append(way_back(values, value, axes))
        return cls(values, ways[0], ways[1], as_matrices.sizes[3])

    def told(self, both: int, queries: int, keys: int, positions: int | None) -> Told:
        """both: the batch of the product; positions: of queries, where known."""
        of_query = projected(self.values, self.query) or Labels()
        of_key = projected(self.values, self.key) or Labels()
        free, why = of_query.free, False
        batch = [of_query.batch, of_key.batch]
        if counted(both, *batch) is None or (positions or _one(queries, free)) is None:
            order = self._by_order(keys, positions)
            if order is not None:
                free, why = order.labels.free, True
                if counted(both, *batch) is None:
                    batch = [order.labels.batch]
        its = counted(both, *batch)
        seen = _one(queries, free)
        if positions is not None and seen is not None and seen != positions:
            return Told(Sizes(None, None, None, positions, keys, self.depth))
        seen = positions if positions is not None else seen
        if its is None:
            return Told(Sizes(None, None, None, seen, keys, self.depth))
        groups = None if seen is None or queries % seen else queries // seen
        of_batch, heads = its.get(BATCH, 1), its.get(HEADS, 1)
        return Told(
            Sizes(
                of_batch,
                None if groups is None else heads * groups,
                self._heads_of_keys(both, batch),
                seen,
                keys,
                self.depth,
            ),
            (BY_ORDER,) if why else (),
        )

    def _heads_of_keys(self, both: int, batch: Sequence[dict[tuple[int, int], str]]) -> int | None:
        """How many heads K has: fewer than Q where it is broadcast over groups of them."""
        if not self.key:
            return None
        last = self.key[-1].axes.batch
        places = {digit: str(bool(stride)) for digit, stride in digits(last)}
        cut = parts(both, places, *batch)
        if cut is None:
            return None
        found = 1
        for low, high, _ in cut:
            has = [on for (a, b), on in places.items() if a <= low and high <= b]
            its = {
                label for one in batch for (a, b), label in one.items() if a <= low and high <= b
            }
            if its == {HEADS} and has == ["True"]:
                found *= high // low
        return found

    def _by_order(self, keys: int, positions: int | None) -> Order | None:
        """By the order of dimensions; a product's result has them in that of the compiler."""
        for_query: list[Order] = []
        for_key: list[Order] = []
        if self._is_given(self.query):
            for_query = orders(self.query, positions, grouped=True)
        if self._is_given(self.key):
            for_key = orders(self.key, keys, grouped=False)
        if len(for_query) > 1 and len(for_key) == 1:
            like = for_key[0].rank, for_key[0].position
            for_query = [one for one in for_query if (one.rank, one.position) == like]
        return for_query[0] if len(for_query) == 1 else None

    def _is_given(self, way: Sequence[Spot]) -> bool:
        return bool(way) and way[-1].instr not in self.values.products


def _one(queries: int, free: dict[tuple[int, int], str]) -> int | None:
    """How many positions the queries are, where labels tell."""
    its = counted(queries, free)
    return None if its is None else its.get(POSITION, 1)
