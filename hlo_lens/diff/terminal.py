"""A comparison as lines for a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

from hlo_lens.diff.exact_report import ExactReport, Shown
from hlo_lens.diff.instructions import Body, InstructionLine
from hlo_lens.diff.model import Count
from hlo_lens.diff.report import DiffReport, StageReport
from hlo_lens.diff.sections import Section
from hlo_lens.diff.values import Mark
from hlo_lens.present.page import PROSE, Column, Line, Span, folded, grid, line
from hlo_lens.present.quantities import UNKNOWN, count_text, visible
from hlo_lens.present.terminal import cut

STYLES: dict[Mark, str] = {"−": "red", "+": "green", "~": "yellow"}
_MARKS: dict[Mark, str] = {"−": "− only in old", "+": "+ only in new", "~": "~ changed"}
_SIGNS = {UNKNOWN: f"{UNKNOWN} not known", "≥": "≥ at least", "≤": "≤ at most"}

T = TypeVar("T")


def as_lines(report: DiffReport, *, limit: int = 0, width: int | None = None) -> Iterator[Line]:
    """The report, `limit` lines of each list (0: all); no row is folded where `width` is None."""
    yield from _head(report.same, report.headline, report.old, report.new)
    for note in report.notes:
        yield from (line(Span(text, "yellow")) for text in folded(note, width or PROSE))
    for stage in report.stages:
        yield ()
        yield from _stage(stage, limit, width)
    if signs := legend(report):
        yield ()
        yield line(Span(signs, "dim"))


def legend(report: DiffReport) -> str:
    """What the signs mean that the report uses."""
    texts = {
        text
        for stage in report.stages
        for section in stage.sections
        for text in chain(
            *((one.old, one.new) for one in section.sums),
            *((*each.cells, each.also) for each in section.lines),
        )
    }
    used = [what for sign, what in _SIGNS.items() if any(sign in text for text in texts)]
    marks = {
        each.mark for stage in report.stages for section in stage.sections for each in section.lines
    }
    told = [what for mark, what in _MARKS.items() if mark in marks]
    return ", ".join((*told, *used))


def _head(same: bool, headline: str, old: str, new: str) -> Iterator[Line]:
    word, blank, rest = headline.partition(" ")
    yield line(Span(word, "bold green" if same else "bold red"), blank, rest)
    yield line(Span("  old  ", "dim"), old)
    yield line(Span("  new  ", "dim"), new)


def _stage(stage: StageReport, limit: int, width: int | None) -> Iterator[Line]:
    yield line(Span(visible(stage.stage), "bold"), Span(f"  {stage.counts}", "dim"))
    if rows := sum_rows(stage.sections):
        yield from grid(SUM_COLUMNS, rows, width=width)
    if stage.same:
        text = f"the same: {', '.join(stage.same)}"
        for part in folded(text, width or PROSE, indent="  ", hanging="  "):
            yield line(Span(part, "dim"))
    for section in stage.sections:
        if section.lines or section.left_out:
            yield ()
            yield from _section(section, limit, width)
    if stage.instructions:
        yield ()
        yield from _instructions(stage.instructions, limit, width)
    if stage.bodies:
        yield ()
        about = "  what one iteration has more or less of, with the old and new number"
        yield line(Span("loop bodies", "bold cyan"), Span(about, "dim"))
        for body in cut(stage.bodies, limit):
            yield from _body(body, limit, width)
        for text in more(len(stage.bodies), limit, "loop"):
            yield line(Span(f"  {text}", "dim"))


_RIGHT = [Column(heading, right=True) for heading in ("old", "new", "change", "")]
SUM_COLUMNS = (Column(""), Column(""), *_RIGHT)


def sum_rows(sections: Sequence[Section]) -> list[tuple[str, ...]]:
    """What differs in sum, table by table, for `SUM_COLUMNS`."""
    rows: list[tuple[str, ...]] = []
    for section in sections:
        title = section.title
        for one in section.sums:
            rows.append((title, one.label, one.old, one.new, one.change, one.share))
            title = ""
    return rows


def _section(section: Section, limit: int, width: int | None) -> Iterator[Line]:
    about = "  ".join(filter(None, (section.counts, section.about)))
    yield line(Span(section.title, "bold cyan"), Span(f"  {about}", "dim"))
    lines = cut(section.lines, limit)
    yield from grid(
        (Column(""), *section.columns),
        [(each.mark, *each.cells) for each in lines],
        width=width,
        marks=[STYLES[each.mark] for each in lines],
        below=[each.also for each in lines],
    )
    for text in more(len(section.lines), limit, "line"):
        yield line(Span(f"  {text}", "dim"))
    if section.left_out:
        yield line(Span(f"  {left_out(section.left_out)}", "dim"))


INSTRUCTION_COLUMNS = (
    Column("opcode"),
    Column("instructions", right=True),
    Column("what differs"),
    Column("old"),
    Column("new"),
    Column("first"),
    Column("source", spare=True),
)


def instruction_cells(one: InstructionLine) -> tuple[str, ...]:
    """The cells for `INSTRUCTION_COLUMNS`."""
    return one.opcode, one.number, one.what, one.old, one.new, one.first, one.source


def _instructions(
    found: Sequence[InstructionLine], limit: int, width: int | None
) -> Iterator[Line]:
    about = "  matched, and not equal: the first of each kind, old and new"
    yield line(Span("changed instructions", "bold cyan"), Span(about, "dim"))
    rows = [instruction_cells(one) for one in cut(found, limit)]
    yield from grid(INSTRUCTION_COLUMNS, rows, width=width)
    for text in more(len(found), limit, "line"):
        yield line(Span(f"  {text}", "dim"))


def _body(body: Body, limit: int, width: int | None) -> Iterator[Line]:
    title = f"  {body.mark} {body.title}"
    yield line(Span(title, STYLES[body.mark]), Span(f"  {body.counts}", "dim"))
    lines, rest = body_lines(body, limit)
    columns = (Column("", right=True), Column(""), Column(""), Column(""))
    marks = [STYLES["+" if each.new > each.old else "−"] for each in lines]
    yield from grid(
        columns, [count_cells(each) for each in lines], width=width, indent=4, marks=marks
    )
    for text in rest:
        for part in folded(text, width or PROSE, indent="    ", hanging="      "):
            yield line(Span(part, "dim"))


def body_lines(body: Body, limit: int) -> tuple[Sequence[Count], list[str]]:
    """The counts that are shown of a body, and what is said of the rest."""
    if not limit:
        return (*body.work, *body.others), []
    rest = [*more(len(body.work), limit, "line")]
    if body.rest:
        rest.append(f"{'also ' if body.work else ''}{body.rest}")
    return cut(body.work, limit), rest


def count_cells(count: Count) -> tuple[str, ...]:
    """How many more or fewer, of what, and the numbers."""
    difference = count.new - count.old
    number = f"{'+' if difference > 0 else '−'}{count_text(abs(difference))}"
    was = f"{count_text(count.old)} → {count_text(count.new)}"
    return number, visible(count.opcode), visible(count.shape), was


def left_out(rows: int) -> str:
    """What is said of rows that the summary of their table leaves out."""
    return f"not shown: {count_text(rows)} more that differ, which inspect leaves out too"


def more(number: int, limit: int, what: str) -> Iterator[str]:
    """How many of a list are not shown, if any."""
    if limit and number > limit:
        left = number - limit
        yield f"… {count_text(left)} more {what}{'' if left == 1 else 's'}; --limit 0 shows all"


# ---------------------------------------------------------------------------------- exact


def exact_as_lines(report: ExactReport, *, width: int | None = None) -> Iterator[Line]:
    """An exact comparison; a long line is shown around the first token that differs."""
    yield from _head(report.same, report.headline, report.old, report.new)
    for note in report.notes:
        yield from (line(Span(text, "dim")) for text in folded(note, width or PROSE))
    for stage, message, places in report.stages:
        yield ()
        yield line(Span(visible(stage), "bold"), f"  {visible(message)}")
        for place in places:
            yield from _place(place, width or PROSE)


def _place(place: Shown, width: int) -> Iterator[Line]:
    yield line("  ", Span(place.where, "cyan"))
    if place.text is not None:
        text, column = place.around(width - 4)
        yield line(f"    {text}")
        yield line(Span(f"    {' ' * column}^", "bold red"))
