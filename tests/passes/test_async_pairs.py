"""Every start with its done, what it wraps, and what stands between them in a schedule."""

from __future__ import annotations

import pytest

from hlo_lens.facts import Facts
from hlo_lens.hlo import parse
from hlo_lens.inspect import as_lines, report
from hlo_lens.present.page import plain
from hlo_lens.program import Program
from tests import shared
from tests.mutate import FROM_METADATA, check_table
from tests.passes.asking import ask, ask_file, findings


def scheduled(entry: str, *computations: str) -> str:
    blocks = "\n\n".join(computations)
    return f"HloModule m, is_scheduled=true\n\n{blocks}\n\nENTRY main {{\n{entry}\n}}\n"


ADD = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}"""
NEGATE = """negate {
  q = f32[8] parameter(0)
  ROOT n = f32[8] negate(q)
}"""
GATHER = """gather {
  q = f32[8] parameter(0)
  ROOT ag = f32[16] all-gather(q), replica_groups={{0,1}}, dimensions={0}
}"""

PAIRS = {
    "copy": (
        "s = (f32[8]{0:S(1)}, f32[8]{0:S(5)}, u32[]) copy-start(p)",
        "d = f32[8]{0:S(1)} copy-done(s)",
        ("copy", None, 32, 5, 1),
    ),
    "slice sugar": (
        "s = ((f32[8]{0:S(5)}), f32[4]{0}, u32[]) slice-start(p), slice={[0:4]}",
        "d = f32[4]{0} slice-done(s)",
        ("slice", None, 16, 5, 0),
    ),
    "wrapper": (
        "s = ((f32[8]{0:S(5)}), f32[8]{0}, u32[]) async-start(p), calls=negate",
        "d = f32[8]{0} async-done(s)",
        ("negate", None, 32, 5, 0),
    ),
    "call": (
        "s = ((f32[8]{0:S(5)}), f32[8]{0}, u32[]) call-start(p), to_apply=negate",
        "d = f32[8]{0} call-done(s)",
        ("negate", None, 32, 5, 0),
    ),
    "own collective": (
        "s = (f32[8]{0:S(5)}, f32[16]{0}) all-gather-start(p), replica_groups={{0,1}},"
        " dimensions={0}",
        "d = f32[16]{0} all-gather-done(s)",
        ("all-gather", "all-gather", 64, 5, 0),
    ),
    "wrapped collective": (
        "s = ((f32[8]{0:S(5)}), f32[16]{0}) async-start(p), calls=gather",
        "d = f32[16]{0} async-done(s)",
        ("all-gather", "all-gather", 64, 5, 0),
    ),
    "update in place": (
        "s = ((f32[8]{0}, f32[4]{0:S(1)}, s32[]), f32[8]{0}, u32[])"
        " dynamic-update-slice-start(h, v, i)",
        "d = f32[8]{0} dynamic-update-slice-done(s)",
        ("dynamic-update-slice", None, 32, 1, 0),
    ),
}


@pytest.mark.parametrize("spelling", PAIRS)
def test_what_a_pair_wraps_moves_and_hides(spelling: str) -> None:
    start, done, expected = PAIRS[spelling]
    text = scheduled(
        f"""  p = f32[8]{{0:S(5)}} parameter(0)
  h = f32[8]{{0}} parameter(1)
  v = f32[4]{{0:S(1)}} parameter(2)
  i = s32[] parameter(3)
  {start}
  n = f32[8]{{0}} negate(h)
  {done}
  ROOT t = (f32[8]{{0}}, f32[8]{{0}}) tuple(n, h)""",
        NEGATE,
        GATHER,
    )
    question = """select wraps, collective, bytes, from_memory_space, to_memory_space,
        instructions_between, compute_between from async_pairs"""
    assert ask(text, question) == [(*expected, 1, 1)]
    assert findings(text, "async_pairs") == []


def test_sends_and_receives_are_pairs() -> None:
    text = scheduled(
        """  p = f32[8] parameter(0)
  t = token[] after-all()
  r = (f32[16], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true
  s = (f32[8], u32[], token[]) send(p, t), channel_id=2
  sd = token[] send-done(s), channel_id=2
  rd = (f32[16], token[]) recv-done(r), channel_id=1, is_host_transfer=true
  ROOT x = f32[16] get-tuple-element(rd), index=0"""
    )
    question = "select wraps, bytes, instructions_between, collective from async_pairs"
    assert ask(text, question) == [("recv", 64, 2, None), ("send", 32, 0, "send")]


def test_updates_are_part_of_a_pair() -> None:
    text = scheduled(
        """  p = f32[8] parameter(0)
  s = ((), (), u32[]) call-start(), to_apply=negate, async_execution_thread="sparsecore"
  u = ((f32[8]), f32[8], u32[]) call-update(s, p)
  v = ((f32[8]), f32[8], u32[]) call-update(u)
  n = f32[8] negate(p)
  ROOT d = f32[8] call-done(v)""",
        NEGATE + ', execution_thread="sparsecore"',
    )
    question = """select i.name, json_array_length(p.updates), p.bytes, p.thread,
        p.compute_between from async_pairs p join instructions i on i.instr = p.done"""
    assert ask(text, question) == [("d", 2, 32, "sparsecore", 1)]
    roles = "select role from members where \"table\" = 'async_pairs' order by instr"
    assert ask(text, roles) == [("start",), ("update",), ("update",), ("done",)]


NESTED = scheduled(
    """  p = f32[8] parameter(0)
  s = ((f32[8]), f32[8], u32[]) call-start(p), to_apply=program,
    async_execution_thread="sparsecore"
  n = f32[8] negate(p)
  d = f32[8] call-done(s)
  c = (f32[8], f32[8], u32[]) copy-start(d)
  ROOT e = f32[8] copy-done(c)""",
    """inner {
  x = f32[8] parameter(0)
  ROOT y = f32[8] negate(x)
}, execution_thread="sparsecore\"""",
    """wrapped {
  a = f32[8] parameter(0)
  is = ((f32[8]), f32[8], u32[]) call-start(a), to_apply=inner
  ROOT id = f32[8] call-done(is)
}, execution_thread="sparsecore\"""",
    """program {
  q = f32[8] parameter(0)
  ROOT r = f32[8] call(q), to_apply=wrapped
}, execution_thread="sparsecore\"""",
)


