"""How a table is presented, as data: what a view shows of its rows, groups by and adds up.

A view (report, tree, …) reads this and names no table, so a new pass is shown without a line in any
of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Literal

LaneName = Literal["communication", "compute"]
How = Literal["rows", "executions", "each", "once", "per_step", "true"]

HOW_DOCS: dict[How, str] = {
    "rows": "number of rows",
    "executions": "sum of their executions, in one execution of the entry",
    "each": "the value, or its range where the rows differ",
    "once": "sum over the rows, each counted once",
    "per_step": "sum of value × executions: of one execution of the entry",
    "true": "number of rows of which it holds",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown of a row: a column (`"phase"`), or a text with columns in braces.

    `"{m}×{n}×{k}"` puts in each value by its column's type; `"{share:.0%}"` by Python's format of
    numbers. A cell whose columns are all NULL is empty. `label` heads it; without one, the text
    does. `words` are what a bool reads as where it is true and where it is false; "" shows nothing.
    `names` are what some values read as, as (value, text): a word of the data that people know by
    another. A cell is empty, too, where all it shows are values of `blank`; with `merged`, values
    that are all the same are shown as one, without the text around them.
    """

    text: str
    label: str = ""
    words: tuple[str, str] | None = None
    blank: tuple[object, ...] = ()
    merged: bool = False
    names: tuple[tuple[object, str], ...] = ()

    @property
    def parts(self) -> tuple[tuple[str, str | None, str], ...]:
        """The text taken apart: (literal, the column behind it or None, its format)."""
        return _parts(self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it shows."""
        return tuple(column for _, column, _ in self.parts if column is not None)

    @property
    def heading(self) -> str:
        """What stands above it."""
        return self.label or self.text.replace("_", " ")


@lru_cache(maxsize=1 << 10)
def _parts(text: str) -> tuple[tuple[str, str | None, str], ...]:
    if text.isidentifier():
        return (("", text, ""),)
    parts = Formatter().parse(text)
    return tuple((literal, column, spec or "") for literal, column, spec, _ in parts)


@dataclass(frozen=True, slots=True)
class Measure:
    """A number shown for each group of rows; `HOW_DOCS` says what each `how` gives.

    Where a value is NULL, `at_most` names a column with an upper bound of it. Sums over rows whose
    value or executions are not known are bounds.
    """

    label: str
    how: How
    column: str | None = None
    at_most: str | None = None

    def __post_init__(self) -> None:
        if self.how not in HOW_DOCS:
            raise ValueError(f"measure {self.label}: unknown sum {self.how!r}")
        if (self.column is None) != (self.how in ("rows", "executions")):
            raise ValueError(f"measure {self.label}: {self.how} takes a column or takes none")


@dataclass(frozen=True, slots=True)
class Lane:
    """How the rows stand in the execution skeleton, one line each, beside the instruction's name.

    `line`: the cells of a line, the kind of work first; empty ones are left out. `details` are
    shown when asked for. `total`: a `per_step` measure, added up over lines, loops, the program.
    `skip`: rows that are left out, as (column, values) of which one holds.
    """

    name: LaneName
    line: tuple[Cell, ...]
    details: tuple[Cell, ...] = ()
    total: Measure | None = None
    skip: tuple[tuple[str, tuple[object, ...]], ...] = ()

    def __post_init__(self) -> None:
        if not self.line:
            raise ValueError(f"lane {self.name}: a line shows at least the kind of work")
        if self.total is not None and self.total.how != "per_step":
            raise ValueError(f"lane {self.name}: its total is of a step")


@dataclass(frozen=True, slots=True)
class Summary:
    """How a report shows a table.

    title: what the rows are, in the plural. order: sections stand by it, and where two tables have
    a row about one instruction, the skeleton shows that of the lower. about: what a reader must
    know of the numbers. none: the line where there are no rows; without one nothing is said.

    by: the cells rows are grouped by, in order. measures: the numbers of a group.
    unknown: what tells rows apart whose numbers are not known, for the note under their sums.
    heads: instead of these, a heading for each row: its first cell the name, its second what stands
    beside that, the rest below.
    skip: rows that are left out, as (column, values) of which one holds. only: what holds of every
    row that is shown and counted, in the same form; NULL is the value None.
    held: the columns that a starting expectation file tells rows apart by, the weightiest first, no
    name among them; () for the enums and bools of `by`, and how deep in loops a row stands.
    """

    title: str
    order: int
    about: str = ""
    none: str | None = None
    by: tuple[Cell, ...] = ()
    measures: tuple[Measure, ...] = ()
    unknown: tuple[Cell, ...] = ()
    heads: tuple[Cell, ...] = ()
    lane: Lane | None = None
    skip: tuple[tuple[str, tuple[object, ...]], ...] = ()
    only: tuple[tuple[str, tuple[object, ...]], ...] = ()
    held: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.heads) == bool(self.by):
            raise ValueError(f"summary {self.title}: it has either heads or groups")

    def columns(self) -> Iterator[str]:
        """Every column that is named anywhere in it."""
        lane = self.lane
        cells = [*self.by, *self.unknown, *self.heads]
        measures = list(self.measures)
        tests = [*self.skip, *self.only]
        if lane is not None:
            cells += [*lane.line, *lane.details]
            measures += [lane.total] if lane.total is not None else []
            tests += lane.skip
        for cell in cells:
            yield from cell.columns
        for measure in measures:
            yield from filter(None, (measure.column, measure.at_most))
        for column, _ in tests:
            yield column
        yield from self.held
        if lane is not None:
            yield from ("instr", "name", "phase", "source")
        if lane is not None or any(one.how in ("executions", "per_step") for one in measures):
            yield from ("executions", "executions_min", "executions_max")
