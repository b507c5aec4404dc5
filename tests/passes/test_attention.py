"""The attention table: products and a softmax that are one, what only looks so, and kernels."""

from __future__ import annotations

import json

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask, findings

REDUCERS = """\
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
max {
  a.1 = f32[] parameter(0)
  b.1 = f32[] parameter(1)
  ROOT m.1 = f32[] maximum(a.1, b.1)
}
"""


def dims(lhs_batch: str, rhs_batch: str, lhs_summed: str, rhs_summed: str) -> str:
    return (
        f", lhs_batch_dims={{{lhs_batch}}}, rhs_batch_dims={{{rhs_batch}}},"
        f" lhs_contracting_dims={{{lhs_summed}}}, rhs_contracting_dims={{{rhs_summed}}}"
    )


def gemm(alpha: float, rhs_summed: str) -> str:
    """The config of a batched gemm call."""
    numbers = (
        '"lhs_contracting_dimensions":["2"],'
        f'"rhs_contracting_dimensions":["{rhs_summed}"],'
        '"lhs_batch_dimensions":["0"],"rhs_batch_dimensions":["0"]'
    )
    return (
        ', custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":'
        f'{{"alpha_real":{alpha},"beta":0,"dot_dimension_numbers":{{{numbers}}}}}}}'
    )


CAUSAL = """\
  rows = s32[6,6] iota(), iota_dimension=0
  columns = s32[6,6] iota(), iota_dimension=1
  seen = pred[6,6] compare(rows, columns), direction=GE
  mask = pred[2,3,6,6] broadcast(seen), dimensions={2,3}
  low = f32[] constant(-1e30)
  lows = f32[2,3,6,6] broadcast(low), dimensions={}
  masked = f32[2,3,6,6] select(mask, scaled, lows)
"""


def forward(mask: str = "", *, scores: str = "scaled", more: str = "", root: str = "o") -> str:
    """2 sequences of 6, 3 heads of depth 4. `mask` computes `masked`, of which the softmax is."""
    return f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  q = f32[2,6,3,4] parameter(0)
  k = f32[2,6,3,4] parameter(1)
  v = f32[2,6,3,4] parameter(2)
  s = f32[2,3,6,6] dot(q, k){dims("0,2", "0,2", "3", "3")}
  half = f32[] constant(0.5)
  halves = f32[2,3,6,6] broadcast(half), dimensions={{}}
  scaled = f32[2,3,6,6] multiply(s, halves)
{mask}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,3,6] reduce({scores}, none), dimensions={{3}}, to_apply=max
  tops = f32[2,3,6,6] broadcast(top), dimensions={{0,1,2}}
  less = f32[2,3,6,6] subtract({scores}, tops)
  e = f32[2,3,6,6] exponential(less)
  total = f32[2,3,6] reduce(e, zero), dimensions={{3}}, to_apply=add
  totals = f32[2,3,6,6] broadcast(total), dimensions={{0,1,2}}
  p = f32[2,3,6,6] divide(e, totals)
  {"ROOT " if root == "o" else ""}o = f32[2,3,4,6] dot(v, p){dims("0,2", "0,1", "1", "3")}
{more}
}}
"""


BACKWARD = f"""\
  do = f32[2,3,4,6] parameter(3)
  dv = f32[2,3,4,6] dot(do, p){dims("0,1", "0,1", "3", "2")}
  dp = f32[2,3,6,6] dot(do, v){dims("0,1", "0,2", "2", "3")}
  both = f32[2,3,6,6] multiply(p, dp)
  inner = f32[2,3,6] reduce(both, zero), dimensions={{3}}, to_apply=add
  inners = f32[2,3,6,6] broadcast(inner), dimensions={{0,1,2}}
  away = f32[2,3,6,6] subtract(dp, inners)
  ds = f32[2,3,6,6] multiply(p, away)
  dq = f32[2,3,6,4] dot(ds, k){dims("0,1", "0,2", "3", "1")}
  dk = f32[2,3,6,4] dot(ds, q){dims("0,1", "0,2", "2", "1")}
  ROOT t = (f32[2,3,4,6], f32[2,3,4,6], f32[2,3,6,4], f32[2,3,6,4]) tuple(o, dv, dq, dk)
"""

ROLES = """
    select role, group_concat(name, ' ') from (
        select role, i.name from members m join instructions i using (module)
        where m."table" = 'attention' and i.id = m.instr and m.row = {row} order by i.id
    ) group by role order by role
"""
COUNT = "select route, direction, count(*) from attention group by 1, 2 order by 1, 2"


def roles(text: str, row: int = 0) -> dict[str, object]:
    return {str(role): names for role, names in ask(text, ROLES.format(row=row))}


# ---------------------------------------------------------------------------------- exposed


def test_products_and_a_softmax_over_the_keys_are_attention() -> None:
    text = forward(CAUSAL, scores="masked")
    sql = (
        "select route, direction, causal, batch, heads, kv_heads, q_length, kv_length, head_dim,"
        " score_shape, score_bytes, softmax_dtype, flops, causal_fraction from attention"
    )
    check_table(text, "attention")
    assert ask(text, sql) == [
        ("exposed", "fwd", 1, 2, 3, 3, 6, 6, 4, "f32[2,3,6,6]", 864, "f32", 3456, 7 / 12)
    ]
    assert roles(text) == {
        "div": "p", "exp": "e", "mask": "masked", "max": "top", "pv": "o", "qk": "s",
        "scale": "scaled", "sum": "total",
    }  # fmt: skip


def test_what_is_not_told_is_null() -> None:
    text = forward()
    sql = (
        "select score_values, workspace_bytes, window, kernel, fell_back, recomputed from attention"
    )
    assert ask(text, sql, stage="before_optimizations") == [(None, None, None, None, 0, 0)]
    # All but the constant that scores are scaled by.
    assert ask(text, sql, stage="after_optimizations") == [(7, None, None, None, 0, 0)]


def test_scores_in_memory_are_results_of_fusions_and_of_instructions_in_none() -> None:
    text = f"""\
HloModule m, is_scheduled=true
{REDUCERS}
scores {{
  q = bf16[2,8,16] parameter(0)
  k = bf16[2,8,16] parameter(1)
  ROOT s = f32[2,8,8] dot(q, k){dims("0", "0", "2", "2")}
}}
softmax {{
  s.1 = f32[2,8,8] parameter(0)
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,8] reduce(s.1, none), dimensions={{2}}, to_apply=max
  tops = f32[2,8,8] broadcast(top), dimensions={{0,1}}
  less = f32[2,8,8] subtract(s.1, tops)
  e = f32[2,8,8] exponential(less)
  total = f32[2,8] reduce(e, zero), dimensions={{2}}, to_apply=add
  totals = f32[2,8,8] broadcast(total), dimensions={{0,1}}
  p = f32[2,8,8] divide(e, totals)
  ROOT r = bf16[2,8,8] convert(p)
}}
product {{
  p.1 = bf16[2,8,8] parameter(0)
  v = bf16[2,8,16] parameter(1)
  ROOT o = bf16[2,8,16] dot(p.1, v){dims("0", "0", "2", "1")}
}}
ENTRY main {{
  q.1 = bf16[2,8,16] parameter(0)
  k.1 = bf16[2,8,16] parameter(1)
  v.1 = bf16[2,8,16] parameter(2)
  f.1 = f32[2,8,8] fusion(q.1, k.1), kind=kCustom, calls=scores
  f.2 = bf16[2,8,8] fusion(f.1), kind=kInput, calls=softmax
  ROOT f.3 = bf16[2,8,16] fusion(f.2, v.1), kind=kCustom, calls=product
}}
"""
    sql = "select score_values, score_bytes, batch, heads, q_length from attention"
    check_table(text, "attention")
    # Batch and heads are one dimension: which of the two it is, is not told.
    assert ask(text, sql) == [(2, 512, None, None, None)]
    assert [rule for rule, _ in findings(text, "attention")] == ["attention-scores-in-memory"]


def test_sizes_that_are_all_the_same_are_told_apart_by_dimension_numbers() -> None:
    """Queries, keys, heads and depth are 4; P is summed over the keys, or over the queries."""
    text = f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  q = f32[4,4,4] parameter(0)
  k = f32[4,4,4] parameter(1)
  v = f32[4,4,4] parameter(2)
  s = f32[4,4,4] dot(q, k){dims("0", "0", "2", "2")}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[4,4] reduce(s, none), dimensions={{2}}, to_apply=max
  tops = f32[4,4,4] broadcast(top), dimensions={{0,1}}
  less = f32[4,4,4] subtract(s, tops)
  e = f32[4,4,4] exponential(less)
  total = f32[4,4] reduce(e, zero), dimensions={{2}}, to_apply=add
  totals = f32[4,4,4] broadcast(total), dimensions={{0,1}}
  p = f32[4,4,4] divide(e, totals)
  ROOT o = f32[4,4,4] dot(p, v){dims("0", "0", "2", "1")}
}}
"""
    assert ask(text, COUNT) == [("exposed", "fwd", 1)]
    over_queries = text.replace(
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    )
    assert ask(over_queries, COUNT) == []
    other_batch = text.replace(
        "dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}",
        "dot(p, v), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}",
    )
    assert ask(other_batch, COUNT) == []  # as a router's: its batch is of the queries
    over_batch = text.replace("dimensions={2}, to_apply", "dimensions={0}, to_apply").replace(
        "broadcast(top), dimensions={0,1}", "broadcast(top), dimensions={1,2}"
    )
    over_batch = over_batch.replace("(total), dimensions={0,1}", "(total), dimensions={1,2}")
    assert ask(over_batch, COUNT) == []


