"""Numbers over rows: how many there are, or the sum, max or min of a column, by bounds.

A row counts once (`text`), as often as it runs in a step (`step`), or as often as it runs each time
the body of its loop does (`loop execution`), there each loop for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hlo_lens.check.selection import Selection
from hlo_lens.present.quantities import count_text, visible


class Number(NamedTuple):
    """A number by its bounds; high None: no bound is known."""

    low: float
    high: float | None

    def plus(self, other: Number) -> Number:
        if self.high is None or other.high is None:
            return Number(self.low + other.low, None)
        return Number(self.low + other.low, self.high + other.high)

    def times(self, other: Number) -> Number:
        if 0 in (self.high, other.high):  # none of it, or never
            return Number(0, 0)
        if self.high is None or other.high is None:
            return Number(self.low * other.low, None)
        return Number(self.low * other.low, self.high * other.high)

    def at_most(self) -> Number:
        """The bounds if it may also be that this is not there."""
        return Number(min(0, self.low), None if self.high is None else max(0, self.high))


class Counted(NamedTuple):
    """A number, the rows it is of, and where that is: "" or in an iteration of a loop. certain:
    whether there is something to count at all; where not, it cannot be against anything."""

    number: Number
    rows: Sequence[int]
    where: str = ""
    certain: bool = True


def counted(selection: Selection) -> tuple[list[Counted], str]:
    """The number of the text or step, or one of each loop; and what is left out, as a sentence.
    No number where no row is in a loop."""
    meant, perhaps = selection.meant, selection.perhaps
    if selection.expected.per != "loop execution":
        return [Counted(_number(selection, meant, perhaps), [*meant, *perhaps])], ""
    loops: dict[int, tuple[list[int], list[int]]] = {}
    outside: list[int] = []
    anywhere: list[int] = []  # in a computation that several places call
    for at, rows in enumerate((meant, perhaps)):
        for id in rows:
            row = selection.records[id]
            loop = row.get("loop")
            if isinstance(loop, int):
                loops.setdefault(loop, ([], []))[at].append(id)
            else:
                (outside if row.get("loop_depth") == 0 else anywhere).append(id)
    found = [
        Counted(
            _number(selection, rows[0], [*rows[1], *anywhere]),
            [*rows[0], *rows[1]],
            f" in an iteration of {visible(selection.module.instruction(loop).name)}",
            certain=bool(rows[0]),
        )
        for loop, rows in loops.items()
    ]
    if anywhere:
        where = " where it is not known in which loop"
        found.append(Counted(_number(selection, [], anywhere), anywhere, where, certain=False))
    left_out = f"{rows_text(len(outside))} in no loop left out" if outside else ""
    return found, left_out


def rows_text(count: int) -> str:
    return f"{count_text(count)} row{'' if count == 1 else 's'}"


def _number(selection: Selection, meant: Sequence[int], perhaps: Sequence[int]) -> Number:
    if selection.expected.quantity in ("max", "min"):
        return _extreme(selection, meant, perhaps)
    total = Number(0, 0)
    for id in meant:
        total = total.plus(added(selection, id))
    for id in perhaps:
        total = total.plus(added(selection, id).at_most())
    return total


def added(selection: Selection, id: int) -> Number:
    """What a row adds to a count or a sum: its value, as often as it counts."""
    return _value(selection, id).times(_runs(selection, id))


def _extreme(selection: Selection, meant: Sequence[int], perhaps: Sequence[int]) -> Number:
    """The max or min; a row that is only perhaps meant can push it one way."""
    sign = 1 if selection.expected.quantity == "max" else -1

    def bounds(rows: Sequence[int]) -> Iterator[tuple[float, float | None]]:
        """Of `sign` times each value."""
        for id in rows:
            value = selection.records[id][selection.expected.column or ""]
            known = isinstance(value, (int, float))
            yield (sign * value, sign * value) if known else (-_INF, None)  # type: ignore[operator]

    known, other = list(bounds(meant)), list(bounds(perhaps))
    low = max((low for low, _ in known), default=-_INF)
    highs = [high for _, high in (*known, *other)]
    high = _INF if not highs or None in highs else max(one for one in highs if one is not None)
    ends = sorted((sign * low, sign * high))
    return Number(ends[0], None if ends[1] == _INF else ends[1])


_INF = float("inf")


def _value(selection: Selection, id: int) -> Number:
    """What a row counts: 1, or the value of the column."""
    name = selection.expected.column
    if name is None:
        return Number(1, 1)
    value = selection.records[id][name]
    return Number(value, value) if isinstance(value, (int, float)) else Number(0, None)


def _runs(selection: Selection, id: int) -> Number:
    """How often a row counts, by `per`."""
    row = selection.records[id]
    if selection.expected.per == "text":
        return Number(1, 1)
    low, high = row.get("executions_min"), row.get("executions_max")
    least = low if isinstance(low, int) else 0
    most = high if isinstance(high, int) else None
    if selection.expected.per == "step":
        return Number(least, most)
    return _runs_an_iteration(selection, row, least, most)


def _runs_an_iteration(
    selection: Selection, row: Mapping[str, object], least: int, most: int | None
) -> Number:
    """How often it runs each time the body of its loop does."""
    loop, instr = row.get("loop"), row.get("instr")
    if not isinstance(loop, int) or not isinstance(instr, int):
        return Number(0, None)
    around = selection.loops.get(loop)
    if around is None or around.body is None:
        return Number(0, None)
    # A condition runs once more than its body; it counts as a part of each iteration.
    if selection.module.instruction(instr).computation in (around.body, around.condition):
        return Number(1, 1)
    runs = selection.facts.program.analysis(selection.module).executions(around.body).exact
    if not runs or least != most:
        return Number(0, None)
    often = least // runs if least % runs == 0 else least / runs
    return Number(often, often)
