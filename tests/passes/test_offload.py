"""The offload table: what moves between device and host, what is one value, and what waits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.inspect import as_lines, report
from hlo_lens.present.page import plain
from hlo_lens.program import Program, load
from tests.mutate import FROM_METADATA, check_table
from tests.passes.asking import ask, ask_file, findings
from tests.shared import needs_shared, unpacked
from tests.test_readme import BLOCK, at_root, output_of

ROOT = Path(__file__).parents[2]
REMAT = ROOT / "fixtures" / "hlo" / "remat"
PAGE = ROOT / "docs" / "offload.md"

MOVES = "select kind, direction, shape, moved_bytes, is_matched from offload"
# What a name tells, or the phase of a name.
NAMED = FROM_METADATA | {"value"}


# ---------------------------------------------------------------------------- placements

FWD = 'metadata={op_name="jit(f)/jvp(g)/a"}'
BWD = 'metadata={op_name="jit(f)/transpose(jvp(g))/a"}'
ANNOTATE = 'custom_call_target="annotate_device_placement", custom_call_has_side_effect=true'
TO_HOST = f'{ANNOTATE}, frontend_attributes={{_xla_buffer_placement="pinned_host"}}'
TO_DEVICE = f'{ANNOTATE}, frontend_attributes={{_xla_buffer_placement="device"}}'

BARRIER = f"""HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}
ENTRY main {{
  x = f32[8] parameter(0)
  kept = f32[8] sine(x), {FWD}
  away = f32[8] custom-call(kept), {{to_host}}, {FWD}
  g = f32[8] cosine(kept), {FWD}
  t = (f32[8], f32[8]) tuple(away, g)
  b = (f32[8], f32[8]) opt-barrier(t)
  held = f32[8] get-tuple-element(b), index=0
  ct = f32[8] get-tuple-element(b), index=1
  back = f32[8] custom-call({{taken}}), {{to_device}}, {BWD}
  ROOT r = f32[8] multiply(ct, back), {BWD}
}}
"""


def annotated(text: str = BARRIER, taken: str = "held", **targets: str) -> str:
    filled = {"{to_host}": TO_HOST, "{to_device}": TO_DEVICE, "{taken}": taken}
    for mark, value in (filled | {f"{{{k}}}": v for k, v in targets.items()}).items():
        text = text.replace(mark, value)
    return text


def test_annotations_are_matched_through_a_barrier() -> None:
    found = check_table(annotated(), MOVES)
    assert found == [
        ("annotation", "to_device", "f32[8]", 32, 1),
        ("annotation", "to_host", "f32[8]", 32, 1),
    ]
    check_table(annotated(), "offload", from_metadata=NAMED)
    assert ask(annotated(), "select name, phase, value, from_memory, to_memory from offload") == [
        ("away", "fwd", "residual", "device", "host"),
        ("back", "bwd", "residual", "host", "device"),
    ]
    matched = "select o.name, i.name from offload o join instructions i on i.id = o.matched"
    assert ask(annotated(), matched) == [("away", "back"), ("back", "away")]
    assert findings(annotated(), "offload") == []


def test_what_xla_makes_of_annotations_is_a_move() -> None:
    text = annotated(
        to_host='custom_call_target="MoveToHost"', to_device='custom_call_target="MoveToDevice"'
    )
    assert check_table(text, MOVES) == [
        ("move", "to_device", "f32[8]", 32, 1),
        ("move", "to_host", "f32[8]", 32, 1),
    ]


@pytest.mark.parametrize("placement", ["unpinned_host", "pinned_host"])
def test_both_memories_of_the_host_are_the_host(placement: str) -> None:
    text = annotated(to_host=TO_HOST.replace("pinned_host", placement))
    assert ask(text, "select direction from offload") == [("to_host",), ("to_device",)]


@pytest.mark.parametrize("placement", ["device_sram", "pinned_device", "elsewhere"])
def test_a_place_on_the_device_is_none_on_the_host(placement: str) -> None:
    text = annotated(to_host=TO_HOST.replace("pinned_host", placement))
    assert ask(text, "select name from offload") == []


def test_another_value_is_no_counterpart() -> None:
    """`back` brings what never went: nothing moves, and `away` is alone."""
    text = annotated(taken="ct")
    assert check_table(text, MOVES) == [("annotation", "to_host", "f32[8]", 32, 0)]
    assert findings(text, "offload") == [
        ("offload-unmatched", "%away moves f32[8] to the host, and nothing moves it back")
    ]


def test_what_may_have_come_from_the_host_is_kept() -> None:
    """Without layouts it is not known where an argument lies, and a kernel may give anything."""
    text = """HloModule m
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] {operation}
  ROOT back = f32[8] custom-call(y), custom_call_target="MoveToDevice"
}}"""
    for operation in ("bitcast(x)", 'custom-call(x), custom_call_target="k"'):
        assert ask(text.format(operation=operation), "select is_matched from offload") == [(0,)]
    assert ask(text.format(operation="negate(x)"), "select name from offload") == []
    known = text.replace("m\n", "m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}\n", 1)
    assert ask(known.format(operation="bitcast(x)"), "select name from offload") == []


def test_several_placements_in_one_memory_are_one_move() -> None:
    """jax marks a value where it is moved and where it is returned."""
    text = annotated(f"""HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0:S(5)}}}}
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  first = f32[8] custom-call(y), {TO_HOST}
  second = f32[8] custom-call(first), {TO_HOST}
  ROOT third = f32[8] custom-call(second), custom_call_target="xla.sdy.FuncResultSharding"
}}""")
    assert check_table(text, MOVES) == [
        ("annotation", "to_host", "f32[8]", 32, 1),
        ("result", None, "f32[8]", 0, 1),
    ]
    members = (
        "select m.role, i.name from members m join instructions i on i.id = m.instr"
        """ where m."table" = 'offload' and m.row = 0"""
    )
    assert ask(text, members) == [("move", "first"), ("repeat", "second")]


# ---------------------------------------------------------------------------- loops

LOOPS = """HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}
put {{
  whole = f32[4,8] parameter(0)
  part = f32[8] parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  row = f32[1,8] reshape(part)
  ROOT new = f32[4,8] dynamic-update-slice(whole, row, at, zero)
}}
fwd {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  a = f32[4,8] get-tuple-element(p), index=2
  b = f32[4,8] get-tuple-element(p), index=3
  one = s32[] constant(1)
  t = f32[8] tanh(h)
  away = f32[8] custom-call(t), custom_call_target="MoveToHost"
  u = f32[8] sine(t)
  a.2 = f32[4,8] call(a, away, i), to_apply=put
  b.2 = f32[4,8] call(b, u, i), to_apply=put
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(next, u, a.2, b.2)
}}
fwd_go {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}}
take {{
  whole = f32[4,8] parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  row = f32[1,8] dynamic-slice(whole, at, zero), dynamic_slice_sizes={{1,8}}
  ROOT part = f32[8] reshape(row)
}}
bwd {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = f32[8] get-tuple-element(p), index=1
  a = f32[4,8] get-tuple-element(p), index=2
  b = f32[4,8] get-tuple-element(p), index=3
  one = s32[] constant(1)
  three = s32[] constant(3)
  k = s32[] subtract(three, j)
  kept = f32[8] call({stack}, k), to_apply=take
  other = f32[8] call(b, k), to_apply=take
  back = f32[8] custom-call(kept), custom_call_target="MoveToDevice"
  c = f32[8] multiply(g, back)
  d = f32[8] multiply(c, other)
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(next, d, a, b)
}}
bwd_go {{
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(j, n), direction=LT
}}
ENTRY main {{
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  f = f32[] constant(0)
  empty = f32[4,8] broadcast(f), dimensions={{}}
  init = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(zero, x, empty, empty)
  w = (s32[], f32[8], f32[4,8], f32[4,8]) while(init), condition=fwd_go, body=fwd
  y = f32[8] get-tuple-element(w), index=1
  sa = f32[4,8] get-tuple-element(w), index=2
  sb = f32[4,8] get-tuple-element(w), index=3
  init.2 = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(zero, y, sa, sb)
  w.2 = (s32[], f32[8], f32[4,8], f32[4,8]) while(init.2), condition=bwd_go, body=bwd
  ROOT g = f32[8] get-tuple-element(w.2), index=1
}}
"""
IN_LOOPS = "select kind, direction, value, shape, executions, is_matched from offload"


def test_moves_are_matched_through_what_one_loop_stacks_and_another_slices() -> None:
    """The computations that stack and slice are shared with a value that stays on the device."""
    assert check_table(LOOPS.format(stack="a"), IN_LOOPS) == [
        ("move", "to_device", "residual", "f32[8]", 4, 1),
        ("move", "to_host", "residual", "f32[8]", 4, 1),
    ]
    assert findings(LOOPS.format(stack="a"), "offload") == []


def test_a_slice_of_another_stack_is_no_counterpart() -> None:
    text = LOOPS.format(stack="b")
    assert check_table(text, MOVES) == [("move", "to_host", "f32[8]", 32, 0)]
    assert [rule for rule, _ in findings(text, "offload")] == ["offload-unmatched"]


HELD = """HloModule m, entry_computation_layout={{(f32[8]{{0}}, pred[])->f32[8]{{0}}}}
step {{
  q = f32[8] parameter(0)
  b = f32[8] custom-call(q), custom_call_target="MoveToDevice"
  ROOT n = f32[8] negate(b)
}}
yes {{
  q = f32[8] parameter(0)
  ROOT b = f32[8] bitcast(q)
}}
no {{
  q = f32[8] parameter(0)
  n = f32[8] sine(q)
  ROOT a = f32[8] custom-call(n), custom_call_target="MoveToHost"
}}
body {{
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  held = f32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  b = f32[8] custom-call(held), custom_call_target="MoveToDevice"
  n = f32[8] sine(b)
  a = f32[8] custom-call(n), custom_call_target="MoveToHost"
  ROOT r = (s32[], f32[8], f32[8]) tuple(next, a, n)
}}
go {{
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT g = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  x = f32[8] parameter(0)
  c = pred[] parameter(1)
  y = f32[8] negate(x)
  away = f32[8] custom-call(y), custom_call_target="MoveToHost"
{lines}
}}
"""
WAYS = {
    "a computation that two places call": """  u = f32[8] cosine(x)
  z = f32[8] call(u), to_apply=step
  ROOT w = f32[8] call(away), to_apply=step""",
    "a branch": """  h = f32[8] conditional(c, away, y), true_computation=yes, false_computation=no
  ROOT w = f32[8] call(h), to_apply=step""",
    "a carry that changes": """  zero = s32[] constant(0)
  t = (s32[], f32[8], f32[8]) tuple(zero, away, y)
  w = (s32[], f32[8], f32[8]) while(t), condition=go, body=body
  ROOT v = f32[8] get-tuple-element(w), index=2""",
    "a slice of the whole": """  z = s32[] constant(0)
  k = f32[] constant(0)
  f = f32[32] broadcast(k), dimensions={}
  h = f32[32] dynamic-update-slice(f, away, z)
  s = f32[8] slice(h), slice={[0:8]}
  ROOT w = f32[8] call(s), to_apply=step""",
}


@pytest.mark.parametrize("way", WAYS)
def test_moves_are_matched_through(way: str) -> None:
    text = called_only(HELD.format(lines=WAYS[way]))
    question = f"{MOVES} where name != 'b'"
    assert set(ask(text, question)) == {("move", "to_host", "f32[8]", 32, 1)}
    check_table(text, MOVES)
    assert findings(text, "offload") == []


def called_only(text: str) -> str:
    """The text without the computations that nothing calls."""
    head, *blocks = re.split(r"(?<=\n)(?=\w+ (?:main )?\{\n)", text)
    rest = "".join(blocks)
    called = [b for b in blocks if re.search(rf"[=]{b.split()[0]}\b", rest) or "ENTRY" in b]
    return head + "".join(called)


def test_a_reduce_of_nothing_is_passed_and_a_sum_is_not() -> None:
    text = """HloModule m