def test_a_pair_that_is_part_of_another_names_it() -> None:
    question = """select p.name, i.name from async_pairs p
        left join instructions i on i.instr = p.inside order by p.name"""
    assert ask(NESTED, question) == [("c", None), ("is", "s"), ("s", None)]


def test_a_pair_that_is_part_of_another_is_counted_with_it() -> None:
    text = plain(as_lines(report(Facts(Program([parse(NESTED)])))))
    title, _, *rows = text.partition("other asynchronous operations  ")[2].splitlines()
    assert title.startswith("2")
    assert rows[3].split()[-2:] == ["64", "B"]  # in total: a copy and a call of 32 B each


@pytest.mark.parametrize(
    ("tiles", "expected"),
    [("", ("host→device", "S(1)→host")), ("T(128)", ("host→device", "vmem→host"))],
)
def test_memories_have_names_where_they_are_sure(tiles: str, expected: tuple[str, str]) -> None:
    """S(1) is fast memory of a TPU, whose layouts have tiles; elsewhere it may be anything."""
    text = scheduled(
        f"""  p = f32[128]{{0:S(5)}} parameter(0)
  q = f32[128]{{0:{tiles}S(1)}} parameter(1)
  a = (f32[128]{{0}}, f32[128]{{0:S(5)}}, u32[]) copy-start(p)
  b = f32[128]{{0}} copy-done(a)
  c = (f32[128]{{0:S(5)}}, f32[128]{{0:{tiles}S(1)}}, u32[]) copy-start(q)
  d = f32[128]{{0:S(5)}} copy-done(c)
  ROOT t = (f32[128]{{0}}, f32[128]{{0:S(5)}}) tuple(b, d)"""
    )
    question = "select from_memory || '→' || to_memory from async_pairs"
    assert ask(text, question) == [(each,) for each in expected]
    shown = plain(as_lines(report(Facts(Program([parse(text)])))))
    assert all(each in shown for each in expected)


