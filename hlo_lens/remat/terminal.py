"""A report on policies as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Column, Line, Span, folded, grid, line
from hlo_lens.present.quantities import UNKNOWN, count_text, visible
from hlo_lens.remat.report import Report, Section, answer_word

_STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
ANSWERS = (Column("", rigid=True), Column("", rigid=True), Column(""))

T = TypeVar("T")


def as_lines(report: Report, *, limit: int = 0, width: int | None = None) -> Iterator[Line]:
    """The report, `limit` lines of each list (0: all); no row is folded where `width` is None."""
    prose = width or PROSE
    yield from _head(report, prose)
    if report.answers:
        yield ()
        marks = [_STYLES[answer.yes] for _, answer in report.answers]
        yield from grid(
            ANSWERS,
            [(name, answer_word(answer), visible(answer.why)) for name, answer in report.answers],
            width=width,
            marks=marks,
        )
    for note in report.notes:
        yield from (line(Span(text, "yellow")) for text in folded(visible(note), prose))
    for section in cut(report.sections, limit):
        yield ()
        yield from _section(section, limit, width)
    for text in more(len(report.sections), limit, "parts"):
        yield ()
        yield line(Span(text, "dim"))
    if signs := legend(report):
        yield ()
        yield line(Span(signs, "dim"))
    if report.findings:
        yield ()
    for told in report.findings:
        yield from finding_lines(told.finding, prose, side=told.side)


def _head(report: Report, width: int) -> Iterator[Line]:
    word, rest = report.headline
    style = _STYLES[report.good] if report.answers else "bold"
    first, *others = folded(f"{word}  {rest}", width, hanging="  ")
    yield line(Span(first[: len(word)], style), first[len(word) :])
    yield from map(line, others)
    widest = max(len(name) for name, _ in report.programs)
    for name, place in report.programs:
        yield line(Span(f"  {name.ljust(widest)}  " if name else "  ", "dim"), place)


def _section(section: Section, limit: int, width: int | None) -> Iterator[Line]:
    about = f"  {section.about}" if section.about else ""
    yield line(Span(visible(section.title), "bold cyan"), Span(about, "dim"))
    if section.columns:
        yield from grid(section.columns, cut(section.lines, limit), width=width)
    for text in (*more(len(section.lines), limit, "lines"), *section.notes):
        for part in folded(text, width or PROSE, indent="  ", hanging="    "):
            yield line(Span(part, "dim"))


def legend(report: Report) -> str:
    """What the signs mean that the report uses."""
    cells = chain.from_iterable(row for section in report.sections for row in section.lines)
    return f"{UNKNOWN} not known" if UNKNOWN in cells else ""


def cut(items: Sequence[T], limit: int) -> Sequence[T]:
    """The first `limit` items; all for 0."""
    return items[:limit] if limit else items


def more(number: int, limit: int, what: str) -> Iterator[str]:
    """How many of a list are not shown, if any."""
    if limit and number > limit:
        yield f"… {count_text(number - limit)} more {what}; --limit 0 shows all"
