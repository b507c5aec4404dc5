"""Integers of a mask as positions: a number times the query, and times the key, and a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._attention_axes import Axes, Axis, moved, sizes_in
from hlo_lens_passes._attention_predicates import list_of

if TYPE_CHECKING:
    from hlo_lens.analysis.dataflow import Value
    from hlo_lens_passes._attention_values import Spot, Values

_MOST_DEPTH: Final = 24


@dataclass(frozen=True, slots=True)
class Linear:
    """by_query · query + by_key · key + start; start None: a number that is not known."""

    by_query: int = 0
    by_key: int = 0
    start: int | None = 0


def linear(values: Values, value: Value | None, axes: Axes, depth: int) -> Linear | None:
    """An integer as positions; None where it is none."""
    spot = None if value is None else values.at_or_before(value, axes)
    if spot is None or value is None or depth > _MOST_DEPTH:
        return None
    opcode = spot.instr.opcode
    if opcode == "iota":
        return iota(spot)
    if opcode == "constant":
        number = values.number(value, axes)
        if number is None:
            return _listed(spot)
        return Linear(start=int(number)) if number == int(number) else None
    if opcode in ("add", "subtract"):
        first, last = (linear(values, spot.operand(n), spot.axes, depth + 1) for n in (0, 1))
        if first is None or last is None:
            return None
        sign = 1 if opcode == "add" else -1
        known = first.start is not None and last.start is not None
        start = (first.start or 0) + sign * (last.start or 0) if known else None
        return Linear(
            first.by_query + sign * last.by_query, first.by_key + sign * last.by_key, start
        )
    if not any(stride for axis in spot.axes for _, stride in axis):
        return Linear(start=None)
    return None


def _listed(spot: Spot) -> Linear | None:
    """A constant that the text lists: numbers that go up by one, as folded from an iota."""
    numbers = list_of(spot)
    first = numbers[0] if numbers else None
    if numbers is None or not isinstance(first, int) or isinstance(first, bool):
        return None
    if numbers != [*range(first, first + len(numbers))]:
        return None
    sizes = sizes_in(spot.instr)
    along = [number for number, size in enumerate(sizes) if size > 1]
    if len(along) != 1:
        return None
    found = _counted_along(spot, [(size, int(size > 1)) for size in sizes])
    return None if found is None else Linear(found.by_query, found.by_key, first)


def iota(spot: Spot) -> Linear | None:
    sizes = sizes_in(spot.instr)
    try:
        along = spot.instr.int_attribute("iota_dimension")
    except ValueError:
        along = None
    if along is None or along >= len(sizes):
        return None
    counted = [(size, int(number == along)) for number, size in enumerate(sizes)]
    return _counted_along(spot, counted)


def _counted_along(spot: Spot, counted: Sequence[tuple[int, int]]) -> Linear | None:
    try:
        batch, query, key = (_step(moved(axis, counted)) for axis in spot.axes)
    except ValueError:
        return None
    if batch != 0 or query is None or key is None:
        return None
    return Linear(query, key)


def _step(axis: Axis) -> int | None:
    """What one step along an axis adds to an iota: 0 or 1. Groups of queries that stand at one
    position count for nothing."""
    steps = [pair for pair in axis if pair[1]]
    if not steps:
        return 0
    return 1 if len(steps) == 1 and steps[0][1] == 1 else None
