"""The matmuls of a module as products of two matrices, whatever writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.contractions import Contraction, contraction
from hlo_lens.analysis.views import merged
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY, PLACEMENT, structural_attributes
from hlo_lens_passes._attention_axes import (
    Axes,
    Axis,
    array_text,
    elements_of,
    is_part,
    length,
    operand_axes,
    sides,
    split,
)
from hlo_lens_passes._attention_sums import Summed, summed_products
from hlo_lens_passes._matmul_dims import Dims
from hlo_lens_passes._matmul_split import split_k

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Computation, Instruction

_NOT_COMPUTED: Final = COMMENTARY | IDENTITY | PLACEMENT


class Products:
    """Dots, convolutions that are dots, gemm calls of which dimension numbers are known, and, when
    asked for, multiplies with a sum behind them."""

    def __init__(self, analysis: ModuleAnalysis, rows: Sequence[Mapping[str, object]]) -> None:
        """`rows`: those of the table matmuls for this module."""
        module = analysis.module
        # Of a call, its dimension numbers as a dot has them; of what has its own, None.
        self._dims: dict[int, str | None] = {}
        self._slices: dict[int, int] = {}
        self._matrices: dict[int, Contraction | None] = {}
        for row in rows:
            number = row["instr"]
            if row["ragged"] or not isinstance(number, int):
                continue
            self._dims[number] = _dims(row)
            if isinstance(row["split_k"], int):
                slices = _slices(analysis.graph, module.instruction(number), row)
                self._slices[number] = slices or 1
        self._all = [module.instruction(number) for number in self._dims]
        self._summed: dict[Instruction, Summed] = {}
        self._sums: set[Instruction] = set()

    def add_sums(self, computations: Iterable[Computation]) -> None:
        """Take products in that are written as a multiply and a sum."""
        for computation in computations:
            for one in summed_products(computation):
                self._summed[one.reduce] = one
                self._sums.add(one.product)
                self._matrices[one.product.id] = one.matrices
                self._dims[one.product.id] = None
                self._all.append(one.product)

    def is_sum(self, product: Instruction) -> bool:
        """Whether it is written as a multiply, with a sum behind it."""
        return product in self._sums

    def summed(self, reduce: Instruction) -> Summed | None:
        """The product that a sum is of."""
        return self._summed.get(reduce)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._all)

    def __contains__(self, instr: Instruction) -> bool:
        return not instr.implied and instr.id in self._dims

    def matrices(self, instr: Instruction) -> Contraction | None:
        """A matmul as matrices and views; None where it is no plain product of two."""
        known = self._matrices.get(instr.id, ...)
        if known is not ...:
            return known
        found = None
        of = instr.computation
        shapes = [of.shape_of(one) for one in of.operand_indices(instr.index)[:2]]
        if len(shapes) == 2:
            attributes, opcode = self._dims.get(instr.id), "dot"
            if attributes is None:
                opcode = instr.opcode
                attributes = structural_attributes(instr.tail, without=_NOT_COMPUTED)
            found = contraction(opcode, attributes, shapes[0], shapes[1], array_text(instr))
        self._matrices[instr.id] = found
        return found

    def axes(self, instr: Instruction, side: int) -> Axes | None:
        """The axes of an operand, what is summed as the keys; None where they are not known.

        Of a sum in slices, which the product has in its batch, the slices are keys too.
        """
        product = self.matrices(instr)
        if product is None:
            return None
        slices = self._slices.get(instr.id, 1)
        try:
            batch, free, summed = operand_axes(product, side)
            if slices > 1:
                batch, summed = _whole_sum(batch, summed, slices)
        except ValueError:
            return None
        return Axes(batch, free, summed)

    def elements(self, instr: Instruction, side: int) -> int | None:
        """How many elements a matrix has; None, in a product that is written as a
        multiply and a sum, of one that the other only weighs."""
        of = instr.computation
        if not self.is_sum(instr):
            return elements_of(of.shape_of(of.operand_indices(instr.index)[side]))
        product = self.matrices(instr)
        if product is None or product.sizes[1 if side else 2] == 1:
            return None
        return length(product.right if side else product.left)

    def sides(self, instr: Instruction, axes: Axes) -> tuple[int, int] | None:
        """Which operands the queries and the keys of a result come from; see
        `_attention_axes.sides`."""
        product = self.matrices(instr)
        return None if product is None else sides(product, axes)

    def is_part(self, instr: Instruction, axes: Axes) -> bool:
        """Whether a result is of the scores' elements; see `_attention_axes.is_part`."""
        product = self.matrices(instr)
        return product is not None and is_part(product, axes)


def _numbers(row: Mapping[str, object]) -> Mapping[str, object]:
    """The dimension numbers of a matmul, by their names; none where they are not known."""
    dims = row["dims"]
    found = json.loads(dims) if isinstance(dims, str) else dims
    return found if isinstance(found, Mapping) else {}


def _dims(row: Mapping[str, object]) -> str | None:
    """The dimension numbers of a gemm call as those of a dot; None for what has its own."""
    if row["form"] != "custom_call":
        return None
    return "".join(
        f", {name}_dims={{{','.join(map(str, numbers))}}}"
        for name, numbers in _numbers(row).items()
        if isinstance(numbers, list) and numbers
    )


def _whole_sum(batch: Axis, summed: Axis, slices: int) -> tuple[Axis, Axis]:
    """Batch and sum of a product whose sum is in slices: XLA's split-K keeps the slices in front of
    what is summed in memory. Raises ValueError where they are not there."""
    rest = length(batch) // slices
    for outer, inner, which in ((rest, slices, 1), (slices, rest, 0)):
        parts = split(batch, (outer, inner))
        together = merged([*parts[which], *summed])
        if len(together) == len(summed):
            return parts[1 - which], together
    raise ValueError("slices that are not of the sum")


def _slices(graph: CallGraph, product: Instruction, row: Mapping[str, object]) -> int | None:
    """In how many slices the text shows a sum to be cut; what a kernel does inside is not asked."""
    numbers = {name: tuple(its) for name, its in _numbers(row).items() if isinstance(its, list)}
    return split_k(graph, product, Dims(**numbers)) if "lhs_batch" in numbers else None
