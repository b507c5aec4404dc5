"""The aliases table: what is donated, whether an output has its memory, and what is copied."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.model import Verdict
from hlo_lens.check.reading import HERE, expectation
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file, findings
from tests.shared import needs_shared, texts

ROOT = Path(__file__).parents[2]
HLO = ROOT / "fixtures" / "hlo"

VERDICT = "select output_index, kind, shape, bytes, verdict from aliases"
WHY = "select verdict, why from aliases"
MEMBERS = (
    'select m.role, i.name from members m join instructions i on i.id = m.instr where "table" ='
    " 'aliases' order by m.id"
)


def scheduled(header: str, body: str) -> str:
    """A module of an entry alone, as it runs."""
    return f"HloModule m, is_scheduled=true, {header}\nENTRY main {{\n{body}\n}}\n"


PAIRED = "input_output_alias={ {}: (0, {}, may-alias) }"
UPDATE = scheduled(
    PAIRED,
    """  p = f32[8,4]{1,0} parameter(0), metadata={op_name="state['w']"}
  g = f32[8,4]{1,0} parameter(1)
  ROOT new = f32[8,4]{1,0} subtract(p, g)""",
)


# ---------------------------------------------------------------------------- in place


def test_an_output_in_the_place_of_an_argument_is_aliased() -> None:
    assert check_table(UPDATE, VERDICT) == [("{}", "may-alias", "f32[8,4]", 128, "aliased")]
    assert ask(UPDATE, "select name, parameter, parameter_index, op_name, why from aliases") == [
        ("p", 0, "{}", "state['w']", "%new writes the output there")
    ]
    assert ask(UPDATE, MEMBERS) == [("parameter", "p"), ("output", "new")]
    assert findings(UPDATE, "aliases") == []
    check_table(UPDATE, "aliases")


def test_an_array_of_a_tuple_is_told_by_its_index() -> None:
    text = scheduled(
        "input_output_alias={ {1}: (0, {1}, must-alias) }",
        """  p = (s32[]{:T(128)}, f32[8]{0}) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  w = f32[8]{0} get-tuple-element(p), index=1
  new = f32[8]{0} negate(w)
  ROOT r = (s32[], f32[8]{0}) tuple(n, new)""",
    )
    assert ask(text, "select parameter_index, output_index, kind, bytes, verdict from aliases") == [
        ("{1}", "{1}", "must-alias", 32, "aliased")
    ]
    assert ask(text, MEMBERS) == [("parameter", "p"), ("output", "new")]


def test_what_is_returned_as_it_came_is_aliased() -> None:
    text = scheduled(PAIRED, "  ROOT p = f32[8]{0} parameter(0)")
    assert ask(text, WHY) == [("aliased", "the argument itself is returned")]


def test_another_argument_without_a_copy_is_not_said_to_be_there() -> None:
    text = scheduled(PAIRED, "  p = f32[8]{0} parameter(0)\n  ROOT q = f32[8]{0} parameter(1)")
    assert ask(text, WHY) == [("unknown", "the output is %q, and no copy of it is seen")]


LOOP = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
update {
  held = f32[64]{0} parameter(0)
  part = f32[1]{0} parameter(1)
  at = s32[] parameter(2)
  ROOT written = f32[64]{0} dynamic-update-slice(held, part, at)
}
body {
  carry = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  x = f32[64]{0} get-tuple-element(carry), index=1
  @
  part = f32[1]{0} dynamic-slice(x, i), dynamic_slice_sizes={1}
  fused = f32[64]{0} fusion(y, part, i), kind=kLoop, calls=update
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[64]{0}) tuple(next, fused)
}
condition {
  carry = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  p = f32[64]{0} parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[64]{0}) tuple(zero, p)
  loop = (s32[], f32[64]{0}) while(init), condition=condition, body=body
  ROOT r = f32[64]{0} get-tuple-element(loop), index=1
}
"""


def test_a_loop_updates_in_place() -> None:
    text = LOOP.replace("@", "y = f32[64]{0} bitcast(x)")
    assert ask(text, WHY) == [("aliased", "updated in place by %fused")]


