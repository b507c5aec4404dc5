"""Values of columns, given by keyword, as an SQL condition."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_lens.facts import Column, Table

__tracebackhide__ = True

_JSON: Final = ("refs", "json")
_SEVERAL: Final = (list, tuple, set, frozenset, range)


def conditions(table: Table, values: Mapping[str, object]) -> list[str]:
    """A condition for each column: equal to the value, to one of several, or NULL for None.

    Raises `QueryError` for an unknown column, and for a value that it cannot hold: to find none
    would say nothing.
    """
    from hlo_lens.facts.sqlite import QueryError
    from hlo_lens.notebook.conditions import has_value

    found = []
    for name, value in values.items():
        has_value(table, name, value)
        if _is_several(table.column(name), value) and not value:
            raise QueryError(
                f"{name} is one of no values: no row has one; None is not known (NULL)"
            )
        found.append(_condition(table.column(name), value))
    return found


def kinds(table: Table, words: tuple[str, ...]) -> list[str]:
    """The condition that a row is of one of these kinds, by the column that says what it is.

    That is the `enum` of role identity that has the words, else, in a table without such columns,
    its only text of role identity. Raises `QueryError` where there is none, or several.
    """
    from hlo_lens.facts.sqlite import QueryError

    if not words:
        return []
    identity = [one for one in table.columns if one.role == "identity"]
    enums = [one for one in identity if one.type == "enum"]
    texts = [one for one in identity if one.type == "text"]
    fitting = [one for one in enums if set(words) <= set(one.values)] if enums else texts
    if len(fitting) == 1:
        return [_condition(fitting[0], words)]
    said = " or ".join(map(repr, words))
    if fitting:
        names = " or ".join(f"{one.name}=" for one in fitting)
        raise QueryError(f"{said} is not clear; write {names}")
    known = "; ".join(f"{one.name} is {', '.join(one.values)}" for one in enums)
    raise QueryError(
        f"rows of {table.name} are not told by {said}: "
        + (known or "write the column, such as phase='bwd'")
    )


def _condition(column: Column, value: object) -> str:
    name = column.name if _is_plain(column.name) else f'"{column.name}"'
    is_json = column.type in _JSON
    compared, literal = (f"json({name})", _json) if is_json else (name, _literal)
    if not _is_several(column, value):
        return f"{name} IS NULL" if value is None else f"{compared} = {literal(value)}"
    assert isinstance(value, _SEVERAL)
    known = [literal(one) for one in value if one is not None]
    if len(known) == len(value) == 1:
        return f"{compared} = {known[0]}"
    within = f"{compared} IN ({', '.join(known)})"
    return f"({within} OR {name} IS NULL)" if len(known) < len(value) else within


def _is_several(column: Column, value: object) -> bool:
    """Whether any of several values is meant; a list is one value of a column that holds lists."""
    return isinstance(value, _SEVERAL) and not (
        column.type in _JSON and isinstance(value, (list, tuple))
    )


def _json(value: object) -> str:
    from hlo_lens.facts.rows import json_text

    return _literal(value if isinstance(value, str) else json_text(value))


def _literal(value: object) -> str:
    from hlo_lens.facts.sqlite import QueryError

    if isinstance(value, Integral):  # bool among them
        return str(int(value))
    if isinstance(value, Real) and math.isfinite(value):
        return repr(float(value))
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise QueryError(f"{value!r:.80} is no value of a column")


@cache
def _is_plain(name: str) -> bool:
    """Whether SQL takes the name as that of a column without quotes."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f'SELECT {name} FROM (SELECT 1 AS "{name}")')
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    return True
