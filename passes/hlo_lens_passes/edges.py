"""The edges table: which instruction takes which, and what must come before what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts import Column, PassResult, Table
from hlo_lens.hlo import Instruction

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
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


@dataclass(frozen=True, slots=True)
class EdgesPass:
    """One row an operand, in text order of the users; both ends are written instructions."""

    name: str = "edges"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[()] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        return PassResult({"edges": _rows(program)})


def _rows(program: Program) -> Iterator[tuple[object, ...]]:
    for position, module in enumerate(program.modules):
        for computation in module.computations:
            first = computation.first_id
            for index, tail in enumerate(computation.tails):
                user = first + index
                for number, operand in enumerate(computation.operand_indices(index)):
                    if operand >= 0:
                        yield None, position, first + operand, user, "operand", number, None
                        continue
                    producer, element = _element_of(computation, operand)
                    if producer is not None:
                        yield None, position, first + producer, user, "operand", number, element
                if "control-predecessors" in tail:
                    for before in Instruction(computation, index).control_predecessors:
                        yield None, position, before.id, user, "control", None, None


def _element_of(computation: Computation, operand: int) -> tuple[int | None, str | None]:
    """The written instruction under `p#1#0` and the indices taken; (None, None) for no such."""
    taken: list[str] = []
    while operand < 0:
        implied = Instruction(computation, operand)
        if implied.opcode != "get-tuple-element":  # a parameter that the text does not declare
            return None, None
        taken.append(str(implied.tuple_index))
        operand = computation.operand_indices(operand)[0]
    return operand, ",".join(reversed(taken))


PASS = EdgesPass()
