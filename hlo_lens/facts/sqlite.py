"""The tables as SQL: an in-memory SQLite database that can only be read."""

from __future__ import annotations

import difflib
import math
import re
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts.columns import Table
from hlo_lens.facts.rows import json_text
from hlo_lens.facts.runner import Facts

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

DEFAULT_SECONDS = 30.0
DEFAULT_ROWS = 1_000_000

_AFFINITY = {
    "ref": "INTEGER",
    "int": "INTEGER",
    "bytes": "INTEGER",
    "flops": "INTEGER",
    "bool": "INTEGER",
    "float": "REAL",
    "refs": "TEXT",
    "enum": "TEXT",
    "text": "TEXT",
    "json": "TEXT",
}
# Joins go by the key, which has an index, and from a row to its members.
_INDEXES = (
    ("members", ("table", "row")),
    ("edges", ("module", "user")),
    ("edges", ("module", "producer")),
)
# A longer value can only be made by the query itself, to fill the memory.
_LONGEST_VALUE = 256 * 1024 * 1024
_STEPS_BETWEEN_CLOCK_READS = 10_000

# Comments and quotes as SQLite reads them, and what outside of them may end a condition.
_TOKEN = re.compile(
    r"""(?P<name> "(?:[^"]|"")*" )
    | '(?:[^']|'')*' | `(?:[^`]|``)*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/
    | (?P<open> ["'`\[] | /\* )
    | (?P<sign> [();] )""",
    re.DOTALL | re.VERBOSE,
)

_ONE_EXPRESSION = "a condition is one expression"
_UNIT = re.compile(r'near "(?:[kmgtp]i?b|b|[kmgtpe]?flop)"', re.IGNORECASE)
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_UNSAFE_FUNCTIONS = {"load_extension", "fts3_tokenizer"}


