"""The moe table: who chooses, experts or tokens; a choice made again; what one product joins."""

from __future__ import annotations

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask

ROW = "select path, experts, local_experts, capacity, tokens, top_k, drops, gated from moe"

# -- experts that choose tokens -------------------------------------------------------------------

PRODUCTS = """
  up = f32[E,8,5] parameter(2)
  down = f32[E,5,8] parameter(3)
  u = f32[E,2,5] dot(rows, up), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  h = f32[E,2,5] tanh(u)
  d = f32[E,2,8] dot(h, down), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
"""
CHOICE = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  wr = f32[8,E] parameter(1)
  scores = f32[6,E] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  columns = f32[E,6] transpose(scores), dimensions={1,0}
  top = (f32[E,2], s32[E,2]) topk(columns), k=2, largest=true
  gates = f32[E,2] get-tuple-element(top), index=0
  chosen = s32[E,2] get-tuple-element(top), index=1
"""
BY_INDEX = f"""{CHOICE}
  rows = f32[E,2,8] gather(x, chosen), offset_dims={{2}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1,8}}
{PRODUCTS}
  each = f32[E,2,8] broadcast(gates), dimensions={{0,1}}
  ROOT y = f32[E,2,8] multiply(d, each)
}}
"""
# The weights times the results is a dot that sums over nothing.
BY_MASK = f"""{CHOICE}
  all = s32[E,2,6] iota(), iota_dimension=2
  both = s32[E,2,6] broadcast(chosen), dimensions={{0,1}}
  hit = pred[E,2,6] compare(all, both), direction=EQ
  hot = f32[E,2,6] convert(hit)
  rows = f32[E,2,8] dot(hot, x), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
{PRODUCTS}
  w = f32[E,2,8] dot(gates, d), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{}},
    rhs_batch_dims={{0,1}}, rhs_contracting_dims={{}}
  ROOT y = f32[6,8] dot(hot, w), lhs_contracting_dims={{0,1}}, rhs_contracting_dims={{0,1}}
}}
"""


@pytest.mark.parametrize("experts", [3, 6])
@pytest.mark.parametrize("text", [BY_INDEX, BY_MASK], ids=["index", "mask"])
def test_experts_that_choose_tokens(text: str, experts: int) -> None:
    # As many experts as tokens, too: sizes do not tell which is which.
    text = text.replace("E,", f"{experts},").replace(",E]", f",{experts}]")
    assert check_table(text, ROW) == [("fixed_capacity", experts, experts, 2, 6, None, 0, 0)]
    (told,) = ask(text, "select evidence from moe")
    assert '"experts choose tokens"' in str(told)


# As many tokens as experts and slots; each token chooses one, and takes the slot of its own number.
TOKENS = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  wr = f32[8,6] parameter(1)
  up = f32[6,8,5] parameter(2)
  down = f32[6,5,8] parameter(3)
  scores = f32[6,6] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = (f32[6,1], s32[6,1]) topk(scores), k=1, largest=true
  gates = f32[6,1] get-tuple-element(top), index=0
  chosen = s32[6,1] get-tuple-element(top), index=1
  expert = s32[6] reshape(chosen)
  gate = f32[6] reshape(gates)
  all = s32[6,6,6] iota(), iota_dimension=1
  each = s32[6,6,6] broadcast(expert), dimensions={0}
  hit = pred[6,6,6] compare(all, each), direction=EQ
  hot = f32[6,6,6] convert(hit)
  t = s32[6,6,6] iota(), iota_dimension=0
  c = s32[6,6,6] iota(), iota_dimension=2
  own = pred[6,6,6] compare(t, c), direction=EQ
  seat = f32[6,6,6] convert(own)
  mask = f32[6,6,6] multiply(hot, seat)
  weight = f32[6,6,6] broadcast(gate), dimensions={0}
  weights = f32[6,6,6] multiply(mask, weight)
  rows = f32[6,6,8] dot(mask, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  u = f32[6,6,5] dot(rows, up), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  h = f32[6,6,5] tanh(u)
  d = f32[6,6,8] dot(h, down), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  ROOT y = f32[6,8] dot(weights, d), lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}
}
"""


def test_tokens_that_choose_among_as_many_experts() -> None:
    assert ask(TOKENS, ROW) == [("fixed_capacity", 6, 6, 6, 6, 1, 0, 0)]
    (told,) = ask(TOKENS, "select evidence from moe")
    assert "choose tokens" not in str(told)


# -- a choice that is made again ------------------------------------------------------------------