def test_a_loop_that_reads_what_it_overwrites_copies_in_every_iteration() -> None:
    text = LOOP.replace("@", "y = f32[64]{0} copy(x)")
    assert ask(text, WHY) == [("copied", "%y copies it in every iteration of %loop")]
    assert ask(text, MEMBERS) == [("parameter", "p"), ("output", "r"), ("copy", "y")]


def test_a_loop_may_work_on_a_copy_of_the_argument() -> None:
    """The body computes all of it anew; the init, and with it the loop, is not the argument."""
    text = LOOP.replace("@", "y = f32[64]{0} bitcast(x)").replace(
        "tuple(zero, p)", "tuple(zero, c)"
    )
    text = text.replace("  zero =", "  c = f32[64]{0} copy(p)\n  zero =")
    assert ask(text, WHY) == [("copied", "%c copies the argument, and the copy is updated")]
    anew = text.replace("fusion(y, part, i), kind=kLoop, calls=update", "negate(y)")
    assert ask(anew, WHY) == [("copied", "%c copies the argument, and the copy is updated")]


def test_an_operation_that_aliases_an_operand_writes_there() -> None:
    text = scheduled(
        PAIRED,
        """  p = f32[8]{0} parameter(0)
  c = f32[8]{0} {copy}(p)
  ROOT k = f32[8]{0} custom-call(c), custom_call_target="k",
    output_to_operand_aliasing={{}: (0, {})}""",
    )
    assert ask(text.replace("{copy}", "bitcast"), "select verdict from aliases") == [("aliased",)]
    assert ask(text.replace("{copy}", "copy"), "select verdict from aliases") == [("copied",)]


# ---------------------------------------------------------------------------- copies


def test_a_matmul_that_reads_the_argument_while_it_is_overwritten_takes_a_copy() -> None:
    """As XLA for the CPU has `lambda p, g: (p.T @ g, p.sum())` with p donated."""
    text = scheduled(
        "input_output_alias={ {0}: (0, {}, may-alias) }",
        """  p = f32[512,512]{1,0} parameter(0)
  g = f32[512,512]{1,0} parameter(1)
  copy = f32[512,512]{1,0} copy(p)
  new = f32[512,512]{1,0} dot(copy, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  abs = f32[512,512]{1,0} abs(copy)
  ROOT r = (f32[512,512]{1,0}, f32[512,512]{1,0}) tuple(new, abs)""",
    )
    assert check_table(text, VERDICT) == [
        ("{0}", "may-alias", "f32[512,512]", 1 << 20, "copied"),
    ]
    assert findings(text, "aliases") == [
        (
            "donation-copied",
            "%p, 1,048,576 bytes, is copied: the program works on %copy, a copy of the argument",
        )
    ]
    assert ask(text, MEMBERS) == [("parameter", "p"), ("output", "new"), ("copy", "copy")]


READS_TOO = scheduled(
    PAIRED,
    """  p = f32[8,4]{1,0} parameter(0)
  g = f32[4,4]{1,0} parameter(1)
  c = f32[8,4]{@} copy(p)
  d = f32[8,4]{1,0} dot(c, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT new = f32[8,4]{1,0} subtract(p, d)""",
)


def test_a_copy_for_something_else_is_none_of_the_donation() -> None:
    """The update takes the argument; in which layout a matmul wants it is its own affair."""
    assert ask(READS_TOO.replace("@", "0,1"), "select verdict from aliases") == [("aliased",)]
    assert ask(READS_TOO.replace("@", "1,0"), "select verdict from aliases") == [("aliased",)]
    updated = READS_TOO.replace("@", "1,0").replace("subtract(p, d)", "subtract(c, d)")
    assert ask(updated, "select verdict from aliases") == [("copied",)]


