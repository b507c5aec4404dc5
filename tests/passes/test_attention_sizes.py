"""Masks of positions that are counted, and which dimensions batch and heads are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_attention import SEGMENTS, forward, mask

SHARE = "select causal, window, causal_fraction from attention"

CAUSAL = "  ahead = pred[6,6] compare(rows, columns), direction=GE\n"
TWOS = "  two = s32[] constant(2)\n  twos = s32[6,6] broadcast(two), dimensions={}\n"
CHUNKS = (
    CAUSAL
    + TWOS
    + """\
  chunk = s32[6,6] divide(rows, twos)
  its = s32[6,6] divide(columns, twos)
  same = pred[6,6] compare(chunk, its), direction=EQ
  seen = pred[6,6] and(ahead, same)
"""
)
# As a compiler writes x // 4 and x % 4: bits.
SHIFTED = """\
  place = s32[6] iota(), iota_dimension=0
  two = s32[] constant(2)
  twos = s32[6] broadcast(two), dimensions={}
  chunk = s32[6] shift-right-logical(place, twos)
  three = s32[] constant(3)
  threes = s32[6] broadcast(three), dimensions={}
  within = s32[6] and(place, threes)
  chunks = s32[6,6] broadcast(chunk), dimensions={0}
  its = s32[6,6] broadcast(chunk), dimensions={1}
  same = pred[6,6] compare(chunks, its), direction=EQ
  left = s32[6,6] broadcast(within), dimensions={0}
  right = s32[6,6] broadcast(within), dimensions={1}
  up = pred[6,6] compare(left, right), direction=LE
  seen = pred[6,6] and(same, up)
"""
DILATED = (
    CAUSAL
    + TWOS
    + """\
  apart = s32[6,6] subtract(columns, rows)
  odd = s32[6,6] remainder(apart, twos)
  none.1 = s32[] constant(0)
  nones = s32[6,6] broadcast(none.1), dimensions={}
  even = pred[6,6] compare(odd, nones), direction=EQ
  seen = pred[6,6] and(ahead, even)
"""
)
SINKS = (
    CAUSAL
    + TWOS
    + """\
  apart = s32[6,6] subtract(rows, columns)
  near = pred[6,6] compare(apart, twos), direction=LT
  first = pred[6,6] compare(columns, twos), direction=LT
  either = pred[6,6] or(near, first)
  seen = pred[6,6] and(ahead, either)
"""
)
BOTH_SIDES = (
    TWOS
    + """\
  apart = s32[6,6] subtract(rows, columns)
  far = s32[6,6] abs(apart)
  seen = pred[6,6] compare(far, twos), direction=LE
"""
)
PREFIX = (
    CAUSAL
    + TWOS
    + """\
  first = pred[6,6] compare(columns, twos), direction=LT
  seen = pred[6,6] or(ahead, first)
"""
)
NOT_ITSELF = "  seen = pred[6,6] compare(rows, columns), direction=NE"
CHOSEN = (
    CAUSAL
    + TWOS
    + """\
  late = pred[6,6] compare(rows, twos), direction=GE
  itself = pred[6,6] compare(rows, columns), direction=EQ
  seen = pred[6,6] select(late, ahead, itself)
"""
)
# 1, 2, 4, …: no bound, but numbers that the text has.
LISTED = """\
  ends = s32[6,1] constant({{1}, {2}, {4}, {4}, {5}, {6}})
  end = s32[6] reshape(ends)
  ended = s32[6,6] broadcast(end), dimensions={0}
  seen = pred[6,6] compare(columns, ended), direction=LT
"""
SPELLED = (
    "  seen = pred[6,6] constant({"
    + ", ".join("{" + ", ".join(str(int(j in (0, i))) for j in range(6)) + "}" for i in range(6))
    + "})"
)
FLOATS = (
    CAUSAL
    + """\
  place = f32[6,6] convert(columns)
  part.1 = f32[] constant(0.4)
  halves.1 = f32[6,6] broadcast(part.1), dimensions={}
  part = f32[6,6] multiply(place, halves.1)
  whole = s32[6,6] convert(part)
  none.1 = s32[] constant(0)
  nones = s32[6,6] broadcast(none.1), dimensions={}
  first = pred[6,6] compare(whole, nones), direction=EQ
  near = pred[6,6] compare(rows, columns), direction=EQ
  either = pred[6,6] or(near, first)
  seen = pred[6,6] and(ahead, either)
