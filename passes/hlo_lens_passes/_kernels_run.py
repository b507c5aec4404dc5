"""Fills the kernels table: what the pass of `hlo_lens_passes.kernels` runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES, shape_of
from hlo_lens.facts import Member, PassResult, common
from hlo_lens.hlo import Instruction
from hlo_lens_passes import _fusion_kernels as fusions
from hlo_lens_passes import _handed_on as handed
from hlo_lens_passes._call_table import TABLE as CALLS
from hlo_lens_passes._calls import result_of
from hlo_lens_passes._fusion_kernels import FusionKernel, fusion_kernel
from hlo_lens_passes._kernel_table import TABLE
from hlo_lens_passes._matmul_fusions import fusions_around

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program

Record = Mapping[str, object]
_Matmuls = Mapping[tuple[object, object], Sequence[Record]]
"""The matmuls by module and instruction."""

# What a fusion without a matmul does, by the first of these that is in it.
_OPS: Final = (
    ("convolution", frozenset(("convolution",))),
    ("collective", COLLECTIVE_OPCODES),
    ("reduction", frozenset(("reduce",))),
)
_OF_MATMUL: Final = ("tiles", "split_k")


def run(program: Program, facts: Facts) -> PassResult:
    """One row a custom call or named fusion, with its members."""
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    matmuls = _by_instruction(facts.records("matmuls"))
    for call in facts.records("custom_calls"):
        found = matmuls.get((call["module"], call["instr"]), ())
        members += _members(len(rows), "call", call, found)
        rows.append({**_of_call(call, found), **_of_called(program, call)})
    for position, module in enumerate(program.modules):
        if fusions.SIGN not in module.text:
            continue
        graph = program.analysis(module).graph
        inside: _Matmuls | None = None
        for fusion, kernel in _generated(module.computations, graph):
            if inside is None:
                inside = _by_fusion(position, graph, matmuls)
            found = inside.get((position, fusion.id), ())
            row = {**common(program, position, fusion), **_of_fusion(fusion, kernel, found)}
            members += _members(len(rows), "fusion", row, found)
            rows.append(row)
    return PassResult({"kernels": rows}, members)


def _members(row: int, role: str, kernel: Record, matmuls: Sequence[Record]) -> Iterator[Member]:
    parts = [(role, kernel["instr"]), *(("matmul", one["instr"]) for one in matmuls)]
    for name, instr in dict.fromkeys(parts):
        if isinstance(instr, int) and isinstance(kernel["module"], int):
            yield Member("kernels", row, name, kernel["module"], instr)


# ---------------------------------------------------------------------------------- custom calls


def _of_call(call: Record, matmuls: Sequence[Record]) -> dict[str, object]:
    row = {name: call[name] for name in TABLE.names if name in call and name != "id"}
    split = next((one["split_k"] for one in matmuls if one["split_k"] is not None), None)
    return {
        **row,
        **_multiplied(matmuls),
        "called": call["kernel"] or call["target"],
        "is_fusion": False,
        "does_work": not _is_helper(call),
        "split_k": split,
    }


def _of_called(program: Program, call: Record) -> dict[str, object]:
    """What a call that only hands a computation on is, by that computation."""
    module, id = call["module"], call["instr"]
    if call["op"] != handed.OP or not isinstance(module, int) or not isinstance(id, int):
        return {}
    computation = handed.handed_on(program.modules[module].instruction(id))
    core = str(call["thread"] or call["family"])
    return {} if computation is None else handed.of_computation(computation, core)


def _is_helper(call: Record) -> bool:
    """What custom_calls itself leaves out of the skeleton of a program."""
    lane = None if CALLS.summary is None else CALLS.summary.lane
    return lane is not None and any(call[name] in values for name, values in lane.skip)


def _multiplied(matmuls: Sequence[Record]) -> dict[str, object]:
    sizes = [one["flops"] for one in matmuls]
    known = [size for size in sizes if isinstance(size, int)]
    return {
        "matmuls": len(matmuls),
        "flops": sum(known) if known and len(known) == len(sizes) else None,
    }


# ---------------------------------------------------------------------------------- fusions


def _generated(
    computations: Iterable[Computation], graph: CallGraph
) -> Iterator[tuple[Instruction, FusionKernel]]:
    """The fusions that are kernels, in text order; one in another is a part of that one's."""
    for computation in computations:
        if fusions.OPCODES.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode not in fusions.OPCODES or fusions.SIGN not in computation.tails[index]:
                continue
            fusion = Instruction(computation, index)
            kernel = fusion_kernel(fusion)
            if kernel is not None and not any(map(fusion_kernel, fusions_around(graph, fusion))):
                yield fusion, kernel


def _of_fusion(
    fusion: Instruction, kernel: FusionKernel, matmuls: Sequence[Record]
) -> dict[str, object]:
    op = _op(fusion, matmuls)
    result = result_of(fusion)
    shapes = [shape_of(operand) for operand in fusion.operands]
    # The matmul's row knows the tile of what is summed, too.
    told: dict[str, object] = {"tiles": dict(kernel.tiles) or None, **kernel.launch}
    told |= {name: matmuls[0][name] for name in _OF_MATMUL
             if matmuls and matmuls[0][name] is not None}  # fmt: skip
    return {
        "family": kernel.family,
        "op": op,
        "called": _called(kernel.kind, op, matmuls),
        "target": kernel.kind,
        "is_fusion": True,
        "does_work": True,
        "operand_layouts": None if None in shapes else [str(shape) for shape in shapes],
        "result_layouts": None if result is None else [str(leaf) for leaf in result.leaves()],
        **_multiplied(matmuls),
        **told,
    }


def _op(fusion: Instruction, matmuls: Sequence[Record]) -> str:
    if any(one["ragged"] for one in matmuls):
        return "grouped_gemm"
    if any(one["form"] == "scaled-dot" for one in matmuls):
        return "scaled_gemm"
    if matmuls:
        return "gemm"
    opcodes = handed.opcodes_in(fusion.called)
    return next((op for op, wanted in _OPS if not wanted.isdisjoint(opcodes)), "fusion")


def _called(kind: str, op: str, matmuls: Sequence[Record]) -> str:
    """`__triton_gemm (bf16×bf16→f32)`, `__triton (reduction)`: the kind alone says little."""
    if not matmuls:
        return kind if op == "fusion" else f"{kind} ({op})"
    dtypes = [str(matmuls[0][f"{side}_dtype"] or "?") for side in ("lhs", "rhs", "out")]
    same = len(set(dtypes)) == 1
    return f"{kind} ({dtypes[0] if same else f'{dtypes[0]}×{dtypes[1]}→{dtypes[2]}'})"


# ---------------------------------------------------------------------------------- matmuls


def _by_instruction(matmuls: Iterable[Record]) -> _Matmuls:
    found: dict[tuple[object, object], list[Record]] = {}
    for matmul in matmuls:
        found.setdefault((matmul["module"], matmul["instr"]), []).append(matmul)
    return found


def _by_fusion(position: int, graph: CallGraph, matmuls: _Matmuls) -> _Matmuls:
    """The matmuls of one module by the fusions around them."""
    found: dict[tuple[object, object], list[Record]] = {}
    for (module, id), records in matmuls.items():
        if module == position and isinstance(id, int):
            for fusion in fusions_around(graph, graph.module.instruction(id)):
                found.setdefault((position, fusion.id), []).extend(records)
    return found
