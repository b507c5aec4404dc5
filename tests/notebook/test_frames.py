"""Tables and answers as data frames: NULL stays missing, whole numbers whole."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from hlo_lens import notebook
from hlo_lens.facts import Column, Facts, PassResult
from hlo_lens.facts.sqlite import QueryResult
from hlo_lens.notebook import TableView
from tests.facts import toys
from tests.notebook.programs import program

needs_pandas = pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
needs_polars = pytest.mark.skipif(find_spec("polars") is None, reason="polars is not installed")

KINDS = toys.table(
    "kinds",
    Column("truth", "bool", "structural", "bool"),
    Column("size", "bytes", "measure", "bytes"),
    Column("work", "flops", "measure", "flops"),
    Column("share", "float", "measure", "float"),
    Column("word", "enum", "structural", "enum", values=("one", "two")),
    Column("users", "refs", "volatile", "refs"),
    Column("data", "json", "structural", "json"),
)
ROW = {"module": 0, "instr": 1, "truth": True, "size": 2**53 + 1, "work": 7, "share": 0.5,
       "word": "two", "users": (1, 2), "data": [1]}  # fmt: skip


def kinds(*rows: dict[str, object]) -> TableView:
    """A table of the rows given, with a column of each type."""
    one = toys.Toy("kinds", (KINDS,), lambda program, facts: PassResult({"kinds": rows}))
    return notebook.table(Facts(toys.program(), [one]), "kinds")


# -- pandas ---------------------------------------------------------------------------------------


@needs_pandas
def test_pandas_has_a_nullable_column_for_each_type() -> None:
    frame = kinds(ROW, {"module": 0}).to_pandas()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "id": "Int64", "module": "Int64", "instr": "Int64", "truth": "boolean", "size": "Int64",
        "work": "Int64", "share": "Float64", "word": "string", "users": "object", "data": "string",
    }  # fmt: skip
    first, second = frame.iloc[0], frame.iloc[1]
    assert (first["truth"], first["size"], first["word"]) == (True, 2**53 + 1, "two")
    assert (first["users"], first["data"]) == ((1, 2), "[1]")
    assert second[["truth", "size", "share", "word", "users", "data"]].isna().all()


@needs_pandas
def test_pandas_has_the_columns_and_dtypes_of_a_table_without_rows() -> None:
    frame = kinds().to_pandas()
    assert frame.shape == (0, 10)
    assert str(frame.dtypes["size"]) == "Int64"


@needs_pandas
def test_pandas_takes_what_does_not_fit_64_bits_as_floats() -> None:
    frame = kinds({**ROW, "size": 2**70, "work": 1.5}, {"module": 0}).to_pandas()
    assert (str(frame.dtypes["size"]), str(frame.dtypes["work"])) == ("Float64", "Float64")
    assert frame["size"][0] == 2.0**70
    assert frame["size"].isna().tolist() == [False, True]


@needs_pandas
def test_pandas_has_the_rows_that_were_asked_for() -> None:
    one = program()
    frame = one.table("collectives").where(kind="all-gather").to_pandas()
    assert frame["name"].tolist() == ["all"]
    whole = one.table("instructions").to_pandas()
    assert whole["id"].tolist() == list(range(one.main.instruction_count))


@needs_pandas
def test_pandas_of_a_query() -> None:
    frame = (
        program()
        .query(
            "SELECT name, executions AS n, executions / 8.0 AS n, loop, NULL AS none"
            " FROM collectives ORDER BY id"
        )
        .to_pandas()
    )
    assert list(frame.columns) == ["name", "n", "n:1", "loop", "none"]
    assert [str(dtype) for dtype in frame.dtypes] == [
        "string", "Int64", "Float64", "Int64", "object",
    ]  # fmt: skip
    assert frame["n"].tolist() == [4, 1]
    assert frame["loop"].isna().tolist() == [False, True]


@needs_pandas
def test_pandas_takes_half_a_surrogate_pair_as_a_question_mark() -> None:
    frame = QueryResult(("text",), [("a\ud800b",), ("é",)]).to_pandas()
    assert frame["text"].tolist() == ["a?b", "é"]


# -- polars ---------------------------------------------------------------------------------------


@needs_polars
def test_polars_has_a_column_for_each_type() -> None:
    import polars as pl

    frame = kinds(ROW, {"module": 0}).to_polars()
    assert dict(frame.schema) == {
        "id": pl.Int64, "module": pl.Int64, "instr": pl.Int64, "truth": pl.Boolean,
        "size": pl.Int64, "work": pl.Int64, "share": pl.Float64, "word": pl.String,
        "users": pl.List(pl.Int64), "data": pl.String,
    }  # fmt: skip
    assert frame.row(0)[3:] == (True, 2**53 + 1, 7, 0.5, "two", [1, 2], "[1]")
    assert frame.row(1)[2:] == (None,) * 8


@needs_polars
def test_polars_has_the_columns_of_a_table_without_rows() -> None:
    import polars as pl

    frame = kinds().to_polars()
    assert frame.shape == (0, 10)
    assert frame.schema["users"] == pl.List(pl.Int64)


@needs_polars
def test_polars_of_a_query() -> None:
    import polars as pl

    result = program().query(
        "SELECT name, executions AS n, 1.5 AS n, NULL AS none, x'00ff' AS data"
        " FROM collectives ORDER BY id"
    )
    frame = result.to_polars()
    assert list(frame.columns) == ["name", "n", "n:1", "none", "data"]
    assert list(frame.dtypes) == [pl.String, pl.Int64, pl.Float64, pl.Null, pl.Object]
    assert frame["n"].to_list() == [4, 1]


@needs_polars
def test_polars_takes_half_a_surrogate_pair_and_large_numbers() -> None:
    frame = QueryResult(("text", "n"), [("a\ud800b", 2**70), (None, 1)]).to_polars()
    assert frame.rows() == [("a?b", 2.0**70), (None, 1.0)]


# -- neither there --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_the_message_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for shown in (kinds(ROW), QueryResult(("a",), [(1,)])):
        with pytest.raises(ImportError, match=f"needs {name}: pip install {name}"):
            getattr(shown, f"to_{name}")()
