"""A SQLite file of all tables: what a query answers it answers, and it describes itself."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hlo_lens.export.sqlite import DESCRIBING, write_sqlite
from hlo_lens.facts import SCHEMA_VERSION, Facts, PassResult
from hlo_lens.facts.sqlite import run_query
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.export.panels import TEXT, program
from tests.facts.toys import Toy, ops, table

DEMO = Path(__file__).resolve().parents[2] / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"

ROW = {"module": 0}

Rows = list[tuple[object, ...]]


def ask(path: Path, sql: str) -> Rows:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchall()


def written(path: Path, *facts: Facts) -> Path:
    write_sqlite(facts, path)
    return path


def test_every_table_has_the_rows_of_a_query(tmp_path: Path) -> None:
    facts = Facts(load(DEMO))
    path = written(tmp_path / "demo.sqlite", facts)
    for one in facts.tables:
        sql = f'SELECT * FROM "{one.name}" ORDER BY module, id'
        assert ask(path, sql) == run_query([facts], sql).rows, one.name
    assert ask(path, "SELECT count(*) > 0 FROM collectives") == [(1,)]
    assert ask(path, "SELECT count(*) > 0 FROM members") == [(1,)]


def test_modules_count_on_through_the_programs(tmp_path: Path) -> None:
    two = Program([parse(TEXT), parse(TEXT)], name="two")
    path = written(tmp_path / "x.db", Facts(two, [ops()]), Facts(program(name="one"), [ops()]))
    assert ask(path, "SELECT * FROM programs") == [(0, "two", 0, 2), (1, "one", 2, 1)]
    assert ask(path, "SELECT DISTINCT module FROM ops") == [(0,), (1,), (2,)]
    assert ask(path, "SELECT module, program FROM texts") == [(0, 0), (1, 0), (2, 1)]


def test_it_says_which_texts_it_is_of(tmp_path: Path) -> None:
    path = written(tmp_path / "x.db", Facts(load(DEMO), [ops()]))
    digest = hashlib.sha256(DEMO.read_bytes()).hexdigest()
    sql = "SELECT stage, file, sha256 FROM texts"
    assert ask(path, sql) == [("after_optimizations", str(DEMO), digest)]


def test_it_says_what_its_columns_mean(tmp_path: Path) -> None:
    path = written(tmp_path / "x.db", Facts(program()))
    assert ask(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    sql = """SELECT type, role, unit, doc FROM schema_columns
             WHERE "table" = 'loops' AND "column" = 'trip_count'"""
    column = Facts(program()).table("loops").column("trip_count")
    assert ask(path, sql) == [(column.type, column.role, column.unit, column.doc)]
    words = ask(path, "SELECT kind, word FROM schema_words")
    for kind in ("type", "role"):
        used = ask(path, f"SELECT DISTINCT '{kind}', {kind} FROM schema_columns")
        assert set(used) <= set(words)


def test_every_column_of_every_table_is_described(tmp_path: Path) -> None:
    path = written(tmp_path / "x.db", Facts(program()))
    tables = [name for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    described = set(ask(path, 'SELECT "table", "column" FROM schema_columns'))
    real = {
        (name, column)
        for name in tables
        if name not in DESCRIBING
        for _, column, *_ in ask(path, f'PRAGMA table_info("{name}")')
    }
    assert described == real
    assert set(DESCRIBING) <= set(tables)
    assert {name for name, _ in real} == {
        name for (name,) in ask(path, 'SELECT "table" FROM schema_tables')
    }


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path / "a.sqlite", Facts(load(DEMO)))
    second = written(tmp_path / "b.sqlite", Facts(load(DEMO)))
    assert first.read_bytes() == second.read_bytes()


def test_it_takes_the_place_of_what_was_there_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("old")
    written(path, Facts(program(), [ops()]))
    assert ask(path, "SELECT count(*) FROM ops") == [(9,)]
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_stays_where_the_disk_is_full(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limit for files")
    path = tmp_path / "x.db"
    path.write_text("old")
    facts = Facts(program())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="SQLite: ") as caught:
            write_sqlite([facts], path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a database is a file of its own"):
        write_sqlite([Facts(program(), [ops()])], tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        write_sqlite([Facts(program(), [ops()])], tmp_path / "no" / "x.db")
    assert caught.value.filename == str(tmp_path / "no" / "x.db")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    made = Program([parse(TEXT, filename="bad\udcff\n.hlo")], name="n\ud800'; DROP TABLE ops; --")
    path = written(tmp_path / "bad\udcff.db", Facts(made, [ops()]))
    assert ask(path, "SELECT name FROM programs") == [("n?'; DROP TABLE ops; --",)]
    assert ask(path, "SELECT file FROM texts") == [("bad?\n.hlo",)]
    assert ask(path, "SELECT count(*) FROM ops") == [(9,)]


def test_a_table_of_a_plugin_keeps_its_name(tmp_path: Path) -> None:
    mine = Toy("mine", (table("texts"),), lambda _program, _facts: PassResult({"texts": [ROW]}))
    path = written(tmp_path / "x.db", Facts(program(), [mine]))
    assert ask(path, "SELECT module, id FROM texts") == [(0, 0)]
    assert ask(path, "SELECT name FROM programs") == [("step",)]


def test_pandas_reads_it(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    path = written(tmp_path / "x.db", Facts(program()))
    with closing(sqlite3.connect(path)) as database:
        frame = pandas.read_sql("SELECT name, trip_count FROM loops", database)
    assert frame.to_dict("records") == [{"name": "loop", "trip_count": 3}]
