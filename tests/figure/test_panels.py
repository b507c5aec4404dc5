"""What is drawn of a module and how it hangs together: neighbours, paths, what is left out."""

from __future__ import annotations

from time import process_time

import pytest

from hlo_lens.figure import Panel, draw, near, paths
from hlo_lens.files import InputError
from tests.figure.test_selecting import CHAIN
from tests.figure.texts import drawn, edges, facts_of, names
from tests.figure.walking import Feeds, seams, wrong_steps


def walked(panel: Panel) -> list[str]:
    """The edges as text, each walked over the text of the module."""
    module = panel.nodes[0].instr.computation.module
    feeds, through = Feeds(module), seams(module)
    for edge in panel.edges:
        assert not list(wrong_steps(panel, edge, feeds, through)), edge
    return edges(panel)


# --- neighbours -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("radius", "found"),
    [(0, "d"), (1, "c d e"), (2, "a b c d e f"), (None, "a b c d e f"), (3, "x a b c d e f")],
)
def test_around_a_name_operands_and_users_that_many_steps_away(
    radius: int | None, found: str
) -> None:
    panel = drawn(CHAIN, around="d", radius=radius)
    assert names(panel) == found.split()
    assert [node.name for node in panel.nodes if node.selected] == ["d"]


def test_around_several_names() -> None:
    assert names(drawn(CHAIN, around=["a", "f"], radius=1)) == ["x", "a", "b", "c", "e", "f"]


MOVES = """HloModule moves
ENTRY main {
  x = f32[4,2] parameter(0)
  s = f32[] parameter(1)
  a = f32[4,2] negate(x)
  t = f32[2,4] transpose(a), dimensions={1,0}
  r = f32[8] reshape(t)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={}
  row = f32[4] constant({1, 2, 3, 4})
  rows = f32[8] concatenate(row, row), dimensions={0}
  many = f32[8] broadcast(s), dimensions={}
  b = f32[8] add(r, ones)
  k = (f32[8], f32[8]) tuple(b, rows)
  g = f32[8] get-tuple-element(k), index=0
  h = f32[8] get-tuple-element(k), index=1
  c = f32[8] multiply(g, many)
  d = f32[8] subtract(c, h)
  ROOT out = (f32[8]) tuple(d)
}
"""


def test_layout_operations_tuples_and_constants_count_no_step_and_are_not_drawn() -> None:
    panel = drawn(MOVES, around="b", radius=1)
    assert names(panel) == ["a", "b", "c"]
    assert walked(panel) == ["a-[t r]>b", "b>c"]


def test_an_element_of_a_tuple_is_not_a_neighbour_of_another() -> None:
    assert names(drawn(MOVES, around="d", radius=1)) == ["rows", "c", "d"]
    # A user is found by what it is handed, whichever element it takes.
    assert "a" not in names(drawn(MOVES, around="rows", radius=1))


def test_kinds_may_be_kept() -> None:
    kept = drawn(MOVES, around="b", radius=1, keep=["layout"])
    assert names(kept) == ["r", "b", "c"]
    kept = drawn(MOVES, around="b", radius=1, keep=["tuples"])
    assert names(kept) == ["a", "b", "k"]
    kept = drawn(MOVES, around="b", radius=1, keep=["constants", "layout"])
    assert names(kept) == ["r", "ones", "b", "c"]


def test_what_was_asked_for_is_drawn_whatever_it_is() -> None:
    panel = drawn(MOVES, around=["t", "one"], radius=0)
    assert names(panel) == ["t", "one"]


