"""Fills the instructions table: what the pass of `hlo_lens_passes.instructions` runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from hlo_lens.analysis.names import REMAT, rank_of
from hlo_lens.facts import COMMON, PassResult, common_row
from hlo_lens.facts.context import source_of
from hlo_lens.hlo import Instruction, parse_shape

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program


def run(program: Program, facts: Facts) -> PassResult:
    """One row an instruction of the text."""
    return PassResult({"instructions": _rows(program)})


# Of the common columns those that all instructions of a computation share.
_NAMES = [column.name for column in COMMON]
_SHARED = slice(_NAMES.index("loop"), _NAMES.index("source"))
_METADATA = re.compile(r", metadata=(\{[^{}]*\})(?=, |\Z)")


def _rows(program: Program) -> Iterator[tuple[object, ...]]:
    """The rows, a computation at a time: as `common_row` gives them, several times as fast."""
    for position, module in enumerate(program.modules):
        analysis = program.analysis(module)
        sources: dict[str, str | None] = {}
        for computation in module.computations:
            if not computation.names:  # the text stops behind its head
                continue
            first, root, where = computation.first_id, computation.root_index, computation.name
            shared = common_row(program, position, Instruction(computation, 0))[_SHARED]
            fusion = _calling_fusion(analysis, computation)
            columns = zip(
                computation.names,
                computation.opcodes,
                computation.shape_texts,
                computation.tails,
                analysis.op_names(computation),
                analysis.phases(computation),
                strict=True,
            )
            for index, (name, opcode, shape, tail, op_name, phase) in enumerate(columns):
                instruction = Instruction(computation, index)
                full = None if op_name is None else analysis.full_op_name(instruction)
                yield (
                    first + index,
                    position,
                    first + index,
                    name,
                    phase.phase,
                    phase.phase_from,
                    *shared,
                    _source(instruction, tail, sources) if "metadata=" in tail else None,
                    computation.line_of(index),
                    where,
                    opcode,
                    index == root,
                    *_of_shape(shape),
                    op_name,
                    full,
                    None if full is None else _has_remat_label(full),
                    ".remat" in name,
                    fusion,
                )


def _source(instruction: Instruction, tail: str, known: dict[str, str | None]) -> str | None:
    """The source of an instruction; equal metadata of a module has equal sources."""
    found = _METADATA.search(tail)
    if found is None or tail.count('"', 0, found.start()) % 2:
        return source_of(instruction)
    text = found[1]
    if text not in known:
        known[text] = source_of(instruction)
    return known[text]


def _calling_fusion(analysis: ModuleAnalysis, computation: Computation) -> int | None:
    """Id of the fusion that calls the computation, where nothing else does."""
    site = analysis.graph.only_caller(computation)
    return site.caller.id if site is not None and site.kind == "fusion" else None


@lru_cache(maxsize=1 << 14)
def _of_shape(text: str) -> tuple[str | None, str | None, int | None, int | None, int | None]:
    """The columns a shape fills; NULL where there is no shape or it cannot be read."""
    try:
        shape = parse_shape(text)
    except ValueError:
        return (text or None, None, None, None, None)
    return (str(shape), shape.dtype, shape.bytes, shape.padded_bytes, shape.memory_space)


@lru_cache(maxsize=1 << 14)
def _has_remat_label(full_op_name: str) -> bool:
    return rank_of(full_op_name) == REMAT
