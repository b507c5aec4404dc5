"""Expectations judged on small programs: passed, failed with the rows, or not judged and why."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.model import Verdict
from hlo_lens.check.reading import HERE, expectation
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program

# Two all-reduces in a loop of four iterations, and one behind it.
LOOP = """\
HloModule step, is_scheduled=true

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  r1 = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add, metadata={op_name="jit(f)/transpose(jvp())/first"}
  r2 = f32[8] all-reduce(r1), replica_groups={{0,1}}, to_apply=add, metadata={op_name="jit(f)/transpose(jvp())/second"}
  ROOT t = (s32[], f32[8]) tuple(next, r2)
}

cond {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT lt = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(init), condition=cond, body=body
  y = f32[8] get-tuple-element(w), index=1
  ROOT last = f32[8] all-reduce(y), replica_groups={{0,1}}, to_apply=add, metadata={op_name="jit(f)/jvp()/last"}
}
"""  # noqa: E501
UNKNOWN_TRIPS = LOOP.replace(
    "n = s32[] constant(4)", 'n = s32[] custom-call(i), custom_call_target="limit"'
)


def judged(text: str, **given: Any) -> Verdict:
    facts = Facts(Program([parse(text)]))
    (verdict,) = judge(facts, [expectation(given, HERE, discover_passes())])
    return verdict


def outcome(text: str, **given: Any) -> str:
    return judged(text, table="collectives", **given).outcome


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"count": 3}, "passed"),
        ({"count": "<= 2"}, "failed"),
        ({"count": 9, "per": "step"}, "passed"),
        ({"count": 3, "per": "step"}, "failed"),
        ({"where": "loop IS NOT NULL", "count": 2, "per": "loop execution"}, "passed"),
        ({"where": "loop IS NOT NULL", "count": 1, "per": "loop execution"}, "failed"),
        ({"sum": "wire_bytes", "is": "== 96 B"}, "passed"),
        ({"sum": "wire_bytes", "is": "== 288 B", "per": "step"}, "passed"),
        ({"max": "wire_bytes", "is": "<= 31 B"}, "failed"),
        ({"min": "wire_bytes", "is": "== 32"}, "passed"),
        ({"every": "group_size = 2"}, "passed"),
        ({"every": "phase = 'bwd'"}, "failed"),
        ({"any": "phase = 'fwd'"}, "passed"),
        ({"any": "phase = 'remat'"}, "failed"),
        ({"none": "phase = 'remat'"}, "passed"),
        ({"none": True, "where": "logical_kind = 'all-gather'"}, "passed"),
        ({"none": True, "where": "logical_kind = 'all-reduce'"}, "failed"),
    ],
    ids=str,
)
def test_what_is_expected_holds_or_not(given: dict[str, Any], expected: str) -> None:
    assert outcome(LOOP, **given) == expected


@pytest.mark.parametrize("quantity", ["every", "any", "none"])
def test_an_empty_selection_does_not_pass_unless_that_is_meant(quantity: str) -> None:
    given = {"where": "logical_kind = 'all-gather'", quantity: "group_size = 2"}
    assert outcome(LOOP, **given) == "failed"
    assert outcome(LOOP, **given, allow_empty=True) == "passed"


def test_of_what_failed_the_rows_the_number_and_a_command_are_told() -> None:
    verdict = judged(LOOP, table="collectives", where="loop_depth = 1", count="== 1")
    assert [(row.name, row.text_line) for row in verdict.offenders] == [("r1", 15), ("r2", 16)]
    assert (verdict.found, verdict.against) == ("2", 2)
    assert verdict.expected == "collectives where loop_depth = 1: count == 1"
    assert verdict.command == (
        'hlolens query FILE "SELECT name, phase, loop_name, executions, source FROM collectives'
        ' WHERE loop_depth = 1"'
    )


def test_of_every_only_the_rows_against_it_are_told() -> None:
    verdict = judged(LOOP, table="collectives", every="phase = 'bwd'")
    assert [row.name for row in verdict.offenders] == ["last"]
    assert verdict.offenders[0].text == "phase = fwd"


def test_the_nearest_miss_of_nothing_selected_is_the_part_that_is_against_it() -> None:
    where = "group_size = 2 AND (phase = 'remat' OR phase = 'other') AND dtype = 'f32'"
    verdict = judged(LOOP, table="collectives", where=where, any="wire_bytes > 0")
    assert verdict.nearest == (
        "without (phase = 'remat' OR phase = 'other'): 3 rows, phase is 'bwd' ×2, 'fwd' ×1"
    )
    where = "logical_kind = 'all-gather' AND phase = 'bwd'"
    verdict = judged(LOOP, table="collectives", where=where, count="== 2")
    assert verdict.nearest == (
        "without logical_kind = 'all-gather': 2 rows, logical_kind is 'all-reduce' ×2"
    )
    where = "wire_bytes + 0 > 99"
    verdict = judged(LOOP, table="collectives", where=where, any=True)
    assert verdict.nearest == "without wire_bytes + 0 > 99: 3 rows"


def test_how_often_a_loop_runs_may_not_be_known() -> None:
    assert outcome(UNKNOWN_TRIPS, count="== 9", per="step") == "not judged"
    assert outcome(UNKNOWN_TRIPS, count=">= 1", per="step") == "passed"
    assert outcome(UNKNOWN_TRIPS, where="loop_depth = 1", count=2, per="loop execution") == "passed"


def test_what_is_null_is_not_judged() -> None:
    verdict = judged(LOOP, table="collectives", every="channel_id = 1")
    assert (verdict.outcome, verdict.why) == (
        "not judged",
        "of 3 rows it is not known: the condition is NULL",
    )
    verdict = judged(LOOP, table="collectives", where="channel_id = 1", count=3)
    assert verdict.why == (
        "of 3 rows it is not known whether they are meant: the condition is NULL;"
        " write (channel_id = 1) IS TRUE to leave them out"
    )


# `phase` is NULL of `last`, and the others are of the backward.
UNNAMED = LOOP.replace(', metadata={op_name="jit(f)/jvp()/last"}', "").replace(
    "ROOT last", "keep = f32[8] negate(y)\n  ROOT last"
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"where": "phase = 'bwd'", "count": ">= 2"}, "passed"),
        ({"where": "phase = 'bwd'", "count": 2}, "not judged"),
        ({"where": "phase = 'bwd'", "count": "<= 1"}, "failed"),
        ({"where": "phase = 'bwd'", "count": "<= 3"}, "passed"),
        ({"where": "phase IS 'bwd'", "count": 2}, "passed"),
        ({"where": "phase = 'bwd'", "every": "group_size = 2"}, "passed"),
        ({"where": "phase = 'bwd'", "every": "loop IS NOT NULL"}, "not judged"),
        ({"where": "phase = 'bwd'", "every": "group_size = 4"}, "failed"),
        ({"where": "phase = 'bwd'", "none": "loop IS NULL"}, "not judged"),
        ({"where": "phase = 'bwd'", "none": "group_size = 4"}, "passed"),
        ({"where": "phase = 'bwd'", "any": "loop IS NOT NULL"}, "passed"),
        ({"where": "phase = 'bwd'", "any": "loop IS NULL"}, "not judged"),
        ({"where": "phase = 'bwd'", "any": "group_size = 4"}, "failed"),
        ({"where": "phase = 'fwd'", "none": True}, "not judged"),
        ({"where": "phase = 'fwd'", "any": True}, "not judged"),
        ({"where": "phase = 'fwd'", "every": "group_size = 2"}, "not judged"),
        ({"where": "phase = 'bwd'", "sum": "wire_bytes", "is": "<= 96 B"}, "passed"),
        ({"where": "phase = 'bwd'", "sum": "wire_bytes", "is": "== 64 B"}, "not judged"),
        ({"where": "phase = 'bwd'", "max": "loop_depth", "is": "== 1"}, "passed"),
        ({"where": "phase = 'bwd'", "min": "loop_depth", "is": "== 1"}, "not judged"),
        ({"where": "phase = 'bwd'", "min": "loop_depth", "is": "<= 1"}, "passed"),
    ],
    ids=str,
)
def test_a_row_that_is_perhaps_meant_leaves_open_what_it_could_decide(
    given: dict[str, Any], expected: str
) -> None:
    assert outcome(UNNAMED, **given) == expected


def test_rows_outside_of_loops_are_left_out_of_what_is_counted_per_loop_execution() -> None:
    verdict = judged(LOOP, table="collectives", count=2, per="loop execution")
    assert (verdict.outcome, verdict.found) == (
        "passed",
        "2 in an iteration of w; 1 row in no loop left out",
    )
    straight = "loop IS NULL"
    assert outcome(LOOP, where=straight, count=0, per="loop execution") == "passed"
    verdict = judged(LOOP, table="collectives", where=straight, count=1, per="loop execution")
    assert (verdict.outcome, verdict.found) == ("failed", "0; 1 row in no loop left out")


@pytest.mark.parametrize("quantity", ["max", "min"])
def test_of_no_row_there_is_no_largest(quantity: str) -> None:
    given = {"where": "group_size = 9", quantity: "wire_bytes", "is": "> 5 B"}
    assert outcome(LOOP, **given) == "failed"
    assert outcome(LOOP, **given, allow_empty=True) == "passed"


def test_a_phase_cannot_be_judged_without_metadata() -> None:
    text = "\n".join(line.partition(", metadata")[0] for line in LOOP.splitlines())
    assert outcome(text, count=3) == "passed"
    verdict = judged(text, table="collectives", none="phase = 'remat'")
    assert verdict.why == "the text has no op_name and no source, which phase needs"


def test_a_cut_off_text_is_not_judged() -> None:
    verdict = judged(LOOP[: LOOP.rindex("ROOT last")], table="collectives", count=2)
    assert verdict.why == "the text is cut off: what stands behind the cut is not known"


def test_a_stage_that_is_not_there_is_not_judged() -> None:
    verdict = judged(LOOP, table="collectives", count=3, stage="before_optimizations")
    assert verdict.why == "no stage before_optimizations; it has after_optimizations"


def test_sql_that_cannot_be_read_is_a_mistake_of_the_file() -> None:
    with pytest.raises(InputError, match="no column wire_byte, did you mean wire_bytes"):
        judged(LOOP, table="collectives", every="wire_byte > 3")


@pytest.mark.parametrize("where", ["1) OR (1", "\"phse\" = 'fwd'", "1; DELETE FROM collectives"])
def test_a_condition_stands_alone(where: str) -> None:
    with pytest.raises(InputError):
        judged(LOOP, table="collectives", where=where, count=3)


def test_a_stage_may_be_said_in_short() -> None:
    assert outcome(LOOP, count=3, stage="opt") == "passed"
    assert outcome(LOOP, count=3, stage="before") == "not judged"


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("phase = 'backward'", "phase never is 'backward'; it is fwd, bwd, remat, other"),
        ("phase <> 'backward'", "phase never is 'backward'"),
        ("'train' = phase", "phase never is 'train'; it is fwd, bwd, remat, other"),
        ("phase IN ('fwd', 'train')", "phase never is 'train'"),
        ("phase NOT IN ('train')", "phase never is 'train'"),
        ("collectives.phase IS NOT 'train'", "phase never is 'train'"),
        ("logical_kind = 'all_gather'", "did you mean 'all-gather'?"),
        ("dtype = 'bfloat16'", "dtype never is 'bfloat16': no dtype of HLO"),
        ("wire_bytes < '4 MiB'", "in SQL write the number: 4194304"),
        ("wire_bytes > 'many'", "wire_bytes is a number, which 'many' is not"),
        ("wire_bytes > 4 MiB", "numbers in SQL have no unit"),
        ("overlapped = 'false'", "overlapped is no text: write overlapped, or NOT overlapped"),
        ("phase = bwd", "no column bwd; a text stands in single quotes in SQL: 'bwd'"),
        ("EXISTS (SELECT 1 FROM loops WHERE loops.phase = 'train')", "phase never is 'train'"),
        ("EXISTS (SELECT 1 FROM loops AS l WHERE l.phase = 'train')", "phase never is 'train'"),
        ("(phase) IN (('train'), lower(name))", "phase never is 'train'"),
        ("phase LIKE 'train'", "phase never is 'train'"),
        ("phase GLOB 'train' OR group_size = 2", "phase never is 'train'"),
        ("CASE phase WHEN 'train' THEN 1 ELSE 0 END", "phase never is 'train'"),
        ("phase = 1", "phase is a text, which no number is"),
        ("overlapped = 2", "overlapped is 0 or 1, never 2"),
        ("wire_bytes BETWEEN '1 MiB' AND '2 MiB'", "in SQL write the number: 1048576"),
        ("wire_bytes > '1_000'", "in SQL write the number: 1000"),
        ("abs(wire_bytes) > '5'", "a number is compared with the text '5'"),
        ("group_size = 2 OR name", "name is a text, and no text is true"),
        ("group_size = 2 OR 'train'", "'train' stands where a condition does"),
        ("coalesce(phase, '') = 'train'", "COALESCE(phase, '') = 'train' holds of no phase; it is"),
        ("lower(phase) = 'BWD'", "LOWER(phase) = 'BWD' holds of no phase; did you mean 'bwd'?"),
        ("lower(phase) <> 'BWD'", "LOWER(phase) <> 'BWD' holds of every phase"),
        ("trim(dtype) = 'float32'", "TRIM(dtype) = 'float32' holds of no dtype; did you"),
        ("dtype = 'float32' COLLATE RTRIM", "holds of no dtype"),
        ("phase || '' = 'train'", "holds of no phase"),
        ("instr(phase, 'train')", "holds of no phase"),
        ("CAST(phase AS TEXT) = 'train'", "holds of no phase"),
        ("phase LIKE 'trai%'", "holds of no phase"),
        ("phase NOT LIKE 'trai%'", "LIKE 'trai%' holds of"),
        ("phase GLOB 'trai*'", "holds of no phase"),
        ("(phase, dtype) = ('train', 'bf16')", "phase never is 'train'"),
        ("(phase, dtype) IN (VALUES ('bwd', 'bf16'), ('train', 'f32'))", "phase never is 'train'"),
        ("phase IN (SELECT 'train')", "phase never is 'train'"),
        ("EXISTS (SELECT 1 FROM loops l WHERE lower(l.phase) = 'BWD')", "holds of no phase"),
        ("replace(phase, 'x', '') = 'bwd' AND dtype = 'float32'", "dtype never is 'float32'"),
    ],
    ids=str,
)
def test_a_word_that_a_column_never_holds_is_a_mistake(condition: str, says: str) -> None:
    for given in ({"where": condition, "none": True}, {"none": condition}):
        with pytest.raises(InputError, match=re.escape(says)):
            judged(LOOP, table="collectives", **given)


@pytest.mark.parametrize(
    "condition",
    [
        "phase = 'b' || 'wd'",
        "upper(phase) = 'BWD'",
        "coalesce(phase, 'none') = 'none'",
        "replace(phase, 'x', '') = 'bwd'",
        "phase NOT LIKE 'b%'",
        "instr(phase, 'w') > 0",
        "dtype LIKE '%,%' OR dtype = 'bf16,f32' OR dtype LIKE 'f8%'",
        "(phase, dtype) IN (VALUES ('bwd', 'bf16'))",
        "lower(phase) = lower(dtype) OR name LIKE 'x%'",
        "wire_bytes < '4194304'",
        "phase || 'x' = 'bwdx'",
        "dtype IN ('f32', 'bf16')",
        "name = 'backward' -- phase = 'train'",
        "name = 'phase = ''train'''",
        "phase > 'a'",
        "loop_name = 'anything'",
        "'x' || phase = 'xbwd'",
        "phase = 'BWD' COLLATE NOCASE",
        "phase LIKE 'BWD'",
        "phase IN (SELECT phase FROM loops)",
        "EXISTS (SELECT 1 FROM (SELECT 'train' AS phase) WHERE phase = 'train') AND id >= 0",
        "EXISTS (SELECT 1 FROM json_each(axes) AS a WHERE a.value = 'data')",
        "EXISTS (SELECT 1 FROM matmuls AS collectives WHERE collectives.form = 'dot')",
        "json_valid(axes) OR overlapped",
    ],
)
def test_other_words_are_left_alone(condition: str) -> None:
    assert judged(LOOP, table="collectives", none=condition).expected


def test_the_columns_to_show_are_told() -> None:
    verdict = judged(LOOP, table="collectives", count=1, show=["dtype", "group_size"])
    assert verdict.offenders[0].text == "dtype = f32, group_size = 2"
    assert "SELECT name, phase, loop_name, dtype, group_size, executions" in verdict.command


def test_what_adds_most_to_a_sum_is_told_first() -> None:
    given = {"table": "collectives", "sum": "wire_bytes", "is": "< 1 B", "per": "step"}
    verdict = judged(LOOP, **given)
    assert [row.name for row in verdict.offenders] == ["r1", "r2", "last"]
    given = {"table": "collectives", "min": "loop_depth", "is": "> 1"}
    assert judged(LOOP, **given).offenders[0].name == "last"


# `inner` is called in the loop and in front of it: nobody knows in which loop its all-reduce runs.
SHARED = LOOP.replace(
    "body {",
    """inner {
  x = f32[8] parameter(0)
  ROOT shared = f32[8] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}

