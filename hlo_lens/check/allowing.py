"""Changes against a baseline that are meant: how they are written, and what they cover."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hlo_lens.check.conditions import columns_read_by
from hlo_lens.facts import FINDINGS, Facts, Registry, Table, UnknownTableError
from hlo_lens.facts.sqlite import Database, QueryError, columns_read, run_query
from hlo_lens.files import InputError
from hlo_lens.present.quantities import visible
from hlo_lens.present.reading import not_read

ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"
_WORDS: Final = (ADDED, REMOVED, CHANGED)

LOOP: Final = "loop"
INSTRUCTIONS: Final = "instructions"

REPEATED: Final = {
    "executions": frozenset(("executions_min", "executions_max")),
    LOOP: frozenset(("loop_depth", "executions", "executions_min", "executions_max")),
}
"""By column, those whose change only repeats that it has changed; of `loop`, that a row stands in
another one."""

Key: TypeAlias = tuple[object, object]
"""The module and the id of a row."""

_OPTION: Final = "--allow-change"
_FORM: Final = "write TABLE or TABLE:COLUMN,… and, if need be, where CONDITION behind it"
_WRITTEN: Final = re.compile(
    r"\s*(?P<table>\w+)\s*(?::(?P<what>.*?))?(?:\s+where\s+(?P<where>\S.*?))?\s*",
    re.IGNORECASE | re.DOTALL,
)
_ALL: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Allowed:
    """A change that is meant.

    table: whose rows may differ; `instructions` are the instructions themselves. what: columns in
    which rows that both sides have may differ, `loop` for the loop that they stand in; `added` and
    `removed` for rows that one side alone has; `changed` for every column. Without any: all of
    that. where: an SQL condition that has to hold of the row on each side that has it, as it is
    written; "" for every row.
    """

    table: str
    what: tuple[str, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        what = f":{','.join(self.what)}" if self.what else ""
        return f"{self.table}{what}" + (f" where {self.where}" if self.where else "")


def allowed_change(text: str, registry: Registry) -> Allowed:
    """What `TABLE`, `TABLE:COLUMN,…` or either with `where CONDITION` behind it allows.

    Raises `InputError` for a table or a column that is not there, or that no comparison looks at.
    The condition is read when it is needed.
    """
    match = _WRITTEN.fullmatch(text)
    if match is None or match["what"] == "":
        raise InputError(_OPTION, f"{visible(text)!r} cannot be read; {_FORM}")
    table = _table(match["table"], registry)
    said = [] if match["what"] is None else match["what"].split(",")
    what = tuple(dict.fromkeys(one.strip() for one in said))
    for one in what:
        _check_what(table, one)
    return Allowed(table.name, what, match["where"] or "")


def _table(name: str, registry: Registry) -> Table:
    try:
        table = registry.table(name)
    except UnknownTableError as problem:
        raise InputError(_OPTION, str(problem)) from None
    known = [one.name for one in registry.tables if _is_compared(one)]
    if table.name not in known:
        raise InputError(
            _OPTION, f"the table {name} is not compared; compared are {', '.join(known)}"
        )
    return table


def _is_compared(table: Table) -> bool:
    return table.summary is not None or table is FINDINGS or table.name == INSTRUCTIONS


def _check_what(table: Table, what: str) -> None:
    if what in _WORDS:
        return
    if table.name == INSTRUCTIONS:
        raise InputError(_OPTION, f"of instructions say {', '.join(_WORDS)}, not {visible(what)!r}")
    if what not in table.names:
        close = difflib.get_close_matches(what, (*table.names, *_WORDS), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"hlolens schema {table.name} lists them"
        raise InputError(_OPTION, f"table {table.name} has no column {visible(what)!r}; {hint}")
    if what != LOOP and table.column(what).role == "volatile":
        raise InputError(
            _OPTION, f"column {what} of {table.name} makes no difference: there is nothing to allow"
        )


class Meant:
    """Tells what of a difference is not meant, and remembers which of the changes that are allowed
    there were. Raises `InputError` for a condition that cannot be read, or that holds of nothing
    because a column never is what it is compared with."""

    def __init__(self, good: Facts, facts: Facts, allowed: Sequence[Allowed]) -> None:
        self._sides = good, facts
        self.all = tuple(dict.fromkeys(allowed))
        self._found: set[Allowed] = set()
        self._truths: dict[tuple[Allowed, int], dict[Key, bool | None]] = {}
        for one in self.all:
            if one.where:
                _check_condition(one, facts)

    def of(self, table: str) -> list[Allowed]:
        """What is allowed of a table."""
        return [one for one in self.all if one.table == table]

    def not_there(self, table: str) -> list[Allowed]:
        """What is allowed of a table and was not met so far."""
        return [one for one in self.of(table) if one not in self._found]

    def left(
        self, table: str, parts: frozenset[str], old: Key | None, new: Key | None
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Of what differs, that which is not allowed, and that of which it is not known.

        parts: `added`, `removed`, or the columns that changed. old, new: the row on each side, None
        for one that has it not.
        """
        covered: set[str] = set()
        perhaps: set[str] = set()
        for one in self.of(table):
            its = _covered(one, parts)
            if not its:
                continue
            truths = {self._truth(one, at, key) for at, key in enumerate((old, new)) if key}
            if truths == {True}:
                self._found.add(one)
                covered |= its
            elif False not in truths:
                perhaps |= its
        return parts - covered - perhaps, frozenset(perhaps - covered)

    def unknown(self, table: str) -> str | None:
        """Why it is not known which rows the conditions about a table mean; None where it is."""
        for one in self.of(table):
            if not one.where:
                continue
            for side in self._sides:
                read = {name for name, _ in columns_read((side,), _sql(one))}
                for name in sorted(read & side.registry.owners.keys()):
                    if (problem := not_read(side, name)) is not None:
                        return problem
        return None

    def _truth(self, allowed: Allowed, side: int, key: Key) -> bool | None:
        """Whether the condition holds of a row; None where that is not known."""
        if not allowed.where:
            return True
        if (allowed, side) not in self._truths:
            self._truths[allowed, side] = self._all_truths(allowed, self._sides[side])
        return self._truths[allowed, side].get(key)

    def _all_truths(self, allowed: Allowed, facts: Facts) -> dict[Key, bool | None]:
        try:
            rows = run_query((facts,), _sql(allowed), limit_rows=_ALL).rows
        except QueryError as problem:
            raise _mistake(allowed, str(problem)) from None
        modules = facts.program.modules
        nameless = {at for at, module in enumerate(modules) if not module.has_metadata}
        if not nameless or not _needs_op_names(allowed, facts):
            nameless = set()
        return {
            (module, id): None if truth is None or module in nameless else bool(truth)
            for module, id, truth in rows
        }


