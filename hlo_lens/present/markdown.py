"""Pieces of a Markdown page: text that no mark hides in, tables, and what is folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hlo_lens.present.page import Column
from hlo_lens.present.quantities import visible

_LONG = 12  # rows of a table that is folded away


def folded_section(title: str, body: Sequence[str], rows: int) -> list[str]:
    """A section: under a heading, or folded away where it has many rows."""
    title = escaped(title[:1].upper() + title[1:])
    if rows <= _LONG:
        return [f"### {title}", "", *body, ""]
    return [f"<details><summary>{title}</summary>", "", *body, "", "</details>", ""]


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

    Brackets alone are no mark, and shapes are full of them: only what would make a link is one.
    """
    line = visible(text.replace("\n", " "))
    return _LINK.sub(r"\\]", _MARKS_OF_TEXT.sub(r"\\\g<0>", line)).translate(_HTML)


_MARKS_OF_TEXT = re.compile(r"[\\`*_~$|]")
_LINK = re.compile(r"\](?=[(\[:])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;"})
