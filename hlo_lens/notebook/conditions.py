"""Conditions on the rows of a table: values of columns, and SQL; both refuse what means nothing."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from numbers import Real

from hlo_lens.facts import Column, Facts, Table
from hlo_lens.facts.sqlite import QueryError, check_condition, run_query

_ALL = 2**31 - 1  # rows: the most that SQLite's driver can be asked for

_HOLDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "ref": (Real, "ids of instructions"),
    "refs": ((tuple, list), "tuples of ids of instructions"),
    "int": (Real, "numbers"),
    "float": (Real, "numbers"),
    "bytes": (Real, "numbers of bytes"),
    "flops": (Real, "numbers"),
    "bool": (Real, "True and False"),
    "enum": (str, "words"),
    "text": (str, "texts"),
    "json": (object, "JSON"),
}


def has_value(schema: Table, name: str, value: object) -> Callable[[tuple[object, ...]], bool]:
    """Whether a row has that value, or one of several, in a column; `TableView.where` says how.

    Raises `QueryError` for an unknown column and a value that the column cannot hold.
    """
    if name not in schema.names:
        raise QueryError(no_column(name, schema))
    at = schema.position(name)
    column = schema.columns[at]
    wanted = _values(column, value)
    for one in wanted:
        _check_value(column, one)
    if column.type == "refs":
        wanted = [tuple(one) if isinstance(one, list) else one for one in wanted]
    if column.type == "json":
        texts = [_as_text(one) for one in wanted]
        return lambda row: (None if row[at] is None else _as_text(row[at])) in texts
    allowed = frozenset(wanted)
    return lambda row: row[at] in allowed


def _values(column: Column, value: object) -> list[object]:
    """The values any of which is meant."""
    if isinstance(value, (set, frozenset, range)):
        return list(value)
    if isinstance(value, (list, tuple)) and column.type not in ("refs", "json"):
        return list(value)
    return [value]


def _check_value(column: Column, value: object) -> None:
    """Raises `QueryError` for a value that no row can have: to find none would say nothing."""
    if value is None:
        return
    type, what = _HOLDS[column.type]
    if not isinstance(value, type) or (column.type == "bool" and value not in (0, 1)):
        raise QueryError(f"column {column.name} holds {what}; {value!r:.80} is none of these")
    if column.type == "enum" and value not in column.values:
        hint = _close(str(value), column.values)
        raise QueryError(
            f"column {column.name} never is {value!r:.80}{hint}; it is {', '.join(column.values)}"
        )


def keys_where(facts: Facts, schema: Table, condition: str) -> set[tuple[object, ...]]:
    """(module, id) of the rows of a table of which an SQL condition holds. Raises `QueryError`."""
    check_condition([facts], schema.name, condition)
    # On lines of its own, so that a comment in it ends.
    sql = f'SELECT module, id FROM "{schema.name}" WHERE (\n{condition}\n)'
    return set(run_query([facts], sql, limit_rows=_ALL).rows)


def no_column(name: str, schema: Table) -> str:
    """A table has no such column; what may be meant, else what it has."""
    hint = _close(name, schema.names) or f"; it has {', '.join(schema.names)}"
    return f"table {schema.name} has no column {name}{hint}"


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=2)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def decoded(text: str) -> object:
    """What JSON text says; the text itself where it is none."""
    try:
        value: object = json.loads(text)
    except ValueError:  # a pass may give text that is none
        return text
    return value


def _as_text(value: object) -> str | None:
    """A value of a `json` column as text by which equal ones are equal."""
    if value is None:
        return None
    return json.dumps(decoded(value) if isinstance(value, str) else value, sort_keys=True)
