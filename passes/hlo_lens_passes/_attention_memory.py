"""The arrays of scores that an exposed attention writes to memory: how many, and how large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.hlo import parse_shape

if TYPE_CHECKING:
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


def arrays_of(written: Written) -> Arrays:
    found = sorted(written, key=lambda one: (one[0].computation.index, one[0].index, one[1]))
    shapes = [shape for instr, path in found if (shape := _at(instr, path)) is not None]
    sizes = [size for shape in shapes if (size := shape.bytes) is not None]
    known = len(sizes) == len(found)
    texts = _by_size(shapes)
    return Arrays(
        len(found),
        sum(sizes) if known else None,
        max(sizes, default=0) if known else None,
        tuple(texts),
        tuple(dict.fromkeys(instr for instr, _ in found)),
    )


def _by_size(shapes: Iterable[Shape]) -> list[str]:
    return [one.without_layout for one in sorted(shapes, key=lambda one: -(one.bytes or 0))]


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
