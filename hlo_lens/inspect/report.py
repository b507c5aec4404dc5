"""What a report says, before it is laid out: heads, sections of groups, findings, what is next.

It knows tables by their summaries only: a table without one is shown when it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.facts import Facts, Finding, Summary, Table, common
from hlo_lens.facts.findings import LEVELS
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.groups import NO_LOOP, grouped, measured, wanted, without_value
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, count_text
from hlo_lens.present.reading import file_argument

_NOTHING = {UNKNOWN, NO_LOOP}
_SAMPLE = 10  # rows that the query to try next asks for


@dataclass(frozen=True, slots=True)
class Head:
    """What a module, or whatever a table has heads for, is: its name, the file or whatever stands
    beside that, and the rest of its cells."""

    name: str
    beside: str | None
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The groups of one table. `total` has the cells of a line under them, where it says more.

    `unknown` says which rows the sums do not know enough of; "" where they know all.
    """

    table: Table
    title: str
    about: str
    columns: tuple[Column, ...]
    lines: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] | None
    rows: int
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """A finding with its place: the module's stage where there are several, name, source, line."""

    finding: Finding
    name: str | None
    source: str | None
    text_line: int | None
    stage: str | None
    help: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said about one program.

    `sections` are about the module that runs, at stage `stage`; None where there is only one.
    `absent`: a line for each table that one would look for and that is empty. `findings`: the
    gravest first.
    """

    name: str
    heads: tuple[Head, ...]
    stage: str | None
    sections: tuple[Section, ...]
    absent: tuple[str, ...]
    findings: tuple[Told, ...]
    next: tuple[str, ...]


def report(facts: Facts) -> Report:
    """The report on the program of `facts`. Runs the passes it needs."""
    program = facts.program
    cells = Cells(program)
    main = program.index(program.main)
    heads: list[Head] = []
    sections: list[Section] = []
    absent: list[str] = []
    for table, summary in summaries(facts):
        rows = wanted(table, facts.rows(table.name), summary.skip, summary.only)
        if summary.heads:
            heads += _heads(cells, table, summary, rows)
            continue
        module_at = table.position("module")
        rows = [row for row in rows if row[module_at] == main]
        if rows:
            sections.append(_section(cells, table, summary, rows))
        elif summary.none is not None:
            absent.append(summary.none)
    several = len(program.modules) > 1
    return Report(
        program.name,
        tuple(heads),
        program.stages[main] if several else None,
        tuple(sections),
        tuple(absent),
        tuple(findings(facts)),
        tuple(_next(program.main.filename, sections)),
    )


def summaries(facts: Facts) -> list[tuple[Table, Summary]]:
    """The tables that have a summary, in order of their sections."""
    found = [(table, table.summary) for table in facts.tables if table.summary is not None]
    return sorted(found, key=lambda pair: (pair[1].order, pair[0].name))


def _heads(cells: Cells, table: Table, summary: Summary, rows: Iterable[Row]) -> Iterator[Head]:
    readers = [cells.reader(table, cell) for cell in summary.heads]
    for row in rows:
        name, beside, *about = [*(read(row) for read in readers), None][: max(2, len(readers))]
        yield Head(name or UNKNOWN, beside, tuple(filter(None, about)))


def _section(cells: Cells, table: Table, summary: Summary, rows: Sequence[Row]) -> Section:
    groups = grouped(cells, table, summary, rows)
    total = measured(table, summary, rows) if len(groups) > 1 else None
    columns = [Column(cell.heading) for cell in summary.by]
    columns += [Column(measure.label, right=True) for measure in summary.measures]
    lines = [(*group.keys, *group.measures) for group in groups]
    # A column that says nothing of any group is left out.
    kept = [at for at in range(len(columns)) if not {line[at] for line in lines} <= _NOTHING]
    footer = None
    if total is not None:
        sums = [*[""] * len(summary.by), *_summed(summary, total)]
        footer = ("total", *(sums[at] for at in kept[1:])) if any(sums) else None
    return Section(
        table,
        summary.title,
        summary.about,
        tuple(columns[at] for at in kept),
        tuple(tuple(line[at] for at in kept) for line in lines),
        footer,
        len(rows),
        "; ".join(_unknown(cells, table, summary, rows)),
    )


def _unknown(cells: Cells, table: Table, summary: Summary, rows: Sequence[Row]) -> Iterator[str]:
    """What is not known of which rows, that a sum over them had to leave open."""
    readers = [cells.reader(table, cell) for cell in summary.unknown]
    for what, found in without_value(table, summary, rows):
        kinds = Counter(" ".join(filter(None, (read(row) for read in readers))) for row in found)
        listed = ", ".join(f"{count_text(n)} {kind}".rstrip() for kind, n in kinds.most_common())
        yield f"{what} not known of {listed}"


def _summed(summary: Summary, total: Sequence[str]) -> Iterator[str]:
    """The sums of all rows; of what is no sum, nothing."""
    for measure, text in zip(summary.measures, total, strict=True):
        yield "" if measure.how == "each" else text


# ---------------------------------------------------------------------------------- findings


def findings(facts: Facts) -> Iterator[Told]:
    """What the passes have to say that fill a summarised table or have rules, the gravest first."""
    facts.run(
        one
        for one in facts.registry.passes
        if one.rules or any(table.summary is not None for table in one.tables)
    )
    found = sorted(facts.findings, key=lambda finding: -LEVELS.index(finding.level))
    for finding in found:
        yield _told(facts, finding)


def _told(facts: Facts, finding: Finding) -> Told:
    program = facts.program
    name = source = line = None
    if finding.module is not None and finding.instr is not None:
        instruction = program.modules[finding.module].instruction(finding.instr)
        place = common(program, finding.module, instruction)
        name, source, line = instruction.name, place["source"], instruction.text_line
    several = len(program.modules) > 1 and finding.module is not None
    return Told(
        finding,
        name,
        source if isinstance(source, str) else None,
        line,
        program.stages[finding.module] if several and finding.module is not None else None,
        finding.help,
    )


# ---------------------------------------------------------------------------------- what is next


def _next(file: str | None, sections: Sequence[Section]) -> Iterator[str]:
    """Commands to try next: the skeleton, and the largest rows of a table, asked and in full."""
    path = file_argument(file)
    yield f"hlolens tree {path}"
    for section in sections:
        table, summary = section.table, section.table.summary
        sums = [one.column for one in summary.measures if one.how == "per_step"] if summary else []
        if sums:
            shown = ("name", "phase", sums[0], "executions", "source")
            sql = (
                f"SELECT {', '.join(name for name in shown if name in table.names)}"
                f" FROM {table.name} ORDER BY {sums[0]} DESC LIMIT {_SAMPLE}"
            )
            yield f'hlolens query {path} "{sql}"'
            yield f"hlolens inspect {path} --table {table.name}"
            return
    yield "hlolens schema"
