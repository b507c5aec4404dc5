"""Quantities as people read them."""

from __future__ import annotations

import pytest

from hlo_lens.present.quantities import (
    Bounds,
    bounds_text,
    bytes_text,
    exactly,
    executions_text,
    flops_text,
    visible,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"),
     (1000 << 10, "1.0 MiB"), (40_909_665_280, "38.1 GiB"), (5 << 50, "5.0 PiB")],
)  # fmt: skip
def test_bytes(count: int | None, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 FLOP"), (999, "999 FLOP"), (1024, "1.0 kFLOP"), (999_960, "1.0 MFLOP"),
     (8_589_934_592, "8.6 GFLOP"), (9_200_000_000_000, "9.2 TFLOP")],
)  # fmt: skip
def test_flops(count: int | None, text: str) -> None:
    assert flops_text(count) == text


@pytest.mark.parametrize(
    ("bounds", "text"),
    [(exactly(32), "32"), (Bounds(0, 8), "≤ 8"), (Bounds(3, None), "≥ 3"), (Bounds(2, 5), "2 – 5"),
     (Bounds(0, None), "–"), (Bounds(0, 0), "0")],
)  # fmt: skip
def test_bounds(bounds: Bounds, text: str) -> None:
    assert bounds_text(bounds) == text


def test_executions_say_why_there_is_no_number() -> None:
    assert executions_text(exactly(1234), "annotated") == "1,234"
    assert executions_text(Bounds(0, 8), "bounded") == "≤ 8"
    assert executions_text(Bounds(0, None), "unknown") == "– (unknown trip count)"
    assert executions_text(Bounds(1, None), None) == "≥ 1"
    assert executions_text(None, None) == "–"


def test_a_sum_with_a_bound_is_a_bound() -> None:
    assert exactly(3) + Bounds(0, None) == Bounds(3, None)
    assert exactly(3) + Bounds(1, 4) == Bounds(4, 7)


def test_a_product_with_a_bound_is_a_bound() -> None:
    assert exactly(3) * Bounds(1, 4) == Bounds(3, 12)
    assert exactly(3) * Bounds(0, None) == Bounds(0, None)


def test_nothing_any_number_of_times_is_nothing() -> None:
    assert exactly(0) * Bounds(0, None) == exactly(0)
    assert Bounds(0, None) * exactly(0) == exactly(0)


def test_what_a_file_holds_does_not_reach_the_terminal_as_a_command() -> None:
    assert visible("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert visible("größe") == "größe"
