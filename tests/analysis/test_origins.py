"""One step back from a value and forward: operands, elements of tuples, in and out of calls."""

from __future__ import annotations

from collections.abc import Callable

from hlo_lens.analysis import CallGraph, Value
from hlo_lens.analysis.origins import Destinations, inputs, origins
from hlo_lens.hlo import Computation, Instruction, Module, parse


def find(module: Module, name: str) -> Instruction:
    (instr,) = (
        found for c in module.computations if (found := c.instructions.get(name)) is not None
    )
    return instr


def told(value: Value, around: bool) -> str:
    path = "".join(f"#{index}" for index in value.path)
    via = "".join(f" in {one.name}" for one in value.via)
    return f"{value.instr.name}{path}{via}{' before' if around else ''}"


def behind(
    text: str, name: str, *path: int, via: tuple[str, ...] = (), enter: bool = True
) -> list[str]:
    """What is a step behind element `path` of `name`, reached by way of the calls `via`."""
    module = parse(text)
    value = Value(find(module, name), path, tuple(find(module, one) for one in via))
    graph = CallGraph(module)
    return [told(*one) for one in origins(graph, value, lambda _: enter)]


def all_behind(
    text: str, name: str, entered: Callable[[Computation], bool] = lambda _: True
) -> set[str]:
    """Every instruction from which a way leads to `name`, however far."""
    module = parse(text)
    graph = CallGraph(module)
    waiting = [Value(find(module, name))]
    seen = set(waiting)
    for value in waiting:
        for before, _ in origins(graph, value, entered):
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return {value.instr.name for value in waiting[1:]}


