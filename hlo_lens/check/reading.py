"""Expectation files: TOML with [[expect]] tables, read into `Expectation`s or refused by line."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
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
from hlo_lens.facts import Column, Registry, Table, UnknownTableError
from hlo_lens.files import InputError

_OF_A_COLUMN: Final = ("sum", "max", "min")
_TEXTS: Final = ("id", "table", "where", "because", "stage", "preset")
KEYS: Final = (*_TEXTS, *QUANTITIES, "is", "per", "severity", "allow_empty")


class ExpectationError(InputError):
    """An expectation file that cannot be judged by: what is wrong, and in which line."""


def read_file(path: str | Path, registry: Registry) -> list[Expectation]:
    """The expectations of a file. Raises `ExpectationError` for one that says what does not exist,
    `OSError` for one that cannot be read."""
    return read_text(Path(path).read_bytes(), str(path), registry)


def read_text(data: bytes, name: str, registry: Registry) -> list[Expectation]:
    """The expectations of TOML text; `name` is the file's. Raises as `read_file`."""
    try:
        text = data.decode()
        content = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ExpectationError(name, f"not TOML: {error}") from None
    places = _Places(name, text)
    for key in content:
        if key not in ("expect", "version"):
            raise ExpectationError(places.top(key), f"no key {key!r}; a file holds [[expect]]")
    given = content.get("expect", [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ExpectationError(places.top("expect"), "write each expectation as [[expect]]")
    if not given:
        raise ExpectationError(name, "no [[expect]] in it: nothing would be checked")
    found: list[Expectation] = []
    for number, one in enumerate(given):
        found.append(expectation(one, places.of(number), registry))
        if found[-1].id in {other.id for other in found[:-1]}:
            raise ExpectationError(places.of(number)("id"), f"a second id {found[-1].id!r}")
    return found


class _Places:
    """Where keys stand in a TOML text, as `file:line`, as far as lines tell."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.splitlines()
        self.starts = [
            number
            for number, line in enumerate(self.lines)
            if re.match(r"\s*\[\[\s*expect\s*\]\]", line)
        ]

    def top(self, key: str) -> str:
        return self._found(key, range(len(self.lines)))

    def of(self, number: int) -> Place:
        """The place of a key of one expectation, or of the expectation itself for another key."""
        if number >= len(self.starts):
            return Place(lambda _: self.name)
        start = self.starts[number]
        end = self.starts[number + 1] if number + 1 < len(self.starts) else len(self.lines)
        return Place(lambda key: self._found(key, range(start, end)))

    def _found(self, key: str, lines: range) -> str:
        written = re.compile(rf"\s*\[*\s*['\"]?{re.escape(key)}['\"]?\s*[=\]]")
        for number in lines:
            if written.match(self.lines[number]):
                return f"{self.name}:{number + 1}"
        return f"{self.name}:{lines[0] + 1}" if lines else self.name


class Place:
    """Tells where a key of one expectation is written."""

    def __init__(self, find: Any) -> None:
        self._find = find

    def __call__(self, key: str) -> str:
        return str(self._find(key))


HERE: Final = Place(lambda _: "expectation")
"""For an expectation that no file holds."""


def expectation(given: Mapping[str, Any], place: Place, registry: Registry) -> Expectation:
    """One expectation of a file, or of what Python says in the same words.

    Raises `ExpectationError` for a key, table, column, unit or value that does not exist. SQL is
    read when it is judged.
    """
    given = _with_preset(given, place)
    for key in given:
        if key not in KEYS:
            raise ExpectationError(place(key), f"no key {key!r}{_close(key, KEYS)}")
    for key in _TEXTS:
        if key in given and (not isinstance(given[key], str) or not given[key].strip()):
            raise ExpectationError(place(key), f"{key} is a text, not {given[key]!r}")
    if "table" not in given:
        raise ExpectationError(place("id"), 'which table? table = "collectives", or a preset')
    try:
        table = registry.table(given["table"])
    except UnknownTableError as problem:
        raise ExpectationError(place("table"), str(problem)) from None
    quantity = _quantity(given, place)
    column, compared = _compared(given, quantity, table, place)
    per = _word(given, "per", PERS, "text", place)
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
        place=place("id"),
    )


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
    if quantity in _OF_A_COLUMN:
        column = _column(given[quantity], table, place(quantity))
        if "is" not in given:
            raise ExpectationError(place(quantity), f'what is the {quantity} to be? is = "<= …"')
    elif "is" in given:
        raise ExpectationError(place("is"), f"is belongs to {', '.join(_OF_A_COLUMN)}")
    if quantity not in (*_OF_A_COLUMN, "count"):
        return None, None
    key = "count" if quantity == "count" else "is"
    try:
        return column, comparison(given[key], column)
    except ValueError as problem:
        raise ExpectationError(place(key), str(problem)) from None


def _column(name: object, table: Table, place: str) -> Column:
    if not isinstance(name, str) or name not in table.names:
        close = _close(str(name), table.names)
        raise ExpectationError(place, f"table {table.name} has no column {name!r}{close}")
    column = table.column(name)
    if column.type not in ("int", "float", "bytes", "flops"):
        raise ExpectationError(place, f"column {name} holds no numbers, but {column.type}")
    return column


def _condition(given: Mapping[str, Any], quantity: Quantity, place: Place) -> str:
    """The SQL condition of every, any and none; "" for `none = true`."""
    if quantity not in ("every", "any", "none"):
        return ""
    said = given[quantity]
    if quantity != "every" and said is True:
        return ""
    if not isinstance(said, str) or not said.strip():
        raise ExpectationError(place(quantity), f"{quantity} is an SQL condition, not {said!r}")
    return said


def _word(
    given: Mapping[str, Any], key: str, known: Sequence[str], default: str, place: Place
) -> str:
    said = given.get(key, default)
    if said not in known:
        raise ExpectationError(
            place(key), f"{key} is {' or '.join(map(repr, known))}, not {said!r}"
        )
    return str(said)


def _truth(given: Mapping[str, Any], key: str, place: Place) -> bool:
    said = given.get(key, False)
    if not isinstance(said, bool):
        raise ExpectationError(place(key), f"{key} is true or false, not {said!r}")
    return said


def _close(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(known)}"


def _id_of(given: Mapping[str, Any], quantity: Quantity) -> str:
    """A name for one without: what it is about."""
    words = [given["table"], quantity, *re.findall(r"\w+", str(given.get("where", "")))]
    return "-".join(words)[:60]


# --- presets ---------------------------------------------------------------------------------


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """The expectations that have a name, by it; a file may say another value for any key."""
    place = resources.files("hlo_lens.check") / "data" / "presets.toml"
    content = tomllib.loads(place.read_text(encoding="utf-8"))
    return {name: dict(one) for name, one in content.items()}


def _with_preset(given: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    name = given.get("preset")
    if name is None:
        return given
    known = presets()
    if name not in known:
        raise ExpectationError(
            place("preset"), f"no preset {name!r}{_close(str(name), tuple(known))}"
        )
    own = {key: value for key, value in given.items() if key != "preset"}
    # Another quantity takes the place of the preset's.
    dropped = QUANTITIES if any(key in own for key in QUANTITIES) else ()
    base = {key: value for key, value in known[name].items() if key not in dropped}
    return {"id": name, **base, **own}
