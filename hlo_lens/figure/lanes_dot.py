"""Lanes as the HTML-like label of one Graphviz node: a row a step, a tall cell for each bar.

Graphviz lays out nothing here but the table, so the rows stand in the order of the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from hlo_lens.figure.escape import text
from hlo_lens.figure.lanes import Bar, Lanes, Step
from hlo_lens.figure.lanes_rows import BarKind
from hlo_lens.present.quantities import visible

_POSITION: Final = "position"
_RUNS: Final = "what runs"
_UNDER_WAY: Final = "under way meanwhile"
_ORDER_ONLY: Final = "rows stand in schedule order; their height is no time"
_ENDS: Final = {"start": "starts", "done": "waits for", "both": "runs"}
_LONGEST: Final = 44  # characters of a line in a column
_MOST_LINES: Final = 3
_WIDE: Final = 110  # across all columns


@dataclass(frozen=True, slots=True)
class LanesStyle:
    """Colours (`#rrggbb`) and fonts. `bars`: the fill of each kind of bar; each also has words."""

    background: str = "#ffffff"
    text: str = "#1f2328"
    muted: str = "#656d76"
    border: str = "#8c959f"
    grid: str = "#d8dee4"
    compute: str = "#f6f8fa"
    heavy: str = "#cfe3fb"
    hidden: str = "#b7e4c7"
    partly: str = "#fdf0b5"
    exposed: str = "#f9c0b4"
    synchronous: str = "#e3c9f2"
    open: str = "#dfe3e8"
    font: str = "Helvetica"
    mono: str = "Courier"
    size: int = 11
    small: int = 9


def lanes_node(lanes: Lanes, style: LanesStyle = LanesStyle()) -> str:
    """The label of a `shape=plain` node, `<` and `>` around it included."""
    rows = [*_heading(lanes, style), _columns(lanes, style)]
    begins: dict[int, list[Bar]] = {}
    for bar in lanes.bars:
        begins.setdefault(bar.first, []).append(bar)
    free = [0] * lanes.width  # the first row behind the last bar of each lane
    for number, step in enumerate(lanes.steps):
        rows.append(_row(number, step, begins.get(number, []), free, style))
    rows.append(_legend(lanes, style))
    table = "".join(f"<TR>{row}</TR>" for row in rows)
    return (
        f'<<TABLE BORDER="1" CELLBORDER="0" CELLSPACING="0" CELLPADDING="4"'
        f' COLOR="{style.border}" BGCOLOR="{style.background}">{table}</TABLE>>'
    )


def _heading(lanes: Lanes, style: LanesStyle) -> Iterator[str]:
    """What computation it is, and the sums over its bars."""
    longest = _LONGEST * _width(lanes) // 2 + 10
    for number, line in enumerate(lanes.heading):
        size = style.small if number else style.size
        said = _font(line, style.text, size, bold=not number, longest=longest)
        yield _cell(said, f'COLSPAN="{_width(lanes)}" ALIGN="LEFT" BALIGN="LEFT"')


def _columns(lanes: Lanes, style: LanesStyle) -> str:
    heads = [_POSITION, _RUNS]
    cells = [
        _cell(_font(head, style.muted, style.small), f'ALIGN="LEFT" {_line("B", style)}')
        for head in heads
    ]
    if lanes.width:
        said = _font(_UNDER_WAY, style.muted, style.small)
        cells.append(_cell(said, f'COLSPAN="{lanes.width}" ALIGN="LEFT" {_line("LB", style)}'))
    return "".join(cells)


def _row(number: int, step: Step, begin: list[Bar], free: list[int], style: LanesStyle) -> str:
    """A step, then each lane: the bar that begins here, or an empty cell where none is under way.

    Fills in, in `free`, the row behind each bar.
    """
    cells = [_position(step, style), _step(step, style)]
    by_lane = {bar.lane: bar for bar in begin}
    for lane, end in enumerate(free):
        if lane in by_lane:
            bar = by_lane[lane]
            free[lane] = bar.last + 1
            cells.append(_bar(bar, style))
        elif end <= number:
            cells.append(f"<TD {_line('LB', style)}></TD>")
    return "".join(cells)


def _position(step: Step, style: LanesStyle) -> str:
    places = str(step.first) if step.first == step.last else f"{step.first}–{step.last}"
    said = _font(places, style.muted, style.small, face=style.mono)
    return _cell(said, f'ALIGN="RIGHT" VALIGN="MIDDLE" {_line("B", style)}')


def _step(step: Step, style: LanesStyle) -> str:
    """What runs: by name where it is heavy, starts or waits; else how many of which opcode."""
    name = f"%{step.name}"
    lines: list[str] = []
    if step.kind in _ENDS and not step.heavy:
        lines.append(_font(f"{_ENDS[step.kind]} {name}", style.muted, style.small))
    elif step.kind == "run":
        color, size = (style.text, style.size) if step.heavy else (style.muted, style.small)
        lines += [_font(line, color, size) for line in step.lines[:1]]
        lines += [_font(line, style.muted, style.small) for line in step.lines[1:]]
    else:
        lines.append(_font(name, style.text, style.size, bold=True))
        lines += [
            _font(line, style.text, style.small) for line in (*step.lines, step.shape) if line
        ]
    fill = style.heavy if step.heavy else style.compute if step.compute else style.background
    attributes = f'ALIGN="LEFT" BALIGN="LEFT" BGCOLOR="{fill}" {_line("LB", style)}'
    return _cell("<BR/>".join(lines), attributes)


def _bar(bar: Bar, style: LanesStyle) -> str:
    """The bar: its name, what it is, and what lies between in words."""
    name = bar.start or bar.done or ""
    lines = [] if bar.start is None else [_font(f"%{name}", style.text, style.size, bold=True)]
    if bar.start is None:
        lines.append(_font(f"… %{name}", style.text, style.size, bold=True))
    lines += [_font(line, style.text, style.small) for line in bar.lines]
    if bar.words:
        lines.append(_font(bar.words, style.text, style.small, italic=True))
    # Open ends have no line: the bar goes on beyond the figure.
    sides = "LR" + ("T" if bar.start is not None else "") + ("B" if bar.done is not None else "")
    attributes = (
        f'ROWSPAN="{bar.last - bar.first + 1}" BGCOLOR="{_fill(bar.kind, style)}" BORDER="1"'
        f' SIDES="{sides}" COLOR="{style.border}"'
    )
    return _cell("<BR/>".join(lines), attributes)


def _fill(kind: BarKind, style: LanesStyle) -> str:
    fills = {
        "hidden": style.hidden,
        "partly": style.partly,
        "exposed": style.exposed,
        "synchronous": style.synchronous,
        "open": style.open,
    }
    return fills[kind]


def _legend(lanes: Lanes, style: LanesStyle) -> str:
    """The kinds of bars and rows that are drawn, and what the rows do not say."""
    fills = {label: _fill(kind, style) for kind, label in lanes.kinds.items()}
    if any(step.heavy for step in lanes.steps):
        fills["heavy work"] = style.heavy
    parts = [
        _cell(
            _font(label, style.text, style.small),
            f'BGCOLOR="{fill}" BORDER="1" COLOR="{style.border}"',
        )
        for label, fill in fills.items()
    ]
    parts.append(_cell(_font(_ORDER_ONLY, style.muted, style.small, longest=_WIDE), ""))
    table = f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3"><TR>{"".join(parts)}</TR></TABLE>'
    return _cell(table, f'COLSPAN="{_width(lanes)}" ALIGN="LEFT"')


def _width(lanes: Lanes) -> int:
    return 2 + lanes.width


def _line(sides: str, style: LanesStyle) -> str:
    """A thin line at some sides of a cell."""
    return f'BORDER="1" SIDES="{sides}" COLOR="{style.grid}"'


def _cell(content: str, attributes: str) -> str:
    return f"<TD {attributes}>{content}</TD>" if attributes else f"<TD>{content}</TD>"


def _font(
    line: str,
    color: str,
    size: int,
    *,
    bold: bool = False,
    italic: bool = False,
    face: str = "",
    longest: int = _LONGEST,
) -> str:
    """A line of text in a font, folded; what is too long ends in an ellipsis."""
    # Graphviz refuses a font around nothing.
    parts = wrap(
        visible(line), longest, break_on_hyphens=False, max_lines=_MOST_LINES, placeholder=" …"
    ) or [" "]
    said = "<BR/>".join(text(part) for part in parts)
    if bold:
        said = f"<B>{said}</B>"
    if italic:
        said = f"<I>{said}</I>"
    faced = f' FACE="{text(face)}"' if face else ""
    return f'<FONT COLOR="{color}" POINT-SIZE="{size}"{faced}>{said}</FONT>'
