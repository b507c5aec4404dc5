"""The opcodes table: how often each opcode is written, by the class of work it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Column, PassResult, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "opcodes",
    "an opcode of a module",
    (
        Column("id", "int", "volatile", "number of the row, unique with module"),
        Column("module", "int", "identity", "position of the module among those loaded"),
        Column("opcode", "text", "identity", "as written, async sugar too"),
        Column(
            "class",
            "text",
            "structural",
            "kind of work, by the catalogue: communication, contraction, reduction, indexing,"
            " movement, elementwise, random, linalg, fusion, custom, control, host, plumbing;"
            " `unknown` where no entry knows it",
        ),
        Column("instructions", "int", "measure", "instructions with it in the text"),
    ),
)


class OpcodesPass:
    """One row an opcode, the most frequent first; equal ones by name."""

    __slots__ = ()

    name: Final = "opcodes"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        return PassResult({"opcodes": _rows(program)})


def _rows(program: Program) -> Iterator[tuple[object, ...]]:
    from hlo_lens_passes._catalogue import catalogue

    known = catalogue()
    for position, module in enumerate(program.modules):
        counts = Counter(
            opcode for computation in module.computations for opcode in computation.opcodes
        )
        for opcode, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            yield None, position, opcode, known.opcode_class(opcode), count


PASS = OpcodesPass()