AGAIN = ', metadata={op_name="jit(f)/transpose(jvp(f))/rematted_computation/dot"}'
FORWARD = ', metadata={op_name="jit(f)/jvp(f)/dot"}'
REPLAYED = f"""HloModule m
more {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=GT
}}
ENTRY main {{
  x = f32[6,8] parameter(0)
  wr = f32[8,3] parameter(1)
  up = f32[3,8,5] parameter(2)
  down = f32[3,5,8] parameter(3)
  scores = f32[6,3] dot(x, wr), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{FORWARD}
  top = (f32[6,2], s32[6,2]) topk(scores), k=2, largest=true{FORWARD}
  gates = f32[6,2] get-tuple-element(top), index=0
  chosen = s32[6,2] get-tuple-element(top), index=1
  all = s32[6,2,3] iota(), iota_dimension=2
  each = s32[6,2,3] broadcast(chosen), dimensions={{0,1}}
  hit = pred[6,2,3] compare(all, each), direction=EQ
  hot = f32[6,2,3] convert(hit)
  mask = f32[6,3] dot(hot, gates), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}{FORWARD}
  wide = f32[6,3,5] dot(x, up), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}{FORWARD}
  h = f32[6,3,5] tanh(wide)
  every = f32[3,6,8] dot(h, down), lhs_batch_dims={{1}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}{FORWARD}
  y = f32[6,8] dot(every, mask), lhs_batch_dims={{1}}, lhs_contracting_dims={{0}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}{FORWARD}
  wide2 = f32[6,3,5] dot(x, up), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}{AGAIN}
  scores2 = f32[6,3] dot(x, wr), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{AGAIN}
  places = s32[6,3] iota(), iota_dimension=1
  order = (f32[6,3], s32[6,3]) sort(scores2, places), dimensions={{1}}, to_apply=more{AGAIN}
  sorted = s32[6,3] get-tuple-element(order), index=1
  chosen2 = s32[6,2] slice(sorted), slice={{[0:6],[0:2]}}
  ROOT r = (f32[6,8], f32[6,3,5], s32[6,2]) tuple(y, wide2, chosen2)
}}
"""
BY_PHASE = "select phase, routing_ops, routing_bytes from moe order by phase"


def test_a_choice_by_the_same_scores_is_the_same_choice() -> None:
    # The sort reads and writes 6·3 scores and places; the top-k 18 scores, and 2·12 of its own.
    assert ask(REPLAYED, BY_PHASE) == [("fwd", 1, 4 * 42), ("remat", 1, 4 * 2 * 36)]


def test_a_choice_by_other_scores_leaves_open_how_much_routes() -> None:
    other = REPLAYED.replace("sort(scores2, places)", "sort(scores3, places)").replace(
        "  places = ",
        f"""  wr3 = f32[8,3] parameter(4)
  scores3 = f32[6,3] dot(x, wr3), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{AGAIN}
  places = """,
    )
    assert ask(other, BY_PHASE) == [("fwd", 1, 4 * 42), ("remat", None, None)]
    none = REPLAYED.replace("sort(scores2, places)", "sort(places, places)")
    assert ask(none, BY_PHASE) == [("fwd", 1, 4 * 42), ("remat", 0, 0)]


# -- projections of one product -------------------------------------------------------------------

JOINED = """HloModule m
ENTRY main {
  x = f32[6,8] parameter(0)
  all = f32[8,33] parameter(1)
  down = f32[3,5,8] parameter(2)
  both = f32[33,6] dot(all, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  g = f32[15,6] slice(both), slice={[0:15],[0:6]}
  u = f32[15,6] slice(both), slice={[15:30],[0:6]}
  l = f32[3,6] slice(both), slice={[30:33],[0:6]}
  scores = f32[6,3] transpose(l), dimensions={1,0}
  top = (f32[6,2], s32[6,2]) topk(scores), k=2, largest=true
  gates = f32[6,2] get-tuple-element(top), index=0
  chosen = s32[6,2] get-tuple-element(top), index=1
  places = s32[6,2,3] iota(), iota_dimension=2
  each = s32[6,2,3] broadcast(chosen), dimensions={0,1}
  hit = pred[6,2,3] compare(places, each), direction=EQ
  hot = f32[6,2,3] convert(hit)
  mask = f32[6,3] dot(hot, gates), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  s = f32[15,6] logistic(g)
  m = f32[15,6] multiply(s, u)
  h = f32[3,5,6] reshape(m)
  every = f32[3,6,8] dot(h, down), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  ROOT y = f32[6,8] dot(every, mask), lhs_batch_dims={1}, lhs_contracting_dims={0},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
}
"""
LATER = JOINED.replace("x = f32[6,8] parameter(0)", "x = f32[6,8] parameter(1)").replace(
    "all = f32[8,33] parameter(1)", "all = f32[8,33] parameter(0)"
)


