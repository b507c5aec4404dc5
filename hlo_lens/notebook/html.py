"""Pieces of HTML for a notebook: everything escaped, no script, no colour of its own, no CSS that
reaches outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from html import escape
from typing import ParamSpec

from hlo_lens.present.page import Column
from hlo_lens.present.quantities import visible

MOST_ROWS = 20
_LONGEST = 120  # characters of one value

# `$` in a name is no formula; both classes are what MathJax leaves alone, by its version.
_OUTER = (
    '<div class="tex2jax_ignore mathjax_ignore"'
    ' style="overflow-x:auto;line-height:1.4;overflow-wrap:break-word">'
)
_TABLE = (
    "table-layout:auto;border-collapse:collapse;margin:.3em 0;font-variant-numeric:tabular-nums"
)
_CELL = "padding:.1em .7em .1em 0;vertical-align:top"
_RULE = "border-bottom:1px solid rgba(128,128,128,.5)"

P = ParamSpec("P")


def never_raising(make: Callable[P, str]) -> Callable[P, str]:
    """What shows an object in a notebook says what went wrong with showing it, and no more."""

    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> str:
        try:
            return make(*args, **kwargs)
        except Exception as error:
            what = type(args[0]).__name__ if args else "this"
            return outer(text(f"{what} cannot be shown: {type(error).__name__}: {error}", 600))

    return made


def outer(*parts: str) -> str:
    """The parts, below each other, as one output."""
    return _OUTER + "".join(f"<div>{part}</div>" for part in parts if part) + "</div>"


def text(value: str, most: int = _LONGEST) -> str:
    """Text of a file: cut, on one line, escaped; a control character as its escape."""
    cut = value if len(value) <= most else value[:most] + "…"
    return escape(visible(cut))


def strong(html: str) -> str:
    return f"<strong>{html}</strong>"


def dim(html: str) -> str:
    """Less important: paler, in any theme."""
    return f'<span style="opacity:.7">{html}</span>'


def code(value: str) -> str:
    """Python to type, or a piece of a program."""
    # The theme's own background of code is white in some dark ones.
    return f'<code style="background:none;color:inherit;padding:0">{text(value)}</code>'


def head(name: str, beside: str | None, about: Sequence[str]) -> str:
    """The first line of what is shown."""
    parts = [strong(text(name))]
    if beside:
        parts.append(text(beside, 300))
    if about:
        parts.append(dim(text(" · ".join(about), 600)))
    return " \u2002".join(parts)


def cell(
    html: str, *, right: bool = False, head: str = "", span: int = 1, rule: bool = False
) -> str:
    """One cell; `head` "col" or "row" says what it heads."""
    tag = "th" if head else "td"
    side = "right" if right else "left"
    weight = ";font-weight:normal" if head else ""  # `strong` says what is bold of it
    style = f"text-align:{side};{_CELL}{weight}" + (f";{_RULE}" if rule else "")
    style += ";white-space:nowrap" if right else ""
    scope = f' scope="{head}"' if head else ""
    wide = f' colspan="{span}"' if span > 1 else ""
    return f'<{tag}{scope}{wide} style="{style}">{html}</{tag}>'


def row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def table(*parts: str) -> str:
    """A table of parts such as `<thead>…</thead>`."""
    return f'<table style="{_TABLE}">{"".join(parts)}</table>'


def grid(columns: Sequence[Column], lines: Iterable[Sequence[str]], most: int = _LONGEST) -> str:
    """Lines of plain texts under their headings, each text cut to `most` characters."""
    head = row(
        cell(strong(text(column.heading)), right=column.right, head="col", rule=True)
        for column in columns
    )
    body = "".join(
        row(
            cell(text(value, most), right=column.right)
            for column, value in zip(columns, line, strict=True)
        )
        for line in lines
    )
    return table(f"<thead>{head}</thead>", f"<tbody>{body}</tbody>")


def pairs(lines: Iterable[tuple[str, str]]) -> str:
    """A table of a word and what stands beside it, which is HTML."""
    body = "".join(row((cell(dim(text(word)), head="row"), cell(html))) for word, html in lines)
    return table(f"<tbody>{body}</tbody>")
