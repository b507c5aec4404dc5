"""Where values come from and where they go, through moves and across calls."""

from __future__ import annotations

import pytest

from hlo_lens.analysis import (
    MOVES,
    CallGraph,
    Value,
    constant_value,
    consumers,
    is_invariant,
    producer,
    through,
    trace,
    value_source,
)
from hlo_lens.analysis.dataflow import steps
from hlo_lens.hlo import Instruction, Module, parse


def find(module: Module, name: str) -> Instruction:
    (instr,) = (
        found for c in module.computations if (found := c.instructions.get(name)) is not None
    )
    return instr


def made_by(text: str, name: str) -> str:
    module = parse(text)
    return producer(CallGraph(module), find(module, name)).name


def source(text: str, name: str) -> tuple[str, str, tuple[int, ...]]:
    module = parse(text)
    found = value_source(CallGraph(module), find(module, name))
    return found.kind, found.instr.name, found.path


def used_by(text: str, name: str, *, enter: bool = True) -> list[str]:
    module = parse(text)
    found = consumers(CallGraph(module), find(module, name), enter=enter)
    return [instr.name for instr in found]


MOVED = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[2,2] bitcast(a)
  c = bf16[2,2] convert(b)
  d = bf16[2,2] copy(c)
  t = (f32[4], bf16[2,2]) tuple(x, d)
  o = (f32[4], bf16[2,2]) opt-barrier(t)
  g = bf16[2,2] get-tuple-element(o), index=1
  s = bf16[2,2] custom-call(g), custom_call_target="Sharding", sharding={replicated}
  cs = (bf16[2,2], bf16[2,2], u32[]) copy-start(s)
  cd = bf16[2,2] copy-done(cs)
  k = bf16[2,2] custom-call(cd), custom_call_target="kernel"
  ROOT r = bf16[2,2] transpose(k), dimensions={1,0}
}
"""


def test_moves_are_passed_both_ways() -> None:
    assert [made_by(MOVED, name) for name in ("b", "d", "g", "s", "cd")] == ["a"] * 5
    assert made_by(MOVED, "k") == "k"
    assert used_by(MOVED, "a") == ["k"]
    assert used_by(MOVED, "x") == ["a"]


def test_steps_are_all_that_trace_passes() -> None:
    module = parse(MOVED)
    graph, value = CallGraph(module), Value(find(module, "cd"))
    passed = [(at.instr.name, at.path) for at in steps(graph, value)]
    assert passed == [
        ("cd", ()), ("cs", (0,)), ("s", ()), ("g", ()), ("o", (1,)), ("t", (1,)), ("d", ()),
        ("c", ()), ("b", ()), ("a", ()),
    ]  # fmt: skip
    assert trace(graph, value) == Value(find(module, "a"))
    alone = [at.instr.name for at in steps(graph, value, moves=frozenset())]
    assert alone == ["cd", "cs", "s", "g", "o", "t", "d"]


def test_what_counts_as_a_move_may_be_said() -> None:
    module = parse(MOVED)
    graph = CallGraph(module)
    cd = find(module, "cd")
    assert producer(graph, cd, moves=frozenset(("copy",))).name == "c"
    assert producer(graph, find(module, "r"), moves=MOVES | {"transpose"}).name == "k"
    assert through(find(module, "d")).name == "a"
    assert through(find(module, "g")).name == "g"


def test_elements_by_mark() -> None:
    text = MOVED.replace("custom-call(g)", "custom-call(o#1)")
    assert made_by(text, "s") == "a"
    assert used_by(text, "a") == ["k"]
    assert used_by(text.replace("o#1", "o#0"), "a") == []


CALLED = """HloModule m
f {
  p0 = f32[4] parameter(0)
  p1 = f32[4] parameter(1)
  i1 = f32[4] add(p0, p1)
  i2 = f32[4] copy(p1)
  ROOT t = (f32[4], f32[4]) tuple(i1, i2)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  e = f32[4] exponential(y)
  c = (f32[4], f32[4]) OP(x, e), kind=kLoop, calls=f
  g0 = f32[4] get-tuple-element(c), index=0
  g1 = f32[4] get-tuple-element(c), index=1
  n0 = f32[4] negate(g0)
  ROOT n1 = f32[4] sine(g1)
}
"""
FUSED = CALLED.replace("OP", "fusion")


def test_into_and_out_of_a_fusion() -> None:
    assert made_by(FUSED, "g0") == "i1"
    assert made_by(FUSED, "g1") == "e"
    assert made_by(FUSED, "p1") == "e"
    assert source(FUSED, "p0") == ("parameter", "x", ())
    assert used_by(FUSED, "e") == ["i1", "n1"]
    assert used_by(FUSED, "i1") == ["n0"]
    assert used_by(FUSED, "e", enter=False) == ["c"]


def test_into_and_out_of_a_call() -> None:
    text = CALLED.replace("OP(x, e), kind=kLoop, calls=f", "call(x, e), to_apply=f")
    assert (made_by(text, "g0"), made_by(text, "g1")) == ("i1", "e")


def test_a_shared_computation_has_the_operands_of_the_call_one_came_through() -> None:
    text = FUSED.replace(
        "  n0 = f32[4] negate(g0)", "  n0 = (f32[4], f32[4]) fusion(e, g1), kind=kLoop, calls=f"
    )
    assert made_by(text, "g1") == "e"
    assert source(text, "p1") == ("parameter", "p1", ())
    module = parse(text)
    value = trace(CallGraph(module), Value(find(module, "n0"), (1,)))
    assert (value.instr.name, value.path, value.via) == ("e", (), ())


ASYNC = """HloModule m
f {
  p0 = f32[4] parameter(0)
  ROOT i1 = f32[4] negate(p0)
}
ENTRY main {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(x), calls=f
  u = ((f32[4]), f32[4], u32[]) async-update(s), calls=f
  d = f32[4] async-done(u), calls=f
  ROOT n = f32[4] sine(d)
}
"""


def test_asynchronous_computations() -> None:
    assert made_by(ASYNC, "d") == "i1"
    assert (used_by(ASYNC, "x"), used_by(ASYNC, "i1")) == (["i1"], ["n"])


def test_sugar_is_a_computation_too() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) negate-start(x)
  d = f32[4] negate-done(s)
  ROOT n = f32[4] sine(d)
}
"""
    module = parse(text)
    made = producer(CallGraph(module), find(module, "d"))
    assert (made.opcode, made.implied, made.id) == ("negate", True, find(module, "s").id)