def test_an_output_that_is_computed_elsewhere_is_copied() -> None:
    text = scheduled(
        PAIRED,
        """  p = f32[8,4]{1,0} parameter(0)
  t = f32[8,4]{@} negate(p)
  ROOT c = f32[8,4]{1,0} copy(t)""",
    )
    why = "the output is computed elsewhere, and %c copies it there"
    assert ask(text.replace("@", "1,0"), WHY) == [("copied", why)]
    why += ", from layout {0,1} to {1,0}"
    assert ask(text.replace("@", "0,1"), WHY) == [("copied", why)]


def test_arguments_that_change_places_are_copied() -> None:
    """As XLA for the CPU has `lambda a, b: (b, a)`."""
    text = scheduled(
        "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }",
        """  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  copy = f32[8]{0} copy(a)
  copy.1 = f32[8]{0} copy(b)
  copy.2 = f32[8]{0} copy(copy.1), control-predecessors={copy}
  copy.3 = f32[8]{0} copy(copy), control-predecessors={copy.1}
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(copy.2, copy.3)""",
    )
    assert ask(text, WHY) == [
        ("copied", "the output is %b, another argument, and %copy.2 copies it there"),
        ("copied", "the output is %a, another argument, and %copy.3 copies it there"),
    ]
    # No megabyte: the rows say it, no finding does.
    assert findings(text, "aliases") == []


STARTED = scheduled(
    PAIRED,
    """  p = f32[8]{0} parameter(0)
  s = (f32[8]{0:S(@)}, f32[8]{0}, u32[]) copy-start(p)
  d = f32[8]{0:S(@)} copy-done(s)
  n = f32[8]{0:S(@)} negate(d)
  s.1 = (f32[8]{0}, f32[8]{0:S(@)}, u32[]) copy-start(n)
  ROOT d.1 = f32[8]{0} copy-done(s.1)""",
)


def test_what_moves_to_another_memory_and_back_is_not_there_twice() -> None:
    assert ask(STARTED.replace("@", "1"), WHY) == [("aliased", "%n writes the output there")]
    assert ask(STARTED.replace("@", "5"), WHY) == [("aliased", "%n writes the output there")]
    assert ask(STARTED.replace("@", "0"), "select verdict from aliases") == [("copied",)]


FUSED = """HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
fused {
  x = f32[8,4]{1,0} parameter(0)
  y = f32[8,4]{1,0} @(x)
  ROOT c = f32[8,4]{1,0} copy(y)
}
ENTRY main {
  p = f32[8,4]{1,0} parameter(0)
  n = f32[8,4]{1,0} negate(p)
  ROOT f = f32[8,4]{1,0} fusion(n), kind=kLoop, calls=fused
}
"""


def test_a_fusion_copies_where_it_does_nothing_else() -> None:
    assert ask(FUSED.replace("@", "bitcast"), "select verdict from aliases") == [("copied",)]
    assert ask(FUSED.replace("@", "abs"), WHY) == [("aliased", "%f writes the output there")]


# ---------------------------------------------------------------------------- dropped


DONOR = """HloModule m, is_scheduled=true, buffer_donor={ (0, {}) }
ENTRY main {
  p = f32[512,512]{1,0} parameter(0)
  ROOT h = bf16[512,512]{1,0} convert(p)
}
"""


def test_a_donor_that_is_left_over_was_donated_in_vain() -> None:
    assert check_table(DONOR, VERDICT) == [(None, "donor", "f32[512,512]", 1 << 20, "dropped")]
    assert findings(DONOR, "aliases") == [
        (
            "donation-dropped",
            "%p, 1,048,576 bytes, is donated in vain: no output of 1,048,576 bytes is left for it",
        )
    ]
    assert ask(DONOR, "select evidence from findings where rule = 'donation-dropped'") == [
        ('[["aliases",0]]',)
    ]
    assert ask(DONOR, MEMBERS) == [("parameter", "p")]


def test_a_donor_is_of_the_memory_it_lies_in() -> None:
    text = scheduled(
        "buffer_donor={ (0, {}) }",
        "  p = f32[8]{0:S(5)} parameter(0)\n  ROOT n = f32[8]{0} negate(p)",
    )
    assert ask(text, WHY) == [("dropped", "no output of 32 bytes is left for it in memory space 5")]
    same = text.replace(":S(5)", "")
    why = "XLA gave it to no output, although output {} has its size"
    assert ask(same, WHY) == [("dropped", why)]


