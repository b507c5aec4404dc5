"""A report on collectives as Markdown, for a pull request: findings behind the head, tables."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.collectives.report import Report, Section
from hlo_lens.collectives.terminal import legend
from hlo_lens.present.markdown import escaped, folded_section, row_line, table_lines

_MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}


def as_markdown(report: Report) -> str:
    """The report as a part of a page."""
    parts = list(_head(report))
    for finding in report.findings:
        parts.append(
            f"- {_MARKS[finding.level]} **{finding.level}** `{finding.rule}`: "
            f"{escaped(finding.message)}"
        )
        if finding.help:
            parts.append(f"  <br>{escaped(finding.help)}")
    if report.findings:
        parts.append("")
    for section in report.sections:
        parts += _section(section)
    if signs := legend(report):
        parts.append(f"<sub>{signs}</sub>")
    return "\n".join(parts).rstrip() + "\n"


def _head(report: Report) -> Iterator[str]:
    yield f"## {escaped(report.name)}: collectives"
    yield ""
    if report.place:
        yield escaped(report.place)
        yield ""
    for word, sentence in report.head:
        yield f"- **{word}**: {escaped(sentence)}"
    yield ""


def _section(section: Section) -> list[str]:
    below = section.below or ("",) * len(section.lines)
    lines = [row_line(cells) for cells in section.lines]
    if any(below):
        # A table has no room under a row: what stands there is a last column.
        lines = [
            row_line((*cells, under)) for cells, under in zip(section.lines, below, strict=True)
        ]
    head = table_lines(section.columns, ())
    if any(below):
        head = [f"{head[0]} |", f"{head[1]}---|"]
    total = [] if section.total is None else [row_line(section.total, mark="**")]
    about = [f"{escaped(section.about[:1].upper() + section.about[1:])}.", ""]
    notes = ["", *(f"{escaped(note)}." for note in section.notes)] if section.notes else []
    body = [*about, *head, *lines, *total, *notes]
    return folded_section(section.title, body, len(section.lines))