@pytest.mark.parametrize("text", [JOINED, LATER], ids=["rows first", "weights first"])
def test_parts_of_a_product_that_is_taken_in_another_order(text: str) -> None:
    # 2·6·8·33 with the router's columns, and 2·3·6·5·8.
    assert ask(text, "select experts, gated, gemm_flops from moe") == [(3, 1, 3168 + 1440)]


# The sum over the slots of all experts is cut in as many parts as there are experts, and what adds
# the parts up is written twice.
CUT = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
once {
  p = f32[3,6,8] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[6,8] reduce(p, z), dimensions={0}, to_apply=sum
}
ENTRY main {
  x = f32[6,8] parameter(0)
  mask = f32[6,3,2] parameter(1)
  up = f32[3,8,5] parameter(2)
  down = f32[3,5,8] parameter(3)
  rows = f32[3,2,8] dot(mask, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  u = f32[3,2,5] dot(rows, up), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  h = f32[3,2,5] tanh(u)
  d = f32[3,2,8] dot(h, down), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}
  parts = f32[3,6,8] dot(mask, d), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  y = f32[6,8] fusion(parts), kind=kLoop, calls=once
  z = f32[] constant(0)
  half = f32[6,8] reduce(parts, z), dimensions={0}, to_apply=sum
  ROOT r = (f32[6,8], f32[6,8]) tuple(y, half)
}
"""


def test_a_sum_in_parts_has_its_axes_once() -> None:
    assert ask(CUT, ROW) == [("fixed_capacity", 3, 3, 2, 6, None, 1, 0)]


# -- one expert a token, and heads that a router chooses ------------------------------------------

# Each token weighs the expert it chose, and zeros the others: a sum of a multiply, as back ends
# write it. Where the mask varies only the compare with an iota tells.
ONE = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[6,8] parameter(0)
  wr = f32[8,3] parameter(1)
  up = f32[3,8,5] parameter(2)
  down = f32[3,5,8] parameter(3)
  scores = f32[6,3] dot(x, wr), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  top = (f32[6,1], s32[6,1]) topk(scores), k=1, largest=true
  gates = f32[6,1] get-tuple-element(top), index=0
  chosen = s32[6,1] get-tuple-element(top), index=1
  gate = f32[6] reshape(gates)
  expert = s32[6] reshape(chosen)
  places = s32[3,6] iota(), iota_dimension=0
  each = s32[3,6] broadcast(expert), dimensions={1}
  hit = pred[3,6] compare(places, each), direction=EQ
  weight = f32[3,6] broadcast(gate), dimensions={1}
  zero = f32[] constant(0)
  zeros = f32[3,6] broadcast(zero), dimensions={}
  mask = f32[3,6] select(hit, weight, zeros)
  wide = f32[6,3,5] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  h = f32[6,3,5] tanh(wide)
  every = f32[3,6,8] dot(h, down), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={0}, rhs_contracting_dims={1}
  scale = f32[3,6,8] broadcast(mask), dimensions={0,1}
  scaled = f32[3,6,8] multiply(every, scale)
  ROOT y = f32[6,8] reduce(scaled, zero), dimensions={0}, to_apply=sum
}
"""
FORWARD_DOTS = 2 * 2 * 6 * 3 * 5 * 8


def test_one_expert_of_each_token() -> None:
    sql = "select path, experts, tokens, top_k, gated, gemm_flops from moe"
    assert ask(ONE, sql) == [("dense_masked", 3, 6, 1, 0, FORWARD_DOTS)]
    # A limit on the places, the same for all tokens, chooses nothing.
    fixed = ONE.replace("each = s32[3,6] broadcast(expert)", "each = s32[3,6] broadcast(all)")
    fixed = fixed.replace("  places =", "  all = s32[6] iota(), iota_dimension=0\n  places =")
    assert ask(fixed.replace("select(hit, weight, zeros)", "convert(hit)"), sql) == []


def test_heads_that_a_router_chooses_are_no_experts() -> None:
    # What the last product takes is no result of experts, but values, weighed for each head.
    heads = ONE.replace(
        "  wide = f32[6,3,5] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n",
        """  values = f32[6,3,5] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  keys = f32[6,3,5] tanh(values)
  p = f32[3,6,6] dot(values, keys), lhs_batch_dims={1}, lhs_contracting_dims={2},
    rhs_batch_dims={1}, rhs_contracting_dims={2}
  mixed = f32[3,6,5] dot(p, values), lhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_batch_dims={1}, rhs_contracting_dims={0}
  wide = f32[6,3,5] transpose(mixed), dimensions={1,0,2}
""",
    )
    assert "mixed" in heads
    assert ask(heads, "select path from moe") == []
