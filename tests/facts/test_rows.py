"""Rows as passes give them: what becomes of them, and what is refused."""

from __future__ import annotations

import time

import pytest

from hlo_lens.facts import COMMON, Column, Table
from hlo_lens.facts.rows import RowError, checked_rows
from tests.facts.toys import program, table

MODULES = program().modules
THINGS = table(
    "things",
    Column("kind", "enum", "identity", "kind", values=("dot", "copy")),
    Column("bytes", "bytes", "measure", "size"),
    Column("users", "refs", "volatile", "users"),
    Column("config", "json", "structural", "settings"),
    Column("hot", "bool", "structural", "whether it is hot"),
    Column("share", "float", "measure", "share"),
)


def rows(*given: object) -> list[tuple[object, ...]]:
    return checked_rows(THINGS, given, MODULES)


def test_a_mapping_becomes_a_tuple_in_column_order_and_what_is_missing_is_null() -> None:
    assert rows({"bytes": 8, "module": 0, "kind": "dot"}) == [
        (0, 0, None, "dot", 8, None, None, None, None)
    ]


def test_rows_without_an_id_are_numbered_and_a_given_id_stays() -> None:
    assert [row[0] for row in rows({"module": 0}, {"module": 0}, {"module": 0, "id": 7})] == [
        0,
        1,
        7,
    ]


def test_a_tuple_in_column_order_is_a_row() -> None:
    given = (None, 0, 2, "copy", 4, (0, 1), '{"a":1}', True, 0.5)
    assert rows(given) == [(0, *given[1:])]


def test_refs_become_tuples_and_json_becomes_text() -> None:
    [row] = rows({"module": 0, "users": [0, 1], "config": {"a": (1, None)}})
    assert row[5:7] == ((0, 1), '{"a":[1,null]}')


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"module": 0, "color": 1}, "things has no column color"),
        ((0, 0), "a row of 2 values for 9 columns"),
        ("dot", "a row is a str"),
        ({"module": 0, "bytes": 1.5}, "column bytes: expected bytes, got float 1.5"),
        ({"module": 0, "bytes": True}, "column bytes: expected bytes, got bool True"),
        ({"module": 0, "hot": 1}, "column hot: expected bool, got int 1"),
        ({"module": 0, "share": "1"}, "column share: expected float, got str '1'"),
        ({"module": 0, "kind": "add"}, "column kind: 'add' is none of dot, copy"),
        ({"module": 0, "instr": 3}, "module 0 has no instruction 3"),
        ({"module": 0, "users": [0, -1]}, "column users: -1 is no instruction id"),
        ({"module": 0, "users": [0, None]}, "column users: None is no instruction id"),
        ({"module": 1}, "there is no module 1"),
        ({"instr": 0}, "there is no module None"),
    ],
)
def test_a_row_that_does_not_fit_its_table(given: object, message: str) -> None:
    with pytest.raises(RowError, match=message):
        rows(given)


def test_two_rows_with_one_key() -> None:
    with pytest.raises(RowError, match="two rows have the same module and id"):
        rows({"module": 0, "id": 1}, {"module": 0, "id": 1})


def test_64000_rows_of_25_columns_take_well_under_a_second() -> None:
    wide = Table(
        "wide", "w", (*COMMON, *(Column(f"c{i}", "int", "measure", "c") for i in range(10)))
    )
    row = (None, 0, 1, "add.1", "fwd", "own", None, None, 0, 1, 1, 1, None, "a.py:1", 7)
    given = [(*row, *range(10))] * 64_000
    start = time.process_time()
    assert len(checked_rows(wide, given, MODULES)) == 64_000
    assert time.process_time() - start < 1.0
