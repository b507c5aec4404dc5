"""Lines of styled text for a terminal or a file: aligned columns that fit a width, nothing cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

PROSE = 100  # columns at which sentences are folded where nothing sets a width
GAP = 2  # blanks between columns; one where it is narrow


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line, in a style as rich names it."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def line(*pieces: str | Span) -> Line:
    """A line of these pieces."""
    return tuple(piece if isinstance(piece, Span) else Span(piece) for piece in pieces)


def plain(lines: Iterable[Line]) -> str:
    """The lines as text without styles, each ended by LF and without trailing blanks."""
    return "".join("".join(span.text for span in each).rstrip() + "\n" for each in lines)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a grid: what heads it, and whether its cells stand to the right.

    Cells of a column that is `rigid`, or stands to the right, are never folded. One that is `spare`
    is left out where there is no room: the others say the same.
    """

    heading: str
    right: bool = False
    style: str = ""
    rigid: bool = False
    spare: bool = False


def grid(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    width: int | None = None,
    indent: int = 2,
    footer: Sequence[str] | None = None,
    marks: Sequence[str] = (),
    below: Sequence[str] = (),
) -> Iterator[Line]:
    """The rows in aligned columns under their headings; `footer` under a rule.

    `marks` are styles of the first cell of each row; `below`, what stands on lines of its own under
    each row, folded at `width` or `PROSE` columns.

    Where `width` is given and they are wider, headings are folded, then columns moved together,
    then spare columns left out, which is told below, then cells folded at blanks, the widest first.
    A word that is still too wide runs over: nothing is cut, and numbers are not folded.
    """
    body = list(rows)
    all_rows = body if footer is None else [*body, footer]
    most = None if width is None else width - indent
    told = ""
    if most is not None and not _fits(columns, all_rows, most):
        told = _left_out([column.heading for column in columns if column.spare and column.heading])
        kept = [at for at, column in enumerate(columns) if not column.spare]
        columns = [columns[at] for at in kept]
        body = [[row[at] for at in kept] for row in body]
        footer = None if footer is None else [footer[at] for at in kept]
        all_rows = body if footer is None else [*body, footer]
    widths, gap = _fitted(columns, all_rows, most)
    headings = [column.heading for column in columns]
    bold = ["bold"] * len(columns)
    if any(headings):
        yield from _folded(headings, columns, widths, indent, gap, bold)
    blank = " " * (indent + 2 * GAP)
    for row, mark, under in zip_longest(body, marks, below, fillvalue=""):
        styles = [column.style for column in columns]
        styles[0] = mark or styles[0]
        yield from _folded(row, columns, widths, indent, gap, styles)
        for text in folded(under, width or PROSE, indent=blank, hanging=blank) if under else ():
            yield line(Span(text, "dim"))
    if footer is not None:
        rule = "─" * (sum(widths) + gap * (len(widths) - 1))
        yield line(" " * indent, Span(rule, "dim"))
        yield from _folded(footer, columns, widths, indent, gap, bold)
    around = " " * indent
    for text in folded(told, width, indent=around, hanging=f"{around}  ") if told else ():
        yield line(Span(text, "dim"))


def _left_out(headings: Sequence[str]) -> str:
    if not headings:
        return ""
    many = len(headings) > 1
    count = f"{len(headings)} column{'s' * many} left out: {', '.join(headings)}"
    return f"{count}; a wider terminal or --format json has {'them' if many else 'it'}"


def _fits(columns: Sequence[Column], rows: Sequence[Sequence[str]], most: int) -> bool:
    """Whether the columns take at most `most` without folding a cell."""
    return (
        len(columns)
        - 1
        + sum(
            max(_longest(column.heading.split()), _longest(row[at] for row in rows))
            for at, column in enumerate(columns)
        )
        <= most
    )


def _fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], most: int | None
) -> tuple[list[int], int]:
    """The width of each column and the gap between them; at most `most` together, if they can."""
    cells = [[row[at] for row in rows] for at in range(len(columns))]
    words = [_longest(column.heading.split()) for column in columns]
    widest = [_longest(column) for column in cells]
    widths = [max(len(column.heading), wide) for column, wide in zip(columns, widest, strict=True)]
    if most is None:
        return widths, GAP
    narrowest = [
        wide
        if column.right or column.rigid
        else _longest(word for cell in of_column for word in cell.split())
        for column, of_column, wide in zip(columns, cells, widest, strict=True)
    ]
    gaps = len(columns) - 1
    _narrow(widths, list(map(max, widest, words)), most - GAP * gaps)
    if sum(widths) + GAP * gaps <= most:
        return widths, GAP
    _narrow(widths, list(map(max, narrowest, words)), most - gaps)
    return widths, 1


def _narrow(widths: list[int], least: Sequence[int], most: int) -> None:
    """Make columns narrower, the widest first, until they take `most` together or can no more."""
    while sum(widths) > most:
        foldable = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not foldable:
            return
        widths[max(foldable, key=widths.__getitem__)] -= 1


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _folded(
    row: Sequence[str],
    columns: Sequence[Column],
    widths: Sequence[int],
    indent: int,
    gap: int,
    styles: Sequence[str],
) -> Iterator[Line]:
    """One row as lines: its cells folded to their columns."""
    cells = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=""):
        spans = [Span(" " * indent)]
        for part, column, width, style in zip(parts, columns, widths, styles, strict=True):
            text = part.rjust(width) if column.right else part.ljust(width)
            spans += [Span(text, style), Span(" " * gap)]
        yield tuple(spans)


def _fold(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def folded(text: str, width: int | None, *, indent: str = "", hanging: str = "") -> list[str]:
    """A sentence on lines of `width`; those behind the first begin with `hanging`."""
    if width is None:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, len(hanging) + 20),
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [indent]
