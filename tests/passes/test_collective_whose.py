"""Whose values collectives move, what they feed, which gather of a value each is, and where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hlo_lens_passes._named_scopes import named_scope

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import Program
from tests.mutate import check_table
from tests.passes.asking import ask
from tests.test_readme import BLOCK, at_root, output_of

ALL = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
CONDITION = """{name} {{
  s = {carry} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}}"""
ADD = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}"""
WHOSE = (
    "select logical_kind, moves, parameter, feeds_kind, feeds_operand, gather_number, regather_for"
    " from collective_values order by executions, collective, number"
)


def named(name: str) -> str:
    return f'metadata={{op_name="jit(f)/{name}"}}'


def unnamed(text: str) -> str:
    return re.sub(r",\s*metadata=\{[^}]*\}", "", text)


# ---------------------------------------------------------------------------- a step of training

FORWARD = f"""forward {{
  s = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8,16] get-tuple-element(s), index=1
  ws = f32[3,4,16] get-tuple-element(s), index=2
  hs = f32[3,8,16] get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  cut = f32[1,4,16] dynamic-slice(ws, i, z, z), dynamic_slice_sizes={{1,4,16}}
  shard = f32[4,16] bitcast(cut)
  narrow = bf16[4,16] convert(shard)
  ag = bf16[16,16] all-gather(narrow), channel_id=1, dimensions={{0}}, {ALL}
  wide = f32[16,16] convert(ag)
  d = f32[8,16] dot(h, wide), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
      {named("jvp(layers)/while/body/dot_general")}
  kept = f32[1,8,16] bitcast(h)
  stack = f32[3,8,16] dynamic-update-slice(hs, kept, i, z, z)
  ROOT t = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16]) tuple(j, d, ws, stack)
}}"""
BACKWARD = f"""backward {{
  s = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16], f32[3,4,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[8,16] get-tuple-element(s), index=1
  ws = f32[3,4,16] get-tuple-element(s), index=2
  hs = f32[3,8,16] get-tuple-element(s), index=3
  gs = f32[3,4,16] get-tuple-element(s), index=4
  z = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  j = s32[] add(i, one)
  k = s32[] subtract(two, i)
  cut = f32[1,4,16] dynamic-slice(ws, k, z, z), dynamic_slice_sizes={{1,4,16}}
  shard = f32[4,16] bitcast(cut)
  narrow = bf16[4,16] convert(shard)
  ag = bf16[16,16] all-gather(narrow), channel_id=2, dimensions={{0}}, {ALL}
  wide = f32[16,16] convert(ag)
  dx = f32[8,16] dot(g, wide), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}},
      {named("transpose(jvp(layers))/while/body/dot_general")}
  x = f32[1,8,16] dynamic-slice(hs, k, z, z), dynamic_slice_sizes={{1,8,16}}
  h = f32[8,16] bitcast(x)
  dw = f32[16,16] dot(h, g), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}},
      {named("transpose(jvp(layers))/while/body/dot_general")}
  rs = f32[4,16] reduce-scatter(dw), channel_id=3, dimensions={{0}}, {ALL}, to_apply=add
  one_more = f32[1,4,16] bitcast(rs)
  stack = f32[3,4,16] dynamic-update-slice(gs, one_more, k, z, z)
  ROOT t = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16], f32[3,4,16]) tuple(j, dx, ws, hs, stack)
}}"""
STEP = "\n\n".join(
    (
        "HloModule step, num_partitions=4, input_output_alias={ {0}: (0, {}, may-alias),"
        " {1}: (1, {}, may-alias) }",
        ADD,
        FORWARD,
        CONDITION.format(name="fwd_go", carry="(s32[], f32[8,16], f32[3,4,16], f32[3,8,16])"),
        BACKWARD,
        CONDITION.format(
            name="bwd_go", carry="(s32[], f32[8,16], f32[3,4,16], f32[3,8,16], f32[3,4,16])"
        ),
        f"""ENTRY main {{
  w = f32[3,4,16] parameter(0), metadata={{op_name="params['w']"}}
  m = f32[3,4,16] parameter(1), metadata={{op_name="momentum['w']"}}
  x = f32[8,16] parameter(2), metadata={{op_name="x"}}
  z = s32[] constant(0)
  zero = f32[] constant(0)
  hs = f32[3,8,16] broadcast(zero), dimensions={{}}
  gs = f32[3,4,16] broadcast(zero), dimensions={{}}
  ft = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16]) tuple(z, x, w, hs)
  fl = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16]) while(ft), condition=fwd_go, body=forward,
      {named("jvp(layers)/while")}
  y = f32[8,16] get-tuple-element(fl), index=1
  kept = f32[3,8,16] get-tuple-element(fl), index=3
  bt = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16], f32[3,4,16]) tuple(z, y, w, kept, gs)
  bl = (s32[], f32[8,16], f32[3,4,16], f32[3,8,16], f32[3,4,16]) while(bt), condition=bwd_go,
      body=backward, {named("transpose(jvp(layers))/while")}
  g = f32[3,4,16] get-tuple-element(bl), index=4
  rate = f32[] constant(0.1)
  rates = f32[3,4,16] broadcast(rate), dimensions={{}}
  decayed = f32[3,4,16] multiply(m, rates), {named("mul")}
  m2 = f32[3,4,16] add(decayed, g), {named("add")}
  less = f32[3,4,16] multiply(m2, rates), {named("mul")}
  w2 = f32[3,4,16] subtract(w, less), {named("sub")}
  ROOT r = (f32[3,4,16], f32[3,4,16]) tuple(w2, m2)
}}""",
    )
)