def test_the_start_of_a_collective_computes_what_its_done_gives() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  s = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
  d = f32[8] all-gather-done(s)
  e = f32[8] copy(d)
  a = f32[8] all-reduce-start(e), replica_groups={{0,1}}, to_apply=add
  b = f32[8] all-reduce-done(a)
  ROOT n = f32[8] sine(b)
}
"""
    assert (made_by(text, "e"), made_by(text, "b")) == ("s", "a")
    assert (used_by(text, "x"), used_by(text, "s"), used_by(text, "a")) == (["s"], ["a"], ["n"])


LOOP = """HloModule m
body {
  p = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[4] get-tuple-element(p), index=1
  h = f32[4] get-tuple-element(p), index=2
  m = f32[4] multiply(h, w)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  kept = f32[4] copy(w)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, kept, m)
}
cond {
  q = (s32[], f32[4], f32[4]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(j, n), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  weights = f32[4] parameter(1)
  e = f32[4] exponential(x)
  z = s32[] constant(0)
  t = (s32[], f32[4], f32[4]) tuple(z, weights, e)
  loop = (s32[], f32[4], f32[4]) while(t), condition=cond, body=body
  g1 = f32[4] get-tuple-element(loop), index=1
  g2 = f32[4] get-tuple-element(loop), index=2
  n1 = f32[4] sine(g1)
  ROOT n2 = f32[4] cosine(g2)
}
"""


def test_a_carry_that_the_body_keeps_is_passed() -> None:
    assert source(LOOP, "w") == ("parameter", "weights", ())
    assert source(LOOP, "g1") == ("parameter", "weights", ())
    assert used_by(LOOP, "weights") == ["m", "n1"]


def test_a_carry_that_changes_is_a_source_of_its_own() -> None:
    assert source(LOOP, "h") == ("carry", "p", (2,))
    assert source(LOOP, "j") == ("carry", "q", (0,))
    assert made_by(LOOP, "g2") == "m"
    assert used_by(LOOP, "e") == ["m"]
    assert used_by(LOOP, "m") == ["n2", "m"]
    assert used_by(LOOP, "e", enter=False) == ["loop"]


def test_invariant_carries() -> None:
    module = parse(LOOP)
    graph, loop = CallGraph(module), find(module, "loop")
    assert [is_invariant(graph, loop, (k,)) for k in range(3)] == [False, True, False]
    swapped = parse(LOOP.replace("copy(w)", "copy(h)").replace("kept, m)", "kept, w)"))
    graph, loop = CallGraph(swapped), find(swapped, "loop")
    assert [is_invariant(graph, loop, (k,)) for k in range(3)] == [False, False, False]


BRANCHES = """HloModule m
yes { a = f32[4] parameter(0)  ROOT i = f32[4] floor(a) }
no { b = f32[4] parameter(0)  ROOT j = f32[4] ceil(b) }
ENTRY main {
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] exponential(x)
  c = f32[4] conditional(p, x, y), true_computation=yes, false_computation=no
  ROOT n = f32[4] sine(c)
}
"""


def test_branches() -> None:
    assert [made_by(BRANCHES, name) for name in "abc"] == ["x", "y", "c"]
    assert (used_by(BRANCHES, "y"), used_by(BRANCHES, "p")) == (["j"], ["c"])
    assert used_by(BRANCHES, "j") == ["n"]


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("  v = f32[] constant(2.5)", 2.5),
        ("  c = s32[] constant(7)\n  v = s32[2,2] broadcast(c), dimensions={}", 7),
        ("  c = s32[] constant(7)\n  d = s32[] copy(c)\n  v = f32[] convert(d)", 7),
        ("  c = f32[] constant(-2.5)\n  v = s32[] convert(c)", -2),
        ("  v = pred[] constant(true)", True),
        ("  c = (s32[2], s8[]) constant(({1, 2}, 3))\n  v = s8[] get-tuple-element(c), index=1", 3),
        ("  v = s32[2] constant({1, 1})", None),
        ("  v = f32[1000] constant({...})", None),
        ("  c = f32[] constant(1)\n  v = f32[] negate(c)", None),
    ],
)
def test_constant_value(lines: str, value: object) -> None:
    module = parse(f"HloModule m\nENTRY main {{\n  x = f32[] parameter(0)\n{lines}\n}}\n")
    found = constant_value(CallGraph(module), find(module, "v"))
    assert found == value
    assert (found is None) == (value is None)


def test_a_constant_given_to_a_fusion() -> None:
    text = FUSED.replace("e = f32[4] exponential(y)", "e = f32[4] broadcast(k), dimensions={}")
    text = text.replace("  y = f32[4] parameter(1)", "  k = f32[] constant(3)")
    module = parse(text)
    assert constant_value(CallGraph(module), find(module, "p1")) == 3.0


def test_what_the_body_of_a_loop_gives_last_is_no_constant_of_the_loop() -> None:
    text = """HloModule m
body { p = (s32[]) parameter(0)  ROOT r = (s32[]) tuple(s32[] constant(-1)) }
cond { p = (s32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  ROOT go = pred[] compare(k, s32[] constant(0)), direction=EQ }
ENTRY main { k = s32[] parameter(0)
  t = (s32[]) tuple(k)
  w = (s32[]) while(t), condition=cond, body=body
  ROOT v = s32[] get-tuple-element(w), index=0 }
"""
    module = parse(text)
    graph, value = CallGraph(module), Value(find(module, "v"))
    assert constant_value(graph, value.instr) is None
    assert trace(graph, value).instr.opcode == "constant"
    assert trace(graph, value, into_loops=False) == Value(find(module, "w"), (0,))


def test_computations_that_call_themselves_end() -> None:
    text = """HloModule m
f { a = f32[4] parameter(0)  ROOT n = f32[4] call(a), to_apply=f }
ENTRY main { x = f32[4] parameter(0)  ROOT c = f32[4] call(x), to_apply=f }
"""
    assert made_by(text, "c") == "n"
    assert used_by(text, "x") == []
