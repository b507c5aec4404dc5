"""Whether a module may hold experts at all: a look at opcodes and arguments, before the axes of all
its arrays are found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES, consumers
from hlo_lens_passes._moe_axes import dims_of
from hlo_lens_passes._moe_rules import dimension_numbers

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation, Module

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
    weighs, batches = any(map(_weighs, rows.values())), {row["batch"] for row in rows.values()}
    spread: set[tuple[int, ...]] | None = None
    for parameter in () if entry is None else entry.parameters:
        sizes = dims_of(parameter.shape_text)
        wide = () if sizes is None else _wide(sizes)
        if len(wide) < 2 or not parameter.shape_text.startswith(_FLOATS):
            continue
        if not weighs and batches.isdisjoint(wide):
            if spread is None:
                spread = set(_spread(analysis.module))
            if wide not in spread:
                continue
        users = consumers(analysis.graph, parameter, moves=_MOVES)
        products = [row for user in users if (row := rows.get(user.id)) is not None]
        if any(map(_weighs, products)) or any(_is_spread(u.computation, u.index) for u in users):
            return True
        if len(products) > 1 and not batches.isdisjoint(wide):
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


def _wide(sizes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(size for size in sizes if size > 1))


def _spread(module: Module) -> Iterator[tuple[int, ...]]:
    """The sizes of arrays of two dimensions or more that are repeated along another."""
    for computation in module.computations:
        for index, opcode in enumerate(computation.opcodes):
            if opcode == "broadcast" and _is_spread(computation, index):
                given = dims_of(computation.shape_of(computation.operand_indices(index)[0]))
                yield _wide(given or ())


def _is_spread(computation: Computation, index: int) -> bool:
    operands = computation.operand_indices(index)
    if computation.opcode_of(index) != "broadcast" or not operands:
        return False
    given, sizes = dims_of(computation.shape_of(operands[0])), dims_of(computation.shape_of(index))
    if given is None or sizes is None:
        return False
    return 1 < len(_wide(given)) < len(_wide(sizes))