def mask(compare: str, *, tail: str = "") -> str:
    """A mask made of `seen`."""
    return f"""\
  rows = s32[6,6] iota(), iota_dimension=0
  columns = s32[6,6] iota(), iota_dimension=1
{compare}
  mask = pred[2,3,6,6] broadcast(seen), dimensions={{2,3}}
  low = f32[] constant(-1e30)
  lows = f32[2,3,6,6] broadcast(low), dimensions={{}}
  masked = f32[2,3,6,6] select(mask, {tail or "scaled, lows"})
"""


WINDOW = """\
  seen.1 = pred[6,6] compare(rows, columns), direction=GE
  apart = s32[6,6] subtract(rows, columns)
  two = s32[] constant(2)
  twos = s32[6,6] broadcast(two), dimensions={}
  near = pred[6,6] compare(apart, twos), direction=LT
  seen = pred[6,6] and(seen.1, near)
"""
SEGMENTS = """\
  seen.1 = pred[6,6] compare(rows, columns), direction=GE
  segments = s32[6] parameter(3)
  left = s32[6,6] broadcast(segments), dimensions={0}
  right = s32[6,6] broadcast(segments), dimensions={1}
  same = pred[6,6] compare(left, right), direction=EQ
  seen = pred[6,6] and(seen.1, same)
"""
AHEAD = """\
  two = s32[] constant(-2)
  twos = s32[6,6] broadcast(two), dimensions={}
  later = s32[6,6] add(columns, twos)
  seen = pred[6,6] compare(rows, later), direction=GE
"""
PADDING = """\
  four = s32[] constant(4)
  fours = s32[6,6] broadcast(four), dimensions={}
  seen = pred[6,6] compare(columns, fours), direction=LT
"""


@pytest.mark.parametrize(
    ("made", "tail", "expected"),
    [
        ("  seen = pred[6,6] compare(rows, columns), direction=GE", "", (1, None, 21 / 36)),
        ("  seen = pred[6,6] compare(columns, rows), direction=LE", "", (1, None, 21 / 36)),
        # The scores stand where it does not hold.
        ("  seen = pred[6,6] compare(columns, rows), direction=GT", "lows, scaled",
         (1, None, 21 / 36)),
        # Without itself.
        ("  seen = pred[6,6] compare(rows, columns), direction=GT", "", (1, None, 15 / 36)),
        # What a query sees lies ahead.
        ("  seen = pred[6,6] compare(rows, columns), direction=LE", "", (0, None, 21 / 36)),
        (AHEAD, "", (0, None, 30 / 36)),
        (WINDOW, "", (1, 2, 11 / 36)),
        (SEGMENTS, "", (1, None, 21 / 36)),
        (PADDING, "", (0, None, 1.0)),
        ("  seen = pred[6,6] parameter(3)", "", (None, None, None)),
        ("  seen = pred[6,6] constant({...})", "", (None, None, None)),
        # Equal positions: each query sees itself.
        ("  seen = pred[6,6] compare(rows, columns), direction=EQ", "", (1, None, 6 / 36)),
    ],
)  # fmt: skip
def test_masks_by_position_are_read(made: str, tail: str, expected: object) -> None:
    text = forward(mask(made, tail=tail), scores="masked")
    assert check_table(text, "select causal, window, causal_fraction from attention") == [expected]


def test_a_mask_may_be_numbers_that_are_added() -> None:
    added = """\
  rows = s32[6,6] iota(), iota_dimension=0
  columns = s32[6,6] iota(), iota_dimension=1
  seen = pred[6,6] compare(rows, columns), direction=GE
  zero.1 = f32[] constant(0)
  zeros = f32[6,6] broadcast(zero.1), dimensions={}
  low = f32[] constant(-1e30)
  lows = f32[6,6] broadcast(low), dimensions={}
  bias = f32[6,6] select(seen, zeros, lows)
  biases = f32[2,3,6,6] broadcast(bias), dimensions={2,3}
  masked = f32[2,3,6,6] add(scaled, biases)
"""
    sql = "select causal, causal_fraction from attention"
    assert check_table(forward(added, scores="masked"), sql) == [(1, 21 / 36)]
    data = """\
  bias = f32[6,6] parameter(3)
  biases = f32[2,3,6,6] broadcast(bias), dimensions={2,3}
  masked = f32[2,3,6,6] add(scaled, biases)
"""
    assert ask(forward(data, scores="masked"), sql) == [(None, None)]


def test_without_a_mask_all_scores_count() -> None:
    assert ask(forward(), "select causal, causal_fraction from attention") == [(0, 1.0)]


def test_capped_scores_are_scores() -> None:
    cap = """\
  small = f32[2,3,6,6] tanh(scaled)
  fifty = f32[] constant(50)
  fifties = f32[2,3,6,6] broadcast(fifty), dimensions={}
  masked = f32[2,3,6,6] multiply(small, fifties)
"""
    text = forward(cap, scores="masked")
    assert ask(text, COUNT) == [("exposed", "fwd", 1)]
    ((evidence,),) = ask(text, "select evidence from attention")
    assert "scores capped by tanh" in json.loads(str(evidence))


def test_the_division_may_come_behind_the_product_with_v() -> None:
    text = (
        forward()
        .replace("  p = f32[2,3,6,6] divide(e, totals)\n", "")
        .replace("  totals = f32[2,3,6,6] broadcast(total), dimensions={0,1,2}\n", "")
        .replace("  ROOT o = f32[2,3,4,6] dot(v, p)", "  pv = f32[2,3,4,6] dot(v, e)")
        .replace(
            "rhs_contracting_dims={3}\n\n}",
            "rhs_contracting_dims={3}\n"
            "  totals = f32[2,3,4,6] broadcast(total), dimensions={0,1,3}\n"
            "  ROOT o = f32[2,3,4,6] divide(pv, totals)\n}",
        )
    )
    check_table(text, "attention")
    assert roles(text)["div"] == "o"
    assert roles(text)["sum"] == "total"
    without = text.replace(
        "ROOT o = f32[2,3,4,6] divide(pv, totals)", "ROOT o = f32[2,3,4,6] negate(pv)"
    )
    assert "div" not in roles(without)