def test_every_instruction_gets_a_neighbour_before_one_gets_two() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] sine(x)
  a1 = f32[4] abs(a)
  a2 = f32[4] abs(a)
  a3 = f32[4] abs(a)
  b = f32[4] cosine(x)
  b1 = f32[4] abs(b)
  ROOT t = (f32[4], f32[4], f32[4], f32[4]) tuple(a1, a2, a3, b1)
}
"""
    panel = drawn(text, around=["a", "b"], radius=1, nodes=6)
    assert names(panel) == ["x", "a", "a1", "a2", "b", "b1"]
    assert panel.notes == ("1 neighbour left out",)


def test_neighbours_over_the_number_of_nodes_are_told() -> None:
    panel = drawn(CHAIN, around="c", radius=1, nodes=2)
    assert len(panel.nodes) == 2
    assert panel.notes == ("2 neighbours left out",)


FUSED = """HloModule fused
inner {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  m = f32[4] multiply(p, q)
  ROOT n = f32[4] negate(m)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] sine(x)
  k = f32[4] fusion(a, y), kind=kLoop, calls=inner
  ROOT b = f32[4] cosine(k)
}
"""


def test_a_fusion_is_drawn_whole() -> None:
    panel = drawn(FUSED, around="a", radius=2)
    assert names(panel) == ["x", "y", "a", "k", "b"]
    panel = drawn(FUSED, around="b", radius=1)
    assert walked(panel) == ["k>b"]


def test_of_fusions_that_call_one_computation_the_one_that_takes_it_is_a_neighbour() -> None:
    text = FUSED.replace(
        "  ROOT b = f32[4] cosine(k)",
        "  c = f32[4] cosine(k)\n  ROOT l = f32[4] fusion(c, y), kind=kLoop, calls=inner",
    )
    assert names(drawn(text, around="c", radius=1)) == ["k", "c", "l"]
    assert names(drawn(text, around="a", radius=1)) == ["x", "a", "k"]


def test_a_fusion_is_opened_where_something_inside_is_asked_for() -> None:
    panel = drawn(FUSED, around="m", radius=1)
    assert names(panel) == ["m", "n", "y", "a"]
    assert walked(panel) == ["a>m", "m>n", "y>m"]
    panel = drawn(FUSED, around=["m", "b"], radius=0)
    assert walked(panel) == ["m-[n]>b"]


LOOP = """HloModule loop
body {
  c = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  v = f32[4] get-tuple-element(c), index=1
  w = f32[4] get-tuple-element(c), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  m = f32[4] multiply(v, w)
  n = f32[4] negate(m)
  ROOT next = (s32[], f32[4], f32[4]) tuple(j, n, w)
}
cond {
  cc = (s32[], f32[4], f32[4]) parameter(0)
  ci = s32[] get-tuple-element(cc), index=0
  most = s32[] constant(8)
  ROOT less = pred[] compare(ci, most), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] exponential(x)
  init = (s32[], f32[4], f32[4]) tuple(zero, a, y)
  loop = (s32[], f32[4], f32[4]) while(init), condition=cond, body=body
  out = f32[4] get-tuple-element(loop), index=1
  ROOT b = f32[4] cosine(out)
}
"""


def test_neighbours_of_the_first_in_a_loop_are_before_it_and_at_its_end() -> None:
    panel = drawn(LOOP, around="m", radius=1)
    assert names(panel) == ["m", "n", "y", "a"]
    assert walked(panel) == ["a>m", "m>n", "n>>m", "y>m"]


def test_neighbours_of_what_a_loop_gives_are_behind_it() -> None:
    assert names(drawn(LOOP, around="n", radius=1)) == ["m", "n", "b"]
    assert names(drawn(LOOP, around="b", radius=1)) == ["n", "b"]


def test_what_a_loop_carries_is_of_the_next_iteration_and_what_it_only_reads_is_not() -> None:
    panel = drawn(LOOP, around=["n", "y", "m"], radius=0)
    assert walked(panel) == ["m>n", "n>>m", "y>m"]


SHARED = """HloModule shared
f {
  p = f32[4] parameter(0)
  m = f32[4] sine(p)
  ROOT n = f32[4] negate(m)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] abs(x)
  b = f32[4] sqrt(y)
  k = f32[4] call(a), to_apply=f
  l = f32[4] call(b), to_apply=f
  c = f32[4] cosine(k)
  d = f32[4] tanh(l)
  ROOT r = (f32[4], f32[4]) tuple(c, d)
}
"""


def test_a_path_over_a_call_leaves_where_it_went_in() -> None:
    panel = drawn(SHARED, around=["a", "b", "c", "d"], radius=0)
    assert walked(panel) == ["a-[k]>c", "b-[l]>d"]


def test_what_several_call_has_the_neighbours_of_all_calls() -> None:
    panel = drawn(SHARED, around="m", radius=1)
    assert names(panel) == ["m", "n", "a", "b"]
    assert walked(panel) == ["a>m", "b>m", "m>n"]
    assert names(drawn(SHARED, around="n", radius=1)) == ["m", "n", "c", "d"]


BRANCHED = """HloModule branched
yes {
  py = f32[4] parameter(0)
  ROOT s = f32[4] sine(py)
}
no {
  pn = f32[4] parameter(0)
  ROOT n = f32[4] negate(pn)
}
ENTRY main {
  x = f32[4] parameter(0)
  w = pred[4] parameter(1)
  a = f32[4] abs(x)
  b = f32[4] sqrt(x)
  i = s32[4] convert(w)
  which = s32[] custom-call(i), custom_call_target="any"
  c = f32[4] conditional(which, a, b), branch_computations={yes, no}
  ROOT r = f32[4] tanh(c)
}
"""


def test_the_ways_through_a_conditional() -> None:
    panel = drawn(BRANCHED, around=["a", "b", "s", "n", "r", "which"], radius=0)
    assert walked(panel) == ["a>s", "b>n", "n>r", "s>r", "which>r"]
    assert names(drawn(BRANCHED, around="r", radius=1)) == ["s", "n", "which", "r"]


ASYNC = """HloModule later
gather {
  p = f32[4] parameter(0)
  ROOT ag = f32[8] all-gather(p), replica_groups={{0,1}}, dimensions={0}
}
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  start = ((f32[4]), f32[8], s32[]) async-start(a), calls=gather
  done = f32[8] async-done(start)
  ROOT b = f32[8] sine(done)
}
"""


def test_an_async_wrapper_is_entered_where_its_operation_is_drawn() -> None:
    panel = drawn(ASYNC, around=["a", "ag", "b"], radius=0)
    assert walked(panel) == ["a>ag", "ag-[done]>b"]
    panel = drawn(ASYNC, around=["a", "b"], radius=0)
    assert walked(panel) == ["a-[start done]>b"]


def test_neighbours_of_a_parameter_are_what_the_callers_hand_in() -> None:
    panel = drawn(SHARED, around="p", radius=1)
    assert names(panel) == ["p", "m", "a", "b"]
    assert walked(panel) == ["a>p", "b>p", "p>m"]


def test_what_is_made_of_one_element_is_no_neighbour_of_another_element_of_a_loop() -> None:
    text = LOOP.replace(
        "ROOT b = f32[4] cosine(out)",
        "w2 = f32[4] get-tuple-element(loop), index=2\n  ROOT b = f32[4] cosine(w2)",
    )
    assert names(drawn(text, around="a", radius=1)) == ["m", "x", "a"]
    assert names(drawn(text, around="y", radius=1)) == ["m", "y", "b"]


def test_neighbours_end_where_nothing_new_is_found() -> None:
    assert names(drawn(CHAIN, around="d", radius=10**20)) == ["x", "a", "b", "c", "d", "e", "f"]


def test_neighbours_behind_thousands_of_moves_are_found() -> None:
    count = 25_000
    moves = "".join(f"  v{at} = f32[4] bitcast(v{at - 1})\n" for at in range(1, count))
    text = (
        "HloModule m\nENTRY main {\n  v0 = f32[4] parameter(0)\n"
        f"{moves}  ROOT r = f32[4] negate(v{count - 1})\n}}\n"
    )
    panel = drawn(text, around="r", radius=1)
    assert names(panel) == ["v0", "r"]
    assert [len(edge.through) for edge in panel.edges] == [count - 1]
    assert panel.notes == ()


def test_neighbours_of_an_instruction_of_thousands_of_operands() -> None:
    count = 3_000
    elements = "".join(
        f"  g{at} = f32[4] get-tuple-element(p), index={at}\n" for at in range(count)
    )
    whole = ", ".join(["f32[4]"] * count)
    taken = ", ".join(f"g{at}" for at in range(count))
    text = (
        f"HloModule m\nENTRY main {{\n  p = ({whole}) parameter(0)\n{elements}"
        f"  t = ({whole}) tuple({taken})\n"
        '  ROOT c = f32[4] custom-call(t), custom_call_target="x"\n}\n'
    )
    began = process_time()
    assert names(drawn(text, around="p", radius=1)) == ["p", "c"]
    assert process_time() - began < 3  # 7 with a look at all operands for each element


# --- arguments of the program ---------------------------------------------------------------------

ARGUMENTS = r"""HloModule step
inner {
  Arg_9 = f32[4] parameter(0), metadata={op_name="jit(f)/x"}
  ROOT m = f32[4] tanh(Arg_9)
}
ENTRY main {
  Arg_0.1 = f32[4] parameter(0), metadata={op_name="state[0][\'head\']"}
  batch__x__.2 = f32[4] parameter(1), metadata={op_name="batch[\'x\']"}
  y = f32[4] parameter(2)
  a = f32[4] add(Arg_0.1, batch__x__.2), metadata={op_name="jit(f)/add"}
  k = f32[4] call(a), to_apply=inner
  ROOT b = f32[4] add(k, y)
}
"""


def test_a_parameter_is_told_by_the_name_of_the_argument_that_its_own_does_not_say() -> None:
    panel = drawn(ARGUMENTS, around=["Arg_0.1", "batch__x__.2", "y", "a", "Arg_9"], radius=0)
    assert {node.name: node.notes for node in panel.nodes if node.notes} == {
        "Arg_0.1": ("state[0]['head']",)
    }


def test_a_parameter_is_found_by_the_name_of_its_argument() -> None:
    assert names(drawn(ARGUMENTS, start="state[0]['head']", end="a")) == ["Arg_0.1", "a"]
    assert names(drawn(ARGUMENTS, around="batch['x']", radius=0)) == ["batch__x__.2"]
    for other in ("jit(f)/x", "jit(f)/add", "state[0]"):
        with pytest.raises(InputError, match="no such instruction in step"):
            drawn(ARGUMENTS, around=other)


# --- from one to another --------------------------------------------------------------------------


def test_what_lies_between_two_is_drawn_with_its_ends() -> None:
    panel = drawn(CHAIN, start="a", end="d")
    assert names(panel) == ["a", "b", "c", "d"]
    assert walked(panel) == ["a>b", "a>c", "b>c", "c>d"]
    assert {node.name: node.roles for node in panel.nodes if node.roles} == {
        "a": ("from",), "d": ("to",)
    }  # fmt: skip


def test_from_before_a_call_to_behind_it_leads_through_what_is_called() -> None:
    assert names(drawn(SHARED, start="a", end="c")) == ["m", "n", "a", "c"]
    assert names(drawn(LOOP, start="a", end="b")) == ["m", "n", "a", "b"]


WAYS = """HloModule ways
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  p = f32[4] sine(a)
  q = f32[4] cosine(p)
  r = f32[4] tanh(q)
  d = f32[4] abs(r)
  e = f32[4] sqrt(r)
  b = f32[4] exponential(a)
  c = f32[4] log(b)
  ROOT f = f32[4] custom-call(d, e, c), custom_call_target="three"
}
"""


def test_of_many_ways_the_shortest_is_drawn_then_what_is_nearest_to_the_end() -> None:
    panel = drawn(WAYS, start="a", end="f", nodes=4)
    assert names(panel) == ["a", "b", "c", "f"]
    assert walked(panel) == ["a-[p q r d]>f", "a>b", "b>c", "c>f"]
    assert panel.notes == ("5 more instructions lie on the paths between",)
    panel = drawn(WAYS, start="a", end="f", nodes=6)
    assert names(panel) == ["a", "d", "e", "b", "c", "f"]
    assert walked(panel) == ["a-[p q r]>d", "a-[p q r]>e", "a>b", "b>c", "c>f", "d>f", "e>f"]


def test_of_a_way_that_is_too_long_its_beginning_is_drawn() -> None:
    panel = drawn(CHAIN, start="a", end="f", nodes=4)
    assert names(panel) == ["a", "c", "d", "f"]
    assert walked(panel) == ["a>c", "c>d", "d-[e]>f"]


def test_a_way_into_what_calls_itself_ends() -> None:
    text = SHARED.replace("n = f32[4] negate(m)", "n = f32[4] call(m), to_apply=f")
    assert names(drawn(text, start="a", end="m")) == ["m", "a"]


def test_more_behind_an_instruction_than_is_looked_at_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(near, "MOST_VALUES", 3)
    with pytest.raises(InputError, match="more than 3 values lie behind it"):
        drawn(CHAIN, start="x", end="f")


# --- contracted edges -----------------------------------------------------------------------------


def test_the_instructions_between_are_in_the_order_of_the_flow() -> None:
    panel = drawn(CHAIN, around=["b", "f"], radius=0)
    assert walked(panel) == ["b-[c d e]>f"]


def test_of_several_paths_the_one_through_the_fewest_is_drawn() -> None:
    panel = drawn(CHAIN, around=["a", "d"], radius=0)
    assert walked(panel) == ["a-[c]>d"]
    (edge,) = panel.edges
    assert (edge.operand, edge.also) == (0, 0)


def test_a_value_that_is_several_operands_is_one_edge_that_says_so() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] abs(a)
  ROOT c = f32[4] custom-call(b, a, x, a), custom_call_target="many"
}
"""
    panel = drawn(text, around=["a", "c"], radius=0)
    (edge,) = panel.edges
    assert (edge.operand, edge.through, edge.also) == (1, (), 2)


