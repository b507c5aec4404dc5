"""Operations without their dimensions of size 1, which reshapes and bitcasts add and drop at will.

`[4,1,512]` is `[4,512]` here, and attributes that name dimensions are counted in what is left, so
that one operation on `[1,4,512]` and on `[4,512]` reads the same. Dimensions are text: they are
only compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

_ARRAY: Final = re.compile(r"\[([^\[\]]*)\]")
_NOT_DIMENSIONS: Final = re.compile(r"/\*.*?\*/|\{[^{}]*\}|[a-zA-Z]\w*(?=\[)|\s+")

Sizes = tuple[str, ...]


@lru_cache(maxsize=1 << 14)
def dimensions_text(shape_text: str) -> str:
    """A shape without dtypes, layouts, blanks and sizes of 1: "(f32[2,1,3]{2,1,0}, s32[])" is
    "([2,3],[])"."""
    text = _NOT_DIMENSIONS.sub("", shape_text)
    return _ARRAY.sub(lambda found: f"[{','.join(_kept(found[1].split(',')))}]", text)


def _kept(sizes: Sequence[str]) -> list[str]:
    return [size for size in sizes if size != "1"]


@lru_cache(maxsize=1 << 14)
def sizes_of(shape_text: str) -> Sizes:
    """The sizes of an array, those of 1 too; none for a scalar and for a tuple."""
    found = _ARRAY.search(shape_text)
    if found is None or shape_text.startswith("(") or not found[1]:
        return ()
    return tuple(found[1].split(","))


@lru_cache(maxsize=1 << 14)
def attributes_text(
    opcode: str, attributes: str, operands: tuple[Sizes, ...], result: Sizes
) -> str:
    """Structural attributes, with the dimensions that they name counted without those of size 1.

    `operands` and `result` are sizes as `sizes_of` gives them.
    """
    rewrite = _REWRITES.get(opcode)
    if rewrite is None or not operands:
        return attributes
    try:
        return rewrite(attributes, operands, result)
    except (IndexError, ValueError):
        return attributes  # it names a dimension that is not there: then by its text


def _numbering(sizes: Sizes) -> list[int]:
    """For each dimension, how many in front of it are not of size 1."""
    numbers, count = [], 0
    for size in sizes:
        numbers.append(count)
        count += size != "1"
    return numbers


def _renumbered(attributes: str, name: str, sizes: Sizes, *, all: bool = False) -> str:
    """The list of dimensions `name={…}` counted anew; with `all`, those of size 1 too."""
    numbers = _numbering(sizes)

    def one(found: re.Match[str]) -> str:
        dimensions = [int(text) for text in found[1].split(",") if text]
        kept = [numbers[d] for d in dimensions if all or sizes[d] != "1"]
        return f", {name}={{{','.join(map(str, kept))}}}" if kept else ""

    return re.sub(rf", {name}=\{{([0-9,]*)\}}", one, attributes)


def _of_operand(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    return _renumbered(attributes, "dimensions", operands[0])


def _of_result(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    return _renumbered(attributes, "dimensions", result, all=True)


def _broadcast(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    numbers = _numbering(result)
    found = re.search(r", dimensions=\{([0-9,]*)\}", attributes)
    dimensions = [int(text) for text in found[1].split(",") if text] if found else []
    kept = [numbers[d] for d, size in zip(dimensions, operands[0], strict=True) if size != "1"]
    return f", dimensions={{{','.join(map(str, kept))}}}" if kept else ""


def _dot(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    for side, sizes in zip(("lhs", "rhs"), operands, strict=False):
        for name in ("batch_dims", "contracting_dims"):
            attributes = _renumbered(attributes, f"{side}_{name}", sizes)
    return attributes


def _slice(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    def kept(found: re.Match[str]) -> str:
        ranges = found[1].split(",")
        pairs = zip(ranges, operands[0], strict=True)
        return f", slice={{{','.join(one for one, size in pairs if size != '1')}}}"

    return re.sub(r", slice=\{([^{}]*)\}", kept, attributes)


def _pad(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    def kept(found: re.Match[str]) -> str:
        pairs = zip(found[1].split("x"), operands[0], strict=True)
        return f", padding={'x'.join(one for one, size in pairs if (size, one) != ('1', '0_0'))}"

    return re.sub(r", padding=([0-9_x-]+)", kept, attributes)


def _dynamic_slice(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    def kept(found: re.Match[str]) -> str:
        pairs = zip(found[1].split(","), operands[0], strict=True)
        return f", sizes={{{','.join(one for one, size in pairs if size != '1')}}}"

    return re.sub(r", dynamic_slice_sizes=\{([^{}]*)\}", kept, attributes)


def _convolution(attributes: str, operands: tuple[Sizes, ...], result: Sizes) -> str:
    """Without the spatial dimensions that are 1 in the operands and the window."""
    labels = re.search(r", dim_labels=([\w?]+)_([\w?]+)->([\w?]+)", attributes)
    if labels is None or not len(labels[1]) == len(operands[0]) == len(operands[1]):
        return attributes
    ones = [
        label
        for label, size in zip(labels[1], operands[0], strict=True)
        if label.isdecimal() and size == "1" and operands[1][labels[2].index(label)] == "1"
    ]
    window = re.search(r", window=\{([^{}]*)\}", attributes)
    fields = dict(part.split("=") for part in _window_fields(window[1])) if window else {}
    spatial = sorted(label for label in labels[1] if label.isdecimal())
    kept = [k for k, label in enumerate(spatial) if label not in ones]
    names = {spatial[k]: str(at) for at, k in enumerate(kept)}
    side = ["".join(names.get(c, "" if c in ones else c) for c in labels[n]) for n in (1, 2, 3)]
    parts = []
    for name, text in sorted(fields.items()):
        values = text.split("x")
        parts.append(f"{name}={'x'.join(values[k] for k in kept)}")
    rest = attributes.replace(labels[0], "").replace(window[0] if window else "", "")
    return f"{rest}, dim_labels={side[0]}_{side[1]}->{side[2]}, window={{{' '.join(parts)}}}"


_FIELD: Final = re.compile(r"(?:size|stride|pad|lhs_dilate|rhs_dilate|rhs_reversal)=[0-9x_-]+")


def _window_fields(text: str) -> list[str]:
    return _FIELD.findall(text)


_REWRITES: Final[dict[str, Callable[[str, tuple[Sizes, ...], Sizes], str]]] = {
    "all-gather": _of_result,
    "broadcast": _broadcast,
    "concatenate": _of_result,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "pad": _pad,
    "reduce": _of_operand,
    "reduce-scatter": lambda a, o, r: _renumbered(a, "dimensions", o[0], all=True),
    "reverse": _of_operand,
    "slice": _slice,
    "transpose": _of_operand,
}
