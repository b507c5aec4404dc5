"""The remat tables on small texts: each verdict, and a text that looks alike and has another."""

from __future__ import annotations

import re
import sys

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program
from tests.mutate import check_table
from tests.passes.asking import ask, findings

_PATHS = {
    "fwd": "jit(f)/jvp(L)/",
    "bwd": "jit(f)/transpose(jvp(L))/checkpoint/",
    "remat": "jit(f)/transpose(jvp(L))/checkpoint/rematted_computation/",
    "deep": "jit(f)/transpose(jvp(L))/checkpoint/checkpoint/rematted_computation/",
    "loop": "jit(f)/jvp()/while/body/",
    "back": "jit(f)/transpose(jvp())/while/body/checkpoint/",
    "again": "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/",
    "tail": "",
}
_MARK = re.compile(r" ?@(\w+)/([\w\[\]=./()]+):(\d+)")


def hlo(lines: str, *, partitions: int = 1) -> str:
    """A module. `@remat/dot_general:7` is the metadata of a labelled product of line 7, and
    `PLAIN` the dimensions of an ordinary one."""
    head = f"HloModule m, num_partitions={partitions}\n" if partitions > 1 else "HloModule m\n"
    return head + _written(lines)


def _written(lines: str) -> str:
    lines = lines.replace("PLAIN", "lhs_contracting_dims={1}, rhs_contracting_dims={0}")
    return _MARK.sub(_metadata, lines)


