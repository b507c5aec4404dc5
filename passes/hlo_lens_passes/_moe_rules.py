"""What each operation says of the axes of the arrays that it takes and gives; see `_moe_axes`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.conv_dots import spatial_kinds
from hlo_lens.analysis.dataflow import tuple_index
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_dim_labels, parse_ints, parse_window
from hlo_lens_passes._moe_axes import Axes, AxisFlow, dims_of, unite

if TYPE_CHECKING:
    from hlo_lens.analysis.congruence import Context
    from hlo_lens.hlo import Computation

_DIMENSIONS: Final = re.compile(r", dimensions=\{([0-9,]*)\}", re.A)
# What has a rule of its own, and what says nothing of the axes of its operands.
_APART: Final = frozenset(
    (
        "async-start", "async-done", "async-update", "bitcast", "broadcast", "call", "conditional",
        "constant", "convolution", "copy-start", "custom-call", "dot", "fusion", "gather",
        "get-tuple-element", "iota", "parameter", "ragged-dot", "reduce", "reshape", "scatter",
        "sort", "transpose", "tuple", "while",
    )
)  # fmt: skip


def number_of(flow: AxisFlow, context: Context, index: int) -> int | None:
    """The number of an operand, written or implied (`x#1`); None where it is not known."""
    computation, values = context.evaluation.computation, context.evaluation.values
    path: list[int] = []
    while index < 0:
        operands = computation.operand_indices(index)
        element = tuple_index(Instruction(computation, index))
        if computation.opcode_of(index) != "get-tuple-element" or not operands or element is None:
            return None
        path.append(element)
        index = operands[0]
    number = values[index]
    for element in reversed(path):
        number = flow.numbers.element(number, element)
    return number


def array(flow: AxisFlow, context: Context, index: int) -> list[Axes] | None:
    """The axes of each dimension of what an instruction gives; None where it is no array."""
    sizes = dims_of(context.evaluation.computation.shape_of(index))
    number = None if sizes is None else number_of(flow, context, index)
    return None if sizes is None or number is None else flow.dimensions(number, sizes)


def run_context(flow: AxisFlow, context: Context) -> None:
    """The rules of every instruction of a computation, except those of products."""
    computation = context.evaluation.computation
    for index, opcode in enumerate(computation.opcodes):
        result = array(flow, context, index)
        if result is None or opcode in ("parameter", "constant"):
            continue
        if opcode == "broadcast":
            _broadcast(flow, context, index, result)
        elif opcode == "reduce":
            _reduce(flow, context, index, result)
        elif opcode == "scatter":
            _alike(flow, context, computation.operand_indices(index)[:1], result)
        elif opcode == "sort" or opcode not in _APART:
            _alike(flow, context, computation.operand_indices(index), result)


def _alike(
    flow: AxisFlow, context: Context, operands: Sequence[int], result: Sequence[Axes]
) -> None:
    """Of operands with as many dimensions, those of the same size are the result's."""
    sizes = [math.prod(axis.size for axis in axes) for axes in result]
    for operand in operands:
        given = array(flow, context, operand)
        if given is not None and len(given) == len(result):
            for mine, size, yours in zip(given, sizes, result, strict=True):
                if math.prod(axis.size for axis in mine) == size:
                    unite(mine, yours)


def dimension_numbers(computation: Computation, index: int) -> list[int] | None:
    """`dimensions={…}` of an instruction, none below 0; None where it has none, or they cannot be
    read."""
    found = _DIMENSIONS.match(computation.tails[index])
    try:
        if found is not None:
            return [int(one) for one in found[1].split(",") if one]
        text = Instruction(computation, index).attribute("dimensions")
        numbers = None if text is None else list(parse_ints(text))
    except ValueError:
        return None
    return None if numbers is None or min(numbers, default=0) < 0 else numbers


def _broadcast(flow: AxisFlow, context: Context, index: int, result: Sequence[Axes]) -> None:
    computation = context.evaluation.computation
    operands = computation.operand_indices(index)
    given = array(flow, context, operands[0]) if operands else None
    for mine, at in zip(given or (), dimension_numbers(computation, index) or (), strict=False):
        if at < len(result):
            unite(mine, result[at])


