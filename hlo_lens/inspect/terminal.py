"""A report as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo_lens.inspect.report import Head, Report, Section, Told
from hlo_lens.present.page import PROSE, Line, Span, folded, grid, line
from hlo_lens.present.quantities import UNKNOWN, visible

STYLES = {"note": "cyan", "warning": "yellow", "error": "bold red"}
_SIGNS = {UNKNOWN: f"{UNKNOWN} not known", "≥": "≥ at least", "≤": "≤ at most"}


def as_lines(report: Report, *, width: int | None = None) -> Iterator[Line]:
    """The report; where `width` is None, rows are not folded and sentences at `PROSE` columns."""
    prose = width or PROSE
    for head in report.heads:
        yield from _head(head, prose)
    if report.stage is not None:
        yield line(Span(f"What follows is of {report.stage}; --stage chooses another.", "dim"))
    for section in report.sections:
        yield ()
        yield from _section(section, width)
    if report.absent:
        yield ()
        yield from (line(Span(text)) for text in folded("; ".join(report.absent), prose))
    signs = legend(report)
    if signs:
        yield ()
        yield line(Span(signs, "dim"))
    yield ()
    yield from _findings(report.findings, prose)
    yield ()
    for position, command in enumerate(report.next):
        yield line(Span("next: " if not position else "      ", "dim"), Span(command, "dim"))


def _head(head: Head, width: int) -> Iterator[Line]:
    yield line(Span(head.name, "bold"), f"  {head.beside}" if head.beside else "")
    yield from (
        line(text) for text in folded(" · ".join(head.about), width, indent="  ", hanging="  ")
    )


def _section(section: Section, width: int | None) -> Iterator[Line]:
    about = f"  {section.about}" if section.about else ""
    first, *rest = folded(f"{section.title}  {section.rows:,}{about}", width or PROSE, hanging="  ")
    title = first[: len(section.title)]
    yield line(Span(title, "bold cyan"), Span(first[len(title) :], "dim"))
    yield from (line(Span(text, "dim")) for text in rest)
    keys = sum(not column.right for column in section.columns)
    yield from grid(
        section.columns, _without_repeats(section.lines, keys), width=width, footer=section.total
    )
    if section.unknown:
        for text in folded(section.unknown, width or PROSE, indent="  ", hanging="  "):
            yield line(Span(text, "dim"))


def _without_repeats(lines: Sequence[tuple[str, ...]], keys: int) -> Iterator[tuple[str, ...]]:
    """The lines, without the keys that the line above begins with too."""
    above: tuple[str, ...] = ()
    for cells in lines:
        same = 0
        while same < min(keys - 1, len(above)) and cells[same] == above[same]:
            same += 1
        yield ("",) * same + cells[same:]
        above = cells


def legend(report: Report) -> str:
    """What the signs mean that the sections use."""
    cells = [
        cell
        for section in report.sections
        for row in (*section.lines, section.total or ())
        for cell in row
    ]
    used = [text for sign, text in _SIGNS.items() if any(sign in cell for cell in cells)]
    return ", ".join(used)


def _findings(findings: Sequence[Told], width: int) -> Iterator[Line]:
    if not findings:
        yield line("no findings", Span("  hlolens rules lists what is looked for", "dim"))
        return
    for level, name in (("error", "errors"), ("warning", "warnings"), ("note", "notes")):
        of_level = [told for told in findings if told.finding.level == level]
        if of_level:
            yield line(Span(f"{name}  ", STYLES[level]), Span(f"{len(of_level)}", "dim"))
        for told in of_level:
            yield from _finding(told, width)
    yield line(Span("  hlolens rules ID explains a rule", "dim"))


def _finding(told: Told, width: int) -> Iterator[Line]:
    rule = told.finding.rule
    text = f"{rule}  {told.finding.message}"
    for position, part in enumerate(folded(text, width, indent="  ", hanging="    ")):
        if not position and part.startswith(f"  {rule}"):
            yield line("  ", Span(rule, STYLES[told.finding.level]), part[2 + len(rule) :])
        else:
            yield line(part)
    if place := place_of(told):
        yield line(Span(f"    {place}", "dim"))
    if told.help:
        for part in folded(f"help: {told.help}", width, indent="    ", hanging="    "):
            yield line(Span(part, "dim"))


def place_of(told: Told) -> str:
    """`after_optimizations · dot.3 · model.py:12 · line 40`, as far as it is known."""
    line_of_text = None if told.text_line is None else f"line {told.text_line} of the text"
    return visible(" · ".join(filter(None, (told.stage, told.name, told.source, line_of_text))))