body {""",
).replace(
    "  r1 = f32[8] all-reduce(x)",
    "  y = f32[8] call(x), to_apply=inner\n  r1 = f32[8] all-reduce(y)",
)
SHARED = SHARED.replace("tuple(zero, x)", "tuple(zero, first)").replace(
    "  init =", "  first = f32[8] call(x), to_apply=inner\n  init ="
)


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (SHARED, {"count": 2}, "not judged"),  # or three
        (SHARED, {"count": ">= 2"}, "not judged"),  # and elsewhere one
        (SHARED, {"count": 1}, "failed"),
        (SHARED, {"count": ">= 0"}, "passed"),
        (UNNAMED, {"where": "phase = 'fwd'", "count": ">= 2"}, "failed"),  # in no loop
        (LOOP, {"where": "loop IS NULL", "sum": "wire_bytes", "is": "<= 1 B"}, "failed"),
        (LOOP, {"where": "loop IS NULL", "max": "wire_bytes", "is": "<= 1 B"}, "failed"),
        (LOOP, {"where": "loop IS NULL", "min": "wire_bytes", "is": "== 0"}, "failed"),
    ],
    ids=str,
)
def test_what_runs_in_an_iteration_is_not_guessed(
    text: str, given: dict[str, Any], expected: str
) -> None:
    assert outcome(text, **given, per="loop execution") == expected


def test_a_loop_that_holds_only_what_is_perhaps_meant_is_against_nothing() -> None:
    text = LOOP.replace('transpose(jvp())/first"', 'first"').replace(
        ', metadata={op_name="jit(f)/transpose(jvp())/second"}', ""
    )
    text = text.replace(', metadata={op_name="jit(f)/first"}', "")
    given = {"where": "phase = 'fwd'", "count": ">= 3", "per": "loop execution"}
    assert outcome(text, **given) == "not judged"


def test_numbers_beyond_what_a_float_holds_are_exact() -> None:
    trips = 'body=body, backend_config={"known_trip_count":{"n":"4503599627370497"}}'
    text = LOOP.replace("body=body", trips)
    given = {"where": "loop_depth = 1", "sum": "wire_bytes", "per": "step"}
    exact = 4503599627370497 * 64
    assert outcome(text, **{**given, "is": f"== {exact} B"}) == "passed"
    assert outcome(text, **{**given, "is": f"<= {exact - 1} B"}) == "failed"


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("1", "it reads no column: it holds of every row or of none"),
        ("'1'", "it reads no column"),
        ("0 = 1", "it reads no column"),
        ("dtype", "dtype is a text, and no text is true"),
        ("overlapped AND NOT (dtype)", "dtype is a text"),
    ],
)
def test_a_condition_that_never_differs_is_a_mistake(condition: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        judged(LOOP, table="collectives", every=condition)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LOOP[: LOOP.index("ENTRY")], "the text has no ENTRY: it may be cut off"),
        (LOOP.replace("condition=cond", "condition=lost"), "the text is not whole: %w calls %lost"),
    ],
)
def test_a_text_that_is_not_whole_is_not_judged(text: str, why: str) -> None:
    verdict = judged(text, table="collectives", count=0)
    assert (verdict.outcome, verdict.why.startswith(why)) == ("not judged", True)


def test_a_question_that_has_no_answer_here_is_not_judged() -> None:
    condition = "json_extract('{', '$.a') = name"
    verdict = judged(LOOP, table="collectives", none=condition)
    assert (verdict.outcome, "malformed JSON" in verdict.why) == ("not judged", True)


def test_the_command_asks_for_the_rows_that_are_against_it() -> None:
    def command(**given: Any) -> str:
        return judged(LOOP, table="collectives", **given).command

    shown = "SELECT name, phase, loop_name, executions, source FROM collectives WHERE "
    assert f"{shown}NOT (phase = 'bwd')" in command(every="phase = 'bwd'")
    both = "(loop_depth = 1) AND (phase = 'bwd')"
    assert f"{shown}{both}" in command(where="loop_depth = 1", none="phase = 'bwd'")
    assert "channel_id, executions, source FROM collectives WHERE NOT" not in command(
        every="channel_id = 1"
    )
    assert "WHERE (channel_id = 1) IS NULL" in command(every="channel_id = 1")
    assert command(any="phase = 'remat'").endswith('FROM collectives"')


def test_of_a_largest_value_only_the_rows_over_it_are_told() -> None:
    given = {"table": "collectives", "max": "loop_depth", "is": "< 1"}
    assert [row.name for row in judged(LOOP, **given).offenders] == ["r1", "r2"]
    given = {"table": "collectives", "max": "loop_depth", "is": "> 1"}
    assert len(judged(LOOP, **given).offenders) == 3


def test_a_largest_value_may_not_be_known() -> None:
    verdict = judged(LOOP, table="collectives", max="channel_id", **{"is": "< 1"})
    assert (verdict.outcome, verdict.found, verdict.why) == (
        "not judged",
        "not known",
        "channel_id of 3 of 3 rows is not known (NULL)",
    )


def test_a_preset_says_what_it_means_that_there_is_nothing() -> None:
    verdict = judged(LOOP, preset="donation-honoured")
    assert (verdict.found, verdict.nearest) == ("no row is selected", "nothing is donated")
