"""Expectation files: TOML with [[expect]] tables, read into `Expectation`s or refused by line."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from hlo_lens.check.comparing import comparison
from hlo_lens.check.model import (
    PERS,
    QUANTITIES,
    SEVERITIES,
    Comparison,
    Expectation,
    Per,
    Quantity,
    Severity,
)
from hlo_lens.check.places import HERE, ExpectationError, Place, Places, written
from hlo_lens.check.presets import close, expanded, from_command_line, presets
from hlo_lens.facts import Column, Registry, Table, UnknownTableError

__all__ = [
    "HERE",
    "ExpectationError",
    "Place",
    "expectation",
    "named",
    "presets",
    "read_file",
    "read_text",
]

OF_A_COLUMN: Final = ("sum", "max", "min")
NUMBERS: Final = ("count", *OF_A_COLUMN)
COLUMN_TYPES: Final = ("int", "float", "bytes", "flops")
_TEXTS: Final = ("id", "table", "where", "because", "stage", "preset")
VERSION: Final = 1
KEYS: Final = (*_TEXTS, *QUANTITIES, "is", "per", "severity", "allow_empty", "show")


def read_file(path: str | Path, registry: Registry) -> list[Expectation]:
    """The expectations of a file. Raises `ExpectationError` for one that says what does not exist,
    `OSError` for one that cannot be read."""
    return read_text(Path(path).read_bytes(), str(path), registry)


def read_text(data: bytes, name: str, registry: Registry) -> list[Expectation]:
    """The expectations of TOML text; `name` is the file's. Raises as `read_file`."""
    try:
        text = data.decode("utf-8-sig")
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number may have too many digits, too
        raise ExpectationError(*_not_toml(name, error)) from None
    places = Places(name, text)
    for key in content:
        if key not in ("expect", "version"):
            raise ExpectationError(places.top(key), f"no key {key!r}; a file holds [[expect]]")
    if (version := content.get("version", VERSION)) != VERSION or isinstance(version, bool):
        raise ExpectationError(
            places.top("version"), f"version is {VERSION}, not {written(version)}"
        )
    given = content.get("expect", [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ExpectationError(places.top("expect"), "write each expectation as [[expect]]")
    if not given:
        raise ExpectationError(name, "no [[expect]] in it: nothing would be checked")
    found: list[Expectation] = []
    for number, one in enumerate(given):
        found.append(expectation(one, places.of(number), registry))
        taken = {other.id for other in found[:-1]}
        if found[-1].id not in taken:
            continue
        if "id" in one:
            raise ExpectationError(
                places.of(number)("id"), f"a second id {found[-1].id!r}; give this one another"
            )
        numbered = (f"{found[-1].id}-{again}" for again in itertools.count(2))
        found[-1] = replace(found[-1], id=next(id for id in numbered if id not in taken))
    return found


def named(text: str, registry: Registry) -> Expectation:
    """The expectation of a preset, as the command line names it: `NAME` or `NAME:KEY=VALUE,…`.

    Raises as `expectation`.
    """
    return expectation(from_command_line(text), lambda _: f"--preset {text}", registry)


def _not_toml(name: str, error: Exception) -> tuple[str, str]:
    """Where the text is not TOML, and why."""
    if isinstance(error, UnicodeDecodeError):
        return name, f"not TOML: {error}"
    if isinstance(error, RecursionError):
        return name, "not TOML: tables within tables without end"
    why = str(error)
    line = re.search(r" \(at line (\d+), column (\d+)\)$", why)
    if line is None:
        return name, f"not TOML: {why}"
    return f"{name}:{line[1]}:{line[2]}", f"not TOML: {why[: line.start()]}"


def expectation(given: Mapping[str, Any], place: Place, registry: Registry) -> Expectation:
    """One expectation of a file, or of what Python says in the same words.

    Raises `ExpectationError` for a key, table, column, unit or value that does not exist. SQL is
    read when it is judged.
    """
    given, said, if_empty = expanded(given, place)
    for key in given:
        if key not in KEYS:
            raise ExpectationError(place(key), f"no key {key!r}{_of_a_preset(key)}")
    for key in _TEXTS:
        if key in given and not isinstance(given[key], str):
            raise ExpectationError(place(key), f"{key} is a text, not {written(given[key])}")
        if key in given and not given[key].strip():
            raise ExpectationError(place(key), f"{key} is empty: leave it out")
    if "table" not in given:
        raise ExpectationError(place("id"), 'which table? table = "collectives", or a preset')
    try:
        table = registry.table(given["table"])
    except UnknownTableError as problem:
        raise ExpectationError(place("table"), str(problem)) from None
    quantity = _quantity(given, place)
    column, compared = _compared(given, quantity, table, place)
    per = _word(given, "per", PERS, "text", place)
    if "per" in given and compared is None:
        raise ExpectationError(place("per"), f"per belongs to {', '.join(NUMBERS)}")
    if per == "step" and quantity in ("max", "min"):
        raise ExpectationError(place("per"), f"a {quantity} is of one run; leave out per")
    if per != "text" and "executions" not in table.names:
        raise ExpectationError(place("per"), f"rows of {table.name} do not run; leave out per")
    return Expectation(
        id=given.get("id") or _id_of(given, quantity),
        table=table.name,
        quantity=quantity,
        where=given.get("where", ""),
        condition=_condition(given, quantity, place),
        column=None if column is None else column.name,
        compared=compared,
        per=cast(Per, per),
        because=given.get("because", ""),
        severity=cast(Severity, _word(given, "severity", SEVERITIES, "error", place)),
        stage=given.get("stage"),
        allow_empty=_truth(given, "allow_empty", place),
        show=_show(given, table, place),
        place=place("id"),
        where_place=place("where"),
        condition_place=place(quantity),
        said=said,
        if_empty=if_empty,
    )


def _of_a_preset(key: str) -> str:
    """What was probably meant by a key that there is not."""
    takers = [name for name, preset in presets().items() if key in preset.parameters]
    return f"; it belongs to preset {' and '.join(takers)}" if takers else close(key, KEYS)


def _quantity(given: Mapping[str, Any], place: Place) -> Quantity:
    said = [one for one in QUANTITIES if one in given]
    if len(said) != 1:
        what = f"both {' and '.join(said)}" if said else "nothing"
        raise ExpectationError(
            place(said[-1] if said else "id"),
            f"it expects {what}; say one of {', '.join(QUANTITIES)}",
        )
    return said[0]


def _compared(
    given: Mapping[str, Any], quantity: Quantity, table: Table, place: Place
) -> tuple[Column | None, Comparison | None]:
    """The column and what the number is to be, for those quantities that are one."""
    column = None
    if quantity in OF_A_COLUMN:
        column = _column(given[quantity], table, place(quantity))
        if "is" not in given:
            raise ExpectationError(place(quantity), f'what is the {quantity} to be? is = "<= …"')
    elif "is" in given:
        raise ExpectationError(place("is"), f"is belongs to {', '.join(OF_A_COLUMN)}")
    if quantity not in (*OF_A_COLUMN, "count"):
        return None, None
    key = "count" if quantity == "count" else "is"
    try:
        return column, comparison(given[key], column)
    except ValueError as problem:
        raise ExpectationError(place(key), str(problem)) from None


def _column(name: object, table: Table, place: str) -> Column:
    if not isinstance(name, str) or name not in table.names:
        near = close(str(name), table.names)
        raise ExpectationError(place, f"table {table.name} has no column {written(name)}{near}")
    column = table.column(name)
    if column.type not in COLUMN_TYPES:
        raise ExpectationError(place, f"column {name} holds no numbers, but {column.type}")
    return column


def _show(given: Mapping[str, Any], table: Table, place: Place) -> tuple[str, ...]:
    said = given.get("show", [])
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        raise ExpectationError(place("show"), f"show is a list of columns, not {written(said)}")
    for name in said:
        if name not in table.names:
            near = close(name, table.names)
            raise ExpectationError(
                place("show"), f"table {table.name} has no column {name!r}{near}"
            )
    return tuple(said)


def _condition(given: Mapping[str, Any], quantity: Quantity, place: Place) -> str:
    """The SQL condition of every, any and none; "" for `none = true`."""
    if quantity not in ("every", "any", "none"):
        return ""
    said = given[quantity]
    if quantity != "every" and said is True:
        return ""
    if not isinstance(said, str) or not said.strip():
        raise ExpectationError(
            place(quantity), f"{quantity} is an SQL condition, not {written(said)}"
        )
    return said


def _word(
    given: Mapping[str, Any], key: str, known: Sequence[str], default: str, place: Place
) -> str:
    said = given.get(key, default)
    if said not in known:
        raise ExpectationError(
            place(key), f"{key} is {' or '.join(map(repr, known))}, not {written(said)}"
        )
    return str(said)


def _truth(given: Mapping[str, Any], key: str, place: Place) -> bool:
    said = given.get(key, False)
    if not isinstance(said, bool):
        raise ExpectationError(place(key), f"{key} is true or false, not {written(said)}")
    return said


def _id_of(given: Mapping[str, Any], quantity: Quantity) -> str:
    """A name for one without: what it is about."""
    words = [given["table"], quantity, *re.findall(r"\w+", str(given.get("where", "")))]
    return "-".join(words)[:60]
