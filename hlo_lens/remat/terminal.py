"""A report on policies as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Column, Line, Span, folded, grid, line
from hlo_lens.present.quantities import visible
from hlo_lens.present.terminal import cut, legend, more, section_lines
from hlo_lens.remat.report import Report, answer_word

_STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
ANSWERS = (Column("", rigid=True), Column("", rigid=True), Column(""))


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
        yield from section_lines(section, width, limit)
    for text in more(len(report.sections), limit, "parts"):
        yield ()
        yield line(Span(text, "dim"))
    if signs := legend(report.sections):
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
