"""The instructions, edges and opcodes tables: what is written, and how it hangs together."""

from __future__ import annotations

import pytest

from hlo_lens.facts import COMMON, Facts, common_row
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file
from tests.shared import SHARED, needs_shared, texts

TEXT = """\
HloModule m, is_scheduled=true

fused {
  p = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  c = f32[8,128]{1,0:T(8,128)} convert(p),
      metadata={op_name="jit(f)/jvp(g)/convert" source_file="a.py" source_line=3}
  ROOT n = f32[8,128]{1,0:T(8,128)} negate(c)
}

ENTRY main {
  x = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)
  f = f32[8,128]{1,0:T(8,128)S(1)} fusion(x), kind=kLoop, calls=fused
  t.remat = f32[8,128]{1,0} tanh(f),
      metadata={op_name="jit(f)/transpose(jvp(g))/checkpoint/rematted_computation/tanh"}
  u = f32[5]{0} slice(t.remat), slice={[0:5]}, control-predecessors={f}
  ROOT r = (f32[5]{0}, bf16[8,128]{1,0}) tuple(u, x)
}
"""


def test_a_row_a_written_instruction_whose_id_is_its_number() -> None:
    assert ask(TEXT, "select id, instr, name, computation, opcode, is_root from instructions") == [
        (0, 0, "p", "fused", "parameter", 0),
        (1, 1, "c", "fused", "convert", 0),
        (2, 2, "n", "fused", "negate", 1),
        (3, 3, "x", "main", "parameter", 0),
        (4, 4, "f", "main", "fusion", 0),
        (5, 5, "t.remat", "main", "tanh", 0),
        (6, 6, "u", "main", "slice", 0),
        (7, 7, "r", "main", "tuple", 1),
    ]


def test_ids_are_the_numbers_in_every_module_of_a_program() -> None:
    facts = Facts(Program([parse(TEXT), parse(TEXT)]))
    keys = [row[:3] for row in facts.rows("instructions")]
    assert keys == [(n, m, n) for m in (0, 1) for n in range(8)]


def test_sizes_come_from_the_shape() -> None:
    sql = "select name, shape, dtype, bytes, padded_bytes, memory_space from instructions"
    assert ask(f"{TEXT}", f"{sql} where name in ('f', 'u', 'r')") == [
        ("f", "f32[8,128]{1,0:T(8,128)S(1)}", "f32", 4096, 4096, 1),
        ("u", "f32[5]{0}", "f32", 20, 20, 0),
        ("r", "(f32[5]{0}, bf16[8,128]{1,0})", "tuple", 2068, 2068, None),
    ]
    padded = TEXT.replace("u = f32[5]{0}", "u = f32[5]{0:T(1024)}")
    assert ask(padded, "select bytes, padded_bytes from instructions where name = 'u'") == [
        (20, 4096)
    ]


def test_a_size_without_a_bound_is_null() -> None:
    text = "HloModule m\nENTRY e {\n  ROOT a = f32[?,4] parameter(0)\n}\n"
    assert ask(
        text, "select shape, dtype, bytes, padded_bytes, memory_space from instructions"
    ) == [("f32[?,4]", "f32", None, None, None)]


def test_names_sources_and_the_two_kinds_of_remat() -> None:
    sql = "select name, phase, source, op_name, remat_label, compiler_remat from instructions"
    assert ask(TEXT, f"{sql} where name in ('c', 't.remat', 'x')") == [
        ("c", "fwd", "a.py:3", "jit(f)/jvp(g)/convert", 0, 0),
        ("x", "fwd", None, None, None, 0),
        (
            "t.remat",
            "remat",
            None,
            "jit(f)/transpose(jvp(g))/checkpoint/rematted_computation/tanh",
            1,
            1,
        ),
    ]


def test_a_word_that_only_holds_the_label_is_no_label() -> None:
    text = TEXT.replace("rematted_computation", "my_rematted_computation_v2")
    sql = "select remat_label, compiler_remat from instructions where name = 't.remat'"
    assert ask(text, sql) == [(0, 1)]


def test_the_fusion_an_instruction_is_part_of() -> None:
    sql = "select name, fusion from instructions where fusion is not null"
    assert ask(TEXT, sql) == [("p", 4), ("c", 4), ("n", 4)]


def test_a_computation_that_two_fusions_share_is_part_of_neither() -> None:
    text = TEXT.replace(
        "  u = f32",
        "  f2 = f32[8,128]{1,0:T(8,128)S(1)} fusion(x), kind=kLoop, calls=fused\n  u = f32",
    )
    assert ask(text, "select count(*) from instructions where fusion is not null") == [(0,)]


def test_a_called_computation_is_no_fusion() -> None:
    text = TEXT.replace("fusion(x), kind=kLoop, calls=fused", "call(x), to_apply=fused")
    assert ask(text, "select count(*) from instructions where fusion is not null") == [(0,)]