PLAIN = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  s = f32[4] add(x, y)
  q = f32[4] multiply(s, s)
  t = (f32[4], f32[4]) tuple(s, q)
  u = ((f32[4], f32[4]), f32[4]) tuple(t, x)
  b = ((f32[4], f32[4]), f32[4]) opt-barrier(u)
  g = (f32[4], f32[4]) get-tuple-element(b), index=0
  ROOT h = f32[4] get-tuple-element(g), index=1
}
"""


def test_operands_each_as_often_as_it_stands() -> None:
    assert behind(PLAIN, "s") == ["x", "y"]
    assert behind(PLAIN, "q") == ["s", "s"]


def test_nothing_is_behind_a_parameter_of_the_entry() -> None:
    assert behind(PLAIN, "x") == []


def test_an_element_is_carried_along_until_its_tuple() -> None:
    assert behind(PLAIN, "h") == ["g#1"]
    assert behind(PLAIN, "g", 1) == ["b#0#1"]
    assert behind(PLAIN, "b", 0, 1) == ["u#0#1"]
    assert behind(PLAIN, "u", 0, 1) == ["t#1"]
    assert behind(PLAIN, "t", 1) == ["q"]


def test_a_whole_tuple_depends_on_every_operand() -> None:
    assert behind(PLAIN, "t") == ["s", "q"]


CALLED_TWICE = """HloModule m
f {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] call(x), to_apply=f
  b = f32[4] call(y), to_apply=f
  ROOT s = f32[4] subtract(a, b)
}
"""


def test_what_goes_in_at_one_call_leaves_there() -> None:
    assert behind(CALLED_TWICE, "a") == ["n in a"]
    assert behind(CALLED_TWICE, "n", via=("a",)) == ["p in a"]
    assert behind(CALLED_TWICE, "p", via=("a",)) == ["x"]
    assert all_behind(CALLED_TWICE, "a") == {"n", "p", "x"}


def test_from_inside_every_caller_is_behind() -> None:
    assert behind(CALLED_TWICE, "p") == ["x", "y"]


def test_a_call_that_is_not_entered_depends_on_its_operands() -> None:
    assert behind(CALLED_TWICE, "a", enter=False) == ["x"]


FUSED = """HloModule m
sum {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT plus = f32[] add(l, r)
}
f {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  d = f32[4] divide(q, q)
  ROOT t = (f32[4], f32[4]) tuple(p, d)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  k = (f32[4], f32[4]) fusion(x, y), kind=kLoop, calls=f
  g = f32[4] get-tuple-element(k), index=1
  zero = f32[] constant(0)
  ROOT r0 = f32[] reduce(g, zero), dimensions={0}, to_apply=sum
}
"""


def test_an_element_of_a_fusion_depends_on_what_it_is_made_of() -> None:
    assert all_behind(FUSED, "g") == {"k", "t", "d", "q", "y"}
    assert all_behind(FUSED, "g", lambda _: False) == {"k", "x", "y"}


def test_what_is_applied_to_elements_is_not_entered() -> None:
    assert behind(FUSED, "r0") == ["g", "zero"]
    assert behind(FUSED, "l") == []


LOOP = """HloModule m
body {
  c = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  v = f32[4] get-tuple-element(c), index=1
  w = f32[4] get-tuple-element(c), index=2
  z = f32[4] get-tuple-element(c), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = f32[4] multiply(v, w)
  ROOT next = (s32[], f32[4], f32[4], f32[4]) tuple(j, n, w, v)
}
cond {
  cc = (s32[], f32[4], f32[4], f32[4]) parameter(0)
  ci = s32[] get-tuple-element(cc), index=0
  most = s32[] constant(8)
  ROOT less = pred[] compare(ci, most), direction=LT
}
ENTRY main {
  i0 = s32[] constant(0)
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  e = f32[4] exponential(x)
  init = (s32[], f32[4], f32[4], f32[4]) tuple(i0, x, y, e)
  loop = (s32[], f32[4], f32[4], f32[4]) while(init), condition=cond, body=body
  ROOT out = f32[4] get-tuple-element(loop), index=1
}
"""


def test_an_element_of_a_loop_is_what_its_body_hands_on() -> None:
    assert behind(LOOP, "loop", 1) == ["next#1 in loop"]
    assert behind(LOOP, "next", 1, via=("loop",)) == ["n in loop"]


def test_in_a_loop_the_first_iteration_and_the_one_before() -> None:
    assert behind(LOOP, "c", 1, via=("loop",)) == ["init#1", "next#1 in loop before"]
    assert behind(LOOP, "c", 1) == ["init#1", "next#1 in loop before"]


def test_what_a_loop_hands_on_unchanged_is_never_of_the_iteration_before() -> None:
    assert behind(LOOP, "loop", 2) == ["init#2"]
    assert behind(LOOP, "c", 2) == ["init#2"]


def test_a_condition_sees_what_the_body_hands_on() -> None:
    assert behind(LOOP, "cc", 0) == ["init#0", "next#0 in loop before"]


def test_a_value_that_moves_to_another_place_of_the_carry() -> None:
    assert all_behind(LOOP, "z") >= {"e", "x", "y", "n"}


BRANCHED = """HloModule m
yes {
  py = (f32[4]) parameter(0)
  ROOT gy = f32[4] get-tuple-element(py), index=0
}
no {
  ROOT pn = f32[4] parameter(0)
}
ENTRY main {
  which = pred[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] parameter(2)
  t = (f32[4]) tuple(x)
  ROOT c = f32[4] conditional(which, t, y), true_computation=yes, false_computation=no
}
"""


def test_a_conditional_depends_on_its_choice_and_on_each_branch() -> None:
    assert behind(BRANCHED, "c") == ["which", "gy in c", "pn in c"]
    assert behind(BRANCHED, "py", 0, via=("c",)) == ["t#0"]
    assert behind(BRANCHED, "pn", via=("c",)) == ["y"]
    assert behind(BRANCHED, "pn") == ["y"]


ASYNC = """HloModule m
work {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
ENTRY main {
  x = f32[4] parameter(0)
  start = ((f32[4]), f32[4], s32[]) async-start(x), calls=work
  ROOT done = f32[4] async-done(start)
}
"""


def test_an_async_start_is_entered_and_its_done_depends_on_it() -> None:
    assert behind(ASYNC, "done") == ["start"]
    assert behind(ASYNC, "start") == ["n in start"]
    assert behind(ASYNC, "start", 1) == ["n in start"]
    assert all_behind(ASYNC, "done") == {"start", "n", "p", "x"}


def test_of_an_async_tuple_an_element_is_followed() -> None:
    text = """HloModule m
work {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  n = f32[4] negate(p)
  m = f32[4] abs(q)
  ROOT t = (f32[4], f32[4]) tuple(n, m)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  start = ((f32[4], f32[4]), (f32[4], f32[4]), s32[]) async-start(x, y), calls=work
  update = ((f32[4], f32[4]), (f32[4], f32[4]), s32[]) async-update(start)
  done = (f32[4], f32[4]) async-done(update)
  ROOT g = f32[4] get-tuple-element(done), index=1
}
"""
    assert behind(text, "done", 1) == ["update#1#1"]
    assert behind(text, "start", 0, 1) == ["y"]
    assert all_behind(text, "g") == {"done", "update", "start", "t", "m", "q", "y"}


COMBINED = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[8] parameter(1)
  start = ((f32[4], f32[8]), (f32[8], f32[16])) all-gather-start(x, y), dimensions={0}
  done = (f32[8], f32[16]) all-gather-done(start)
  both = (f32[4], f32[8]) all-reduce(x, y), to_apply=add
  one = f32[8] all-gather(x), dimensions={0}
  ROOT g = f32[16] get-tuple-element(done), index=1
}
"""


def test_each_result_of_a_collective_is_of_its_own_operand() -> None:
    assert behind(COMBINED, "g") == ["done#1"]
    assert behind(COMBINED, "done", 1) == ["start#1#1"]
    assert behind(COMBINED, "start", 1, 1) == ["y"]
    assert behind(COMBINED, "start", 0, 0) == ["x"]
    assert behind(COMBINED, "both", 0) == ["x"]
    assert behind(COMBINED, "both") == behind(COMBINED, "start", 1) == ["x", "y"]
    assert behind(COMBINED, "one") == ["x"]


def test_sugar_names_the_element() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  t = (f32[4], f32[4]) custom-call(x), custom_call_target="two"
  ROOT n = f32[4] negate(t#1)
}
"""
    assert all_behind(text, "n") >= {"t", "x"}


def test_a_text_that_calls_itself_ends() -> None:
    text = """HloModule m
f {
  p = f32[4] parameter(0)
  ROOT again = f32[4] call(p), to_apply=f
}
ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] call(x), to_apply=f
}
"""
    assert all_behind(text, "r") == {"again"}


def test_a_damaged_text_has_less_behind_it_and_no_error() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  g = f32[4] get-tuple-element(x), index=7
  w = f32[4] while(x), condition=nowhere, body=nowhere
  c = f32[4] call(), to_apply=nowhere
  ROOT t = (f32[4]) tuple(g, w, c)
}
"""
    assert behind(text, "g") == ["x#7"]
    assert behind(text, "t", 9) == []
    assert behind(text, "w") == ["x"]
    assert behind(text, "c") == []


