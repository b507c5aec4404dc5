"""Whether a module may hold experts at all: a look at opcodes and arguments, before the axes of all
its arrays are found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES, consumers
from hlo_lens_passes._moe_axes import dimension_numbers, dims_of

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation, Instruction, Module

Row = Mapping[str, object]
_MOVES: Final = MOVES | {"transpose"}
# The second array of a tuple is of whole numbers.
_INTEGERS: Final = re.compile(r"\]\S* [su]\d+\[", re.A)
# No model has as many; vocabularies do.
_MOST_EXPERTS: Final = 4096
_FLOATS: Final = ("f", "bf")


def may_hold_experts(analysis: ModuleAnalysis, matmuls: Iterable[Row], ragged: bool) -> bool:
    """Ragged products, a choice of the largest, or an argument that weighs as routing does.

    matmuls: the rows of the module; ragged: whether it has rows in ragged_dots.
    """
    rows = {row["instr"]: row for row in matmuls}
    if not rows:
        return False
    return ragged or _chooses(analysis.module) or _routed_by_argument(analysis, rows)


def _chooses(module: Module) -> bool:
    """Whether anything takes the largest of each row, and so may choose experts for a token."""
    return any(_rows_chosen(one, index) for one in module.computations for index in _largest(one))


def _largest(computation: Computation) -> Iterator[int]:
    for index, opcode in enumerate(computation.opcodes):
        if opcode in ("sort", "topk"):
            yield index
        elif opcode == "custom-call":
            if '"TopK"' in computation.tails[index]:
                yield index
        elif opcode == "reduce":
            # A maximum gives its place, too.
            shape = computation.shape_of(index)
            if shape.startswith("(") and _INTEGERS.search(shape):
                yield index


def _rows_chosen(computation: Computation, index: int) -> bool:
    """Whether it chooses in rows, of not too many: a list has no row for each token, and where the
    next token is chosen there are more."""
    given = computation.operand_indices(index)[:1]
    sizes = dims_of(computation.shape_of(given[0])) if given else None
    if sizes is None or len(sizes) < 2:
        return False
    found = dimension_numbers(computation, index) or [len(sizes) - 1]
    return found[0] < len(sizes) and 1 < sizes[found[0]] <= _MOST_EXPERTS


def _routed_by_argument(analysis: ModuleAnalysis, rows: Mapping[object, Row]) -> bool:
    """Whether an argument weighs, for each token, results of experts, or is what takes tokens to
    experts and back: then a product of a matrix for each expert stands between."""
    entry = analysis.module.entry
    for parameter in () if entry is None else entry.parameters:
        sizes = dims_of(parameter.shape_text)
        if sizes is None or sum(size > 1 for size in sizes) < 2:
            continue
        if not parameter.shape_text.startswith(_FLOATS):
            continue
        users = consumers(analysis.graph, parameter, moves=_MOVES)
        products = [row for user in users if (row := rows.get(user.id)) is not None]
        if any(map(_weighs, products)) or any(map(_spreads, users)):
            return True
        if len(products) > 1 and _among(rows.values(), sizes):
            return True
    return False


def _weighs(row: Row) -> bool:
    """A product for each token, with one vector."""
    batch, m, n = (row[name] for name in ("batch", "m", "n"))
    return isinstance(batch, int) and batch > 1 and 1 in (m, n) and _summed(row)


def _summed(row: Row) -> bool:
    dims = row["dims"]
    told = json.loads(dims) if isinstance(dims, str) else dims
    return isinstance(row["k"], int) and row["k"] > 1 and bool(told)


def _spreads(user: Instruction) -> bool:
    """An array of two dimensions or more, repeated along another."""
    if user.opcode != "broadcast" or not user.operands:
        return False
    given, sizes = dims_of(user.operands[0].shape_text), dims_of(user.shape_text)
    return (
        given is not None
        and sizes is not None
        and sum(size > 1 for size in given) > 1
        and sum(size > 1 for size in sizes) > sum(size > 1 for size in given)
    )


def _among(rows: Iterable[Row], sizes: tuple[int, ...]) -> bool:
    """Whether a product is one for each index of a dimension of these sizes."""
    batches = {row["batch"] for row in rows}
    return any(size > 1 and size in batches for size in sizes)