def test_full_op_names_begin_at_the_program() -> None:
    text = """\
HloModule m
inner {
  p = f32[2] parameter(0)
  ROOT n = f32[2] negate(p), metadata={op_name="neg"}
}
ENTRY e {
  a = f32[2] parameter(0)
  ROOT c = f32[2] call(a), to_apply=inner, metadata={op_name="jit(f)/jvp(g)"}
}
"""
    sql = "select op_name, full_op_name, phase, phase_from from instructions where name = 'n'"
    assert ask(text, sql) == [("neg", "jit(f)/jvp(g)/neg", "fwd", "caller")]


def test_edges_are_operands_by_position_and_control() -> None:
    assert ask(TEXT, "select producer, user, kind, operand, element from edges") == [
        (0, 1, "operand", 0, None),
        (1, 2, "operand", 0, None),
        (3, 4, "operand", 0, None),
        (4, 5, "operand", 0, None),
        (5, 6, "operand", 0, None),
        (4, 6, "control", None, None),
        (6, 7, "operand", 0, None),
        (3, 7, "operand", 1, None),
    ]


def test_an_element_taken_without_an_instruction_is_an_edge_to_what_is_written() -> None:
    text = """\
HloModule m
ENTRY e {
  p = (f32[2], (f32[3], f32[4])) parameter(0)
  n = f32[4] negate(p#1#0)
  ROOT t = (f32[4], f32[2]) tuple(n, p#0)
}
"""
    assert ask(text, "select producer, user, operand, element from edges") == [
        (0, 1, 0, "1,0"),
        (1, 2, 0, None),
        (0, 2, 1, "0"),
    ]


def test_an_operand_that_the_text_does_not_declare_has_no_edge() -> None:
    text = "x = f32[2] add(f32[2] a, f32[2] b)"
    assert ask(text, "select name, opcode from instructions") == [("x", "add")]
    assert ask(text, "select * from edges") == []


def test_the_wrapped_operation_of_a_start_is_no_row() -> None:
    text = """\
HloModule m
ENTRY e {
  a = f32[8] parameter(0)
  s = ((f32[8]), f32[4], u32[]) slice-start(a), slice={[0:4]}
  ROOT d = f32[4] slice-done(s)
}
"""
    assert ask(text, "select opcode from instructions") == [
        ("parameter",), ("slice-start",), ("slice-done",),
    ]  # fmt: skip


def test_opcodes_are_counted_and_classed() -> None:
    assert ask(TEXT, "select opcode, class, instructions from opcodes") == [
        ("parameter", "plumbing", 2),
        ("convert", "movement", 1),
        ("fusion", "fusion", 1),
        ("negate", "elementwise", 1),
        ("slice", "movement", 1),
        ("tanh", "elementwise", 1),
        ("tuple", "plumbing", 1),
    ]


def test_an_opcode_of_tomorrow_is_counted_as_unknown() -> None:
    text = "HloModule m\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] quantum(a)\n}\n"
    sql = "select class, instructions from opcodes where opcode = 'quantum'"
    assert ask(text, sql) == [("unknown", 1)]


def test_rewrites_that_do_not_matter_do_not_matter() -> None:
    unscheduled = TEXT.replace(", is_scheduled=true", "")
    # An element taken by `x#1` is no instruction, so these two change what is written.
    spelt = {"elements-by-mark", "elements-by-instruction"}
    check_table(unscheduled, "instructions", skip=spelt)
    check_table(unscheduled, "opcodes", skip=spelt)
    check_table(unscheduled, "edges", skip=spelt, must_change=False)


@needs_shared
@pytest.mark.parametrize("path", texts("cases/*.hlo"), ids=lambda path: path.stem)
def test_common_columns_are_those_of_every_other_table(path: object) -> None:
    program = load(str(path))
    module = program.modules[0]
    for row in Facts(program).rows("instructions"):
        assert row[1 : len(COMMON)] == common_row(program, 0, module.instruction(row[0]))[1:]  # type: ignore[arg-type]


@needs_shared
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("01-remat-kept-before", {"dot": 3, "tanh": 2, "opt-barrier": 1, "while": 0}),
        ("15-ragged-dot-dense-and-native", {"ragged-dot": 1, "dot": 1, "select": 1}),
        ("23-scatter-expanded-to-while", {"scatter": 0, "while": 1, "dynamic-update-slice": 1}),
        ("33a-named-policy-honoured", {"dot": 3, "tanh": 2, "while": 2}),
        ("33b-named-policy-mistyped", {"dot": 4, "tanh": 2, "while": 2}),
    ],
)
def test_opcode_counts_of_the_cases(file: str, expected: dict[str, int]) -> None:
    assert SHARED is not None
    path = SHARED / "cases" / f"{file}.hlo"
    counted = ask_file(path, "select opcode, instructions from opcodes")
    counts = {opcode: count for opcode, count in counted if count}
    assert {opcode: counts.get(opcode, 0) for opcode in expected} == expected
    sql = "select opcode, count(*) from instructions group by opcode"
    assert sorted(ask_file(path, sql)) == sorted(counted)
