"""A report on one topic as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from hlo_lens.facts import Finding
from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Line, Span, folded, grid, line
from hlo_lens.present.quantities import UNKNOWN, count_text, visible
from hlo_lens.present.report import Report, Section

_SIGNS = {UNKNOWN: f"{UNKNOWN} not known", "≥": "≥ at least", "≤": "≤ at most"}

T = TypeVar("T")


def as_lines(report: Report, *, width: int | None = None, of_a_rule: int = 0) -> Iterator[Line]:
    """The report; where `width` is None, rows are not folded and sentences at `PROSE` columns.
    `of_a_rule`: how many findings of one rule are told (0: all)."""
    prose = width or PROSE
    yield line(Span(report.name, "bold"), f"  {report.place}" if report.place else "")
    widest = max((len(word) for word, _ in report.head), default=0)
    for word, sentence in report.head:
        first, *others = folded(
            f"{word.ljust(widest)}  {sentence}", prose, indent="  ", hanging=" " * (widest + 4)
        )
        end = 2 + len(word)
        yield line("  ", Span(first[2:end], "bold cyan"), first[end:])
        yield from map(line, others)
    for section in report.sections:
        yield ()
        yield from section_lines(section, width)
    if signs := legend(report.sections):
        yield ()
        yield line(Span(signs, "dim"))
    if report.findings:
        yield ()
    for finding, left in first_of_rules(report.findings, of_a_rule):
        yield from finding_lines(finding, prose)
        if left:
            yield line(Span(f"  {left}", "dim"))


def first_of_rules(findings: Sequence[Finding], most: int) -> Iterator[tuple[Finding, str]]:
    """The first findings of each rule (0: all), and what is to be said behind one: how many more
    there are. Help stands with the last of a rule."""
    kept: dict[str, list[Finding]] = {}
    for finding in findings:
        kept.setdefault(finding.rule, []).append(finding)
    for rule, alike in kept.items():
        shown = alike[:most] if most else alike
        for at, finding in enumerate(shown):
            last = at == len(shown) - 1
            left = len(alike) - len(shown) if last else 0
            same_help = not last and shown[at + 1].help == finding.help
            yield (
                replace(finding, help=None) if same_help else finding,
                f"{count_text(left)} more of {rule}; JSON has all" if left else "",
            )


def section_lines(section: Section, width: int | None, limit: int = 0) -> Iterator[Line]:
    """A section, `limit` of its lines (0: all)."""
    title = visible(section.title)
    about = f"  {section.about}" if section.about else ""
    first, *others = folded(f"{title}{about}", width, hanging="  ")
    yield line(Span(first[: len(title)], "bold cyan"), Span(first[len(title) :], "dim"))
    yield from (line(Span(part, "dim")) for part in others)
    if section.columns:
        yield from grid(
            section.columns,
            cut(section.lines, limit),
            width=width,
            footer=section.total,
            below=cut(section.below, limit),
        )
    for text in (*more(len(section.lines), limit, "lines"), *section.notes):
        for part in folded(text, width or PROSE, indent="  ", hanging="    "):
            yield line(Span(part, "dim"))


def legend(sections: Iterable[Section]) -> str:
    """What the signs mean that the sections use."""
    cells = [
        cell.replace(f" {UNKNOWN} ", " ")  # of a range
        for section in sections
        for cell in chain(section.total or (), *section.lines)
    ]
    used = [text for sign, text in _SIGNS.items() if any(sign in cell for cell in cells)]
    return ", ".join(used)


def cut(items: Sequence[T], limit: int) -> Sequence[T]:
    """The first `limit` items; all for 0."""
    return items[:limit] if limit else items


def more(number: int, limit: int, what: str) -> Iterator[str]:
    """How many of a list are not shown, if any."""
    if limit and number > limit:
        yield f"… {count_text(number - limit)} more {what}; --limit 0 shows all"
