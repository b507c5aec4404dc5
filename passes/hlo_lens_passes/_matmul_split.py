"""Contractions cut in slices, whose products are added up behind the matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import consumers
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_ints
from hlo_lens_passes._calls import attributes_of
from hlo_lens_passes._matmul_dims import Dims, result_path

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# What keeps the dimensions of a value.
_MOVES: Final = frozenset(("convert", "copy"))


def split_k(graph: CallGraph, matmul: Instruction, dims: Dims | None) -> int | None:
    """In how many slices the contraction of a dot or gemm call is cut; None where nothing shows it.

    XLA's split-K rewriter makes a dimension K of both operands s × K/s and has the dot keep s as a
    batch dimension, which a reduction behind it adds up again (xla/service/gpu/transforms/
    splitk_rewriter.cc; in 2023 split_k_gemm_rewriter.cc). So: a batch dimension right in front of
    the contracted one in both operands, and every use of the result sums over it. A batch of the
    program's own has another use, or does not stand there.
    """
    if dims is None or not dims.lhs_batch:
        return None
    summed = set(zip(dims.lhs_contracting, dims.rhs_contracting, strict=False))
    shape = shape_of(matmul.operands[0]) if matmul.operands else None
    for place, (left, right) in enumerate(zip(dims.lhs_batch, dims.rhs_batch, strict=False)):
        if (left + 1, right + 1) not in summed or shape is None or left >= len(shape.dimensions):
            continue
        if _all_sum_over(graph, matmul, place):
            return shape.dimensions[left]
    return None


def _all_sum_over(graph: CallGraph, matmul: Instruction, dimension: int) -> bool:
    """Whether the result is used, and every use is a sum over that dimension alone."""
    users = consumers(graph, matmul, result_path(matmul), moves=_MOVES)
    return bool(users) and all(_sums_over(user, dimension) for user in users)


def _sums_over(user: Instruction, dimension: int) -> bool:
    if user.opcode != "reduce" or len(user.operands) != 2:
        return False
    try:
        over = parse_ints(attributes_of(user).get("dimensions", ""))
    except ValueError:
        return False
    reducers = user.called
    return over == (dimension,) and bool(reducers) and reducers[0].root.opcode == "add"
