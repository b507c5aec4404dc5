"""Answers as text: what each format says, and that none loses data."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Console

from hlo_lens.query import QueryResult, as_csv, as_json, as_table, print_table

RESULT = QueryResult(
    ("name", "bytes", "note"),
    [("all-gather.1", 4096, None), ("dot.22", 8, 'a "b",\nc')],
)


def printed(result: QueryResult, width: int) -> str:
    out = io.StringIO()
    print_table(result, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_json_has_columns_and_rows() -> None:
    assert json.loads(as_json(RESULT)) == {
        "columns": ["name", "bytes", "note"],
        "rows": [["all-gather.1", 4096, None], ["dot.22", 8, 'a "b",\nc']],
    }
    assert as_json(QueryResult(("a",), [])) == '{"columns": ["a"], "rows": []}\n'


def test_json_says_where_rows_were_left_out() -> None:
    assert json.loads(as_json(QueryResult(("a",), [(1,)], complete=False)))["complete"] is False


def test_json_of_what_json_has_no_word_for() -> None:
    text = as_json(QueryResult(("a", "b"), [(b"\x00\xff", float("-inf"))]))
    assert json.loads(text)["rows"] == [["00ff", "-Infinity"]]


def test_csv_reads_back_and_null_is_an_empty_field() -> None:
    assert list(csv.reader(io.StringIO(as_csv(RESULT)))) == [
        ["name", "bytes", "note"],
        ["all-gather.1", "4096", ""],
        ["dot.22", "8", 'a "b",\nc'],
    ]


def test_plain_columns_are_aligned_and_a_row_is_one_line() -> None:
    assert as_table(RESULT) == (
        "name          bytes  note\n"
        "------------  -----  ---------\n"
        "all-gather.1   4096  NULL\n"
        'dot.22            8  a "b",\\nc\n'
    )


def test_long_values_at_the_end_do_not_make_every_row_long() -> None:
    long = "[" + "1," * 80 + "1]"
    result = QueryResult(
        ("name", "wide", "n", "a", "b"), [("x", long, 1, long, 3), ("y", "", 2, "", 4)]
    )
    assert len(as_table(result).splitlines()[-1]) > len(
        long
    )  # a long one in front is aligned, as ever
    result = QueryResult(("n", "a", "b"), [(1, long, long), (2, None, "short")])
    assert as_table(result) == (f"n  a  b\n-  -  -\n1  {long}  {long}\n2  NULL  short\n")


def test_plain_columns_are_never_cut() -> None:
    assert "x" * 5000 in as_table(QueryResult(("long",), [("x" * 5000,)]))


def test_an_escape_sequence_in_a_name_does_not_reach_the_terminal() -> None:
    result = QueryResult(("name",), [("\x1b[31mred\x07",)])
    assert "\\x1b[31mred\\x07" in as_table(result)
    assert "\x1b" not in printed(result, 80)


def test_markup_in_a_name_is_text() -> None:
    assert "[bold]x[/]" in printed(QueryResult(("[i]",), [("[bold]x[/]",)]), 80)


def test_a_terminal_shows_a_table_and_the_number_of_rows() -> None:
    lines = printed(RESULT, 80).splitlines()
    assert lines[0].split() == ["name", "bytes", "note"]
    assert lines[2].split() == ["all-gather.1", "4096", "NULL"]
    assert lines[-1] == "2 rows"


def test_a_wide_value_is_folded_on_a_terminal() -> None:
    value = "abcdefghij" * 10
    text = printed(QueryResult(("name", "value"), [("x", value)]), 40)
    assert max(map(len, text.splitlines())) <= 40
    folded = "".join(line.removeprefix("x").strip() for line in text.splitlines()[2:-1])
    assert folded == value


def test_many_columns_on_a_narrow_terminal_are_shown_one_a_line() -> None:
    columns = tuple(f"column_{number}" for number in range(20))
    text = printed(QueryResult(columns, [tuple(range(20)), (None,) * 20]), 60)
    lines = text.splitlines()
    assert lines[:2] == ["row 1", "   column_0  0"]
    assert "row 2" in lines
    assert lines[-1] == "2 rows"


def test_an_answer_without_rows_still_has_its_columns() -> None:
    empty = QueryResult(("a", "b"), [])
    assert as_table(empty) == "a  b\n-  -\n"
    assert printed(empty, 80).splitlines()[-1] == "0 rows"
