"""What a comparison says, before it is laid out: headline, sums that differ, groups of rows, loops.

It knows tables by their summaries only; one without a summary is shown by what its rows are.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hlo_lens.analysis import Loop
from hlo_lens.diff.changes import changed
from hlo_lens.diff.model import (
    BodyDelta,
    Change,
    ChangedRow,
    Count,
    Matching,
    ProgramDiff,
    Row,
    StageDiff,
    TableDiff,
)
from hlo_lens.diff.parting import differs_at
from hlo_lens.facts import COMMON, FINDINGS, Cell, Measure, Summary, Table
from hlo_lens.present import page
from hlo_lens.present.cells import Cells, loop_text, trips_text, unit_text
from hlo_lens.present.groups import NO_LOOP, grouped, measured, total, total_runs, wanted
from hlo_lens.present.quantities import UNKNOWN, Bounds, bounds_text, count_text, exactly, visible
from hlo_lens.program import Program

_BOOKKEEPING = frozenset(("parameter", "tuple", "get-tuple-element", "bitcast", "while"))
_OPCODES = 8  # that are named of what is no work
_TOLD = 3  # things that are told of one row
_CELL = 40  # characters of a value of an instruction

Mark = Literal["−", "+", "~"]
"""What the old side alone has, what the new side alone has, and what both have, changed."""

ARROW = " → "

_WORK = (
    "dot", "convolution", "ragged-dot", "scaled-dot", "custom-call", "all-gather", "all-reduce",
    "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
    "collective-broadcast", "send", "recv", "async", "while", "conditional", "opt-barrier", "sort",
    "scatter", "gather",
)  # fmt: skip
"""Opcodes that are shown of what differs in a loop, in this order, before all others."""


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


@dataclass(frozen=True, slots=True)
class InstructionLine:
    """Instructions of both sides that differ in the same things. old, new: what the first of them
    has on either side; `source` is its file and line."""

    opcode: str
    number: str
    what: str
    old: str
    new: str
    first: str
    source: str


@dataclass(frozen=True, slots=True)
class Body:
    """What one iteration of two loops, or of several pairs of loops alike, has more or less of.

    others: what is no kernel, collective or matmul, which is shown when all is shown; rest: the
    same by opcode, in one line.
    """

    mark: Mark
    title: str
    counts: str
    work: tuple[Count, ...]
    others: tuple[Count, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage. same: titles of the tables in which nothing differs, with the number of rows."""

    stage: str
    counts: str
    sections: tuple[Section, ...]
    instructions: tuple[InstructionLine, ...]
    bodies: tuple[Body, ...]
    same: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiffReport:
    """All that is said about two programs; the stage that runs is the first of `stages`."""

    same: bool
    headline: str
    old: str
    new: str
    stages: tuple[StageReport, ...]
    notes: tuple[str, ...]


def report(diff: ProgramDiff) -> DiffReport:
    """What there is to say about a comparison."""
    main = diff.main
    stages = sorted(diff.stages, key=lambda stage: stage is not main)
    return DiffReport(
        diff.same,
        _headline(diff),
        side(diff.old.program, [stage.old for stage in diff.stages]),
        side(diff.new.program, [stage.new for stage in diff.stages]),
        tuple(_stage(diff, stage) for stage in stages),
        tuple(_notes(diff)),
    )


def side(program: Program, modules: Sequence[int]) -> str:
    """A side by its name and file; by the folder where it has several."""
    files = list(dict.fromkeys(program.modules[at].filename or "" for at in modules))
    folders = {os.path.dirname(file) for file in files}
    if len(files) > 1 and len(folders) == 1 and folders != {""}:
        files = [os.path.join(*folders, "")]
    return visible("  ".join(filter(None, (program.name, *files))))


def _headline(diff: ProgramDiff) -> str:
    tables = [table for stage in diff.stages for table in stage.tables]
    same = sum(table.unchanged for table in tables)
    differ: Counter[str] = Counter()
    for table in tables:
        differ[title(table.table)] += len(table.added) + len(table.removed) + len(table.changed)
    compared = len(differ)
    differ["instructions"] = sum(
        len(matching.changed) + len(matching.only_old) + len(matching.only_new)
        for matching in (stage.matching for stage in diff.stages if stage.instructions_count)
    )
    apart = [f"{name} {count_text(number)}" for name, number in differ.items() if number]
    rows = f"{count_text(same)} row{'' if same == 1 else 's'}"
    if not apart:
        return f"same: {rows} of {compared} tables"
    return f"different: {', '.join(apart)}; {rows} the same"


