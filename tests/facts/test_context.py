"""The common columns of an instruction: where it stands, in which phase, how often it runs."""

from __future__ import annotations

from hlo_lens.facts import COMMON, common, common_row
from tests.facts.toys import program

LOOP = """\
HloModule steps

body {
  p = (s32[], f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4]{0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4]{0} multiply(x, x), metadata={op_name="jit(f)/transpose(jvp(g))/mul" source_file="model.py" source_line=12}
  ROOT t = (s32[], f32[4]{0}) tuple(next, y)
}

condition {
  q = (s32[], f32[4]{0}) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  n = s32[] constant(7)
  ROOT less = pred[] compare(j, n), direction=LT
}

ENTRY main {
  a = f32[4]{0} parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[4]{0}) tuple(zero, a)
  ROOT w = (s32[], f32[4]{0}) while(init), condition=condition, body=body, backend_config={"known_trip_count":{"n":"7"}}
}
"""  # noqa: E501


def test_in_a_loop() -> None:
    steps = program(LOOP)
    module = steps.main
    assert common(steps, 0, module.computations["body"].instructions["y"]) == {
        "id": None,
        "module": 0,
        "instr": 5,
        "name": "y",
        "phase": "bwd",
        "phase_from": "own",
        "loop": module.entry.instructions["w"].id,
        "loop_name": "w",
        "loop_depth": 1,
        "executions": 7,
        "executions_min": 7,
        "executions_max": 7,
        "trips_kind": "annotated",
        "source": "model.py:12",
        "text_line": 9,
    }


def test_outside_of_loops_and_without_names() -> None:
    steps = program(LOOP)
    known = common(steps, 0, steps.main.entry.instructions["w"])
    assert (known["phase"], known["source"]) == (None, None)
    assert (known["loop"], known["loop_name"], known["loop_depth"]) == (None, None, 0)
    assert (known["executions"], known["trips_kind"]) == (1, None)


def test_a_condition_runs_once_more() -> None:
    steps = program(LOOP)
    assert common(steps, 0, steps.main.computations["condition"].root)["executions"] == 8


def test_a_row_begins_with_the_same_values_in_order() -> None:
    steps = program(LOOP, LOOP)
    root = steps.modules[1].entry.root
    row = common_row(steps, 1, root)
    assert dict(zip([column.name for column in COMMON], row, strict=True)) == common(steps, 1, root)
    assert row[1] == 1


def test_what_is_implied_stands_where_the_instruction_does_that_implies_it() -> None:
    text = """\
HloModule sugar
ENTRY main {
  x = f32[4]{0} parameter(0)
  s = ((f32[4]{0}), f32[4]{0}, u32[]) negate-start(x)
  ROOT d = f32[4]{0} negate-done(s)
}
"""
    sugar = program(text)
    start = sugar.main.entry.instructions["s"]
    [wrapped] = start.called
    assert wrapped.root.implied
    known = common(sugar, 0, wrapped.root)
    assert (known["instr"], known["text_line"]) == (start.id, 4)
    assert known["executions"] == 1


def test_metadata_that_cannot_be_read_leaves_the_source_unknown() -> None:
    text = """\
HloModule bad
ENTRY main {
  ROOT x = f32[] parameter(0), metadata={op_name="f" source_line=twelve}
}
"""
    bad = program(text)
    known = common(bad, 0, bad.main.entry.root)
    assert (known["source"], known["text_line"]) == (None, 3)