add {
  q = f32[] parameter(0)
  w = f32[] parameter(1)
  ROOT s = f32[] add(q, w)
}
ENTRY main {
  x = f32[SIZE,8] parameter(0)
  y = f32[SIZE,8] negate(x)
  away = f32[SIZE,8] custom-call(y), custom_call_target="MoveToHost"
  z = f32[] constant(0)
  h = f32[8] reduce(away, z), dimensions={0}, to_apply=add
  ROOT back = f32[8] custom-call(h), custom_call_target="MoveToDevice"
}"""
    question = "select direction, is_matched from offload"
    assert ask(text.replace("SIZE", "1"), question) == [("to_host", 1), ("to_device", 1)]
    assert ask(text.replace("SIZE", "2"), question) == [("to_host", 0)]


def test_of_too_many_ways_nothing_is_said() -> None:
    parts = "\n".join(
        f"  h.{i + 1} = f32[8] dynamic-update-slice(h.{i}, {'away' if i == 1 else 'u'}, z)"
        for i in range(1500)
    )
    text = f"""HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0}}}}
ENTRY main {{
  x = f32[8] parameter(0)
  u = f32[4] slice(x), slice={{[0:4]}}
  y = f32[4] negate(u)
  away = f32[4] custom-call(y), custom_call_target="MoveToHost"
  z = s32[] constant(0)
  h.0 = f32[8] negate(x)
{parts}
  ROOT back = f32[8] custom-call(h.1500), custom_call_target="MoveToDevice"
}}"""
    assert ask(text, "select name, is_matched from offload") == [("away", 0), ("back", 0)]
    assert findings(text, "offload") == []


# ---------------------------------------------------------------------------- copies

WHOLE, PART = "f32[4,8]{1,0:S(5)}", "f32[1,8]{1,0}"
STATE = f"(s32[], f32[1,8]{{1,0}}, {WHOLE})"
PUT = {
    "plain": "a.2 = {whole} dynamic-update-slice(a, t, i, zero)",
    "fusion": "a.2 = {whole} fusion(a, t, i, zero), kind=kLoop, calls=put",
    "sugar": "s = (({whole}, {part}, s32[], s32[]), {whole}, u32[])"
    " dynamic-update-slice-start(a, t, i, zero)\n"
    "  a.2 = {whole} dynamic-update-slice-done(s)",
    "wrapper": "s = (({whole}, {part}, s32[], s32[]), {whole}, u32[])"
    " async-start(a, t, i, zero), calls=put\n"
    "  a.2 = {whole} async-done(s)",
    "fusion in a wrapper": "s = (({whole}, {part}, s32[], s32[]), {whole}, u32[])"
    " async-start(a, t, i, zero), calls=put_fused\n"
    "  a.2 = {whole} async-done(s)",
}
TAKE = {
    "plain": "c = {part} dynamic-slice(a, k, zero), dynamic_slice_sizes={{1,8}}",
    "fusion": "c = {part} fusion(a, k, zero), kind=kLoop, calls=take",
    "sugar": "s = (({whole}, s32[], s32[]), {part}, u32[])"
    " dynamic-slice-start(a, k, zero), dynamic_slice_sizes={{1,8}}\n"
    "  c = {part} dynamic-slice-done(s)",
    "wrapper": "s = (({whole}, s32[], s32[]), {part}, u32[])"
    " async-start(a, k, zero), calls=take\n"
    "  c = {part} async-done(s)",
    "fusion in a wrapper": "s = (({whole}, s32[], s32[]), {part}, u32[])"
    " async-start(a, k, zero), calls=take_fused\n"
    "  c = {part} async-done(s)",
}
CALLED = {
    "put": """put {
  q = WHOLE parameter(0)
  w = PART parameter(1)
  e = s32[] parameter(2)
  z = s32[] parameter(3)
  ROOT u = WHOLE dynamic-update-slice(q, w, e, z)
}
""",
    "put_fused": """put_fused {
  q = WHOLE parameter(0)
  w = PART parameter(1)
  e = s32[] parameter(2)
  z = s32[] parameter(3)
  ROOT u = WHOLE fusion(q, w, e, z), kind=kLoop, calls=put
}
""",
    "take": """take {
  q = WHOLE parameter(0)
  e = s32[] parameter(1)
  z = s32[] parameter(2)
  ROOT c = PART dynamic-slice(q, e, z), dynamic_slice_sizes={1,8}
}
""",
    "take_fused": """take_fused {
  q = WHOLE parameter(0)
  e = s32[] parameter(1)
  z = s32[] parameter(2)
  ROOT c = PART fusion(q, e, z), kind=kLoop, calls=take
}
""",
}
CALLS = {
    "plain": (), "sugar": (), "fusion": ("",), "wrapper": ("",),
    "fusion in a wrapper": ("", "_fused"),
}  # fmt: skip
STACKED = """HloModule m, is_scheduled=true
{called}fwd {
  p = STATE parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = PART get-tuple-element(p), index=1
  a = WHOLE get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  t = PART tanh(h)
  {put}
  next = s32[] add(i, one)
  ROOT r = STATE tuple(next, t, a.2)
}
fwd_go {
  p = STATE parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}