def _metadata(mark: re.Match[str]) -> str:
    path, name, line = _PATHS[mark[1]], mark[2], mark[3]
    return f', metadata={{op_name="{path}{name}" source_file="m.py" source_line={line}}}'


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each `old` replaced, which it must have."""
    for old, new in pairs:
        old, new = _written(old), _written(new)
        assert old in text, old
        text = text.replace(old, new)
    return text


def both(before: str, after: str, sql: str) -> list[tuple[object, ...]]:
    """The rows of `sql` over one program before and after optimization."""
    return run_query([Facts(program(before, after))], sql).rows


def program(before: str, after: str) -> Program:
    return Program([parse(before), parse(after)], [BEFORE, AFTER])


OPS = "select name, verdict, basis, twin_name from remat_ops order by instr"
REGIONS = "select verdict, matmuls, kernels, collectives, operations from remat"
# Names change under rewrites, and an order of the text is none.
NAMELESS = "select opcode, verdict, basis, work, flops, times from remat_ops"


# -- replayed: behind a barrier -------------------------------------------------------------------

# tanh(h @ w) forward; behind the barrier again, with the derivative 1 - t * t.
BEHIND = hlo("""
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  v = f32[8,8] parameter(3)
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  o = f32[4,8] sine(t) @fwd/sin:8
  ct = f32[4,8] multiply(g, t) @bwd/mul:9
  kept = (f32[4,8], f32[8,8], f32[4,8]) tuple(h, w, ct)
  bar = (f32[4,8], f32[8,8], f32[4,8]) opt-barrier(kept)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  ct2 = f32[4,8] get-tuple-element(bar), index=2
  y2 = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7
  t2 = f32[4,8] tanh(y2) @remat/tanh:7
  one = f32[] constant(1)
  ones = f32[4,8] broadcast(one), dimensions={}
  sq = f32[4,8] multiply(t2, t2) @remat/mul:7
  s = f32[4,8] subtract(ones, sq) @remat/sub:7
  d = f32[4,8] multiply(ct2, s) @bwd/mul:7
  dw = f32[8,8] dot(h2, d), lhs_contracting_dims={0}, rhs_contracting_dims={0} @bwd/dot_general:7
  ROOT out = (f32[4,8], f32[8,8]) tuple(o, dw)
}
""")
FACTORS = [("sq", "linearization", "source", None), ("s", "linearization", "use", None)]


def test_replayed_behind_a_barrier() -> None:
    assert ask(BEHIND, OPS) == [
        ("y2", "replayed", "value", "y"),
        ("t2", "replayed", "value", "t"),
        *FACTORS,
    ]
    (region,) = ask(
        BEHIND,
        "select r.kind, scope, depth, verdict, operations, matmuls, kernels, collectives, flops,"
        " forward_flops, recompute_factor, saved_bytes, undone, b.name, r.loop_name, r.evidence"
        " from remat r left join instructions b on b.id = barrier",
    )
    said = "2 replayed, 2 linearization: y of the forward computes the same value through bar"
    assert region == (
        "framework", "transpose(jvp(L))/checkpoint", 1, "recomputed", 4, 1, 0, 0, 512, 512, 1.0, 0,
        None, "bar", None, said,
    )  # fmt: skip
    check_table(BEHIND, NAMELESS)
    check_table(BEHIND, REGIONS)


def test_a_product_of_another_weight_is_no_replay() -> None:
    """Same shapes, same path, same line: another value, which the forward never computed."""
    other = changed(BEHIND, ("tuple(h, w, ct)", "tuple(h, v, ct)"))
    assert ask(other, OPS) == [
        ("y2", "sole", "use", None),
        ("t2", "sole", "source", None),
        ("sq", "linearization", "use", None),
        ("s", "linearization", "use", None),
    ]
    assert ask(other, REGIONS) == [("sole", 0, 0, 0, 4)]
    check_table(other, NAMELESS)


def test_how_a_replay_is_written_does_not_matter() -> None:
    """The product the other way round, in another dtype, of reshaped operands."""
    product = "y2 = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7"
    turned = "dot(w2, h2), lhs_contracting_dims={0}, rhs_contracting_dims={1} @remat/dot_general:5"
    for other in (
        f"y1 = f32[8,4] {turned}\n  y2 = f32[4,8] transpose(y1), dimensions={{1,0}}",
        "y1 = bf16[4,8] dot(h2, w2), PLAIN @remat/dot_general:5\n  y2 = f32[4,8] convert(y1)",
        "h3 = f32[4,1,8] reshape(h2)\n  y1 = f32[4,1,8] dot(h3, w2), lhs_contracting_dims={2},"
        " rhs_contracting_dims={0} @remat/dot_general:5\n  y2 = f32[4,8] bitcast(y1)",
    ):
        rows = ask(changed(BEHIND, (product, other)), OPS)
        assert [row[1:] for row in rows[:2]] == [
            ("replayed", "value", "y"),
            ("replayed", "value", "t"),
        ]
    across = changed(BEHIND, (product, product.replace("PLAIN", "lhs_contracting_dims={1},"
                     " rhs_contracting_dims={1}").replace(":7", ":5")))  # fmt: skip
    assert ask(across, OPS)[0] == ("y2", "sole", "use", None)


def test_what_is_computed_from_random_numbers_is_never_the_same_again() -> None:
    square = changed(
        BEHIND,
        ("sine(t)", "sine(q)"),
        ("  o =", "  q = f32[4,8] multiply(t, t) @fwd/mul:7\n  o ="),
    )
    words = "select verdict, twin_name from remat_ops where name = 'sq'"
    assert ask(square, words) == [("replayed", "q")]
    drawn = "f32[4,8] rng(zero, unit), distribution=rng_uniform"
    limits = "  zero = f32[] constant(0)\n  unit = f32[] constant(1)\n  y ="
    drawing = changed(
        square, ("  y =", limits), ("f32[4,8] tanh(y)", drawn), ("f32[4,8] tanh(y2)", drawn)
    )
    ((verdict, twin),) = ask(drawing, words)
    assert verdict != "replayed"
    assert twin is None


# -- replayed: in the backward loop of a scan -----------------------------------------------------

# Four layers tanh(h @ w[i]); the backward loop takes layer 3 - j, and computes its product again.
SCAN = hlo("""
forward {
  p = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[4,8] get-tuple-element(p), index=1
  kept = f32[4,4,8] get-tuple-element(p), index=2
  ws = f32[4,8,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  cut = f32[1,8,8] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={1,8,8}
  w = f32[8,8] reshape(cut)
  y = f32[4,8] dot(h, w), PLAIN @loop/dot_general:7
  t = f32[4,8] tanh(y) @loop/tanh:7
  part = f32[1,4,8] reshape(h)
  new = f32[4,4,8] dynamic-update-slice(kept, part, i, zero, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) tuple(next, t, new, ws)
}
forward_go {
  p = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}
backward {
  p = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = f32[4,8] get-tuple-element(p), index=1
  stack = f32[4,4,8] get-tuple-element(p), index=2
  ws = f32[4,8,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  k = s32[] subtract(three, j)
  line = f32[1,4,8] dynamic-slice(stack, k, zero, zero), dynamic_slice_sizes={1,4,8}
  h2 = f32[4,8] reshape(line)
  cut = f32[1,8,8] dynamic-slice(ws, k, zero, zero), dynamic_slice_sizes={1,8,8}
  w2 = f32[8,8] reshape(cut)
  y2 = f32[4,8] dot(h2, w2), PLAIN @again/dot_general:7
  t2 = f32[4,8] tanh(y2) @again/tanh:7
  c = f32[4,8] multiply(g, t2) @back/mul:7
  d = f32[4,8] dot(c, w2), lhs_contracting_dims={1}, rhs_contracting_dims={1} @back/dot_general:7
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) tuple(next, d, stack, ws)
}
backward_go {
  p = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(j, n), direction=LT
}
ENTRY main {
  x = f32[4,8] parameter(0)
  ws = f32[4,8,8] parameter(1)
  g = f32[4,8] parameter(2)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  buffer = f32[4,4,8] broadcast(nil), dimensions={}
  a = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) tuple(z, x, buffer, ws)
  w = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) while(a), condition=forward_go, body=forward, metadata={op_name="jit(f)/jvp()/while"}
  s = f32[4,4,8] get-tuple-element(w), index=2
  b = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) tuple(z, g, s, ws)
  v = (s32[], f32[4,8], f32[4,4,8], f32[4,8,8]) while(b), condition=backward_go, body=backward, metadata={op_name="jit(f)/transpose(jvp())/while"}
  ROOT out = f32[4,8] get-tuple-element(v), index=1
}
""")  # noqa: E501


def test_replayed_in_the_loop_that_counts_from_the_last_layer() -> None:
    assert ask(SCAN, OPS) == [("y2", "replayed", "value", "y"), ("t2", "replayed", "value", "t")]
    (region,) = ask(
        SCAN,
        "select verdict, matmuls, flops, forward_flops, recompute_factor, saved_bytes, loop_name,"
        " barrier, scope from remat",
    )
    # 2 * 4 * 8 * 8 in each of four iterations; four slices of 128 bytes.
    scope = "transpose(jvp())/while/body/checkpoint"
    assert region == ("recomputed", 1, 2048, 2048, 1.0, 512, "v", None, scope)
    check_table(SCAN, NAMELESS)
    check_table(SCAN, "select verdict, matmuls, flops, recompute_factor, saved_bytes from remat")


@pytest.mark.parametrize(
    ("old", "new"),
    [("stack, k", "stack, j"), ("ws, k", "ws, j"), ("subtract(three, j)", "subtract(one, j)")],
)
def test_another_layer_than_the_forwards_is_no_replay_by_value(old: str, new: str) -> None:
    """The path and the line still say what it is; from another line nothing does."""
    other = changed(SCAN, (old, new))
    assert ask(other, OPS)[0] == ("y2", "replayed", "name", "y")
    moved = changed(other, ("@again/dot_general:7", "@again/dot_general:8"))
    assert ask(moved, OPS)[0] == ("y2", "sole", "use", None)


# XLA has taken the last iteration out of the backward loop: the first layer.
_GO = "  n = s32[] constant({})\n  ROOT go = pred[] compare(j, n)"
PEELED = changed(
    SCAN,
    (_GO.format(4), _GO.format(3)),
    ("  ROOT out = f32[4,8] get-tuple-element(v), index=1\n",
     "  rest = f32[4,8] get-tuple-element(v), index=1\n"
     "  line = f32[1,4,8] dynamic-slice(s, z, z, z), dynamic_slice_sizes={1,4,8}\n"
     "  h3 = f32[4,8] reshape(line)\n"
     "  cut = f32[1,8,8] dynamic-slice(ws, z, z, z), dynamic_slice_sizes={1,8,8}\n"
     "  w3 = f32[8,8] reshape(cut)\n"
     "  y3 = f32[4,8] dot(h3, w3), PLAIN @again/dot_general:7\n"
     "  t3 = f32[4,8] tanh(y3) @again/tanh:7\n"
     "  ROOT out = f32[4,8] multiply(rest, t3) @back/mul:7\n"),
)  # fmt: skip


def test_iterations_taken_out_of_a_loop_replay_one_of_the_forward_together() -> None:
    sql = "select name, verdict, basis, times, twin_name from remat_ops where work = 'matmul'"
    sql += " order by times"
    assert ask(PEELED, sql) == [
        ("y3", "replayed", "name", 1, "y"),
        ("y2", "replayed", "name", 3, "y"),
    ]
    assert ask(PEELED, "select sum(flops), max(forward_flops) from remat") == [(2048, 2048)]
    # All four are in the loop already: then the forward has none for a fifth.
    fifth = changed(PEELED, (_GO.format(3), _GO.format(4)))
    assert ask(fifth, sql) == [
        ("y3", "sole", "use", 1, None),
        ("y2", "replayed", "value", 4, "y"),
    ]


# -- shared, sole ---------------------------------------------------------------------------------

# XLA has merged the replay with the original, and kept the label: the forward takes it.
MERGED = hlo("""
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  y = f32[4,8] dot(h, w), PLAIN @remat/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  c = f32[4,8] cosine(y) @bwd/cos:7
  d = f32[4,8] multiply(g, c) @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(t, d)
}
""")


def test_a_labelled_product_that_the_forward_takes_is_shared() -> None:
    assert ask(MERGED, OPS) == [("y", "shared", "use", "t")]
    assert ask(MERGED, REGIONS) == [("shared", 0, 0, 0, 1)]
    # XLA may keep the names of both.
    both_names = re.sub(r'op_name="([^"]*)rematted_computation/dot_general"',
                        r'op_name="(jit(f)/jvp(L)/dot_general:\1rematted_computation/dot_general)"',
                        MERGED)  # fmt: skip
    assert ask(both_names, OPS) == [("y", "shared", "use", "t")]
    check_table(MERGED, NAMELESS)


def test_a_labelled_product_that_only_the_backward_takes_is_sole() -> None:
    """The gradient alone: no forward is left, so nothing is computed twice."""
    sole = changed(MERGED, ("@fwd/tanh:7", "@bwd/tanh:7"))
    assert ask(sole, OPS) == [("y", "sole", "use", None)]
    assert ask(sole, REGIONS) == [("sole", 0, 0, 0, 1)]
    check_table(sole, NAMELESS)
    twice = changed(
        MERGED,
        ("tanh(y)", "tanh(y1)"),
        ("  t =", "  y1 = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7\n  t ="),
    )
    assert ask(twice, OPS) == [("y", "replayed", "value", "y1")]


def test_what_a_sole_product_is_computed_from_is_sole() -> None:
    text = changed(
        MERGED,
        ("@fwd/tanh:7", "@bwd/tanh:7"),
        ("dot(h, w)", "dot(n, w)"),
        ("  y =", "  n = f32[4,8] negate(h) @remat/neg:6\n  y ="),
    )
    assert ask(text, OPS) == [("n", "sole", "use", None), ("y", "sole", "use", None)]
    check_table(text, NAMELESS)
    # The backward alone takes it: arithmetic of a derivative.
    apart = changed(text, ("dot(n, w)", "dot(h, w)"), ("multiply(g, c)", "multiply(n, c)"))
    assert ask(apart, OPS) == [("n", "linearization", "use", None), ("y", "sole", "use", None)]
    # The forward has it.
    forward = changed(
        text,
        ("  n =", "  n1 = f32[4,8] negate(h) @fwd/neg:6\n  n ="),
        ("tuple(t, d)", "tuple(n1, d)"),
    )
    assert ask(forward, OPS)[0] == ("n", "replayed", "value", "n1")


def test_a_labelled_instruction_in_a_loop_of_the_forward_is_shared() -> None:
    inside = changed(SCAN, ("@loop/dot_general:7", "@again/dot_general:7"))
    assert ask(inside, OPS) == [
        ("y", "shared", "place", None),
        ("y2", "replayed", "value", "y"),
        ("t2", "replayed", "value", "t"),
    ]
    check_table(inside, NAMELESS)


# -- linearization --------------------------------------------------------------------------------


def test_the_cosine_of_a_replayed_sine_is_linearization() -> None:
    """cos is what sin gives a derivative; where the forward has it, it is a replay."""
    text = changed(BEHIND, ("tanh(y)", "sine(y)"), ("tanh(y2)", "cosine(y2)"))
    assert ask(text, OPS)[:2] == [
        ("y2", "replayed", "value", "y"),
        ("t2", "linearization", "source", None),
    ]
    assert ask(text, REGIONS) == [("recomputed", 1, 0, 0, 4)]
    check_table(text, NAMELESS)
    forward = changed(text, ("sine(y)", "cosine(y)"))
    assert ask(forward, OPS)[:2] == [
        ("y2", "replayed", "value", "y"),
        ("t2", "replayed", "value", "t"),
    ]


def test_one_less_the_square_is_linearization_unless_the_forward_has_it() -> None:
    assert ask(BEHIND, OPS)[2:] == FACTORS
    forward = changed(
        BEHIND,
        (
            "  o = f32[4,8] sine(t)",
            "  u = f32[] constant(1)\n  us = f32[4,8] broadcast(u), dimensions={}\n"
            "  q = f32[4,8] multiply(t, t) @fwd/mul:8\n  r = f32[4,8] subtract(us, q) @fwd/sub:8\n"
            "  o = f32[4,8] sine(r)",
        ),
    )
    assert ask(forward, OPS)[2:] == [
        ("sq", "replayed", "value", "q"),
        ("s", "replayed", "value", "r"),
    ]


def test_a_primal_value_that_the_forward_computes_from_other_inputs_is_sole() -> None:
    """The forward has the like from that line, and more of it than is replayed."""
    text = changed(
        BEHIND,
        ("sine(t) @fwd/sin:8", "sine(r) @fwd/sin:9"),
        ("  o =", "  r = f32[4,8] subtract(g, t) @fwd/sub:8\n  o ="),
        ("  sq =", "  r2 = f32[4,8] subtract(ct2, ones) @remat/sub:8\n  sq ="),
        ("multiply(ct2, s)", "multiply(r2, s)"),
    )
    assert ("r2", "sole", "source", None) in ask(text, OPS)
    moved = changed(text, ("@remat/sub:8", "@remat/sub:6"))
    assert ("r2", "linearization", "use", None) in ask(moved, OPS)


# -- replayed: in another form --------------------------------------------------------------------

# The forward gathers h in a ring while it multiplies; behind the barrier h is gathered at once.
WINDOWED = hlo(
    """
