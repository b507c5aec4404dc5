"""Products of an attention that are issued more than once, its arrays of scores in memory, and the
masks that splash attention takes."""

from __future__ import annotations

import json

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask, findings
from tests.passes.test_attention import BACKWARD, REDUCERS, dims, forward, roles

AS_OPTIMIZED = ("HloModule m\n", "HloModule m, is_scheduled=true\n")
ALL = "select (select sum(flops * executions) from attention), sum(flops * executions) from matmuls"
TWICE = "attention-product-twice"


def evidence(text: str, row: int = 0) -> list[str]:
    ((found,),) = ask(text, f"select evidence from attention where id = {row}")
    return [str(one) for one in json.loads(str(found))]


def repeats(text: str) -> list[str]:
    return [message for rule, message in findings(text, "attention") if rule == TWICE]


# ---------------------------------------------------------------------------------- products


def softmax_with(behind_maximum: str) -> str:
    """A softmax in one fusion, which makes the scores again for their maximum: by `s.2`, a fusion
    of `behind_maximum` and k.2."""
    return f"""\
HloModule m, is_scheduled=true
{REDUCERS}
scores {{
  q = bf16[2,8,16] parameter(0)
  k = bf16[2,8,16] parameter(1)
  ROOT s = f32[2,8,8] dot(q, k){dims("0", "0", "2", "2")}
}}
scores.1 {{
  q.1 = bf16[2,8,16] parameter(0)
  k.1 = bf16[2,8,16] parameter(1)
  ROOT s.1 = f32[2,8,8] dot(q.1, k.1){dims("0", "0", "2", "2")}
}}
softmax {{
  q.2 = bf16[2,8,16] parameter(0)
  k.2 = bf16[2,8,16] parameter(1)
  other = bf16[2,8,16] parameter(2)
  s.2 = f32[2,8,8] fusion(q.2, k.2), kind=kOutput, calls=scores
  s.3 = f32[2,8,8] fusion({behind_maximum}, k.2), kind=kOutput, calls=scores.1
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,8] reduce(s.3, none), dimensions={{2}}, to_apply=max
  tops = f32[2,8,8] broadcast(top), dimensions={{0,1}}
  less = f32[2,8,8] subtract(s.2, tops)
  e = f32[2,8,8] exponential(less)
  total = f32[2,8] reduce(e, zero), dimensions={{2}}, to_apply=add
  ROOT both = (f32[2,8], f32[2,8,8]) tuple(total, e)
}}
product {{
  e.1 = f32[2,8,8] parameter(0)
  total.1 = f32[2,8] parameter(1)
  v = bf16[2,8,16] parameter(2)
  totals = f32[2,8,8] broadcast(total.1), dimensions={{0,1}}
  p = f32[2,8,8] divide(e.1, totals)
  p.1 = bf16[2,8,8] convert(p)
  ROOT o = bf16[2,8,16] dot(p.1, v){dims("0", "0", "2", "1")}
}}
ENTRY main {{
  q.3 = bf16[2,8,16] parameter(0)
  k.3 = bf16[2,8,16] parameter(1)
  v.1 = bf16[2,8,16] parameter(2)
  q.4 = bf16[2,8,16] parameter(3)
  f = (f32[2,8], f32[2,8,8]) fusion(q.3, k.3, q.4), kind=kOutput, calls=softmax
  total.2 = f32[2,8] get-tuple-element(f), index=0
  e.2 = f32[2,8,8] get-tuple-element(f), index=1
  ROOT g = bf16[2,8,16] fusion(e.2, total.2, v.1), kind=kOutput, calls=product
}}
"""


def test_scores_made_again_for_their_maximum_count() -> None:
    text = softmax_with("q.2")
    product = 2 * 2 * 8 * 8 * 16
    assert check_table(text, ALL) == [(3 * product, 3 * product)]
    check_table(text, "attention")
    assert roles(text)["qk"] == "s s.1"
    assert roles(text)["written"] == "f"
    told = "Q·Kᵀ is computed 2 times, in 2 fusions inside %f"
    assert told in evidence(text)
    assert repeats(text) == [f"%o is exposed attention (fwd): {told}"]


def test_a_product_of_other_queries_is_not_the_same() -> None:
    text = softmax_with("other")
    assert not any("is computed" in one for one in evidence(text))
    assert repeats(text) == []


def with_two(first: str, second: str, old: str, new: str) -> str:
    """A forward and a backward, with a line more and another taker of it."""
    text = forward(more=BACKWARD, root="t").replace(*AS_OPTIMIZED)
    assert first in text
    assert old in text
    return text.replace(first, f"{first}\n{second}", 1).replace(old, new, 1)