# --- what an instruction is given ----------------------------------------------------------------


def given(text: str, name: str) -> list[tuple[int, str]]:
    module = parse(text)
    found = inputs(CallGraph(module), find(module, name))
    return [(position, told(value, around)) for position, value, around in found]


def test_an_instruction_is_given_its_operands() -> None:
    assert given(PLAIN, "u") == [(0, "t"), (1, "x")]
    assert given(PLAIN, "x") == []


def test_a_get_tuple_element_is_given_its_element() -> None:
    assert given(PLAIN, "h") == [(0, "g#1")]


def test_a_parameter_is_given_what_each_caller_hands_in() -> None:
    assert given(CALLED_TWICE, "p") == [(0, "x"), (0, "y")]
    assert given(LOOP, "c") == [(0, "init"), (0, "next in loop before")]


# --- forward --------------------------------------------------------------------------------------


def ahead(
    text: str, name: str, *path: int, via: tuple[str, ...] = (), enter: bool = True
) -> list[str]:
    """What is a step ahead of element `path` of `name`; `out` where a call gives it."""
    module = parse(text)
    value = Value(find(module, name), path, tuple(find(module, one) for one in via))
    found = Destinations(CallGraph(module), lambda _: enter).of(value)
    return [told(value, False) + (" out" if leaves else "") for value, leaves in found]