bwd {
  p = STATE parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = PART get-tuple-element(p), index=1
  a = WHOLE get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  k = s32[] subtract(three, j)
  {take}
  d = PART multiply(g, c)
  next = s32[] add(j, one)
  ROOT r = STATE tuple(next, d, a)
}
bwd_go {
  p = STATE parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(j, n), direction=LT
}
ENTRY main {
  x = PART parameter(0)
  zero = s32[] constant(0)
  empty = WHOLE custom-call(), custom_call_target="AllocateBuffer"
  init = STATE tuple(zero, x, empty)
  w = STATE while(init), condition=fwd_go, body=fwd
  y = PART get-tuple-element(w), index=1
  sa = WHOLE get-tuple-element(w), index=2
  init.2 = STATE tuple(zero, y, sa)
  w.2 = STATE while(init.2), condition=bwd_go, body=bwd
  ROOT g = PART get-tuple-element(w.2), index=1
}
"""


def stacked_on_host(put: str, take: str, memory: str = "S(5)") -> str:
    """Four iterations write a slice each into a buffer on the host, four more read them."""
    text = STACKED.replace("{put}", PUT[put].format(whole=WHOLE, part=PART))
    text = text.replace("{take}", TAKE[take].format(whole=WHOLE, part=PART))
    called = [CALLED[f"put{part}"] for part in CALLS[put]]
    called += [CALLED[f"take{part}"] for part in CALLS[take]]
    text = text.replace("{called}", "".join(called))
    for name, shape in (("STATE", STATE), ("WHOLE", WHOLE), ("PART", PART)):
        text = text.replace(f"{name} ", f"{shape} ")
    return text.replace("S(5)", memory)


@pytest.mark.parametrize("spelling", PUT)
def test_one_transfer_is_one_row_in_any_spelling(spelling: str) -> None:
    text = stacked_on_host(spelling, spelling)
    expected = [
        ("copy", "to_device", "residual", "f32[1,8]", 4, 1),
        ("copy", "to_host", "residual", "f32[1,8]", 4, 1),
    ]
    assert check_table(text, IN_LOOPS) == expected
    memories = "select from_memory, to_memory, is_sync, (pair is not null) from offload"
    is_pair = spelling not in ("plain", "fusion")
    sync = None if is_pair else 1
    assert ask(text, memories) == [
        ("device", "host", sync, int(is_pair)),
        ("host", "device", sync, int(is_pair)),
    ]


@pytest.mark.parametrize("spelling", PUT)
def test_buffers_in_other_memories_are_not_on_the_host(spelling: str) -> None:
    for memory in ("S(1)", "S(2)"):
        assert ask(stacked_on_host(spelling, spelling, memory), IN_LOOPS) == []


def test_rows_are_made_up_of_what_spells_them() -> None:
    text = stacked_on_host("fusion in a wrapper", "plain")
    members = (
        "select m.row, m.role, i.name, i.computation from members m"
        """ join instructions i on i.id = m.instr where m."table" = 'offload'"""
    )
    assert ask(text, members) == [
        (0, "start", "s", "fwd"),
        (0, "done", "a.2", "fwd"),
        (0, "operation", "u", "put"),
        (1, "move", "c", "bwd"),
    ]


def test_a_pair_has_the_facts_of_its_row_in_async_pairs() -> None:
    text = stacked_on_host("fusion in a wrapper", "sugar")
    both = (
        "select o.name, o.overlapped = p.overlapped, o.compute_between = p.compute_between,"
        " o.from_memory = p.from_memory, o.to_memory = p.to_memory, o.direction = p.host_move"
        " from offload o join async_pairs p on p.instr = o.pair"
    )
    assert ask(text, both) == [("s", 1, 1, 1, 1, 1)] * 2


COPIES = """HloModule m, is_scheduled=true
ENTRY main {{
  p = f32[8]{{0:{memory}}} parameter(0)
  k = f32[8]{{0}} negate(p)
  s = (f32[8]{{0:S(5)}}, f32[8]{{0}}, u32[]) copy-start(k){config}
  {between}
  d = f32[8]{{0:S(5)}} copy-done(s)
  e = f32[8]{{0:S(5)}} bitcast(d)
  t = (f32[8]{{0}}, f32[8]{{0:S(5)}}, u32[]) copy-start(e)
  n = f32[8]{{0}} negate(k)
  b = f32[8]{{0}} copy-done(t)
  ROOT r = f32[8]{{0}} add(n, b)
}}"""
SYNC = ', backend_config={"collective_backend_config":{"is_sync":true}}'


def copied(between: str = "q = f32[] negate(zero)", config: str = "", memory: str = "S(0)") -> str:
    zero = "zero = f32[] constant(0)\n  "
    return COPIES.format(between=zero + between, config=config, memory=memory)


def test_copies_are_matched_and_the_exposed_ones_are_told() -> None:
    assert check_table(copied(), f"{MOVES} where kind = 'copy'") == [
        ("copy", "to_device", "f32[8]", 32, 1),
        ("copy", "to_host", "f32[8]", 32, 1),
    ]
    assert ask(copied(), "select name, compute_between, overlapped from offload") == [
        ("s", 0, 0),
        ("t", 1, 1),
    ]
    assert findings(copied(), "offload") == [
        (
            "offload-exposed",
            "%s moves to the host with no compute beside it: 32 bytes a step",
        )
    ]
    check_table(copied(), lambda text: [told[1].split()[1:] for told in findings(text, "offload")])


def test_compute_beside_it_hides_a_copy() -> None:
    text = copied("q = f32[8]{0} negate(k)")
    assert findings(text, "offload") == []
    assert ask(text, "select overlapped from offload") == [(1,), (1,)]


def test_compute_beside_a_synchronous_copy_does_not_hide_it() -> None:
    text = copied("q = f32[8]{0} negate(k)", SYNC)
    message = "%s moves to the host synchronously: 32 bytes a step"
    assert findings(text, "offload") == [("offload-exposed", message)]


def test_copies_of_a_loop_that_go_one_way_are_one_finding() -> None:
    text = """HloModule m, is_scheduled=true
