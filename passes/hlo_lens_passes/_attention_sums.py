"""Products that a compiler wrote as a multiply and a sum, as of one query: a matrix by a vector.

XLA does so for GPUs (xla/service/gpu/transforms/dot_strength_reduction.h), and TPU text has them
too: each operand is broadcast over what only the other has.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lens.analysis.contractions import Contraction
from hlo_lens.analysis.views import merged, row_major
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, sizes_in
from hlo_lens_passes._attention_reduces import listed, reducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hlo_lens.hlo import Computation

_SAME: Final = frozenset(("convert", "copy", "reduce-precision"))
_MOST_CONVERTS: Final = 8


class Summed(NamedTuple):
    """product: the multiply, as the product of two matrices that it is with the sum behind it."""

    reduce: Instruction
    product: Instruction
    matrices: Contraction

    def through(self, axes: Axes) -> Axes:
        """The axes of the sum in what is summed. Raises ValueError where they do not fit."""
        gone = listed(self.reduce)
        places = row_major(sizes_in(self.product))
        return axes.through([place for d, place in enumerate(places) if d not in gone])


def summed_products(computation: Computation) -> Iterator[Summed]:
    """Those of a computation."""
    if "multiply" not in computation.opcodes or "reduce" not in computation.opcodes:
        return
    for index, opcode in enumerate(computation.opcodes):
        if opcode == "reduce":
            with suppress(IndexError, ValueError):
                found = _summed(Instruction(computation, index))
                if found is not None:
                    yield found


def _summed(reduce: Instruction) -> Summed | None:
    product = _before(reduce, 0)
    if product is None or product.opcode != "multiply" or reducer(reduce) != "add":
        return None
    sizes, gone = sizes_in(product), {*listed(reduce)}
    first, second = (_spread(product, side, sizes) for side in (0, 1))
    only = first | second
    if not only or first & second or only & gone or not gone or max(gone) >= len(sizes):
        return None
    if len(product.users) > 1:
        return None  # it is something by itself, as what is masked and summed again
    left = [d for d in range(len(sizes)) if d in second]
    right = [d for d in range(len(sizes)) if d in first]
    batch = [d for d in range(len(sizes)) if d not in only and d not in gone]
    last = sorted(gone)
    places = row_major(sizes)
    views = [merged(places[d] for d in (*batch, *its, *last)) for its in (left, right)]
    strides, step = dict.fromkeys(last, 0), 1
    for d in reversed((*batch, *left, *right)):
        strides[d] = step
        step *= sizes[d]
    counts = [math.prod(sizes[d] for d in its) for its in (batch, left, right, last)]
    result = tuple((n, strides[d]) for d, n in enumerate(sizes))
    matrices = Contraction(
        (counts[0], counts[1], counts[2], counts[3]), "", views[0], views[1], result
    )
    return Summed(reduce, product, matrices)


def _before(instr: Instruction, operand: int) -> Instruction | None:
    """An operand, through what keeps it as it is."""
    of = instr.computation
    for _ in range(_MOST_CONVERTS):
        operands = of.operand_indices(instr.index)
        if operand >= len(operands):
            return None
        instr, operand = Instruction(of, operands[operand]), 0
        if instr.opcode not in _SAME:
            return instr
    return None


def _spread(product: Instruction, side: int, sizes: list[int]) -> set[int]:
    """The dimensions that an operand is broadcast over."""
    at = _before(product, side)
    if at is None or at.opcode != "broadcast":
        return set()
    has = listed(at)
    return {d for d, n in enumerate(sizes) if d not in has and n > 1}
