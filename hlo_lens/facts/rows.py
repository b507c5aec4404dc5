"""Rows as passes give them, made into checked tuples in column order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_lens.facts.columns import Column, Table
from hlo_lens.facts.passes import Row

if TYPE_CHECKING:
    from hlo_lens.hlo import Module

_NONE = type(None)
_ACCEPTED: dict[str, frozenset[type]] = {
    "ref": frozenset({int}),
    "refs": frozenset({tuple}),
    "int": frozenset({int}),
    "float": frozenset({int, float}),
    "bytes": frozenset({int}),
    "flops": frozenset({int, float}),
    "bool": frozenset({bool}),
    "enum": frozenset({str}),
    "text": frozenset({str}),
    "json": frozenset({str}),
}


class RowError(ValueError):
    """A row does not fit its table; the message names table, column and value."""


def checked_rows(
    table: Table, given: Iterable[Row], modules: Sequence[Module]
) -> list[tuple[object, ...]]:
    """The rows of `table` as tuples in column order, ids filled in.

    Raises `RowError` where a row has an unknown column, the wrong width or type, a word an enum
    does not list, a module or instruction that does not exist, or a key used twice. Works a
    column at a time, so that a table of 64,000 rows takes a fraction of a second.
    """
    rows = _in_order(table, given)
    if not rows:
        return []
    columns: list[Sequence[object]] = list(zip(*rows, strict=True))
    changed = _fill_ids(columns, table.position("id"))
    for position, column in enumerate(table.columns):
        if column.type in ("refs", "json") and (encoded := _encoded(column, columns[position])):
            columns[position] = encoded
            changed = True
        _check_column(table, column, columns[position])
    _check_keys(table, columns, modules)
    return list(zip(*columns, strict=True)) if changed else rows


def _in_order(table: Table, given: Iterable[Row]) -> list[tuple[object, ...]]:
    names = table.names
    known = frozenset(names)
    rows: list[tuple[object, ...]] = []
    for row in given:
        if isinstance(row, tuple):
            if len(row) != len(names):
                raise RowError(
                    f"table {table.name}: a row of {len(row)} values for {len(names)} columns"
                )
            rows.append(row)
        elif isinstance(row, Mapping):
            if not row.keys() <= known:
                unknown = ", ".join(sorted(map(str, row.keys() - known)))
                raise RowError(f"table {table.name} has no column {unknown}")
            rows.append(tuple(map(row.get, names)))
        else:
            raise RowError(
                f"table {table.name}: a row is a {type(row).__name__}, not a mapping or tuple"
            )
    return rows


def _fill_ids(columns: list[Sequence[object]], at: int) -> bool:
    """Number the rows that have no id by their position; say whether any had none."""
    ids = columns[at]
    if None not in ids:
        return False
    columns[at] = [number if given is None else given for number, given in enumerate(ids)]
    return True


def _encoded(column: Column, values: Sequence[object]) -> list[object] | None:
    """`refs` as tuples and `json` as text, or None where every value is so already."""
    if set(map(type, values)) <= {tuple if column.type == "refs" else str, _NONE}:
        return None
    if column.type == "refs":
        return [tuple(value) if isinstance(value, list) else value for value in values]
    return [
        value if value is None or isinstance(value, str) else json_text(value) for value in values
    ]


def json_text(value: object) -> str:
    """Compact JSON; tuples become arrays. Raises `TypeError` for what JSON cannot hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _check_column(table: Table, column: Column, values: Sequence[object]) -> None:
    accepted = _ACCEPTED[column.type]
    if not set(map(type, values)) <= accepted | {_NONE}:
        wrong = next(value for value in values if type(value) not in accepted | {_NONE})
        raise RowError(
            f"table {table.name}, column {column.name}: expected {column.type},"
            f" got {type(wrong).__name__} {wrong!r:.80}"
        )
    if column.type == "enum" and (strange := set(values) - {*column.values, None}):
        raise RowError(
            f"table {table.name}, column {column.name}: {strange.pop()!r:.80} is none of"
            f" {', '.join(column.values)}"
        )


def _check_keys(
    table: Table, columns: Sequence[Sequence[object]], modules: Sequence[Module]
) -> None:
    """Every row has a key of its own, and every module and instruction it names exists."""
    placed = columns[table.position("module")]
    if strange := set(placed) - set(range(len(modules))):
        raise RowError(f"table {table.name}: there is no module {strange.pop()}")
    if len(set(zip(placed, columns[table.position("id")], strict=True))) != len(placed):
        raise RowError(f"table {table.name}: two rows have the same module and id")
    for column, values in zip(table.columns, columns, strict=True):
        if column.type not in ("ref", "refs"):
            continue
        for place, largest in _largest_refs(table, column, placed, values).items():
            if largest >= modules[place].instruction_count:
                raise RowError(
                    f"table {table.name}, column {column.name}:"
                    f" module {place} has no instruction {largest}"
                )


def _largest_refs(
    table: Table, column: Column, placed: Sequence[object], values: Sequence[object]
) -> dict[int, int]:
    """The largest instruction id each module's rows hold in a column of refs."""
    largest: dict[int, int] = {}
    for place, value in zip(placed, values, strict=True):
        if value is None:
            continue
        for instr in value if isinstance(value, tuple) else (value,):
            if type(instr) is not int or instr < 0:
                raise RowError(
                    f"table {table.name}, column {column.name}: {instr!r:.80} is no instruction id"
                )
            assert isinstance(place, int)
            if instr > largest.get(place, -1):
                largest[place] = instr
    return largest
