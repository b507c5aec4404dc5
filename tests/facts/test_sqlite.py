"""SQL over the tables: only reading, only what is touched, bounded, and errors in sentences."""

from __future__ import annotations

import pytest

from hlo_lens.facts import Column, Facts, PassResult
from hlo_lens.facts.sqlite import (
    QueryError,
    check_condition,
    check_order,
    columns_read,
    connect,
    run_query,
)
from tests.facts.toys import Toy, ops, program, sums, table

SQUARE = """\
HloModule square
ENTRY main {
  x = f32[2]{0} parameter(0)
  ROOT y = f32[2]{0} multiply(x, x)
}
"""


def ask(sql: str, *passes: object, **limits: float) -> list[tuple[object, ...]]:
    return run_query([Facts(program(), passes or (ops(), sums()))], sql, **limits).rows


def refused(sql: str, **limits: float) -> str:
    with pytest.raises(QueryError) as caught:
        ask(sql, **limits)
    return str(caught.value)


# -- answers --------------------------------------------------------------------------------------


def test_columns_have_their_types() -> None:
    sql = "SELECT instr, opcode, operands, is_root, typeof(is_root) FROM ops WHERE id > 0"
    assert ask(sql) == [
        (1, "multiply", "[0,0]", 0, "integer"),
        (2, "add", "[0,1]", 1, "integer"),
    ]


def test_a_result_has_column_names() -> None:
    result = run_query([Facts(program(), [ops()])], "SELECT opcode AS what, count(*) FROM ops")
    assert result.columns == ("what", "count(*)")
    assert result.complete


def test_refs_are_json_arrays() -> None:
    sql = "SELECT value FROM ops, json_each(operands) WHERE opcode = 'add'"
    assert ask(sql) == [(0,), (1,)]


def test_several_programs_are_one_database_and_modules_count_on() -> None:
    facts = [
        Facts(program(SQUARE, SQUARE), [ops(), sums()]),
        Facts(program(), [ops(), sums()]),
    ]
    sql = "SELECT module, count(*) FROM ops GROUP BY module ORDER BY module"
    assert run_query(facts, sql).rows == [(0, 2), (1, 2), (2, 3)]
    assert run_query(facts, "SELECT module, instr FROM sums").rows == [(2, 2)]


def test_a_number_beyond_64_bits_becomes_a_float_and_half_a_pair_a_question_mark() -> None:
    big = table(
        "bigs",
        Column("flops", "flops", "measure", "flops"),
        Column("label", "text", "volatile", "label"),
    )
    rows = [{"module": 0, "flops": 10**30, "label": "a\ud800"}, {"module": 0, "flops": 7}]
    one = Toy("big", (big,), lambda program, facts: PassResult({"bigs": rows}))
    assert ask("SELECT flops, label FROM bigs", one) == [(1e30, "a?"), (7, None)]


def test_connect_gives_a_database_of_every_table() -> None:
    with connect([Facts(program(), [ops(), sums()])]) as database:
        assert database.execute("SELECT count(*) FROM ops").fetchone() == (3,)
        assert database.execute("SELECT count(*) FROM sums").fetchone() == (1,)
    database.close()


# -- only what the query touches ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "run"),
    [
        ("SELECT 1", []),
        ("SELECT count(*) FROM OPS", ["ops"]),
        ("SELECT a.id FROM other a JOIN other b USING (id)", ["other"]),
        ("WITH x AS (SELECT id FROM ops) SELECT * FROM x", ["ops"]),
        (
            "SELECT 1 FROM ops WHERE EXISTS (SELECT 1 FROM other WHERE other.id = ops.id)",
            ["ops", "other"],
        ),
        ("SELECT (SELECT max(id) FROM other)", ["other"]),
        ("SELECT id FROM ops UNION SELECT id FROM other", ["ops", "other"]),
        ("EXPLAIN QUERY PLAN SELECT * FROM ops", ["ops"]),
        ("SELECT 'other' -- ops", []),
        ("SELECT count(*) FROM members", ["ops", "other"]),
        ("SELECT count(*) FROM findings", ["ops", "other"]),
    ],
)
def test_only_touched_tables_are_computed(sql: str, run: list[str]) -> None:
    one = ops()
    other = Toy("other", (table("other"),), lambda program, facts: PassResult({}))
    ask(sql, one, other)
    assert one.runs + other.runs == run


# -- only reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM ops",
        "INSERT INTO ops (id) VALUES (1)",
        "UPDATE ops SET id = 1",
        "DROP TABLE ops",
        "CREATE TABLE t (x)",
        "CREATE TEMP VIEW v AS SELECT 1",
        "ATTACH 'x.db' AS x",
        "PRAGMA user_version",
        "VACUUM",
        "BEGIN",
        "ANALYZE",
        "REINDEX",
        "/* SELECT */ -- SELECT\n DELETE FROM ops",
    ],
)
def test_only_select_is_run(sql: str) -> None:
    assert "query only reads: a statement starts with SELECT" in refused(sql)


def test_a_vacuum_into_a_file_writes_none(tmp_path) -> None:
    refused(f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT 1) DELETE FROM ops",
        "EXPLAIN DELETE FROM ops",
        "SELECT load_extension('x')",
        "SELECT * FROM pragma_database_list",
    ],
)
def test_what_looks_like_reading_is_refused_too(sql: str) -> None:
    assert "query only reads the tables" in refused(sql)


def test_one_statement() -> None:
    assert ask("SELECT 1; -- that is all") == [(1,)]
    assert "query takes one statement" in refused("SELECT 1; SELECT 2")
    assert "query takes one statement" in refused("SELECT 1; DROP TABLE ops")
    assert "the query is empty" in refused(" -- nothing\n")