def _notes(diff: ProgramDiff) -> Iterator[str]:
    for name, stages in (("old", diff.only_old), ("new", diff.only_new)):
        if stages:
            yield f"not compared, on the {name} side only: {', '.join(map(visible, stages))}"
    for name, facts in (("old", diff.old), ("new", diff.new)):
        if any(module.truncated for module in facts.program.modules):
            yield f"the {name} text is cut off: what is behind the cut counts as not there"


def title(table: Table) -> str:
    """What the rows of a table are called."""
    return table.name if table.summary is None else table.summary.title


# ---------------------------------------------------------------------------------- a stage


def _stage(diff: ProgramDiff, stage: StageDiff) -> StageReport:
    summaries = {one.table.name: one.table.summary or _plain(one.table) for one in stage.tables}
    tables = sorted(stage.tables, key=lambda one: (summaries[one.table.name].order, one.table.name))
    views = _Sides(diff, stage)
    matching = stage.matching
    counts = f"{count_text(matching.matched - len(matching.changed))} instructions the same"
    for what, number in (
        ("changed", len(matching.changed)),
        ("only in old", len(matching.only_old)),
        ("only in new", len(matching.only_new)),
    ):
        if number:
            counts += f", {count_text(number)} {what}"
    instructions = stage.instructions_count
    names = dict.fromkeys((diff.old.program.stages[stage.old], diff.new.program.stages[stage.new]))
    return StageReport(
        ARROW.join(names),
        counts,
        tuple(_section(views, one, summaries[one.table.name]) for one in tables if not one.same),
        tuple(_instructions(matching)) if instructions else (),
        tuple(_bodies([each for each in stage.bodies if not each.same])) if instructions else (),
        tuple(
            f"{summaries[one.table.name].title} {count_text(one.unchanged)}"
            for one in tables
            if one.same and one.unchanged
        ),
    )


_LITTLE = frozenset(column.name for column in COMMON) - {"phase"}


def _plain(table: Table) -> Summary:
    """How a table without a summary is shown: its rows by what they are."""
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


class _Sides:
    """Both sides of a stage: the rows of their modules, and what reads their cells."""

    def __init__(self, diff: ProgramDiff, stage: StageDiff) -> None:
        self.diff, self.stage = diff, stage
        self.facts = diff.old, diff.new
        self.modules = stage.old, stage.new
        self.cells = Cells(diff.old.program), Cells(diff.new.program)
        self._new_names = self._matched_loops(stage)
        self._new = {
            loop_text(loop): id for id, loop in self.cells[1].loops(stage.new).by_id.items()
        }

    def _matched_loops(self, stage: StageDiff) -> dict[str, str]:
        """How a loop of the old side reads, and how the one that is matched with it does."""
        old, new = (
            cells.loops(module).by_id
            for cells, module in zip(self.cells, self.modules, strict=True)
        )
        partners = {id: stage.matching.to_new[id] for id in old}
        return {
            loop_text(old[id]): loop_text(new[partner])
            for id, partner in partners.items()
            if partner is not None and partner in new
        }

    def as_new(self, text: str) -> str:
        """Loops of the old side, `while.3 ×4 › while.7 ×8`, by the names of the new side."""
        return " › ".join(map(self._as_new, text.split(" › ")))

    def _as_new(self, name: str) -> str:
        if name in self._new_names:
            return self._new_names[name]
        return f"{name} of old" if name in self._new else name

    def loop_text(self, at: int, loop: Loop | None) -> str:
        """A loop and those around it; "no loop" for None."""
        if loop is None:
            return NO_LOOP
        text = self.cells[at].loops(self.modules[at]).text(loop.instr.id)
        return text if at else self.as_new(text)

    def loop_place(self, text: str) -> tuple[int, int]:
        """Where the loop of a cell stands on the new side; what is in no loop of it, behind all."""
        outermost = text.rpartition(ARROW)[2].split(" › ")[0]
        return (0, self._new[outermost]) if outermost in self._new else (1, 0)

    def rows(self, table: Table, summary: Summary) -> tuple[list[Row], list[Row]]:
        """The rows that the summary shows, of the module of each side."""
        at = table.position("module")
        old, new = (
            [row for row in facts.rows(table.name) if row[at] == module]
            for facts, module in zip(self.facts, self.modules, strict=True)
        )
        skip, only = summary.skip, summary.only
        return wanted(table, old, skip, only), wanted(table, new, skip, only)


