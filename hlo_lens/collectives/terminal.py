"""A report on collectives as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from hlo_lens.collectives.report import Report, Section
from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Line, Span, folded, grid, line
from hlo_lens.present.quantities import UNKNOWN

_SIGNS = {UNKNOWN: f"{UNKNOWN} not known", "≥": "≥ at least", "≤": "≤ at most"}


def as_lines(report: Report, *, width: int | None = None) -> Iterator[Line]:
    """The report; where `width` is None, rows are not folded and sentences at `PROSE` columns."""
    prose = width or PROSE
    yield line(Span(report.name, "bold"), f"  {report.place}" if report.place else "")
    widest = max(len(word) for word, _ in report.head)
    for word, sentence in report.head:
        first, *others = folded(
            f"{word.ljust(widest)}  {sentence}", prose, indent="  ", hanging=" " * (widest + 4)
        )
        end = 2 + len(word)
        yield line("  ", Span(first[2:end], "bold cyan"), first[end:])
        yield from map(line, others)
    for section in report.sections:
        yield ()
        yield from _section(section, width)
    if signs := legend(report):
        yield ()
        yield line(Span(signs, "dim"))
    if report.findings:
        yield ()
    for finding in report.findings:
        yield from finding_lines(finding, prose)


def _section(section: Section, width: int | None) -> Iterator[Line]:
    about = f"  {section.about}" if section.about else ""
    yield line(Span(section.title, "bold cyan"), Span(about, "dim"))
    yield from grid(
        section.columns, section.lines, width=width, footer=section.total, below=section.below
    )
    for note in section.notes:
        yield line(Span(f"  {note}", "dim"))


def legend(report: Report) -> str:
    """What the signs mean that the report uses."""
    cells = [
        cell for section in report.sections for cell in chain(section.total or (), *section.lines)
    ]
    used = [text for sign, text in _SIGNS.items() if any(sign in cell for cell in cells)]
    return ", ".join(used)