def test_the_backward_is_a_site_of_its_own() -> None:
    text = forward(CAUSAL, scores="masked", more=BACKWARD, root="t")
    check_table(text, "attention")
    assert ask(text, COUNT) == [("exposed", "bwd", 1), ("exposed", "fwd", 1)]
    found = roles(text, 1)
    assert {role: found[role] for role in ("dv", "dp", "dq", "dk")} == {
        "dv": "dv", "dp": "dp", "dq": "dq", "dk": "dk",
    }  # fmt: skip
    # Four products, and the scores of the forward are not counted again.
    assert "qk" not in found
    assert ask(text, "select flops from attention order by id") == [(3456,), (6912,)]


def test_a_backward_is_told_from_the_forward_by_what_the_scores_are_multiplied_with() -> None:
    """The gradient of V alone, without dP, is no site: that of a weight looks alike."""
    gradient_of_v = BACKWARD[: BACKWARD.index("  dp =")] + (
        "  ROOT t = (f32[2,3,4,6], f32[2,3,4,6]) tuple(o, dv)\n"
    )
    assert ask(forward(more=gradient_of_v, root="t"), COUNT) == [("exposed", "fwd", 1)]


def test_a_forward_that_runs_again_is_recomputed() -> None:
    again = f"""\
  do.0 = f32[2,3,4,6] parameter(3)
  held = (f32[2,6,3,4], f32[2,6,3,4], f32[2,6,3,4], f32[2,3,4,6]) tuple(q, k, v, do.0)
  barrier = (f32[2,6,3,4], f32[2,6,3,4], f32[2,6,3,4], f32[2,3,4,6]) opt-barrier(held)
  q.2 = f32[2,6,3,4] get-tuple-element(barrier), index=0
  k.2 = f32[2,6,3,4] get-tuple-element(barrier), index=1
  v.2 = f32[2,6,3,4] get-tuple-element(barrier), index=2
  s.2 = f32[2,3,6,6] dot(q.2, k.2){dims("0,2", "0,2", "3", "3")}
  scaled.2 = f32[2,3,6,6] multiply(s.2, halves)
  top.2 = f32[2,3,6] reduce(scaled.2, none), dimensions={{3}}, to_apply=max
  tops.2 = f32[2,3,6,6] broadcast(top.2), dimensions={{0,1,2}}
  less.2 = f32[2,3,6,6] subtract(scaled.2, tops.2)
  e.2 = f32[2,3,6,6] exponential(less.2)
  total.2 = f32[2,3,6] reduce(e.2, zero), dimensions={{3}}, to_apply=add
  totals.2 = f32[2,3,6,6] broadcast(total.2), dimensions={{0,1,2}}
  p.2 = f32[2,3,6,6] divide(e.2, totals.2)
  o.2 = f32[2,3,4,6] dot(v.2, p.2){dims("0,2", "0,1", "1", "3")}
{_replaced(BACKWARD)}"""
    text = forward(more=again, root="t")
    sql = "select name, direction, recomputed from attention order by id"
    assert ask(text, sql) == [("o", "fwd", 0), ("o.2", "fwd", 1), ("dq", "bwd", 0)]
    rules = [
        rule for rule, _ in findings(text.replace("m\n", "m, is_scheduled=true\n", 1), "attention")
    ]
    assert "attention-forward-twice" in rules


def _replaced(backward: str) -> str:
    """The backward on what was computed again."""
    lines = backward.splitlines()[1:]
    text = "\n".join(lines)
    for name in ("p", "v", "k", "q"):
        for before, after in ((f", {name})", f", {name}.2)"), (f"({name}, ", f"({name}.2, ")):
            text = text.replace(before, after)
    return (
        text.replace("dot(do", "dot(do.2")
        .replace("tuple(o,", "tuple(o.2,")
        .replace("  dv =", "  do.2 = f32[2,3,4,6] get-tuple-element(barrier), index=3\n  dv =", 1)
    ) + "\n"


# ---------------------------------------------------------------------------------- twins


def test_a_cross_entropy_is_no_attention() -> None:
    """Softmax less one-hot goes into a product with the weight that made the logits."""
    text = f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  x = f32[6,4] parameter(0)
  w = f32[4,8] parameter(1)
  hot = f32[6,8] parameter(2)
  logits = f32[6,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[6] reduce(logits, none), dimensions={{1}}, to_apply=max
  tops = f32[6,8] broadcast(top), dimensions={{0}}
  less = f32[6,8] subtract(logits, tops)
  e = f32[6,8] exponential(less)
  total = f32[6] reduce(e, zero), dimensions={{1}}, to_apply=add
  totals = f32[6,8] broadcast(total), dimensions={{0}}
  p = f32[6,8] divide(e, totals)
  d = f32[6,8] subtract(p, hot)
  dx = f32[6,4] dot(d, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  dw = f32[4,8] dot(x, d), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[6,4], f32[4,8]) tuple(dx, dw)
}}
"""
    assert ask(text, COUNT) == []
    # Nor is the gradient of the logsumexp alone, whose operand is the softmax itself.
    assert (
        ask(text.replace("dot(d, w)", "dot(p, w)").replace("dot(x, d)", "dot(x, p)"), COUNT) == []
    )
    # With another weight it is a learned memory.
    other = text.replace("dot(d, w)", "dot(p, u)").replace(
        "  hot =", "  u = f32[4,8] parameter(3)\n  hot ="
    )
    assert ask(other, COUNT) == []


Q = "q = f32[6,4] parameter(0)"
K = "k = f32[8,4] parameter(1)"
V = "v = f32[8,5] parameter(2)"
SUMMED = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def one_head(
    q: str = Q,
    k: str = K,
    v: str = V,
    *,
    mask: str = "",
) -> str:
    """6 queries and 8 keys, in two dimensions."""
    return f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  {q}
  {k}
  {v}
  s = f32[6,8] dot(q, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
{mask}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[6] reduce({"masked" if mask else "s"}, none), dimensions={{1}}, to_apply=max
  tops = f32[6,8] broadcast(top), dimensions={{0}}
  less = f32[6,8] subtract({"masked" if mask else "s"}, tops)
  e = f32[6,8] exponential(less)
  total = f32[6] reduce(e, zero), dimensions={{1}}, to_apply=add
  totals = f32[6,8] broadcast(total), dimensions={{0}}
  p = f32[6,8] divide(e, totals)
  ROOT o = f32[6,5] dot(p, v){SUMMED}

}}
"""


ONE = [("exposed", "fwd", 1)]
X = "x = f32[6,3] parameter(0)\n  "
Y = "y = f32[8,3] parameter(3)\n  "
MADE_Q = f"{X}wq = f32[3,4] parameter(4)\n  q = f32[6,4] dot(x, wq){SUMMED}"
MADE_K = f"{Y}wk = f32[3,4] parameter(5)\n  k = f32[8,4] dot(y, wk){SUMMED}"
MADE_V = f"wv = f32[3,5] parameter(6)\n  v = f32[8,5] dot(y, wv){SUMMED}"
SCALED_Q = (
    "q.1 = f32[6,4] parameter(0)\n  half = f32[] constant(0.5)\n"
    "  halves = f32[6,4] broadcast(half), dimensions={}\n  q = f32[6,4] multiply(q.1, halves)"
)
STORED = "w = f32[4,8] parameter(1)\n  k = f32[8,4] transpose(w), dimensions={1,0}"
SLICED = (
    "ws = f32[9,8,4] parameter(1)\n  n = s32[] parameter(7)\n  c = s32[] constant(0)\n"
    "  one = f32[1,8,4] dynamic-slice(ws, n, c, c), dynamic_slice_sizes={1,8,4}\n"
    "  k = f32[8,4] reshape(one)"
)


