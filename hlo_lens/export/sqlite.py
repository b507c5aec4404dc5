"""The tables of programs as one SQLite file, which says of itself what its columns mean."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from hlo_lens.facts import SCHEMA_VERSION, Facts, Table
from hlo_lens.facts.columns import ROLE_DOCS, TYPE_DOCS
from hlo_lens.facts.schema import meaning
from hlo_lens.facts.sqlite import connect
from hlo_lens.files import InputError

# Tables of the file beside those of the programs: name → columns.
DESCRIBING = {
    "programs": "program INTEGER PRIMARY KEY, name TEXT, first_module INTEGER, modules INTEGER",
    "texts": "module INTEGER PRIMARY KEY, program INTEGER, stage TEXT, file TEXT, sha256 TEXT",
    "schema_tables": '"table" TEXT PRIMARY KEY, row TEXT',
    "schema_columns": (
        '"table" TEXT, position INTEGER, "column" TEXT, type TEXT, role TEXT, unit TEXT, doc TEXT,'
        ' PRIMARY KEY ("table", "column")'
    ),
    "schema_words": "kind TEXT, word TEXT, doc TEXT, PRIMARY KEY (kind, word)",
}

_Rows = Iterable[tuple[object, ...]]


def write_sqlite(facts: Sequence[Facts], path: str | Path) -> None:
    """Write every table of all `facts` to a SQLite file, which takes the place of what is there.

    The tables are those of `hlolens query`: `module` counts on through the programs, in the order
    given. Beside them stand `programs`, `texts` (the SHA-256 of each module's text), and the schema
    as data: `schema_tables`, `schema_columns`, `schema_words`. `PRAGMA user_version` is the
    version of the schema. The same input gives the same bytes with the same release of SQLite.

    Runs every pass. Raises `InputError` where `path` can be no database, `OSError` where it cannot
    be written; then what was there is left as it was.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(path, "a database is a file of its own, and this is none")
    part = target.with_name(f".{target.name}.part")
    try:
        try:
            part.open("wb").close()  # before the passes run, which may take a minute
        except OSError as problem:
            problem.filename = os.fspath(path)  # a person asked for that one
            raise
        with closing(connect(facts)) as database:
            _describe(database, facts)
            _copy(database, part, path)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _describe(database: sqlite3.Connection, facts: Sequence[Facts]) -> None:
    """Add what the file says of itself."""
    tables = {table.name: table for one in facts for table in one.tables}
    rows: dict[str, _Rows] = {
        "programs": _programs(facts),
        "texts": _texts(facts),
        "schema_tables": ((table.name, table.row) for table in tables.values()),
        "schema_columns": _columns(tables.values()),
        "schema_words": _words(),
    }
    database.execute("BEGIN")
    for name, columns in DESCRIBING.items():
        if name in tables:
            continue  # a plugin has a table of that name, and facts come first
        database.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" * len(database.execute(f"PRAGMA table_info({name})").fetchall()))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows[name])
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")


def _programs(facts: Sequence[Facts]) -> _Rows:
    first = 0
    for number, one in enumerate(facts):
        modules = len(one.program.modules)
        yield number, _storable(one.program.name), first, modules
        first += modules


def _texts(facts: Sequence[Facts]) -> _Rows:
    position = 0
    for number, one in enumerate(facts):
        for module, stage in zip(one.program.modules, one.program.stages, strict=True):
            digest = module.sha256
            yield position, number, _storable(stage), _storable(module.filename), digest
            position += 1


def _columns(tables: Iterable[Table]) -> Iterator[tuple[object, ...]]:
    for table in tables:
        for position, column in enumerate(table.columns):
            yield (
                table.name, position, column.name, column.type, column.role, column.unit,
                meaning(column),
            )  # fmt: skip


def _words() -> _Rows:
    yield from (("type", word, doc) for word, doc in TYPE_DOCS.items())
    yield from (("role", word, doc) for word, doc in ROLE_DOCS.items())


def _storable(text: str | None) -> str | None:
    """Names of files may hold bytes that are no text."""
    return None if text is None else text.encode(errors="replace").decode()


def _copy(database: sqlite3.Connection, part: Path, path: str | Path) -> None:
    with closing(sqlite3.connect(part)) as file:
        file.execute("PRAGMA journal_mode = OFF")  # a part that breaks off is thrown away
        try:
            database.backup(file)
        except sqlite3.OperationalError as problem:
            raise OSError(errno.EIO, f"SQLite: {problem}", os.fspath(path)) from problem