class QueryError(ValueError):
    """A query that cannot be answered; the message is a sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query gave. `complete` is False where rows beyond the limit were left out."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    complete: bool = True

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame, nullable dtypes. Raises ImportError without pandas."""
        from hlo_lens.notebook.frames import pandas_of_query

        return pandas_of_query(self)

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars DataFrame. Raises ImportError without polars."""
        from hlo_lens.notebook.frames import polars_of_query

        return polars_of_query(self)

    def __repr__(self) -> str:
        many = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"<QueryResult {many} of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_tables import query_html

        return query_html(self)


def run_query(
    facts: Sequence[Facts],
    sql: str,
    *,
    limit_seconds: float = DEFAULT_SECONDS,
    limit_rows: int = DEFAULT_ROWS,
) -> QueryResult:
    """Answer one SELECT over the tables of all `facts` together.

    Only the tables the query touches are computed. `module` counts on through the programs, in
    the order given. `limit_seconds` bounds the query itself, not the computing of tables.

    Raises `QueryError` for anything but one reading statement, for SQL that SQLite refuses, and
    where the time is over.
    """
    with Database(facts) as database:
        return database.ask(sql, limit_seconds=limit_seconds, limit_rows=limit_rows)


class Database:
    """What `run_query` asks, kept for more than one query: a table is filled when one touches it.

    A context manager, or until `close`.
    """

    def __init__(self, facts: Sequence[Facts]) -> None:
        self._facts = facts
        self._known = _tables(facts)
        self._connection = connect(facts, ())
        self._filled: set[str] = set()

    def ask(
        self, sql: str, *, limit_seconds: float = DEFAULT_SECONDS, limit_rows: int = DEFAULT_ROWS
    ) -> QueryResult:
        """Answer one SELECT; limits and errors are those of `run_query`."""
        for name in {table for table, _ in self.columns_read(sql)} - self._filled:
            _fill(self._connection, self._facts, [name])
            self._filled.add(name)
        return _answer(self._connection, sql, self._known, limit_seconds, limit_rows)

    def columns_read(self, sql: str) -> frozenset[tuple[str, str]]:
        """As the function of this name."""
        return frozenset(_read(self._connection, sql, self._known))

    def check_condition(self, table: str, *conditions: str) -> None:
        """As the function of this name."""
        # NOT takes an expression, which a SELECT, alone in parentheses, is not.
        sql = f'SELECT 1 FROM "{table}" WHERE (NOT\n{{}}\n)'
        self._check_parts(table, sql, conditions, _ONE_EXPRESSION)

    def check_order(self, table: str, order: str) -> None:
        """As the function of this name."""
        sql = f'SELECT 1 FROM "{table}" ORDER BY\n{{}}\nLIMIT 1'
        self._check_parts(table, sql, (order,), "an order is a list of expressions")

    def _check_parts(self, table: str, sql: str, parts: Iterable[str], rule: str) -> None:
        """Compile `sql` with each part for its `{}`. Raises `QueryError`, with `rule` where it says
        why."""
        for part in parts:
            if not re.sub(r"--[^\n]*|/\*.*?\*/", "", part, flags=re.DOTALL).strip():
                raise QueryError(f"it is empty: {rule}")
            strict, names = _with_names(part, rule)
            try:
                _read(self._connection, sql.replace("{}", strict, 1), self._known)
            except QueryError as problem:
                name = next((one for one in names if _lacks(problem, one)), None)
                if name is None:
                    raise
                columns = [
                    column for one in self._known if one.name == table for column in one.names
                ]
                raise QueryError(
                    f'no column "{name}"{_hint(name, columns)}; a text stands in single quotes in'
                    " SQL, as in phase = 'bwd'"
                ) from None

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def columns_read(facts: Sequence[Facts], sql: str) -> frozenset[tuple[str, str]]:
    """(table, column) of what a query reads, also inside it. Computes nothing.

    Raises `QueryError` as `run_query` does for a query that is not one or names what is not there.
    """
    with Database(facts) as database:
        return database.columns_read(sql)


def check_closed(condition: str) -> None:
    """Refuse what closes parentheses that it did not open, or leaves a quote, comment or
    parenthesis open. Raises `QueryError` with a sentence."""
    _with_names(condition, _ONE_EXPRESSION)


def check_condition(facts: Sequence[Facts], table: str, *conditions: str) -> None:
    """Refuse each that is no condition on the rows of `table` by itself. Computes nothing.

    Put in parentheses behind a WHERE, on lines of its own, what is not refused means nothing else
    than by itself. In double quotes stands a name: SQLite takes one that names no column there as a
    text, so that a misspelt column would be compared as a word, and hold of every row or none.

    Raises `QueryError` with a sentence.
    """
    with Database(facts) as database:
        database.check_condition(table, *conditions)


def check_order(facts: Sequence[Facts], table: str, order: str) -> None:
    """As `check_condition`, of what stands behind ORDER BY."""
    with Database(facts) as database:
        database.check_order(table, order)


def connect(facts: Sequence[Facts], tables: Iterable[str] | None = None) -> sqlite3.Connection:
    """A database in memory with every table, of which those of `tables` are filled.

    None fills all, which runs every pass. Raises `UnknownTableError` for a name that is no table.
    """
    # One that is kept may be closed by the garbage collector, which runs in any thread.
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    known = _tables(facts)
    for table in known:
        columns = ", ".join(f'"{one.name}" {_AFFINITY[one.type]}' for one in table.columns)
        connection.execute(f'CREATE TABLE "{table.name}" ({columns}, PRIMARY KEY (module, id))')
    for name, by in _INDEXES:
        if not any(table.name == name and set(by) <= set(table.names) for table in known):
            continue
        columns = ", ".join(f'"{one}"' for one in by)
        connection.execute(f'CREATE INDEX "{name}_by_{"_".join(by)}" ON "{name}" ({columns})')
    # SQLite declares these two when they are first used, which reading alone must not do.
    for function in ("json_each", "json_tree"):
        connection.execute(f"SELECT 1 FROM {function}('[]')").fetchall()
    try:
        _fill(connection, facts, [one.name for one in known] if tables is None else tables)
    except BaseException:
        connection.close()
        raise
    return connection


def _tables(facts: Sequence[Facts]) -> tuple[Table, ...]:
    known: dict[str, Table] = {}
    for one in facts:
        for table in one.tables:
            known.setdefault(table.name, table)
    return tuple(known.values())


def _fill(connection: sqlite3.Connection, facts: Sequence[Facts], names: Iterable[str]) -> None:
    connection.execute("BEGIN")
    for name in names:
        first_module = 0
        for one in facts:
            table = one.table(name)
            marks = ", ".join("?" * len(table.columns))
            insert = f'INSERT INTO "{name}" VALUES ({marks})'
            rows = _stored(table, one.rows(name), first_module)
            try:
                connection.executemany(insert, rows)
            except (OverflowError, UnicodeEncodeError):
                connection.execute(f'DELETE FROM "{name}" WHERE module >= ?', (first_module,))
                connection.executemany(insert, [tuple(map(_storable, row)) for row in rows])
            first_module += len(one.program.modules)
    connection.execute("COMMIT")


def _stored(
    table: Table, rows: list[tuple[object, ...]], first_module: int
) -> list[tuple[object, ...]]:
    """The rows as SQLite holds them: refs as JSON arrays, modules counted over all programs."""
    refs = [at for at, column in enumerate(table.columns) if column.type == "refs"]
    if not rows or (not refs and not first_module):
        return rows
    columns: list[Sequence[object]] = list(zip(*rows, strict=True))
    for at in refs:
        columns[at] = [value if value is None else json_text(value) for value in columns[at]]
    module = table.position("module")
    columns[module] = [
        value + first_module if isinstance(value, int) else value for value in columns[module]
    ]
    return list(zip(*columns, strict=True))


def _storable(value: object) -> object:
    """A whole number beyond 64 bits as a float, half a surrogate pair as a question mark."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _read(
    connection: sqlite3.Connection, sql: str, known: Sequence[Table]
) -> dict[tuple[str, str], None]:
    """(table, column) of what a query reads, found by compiling it against the empty tables.

    Compiling with EXPLAIN runs nothing, and SQLite itself sees through views, joins and WITH.
    Where rows are only counted, the column is "".
    """
    names = {table.name for table in known}
    read: dict[tuple[str, str], None] = {}
    selects = False

    def watch(
        action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
    ) -> int:
        nonlocal selects
        selects |= action == sqlite3.SQLITE_SELECT
        if action == sqlite3.SQLITE_READ and first is not None and first.lower() in names:
            read.setdefault((first.lower(), second or ""))
        return _allow_reading(action, first, second, _database, _by)

    word = _first_word(sql)
    if not word:
        raise QueryError("the query is empty; try: SELECT * FROM modules")
    explained = sql if word == "EXPLAIN" else f"EXPLAIN {sql}"
    connection.set_authorizer(watch)
    try:
        _execute(connection, explained, sql, known)
    finally:
        connection.set_authorizer(None)
    if not selects:
        raise QueryError(_only_reads(word))
    return read