def test_forward_an_element_is_told_by_its_tuple_until_it_is_taken() -> None:
    assert ahead(PLAIN, "q") == ["t#1"]
    assert ahead(PLAIN, "t", 1) == ["u#0#1"]
    assert ahead(PLAIN, "u", 0, 1) == ["b#0#1"]
    assert ahead(PLAIN, "b", 0, 1) == ["g#1"]
    assert ahead(PLAIN, "b", 1) == []
    assert ahead(PLAIN, "g", 1) == ["h"]
    assert ahead(PLAIN, "s") == ["q", "q", "t#0"]


def test_forward_what_goes_in_at_one_call_leaves_there() -> None:
    assert ahead(CALLED_TWICE, "x") == ["p in a"]
    assert ahead(CALLED_TWICE, "x", enter=False) == ["a"]
    assert ahead(CALLED_TWICE, "n", via=("a",)) == ["a out"]
    assert ahead(CALLED_TWICE, "n") == ["a out", "b out"]


def test_forward_into_a_loop_round_it_and_out_of_it() -> None:
    assert ahead(LOOP, "init", 1) == ["cc#1 in loop", "c#1 in loop"]
    assert ahead(LOOP, "init", 2) == ["loop#2", "cc#2 in loop", "c#2 in loop"]
    assert ahead(LOOP, "next", 1, via=("loop",)) == ["cc#1 in loop", "c#1 in loop", "loop#1 out"]
    assert ahead(LOOP, "less", via=("loop",)) == []


def test_forward_into_the_branch_that_takes_it() -> None:
    assert ahead(BRANCHED, "t", 0) == ["py#0 in c"]
    assert ahead(BRANCHED, "y") == ["pn in c"]
    assert ahead(BRANCHED, "which") == ["c"]
    assert ahead(BRANCHED, "gy", via=("c",)) == ["c out"]


def test_forward_fusions_and_starts_are_not_entered_and_left_from_inside() -> None:
    assert ahead(FUSED, "x") == ["k"]
    assert ahead(FUSED, "t", 1) == ["k#1 out"]
    assert ahead(ASYNC, "x") == ["start"]
    assert ahead(ASYNC, "n") == ["start#1 out"]
    assert ahead(ASYNC, "start", 1) == ["done"]
    assert ahead(ASYNC, "start", 0) == []


def test_forward_an_operand_of_a_collective_is_its_own_result() -> None:
    assert ahead(COMBINED, "y") == ["start#1#1", "both#1"]
    assert ahead(COMBINED, "start", 1, 1) == ["done#1"]
    assert ahead(COMBINED, "start", 0, 1) == []
    assert ahead(COMBINED, "done", 0) == []


def test_forward_sugar_names_the_element() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  t = (f32[4], f32[4]) custom-call(x), custom_call_target="two"
  n = f32[4] negate(t#1)
  ROOT m = f32[4] add(t#0, t#1)
}
"""
    assert ahead(text, "t", 1) == ["n", "m"]
    assert ahead(text, "t", 0) == ["m"]
    assert ahead(text, "t") == ["n", "m", "m"]


def test_what_is_a_step_behind_has_it_a_step_ahead() -> None:
    for text in (PLAIN, CALLED_TWICE, LOOP, BRANCHED):
        module = parse(text)
        graph = CallGraph(module)
        forward = Destinations(graph)
        waiting = [Value(module.entry.root)]
        for value in waiting:
            for before, around in origins(graph, value):
                assert value in (one for one, _ in forward.of(before)), (value, before)
                if not around:
                    waiting.append(before)