def _check_condition(allowed: Allowed, facts: Facts) -> None:
    try:
        with Database((facts,)) as asked:
            columns_read_by(allowed.where, allowed.table, facts, asked)
    except QueryError as problem:
        raise _mistake(allowed, str(problem)) from None


def _needs_op_names(allowed: Allowed, facts: Facts) -> bool:
    """Whether the condition reads what a text without op_names cannot tell."""
    for name, column in columns_read((facts,), _sql(allowed, "1")):
        table = facts.table(name)
        if name != allowed.table and table.needs_op_names:
            return True
        if column and table.column(column).needs_op_names:
            return True
    return False


def _covered(allowed: Allowed, parts: frozenset[str]) -> frozenset[str]:
    """What of a difference is of the kind that is allowed, whichever row it is of."""
    if not allowed.what:
        return parts
    if CHANGED in allowed.what and not parts & {ADDED, REMOVED}:
        return parts
    named = set(allowed.what)
    for column in (LOOP, "executions"):
        if column in named & parts:
            named |= REPEATED[column]
    return parts & named


def _sql(allowed: Allowed, shown: str = "") -> str:
    """Every row with what the condition says of it, or `shown` of those for which it holds. It
    stands on lines of its own: it may end in a comment."""
    if shown:
        return f'SELECT {shown} FROM "{allowed.table}" WHERE (\n{allowed.where}\n)'
    return f'SELECT module, id, NOT NOT (\n{allowed.where}\n) FROM "{allowed.table}"'


def _mistake(allowed: Allowed, problem: str) -> InputError:
    return InputError(f"{_OPTION} {visible(str(allowed))}", problem)
