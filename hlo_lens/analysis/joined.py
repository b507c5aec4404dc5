"""Slices of arrays that are put together out of others: which of these they take.

Loops that are unrolled stack what several iterations compute as one slice, put together, and the
backward takes it apart again. XLA for the TPU writes that as the largest of arrays that are padded
with -inf.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple, cast

from hlo_lens.analysis.values import Number, Numbers

_RANGES: Final = re.compile(r", slice=\{((?:\[\d{1,18}:\d{1,18}\],?)+)\}", re.A)
_RANGE: Final = re.compile(r"\[(\d+):(\d+)\]", re.A)
_DIMENSION: Final = re.compile(r", dimensions=\{(\d{1,3})\}", re.A)
_PADDING: Final = re.compile(r", padding=((?:\d{1,18}_\d{1,18}x?)+)", re.A)
_LEAST: Final = "-inf"
_MOST_PARTS: Final = 256


class _Range(NamedTuple):
    """Of an array, what lies from `start` to `end` in one dimension, and all in the others."""

    dimension: int
    start: int
    end: int


def sliced(numbers: Numbers, detail: Hashable, number: int) -> int:
    """The number of a slice; that of a part, where it takes just what one part has put there.

    detail: attributes, dimensions of the result, and those of the operand, as `steps` has them.
    """
    attributes, _, given = cast(tuple[str, str, tuple[str, ...]], detail)
    wanted = _wanted(attributes, given[0]) if given else None
    parts = _parts(numbers, numbers[number], given[0]) if wanted is not None else None
    for place, part in parts or ():
        if place == wanted:
            return part
    return numbers.make("slice", detail, (number,))


def _wanted(attributes: str, dimensions: str) -> _Range | None:
    """What a slice takes; None where it cuts in several dimensions, or in steps."""
    found = _RANGES.fullmatch(attributes)
    sizes = _sizes(dimensions)
    if found is None or sizes is None:
        return None
    ranges = [(int(start), int(end)) for start, end in _RANGE.findall(found[1])]
    if len(ranges) != len(sizes):
        return None
    cut = [d for d, size in enumerate(sizes) if ranges[d] != (0, size)]
    return _Range(cut[0], *ranges[cut[0]]) if len(cut) == 1 else None


def _parts(numbers: Numbers, node: Number, dimensions: str) -> list[tuple[_Range, int]] | None:
    """The parts of an array of these dimensions, and where each lies; None where it is not put
    together."""
    if node.kind == "concatenate":
        return _concatenated(node, dimensions)
    if node.kind != "maximum":
        return None
    parts = [_padded(numbers, numbers[one], dimensions) for one in _largest_of(numbers, node)]
    known = [part for part in parts if part is not None]
    # What lies in one another's place is no part of the result.
    places = sorted(place for place, _ in known)
    apart = all(a.dimension == b.dimension and a.end <= b.start for a, b in pairwise(places))
    return known if len(known) == len(parts) <= _MOST_PARTS and apart else None


def _concatenated(node: Number, dimensions: str) -> list[tuple[_Range, int]] | None:
    attributes, result, given = cast(tuple[str, str, tuple[str, ...]], node.detail)
    found, whole = _DIMENSION.fullmatch(attributes), _sizes(result)
    if found is None or whole is None or result != dimensions or len(given) != len(node.operands):
        return None
    dimension, at = int(found[1]), 0
    parts: list[tuple[_Range, int]] = []
    for text, part in zip(given, node.operands, strict=True):
        sizes = _sizes(text)
        if sizes is None or dimension >= len(whole):
            return None
        # A size of 1 is not in the text.
        size = sizes[dimension] if len(sizes) == len(whole) else 1
        parts.append((_Range(dimension, at, at + size), part))
        at += size
    return parts if at == whole[dimension] else None


def _largest_of(numbers: Numbers, node: Number) -> Iterator[int]:
    waiting = list(node.operands)
    for one in waiting:  # grows while it is walked
        if numbers[one].kind == "maximum" and len(waiting) <= _MOST_PARTS:
            waiting.extend(numbers[one].operands)
        else:
            yield one


def _padded(numbers: Numbers, node: Number, dimensions: str) -> tuple[_Range, int] | None:
    """Where an array lies that is padded with -inf in one dimension, and its number."""
    if node.kind != "pad" or len(node.operands) != 2:
        return None
    filler = numbers[node.operands[1]]
    attributes, result, _ = cast(tuple[str, str, tuple[str, ...]], node.detail)
    found, whole = _PADDING.fullmatch(attributes), _sizes(result)
    if filler.kind != "constant" or filler.detail != ("[]", _LEAST) or result != dimensions:
        return None
    around = [one.split("_") for one in found[1].split("x")] if found is not None else []
    if whole is None or len(around) != len(whole):
        return None
    moved = [d for d, one in enumerate(around) if one != ["0", "0"]]
    if len(moved) != 1:
        return None
    low, high = map(int, around[moved[0]])
    return _Range(moved[0], low, whole[moved[0]] - high), node.operands[0]


def _sizes(dimensions: str) -> list[int] | None:
    """[2, 3] of "[2,3]"; None for a tuple, and where a size is not known."""
    texts = dimensions[1:-1].split(",") if dimensions[1:-1] else []
    known = dimensions.startswith("[") and all(text.isdecimal() for text in texts)
    return [int(text) for text in texts] if known else None
