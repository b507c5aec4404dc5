"""Fills the edges table: what the pass of `hlo_lens_passes.edges` runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_lens.facts import PassResult
from hlo_lens.hlo import Instruction

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program


def run(program: Program, facts: Facts) -> PassResult:
    """One row an operand or control predecessor, in text order of the users."""
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