def _with_names(part: str, rule: str) -> tuple[str, list[str]]:
    """`part` with backticks for double quotes, in which SQLite sees a name alone, and these names.

    Raises `QueryError` where a quote, comment or parenthesis is not closed, or opened.
    """
    depth = 0
    names: list[str] = []

    def replaced(token: re.Match[str]) -> str:
        nonlocal depth
        whole = token[0]
        depth += {"(": 1, ")": -1}.get(whole, 0)
        if token["open"]:
            raise QueryError(f"{rule}; a {whole} in it is not closed")
        if whole == ";" or depth < 0:
            raise QueryError(f"{rule}; a {whole} in it ends it too early")
        if not token["name"]:
            return whole
        names.append(whole[1:-1].replace('""', '"'))
        return f"`{names[-1].replace('`', '``')}`"

    strict = _TOKEN.sub(replaced, part)
    if depth:
        raise QueryError(f"{rule}; a ( in it is not closed")
    return strict, names


def _lacks(problem: QueryError, name: str) -> bool:
    """Whether SQLite's complaint is that there is no column of that name."""
    return str(problem.__cause__) == f"no such column: {name}"


def _answer(
    connection: sqlite3.Connection,
    sql: str,
    known: Sequence[Table],
    limit_seconds: float,
    limit_rows: int,
) -> QueryResult:
    deadline = time.monotonic() + limit_seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CLOCK_READS)
    connection.set_authorizer(_allow_reading)
    try:
        cursor = _execute(connection, sql, sql, known)
        rows = cursor.fetchmany(limit_rows)
        complete = len(rows) < limit_rows or cursor.fetchone() is None
    except sqlite3.Error as error:
        if time.monotonic() > deadline:
            raise QueryError(
                f"the query was stopped after {limit_seconds:g} s; narrow it with WHERE or a join"
                " condition, or allow more time"
            ) from error
        raise QueryError(f"SQLite: {error}") from error
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
    return QueryResult(tuple(name for name, *_ in cursor.description), rows, complete)