@pytest.mark.parametrize(
    ("q", "k", "v", "expected"),
    [
        # K and V are as Q is; or K lies as the weight of a product does.
        (Q, K, V, ONE),
        (Q, STORED, V, []),
        (SCALED_Q, K, V, ONE),
        (SCALED_Q, STORED, V, []),
        # Everything is computed from tokens; the queries are learned.
        (MADE_Q, MADE_K, MADE_V, ONE),
        (Q, MADE_K, MADE_V, ONE),
        # K, or V, is a weight.
        (MADE_Q, K, V, []),
        (MADE_Q, MADE_K, V, []),
        (MADE_Q, K, f"{Y}{MADE_V}", []),
        (MADE_Q, SLICED, V, []),
        # Of a batch of 1.
        (MADE_Q, "k.1 = f32[1,8,4] parameter(1)\n  k = f32[8,4] reshape(k.1)", f"{Y}{MADE_V}", ONE),
    ],
)  # fmt: skip
def test_attention_is_over_tokens_and_not_over_a_weight(
    q: str, k: str, v: str, expected: object
) -> None:
    assert ask(one_head(q, k, v), COUNT) == expected


def test_what_is_taken_as_data_says_so() -> None:
    ((evidence,),) = check_table(one_head(), "select evidence from attention")
    given = "K or V is an argument without a batch, as Q is one: taken as data"
    assert given in json.loads(str(evidence))
    ((evidence,),) = ask(forward(), "select evidence from attention")
    assert given not in json.loads(str(evidence))


UP_TO = """\
  at = s32[6,8] iota(), iota_dimension=1
  n = s32[] {n}
  ns = s32[6,8] broadcast(n), dimensions={{}}
  seen = pred[6,8] compare(at, ns), direction=LT
  low = f32[] constant(-1e30)
  lows = f32[6,8] broadcast(low), dimensions={{}}
  masked = f32[6,8] select(seen, s, lows)
"""


def test_keys_that_are_values_too() -> None:
    """As in MLA with absorbed weights: what is cached is K and V, here of one sequence."""
    k = "v = f32[8,5] parameter(1)\n  k = f32[8,5] bitcast(v)"
    tied = one_head("q = f32[6,5] parameter(0)", k, "", mask=UP_TO.format(n="parameter(3)"))
    assert ask(tied, COUNT) == ONE
    # A padded vocabulary ends where the text says; without a mask it may be a codebook.
    assert ask(tied.replace("n = s32[] parameter(3)", "n = s32[] constant(7)"), COUNT) == []
    # The same array gives the queries.
    itself = one_head("v = f32[8,5] parameter(1)\n  q = f32[6,5] slice(v), slice={[0:6], [0:5]}",
                      "k = f32[8,5] bitcast(v)", "")  # fmt: skip
    assert ask(itself, COUNT) == ONE


def test_a_gradient_of_a_logsumexp_over_tokens_is_no_attention() -> None:
    """P·K, where P also makes the gradient of K; or where a label says that it is a backward."""
    tied = one_head(f"{MADE_Q}", f"{MADE_K}", "v = f32[8,4] bitcast(k)").replace(
        "f32[6,5]", "f32[6,4]"
    )
    assert ask(tied, COUNT) == ONE
    dk = "  dk = f32[8,4] dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
    both = tied.replace("  ROOT o =", f"{dk}  ROOT o =")
    assert ask(both, COUNT) == []
    assert ask(both.replace("dot(p, q)", "dot(p, other)").replace(
        "  dk =", "  other = f32[6,4] parameter(8)\n  dk ="), COUNT) == ONE  # fmt: skip
    label = ', metadata={op_name="jit(f)/transpose(jvp())/dot_general"}\n\n}'
    assert ask(tied.replace("\n\n}", label), COUNT) == []


def test_a_router_is_no_attention() -> None:
    """Probabilities of experts weigh what the experts gave: the batch of that is the tokens."""
    text = f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  x = f32[6,4] parameter(0)
  w = f32[4,8] parameter(1)
  experts = f32[6,8,4] parameter(2)
  logits = f32[6,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[6] reduce(logits, none), dimensions={{1}}, to_apply=max
  tops = f32[6,8] broadcast(top), dimensions={{0}}
  less = f32[6,8] subtract(logits, tops)
  e = f32[6,8] exponential(less)
  total = f32[6] reduce(e, zero), dimensions={{1}}, to_apply=add
  totals = f32[6,8] broadcast(total), dimensions={{0}}
  p = f32[6,8] divide(e, totals)
  ROOT y = f32[6,4] dot(p, experts){dims("0", "0", "1", "1")}
}}
"""
    assert ask(text, COUNT) == []


def test_scores_without_a_softmax_are_no_attention() -> None:
    text = forward()
    linear = text.replace("dot(v, p)", "dot(v, scaled)")
    assert ask(linear, COUNT) == []
    # exp of the scores that nothing is subtracted from and nothing adds up.
    bare = text.replace("dot(v, p)", "dot(v, bare)").replace(
        "  none =", "  bare = f32[2,3,6,6] exponential(scaled)\n  none =", 1
    )
    assert ask(bare, COUNT) == []


def test_a_softmax_over_the_queries_is_none() -> None:
    text = forward().replace("dimensions={3}, to_apply", "dimensions={2}, to_apply")
    text = text.replace("broadcast(top), dimensions={0,1,2}", "broadcast(top), dimensions={0,1,3}")
    text = text.replace(
        "broadcast(total), dimensions={0,1,2}", "broadcast(total), dimensions={0,1,3}"
    )
    assert ask(text, COUNT) == []


def test_the_backward_of_a_gated_mlp_is_none() -> None:
    """silu is x / (1 + exp(-x)): exponentials and two products of one shape, and no softmax."""
    text = """\
