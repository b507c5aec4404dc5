"""Expectations put together from columns and values: conditions in SQL, reasons in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from hlo_lens.facts import Column, Table
from hlo_lens.present.quantities import count_text, visible

Given = dict[str, object]
"""An expectation in the words of a file: key → value."""

_UNITS: Final = {
    "bytes": [(f"{prefix}iB", 1024**n) for n, prefix in enumerate("KMGT", 1)],
    "flops": [(f"{prefix}FLOP", 1000**n) for n, prefix in enumerate("kMGT", 1)],
}
_SMALLEST: Final = {"bytes": " B", "flops": " FLOP"}


def given(
    table: Table, about: str, *, told: Sequence[Column] = (), where: str = "", **said: object
) -> Given:
    """An expectation of those rows of a table that are shown and that `where` selects.

    about: what its id says. told: columns whose value `where` says already.
    """
    both = " AND ".join(filter(None, (*_shown(table, {one.name for one in told}), where)))
    words = re.sub(r"[^a-z0-9]+", "-", f"{table.name} {about}".lower()).strip("-")
    return {"id": words, "table": table.name, **({"where": both} if both else {}), **said}


def none_text(table: Table) -> str:
    """That a table has no rows."""
    skips = table.summary is not None and table.summary.lane is not None and table.summary.lane.skip
    return f"there are no {title(table)}{' that do work' if skips else ''}"


def title(table: Table) -> str:
    """What the rows of a table are called."""
    return table.name.replace("_", " ") if table.summary is None else table.summary.title


def _shown(table: Table, told: Collection[str]) -> Iterator[str]:
    """What holds of every row that is shown, in a report and among what does work; never NULL."""
    summary = table.summary
    if summary is None:
        return
    skip = (*summary.skip, *(summary.lane.skip if summary.lane is not None else ()))
    for tests, sign in ((summary.only, "IS"), (skip, "IS NOT")):
        for name, values in tests:
            if name in told:
                continue
            if len(values) == 1:
                yield f"{name} {sign} {_sql(values[0])}"
            else:
                yield f"{_one_of(name, values)} {sign} TRUE"


def _one_of(name: str, values: Sequence[object]) -> str:
    """That a column has one of these values."""
    known = f"{name} IN ({', '.join(_sql(value) for value in values if value is not None)})"
    return f"({name} IS NULL OR {known})" if None in values else f"({known})"


def none_of(column: Column, values: Sequence[object]) -> str:
    """That a column has another value than these; a None in them: NULL is no other value."""
    known = [_sql(value) for value in values if value is not None]
    other = f"<> {known[0]}" if len(known) == 1 else f"NOT IN ({', '.join(known)})"
    not_null = [f"{column.name} IS NOT NULL"] if len(known) < len(values) else []
    return " AND ".join((*not_null, f"{column.name} {other}"))


def condition(column: Column, value: object, *, unknown: bool = False) -> str:
    """That a column has this value; `unknown`: NULL is another value, not an unknown one."""
    if value is None:
        return f"{column.name} IS NULL"
    if column.type == "bool" and not unknown:
        return column.name if value else f"NOT {column.name}"
    return f"{column.name} {'IS' if unknown else '='} {_sql(value)}"


def _sql(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int, float)):
        return str(value + 0)
    return "'" + str(value).replace("'", "''") + "'"


def in_words(values: Iterable[tuple[Column, object]]) -> str:
    """`logical_kind all-gather, phase bwd, in a loop`."""
    return ", ".join(_in_words(column, value) for column, value in values)


def _in_words(column: Column, value: object) -> str:
    if value is None:
        return f"{column.name} not known"
    if column.name == "loop_depth":
        return {0: "in no loop", 1: "in a loop"}.get(int(str(value)), f"in {value} loops")
    if column.type == "bool":
        return column.name if value else f"not {column.name}"
    return f"{column.name} {visible(str(value))}"


def in_short(values: Iterable[tuple[Column, object]]) -> str:
    """`all-gather bwd in a loop`, for an id: without what is not so, or not known."""
    words = (
        (column, value) for column, value in values if value is not None and value is not False
    )
    return " ".join(
        str(value) if isinstance(value, str) else _in_words(column, value)
        for column, value in words
        if column.name != "loop_depth" or value
    )


def in_order(column: Column, value: object) -> tuple[object, ...]:
    """Where a value stands: the words of an enum as it lists them, numbers by size, NULL last."""
    if value is None:
        return (1,)
    if column.values:
        return (0, column.values.index(str(value)))
    return (0, value)


def at_most(column: Column, value: int) -> str:
    """`<= 21 MiB`: in a unit that has it exactly with one digit behind the point, else in full."""
    for unit, size in reversed(_UNITS.get(column.type, [])):
        tenths, rest = divmod(value * 10, size)
        if value >= size and not rest:
            return f"<= {tenths / 10:.1f}".removesuffix(".0") + f" {unit}"
    return f"<= {count_text(value)}{_SMALLEST.get(column.type, '')}"