def _section(sides: _Sides, one: TableDiff, summary: Summary) -> Section:
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
        sums = tuple(_values(sides, one))
        return Section(summary.title, summary.about, counts, sums, (), (), 0)
    lines, left_out = _Groups(sides, one, summary).lines()
    sums = tuple(_sums(sides.diff, sides.stage, one.table))
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


# ---------------------------------------------------------------------------------- sums


def amounts(
    diff: ProgramDiff, stage: StageDiff, table: Table
) -> Iterator[tuple[Measure, Bounds | None, Bounds | None]]:
    """Each measure of all rows of a table that can be added up, of both sides."""
    summary = table.summary or _plain(table)
    old, new = _Sides(diff, stage).rows(table, summary)
    for measure in summary.measures:
        if measure.how != "each":
            yield measure, _amount(table, measure, old), _amount(table, measure, new)


def _sums(diff: ProgramDiff, stage: StageDiff, table: Table) -> Iterator[Sum]:
    """The measures that differ over all rows."""
    for measure, old, new in amounts(diff, stage, table):
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


def _values(sides: _Sides, one: TableDiff) -> Iterator[Sum]:
    """What differs in the rows of a table that are shown by themselves."""
    for row in one.changed:
        for change in row.changes:
            label = change.column.name.replace("_", " ")
            numbers = isinstance(change.old, int) and isinstance(change.new, int)
            if numbers and change.column.role == "measure":
                old, new = exactly(change.old), exactly(change.new)  # type: ignore[arg-type]
                yield _sum(label, old, new, unit_text(change.column))
            else:
                yield Sum(label, *_texts(sides, change))


def _texts(sides: _Sides, change: Change) -> tuple[str, str]:
    """A value on both sides; of lists and mappings, what differs in them."""
    if change.column.type in ("json", "refs"):
        return _differing(change.old, change.new)
    old, new = (
        cells.text(change.column, value, module)
        for cells, value, module in zip(
            sides.cells, (change.old, change.new), sides.modules, strict=True
        )
    )
    if old == new:  # too close to tell apart as they are shown
        return _exact(change.old), _exact(change.new)
    return old, new


def _exact(value: object) -> str:
    return count_text(value) if isinstance(value, int) else visible(str(value))


def _differing(old: object, new: object) -> tuple[str, str]:
    """What differs in two lists or mappings; of lists of another length, the length."""
    one, other = _data(old), _data(new)
    if isinstance(one, list) and isinstance(other, list) and len(one) != len(other):
        return count_text(len(one)), f"{count_text(len(other))} entries"
    apart = [*_leaves("", one, other)]
    texts = [
        ", ".join(f"{name} {_data_text(pair[at])}".strip() for name, *pair in apart[:_TOLD])
        for at in (0, 1)
    ]
    if len(apart) > _TOLD:
        texts[1] += f" and {len(apart) - _TOLD} more"
    return texts[0], texts[1]