HloModule m
ENTRY main {
  x = f32[6,4] parameter(0)
  w = f32[4,8] parameter(1)
  u = f32[8,4] parameter(2)
  dy = f32[6,4] parameter(3)
  g = f32[6,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  dh = f32[6,8] dot(dy, u), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  n = f32[6,8] negate(g)
  e = f32[6,8] exponential(n)
  one = f32[] constant(1)
  ones = f32[6,8] broadcast(one), dimensions={}
  d = f32[6,8] add(e, ones)
  s = f32[6,8] divide(ones, d)
  dg = f32[6,8] multiply(dh, s)
  ROOT dx = f32[6,4] dot(dg, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
    assert ask(text, COUNT) == []


# ---------------------------------------------------------------------------------- other forms

CALLS = f"""\
HloModule m, is_scheduled=true
{REDUCERS}
softmax {{
  s.1 = f32[6,5,7] parameter(0)
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[6,5] reduce(s.1, none), dimensions={{2}}, to_apply=max
  tops = f32[6,5,7] broadcast(top), dimensions={{0,1}}
  less = f32[6,5,7] subtract(s.1, tops)
  e = f32[6,5,7] exponential(less)
  total = f32[6,5] reduce(e, zero), dimensions={{2}}, to_apply=add
  totals = f32[6,5,7] broadcast(total), dimensions={{0,1}}
  ROOT p = f32[6,5,7] divide(e, totals)
}}
ENTRY main {{
  q = f32[2,5,3,4] parameter(0)
  k = f32[2,7,3,4] parameter(1)
  v = f32[2,7,3,4] parameter(2)
  q.t = f32[2,3,5,4] transpose(q), dimensions={{0,2,1,3}}
  q.b = f32[6,5,4] bitcast(q.t)
  k.t = f32[2,3,7,4] transpose(k), dimensions={{0,2,1,3}}
  k.b = f32[6,7,4] bitcast(k.t)
  v.t = f32[2,3,7,4] transpose(v), dimensions={{0,2,1,3}}
  v.b = f32[6,7,4] bitcast(v.t)
  c.1 = (f32[6,5,7], s8[1024]) custom-call(q.b, k.b){gemm(0.5, "2")}
  s = f32[6,5,7] get-tuple-element(c.1), index=0
  f = f32[6,5,7] fusion(s), kind=kInput, calls=softmax
  c.2 = (f32[6,5,4], s8[1024]) custom-call(f, v.b){gemm(1, "1")}
  ROOT o = f32[6,5,4] get-tuple-element(c.2), index=0
}}
"""


def test_products_may_be_calls_of_a_gemm_library() -> None:
    sql = (
        "select direction, batch, heads, kv_heads, q_length, kv_length, head_dim, score_shape,"
        " score_values, flops from attention"
    )
    check_table(CALLS, "attention")
    flops = 2 * (2 * 6 * 5 * 7 * 4)
    assert ask(CALLS, sql) == [("fwd", 2, 3, 3, 5, 7, 4, "f32[6,5,7]", 2, flops)]
    other = CALLS.replace(
        '"rhs_contracting_dimensions":["1"]', '"rhs_contracting_dimensions":["2"]'
    )
    assert ask(other, COUNT) == [("exposed", "fwd", 1)]  # V lies otherwise; P is summed as before


TURNED = ", window={size=3 stride=3 pad=2_2 lhs_dilate=2 rhs_reversal=1}"
CONVOLUTIONS = f"""\
HloModule m, is_scheduled=true
{REDUCERS}
softmax {{
  s.1 = f32[3,5,7] parameter(0)
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[3,5,7] reduce-window(s.1, none), window={{size=1x1x13 pad=0_0x0_0x6_6}}, to_apply=max
  less = f32[3,5,7] subtract(s.1, top)
  e = f32[3,5,7] exponential(less)
  total = f32[3,5] reduce(e, zero), dimensions={{2}}, to_apply=add
  totals = f32[3,5,7] broadcast(total), dimensions={{0,1}}
  ROOT p = f32[3,5,7] divide(e, totals)
}}
ENTRY main {{
  q = f32[5,3,4] parameter(0)
  k = f32[7,3,4] parameter(1)
  v = f32[7,3,4] parameter(2)
  s = f32[3,5,7] convolution(q, k), window={{size=3 stride=2 lhs_dilate=3}}, dim_labels=b0f_o0i->0bf
  p.1 = f32[3,5,7] fusion(s), kind=kLoop, calls=softmax
  ROOT o = f32[3,5,4] convolution(v, p.1){TURNED}, dim_labels=f0b_0oi->0fb
}}
"""


def test_products_may_be_convolutions_and_the_maximum_a_window() -> None:
    """As TPU text has them: a window of 2n-1 over n keys gives each of them their maximum."""
    check_table(CONVOLUTIONS, "attention")
    sql = "select direction, q_length, kv_length, head_dim, score_shape from attention"
    assert ask(CONVOLUTIONS, sql) == [("fwd", None, 7, 4, "f32[3,5,7]")]
    assert roles(CONVOLUTIONS)["max"] == "top"
    slides = CONVOLUTIONS.replace("size=1x1x13 pad=0_0x0_0x6_6", "size=1x1x3 pad=0_0x0_0x1_1")
    assert "max" not in roles(slides)


DECODE = f"""\
HloModule m, is_scheduled=true
{REDUCERS}
scores {{
  q = bf16[2,3,4] parameter(0)
  k = bf16[2,7,3,4] parameter(1)
  qs = bf16[2,7,3,4] broadcast(q), dimensions={{0,2,3}}
  qk = bf16[2,7,3,4] multiply(qs, k)
  wide = f32[2,7,3,4] convert(qk)
  zero = f32[] constant(0)
  ROOT s = f32[2,7,3] reduce(wide, zero), dimensions={{3}}, to_apply=add
}}
softmax {{
  s.1 = f32[2,7,3] parameter(0)
  none = f32[] constant(-inf)
  zero.1 = f32[] constant(0)
  top = f32[2,3] reduce(s.1, none), dimensions={{1}}, to_apply=max
  tops = f32[2,7,3] broadcast(top), dimensions={{0,2}}
  less = f32[2,7,3] subtract(s.1, tops)
  e = f32[2,7,3] exponential(less)
  total = f32[2,3] reduce(e, zero.1), dimensions={{1}}, to_apply=add
  totals = f32[2,7,3] broadcast(total), dimensions={{0,2}}
  ROOT p = f32[2,7,3] divide(e, totals)
}}
values {{
  p.1 = f32[2,7,3] parameter(0)
  v = f32[2,7,3,5] parameter(1)
  ps = f32[2,7,3,5] broadcast(p.1), dimensions={{0,1,2}}
  pv = f32[2,7,3,5] multiply(v, ps)
  zero.2 = f32[] constant(0)
  ROOT o = f32[2,3,5] reduce(pv, zero.2), dimensions={{1}}, to_apply=add
}}
ENTRY main {{
  q.1 = bf16[2,3,4] parameter(0)
  k.1 = bf16[2,7,3,4] parameter(1)
  v.1 = f32[2,7,3,5] parameter(2)
  f.1 = f32[2,7,3] fusion(q.1, k.1), kind=kInput, calls=scores
  f.2 = f32[2,7,3] fusion(f.1), kind=kInput, calls=softmax
  ROOT f.3 = f32[2,3,5] fusion(f.2, v.1), kind=kInput, calls=values
}}
"""


def test_a_product_of_one_query_may_be_a_multiply_and_a_sum() -> None:
    check_table(DECODE, "attention")
    sql = "select direction, kv_length, head_dim, score_values, flops from attention"
    assert ask(DECODE, sql) == [("fwd", 7, 4, 2, 2 * 2 * 3 * 7 * (4 + 5))]
    assert roles(DECODE)["qk"] == "qk"
    assert roles(DECODE)["pv"] == "pv"
    ((evidence,),) = ask(DECODE, "select evidence from attention")
    assert "a multiply and a sum, not a dot: qk, pv" in json.loads(str(evidence))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The largest of the products, and not their sum.
        ("dimensions={3}, to_apply=add", "dimensions={3}, to_apply=max"),
        # P weighs each depth of its own: it is broadcast over what is summed.
        (
            "[2,3,5] reduce(pv, zero.2), dimensions={1}",
            "[2,7,3] reduce(pv, zero.2), dimensions={3}",
        ),
        # What is summed is another number for each query, key and depth.
        ("multiply(qs, k)", "add(qs, k)"),
        ("multiply(qs, k)", "multiply(k, k)"),
    ],
)
def test_other_sums_of_products_are_none(before: str, after: str) -> None:
    assert before in DECODE
    assert ask(DECODE.replace(before, after), COUNT) == []


GROUPED = f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  q = f32[2,5,8,4] parameter(0)
  k = f32[2,7,2,4] parameter(1)
  v = f32[2,7,2,4] parameter(2)
  q.g = f32[2,5,2,4,4] reshape(q)
  s = f32[2,2,5,4,7] dot(q.g, k){dims("0,2", "0,2", "4", "3")}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,2,5,4] reduce(s, none), dimensions={{4}}, to_apply=max
  tops = f32[2,2,5,4,7] broadcast(top), dimensions={{0,1,2,3}}
  less = f32[2,2,5,4,7] subtract(s, tops)
  e = f32[2,2,5,4,7] exponential(less)
  total = f32[2,2,5,4] reduce(e, zero), dimensions={{4}}, to_apply=add
  totals = f32[2,2,5,4,7] broadcast(total), dimensions={{0,1,2,3}}
  p = f32[2,2,5,4,7] divide(e, totals)
  ROOT o = f32[2,2,5,4,4] dot(p, v){dims("0,1", "0,2", "4", "1")}
}}
"""


def test_grouped_heads() -> None:
    sql = "select batch, heads, kv_heads, q_length, kv_length, head_dim, flops from attention"
    check_table(GROUPED, "attention")
    assert ask(GROUPED, sql) == [(2, 8, 2, 5, 7, 4, 2 * 2 * 2 * 8 * 5 * 7 * 4)]


def test_heads_of_keys_that_are_broadcast_are_counted_once() -> None:
    text = forward().replace(
        "  k = f32[2,6,3,4] parameter(1)",
        "  k.1 = f32[2,6,1,4] parameter(1)\n  k.2 = f32[2,6,4] reshape(k.1)\n"
        "  k = f32[2,6,3,4] broadcast(k.2), dimensions={0,1,3}",
    )
    assert check_table(text, "select heads, kv_heads from attention") == [(3, 1)]


SINK = f"""\
HloModule m
{REDUCERS}
ENTRY main {{
  q = f32[2,5,3,4] parameter(0)
  k = f32[2,7,3,4] parameter(1)
  v = f32[2,7,3,4] parameter(2)
  sink = f32[3] parameter(3)
  s = f32[2,3,5,7] dot(q, k){dims("0,2", "0,2", "3", "3")}
  sinks = f32[2,3,5,1] broadcast(sink), dimensions={{1}}
  both = f32[2,3,5,8] concatenate(s, sinks), dimensions={{3}}
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,3,5] reduce(both, none), dimensions={{3}}, to_apply=max
  tops = f32[2,3,5,8] broadcast(top), dimensions={{0,1,2}}
  less = f32[2,3,5,8] subtract(both, tops)
  e = f32[2,3,5,8] exponential(less)
  total = f32[2,3,5] reduce(e, zero), dimensions={{3}}, to_apply=add
  totals = f32[2,3,5,8] broadcast(total), dimensions={{0,1,2}}
  whole = f32[2,3,5,8] divide(e, totals)
  p = f32[2,3,5,7] slice(whole), slice={{[0:2], [0:3], [0:5], [0:7]}}
  ROOT o = f32[2,3,4,5] dot(v, p){dims("0,2", "0,1", "1", "3")}
}}
"""


def test_a_sink_beside_the_keys() -> None:
    """A number for each head takes part in the softmax and has no value: its part is cut off."""
    text = SINK
    check_table(text, "attention")
    sql = "select heads, q_length, kv_length, flops from attention"
    assert ask(text, sql) == [(3, 5, 7, 2 * 2 * 2 * 3 * 5 * 7 * 4)]
    assert roles(text) == {
        "div": "whole", "exp": "e", "max": "top", "pv": "o", "qk": "s", "sum": "total",
    }  # fmt: skip
    ((evidence,),) = ask(text, "select evidence from attention")
    assert "more than the keys takes part in the softmax (a sink)" in json.loads(str(evidence))
    # What is cut off in front are keys of another array: the scores are not where P is.
    other = text.replace("[0:5], [0:7]}", "[0:5], [1:8]}")
    assert ask(other, COUNT) == []
    swapped = text.replace("concatenate(s, sinks)", "concatenate(sinks, s)")
    assert ask(swapped, COUNT) == []


PADDED = """\
  lowest = f32[] constant(-inf)
  left = f32[2,3,5,8] pad(s, lowest), padding=0_0x0_0x0_0x0_1
  right = f32[2,3,5,8] pad(sinks, lowest), padding=0_0x0_0x0_0x7_0
  both = f32[2,3,5,8] maximum(left, right)