def test_the_element_that_is_taken_of_a_tuple() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  k = (f32[4], (f32[4], f32[4])) custom-call(x), custom_call_target="three"
  g = (f32[4], f32[4]) get-tuple-element(k), index=1
  h = f32[4] get-tuple-element(g), index=0
  ROOT s = f32[4] sine(h)
}
"""
    panel = drawn(text, around=["k", "s"], radius=0)
    assert walked(panel) == ["k#1#0>s"]
    (edge,) = panel.edges
    assert [one.name for one in edge.through] == ["g", "h"]
    assert edge.left_out == ()


def test_a_path_over_too_many_is_not_drawn_and_that_is_told() -> None:
    steps = "".join(f"  v{at} = f32[4] negate(v{at - 1})\n" for at in range(1, 20))
    text = f"HloModule m\nENTRY main {{\n  v0 = f32[4] parameter(0)\n{steps}}}\n"
    panel = drawn(text, around=["v1", "v14"], radius=0)
    assert len(panel.edges[0].through) == 12
    assert panel.notes == ()
    panel = drawn(text, around=["v1", "v15"], radius=0)
    assert panel.edges == ()
    (note,) = panel.notes
    assert note.startswith("paths through more than 12 instructions that compute")


def test_moves_count_for_nothing_on_a_path() -> None:
    steps = "".join(f"  v{at} = f32[4] copy(v{at - 1})\n" for at in range(1, 30))
    text = f"HloModule m\nENTRY main {{\n  v0 = f32[4] parameter(0)\n{steps}}}\n"
    panel = drawn(text, around=["v0", "v29"], radius=0)
    assert len(panel.edges[0].through) == 28


def test_a_path_that_goes_round_a_loop_is_drawn_where_it_is_short() -> None:
    def loop(between: int) -> str:
        lines = "".join(f"  n{at} = f32[4] abs(n{at - 1})\n" for at in range(1, between))
        return LOOP.replace("  n = f32[4] negate(m)\n", f"  n0 = f32[4] sine(m)\n{lines}").replace(
            "tuple(j, n, w)", f"tuple(j, n{between - 1}, w)"
        )

    panel = drawn(loop(3), around="m", radius=0)
    assert walked(panel) == ["m-[n0 n1 n2]>>m"]
    panel = drawn(loop(4), around="m", radius=0)
    assert panel.edges == ()
    assert "3 of a path round a loop" in panel.notes[0]


ROUND = """HloModule round
body {
  p = (f32[8], f32[8], s32[]) parameter(0)
  s = f32[8] get-tuple-element(p), index=0
  w = f32[8] get-tuple-element(p), index=1
  i = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = f32[8] tanh(w)
  e = f32[8] exponential(a)
  c = f32[8] add(s, e)
  d = f32[8] sine(c)
  ROOT r = (f32[8], f32[8], s32[]) tuple(a, d, j)
}
cond {
  q = (f32[8], f32[8], s32[]) parameter(0)
  k = s32[] get-tuple-element(q), index=2
  n = s32[] constant(7)
  ROOT lt = pred[] compare(k, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  z = s32[] constant(0)
  t = (f32[8], f32[8], s32[]) tuple(x, y, z)
  loop = (f32[8], f32[8], s32[]) while(t), condition=cond, body=body
  ROOT o = f32[8] get-tuple-element(loop), index=1
}
"""


def test_a_path_in_the_iteration_is_drawn_rather_than_a_shorter_one_round_the_loop() -> None:
    # From %a to %d: by %e and %c at once, or in the next iteration by %c alone.
    assert walked(drawn(ROUND, around=["a", "d"], radius=0)) == ["a-[e c]>d", "d>>a"]


def test_of_paths_in_one_iteration_the_one_through_the_fewest_whatever_comes_first() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] abs(a)
  c1 = f32[4] copy(a)
  c2 = f32[4] copy(c1)
  c3 = f32[4] copy(c2)
  d = f32[4] add(b, c3)
  m = f32[4] copy(b)
  n = f32[4] copy(a)
  e = f32[4] add(m, n)
  ROOT r = (f32[4], f32[4]) tuple(d, e)
}
"""
    assert walked(drawn(text, around=["a", "d"], radius=0)) == ["a-[c1 c2 c3]>d"]
    assert walked(drawn(text, around=["a", "e"], radius=0)) == ["a-[n]>e"]
    assert walked(drawn(text, around=["a", "r"], radius=0)) == ["a-[n e]>r"]


def test_of_a_tuple_an_element_that_is_drawn_takes_what_it_is_made_of() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(x, y)
  g = f32[4] get-tuple-element(t), index=1
  ROOT n = f32[4] negate(g)
}
"""
    assert walked(drawn(text, around=["x", "y", "g", "n"], radius=0)) == ["g>n", "y>g"]
    assert walked(drawn(text, around=["t", "g"], radius=0)) == ["t#1>g"]
    assert walked(drawn(ROUND, around=["a", "d", "o"], radius=0)) == ["a-[e c]>d", "d>>a", "d>o"]


def test_edges_lead_into_a_parameter_that_is_drawn() -> None:
    assert walked(drawn(SHARED, start="a", end="p")) == ["a>p"]
    assert walked(drawn(FUSED, around=["a", "y", "p", "q"], radius=0)) == ["a>p", "y>q"]
    text = """HloModule m
