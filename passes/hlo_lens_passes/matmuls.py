"""The matmuls table: every dot and gemm call, its sizes, dtypes, FLOPs and the converts around it.

FLOPs are 2·batch·m·n·k of one execution (reference/definitions.md, "Matmuls, ragged, attention").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.facts import Member, PassResult, Table, common
from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import OPCODES as CUSTOM_CALLS
from hlo_lens_passes._calls import attributes_of, entry_of, result_of
from hlo_lens_passes._catalogue import Catalogue, catalogue
from hlo_lens_passes._matmul_calls import read_call
from hlo_lens_passes._matmul_converts import convert_after, converts_before
from hlo_lens_passes._matmul_convs import read_convolution
from hlo_lens_passes._matmul_dims import Dims, Matmul, dot_dims, sizes, written
from hlo_lens_passes._matmul_fusions import fusion_backend, fusions_around
from hlo_lens_passes._matmul_table import TABLE

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program

__all__ = ["PASS", "TABLE", "Dims"]

_OPERATIONS: Final = ("dot", "scaled-dot", "ragged-dot", "convolution")
# The operation each opcode is or, with async sugar, starts.
_FORMS: Final = {**{op: op for op in _OPERATIONS}, **{f"{op}-start": op for op in _OPERATIONS}}
_GEMMS: Final = frozenset(("gemm", "scaled_gemm", "grouped_gemm"))


@dataclass(frozen=True, slots=True)
class MatmulsPass:
    """One row a matmul as written: dots of all forms, convolutions that are dots, gemm calls."""

    name: str = "matmuls"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[()] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        known = catalogue()
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        for position, module in enumerate(program.modules):
            graph = program.analysis(module).graph
            for instruction in _matmuls(module.computations, known):
                matmul = _read(instruction, known, graph)
                if matmul is None:
                    continue
                before = converts_before(graph, instruction, matmul.operands)
                after = convert_after(graph, instruction)
                members.append(Member("matmuls", len(rows), "matmul", position, instruction.id))
                members += (
                    Member("matmuls", len(rows), "convert", position, one.instr.id)
                    for one in (*before, *after)
                )
                rows.append(
                    {
                        **common(program, position, instruction),
                        **matmul.columns,
                        "converts": ", ".join(map(str, (*before, *after))) or None,
                        "convert_before": [one.described() for one in before] or None,
                        "convert_after": next((one.described() for one in after), None),
                    }
                )
        return PassResult({"matmuls": rows}, members)


def _matmuls(computations: Iterable[Computation], known: Catalogue) -> Iterator[Instruction]:
    """Every matmul that is written there, and every convolution."""
    looked_for = _FORMS.keys() | CUSTOM_CALLS
    for computation in computations:
        if looked_for.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in _FORMS:
                yield Instruction(computation, index)
            elif opcode in CUSTOM_CALLS:
                instruction = Instruction(computation, index)
                if entry_of(instruction, known).op in _GEMMS:
                    yield instruction


def _read(instruction: Instruction, known: Catalogue, graph: CallGraph) -> Matmul | None:
    """What the text says; None for a convolution that is no dot."""
    form = _FORMS.get(instruction.opcode)
    if form is None:
        return read_call(instruction, known)
    if form == "convolution":
        return read_convolution(instruction, graph)
    return _read_dot(instruction, form, graph)


def _read_dot(dot: Instruction, form: str, graph: CallGraph) -> Matmul:
    operands = dot.operands[:2] if len(dot.operands) >= 2 else ()
    attributes = attributes_of(dot)
    dims = dot_dims(attributes, [shape_of(one) for one in operands], result_of(dot))
    columns: dict[str, object] = {
        "form": form,
        "backend": next(filter(None, map(fusion_backend, fusions_around(graph, dot))), None),
        **written(dot, operands, attributes),
        **sizes(dims, operands),
        "ragged": form == "ragged-dot",
        "dims": None if dims is None else dims.described(),
    }
    return Matmul(columns, operands)


PASS = MatmulsPass()
