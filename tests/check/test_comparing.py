"""Comparisons as people write them, and what they hold of a number that is known by bounds."""

from __future__ import annotations

import datetime
import re

import pytest

from hlo_lens.check.comparing import comparison, number_of_bytes
from hlo_lens.check.model import Comparison
from hlo_lens.facts import Column

BYTES = Column("wire_bytes", "bytes", "measure", "bytes on the wire")
FLOPS = Column("flops", "flops", "measure", "operations")
SHARE = Column("share", "float", "measure", "a share")


@pytest.mark.parametrize(
    ("given", "column", "sign", "value"),
    [
        (6, None, "==", 6),
        ("6", None, "==", 6),
        ("== 6", None, "==", 6),
        ("= 6", None, "==", 6),
        (">=6", None, ">=", 6),
        ("!= 1,000", None, "!=", 1000),
        ("<= 1.5 GiB", BYTES, "<=", 1610612736),
        ("< 2 kb", BYTES, "<", 2000),
        ("> 2 KiB", BYTES, ">", 2048),
        ("== 512", BYTES, "==", 512),
        ("<= 1.5 TFLOP", FLOPS, "<=", 1500000000000),
        (">= 25 %", SHARE, ">=", 0.25),
        (">= 0.25", SHARE, ">=", 0.25),
        ("== 9007199254740993", BYTES, "==", 2**53 + 1),
        ("<= 1_000", None, "<=", 1000),
        ("> -1", BYTES, ">", -1),
        ("== 4.0", None, "==", 4),
        (0.5, SHARE, "==", 0.5),
    ],
)
def test_a_comparison_has_a_sign_a_number_and_a_unit_of_its_column(
    given: object, column: Column | None, sign: str, value: float
) -> None:
    read = comparison(given, column)
    assert (read.sign, read.value) == (sign, value)


@pytest.mark.parametrize(
    ("given", "column", "said"),
    [
        ("about 6", None, "'about 6' is no comparison; write one such as '== 6'"),
        (True, None, "true is no comparison"),
        (-1, None, "there never are -1 rows; write a whole number, 0 or more"),
        ("<= 1.5", None, "there never are 1.5 rows"),
        ("", None, "'' is no comparison"),
        ("<= 1,5 GiB", BYTES, "'<= 1,5 GiB' is no comparison"),
        ("<= ٣", None, "'<= ٣' is no comparison"),
        (float("nan"), None, "nan is no number to compare with"),
        (float("-inf"), None, "-inf is no number to compare with"),
        (10**400, None, "10000000000000000000… (401 digits) is no number to compare with"),
        ("1" * 5000, None, "'1111111111"),
        ([1], None, "an array is no comparison"),
        (datetime.date(2026, 1, 2), None, "the date or time 2026-01-02 is no comparison"),
        ("<= 6 GiB", None, "a count has no unit 'GiB'; there are: none"),
        ("<= 6 GFLOP", BYTES, "wire_bytes has no unit 'GFLOP'; there are: B, kB … PB"),
        ("<= 6 Gi B", BYTES, "'<= 6 Gi B' is no comparison"),
    ],
)
def test_what_is_no_comparison_is_told(given: object, column: Column | None, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        comparison(given, column)


@pytest.mark.parametrize(
    ("sign", "low", "high", "holds"),
    [
        ("==", 4, 4, True),
        ("==", 5, 5, False),
        ("==", 3, 5, None),
        ("==", 5, 7, False),
        ("==", 5, None, False),
        ("==", 2, None, None),
        ("!=", 5, 7, True),
        ("!=", 3, 5, None),
        ("<=", 1, 4, True),
        ("<=", 5, 9, False),
        ("<=", 1, 9, None),
        ("<=", 1, None, None),
        ("<=", 5, None, False),
        (">", 5, None, True),
        (">", 1, None, None),
    ],
)
def test_of_a_number_between_bounds_it_may_not_be_known(
    sign: str, low: float, high: float | None, holds: bool | None
) -> None:
    assert Comparison(sign, 4, f"{sign} 4").holds_between(low, high) is holds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "size"), [("4 GiB", 2**32), ("1.5 kB", 1500), (" 7 ", 7), (4096, 4096), ("0 B", 0)]
)
def test_a_size_is_a_whole_number_of_bytes(given: object, size: int) -> None:
    assert number_of_bytes(given) == size


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("<= 4 GiB", "'<= 4 GiB' is no size; write one such as '4 GiB'"),
        ("4 GFLOP", "size has no unit 'GFLOP'"),
        ("0.3 B", "'0.3 B' is no whole number of bytes"),
        (-1, "-1 is no size"),
        ("-1", "'-1' is no whole number of bytes"),
        (True, "true is no size"),
        (0.5, "0.5 is no size"),
    ],
)
def test_what_is_no_size_is_told(given: object, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        number_of_bytes(given)


def test_a_number_that_python_makes_no_text_of_is_told() -> None:
    with pytest.raises(ValueError, match="a number with thousands of digits is no number"):
        comparison(10**5000)
