"""The edges table: which instruction takes which, and what must come before what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Column, PassResult, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "edges",
    "an operand of an instruction, or a control predecessor",
    (
        Column("id", "int", "volatile", "number of the row, unique with module"),
        Column("module", "int", "identity", "position of the module among those loaded"),
        Column("producer", "ref", "volatile", "the operand, or what must come first"),
        Column("user", "ref", "volatile", "the instruction that takes it, or must wait"),
        Column("kind", "enum", "identity", "what the edge carries", values=("operand", "control")),
        Column(
            "operand", "int", "structural", "position among the operands, from 0; NULL for control"
        ),
        Column(
            "element",
            "text",
            "structural",
            "of `p#1#0` the tuple index taken, `1,0`; NULL where the whole value is taken",
        ),
    ),
)


class EdgesPass:
    """One row an operand, in text order of the users; both ends are written instructions."""

    __slots__ = ()

    name: Final = "edges"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._edges_run import run

        return run(program, facts)


PASS = EdgesPass()
