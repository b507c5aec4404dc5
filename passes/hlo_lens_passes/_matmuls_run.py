"""Fills the matmuls table: what the pass of `hlo_lens_passes.matmuls` runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.hlo import Instruction
from hlo_lens.program import AFTER
from hlo_lens_passes._calls import OPCODES as CUSTOM_CALLS
from hlo_lens_passes._calls import attributes_of, entry_of, result_of
from hlo_lens_passes._catalogue import Catalogue, catalogue
from hlo_lens_passes._matmul_calls import read_call
from hlo_lens_passes._matmul_converts import Convert, convert_after, converts_before
from hlo_lens_passes._matmul_convs import read_convolution
from hlo_lens_passes._matmul_dims import Matmul, dot_dims, ragged_groups, sizes, written
from hlo_lens_passes._matmul_fp8 import Dequantized, dequantized, missed
from hlo_lens_passes._matmul_fusions import kernel_columns
from hlo_lens_passes._matmul_grouped import read_kernel
from hlo_lens_passes._matmul_split import split_k
from hlo_lens_passes._matmul_table import RULE
from hlo_lens_passes._platforms import platform_of

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation, Module
    from hlo_lens.program import Program

_OPERATIONS: Final = ("dot", "scaled-dot", "ragged-dot", "convolution")
# The operation each opcode is or, with async sugar, starts.
_FORMS: Final = {**{op: op for op in _OPERATIONS}, **{f"{op}-start": op for op in _OPERATIONS}}
_GEMMS: Final = frozenset(("gemm", "scaled_gemm", "grouped_gemm"))
_KERNEL: Final = "kernel"
_FP8: Final = "f8e"


def run(program: Program, facts: Facts) -> PassResult:
    """One row a matmul as written, with its members, and the findings."""
    known = catalogue()
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    calls = _Calls(facts)
    for position, module in enumerate(program.modules):
        graph = program.analysis(module).graph
        has_fp8 = _FP8 in module.text
        for instruction in _candidates(module.computations, known):
            matmul = _read(instruction, known, graph, calls.of(position, instruction))
            if matmul is None:
                continue
            wide = dequantized(graph, matmul.operands) if has_fp8 else []
            before = converts_before(graph, instruction, matmul.operands)
            after = convert_after(graph, instruction)
            members += _members(len(rows), position, instruction, (*before, *after), wide)
            if wide and program.stages[position] == AFTER:
                findings += _missed(len(rows), position, instruction, matmul, wide, module)
            rows.append(
                {
                    **common(program, position, instruction),
                    **matmul.columns,
                    "converts": ", ".join(map(str, (*before, *after))) or None,
                    "convert_before": [one.described() for one in before] or None,
                    "convert_after": next((one.described() for one in after), None),
                    "dequantized": ", ".join(map(str, wide)) or None,
                }
            )
    return PassResult({"matmuls": rows}, members, findings)


def _candidates(computations: Iterable[Computation], known: Catalogue) -> Iterator[Instruction]:
    """Every matmul that is written there, every convolution, every call of a kernel."""
    looked_for = _FORMS.keys() | CUSTOM_CALLS
    for computation in computations:
        if looked_for.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in _FORMS:
                yield Instruction(computation, index)
            elif opcode in CUSTOM_CALLS:
                instruction = Instruction(computation, index)
                op = entry_of(instruction, known).op
                if op in _GEMMS or op == _KERNEL:
                    yield instruction


class _Calls:
    """The rows of custom_calls, asked for when the first call is met."""

    __slots__ = ("_facts", "_rows")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rows: dict[tuple[object, object], Mapping[str, object]] | None = None

    def of(self, position: int, instruction: Instruction) -> Mapping[str, object]:
        """The row about the instruction; nothing where it is no call."""
        if instruction.opcode not in CUSTOM_CALLS:
            return {}
        if self._rows is None:
            records = self._facts.records("custom_calls")
            self._rows = {(row["module"], row["instr"]): row for row in records}
        return self._rows.get((position, instruction.id), {})


def _read(
    instruction: Instruction, known: Catalogue, graph: CallGraph, call: Mapping[str, object]
) -> Matmul | None:
    """What the text says; None for a convolution that is no dot and a kernel that is no matmul."""
    form = _FORMS.get(instruction.opcode)
    if form == "convolution":
        return read_convolution(instruction, graph)
    if form is not None:
        return _read_dot(instruction, form, graph)
    if entry_of(instruction, known).op == _KERNEL:
        return read_kernel(instruction, call) if call.get("op") == "grouped_gemm" else None
    matmul = read_call(instruction, known)
    columns = {
        **matmul.columns,
        "split_k": split_k(graph, instruction, matmul.dims),
        "workspace_bytes": call.get("workspace_bytes"),
    }
    return Matmul(columns, matmul.operands, matmul.dims)


def _read_dot(dot: Instruction, form: str, graph: CallGraph) -> Matmul:
    operands = dot.operands[:2] if len(dot.operands) >= 2 else ()
    attributes = attributes_of(dot)
    dims = dot_dims(attributes, [shape_of(one) for one in operands], result_of(dot))
    kernel = kernel_columns(graph, dot)
    ragged = form == "ragged-dot"
    columns: dict[str, object] = {
        "form": form,
        **written(dot, operands, attributes),
        **sizes(dims, operands),
        "groups": ragged_groups(dims, dot.operands) if ragged else None,
        "ragged": ragged,
        **kernel,
        "split_k": split_k(graph, dot, dims) or kernel.get("split_k"),
        "dims": None if dims is None else dims.described(),
    }
    return Matmul(columns, operands, dims)


def _members(
    row: int,
    position: int,
    matmul: Instruction,
    converts: Sequence[Convert],
    wide: Sequence[Dequantized],
) -> Iterator[Member]:
    yield Member("matmuls", row, "matmul", position, matmul.id)
    for one in converts:
        yield Member("matmuls", row, "convert", position, one.instr.id)
    for fp8 in wide:
        yield Member("matmuls", row, "dequantize", position, fp8.convert.id)


def _missed(
    row: int,
    position: int,
    instruction: Instruction,
    matmul: Matmul,
    wide: Sequence[Dequantized],
    module: Module,
) -> Iterator[Finding]:
    """The finding about a matmul that could be one of fp8."""
    shapes = [shape_of(operand) for operand in matmul.operands]
    plain = matmul.dims is None or all(
        shape is not None and matmul.dims.is_plain(shape.rank) for shape in shapes
    )
    found = missed(wide, matmul.columns, plain, lambda: platform_of(module)[0])
    if found is not None:
        level, message = found
        evidence = (("matmuls", row),)
        yield Finding(RULE.id, level, message, position, instruction.id, evidence)
