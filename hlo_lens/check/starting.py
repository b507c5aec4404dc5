"""What to expect of a good program: its tables in the groups that their summaries name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.check.judging import judge
from hlo_lens.check.reading import HERE, expectation, presets
from hlo_lens.check.starting_words import (
    Given,
    at_most,
    condition,
    given,
    in_order,
    in_short,
    in_words,
    none_of,
    none_text,
    title,
)
from hlo_lens.facts import Column, Facts, Measure, Table
from hlo_lens.files import InputError
from hlo_lens.present.cells import Row
from hlo_lens.present.groups import measure_text, total, wanted
from hlo_lens.present.quantities import count_text
from hlo_lens.present.reading import NotReadError, not_read

_ENOUGH: Final = 40
"""Expectations that a person still reads; where there are more, groups are made larger."""

_MOST_GROUPS: Final = (14, 8, 6)
"""Groups of a table that are told apart by all columns at once; more, by fewer columns."""

_TOGETHER: Final = 3
"""Columns that are looked at together also where there are many expectations: what, when, where."""

_MOST_WORDS: Final = 10
"""Values of a column that can be listed."""


@dataclass(frozen=True, slots=True)
class Section:
    """What is expected of the rows of one table, and what is not, with the reason."""

    title: str
    expected: tuple[Given, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Starting:
    """What a good program is expected to stay; all of it holds for the program it was made from.

    stage: of the module it is about. named: whether the text has op_names, and so phases.
    """

    program: str
    stage: str
    named: bool
    sections: tuple[Section, ...]


def starting(facts: Facts, tables: Sequence[str] = ()) -> Starting:
    """What to expect of the program of `facts`, in these tables or in all that a report shows.

    Of each table: what all rows have in common, how many rows there are of each group, that there
    are no others, and that no sum grows. What cannot be judged on this very program (how often a
    loop runs, NULL) is left out. The presets that hold come first.

    Raises `InputError` for a text that is cut off and where nothing can be expected,
    `NotReadError` where a pass failed, and `UnknownTableError`.
    """
    program = facts.program
    file = program.main.filename or program.name
    module = _module(facts)
    if module["truncated"]:
        raise InputError(file, "the text is cut off: what stands behind the cut is not known")
    chosen = [facts.table(name) for name in dict.fromkeys(tables)]
    wanted = _enough(facts, chosen or _shown(facts), asked=bool(chosen))
    sections = [] if chosen else [_that_hold(facts)]
    sections += [_section(facts, table, given) for table, given in wanted]
    kept = tuple(one for one in sections if one.expected or one.left_out)
    if not any(one.expected for one in kept):
        raise InputError(file, "these tables have nothing here that could be expected to stay")
    return Starting(program.name, program.stages[_main(facts)], bool(module["has_metadata"]), kept)


def _main(facts: Facts) -> int:
    return facts.program.index(facts.program.main)


def _module(facts: Facts) -> dict[str, object]:
    """The row of the module that runs."""
    return facts.records_by_module("modules")[_main(facts)][0]


def _shown(facts: Facts) -> list[Table]:
    """The tables that a report shows, where rows are told apart by more than where they stand."""
    found = [one for one in facts.tables if one.summary is not None]
    return [one for one in sorted(found, key=_place) if {*_held(one)} - {"loop_depth"}]


def _that_hold(facts: Facts) -> Section:
    """The presets that hold, of tables that have rows here."""
    held: list[Given] = []
    for name in (one.name for one in presets().values() if one.complete):
        one = expectation({"preset": name}, HERE, facts.registry)
        if _rows(facts, facts.table(one.table)) and judge(facts, [one])[0].outcome == "passed":
            held.append({"preset": name})
    return Section("presets that hold here", tuple(held))


def _enough(
    facts: Facts, tables: Sequence[Table], *, asked: bool
) -> list[tuple[Table, list[Given]]]:
    """What can be expected of each table, in groups so small that there are not too many."""
    for table in tables:
        if (problem := not_read(facts, table.name)) is not None:
            raise NotReadError(problem)
    for most in _MOST_GROUPS:
        found = [(table, list(_expected(facts, table, most, asked))) for table in tables]
        if asked or sum(len(given) for _, given in found) <= _ENOUGH:
            break
    return found


def _section(facts: Facts, table: Table, wanted: Sequence[Given]) -> Section:
    """What is expected of one table; what its own program cannot be judged by is left out."""
    verdicts = judge(facts, [expectation(one, HERE, facts.registry) for one in wanted])
    kept: list[Given] = []
    left_out: dict[str, list[str]] = {}
    for one, verdict in zip(wanted, verdicts, strict=True):
        if verdict.outcome == "not judged":
            left_out.setdefault(verdict.why, []).append(str(one["because"]))
        else:
            kept.append(one)
    about = table.summary.about if table.summary is not None else ""
    told = [
        f"{why}: {'all of it' if len(what) == len(wanted) else '; '.join(what)}"
        for why, what in left_out.items()
    ]
    return Section(": ".join(filter(None, (title(table), about))), tuple(kept), tuple(told))


def _expected(facts: Facts, table: Table, most: int, asked: bool) -> Iterator[Given]:
    rows = _rows(facts, table)
    summary = table.summary
    if not rows:
        if asked or (summary is not None and summary.none is not None):
            yield given(table, "none", none=True, because=none_text(table))
        return
    groups = _Groups(facts, table, rows, most)
    if not asked and _told_before(facts, table, rows):
        yield from groups.no_other()
        return
    yield from groups.expected()
    for measure in summary.measures if summary is not None else ():
        yield from _of_measure(table, measure, rows)


def _told_before(facts: Facts, table: Table, rows: Sequence[Row]) -> bool:
    """Whether tables that stand before in a report have rows of all these instructions, as those of
    matmuls and attention have of a library's calls."""
    before = [one for one in _shown(facts) if _place(one) < _place(table) and "instr" in one.names]
    told = {row[one.position("instr")] for one in before for row in _rows(facts, one)}
    return _works(table) and all(row[table.position("instr")] in told for row in rows)


