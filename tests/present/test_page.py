"""Aligned columns that fit a width."""

from __future__ import annotations

import pytest

from hlo_lens.present.page import Column, Span, grid, line, plain

COLUMNS = (Column("loop"), Column("bytes per step", right=True))
ROWS = (("while.3 ×4 › while.7 ×8", "1.5 KiB"), ("–", "12.0 MiB"))


def lines(width: int | None, **options: object) -> list[str]:
    return plain(grid(COLUMNS, ROWS, width=width, **options)).splitlines()  # type: ignore[arg-type]


def test_numbers_stand_to_the_right_under_their_heading() -> None:
    assert lines(None) == [
        "  loop                     bytes per step",
        "  while.3 ×4 › while.7 ×8         1.5 KiB",
        "  –                              12.0 MiB",
    ]


def test_where_it_is_narrow_headings_are_folded_first() -> None:
    assert lines(36) == [
        "  loop                     bytes per",
        "                                step",
        "  while.3 ×4 › while.7 ×8    1.5 KiB",
        "  –                         12.0 MiB",
    ]


def test_then_texts_at_blanks_but_never_numbers() -> None:
    assert lines(26) == [
        "  loop               bytes",
        "                  per step",
        "  while.3 ×4 ›     1.5 KiB",
        "  while.7 ×8",
        "  –               12.0 MiB",
    ]


def test_what_cannot_be_folded_runs_over_and_is_not_cut() -> None:
    narrow = "".join(lines(1))
    assert all(word in narrow for word in ("while.3", "×4", "while.7", "1.5 KiB", "12.0 MiB"))


def test_a_rigid_column_is_not_folded() -> None:
    columns = (Column("", rigid=True), Column(""))
    assert plain(grid(columns, [("a b", "c d")], width=6, indent=0)) == "a b c\n    d\n"


def test_a_spare_column_is_left_out_before_anything_is_folded() -> None:
    columns = (Column(""), Column("", right=True, spare=True), Column("", right=True))
    rows = [("a b", "1 each", "2 in all")]
    assert plain(grid(columns, rows, width=19, indent=0)) == "a b 1 each 2 in all\n"
    assert plain(grid(columns, rows, width=18, indent=0)) == "a b  2 in all\n"


@pytest.mark.parametrize(
    ("spare", "said"),
    [
        ((), ""),
        (("each",), "1 column left out: each; a wider terminal or --format json has it"),
        (("each", "loop"), "2 columns left out: each, loop; a wider terminal or --format json has"),
    ],
)
def test_columns_that_are_left_out_are_named_below_all_rows(
    spare: tuple[str, ...], said: str
) -> None:
    columns = [Column("name"), *(Column(one, spare=True) for one in spare), Column("sum")]
    rows = [("a", *("somewhat wide" for _ in spare), "2 in all")]
    footer = ("total", *("" for _ in spare), "2 in all")
    text = plain(grid(columns, rows, width=18, indent=2, footer=footer))
    assert " ".join(text.partition("─\n")[2].split()).startswith(f"total 2 in all {said}".strip())
    wide = plain(grid(columns, rows, footer=footer))
    assert "left out" not in wide
    assert wide == plain(grid(columns, rows, width=80, footer=footer))


def test_a_total_stands_under_a_rule() -> None:
    assert lines(None, footer=("total", "13.5 MiB"))[-2:] == [
        "  ───────────────────────────────────────",
        "  total                          13.5 MiB",
    ]


def test_what_stands_below_a_row_has_lines_of_its_own() -> None:
    assert lines(40, below=("", "carry 2.0 KiB → 1.0 KiB; stacked 2 → 1 entries")) == [
        "  loop                         bytes per",
        "                                    step",
        "  while.3 ×4 › while.7 ×8        1.5 KiB",
        "  –                             12.0 MiB",
        "      carry 2.0 KiB → 1.0 KiB; stacked 2",
        "      → 1 entries",
    ]
    assert lines(None, below=("one",))[1:3] == [
        "  while.3 ×4 › while.7 ×8         1.5 KiB",
        "      one",
    ]


def test_a_line_as_text_has_no_styles_and_no_trailing_blanks() -> None:
    assert plain([line(Span("a", "bold"), "  "), ()]) == "a\n\n"
