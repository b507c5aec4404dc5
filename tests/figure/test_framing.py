"""Frames: loops with their trips, fusions, calls, branches; passes and checkpoints around them."""

from __future__ import annotations

from hlo_lens.figure import Frame, Panel, Select, View
from tests.figure.test_panels import ASYNC, BRANCHED, FUSED, LOOP, SHARED
from tests.figure.texts import BWD, FWD, REMAT, all_frames, drawn, frames

NESTED = """HloModule nested
inner {
  c = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  v = f32[4] get-tuple-element(c), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  m = f32[4] negate(v)
  ROOT t = (s32[], f32[4]) tuple(j, m)
}
few {
  cc = (s32[], f32[4]) parameter(0)
  ci = s32[] get-tuple-element(cc), index=0
  most = s32[] constant(8)
  ROOT less = pred[] compare(ci, most), direction=LT
}
outer {
  oc = (s32[], f32[4]) parameter(0)
  oi = s32[] get-tuple-element(oc), index=0
  ov = f32[4] get-tuple-element(oc), index=1
  zero = s32[] constant(0)
  init = (s32[], f32[4]) tuple(zero, ov)
  loop = (s32[], f32[4]) while(init), condition=few, body=inner
  lv = f32[4] get-tuple-element(loop), index=1
  ov2 = f32[4] sine(lv)
  oone = s32[] constant(1)
  oj = s32[] custom-call(oi), custom_call_target="who knows"
  ROOT ot = (s32[], f32[4]) tuple(oj, ov2)
}
some {
  oc2 = (s32[], f32[4]) parameter(0)
  oi2 = s32[] get-tuple-element(oc2), index=0
  limit = s32[] constant(5)
  ROOT goon = pred[] compare(oi2, limit), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  start = (s32[], f32[4]) tuple(z, x)
  big = (s32[], f32[4]) while(start), condition=some, body=outer
  bv = f32[4] get-tuple-element(big), index=1
  ROOT b = f32[4] cosine(bv)
}
"""


def nesting(panel: Panel) -> list[list[str]]:
    """Of each node the frames around it, outermost first."""
    graph = panel.graph()
    return [[data["name"], *data["clusters"]] for _, data in graph.nodes(data=True)]


def test_loops_inside_each_other_with_their_trips() -> None:
    panel = drawn(NESTED, around=["m", "ov2", "b"], radius=0)
    assert nesting(panel) == [
        ["m", "%big while ×?", "%loop while ×8"],
        ["ov2", "%big while ×?"],
        ["b"],
    ]
    assert [one.kind for one in all_frames(panel.clusters) if one.label] == ["loop", "loop"]


def test_a_frame_without_nodes_of_its_own_is_around_the_inner_one() -> None:
    panel = drawn(NESTED, around="m", radius=0)
    assert nesting(panel) == [["m", "%big while ×?", "%loop while ×8"]]


def test_a_condition_says_so() -> None:
    panel = drawn(LOOP, around="less", radius=0)
    assert frames(panel) == {"": [], "%loop while ×8, its condition": ["less"]}


def test_trips_that_the_text_tells() -> None:
    text = LOOP.replace(
        "condition=cond, body=body",
        'condition=cond, body=body, backend_config={"known_trip_count":{"n":"3"}}',
    )
    assert "%loop while ×3" in frames(drawn(text, around="m", radius=0))


def test_fusions_calls_branches_and_async_wrappers() -> None:
    def found(text: str, name: str) -> list[tuple[str, str]]:
        panel = drawn(text, around=name, radius=0)
        return [(one.kind, *one.label) for one in all_frames(panel.clusters) if one.label]

    assert found(FUSED, "m") == [("fusion", "%k fusion")]
    assert found(BRANCHED, "s") == [("branch", "%c conditional")]
    assert found(ASYNC, "ag") == [("async", "%start async-start")]
    text = SHARED.replace("call(b), to_apply=f", "negate(b)")
    assert found(text, "m") == [("call", "%k call")]


def test_what_is_called_at_several_places_stands_beside_them() -> None:
    panel = drawn(SHARED, around=["m", "a"], radius=0)
    assert frames(panel) == {"": ["a"], "computation %f, called at 2 places": ["m"]}
    assert [node.name for node in panel.nodes] == ["m", "a"]  # %k and %l are its frame


def test_the_roles_of_a_call_are_told_in_its_frame() -> None:
    marks = [{"product": "m", "kernel": "k"}]
    panel = drawn(FUSED, marks=marks, table="marks")
    assert frames(panel) == {"": [], "%k fusion | kernel": ["m"]}
    panel = drawn(FUSED, marks=[{"kernel": "k"}], table="marks", radius=0)
    assert frames(panel) == {"": ["k"]}


def test_calls_beside_each_other_have_frames_beside_each_other() -> None:
    panel = drawn(BRANCHED, around=["s", "n", "a"], radius=0)
    assert nesting(panel) == [["s", "%c conditional"], ["n", "%c conditional"], ["a"]]


