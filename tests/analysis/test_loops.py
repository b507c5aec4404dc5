"""Loops: nesting, where they come from, what they stack."""

from __future__ import annotations

import pytest

from hlo_lens.analysis import ModuleAnalysis, origin, stacked
from hlo_lens.hlo import parse
from tests.analysis.loop_texts import loop_text, only_loop
from tests.analysis.test_trips import NESTED

# -- nesting --------------------------------------------------------------------------------------


def test_loops_stand_in_each_other() -> None:
    module = parse(NESTED)
    analysis = ModuleAnalysis(module)
    inner, outer = analysis.loops
    assert (inner.parent, inner.depth, outer.parent, outer.depth) == (outer, 2, None, 1)
    places = {
        computation.name: (analysis.loop(computation), analysis.loop_depth(computation))
        for computation in module.computations
    }
    assert places == {
        "main": (None, 0),
        "outer_body": (outer, 1),
        "outer_cond": (outer, 1),
        "inner_body": (inner, 2),
        "inner_cond": (inner, 2),
    }


CALLED = """HloModule m
f {{ a = f32[] parameter(0)  ROOT n = f32[] negate(a) }}
g {{ a = f32[] parameter(0)  ROOT n = f32[] call(a), to_apply=f }}
body {{
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  y = f32[] call(x), to_apply={inside}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[]) tuple(next, y)
}}
cond {{
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[] parameter(0)
  o = f32[] {outside}
  z = s32[] constant(0)
  t = (s32[], f32[]) tuple(z, o)
  ROOT w = (s32[], f32[]) while(t), condition=cond, body=body
}}
"""


def test_what_a_body_calls_is_in_the_loop() -> None:
    module = parse(CALLED.format(inside="g", outside="copy(x)"))
    analysis = ModuleAnalysis(module)
    assert analysis.loop(module.computations["f"]) is analysis.loops[0]
    assert analysis.loop_depth(module.computations["f"]) == 1


def test_where_callers_differ_there_is_no_loop() -> None:
    module = parse(CALLED.format(inside="g", outside="call(x), to_apply=f"))
    analysis = ModuleAnalysis(module)
    shared = module.computations["f"]
    assert (analysis.loop(shared), analysis.loop_depth(shared)) == (None, None)
    assert analysis.loop(module.computations["g"]) is analysis.loops[0]


# -- where a loop comes from ----------------------------------------------------------------------


def name(op_name: str) -> str:
    return f', metadata={{op_name="{op_name}"}}'


@pytest.mark.parametrize(
    ("op_name", "made", "op"),
    [
        ("jit(f)/jvp()/while", False, None),
        ("jit(f)/while/body/closed_call/vmap(while)", False, None),
        ("jit(f)/while[cond_nconsts=0 body_nconsts=1]", False, None),
        ("model/while_1", False, None),
        ("jit(scatter_add)/vmap(scatter-add)", True, "scatter-add"),
        ("jit(f)/while/body/closed_call/cholesky", True, "cholesky"),
        ("jit(f)/meanwhile", True, "meanwhile"),
    ],
)
def test_the_op_name_tells_who_made_a_loop(op_name: str, made: bool, op: str | None) -> None:
    found = origin(only_loop(loop_text(attributes=name(op_name))))
    assert (found.compiler_made, found.op) == (made, op)


def test_without_a_name_nobody_knows_who_made_a_loop() -> None:
    assert origin(only_loop(loop_text())).compiler_made is None


def test_a_windowed_einsum_is_the_compilers() -> None:
    text = loop_text(attributes=name("jit(f)/jvp()/while/body/closed_call/mlp/dot_general"))
    found = origin(only_loop(text.replace("body", "windowed_dot_general_body_ag")))
    assert (found.compiler_made, found.op) == (True, "dot_general")


# -- stacked elements -----------------------------------------------------------------------------