windowed_dot_general_body_ag {
  p = (f32[4,8], f32[8,8], f32[8,8], s32[]) parameter(0)
  x = f32[4,8] get-tuple-element(p), index=0
  w = f32[8,8] get-tuple-element(p), index=1
  r = f32[8,8] get-tuple-element(p), index=2
  i = s32[] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  four = s32[] constant(4)
  sent = f32[4,8] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}} @fwd/dot_general:7
  part = f32[4,8] dot(x, w), PLAIN @fwd/dot_general:7
  me = u32[] partition-id()
  at = s32[] convert(me)
  turn = s32[] add(at, i)
  two = s32[] constant(2)
  whose = s32[] remainder(turn, two)
  row = s32[] multiply(whose, four)
  r2 = f32[8,8] dynamic-update-slice(r, part, row, zero)
  next = s32[] add(i, one)
  ROOT out = (f32[4,8], f32[8,8], f32[8,8], s32[]) tuple(sent, w, r2, next)
}
windowed_dot_general_cond_ag {
  p = (f32[4,8], f32[8,8], f32[8,8], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=3
  n = s32[] constant(2)
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[8,8] parameter(2)
  v = f32[8,8] parameter(3)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  empty = f32[8,8] broadcast(nil), dimensions={}
  a = (f32[4,8], f32[8,8], f32[8,8], s32[]) tuple(h, w, empty, z)
  ring = (f32[4,8], f32[8,8], f32[8,8], s32[]) while(a), condition=windowed_dot_general_cond_ag, body=windowed_dot_general_body_ag @fwd/dot_general:7
  y = f32[8,8] get-tuple-element(ring), index=2
  t = f32[8,8] tanh(y) @fwd/tanh:7
  o = f32[8,8] sine(t) @fwd/sin:8
  kept = (f32[4,8], f32[8,8], f32[8,8]) tuple(h, w, g)
  bar = (f32[4,8], f32[8,8], f32[8,8]) opt-barrier(kept)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  all = f32[8,8] all-gather(h2), dimensions={0}, channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true @bwd/dot_general:7
  y2 = f32[8,8] dot(all, w2), PLAIN @remat/dot_general:7
  t2 = f32[8,8] tanh(y2) @remat/tanh:7
  d = f32[8,8] multiply(g, t2) @bwd/mul:7
  ROOT out = (f32[8,8], f32[8,8]) tuple(o, d)
}
""",  # noqa: E501
    partitions=2,
)


def test_replayed_by_name_where_the_form_is_another() -> None:
    """What is computed from it is found by value again."""
    assert ask(WINDOWED, OPS) == [
        ("y2", "replayed", "name", "part"),
        ("t2", "replayed", "value", "t"),
    ]
    # The windowed einsum runs its part twice.
    sql = "select verdict, matmuls, flops, forward_flops, recompute_factor from remat"
    assert ask(WINDOWED, sql) == [("recomputed", 1, 1024, 1024, 1.0)]
    check_table(WINDOWED, NAMELESS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y2 = f32[8,8] dot(all, w2), PLAIN @remat/dot_general:7",
         "y2 = f32[8,8] dot(all, w2), PLAIN @remat/dot_general:6"),
        ("@remat/dot_general:7", "@remat/other/dot_general:7"),
        ("tuple(h, w, g)", "tuple(h, v, g)"),
        ("tuple(h, w, g)", "tuple(h, y, g)"),
    ],
    ids=["another line", "another path", "another weight", "computed from the forward's"],
)  # fmt: skip
def test_not_replayed_by_name(old: str, new: str) -> None:
    rows = ask(changed(WINDOWED, (old, new)), OPS)
    assert rows[0] == ("y2", "sole", "use", None)
    assert rows[1][1] == "sole"


def test_each_of_the_forward_is_replayed_once_by_name() -> None:
    """A second one has no twin left."""
    more = changed(
        WINDOWED,
        ("  t2 =", "  y3 = f32[8,8] dot(w2, all), PLAIN @remat/dot_general:7\n  t2 ="),
        ("multiply(g, t2)", "multiply(y3, t2)"),
    )
    words = "select verdict, basis from remat_ops where work = 'matmul' order by verdict"
    assert ask(more, words) == [("replayed", "name"), ("sole", "use")]
    assert ask(more, "select matmuls from remat") == [(1,)]


def test_a_windowed_einsum_that_is_replayed_is_one_matmul() -> None:
    """The ring of the forward, again, behind the barrier and under the label."""
    ring = WINDOWED[WINDOWED.index("windowed") : WINDOWED.index("ENTRY")]
    again = ring.replace("_ag {", "_ag.1 {").replace("jvp(L)/", "transpose(jvp(L))/checkpoint/"
                                                     "rematted_computation/")  # fmt: skip
    text = changed(
        WINDOWED.replace("ENTRY", again + "ENTRY"),
        ("  y2 = f32[8,8] dot(all, w2), PLAIN @remat/dot_general:7",
         "  b = (f32[4,8], f32[8,8], f32[8,8], s32[]) tuple(h2, w2, empty, z)\n"
         "  ring2 = (f32[4,8], f32[8,8], f32[8,8], s32[]) while(b),"
         " condition=windowed_dot_general_cond_ag.1, body=windowed_dot_general_body_ag.1"
         " @remat/dot_general:7\n"
         "  y2 = f32[8,8] get-tuple-element(ring2), index=2"),
    )  # fmt: skip
    sql = "select verdict, matmuls, flops, forward_flops, recompute_factor from remat"
    assert ask(text, sql) == [("recomputed", 1, 1024, 1024, 1.0)]
    rows = ask(text, "select verdict, times, twin_name from remat_ops where work = 'matmul'")
    assert rows == [("replayed", 2, "part")]
    check_table(text, REGIONS)


# -- fusions --------------------------------------------------------------------------------------

# After optimization the label is inside of what is fused.
FUSED = hlo("""
inner {
  a = f32[4,8] parameter(0)
  b = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  y2 = f32[4,8] dot(a, b), PLAIN @remat/dot_general:7
  ROOT d = f32[4,8] multiply(y2, g) @bwd/mul:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  f = f32[4,8] fusion(h, w, g), kind=kLoop, calls=inner @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(t, f)
}
""")


def test_a_label_inside_a_fused_computation() -> None:
    assert ask(FUSED, OPS) == [("y2", "replayed", "value", "y")]
    assert ask(FUSED, REGIONS) == [("recomputed", 1, 0, 0, 1)]
    check_table(FUSED, NAMELESS)
    other = changed(FUSED, ("fusion(h, w, g)", "fusion(g, w, h)"))
    assert ask(other, OPS) == [("y2", "sole", "use", None)]


def test_a_label_of_the_fusion_alone_is_not_that_of_what_is_named_inside() -> None:
    outside = changed(FUSED, ("@remat/dot_general:7", "@bwd/dot_general:7"),
                      ("calls=inner @bwd/mul:7", "calls=inner @remat/mul:7"))  # fmt: skip
    assert ask(outside, OPS) == []


# One labelled sine, fused into each of its two consumers.
COPIES = hlo("""
first {
  a = f32[4,8] parameter(0)
  g = f32[4,8] parameter(1)
  s1 = f32[4,8] sine(a) @remat/sin:7
  ROOT d1 = f32[4,8] multiply(s1, g) @bwd/mul:7
}
second {
  a = f32[4,8] parameter(0)
  g = f32[4,8] parameter(1)
  s2 = f32[4,8] sine(a) @remat/sin:7
  ROOT d2 = f32[4,8] add(s2, g) @bwd/add:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  y2 = f32[4,8] dot(t, w), PLAIN @remat/dot_general:7
  f1 = f32[4,8] fusion(y2, g), kind=kLoop, calls=first @bwd/mul:7
  f2 = f32[4,8] fusion(y2, g), kind=kLoop, calls=second @bwd/add:7
  ROOT out = (f32[4,8], f32[4,8], f32[4,8]) tuple(t, f1, f2)
}
""")


def test_a_copy_in_another_fusion_is_fusion_duplicated() -> None:
    copy = "select verdict, count(*) from remat_ops where opcode = 'sine' group by 1 order by 1"
    assert ask(COPIES, copy) == [("fusion-duplicated", 1), ("linearization", 1)]
    check_table(COPIES, copy)
    # Of another value it is no copy.
    other = changed(
        COPIES,
        ("fusion(y2, g), kind=kLoop, calls=second", "fusion(t, g), kind=kLoop, calls=second"),
    )
    assert ask(other, copy) == [("linearization", 2)]


def test_a_fused_copy_of_what_the_forward_computes_from_the_same_results() -> None:
    text = changed(FUSED, ("fusion(h, w, g)", "fusion(y, w, g)"),
                   ("dot(a, b), PLAIN @remat/dot_general:7", "tanh(a) @remat/tanh:7"))  # fmt: skip
    assert ask(text, OPS) == [("y2", "fusion-duplicated", "value", "t")]
    check_table(text, NAMELESS)
    # It takes a replayed product: then both are replayed.
    again = changed(text, ("fusion(y, w, g)", "fusion(y1, w, g)"),
                    ("  f =", "  y1 = f32[4,8] dot(h, w), PLAIN @remat/dot_general:7\n"
                     "  f ="))  # fmt: skip
    words = "select opcode, verdict, twin_name from remat_ops order by opcode"
    assert ask(again, words) == [("dot", "replayed", "y"), ("tanh", "replayed", "t")]


def test_copies_of_one_product_in_two_fusions_are_one_matmul() -> None:
    text = changed(
        FUSED,
        ("ENTRY", FUSED[FUSED.index("inner") : FUSED.index("ENTRY")].replace("inner", "outer")
         .replace("multiply", "add") + "ENTRY"),
        ("  ROOT out = (f32[4,8], f32[4,8]) tuple(t, f)",
         "  e = f32[4,8] fusion(h, w, g), kind=kLoop, calls=outer @bwd/add:7\n"
         "  ROOT out = (f32[4,8], f32[4,8], f32[4,8]) tuple(t, f, e)"),
    )  # fmt: skip
    words = "select verdict, twin_name from remat_ops order by 1"
    assert ask(text, words)[1] == ("replayed", "y")
    assert ask(text, words)[0][0] == "fusion-duplicated"
    assert ask(text, "select matmuls from remat") == [(1,)]


# -- where the label stands -----------------------------------------------------------------------

# Before optimization a layer is one computation, and its callers say what it is there.
CALLED = hlo("""
layer {
  a = f32[4,8] parameter(0)
  b = f32[8,8] parameter(1)
  y = f32[4,8] dot(a, b), PLAIN @tail/dot_general:7
  ROOT t = f32[4,8] tanh(y) @tail/tanh:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  v = f32[8,8] parameter(3)
  f = f32[4,8] call(h, w), to_apply=layer @fwd/closed_call:9
  o = f32[4,8] sine(f) @fwd/sin:9
  kept = (f32[4,8], f32[8,8]) tuple(h, w)
  bar = (f32[4,8], f32[8,8]) opt-barrier(kept)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  r = f32[4,8] call(h2, w2), to_apply=layer @remat/closed_call:9
  d = f32[4,8] multiply(g, r) @bwd/mul:9
  ROOT out = (f32[4,8], f32[4,8]) tuple(o, d)
}
""")


def test_a_label_that_comes_from_one_of_the_callers() -> None:
    sql = "select name, verdict, basis, twin_name, times from remat_ops order by instr"
    assert ask(CALLED, sql) == [
        ("y", "replayed", "value", "y", 1),
        ("t", "replayed", "value", "t", 1),
    ]
    (region,) = ask(
        CALLED,
        "select verdict, scope, matmuls, flops, recompute_factor, b.name from remat r"
        " join instructions b on b.id = barrier",
    )
    assert region == ("recomputed", "transpose(jvp(L))/checkpoint", 1, 512, 1.0, "bar")
    check_table(CALLED, NAMELESS)
    other = changed(CALLED, ("tuple(h, w)", "tuple(h, v)"))
    assert [row[:2] for row in ask(other, OPS)] == [("y", "sole"), ("t", "sole")]
    assert ask(changed(CALLED, ("@remat/closed_call:9", "@bwd/closed_call:9")), OPS) == []


def test_a_checkpoint_in_a_checkpoint_is_a_region_of_its_own() -> None:
    nested = changed(
        BEHIND,
        ("  one =", "  y3 = f32[4,8] dot(t2, w2), PLAIN @deep/dot_general:8\n  one ="),
        ("  o =", "  y1 = f32[4,8] dot(t, w), PLAIN @fwd/checkpoint/dot_general:8\n  o ="),
        ("sine(t)", "sine(y1)"),
        ("multiply(ct2, s)", "multiply(y3, s)"),
    )
    sql = "select depth, scope, verdict, matmuls from remat order by depth"
    assert ask(nested, sql) == [
        (1, "transpose(jvp(L))/checkpoint", "recomputed", 1),
        (2, "transpose(jvp(L))/checkpoint/checkpoint", "recomputed", 1),
    ]
    check_table(nested, "select depth, verdict, matmuls, operations from remat")
    # A component that only looks like it, and a label held twice.
    named = changed(
        BEHIND,
        (
            "jit(f)/transpose(jvp(L))/checkpoint/",
            "jit(f)/transpose(jvp(L))/checkpoints/checkpoint/",
        ),
    )
    assert ask(named, "select depth from remat") == [(1,)]
    twice = nested.replace("checkpoint/checkpoint/", "checkpoint/rematted_computation/checkpoint/")
    assert ask(twice, sql)[1][:2] == (
        2, "transpose(jvp(L))/checkpoint/rematted_computation/checkpoint",
    )  # fmt: skip


def test_a_product_that_lost_its_name_is_labelled_where_all_its_users_are() -> None:
    label = "@remat/dot_general:7"
    lost = changed(BEHIND, (label, ""))
    assert ask(lost, OPS)[0] == ("y2", "replayed", "value", "y")
    assert ask(lost, REGIONS) == ask(BEHIND, REGIONS)
    check_table(lost, NAMELESS)
    # The backward takes it as well: nobody knows.
    mixed = changed(lost, ("multiply(ct2, s)", "multiply(y2, s)"))
    assert "y2" not in [row[0] for row in ask(mixed, OPS)]
    # Something cheap that lost its name is no row.
    cheap = changed(BEHIND, ("@remat/tanh:7", ""))
    assert "t2" not in [row[0] for row in ask(cheap, OPS)]


def test_a_product_without_a_name_is_replayed_in_a_loop_where_the_forward_has_its_value() -> None:
    """XLA for the TPU drops the names of some, whoever takes them."""
    lost = changed(SCAN, ("dot(h2, w2), PLAIN @again/dot_general:7", "dot(h2, w2), PLAIN"))
    mixed = changed(lost, ("multiply(g, t2)", "multiply(y2, t2)"))
    for text in (lost, mixed):
        assert ask(text, OPS) == ask(SCAN, OPS)
        assert ask(text, REGIONS) == ask(SCAN, REGIONS)
        check_table(text, NAMELESS)
    # Of another layer it is no replay.
    other = changed(mixed, ("dynamic-slice(ws, k", "dynamic-slice(ws, j"))
    assert "y2" not in [row[0] for row in ask(other, OPS)]


def test_an_outer_product_sums_nothing_and_is_cheap() -> None:
    outer = changed(
        BEHIND.replace("w = f32[8,8]", "w = f32[1,8]").replace("w2 = f32[8,8]", "w2 = f32[1,8]"),
        ("h = f32[4,8] parameter", "h = f32[4,1] parameter"),
        ("h2 = f32[4,8]", "h2 = f32[4,1]"),
        ("kept = (f32[4,8], f32[8,8]", "kept = (f32[4,1], f32[1,8]"),
        ("bar = (f32[4,8], f32[8,8]", "bar = (f32[4,1], f32[1,8]"),
        ("ROOT out = (f32[4,8], f32[8,8])", "ROOT out = (f32[4,8], f32[1,8])"),
    )
    assert ask(outer, OPS)[0] == ("y2", "replayed", "value", "y")
    assert ask(outer, "select verdict, matmuls, operations from remat") == [("linearization", 0, 4)]


@pytest.mark.parametrize(
    "path", ["rematted_computations", "my_rematted_computation", "x[rematted_computation]"]
)
def test_what_only_looks_like_the_label_is_none(path: str) -> None:
    assert ask(BEHIND.replace("rematted_computation", path), OPS) == []


def test_without_the_label_a_checkpoint_is_ordinary_backward() -> None:
    assert ask(BEHIND.replace("rematted_computation/", ""), "select count(*) from remat") == [(0,)]


def test_constants_and_what_only_moves_values_are_no_rows() -> None:
    moved = changed(
        BEHIND,
        ("constant(1)", "constant(1) @remat/sub:7"),
        ("dimensions={}", "dimensions={} @remat/sub:7"),
        ("tanh(y2)", "tanh(m)"),
        ("  t2 =", "  m = f32[4,8] copy(y2) @remat/copy:7\n  t2 ="),
    )
    assert ask(moved, OPS) == ask(BEHIND, OPS)


# -- kernels and collectives ----------------------------------------------------------------------

# Each device gathers its weight and runs a kernel; both again behind the barrier.
KERNELS = hlo(
    """
ENTRY main {
  q = f32[8,8] parameter(0)
  w = f32[4,8] parameter(1)
  g = f32[8,8] parameter(2)
  r = f32[8,8] parameter(3)
  all = f32[8,8] all-gather(w), dimensions={0}, channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true @fwd/all_gather:6
  k = (f32[8,8], f32[8]) custom-call(q, all), custom_call_target="__gpu$xla.gpu.triton", api_version=API_VERSION_TYPED_FFI, backend_config={name = "fa_fwd"} @fwd/pallas_call[name=fa_fwd]:7
  o = f32[8,8] get-tuple-element(k), index=0
  s = f32[8,8] sine(o) @fwd/sin:8
  kept = (f32[8,8], f32[4,8], f32[8,8]) tuple(q, w, g)
  bar = (f32[8,8], f32[4,8], f32[8,8]) opt-barrier(kept)
  q2 = f32[8,8] get-tuple-element(bar), index=0
  w2 = f32[4,8] get-tuple-element(bar), index=1
  g2 = f32[8,8] get-tuple-element(bar), index=2
  all2 = f32[8,8] all-gather(w2), dimensions={0}, channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true @remat/all_gather:6
  k2 = (f32[8,8], f32[8]) custom-call(q2, all2), custom_call_target="__gpu$xla.gpu.triton", api_version=API_VERSION_TYPED_FFI, backend_config={name = "fa_fwd"} @remat/pallas_call[name=fa_fwd]:7
  lse = f32[8] get-tuple-element(k2), index=1
  k3 = f32[8,8] custom-call(q2, all2, g2, lse), custom_call_target="__gpu$xla.gpu.triton", api_version=API_VERSION_TYPED_FFI, backend_config={name = "fa_dq"} @bwd/pallas_call[name=fa_dq]:7
  ROOT out = (f32[8,8], f32[8,8]) tuple(s, k3)
}
""",  # noqa: E501
    partitions=2,
)


def test_replayed_kernels_and_collectives() -> None:
    sql = "select name, work, verdict, twin_name, flops from remat_ops order by instr"
    assert ask(KERNELS, sql) == [
        ("all2", "collective", "replayed", "all", None),
        ("k2", "kernel", "replayed", "k", None),
    ]
    counts = "select verdict, matmuls, kernels, collectives, flops, recompute_factor from remat"
    assert ask(KERNELS, counts) == [("recomputed", 0, 1, 1, 0, None)]
    check_table(KERNELS, "select work, verdict, basis from remat_ops")
    check_table(KERNELS, REGIONS)


def test_a_kernel_of_other_operands_or_of_another_configuration_is_sole() -> None:
    """What is saved is no more replayed, and another kernel never was."""
    other = changed(KERNELS, ("tuple(q, w, g)", "tuple(r, w, g)"))
    rows = "select name, verdict from remat_ops order by instr"
    assert ask(other, rows) == [("all2", "replayed"), ("k2", "sole")]
    assert ask(other, REGIONS) == [("recomputed", 0, 0, 1, 2)]
    told = 'backend_config={{name = "{0}"}} @remat/pallas_call[name={0}]:7'
    configured = changed(KERNELS, (told.format("fa_fwd"), told.format("fa_two")))
    assert ask(configured, rows) == [("all2", "replayed"), ("k2", "sole")]


REDUCED = hlo(
    """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  h = f32[4,8] parameter(0)
  r = f32[4,8] all-reduce(h), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add @fwd/psum:7
  t = f32[4,8] tanh(r) @fwd/tanh:7
  bar = f32[4,8] opt-barrier(h)
  r2 = f32[4,8] all-reduce(bar), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add @remat/psum:7
  d = f32[4,8] cosine(r2) @bwd/cos:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(t, d)
}
""",  # noqa: E501
    partitions=4,
)


def test_a_collective_over_other_devices_computes_another_value() -> None:
    assert ask(REDUCED, OPS) == [("r2", "replayed", "value", "r")]
    assert ask(REDUCED, REGIONS) == [("recomputed", 0, 0, 1, 1)]
    check_table(REDUCED, NAMELESS)
    channel = "channel_id=2, replica_groups="
    others = changed(REDUCED, (channel + "{{0,1},{2,3}}", channel + "{{0,2},{1,3}}"))
    assert ask(others, "select basis from remat_ops") != [("value",)]
    moved = changed(others, ("@remat/psum:7", "@remat/psum:6"))
    assert ask(moved, OPS) == [("r2", "sole", "use", None)]


# -- undone: both stages --------------------------------------------------------------------------

# Two layers under one scope, each replayed behind its barrier.
LAYERS = hlo("""
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  v = f32[8,8] parameter(2)
  y = f32[4,8] dot(x, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y) @fwd/tanh:7
  z = f32[4,8] dot(t, v), PLAIN @fwd/dot_general:7
  u = f32[4,8] tanh(z) @fwd/tanh:7
  o = f32[4,8] sine(u) @fwd/sin:8
  kept = (f32[4,8], f32[8,8]) tuple(t, v)
  bar = (f32[4,8], f32[8,8]) opt-barrier(kept)
  t1 = f32[4,8] get-tuple-element(bar), index=0
  v1 = f32[8,8] get-tuple-element(bar), index=1
  z2 = f32[4,8] dot(t1, v1), PLAIN @remat/dot_general:7
  c = f32[4,8] cosine(z2) @bwd/cos:7
  d = f32[4,8] dot(c, v1), lhs_contracting_dims={1}, rhs_contracting_dims={1} @bwd/dot_general:7
  kept2 = (f32[4,8], f32[8,8], f32[4,8]) tuple(x, w, d)
  bar2 = (f32[4,8], f32[8,8], f32[4,8]) opt-barrier(kept2)
  x1 = f32[4,8] get-tuple-element(bar2), index=0
  w1 = f32[8,8] get-tuple-element(bar2), index=1
  d1 = f32[4,8] get-tuple-element(bar2), index=2
  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7
  c2 = f32[4,8] cosine(y2) @bwd/cos:7
  e = f32[4,8] multiply(c2, d1) @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(o, e)
}
""")
# The barriers are gone: without them, what stands there twice may be merged.
KEPT = changed(LAYERS, ("opt-barrier(kept)", "copy(kept)"), ("opt-barrier(kept2)", "copy(kept2)"))
MERGED_BOTH = changed(
    KEPT,
    ("dot(x, w), PLAIN @fwd/dot_general:7", "dot(x, w), PLAIN @remat/dot_general:7"),
    ("  z2 = f32[4,8] dot(t1, v1), PLAIN @remat/dot_general:7\n", ""),
    ("  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7\n", ""),
    ("cosine(z2)", "cosine(z)"),
    ("cosine(y2)", "cosine(y)"),
)
MERGED_ONE = changed(
    KEPT,
    ("  z2 = f32[4,8] dot(t1, v1), PLAIN @remat/dot_general:7\n", ""),
    ("cosine(z2)", "cosine(z)"),
)


@pytest.mark.parametrize(
    ("after", "rows", "said"),
    [
        (MERGED_BOTH, [("undone", 0, 2)], "undone for 2 of 2 operations"),
        (MERGED_ONE, [("recomputed", 1, 1)], "undone for 1 of 2 operations"),
        (KEPT, [("recomputed", 2, 0)], None),
    ],
    ids=["all", "a part", "none"],
)
def test_what_is_undone(after: str, rows: list[tuple[object, ...]], said: str | None) -> None:
    facts = Facts(program(LAYERS, after))
    sql = "select verdict, matmuls, undone from remat where module = {} order by id"
    assert run_query([facts], sql.format(1)).rows == rows
    # Before optimization each barrier has its region, and all say what became of the scope.
    assert run_query([facts], sql.format(0)).rows == [("recomputed", 1, rows[0][2])] * 2
    undone = [one for one in facts.findings if one.rule == "remat-undone"]
    assert [one.module for one in undone] == ([] if said is None else [1])
    assert all(said is not None and said in one.message for one in undone)


def test_what_is_undone_without_a_trace() -> None:
    """No label is left after optimization: then the text before it is told of, once."""
    gone = changed(
        KEPT,
        ("  z2 = f32[4,8] dot(t1, v1), PLAIN @remat/dot_general:7\n", ""),
        ("  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7\n", ""),
        ("cosine(z2)", "cosine(z)"),
        ("cosine(y2)", "cosine(y)"),
    )
    facts = Facts(program(LAYERS, gone))
    assert run_query([facts], "select module, undone from remat").rows == [(0, 2), (0, 2)]
    (undone,) = [one for one in facts.findings if one.rule == "remat-undone"]
    assert undone.module == 0
    assert "undone for 2 of 2 operations" in undone.message


def test_each_barrier_has_its_region_and_the_factors_of_a_scope_add_up() -> None:
    sql = "select b.name, verdict, matmuls, flops, forward_flops, recompute_factor from remat r"
    assert ask(LAYERS, sql + " join instructions b on b.id = barrier") == [
        ("bar", "recomputed", 1, 512, 1024, 0.5),
        ("bar2", "recomputed", 1, 512, 1024, 0.5),
    ]
    assert ask(KEPT, "select barrier, matmuls, recompute_factor from remat") == [(None, 2, 1.0)]


def test_one_stage_says_nothing_of_what_is_undone() -> None:
    for text in (LAYERS, MERGED_BOTH):
        assert set(ask(text, "select undone from remat")) == {(None,)}
        assert "remat-undone" not in [rule for rule, _ in findings(text, "remat")]
    assert ask(MERGED_BOTH, "select verdict from remat") == [("shared",)]


@pytest.mark.parametrize("after", [MERGED_BOTH, MERGED_ONE], ids=["all", "a part"])
def test_undone_under_rewrites(after: str) -> None:
    sql = "select module, verdict, matmuls, undone from remat order by module, verdict"
    # Where all is undone already, no rewrite makes it more so.
    check_table(after, lambda text: both(LAYERS, text, sql), must_change=after is MERGED_ONE)
    check_table(LAYERS, lambda text: both(text, after, sql))


GATHERED = hlo(
    """
