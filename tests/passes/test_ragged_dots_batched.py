"""Batches of ragged dots (vmap) that became dense products, and what looks like them."""

from __future__ import annotations

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_ragged_dots import SIZES, members
from tests.passes.test_ragged_dots_padded import MASK

ENDS = "reduce-window(sizes, zero), window={size=1x4 pad=0_0x3_0}, to_apply=sum"
PRODUCT = """\
  t = f32[4,3,64,16] transpose(kept), dimensions={1,0,2,3}
  ROOT d = f32[3,64,8] dot(t, w), lhs_batch_dims={1}, lhs_contracting_dims={3,0}, \
rhs_batch_dims={0}, rhs_contracting_dims={2,1}
"""
WIDE = "broadcast(x), dimensions={0,2,3}"


def batch(product: str = PRODUCT, ends: str = ENDS, wide: str = WIDE) -> str:
    """Three ragged dots of 64 rows and four groups at once, as jax writes them for a CPU."""
    return f"""\
HloModule m, is_scheduled=true
{MASK}
ENTRY main {{
  x = f32[3,64,16] parameter(0)
  w = f32[3,4,16,8] parameter(1)
  sizes = s32[3,4] parameter(2)
  zero = s32[] constant(0)
  ends = s32[3,4] {ends}
  first = s32[3,1] broadcast(zero), dimensions={{}}
  some = s32[3,3] slice(ends), slice={{[0:3], [0:3]}}
  starts = s32[3,4] concatenate(first, some), dimensions={{1}}
  from = s32[3,4,64,16] broadcast(starts), dimensions={{0,1}}
  to = s32[3,4,64,16] broadcast(ends), dimensions={{0,1}}
  count = s32[64] iota(), iota_dimension=0
  counts = s32[4,64,16] broadcast(count), dimensions={{1}}
  one = s32[1,4,64,16] reshape(counts)
  same = s32[4,64,16] reshape(one)
  row = s32[3,4,64,16] broadcast(same), dimensions={{1,2,3}}
  behind = pred[3,4,64,16] compare(from, row), direction=LE
  before = pred[3,4,64,16] compare(row, to), direction=LT
  in = pred[3,4,64,16] and(behind, before)
  each = f32[3,4,64,16] {wide}
  none = f32[] constant(0)
  zeros = f32[3,4,64,16] broadcast(none), dimensions={{}}
  kept = f32[3,4,64,16] select(in, each, zeros)
{product}}}
"""


def test_a_batch_of_padded_ragged_dots() -> None:
    text = batch()
    sql = f"select class, variant, lowering, {SIZES}, useful_flops, factor, split_k, extra_bytes"
    # The masked copy is written, and once more turned round.
    useful, extra = 3 * 2 * 64 * 8 * 16, (2 * 4 - 1) * 3 * 64 * 16 * 4
    expected = ("fwd", "non_contracting", "dense_padded", 4, 64, 8, 16, useful, 4.0, 1, extra)
    assert ask(text, f"{sql} from ragged_dots") == [expected]
    assert ("mask", "kept") in members(text)
    check_table(text, "ragged_dots")


def test_groups_and_k_as_one_dimension() -> None:
    product = """\
  t = f32[3,64,4,16] transpose(kept), dimensions={0,2,1,3}
  a = f32[3,64,64] bitcast(t)
  b = f32[3,64,8] bitcast(w)
  ROOT d = f32[3,64,8] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}
"""
    expected = ("fwd", 4, 64, 8, 16, 4.0, 1)
    sql = f"select class, {SIZES}, factor, split_k from ragged_dots"
    assert ask(batch(product), sql) == [expected]


def test_slices_of_a_batch_are_not_the_batch() -> None:
    product = """\
  t = f32[3,64,4,16] transpose(kept), dimensions={0,2,1,3}
  a = f32[3,64,4,16] bitcast(t)
  d = f32[3,4,64,8] dot(a, w), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, \
rhs_batch_dims={0,1}, rhs_contracting_dims={2}
  ROOT s = f32[3,64,8] reduce(d, none), dimensions={1}, to_apply=fsum
"""
    sql = f"select class, {SIZES}, factor, split_k from ragged_dots"
    assert ask(batch(product), sql) == [("fwd", 4, 64, 8, 16, 4.0, 4)]
    # Added up over the batch it is another product.
    other = product.replace(
        "f32[3,64,8] reduce(d, none), dimensions={1}", "f32[4,64,8] reduce(d, none), dimensions={0}"
    )
    assert ask(batch(other), sql) == []


def test_weight_gradients_of_a_batch() -> None:
    product = """\
  y = f32[3,64,8] parameter(3)
  y.to = s32[3,4,64] broadcast(ends), dimensions={0,1}
  y.row = s32[3,4,64] iota(), iota_dimension=2
  y.before = pred[3,4,64] compare(y.row, y.to), direction=LT
  y.in = pred[3,4,64,8] broadcast(y.before), dimensions={0,1,2}
  y.each = f32[3,4,64,8] broadcast(y), dimensions={0,2,3}
  y.zeros = f32[3,4,64,8] broadcast(none), dimensions={}
  y.kept = f32[3,4,64,8] select(y.in, y.each, y.zeros)
  ROOT d = f32[3,4,16,8] dot(kept, y.kept), lhs_batch_dims={0,1}, lhs_contracting_dims={2}, \
rhs_batch_dims={0,1}, rhs_contracting_dims={2}
"""
    text = batch(product)
    sql = f"select class, variant, {SIZES}, useful_flops, factor, split_k from ragged_dots"
    expected = ("wgrad", "contracting", 4, 16, 8, 64, 3 * 2 * 16 * 8 * 64, 4.0, 1)
    assert ask(text, sql) == [expected]
    check_table(text, "ragged_dots")


@pytest.mark.parametrize(
    "text",
    [
        # Bounds that nobody is seen to add up: lengths of what each head of a sequence looks at.
        batch(ends="parameter(3)"),
        # What each group has of its own is not laid out.
        batch(wide="parameter(3)"),
        # The same rows for the batch and for the groups: neither is told from the other.
        batch(wide="broadcast(y), dimensions={2,3}").replace(
            "zero =", "y = f32[64,16] parameter(3)\n  zero ="
        ),
        # The batch is summed, too.
        batch(
            """\
  ROOT d = f32[64,8] dot(kept, w), lhs_contracting_dims={0,1,3}, rhs_contracting_dims={0,1,2}
"""
        ),
        # A group is kept: a product of each group of its own.
        batch(
            """\
  ROOT d = f32[3,4,64,8] dot(kept, w), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, \
rhs_batch_dims={0,1}, rhs_contracting_dims={2}
"""
        ),
    ],
    ids=["no sums", "own rows", "shared rows", "summed batch", "groups kept"],
)
def test_what_is_no_batch_of_ragged_dots(text: str) -> None:
    assert ask(text, "select name from ragged_dots") == []
