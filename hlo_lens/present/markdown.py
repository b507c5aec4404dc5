"""A report as Markdown, and pieces of such a page: text that no mark hides in, tables, findings."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from hlo_lens.facts import Finding
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import visible
from hlo_lens.present.report import Report, Section
from hlo_lens.present.terminal import cut, first_of_rules, legend, more

MARKS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}
_LONG = 12  # rows of a table that is folded away


def as_markdown(report: Report, topic: str, *, of_a_rule: int = 0) -> str:
    """The report as a part of a page, for a pull request: findings behind the head, then tables.
    `of_a_rule`: how many findings of one rule are told (0: all)."""
    parts = [f"## {escaped(report.name)}: {topic}", ""]
    if report.place:
        parts += [escaped(report.place), ""]
    parts += [f"- **{word}**: {escaped(sentence)}" for word, sentence in report.head]
    parts.append("")
    for finding, left in first_of_rules(report.findings, of_a_rule):
        parts += finding_items(finding)
        parts += [f"- {left}"] if left else []
    if report.findings:
        parts.append("")
    for section in report.sections:
        parts += section_parts(section)
    if signs := legend(report.sections):
        parts.append(f"<sub>{signs}</sub>")
    return "\n".join(parts).rstrip() + "\n"


def finding_items(finding: Finding, *, side: str = "", place: str = "") -> Iterator[str]:
    """An item of a list; `side` says which program it is of, `place`, in Markdown, where it is."""
    whose = f" ({side})" if side else ""
    head = f"{MARKS[finding.level]} **{finding.level}** {code(finding.rule)}{whose}"
    where = f" ({place})" if place else ""
    # A comment on GitHub keeps line breaks, a file does not: this is one in both.
    yield f"- {head}: {escaped(finding.message)}{where}" + ("\\" if finding.help else "")
    if finding.help:
        yield f"  {escaped(finding.help)}"


def section_parts(section: Section, limit: int = 0) -> list[str]:
    """A section, `limit` of its lines (0: all)."""
    lines = cut(section.lines, limit)
    body = _table(section, lines) if section.columns else []
    if section.about:
        body = [f"{escaped(section.about[:1].upper() + section.about[1:])}.", "", *body]
    notes = [*more(len(section.lines), limit, "lines"), *section.notes]
    if body and notes:
        body.append("")
    body += [f"{escaped(text)}  " for text in notes]
    return folded_section(section.title, body, len(lines))


def _table(section: Section, lines: Sequence[Sequence[str]]) -> list[str]:
    below = section.below[: len(lines)] or ("",) * len(lines)
    head = table_lines(section.columns, ())
    rows = [row_line(cells) for cells in lines]
    if any(below):
        # A table has no room under a row: what stands there is a last column.
        rows = [row_line((*cells, under)) for cells, under in zip(lines, below, strict=True)]
        head = [f"{head[0]} |", f"{head[1]}---|"]
    total = [] if section.total is None else [row_line(section.total, mark="**")]
    return [*head, *rows, *total]


def folded_section(title: str, body: Sequence[str], rows: int) -> list[str]:
    """A section: under a heading, or folded away where it has many rows."""
    title = title[:1].upper() + title[1:]
    if rows <= _LONG:
        return [f"### {escaped(title)}", "", *body, ""]
    return folded(title, body)


def folded(title: str, body: Sequence[str]) -> list[str]:
    """A section that is folded away, under its title."""
    return [f"<details><summary>{in_html(title)}</summary>", "", *body, "", "</details>", ""]


def table_lines(columns: Sequence[Column], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [
        row_line([column.heading for column in columns]),
        _rule(columns),
        *(row_line(line) for line in lines),
    ]


def row_line(cells: Sequence[str], mark: str = "") -> str:
    """One line of a table; `mark` stands around each cell."""
    texts = (f"{mark}{escaped(cell)}{mark}" if cell else "" for cell in cells)
    return f"| {' | '.join(texts)} |"


def _rule(columns: Sequence[Column]) -> str:
    return f"|{'|'.join('---:' if column.right else '---' for column in columns)}|"


def escaped(text: str) -> str:
    """Text as Markdown shows it: what would be read as a mark, HTML or a column's end is escaped.

    What needs no escape has none, so that the page reads as text too. Brackets alone are no mark,
    and shapes are full of them: only what would make a link is one. An underscore between letters
    or digits is none (GitHub Flavored Markdown, 6.2).
    """
    marked = _MARKS_OF_TEXT.sub(lambda mark: f"\\{mark[0]}", visible(text.replace("\n", " ")))
    marked = _NUMBERED.sub(r"\1\\\2", _LINK.sub(r"\\]", marked))
    return _inert(marked.translate(_HTML))


def in_html(text: str) -> str:
    """Text as HTML shows it; inside a tag on a line of its own, Markdown's escapes are text."""
    return _inert(html.escape(visible(text.replace("\n", " ")), quote=False))


def code(text: str) -> str:
    """Text as a span of code, which GitHub makes no links of; as text where it could end one, or
    would read as marks to who finds the end elsewhere. Not for a cell of a table."""
    line = visible(text.replace("\n", " "))
    plain = line and line == line.strip() and not _ENDS_CODE.search(line)
    return f"`{line}`" if plain else escaped(line)


def code_block(language: str, lines: Sequence[str]) -> list[str]:
    """A block of code; no backticks that are in it end it."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]


def image(alt: str, path: str) -> str:
    """A picture at `path`, from the page, with the text for those who cannot see it."""
    line = _PUNCTUATION.sub(r"\\\g<0>", visible(alt.replace("\n", " ")))
    return f"![{line}]({quote(path)})"


def _inert(text: str) -> str:
    """The text without what GitHub makes links, people or pictures of once it is HTML, where no
    escape helps; a comment in it takes it apart, and is not seen or copied."""
    return _ACTS.sub(lambda start: f"{start[0]}<!-- -->", text)


_MARKS_OF_TEXT = re.compile(
    r"[\\`*~$|]"
    r"|(?<![^\W_])_|_(?![^\W_])"
    r"|^(?:[-+](?=[\s+-]|$)|[>=]|\[(?=[ xX]\]))"  # a list, a quotation, a line under, a box
    r"|(?:^|(?<=\s))\#"  # a heading, or its end
)
_PUNCTUATION = re.compile(r"[\\`*_~$|<>&\[\]!]")
_ENDS_CODE = re.compile(r"[`<\[\]|]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_LINK = re.compile(r"\](?=[(\[:])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;"})
_ACTS = re.compile(
    r"@(?=[a-z0-9])|\#(?=\d)|\bGH-(?=\d)|:(?=[\w+-]+:)|:(?=//)|\bwww(?=\.)", re.IGNORECASE
)
