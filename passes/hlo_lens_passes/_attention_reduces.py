"""How reduces and moves of arrays turn the dimensions of an array of scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from hlo_lens.analysis.dataflow import Value, attribute_text, called, through
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.analysis.views import bitcast, merged, row_major, transposed
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_window
from hlo_lens_passes._attention_axes import Axes, moved

REDUCES: Final = frozenset(("reduce", "reduce-window"))
# Of each range of a slice: where it starts, where its steps are 1.
_STARTS: Final = re.compile(r"\[\s*(\d{1,18}):\d{1,18}(?::1)?\s*\]", re.A)
_DIMENSIONS: Final = re.compile(r", dimensions=\{([0-9,\s]*)\}", re.A)


def reducer(reduce: Instruction) -> str | None:
    """The opcode that a reduce applies, such as `maximum`."""
    computation = called(reduce, "to_apply")
    if computation is None or len(reduce.computation.operand_indices(reduce.index)) != 2:
        return None
    return through(computation.root).opcode


def reduced_over(reduce: Instruction, kind: str) -> tuple[Value, Axes] | None:
    """What one reduce by `kind` reduces, with what is reduced as the keys and all else as the
    queries."""
    if reducer(reduce) != kind:
        return None
    gone = set(listed(reduce))
    places = row_major(_numbers(_given(reduce)))
    query = merged(place for n, place in enumerate(places) if n not in gone)
    key = merged(place for n, place in enumerate(places) if n in gone)
    operand = reduce.computation.operand_indices(reduce.index)[0]
    return Value(Instruction(reduce.computation, operand)), Axes((), query, key)


def moved_dimensions(instr: Instruction) -> Sequence[tuple[int, int]] | None:
    """What an instruction that only moves its operand makes of its dimensions, see `Axes.through`;
    None for one that does not.

    Raises IndexError or ValueError where its text is at odds with itself.
    """
    opcode = instr.opcode
    if opcode == "bitcast":
        return bitcast(_given(instr), instr.shape_text)
    if opcode == "transpose":
        return transposed(_given(instr), listed(instr))
    if opcode == "broadcast":
        return _broadcast(instr)
    return _sliced(instr) if opcode == "slice" else None


def _sliced(instr: Instruction) -> list[tuple[int, int]] | None:
    """Of a slice from the first element on; None for another."""
    text = attribute_text(instr, "slice") or ""
    results = _numbers(instr.shape_text)
    if [int(start) for start in _STARTS.findall(text)] != [0] * len(results) or not results:
        return None
    places = row_major(_numbers(_given(instr)))
    return [(n, stride) for n, (_, stride) in zip(results, places, strict=True)]


def in_first_part(instr: Instruction, axes: Axes) -> Axes | None:
    """The axes in the first of what is concatenated, where they reach no further, as where the
    scores have a sink beside them; None where they do.

    Raises IndexError or ValueError where the text is at odds with itself.
    """
    (along,) = listed(instr)
    sizes, first = _numbers(instr.shape_text), _numbers(_given(instr))
    if _reach(axes, sizes, along) >= first[along]:
        return None
    places = row_major(first)
    return axes.through([(n, stride) for n, (_, stride) in zip(sizes, places, strict=True)])


def in_padded(instr: Instruction, axes: Axes) -> tuple[int, Axes] | None:
    """Which operand of a pad the axes lie in, and where: 0, as where scores are padded behind their
    end for a sink beside them, or 1, the number that is filled in. None where in both.

    Raises IndexError or ValueError where the text is at odds with itself.
    """
    sizes, inner = _numbers(instr.shape_text), _numbers(_given(instr))
    sides = [
        [int(one) for one in text.split("_")]
        for text in (attribute_text(instr, "padding") or "").split("x")
    ]
    if len(sides) != len(sizes) or {*map(len, sides)} != {2}:
        return None
    inside = True
    for along, ((low, _), n) in enumerate(zip(sides, inner, strict=True)):
        last = _reach(axes, sizes, along)
        if 0 <= last < low:
            return 1, axes.through([(size, 0) for size in sizes])
        inside = inside and low == 0 and last < n
    if not inside:
        return None
    places = row_major(inner)
    return 0, axes.through([(n, stride) for n, (_, stride) in zip(sizes, places, strict=True)])


def _reach(axes: Axes, sizes: Sequence[int], along: int) -> int:
    """How far from the first element the axes reach along a dimension."""
    only = [(n, int(d == along)) for d, n in enumerate(sizes)]
    return sum((n - 1) * step for axis in axes for n, step in moved(axis, only))


def _given(instr: Instruction) -> str:
    of = instr.computation
    return of.shape_of(of.operand_indices(instr.index)[0])


def listed(instr: Instruction) -> list[int]:
    """The dimensions that an instruction names. Raises ValueError where they cannot be read."""
    found = _DIMENSIONS.search(instr.tail)
    if found is None or '"' in instr.tail[: found.start()]:
        return [*(instr.ints_attribute("dimensions") or ())]
    return [int(one) for one in found[1].split(",")] if found[1].strip() else []


def _numbers(text: str) -> list[int]:
    return [int(size) for size in sizes_of(text)]


def _broadcast(instr: Instruction) -> list[tuple[int, int]]:
    operand = row_major(_numbers(_given(instr)))
    result = [(size, 0) for size in _numbers(instr.shape_text)]
    for number, place in zip(listed(instr), operand, strict=True):
        if place[0] not in (1, result[number][0]):
            raise ValueError("a broadcast of another size")
        result[number] = (result[number][0], place[1] if place[0] > 1 else 0)
    return result


@lru_cache(maxsize=1 << 10)
def _windows(text: str, dimensions: tuple[int, ...]) -> frozenset[int] | None:
    """The dimensions that a window of 2n - 1 over n elements, n - 1 of them padding to each side,
    covers from every place; None where a window is another and not of size 1."""
    try:
        window = parse_window(text)
    except ValueError:
        return None
    if len(window.size) != len(dimensions) or {*window.stride, *window.rhs_dilate} != {1}:
        return None
    covered = set()
    for number, (size, n) in enumerate(zip(window.size, dimensions, strict=True)):
        if size == 2 * n - 1 and window.pad[number] == (n - 1, n - 1):
            covered.add(number)
        elif size != 1 or window.pad[number] != (0, 0):
            return None
    return frozenset(covered) or None


def spread_over(instr: Instruction) -> frozenset[int] | None:
    """The dimensions that a reduce-window reduces whole, and gives the result to each element of,
    as TPU text writes the maximum of a softmax; None for everything else."""
    if instr.opcode != "reduce-window":
        return None
    with suppress(ValueError):
        text = attribute_text(instr, "window")
        return None if text is None else _windows(text, tuple(_numbers(instr.shape_text)))
    return None


def spread(instr: Instruction, over: frozenset[int], axes: Axes) -> Axes:
    """The axes of such a window's result, of which there is one for each query. Raises
    ValueError."""
    places = row_major(_numbers(instr.shape_text))
    return axes.through([(n, 0 if d in over else step) for d, (n, step) in enumerate(places)])


def in_reduced(reduce: Instruction, axes: Axes) -> Axes:
    """The axes in what is reduced, where the keys are what is reduced besides what is left of
    them: of a reduce in two steps the first has still some.

    Raises ValueError for a window that slides.
    """
    places = row_major(_numbers(_given(reduce)))
    over = spread_over(reduce)
    if over is not None:
        gone, before = [*sorted(over)], axes
    elif reduce.opcode == "reduce":
        gone = listed(reduce)
        kept = [place for number, place in enumerate(places) if number not in gone]
        before = axes.through(kept)
    else:
        return _in_windows(reduce, axes, places)
    left = [pair for pair in before.key if pair[1]]
    return Axes(before.batch, before.query, merged([*left, *(places[number] for number in gone)]))


def _in_windows(reduce: Instruction, axes: Axes, places: Sequence[tuple[int, int]]) -> Axes:
    """The same for windows that stand side by side, as CPU text writes the first step of a reduce.

    Raises ValueError for windows that overlap or are padded.
    """
    window = parse_window(attribute_text(reduce, "window") or "")
    results = _numbers(reduce.shape_text)
    if len(results) != len(places) or tuple(window.stride) != tuple(window.size):
        raise ValueError("a window that slides")
    gone: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []
    for result, size, pad, (n, stride) in zip(
        results, window.size, window.pad, places, strict=True
    ):
        if result * size != n or pad != (0, 0):
            raise ValueError("a padded window")
        kept.append((result, stride * size))
        gone.append((size, stride))
    before = axes.through(kept)
    left = [pair for pair in before.key if pair[1]]
    return Axes(before.batch, before.query, merged([*left, *gone]))
