"""Values by keyword as SQL: the same rows as `TableView.where` gives, whatever the value."""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.facts import Column, Table
from hlo_lens.facts.sqlite import QueryError
from hlo_lens.program import Program
from hlo_lens.testing.conditions import conditions, kinds

DEMO = Path(__file__).parents[2] / "fixtures/demo/fsdp_train_step.opt.hlo"
TABLE = Table(
    "things",
    "a thing",
    (
        Column("id", "int", "volatile", ""),
        Column("module", "int", "identity", ""),
        Column("order", "text", "structural", ""),
        Column("what", "enum", "identity", "", values=("gather", "both")),
        Column("way", "enum", "identity", "", values=("scatter", "both")),
        Column("share", "float", "measure", ""),
        Column("axes", "json", "structural", ""),
        Column("parts", "refs", "volatile", ""),
    ),
)


@pytest.mark.parametrize(
    ("values", "sql"),
    [
        ({"what": "gather"}, "what = 'gather'"),
        ({"what": None}, "what IS NULL"),
        ({"what": ["gather"]}, "what = 'gather'"),
        ({"what": ("gather", "both")}, "what IN ('gather', 'both')"),
        ({"what": ["gather", None]}, "(what IN ('gather') OR what IS NULL)"),
        ({"order": "it's; --"}, "\"order\" = 'it''s; --'"),
        ({"share": 0.5}, "share = 0.5"),
        ({"id": 3}, "id = 3"),
        ({"id": range(2)}, "id IN (0, 1)"),
        ({"axes": ["fsdp", "tp"]}, """json(axes) = '["fsdp","tp"]'"""),
        ({"axes": None}, "axes IS NULL"),
        ({"axes": []}, "json(axes) = '[]'"),
        ({"parts": (1, 2)}, "json(parts) = '[1,2]'"),
        ({"parts": {(1, 2)}}, "json(parts) = '[1,2]'"),
        ({"parts": {(1,), None}}, "(json(parts) IN ('[1]') OR parts IS NULL)"),
        ({"what": [None]}, "(what IN () OR what IS NULL)"),
    ],
)
def test_a_value_is_a_literal(values: dict[str, object], sql: str) -> None:
    assert conditions(TABLE, values) == [sql]


def test_a_value_that_sql_has_not_is_refused() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(QueryError, match="is no value of a column"):
            conditions(TABLE, {"share": value})


def test_one_of_no_values_is_refused() -> None:
    for values in ([], (), set(), range(0)):
        with pytest.raises(QueryError, match="id is one of no values"):
            conditions(TABLE, {"id": values})
    with pytest.raises(QueryError, match="axes is one of no values"):
        conditions(TABLE, {"axes": set()})


def test_a_kind_is_a_word_of_the_one_column_that_has_it() -> None:
    assert kinds(TABLE, ()) == []
    assert kinds(TABLE, ("gather",)) == ["what = 'gather'"]
    assert kinds(TABLE, ("scatter",)) == ["way = 'scatter'"]
    with pytest.raises(QueryError, match="'both' is not clear; write what= or way="):
        kinds(TABLE, ("both",))
    with pytest.raises(QueryError, match="not told by 'gather' or 'scatter'"):
        kinds(TABLE, ("gather", "scatter"))


def test_the_tables_that_are_there_have_kinds() -> None:
    tables = {one.name: one for one in hlo_lens.load(DEMO).facts.tables}
    assert kinds(tables["collectives"], ("all-gather",)) == ["logical_kind = 'all-gather'"]
    assert kinds(tables["matmuls"], ("dot",)) == ["form = 'dot'"]
    assert kinds(tables["attention"], ("fwd", "bwd")) == ["direction IN ('fwd', 'bwd')"]
    assert kinds(tables["custom_calls"], ("flash",)) == ["target = 'flash'"]
    assert kinds(tables["instructions"], ("dot",)) == ["opcode = 'dot'"]


@pytest.fixture(scope="module")
def demo() -> Program:
    return hlo_lens.load(DEMO)


@pytest.mark.parametrize("name", ["collectives", "matmuls", "attention", "residuals", "loops"])
def test_they_choose_the_rows_that_have_the_value(demo: Program, name: str) -> None:
    """For each column, the value of the last row."""
    view = demo.table(name)
    for column in view.schema.columns:
        value = view[-1][column.name]
        [sql] = conditions(view.schema, {column.name: value})
        chosen = [row["id"] for row in view.where(sql)]
        assert chosen == [row["id"] for row in view.where(**{column.name: value})], sql
        assert chosen, sql