def test_each_output_is_for_one_argument() -> None:
    text = scheduled(
        "input_output_alias={ {}: (0, {}, may-alias) }, buffer_donor={ (1, {}), (2, {}) }",
        """  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  o = f32[8]{0} parameter(2)
  a = f32[8]{0} add(p, q)
  ROOT r = f32[8]{0} add(a, o)""",
    )
    why = "no output of 32 bytes is left for it"
    assert [row[1:] for row in ask(text, "select name, verdict, why from aliases")[1:]] == [
        ("dropped", why)
    ] * 2
    assert findings(text, "aliases") == [
        (
            "donation-dropped",
            f"%q and 1 more argument, 64 bytes, are donated in vain: of the first, {why}",
        )
    ]


BEFORE = """HloModule m, buffer_donor={ (1, {}) }, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main {
  p = f32[8] parameter(0)
  q = f32[16] parameter(1)
  n = f32[8] slice(q), slice={[0:8]}
  ROOT r = f32[8] add(p, n)
}
"""
AFTER = """HloModule m, is_scheduled=true
ENTRY main {
  @
  n = f32[8]{0} slice(q), slice={[0:8]}
  ROOT r = f32[8]{0} add(p, n)
}
"""


@pytest.mark.parametrize(
    ("parameters", "index"),
    [
        ("p = f32[8]{0} parameter(0)\n  q = f32[16]{0} parameter(1)", "{}"),
        (
            "t = (f32[8]{0}, f32[16]{0}) parameter(0)\n  p = f32[8]{0} get-tuple-element(t),"
            " index=0\n  q = f32[16]{0} get-tuple-element(t), index=1",
            "{0}",
        ),
    ],
)
def test_a_donation_that_is_gone_after_optimization_was_dropped(
    parameters: str, index: str
) -> None:
    """Whether the arguments stay apart or become one tuple, as on some TPUs."""
    program = Program(
        [parse(BEFORE), parse(AFTER.replace("@", parameters))],
        ["before_optimizations", "after_optimizations"],
    )
    sql = "select module, parameter_index, kind, bytes, verdict, why from aliases"
    found = run_query([Facts(program)], sql).rows
    assert [row[4] for row in found[:2]] == ["unknown", "unknown"]
    why = "donated before optimization, and no longer in the text that runs"
    assert found[2] == (1, index, "may-alias", 32, "dropped", why)
    assert found[3][2:] == ("donor", 64, "dropped", why)


def test_of_what_stays_donated_there_is_one_row_a_text() -> None:
    after = AFTER.replace("m, is", "m, input_output_alias={ {}: (0, {}) }, is").replace(
        "@", "p = f32[8]{0} parameter(0)\n  q = f32[16]{0} parameter(1)"
    )
    program = Program(
        [parse(BEFORE), parse(after)], ["before_optimizations", "after_optimizations"]
    )
    found = run_query([Facts(program)], "select name, verdict from aliases where module = 1").rows
    assert found == [("p", "aliased"), ("q", "dropped")]


# ---------------------------------------------------------------------------- not known


def test_before_optimization_nothing_is_decided() -> None:
    assert ask(BEFORE, "select name, kind, verdict from aliases") == [
        ("p", "may-alias", "unknown"),
        ("q", "donor", "unknown"),
    ]
    assert findings(BEFORE, "aliases") == []
    assert findings(DONOR.replace("is_scheduled=true, ", ""), "aliases") == []


def test_of_a_text_that_is_cut_off_nothing_is_said() -> None:
    cut = UPDATE[: UPDATE.index("  ROOT")]
    assert ask(cut, WHY) == [("unknown", "the text is cut off")]


def test_a_header_that_cannot_be_read_is_told() -> None:
    text = UPDATE.replace("(0, {}, may-alias)", "(zero, {})")
    assert findings(text, "aliases") == [
        (
            "pass-failed",
            "pass aliases: ValueError: input_output_alias of the header of m: expected an integer,"
            " found 'zero'",
        )
    ]