def _works(table: Table) -> bool:
    """Whether its rows are work that a program does, a line each in the skeleton."""
    return table.summary is not None and table.summary.lane is not None


def _place(table: Table) -> tuple[int, str]:
    return (0 if table.summary is None else table.summary.order, table.name)


def _rows(facts: Facts, table: Table) -> list[Row]:
    """The rows that a report shows and that do some work, of the module that runs."""
    rows = facts.rows(table.name)
    if table.summary is not None:
        lane = table.summary.lane
        skip = (*table.summary.skip, *(lane.skip if lane is not None else ()))
        rows = wanted(table, rows, skip, table.summary.only)
    at, main = table.position("module"), _main(facts)
    return [row for row in rows if row[at] == main]


# --- groups ------------------------------------------------------------------------------------


class _Groups:
    """The rows of a table, told apart by the columns that its summary holds."""

    def __init__(self, facts: Facts, table: Table, rows: Sequence[Row], most: int) -> None:
        self.facts = facts
        self.table = table
        self.rows = rows
        self.most = most
        # Where the text has no op_names, nothing is said by what only they tell.
        named = _module(facts)["has_metadata"]
        columns = [table.column(name) for name in _held(table)]
        self.columns = [one for one in columns if named or not one.needs_op_names]

    def expected(self) -> Iterator[Given]:
        """What all rows have in common, that there are no others, and how many of each group."""
        alike = [column for column in self.columns if len(self._by([column])) == 1]
        others = [column for column in self.columns if column not in alike]
        yield from self._in_common(alike)
        if others[:1] == self.columns[:1] and _works(self.table):
            yield from self.no_other()
        if not others:
            yield self._count((), self.rows)
            return
        apart: list[Column] = []
        while len(self._by(others)) > (self.most if len(others) > _TOGETHER else _MOST_GROUPS[0]):
            if len(others) == 1:
                break
            apart.insert(0, others.pop())
        groups = list(self._by(others).items())
        # A sum without slack notices one row more, and the groups one less.
        if not _sums(self.table) or len(groups) > _MOST_GROUPS[0]:
            said = f"{title(self.table)} in all: {count_text(len(self.rows))}"
            yield given(self.table, "in all", count=f"== {len(self.rows)}", because=said)
        largest = sorted(groups, key=lambda group: -len(group[1]))[: _MOST_GROUPS[0]]
        for _, rows in sorted(largest, key=lambda group: groups.index(group)):
            yield self._count(others, rows)
        for column in apart:
            yield self._count([column], self._most(column))

    def _most(self, column: Column) -> Sequence[Row]:
        """The rows of which a bool holds, or those of the value that most have."""
        groups = {value: rows for (value,), rows in self._by([column]).items() if value is not None}
        return groups.get(True) or max(groups.values(), key=len)

    def _by(self, columns: Sequence[Column]) -> dict[tuple[object, ...], list[Row]]:
        """The rows by their values in some columns, in the order of these values."""
        found: dict[tuple[object, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(self._values(columns, row), []).append(row)

        def place(values: tuple[object, ...]) -> list[tuple[object, ...]]:
            return [in_order(*one) for one in zip(columns, values, strict=True)]

        return {values: found[values] for values in sorted(found, key=place)}

    def _values(self, columns: Sequence[Column], row: Row) -> tuple[object, ...]:
        return tuple(row[self.table.position(column.name)] for column in columns)

    def _in_common(self, columns: Sequence[Column]) -> Iterator[Given]:
        """What is the same of all rows, as far as it is known."""
        values = self._values(columns, self.rows[0])
        known = [
            (one, value) for one, value in zip(columns, values, strict=True) if value is not None
        ]
        if known:
            every = " AND ".join(condition(*one) for one in known)
            said = f"all {title(self.table)} are {in_words(known)}"
            yield given(self.table, "every", every=every, because=said)

    def no_other(self) -> Iterator[Given]:
        """That the first column, what a row is, has no value but those that it has here."""
        for column in self.columns[:1]:
            every = [value for (value,) in self._by([column])]
            known = [value for value in every if value is not None]
            all_there_are = column.type == "bool" or {*column.values} == {*known}
            if known and not all_there_are and len(known) <= _MOST_WORDS:
                said = f"{column.name} is {', '.join(map(str, known))} only"
                about, where = f"no other {column.name}", none_of(column, every)
                yield given(self.table, about, where=where, none=True, because=said)

    def _count(self, columns: Sequence[Column], rows: Sequence[Row]) -> Given:
        """How many rows of a group there are; in one iteration, where all stand in one loop."""
        columns = self._telling(columns, rows)
        values = list(zip(columns, self._values(columns, rows[0]), strict=True))
        where = " AND ".join(self._test(*one) for one in values)
        of = f" of {count_text(len(self.rows))}" if columns else ""
        many = f"{in_words(values) or title(self.table)}: {count_text(len(rows))}{of}"
        said: dict[str, object] = {"count": f"== {len(rows)}"}
        if self._each_iteration(rows):
            said["per"] = "loop execution"
            many += ", in each iteration of one loop"
        sums = [f"{one.label} {measure_text(self.table, one, rows)}" for one in _sums(self.table)]
        about, because = in_short(values) or "count", "; ".join((many, *sums))
        return given(self.table, about, told=columns, where=where, **said, because=because)

    def _telling(self, columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
        """The columns that tell a group, without those that are NULL in it and tell nothing."""
        kept = list(columns)
        for column, value in zip(columns, self._values(columns, rows[0]), strict=True):
            others = [one for one in kept if one is not column]
            if value is None and len(self._by(others)[self._values(others, rows[0])]) == len(rows):
                kept = others
        return kept

    def _test(self, column: Column, value: object) -> str:
        """What tells that a row has this value, where it may be unknown of others."""
        at = self.table.position(column.name)
        return condition(column, value, unknown=any(row[at] is None for row in self.rows))

    def _each_iteration(self, rows: Sequence[Row]) -> bool:
        """Whether all stand in the body of one loop, so that each runs once an iteration."""
        if "loop" not in self.table.names:
            return False
        module = self.facts.program.main
        bodies = {one.instr.id: one.body for one in self.facts.program.analysis(module).loops}
        loop_at, instr_at = self.table.position("loop"), self.table.position("instr")
        loop = rows[0][loop_at]
        return loop in bodies and all(
            row[loop_at] == loop
            and isinstance(instr := row[instr_at], int)
            and module.instruction(instr).computation is bodies[loop]
            for row in rows
        )


def _held(table: Table) -> tuple[str, ...]:
    """The columns that tell rows apart: those the summary names, else the enums and bools that a
    report groups by, what a row is before what it is like, and how deep in loops it stands."""
    summary = table.summary
    if summary is None:
        columns = [one for one in table.columns if one.role == "identity"]
        return tuple(one.name for one in columns if one.type in ("enum", "bool"))
    if summary.held:
        return summary.held
    columns = [table.column(name) for cell in summary.by for name in cell.columns]
    told = [one for one in columns if one.type in ("enum", "bool") and one.role != "volatile"]
    names = [one.name for one in sorted(told, key=lambda one: one.role != "identity")]
    in_loops = any(one.name == "loop" for one in columns) and "loop_depth" in table.names
    return tuple(dict.fromkeys((*names, *(("loop_depth",) if in_loops else ()))))


# --- measures ----------------------------------------------------------------------------------


def _of_measure(table: Table, measure: Measure, rows: Sequence[Row]) -> Iterator[Given]:
    """That a sum or the largest number does not grow, and not fewer rows are overlapped."""
    if measure.column is None:
        return
    column, at = table.column(measure.column), table.position(measure.column)
    values = [row[at] for row in rows]
    where = ""
    said: Given = {}
    if measure.how == "true" and True in values:
        where = condition(column, True, unknown=None in values)
        said = {"count": f">= {values.count(True)}"}
    elif measure.how == "each" and column.type == "int":
        known = [value for value in values if isinstance(value, int)]
        said = {"max": column.name, "is": at_most(column, max(known))} if known else {}
    elif measure in _sums(table) and (found := total(table, measure, rows)) is not None:
        if not found.high and found.is_exact:  # that there is none is said of the rows
            return
        bound = at_most(column, found.low if found.high is None else found.high)
        per = {"per": "step"} if measure.how == "per_step" else {}
        said = {"sum": column.name, "is": bound, **per}
    if said:
        because = f"{measure.label} {measure_text(table, measure, rows)}"
        yield {**given(table, measure.label, where=where), **said, "because": because}


def _sums(table: Table) -> list[Measure]:
    """The sums to bound: the bytes and FLOP that a step takes, else what there is of them once."""
    measures = () if table.summary is None else table.summary.measures
    of_a_step = {one.column for one in measures if one.how == "per_step"}
    return [
        one
        for one in measures
        if one.column is not None
        and table.column(one.column).type in ("bytes", "flops")
        and (one.how == "per_step" or (one.how == "once" and one.column not in of_a_step))
    ]