def test_what_is_called_very_deep_stands_in_few_frames_beside_the_rest() -> None:
    def call(at: int) -> str:
        return f"""f{at} {{
  p{at} = f32[4] parameter(0)
  c{at} = f32[4] call(p{at}), to_apply=f{at - 1}
  ROOT t{at} = f32[4] sine(c{at})
}}
"""

    text = (
        "HloModule m\nf0 {\n  p0 = f32[4] parameter(0)\n  ROOT t0 = f32[4] tanh(p0)\n}\n"
        + "".join(map(call, range(1, 3000)))
        + "ENTRY main {\n  x = f32[4] parameter(0)\n"
        "  ROOT c = f32[4] call(x), to_apply=f2999\n}\n"
    )
    panel = drawn(text, around=["t0", "t5", "t2999", "x"], radius=0)
    deepest, deep, shallow, outside = nesting(panel)
    assert deepest == ["t0", "%c1 call inside 2,999 more calls"]
    assert deep[:3] == ["t5", "%c25 call inside 2,975 more calls", "%c24 call"]
    assert len(deep) == 1 + 20  # those of f24 to f5
    assert (shallow, outside) == (["t2999", "%c call"], ["x"])


# --- passes ---------------------------------------------------------------------------------------


STEP = f"""HloModule step
ENTRY main {{
  x = f32[4] parameter(0)
  a = f32[4] sine(x){FWD}
  b = f32[4] cosine(a){FWD}
  r = f32[4] sine(x){REMAT}
  c = f32[4] add(b, r){BWD}
  d = f32[4] negate(c){BWD}
  ROOT e = f32[4] abs(d)
}}
"""


def test_the_passes_have_frames_where_both_are_drawn() -> None:
    panel = drawn(STEP)
    assert frames(panel) == {
        "": ["x", "e"],
        "forward pass": ["a", "b"],
        "backward pass": ["r", "c", "d"],
    }
    assert frames(drawn(STEP, around=["a", "b", "x"], radius=0)) == {"": ["x", "a", "b"]}


def test_a_loop_that_belongs_to_a_pass_stands_in_its_frame() -> None:
    text = LOOP.replace("negate(m)", f"negate(m){FWD}").replace("cosine(out)", f"cosine(out){BWD}")
    panel = drawn(text, around=["n", "b"], radius=0)
    assert nesting(panel) == [["n", "forward pass", "%loop while ×8"], ["b", "backward pass"]]


def test_a_loop_that_runs_both_passes_has_their_frames_inside() -> None:
    text = LOOP.replace("negate(m)", f"negate(m){BWD}").replace(
        "multiply(v, w)", f"multiply(v, w){FWD}"
    )
    panel = drawn(text, around=["m", "n"], radius=0)
    assert nesting(panel) == [
        ["m", "%loop while ×8", "forward pass"],
        ["n", "%loop while ×8", "backward pass"],
    ]


# --- boundaries -----------------------------------------------------------------------------------


def bounded(text: str, mark: dict[str, str]) -> list[list[str]]:
    """The frames around what a mark holds, with a frame around its members `in`."""
    frame = Frame("marks", "checkpoint of {size}", roles=("in",))
    view = View("v", "marks", select=(Select("marks"),), frame=(frame,))
    return nesting(drawn(text, marks=[mark], view=view))


def test_a_frame_goes_around_members_of_a_row() -> None:
    assert bounded(STEP, {"in": "r c", "out": "d a", "size": "7"}) == [
        ["a", "forward pass"],
        ["r", "backward pass", "checkpoint of 7"],
        ["c", "backward pass", "checkpoint of 7"],
        ["d", "backward pass"],
    ]


def test_a_frame_goes_around_fusions_that_lie_in_it() -> None:
    assert bounded(FUSED, {"in": "m n b"}) == [
        ["m", "checkpoint of 0", "%k fusion"],
        ["n", "checkpoint of 0", "%k fusion"],
        ["b", "checkpoint of 0"],
    ]


def test_a_frame_goes_around_a_part_of_a_fusion() -> None:
    assert bounded(FUSED, {"in": "m", "out": "n b"}) == [
        ["m", "%k fusion", "checkpoint of 0"],
        ["n", "%k fusion"],
        ["b"],
    ]


def test_a_frame_stays_inside_a_loop_that_runs_more() -> None:
    assert bounded(LOOP, {"in": "m", "out": "n"}) == [
        ["m", "%loop while ×8", "checkpoint of 0"],
        ["n", "%loop while ×8"],
    ]


def test_an_instruction_of_two_rows_stands_in_one_frame() -> None:
    frame = Frame("marks", "row {size}")
    view = View("v", "marks", select=(Select("marks"),), frame=(frame,))
    marks = [{"in": "a b", "size": "1"}, {"in": "b r", "size": "2"}]
    panel = drawn(STEP.replace("rematted_computation", "x"), marks=marks, view=view)
    held = [node for one in panel.clusters for node in one.all_nodes()]
    assert sorted(held) == sorted(node.id for node in panel.nodes)
    assert ["b", "forward pass", "row 1"] in nesting(panel)


def test_ids_of_frames_are_unique() -> None:
    for text in (NESTED, STEP, FUSED):
        panel = drawn(text, nodes=100)
        ids = [one.id for one in all_frames(panel.clusters)]
        assert len(ids) == len(set(ids))