def test_a_header_may_name_what_is_not_there() -> None:
    text = UPDATE.replace("(0, {}, may-alias)", "(7, {}, may-alias)")
    assert ask(text, "select name, parameter, verdict, why from aliases") == [
        (None, 7, "unknown", "the entry has no such array")
    ]


@pytest.mark.parametrize(
    "header",
    [
        "input_output_alias={ {}: (0, {}, may-alias) }, buffer_donor={ (0, {}) }",
        "input_output_alias={ {}: (0, {}, may-alias), {}: (0, {}) }",
    ],
    ids=["a donor too", "twice"],
)
def test_an_array_that_the_header_names_again_is_one_row(header: str) -> None:
    text = UPDATE.replace(PAIRED, header)
    assert ask(text, VERDICT) == [("{}", "may-alias", "f32[8,4]", 128, "aliased")]
    assert findings(text, "aliases") == []


def test_a_donor_that_the_header_names_again_is_one_row() -> None:
    twice = DONOR.replace("{ (0, {}) }", "{ (0, {}), (0, {}) }")
    assert ask(twice, "select verdict from aliases") == [("dropped",)]


SIZES = scheduled(
    PAIRED,
    """  p = f32[@]{0:T(8)} parameter(0)
  ROOT c = s8[4,8]{1,0:T(8,8)} custom-call(p), custom_call_target="k\"""",
)


def test_a_pair_of_other_sizes_cannot_be() -> None:
    """Of other shapes it can: XLA pairs by the bytes with their padding, 64 of both."""
    why = "it has 32 bytes in memory and the output 64"
    assert ask(SIZES.replace("@", "8"), WHY) == [("unknown", why)]
    assert ask(SIZES.replace("@", "9"), "select verdict from aliases") == [("aliased",)]
    no_layout = SIZES.replace("@", "8").replace("{0:T(8)}", "")
    assert ask(no_layout, "select verdict from aliases") == [("aliased",)]


PAIRS = scheduled(
    "input_output_alias={ @ }",
    """  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  a = f32[8]{0} negate(p)
  b = f32[8]{0} abs(q)
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(a, b)""",
)


def test_one_array_has_room_for_one_output() -> None:
    each = PAIRS.replace("@", "{0}: (0, {}), {1}: (1, {})")
    assert ask(each, "select verdict from aliases") == [("aliased",)] * 2
    why = "the header pairs it with several outputs, and it has room for one"
    assert ask(PAIRS.replace("@", "{0}: (0, {}), {1}: (0, {})"), WHY) == [("unknown", why)] * 2
    why = "the header pairs output {0} with several arguments"
    assert ask(PAIRS.replace("@", "{0}: (0, {}), {0}: (1, {})"), WHY) == [("unknown", why)] * 2


def test_a_kind_that_xla_has_not_is_told() -> None:
    text = UPDATE.replace("may-alias", "whatever")
    assert ask(text, "select kind, verdict, why from aliases") == [
        (None, "unknown", "the header says 'whatever', which is neither may-alias nor must-alias")
    ]


# ---------------------------------------------------------------------------- many arrays


@pytest.mark.parametrize("header", ["input_output_alias", "buffer_donor"])
def test_a_tuple_of_thousands_of_arguments_takes_no_square_of_them(header: str) -> None:
    """Where what takes the tuple is read anew for each argument, this takes minutes."""
    count = 6000
    every = range(count)
    pairs = [
        f"(0, {{{i}}})" if header == "buffer_donor" else f"{{{i}}}: (0, {{{i}}})" for i in every
    ]
    arrays = f"({', '.join(['f32[8]{0}'] * count)})"
    lines = [f"  p = {arrays} parameter(0)"]
    for i in every:
        lines.append(f"  x{i} = f32[8]{{0}} get-tuple-element(p), index={i}")
        lines.append(f"  y{i} = f32[8]{{0}} negate(x{i})")
    lines.append(f"  ROOT r = {arrays} tuple({', '.join(f'y{i}' for i in every)})")
    text = scheduled(f"{header}={{ {', '.join(pairs)} }}", "\n".join(lines))
    facts = Facts(Program([parse(text)]))
    began = process_time()
    rows = facts.records("aliases")
    assert process_time() - began < 10
    verdict = "dropped" if header == "buffer_donor" else "aliased"
    assert [row["verdict"] for row in rows] == [verdict] * count