DP = f"  dp = f32[2,3,6,6] dot(do, v){dims('0,1', '0,2', '2', '3')}"


def test_a_gradient_product_that_is_made_again_counts() -> None:
    """dO·Vᵀ of its own for the sum of P · dP, which is no operand of the other products."""
    again = DP.replace("dp =", "dp.2 =")
    text = with_two(DP, again, "multiply(p, dp)", "multiply(p, dp.2)")
    sql = "select direction, flops / (2 * 2 * 3 * 6 * 6 * 4) from attention order by 1"
    assert check_table(text, sql) == [("bwd", 5), ("fwd", 2)]
    assert ask(text, ALL)[0][0] == ask(text, ALL)[0][1]
    assert "dO·Vᵀ is computed 2 times" in evidence(text, 1)
    assert [one.partition(": ")[2] for one in repeats(text)] == ["dO·Vᵀ is computed 2 times"]
    # Of another array: no product of this attention, though all sizes are the same.
    other = "  other = f32[2,3,4,6] parameter(4)\n" + again.replace("(do,", "(other,")
    text = with_two(DP, other, "multiply(p, dp)", "multiply(p, dp.2)")
    assert ask(text, sql) == [("bwd", 4), ("fwd", 2)]
    assert repeats(text) == []


def test_the_product_with_v_may_be_made_twice() -> None:
    pv = f"  o = f32[2,3,4,6] dot(v, p){dims('0,2', '0,1', '1', '3')}"
    text = with_two(pv, pv.replace("o =", "o.2 ="), "tuple(o, dv", "tuple(o.2, dv")
    assert "P·V is computed 2 times" in evidence(text)
    assert ask(text, "select flops / (2 * 2 * 3 * 6 * 6 * 4) from attention where id = 0") == [(3,)]


def test_what_each_pass_computes_once_is_not_twice() -> None:
    text = forward(more=BACKWARD, root="t").replace(*AS_OPTIMIZED)
    assert repeats(text) == []
    sql = "select direction, flops / (2 * 2 * 3 * 6 * 6 * 4) from attention order by 1"
    assert ask(text, sql) == [("bwd", 4), ("fwd", 2)]


def test_before_optimization_nothing_is_said_of_it() -> None:
    text = softmax_with("q.2").replace(", is_scheduled=true", "")
    assert repeats(text) == []


# ---------------------------------------------------------------------------------- memory


def in_memory(more: str = "", scores: str = "f.1") -> str:
    """Scores in f32 and probabilities in bf16; `more` makes other arrays of that size in front."""
    return f"""\
HloModule m, is_scheduled=true
{REDUCERS}
fill {{
  low = f32[] constant(-1e30)
  ROOT lows = f32[2,8,8] broadcast(low), dimensions={{}}
}}
twice {{
  x = f32[2,8,8] parameter(0)
  ROOT y = f32[2,8,8] add(x, x)
}}
scores {{
  q = bf16[2,8,16] parameter(0)
  k = bf16[2,8,16] parameter(1)
  ROOT s = f32[2,8,8] dot(q, k){dims("0", "0", "2", "2")}
}}
softmax {{
  s.1 = f32[2,8,8] parameter(0)
  fill.1 = f32[2,8,8] parameter(1)
  bias = f32[2,8,8] parameter(2)
  seen = pred[2,8,8] parameter(3)
  biased = f32[2,8,8] add(s.1, bias)
  masked = f32[2,8,8] select(seen, biased, fill.1)
  none = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[2,8] reduce(masked, none), dimensions={{2}}, to_apply=max
  tops = f32[2,8,8] broadcast(top), dimensions={{0,1}}
  less = f32[2,8,8] subtract(masked, tops)
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
  given = f32[2,8,8] parameter(3)
  seen.1 = pred[2,8,8] parameter(4)
  fills = f32[2,8,8] fusion(), kind=kLoop, calls=fill
  biases = f32[2,8,8] fusion(given), kind=kLoop, calls=twice
  f.1 = f32[2,8,8] fusion(q.1, k.1), kind=kCustom, calls=scores
{more}
  f.2 = bf16[2,8,8] fusion({scores}, fills, biases, seen.1), kind=kInput, calls=softmax
  ROOT f.3 = bf16[2,8,16] fusion(f.2, v.1), kind=kCustom, calls=product
}}
"""


MEMORY = "select score_values, score_bytes, score_written_bytes from attention"


