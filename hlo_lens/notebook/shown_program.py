"""How a program shows itself in a notebook: the report of `hlolens inspect`, in short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_lens.notebook import html
from hlo_lens.notebook.html import MOST_ROWS, never_raising
from hlo_lens.notebook.shown_tables import findings_table
from hlo_lens.present.quantities import count_text

if TYPE_CHECKING:
    from hlo_lens.inspect.report import Report, Section
    from hlo_lens.program import Program

_MOST_FINDINGS = 5


@never_raising
def program_html(program: Program) -> str:
    """The report of `hlolens inspect`, in short. Runs the passes it needs."""
    from hlo_lens.inspect.report import report
    from hlo_lens.inspect.terminal import legend

    said = report(program.facts)
    left = [section for section in said.sections if section.lines]
    shown = _shares([len(section.lines) for section in left], MOST_ROWS)
    stage = f"What follows is of {said.stage}." if said.stage is not None else ""
    return html.outer(
        *(html.head(head.name, head.beside, head.about) for head in said.heads),
        html.dim(html.text(stage)) if stage else "",
        _sections(left, shown) if left else "",
        html.dim(html.text(". ".join(filter(None, ("; ".join(said.absent), legend(said)))), 1000)),
        findings_table(program.findings[:_MOST_FINDINGS], program),
        html.dim(_where_more(said, left, shown)),
    )


def _shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many lines of each section are shown: about `most` together, the short ones in full, at
    least one of each."""
    shares = [min(1, size) for size in sizes]
    while sum(shares) < min(most, sum(sizes)):
        growing = [at for at, size in enumerate(sizes) if shares[at] < size]
        shares[min(growing, key=shares.__getitem__)] += 1
    # The line that says that one more is there would take the place of that one.
    return [size if size == share + 1 else share for size, share in zip(sizes, shares, strict=True)]


def _sections(sections: Sequence[Section], shown: Sequence[int]) -> str:
    """One table: the groups of each section under its title, their numbers to the right."""
    wide = max(sum(column.right for column in section.columns) for section in sections)
    return html.table(
        *(
            f"<tbody>{_section(section, most, wide)}</tbody>"
            for section, most in zip(sections, shown, strict=True)
        )
    )


def _section(section: Section, most: int, wide: int) -> str:
    keys = [at for at, column in enumerate(section.columns) if not column.right]
    numbers = [at for at, column in enumerate(section.columns) if column.right]
    by = " · ".join(section.columns[at].heading for at in keys)
    about = " ".join(filter(None, (count_text(section.rows), section.about)))
    title = f"{html.strong(html.text(section.title))} {html.dim(html.text(about))}"
    headings = [html.dim(html.text(section.columns[at].heading)) for at in numbers]
    lines = [_line(f"{title}<br/>{html.dim(html.text(by))}", headings, wide, head="col")]
    for cells in section.lines[:most]:
        words = " · ".join(cells[at] for at in keys if cells[at])
        lines.append(_line(html.text(words), [html.text(cells[at]) for at in numbers], wide))
    if (left := len(section.lines) - most) > 0:
        lines.append(_line(html.dim(f"… {left} more"), [], wide))
    if section.total is not None:
        texts = [html.text(section.total[at]) for at in numbers]
        lines.append(_line(html.dim("total"), texts, wide))
    if section.unknown:
        unknown = html.dim(html.text(section.unknown, 300))
        lines.append(html.row([html.cell(unknown, span=1 + wide)]))
    return "".join(lines)


def _line(first: str, numbers: Sequence[str], wide: int, head: str = "") -> str:
    """One line of a section; where others have more numbers, the cells to the right are empty."""
    cells = [html.cell(first, head=head or "row", rule=bool(head))]
    cells += [html.cell(each, right=True, head=head, rule=bool(head)) for each in numbers]
    if len(numbers) < wide:
        cells.append(html.cell("", span=wide - len(numbers), rule=bool(head)))
    return html.row(cells)


def _where_more(said: Report, sections: Sequence[Section], shown: Sequence[int]) -> str:
    """What is left out, and what to type to see it."""
    groups = sum(len(section.lines) for section in sections) - sum(shown)
    findings = max(0, len(said.findings) - _MOST_FINDINGS)
    parts = []
    if groups:
        parts.append(f"{count_text(groups)} more group{'s' * (groups > 1)}")
    if findings:
        parts.append(f"{count_text(findings)} more finding{'s' * (findings > 1)}")
    left = f"Left out: {', '.join(parts)}. " if parts else ""
    example = sections[0].table.name if sections else "modules"
    return (
        f"{left}Rows: {html.code(f'program.table({example!r})')}; tables there are:"
        f" {html.code('program.tables')}; all that is found: {html.code('program.findings')}"
    )
