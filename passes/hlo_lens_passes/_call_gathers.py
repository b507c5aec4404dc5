"""Operands of a custom call that a collective gives, with nothing but moves in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import kind_of
from hlo_lens.analysis.dataflow import MOVES, Value, trace
from hlo_lens.hlo import Instruction

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# A transpose moves, too: layouts of kernels are often made by one.
_MOVES: Final = MOVES | {"transpose"}


@dataclass(frozen=True, slots=True)
class Gathered:
    """Operand `operand` of a call is what `collective` (the operation, or its start) gives."""

    operand: int
    collective: Instruction
    kind: str


def gathered_operands(graph: CallGraph, call: Instruction) -> Iterator[Gathered]:
    """The operands that come from a collective through moves, copies, tuples, opt-barriers, start
    and done, and the borders of fusions, calls and loops that hand them on unchanged."""
    for position, operand in enumerate(call.operands):
        end = trace(graph, Value(operand), moves=_MOVES, into_loops=False).instr
        kind = kind_of(end.opcode)
        if kind is not None:
            yield Gathered(position, end, kind)