def test_a_weight_is_gathered_forward_and_backward_and_its_gradient_scattered() -> None:
    assert check_table(STEP, WHOSE) == [
        ("all-gather", "parameter", "params['w']", "matmul", 1, 1, None),
        ("all-gather", "parameter", "params['w']", "matmul", 1, 2, "backward"),
        # The momentum is updated by it as well, but no model computes with that.
        ("reduce-scatter", "gradient", "params['w']", None, None, None, None),
    ]


def test_gathers_of_a_parameter_in_each_phase_are_a_group_by() -> None:
    sql = (
        "select parameter, sum(gather_number = 1), sum(regather_for = 'replay'),"
        " sum(regather_for = 'backward'), sum(executions) from collective_values"
        " where moves = 'parameter' group by parameter"
    )
    assert ask(STEP, sql) == [("params['w']", 1, 0, 1, 6)]


def test_what_the_backward_multiplies_again_is_no_gradient_of_a_parameter() -> None:
    text = STEP.replace("f32[8,16] dot(g, wide)", "f32[8,16] dot(sum, wide)").replace(
        "  dx = f32[8,16]",
        f"  sum = f32[8,16] all-reduce(g), channel_id=4, {ALL}, to_apply=add,"
        f" {named('transpose(jvp(layers))/while/body/psum')}\n  dx = f32[8,16]",
    )
    sql = "select moves, parameter from collectives where logical_kind = 'all-reduce'"
    assert check_table(text, sql) == [("activation", None)]


def test_a_gradient_that_is_returned_has_the_parameter_of_its_shape() -> None:
    returned = STEP.replace(STEP[STEP.index(", input_output_alias") : STEP.index(" }") + 2], "")
    sql = "select moves, parameter from collectives where logical_kind = 'reduce-scatter'"
    # Weight and momentum have one shape: no telling.
    assert ask(returned, sql) == [("gradient", None)]
    only = returned.replace("multiply(m, rates)", "multiply(g, rates)").replace(
        "m = f32[3,4,16] parameter(1)", "m = f32[3] parameter(1)"
    )
    assert ask(only, sql) == [("gradient", "params['w']")]


def test_without_names_nobody_knows_whether_it_is_a_gradient() -> None:
    text = unnamed(STEP)
    sql = (
        "select logical_kind, moves, parameter, regather_for from collective_values"
        " order by executions, collective"
    )
    assert ask(text, sql) == [
        ("all-gather", "parameter", "w", None),
        ("all-gather", "parameter", "w", None),
        ("reduce-scatter", None, None, None),
    ]


