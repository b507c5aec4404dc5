"""A query's answer as JSON, CSV, plain columns, or a table that fits a terminal."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hlo_lens.facts.sqlite import QueryResult

if TYPE_CHECKING:
    from rich.console import Console

NULL = "NULL"
# Columns folded narrower than this cannot be read: one line a value is used instead.
_NARROWEST = 10
# Laying out a folding table takes time with every row.
_MOST_FOLDED_ROWS = 2_000
# The last columns are not aligned where a value is longer: every row would be as long.
_MOST_ALIGNED = 100


def as_json(result: QueryResult) -> str:
    """`{"columns": [...], "rows": [[...], ...]}`, one row a line; `"complete": false` if cut.

    NULL is null; bool columns are 0 and 1, as in SQL; a blob is its hexadecimal digits; an
    infinity, which JSON cannot hold, is the text "Infinity" or "-Infinity".
    """
    rows = ",\n".join(f"  {_json(list(map(_json_value, row)))}" for row in result.rows)
    body = f'"rows": [\n{rows}\n]' if rows else '"rows": []'
    tail = "" if result.complete else ', "complete": false'
    return f'{{"columns": {_json(list(result.columns))}, {body}{tail}}}\n'


def as_csv(result: QueryResult) -> str:
    """Comma-separated values (RFC 4180 quoting, lines ended by LF) under a line of column names.

    NULL is an empty field; so is an empty text: JSON tells them apart.
    """
    out = _Lines()
    # With this end of a line, a field that holds a carriage return is quoted too.
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(result.columns)
    writer.writerows([_json_value(value) for value in row] for row in result.rows)
    return "".join(out.lines)


class _Lines:
    """Takes a line from `csv` and ends it by LF alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        self.lines.append(line.removesuffix("\r\n") + "\n")


def as_table(result: QueryResult) -> str:
    """Aligned columns as wide as their values, nothing cut: for files and pipes.

    Columns at the end that hold values of more than 100 characters begin where the row has come to.
    NULL is `NULL`. A control character is written as its escape, so a row is always one line.
    """
    rows = [tuple(map(_cell, row)) for row in result.rows]
    right = _numeric_columns(result)
    widths = _widths(result.columns, rows)
    for at in reversed(range(len(widths))):
        if widths[at] <= _MOST_ALIGNED:
            break
        widths[at] = len(result.columns[at])
    lines = [result.columns, tuple("-" * width for width in widths), *rows]
    return "".join(_aligned(line, widths, right) for line in lines)


def print_table(result: QueryResult, console: Console) -> None:
    """Print the answer so that it fits a terminal: a folding table, or one line a value.

    Nothing is cut off: what is too wide is folded.
    """
    rows = [tuple(map(_cell, row)) for row in result.rows]
    widths = _widths(result.columns, rows)
    natural = sum(widths) + 2 * len(widths)
    narrowest = sum(min(width, _NARROWEST) + 2 for width in widths)
    if narrowest > console.width:
        _print_records(result, rows, console)
    elif natural <= console.width or len(rows) <= _MOST_FOLDED_ROWS:
        _print_folding(result, rows, widths, console)
    else:
        console.print(as_table(result), end="", markup=False, highlight=False, soft_wrap=True)
    count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    console.print(count, style="dim", highlight=False)


def _print_folding(
    result: QueryResult, rows: Sequence[tuple[str, ...]], widths: Sequence[int], console: Console
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    right = _numeric_columns(result)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for name, width, is_number in zip(result.columns, widths, right, strict=True):
        table.add_column(
            Text(name),
            justify="right" if is_number else "left",
            overflow="fold",
            min_width=min(width, _NARROWEST),
        )
    for row, values in zip(rows, result.rows, strict=True):
        table.add_row(
            *(
                Text(cell, style="dim" if value is None else "")
                for cell, value in zip(row, values, strict=True)
            )
        )
    console.print(table)


def _print_records(result: QueryResult, rows: Iterable[tuple[str, ...]], console: Console) -> None:
    from rich.text import Text

    widest = max(map(len, result.columns))
    for number, (row, values) in enumerate(zip(rows, result.rows, strict=True), start=1):
        console.print(Text(f"row {number}", style="bold"))
        for name, cell, value in zip(result.columns, row, values, strict=True):
            line = (f"  {name:>{widest}}  ", "dim"), (cell, "dim" if value is None else "")
            console.print(Text.assemble(*line), overflow="fold")


def _numeric_columns(result: QueryResult) -> list[bool]:
    """Which columns hold numbers only, NULL aside; those are set to the right."""
    numeric = []
    for at in range(len(result.columns)):
        kinds = {type(row[at]) for row in result.rows} - {type(None)}
        numeric.append(bool(kinds) and kinds <= {int, float})
    return numeric


def _widths(columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[int]:
    widths = list(map(len, columns))
    for row in rows:
        widths = list(map(max, widths, map(len, row)))
    return widths


def _aligned(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if is_number else cell.ljust(width)
        for cell, width, is_number in zip(cells, widths, right, strict=True)
    )
    return "  ".join(aligned).rstrip() + "\n"


def _cell(value: object) -> str:
    if value is None:
        return NULL
    text = value.hex() if isinstance(value, bytes) else str(value)
    # Text comes from a file: an escape sequence in it must not reach the terminal.
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
