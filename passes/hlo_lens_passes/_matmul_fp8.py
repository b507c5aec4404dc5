"""Operands that are fp8 values made wide again in front of a matmul, and why no fp8 gemm is used.

XLA's GemmRewriter for GPUs makes an fp8 gemm of a dot whose operands are both fp8 values, each
converted and then multiplied or divided by a broadcast scalar, or only converted; layout changes,
slices and pads may follow (xla/service/gpu/transforms/gemm_rewriter.cc, MatchFp8Param). In front of
optimization that is how a program writes an fp8 matmul; behind it, it is one that was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, trace
from hlo_lens.hlo import Instruction

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts.findings import Level

# What a dequantisation may be followed by: see MatchFp8Param. A gather keeps values, too.
_MOVES: Final = frozenset(
    (
        "all-gather", "bitcast", "broadcast", "copy", "dynamic-slice", "pad", "reshape", "slice",
        "transpose",
    )
)  # fmt: skip
_SCALE_MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape"))
_MOST_STEPS: Final = 32
_SIDES: Final = ("lhs", "rhs")
_NOT_THE_FORM: Final = (
    "XLA had no fp8 gemm for it: too old a GPU, CUDA or ROCm, or a compile that did not know them"
)
_GEMM_DTYPES: Final = frozenset(("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"))


@dataclass(frozen=True, slots=True)
class Dequantized:
    """An operand that was fp8: `convert` made it wide. scale: "scalar", "array", or None for
    none; reconverted: what was scaled is converted again before the matmul takes it."""

    operand: int
    convert: Instruction
    source: str
    target: str
    scale: str | None = None
    reconverted: bool = False

    def __str__(self) -> str:
        scaled = {"scalar": " × scalar", "array": " × array"}.get(self.scale or "", "")
        return f"{_SIDES[self.operand]} {self.source}->{self.target}{scaled}"


def is_fp8(dtype: str) -> bool:
    """Whether values of the dtype are fp8 numbers; f8e8m0fnu holds nothing but scales."""
    return dtype.startswith(("f8e3", "f8e4", "f8e5"))


def dequantized(graph: CallGraph, operands: Sequence[Instruction]) -> list[Dequantized]:
    """The operands (left, right) that are wide and come from fp8."""
    found = []
    for number, operand in enumerate(operands):
        shape = shape_of(operand)
        if shape is None or is_fp8(shape.dtype):
            continue
        one = _walk(graph, Dequantized(number, operand, "", shape.dtype))
        if one is not None:
            found.append(one)
    return found


def _walk(graph: CallGraph, start: Dequantized) -> Dequantized | None:
    """Back from the operand through one scaling and converts to what is fp8; None elsewhere."""
    value, found, converted = Value(start.convert), start, False
    for _ in range(_MOST_STEPS):
        value = trace(graph, value, moves=_MOVES)
        instr = value.instr
        if instr.opcode == "convert" and instr.operands:
            source = shape_of(instr.operands[0])
            if source is not None and is_fp8(source.dtype):
                return replace(found, convert=instr, source=source.dtype)
            converted = True
            value = replace(value, instr=instr.operands[0])
        elif instr.opcode in ("multiply", "divide") and found.scale is None:
            scaled = _scaled(graph, value)
            if scaled is None:
                return None
            place, scale = scaled
            found = replace(found, scale=scale, reconverted=converted)
            value = replace(value, instr=instr.operands[place])
        else:
            return None
    return None


def _scaled(graph: CallGraph, value: Value) -> tuple[int, str] | None:
    """Which operand of a multiply or divide is scaled, and by what; None where neither is."""
    operands = value.instr.operands
    for place in (1, 0) if value.instr.opcode == "multiply" else (1,):
        if len(operands) != 2:
            break
        scale = trace(graph, replace(value, instr=operands[place]), moves=_SCALE_MOVES).instr
        if scale.opcode == "broadcast" and scale.operands:
            shape = shape_of(scale.operands[0])
            return 1 - place, "scalar" if shape is not None and not shape.rank else "array"
    return None


def missed(
    found: Sequence[Dequantized],
    columns: Mapping[str, object],
    plain: bool,
    platform: Callable[[], str | None],
) -> tuple[Level, str] | None:
    """Level and message of the finding about a matmul with such operands; None without any.

    `columns` are those of its row. plain: each operand has one contracted and one other
    dimension beside its batch.
    """
    if not found:
        return None
    wide = f"{columns['lhs_dtype']}×{columns['rhs_dtype']}"
    if len(found) == 1:
        (one,) = found
        other = columns[f"{_SIDES[1 - one.operand]}_dtype"]
        if not isinstance(other, str) or is_fp8(other):
            return None
        return (
            "note",
            f"one operand comes from fp8 ({one}), the other is {other}: it runs in {wide}, for no"
            " fp8 gemm takes a wide operand",
        )
    where = platform()
    what = f"both operands come from fp8 ({', '.join(map(str, found))}), but it runs in {wide}"
    if where in ("cpu", "tpu"):
        return "note", f"{what}: XLA for {where} has no rewrite of this form"
    return "warning", f"{what}: {_why(found, plain)}"


def _why(found: Sequence[Dequantized], plain: bool) -> str:
    sources = [one.source for one in found]
    if all(source.startswith("f8e5m2") for source in sources):
        return "no fp8 gemm takes two e5m2 operands"
    if not all(source in _GEMM_DTYPES for source in sources):
        return f"no fp8 gemm takes {' and '.join(dict.fromkeys(sources))}"
    sides = " and ".join(_SIDES[one.operand] for one in found if one.scale == "array")
    if sides:
        return f"the scale of {sides} is no scalar"
    if not plain:
        return "an fp8 gemm takes one contracted and one other dimension of each operand"
    sides = " and ".join(_SIDES[one.operand] for one in found if one.reconverted)
    if sides:
        return (
            f"what is scaled of {sides} is converted once more. If the program does so"
            " (before_optimizations shows it), the rewrite to fp8 does not take it; if XLA does,"
            f" {_NOT_THE_FORM}"
        )
    return _NOT_THE_FORM