body {
  p = f32[4] parameter(0)
  ROOT n = f32[4] tanh(p)
}
cond {
  q = f32[4] parameter(0)
  ROOT no = pred[] constant(false)
}
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] sine(x)
  w = f32[4] while(a), condition=cond, body=body
  ROOT b = f32[4] negate(w)
}
"""
    assert walked(drawn(text, around=["a", "p", "n"], radius=0)) == ["a>p", "n>>p", "p>n"]


def test_more_values_on_the_way_than_are_looked_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MOST_VALUES", "_LEAST_VALUES", "_LEAST_OF_OPERAND"):
        monkeypatch.setattr(paths, name, 2)
    panel = drawn(CHAIN, around=["a", "f"], radius=0)
    assert panel.edges == ()
    assert panel.notes == ("paths beyond the nearest 2 values behind an instruction are not drawn",)


# --- the whole module -----------------------------------------------------------------------------


def test_a_small_module_is_drawn_whole_without_what_is_inside_fusions() -> None:
    assert names(drawn(CHAIN)) == ["x", "a", "b", "c", "d", "e", "f"]
    assert names(drawn(FUSED)) == ["x", "y", "a", "k", "b"]
    panel = drawn(LOOP)
    assert names(panel) == ["j", "m", "n", "less", "x", "y", "a", "b"]
    assert not any(node.selected for node in panel.nodes)


def test_parameters_of_the_entry_are_drawn_but_for_scalars() -> None:
    assert names(drawn(MOVES)) == ["x", "a", "rows", "b", "c", "d"]


PRODUCT = """HloModule large
ENTRY main {
  x = f32[4,4] parameter(0)
  v0 = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ag = f32[8,4] all-gather(v0), replica_groups={{0,1}}, dimensions={0}
STEPS  ROOT r = f32[8,4] sine(ag)
}
"""


def test_a_large_module_is_refused_with_what_could_be_drawn() -> None:
    steps = "".join(f"  v{at} = f32[4,4] negate(v{at - 1})\n" for at in range(1, 60))
    text = PRODUCT.replace("STEPS", steps)
    with pytest.raises(InputError) as refused:
        drawn(text)
    says = refused.value.render()
    assert "63 instructions are too many for one figure" in says
    assert "--view collectives (" in says
    assert "--view attention" not in says
    assert "--around NAME" in says
    assert "--nodes" in says
    assert len(drawn(text, nodes=63).nodes) == 63


def test_a_module_without_instructions_to_draw_is_an_empty_panel() -> None:
    panel = drawn("HloModule m\nENTRY main {\n  ROOT c = f32[] constant(1)\n}\n")
    assert (panel.nodes, panel.edges, panel.total) == ((), (), 1)


# --- what is left out -----------------------------------------------------------------------------


def test_what_is_left_out_adds_up() -> None:
    panel = drawn(MOVES, around="b", radius=1)
    assert panel.total == 17
    assert panel.left_out == {"others": 3, "layout": 2, "constants": 5, "tuples": 4}
    assert sum(panel.left_out.values()) + len(panel.nodes) == panel.total


def test_only_computations_in_which_something_is_drawn_count_and_frames_do_not() -> None:
    panel = drawn(LOOP, around=["m", "b"], radius=0)
    body, entry = 9, 8
    assert sum(panel.left_out.values()) == body + entry - len(panel.nodes) - 1  # the while


# --- several programs -----------------------------------------------------------------------------


def test_several_programs_are_panels_whose_ids_do_not_clash() -> None:
    figure = draw([facts_of(CHAIN), facts_of(CHAIN)], around="a", radius=1, titles=["one", "two"])
    first, second = figure.panels
    assert isinstance(first, Panel)
    assert isinstance(second, Panel)
    assert names(first) == names(second)
    assert not {node.id for node in first.nodes} & {node.id for node in second.nodes}
    assert not {one.id for one in first.clusters} & {one.id for one in second.clusters}
    assert (first.title, second.title) == ("one", "two")


def test_the_same_text_has_the_same_sha256() -> None:
    first, second = drawn(CHAIN), drawn(CHAIN)
    assert first.sha256 == second.sha256 != drawn(MOVES).sha256


def test_a_panel_and_the_lanes_of_a_text_have_one_sha256_whatever_is_in_it() -> None:
    text = CHAIN.replace("chain\n", 'chain, is_scheduled=true, frontend_attributes={a="\ud800"}\n')
    text = text.replace(
        "f = f32[4] tanh(e)", "f = f32[8] all-gather(e), replica_groups={{0,1}}, dimensions={0}"
    )
    facts = facts_of(text)
    (graph,), (schedule,) = draw(facts, around="a").panels, draw(facts, view="overlap").panels
    assert graph.sha256 == schedule.sha256


def test_a_panel_is_a_graph() -> None:
    panel = drawn(LOOP, around=["n", "m"], radius=0)
    graph = panel.graph()
    by_name = {data["name"]: id for id, data in graph.nodes(data=True)}
    assert graph.nodes[by_name["m"]] | {"phase": None} == {
        "name": "m", "computation": "body", "opcode": "multiply", "shape": "f32[4]",
        "phase": None, "family": "elementwise", "roles": ("asked for",),
        "clusters": ("%loop while ×8",),
    }  # fmt: skip
    data = graph.get_edge_data(by_name["n"], by_name["m"])[0]
    assert (data["operand"], data["next_iteration"]) == (0, True)
    assert data["through"] == ("next", "v")
    assert data["opcodes"] == ("tuple", "get-tuple-element")