body {
  p = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8]{0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[8]{0:S(5)} copy(x)
  b = f32[8]{0} copy(a)
  c = f32[8]{0} negate(b)
  d = f32[8]{0:S(5)} copy(c)
  e = f32[8]{0} copy(d)
  ROOT r = (s32[], f32[8]{0}) tuple(next, e)
}
go {
  p = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] BOUND
  ROOT g = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8]{0} parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  away = f32[8]{0:S(5)} copy(x)
  back = f32[8]{0} copy(away)
  t = (s32[], f32[8]{0}) tuple(zero, back)
  w = (s32[], f32[8]{0}) while(t), condition=go, body=body
  ROOT r = f32[8]{0} get-tuple-element(w), index=1
}"""
    several = "%a and 1 more move to the host synchronously: "
    known = text.replace("BOUND", "constant(4)")
    assert findings(known, "offload") == [
        ("offload-exposed", f"{several}256 bytes a step"),
        ("offload-exposed", "%b and 1 more move to the device synchronously: 256 bytes a step"),
        ("offload-exposed", "%away moves to the host synchronously: 32 bytes a step"),
        ("offload-exposed", "%back moves to the device synchronously: 32 bytes a step"),
    ]
    evidence = "select evidence from findings where rule = 'offload-exposed' limit 1"
    ((rows,),) = ask(known, evidence)
    assert json.loads(str(rows)) == [["offload", 0], ["offload", 2]]
    unknown = text.replace("BOUND", "multiply(i, i)")
    first = findings(unknown, "offload")[0]
    assert first == ("offload-exposed", f"{several}how many bytes a step is not known")


def test_without_a_schedule_nothing_is_said_of_overlap() -> None:
    text = copied().replace(", is_scheduled=true", "")
    assert ask(text, "select compute_between, overlapped from offload") == [(None, None)] * 2
    in_place = IN_PLACE.format(shape="f32[8]{0}", host="f32[8]{0:S(5)}")
    in_place = in_place.replace(", is_scheduled=true", "")
    assert ask(in_place, "select is_sync, overlapped from offload") == [(None, None)] * 2
    assert findings(text, "offload") == []


IN_PLACE = """HloModule m, is_scheduled=true
ENTRY main {{
  p = {shape} parameter(0)
  k = {shape} negate(p)
  h = {host} copy(k)
  ROOT d = {shape} copy(h)
}}"""


def test_a_copy_that_is_not_started_is_synchronous() -> None:
    text = IN_PLACE.format(shape="f32[8]{0}", host="f32[8]{0:S(5)}")
    assert check_table(text, "select direction, is_sync, overlapped, is_matched from offload") == [
        ("to_device", 1, 0, 1),
        ("to_host", 1, 0, 1),
    ]
    assert [rule for rule, _ in findings(text, "offload")] == ["offload-exposed"] * 2
    scalar = IN_PLACE.format(shape="f32[]", host="f32[]{:S(5)}")
    assert ask(scalar, "select count(*) from offload") == [(2,)]
    assert findings(scalar, "offload") == []


def test_copies_within_one_memory_are_none() -> None:
    text = """HloModule m
