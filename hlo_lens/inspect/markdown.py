"""A report as Markdown, for a pull request: findings first, long tables folded away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hlo_lens.facts import Facts, Table
from hlo_lens.inspect.report import Report, Section, Told
from hlo_lens.inspect.terminal import legend, place_of
from hlo_lens.present.markdown import escaped, folded_section, row_line, table_lines
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN

_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def as_markdown(report: Report) -> str:
    """The report as a part of a page: a heading, findings, a table for each section."""
    return "\n".join([*_head(report), *_findings(report.findings), *_sections(report)]) + "\n"


def tables_as_markdown(facts: Facts, tables: Iterable[Table]) -> str:
    """The rows of tables in full, under the name of the program."""
    parts = [f"## {escaped(facts.program.name)}", ""]
    if file := facts.program.main.filename:
        parts += [escaped(file), ""]
    for table in tables:
        rows = facts.rows(table.name)
        columns = [Column(column.name, column.type in _NUMBERS) for column in table.columns]
        lines = [tuple(_exact(value) for value in row) for row in rows]
        parts += folded_section(
            f"{table.name} ({len(rows):,})", table_lines(columns, lines), len(rows)
        )
    return "\n".join(parts) + "\n"


_NUMBERS = frozenset(("int", "float", "bytes", "flops", "ref"))


def _exact(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def _head(report: Report) -> Iterator[str]:
    yield f"## {escaped(report.name)}"
    yield ""
    for head in report.heads:
        about = " · ".join(filter(None, (head.beside, *head.about)))
        yield f"**{escaped(head.name)}**: {escaped(about)}"
        yield ""
    if report.stage is not None:
        yield f"The tables are of {escaped(report.stage)}."
        yield ""


def _findings(findings: Sequence[Told]) -> Iterator[str]:
    if not findings:
        yield "No findings."
        yield ""
        return
    yield "### Findings"
    yield ""
    for told in findings:
        finding = told.finding
        place = place_of(told)
        yield (
            f"- {_MARKS[finding.level]} **{finding.level}** `{finding.rule}`: "
            f"{escaped(finding.message)}" + (f" ({escaped(place)})" if place else "")
        )
        if told.help:
            yield f"  <br>{escaped(told.help)}"
    yield ""


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield from _section(section)
    if report.absent:
        text = "; ".join(report.absent)
        yield f"{escaped(text[:1].upper() + text[1:])}."
        yield ""
    if signs := legend(report):
        yield f"<sub>{signs}</sub>"


def _section(section: Section) -> list[str]:
    about = f"{escaped(section.about[:1].upper() + section.about[1:])}." if section.about else None
    table = table_lines(section.columns, section.lines)
    if section.total is not None:
        table.append(row_line(section.total, mark="**"))
    body = [about, "", *table] if about else table
    if section.unknown:
        body = [*body, "", f"{escaped(section.unknown)}."]
    return folded_section(f"{section.title} ({section.rows:,})", body, len(section.lines))
