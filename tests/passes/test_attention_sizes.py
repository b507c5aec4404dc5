"""Masks of positions that are counted, and which dimensions batch and heads are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_attention import REDUCERS, SEGMENTS, dims, forward, mask

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


# -------------------------------------------------------------------------- batch and heads

SIZES = "select batch, heads, kv_heads, q_length, kv_length from attention"


def attention(
    q: str, k: str, made: str, *, groups: int = 1, masked: bool = False, batch: int = 6
) -> str:
    """Scores of 5 queries (each for `groups` heads) and 7 keys with a depth of 4: `made` computes
    `q` and `k`, whose dimensions are batch and heads together, positions and depth."""
    rows = 5 * groups
    score = f"f32[{batch},{rows},7]"
    row = f"f32[{batch},{rows}]"
    mask = f"""\
  rows = s32[5] iota(), iota_dimension=0
  row = s32[{rows},7] broadcast({"rows" if groups == 1 else "each"}), dimensions={{0}}
  column = s32[{rows},7] iota(), iota_dimension=1
  seen = pred[{rows},7] compare(row, column), direction=GE
  seens = pred[{batch},{rows},7] broadcast(seen), dimensions={{1,2}}
  low = f32[] constant(-1e30)
  lows = {score} broadcast(low), dimensions={{}}
  logits = {score} select(seens, s, lows)
"""
    if groups > 1:
        each = f"  them = s32[5,{groups}] broadcast(rows), dimensions={{0}}\n"
        mask = mask.replace("  row =", f"{each}  each = s32[{rows}] reshape(them)\n  row =")
    logits = "logits" if masked else "s"
    return f"""\
HloModule m
{REDUCERS}
ENTRY main {{
{made}
  v = f32[{batch},7,4] parameter(9)
  s = {score} dot({q}, {k}){dims("0", "0", "2", "2")}
{mask if masked else ""}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = {row} reduce({logits}, none), dimensions={{2}}, to_apply=max
  tops = {score} broadcast(top), dimensions={{0,1}}
  less = {score} subtract({logits}, tops)
  e = {score} exponential(less)
  total = {row} reduce(e, zero), dimensions={{2}}, to_apply=add
  totals = {score} broadcast(total), dimensions={{0,1}}
  p = {score} divide(e, totals)
  ROOT o = f32[{batch},{rows},4] dot(p, v){dims("0", "0", "2", "1")}
}}
"""


def projected(name: str, tokens: str, rows: int, parameter: int) -> str:
    """2 sequences times a weight of 3 heads, in the order that a compiler takes: the heads, their
    depth, the sequences and the positions."""
    return f"""\
  w{name} = f32[3,4,8] parameter({parameter})
  made.{name} = f32[3,4,2,{rows}] dot(w{name}, {tokens}), lhs_contracting_dims={{2}},\
 rhs_contracting_dims={{2}}
  turned.{name} = f32[2,3,{rows},4] transpose(made.{name}), dimensions={{2,0,3,1}}
  {name} = f32[6,{rows},4] reshape(turned.{name})
"""


TOKENS = "  x = f32[2,5,8] parameter(0)\n  y = f32[2,7,8] parameter(1)\n"
BOTH = TOKENS + projected("q", "x", 5, 2) + projected("k", "y", 7, 3)
# The same as one product for both, of which each takes a slice.
FUSED = """\
  x = f32[2,7,8] parameter(0)
  w = f32[24,8] parameter(1)
  flat = f32[14,8] reshape(x)
  made = f32[24,14] dot(w, flat), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  apart = f32[24,2,7] reshape(made)
  its = f32[12,2,5] slice(apart), slice={[0:12], [0:2], [0:5]}
  all = f32[12,2,7] slice(apart), slice={[12:24], [0:2], [0:7]}
  q.1 = f32[3,4,2,5] reshape(its)
  k.1 = f32[3,4,2,7] reshape(all)
  q.2 = f32[2,3,5,4] transpose(q.1), dimensions={2,0,3,1}
  k.2 = f32[2,3,7,4] transpose(k.1), dimensions={2,0,3,1}
  q = f32[6,5,4] reshape(q.2)
  k = f32[6,7,4] reshape(k.2)
"""
# Rotated by position: two halves of the depth, each of both.
ROTATED = (
    BOTH.replace("  q = f32[6,5,4] reshape(turned.q)\n", "")
    + """\
  one = f32[2,3,5,2] slice(turned.q), slice={[0:2], [0:3], [0:5], [0:2]}
  two = f32[2,3,5,2] slice(turned.q), slice={[0:2], [0:3], [0:5], [2:4]}
  cos = f32[5,2] parameter(4)
  sin = f32[5,2] parameter(5)
  coss = f32[2,3,5,2] broadcast(cos), dimensions={2,3}
  sins = f32[2,3,5,2] broadcast(sin), dimensions={2,3}
  a.2 = f32[2,3,5,2] multiply(coss, one)
  b.2 = f32[2,3,5,2] multiply(sins, two)
  first = f32[2,3,5,2] subtract(a.2, b.2)
  c.2 = f32[2,3,5,2] multiply(coss, two)
  d.2 = f32[2,3,5,2] multiply(sins, one)
  last = f32[2,3,5,2] add(c.2, d.2)
  rotated = f32[2,3,5,4] concatenate(first, last), dimensions={3}
  q = f32[6,5,4] reshape(rotated)