def test_a_mask_and_what_it_fills_in_are_no_scores() -> None:
    """The number of a mask and a bias are arrays of that size, and not computed from scores."""
    text = in_memory()
    assert check_table(text, MEMORY) == [(2, 512, 512 + 256)]
    assert roles(text)["written"] == "f.1 f.2"
    assert [message for _, message in findings(text, "attention")] == [
        "%o is exposed attention (fwd): 2 arrays of scores in memory, f32[2,8,8] and bf16[2,8,8],"
        " 768 bytes a run"
    ]


def test_what_is_computed_from_scores_is_scores() -> None:
    more = "  f.4 = f32[2,8,8] add(f.1, f.1)"
    text = in_memory(more, "f.4")
    assert ask(text, MEMORY) == [(3, 512, 512 + 512 + 256)]
    assert roles(text)["written"] == "f.1 f.4 f.2"
    assert "scores in memory: 2 × f32[2,8,8] and bf16[2,8,8]" in evidence(text)


def test_of_no_array_in_memory_the_size_is_that_of_the_scores() -> None:
    text = forward()
    assert ask(text, MEMORY, stage="before_optimizations") == [(None, 864, None)]
    # Of scores, the scaled ones, their maximum, difference, exponential, sum and probabilities.
    assert ask(text, MEMORY, stage="after_optimizations") == [(7, 864, 7 * 864)]


def test_what_is_only_summed_over_the_keys_is_in_memory() -> None:
    """P · dP, which nothing but its sum over the keys reads."""
    text = forward(more=BACKWARD, root="t").replace(*AS_OPTIMIZED)
    assert ask(text, f"{MEMORY} where direction = 'bwd'") == [(5, 864, 5 * 864)]
    assert roles(text, 1)["written"] == "dp both inners away ds"


def test_what_is_no_score_and_summed_over_the_keys_does_not_count() -> None:
    given = "  given = f32[2,3,6,6] parameter(4)\n  both = f32[2,3,6,6] add(given, given)"
    more = BACKWARD.replace("  both = f32[2,3,6,6] multiply(p, dp)", given)
    text = forward(more=more, root="t").replace(*AS_OPTIMIZED)
    assert roles(text, 1)["written"] == "dp inners away ds"


def test_what_is_written_asynchronously_is_one_array() -> None:
    """The fusion writes it, and not what starts it besides."""
    product = "fusion(q.1, k.1), kind=kCustom, calls=scores"
    text = in_memory("  f.1 = f32[2,8,8] async-done(start)").replace(
        f"  f.1 = f32[2,8,8] {product}\n",
        "  start = ((bf16[2,8,16], bf16[2,8,16]), f32[2,8,8], u32[]) async-start(q.1, k.1),"
        " calls=wrapped\n",
    )
    wrapped = f"""\
wrapped {{
  q.2 = bf16[2,8,16] parameter(0)
  k.2 = bf16[2,8,16] parameter(1)
  ROOT inner = f32[2,8,8] {product.replace("q.1, k.1", "q.2, k.2")}
}}
"""
    text = text.replace("ENTRY main", f"{wrapped}ENTRY main")
    assert check_table(text, MEMORY) == [(2, 512, 512 + 256)]
    assert roles(text)["written"] == "inner f.2"


def in_loop(kept: str, stack: str = "f32") -> str:
    """Four layers in a loop, which stacks a value of each, in memory as `stack`."""
    lines = forward(root="").splitlines()
    body = lines[lines.index("ENTRY main {") + 4 : -2]
    return f"""\
HloModule m, is_scheduled=true
{REDUCERS}
keep {{
  old = {stack}[4,2,3,6,6] parameter(0)
  new = f32[2,3,6,6] parameter(1)
  at = s32[] parameter(2)
  nought = s32[] constant(0)
  as = f32[4,2,3,6,6] convert(old)
  slice = f32[1,2,3,6,6] reshape(new)
  put = f32[4,2,3,6,6] dynamic-update-slice(as, slice, at, nought, nought, nought, nought)
  ROOT back = {stack}[4,2,3,6,6] convert(put)
}}
layer {{
  c = (s32[], f32[2,6,3,4], f32[2,3,6,6], {stack}[4,2,3,6,6]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  q = f32[2,6,3,4] get-tuple-element(c), index=1
  given = f32[2,3,6,6] get-tuple-element(c), index=2
  kept = {stack}[4,2,3,6,6] get-tuple-element(c), index=3
  k = f32[2,6,3,4] sine(q)
  v = f32[2,6,3,4] cosine(q)
{chr(10).join(body)}
  y = f32[2,6,3,4] transpose(o), dimensions={{0,3,1,2}}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  stacked = {stack}[4,2,3,6,6] fusion(kept, {kept}, i), kind=kLoop, calls=keep
  ROOT t = (s32[], f32[2,6,3,4], f32[2,3,6,6], {stack}[4,2,3,6,6]) tuple(next, y, given, stacked)
}}
more {{
  c.1 = (s32[], f32[2,6,3,4], f32[2,3,6,6], {stack}[4,2,3,6,6]) parameter(0)
  i.1 = s32[] get-tuple-element(c.1), index=0
  four = s32[] constant(4)
  ROOT less.1 = pred[] compare(i.1, four), direction=LT
}}
ENTRY main {{
  first = (s32[], f32[2,6,3,4], f32[2,3,6,6], {stack}[4,2,3,6,6]) parameter(0)
  ROOT w = (s32[], f32[2,6,3,4], f32[2,3,6,6], {stack}[4,2,3,6,6]) while(first), condition=more,
    body=layer
}}
"""


