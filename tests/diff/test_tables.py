"""Which row is which, and what differs of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlo_lens.diff import ProgramDiff, TableDiff, compare
from hlo_lens.facts import COMMON, Column, Facts, PassResult, Table, common
from hlo_lens.hlo import Instruction
from hlo_lens.program import Program
from tests.diff.comparing import added, changes, diff, moves, program, removed, table
from tests.diff.texts import GATHERED_INSIDE, GATHERED_ONCE, SPELLED, unrolled
from tests.facts.toys import Toy
from tests.mutate import FROM_METADATA, HARMLESS, harmless

WITHOUT_TANH = unrolled(3, without=(1,))

# -- real tables


def test_a_collective_that_leaves_its_loop_moved() -> None:
    found = diff(GATHERED_INSIDE, GATHERED_ONCE)
    assert (removed(found, "collectives"), added(found, "collectives")) == ([], [])
    assert moves(found, "collectives", "logical_kind") == [("all-gather", "loop", None)]
    assert changes(found, "collectives", "executions") == [(4, 1)]
    assert changes(found, "collectives", "loop_depth") == [(1, 0)]
    assert moves(diff(GATHERED_ONCE, GATHERED_INSIDE), "collectives", "logical_kind") == [
        ("all-gather", None, "loop")
    ]


def test_a_matmul_that_leaves_its_loop_moved() -> None:
    hoisted = (
        GATHERED_ONCE.replace("d = f32[8,8] dot(h, all)", "d = f32[8,8] add(h, all) /*")
        .replace("rhs_contracting_dims={0}", "*/", 1)
        .replace(
            "init = (s32[], f32[8,8], f32[8,8]) tuple(zero, x, whole)",
            "made = f32[8,8] dot(x, whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            "  init = (s32[], f32[8,8], f32[8,8]) tuple(zero, x, made)",
        )
    )
    found = diff(GATHERED_ONCE, hoisted)
    assert moves(found, "matmuls", "form") == [("dot", "loop", None)]
    assert (removed(found, "matmuls"), added(found, "matmuls")) == ([], [])


def test_what_is_renamed_stands_where_it_stood() -> None:
    renamed = dict(harmless(GATHERED_INSIDE))["rename"]
    found = diff(GATHERED_INSIDE, renamed)
    assert found.same
    assert table(found, "collectives").unchanged == 1
    assert table(found, "matmuls").unchanged == 1


def test_a_row_whose_instruction_is_gone_is_removed() -> None:
    found = diff(unrolled(3), WITHOUT_TANH, "instructions")
    assert removed(found, "instructions", "opcode", "name") == [("tanh", "t1")]
    assert added(found, "instructions") == []
    assert not found.same


def test_a_column_that_changed_says_from_what_to_what() -> None:
    found = diff(GATHERED_ONCE, GATHERED_ONCE.replace("constant(4)", "constant(6)"))
    assert changes(found, "loops", "trip_count") == [(4, 6)]
    assert changes(found, "matmuls", "executions") == [(4, 6)]
    assert table(found, "collectives").same


def test_another_shape_is_a_change_where_the_instruction_is_the_same() -> None:
    found = diff(unrolled(2), unrolled(2).replace("f32[8,8]", "bf16[8,8]"))
    assert changes(found, "matmuls", "out_dtype") == [("f32", "bf16")] * 2
    assert (removed(found, "matmuls"), added(found, "matmuls")) == ([], [])


@pytest.mark.parametrize("rewrite", HARMLESS)
def test_no_harmless_rewrite_is_a_difference(rewrite: str) -> None:
    for text in (GATHERED_INSIDE, SPELLED):
        rewritten = dict(harmless(text)).get(rewrite)
        if rewritten is not None:
            assert diff(text, rewritten).same


# A get-tuple-element or a wrapper that only one side writes is a row that only that one has.
SPELLINGS = ("elements-by-mark", "elements-by-instruction", "respell-async")


@pytest.mark.parametrize("rewrite", sorted(HARMLESS.keys() - set(SPELLINGS)))
def test_every_instruction_and_edge_of_a_harmless_rewrite_is_the_same(rewrite: str) -> None:
    for text in (GATHERED_INSIDE, SPELLED):
        rewritten = dict(harmless(text)).get(rewrite)
        if rewritten is not None:
            found = diff(text, rewritten, "instructions", "edges", "opcodes", "call_sites")
            assert found.same
            assert table(found, "instructions").unchanged > 15


def test_without_metadata_only_what_it_tells_differs() -> None:
    named = GATHERED_INSIDE.replace(
        "dot(h, all),", 'dot(h, all), metadata={op_name="jit(f)/jvp()/while/body/dot"},'
    )
    bare = dict(harmless(named))["strip-metadata"]
    found = diff(named, bare, "instructions", "matmuls")
    differing = {
        change.column.name
        for each in found.stages[0].tables
        for row in each.changed
        for change in row.changes
    }
    assert differing == {"phase", "full_op_name", "remat_label"} <= FROM_METADATA
    assert all(not each.added and not each.removed for each in found.stages[0].tables)


# -- tables of any pass


def toy(columns: tuple[Column, ...], rows: Callable[[Instruction], list[dict[str, object]]]) -> Toy:
    """A pass with a table of common columns and these, whose rows each instruction gives."""
    toys = Table("toys", "a toy", (*COMMON, *columns))

    def run(program: Program, facts: Facts) -> PassResult:
        found = [
            {**common(program, position, instr), **row}
            for position, module in enumerate(program.modules)
            for computation in module.computations
            for instr in computation.instructions
            for row in rows(instr)
        ]
        return PassResult({"toys": found})

    return Toy("toys", (toys,), run)


def toys(old: str, new: str, one: Toy) -> ProgramDiff:
    return compare(*(Facts(program(text), [one]) for text in (old, new)), only=["toys"])


def values(found: ProgramDiff) -> tuple[list[object], list[object], list[tuple[object, object]]]:
    """The values of column `what`: removed, added, and changed ones."""
    its: TableDiff = table(found, "toys")
    at = its.table.position("what")
    return (
        [row[at] for row in its.removed],
        [row[at] for row in its.added],
        [(row.old[at], row.new[at]) for row in its.changed],
    )


def test_a_reference_is_compared_by_what_it_refers_to() -> None:
    what = Column("what", "ref", "structural", "the first operand")
    one = toy((what,), lambda instr: [{"what": instr.operands[0].id}] if instr.operands else [])
    assert toys(unrolled(3), unrolled(3).replace("\nENTRY", "\n\n\nENTRY"), one).same
    more = unrolled(3).replace("  d0", "  extra = f32[8,8] negate(x0)\n  d0", 1)
    removed, added, changed = values(toys(unrolled(3), more, one))
    assert (removed, changed) == ([], [])
    assert len(added) == 1
    _, _, changed = values(
        toys(unrolled(3), unrolled(3).replace("add(t1, x1)", "add(d1, x1)"), one)
    )
    assert len(changed) == 1


def test_several_rows_of_an_instruction_are_matched_by_what_they_are() -> None:
    columns = (
        Column("what", "text", "identity", "letter"),
        Column("size", "int", "measure", "size"),
    )

    def letters(text: str) -> Toy:
        return toy(
            columns,
            lambda instr: [{"what": x, "size": ord(x)} for x in text] if instr.is_root else [],
        )

    facts = [Facts(program(unrolled(2)), [letters(text)]) for text in ("abc", "cxb")]
    assert values(compare(*facts, only=["toys"])) == (["a"], ["x"], [])


def test_one_row_that_is_left_of_an_instruction_has_changed() -> None:
    columns = (Column("what", "text", "identity", "opcode"),)
    one = toy(columns, lambda instr: [{"what": instr.opcode}] if instr.is_root else [])
    text = "HloModule m\nENTRY main { x = f32[8] parameter(0)  ROOT y = f32[8] negate(x) }\n"
    removed, added, _ = values(toys(text, text.replace("negate", "sine"), one))
    assert (removed, added) == (["negate"], ["sine"])  # the instruction is not the same
    length = toy(columns, lambda instr: [{"what": str(instr.shape)}] if instr.is_root else [])
    found = toys(unrolled(2), unrolled(2).replace("f32", "bf16"), length)
    assert values(found) == ([], [], [("(f32[8,8])", "(bf16[8,8])")])


def test_a_volatile_column_is_never_compared() -> None:
    what = Column("what", "text", "volatile", "name")
    one = toy((what,), lambda instr: [{"what": instr.name}])
    assert toys(unrolled(2), dict(harmless(unrolled(2)))["rename"], one).same


def test_rows_of_another_phase_are_other_rows() -> None:
    text = """HloModule m
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] sine(x), metadata={{op_name="jit(f)/jvp()/sin"}}
  ROOT z = f32[8] {last}, metadata={{op_name="jit(f)/{scope}/sin"}}
}}
"""
    what = Column("what", "text", "identity", "opcode")
    one = toy((what,), lambda instr: [{"what": instr.opcode}] if instr.opcode == "sine" else [])
    old = text.format(last="negate(y)", scope="transpose(jvp())")
    new = text.format(last="sine(y)", scope="transpose(jvp())/rematted_computation")
    assert values(toys(old, new, one)) == ([], ["sine"], [])