"""


def test_a_sink_that_is_padded() -> None:
    """As TPU text has it: the maximum of both, each padded by -inf to the size of both."""
    text = SINK.replace("  both = f32[2,3,5,8] concatenate(s, sinks), dimensions={3}\n", PADDED)
    check_table(text, "attention")
    assert ask(text, "select heads, kv_length from attention") == [(3, 7)]
    assert roles(text)["qk"] == "s"
    ((evidence,),) = ask(text, "select evidence from attention")
    assert "part of the mask, or what is added to the scores, is data" not in json.loads(
        str(evidence)
    )
    # The scores stand behind the sink, and P is what stands where they are not.
    behind = text.replace("x0_1\n", "x1_0\n").replace("x7_0\n", "x0_7\n")
    assert ask(behind, COUNT) == []


def test_the_backward_of_a_sink() -> None:
    """dP is padded as far as the softmax goes; what is its gradient is cut off again."""
    back = f"""\
  o = f32[2,3,4,5] dot(v, p){dims("0,2", "0,1", "1", "3")}
  do = f32[2,3,4,5] parameter(4)
  dv = f32[2,3,4,7] dot(do, p){dims("0,1", "0,1", "3", "2")}
  dp = f32[2,3,5,7] dot(do, v){dims("0,1", "0,2", "2", "3")}
  wide = f32[2,3,5,8] pad(dp, zero), padding=0_0x0_0x0_0x0_1
  product = f32[2,3,5,8] multiply(whole, wide)
  inner = f32[2,3,5] reduce(product, zero), dimensions={{3}}, to_apply=add
  inners = f32[2,3,5,8] broadcast(inner), dimensions={{0,1,2}}
  away = f32[2,3,5,8] subtract(wide, inners)
  ds.1 = f32[2,3,5,8] multiply(whole, away)
  ds = f32[2,3,5,7] slice(ds.1), slice={{[0:2], [0:3], [0:5], [0:7]}}
  dq = f32[2,3,5,4] dot(ds, k){dims("0,1", "0,2", "3", "1")}
  dk = f32[2,3,7,4] dot(ds, q){dims("0,1", "0,2", "2", "1")}
  ROOT t = () tuple(o, dv, dq, dk)
}}
"""
    text = SINK[: SINK.index("  ROOT o =")] + back
    check_table(text, "attention")
    one = 2 * 2 * 3 * 5 * 7 * 4
    sql = "select direction, flops from attention order by id"
    assert ask(text, sql) == [("fwd", 2 * one), ("bwd", 4 * one)]
    # Padded in front, dP is not where P is.
    assert ask(text.replace("padding=0_0x0_0x0_0x0_1", "padding=0_0x0_0x0_0x1_0"), COUNT) == ONE


# ---------------------------------------------------------------------------------- products

ROTATED = f"""\
  qr = f32[2,6,3,2] parameter(4)
  kr = f32[2,6,2] parameter(5)
  r = f32[2,6,3,6] dot(qr, kr){dims("0", "0", "3", "2")}
  r.t = f32[2,3,6,6] transpose(r), dimensions={{0,2,1,3}}
  masked = f32[2,3,6,6] add(scaled, r.t)
"""
ROTATED_BACK = f"""\
  dqr = f32[2,3,6,2] dot(ds, kr){dims("0", "0", "3", "1")}
  dkr = f32[2,6,2] dot(ds, qr){dims("0", "0", "1,2", "2,1")}
  ROOT t = () tuple(o, dv, dq, dk, dqr, dkr)
"""


def test_scores_of_two_products() -> None:
    """As of MLA: heads share the rotated part of K."""
    back = BACKWARD[: BACKWARD.index("  ROOT t =")] + ROTATED_BACK
    text = forward(ROTATED, scores="masked", more=back, root="t")
    check_table(text, "attention")
    whole, part = 2 * 2 * 3 * 6 * 6 * 4, 2 * 2 * 3 * 6 * 6 * 2
    sql = "select direction, causal, flops from attention order by id"
    assert ask(text, sql) == [("fwd", 0, 2 * whole + part), ("bwd", 0, 4 * whole + 2 * part)]
    found = roles(text), roles(text, 1)
    assert found[0]["qk"] == "s r"
    assert (found[1]["dq"], found[1]["dk"]) == ("dq dqr", "dk dkr")
    # A product of which the batch is the keys is data, and no other scores.
    other = ROTATED.replace("kr = f32[2,6,2]", "kr = f32[6,6,2]").replace(
        "qr = f32[2,6,3,2]", "qr = f32[6,2,3,2]"
    )
    other = other.replace("r = f32[2,6,3,6] dot", "r = f32[6,2,3,6] dot")
    other = other.replace("dimensions={0,2,1,3}", "dimensions={1,2,3,0}")
    text = forward(other, scores="masked")
    assert ask(text, "select causal, flops from attention") == [(None, 2 * whole)]


def softmax(of: str, mark: str) -> str:
    return f"""\
  top{mark} = f32[2,3,6] reduce({of}, none), dimensions={{3}}, to_apply=max
  tops{mark} = f32[2,3,6,6] broadcast(top{mark}), dimensions={{0,1,2}}
  less{mark} = f32[2,3,6,6] subtract({of}, tops{mark})
  e{mark} = f32[2,3,6,6] exponential(less{mark})
  total{mark} = f32[2,3,6] reduce(e{mark}, zero), dimensions={{3}}, to_apply=add
  totals{mark} = f32[2,3,6,6] broadcast(total{mark}), dimensions={{0,1,2}}
  p{mark} = f32[2,3,6,6] divide(e{mark}, totals{mark})