ENTRY main {
  p = f32[8]{0:S(5)} parameter(0)
  u = f32[4]{0:S(5)} parameter(1)
  z = s32[] constant(0)
  a = f32[8]{0:S(5)} copy(p)
  b = f32[8]{0:S(5)} dynamic-update-slice(a, u, z)
  q = f32[8]{0} parameter(2)
  c = f32[8]{0:S(1)} copy(q)
  ROOT r = (f32[8]{0:S(5)}, f32[8]{0:S(1)}) tuple(b, c)
}"""
    assert ask(text, "select kind, name from offload where kind = 'copy'") == []


def test_vmem_is_named_where_the_text_is_of_a_tpu() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY main {
  p = f32[8]{0:T(256)} parameter(0)
  v = f32[8]{0:T(256)S(1)} negate(p)
  ROOT h = f32[8]{0:T(256)S(5)} copy(v)
}"""
    question = "select from_memory, to_memory from offload where kind = 'copy'"
    assert ask(text, question) == [("vmem", "host")]
    assert ask(text.replace("T(256)", ""), question) == [("S(1)", "host")]


WRAPPED = """HloModule m, is_scheduled=true
work {
  q = f32[8]{0:S(5)} parameter(0)
  ROOT n = f32[8]{0} negate(q)
}{computation}
ENTRY main {
  p = f32[8]{0} parameter(0)
  h = f32[8]{0:S(5)} copy(p)
  s = ((f32[8]{0:S(5)}), f32[8]{0}, u32[]) async-start(h), calls=work{start}
  ROOT d = f32[8]{0} async-done(s)
}"""