# ---------------------------------------------------------------------------- what a value is


def moved(lines: str, header: str = "") -> list[tuple[object, ...]]:
    """(moves, parameter) of the one collective of an entry, under the harness."""
    text = f"HloModule m, num_partitions=4{header}\n\n{ADD}\n\nENTRY main {{\n{lines}\n}}\n"
    sql = "select moves, parameter from collectives"
    found = check_table(text, sql, must_change="constant" not in str(ask(text, sql)))
    assert isinstance(found, list)
    return found


GATHER = f"all-gather(v), channel_id=1, dimensions={{0}}, {ALL}"
PARAMETERS = """  w = f32[8,4] parameter(0), metadata={op_name="params['w']"}
  x = f32[8,4] parameter(1), metadata={op_name="x"}
  two = f32[] constant(2)
  twos = f32[8,4] broadcast(two), dimensions={}
"""


@pytest.mark.parametrize(
    ("value", "moves"),
    [
        ("v = f32[4,8] transpose(w), dimensions={1,0}", ("parameter", "params['w']")),
        ("v = f32[2,4] slice(w), slice={[2:4], [0:4]}", ("parameter", "params['w']")),
        ("v = f32[8,4] multiply(w, twos)", ("parameter", "params['w']")),  # scaled, say to f8
        ("v = f32[8,4] multiply(w, x)", ("activation", None)),
        ("v = f32[8,4] tanh(w)", ("activation", None)),
        ("v = f32[16,4] concatenate(w, x), dimensions={0}", ("parameter", None)),
        ("v = f32[8,4] multiply(twos, twos)", ("constant", None)),
        ("v = f32[8,4] copy(twos)", ("constant", None)),
        (
            "t = (f32[8,4], f32[8,4]) tuple(w, x)\n"
            "  o = (f32[8,4], f32[8,4]) opt-barrier(t)\n"
            "  v = f32[8,4] get-tuple-element(o), index=1",
            ("parameter", "x"),
        ),
        (
            f"u = f32[16,4] all-gather(x), channel_id=2, dimensions={{0}}, {ALL}\n"
            "  v = f32[2,4] slice(u), slice={[2:4], [0:4]}",
            ("parameter", "x"),
        ),
    ],
)
def test_what_a_gather_moves(value: str, moves: tuple[object, ...]) -> None:
    assert moves in moved(f"{PARAMETERS}  {value}\n  ROOT ag = f32[32,4] {GATHER}")


def test_the_gathered_new_value_of_a_parameter_is_that_parameter() -> None:
    updated = (
        PARAMETERS
        + f"  n = f32[8,4] tanh(w), {named('update/tanh')}\n  v = f32[2,4] slice(n),"
        + f" slice={{[0:2], [0:4]}}\n  ag = f32[8,4] {GATHER}\n"
        + "  ROOT r = (f32[8,4], f32[8,4]) tuple(ag, x)"
    )
    alias = ", input_output_alias={ {0}: (0, {}, may-alias) }"
    assert moved(updated, alias) == [("parameter", "params['w']")]
    assert moved(updated) == [("activation", None)]
    # Computed with on the way, it is not that value.
    assert moved(
        updated.replace("tuple(ag, x)", "tuple(b, x)").replace(
            "  ROOT r", "  b = f32[8,4] negate(ag)\n  ROOT r"
        ),
        alias,
    ) == [("activation", None)]


