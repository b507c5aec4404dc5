"""Matrix products in one form, whether they are dots or convolutions, and whichever way round.

The operands are matrices (batch, free, summed), the result is (batch, rows, columns): free
dimensions of the left operand and of the right one. How the operands and the result of an
instruction lie is left to views, so that a product is the same in all layouts.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from hlo_lens.analysis.conv_dots import Kind, spatial_kinds
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.views import View, inverse, transposed
from hlo_lens.hlo.attributes import parse_dim_labels, parse_window

_SIDES: Final = re.compile(r", ([lr]hs_(?:batch|contracting)_dims)=\{([0-9,]*)\}", re.A)
_LABELS: Final = re.compile(r", dim_labels=([^,{}\s]+)")
_WINDOW: Final = re.compile(r", window=(\{[^{}]*\})")
_PARTS: Final = re.compile(r"(?:size|stride|pad|[lr]hs_dilate|rhs_reversal)=[0-9x_-]+", re.A)
_PRECISION: Final = re.compile(r", operand_precision=\{(\w+),(\w+)\}")
# What only one operand has, or what makes several products of one.
_NOT_PLAIN: Final = re.compile(r", (?:sparsity|feature_group_count|batch_group_count)=")


Sizes = tuple[int, int, int, int]
"""Batch, rows, columns, summed."""


class Contraction(NamedTuple):
    """rest: attributes that say something else. left, right:
    the matrices as views of the operands; result: what the instruction gives, as a view."""

    sizes: Sizes
    rest: str
    left: View
    right: View
    result: View


def contraction(
    opcode: str, attributes: str, left: str, right: str, result: str
) -> Contraction | None:
    """A dot or convolution, from its structural attributes and the texts of the three shapes.

    None where it is no product of two matrices, or something is not known.
    """
    precision = _PRECISION.search(attributes)
    if _NOT_PLAIN.search(attributes) or (precision and precision[1] != precision[2]):
        return None
    read = _of_convolution if opcode == "convolution" else _of_dot
    try:
        return read(attributes, (left, right, result))
    except (IndexError, KeyError, ValueError):
        return None


def _of_dot(attributes: str, shapes: tuple[str, str, str]) -> Contraction:
    named = {
        name: [int(one) for one in text.split(",") if one]
        for name, text in _SIDES.findall(attributes)
    }
    orders: list[list[int]] = []
    counts: list[list[int]] = []
    for side, shape in zip(("lhs", "rhs"), shapes, strict=False):
        sizes = [int(size) for size in sizes_of(shape)]
        batch, summed = (named.get(f"{side}_{what}_dims", []) for what in ("batch", "contracting"))
        free = [d for d in range(len(sizes)) if d not in batch and d not in summed]
        orders.append([*batch, *free, *summed])
        counts.append([math.prod(sizes[d] for d in dims) for dims in (batch, free, summed)])
    left, right = (transposed(s, order) for s, order in zip(shapes, orders, strict=False))
    (batched, rows, summed_up), (_, columns, _) = counts
    as_it_is = ((batched * rows * columns, 1),)
    rest = _SIDES.sub("", attributes)
    return Contraction((batched, rows, columns, summed_up), rest, left, right, as_it_is)


def _of_convolution(attributes: str, shapes: tuple[str, str, str]) -> Contraction:
    """Where each spatial dimension is one of a dot: see `conv_dots`."""
    found = _LABELS.search(attributes)
    labels = parse_dim_labels(found[1] if found else "")
    written = _WINDOW.search(attributes)
    # Attributes come without blanks: those between the parts of a window, too.
    window = parse_window(f"{{{' '.join(_PARTS.findall(written[1]))}}}") if written else None
    by_label = [
        dict(zip(names, map(int, sizes_of(shape)), strict=True))
        for names, shape in zip((labels.lhs, labels.rhs, labels.output), shapes, strict=True)
    ]
    kinds: dict[str, Kind] = {"b": "lhs", "f": "contracted"}
    kinds |= spatial_kinds(labels, by_label, window)
    if window is not None and any(
        # What is summed is paired straight, and what only the right operand has is in its order.
        kinds[label] == ("contracted" if back else "rhs")
        for label, back in zip(sorted(kinds.keys() - {"b", "f"}), window.rhs_reversal, strict=False)
    ):
        raise ValueError("a dimension runs the other way round")
    lhs, rhs, out = by_label
    if any(lhs[label] > max(rhs[label], out[label]) for label in kinds.keys() - {"b", "f"}):
        raise ValueError("a part of the left operand, which is no view of it")
    # In the order of the result, so that this is seldom a view.
    batch, rows = (
        "".join(label for label in labels.output if kinds[label] == kind)
        for kind in ("batch", "lhs")
    )
    columns = "".join(label for label in labels.output if label == "f" or kinds[label] == "rhs")
    summed = "".join(label for label in labels.lhs if kinds[label] == "contracted")
    names = (
        (labels.lhs, batch + rows + summed),
        (labels.rhs, batch + columns.replace("f", "o") + summed.replace("f", "i")),
        (labels.output, batch + rows + columns),
    )
    views = []
    for (all_of, wanted), shape in zip(names, shapes, strict=True):
        # What is of size 1 and belongs to another operand stands in front.
        ones = [label for label in all_of if label not in wanted]
        order = [all_of.index(label) for label in (*ones, *wanted)]
        views.append(transposed(shape, order))
    counts = [math.prod(lhs[label] for label in each) for each in (batch, rows, summed)]
    size = counts[0], counts[1], math.prod(out[label] for label in columns), counts[2]
    rest = _WINDOW.sub("", _LABELS.sub("", attributes))
    return Contraction(size, rest, views[0], views[1], inverse(views[2]))


def turned(sizes: Sizes) -> Sizes:
    """The sizes with the operands exchanged."""
    batch, rows, columns, summed = sizes
    return batch, columns, rows, summed