"""
)
Seen = Callable[[int, int], bool]


@pytest.mark.parametrize(
    ("made", "causal", "seen"),
    [
        (CHUNKS, 1, lambda i, j: i >= j and i // 2 == j // 2),
        (SHIFTED, 0, lambda i, j: i // 4 == j // 4 and i % 4 <= j % 4),
        (DILATED, 1, lambda i, j: i >= j and (i - j) % 2 == 0),
        (SINKS, 1, lambda i, j: i >= j and (i - j < 2 or j < 2)),
        (BOTH_SIDES, 0, lambda i, j: abs(i - j) <= 2),
        (PREFIX, 0, lambda i, j: i >= j or j < 2),
        (NOT_ITSELF, 0, lambda i, j: i != j),
        (CHOSEN, 1, lambda i, j: i >= j if i >= 2 else i == j),
        (LISTED, 0, lambda i, j: j < (1, 2, 4, 4, 5, 6)[i]),
        (SPELLED, 1, lambda i, j: j in (0, i)),
        (FLOATS, 1, lambda i, j: i >= j and (i == j or int(j * 0.4) == 0)),
    ],
)
def test_masks_of_positions_are_counted(made: str, causal: int, seen: Seen) -> None:
    count = sum(seen(i, j) for i in range(6) for j in range(6))
    text = forward(mask(made), scores="masked")
    assert check_table(text, SHARE) == [(causal, None, count / 36)]
    if made == PREFIX:
        return  # turned, that the first keys are left out is padding, which is not counted
    # Scores are left where it does not hold.
    turned = forward(mask(made, tail="lows, scaled"), scores="masked")
    assert ask(turned, "select causal_fraction from attention") == [((36 - count) / 36,)]


DATA = "  other = s32[6] parameter(3)\n  others = s32[6,6] broadcast(other), dimensions={1}\n"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        # Segments leave out what they do: not counted.
        (SEGMENTS, (1, None, 21 / 36)),
        # Data that positions are compared with may leave out anything.
        (
            CHUNKS.replace("divide(columns, twos)", "divide(columns, others)").replace(
                "  its", f"{DATA}  its"
            ),
            (1, None, None),
        ),
        (SINKS.replace("(columns, twos)", "(others, twos)").replace("  first", f"{DATA}  first"),
         (1, None, None)),
        (PREFIX.replace("(columns, twos)", "(others, twos)").replace("  first", f"{DATA}  first"),
         (None, None, None)),
        # What the text leaves out.
        (CHUNKS.replace("constant(2)", "parameter(3)"), (1, None, None)),
        (SPELLED.replace(SPELLED[SPELLED.index("{") :], "{...})"), (None, None, None)),
        # Positions in a dtype that does not hold them all.
        (FLOATS.replace("f32[", "bf16["), (1, None, None)),
        # Another operation.
        (CHUNKS.replace("divide(columns", "power(columns"), (1, None, None)),
    ],
)  # fmt: skip
def test_what_is_not_counted(made: str, expected: object) -> None:
    assert ask(forward(mask(made), scores="masked"), SHARE) == [expected]


def multiplied(made: str) -> str:
    """The mask is multiplied with the exponentials, and these are summed."""
    text = forward(made)
    text = text.replace(
        "  total = ",
        "  ones = f32[6,6] convert(seen)\n"
        "  mask = f32[2,3,6,6] broadcast(ones), dimensions={2,3}\n"
        "  e.1 = f32[2,3,6,6] multiply(e, mask)\n  total = ",
    )
    text = text.replace("reduce(e, zero)", "reduce(e.1, zero)")
    return text.replace("divide(e, totals)", "divide(e.1, totals)")


def test_a_mask_may_be_multiplied_with_the_exponentials() -> None:
    rows = "  rows = s32[6,6] iota(), iota_dimension=0\n"
    columns = "  columns = s32[6,6] iota(), iota_dimension=1\n"
    seen = f"{rows}{columns}{CAUSAL.replace('ahead', 'seen')}"
    assert check_table(multiplied(seen), SHARE) == [(1, None, 21 / 36)]
    data = "  seen = pred[6,6] parameter(3)"
    assert ask(multiplied(data), SHARE) == [(None, None, None)]
    # What is left of the probabilities, as dropout does, is no mask of the softmax.
    dropout = multiplied(data).replace("reduce(e.1, zero)", "reduce(e, zero)")
    assert ask(dropout, SHARE) == [(0, None, 1.0)]
    # Nor is the number that the sum is divided out by.
    assert ask(forward(), SHARE) == [(0, None, 1.0)]


def test_a_mask_too_large_to_be_counted_is_not_told() -> None:
    large = forward(mask(CHUNKS), scores="masked").replace("6,6]", "65536,65536]")
    large = large.replace("[2,6,3,4]", "[2,65536,3,4]").replace("[2,3,6]", "[2,3,65536]")
    large = large.replace("[2,3,4,6]", "[2,3,4,65536]")
    assert ask(large, SHARE) == [(1, None, None)]
    assert ask(large.replace("and(ahead, same)", "and(ahead, ahead)"), SHARE) == [
        (1, None, 65537 / 131072)
    ]