# ---------------------------------------------------------------------------- not donated


ADAM = """HloModule m, is_scheduled=true
fused {
  p = f32[512,512]{1,0} parameter(0)
  m = f32[512,512]{1,0} parameter(1)
  lr = f32[] constant(0.1)
  rates = f32[512,512]{1,0} broadcast(lr), dimensions={}
  step = f32[512,512]{1,0} multiply(m, rates)
  ROOT new = f32[512,512]{1,0} subtract(p, step)
}
ENTRY main {
  p = f32[512,512]{1,0} parameter(0), metadata={op_name="state['w']"}
  m = f32[512,512]{1,0} parameter(1), metadata={op_name="state['m']"}
  x = f32[512,512]{1,0} parameter(2), metadata={op_name="x"}
  g = f32[512,512]{1,0} dot(x, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  new.m = f32[512,512]{1,0} add(m, g)
  new.p = f32[512,512]{1,0} fusion(p, new.m), kind=kLoop, calls=fused
  ROOT r = (f32[512,512]{1,0}, f32[512,512]{1,0}) tuple(new.p, new.m)
}
"""
MADE_OF = "not donated, and an output of the same shape is made of"


def test_state_that_could_be_donated_is_told() -> None:
    """The update of p is made of m, too: each output is for one argument, the nearest."""
    assert findings(ADAM, "aliases") == [
        (
            "donation-missed",
            f"%p (state['w']) and 1 more argument, 2,097,152 bytes, are {MADE_OF} each: of the"
            " first by %new.p, output {0}",
        )
    ]
    evidence = "select evidence from findings where rule = 'donation-missed'"
    rows = json.loads(str(ask(ADAM, evidence)[0][0]))
    assert [ask(ADAM, f"select name from {table} where id = {id}") for table, id in rows] == [
        [("p",)],
        [("m",)],
    ]


def test_what_is_donated_is_not_told() -> None:
    header = "input_output_alias={ {0}: (0, {}), {1}: (1, {}) }, is_scheduled"
    assert findings(ADAM.replace("is_scheduled", header), "aliases") == []
    one = "input_output_alias={ {0}: (0, {}) }, is_scheduled"
    assert findings(ADAM.replace("is_scheduled", one), "aliases") == [
        (
            "donation-missed",
            f"%m (state['m']), 1,048,576 bytes, is {MADE_OF} it by %new.m, output {{1}}",
        )
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("add(m, g)", "dot(m, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("add(m, g)", "transpose(m), dimensions={1,0}"),
        ("m = f32[512,512]{1,0} parameter(1)", "m = f32[512,512]{0,1} parameter(1)"),
        ("f32[512,512]{1,0} parameter(1)", "bf16[512,512]{1,0} parameter(1)"),
        ("tuple(new.p, new.m)", "tuple(new.p, m)"),
        ("tuple(new.p, new.m)", "tuple(new.p, g)"),
    ],
    ids=["matmul", "transpose", "other layout", "other dtype", "as it came", "something else"],
)
def test_what_is_no_update_of_the_argument_is_not_told(old: str, new: str) -> None:
    """Of p it is, of m not: another operation, other memory, no change, or nothing of it."""
    found = findings(ADAM.replace(old, new), "aliases")
    assert [message.partition(", 1,048,576")[0] for _, message in found] == ["%p (state['w'])"]


def test_a_small_argument_is_not_told() -> None:
    assert findings(ADAM.replace("512,512", "512,511"), "aliases") == []


def test_before_optimization_it_is_not_told() -> None:
    assert findings(ADAM.replace(", is_scheduled=true", ""), "aliases") == []


