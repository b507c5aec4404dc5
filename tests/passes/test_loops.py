"""The loops table and its findings."""

from __future__ import annotations

import re

import pytest

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.hlo import parse
from tests.analysis.loop_texts import loop_text
from tests.analysis.test_loops import STACKS
from tests.analysis.test_trips import NESTED
from tests.mutate import FROM_METADATA, check_table
from tests.passes.asking import ask, ask_file, findings
from tests.shared import needs_shared, texts, unpacked

WHAT = "select name, trip_count, trips_kind, init, step, induction_index from loops order by id"


def test_a_counted_loop() -> None:
    assert ask(loop_text(), WHAT) == [("w", 10, "inferred", 0, 1, 0)]
    assert ask(
        loop_text(), "select body, condition, trip_count_max, executions, carry_bytes from loops"
    ) == [("body", "cond", 10, 1, 8)]


def test_nested_loops() -> None:
    assert ask(
        NESTED,
        "select l.name, p.name, l.loop = l.parent, l.loop_depth, l.executions, l.trip_count"
        " from loops l left join loops p on p.instr = l.parent order by l.id",
    ) == [("inner", "outer", 1, 1, 3, 5), ("outer", None, None, 0, 1, 3)]


def test_trips_kind_is_of_the_loop_not_of_the_loops_around_it() -> None:
    text = NESTED.replace("bound = s32[] constant(5)", "bound = s32[] parameter(0)")
    assert ask(text, "select name, trips_kind from loops order by id") == [
        ("inner", "unknown"),
        ("outer", "inferred"),
    ]


def test_stacked_elements() -> None:
    text = STACKS.format(
        before="", update="  new = f32[4,8] dynamic-update-slice(ys, y, i, zero)"
    )
    assert ask(
        text,
        "select carry_bytes, stacked_bytes, e.value ->> 'element',"
        " e.value ->> 'bytes_per_iteration' from loops, json_each(stacked) e",
    ) == [(164, 128, 1, 32)]
    assert ask(
        text,
        "select m.role, i.name from members m join instructions i on i.id = m.instr"
        ' where m."table" = \'loops\' order by m.role',
    ) == [("condition", "go"), ("stacked", "new"), ("while", "w")]


def test_a_loop_the_compiler_made() -> None:
    scattered = loop_text(attributes=', metadata={op_name="jit(f)/vmap(scatter-add)"}')
    what = "select compiler_made, origin_op from loops"
    assert ask(scattered, what) == [(1, "scatter-add")]
    assert ask(scattered.replace("vmap(scatter-add)", "while"), what) == [(0, None)]
    assert ask(loop_text(), what) == [(None, None)]


def test_a_note_that_contradicts_the_structure_is_a_finding() -> None:
    noted = loop_text(attributes=', backend_config={"known_trip_count":{"n":"11"}}')
    assert findings(noted, "loops") == [
        (
            "trip-count-mismatch",
            "w: known_trip_count 11; carry 0 from 0 in steps of 1 while 0, 1, … < 10,"
            " which is 10 times",
        )
    ]
    assert ask(noted, "select trip_count, trip_count_inferred, trips_kind from loops") == [
        (11, 10, "annotated")
    ]
    assert findings(noted.replace('"11"', '"10"'), "loops") == []


def test_an_unknown_trip_count_is_a_finding() -> None:
    assert findings(loop_text(init="copy(b)"), "loops") == [
        (
            "trip-count-unknown",
            "w: trip count not known; the condition compares no known integers",
        )
    ]
    assert findings(loop_text(), "loops") == []


def test_the_table_under_rewrites() -> None:
    named = FROM_METADATA | {"compiler_made", "origin_op"}
    check_table(NESTED, "loops", from_metadata=named)
    stacking = STACKS.format(
        before="", update="  new = f32[4,8] dynamic-update-slice(ys, y, i, zero)"
    )
    check_table(stacking, "loops", from_metadata=named)


# -- published cases and real dumps ---------------------------------------------------------------


def stated(text: str, key: str) -> list[int]:
    """The numbers a case's YAML gives under a key."""
    return [int(number) for number in re.findall(rf"\b{key}: (\d+)", text)]


@needs_shared
@pytest.mark.parametrize("case", ["05", "19", "23", "31"])
def test_trip_counts_of_the_cases(case: str) -> None:
    (hlo,) = texts(f"cases/{case}-*.hlo")
    (yaml,) = texts(f"cases/{case}-*.yaml")
    said = yaml.read_text(encoding="utf-8")
    expected = stated(said, "trip_count") or stated(said, "trip_count_inferred")
    assert [row[0] for row in ask_file(hlo, "select trip_count from loops")] == expected
    if "compiler_made: true" in said:
        what = "select compiler_made, origin_op, trips_kind from loops"
        assert ask_file(hlo, what) == [(1, "scatter-add", "inferred")]


@needs_shared
def test_what_the_cases_stack() -> None:
    """Case 31 writes two stacked outputs; of 33, the named policy saves two values, the mistyped
    one saves the input of the layer alone."""
    (outputs,) = texts("cases/31-*.hlo")
    elements = "select e.value ->> 'element', e.value ->> 'bytes' from loops, json_each(stacked) e"
    assert ask_file(outputs, elements) == [(2, 8192), (4, 2048)]
    first = "select json_array_length(stacked) from loops order by id limit 1"
    found = [ask_file(path, first) for path in texts("cases/33*.hlo")]
    assert found == [[(2,)], [(1,)]]


@needs_shared
def test_a_peeled_collective_is_in_no_loop() -> None:
    (hlo,) = texts("cases/29-*.hlo")
    what = "select name, executions, loop_depth from instructions where opcode like 'all-gather%'"
    assert ask_file(hlo, what) == [("ags.1", 3, 1), ("agd.1", 3, 1), ("ag.3", 1, 0)]


# Of the TPU dumps that hold loops: the layers, and the windowed einsums of two trips each.
DUMPS = [
    ("gemma2-9b.full.tpu7x.opt.hlo", 21, 0),
    ("qwen3moe.dense.full.opt.hlo", 8, 0),
    ("qwen3moe.raggeddot.full.before.hlo", 8, 0),
    ("qwen3moe.raggeddot.full.opt.hlo", 8, 0),
    ("s.full.nowe.before.hlo", 4, 0),
    ("s.full.nowe.opt.hlo", 4, 0),
    ("v6e_2x4.full.opt.hlo", 4, 24),
    ("v6e_2x4.minimal_with_context.opt.hlo", 4, 22),
    ("v6e_2x4.none.opt.hlo", 4, 22),
]


@needs_shared
@pytest.mark.parametrize(("name", "layers", "windowed"), DUMPS)
def test_trip_counts_of_tpu_dumps(name: str, layers: int, windowed: int) -> None:
    """No TPU text carries a trip count: two scans over the layers, and rings of four in steps of
    two."""
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob(name)
    analysis = ModuleAnalysis(parse(path.read_text(encoding="utf-8")))
    found = sorted((loop.trip_count, loop.step, loop.trips_kind) for loop in analysis.loops)
    assert found == [(2, 2, "inferred")] * windowed + [(layers, 1, "inferred")] * 2
