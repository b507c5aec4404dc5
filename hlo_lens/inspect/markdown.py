"""A report as Markdown, for a pull request: findings first, long tables folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from hlo_lens.facts import Facts, Table
from hlo_lens.inspect.report import Report, Section, Told
from hlo_lens.inspect.terminal import legend, place_of
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, visible

_LONG = 12  # rows of a table that is folded away
_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def as_markdown(report: Report) -> str:
    """The report as a part of a page: a heading, findings, a table for each section."""
    return "\n".join([*_head(report), *_findings(report.findings), *_sections(report)]) + "\n"


def tables_as_markdown(facts: Facts, tables: Iterable[Table]) -> str:
    """The rows of tables in full, under the name of the program."""
    parts = [f"## {_text(facts.program.name)}", ""]
    if file := facts.program.main.filename:
        parts += [_text(file), ""]
    for table in tables:
        rows = facts.rows(table.name)
        columns = [Column(column.name, column.type in _NUMBERS) for column in table.columns]
        lines = [tuple(_exact(value) for value in row) for row in rows]
        parts += _folded(f"{table.name} ({len(rows):,})", _table(columns, lines), len(rows))
    return "\n".join(parts) + "\n"


_NUMBERS = frozenset(("int", "float", "bytes", "flops", "ref"))


def _exact(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def _head(report: Report) -> Iterator[str]:
    yield f"## {_text(report.name)}"
    yield ""
    for head in report.heads:
        about = " · ".join(filter(None, (head.beside, *head.about)))
        yield f"**{_text(head.name)}**: {_text(about)}"
        yield ""
    if report.stage is not None:
        yield f"The tables are of {_text(report.stage)}."
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
            f"{_text(finding.message)}" + (f" ({_text(place)})" if place else "")
        )
        if told.help:
            yield f"  <br>{_text(told.help)}"
    yield ""


def _sections(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield from _section(section)
    if report.absent:
        text = "; ".join(report.absent)
        yield f"{_text(text[:1].upper() + text[1:])}."
        yield ""
    if signs := legend(report):
        yield f"<sub>{signs}</sub>"


def _section(section: Section) -> list[str]:
    about = f"{_text(section.about[:1].upper() + section.about[1:])}." if section.about else None
    table = _table(section.columns, section.lines)
    if section.total is not None:
        table.append(_row(section.total, mark="**"))
    body = [about, "", *table] if about else table
    if section.unknown:
        body = [*body, "", f"{_text(section.unknown)}."]
    return _folded(f"{section.title} ({section.rows:,})", body, len(section.lines))


def _folded(title: str, body: Sequence[str], rows: int) -> list[str]:
    title = _text(title[:1].upper() + title[1:])
    if rows <= _LONG:
        return [f"### {title}", "", *body, ""]
    return [f"<details><summary>{title}</summary>", "", *body, "", "</details>", ""]


def _table(columns: Sequence[Column], lines: Iterable[Sequence[str]]) -> list[str]:
    return [
        _row([column.heading for column in columns]),
        _rule(columns),
        *(_row(line) for line in lines),
    ]


def _row(cells: Sequence[str], mark: str = "") -> str:
    texts = (f"{mark}{_text(cell)}{mark}" if cell else "" for cell in cells)
    return f"| {' | '.join(texts)} |"


def _rule(columns: Sequence[Column]) -> str:
    return f"|{'|'.join('---:' if column.right else '---' for column in columns)}|"


def _text(text: str) -> str:
    """Text as Markdown shows it: what would be read as a mark, HTML or a column's end is escaped.

    Brackets alone are no mark, and shapes are full of them: only what would make a link is one.
    """
    line = visible(text.replace("\n", " "))
    return _LINK.sub(r"\\]", _MARKS_OF_TEXT.sub(r"\\\g<0>", line)).translate(_HTML)


_MARKS_OF_TEXT = re.compile(r"[\\`*_~$|]")
_LINK = re.compile(r"\](?=[(\[:])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;"})