"""


def test_probabilities_that_are_weighed_and_summed_again() -> None:
    """The sum of P times a mask, that it is divided by, is a multiply and a sum, and no product."""
    text = forward().replace("  ROOT o =", """\
  keep = f32[6,6] parameter(3)
  keeps = f32[2,3,6,6] broadcast(keep), dimensions={2,3}
  kept = f32[2,3,6,6] multiply(p, keeps)
  sum = f32[2,3,6] reduce(kept, zero), dimensions={3}, to_apply=add
  sums = f32[2,3,6,6] broadcast(sum), dimensions={0,1,2}
  d = f32[2,3,6,6] divide(kept, sums)
  ROOT o =""").replace("dot(v, p)", "dot(v, d)")  # fmt: skip
    assert ask(text, "select direction, flops from attention") == [("fwd", 3456)]
    assert roles(text)["pv"] == "o"


def test_the_difference_of_two_softmaxes() -> None:
    """Differential attention: softmax less λ softmax, and one product with V."""
    given = (
        "  q.2 = f32[2,6,3,4] parameter(4)\n  k.2 = f32[2,6,3,4] parameter(5)\n"
        f"  s.2 = f32[2,3,6,6] dot(q.2, k.2){dims('0,2', '0,2', '3', '3')}\n"
    )
    mixed = (
        f"{softmax('s.2', '.2')}  part = f32[2,3,6,6] multiply(p.2, halves)\n"
        "  d = f32[2,3,6,6] subtract(p, part)\n"
    )
    text = (
        forward(given).replace("  ROOT o =", f"{mixed}  ROOT o =").replace("dot(v, p)", "dot(v, d)")
    )
    check_table(text, "attention")
    assert ask(text, "select direction, flops from attention") == [("fwd", 3 * 1728)]
    found = roles(text)
    assert (found["qk"], found["exp"], found["pv"]) == ("s s.2", "e e.2", "o")
    # Less an array that is given it is none, as where what is known is subtracted.
    data = text.replace("subtract(p, part)", "subtract(p, other)").replace(
        "  d =", "  other = f32[2,3,6,6] parameter(6)\n  d ="
    )
    assert ask(data, COUNT) == []


# ---------------------------------------------------------------------------------- kernels


def cudnn(target: str, config: str, q: str = "bf16[2,6,3,4]", k: str = "bf16[2,6,3,4]") -> str:
    attributes = (
        f', custom_call_target="{target}",'
        f' backend_config={{"cudnn_fmha_backend_config":{{{config}}}}}'
    )
    return f"""\
HloModule m, is_scheduled=true
ENTRY main {{
  q = {q} parameter(0)
  k = {k} parameter(1)
  v = {k} parameter(2)
  c = (bf16[2,3,6,4], f32[2,3,6], u8[64]) custom-call(q, k, v){attributes}
  ROOT o = bf16[2,3,6,4] get-tuple-element(c), index=0
}}
"""


SCORE = '"intermediate_tensor_shape":{"element_type":"BF16","dimensions":["2","3","6","6"]}'
FLASH = f'{SCORE},"is_flash_attention":true,"sliding_window_length":0'


@pytest.mark.parametrize(
    ("config", "causal", "window", "fraction"),
    [
        (f'{FLASH},"mask_type":"CAUSAL"', 1, None, 7 / 12),
        (f'{FLASH},"mask_type":"PADDING_CAUSAL"', 1, None, 7 / 12),
        (f'{FLASH},"mask_type":"NO_MASK"', 0, None, 1.0),
        (f'{FLASH},"mask_type":"PADDING"', 0, None, 1.0),
        (f'{SCORE},"mask_type":"NO_MASK","sliding_window_length":2', 1, 2, 11 / 36),
        (FLASH, None, None, None),
    ],
)
def test_a_cudnn_kernel_says_what_it_does(
    config: str, causal: object, window: object, fraction: object
) -> None:
    text = cudnn("__cudnn$fmhaSoftmax", config)
    sql = (
        "select route, direction, causal, window, batch, heads, q_length, kv_length, head_dim,"
        " score_shape, score_values, workspace_bytes, flops, causal_fraction from attention"
    )
    flops = 2 * 2 * 2 * 3 * 6 * 6 * 4
    assert check_table(text, sql, must_change=False) == [
        ("cudnn", "fwd", causal, window, 2, 3, 6, 6, 4, "bf16[2,3,6,6]", 0, 64, flops, fraction)
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [("BF16", "-5"), ('"3"', f'"{10**21 - 1}"'), ('"3"', '"-1"'), ("BF16", "F32[")],
)
def test_scores_that_are_no_array_are_not_told(before: str, after: str) -> None:
    text = cudnn("__cudnn$fmhaSoftmax", f'{FLASH},"mask_type":"CAUSAL"'.replace(before, after))
    sql = "select route, causal, score_shape, score_bytes from attention"
    assert ask(text, sql) == [("cudnn", 1, None, None)]


def test_the_backward_of_cudnn_is_another_target() -> None:
    text = cudnn("__cudnn$fmhaSoftmaxBackward", f'{FLASH},"mask_type":"CAUSAL"')
    sql = "select direction, kernel, flops from attention"
    assert ask(text, sql) == [("bwd", "__cudnn$fmhaSoftmaxBackward", 5 * 2 * 2 * 3 * 6 * 6 * 4)]


def test_layouts_of_cudnn() -> None:
    sql = "select heads, kv_heads, q_length, kv_length from attention"
    for q, k in (("[2,6,3,4]", "[2,6,1,4]"), ("[2,3,6,4]", "[2,1,6,4]")):
        assert ask(cudnn("__cudnn$fmhaSoftmax", FLASH, f"bf16{q}", f"bf16{k}"), sql) == [
            (3, 1, 6, 6)
        ]
    # Neither fits the scores that the config names.
    assert ask(cudnn("__cudnn$fmhaSoftmax", FLASH, "bf16[2,9,9,4]"), sql) == [(None,) * 4]


def engine(mask_type: int, left: int = -1) -> str:
    config = {
        "attn_heads": 4, "input_batch": 2, "kv_max_seqlen": 6, "mask_type": mask_type,
        "num_gqa_groups": 2, "q_max_seqlen": 6, "qk_head_dim": 8, "v_head_dim": 8,
        "window_size_left": left, "window_size_right": 0,
    }  # fmt: skip
    attributes = (
        ', custom_call_target="te_fused_attn_forward_ffi", api_version=API_VERSION_TYPED_FFI,'
        f" backend_config={{{', '.join(f'{name} = {n} : i64' for name, n in config.items())}}}"
    )
    return f"""\