def test_arrays_of_one_collective_each_have_a_row() -> None:
    text = f"""HloModule m, num_partitions=4

ENTRY main {{
  w = f32[8,4] parameter(0), metadata={{op_name="a"}}
  v = f32[4,4] parameter(1), metadata={{op_name="b"}}
  x = f32[4,4] parameter(2)
  ag = (f32[32,4], f32[16,4]) all-gather(w, v), channel_id=1, dimensions={{0}}, {ALL}
  p = f32[32,4] get-tuple-element(ag), index=0
  q = f32[16,4] get-tuple-element(ag), index=1
  again = f32[16,4] all-gather(v), channel_id=2, dimensions={{0}}, {ALL}
  d = f32[32,4] dot(p, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = f32[4,16] dot(x, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT r = (f32[32,4], f32[4,16], f32[16,4]) tuple(d, e, again)
}}
"""
    values = (
        "select parameter, operand_bytes, wire_bytes, feeds_operand, gather_number"
        " from collective_values order by parameter, gather_number"
    )
    assert check_table(text, values, skip={"reorder"}) == [  # the order says which gather is first
        ("a", 128, 384, 0, 1),
        ("b", 64, 192, 1, 1),
        ("b", 64, 192, None, 2),
    ]
    rows = "select arrays, moves, parameter, feeds_kind, feeds_operand from collectives order by 1"
    assert ask(text, rows) == [
        (1, "parameter", "b", None, None),
        (2, "parameter", None, "matmul", None),
    ]


# ---------------------------------------------------------------------------- what it feeds


def fed(lines: str, *computations: str) -> object:
    blocks = "\n\n".join(computations)
    text = (
        f"HloModule m, num_partitions=4\n\n{blocks}\n\nENTRY main {{\n"
        "  v = f32[4,4] parameter(0)\n  x = f32[4,16] parameter(1)\n"
        f"  ag = f32[16,4] {GATHER}\n{lines}\n}}\n"
    )
    sql = "select feeds_kind, feeds_operand from collectives"
    return check_table(text, sql, must_change=ask(text, sql) != [(None, None)])


DOT = "dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def test_a_matmul_in_a_fusion_is_fed() -> None:
    fused = f"""fused {{
  p = f32[16,4] parameter(0)
  x = f32[4,16] parameter(1)
  n = bf16[16,4] convert(p)
  w = f32[16,4] convert(n)
  ROOT d = f32[4,4] {DOT}
}}"""
    entry = "  ROOT f = f32[4,4] fusion(ag, x), kind=kOutput, calls=fused"
    assert fed(entry, fused) == [("matmul", 1)]


def test_a_sum_with_something_else_is_fed_not_the_matmul_behind_it() -> None:
    lines = f"  y = f32[16,4] parameter(2)\n  w = f32[16,4] add(ag, y)\n  ROOT d = f32[4,4] {DOT}"
    assert fed(lines) == [(None, None)]


def test_a_kernel_is_fed_and_a_marker_is_none() -> None:
    call = '  ROOT k = f32[4] custom-call(x, ag), custom_call_target="{}"'
    assert fed(call.format("my_kernel")) == [("kernel", 1)]
    assert fed(call.format("annotate_device_placement")) == [(None, None)]


def test_a_gather_feeds_through_another_gather() -> None:
    lines = (
        f"  w = f32[64,4] all-gather(ag), channel_id=2, dimensions={{0}}, {ALL}\n"
        "  y = f32[4,64] parameter(2)\n"
        "  ROOT d = f32[4,4] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert fed(lines) == [("matmul", 1), ("matmul", 1)]


def test_of_two_matmuls_the_first_in_the_schedule_is_fed() -> None:
    text = f"""HloModule m, is_scheduled=true, num_partitions=4

ENTRY main {{
  v = f32[4,4] parameter(0)
  x = f32[4,16] parameter(1)
  ag = f32[16,4] {GATHER}
  w = f32[16,4] copy(ag)
  near = f32[4,4] {DOT}
  far = f32[4,4] dot(x, ag), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[4,4], f32[4,4]) tuple(near, far)
}}
"""
    sql = "select feeds_name from collectives"
    assert ask(text, sql) == [("near",)]
    path = (
        'select i.name from members m join instructions i on i.id = m.instr where m."table" ='
        " 'collective_values' and m.role = '{}'"
    )
    assert ask(text, path.format("path")) == [("w",)]
    assert ask(text, path.format("feeds")) == [("near",)]
    # Swapped in the schedule, it is the other one.
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("  near"))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    assert ask("\n".join(lines), sql) == [("far",)]


# ---------------------------------------------------------------------------- ahead of its use

