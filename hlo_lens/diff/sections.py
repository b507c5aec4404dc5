"""The rows of a table that differ, in groups, and what differs of the table in sum.

Tables are known by their summaries only; one without a summary is shown by what its rows are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_lens.diff.model import Change, ChangedRow, Row, TableDiff
from hlo_lens.diff.values import ARROW, TOLD, Mark, Sides, change_text, texts_of
from hlo_lens.facts import COMMON, FINDINGS, Cell, Column, Measure, Summary, Table
from hlo_lens.present import page
from hlo_lens.present.cells import unit_text
from hlo_lens.present.groups import NO_LOOP, grouped, measured, total, total_runs, wanted
from hlo_lens.present.quantities import UNKNOWN, Bounds, bounds_text, count_text, exactly, visible


@dataclass(frozen=True, slots=True)
class Sum:
    """A measure that differs over all rows of a table; change and share are "" if not known."""

    label: str
    old: str
    new: str
    change: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Rows that differ in the same way: their cells, and what changed that is in no cell."""

    mark: Mark
    cells: tuple[str, ...]
    also: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one table that differ, in groups.

    sums: what differs of the table as a whole. left_out: how many rows differ that the summary of
    the table leaves out.
    """

    title: str
    about: str
    counts: str
    sums: tuple[Sum, ...]
    columns: tuple[page.Column, ...]
    lines: tuple[Line, ...]
    left_out: int


def section_of(sides: Sides, one: TableDiff, summary: Summary, *, whole: bool = False) -> Section:
    """What there is to say about the rows of one table that differ; `whole`: of each row all."""
    counts = ", ".join(
        f"{count_text(number)} {what}"
        for number, what in (
            (len(one.removed), "removed"),
            (len(one.added), "added"),
            (len(one.changed), "changed"),
            (one.unchanged, "unchanged"),
        )
        if number
    )
    if summary.heads:
        sums = tuple(_values(sides, one, whole))
        return Section(summary.title, summary.about, counts, sums, (), (), 0)
    lines, left_out = _Groups(sides, one, summary, whole).lines()
    sums = tuple(_sums(sides, one.table))
    columns, kept = _kept(summary, lines)
    return Section(summary.title, summary.about, counts, sums, columns, kept, left_out)


_SILENT = {UNKNOWN, NO_LOOP, ""}


def _kept(
    summary: Summary, lines: Sequence[Line]
) -> tuple[tuple[page.Column, ...], tuple[Line, ...]]:
    """The columns that say something of some line, and the cells of these."""
    columns = [page.Column(cell.heading, rigid=_is_loop(cell)) for cell in summary.by]
    columns += [page.Column(measure.label, right=True) for measure in summary.measures]
    columns += [page.Column("first"), page.Column("source", spare=True)]
    cells = list(zip(*(line.cells for line in lines), strict=True))
    kept = [at for at, column in enumerate(cells) if not set(column) <= _SILENT]
    for at in kept:
        if columns[at].right and any(ARROW in cell for cell in cells[at]):
            columns[at] = replace(columns[at], right=False)  # two numbers may need two lines
    return (
        tuple(columns[at] for at in kept),
        tuple(replace(line, cells=tuple(line.cells[at] for at in kept)) for line in lines),
    )


_LITTLE = frozenset(column.name for column in COMMON) - {"phase"}


def summary_of(table: Table) -> Summary:
    """How a table is shown; one without a summary, its rows by what they are."""
    if table.summary is not None:
        return table.summary
    if table == FINDINGS:  # in front of all others, and with what they say
        cells = (Cell("level"), Cell("rule"), Cell("message"))
        return Summary(table.name, -1, by=cells, measures=(Measure("findings", "rows"),))
    columns = [
        column
        for column in table.columns
        if column.role in ("identity", "structural")
        and column.type not in ("ref", "refs", "json")
        and column.name not in _LITTLE
    ]
    by = tuple(Cell(column.name) for column in columns) or (Cell("module"),)
    return Summary(table.name, 1000, by=by, measures=(Measure("rows", "rows"),))


# ---------------------------------------------------------------------------------- sums


def amounts(sides: Sides, table: Table) -> Iterator[tuple[Measure, Bounds | None, Bounds | None]]:
    """Each measure of all rows of a table that can be added up, of both sides."""
    summary = summary_of(table)
    old, new = sides.rows(table, summary)
    for measure in summary.measures:
        if measure.how != "each":
            yield measure, _amount(table, measure, old), _amount(table, measure, new)


def _sums(sides: Sides, table: Table) -> Iterator[Sum]:
    """The measures that differ over all rows."""
    for measure, old, new in amounts(sides, table):
        if old != new:
            column = None if measure.column is None else table.column(measure.column)
            text = count_text if column is None or measure.how == "true" else unit_text(column)
            yield _sum(measure.label, old, new, text)


def _amount(table: Table, measure: Measure, rows: Sequence[Row]) -> Bounds | None:
    """A measure of all rows; of no rows, 0."""
    if measure.how == "rows" or not rows:
        return exactly(len(rows))
    if measure.how == "executions":
        return total_runs(table, rows)
    if measure.how == "true":
        assert measure.column is not None
        at = table.position(measure.column)
        return exactly(sum(bool(row[at]) for row in rows))
    return total(table, measure, rows)


def _sum(label: str, old: Bounds | None, new: Bounds | None, text: Callable[[int], str]) -> Sum:
    before, after = (UNKNOWN if one is None else bounds_text(one, text) for one in (old, new))
    if old is None or new is None or not (old.is_exact and new.is_exact):
        return Sum(label, before, after)
    difference = new.low - old.low
    sign = "+" if difference > 0 else "−"
    share = abs(difference) / abs(old.low) if old.low else None
    percent = "" if share is None else f"{sign}{share:.{1 if share < 0.01 else 0}%}"
    return Sum(label, before, after, f"{sign}{text(abs(difference))}", percent)


def _values(sides: Sides, one: TableDiff, whole: bool) -> Iterator[Sum]:
    """What differs in the rows of a table that are shown by themselves."""
    for row in one.changed:
        for change in row.changes:
            label = change.column.name.replace("_", " ")
            numbers = isinstance(change.old, int) and isinstance(change.new, int)
            if numbers and change.column.role == "measure":
                old, new = exactly(change.old), exactly(change.new)  # type: ignore[arg-type]
                yield _sum(label, old, new, unit_text(change.column))
            else:
                yield Sum(label, *texts_of(sides, change, whole=whole))


# ---------------------------------------------------------------------------------- groups

_OF_LOOP = frozenset(("loop_depth",))
_RUNS = ("executions", "executions_min", "executions_max")


def _is_loop(cell: Cell) -> bool:
    return cell.columns == ("loop",)


class _Groups:
    """The rows of one table that differ, as lines."""

    def __init__(self, sides: Sides, one: TableDiff, summary: Summary, whole: bool) -> None:
        self.sides, self.one, self.table, self.summary = sides, one, one.table, summary
        self.whole = whole
        self.shown = {name for cell in summary.by for name in cell.columns}
        for measure in summary.measures:
            self.shown.update(filter(None, (measure.column, measure.at_most)))
            if measure.how in ("executions", "per_step"):
                self.shown.update(_RUNS)

    def lines(self) -> tuple[list[Line], int]:
        """The lines, and how many rows the summary leaves out."""
        one = self.one
        removed, added = self._wanted(one.removed), self._wanted(one.added)
        both = [row for row in one.changed if self._wanted((row.old, row.new))]
        left_out = len(one.removed) + len(one.added) + len(one.changed)
        left_out -= len(removed) + len(added) + len(both)
        lines = [*self._one_sided("−", 0, removed), *self._one_sided("+", 1, added)]
        lines += self._changed(both)
        loop = next((at for at, cell in enumerate(self.summary.by) if _is_loop(cell)), None)
        if loop is not None:
            lines.sort(key=lambda line: self.sides.loop_place(line.cells[loop]))
        return lines, left_out

    def _wanted(self, rows: Iterable[Row]) -> list[Row]:
        return wanted(self.table, rows, self.summary.skip, self.summary.only)

    def _one_sided(self, mark: Mark, at: int, rows: Sequence[Row]) -> Iterator[Line]:
        for group in grouped(self.sides.cells[at], self.table, self.summary, rows):
            keys = group.keys if at else map(self._renamed, self.summary.by, group.keys)
            yield Line(mark, (*keys, *group.measures, *self._first(group.rows)))

    def _renamed(self, cell: Cell, key: str) -> str:
        return self.sides.as_new(key) if _is_loop(cell) else key

    def _changed(self, rows: Sequence[ChangedRow]) -> Iterator[Line]:
        """Rows that change in the same way, in the groups of the new side."""
        alike: defaultdict[tuple[tuple[str | None, ...], object], list[ChangedRow]]
        alike = defaultdict(list)
        for row in rows:
            alike[self._keys_before(row), self._how(row)].append(row)
        for (before, _), members in alike.items():
            partners = {id(row.new): row for row in members}
            news = [row.new for row in members]
            for group in grouped(self.sides.cells[1], self.table, self.summary, news):
                both = [partners[id(row)] for row in group.rows]
                yield self._changed_line(before, group.keys, both)

    def _changed_line(
        self, before: Sequence[str | None], keys: Sequence[str], rows: Sequence[ChangedRow]
    ) -> Line:
        old, new = [row.old for row in rows], [row.new for row in rows]
        numbers = [measured(self.table, self.summary, each) for each in (old, new)]
        cells = [_arrow(*pair) for pair in zip(before, keys, strict=True)]
        cells += [_arrow(*pair) for pair in zip(*numbers, strict=True)]
        also = self._also(rows)
        if not also and not any(ARROW in cell for cell in cells):
            also = self._told([rows[0].changes])  # what is shown reads the same
        return Line("~", (*cells, *self._first(new)), also)

    def _keys_before(self, row: ChangedRow) -> tuple[str | None, ...]:
        """What the row was grouped by on the old side, where that has changed."""
        names = {change.column.name for change in row.changes}
        if row.moved is not None:
            names.add("loop")
        return tuple(
            self._key_text(cell, row.old) if names.intersection(cell.columns) else None
            for cell in self.summary.by
        )

    def _key_text(self, cell: Cell, row: Row) -> str:
        text = self.sides.cells[0].reader(self.table, cell)(row)
        if _is_loop(cell):
            return NO_LOOP if text is None else self.sides.as_new(text)
        return text or UNKNOWN

    def _how(self, row: ChangedRow) -> object:
        """In what way a row changes, apart from its keys: numbers by their columns alone."""
        moved = "loop" not in self.shown and row.moved is not None
        return moved, tuple(
            (
                change.column.name,
                None if _is_number(change.column) else self._text(change),
            )
            for change in self._unshown(row)
        )

    def _unshown(self, row: ChangedRow) -> Sequence[Change]:
        """The changes that no cell shows, without what only repeats another: a bound that is the
        number, the depth of another loop."""
        shown = self.shown if row.moved is None else self.shown | _OF_LOOP
        changes = {
            change.column.name: change for change in row.changes if change.column.name not in shown
        }
        return [
            change
            for name, change in changes.items()
            if (whole := changes.get(name.rpartition("_")[0])) is None
            or (whole.old, whole.new) != (change.old, change.new)
        ]

    def _also(self, rows: Sequence[ChangedRow]) -> str:
        """What changes in all of the rows and is in no cell."""
        told = self._told([self._unshown(row) for row in rows])
        moves = [row.moved for row in rows if row.moved is not None]
        if not moves or "loop" in self.shown:
            return told
        loops = (self.sides.loop_text(0, moves[0].old), self.sides.loop_text(1, moves[0].new))
        return "; ".join(filter(None, (told, f"loop {ARROW.join(loops)}")))

    def _told(self, rows: Sequence[Sequence[Change]]) -> str:
        """The same columns change in all of the rows: each by its value, or their range."""
        # Numbers often follow from what the row is.
        columns = sorted(zip(*rows, strict=True), key=lambda each: each[0].column.role == "measure")
        told = []
        for changes in columns if self.whole else columns[:TOLD]:
            texts = [self._text(change) for change in changes]
            first = texts[0]
            if any(each != first for each in texts):
                first = ARROW.join(_range(self.sides, changes))
            told.append(f"{changes[0].column.name.replace('_', ' ')} {first}")
        if len(columns) > len(told):
            told.append(f"and {len(columns) - len(told)} more")
        return "; ".join(told)

    def _text(self, change: Change) -> str:
        return change_text(self.sides, change, whole=self.whole)

    def _first(self, rows: Sequence[Row]) -> tuple[str, str]:
        """The first of the rows by its name, and by the file and line of its source."""
        first = self.one.record(rows[0])
        source = str(first.get("source") or "").rpartition("/")[2]
        return visible(str(first.get("name") or "")), visible(source)


def _is_number(column: Column) -> bool:
    return column.role == "measure" and column.type in ("int", "float", "bytes", "flops")


def _range(sides: Sides, changes: Sequence[Change]) -> tuple[str, str]:
    """The least and the largest value of a column on each side; NULL is no number."""
    column, ranges = changes[0].column, []
    for at, values in enumerate(zip(*((one.old, one.new) for one in changes), strict=True)):
        known = [value for value in values if isinstance(value, (int, float))]
        ends = [
            sides.cells[at].text(column, value, sides.modules[at])
            for value in ((min(known), max(known)) if known else (None,))
        ]
        ranges.append(" – ".join(dict.fromkeys(ends)))
    return ranges[0], ranges[1]


def _arrow(old: str | None, new: str) -> str:
    return new if old is None or old == new else f"{old}{ARROW}{new}"