def test_what_only_one_caller_starts_is_part_of_no_pair() -> None:
    text = NESTED.replace("n = f32[8] negate(p)", "n = f32[8] call(p), to_apply=program")
    assert ask(text, "select inside from async_pairs where name = 'is'") == [(None,)]


# ---------------------------------------------------------------------------- what counts


def between(*lines: str) -> str:
    """A copy with these lines between start and done."""
    middle = "\n".join(f"  {line}" for line in lines)
    return scheduled(
        f"""  p = f32[8,8] parameter(0)
  h = f32[8,8] parameter(1)
  i = s32[8,1] parameter(2)
  k = f32[] constant(0)
  tup = (f32[8,8]) tuple(h)
  s = (f32[8,8], f32[8,8], u32[]) copy-start(p)
{middle}
  d = f32[8,8] copy-done(s)
  ROOT r = f32[8,8] add(d, d)""",
        ADD,
        """dots {
  q = f32[8,8] parameter(0)
  n = f32[8,8] negate(q)
  ROOT d = f32[8,8] dot(n, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""",
        """adds {
  q = f32[8,8] parameter(0)
  z = f32[] constant(0)
  v = f32[8] reduce(q, z), dimensions={1}, to_apply=add
  w = f32[8,8] broadcast(v), dimensions={0}
  ROOT a = f32[8,8] add(w, q)
}""",
        """one_reduce {
  q = f32[8,8] parameter(0)
  z = f32[] parameter(1)
  ROOT v = f32[8] reduce(q, z), dimensions={1}, to_apply=add
}""",
        """one_copy {
  q = f32[8,8] parameter(0)
  ROOT c = f32[8,8] copy(q)
}""",
        """reduces {
  q = f32[8,8] parameter(0)
  ROOT ar = f32[8,8] all-reduce(q), replica_groups={}, to_apply=add
}""",
        """hides {
  q = f32[8,8] parameter(0)
  ar = f32[8,8] all-reduce(q), replica_groups={}, to_apply=add
  d = f32[8,8] dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[8,8], f32[8,8]) tuple(ar, d)
}""",
        """again {
  q = (f32[8,8]) parameter(0)
  ROOT c = pred[] constant(false)
}""",
        """same {
  q = (f32[8,8]) parameter(0)
  x = f32[8,8] get-tuple-element(q), index=0
  n = f32[8,8] negate(x)
  ROOT t = (f32[8,8]) tuple(n)
}""",
    )


