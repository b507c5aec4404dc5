"""A report as Markdown, for a pull request: a verdict, findings, then tables folded away.

Two programs that differ in numbers of instructions alone give the same lines, but for messages of
findings and the line that names the loops.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, starmap
from pathlib import PurePath

from hlo_lens.facts import Facts, Table
from hlo_lens.facts.findings import LEVELS
from hlo_lens.inspect.report import Head, Report, Section, Told
from hlo_lens.inspect.stable import NUMBER, natural, stable
from hlo_lens.inspect.terminal import legend
from hlo_lens.present.markdown import (
    MARKS,
    code,
    escaped,
    finding_items,
    folded,
    folded_section,
    image,
    row_line,
    table_lines,
)
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, count_text

COMMENT = 65_536
"""The characters that a comment on GitHub holds."""

_OF_A_RULE = ((10, 40), (10, 0), (1, 0))  # findings of a rule in the open, and more folded away
_ROWS = (100, 10)  # of a table
_LONGEST = 1_000  # characters of one text
_NOTE = 1_200  # characters that the line on what is left out may take
_LEAST = 3_000  # characters without which a program is not shown


@dataclass(frozen=True, slots=True)
class Linked:
    """A figure to show: its title, the text for who cannot see it, its path from the page."""

    title: str
    alt: str
    path: PurePath


@dataclass(frozen=True, slots=True)
class Page:
    """A report to lay out, the file it is of, for commands that show more, and its figures."""

    report: Report
    file: str | None = None
    figures: tuple[Linked, ...] = ()


_Part = tuple[str, Iterator[Sequence[str]]]
"""Lines that stand or are left out together: what they are, and the lines, then shorter ones."""


def as_markdown(
    report: Report,
    *,
    file: str | None = None,
    figures: Sequence[Linked] = (),
    size: int = COMMENT,
) -> str:
    """The report as a part of a page: a verdict, findings, figures, a folded table a section.

    It has at most `size` characters, of which `_LEAST` are needed; what is left out is told, with
    the command that shows it, which is of `file`.
    """
    show = f"hlolens inspect {_argument(file)}"
    sections, loops = stable(report.sections)
    head, foot = list(_head(report)), list(_foot(report, loops))
    room = size - _size(head) - _size(foot) - _NOTE
    kept: list[str] = []
    left: list[str] = []
    for what, versions in (
        *_findings(report, show),
        *(_figure(figure) for figure in figures),
        *(_section(section, show) for section in sections),
    ):
        # Shorter ones are only made where the first takes too much room.
        lines = next((lines for lines in versions if _size(lines) <= room), None)
        if lines is None:
            left.append(what)
        else:
            room -= _size(lines)
            kept += lines
    if left:
        kept += [f"Left out, as the page would be too long: {_listed(left)}.", ""]
        kept += [f"{code(show)} shows all.", ""]
    return "\n".join((*head, *kept, *foot)).rstrip() + "\n"


def pages_as_markdown(pages: Sequence[Page], *, size: int = COMMENT) -> str:
    """Several reports on a page of at most `size` characters: a line on each, then each in turn."""
    if len(pages) == 1:
        [page] = pages
        return as_markdown(page.report, file=page.file, figures=page.figures, size=size)
    lines = [f"- {_verdict(page.report)}: {_named(page)}" for page in pages]
    listed = _first(lines, size // 4)
    text = "\n".join([*listed, ""]) + "\n"
    if len(listed) < len(lines):
        text += f"… {count_text(len(lines) - len(listed))} more programs; give fewer files.\n\n"
    for position, page in enumerate(pages):
        left = len(pages) - position
        last = f"{count_text(left)} more reports are left out for length; give fewer files.\n"
        # What one does not need of its share is for the others.
        share = max(_LEAST, (size - len(text) - len(last)) // left)
        part = as_markdown(page.report, file=page.file, figures=page.figures, size=share)
        if len(text) + len(part) + 1 + len(last) > size:
            return text + last
        text += part + "\n"
    return text.rstrip() + "\n"


def _named(page: Page) -> str:
    """The program, and its file, as several programs may have one name."""
    name = escaped(_short(page.report.name))
    return f"{name} ({code(_short(page.file))})" if page.file else name


def tables_as_markdown(facts: Facts, tables: Iterable[Table]) -> str:
    """The rows of tables in full, under the name of the program."""
    parts = [f"## {escaped(facts.program.name)}", ""]
    if file := facts.program.main.filename:
        parts += [code(file), ""]
    for table in tables:
        rows = facts.rows(table.name)
        columns = [Column(column.name, column.type in _NUMBERS) for column in table.columns]
        lines = [tuple(_exact(value) for value in row) for row in rows]
        parts += folded_section(
            f"{table.name} ({len(rows):,})", table_lines(columns, lines), len(rows)
        )
    return "\n".join(parts) + "\n"


_NUMBERS = frozenset(("int", "float", "bytes", "flops", "ref"))


def _exact(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


# ---------------------------------------------------------------------------------- the head


def _head(report: Report) -> Iterator[str]:
    """The name, a verdict on what the tables are of, the other modules."""
    yield f"## {escaped(_short(report.name))}"
    yield ""
    of_stage = [head for head in report.heads if report.stage in (None, *head.about)]
    main = (of_stage or list(report.heads))[-1:]
    yield " · ".join((_verdict(report), *(text for head in main for text in _about(head))))
    yield ""
    others = [head for head in report.heads if head not in main]
    for head in others:
        name = "" if head.name == report.name else f"{escaped(_short(head.name))}: "
        yield f"- {name}{' · '.join(_about(head))}"
    if others:
        yield ""


def _about(head: Head) -> Iterator[str]:
    if head.beside:
        yield code(_short(head.beside))
    yield from (escaped(_short(text)) for text in head.about)


def _verdict(report: Report) -> str:
    """`⚠️ **1 warning, 2 notes**`: the gravest first."""
    counts = Counter(told.finding.level for told in report.findings)
    found = [(level, counts[level]) for level in reversed(LEVELS) if counts[level]]
    if not found:
        return "✅ **no findings**"
    words = (f"{count_text(number)} {level}{'s' * (number > 1)}" for level, number in found)
    return f"{MARKS[found[0][0]]} **{', '.join(words)}**"


# ---------------------------------------------------------------------------------- findings


def _findings(report: Report, show: str) -> Iterator[_Part]:
    """A heading, then the findings of each rule: in full, without those that are folded away, and
    the first alone."""

    def rule(told: Told) -> tuple[int, str]:
        return (-LEVELS.index(told.finding.level), told.finding.rule)

    if not report.findings:
        return
    yield "", iter((("### Findings", ""),))
    for (_, name), alike in groupby(sorted(report.findings, key=rule), key=rule):
        found = sorted(alike, key=_by_place)
        versions = partial(_rule, found, report.stage, show)
        yield f"{name} ({count_text(len(found))})", starmap(versions, _OF_A_RULE)
    yield "", iter((("<sub>`hlolens rules ID` explains a rule.</sub>", ""),))


def _by_place(told: Told) -> tuple[object, ...]:
    """Where a finding stands: by what does not change when instructions are numbered anew."""
    return (
        natural(told.source or ""),
        told.source is None,
        NUMBER.sub("", _short(told.finding.message)),
        told.text_line or 0,
    )


def _rule(
    found: Sequence[Told], stage: str | None, show: str, shown: int, away: int
) -> Sequence[str]:
    """The findings of one rule: the first `shown`, then `away` that are folded away."""
    first = found[0].finding
    if len(found) == 1:
        cut = replace(first, message=_short(first.message), help=_short(first.help or "") or None)
        return [*finding_items(cut, place=_place(found[0], stage)), ""]
    helps = {told.help or "" for told in found}
    about = f": {escaped(_short(max(helps)))}" if len(helps) == 1 and max(helps) else ""
    lines = [f"- {MARKS[first.level]} **{first.level}** {code(first.rule)} × {len(found):,}{about}"]
    items = [f"- {_item(told, stage, with_help=len(helps) > 1)}" for told in found[: shown + away]]
    lines += [f"  {item}" for item in items[:shown]]
    if rest := items[shown:]:
        inside = folded(f"{count_text(len(rest))} more of {first.rule}", rest)
        lines += ["", *(f"  {line}".rstrip() for line in inside[:-1])]
    if (more := len(found) - len(items)) > 0:
        lines += ["", f"  … {count_text(more)} more; {code(show)} shows all"]
    return [*lines, ""]


def _item(told: Told, stage: str | None, *, with_help: bool) -> str:
    place = _place(told, stage)
    help = f" {escaped(_short(told.help))}" if with_help and told.help else ""
    return escaped(_short(told.finding.message)) + (f" ({place})" if place else "") + help


def _place(told: Told, stage: str | None) -> str:
    """Stage, where it is not that of the tables, name, where the message lacks it, and source; the
    line of the text, which changes with every build, only without one."""
    of_text = None if told.text_line is None else f"line {told.text_line} of the text"
    name = told.name if told.name and told.name not in told.finding.message else None
    parts = (
        escaped(told.stage) if told.stage and told.stage != stage else None,
        code(_short(name)) if name else None,
        code(_short(told.source)) if told.source else of_text,
    )
    return " · ".join(filter(None, parts))


# ---------------------------------------------------------------------------------- figures, tables


def _figure(figure: Linked) -> _Part:
    link = image(_short(figure.alt), figure.path.as_posix())
    return figure.title, iter((folded(f"Figure: {_short(figure.title)}", [link]),))


def _section(section: Section, show: str) -> _Part:
    title = f"{section.title[:1].upper()}{section.title[1:]} ({section.rows:,})"
    head = f"{title}{_in_sum(section)}"
    return title, (folded(head, _table(section, rows, show)) for rows in _ROWS)


def _table(section: Section, rows: int, show: str) -> list[str]:
    body = []
    if section.about:
        body = [f"{escaped(section.about[:1].upper() + section.about[1:])}.", ""]
    lines = [[_short(cell) for cell in line] for line in section.lines[:rows]]
    body += table_lines(section.columns, lines)
    if section.total is not None:
        body.append(row_line(section.total, mark="**"))
    if section.unknown:
        body += ["", f"{escaped(_short(section.unknown))}."]
    if (more := len(section.lines) - rows) > 0:
        body += ["", f"… {count_text(more)} more rows; {code(show)} shows all"]
    return body


def _in_sum(section: Section) -> str:
    """The last number of the whole table, to be read while it is folded away."""
    cells = section.total or (section.lines[0] if len(section.lines) == 1 else ())
    for column, cell in reversed([*zip(section.columns, cells, strict=False)]):
        if column.right and cell not in ("", UNKNOWN, f"{section.rows:,}") and cell[:2] != "0 ":
            return f" · {column.heading} {cell}"
    return ""


# ---------------------------------------------------------------------------------- the foot


def _foot(report: Report, loops: dict[str, str]) -> Iterator[str]:
    if report.absent:
        text = "; ".join(report.absent)
        yield f"{escaped(_short(text[:1].upper() + text[1:]))}."
        yield ""
    called = [f"{short} is {name}" for name, short in loops.items()]
    notes = (legend(report), "; ".join(called))
    if any(notes):
        yield f"<sub>{'. '.join(escaped(_short(note)) for note in notes if note)}</sub>"


def _argument(file: str | None) -> str:
    """The file as a shell takes it; what came through standard input is gone."""
    return "FILE" if file is None or file.startswith("<") else shlex.quote(file)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({count_text(len(text))} characters)"


def _listed(left: Sequence[str]) -> str:
    """The first of what is left out, as far as they fit, and how many more there are."""
    names = [escaped(each) for each in left if each]
    listed = _first(names, _NOTE // 2)
    more = len(names) - len(listed)
    return ", ".join(listed) + (f" and {count_text(more)} more" if more else "")


def _first(lines: Sequence[str], size: int) -> list[str]:
    """As many as `size` characters hold."""
    kept: list[str] = []
    for line in lines:
        size -= len(line) + 2
        if size < 0:
            break
        kept.append(line)
    return kept
