"""What helps a person whose expectation does not hold: rows, the nearest miss, a command."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Final

from hlo_lens.check.conditions import in_parentheses
from hlo_lens.check.counting import rows_text
from hlo_lens.check.model import Expectation, Offender, Outcome
from hlo_lens.check.selection import Selection
from hlo_lens.check.sentences import without_one_part
from hlo_lens.present.cells import Cells
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import file_argument

_EQUALS: Final = re.compile(
    r"\(*\s*\"?(\w+)\"?\s*(?:==?|IS|IN|LIKE|GLOB)\s*[\w'(].*", re.I | re.DOTALL
)
_MOST_VALUES: Final = 6


def offender_of(selection: Selection, cells: Cells, columns: Iterable[str], id: int) -> Offender:
    """A row with these columns of it, by `told_of`."""
    row = selection.records[id]
    told = [
        f"{name} = {cells.text(column, row[name], selection.position, words=('true', 'false'))}"
        if row[name] is not None
        else f"{name} = NULL"
        for name in columns
        if (column := selection.table.column(name)) and name != "name"
    ]
    name, source, line = (row.get(key) for key in ("name", "source", "text_line"))
    return Offender(
        id,
        name if isinstance(name, str) else None,
        source if isinstance(source, str) else None,
        line if isinstance(line, int) else None,
        ", ".join(told),
    )


def told_of(selection: Selection) -> Iterable[str]:
    """The columns that are told of a row: those that somebody chose, else those of the condition,
    what is summed, or those of `where` that are not the same in every row, with phase and
    executions."""
    expected = selection.expected
    if expected.show:
        return expected.show
    names = selection.columns_of(expected.condition)
    if not names:
        read = selection.columns_of(expected.where)
        rows = [selection.records[id] for id in (*selection.meant, *selection.perhaps)]
        names = [one for one in read if len({row[one] for row in rows}) > 1]
        names += [one for one in ("phase", "executions") if one in selection.table.names]
    return dict.fromkeys((*names, *filter(None, (expected.column,))))


def nearest_of(selection: Selection) -> tuple[str, str]:
    """What would be selected without one part of `where`, the fewest rows but some, as a sentence;
    and that condition."""
    if selection.expected.if_empty:
        return selection.expected.if_empty, selection.expected.where
    best: tuple[str, str, list[int]] | None = None
    for part, rest in without_one_part(selection.expected.where):
        rows = selection.fulfilling(rest) if rest else list(selection.records)
        if rows and (best is None or len(rows) < len(best[2])):
            best = part, rest, rows
    if best is None:
        found = "" if selection.records else f"the table {selection.table.name} has no rows here"
        return found, selection.expected.where
    part, rest, rows = best
    found = f"without {visible(' '.join(part.split()))}: {rows_text(len(rows))}"
    return found + _values(selection, part, rows), rest


def _values(selection: Selection, part: str, rows: list[int]) -> str:
    """The values of the one column that a part compares, in the rows that fulfil the rest; "" for
    another part."""
    match = _EQUALS.fullmatch(part.strip())
    columns = selection.columns_of(part)
    if match is None or columns != [match[1]]:
        return ""
    values = Counter(_value(selection.records[id][match[1]]) for id in rows)
    told = [f"{value} ×{count_text(count)}" for value, count in values.most_common(_MOST_VALUES)]
    told += ["…"] if len(values) > _MOST_VALUES else []
    return f", {match[1]} is {', '.join(told)}"


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    return visible(f"'{value}'" if isinstance(value, str) else str(value))


def against(expected: Expectation, outcome: Outcome) -> str:
    """SQL for the rows that are against it, where a condition tells which; else for all of them."""
    condition = in_parentheses(expected.condition) if expected.condition else ""
    if outcome == "not judged" and condition:
        tested = f"{condition} IS NULL"
    else:
        tested = {"every": f"NOT {condition}", "none": condition}.get(expected.quantity, "")
    if not condition or not tested:
        return expected.where
    return f"{in_parentheses(expected.where)} AND {tested}" if expected.where else tested


def command_of(selection: Selection, columns: Iterable[str], where: str) -> str:
    """`hlolens query` for these columns of the rows of which a condition holds."""
    table = selection.table
    wanted = ("name", "phase", "loop_name", *columns, "executions", "source")
    shown = [name for name in dict.fromkeys(wanted) if name in table.names] or ["*"]
    sql = f"SELECT {', '.join(map(str, shown))} FROM {table.name}"
    if where:
        has_comment = "--" in where
        sql += f" WHERE {where if has_comment else ' '.join(where.split())}"
    return f"hlolens query {file_argument(selection.module.filename)} {_quoted(sql)}"


def _quoted(sql: str) -> str:
    """For a shell: in double quotes where nothing in it acts there, as SQL has single ones."""
    return shlex.quote(sql) if re.search(r'["$`\\!]', sql) else f'"{sql}"'