def test_probabilities_that_a_loop_keeps_are_in_memory_once_more() -> None:
    """An iteration writes a slice of the stack, in the dtype that this has."""
    seven = 7 * 864
    text = in_loop("p")
    assert check_table(text, MEMORY) == [(8, 864, seven + 864)]
    assert str(roles(text)["written"]).split()[-1] == "stacked"
    assert ask(in_loop("p", "bf16"), MEMORY) == [(8, 864, seven + 432)]
    assert ask(in_loop("scaled"), MEMORY) == [(8, 864, seven + 864)]


def test_what_a_loop_keeps_that_is_no_score_does_not_count() -> None:
    assert ask(in_loop("given"), MEMORY) == [(7, 864, 7 * 864)]
    assert "stacked" not in str(roles(in_loop("given"))["written"])


# ---------------------------------------------------------------------------------- splash

BEFORE_Q = ("s8[1,1,1]", "s8[1,1,1]")
QKV = ("bf16[4,512,128]",) * 3
SEGMENTS = ("s32[512,128]", "s32[8,512]")


def splash(kernel: str, *operands: str) -> str:
    lines = "\n".join(f"  a.{n} = {shape} parameter({n})" for n, shape in enumerate(operands))
    names = ", ".join(f"a.{n}" for n in range(len(operands)))
    name = f'metadata={{op_name="jit(f)/{kernel}/pallas_call"}}'
    attributes = f', custom_call_target="tpu_custom_call", {name}'
    return f"""\
HloModule m
ENTRY main {{
{lines}
  ROOT o = bf16[4,512,128] custom-call({names}){attributes}
}}
"""


HIDDEN = "whether it is causal is not told: "


@pytest.mark.parametrize(
    ("kernel", "operands", "expected"),
    [
        (
            "splash_mha_fwd_segmented_residuals",
            (*BEFORE_Q, "s8[1,1,1]", *QKV, *SEGMENTS, "s32[1,512,512]"),
            [
                "segment ids are part of its mask",
                "takes blocks of its mask as data, s32[1,512,512]",
                f"{HIDDEN}its mask is data",
            ],
        ),
        (
            "splash_mha_fwd_segmented_residuals",
            (*BEFORE_Q, *QKV, *SEGMENTS, "s32[512,128]"),
            [
                "segment ids are part of its mask",
                "makes its mask of positions, taken as q_sequence s32[512,128]",
                f"{HIDDEN}its mask is made in the kernel",
            ],
        ),
        (
            "splash_mha_fwd_residuals",
            (*BEFORE_Q, *QKV, "s32[512,128]"),
            [
                "makes its mask of positions, taken as q_sequence s32[512,128]",
                f"{HIDDEN}its mask is made in the kernel",
            ],
        ),
        (
            "splash_mha_fwd_residuals",
            (*BEFORE_Q, *QKV),
            ["takes no array of its mask", f"{HIDDEN}which blocks it runs is data"],
        ),
        # Segments alone, though both are integers behind V.
        (
            "splash_mha_fwd_segmented_residuals",
            (*BEFORE_Q, *QKV, *SEGMENTS),
            [
                "segment ids are part of its mask",
                "takes no array of its mask",
                f"{HIDDEN}which blocks it runs is data",
            ],
        ),
        # As of tokamax: other integers in front.
        *(
            (
                "splash_mha_fwd_residuals",
                (*("s32[4]",) * count, *QKV, "s32[512,128]"),
                [f"{HIDDEN}its mask is data"],
            )
            for count in (2, 5)
        ),
    ],
)
def test_the_mask_that_splash_attention_takes(
    kernel: str, operands: tuple[str, ...], expected: list[str]
) -> None:
    text = splash(kernel, *operands)
    assert evidence(text) == ["custom call tpu_custom_call", *expected]
    assert ask(text, "select causal, window from attention") == [(None, None)]
