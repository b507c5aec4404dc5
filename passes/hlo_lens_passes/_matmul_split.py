"""Contractions cut in slices, whose products are added up behind the matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import consumers
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_ints
from hlo_lens_passes._calls import attributes_of
from hlo_lens_passes._matmul_dims import Dims, result_path

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# What keeps the dimensions of a value, and what gives it others.
_MOVES: Final = frozenset(("convert", "copy"))
_VIEWS: Final = frozenset(("bitcast", "reshape"))
_MOST_STEPS: Final = 8


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
        if _summed(graph, matmul, result_path(matmul), place, _MOST_STEPS):
            return shape.dimensions[left]
    return None


def _summed(
    graph: CallGraph, instr: Instruction, path: tuple[int, ...], dimension: int, steps: int
) -> bool:
    """Whether the value is used, and every use is a sum over that dimension alone."""
    users = consumers(graph, instr, path, moves=_MOVES)
    return bool(users) and all(_sums(graph, user, dimension, steps) for user in users)


def _sums(graph: CallGraph, user: Instruction, dimension: int, steps: int) -> bool:
    if user.opcode in _VIEWS and steps:
        moved = _moved(user, dimension)
        return moved is not None and _summed(graph, user, (), moved, steps - 1)
    if user.opcode != "reduce" or len(user.operands) != 2:
        return False
    try:
        over = parse_ints(attributes_of(user).get("dimensions", ""))
    except ValueError:
        return False
    reducers = user.called
    return over == (dimension,) and bool(reducers) and reducers[0].root.opcode == "add"


def _moved(view: Instruction, dimension: int) -> int | None:
    """Where the dimension is behind a bitcast or reshape; None where it is no dimension there."""
    before = shape_of(view.operands[0]) if view.operands else None
    after = shape_of(view)
    if before is None or after is None:
        return None
    physical = view.opcode == "bitcast"
    place = _places(before, physical).get(dimension)
    found = [one for one, other in _places(after, physical).items() if other == place]
    return found[0] if place is not None and len(found) == 1 else None


def _places(shape: Shape, physical: bool) -> dict[int, tuple[int, int]]:
    """(product of the sizes in front, size) of each dimension, as its elements follow each other:
    in memory, or in the order of dimensions. {} where that is not known."""
    sizes = shape.dimensions
    order = tuple(range(shape.rank))
    if physical and shape.layout is not None and shape.layout.minor_to_major:
        order = shape.layout.minor_to_major[::-1]
    places: dict[int, tuple[int, int]] = {}
    before = 1
    for dimension in order:
        size = sizes[dimension] if dimension < len(sizes) else None
        if size is None:
            return {}
        places[dimension] = before, size
        before *= size
    return places