def _execute(
    connection: sqlite3.Connection,
    statement: str,
    sql: str,
    known: Sequence[Table],
) -> sqlite3.Cursor:
    try:
        return connection.execute(statement)
    except UnicodeEncodeError as error:
        raise QueryError("the query is not valid Unicode") from error
    except (sqlite3.Error, sqlite3.Warning) as error:
        if "interrupted" in str(error):
            raise
        raise QueryError(_explained(str(error), sql, known)) from error


def _allow_reading(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    harmless = action in _READS or (
        action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _UNSAFE_FUNCTIONS
    )
    return sqlite3.SQLITE_OK if harmless else sqlite3.SQLITE_DENY


def _first_word(sql: str) -> str:
    """The first word of a statement, in capitals, past spaces and comments."""
    match = re.match(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*(\w+|.)?", sql, re.DOTALL)
    return (match[1] or "").upper() if match else ""


def _only_reads(word: str) -> str:
    return f"query only reads: a statement starts with SELECT, WITH or VALUES, not with {word}"


def _explained(message: str, sql: str, known: Sequence[Table]) -> str:
    """SQLite's complaint as a sentence, with what was probably meant."""
    what, _, name = message.partition(": ")
    if what == "no such table":
        names = [table.name for table in known]
        return f"no table {name}{_hint(name, names)}; there are: {', '.join(names)}"
    if what == "no such column":
        return _no_column(name, sql, known)
    if "one statement" in message:
        return "query takes one statement; put a second one into a query of its own"
    if "not authorized" in message or "prohibited" in message:
        word = _first_word(sql)
        if word in ("SELECT", "WITH", "VALUES", "EXPLAIN"):
            return f"query only reads the tables; SQLite: {message}"
        return _only_reads(word)
    if _UNIT.match(message):
        return f"SQLite: {message}; numbers in SQL have no unit: 4 MiB is 4194304"
    return f"SQLite: {message}"


def _no_column(name: str, sql: str, known: Sequence[Table]) -> str:
    words = set(re.findall(r"\w+", sql.lower()))
    named = [table for table in known if table.name in words]
    names = [column for table in named for column in table.names]
    column = name.rpartition(".")[2]
    if any(name in one.values for table in named for one in table.columns):
        return f"no column {name}; a text stands in single quotes in SQL: '{name}'"
    if hint := _hint(column, names):
        return f"no column {name}{hint}"
    has = [f"{table.name} has: {', '.join(table.names)}" for table in named]
    return "; ".join((f"no column {name}", *has))


def _hint(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), dict.fromkeys(names), n=1)
    return f", did you mean {close[0]}?" if close else ""
