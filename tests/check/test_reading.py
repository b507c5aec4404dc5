"""Expectation files: what they may say, and how what they may not is told, by its line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lens.check.model import Expectation
from hlo_lens.check.reading import ExpectationError, read_text
from hlo_lens.facts import discover_passes


def read(text: str) -> list[Expectation]:
    return read_text(text.encode(), "gate.toml", discover_passes())


def test_an_expectation_says_what_how_many_and_why() -> None:
    (one,) = read(
        """
        [[expect]]
        id = "one gather"
        table = "collectives"
        where = "in_backward_loop"
        count = "== 1"
        per = "loop execution"
        because = "the forward's gather could be kept"
        severity = "warning"
        stage = "after_optimizations"
        """
    )
    assert (one.id, one.table, one.where) == ("one gather", "collectives", "in_backward_loop")
    assert one.compared is not None
    assert (one.quantity, one.compared.text, one.per) == ("count", "== 1", "loop execution")
    assert (one.severity, one.stage, one.place) == ("warning", "after_optimizations", "gate.toml:3")


def test_what_is_not_said_has_a_default() -> None:
    (one,) = read('[[expect]]\ntable = "matmuls"\nnone = "lhs_dtype = \'f32\'"')
    assert (one.id, one.per, one.severity) == ("matmuls-none", "text", "error")
    assert (one.quantity, one.condition, one.allow_empty) == ("none", "lhs_dtype = 'f32'", False)


def test_a_sum_is_compared_in_the_unit_of_its_column() -> None:
    (one,) = read('[[expect]]\ntable = "collectives"\nsum = "wire_bytes"\nis = "<= 1 KiB"')
    assert (one.column, one.compared and one.compared.value) == ("wire_bytes", 1024)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["tabel = 'x'"], "gate.toml:2: no key 'tabel'; did you mean 'table'?"),
        (["count = 1"], "gate.toml:1: which table?"),
        (["table = 'colectives'", "count = 1"], "gate.toml:2: no table colectives; did you mean"),
        (["table = 'loops'"], "gate.toml:1: it expects nothing; say one of count, every"),
        (["table = 'loops'", "count = 1", "any = true"], "it expects both count and any"),
        (["table = 'loops'", "count = 'some'"], "gate.toml:3: 'some' is no comparison"),
        (["table = 'loops'", "count = '< 1 GiB'"], "gate.toml:3: a count has no unit 'GiB'"),
        (["table = 'loops'", "sum = 'carry_bytes'"], "gate.toml:3: what is the sum to be?"),
        (
            ["table = 'loops'", "sum = 'cary_bytes'", "is = 1"],
            "gate.toml:3: table loops has no column 'cary_bytes'; did you mean 'carry_bytes'?",
        ),
        (
            ["table = 'loops'", "max = 'name'", "is = 1"],
            "gate.toml:3: column name holds no numbers, but text",
        ),
        (["table = 'loops'", "count = 1", "is = 2"], "gate.toml:4: is belongs to sum, max, min"),
        (["table = 'loops'", "every = true"], "gate.toml:3: every is an SQL condition, not true"),
        (["table = 'loops'", "count = 1", "per = 'layer'"], "gate.toml:4: per is 'text' or"),
        (["table = 'loops'", "count = 1", "where = 3"], "gate.toml:4: where is a text, not 3"),
        (["table = 'loops'", "count = 1", "allow_empty = 1"], "allow_empty is true or false"),
        (["preset = 'no-such'"], "gate.toml:2: no preset 'no-such'"),
        (["table = 'modules'", "count = 1", "per = 'step'"], "gate.toml:4: rows of modules do not"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_means_nothing_is_told_by_its_line(lines: list[str], said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read("\n".join(["[[expect]]", *lines]))
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "gate.toml: no [[expect]] in it: nothing would be checked"),
        ("expect = 3", "gate.toml:1: write each expectation as [[expect]]"),
        ("[expect]\ntable = 'loops'", "gate.toml:1: write each expectation as [[expect]]"),
        ("\n[[expects]]\ntable = 'loops'", "gate.toml:2: no key 'expects'"),
        ("[[expect]", "not TOML: Expected ']]'"),
    ],
)
def test_a_file_without_expectations_is_refused(text: str, said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read(text)
    assert said in str(told.value)


ODD = [
    ("where = 1979-05-27", "gate.toml:4: where is a text, not the date or time 1979-05-27"),
    ("where = 07:32:00", "gate.toml:4: where is a text, not the date or time 07:32:00"),
    ("where = {a = 1}", "gate.toml:4: where is a text, not a table"),
    ("where.a = 1", "gate.toml:4: where is a text, not a table"),
    ("[expect.where]\na = 1", "gate.toml:4: where is a text, not a table"),
    ("where = ['a']", "gate.toml:4: where is a text, not an array"),
    ("where = true", "gate.toml:4: where is a text, not true"),
    ("where = nan", "gate.toml:4: where is a text, not nan"),
    (
        "where = 0x" + "f" * 999,
        "gate.toml:4: where is a text, not 82387755839433943756… (1203 digits)",
    ),
    ("where = 0x" + "f" * 9999, "where is a text, not a number with thousands of digits"),
    ("per = {}", "gate.toml:4: per is 'text' or 'step' or 'loop execution', not a table"),
    ("severity = 1", "gate.toml:4: severity is 'error' or 'warning', not 1"),
    ("allow_empty = 'yes'", "gate.toml:4: allow_empty is true or false, not 'yes'"),
    ("'ключ' = 1", "gate.toml:4: no key 'ключ'"),
    ('"a\\u0007b" = 1', "gate.toml:1: no key 'a\\x07b'"),
    ('"" = 1', "gate.toml:4: no key ''"),
    ("# where = 3\nWhere = 'a'", "gate.toml:5: no key 'Where'; did you mean 'where'?"),
    ('because = """\n[[expect]]\nwhere = 1\n"""\nwhere = 2', "gate.toml:8: where is a text, not 2"),
]


@pytest.mark.parametrize(("line", "said"), ODD, ids=lambda value: str(value)[:40])
def test_odd_values_are_told_by_their_line(line: str, said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read(f"[[expect]]\ntable = 'loops'\ncount = 1\n{line}")
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("count = nan", "nan is no number to compare with"),
        ("count = -inf", "-inf is no number to compare with"),
        ("count = 1e400", "inf is no number to compare with"),
        ("count = true", "true is no comparison; write one such as"),
        ("count = 1979-05-27T07:32:00Z", "the date or time 1979-05-27T07:32:00+00:00 is no compar"),
        ("count = []", "an array is no comparison"),
        ("count = " + "9" * 400, "99999999999999999999… (400 digits) is no number to compare with"),
        ("sum = true\nis = 1", "table loops has no column true"),
        (
            "sum = 'carry_bytes'\nis = '<= 4 GiBs'",
            "carry_bytes has no unit 'GiBs'; there are: B, kB",
        ),
        ("none = false", "none is an SQL condition, not false"),
        ("every = {}", "every is an SQL condition, not a table"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_comparisons_are_told_by_their_line(said: str, answer: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read(f"[[expect]]\ntable = 'loops'\n{said}")
    assert str(told.value).startswith("gate.toml:")
    assert answer in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[expect]]\na = \n", "gate.toml:2:5: not TOML: Invalid value"),
        ("a = " + "9" * 5000, "gate.toml: not TOML: "),
        ("a = " + "[" * 5000, "gate.toml: not TOML: tables within tables without end"),
        ("[[expect.a]]\nb = 1", "gate.toml:1: write each expectation as [[expect]]"),
        ("expect = [1]", "gate.toml:1: write each expectation as [[expect]]"),
        ("expect = [\n{table = 'loops', cuont = 1}]", "gate.toml:1: no key 'cuont'"),
        ("version = 2", "gate.toml:1: version is 1, not 2"),
        ("version = true", "gate.toml:1: version is 1, not true"),
        ("version = '1'", "gate.toml:1: version is 1, not '1'"),
        ("\n[ 'expect' ]\n", "gate.toml:2: write each expectation as [[expect]]"),
        ("[['expect']]\ntable = 'loops'\nx = 1", "gate.toml:3: no key 'x'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_files_are_told(text: str, said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read(text)
    assert said in str(told.value)


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(ExpectationError, match=r"gate\.toml: not TOML: 'utf-8' codec"):
        read_text(b"\xff\xfe", "gate.toml", discover_passes())


def test_expectations_in_an_inline_array_are_read() -> None:
    (one,) = read("version = 1\nexpect = [{table = 'loops', count = 1}]")
    assert (one.table, one.place) == ("loops", "gate.toml:2")


NEARLY_TOML = (
    "[[expect]]", "[expect]", "table", "count", "preset", "is", "sum", "where", "=", ".", "'",
    '"""', "'loops'", "'no-f32-matmul'", "'flops'", "1", "-1", "nan", "true", "[", "]", "{", "}",
    ",", "\n", "#", "1979-05-27", "'<= 1 GiB'", "\\",
)  # fmt: skip


