"""Converts next to a matmul: in front of its operands, and the nearest behind its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, consumers, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._matmul_dims import result_path

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Computation

# What changes how a value lies in memory, and neither what it is nor its dtype.
_MOVES: Final = frozenset(("bitcast", "copy", "reshape", "transpose"))


@dataclass(frozen=True, slots=True)
class Convert:
    """A convert next to a matmul: of which operand (None: of the result), and seen as what."""

    instr: Instruction
    operand: int | None
    source: str
    target: str
    via: Instruction

    def __str__(self) -> str:
        place = "result" if self.operand is None else ("lhs", "rhs")[self.operand]
        return f"{place} {self.source}->{self.target}"

    def described(self) -> dict[str, object]:
        place = {} if self.operand is None else {"operand": self.operand}
        return {**place, "from": self.source, "to": self.target, "via": self.via.name}


def converts_before(
    graph: CallGraph, matmul: Instruction, operands: Sequence[Instruction]
) -> list[Convert]:
    found = []
    for number, operand in enumerate(operands):
        instr = trace(graph, Value(operand), moves=_MOVES).instr
        if instr.opcode == "convert":
            convert = _described(graph, matmul, instr, number)
            if convert is not None:
                found.append(convert)
    return found


def convert_after(graph: CallGraph, matmul: Instruction) -> list[Convert]:
    """The nearest convert of the result, alone in a list; [] where there is none."""
    for user in consumers(graph, matmul, result_path(matmul), moves=_MOVES):
        if user.opcode == "convert":
            convert = _described(graph, matmul, user, None)
            if convert is not None:
                return [convert]
    return []


def _described(
    graph: CallGraph, matmul: Instruction, convert: Instruction, operand: int | None
) -> Convert | None:
    """The convert with its dtypes; None where it stands across a loop, branch or call from the
    matmul, for then it is not next to it."""
    via = outermost(graph, convert, set(fused_in(graph, matmul)))
    region, beside = fused_in(graph, matmul)[-1], fused_in(graph, convert)[-1]
    source = shape_of(convert.operands[0]) if convert.operands else None
    target = shape_of(convert)
    if region != beside or source is None or target is None:
        return None
    return Convert(convert, operand, source.dtype, target.dtype, via)


def fused_in(graph: CallGraph, instr: Instruction) -> list[Computation]:
    """The computation of `instr` and those around it through fusions, the outermost last."""
    around = [instr.computation]
    while (site := graph.only_caller(around[-1])) is not None and site.kind == "fusion":
        around.append(site.caller.computation)
    return around


def outermost(graph: CallGraph, instr: Instruction, around: set[Computation]) -> Instruction:
    """`instr`, or the fusion that holds it, as seen from one of the computations `around`."""
    while instr.computation not in around:
        site = graph.only_caller(instr.computation)
        if site is None or site.kind != "fusion":
            break
        instr = site.caller
    return instr