AHEAD = f"""HloModule m, num_partitions=4

body {{
  s = (s32[], f32[4,16], f32[3,4,4], f32[16,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,16] get-tuple-element(s), index=1
  ws = f32[3,4,4] get-tuple-element(s), index=2
  w = f32[16,4] get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  cut = f32[1,4,4] dynamic-slice(ws, j, z, z), dynamic_slice_sizes={{1,4,4}}
  v = f32[4,4] bitcast(cut)
  ag = f32[16,4] {GATHER}
  d = f32[4,4] {DOT}
  c = f32[4,16] concatenate(d, d, d, d), dimensions={{1}}
  ROOT t = (s32[], f32[4,16], f32[3,4,4], f32[16,4]) tuple(j, c, ws, ag)
}}

{CONDITION.format(name="go", carry="(s32[], f32[4,16], f32[3,4,4], f32[16,4])")}

ENTRY main {{
  ws = f32[3,4,4] parameter(0)
  x = f32[4,16] parameter(1)
  z = s32[] constant(0)
  cut = f32[1,4,4] dynamic-slice(ws, z, z, z), dynamic_slice_sizes={{1,4,4}}
  u = f32[4,4] bitcast(cut)
  first = f32[16,4] all-gather(u), channel_id=2, dimensions={{0}}, {ALL},
      metadata={{op_name="jit(f)/while/body/all_gather"}}
  t = (s32[], f32[4,16], f32[3,4,4], f32[16,4]) tuple(z, x, ws, first)
  l = (s32[], f32[4,16], f32[3,4,4], f32[16,4]) while(t), condition=go, body=body
  ROOT r = f32[4,16] get-tuple-element(l), index=1
}}
"""
FETCHED = (
    "select executions, loop_depth, prefetched, prefetch_carry, peeled_of is not null,"
    " gather_number, is_regather, feeds_kind from collectives order by executions"
)


def test_a_gather_for_the_next_iteration_and_the_one_peeled_off_it() -> None:
    # Its op_name says while/body, but it stands in front of the loop.
    assert check_table(AHEAD, FETCHED) == [
        (1, 0, 0, None, 1, 1, 0, "matmul"),
        (3, 1, 1, 3, 0, 1, 0, "matmul"),
    ]


def test_a_gather_that_this_iteration_uses_too_is_not_ahead() -> None:
    text = AHEAD.replace("dot(x, w)", "dot(x, both)").replace(
        "  d = f32[4,4]", "  both = f32[16,4] add(w, ag)\n  d = f32[4,4]"
    )
    assert [row[2:5] for row in ask(text, FETCHED)] == [(0, None, 0), (0, None, 0)]


def test_a_sum_that_the_iteration_hands_on_is_not_fetched_ahead() -> None:
    text = AHEAD.replace("concatenate(d, d, d, d), dimensions={1}", "bitcast(e)").replace(
        "  c = f32[4,16]",
        f"  e = f32[16,4] all-gather(d), channel_id=4, dimensions={{0}}, {ALL}\n  c = f32[4,16]",
    )
    sql = "select prefetched from collectives where channel_id = 4"
    assert ask(text, sql) == [(0,)]


# ---------------------------------------------------------------------------- microbatches


def microbatches(*names: str) -> str:
    dots = "\n".join(
        f"  d{k} = f32[4,4] dot(g, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f" {named(name)}"
        for k, name in enumerate(names)
    )
    last = f"d{len(names) - 1}"
    return f"""HloModule m, num_partitions=4

{ADD}

body {{
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[4,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
{dots}
  r = f32[4,4] all-reduce({last}), channel_id=1, {ALL}, to_apply=add
  a = f32[4,4] add(g, r)
  ROOT t = (s32[], f32[4,4]) tuple(j, a)
}}

{CONDITION.format(name="go", carry="(s32[], f32[4,4])")}

ENTRY main {{
  g = f32[4,4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4,4]) tuple(z, g)
  l = (s32[], f32[4,4]) while(t), condition=go, body=body, {named("while")}
  ROOT r = f32[4,4] get-tuple-element(l), index=1
}}
"""


