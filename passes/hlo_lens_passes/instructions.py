"""The instructions table: every written instruction, where it stands and what it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Column, PassResult, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
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
        Column(
            "dtype",
            "text",
            "structural",
            "dtype of the result; `tuple` for a tuple",
            dtypes=True,
        ),
        Column("bytes", "bytes", "measure", "size of the result, a tuple's leaves added up"),
        Column("padded_bytes", "bytes", "measure", "the same with the padding of its tiles"),
        Column(
            "memory_space",
            "int",
            "structural",
            "n of the layout's S(n), 0 without; NULL for a tuple or where there is no layout",
        ),
        Column("op_name", "text", "volatile", "op_name of its own metadata", needs_op_names=True),
        Column(
            "full_op_name",
            "text",
            "structural",
            "op_name behind those of its callers, as a path",
            needs_op_names=True,
        ),
        Column(
            "remat_label",
            "bool",
            "structural",
            "whether the path has a `rematted_computation`: the framework's label, no proof that"
            " anything is recomputed. NULL without a name",
            needs_op_names=True,
        ),
        Column(
            "compiler_remat", "bool", "structural", "whether the compiler named it a `.remat` copy"
        ),
        Column(
            "fusion", "ref", "volatile", "the fusion it is part of; NULL outside, or in several"
        ),
    ),
)


class InstructionsPass:
    """One row an instruction of the text; implied ones (`x#1`, wrapped operations) have none."""

    __slots__ = ()

    name: Final = "instructions"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._instructions_run import run

        return run(program, facts)


PASS = InstructionsPass()
