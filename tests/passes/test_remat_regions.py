"""Regions of the remat tables, on small texts: what a checkpoint costs, keeps, or has lost."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

import pytest

from hlo_lens.facts import Facts
from tests.mutate import check_table
from tests.passes.asking import ask, findings
from tests.passes.test_remat import BEHIND, MERGED, SCAN, both, changed, hlo, program

OPS = "select name, verdict, basis, twin_name from remat_ops order by instr"
NAMELESS = "select kind, opcode, verdict, basis, work, flops, times from remat_ops"
COUNTS = "select verdict, matmuls, kernels, collectives from remat"


# -- labels in fusions, and from callers ----------------------------------------------------------

# XLA fuses the tanh of the forward into both products that take it: one copy has the label.
FUSED = hlo("""
first {
  p = f32[4,8] parameter(0)
  t = f32[4,8] tanh(p) @fwd/tanh:7
  ROOT n = f32[4,8] negate(t) @fwd/neg:8
}
second {
  p = f32[4,8] parameter(0)
  q = f32[4,8] parameter(1)
  t2 = f32[4,8] tanh(p) @remat/tanh:7
  ROOT m = f32[4,8] multiply(q, t2) @bwd/mul:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  g = f32[4,8] parameter(1)
  o = f32[4,8] fusion(h), kind=kLoop, calls=first
  d = f32[4,8] fusion(h, g), kind=kLoop, calls=second
  ROOT r = (f32[4,8], f32[4,8]) tuple(o, d)
}
""")


def test_a_copy_in_another_fusion_of_what_the_forward_computes() -> None:
    assert ask(FUSED, OPS) == [("t2", "fusion-duplicated", "value", "t")]
    assert ask(FUSED, COUNTS) == [("fusion-duplicated", 0, 0, 0)]
    check_table(FUSED, NAMELESS)
    # Of another array it is no copy, and what is saved in between makes it a replay.
    other = changed(FUSED, ("fusion(h, g)", "fusion(g, g)"))
    assert ask(other, OPS) == [("t2", "sole", "source", None)]
    saved = changed(
        FUSED,
        ("fusion(h, g)", "fusion(h2, g)"),
        ("  d =", "  h2 = f32[4,8] opt-barrier(h)\n  d ="),
    )
    assert ask(saved, OPS) == [("t2", "replayed", "value", "t")]


def test_two_copies_of_a_replay_are_one() -> None:
    text = changed(
        FUSED,
        ("fusion(h, g)", "fusion(h2, g)"),
        ("tuple(o, d)", "tuple(o, d, e)"),
        ("ROOT r = (f32[4,8], f32[4,8])", "ROOT r = (f32[4,8], f32[4,8], f32[4,8])"),
        ("  d =", "  h2 = f32[4,8] opt-barrier(h)\n  e = f32[4,8] fusion(h2, o), kind=kLoop, calls=third\n  d ="),
        ("ENTRY", "third {\n  p = f32[4,8] parameter(0)\n  q = f32[4,8] parameter(1)\n"
         "  t3 = f32[4,8] tanh(p) @remat/tanh:7\n  ROOT m = f32[4,8] add(q, t3) @bwd/add:7\n}\nENTRY"),
    )  # fmt: skip
    verdicts = "select verdict, count(*) from remat_ops group by 1 order by 1"
    assert ask(text, verdicts) == [("fusion-duplicated", 1), ("replayed", 1)]
    check_table(text, verdicts)


# Before optimization jax shares computations: forward and replay call one, which has only tails.
CALLED = hlo("""
layer {
  p = f32[4,8] parameter(0)
  q = f32[8,8] parameter(1)
  y = f32[4,8] dot(p, q), PLAIN @tail/dot_general:7
  ROOT t = f32[4,8] tanh(y) @tail/tanh:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  c = f32[4,8] call(h, w), to_apply=layer @fwd/closed_call:9
  k = (f32[4,8], f32[8,8], f32[4,8]) tuple(h, w, g)
  bar = (f32[4,8], f32[8,8], f32[4,8]) opt-barrier(k)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  g2 = f32[4,8] get-tuple-element(bar), index=2
  c2 = f32[4,8] call(h2, w2), to_apply=layer @remat/closed_call:9
  d = f32[4,8] multiply(g2, c2) @bwd/mul:7
  ROOT r = (f32[4,8], f32[4,8]) tuple(c, d)
}
""")


def test_one_computation_is_forward_here_and_replayed_there() -> None:
    """The instruction stands once in the text; under the label it runs once."""
    assert ask(CALLED, OPS) == [("y", "replayed", "value", "y"), ("t", "replayed", "value", "t")]
    assert ask(CALLED, "select distinct times from remat_ops") == [(1,)]
    region = "select verdict, matmuls, flops, forward_flops, i.name from remat r join instructions i on i.instr = r.barrier"
    assert ask(CALLED, region) == [("recomputed", 1, 512, 512, "bar")]
    check_table(CALLED, NAMELESS)
    for label in ("@bwd/closed_call:9", "@fwd/closed_call:9"):
        assert ask(changed(CALLED, ("@remat/closed_call:9", label)), OPS) == []


def test_a_computation_that_is_replayed_twice_runs_twice() -> None:
    more = changed(
        CALLED,
        ("multiply(g2, c2)", "multiply(c3, c2)"),
        ("  d =", "  c3 = f32[4,8] call(g2, w2), to_apply=layer @remat/closed_call:9\n  d ="),
    )
    verdicts = "select name, verdict, times from remat_ops order by name, verdict"
    # Of the one call the forward has a twin, and of the other it has none.
    assert ask(more, verdicts) == [
        ("t", "replayed", 1), ("t", "sole", 1), ("y", "replayed", 1), ("y", "sole", 1),
    ]  # fmt: skip
    same = changed(more, ("call(g2, w2)", "call(h2, w2)"))
    assert ask(same, verdicts) == [("t", "replayed", 2), ("y", "replayed", 2)]


# -- regions --------------------------------------------------------------------------------------


def test_a_checkpoint_in_a_checkpoint_is_a_region_of_its_own() -> None:
    """The inner one is replayed once for the outer, and once more for its own backward."""
    deep = changed(
        BEHIND,
        ("multiply(ct2, s) @bwd/mul:7", "multiply(ct2, y4)"),
        ("  d =", "  in3 = (f32[4,8], f32[8,8]) tuple(h2, w2)\n  bar3 = (f32[4,8], f32[8,8]) opt-barrier(in3)\n"
         "  h4 = f32[4,8] get-tuple-element(bar3), index=0\n  w4 = f32[8,8] get-tuple-element(bar3), index=1\n"
         "  y4 = f32[4,8] dot(h4, w4), PLAIN @deep/dot_general:7\n  d ="),
    )  # fmt: skip
    regions = (
        "select depth, verdict, matmuls, recompute_factor, b.name from remat r"
        " join instructions b on b.instr = barrier order by depth"
    )
    assert ask(deep, regions) == [
        (1, "recomputed", 1, 1.0, "bar"),
        (2, "recomputed", 1, 1.0, "bar3"),
    ]
    check_table(deep, "select depth, verdict, matmuls, recompute_factor from remat")
    flat = changed(deep, ("checkpoint/checkpoint/rematted", "checkpoint/rematted"))
    assert [row[0] for row in ask(flat, regions)] == [1, 1]


def test_what_the_backward_reads_of_the_forward() -> None:
    """Bytes of forward values behind the barrier: no arguments, no cotangents."""
    saved = "select saved_bytes from remat"
    assert ask(BEHIND, saved) == [(0,)]
    computed = changed(
        BEHIND,
        ("dot(h, w)", "dot(h1, w)"),
        ("tuple(h, w, ct)", "tuple(h1, w, ct)"),
        ("  y =", "  h1 = f32[4,8] sine(h) @fwd/sin:5\n  y ="),
    )
    assert ask(computed, saved) == [(128,)]
    without = changed(computed, ("opt-barrier(kept)", "tuple(h1, w, ct)"))
    assert ask(without, "select saved_bytes, barrier from remat") == [(None, None)]


# The forward saves the product as well: the backward takes it, and only its tanh is replayed.
NAMED = changed(
    SCAN,
    ("f32[4,4,8], f32[4,8,8])", "f32[4,4,8], f32[4,8,8], f32[4,4,8])"),
    ("tuple(next, t, new, ws)", "tuple(next, t, new, ws, new2)"),
    ("  new =", "  kept2 = f32[4,4,8] get-tuple-element(p), index=4\n  part2 = f32[1,4,8] reshape(y)\n"
     "  new2 = f32[4,4,8] dynamic-update-slice(kept2, part2, i, zero, zero)\n  new ="),
    ("tuple(z, x, buffer, ws)", "tuple(z, x, buffer, ws, buffer)"),
    ("tuple(z, g, s, ws)", "tuple(z, g, s, ws, s2)"),
    ("  b = (s32[]", "  s2 = f32[4,4,8] get-tuple-element(w), index=4\n  b = (s32[]"),
    ("tuple(next, d, stack, ws)", "tuple(next, d, stack, ws, stack2)"),
    ("  y2 = f32[4,8] dot(h2, w2), PLAIN @again/dot_general:7\n",
     "  stack2 = f32[4,4,8] get-tuple-element(p), index=4\n"
     "  line2 = f32[1,4,8] dynamic-slice(stack2, k, zero, zero), dynamic_slice_sizes={1,4,8}\n"
     "  y2 = f32[4,8] reshape(line2)\n"),
)  # fmt: skip


def test_a_policy_that_saves_the_product_replays_none() -> None:
    """As a name that is honoured; a mistyped one is SCAN: a product again, and one stack less."""
    region = "select verdict, matmuls, flops, saved_bytes from remat"
    assert ask(NAMED, region) == [("replayed", 0, 0, 1024)]
    assert ask(NAMED, OPS) == [("t2", "replayed", "value", "t")]
    assert ask(SCAN, region) == [("recomputed", 1, 2048, 512)]
    stacks = "select count(*) from residuals where kind = 'stacked'"
    assert [ask(text, stacks) for text in (NAMED, SCAN)] == [[(2,)], [(1,)]]
    check_table(NAMED, region)
    check_table(NAMED, NAMELESS)


def kernel(name: str, *, config: str = "") -> str:
    return (
        'custom_call_target="__gpu$xla.gpu.triton", api_version=API_VERSION_TYPED_FFI,'
        f' backend_config={{grid_x = 8 : i32, name = "{name}"{config}}}'
    )


KERNEL = changed(
    BEHIND,
    ("dot(h, w), PLAIN @fwd/dot_general:7", f"custom-call(h, w), {kernel('fa_fwd')} @fwd/pallas_call:7"),
    ("dot(h2, w2), PLAIN @remat/dot_general:7", f"custom-call(h2, w2), {kernel('fa_fwd')} @remat/pallas_call:7"),
    ("dot(h2, d), lhs_contracting_dims={0}, rhs_contracting_dims={0} @bwd/dot_general:7",
     f"custom-call(h2, d), {kernel('fa_bwd')} @bwd/pallas_call:7"),
)  # fmt: skip


def test_a_kernel_that_runs_again() -> None:
    assert ask(KERNEL, COUNTS) == [("recomputed", 0, 1, 0)]
    assert ask(KERNEL, OPS)[0] == ("y2", "replayed", "value", "y")
    check_table(KERNEL, NAMELESS)
    # The policy saves what it gives: then it runs once, and nothing of the region is heavy.
    saved = changed(
        KERNEL,
        ("(f32[4,8], f32[8,8], f32[4,8])", "(f32[4,8], f32[8,8], f32[4,8], f32[4,8])"),
        ("tuple(h, w, ct)", "tuple(h, w, ct, y)"),
        (f"custom-call(h2, w2), {kernel('fa_fwd')} @remat/pallas_call:7",
         "get-tuple-element(bar), index=3"),
    )  # fmt: skip
    assert ask(saved, "select verdict, kernels from remat") == [("linearization", 0)]
    # Another kernel of the same arrays, from another line, is no replay.
    other = changed(
        KERNEL,
        (f"{kernel('fa_fwd')} @remat/pallas_call:7", f"{kernel('fb_fwd')} @remat/pallas_call:8"),
    )
    assert ask(other, OPS)[0] == ("y2", "sole", "use", None)


GATHER = (
    "all-gather({}), channel_id={}, replica_groups={}, dimensions={{0}}, use_global_device_ids=true"
)
PAIRS = "{{0,1},{2,3}}"
GATHERED = hlo(f"""
ENTRY main {{
  h = f32[4,8] parameter(0)
  shard = f32[4,8] parameter(1)
  g = f32[4,8] parameter(2)
  other = f32[4,8] parameter(3)
  w = f32[8,8] {GATHER.format("shard", 1, PAIRS)} @fwd/dot_general:7
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  k = (f32[4,8], f32[4,8], f32[4,8]) tuple(h, shard, other)
  bar = (f32[4,8], f32[4,8], f32[4,8]) opt-barrier(k)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  s2 = f32[4,8] get-tuple-element(bar), index=1
  w2 = f32[8,8] {GATHER.format("s2", 2, PAIRS)} @remat/dot_general:7
  y2 = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7
  d = f32[4,8] multiply(g, y2) @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(y, d)
}}
""", partitions=4)  # fmt: skip


def test_a_gather_that_runs_again() -> None:
    assert ask(GATHERED, COUNTS) == [("recomputed", 1, 0, 1)]
    assert ask(GATHERED, OPS) == [
        ("w2", "replayed", "value", "w"),
        ("y2", "replayed", "value", "y"),
    ]
    check_table(GATHERED, NAMELESS)
    check_table(GATHERED, COUNTS)
    other = changed(GATHERED, ("(bar), index=1", "(bar), index=2"))
    assert ask(other, OPS) == [("w2", "sole", "use", None), ("y2", "sole", "use", None)]
    again = GATHER.format("s2", 2, PAIRS)
    across = changed(GATHERED, (again, GATHER.format("s2", 2, "{{0,2},{1,3}}")))
    # The name alone says that it is the same gather; from another line nothing does.
    assert ask(across, OPS)[0] == ("w2", "replayed", "name", "w")
    moved = changed(across, ("@remat/dot_general:7\n  y2", "@remat/dot_general:6\n  y2"))
    assert ask(moved, OPS)[0] == ("w2", "sole", "use", None)
    # The same groups, written in another way.
    iota = changed(GATHERED, (again, GATHER.format("s2", 2, "[2,2]<=[4]")))
    assert ask(iota, OPS)[0] == ("w2", "replayed", "value", "w")


# A windowed einsum: the forward multiplies with a shard while it sends it on, the replay gathers.
WINDOWED = hlo("""
windowed_dot_general_body_ag {
  p = (f32[2,8], f32[4,8], f32[2,8], u32[]) parameter(0)
  h = f32[2,8] get-tuple-element(p), index=0
  part = f32[4,8] get-tuple-element(p), index=1
  so_far = f32[2,8] get-tuple-element(p), index=2
  i = u32[] get-tuple-element(p), index=3
  sent = f32[4,8] collective-permute(part), channel_id=3, source_target_pairs={{0,1},{1,0}} @fwd/dot_general:7
  four = u32[] constant(4)
  zero = u32[] constant(0)
  at = u32[] multiply(i, four)
  half = f32[2,4] dynamic-slice(h, zero, at), dynamic_slice_sizes={2,4}
  d = f32[2,8] dot(half, part), PLAIN @fwd/dot_general:7
  sum = f32[2,8] add(so_far, d) @fwd/dot_general:7
  one = u32[] constant(1)
  next = u32[] add(i, one)
  ROOT r = (f32[2,8], f32[4,8], f32[2,8], u32[]) tuple(h, sent, sum, next)
}
windowed_dot_general_cond_ag {
  p = (f32[2,8], f32[4,8], f32[2,8], u32[]) parameter(0)
  i = u32[] get-tuple-element(p), index=3
  n = u32[] constant(2)
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  h = f32[2,8] parameter(0)
  shard = f32[4,8] parameter(1)
  g = f32[2,8] parameter(2)
  other = f32[4,8] parameter(3)
  nil = f32[] constant(0)
  start = u32[] constant(0)
  none = f32[2,8] broadcast(nil), dimensions={}
  a = (f32[2,8], f32[4,8], f32[2,8], u32[]) tuple(h, shard, none, start)
  loop = (f32[2,8], f32[4,8], f32[2,8], u32[]) while(a), condition=windowed_dot_general_cond_ag, body=windowed_dot_general_body_ag @fwd/dot_general:7
  y = f32[2,8] get-tuple-element(loop), index=2
  t = f32[2,8] tanh(y) @fwd/tanh:8
  h2 = f32[2,8] opt-barrier(h)
  w2 = f32[8,8] all-gather(shard), channel_id=2, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true @remat/dot_general:7
  y2 = f32[2,8] dot(h2, w2), PLAIN @remat/dot_general:7
  t2 = f32[2,8] tanh(y2) @remat/tanh:8
  m = f32[2,8] multiply(g, t2) @bwd/mul:8
  ROOT out = (f32[2,8], f32[2,8]) tuple(t, m)
}
""", partitions=2)  # fmt: skip


def test_a_product_in_another_form_than_the_forwards_is_found_by_its_name() -> None:
    """And what is computed from it is compared as if the two were one."""
    verdicts = "select name, verdict, basis from remat_ops where work is null or work = 'matmul'"
    assert ask(WINDOWED, verdicts) == [("y2", "replayed", "name"), ("t2", "replayed", "value")]
    counts = "select verdict, matmuls, flops, forward_flops, recompute_factor from remat"
    # Two halves of 128 FLOP in the forward, one product of 256 again.
    assert ask(WINDOWED, counts) == [("recomputed", 1, 256, 256, 1.0)]
    elsewhere = changed(WINDOWED, ("@remat/dot_general:7\n  t2", "@remat/dot_general:6\n  t2"))
    assert ask(elsewhere, verdicts)[0] == ("y2", "sole", "use")
    other = changed(WINDOWED, ("all-gather(shard)", "all-gather(other)"))
    assert ask(other, verdicts)[0] == ("y2", "sole", "use")


def test_of_two_products_of_a_line_each_has_its_own_twin() -> None:
    """Gate and up: the same path and line, other weights. Both replays are of another form."""
    text = hlo("""
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  v = f32[8,8] parameter(2)
  g = f32[4,8] parameter(3)
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  z = f32[4,8] dot(h, v), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  m = f32[4,8] multiply(t, z) @fwd/mul:7
  k = (f32[4,8], f32[8,8], f32[8,8]) tuple(h, w, v)
  bar = (f32[4,8], f32[8,8], f32[8,8]) opt-barrier(k)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  v2 = f32[8,8] get-tuple-element(bar), index=2
  v3 = f32[8,8] maximum(v2, v2)
  w3 = f32[8,8] maximum(w2, w2)
  z2 = f32[4,8] dot(h2, v3), PLAIN @remat/dot_general:7
  y2 = f32[4,8] dot(h2, w3), PLAIN @remat/dot_general:7
  t2 = f32[4,8] tanh(y2) @remat/tanh:7
  d = f32[4,8] multiply(g, t2) @bwd/mul:7
  e = f32[4,8] multiply(d, z2) @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(m, e)
}
""")
    assert ask(text, OPS) == [
        ("z2", "replayed", "name", "z"),
        ("y2", "replayed", "name", "y"),
        ("t2", "replayed", "value", "t"),
    ]


# -- undone ---------------------------------------------------------------------------------------

UNDONE = "select module, verdict, undone from remat order by module"


def test_a_checkpoint_that_the_compiler_has_undone() -> None:
    assert both(BEHIND, MERGED, UNDONE) == [(0, "recomputed", 1), (1, "undone", 1)]
    said = both(BEHIND, MERGED, "select evidence from remat where module = 1")
    assert said == [
        (
            "before optimization it was recomputed; now: 1 shared: t of the forward takes it, and the forward has no other",
        )
    ]
    facts = Facts(program(BEHIND, MERGED))
    facts.rows("remat")
    (finding,) = facts.findings
    assert (finding.rule, finding.module) == ("remat-undone", 1)
    assert finding.message == (
        "the checkpoint at transpose(jvp(L))/checkpoint is undone for 1 of 1 operations: replayed"
        " before optimization, computed once after it"
    )


def test_a_checkpoint_that_stands_and_one_of_which_a_part_is_left() -> None:
    assert both(BEHIND, BEHIND, UNDONE) == [(0, "recomputed", 0), (1, "recomputed", 0)]
    facts = Facts(program(BEHIND, BEHIND))
    facts.rows("remat")
    assert not facts.findings
    # One stage: nobody knows.
    assert ask(MERGED, "select verdict, undone from remat") == [("shared", None)]
    # Two layers before, of which one is still replayed after.
    two = changed(
        BEHIND,
        ("dot(h2, d)", "dot(y4, d)"),
        ("  s =", "  y4 = f32[4,8] dot(y2, w2), PLAIN @remat/dot_general:8\n  s ="),
        ("  t =", "  y3 = f32[4,8] dot(y, w), PLAIN @fwd/dot_general:8\n  t ="),
        ("sine(t)", "sine(y3)"),
    )
    assert both(two, BEHIND, UNDONE) == [(0, "recomputed", 1), (1, "recomputed", 1)]
    facts = Facts(program(two, BEHIND))
    facts.rows("remat")
    assert ["1 of 2 operations" in finding.message for finding in facts.findings] == [True]


# -- what the compiler makes again ----------------------------------------------------------------

REMATERIALIZED = hlo("""
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  y.remat = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t.remat2 = f32[4,8] tanh(y.remat) @fwd/tanh:7
  n = f32[4,8] negate(t.remat2) @bwd/neg:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(t, n)
}
""")


def test_what_the_compiler_rematerializes_is_apart() -> None:
    sql = "select name, kind, verdict, basis, twin_name from remat_ops order by instr"
    assert ask(REMATERIALIZED, sql) == [
        ("y.remat", "compiler", "replayed", "value", "y"),
        ("t.remat2", "compiler", "replayed", "value", "t"),
    ]
    regions = "select kind, scope, depth, verdict, matmuls, flops, forward_flops from remat"
    assert ask(REMATERIALIZED, regions) == [("compiler", None, None, "recomputed", 1, 512, None)]
    check_table(REMATERIALIZED, NAMELESS)
    # The name is the evidence: without the mark it is an ordinary duplicate.
    plain = REMATERIALIZED.replace(".remat2", ".copy2").replace(".remat", ".copy")
    assert ask(plain, sql) == []
    inside = REMATERIALIZED.replace(".remat2", "_remat2").replace(".remat", "_remat")
    assert ask(inside, sql) == []
    alone = changed(
        REMATERIALIZED,
        ("  y =", "  v = f32[8,8] negate(w)\n  y ="),
        ("y.remat = f32[4,8] dot(h, w)", "y.remat = f32[4,8] dot(h, v)"),
    )
    assert ask(alone, sql)[0] == ("y.remat", "compiler", "unknown", None, None)


def test_a_labelled_instruction_that_the_compiler_makes_again_stays_with_its_label() -> None:
    both_kinds = changed(
        BEHIND, ("  sq =", "  y2.remat = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7\n  sq =")
    )
    kinds = "select distinct kind from remat_ops"
    assert ask(both_kinds, kinds) == [("framework",)]


# -- texts without names --------------------------------------------------------------------------


def nameless(text: str) -> str:
    return text.replace('op_name="', 'op_type="')


def test_without_names_structure_tells_what_is_computed_again() -> None:
    text = nameless(BEHIND)
    sql = "select name, kind, verdict, basis, twin_name, evidence from remat_ops"
    said = "y computes the same value, and this one stands behind bar"
    assert ask(text, sql) == [("y2", "unlabelled", "replayed", "value", "y", said)]
    assert ask(text, COUNTS) == [("recomputed", 1, 0, 0)]
    message = (
        "no op_names, so labels cannot tell what is rematerialized; by structure: 1 instructions"
        " compute again what an earlier one does"
    )
    assert findings(text, "remat") == [("remat-without-names", message)]
    check_table(text, "remat_ops")
    check_table(text, "remat")
    # An ordinary product behind the barrier is none, and neither is a duplicate in front of it.
    other = nameless(changed(BEHIND, ("tuple(h, w, ct)", "tuple(h, v, ct)")))
    assert ask(other, sql) == []
    assert findings(other, "remat")[0][1].endswith("by structure: no replay")
    duplicate = changed(text, ("dot(h2, w2)", "dot(h, w)"))
    assert ask(duplicate, sql) == []


def test_without_names_a_backward_loop_is_known_by_what_it_reads() -> None:
    text = nameless(SCAN)
    sql = "select name, verdict, twin_name, times, evidence from remat_ops"
    said = "y computes the same value, and this one stands in v"
    assert ask(text, sql) == [("y2", "replayed", "y", 4, said)]
    check_table(text, "remat_ops")
    assert ask(nameless(changed(SCAN, ("ws, k", "ws, j"))), sql) == []


def test_only_a_text_without_any_name_is_said_to_have_none() -> None:
    assert findings(BEHIND, "remat") == []
    nothing = nameless(hlo("ENTRY main {\n  ROOT h = f32[4,8] parameter(0)\n}"))
    assert findings(nothing, "remat") == []


# -- a value saved twice --------------------------------------------------------------------------

TWICE = changed(NAMED, ("reshape(y)", "reshape(h)"))


def test_a_value_that_is_stacked_twice() -> None:
    found = [one for one in findings(TWICE, "remat") if one[0] == "residual-saved-twice"]
    assert found == [
        ("residual-saved-twice", "w stacks one value twice, as elements 2 and 4 (f32[4,4,8])")
    ]
    for text in (NAMED, SCAN):
        assert findings(text, "remat") == []


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("reshape(h)\n  new2", "reshape(t)\n  new2", False),
        # In another dtype it is the same value, rounded.
        (
            "part2 = f32[1,4,8] reshape(h)",
            "hr = bf16[4,8] convert(h)\n  hc = f32[4,8] convert(hr)\n  part2 = f32[1,4,8] reshape(hc)",
            True,
        ),
        (
            "part2 = f32[1,4,8] reshape(h)",
            "hr = f32[4,8] negate(h)\n  part2 = f32[1,4,8] reshape(hr)",
            False,
        ),
    ],
)
def test_another_value_in_the_second_stack(old: str, new: str, is_same: bool) -> None:
    text = changed(TWICE, (old, new))
    assert bool(findings(text, "remat")) == is_same


# -- members --------------------------------------------------------------------------------------


def test_members_of_regions_and_operations() -> None:
    members = (
        "select m.role, i.name from members m join instructions i on i.instr = m.instr"
        " where m.\"table\" = '{}' order by m.row, m.role, i.name"
    )
    assert ask(BEHIND, members.format("remat")) == [
        ("barrier", "bar"), ("operation", "s"), ("operation", "sq"), ("replayed", "t2"),
        ("replayed", "y2"), ("twin", "t"), ("twin", "y"),
    ]  # fmt: skip
    assert ask(SCAN, members.format("remat"))[0] == ("loop", "v")
    assert ask(BEHIND, members.format("remat_ops"))[:4] == [
        ("operation", "y2"), ("twin", "y"), ("operation", "t2"), ("twin", "t"),
    ]  # fmt: skip