# -- errors in sentences --------------------------------------------------------------------------


def test_an_unknown_table_gets_a_suggestion() -> None:
    message = refused("SELECT * FROM sum")
    assert message == "no table sum, did you mean sums?; there are: findings, members, ops, sums"


def test_an_unknown_column_gets_a_suggestion_or_the_list() -> None:
    assert refused("SELECT o.opcod FROM ops o") == "no column o.opcod, did you mean opcode?"
    message = refused("SELECT flavour FROM ops")
    assert message == ("no column flavour; ops has: id, module, instr, opcode, operands, is_root")


def test_a_number_with_a_unit_is_told_of() -> None:
    assert refused("SELECT * FROM ops WHERE id > 4 MiB") == (
        'SQLite: near "MiB": syntax error; numbers in SQL have no unit: 4 MiB is 4194304'
    )


def test_what_sqlite_says_is_passed_on() -> None:
    assert refused("SELECT * FORM ops") == 'SQLite: near "FORM": syntax error'
    assert refused("SELECT nofunction(1)") == "SQLite: no such function: nofunction"
    assert refused("SELECT '\ud800'") == "the query is not valid Unicode"


# -- conditions by themselves ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "is_root",
        '"opcode" = \'add\' OR "is_root"',
        "id IN (SELECT row FROM members WHERE \"table\" = 'sums')",
        'EXISTS (SELECT 1 FROM members AS "m" WHERE "m"."row" = "ops"."id")',
        "is_root -- the step's (\n AND opcode = 'add'",
        "is_root /* ) ; ' */",
        "opcode IN (')', ';', '\"', 'it''s', '--')",
        "[opcode] = `opcode`",
    ],
)
def test_a_condition_that_stands_alone(condition: str) -> None:
    check_condition([Facts(program(), [ops(), sums()])], "ops", condition)


ENDS = "a condition is one expression; a {} in it ends it too early"
OPEN = "a condition is one expression; a {} in it is not closed"


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("0) OR (1 = 1", ENDS.format(")")),
        ("1\n) UNION SELECT 0, 0 FROM modules WHERE (1", ENDS.format(")")),
        ("1; DROP TABLE ops", ENDS.format(";")),
        ("(is_root", OPEN.format("(")),
        ("opcode = 'add", OPEN.format("'")),
        ('"opcode = 1', OPEN.format('"')),
        ("is_root /* and", OPEN.format("/*")),
        ("SELECT 1 UNION SELECT 0", 'SQLite: near "SELECT": syntax error'),
        ("is_root ORDER BY id", 'SQLite: near "ORDER": syntax error'),
        ("count(*) > 1", "SQLite: misuse of aggregate"),
        ("", "it is empty: a condition is one expression"),
        (" -- nothing", "it is empty: a condition is one expression"),
        ("\"opcod\" = 'opcod'", 'no column "opcod", did you mean opcode?; a text stands in single'),
        ('opcode = "add"', 'no column "add"; a text stands in single quotes in SQL, as in phase ='),
        ("1 -- the step's\n AND \"opcod\" = 'opcod'", 'no column "opcod"'),
        ("\"row\" = 'row'", 'no column "row"'),  # of another table
        ("opcod = 'add'", "no column opcod, did you mean opcode?"),
    ],
)
def test_what_is_no_condition_is_a_sentence(condition: str, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        check_condition([Facts(program(), [ops(), sums()])], "ops", "is_root", condition)
    assert str(caught.value).startswith(says)


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("opcode DESC, (SELECT count(*) FROM sums)", None),
        ("id LIMIT 1 --", 'SQLite: near "LIMIT": syntax error'),
        ("id; --", "an order is a list of expressions; a ; in it ends it too early"),
        ('"opcod" DESC', 'no column "opcod", did you mean opcode?'),
    ],
)
def test_an_order_stands_alone_too(order: str, says: str | None) -> None:
    facts = [Facts(program(), [ops(), sums()])]
    if says is None:
        check_order(facts, "ops", order)
        return
    with pytest.raises(QueryError) as caught:
        check_order(facts, "ops", order)
    assert str(caught.value).startswith(says)


def test_checking_a_condition_and_asking_what_a_query_reads_compute_nothing() -> None:
    def never(*_: object) -> PassResult:
        raise AssertionError("the pass ran")

    facts = [Facts(program(), [Toy("ops", ops().tables, never)])]
    check_condition(facts, "ops", "opcode = 'add'")
    read = columns_read(facts, "SELECT opcode FROM ops WHERE id IN (SELECT row FROM members)")
    assert read == {("ops", "opcode"), ("ops", "id"), ("members", "row")}


# -- bounds ---------------------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"


def test_an_endless_query_is_stopped() -> None:
    message = refused(f"{ENDLESS} SELECT sum(n) FROM r", limit_seconds=0.2)
    assert message.startswith("the query was stopped after 0.2 s")


def test_rows_beyond_the_limit_are_not_left_out_silently() -> None:
    facts = [Facts(program(), [ops()])]
    cut = run_query(facts, f"{ENDLESS} SELECT n FROM r", limit_rows=2)
    assert (cut.rows, cut.complete) == ([(1,), (2,)], False)
    whole = run_query(facts, "SELECT id FROM ops", limit_rows=3)
    assert (len(whole.rows), whole.complete) == (3, True)


def test_a_value_that_fills_the_memory_is_refused() -> None:
    assert "too big" in refused("SELECT zeroblob(1000000000)")
