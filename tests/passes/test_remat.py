"""The remat tables on small texts: each verdict, and a text that looks alike and has another."""

from __future__ import annotations

import re

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program
from tests.mutate import check_table
from tests.passes.asking import ask

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
