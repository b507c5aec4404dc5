"""Programs that no compiler wrote: every table is filled, and no number in it is nonsense."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

import json

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.findings import PASS_FAILED
from hlo_lens.hlo import HloParseError, parse
from hlo_lens.inspect import as_data, as_lines, as_markdown, report
from hlo_lens.present.page import plain
from hlo_lens.program import Program
from tests.passes.asking import ask

SUM = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def entry(*lines: str, before: str = SUM) -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m\n{before}\nENTRY main {{\n  p = f32[8,16] parameter(0)\n{body}\n}}\n"


def calling(name: str, *calls: str) -> str:
    """A computation of f32[8,16] that makes these calls on its parameter, the last as its root."""
    lines = [f"  y{number} = f32[8,16] {call}\n" for number, call in enumerate(calls)]
    lines[-1] = lines[-1].replace("  y", "  ROOT y", 1)
    return f"{name} {{\n  x = f32[8,16] parameter(0)\n{''.join(lines)}}}\n"


def nested(depth: int, name: str, call: str, inside: str, *, twice: bool = False) -> str:
    """Computations that call each other, `depth` deep; `{}` in `call` stands for the next name."""
    calls = [calling(f"{name}{i}", *[call.format(f"{name}{i + 1}")] * (1 + twice))
             for i in range(depth)]  # fmt: skip
    return "".join(reversed([*calls, calling(f"{name}{depth}", inside)]))


REDUCE = "all-reduce(x), to_apply=sum, replica_groups={{0,1}}"
LOOP = """
body {
  t = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8,16] get-tuple-element(t), index=1
  j = s32[] add(i, s32[] constant(1))
  ar = f32[8,16] all-reduce(x), to_apply=sum, replica_groups={{0,1}}
  ROOT r = (s32[], f32[8,16]) tuple(j, ar)
}
cond {
  t = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  ROOT lt = pred[] compare(i, s32[] constant(10)), direction=LT
}
"""


def loop(attributes: str) -> str:
    return entry(
        "i = s32[] constant(0)",
        "t = (s32[], f32[8,16]) tuple(i, p)",
        f"ROOT w = (s32[], f32[8,16]) while(t), {attributes}",
        before=SUM + LOOP,
    )


def counted(count: str) -> str:
    return loop(f'condition=cond, body=body, backend_config={{"known_trip_count":{{"n":{count}}}}}')


NINES = "9" * 5000  # more digits than Python reads as an integer

PROGRAMS = {
    "calls itself": entry(
        "ROOT r = f32[8,16] call(p), to_apply=f", before=calling("f", "call(x), to_apply=f")
    ),
    "two call each other": entry(
        "ROOT r = f32[8,16] fusion(p), kind=kLoop, calls=f",
        before=SUM + calling("f", "fusion(x), kind=kLoop, calls=g")
        + calling("g", REDUCE, "fusion(x), kind=kLoop, calls=f"),
    ),
    "the entry is its own body": entry("ROOT w = f32[8,16] while(p), body=main, condition=main"),
    "a reducer of itself": entry(
        "ROOT r = f32[8,16] all-reduce(p), to_apply=s",
        before=calling("s", "all-reduce(x), to_apply=s"),
    ),
    "each is called twice": entry(
        "ROOT r = f32[8,16] call(p), to_apply=f0",
        before=SUM + nested(100, "f", "call(x), to_apply={}", REDUCE, twice=True),
    ),
    "each is fused twice": entry(
        "ROOT r = f32[8,16] fusion(p), kind=kLoop, calls=f0",
        before=SUM + nested(100, "f", "fusion(x), kind=kLoop, calls={}", REDUCE, twice=True),
    ),
    "calls, deep": entry(
        "ROOT r = f32[8,16] call(p), to_apply=f0",
        before=SUM + nested(2000, "f", "call(x), to_apply={}", REDUCE),
    ),
    "loops, deep": entry(
        "ROOT w = f32[8,16] while(p), condition=c, body=f0",
        before=SUM + "c {\n  x = f32[8,16] parameter(0)\n  ROOT y = pred[] infeed(x)\n}\n"
        + nested(300, "f", 'while(x), condition=c, body={}, backend_config={{"known_trip_count":'
                 '{{"n":"1000000"}}}}', REDUCE),
    ),
    "a fusion of itself around a dot": entry(
        "ROOT r = f32[8,16] negate(p)",
        before="f {\n  x = f32[8,16] parameter(0)\n  c = f32[8,16] convert(x)\n  d = f32[8,8] dot(c, c),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={1}\n  ROOT y = f32[8,8] fusion(d), kind=kLoop, calls=f\n}\n",
    ),
    "a counter of no bits": loop("condition=cond, body=body").replace("s32[]", "s0[]"),
    "a counter of many bits": loop("condition=cond, body=body").replace("s32[]", "s9999999999[]"),
    "a while whose shape is broken": loop("condition=cond, body=body").replace(
        "(s32[], f32[8,16]) while", "(s32[], f32==8,16]) while"
    ),
    "a flag that is an object": entry(
        "ROOT r = f32[8,16] all-reduce(p), to_apply=sum, backend_config="
        '{"collective_backend_config":{"is_spmd_generated":{"a":[1]}}}'
    ),
    "tuples that grow in circles": entry(
        "ROOT r = f32[8,16] call(p), to_apply=f",
        before="f {\n  x = f32[8,16] parameter(0)\n  d = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "  c = f32[8,8] call(d), to_apply=f\n  ROOT y = (f32[8,8], f32[8,8]) tuple(c, c)\n}\n",
    ),
    "a loop that takes itself apart": loop("condition=cond, body=body").replace(
        "ROOT r = (s32[], f32[8,16]) tuple(j, ar)",
        "v = (s32[], f32[8,16]) while(t), condition=cond, body=body\n"
        "  e = s32[] get-tuple-element(v), index=0\n  ROOT r = (s32[], f32[8,16]) tuple(e, v)",
    ),
    "stack frames that cannot be read": entry(
        "ROOT r = f32[8,16] all-reduce(p), to_apply=sum, metadata={op_name=\"a\" stack_frame_id=1}",
    ).replace("HloModule m\n", "HloModule m\nFileNames\n1 \"a.py\"\nFunctionNames\n1 {a=1}\n"),
    "metadata that cannot be read": entry(
        "ROOT r = f32[8,16] all-reduce(p), to_apply=sum, metadata={op_name=\"a\" {1}}",
    ),
    "a ring of permutes that send nothing": loop("condition=cond, body=body").replace(
        "all-reduce(x), to_apply=sum, replica_groups={{0,1}}",
        "collective-permute(), source_target_pairs={{0,1},{1,0}}",
    ),
    "a ring in a loop of nothing": loop("condition=cond, body=body").replace(
        "all-reduce(x), to_apply=sum, replica_groups={{0,1}}",
        "collective-permute(x), source_target_pairs={{0,1},{1,0}}",
    ).replace("while(t)", "while()"),
    "a ring of no element": loop("condition=cond, body=body").replace(
        "all-reduce(x), to_apply=sum, replica_groups={{0,1}}",
        "collective-permute(x), source_target_pairs={{0,1},{1,0}}",
    ).replace("get-tuple-element(t), index=1", "get-tuple-element(t), index={1}"),
    "no condition and no body": loop("condition=gone, body=gone"),
    "no attributes": loop("a=1"),
    "a body of other parameters": loop("condition=sum, body=sum"),
    "a while of nothing": entry("ROOT w = f32[] while(), condition=sum, body=sum"),
    "a start without its done": entry("ROOT s = (f32[8,16], f32[8,16]) all-gather-start(p)"),
    "a done of no start": entry("ROOT d = f32[8,16] all-gather-done(p)"),
    "two dones": entry(
        "s = (f32[8,16], f32[16,16]) all-gather-start(p), dimensions={0}",
        "d = f32[16,16] all-gather-done(s)", "ROOT e = f32[16,16] all-gather-done(s)",
    ),
    "branches that are not there": entry(
        "ROOT r = f32[8,16] conditional(p, p), branch_computations={%gone, %gone}"
    ),
    **{f"count {count[:30]}": counted(count) for count in (
        '"-3"', '"x"', "1.5", "null", "true", "[1]", "{}", "NaN", "Infinity", "1e400", '"1e3"',
        f'"{NINES}"', NINES, f'"{NINES[:400]}"', NINES[:400], '"²"',
    )},
    "an index": entry("t = (f32[8,16]) tuple(p)", f"ROOT e = f32[8,16] get-tuple-element(t), index={NINES}"),
    "a parameter": entry(f"q = f32[] parameter({NINES})", "ROOT n = f32[] negate(q)"),
    "an element": entry("t = (f32[8,16]) tuple(p)", f"ROOT e = f32[8,16] negate(t#{NINES})"),
    "partitions": entry("ROOT n = f32[8,16] all-reduce(p), to_apply=sum").replace(
        "HloModule m", f"HloModule m, num_partitions={NINES}, replica_count={NINES}"),
}  # fmt: skip

OPCODES = (
    "all-gather", "all-gather-done", "all-gather-start", "all-reduce", "all-to-all", "async-done",
    "async-start", "call", "collective-permute", "conditional", "constant", "convolution",
    "copy-start", "custom-call", "dot", "dynamic-slice-start", "dynamic-update-slice", "fusion",
    "get-tuple-element", "ragged-all-to-all", "ragged-dot", "recv", "reduce-scatter", "send",
    "while",
)  # fmt: skip
SHAPES = (
    "", "()", "((f32[8]), ())", "f32[?,<=8]", "s4[0]", "foo[3]", "token[]", "f32[-1]", "f32[²]",
    "f32[99999999999999999999]", f"f32[{NINES}]", f"f32[{','.join(['4611686018427387904'] * 40)}]",
)  # fmt: skip
ATTRIBUTES = (
    "replica_groups={}", "replica_groups={{}}", "replica_groups={{0},{}}", "replica_groups=x",
    "replica_groups={{0,x}}", "replica_groups=[0,0]<=[0]", "replica_groups=[2,4]<=[9]",
    "replica_groups=[2,2]<=[2,2]T(3,1)", "replica_groups=mesh['a'=2] {'b'}", f"channel_id={NINES}",
    "channel_id=x", "channel_id=²", "channel_id=-1", "source_target_pairs={{0,1},{1}}",
    "source_target_pairs=5", "dimensions={9}", "dimensions={x}", "to_apply=gone", "to_apply=main",
    "calls=main", "calls=gone", "metadata=5", "metadata={stack_frame_id=99}", "index=99", "index=x",
    "backend_config=[", 'backend_config={"known_trip_count":5}', "slice_sizes=x", "nothing",
    'backend_config={"collective_backend_config":5}', "custom_call_target=5", "window={size=x}",
    'custom_call_target="__cublas$lt$matmul$f8", backend_config={"gemm_backend_config":5}',
    'custom_call_target="tpu_custom_call", backend_config={"custom_call_config":{"body":"!"}}',
    "lhs_contracting_dims={9}, rhs_contracting_dims={9}", "lhs_contracting_dims={x}",
    "lhs_batch_dims={0,0}, rhs_batch_dims={0,0}", "dim_labels=bf_io->bf", "dim_labels=x",
    "feature_group_count=0, dim_labels=bf_io->bf", "output_to_operand_aliasing={{5}: (9, {7})}",
    "custom_call_target={0,1}", "control-predecessors={gone}", "frontend_attributes=x", "sharding={devices=[2,2]0,1}",
)  # fmt: skip


def looked_at(text: str) -> list[str]:
    """Every table and view of a program; the passes that failed."""
    facts = Facts(Program([parse(text)]))
    data = as_data([facts], [table.name for table in facts.tables])
    json.loads(json.dumps(data, allow_nan=False))
    found = report(facts)
    plain(as_lines(found, width=80))
    as_markdown(found)
    return [one.message for one in facts.findings if one.rule == PASS_FAILED.id]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_pass_fails(name: str) -> None:
    try:
        assert looked_at(PROGRAMS[name]) == []
    except HloParseError:
        assert name in ("an element", "a parameter")


@pytest.mark.parametrize("opcode", OPCODES)
def test_operations_without_what_they_need(opcode: str) -> None:
    for shape in SHAPES:
        for operands in ("", "%p", "%p, %p, %p, %p"):
            text = entry(f"ROOT r = {shape} {opcode}({operands})")
            assert looked_at(text) == [], (shape, operands)


@pytest.mark.parametrize("opcode", OPCODES)
def test_attributes_that_cannot_be_read(opcode: str) -> None:
    for attribute in ATTRIBUTES:
        text = entry(f"r = f32[8,16] {opcode}(%p, %p), {attribute}", "ROOT q = f32[8,16] negate(%r)")
        try:
            assert looked_at(text) == [], attribute
        except HloParseError:
            assert attribute in ("nothing", "backend_config=[")


@pytest.mark.parametrize("count", ['"-3"', f'"{NINES[:400]}"', "1.5", "true", '"²"'])
def test_a_count_that_is_none_is_not_believed(count: str) -> None:
    assert ask(counted(count), "select trip_count, trips_kind from loops") == [(10, "inferred")]
    assert ask(counted(count), "select executions from collectives") == [(10,)]


def test_more_runs_than_a_count_holds_are_no_bound() -> None:
    rows = ask(PROGRAMS["loops, deep"], "select executions, executions_max from collectives")
    assert rows == [(None, None)]


def test_a_size_beyond_64_bits_is_not_known() -> None:
    text = entry("ROOT r = f32[4611686018427387904,4611686018427387904] broadcast(p), dimensions={}")
    assert ask(text, "select bytes from instructions where name = 'r'") == [(None,)]
