"""Axes: which dimensions of the arrays of a module are one and the same, through all that moves.

Each array has a list of axes, the slowest first, in the order of its elements. Operations make axes
of different arrays one: an add those at one place, a product those that it sums over. A reshape
that joins or cuts dimensions cuts the axes accordingly. So a result `[512, 16·512]` of a product
has the axis of 16 experts where its weight has it, or where what takes it has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

from hlo_lens.analysis.conv_dots import Axis as Spatial
from hlo_lens.analysis.dataflow import tuple_index
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.values import Elementwise, Numbers
from hlo_lens.analysis.views import View, inverse
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import Window, parse_dim_labels, parse_ints, parse_window

if TYPE_CHECKING:
    from hlo_lens.analysis.congruence import Context
    from hlo_lens.hlo import Computation

_DIMENSIONS: Final = re.compile(r", dimensions=\{([0-9,]*)\}", re.A)
_LITERAL: Final = frozenset(("constant", "integer", "series", "iota", "partition-id", "replica-id"))
# What has a rule of its own, and what says nothing of the axes of its operands.
_APART: Final = frozenset(
    (
        "async-start", "async-done", "async-update", "bitcast", "broadcast", "call", "conditional",
        "constant", "convolution", "copy-start", "custom-call", "dot", "fusion", "gather",
        "get-tuple-element", "iota", "parameter", "ragged-dot", "reduce", "reshape", "scatter",
        "sort", "transpose", "tuple", "while",
    )
)  # fmt: skip
_MOST_AXES: Final = 64
_MOST_PARTS: Final = 4


class Axis:
    """One axis: its size, and what it is: another axis (`same`) or, from the slowest, `parts`."""

    __slots__ = ("parts", "same", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.same: Axis | None = None
        self.parts: tuple[Axis, Axis] | None = None

    def cut(self, outer: int) -> tuple[Axis, Axis]:
        self.parts = Axis(outer), Axis(self.size // outer)
        return self.parts


Axes = list[Axis]


def leaves(axes: Iterable[Axis]) -> Axes:
    """The axes as they are now: those that are one with another as that, cut ones in parts."""
    found: Axes = []
    waiting = [*axes][::-1]
    while waiting:
        axis = waiting.pop()
        while axis.same is not None:
            axis = axis.same
        if axis.parts is not None:
            waiting += axis.parts[::-1]
        elif axis.size > 1:
            found.append(axis)
    return found


def split(axes: Iterable[Axis], sizes: Sequence[int]) -> list[Axes] | None:
    """The axes of each dimension of an array of these sizes; None where they do not fit."""
    waiting = leaves(axes)[::-1]
    found: list[Axes] = []
    for size in sizes:
        mine: Axes = []
        while size > 1:
            if not waiting:
                return None
            axis = waiting.pop()
            if size % axis.size == 0:
                size //= axis.size
                mine.append(axis)
            elif axis.size % size == 0:
                outer, inner = axis.cut(size)
                mine.append(outer)
                waiting.append(inner)
                size = 1
            else:
                return None
        found.append(mine)
    return None if waiting else found


def unite(one: Iterable[Axis], other: Iterable[Axis]) -> None:
    """Make the axes of two arrays of one size the same, as far as their parts fit."""
    left, right = leaves(one)[::-1], leaves(other)[::-1]
    if math.prod(a.size for a in left) != math.prod(a.size for a in right):
        return
    while left and right:
        a, b = left.pop(), right.pop()
        if a is b:
            continue
        if a.same is not None or a.parts is not None or b.same is not None or b.parts is not None:
            # An axis that stands in both, and has just been cut or united.
            left += leaves((a,))[::-1]
            right += leaves((b,))[::-1]
        elif a.size == b.size:
            b.same = a
        elif a.size % b.size == 0:
            left += a.cut(b.size)[::-1]
            right.append(b)
        elif b.size % a.size == 0:
            right += b.cut(a.size)[::-1]
            left.append(a)
        else:
            return


def taken(axes: Iterable[Axis], view: View) -> Axes | None:
    """The axes of a view of an array; None where it cuts through one of them, or into many: where
    a bitcast leaves out tiles that one of its shapes has, and tells an order that is none."""
    if len(view) > _MOST_PARTS:
        return None
    now = leaves(axes)
    total = math.prod(axis.size for axis in now)
    cuts = sorted({1, total, *(s for _, s in view), *(n * s for n, s in view)})
    if cuts[-1] != total or any(b % a for a, b in pairwise(cuts)):
        return None
    parts = split(now, [b // a for a, b in pairwise(cuts)][::-1])
    if parts is None:
        return None
    below = dict(zip(cuts[:-1], parts[::-1], strict=True))
    return [
        axis
        for size, stride in view
        for cut in reversed(cuts[:-1])
        if stride <= cut < size * stride
        for axis in below[cut]
    ]


@lru_cache(maxsize=1 << 14)
def dims_of(shape_text: str) -> tuple[int, ...] | None:
    """The sizes of an array; None for a tuple, and where one is not known or there are none."""
    if shape_text.startswith("("):
        return None
    sizes = sizes_of(shape_text)
    if len(sizes) > _MOST_AXES or not all(s.isdecimal() and len(s) < 20 for s in sizes):
        return None
    numbers = tuple(map(int, sizes))
    return numbers if 0 < math.prod(numbers) < 1 << 62 else None


class AxisFlow:
    """The axes of each number (see `congruence`) of a module."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self._of: dict[int, Axes] = {}
        self._constant: list[bool] = []
        # When all rules have run, axes do not change any more: those an array varies in.
        self.finished = False
        self._varies: dict[int, set[Axis] | None] = {}

    def is_constant(self, number: int) -> bool:
        """Whether it is made of constants alone: equal ones stand in unrelated places."""
        known = self._constant
        while len(known) <= number:
            node = self.numbers[len(known)]
            of = node.operands
            known.append(
                node.kind in _LITERAL
                or (bool(of) and all(one < len(known) and known[one] for one in of))
            )
        return known[number]

    def known(self, number: int) -> Axes | None:
        """The axes of an array, as they are now; None where nothing is known of it."""
        found = self._of.get(number)
        if found is None:
            node = self.numbers[number]
            below = self.known(node.operands[0]) if node.kind == "view" else None
            found = None if below is None else taken(below, cast(View, node.detail))
            if found is None:
                return None
            self._of[number] = found
        return leaves(found)

    def dimensions(self, number: int, sizes: Sequence[int]) -> list[Axes]:
        """The axes of each dimension of an array of these sizes."""
        node = self.numbers[number]
        if not self.is_constant(number) and node.kind not in ("filled", "unknown"):
            axes = self.known(number)
            found = None if axes is None else split(axes, sizes)
            if found is not None:
                return found
            if axes is None:
                return self._new(number, sizes)
        return [[Axis(size)] for size in sizes]

    def _new(self, number: int, sizes: Sequence[int]) -> list[Axes]:
        axes = [Axis(size) for size in sizes]
        self._of[number] = axes
        node = self.numbers[number]
        if node.kind == "view" and node.operands[0] not in self._of:
            below = taken(axes, inverse(cast(View, node.detail)))
            if below is not None:
                self._of[node.operands[0]] = below
        return [[axis] for axis in axes]

    def varies_in(self, number: int, depth: int = 0) -> set[Axis] | None:
        """The axes along which an array is not the same throughout; None where not known."""
        if number in self._varies:
            return self._varies[number]
        found = self._find_varying(number, depth)
        if self.finished:
            self._varies[number] = found
        return found

    def _find_varying(self, number: int, depth: int) -> set[Axis] | None:
        node = self.numbers[number]
        if self.is_constant(number) or node.kind == "filled":
            return set()
        if depth < 32 and (node.kind in ("broadcast", "view") or is_elementwise(node.detail)):
            parts = [self.varies_in(one, depth + 1) for one in node.operands]
            if None not in parts:
                return set().union(*(part for part in parts if part is not None))
        axes = self.known(number)
        return None if axes is None else set(axes)