def test_a_cache_that_could_be_donated_is_told() -> None:
    text = scheduled(
        "num_partitions=1",
        """  cache = f32[1024,256]{1,0} parameter(0)
  row = f32[1,256]{1,0} parameter(1)
  at = s32[] parameter(2)
  zero = s32[] constant(0)
  copy = f32[1024,256]{1,0} copy(cache)
  ROOT new = f32[1024,256]{1,0} dynamic-update-slice(copy, row, at, zero)""",
    )
    message = f"%cache, 1,048,576 bytes, is {MADE_OF} it by %new, output {{}}"
    assert findings(text, "aliases") == [("donation-missed", message)]


# ---------------------------------------------------------------------------- the preset


def honoured(text: str) -> Verdict:
    registry = discover_passes()
    expected = expectation({"preset": "donation-honoured"}, HERE, registry)
    return judge(Facts(Program([parse(text)])), [expected])[0]


def test_donation_honoured() -> None:
    assert honoured(UPDATE).outcome == "passed"
    dropped = honoured(DONOR)
    assert dropped.outcome == "failed"
    assert [one.name for one in dropped.offenders] == ["p"]
    assert honoured(LOOP.replace("@", "y = f32[64]{0} copy(x)")).outcome == "failed"


def test_donation_honoured_does_not_pass_where_nothing_is_donated() -> None:
    assert honoured(ADAM).outcome == "failed"


def test_what_jax_calls_an_argument_is_not_judged_without_op_names() -> None:
    asked = {"none": "op_name IS NOT NULL", "table": "aliases"}
    expected = expectation(asked, HERE, discover_passes())
    assert judge(Facts(Program([parse(UPDATE)])), [expected])[0].outcome == "failed"
    bare = UPDATE.replace(""", metadata={op_name="state['w']"}""", "")
    assert judge(Facts(Program([parse(bare)])), [expected])[0].outcome == "not judged"


def test_donation_honoured_is_not_judged_before_optimization() -> None:
    assert honoured(BEFORE).outcome == "not judged"


# ---------------------------------------------------------------------------- real programs

DONATING = [
    path
    for path in sorted(HLO.glob("**/after_optimizations.txt"))
    if path.with_name("memory_analysis.json").is_file()
    and b"input_output_alias=" in path.read_bytes()[:4096]
]


@pytest.mark.parametrize("path", DONATING, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_the_bytes_are_those_that_xla_aliases(path: Path) -> None:
    analysis = json.loads(path.with_name("memory_analysis.json").read_text())
    sql = "select sum(bytes) from aliases where output_index is not null"
    assert ask_file(path, sql) == [(analysis["alias_size_in_bytes"],)]


def test_fixtures_donate() -> None:
    assert len(DONATING) >= 5


def test_the_embeddings_of_a_llama_step_are_copied_on_an_mi355x() -> None:
    """A fusion that transposes three arrays cannot write to what it reads."""
    path = HLO / "llama" / "full-published" / "rocm-gfx950-8" / "after_optimizations.txt"
    assert ask_file(path, "select verdict, count(*), sum(bytes) from aliases group by 1") == [
        ("aliased", 30, 9717202944),
        ("copied", 6, 393216000),
    ]
    copied = "select op_name, shape from aliases where verdict = 'copied' limit 2"
    assert ask_file(path, copied) == [
        ("state[0]['embedding']", "f32[32000,512]"),
        ("state[0]['head']", "f32[32000,512]"),
    ]


def test_the_same_step_on_a_tpu_has_no_copy() -> None:
    path = HLO / "llama" / "none-v6e" / "tpu-v6e-8" / "after_optimizations.txt"
    assert ask_file(path, "select verdict, count(*) from aliases group by 1") == [("aliased", 36)]


@needs_shared
def test_the_loop_of_a_published_case_copies_its_donated_carry() -> None:
    (path,) = texts("cases/19-while-carry-copy.hlo")
    assert ask_file(path, "select name, verdict, why from aliases") == [
        ("carry.4", "copied", "%copy.12 copies it in every iteration of %while.4")
    ]
    assert load(path).main.input_output_alias
