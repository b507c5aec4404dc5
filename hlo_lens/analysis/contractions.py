"""Dots that may be written either way: a·b, and b·a transposed."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from hlo_lens.analysis.views import View, exchanged

_SIDE: Final = re.compile(r", ([lr]hs)_(batch|contracting)_dims=\{([0-9,]*)\}", re.A)
_OTHER: Final = {"lhs": "rhs", "rhs": "lhs"}


class Contraction(NamedTuple):
    """What a dot contracts: attributes and dimensions of its operands as text, and how its result
    comes from that of the dot with the operands exchanged."""

    attributes: str
    operands: tuple[str, ...]
    view: View

    def exchanged(self) -> tuple[str, tuple[str, ...]]:
        """Attributes and dimensions with the operands exchanged."""
        turned = sorted(
            f", {_OTHER[side]}_{name}_dims={{{text}}}"
            for side, name, text in _SIDE.findall(self.attributes)
        )
        return _SIDE.sub("", self.attributes) + "".join(turned), self.operands[::-1]


def contraction(attributes: str, operands: tuple[str, ...]) -> Contraction | None:
    """The dot with these structural attributes, and operands of these dimensions (`[2,3]`).

    None where it cannot be turned: something is not known, or belongs to one operand.
    """
    named = {(side, name): text for side, name, text in _SIDE.findall(attributes)}
    if len(operands) != 2 or any(word in attributes for word in ("precision", "sparsity")):
        return None
    try:
        (batch, left), (_, right) = (
            _split(shape, named.get((side, "batch"), ""), named.get((side, "contracting"), ""))
            for side, shape in zip(("lhs", "rhs"), operands, strict=True)
        )
    except (IndexError, ValueError):
        return None
    return Contraction(attributes, operands, exchanged(batch, left, right))


def _split(shape: str, batch: str, contracting: str) -> tuple[int, int]:
    """How many elements the batch dimensions have, and those that stay."""
    sizes = [int(size) for size in shape[1:-1].split(",") if size]
    batched = [sizes[int(d)] for d in batch.split(",") if d]
    summed = [sizes[int(d)] for d in contracting.split(",") if d]
    count = math.prod(batched)
    return count, math.prod(sizes) // (count * math.prod(summed))