@given(st.lists(st.sampled_from(NEARLY_TOML)).map(" ".join))
def test_whatever_stands_in_a_file_is_read_or_told(text: str) -> None:
    with contextlib.suppress(ExpectationError):
        read(text)


def test_two_of_one_id_are_refused() -> None:
    one = "[[expect]]\nid = 'a'\ntable = 'loops'\ncount = 1\n"
    with pytest.raises(
        ExpectationError, match=r"gate.toml:6: a second id 'a'; give this one another"
    ):
        read(one + one)


def test_expectations_without_an_id_get_one_each() -> None:
    text = b"""
    [[expect]]
    table = "collectives"
    sum = "wire_bytes"
    is = "<= 1 GiB"
    [[expect]]
    table = "collectives"
    sum = "wire_bytes"
    is = "<= 4 GiB"
    per = "step"
    """
    found = read_text(text, "gate.toml", discover_passes())
    assert [one.id for one in found] == ["collectives-sum", "collectives-sum-2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("every = 'overlapped'", "gate.toml:4: per belongs to count, sum, max, min"),
        ("max = 'wire_bytes'; is = 1", "gate.toml:5: a max is of one run; leave out per"),
    ],
)
def test_per_is_for_numbers_that_add_up(line: str, said: str) -> None:
    lines = ["[[expect]]", "table = 'collectives'", *line.split("; "), "per = 'step'"]
    with pytest.raises(ExpectationError, match=said):
        read_text("\n".join(lines).encode(), "gate.toml", discover_passes())