@pytest.mark.parametrize(
    ("names", "inside"),
    [
        (("jvp()/dot", "transpose(jvp())/dot"), 1),
        (("jvp()/dot", "jvp()/dot"), 0),
        (("transpose(jvp())/dot",), 0),
        (("transpose(jvp())/checkpoint/rematted_computation/dot", "transpose(jvp())/dot"), 0),
    ],
)
def test_a_loop_over_microbatches_holds_both_passes(names: tuple[str, ...], inside: int) -> None:
    sql = "select in_microbatch_loop from collectives"
    assert check_table(microbatches(*names), sql, must_change=False) == [(inside,)]


def test_a_gradient_that_a_loop_over_microbatches_adds_up_is_one() -> None:
    text = microbatches("jvp()/dot", "transpose(jvp())/dot")
    # The sum is used by the next iteration, whose matmuls are no part of this one.
    assert ask(text, "select moves from collectives") == [("gradient",)]
    assert ask(unnamed(text), "select in_microbatch_loop from collectives") == [(None,)]


# ---------------------------------------------------------------------------- axes and hosts

SUM = """HloModule m, num_partitions=8{header}

add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}}

ENTRY main {{
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), channel_id=1, replica_groups={groups},
      use_global_device_ids=true, to_apply=add
}}
"""
AXES = "select axes, axis_sizes, axes_from, intra_host from collectives"


def beside(folder: Path, groups: str, header: str = "", **files: object) -> tuple[object, ...]:
    """The answer about a sum over these groups, with such side files."""
    paths = {}
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content))
        paths[path.name] = path
    text = SUM.format(groups=groups, header=header)
    facts = Facts(Program([parse(text)], side_files=paths))
    (row,) = run_query([facts], AXES).rows
    return tuple(row)


MESH = {"axes": {"data": 2, "model": 4}, "devices": 8}


@pytest.mark.parametrize(
    ("groups", "header", "answer"),
    [
        ("{{0,1,2,3},{4,5,6,7}}", "", ('["model"]', "[4]", "side_file")),
        ("{{0,4},{1,5},{2,6},{3,7}}", "", ('["data"]', "[2]", "side_file")),
        ("{}", "", ('["data","model"]', "[2,4]", "side_file")),
        ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", "", ('["model"]', "[4]", "side_file")),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", "", ('["axis_1"]', "[2]", "text")),
        ("mesh['x'=2,'y'=4] {'y'}", "", ('["y"]', "[4]", "text")),
        ("{{0,1},{2,3},{4,5},{6,7}}", "", (None, None, None)),
        (
            "{{0,1,2,3},{4,5,6,7}}",
            ', frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["a"=2, "b"=4]>}}',
            ('["b"]', "[4]", "header"),
        ),
    ],
)
def test_what_names_the_axes(
    tmp_path: Path, groups: str, header: str, answer: tuple[object, ...]
) -> None:
    assert beside(tmp_path, groups, header, mesh=MESH)[:3] == answer


@pytest.mark.parametrize(
    "mesh", [{"axes": {"data": 2, "model": 2}}, {"axes": ["data"]}, {"axes": {"a": "8"}}, [1], None]
)
def test_a_mesh_of_other_devices_or_that_is_none_names_nothing(
    tmp_path: Path, mesh: object
) -> None:
    assert beside(tmp_path, "{{0,1,2,3},{4,5,6,7}}", mesh=mesh)[:3] == (None, None, None)


def provenance(platform: str, topology: str | None, devices: int) -> dict[str, object]:
    return {"target": {"platform": platform, "topology": topology, "devices": devices}}


@pytest.mark.parametrize(
    ("target", "groups", "within"),
    [
        (("rocm", "1x1x8", 8), "{}", 1),
        (("rocm", "1x2x4", 8), "{}", 0),
        (("rocm", "1x2x4", 8), "{{0,1,2,3},{4,5,6,7}}", 1),
        (("rocm", "1x2x4", 8), "{{0,4},{1,5},{2,6},{3,7}}", 0),
        (("cpu", None, 8), "{}", 1),
        (("tpu", "2x4", 8), "{{0,1,2,3},{4,5,6,7}}", 1),  # hosts of 2x2 chips
        (("tpu", "2x4", 8), "{}", 0),
        (("tpu", "2x2x1", 8), "{}", 1),  # two cores a chip
        (("tpu", "1x8", 8), "{}", None),  # no such hosts
        (("cuda", "8", 8), "{}", None),
        (("cuda", "1x1x16", 16), "{}", None),  # of another compile
        (("neuron", "1x1x8", 8), "{}", None),
    ],
)
def test_whether_groups_stay_on_a_host(
    tmp_path: Path, target: tuple[str, str | None, int], groups: str, within: int | None
) -> None:
    assert beside(tmp_path, groups, provenance=provenance(*target))[3] == within