def _leaves(name: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """The innermost places where two values differ, by the key that leads there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                yield from _leaves(key, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            if one != other:
                yield from _leaves(name, one, other)
    else:
        yield name, old, new


def _data(value: object) -> object:
    if isinstance(value, str):
        return json.loads(value)
    return list(value) if isinstance(value, tuple) else value


def _data_text(value: object) -> str:
    """Data without what JSON needs and a reader does not."""
    if value is None:
        return UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{visible(key)} {_data_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_data_text, value))
    return visible(str(value))


# ---------------------------------------------------------------------------------- groups

_OF_LOOP = frozenset(("loop_depth", "trips_kind"))
_RUNS = ("executions", "executions_min", "executions_max")


def _is_loop(cell: Cell) -> bool:
    return cell.columns == ("loop",)


class _Groups:
    """The rows of one table that differ, as lines."""

    def __init__(self, sides: _Sides, one: TableDiff, summary: Summary) -> None:
        self.sides, self.one, self.table, self.summary = sides, one, one.table, summary
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
            also = self._told([row.changes for row in rows])  # what is shown reads the same
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
                None if change.column.role == "measure" else _texts(self.sides, change),
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
        for changes in columns[:_TOLD]:
            texts = [_texts(self.sides, change) for change in changes]
            first = texts[0]
            if any(each != first for each in texts):
                first = _range(self.sides, changes)
            told.append(f"{changes[0].column.name.replace('_', ' ')} {ARROW.join(first)}")
        if len(columns) > _TOLD:
            told.append(f"and {len(columns) - _TOLD} more")
        return "; ".join(told)

    def _first(self, rows: Sequence[Row]) -> tuple[str, str]:
        """The first of the rows by its name, and by the file and line of its source."""
        first = self.one.record(rows[0])
        source = str(first.get("source") or "").rpartition("/")[2]
        return visible(str(first.get("name") or "")), visible(source)


def _range(sides: _Sides, changes: Sequence[Change]) -> tuple[str, str]:
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


# ---------------------------------------------------------------------------------- instructions


def _instructions(matching: Matching) -> Iterator[InstructionLine]:
    """Instructions that changed, those that do some work first."""
    groups = changed(matching)
    groups.sort(key=lambda each: (each.opcode in _BOOKKEEPING, _place(each.opcode)))
    for group in groups:
        first, *_ = group.aspects
        old, new = _parts(first.old, first.new)
        yield InstructionLine(
            visible(group.opcode),
            count_text(group.number),
            visible(", ".join(aspect.what for aspect in group.aspects)),
            old,
            new,
            visible(group.new.name),
            visible((group.new.source or "").rpartition("/")[2]),
        )


def _parts(old: str, new: str) -> tuple[str, str]:
    """Two texts where they are not the same, cut to what a line holds."""
    start = differs_at(old, new)
    return _part(old, start), _part(new, start)


def _part(text: str, start: int) -> str:
    if len(text) <= _CELL:
        return visible(text)
    start = max(0, min(start - _CELL // 3, len(text) - _CELL))
    piece = text[start : start + _CELL]
    return f"{'…' if start else ''}{visible(piece)}{'…' if start + _CELL < len(text) else ''}"


# ---------------------------------------------------------------------------------- loops


def _bodies(deltas: Iterable[BodyDelta]) -> Iterator[Body]:
    """The bodies, those that differ in the same way as one."""
    alike: defaultdict[object, list[BodyDelta]] = defaultdict(list)
    for delta in deltas:
        trips = tuple(loop and trips_text(loop) for loop in (delta.old, delta.new))
        alike[delta.outside, trips, delta.counts].append(delta)
    return (_body(group[0], len(group)) for group in alike.values())


def _body(delta: BodyDelta, loops: int) -> Body:
    more = sum(max(count.new - count.old, 0) for count in delta.counts)
    fewer = sum(max(count.old - count.new, 0) for count in delta.counts)
    counts = [
        f"{count_text(number)} {what}"
        for number, what in ((fewer, "fewer"), (more, "more"), (delta.unchanged, "unchanged"))
        if number
    ]
    mark: Mark = "~"
    if not delta.outside:
        mark = "+" if delta.old is None else "−" if delta.new is None else "~"
    ordered = sorted(delta.counts, key=_weight)
    work = tuple(count for count in ordered if _place(count.opcode) < len(_WORK))
    others = tuple(count for count in ordered if _place(count.opcode) == len(_WORK))
    title = _loops_text(delta.old, delta.new)
    if loops > 1:
        title += f" and {count_text(loops - 1)} more like it"
    return Body(mark, title, ", ".join(counts), work, others, _rest(others))


def _loops_text(old: Loop | None, new: Loop | None) -> str:
    texts = [loop_text(loop) for loop in (old, new) if loop is not None]
    return ARROW.join(dict.fromkeys(texts)) or "outside of loops"


def _place(opcode: str) -> int:
    opcode = opcode.removesuffix("-start")
    return _WORK.index(opcode) if opcode in _WORK else len(_WORK)


def _weight(count: Count) -> tuple[int, int, str, str]:
    """The work that takes time first, then what differs most."""
    return _place(count.opcode), -abs(count.new - count.old), count.opcode, count.shape


def _rest(counts: Iterable[Count]) -> str:
    """How many more and fewer there are of each opcode: `fusion +2 −1, copy −1`."""
    more: Counter[str] = Counter()
    fewer: Counter[str] = Counter()
    for count in counts:
        more[count.opcode] += max(count.new - count.old, 0)
        fewer[count.opcode] += max(count.old - count.new, 0)
    texts = []
    for opcode in sorted(more, key=lambda opcode: (-more[opcode] - fewer[opcode], opcode)):
        signs = (("+", more[opcode]), ("−", fewer[opcode]))
        numbers = [f"{sign}{count_text(number)}" for sign, number in signs if number]
        texts.append(" ".join((visible(opcode), *numbers)))
    if len(texts) > _OPCODES:
        texts[_OPCODES:] = [f"{len(texts) - _OPCODES} more opcodes"]
    return ", ".join(texts)