def _reduce(flow: AxisFlow, context: Context, index: int, result: Sequence[Axes]) -> None:
    computation = context.evaluation.computation
    operands = computation.operand_indices(index)
    given = array(flow, context, operands[0]) if operands else None
    gone = dimension_numbers(computation, index) or ()
    kept = [mine for at, mine in enumerate(given or ()) if at not in gone]
    if len(kept) == len(result):
        for mine, yours in zip(kept, result, strict=True):
            unite(mine, yours)


Parts = tuple[Axes, Axes, Axes, Axes]
"""Axes of a product: batch, summed, only of the left operand, only of the right one."""


def dot_parts(
    left: Sequence[Axes], right: Sequence[Axes], result: Sequence[Axes], dims: dict[str, list[int]]
) -> Parts | None:
    """Those of a dot, made one where they are; None where its numbers do not fit."""
    try:
        batch = [(left[a], right[b]) for a, b in _pairs(dims, "batch")]
        summed = [(left[a], right[b]) for a, b in _pairs(dims, "contracting")]
    except (IndexError, KeyError, ValueError):
        return None
    free = [
        [axes for at, axes in enumerate(side) if at not in dims[f"{name}_batch"]
         and at not in dims[f"{name}_contracting"]]
        for name, side in (("lhs", left), ("rhs", right))
    ]  # fmt: skip
    if len(batch) + len(free[0]) + len(free[1]) != len(result):
        return None
    for a, b in (*batch, *summed):
        unite(a, b)
    for mine, yours in zip((*(a for a, _ in batch), *free[0], *free[1]), result, strict=True):
        unite(mine, yours)
    return _joined(a for a, _ in batch), _joined(a for a, _ in summed), *map(_joined, free)  # type: ignore[return-value]


def _pairs(dims: dict[str, list[int]], what: str) -> list[tuple[int, int]]:
    pairs = list(zip(dims[f"lhs_{what}"], dims[f"rhs_{what}"], strict=True))
    if any(min(pair) < 0 for pair in pairs):
        raise IndexError(what)
    return pairs


def _joined(parts: Iterable[Axes]) -> Axes:
    return [axis for axes in parts for axis in axes]


def conv_parts(
    left: Sequence[Axes],
    right: Sequence[Axes],
    result: Sequence[Axes],
    dim_labels: str | None,
    window_text: str | None,
) -> Parts | None:
    """Those of a convolution that is a dot (see `conv_dots`)."""
    try:
        labels = parse_dim_labels(dim_labels or "")
        window = parse_window(window_text) if window_text else None
        lhs, rhs, out = (
            dict(zip(names, side, strict=True))
            for names, side in ((labels.lhs, left), (labels.rhs, right), (labels.output, result))
        )
        found: dict[str, list[Axes]] = {"batch": [], "contracted": [], "lhs": [], "rhs": []}
        unite(lhs["f"], rhs["i"])
        unite(lhs["b"], out["b"])
        unite(rhs["o"], out["f"])
        for kind, axes in (("contracted", lhs["f"]), ("lhs", lhs["b"]), ("rhs", rhs["o"])):
            found[kind].append(axes)
        sizes = [
            {label: math.prod(axis.size for axis in axes) for label, axes in side.items()}
            for side in (lhs, rhs, out)
        ]
        for label, kind in spatial_kinds(labels, sizes, window).items():
            a, b, c = lhs[label], rhs[label], out[label]
            pairs = {"contracted": [(a, b)], "lhs": [(a, c)], "rhs": [(b, c)]}
            for one, other in pairs.get(kind, [(a, b), (a, c)]):
                unite(one, other)
            # Of a longer left operand a part is taken: the others say how much.
            found[kind].append(c if kind == "lhs" else b)
    except (IndexError, KeyError, ValueError):
        return None
    batch, summed, mine, yours = (
        _joined(found[kind]) for kind in ("batch", "contracted", "lhs", "rhs")
    )
    return batch, summed, mine, yours