def test_a_wrapper_that_reads_the_host_moves_unless_it_runs_there() -> None:
    question = "select name, direction, from_memory, to_memory, bytes from offload where pair > 0"
    text = WRAPPED.replace("{computation}", "").replace("{start}", "")
    assert ask(text, question) == [("s", "to_device", "host", "device", 32)]
    on_host = WRAPPED.replace("{computation}", ', execution_thread="host"')
    on_host = on_host.replace("{start}", ', async_execution_thread="host"')
    assert ask(on_host, question) == []
    assert ask(on_host, "select host_move from async_pairs") == [(None,)]


def test_a_copy_within_another_pair_runs_beside_what_that_does() -> None:
    text = """HloModule m, is_scheduled=true
work {
  q = f32[8]{0} parameter(0)
  n = f32[8]{0} negate(q)
  ROOT h = f32[8]{0:S(5)} copy(n)
}
ENTRY main {
  p = f32[8]{0} parameter(0)
  s = ((f32[8]{0}), f32[8]{0:S(5)}, u32[]) async-start(p), calls=work
  n = f32[8]{0} sine(p)
  d = f32[8]{0:S(5)} async-done(s)
  ROOT r = (f32[8]{0}, f32[8]{0:S(5)}) tuple(n, d)
}"""
    assert ask(text, "select name, overlapped from offload where kind = 'copy'") == [("s", 1)]
    assert findings(text, "offload") == []


