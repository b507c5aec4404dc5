"""The arrays of scores that an exposed attention writes to memory: how many, and how large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hlo_lens.hlo import parse_shape

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Instruction, Shape
    from hlo_lens_passes._attention_values import Written


@dataclass(frozen=True, slots=True)
class Arrays:
    """count: of arrays; total, largest: bytes, None where a size is not known; shapes: dtype and
    dimensions of each, without layouts, the largest first; instrs: what gives them."""

    count: int
    total: int | None
    largest: int | None
    shapes: tuple[str, ...]
    instrs: tuple[Instruction, ...]

    def __str__(self) -> str:
        """`f32[8,8] and bf16[8,8]`; of several alike, `2 × f32[8,8]`."""
        counts = Counter(self.shapes)
        texts = [f"{n} × {text}" if n > 1 else text for text, n in counts.items()]
        return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def arrays_of(graph: CallGraph, written: Written) -> Arrays:
    """Each array that is written; of a dynamic-update-slice, the slice."""
    found = sorted(written, key=lambda one: (one[0].computation.index, one[0].index, one[1]))
    arrays = [(_kernel(graph, instr), instr, path) for instr, path in found]
    shapes = [shape for one in arrays if (shape := _shape(*one)) is not None]
    sizes = [size for shape in shapes if (size := shape.bytes) is not None]
    known = len(sizes) == len(found)
    texts = _by_size(shapes)
    return Arrays(
        len(found),
        sum(sizes) if known else None,
        max(sizes, default=0) if known else None,
        tuple(texts),
        tuple(dict.fromkeys(kernel for kernel, _, _ in arrays)),
    )


def _by_size(shapes: Iterable[Shape]) -> list[str]:
    return [one.without_layout for one in sorted(shapes, key=lambda one: -(one.bytes or 0))]


def _kernel(graph: CallGraph, instr: Instruction) -> Instruction:
    """The fusion that an instruction is in, the outermost; itself outside of any."""
    while (site := graph.only_caller(instr.computation)) is not None and site.kind == "fusion":
        instr = site.caller
    return instr


def _shape(kernel: Instruction, instr: Instruction, path: tuple[int, ...]) -> Shape | None:
    """The shape of what is written; None for no array, or none known."""
    if instr.opcode != "dynamic-update-slice":
        return _at(instr, path)
    update, stack = _at(instr.operands[1], ()), _at(kernel, ())
    if update is None or stack is None:
        return update
    # XLA for the CPU updates in f32 inside a fusion what is narrower in memory.
    return replace(update, dtype=stack.dtype, layout=None)


def _at(instr: Instruction, path: tuple[int, ...]) -> Shape | None:
    """The shape of an element of what an instruction gives; None for no array, or none known."""
    try:
        shape = instr.shape
        for index in path:
            shape = shape.elements[index]
    except (IndexError, ValueError):
        return None
    return shape if shape.is_array else None


def array_spelled(text: str) -> str | None:
    """dtype and dimensions of a shape; None for what is no array."""
    try:
        shape = parse_shape(text)
    except ValueError:
        return None
    return shape.without_layout if shape.is_array else None