HloModule m
ENTRY main {{
  q = bf16[2,6,4,8] parameter(0)
  k = bf16[2,6,2,8] parameter(1)
  v = bf16[2,6,2,8] parameter(2)
  c = (bf16[2,6,4,8], f32[2,4,6,1], u32[2,4], u8[16]) custom-call(q, k, v){attributes}
  ROOT o = bf16[2,6,4,8] get-tuple-element(c), index=0
}}
"""


@pytest.mark.parametrize(
    ("mask_type", "left", "expected"),
    [
        # NVTE_Mask_Type of transformer_engine/fused_attn.h.
        (0, -1, (0, None)), (1, -1, (0, None)), (2, -1, (1, None)), (3, -1, (1, None)),
        (4, -1, (1, None)), (5, 3, (1, 4)), (9, -1, (None, None)),
    ],
)  # fmt: skip
def test_masks_of_transformer_engine(mask_type: int, left: int, expected: object) -> None:
    sql = "select causal, window from attention"
    assert ask(engine(mask_type, left), sql) == [expected]
    sizes = "select route, batch, heads, kv_heads, q_length, head_dim from attention"
    assert ask(engine(mask_type), sizes) == [("transformer_engine", 2, 4, 2, 6, 8)]


def pallas(
    *calls: str, parameters: str = "bf16[2,6,3,4]", target: str = "__gpu$xla.gpu.triton"
) -> str:
    lines = "\n".join(
        f'  {name} = {result} custom-call({operands}), custom_call_target="{target}",'
        f' metadata={{op_name="jit(f)/{phase}/pallas_call"}}, backend_config={{name = "{kernel}"}}'
        for name, result, operands, phase, kernel in (call.split("|") for call in calls)
    )
    given = "\n".join(
        f"  {name} = {parameters} parameter({number})"
        for number, name in enumerate(("q", "k", "v", "do", "k2", "v2"))
    )
    body = f"{given}\n{lines}\n  ROOT t = () tuple()"
    return f"HloModule m, is_scheduled=true\nENTRY main {{\n{body}\n}}\n"


BF = "bf16[2,6,3,4]"


def test_the_kernels_of_one_backward_are_one_site() -> None:
    back = "transpose(jvp(f))"
    text = pallas(
        f"o|{BF}|q, k, v|jvp(f)|mha_forward",
        f"delta|f32[2,3,6]|o, do|{back}|mha_preprocess_backward",
        f"d|({BF}, {BF}, {BF})|q, k, v, o, do, delta|{back}|mha_backward",
    )
    sql = "select direction, kernel, batch, heads, q_length, flops from attention order by id"
    flops = 2 * 2 * 3 * 6 * 6 * 4
    assert ask(text, sql) == [
        ("fwd", "mha_forward", 2, 3, 6, 2 * flops),
        ("bwd", "mha_preprocess_backward, mha_backward", 2, 3, 6, 5 * flops),
    ]
    assert roles(text, 1) == {"call": "delta d"}


def test_kernels_of_two_backwards_are_two_sites() -> None:
    """dq and dkv of each layer go together by the arrays they take."""
    back = "transpose(jvp(f))"
    text = pallas(
        f"dq.1|{BF}|q, k, v, do|{back}|fa_dq",
        f"dq.2|{BF}|q, k2, v2, do|{back}|fa_dq",
        f"dkv.1|({BF}, {BF})|q, k, v, do|{back}|fa_dkv",
        f"dkv.2|({BF}, {BF})|q, k2, v2, do|{back}|fa_dkv",
    )
    assert ask(text, "select kernel, heads from attention") == [("fa_dq, fa_dkv", None)] * 2
    assert [roles(text, row) for row in (0, 1)] == [{"call": "dq.1 dkv.1"}, {"call": "dq.2 dkv.2"}]


def test_a_kernel_under_a_checkpoint_runs_again_only_where_another_forward_does() -> None:
    """The output is not used: the forward pass has no kernel, and the replay is the only run."""
    again, back = "transpose(jvp(f))/rematted_computation", "transpose(jvp(f))"
    calls = [
        f"o.2|({BF}, f32[2,3,6])|q, k, v|{again}|fa_fwd",
        f"d|({BF}, {BF}, {BF})|q, k, v, o, do, o.2|{back}|mha_backward",
    ]
    sql = "select kernel, recomputed from attention where direction = 'fwd' order by id"
    assert ask(pallas(f"o|{BF}|k, q, v|other(f)|rms_forward", *calls), sql) == [("fa_fwd", 0)]
    twice = [("mha_forward", 0), ("fa_fwd", 1)]
    assert ask(pallas(f"o|{BF}|q, k, v|jvp(f)|mha_forward", *calls), sql) == twice


def splash(kernel: str, q: str, k: str) -> str:
    name = f'metadata={{op_name="jit(f)/{kernel}/pallas_call"}}'
    attributes = f', custom_call_target="tpu_custom_call", {name}'
    return f"""\
HloModule m
ENTRY main {{
  next = s8[1,1,1] parameter(0)
  block = s8[1,1,1] parameter(1)
  q = {q} parameter(2)
  k = {k} parameter(3)
  v = {k} parameter(4)
  ROOT o = {q} custom-call(next, block, q, k, v){attributes}
}}
"""


@pytest.mark.parametrize(
    ("kernel", "q", "k", "expected"),
    [
        ("splash_mha_fwd", "bf16[8,6,4]", "bf16[2,7,4]", (1, 8, 2, 6, 7, 4)),
        # The batch of a vmap stands in front.
        ("splash_mha_fwd", "bf16[3,8,6,4]", "bf16[3,2,7,4]", (3, 8, 2, 6, 7, 4)),
        ("splash_mqa_fwd", "bf16[8,6,4]", "bf16[7,4]", (1, 8, 1, 6, 7, 4)),
        ("splash_mha_fwd", "bf16[8,6,4]", "bf16[7,4]", (None,) * 6),
    ],
)
def test_splash_attention(kernel: str, q: str, k: str, expected: object) -> None:
    sql = "select batch, heads, kv_heads, q_length, kv_length, head_dim from attention"
    text = splash(kernel, q, k)
    assert ask(text, sql) == [expected]
    # The mask is data.
    assert ask(text, "select route, direction, causal, causal_fraction from attention") == [
        ("mosaic", "fwd", None, None)
    ]


def test_a_site_that_is_spelled_out_beside_a_kernel_fell_back() -> None:
    kernel = (
        "  c = (f32[2,3,6,4], u8[0]) custom-call(q, k, v),"
        ' custom_call_target="__cudnn$fmhaSoftmax"\n'
        "  ROOT t = (f32[2,3,4,6], (f32[2,3,6,4], u8[0])) tuple(o, c)"
    )
    text = forward(more=kernel, root="t").replace("m\n", "m, is_scheduled=true\n", 1)
    assert ask(text, "select route, fell_back from attention order by route") == [
        ("cudnn", 0),
        ("exposed", 1),
    ]
    found = dict(findings(text, "attention"))
    assert "attention-fell-back" in found
    assert "%c is a cudnn kernel" in found["attention-fell-back"]
    assert "attention-fell-back" not in dict(
        findings(forward().replace("m\n", "m, is_scheduled=true\n", 1), "attention")
    )


def beside(config: str) -> str:
    kernel = (
        "  c = (f32[2,3,6,4], u8[0]) custom-call(kq, kk, kk),"
        f' custom_call_target="__cudnn$fmhaSoftmax"{config}\n'
        "  ROOT t = (f32[2,3,4,6], (f32[2,3,6,4], u8[0])) tuple(o, c)"
    )
    given = "  kq = bf16[2,9,3,4] parameter(4)\n  kk = bf16[2,12,3,4] parameter(5)\n"
    return forward(more=given + kernel, root="t").replace("m\n", "m, is_scheduled=true\n", 1)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (("9", "12"), 0), (("6", "12"), 1), (("9", "6"), 1), (None, 1),
    ],
)  # fmt: skip
def test_a_kernel_of_other_lengths_says_nothing(
    lengths: tuple[str, str] | None, expected: int
) -> None:
    text = beside("")
    if lengths is not None:
        q, k = lengths
        score = FLASH.replace('"6","6"', f'"{q}","{k}"')
        config = f', backend_config={{"cudnn_fmha_backend_config":{{{score}}}}}'
        text = beside(config).replace("[2,9,", f"[2,{q},").replace("[2,12,", f"[2,{k},")
    sql = "select fell_back, evidence from attention where route = 'exposed'"
    ((fell, evidence),) = ask(text, sql)
    assert fell == expected
    assert ("attention-fell-back" in dict(findings(text, "attention"))) is bool(expected)
    not_told = "whether that is as long is not told"
    assert (not_told in json.loads(str(evidence))) is (lengths is None)


def test_before_optimization_nothing_is_found_fault_with() -> None:
    assert findings(forward(), "attention") == []


def test_other_calls_are_no_attention() -> None:
    text = cudnn("__cudnn$fmhaSoftmax", FLASH).replace("__cudnn$fmhaSoftmax", "__cudnn$norm")
    assert ask(text, "select * from attention") == []