# ---------------------------------------------------------------------------- what lies there

LYING = """HloModule m{header}
ENTRY main {{
  a = f32[2]{{0}} parameter(0)
  w = {tuple} parameter(1)
  held = f32[8]{memory} get-tuple-element(w), index=1
  here = f32[8]{{0}} {fetch}
  new = f32[8]{{0}} negate(here)
  away = f32[8]{{0:S(5)}} copy(new)
  ROOT r = (f32[2]{{0}}, f32[8]{{0:S(5)}}) tuple(a, away)
}}"""
HEADER = (
    ", entry_computation_layout={(f32[2]{0}, (f32[4]{0}, f32[8]{0:S(5)}))"
    "->(f32[2]{0}, f32[8]{0:S(5)})}"
)
LIES = "select kind, position, shape, bytes, moved_bytes, from_memory, is_matched from offload"


def lying(header: str, memory: str = "{0:S(5)}", fetch: str = "copy(held)") -> str:
    whole = f"(f32[4]{{0}}, f32[8]{memory})"
    return LYING.format(header=header, tuple=whole, memory=memory, fetch=fetch)


def test_arguments_and_results_in_host_memory_have_rows() -> None:
    rows = [
        ("copy", None, "f32[8]", 32, 32, "device", 1),
        ("copy", None, "f32[8]", 32, 32, "host", 1),
        ("parameter", 2, "f32[8]", 32, 0, "host", 1),
        ("result", 1, "f32[8]", 32, 0, "host", 1),
    ]
    for header in (HEADER, ""):
        assert check_table(lying(header), LIES) == rows
    check_table(lying(HEADER), "offload", from_metadata=NAMED)
    assert ask(lying(HEADER), "select name, value from offload where kind = 'copy'") == [
        ("here", "parameter"),
        ("away", "result"),
    ]


def test_the_header_tells_where_an_argument_lies_before_layouts_do() -> None:
    fetch = 'custom-call(held), custom_call_target="MoveToDevice"'
    where = " where kind in ('parameter', 'move')"
    assert check_table(lying(HEADER, "{0}", fetch), LIES + where) == [
        ("move", None, "f32[8]", 32, 32, "host", 1),
        ("parameter", 2, "f32[8]", 32, 0, "host", 1),
    ]
    assert ask(lying("", "{0}", fetch), LIES + where) == []


def test_other_memories_are_not_the_hosts() -> None:
    text = lying(HEADER.replace("S(5)", "S(1)"), "{0:S(1)}").replace("S(5)", "S(2)")
    assert ask(text, LIES) == []


