"""Expectation files: what they may say, and how what they may not is told, by its line."""

from __future__ import annotations

import pytest

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


def test_two_of_one_id_are_refused() -> None:
    one = "[[expect]]\nid = 'a'\ntable = 'loops'\ncount = 1\n"
    with pytest.raises(ExpectationError, match=r"gate.toml:6: a second id 'a'"):
        read(one + one)