STACKS = """HloModule m
{before}
body {{
  p = (s32[], f32[4,8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  ys = f32[4,8] get-tuple-element(p), index=1
  x = f32[8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  three = s32[] constant(3)
  y = f32[1,8] reshape(x)
{update}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4,8], f32[8]) tuple(next, new, x)
}}
cond {{
  p = (s32[], f32[4,8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[8] parameter(0)
  b = f32[4,8] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[4,8], f32[8]) tuple(z, b, x)
  ROOT w = (s32[], f32[4,8], f32[8]) while(t), condition=cond, body=body
}}
"""
FUSED_UPDATE = """
f {
  b = f32[4,8] parameter(0)
  j = s32[] parameter(1)
  v = f32[8] parameter(2)
  u = f32[1,8] bitcast(v)
  zero = s32[] constant(0)
  ROOT d = f32[4,8] dynamic-update-slice(b, u, j, zero)
}
"""


def stacks(update: str, before: str = "") -> list[tuple[int, int, int, int | None, int | None]]:
    analysis = ModuleAnalysis(parse(STACKS.format(update=update, before=before)))
    (loop,) = analysis.loops
    return [
        (one.index, one.dimension, one.step, one.bytes, one.bytes_per_iteration)
        for one in stacked(analysis.graph, loop)
    ]


UP = [(1, 0, 1, 128, 32)]
DOWN = [(1, 0, -1, 128, 32)]


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("  new = f32[4,8] dynamic-update-slice(ys, y, i, zero)", UP),
        (
            "  c = f32[4,8] copy(ys)\n  d = f32[4,8] dynamic-update-slice(c, y, i, zero)\n"
            "  new = f32[4,8] copy(d)",
            UP,
        ),
        (
            "  j = s32[] subtract(three, i)\n"
            "  new = f32[4,8] dynamic-update-slice(ys, y, j, zero)",
            DOWN,
        ),
        (
            "  s = s32[] subtract(three, i)\n  four = s32[] constant(4)\n"
            "  neg = pred[] compare(s, zero), direction=LT\n  up = s32[] add(s, four)\n"
            "  j = s32[] select(neg, up, s)\n"
            "  new = f32[4,8] dynamic-update-slice(ys, y, j, zero)",
            DOWN,
        ),
    ],
)
def test_an_update_at_the_induction_variable_stacks(
    update: str, expected: list[tuple[int, int, int, int, int]]
) -> None:
    assert stacks(update) == expected


def test_the_slice_counts_as_the_buffer_holds_it() -> None:
    # TPU text writes f32 into bf16, and converts the buffer around the update.
    update = "  new = f32[4,8] dynamic-update-slice(ys, y, i, zero)"
    text = STACKS.format(update=update, before="").replace("f32[4,8]", "bf16[4,8]")
    wide = STACKS.format(
        update="  w = f32[4,8] convert(ys)\n  d = f32[4,8] dynamic-update-slice(w, y, i, zero)\n"
        "  new = bf16[4,8] convert(d)",
        before="",
    )
    for at in ("ys = ", "b = ", "s32[], "):
        wide = wide.replace(f"{at}f32[4,8]", f"{at}bf16[4,8]")
    for one in (text, wide):
        analysis = ModuleAnalysis(parse(one))
        (found,) = stacked(analysis.graph, analysis.loops[0])
        assert (found.bytes, found.bytes_per_iteration) == (64, 16)


@pytest.mark.parametrize(
    "call", ["fusion(ys, i, x), kind=kLoop, calls=f", "call(ys, i, x), to_apply=f"]
)
def test_an_update_in_a_fusion_or_call_stacks(call: str) -> None:
    assert stacks(f"  new = f32[4,8] {call}", FUSED_UPDATE) == UP


@pytest.mark.parametrize(
    "update",
    [
        "  new = f32[4,8] dynamic-update-slice(ys, y, zero, zero)",
        "  k = s32[] convert(x)\n  new = f32[4,8] dynamic-update-slice(ys, y, k, zero)",
        "  ne = f32[4,8] negate(ys)\n  new = f32[4,8] dynamic-update-slice(ne, y, i, zero)",
        "  v = f32[1,4] slice(y), slice={[0:1], [0:4]}\n"
        "  new = f32[4,8] dynamic-update-slice(ys, v, i, zero)",
        "  new = f32[4,8] add(ys, ys)",
        "  new = f32[4,8] copy(ys)",
    ],
)
def test_what_looks_like_stacking_and_is_not(update: str) -> None:
    assert stacks(update) == []