RETURNED = """HloModule m, entry_computation_layout={{(f32[8]{{0}})->f32[8]{{0{memory}}}}}
host {{
  q = f32[8] parameter(0)
  ROOT w = f32[8] negate(q), frontend_attributes={{_xla_compute_type="host"}}
}}
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] negate(x)
  away = f32[8] custom-call(y), custom_call_target="MoveToHost"
  ROOT r = f32[8] {then}
}}"""
USED = 'call(away), to_apply=host, frontend_attributes={_xla_compute_type="host"}'


@pytest.mark.parametrize(
    ("memory", "then", "message"),
    [
        ("", "bitcast(away)", "%away moves f32[8] to the host, and the entry returns it in"),
        ("", "negate(y)", "%away moves f32[8] to the host, and nothing moves it back"),
        ("", "negate(away)", "%away moves f32[8] to the host, and nothing moves it back"),
        (":S(5)", "bitcast(away)", None),
        (":S(5)", USED, None),
    ],
)
def test_a_value_that_goes_to_the_host_comes_back_or_is_wanted_there(
    memory: str, then: str, message: str | None
) -> None:
    found = findings(RETURNED.format(memory=memory, then=then), "offload")
    if message is None:
        assert found == []
    else:
        ((rule, told),) = found
        assert (rule, told.startswith(message)) == ("offload-unmatched", True)


def test_where_no_layout_tells_a_returned_value_may_be_wanted_on_the_host() -> None:
    text = RETURNED.format(memory="", then="bitcast(away)")
    _, _, rest = text.partition("\n")
    assert findings(text, "offload") != []
    assert findings(f"HloModule m\n{rest}", "offload") == []


# ---------------------------------------------------------------------------- real programs

TARGETS = ("tpu-v6e-1", "cuda-h100", "rocm-gfx950")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ["offload", "offload-scanned"])
def test_what_jax_offloads_goes_and_comes_back_in_every_stage(case: str, target: str) -> None:
    """As many bytes as jax says, whatever the back end makes of it."""
    told = json.loads((REMAT / case / target / "saved_residuals.json").read_text(encoding="utf-8"))
    wanted = sum(each["bytes"] for each in told["residuals"] if each["offloaded"])
    facts = Facts(load(REMAT / case / target))
    sql = (
        "select module, direction, sum(bytes * executions), min(is_matched), group_concat(distinct"
        " value), group_concat(distinct kind) from offload group by module, direction"
    )
    assert run_query([facts], sql).rows == [
        (module, direction, wanted, 1, "residual", kind)
        for module, kind in ((0, "annotation"), (1, "copy"))
        for direction in ("to_device", "to_host")
    ]
    joined = "select min(r.offloaded) from offload o join residuals r on r.id = o.residual"
    assert run_query([facts], joined).rows == [(1,)]
    assert {finding.rule for finding in facts.findings} == {"offload-exposed"}


@needs_shared
def test_marks_on_what_never_left_the_device_are_no_rows() -> None:
    """41 MoveToDevice, of which 39 are of results."""
    (path,) = unpacked("corpus/hlo-corpus.tar.xz").rglob("09948.hlo")
    assert path.read_text(encoding="utf-8").count("MoveToDevice") == 41
    sql = "select direction, value, bytes, executions, is_matched from offload"
    size = 8192 * 14336 * 2
    assert ask_file(path, sql) == [
        ("to_host", "residual", size, 32, 1),
        ("to_host", "residual", size, 32, 1),
        ("to_device", "residual", size, 32, 1),
        ("to_device", "residual", size, 32, 1),
    ]


def test_the_cpu_moves_nothing() -> None:
    for case in ("offload", "offload-scanned"):
        facts = Facts(load(REMAT / case / "cpu"))
        assert facts.records("offload") == []


def test_a_host_copy_is_shown_once() -> None:
    module = load(REMAT / "offload-scanned" / "tpu-v6e-1", stage="after_optimizations")
    page = plain(as_lines(report(Facts(module)), width=120))
    assert page.count("device→host") == page.count("host→device") == 1
    assert "device→vmem" in page


def test_the_outputs_on_the_page_are_real() -> None:
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) == PAGE.read_text(encoding="utf-8").count("output of:") > 1
    with at_root():
        for block in blocks:
            assert block["output"] == output_of(block["command"], block["lines"], block["code"])


def test_a_text_without_an_entry_or_with_a_broken_header_is_read() -> None:
    for header in ("{((f32[8])->}", "{nothing}", "{(f32[8]{0:S(5)}->f32[8]}"):
        text = RETURNED.format(memory="", then="negate(x)").replace(
            "{(f32[8]{0})->f32[8]{0}}", header
        )
        facts = Facts(Program([parse(text)]))
        assert [row["kind"] for row in facts.records("offload")] == ["move"]