"""
)
# One product more, of each head by itself, as latent attention has it.
ABSORBED = (
    BOTH.replace("  q = f32[6,5,4] reshape(turned.q)\n", "")
    + f"""\
  up = f32[3,4,4] parameter(4)
  each = f32[3,2,5,4] dot(up, turned.q){dims("0", "1", "2", "3")}
"""
)
ABSORBED = ABSORBED.replace("f32[3,2,5,4] dot(up, turned.q)", "f32[3,4,2,5] dot(up, turned.q)")
ABSORBED += """\
  back = f32[2,3,5,4] transpose(each), dimensions={2,0,3,1}
  q = f32[6,5,4] reshape(back)
"""


@pytest.mark.parametrize("made", [BOTH, FUSED, ROTATED, ABSORBED])
def test_the_heads_are_what_a_weight_has(made: str) -> None:
    text = attention("q", "k", made)
    assert check_table(text, SIZES) == [(2, 3, 3, 5, 7)]
    assert ask(text, BY_ORDER) == []


BY_ORDER = "select id from attention where evidence like '%by the order of the dimensions%'"


def test_sequences_of_the_weight_and_heads_of_the_tokens_would_be_the_other_way_round() -> None:
    """3 sequences and 2 heads give a product of the same sizes."""
    turned = BOTH.replace("f32[2,5,8]", "f32[3,5,8]").replace("f32[2,7,8]", "f32[3,7,8]")
    turned = turned.replace("f32[3,4,8]", "f32[2,4,8]").replace("f32[3,4,2,", "f32[2,4,3,")
    turned = turned.replace("f32[2,3,", "f32[3,2,")
    assert check_table(attention("q", "k", turned), SIZES) == [(3, 2, 2, 5, 7)]


def test_what_one_projection_makes_for_all_heads_tells_nothing() -> None:
    """Tokens that have batch and heads, times one weight of the depth."""
    shared = """\
  x = f32[2,3,5,8] parameter(0)
  y = f32[2,3,7,8] parameter(1)
  w = f32[8,4] parameter(2)
  q.1 = f32[2,3,5,4] dot(x, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
  k.1 = f32[2,3,7,4] dot(y, w), lhs_contracting_dims={3}, rhs_contracting_dims={0}
  q = f32[6,5,4] reshape(q.1)
  k = f32[6,7,4] reshape(k.1)
"""
    assert check_table(attention("q", "k", shared), SIZES) == [(None, None, None, 5, 7)]
    # Tokens of sequences alone have one head.
    one = shared.replace("[2,3,", "[6,").replace("={3}", "={2}")
    assert check_table(attention("q", "k", one), SIZES) == [(6, 1, 1, 5, 7)]


def test_groups_of_queries_are_heads_and_no_positions() -> None:
    """6 heads, of which 2 share one of the 3 of K."""
    made = (
        TOKENS
        + projected("k", "y", 7, 3)
        + """\
  wq = f32[3,2,4,8] parameter(2)
  made.q = f32[3,2,4,2,5] dot(wq, x), lhs_contracting_dims={3}, rhs_contracting_dims={2}
  turned.q = f32[2,3,5,2,4] transpose(made.q), dimensions={3,0,4,1,2}
  q = f32[6,10,4] reshape(turned.q)
"""
    )
    text = attention("q", "k", made, groups=2)
    assert check_table(text, SIZES) == [(2, 6, 3, 5, 7)]
    assert ask(attention("q", "k", made, groups=2, masked=True), SIZES) == [(2, 6, 3, 5, 7)]


def given(name: str, sizes: str, turn: str, flat: str) -> str:
    """Q or K is an argument, whose dimensions are put in another order and merged."""
    order = [int(one) for one in turn.split(",")]
    turned = ",".join(sizes.split(",")[one] for one in order)
    return f"""\
  given.{name} = f32[{sizes}] parameter({"qk".index(name)})
  turned.{name} = f32[{turned}] transpose(given.{name}), dimensions={{{turn}}}
  {name} = f32[{flat}] reshape(turned.{name})
"""


MANY = given("q", "2,5,3,4", "0,2,1,3", "6,5,4")
KEYS = given("k", "2,7,3,4", "0,2,1,3", "6,7,4")
# One head of K for 5 of Q, and no more positions than one.
ONE_QUERY = given("q", "6,1,5,4", "0,1,2,3", "6,5,4")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (MANY + KEYS, (2, 3, 3, 5, 7)),
        # Heads in front of positions.
        (given("q", "2,3,5,4", "0,1,2,3", "6,5,4") + KEYS, (2, 3, 3, 5, 7)),
        # 2 sequences in 3 chunks of a vmap.
        (
            given("q", "3,2,5,1,4", "0,1,3,2,4", "6,5,4")
            + given("k", "3,2,7,1,4", "0,1,3,2,4", "6,7,4"),
            (6, 1, 1, 5, 7),
        ),
        # One query each: its heads are in the batch of the product, and in groups.
        (
            given("q", "2,1,15,4", "0,1,2,3", "6,5,4") + given("k", "2,7,3,4", "0,2,1,3", "6,7,4"),
            (2, 15, 3, 1, 7),
        ),
        (ONE_QUERY + given("k", "6,7,1,4", "0,2,1,3", "6,7,4"), (6, 5, 1, 1, 7)),
        # K in another order: 5 may be positions of one head.
        (ONE_QUERY + given("k", "6,1,7,4", "0,1,2,3", "6,7,4"), (6, 1, 1, 5, 7)),
        # A K that has no heads does not tell.
        (ONE_QUERY + given("k", "6,7,4", "0,1,2", "6,7,4"), (None, None, None, None, 7)),
        # Nor do batch and heads that are one.
        (given("q", "6,5,4", "0,1,2", "6,5,4") + given("k", "6,7,4", "0,1,2", "6,7,4"),
         (None, None, None, None, 7)),
    ],
)  # fmt: skip
def test_batch_and_heads_of_arguments_go_by_their_order(
    made: str, expected: tuple[int | None, ...]
) -> None:
    text = attention("q", "k", made)
    assert check_table(text, SIZES) == [expected]
    # Where sizes go by a convention, the row says so.
    assert len(ask(text, BY_ORDER)) == (expected[0] is not None)


def test_a_mask_that_counts_positions_tells_them() -> None:
    keys = given("k", "6,7,4", "0,1,2", "6,7,4")
    flat = given("q", "6,5,4", "0,1,2", "6,5,4") + keys
    assert ask(attention("q", "k", flat, masked=True), SIZES) == [(None, None, None, 5, 7)]
    heads = given("q", "6,5,2,4", "0,1,2,3", "6,10,4") + keys
    assert ask(attention("q", "k", heads, groups=2), SIZES) == [(None, None, None, None, 7)]
    assert ask(attention("q", "k", heads, groups=2, masked=True), SIZES) == [(6, 2, 1, 5, 7)]


def test_without_a_batch_the_batch_is_one() -> None:
    made = given("q", "1,5,4", "0,1,2", "1,5,4") + given("k", "1,7,4", "0,1,2", "1,7,4")
    assert ask(attention("q", "k", made, batch=1, masked=True), SIZES) == [(1, 1, 1, 5, 7)]
    # The 5 may be heads.
    assert ask(attention("q", "k", made, batch=1), SIZES) == [(1, None, 1, None, 7)]


def test_an_argument_is_seen_through_the_slice_of_a_layer() -> None:
    sliced = """\
  all = f32[9,2,5,3,4] parameter(0)
  layer = s32[] parameter(5)
  first = s32[] constant(0)
  one = f32[1,2,5,3,4] dynamic-slice(all, layer, first, first, first, first),\
 dynamic_slice_sizes={1,2,5,3,4}
  flat = f32[10,3,4] reshape(one)
  apart = f32[2,5,3,4] reshape(flat)
  turned.q = f32[2,3,5,4] transpose(apart), dimensions={0,2,1,3}
  q = f32[6,5,4] reshape(turned.q)
"""
    assert check_table(attention("q", "k", sliced + KEYS), SIZES) == [(2, 3, 3, 5, 7)]


def test_a_projection_that_is_summed_in_slices() -> None:
    sums = """\
  x = f32[10,2,4] parameter(0)
  w = f32[12,2,4] parameter(2)
  sums = f32[2,10,12] dot(x, w), lhs_batch_dims={1}, rhs_batch_dims={1},\
 lhs_contracting_dims={2}, rhs_contracting_dims={2}
  nothing = f32[] constant(0)
  made = f32[10,12] reduce(sums, nothing), dimensions={0}, to_apply=add
  apart = f32[2,5,3,4] reshape(made)
  turned.q = f32[2,3,5,4] transpose(apart), dimensions={0,2,1,3}
  q = f32[6,5,4] reshape(turned.q)
"""
    text = attention("q", "k", sums + given("k", "6,7,4", "0,1,2", "6,7,4"))
    assert check_table(text, SIZES) == [(2, 3, 3, 5, 7)]