def is_elementwise(detail: object) -> bool:
    return isinstance(detail, Elementwise)


# -- rules ----------------------------------------------------------------------------------------


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
    """`dimensions={…}` of an instruction; None where it has none."""
    found = _DIMENSIONS.match(computation.tails[index])
    if found is not None:
        return [int(one) for one in found[1].split(",") if one]
    try:
        text = Instruction(computation, index).attribute("dimensions")
        return None if text is None else list(parse_ints(text))
    except ValueError:
        return None


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
    return list(zip(dims[f"lhs_{what}"], dims[f"rhs_{what}"], strict=True))


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
        for at, label in enumerate(sorted(set(labels.lhs) - set("bf"))):
            a, b, c = lhs[label], rhs[label], out[label]
            kind = _spatial([math.prod(x.size for x in each) for each in (a, b, c)], window, at)
            pairs = {"contracted": [(a, b)], "lhs": [(a, c)], "rhs": [(b, c)]}
            for one, other in pairs.get(kind, [(a, b), (a, c)]):
                unite(one, other)
            found[kind].append(b if kind == "rhs" else a)
    except (IndexError, KeyError, ValueError):
        return None
    batch, summed, mine, yours = (
        _joined(found[kind]) for kind in ("batch", "contracted", "lhs", "rhs")
    )
    return batch, summed, mine, yours


def _spatial(sizes: list[int], window: Window | None, at: int) -> str:
    """Raises ValueError where the dimension is none of a dot."""
    if window is None or max(sizes) == 1:
        return "batch"
    stride, pad = window.stride[at], window.pad[at][0]
    dilations = window.lhs_dilate[at], window.rhs_dilate[at]
    back = window.rhs_reversal[at]
    inputs, size, outputs = sizes
    kind = Spatial(inputs, size, outputs, stride, pad, *dilations, back).kind
    if kind is None:
        raise ValueError("no dimension of a dot")
    return kind