def test_without_a_provenance_nobody_knows_of_hosts(tmp_path: Path) -> None:
    assert beside(tmp_path, "{}", mesh=MESH)[3] is None
    assert beside(tmp_path, "{}", provenance={"target": None})[3] is None


# ---------------------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(step)/jvp(decoder)/while/body/closed_call/mlp/dot_general", "decoder/mlp"),
        ("jit(step)/transpose(jvp(decoder))/while/body/closed_call/mlp/dot_general", "decoder/mlp"),
        (
            "jit(step)/transpose(jvp(decoder))/while/body/closed_call/checkpoint/"
            "rematted_computation/mlp/dot_general",
            "decoder/mlp",
        ),
        ("jit(step)/jit(main)/jvp(Block)/sharding_constraint", "Block"),
        ("jit(step)/embed/jit(take)/gather", "embed"),
        ("jit(step)/decoder/(attention/dot_general:mlp/dot_general)", "decoder"),
        ("jit(step)/(jvp(embed)/gather:jvp(head)/dot_general)", ""),
        ("jit(step)/body/while/add", "body/while"),  # a scope of that name
        ("jit(step)/add", ""),
        ("params['w']", ""),
        ("model/layer/MatMul", "model/layer"),
    ],
)
def test_the_scope_of_an_operation(op_name: str, scope: str) -> None:
    assert named_scope(op_name) == scope


def test_a_collective_without_a_name_has_no_scope() -> None:
    text = SUM.format(groups="{}", header="")
    assert ask(text, "select scope from collectives") == [(None,)]
    one = text.replace("to_apply=add", f"to_apply=add, {named('jvp(model)/mlp/psum')}")
    assert ask(one, "select scope from collectives") == [("model/mlp",)]


# ---------------------------------------------------------------------------- the page


def test_the_page_shows_what_its_commands_print() -> None:
    page = (Path(__file__).parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("output of:") == 4
    with at_root():
        for block in blocks:
            assert block["output"] == output_of(block["command"], block["lines"], block["code"])


# -- axes that another collective names -----------------------------------------------------------

NAMED_ELSEWHERE = """HloModule m, num_partitions=8

ENTRY main {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  r = f32[8] parameter(2)
  a = f32[64] all-gather(p), channel_id=1, dimensions={0}, use_global_device_ids=true, \
replica_groups=mesh['data'=1,'fsdp'=8] {'fsdp'}
  b = f32[64] all-gather(q), channel_id=2, dimensions={0}, use_global_device_ids=true, \
replica_groups=mesh['axis_0'=8] {'axis_0'}
  c = f32[32] all-gather(r), channel_id=3, dimensions={0}, use_global_device_ids=true, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}
  ROOT t = (f32[64], f32[64], f32[32]) tuple(a, b, c)
}
"""


def test_names_that_xla_made_up_give_way_to_those_of_equal_groups() -> None:
    sql = "select name, axes, axis_sizes, axes_from from collectives"
    assert ask(NAMED_ELSEWHERE, sql) == [
        ("a", '["fsdp"]', "[8]", "text"),
        ("b", '["fsdp"]', "[8]", "text"),
        ("c", '["axis_1"]', "[4]", "text"),
    ]
    alone = NAMED_ELSEWHERE.replace("mesh['data'=1,'fsdp'=8] {'fsdp'}", "[1,8]<=[8]")
    assert ask(alone, sql) == [
        ("a", None, None, None),
        ("b", '["axis_0"]', "[8]", "text"),
        ("c", '["axis_1"]', "[4]", "text"),
    ]
