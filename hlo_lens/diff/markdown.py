"""A comparison as Markdown, for a pull request: what differs in sum first, long lists folded."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.diff.exact_report import ExactReport, Shown
from hlo_lens.diff.instructions import Body
from hlo_lens.diff.report import DiffReport, StageReport
from hlo_lens.diff.sections import Section
from hlo_lens.diff.terminal import (
    INSTRUCTION_COLUMNS,
    SUM_COLUMNS,
    body_lines,
    count_cells,
    instruction_cells,
    left_out,
    legend,
    more,
    sum_rows,
)
from hlo_lens.present.markdown import code_block, escaped, folded_section, table_lines
from hlo_lens.present.page import Column
from hlo_lens.present.terminal import cut

_WIDTH = 100
_SIGNS = {True: "✅", False: "❌"}


def as_markdown(report: DiffReport, *, limit: int = 0) -> str:
    """The report as a part of a page, `limit` lines of each list (0: all)."""
    parts = _head(report.same, report.headline, report.old, report.new)
    for note in report.notes:
        parts += [f"{escaped(note[:1].upper() + note[1:])}.", ""]
    for stage in report.stages:
        parts += _stage(stage, limit)
    if signs := legend(report):
        parts.append(f"<sub>{signs}</sub>")
    return "\n".join(parts).rstrip() + "\n"


def _head(same: bool, headline: str, old: str, new: str) -> list[str]:
    return [
        f"## {_SIGNS[same]} {escaped(headline[:1].upper() + headline[1:])}",
        "",
        f"- old: {escaped(old)}",
        f"- new: {escaped(new)}",
        "",
    ]


def _stage(stage: StageReport, limit: int) -> Iterator[str]:
    yield f"### {escaped(stage.stage)}"
    yield ""
    yield f"{stage.counts[:1].upper()}{stage.counts[1:]}."
    yield ""
    rows = sum_rows(stage.sections)
    if rows:
        yield from table_lines(SUM_COLUMNS, rows)
        yield ""
    if stage.same:
        yield f"The same: {escaped(', '.join(stage.same))}."
        yield ""
    for section in stage.sections:
        if section.lines or section.left_out:
            yield from _section(section, limit)
    if stage.instructions:
        rows = [instruction_cells(one) for one in cut(stage.instructions, limit)]
        table = table_lines(INSTRUCTION_COLUMNS, rows)
        table += [f"\n{text}." for text in more(len(stage.instructions), limit, "line")]
        yield from folded_section("changed instructions", table, len(rows))
    if stage.bodies:
        lines = [line for body in cut(stage.bodies, limit) for line in _body(body, limit)]
        lines += more(len(stage.bodies), limit, "loop")
        about = "What one iteration has more or less of, with the old and new number:"
        body = [about, "", *code_block("diff", lines)]
        yield from folded_section("loop bodies", body, len(lines))


def _section(section: Section, limit: int) -> list[str]:
    lines = cut(section.lines, limit)
    columns = [Column(""), *section.columns]
    rows = [(line.mark, *line.cells) for line in lines]
    if any(line.also for line in lines):
        columns.append(Column("what changed"))
        rows = [(*row, line.also) for row, line in zip(rows, lines, strict=True)]
    body = table_lines(columns, rows)
    body += [f"\n{escaped(text)}." for text in more(len(section.lines), limit, "line")]
    if section.left_out:
        body += ["", f"{left_out(section.left_out)}."]
    return folded_section(f"{section.title}: {section.counts}", body, len(lines))


def _body(body: Body, limit: int) -> Iterator[str]:
    yield f"@@ {body.title} @@ {body.counts}"
    lines, rest = body_lines(body, limit)
    for count in lines:
        number, *of = count_cells(count)
        yield f"{number.replace('−', '-')} {'  '.join(of)}"
    yield from (f"  {text}" for text in rest)


def exact_as_markdown(report: ExactReport) -> str:
    """An exact comparison as a part of a page."""
    parts = _head(report.same, report.headline, report.old, report.new)
    parts += [f"{escaped(note)}\n" for note in report.notes]
    for stage, message, places in report.stages:
        parts += [f"**{escaped(stage)}**: {escaped(message)}", ""]
        if places:
            parts += [*code_block("", [line for place in places for line in _place(place)]), ""]
    return "\n".join(parts).rstrip() + "\n"


def _place(place: Shown) -> Iterator[str]:
    yield place.where
    if place.text is not None:
        text, column = place.around(_WIDTH)
        yield f"  {text}"
        yield f"  {' ' * column}^"
