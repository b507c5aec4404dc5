"""The instructions table: every written instruction, where it stands and what it makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from hlo_lens.analysis.names import REMAT, rank_of
from hlo_lens.facts import COMMON, Column, PassResult, Table, common_row
from hlo_lens.facts.context import source_of
from hlo_lens.hlo import Instruction, parse_shape

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program

TABLE = Table(
    "instructions",
    "a written instruction; `id` is the number by which every other table refers to it",
    (
        *COMMON,
        Column("computation", "text", "volatile", "name of the computation it stands in"),
        Column("opcode", "text", "identity", "as written, async sugar (`dynamic-slice-start`) too"),
        Column("is_root", "bool", "structural", "whether it is the result of its computation"),
        Column("shape", "text", "structural", "shape of the result; NULL where it is left out"),
        Column("dtype", "text", "structural", "dtype of the result; `tuple` for a tuple"),
        Column("bytes", "bytes", "measure", "size of the result, a tuple's leaves added up"),
        Column("padded_bytes", "bytes", "measure", "the same with the padding of its tiles"),
        Column(
            "memory_space",
            "int",
            "structural",
            "n of the layout's S(n), 0 without; NULL for a tuple or where there is no layout",
        ),
        Column("op_name", "text", "volatile", "op_name of its own metadata"),
        Column(
            "full_op_name", "text", "structural", "op_name behind those of its callers, as a path"
        ),
        Column(
            "remat_label",
            "bool",
            "structural",
            "whether the path has a `rematted_computation`: the framework's label, no proof that"
            " anything is recomputed. NULL without a name",
        ),
        Column(
            "compiler_remat", "bool", "structural", "whether the compiler named it a `.remat` copy"
        ),
        Column(
            "fusion", "ref", "volatile", "the fusion it is part of; NULL outside, or in several"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class InstructionsPass:
    """One row an instruction of the text; implied ones (`x#1`, wrapped operations) have none."""

    name: str = "instructions"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[()] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
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


PASS = InstructionsPass()