@pytest.mark.parametrize(
    ("line", "compute", "heavy"),
    [
        # Neither what moves, holds or makes a value up, nor what communicates.
        ("x = f32[64] bitcast(h)", 0, 0),
        ("x = f32[8,8] copy(h)", 0, 0),
        ("x = f32[2] constant({1, 2})", 0, 0),
        ("x = (f32[8,8], f32[8,8]) tuple(h, p)", 0, 0),
        ("x = f32[8,8] get-tuple-element(tup), index=0", 0, 0),
        ("x = (f32[8,8]) opt-barrier(tup)", 0, 0),
        ("x = token[] after-all()", 0, 0),
        ('x = f32[8,8] custom-call(), custom_call_target="AllocateBuffer"', 0, 0),
        ("x = f32[8,8] all-reduce(h), replica_groups={}, to_apply=add", 0, 0),
        ("x = f32[8,8] all-reduce-start(h), replica_groups={}, to_apply=add", 0, 0),
        ("x = f32[8,8] fusion(h), kind=kCustom, calls=reduces", 0, 0),
        ("x = f32[8,8] fusion(h), kind=kLoop, calls=one_copy", 0, 0),
        # Scalars do not count.
        ("x = f32[] add(k, k)", 0, 0),
        ("x = f32[] reduce(h, k), dimensions={0,1}, to_apply=add", 0, 0),
        ("x = (f32[], f32[]) fusion(h), kind=kInput, calls=adds", 0, 0),
        # Compute, and compute that holds a core for long.
        ("x = f32[8,8] add(h, h)", 1, 0),
        ("x = f32[8,8] convert(h)", 1, 0),
        ("x = f32[8,8] transpose(h), dimensions={1,0}", 1, 0),
        ("x = f32[8,8] dot(h, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 1, 1),
        ("x = f32[8] reduce(h, k), dimensions={0}, to_apply=add", 1, 1),
        ("x = f32[8,8] sort(h), dimensions={0}, to_apply=add", 1, 1),
        ('x = f32[8,8] custom-call(h), custom_call_target="__cublas$gemm"', 1, 1),
        ("x = (f32[8,8]) while(tup), condition=again, body=same", 1, 1),
        ("x = f32[8,8] fusion(h), kind=kOutput, calls=dots", 1, 1),
        ("x = f32[8,8] call(h), to_apply=adds", 1, 1),
        # A fusion around one operation is that operation; a reduce in a larger one is not heavy.
        ("x = f32[8] fusion(h, k), kind=kInput, calls=one_reduce", 1, 1),
        ("x = f32[8,8] fusion(h), kind=kLoop, calls=adds", 1, 0),
        # A fusion that carries a collective along while it multiplies.
        ("x = (f32[8,8], f32[8,8]) fusion(h), kind=kOutput, calls=hides", 1, 1),
    ],
)
def test_what_counts_as_compute_and_as_heavy(line: str, compute: int, heavy: int) -> None:
    question = """select instructions_between, compute_between, heavy_between, overlapped
        from async_pairs where wraps = 'copy'"""
    assert ask(between(line), question) == [(1, compute, heavy, int(compute > 0))]


def test_text_order_is_no_schedule_where_the_module_does_not_say_so() -> None:
    text = between("x = f32[8,8] add(h, h)").replace(", is_scheduled=true", "")
    question = "select instructions_between, compute_between, overlapped, bytes from async_pairs"
    assert ask(text, question) == [(None, None, None, 256)]


# ---------------------------------------------------------------------------- unmatched


def test_a_start_nobody_waits_for_is_a_finding() -> None:
    text = between("x = (f32[8,8], f32[8,8], u32[]) copy-start(h)")
    assert findings(text, "async_pairs") == [
        ("unmatched-async", "%x (copy-start) is never waited for")
    ]
    question = "select done is null, compute_between from async_pairs order by instr"
    assert ask(text, question) == [(0, 0), (1, None)]


def test_a_done_without_a_start_is_a_finding() -> None:
    text = between("y = f32[8,8] copy-done(tup)")
    assert findings(text, "async_pairs") == [
        ("unmatched-async", "%y (copy-done) waits for nothing")
    ]
    question = "select start is null, wraps, bytes from async_pairs order by instr"
    assert ask(text, question) == [(0, "copy", 256), (1, "copy", 256)]


def test_what_a_loop_carries_to_the_next_iteration_is_not_unmatched() -> None:
    carry = "(f32[8], (f32[8], u32[], token[]))"
    text = scheduled(
        f"""  p = f32[8] parameter(0)
  t = token[] after-all()
  s = (f32[8], u32[], token[]) recv(t), channel_id=1
  init = {carry} tuple(p, s)
  loop = {carry} while(init), condition=again, body=body
  last = (f32[8], u32[], token[]) get-tuple-element(loop), index=1
  ROOT d = (f32[8], token[]) recv-done(last), channel_id=1""",
        f"""body {{
  c = {carry} parameter(0)
  x = f32[8] get-tuple-element(c), index=0
  started = (f32[8], u32[], token[]) get-tuple-element(c), index=1
  d = (f32[8], token[]) recv-done(started), channel_id=1
  v = f32[8] get-tuple-element(d), index=0
  t = token[] get-tuple-element(d), index=1
  s = (f32[8], u32[], token[]) recv(t), channel_id=1
  ROOT r = {carry} tuple(v, s)
}}""",
        f"again {{\n  c = {carry} parameter(0)\n  ROOT f = pred[] constant(false)\n}}",
    )
    assert findings(text, "async_pairs") == []
    question = "select start is null, done is null, wraps, bytes from async_pairs order by instr"
    assert ask(text, question) == [
        (1, 0, "recv", 32), (0, 1, "recv", 32), (0, 1, "recv", 32), (1, 0, "recv", 32),
    ]  # fmt: skip


def test_a_cut_off_text_has_no_unmatched_pairs() -> None:
    text = between("x = (f32[8,8], f32[8,8], u32[]) copy-start(h)")
    cut = text[: text.index("  d = f32[8,8] copy-done")]
    assert findings(cut, "async_pairs") == []


# ---------------------------------------------------------------------------- mutations, cases


@pytest.mark.parametrize(
    "text",
    [
        between("x = f32[8,8] fusion(h), kind=kOutput, calls=dots"),
        scheduled(
            """  p = f32[8] parameter(0)
  s = (f32[8], f32[16]) all-gather-start(p), replica_groups={{0,1}}, dimensions={0}
  n = f32[8] negate(p)
  d = f32[16] all-gather-done(s)
  ROOT t = (f32[8], f32[16]) tuple(n, d)"""
        ),
    ],
    ids=["copy", "gather"],
)
def test_only_the_program_matters(text: str) -> None:
    check_table(text, "async_pairs", from_metadata=FROM_METADATA)


def case(number: str, sql: str) -> list[tuple[object, ...]]:
    (path,) = shared.texts(f"cases/{number}-*.hlo")
    return ask_file(path, sql)


@shared.needs_shared
def test_case_07_which_pairs_hide_behind_compute() -> None:
    question = """select s.name, d.name, p.wraps, p.instructions_between, p.compute_between,
        p.is_sync, p.overlapped from async_pairs p join instructions s on s.instr = p.start
        join instructions d on d.instr = p.done order by p.instr"""
    assert case("07", question) == [
        ("ar-start.0", "ar-done.0", "all-reduce", 0, 0, 1, 0),
        ("ar-start.1", "ar-done.1", "all-reduce", 1, 0, 0, 0),
        ("ag-start.0", "ag-done.0", "all-gather", 3, 2, 0, 1),
        ("rs-start.0", "rs-done.0", "reduce-scatter", 0, 0, 0, 0),
    ]


@shared.needs_shared
def test_case_27_a_reload_from_host_memory() -> None:
    question = """select name, wraps, from_memory_space, to_memory_space, compute_between, bytes
        from async_pairs"""
    assert case("27", question) == [("dynamic-slice-start.1", "dynamic-slice", 5, 0, 1, 1024)]


@shared.needs_shared
def test_case_29_the_gather_of_the_next_layer_hides() -> None:
    assert case("29", "select name, compute_between from async_pairs") == [("ags.1", 1)]


@shared.needs_shared
def test_every_pair_of_a_real_dump_is_whole() -> None:
    (path,) = shared.unpacked("dumps/tpu-maxtext.tar.xz").rglob("gemma2-9b.full.tpu7x.opt.hlo")
    question = """select wraps, count(*), sum(start is null or done is null) from async_pairs
        group by 1 order by 1"""
    assert ask_file(path, question) == [
        ("all-gather", 39, 0), ("copy", 172, 0), ("fusion", 2, 0), ("reduce-scatter", 16, 0),
        ("slice", 32, 0),
    ]  # fmt: skip