ENTRY main {
  a = f32[4,8] parameter(0)
  b = f32[4,8] parameter(1)
  a1 = f32[8,8] all-gather(a), dimensions={0}, channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true @fwd/all_gather:6
  b1 = f32[8,8] all-gather(b), dimensions={0}, channel_id=2, replica_groups={{0,1}}, use_global_device_ids=true @fwd/all_gather:6
  s = f32[8,8] add(a1, b1) @fwd/add:7
  bar = (f32[4,8], f32[4,8]) opt-barrier((f32[4,8], f32[4,8]) tuple(a, b))
  a2 = f32[8,8] all-gather(bar#0), dimensions={0}, channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true @remat/all_gather:6
  b2 = f32[8,8] all-gather(bar#1), dimensions={0}, channel_id=4, replica_groups={{0,1}}, use_global_device_ids=true @remat/all_gather:6
  d = f32[8,8] multiply(a2, b2) @bwd/mul:7
  ROOT out = (f32[8,8], f32[8,8]) tuple(s, d)
}
""",  # noqa: E501
    partitions=2,
)
_ROW = "dimensions={0}, channel_id=3, replica_groups={{0,1}}, use_global_device_ids=true"
COMBINED = changed(
    GATHERED,
    (f"  a2 = f32[8,8] all-gather(bar#0), {_ROW} @remat/all_gather:6\n", ""),
    (
        f"  b2 = f32[8,8] all-gather(bar#1), {_ROW.replace('3', '4')} @remat/all_gather:6\n",
        f"  ab = (f32[8,8], f32[8,8]) all-gather(bar#0, bar#1), {_ROW} @remat/all_gather:6\n",
    ),
    ("multiply(a2, b2)", "multiply(ab#0, ab#1)"),
)


def test_collectives_that_are_combined_are_not_undone() -> None:
    sql = "select module, collectives, undone from remat order by module"
    assert both(GATHERED, COMBINED, sql) == [(0, 2, 0), (1, 1, 0)]


# Two products of one operand, replayed; and as one, of their weights put together.
GATED = hlo("""
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  v = f32[8,8] parameter(2)
  y = f32[4,8] dot(x, w), PLAIN @fwd/dot_general:7
  z = f32[4,8] dot(x, v), PLAIN @fwd/dot_general:7
  t = f32[4,8] multiply(y, z) @fwd/mul:7
  o = f32[4,8] sine(t) @fwd/sin:8
  kept = (f32[4,8], f32[8,8], f32[8,8]) tuple(x, w, v)
  bar = (f32[4,8], f32[8,8], f32[8,8]) opt-barrier(kept)
  x1 = f32[4,8] get-tuple-element(bar), index=0
  w1 = f32[8,8] get-tuple-element(bar), index=1
  v1 = f32[8,8] get-tuple-element(bar), index=2
  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7
  z2 = f32[4,8] dot(x1, v1), PLAIN @remat/dot_general:7
  d = f32[4,8] multiply(y2, z2) @remat/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(o, d)
}
""")
_JOINED = """  {0}wv = f32[8,16] concatenate({1}), dimensions={{1}}
  {0}yz = f32[4,16] dot({2}), PLAIN @{3}/dot_general:7
  {4} = f32[4,8] slice({0}yz), slice={{[0:4], [0:8]}} @{3}/dot_general:7
  {5} = f32[4,8] slice({0}yz), slice={{[0:4], [8:16]}} @{3}/dot_general:7
"""
JOINED = changed(
    GATED,
    ("  y = f32[4,8] dot(x, w), PLAIN @fwd/dot_general:7\n", ""),
    ("  z = f32[4,8] dot(x, v), PLAIN @fwd/dot_general:7\n",
     _JOINED.format("f", "w, v", "x, fwv", "fwd", "y", "z")),
    ("  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7\n", ""),
    ("  z2 = f32[4,8] dot(x1, v1), PLAIN @remat/dot_general:7\n",
     _JOINED.format("r", "w1, v1", "x1, rwv", "remat", "y2", "z2")),
)  # fmt: skip


def test_products_that_are_merged_are_not_undone() -> None:
    sql = "select module, matmuls, flops, undone from remat order by module"
    assert both(GATED, JOINED, sql) == [(0, 2, 1024, 0), (1, 1, 1024, 0)]
    # One of the two is gone.
    one = changed(
        GATED,
        ("  y2 = f32[4,8] dot(x1, w1), PLAIN @remat/dot_general:7\n", ""),
        ("multiply(y2, z2)", "multiply(y, z2)"),
    )
    assert both(GATED, one, sql) == [(0, 2, 1024, 1), (1, 1, 512, 1)]


_CONVOLUTION = "convolution({}, k), window={{size=3 pad=1_1}}, dim_labels=b0f_0io->b0f"


def convolved(again: str) -> str:
    """A convolution, and what stands for it in the backward."""
    return hlo(f"""
ENTRY main {{
  x = f32[2,16,8] parameter(0)
  k = f32[3,8,8] parameter(1)
  y = f32[2,16,8] {_CONVOLUTION.format("x")} @fwd/conv_general_dilated:7
  t = f32[2,16,8] tanh(y) @fwd/tanh:7
  bar = f32[2,16,8] opt-barrier(x)
{again}
  ROOT out = (f32[2,16,8], f32[2,16,8]) tuple(t, c)
}}
""")


def test_a_convolution_is_replayed_and_undone_as_a_kernel_is() -> None:
    label = "@remat/conv_general_dilated:7"
    before = convolved(
        f"  y2 = f32[2,16,8] {_CONVOLUTION.format('bar')} {label}\n"
        "  c = f32[2,16,8] cosine(y2) @bwd/cos:7"
    )
    after = convolved("  c = f32[2,16,8] cosine(y) @bwd/cos:7")
    sql = "select module, verdict, kernels, matmuls, undone from remat order by module"
    assert both(before, after, sql) == [(0, "recomputed", 1, 0, 1)]
    assert both(before, before, sql) == [(0, "recomputed", 1, 0, 0), (1, "recomputed", 1, 0, 0)]


def test_another_kind_of_work_does_not_stand_for_what_is_undone() -> None:
    """Partitioning adds gathers to the replay, of which there was none before."""
    gathers = changed(
        MERGED_BOTH,
        ("  z =", "  all = f32[8,8] all-gather(x), dimensions={0} @fwd/all_gather:6\n  z ="),
        ("  w1 =", "  all1 = f32[8,8] all-gather(x1), dimensions={0} @remat/all_gather:6\n  w1 ="),
    )
    sql = "select collectives, undone from remat where module = 1"
    assert both(LAYERS, gathers, sql) == [(1, 2)]


def test_another_scope_undoes_nothing() -> None:
    """A region of another path after optimization takes the place of none."""
    other = KEPT.replace("(L)", "(M)")
    sql = "select module, undone from remat order by module"
    assert both(LAYERS, other, sql) == [(0, 2), (0, 2), (1, None)]


def test_a_text_of_another_program_undoes_nothing() -> None:
    """A dump folder may hold a text that is left from an earlier compile."""
    other = MERGED_BOTH.replace("HloModule m", "HloModule another")
    assert set(both(LAYERS, other, "select undone from remat")) == {(None,)}
    assert set(both(LAYERS, MERGED_BOTH, "select undone from remat")) == {(2,)}


# -- the compiler's own ---------------------------------------------------------------------------

COMPILER = hlo("""
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  y.3 = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  t = f32[4,8] tanh(y.3) @fwd/tanh:7
  y.3.remat2 = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  c = f32[4,8] cosine(y.3.remat2) @bwd/cos:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(t, c)
}
""")


def test_what_the_compiler_makes_again_is_apart() -> None:
    sql = "select kind, name, verdict, twin_name from remat_ops"
    assert ask(COMPILER, sql) == [("compiler", "y.3.remat2", "replayed", "y.3")]
    columns = "select kind, scope, depth, verdict, matmuls, flops, forward_flops from remat"
    assert ask(COMPILER, columns) == [("compiler", None, None, "recomputed", 1, 512, None)]
    # No label tells it: it is there without metadata as well.
    check_table(COMPILER, "remat_ops")
    check_table(COMPILER, "remat")


@pytest.mark.parametrize(
    "name", ["remat2.10", "remat.3", "y.3.rematted", "y_remat2", "y.3.remat2x"]
)
def test_a_name_that_only_looks_like_the_compilers(name: str) -> None:
    assert ask(COMPILER.replace("y.3.remat2", name), "select kind from remat_ops") == []


@pytest.mark.parametrize("name", ["y.3.remat", "y.3.remat2", "y.3.remat.1", "y.remat3.clone"])
def test_a_name_that_is_the_compilers(name: str) -> None:
    rows = ask(COMPILER.replace("y.3.remat2", name), "select kind, verdict from remat_ops")
    assert rows == [("compiler", "replayed")]


def test_a_compilers_name_on_what_nothing_else_computes_is_unknown() -> None:
    other = changed(COMPILER, ("remat2 = f32[4,8] dot(h, w)", "remat2 = f32[4,8] dot(t, w)"))
    sql = "select kind, verdict, basis, twin from remat_ops"
    assert ask(other, sql) == [("compiler", "unknown", None, None)]


# -- without names --------------------------------------------------------------------------------


def nameless(text: str) -> str:
    return re.sub(r", metadata=\{[^}]*\}", "", text)


UNLABELLED = "select kind, name, verdict, basis, twin_name from remat_ops"


def test_without_names_what_a_barrier_hides_is_told_by_structure() -> None:
    text = nameless(BEHIND)
    assert ask(text, UNLABELLED) == [("unlabelled", "y2", "replayed", "value", "y")]
    sql = "select r.kind, scope, depth, verdict, matmuls, flops, forward_flops, b.name from remat r"
    assert ask(text, sql + " join instructions b on b.id = barrier") == [
        ("unlabelled", None, None, "recomputed", 1, 512, None, "bar")
    ]
    said = "no op_names, so labels cannot tell what is rematerialized; by structure: {}"
    one = said.format("1 instructions compute again what an earlier one does")
    assert findings(text, "remat") == [("remat-without-names", one)]
    check_table(text, "remat_ops")
    check_table(text, "remat")
    other = nameless(changed(BEHIND, ("tuple(h, w, ct)", "tuple(h, v, ct)")))
    assert ask(other, UNLABELLED) == []
    assert findings(other, "remat") == [("remat-without-names", said.format("no replay"))]


def test_without_names_a_plain_duplicate_is_no_row() -> None:
    plain = changed(nameless(BEHIND), ("opt-barrier(kept)", "copy(kept)"))
    assert ask(plain, UNLABELLED) == []


def test_without_names_a_backward_loop_is_known_by_what_it_reads() -> None:
    text = nameless(SCAN)
    assert ask(text, UNLABELLED) == [("unlabelled", "y2", "replayed", "value", "y")]
    sql = "select kind, matmuls, flops, saved_bytes, loop_name from remat"
    assert ask(text, sql) == [("unlabelled", 1, 2048, 512, "v")]
    check_table(text, "remat_ops")
    # Another layer than the forward's.
    assert ask(changed(text, ("ws, k", "ws, j")), UNLABELLED) == []


def test_one_name_is_enough_to_ask_the_names() -> None:
    one = changed(nameless(BEHIND), ("sine(t)", "sine(t) @fwd/sin:8"))
    assert ask(one, UNLABELLED) == []
    assert findings(one, "remat") == []


def test_a_text_that_computes_nothing_heavy_needs_no_names() -> None:
    text = "HloModule m\nENTRY main {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] tanh(x)\n}\n"
    assert findings(text, "remat") == []


# -- a value that is stacked twice ----------------------------------------------------------------


def twice(part: str, dtype: str = "f32") -> str:
    """SCAN whose forward also stacks `part`; the backward reads both."""
    carry = "(s32[], f32[4,8], f32[4,4,8], f32[4,8,8]"
    text = SCAN.replace(carry, f"{carry}, {dtype}[4,4,8]")
    return changed(
        text,
        ("  next = s32[] add(i, one)",
         f"  also = {dtype}[4,4,8] get-tuple-element(p), index=4\n"
         f"  cast = {dtype}[4,8] convert({part})\n"
         f"  part2 = {dtype}[1,4,8] reshape(cast)\n"
         f"  new2 = {dtype}[4,4,8] dynamic-update-slice(also, part2, i, zero, zero)\n"
         "  next = s32[] add(i, one)"),
        ("tuple(next, t, new, ws)", "tuple(next, t, new, ws, new2)"),
        ("  c = f32[4,8] multiply(g, t2)",
         f"  stack2 = {dtype}[4,4,8] get-tuple-element(p), index=4\n"
         f"  line2 = {dtype}[1,4,8] dynamic-slice(stack2, k, zero, zero),"
         " dynamic_slice_sizes={1,4,8}\n"
         f"  flat2 = {dtype}[4,8] reshape(line2)\n"
         "  also = f32[4,8] convert(flat2)\n"
         "  t3 = f32[4,8] multiply(t2, also) @back/mul:7\n"
         "  c = f32[4,8] multiply(g, t3)"),
        ("tuple(next, d, stack, ws)", "tuple(next, d, stack, ws, stack2)"),
        ("  b = ", f"  s2 = {dtype}[4,4,8] get-tuple-element(w), index=4\n  b = "),
        ("  a = ", f"  buffer2 = {dtype}[4,4,8] convert(buffer)\n  a = "),
        ("tuple(z, x, buffer, ws)", "tuple(z, x, buffer, ws, buffer2)"),
        ("tuple(z, g, s, ws)", "tuple(z, g, s, ws, s2)"),
    )  # fmt: skip


def test_a_value_that_a_loop_stacks_twice() -> None:
    kinds = "select kind from residuals where kind = 'stacked'"
    for part, said in (
        ("h", "w stacks one value twice, as elements 2 and 4 (f32[4,4,8])"),
        ("t", None),
        ("y", None),
    ):
        text = twice(part)
        assert ask(text, kinds) == [("stacked",)] * 2
        assert findings(text, "remat") == [("residual-saved-twice", said)] * (said is not None)
    check_table(twice("h"), lambda text: [rule for rule, _ in findings(text, "remat")])
    # In another dtype it is the same value.
    assert [rule for rule, _ in findings(twice("h", "bf16"), "remat")] == ["residual-saved-twice"]
    assert findings(twice("t", "bf16"), "remat") == []


# -- the published cases, as texts of their own ---------------------------------------------------


def test_every_labelled_instruction_is_behind_the_barrier_or_not() -> None:
    """Case 01: the members of the region, and the operands of what it replays."""
    sql = """select i.name from members m join instructions i on i.id = m.instr
             where m."table" = 'remat' and m.role = '{}' order by i.id"""
    roles = {role: [name for (name,) in ask(BEHIND, sql.format(role))]
             for role in ("barrier", "loop", "replayed", "twin", "operation")}  # fmt: skip
    assert roles == {
        "barrier": ["bar"], "loop": [], "replayed": ["y2", "t2"], "twin": ["y", "t"],
        "operation": ["sq", "s"],
    }  # fmt: skip
    names = "select b.name, verdict from remat left join instructions b on b.id = barrier"
    assert ask(BEHIND, names) == [("bar", "recomputed")]
    # The replay does not go through the barrier.
    around = changed(BEHIND, ("dot(h2, w2)", "dot(h, w)"))
    assert ask(around, names) == [(None, "recomputed")]
    # One of its operands does.
    half = changed(BEHIND, ("dot(h2, w2)", "dot(h, w2)"))
    assert ask(half, names) == [("bar", "recomputed")]


def test_a_forward_kernel_runs_again_unless_its_result_is_saved() -> None:
    """Case 13: with the policy that saves it, the kernel runs once."""
    runs = "select count(*) from custom_calls where kernel = 'fa_fwd'"
    again = "select count(*) from remat_ops where work = 'kernel' and verdict = 'replayed'"
    assert (ask(KERNELS, runs), ask(KERNELS, again)) == ([(2,)], [(1,)])
    line = next(one for one in KERNELS.splitlines() if one.startswith("  k2 ="))
    saved = changed(KERNELS, (line + "\n", ""), ("get-tuple-element(k2)", "get-tuple-element(k)"))
    assert (ask(saved, runs), ask(saved, again)) == ([(1,)], [(0,)])


def test_a_policy_that_names_the_product_leaves_none_to_replay() -> None:
    """Case 33: mistyped, the loop keeps its input alone and multiplies again."""
    counts = "select matmuls, (select count(*) from residuals where kind = 'stacked') from remat"
    assert ask(SCAN, counts) == [(1, 1)]
    honoured = changed(
        twice("y"),
        ("  y2 = f32[4,8] dot(h2, w2), PLAIN @again/dot_general:7\n", ""),
        ("  t2 = f32[4,8] tanh(y2) @again/tanh:7\n", ""),
        ("multiply(t2, also) @back/mul:7", "multiply(t2, h2) @back/mul:7"),
        ("  t3 =", "  t2 = f32[4,8] tanh(also) @again/tanh:7\n  t3 ="),
    )
    assert ask(honoured, counts) == [(0, 2)]
    words = "select opcode, verdict, twin_name from remat_ops"
    assert ask(honoured, words) == [("tanh", "replayed", "t")]
    assert ask(honoured, "select verdict, recompute_factor, saved_bytes from remat") == [
        ("replayed", 0.0, 1024)
    ]
    check_table(honoured, NAMELESS)


# -- size -----------------------------------------------------------------------------------------


def unrolled(layers: int) -> str:
    """Layers of tanh(x @ w), and a backward that replays each behind a barrier of its own."""
    shapes = "(f32[4,8], f32[8,8], f32[4,8])"
    lines = ["ENTRY main {", "  x0 = f32[4,8] parameter(0)", "  w = f32[8,8] parameter(1)"]
    for k in range(layers):
        lines.append(f"  y{k} = f32[4,8] dot(x{k}, w), PLAIN @fwd/dot_general:7")
        lines.append(f"  x{k + 1} = f32[4,8] tanh(y{k}) @fwd/tanh:7")
    lines.append(f"  g{layers} = f32[4,8] multiply(x{layers}, x{layers}) @bwd/mul:7")
    for k in reversed(range(layers)):
        lines.append(f"  kept{k} = {shapes} tuple(x{k}, w, g{k + 1})")
        lines.append(f"  bar{k} = {shapes} opt-barrier(kept{k})")
        for at, shape in enumerate(("f32[4,8]", "f32[8,8]", "f32[4,8]")):
            lines.append(f"  e{k}.{at} = {shape} get-tuple-element(bar{k}), index={at}")
        lines.append(f"  z{k} = f32[4,8] dot(e{k}.0, e{k}.1), PLAIN @remat/dot_general:7")
        lines.append(f"  t{k} = f32[4,8] tanh(z{k}) @remat/tanh:7")
        lines.append(f"  g{k} = f32[4,8] multiply(e{k}.2, t{k}) @bwd/mul:7")
    return hlo("\n".join(["", *lines, "  ROOT out = f32[4,8] copy(g0)", "}", ""]))


def work(layers: int) -> int:
    """How many functions are called for the table remat, with what it requires."""
    facts = Facts(Program([parse(unrolled(layers))]))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        rows = facts.rows("remat")
    finally:
        sys.setprofile(None)
    assert len(rows) == layers
    return calls


def test_twice_the_layers_are_twice_the_work() -> None:
    work(5)  # what is read once
    assert work(80) < 2.2 * work(40)
