"""`unchanged`: harmless rewrites change nothing, others do; what is allowed; what is not judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lens.check.allowing import Allowed, allowed_change
from hlo_lens.check.baseline import unchanged
from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.check.test_judging import LOOP, UNKNOWN_TRIPS
from tests.diff.comparing import AFTER, case_file
from tests.diff.texts import GATHERED_INSIDE, GATHERED_ONCE
from tests.mutate import harmful, harmless

HAND, TPU7X, ROCM, ROCM8 = "hand-made", "tpu:tpu7x-8", "rocm:gfx950", "rocm:gfx950-8"
DEMO = Path(__file__).resolve().parents[2] / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"
TEXTS = {
    "loop": LOOP,
    "demo": DEMO.read_text(),
    "remat": case_file("remat/full-scanned", ROCM).read_text(),
    "pair": case_file("pairs/hand-query-gather-twice", HAND).read_text(),
}
REGISTRY = discover_passes()


def facts(*texts: str, stages: tuple[str, ...] | None = None) -> Facts:
    return Facts(Program([parse(text) for text in texts], stages))


def allow(*texts: str) -> list[Allowed]:
    return [allowed_change(text, REGISTRY) for text in texts]


def against(good: str, new: str, *allowed: str) -> dict[str, Verdict]:
    """The verdicts on two texts, by id."""
    return by_id(unchanged(facts(good), facts(new), allow(*allowed)))


def pair(old: str, new: str, target: str, *allowed: str, stage: str = AFTER) -> dict[str, Verdict]:
    """The verdicts on two committed cases, by id."""
    good, its = (Facts(load(case_file(case, target, stage), stage=stage)) for case in (old, new))
    return by_id(unchanged(good, its, allow(*allowed)))


def by_id(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    found = {one.id: one for one in verdicts}
    assert all(one.kind == "baseline" for one in found.values())
    return found


def failed(verdicts: dict[str, Verdict]) -> set[str]:
    return {
        id.removeprefix("unchanged-") for id, one in verdicts.items() if one.outcome == "failed"
    }


def outcomes(verdicts: dict[str, Verdict]) -> set[str]:
    return {one.outcome for one in verdicts.values()}


# ---------------------------------------------------------------------------------- rewrites


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_rewrite_leaves_as_it_is_passes(name: str) -> None:
    good = facts(TEXTS[name])
    for rewrite, text in harmless(TEXTS[name]):
        verdicts = by_id(unchanged(good, facts(text), ()))
        if rewrite != "strip-metadata":
            assert (rewrite, failed(verdicts), outcomes(verdicts)) == (rewrite, set(), {"passed"})
        else:
            (only,) = verdicts.values()
            assert only.outcome == "not judged"
            assert only.why.startswith("the text of this program has no op_names")


def test_what_a_rewrite_breaks_fails() -> None:
    good = facts(LOOP)
    names = []
    for rewrite, text in harmful(LOOP):
        names.append(rewrite.partition(" ")[0])
        assert failed(by_id(unchanged(good, facts(text), ()))), rewrite
    assert len(set(names)) > 3


def test_every_compared_table_has_a_verdict_and_so_have_the_instructions() -> None:
    compared = {one.name for one in REGISTRY.tables if one.summary is not None}
    assert set(against(LOOP, LOOP)) == {
        f"unchanged-{name}" for name in (*compared, "findings", "instructions")
    }


# ---------------------------------------------------------------------------------- allowed


def test_a_row_that_is_gone_stands_with_its_place_and_what_would_allow_it() -> None:
    old, new = "pairs/hand-query-gather-twice", "pairs/hand-query-gather-once"
    found = pair(old, new, HAND)
    assert failed(found) == {"collectives", "collective_waste", "remat", "findings", "instructions"}
    its = found["unchanged-collectives"]
    assert its.found.startswith("1 removed; ")
    assert " unchanged; count " in its.found
    assert its.nearest == "it passes with --allow-change collectives:removed"
    (row,) = its.offenders
    assert (its.against, row.name, row.text_line) == (1, "again", None)
    assert row.text.startswith("removed (line ")
    assert "remat, all-gather" in row.text
    files = [case_file(case, HAND) for case in (old, new)]
    assert its.command == f"hlolens diff {files[0]} {files[1]} --only collectives --limit 0"


def test_what_is_meant_is_allowed_and_told_and_nothing_else() -> None:
    old, new = "pairs/hand-query-gather-twice", "pairs/hand-query-gather-once"
    allowed = ("collectives:removed where phase = 'remat'", "remat:operations,collectives")
    rest = ("collective_waste", "findings:removed where rule GLOB 'collective-*'", "instructions")
    found = pair(old, new, HAND, *allowed, *rest)
    assert outcomes(found) == {"passed"}
    assert found["unchanged-collectives"].found == "1 removed, as allowed"
    assert found["unchanged-matmuls"].found == ""
    back = pair(new, old, HAND, *allowed, *rest)
    assert failed(back) == {"collectives", "findings"}
    assert back["unchanged-collectives"].offenders[0].text.startswith("added: ")
    # The wrong fix of the same weight: a reduce-scatter has become an all-reduce.
    wrong = pair(new, "pairs/hand-query-gather-constrained", HAND, *allowed, *rest)
    assert "collectives" in failed(wrong)


def test_columns_are_allowed_of_matched_rows_alone() -> None:
    old, new = "pairs/fake-quant-absmax", "pairs/fake-quant-gather8"
    columns = (
        "collectives:dtype,operand_shape,operand_bytes,result_bytes,wire_bytes,wire_bytes_max,"
        "logical_wire_bytes,feeds_kind,feeds_operand"
    )
    assert "collectives" not in failed(pair(old, new, TPU7X, columns))
    found = pair(old, new, TPU7X, columns.replace("dtype,", ""))["unchanged-collectives"]
    assert [row.text for row in found.offenders] == ["dtype bf16 → f8e4m3fn"] * 4
    assert found.nearest == "it passes with --allow-change collectives:dtype"
    assert found.found.startswith("4 changed; 4 unchanged")
    # Here, rows are added and removed; no column allows that.
    moved = pair("pairs/fake-quant-in-loop", old, TPU7X, columns, "matmuls:changed")
    assert "collectives" in failed(moved)


def test_a_scheduling_flag_changes_no_instruction() -> None:
    old, new = "plain/latency-hiding-off", "plain/latency-hiding-on"
    overlap = "compute_between,heavy_between,is_sync,issued_before_use,overlapped"
    allowed = (f"collectives:{overlap}", f"async_pairs:{overlap.replace('issued_before_use,', '')}")
    assert failed(pair(old, new, ROCM8)) == {"collectives", "async_pairs"}
    assert outcomes(pair(old, new, ROCM8, *allowed)) == {"passed"}


def test_a_row_that_left_its_loop_has_changed_unless_the_loop_is_allowed() -> None:
    sides = GATHERED_INSIDE, GATHERED_ONCE
    found = against(*sides, "collectives:wire_bytes,group_size")["unchanged-collectives"]
    assert found.outcome == "failed"
    assert found.offenders[0].text.startswith("loop loop ×4 → no loop")
    its = found.nearest.rpartition(" ")[2]
    words = its.removeprefix("collectives:").split(",")
    assert "loop" in words
    assert not {"executions", "loop_depth"} & set(words)
    assert "collectives" not in failed(against(*sides, its))
    assert "collectives" in failed(against(*sides, f"{its} where loop_depth = 1"))
    others = ",".join({*words, "executions", "loop_depth"} - {"loop"})
    assert "collectives" in failed(against(*sides, f"collectives:{others}"))


def test_how_often_it_runs_is_one_column_and_no_loop() -> None:
    more = LOOP.replace("constant(4)", "constant(5)")
    found = against(LOOP, more)
    assert found["unchanged-collectives"].nearest.endswith(" collectives:executions")
    assert "collectives" not in failed(against(LOOP, more, "collectives:executions"))
    assert "collectives" in failed(against(LOOP, more, "collectives:loop"))


@pytest.mark.parametrize(
    ("old", "new", "target"),
    [
        ("pairs/fake-quant-in-loop", "pairs/fake-quant-absmax", TPU7X),
        ("remat/named-scanned", "remat/mistyped-scanned", ROCM),
        ("attention/xla-train", "attention/te-train", ROCM),
    ],
)
def test_what_a_verdict_says_would_allow_it_does(old: str, new: str, target: str) -> None:
    found = pair(old, new, target)
    hints = [one.nearest.rpartition(" ")[2] for one in found.values() if one.nearest]
    assert len(hints) == len(failed(found)) > 4
    assert outcomes(pair(old, new, target, *hints)) == {"passed"}
    assert failed(pair(old, new, target, *hints[1:])) == {hints[0].partition(":")[0]}


def test_a_condition_holds_on_both_sides_or_allows_nothing() -> None:
    wider = LOOP.replace("{{0,1}}", "{{0,1,2,3}}")
    assert "collectives" not in failed(against(LOOP, wider, "collectives"))
    one_side = "collectives:changed where group_size = 2"
    found = against(LOOP, wider, one_side)["unchanged-collectives"]
    assert (found.outcome, found.against) == ("failed", 3)
    assert "collectives" not in failed(
        against(LOOP, wider, "collectives:changed where group_size IN (2, 4)")
    )
    first = "collectives:changed where phase = 'fwd'"
    found = against(LOOP, wider, first)["unchanged-collectives"]
    assert found.found.startswith("2 changed; 1 changed, as allowed; ")


def test_instructions_count_until_they_are_allowed() -> None:
    larger = LOOP.replace("c = f32[] add(a, b)", "c = f32[] maximum(a, b)")
    assert failed(against(LOOP, larger)) == {"instructions"}
    assert failed(against(LOOP, larger, "collectives", "findings")) == {"instructions"}
    its = against(LOOP, larger)["unchanged-instructions"]
    assert [one.text for one in its.offenders] == [
        "removed (line 6 of the baseline): add f32[]",
        "added: maximum f32[]",
    ]
    assert failed(against(LOOP, larger, "instructions")) == set()
    assert failed(against(LOOP, larger, "instructions:added,removed")) == set()
    assert failed(against(LOOP, larger, "instructions:removed,changed")) == {"instructions"}
    which = "instructions where opcode IN ('add', {})"
    assert failed(against(LOOP, larger, which.format("'maximum'"))) == set()
    assert failed(against(LOOP, larger, which.format("'minimum'"))) == {"instructions"}


def test_what_was_allowed_for_nothing_passes_and_is_told() -> None:
    found = against(LOOP, LOOP, "collectives:wire_bytes", "matmuls where phase = 'fwd'")
    assert outcomes(found) == {"passed"}
    said = found["unchanged-collectives"].found
    assert said == "--allow-change collectives:wire_bytes was not needed"
    said = found["unchanged-matmuls"].found
    assert said == "--allow-change \"matmuls where phase = 'fwd'\" was not needed"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colectives", "no table colectives; did you mean collectives"),
        ("collectives:wire_byte", "no column 'wire_byte'; did you mean 'wire_bytes'?"),
        ("collectives:removd", "did you mean 'removed'?"),
        ("collectives:name", "column name of collectives makes no difference"),
        ("edges", "the table edges is not compared; compared are aliases"),
        ("instructions:shape", "of instructions say added, removed, changed, not 'shape'"),
        ("collectives:", "'collectives:' cannot be read; write TABLE or TABLE:COLUMN,…"),
        ("collectives where", "cannot be read"),
        ("", "'' cannot be read"),
    ],
)
def test_what_does_not_exist_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=r"^--allow-change: ") as caught:
        allow(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("where", ["phse = 'fwd'", "(SELECT 1", 'phase = "fwd"', "1; SELECT 2"])
def test_a_condition_that_cannot_be_read_is_refused(where: str) -> None:
    with pytest.raises(InputError, match=r"^--allow-change collectives where "):
        against(LOOP, LOOP, f"collectives where {where}")


def test_an_allowance_reads_as_it_is_written() -> None:
    (one,) = allow(" collectives : wire_bytes , added WHERE phase\n = 'fwd' ")
    assert one == Allowed("collectives", ("wire_bytes", "added"), "phase\n = 'fwd'")
    assert allow(str(one)) == [one]
    (one,) = allow("collectives where name = 'a  b' -- two blanks\n AND 1 = 0\n")
    assert one.where == "name = 'a  b' -- two blanks\n AND 1 = 0"


def test_a_comment_in_a_condition_ends_with_its_line() -> None:
    pairs = "pairs/hand-query-gather-twice", "pairs/hand-query-gather-once", HAND
    where = "collectives where phase = 'remat' -- the replay"
    assert "collectives" not in failed(pair(*pairs, where))
    assert "collectives" in failed(pair(*pairs, f"{where}\n AND 1 = 0"))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("phase = 'backward'", "phase never is 'backward'; it is fwd, bwd, remat, other"),
        ("id IN (SELECT instr FROM matmuls WHERE phase = 'backward')", "never is 'backward'"),
        ("NULL", "it reads no column: it holds of every row or of none"),
        ("1 = 1", "it reads no column"),
    ],
)
def test_a_condition_that_means_every_row_or_none_is_refused(where: str, said: str) -> None:
    with pytest.raises(InputError, match=r"^--allow-change collectives where ") as caught:
        against(LOOP, LOOP, f"collectives where {where}")
    assert said in str(caught.value)


# ---------------------------------------------------------------------------------- not judged


def not_judged(good: Facts, new: Facts, *allowed: str) -> dict[str, str]:
    """Why something is not judged, by id."""
    verdicts = by_id(unchanged(good, new, allow(*allowed)))
    return {id: one.why for id, one in verdicts.items() if one.outcome == "not judged"}


def test_a_text_that_is_cut_off_is_not_judged() -> None:
    cut = LOOP[: LOOP.index("  ROOT last")]
    assert not_judged(facts(LOOP), facts(cut)) == {
        "unchanged": "the text of this program is cut off: what stands behind the cut is not known"
    }
    assert "the text of the baseline" in not_judged(facts(cut), facts(cut))["unchanged"]
    # A cut between two computations leaves no open brace.
    between = LOOP[: LOOP.index("ENTRY")]
    for good, new, who in ((LOOP, between, "this program"), (between, between, "the baseline")):
        assert not_judged(facts(good), facts(new)) == {
            "unchanged": f"the text of {who} has no ENTRY: it may be cut off"
        }


def test_op_names_on_one_side_are_not_judged_and_on_none_they_are() -> None:
    bare = dict(harmless(LOOP))["strip-metadata"]
    assert "the baseline has no op_names" in not_judged(facts(bare), facts(LOOP))["unchanged"]
    assert not_judged(facts(bare), facts(bare)) == {}


def test_shapes_of_one_device_are_not_compared_with_whole_ones() -> None:
    text = """\
HloModule m, num_partitions=2

ENTRY e {
  x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
  y = f32[8] negate(x), sharding={devices=[2]<=[2]}
  ROOT z = f32[8] negate(y)
}
"""
    whole = facts(text, stages=("unknown",))
    device = facts(text.replace("ENTRY e", "ENTRY e_spmd"), stages=("unknown",))
    assert not_judged(whole, device) == {
        "unchanged": "the shapes of the baseline are global, those of this program device"
    }
    assert not_judged(whole, whole) == {}


def test_stages_that_are_not_there_are_not_judged() -> None:
    before, after = "before_optimizations", "after_optimizations"
    both = facts(LOOP, LOOP, stages=(before, after))
    one = facts(LOOP, stages=(after,))
    assert not_judged(facts(LOOP, stages=(before,)), one) == {
        "unchanged": f"the baseline is {before}, this program is {after}"
    }
    assert not_judged(both, one) == {
        f"unchanged-{before}": f"this program has no {before}; --stage {after} compares what both "
        "have"
    }
    found = not_judged(both, facts(LOOP, stages=("after_spmd_partitioner",)))
    assert found == {
        "unchanged": f"no stage in common: the baseline has {before}, {after}; this program has "
        "after_spmd_partitioner"
    }


def test_stages_that_the_baseline_lacks_are_told() -> None:
    before, after = "before_optimizations", "after_optimizations"
    good, new = facts(LOOP, stages=(after,)), facts(LOOP, LOOP, stages=(before, after))
    found = by_id(unchanged(good, new, ()))
    assert outcomes(found) == {"passed"}
    assert [one.found for one in found.values() if one.found] == [
        f"the baseline has no {before}: not compared"
    ]
    wider = LOOP.replace("is_scheduled=true", "is_scheduled=true, num_partitions=4")
    found = by_id(unchanged(good, facts(wider, wider, stages=(before, after)), ()))
    its = found["unchanged-modules"]
    assert (its.outcome, its.found.endswith(f"; the baseline has no {before}: not compared")) == (
        "failed",
        True,
    )


def test_each_stage_has_its_verdicts_and_an_allowance_may_be_for_one_of_them() -> None:
    stages = ("before_optimizations", "after_optimizations")
    wider = LOOP.replace("{{0,1}}", "{{0,1,2,3}}")
    good, new = facts(LOOP, LOOP, stages=stages), facts(wider, LOOP, stages=stages)
    found = by_id(unchanged(good, new, ()))
    assert "collectives-before_optimizations" in failed(found)
    assert next(iter(found)) == "unchanged-modules"
    assert found["unchanged-collectives-before_optimizations"].module == 0
    found = by_id(unchanged(good, new, allow("collectives")))
    assert found["unchanged-collectives"].found == ""
    assert found["unchanged-collectives-before_optimizations"].found == "3 changed, as allowed"


class _Broken:
    """A pass that fails."""

    def __init__(self, its: object) -> None:
        self._its = its

    def __getattr__(self, name: str) -> object:
        return getattr(self._its, name)

    def run(self, *_: object) -> None:
        raise RuntimeError("out of order")


def test_what_a_broken_pass_fills_is_not_judged() -> None:
    passes = [_Broken(one) if one.name == "matmuls" else one for one in REGISTRY.passes]
    broken = Facts(facts(LOOP).program, passes)
    for good, new in ((facts(LOOP), broken), (broken, facts(LOOP))):
        why = not_judged(good, new)
        assert why["unchanged-matmuls"] == "pass matmuls: RuntimeError: out of order"
        assert why["unchanged-findings"] == why["unchanged-matmuls"]
        assert "unchanged-collectives" not in why
    condition = "collectives where id NOT IN (SELECT id FROM matmuls)"
    assert "unchanged-collectives" in not_judged(facts(LOOP), broken, condition)


def test_elided_literals_are_told() -> None:
    elided = LOOP.replace(
        "  zero = s32[] constant(0)\n",
        "  zero = s32[] constant(0)\n  table = f32[64] constant({...})\n",
    )
    said = against(elided, elided)["unchanged-instructions"].found
    assert said == "1 literal that the text elides is not compared"


def test_offenders_are_few_and_their_number_is_known() -> None:
    many = "".join(f"  r{n} = f32[8] negate(x)\n" for n in range(2, 50))
    more = LOOP.replace(
        "ENTRY e {\n  x = f32[8] parameter(0)\n", f"ENTRY e {{\n  x = f32[8] parameter(0)\n{many}"
    )
    its = against(LOOP, more)["unchanged-instructions"]
    assert (len(its.offenders), its.against) == (20, 48)
    assert replace(its.offenders[0], id=0, name="", text_line=0).text == "added: negate f32[8]"


# ---------------------------------------------------------------------------------- not known


def test_what_one_side_does_not_know_is_not_judged_but_what_differs_besides_fails() -> None:
    nameless = LOOP.replace(', metadata={op_name="jit(f)/jvp()/last"}', "")
    good, new = facts(LOOP), facts(nameless)
    for sides in ((good, new), (new, good)):
        its = by_id(unchanged(*sides, ()))["unchanged-loops"]
        assert (its.outcome, its.found) == ("not judged", "perhaps 1 changed")
        assert its.why == "phase of 1 row: one side does not know it"
        assert (its.against, its.offenders[0].name) == (1, "w")
        assert its.nearest == "it passes with --allow-change loops:phase"
        assert by_id(unchanged(*sides, allow("loops:phase")))["unchanged-loops"].outcome == "passed"
    more = facts(nameless.replace("constant(4)", "constant(5)"))
    its = by_id(unchanged(good, more, ()))["unchanged-loops"]
    assert (its.outcome, its.against) == ("failed", 1)
    assert "trip_count 4 → 5" in its.offenders[0].text
    hint = its.nearest.rpartition(" ")[2]
    assert by_id(unchanged(good, more, allow(hint)))["unchanged-loops"].outcome == "passed"
    without = hint.replace("phase,", "").replace(",phase", "")
    its = by_id(unchanged(good, more, allow(without)))["unchanged-loops"]
    assert (without != hint, its.outcome) == (True, "not judged")


def test_no_convert_is_no_value_that_is_not_known() -> None:
    one, other = "pairs/gate-split-pad", "pairs/gate-split-swapped"
    for its in (pair(one, other, ROCM), pair(other, one, ROCM)):
        assert its["unchanged-matmuls"].outcome == "failed"
        texts = [row.text for row in its["unchanged-matmuls"].offenders]
        assert any("converts" in text for text in texts)


def test_a_trip_count_that_one_side_does_not_know_is_not_judged() -> None:
    its = against(LOOP, UNKNOWN_TRIPS)["unchanged-collectives"]
    assert (its.outcome, its.found) == ("not judged", "perhaps 2 changed; 1 unchanged")
    assert its.why == "executions of 2 rows: one side does not know it"
    assert its.offenders[0].text == "executions 4 → –"
    its = against(LOOP, UNKNOWN_TRIPS)["unchanged-loops"]
    assert "trip_count 4 → –" in its.offenders[0].text
    assert failed(against(LOOP, LOOP.replace("constant(4)", "constant(5)"))) >= {"collectives"}


def test_how_a_trip_count_is_known_is_no_difference() -> None:
    """XLA notes the number that init, step and condition say too; or another one."""
    while_ = next(line for line in LOOP.splitlines() if " while(" in line)
    noted = f'{while_}, backend_config={{"known_trip_count":{{"n":"4"}}}}'
    assert failed(against(LOOP, LOOP.replace(while_, noted))) == set()
    other = noted.replace('"4"', '"5"')
    assert failed(against(LOOP, LOOP.replace(while_, other))) >= {"loops", "collectives"}


# An all-reduce in a computation that is called.
CALLED = """\
HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

one {{
  x = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add
}}

other {{
  x = f32[8] parameter(0)
  ROOT n = f32[8] negate(x)
}}

ENTRY e {{
  x = f32[8] parameter(0)
  {}
}}
"""


def test_executions_that_the_bounds_of_the_other_side_exclude_have_changed() -> None:
    branch = "p = s32[] parameter(1)\n  ROOT y = f32[8] conditional(p, x, x), "
    perhaps = CALLED.format(f"{branch}branch_computations={{one, other}}")
    once = CALLED.format("ROOT y = f32[8] call(x), to_apply=one")
    twice = CALLED.format(
        "z = f32[8] call(x), to_apply=one\n  ROOT y = f32[8] call(z), to_apply=one"
    )
    allowed = "collectives:moves,parameter_number"
    for called, outcome, text in (
        (once, "not judged", "executions 1 → –"),
        (twice, "failed", "executions 2 → –"),
    ):
        its = against(called, perhaps, allowed)["unchanged-collectives"]
        assert (its.outcome, its.offenders[0].text) == (outcome, text)


def test_a_condition_that_is_null_neither_allows_nor_fails() -> None:
    wider = LOOP.replace("{{0,1}}", "{{0,1,2,3}}")
    where = "collectives where phase = 'bwd' OR phase = NULL"
    its = against(LOOP, wider, where)["unchanged-collectives"]
    assert (its.outcome, its.against) == ("not judged", 1)
    assert its.why == "whether the condition of --allow-change holds is not known of 1 row"
    assert its.found.startswith("perhaps 1 changed; 2 changed, as allowed")
    assert against(LOOP, LOOP, where)["unchanged-collectives"].outcome == "passed"
    sure = against(LOOP, wider, where, "collectives where name = 'last'")
    assert sure["unchanged-collectives"].outcome == "passed"


@pytest.mark.parametrize("where", ["phase IN ('fwd', 'bwd')", "phase IS NULL", "source IS NULL"])
def test_a_condition_on_what_op_names_tell_is_not_judged_without_them(where: str) -> None:
    bare = dict(harmless(LOOP))["strip-metadata"]
    wider = bare.replace("{{0,1}}", "{{0,1,2,3}}")
    its = against(bare, wider, f"collectives where {where}")["unchanged-collectives"]
    assert (its.outcome, its.against) == ("not judged", 3)
    its = against(bare, wider, "collectives where loop_depth IN (0, 1)")["unchanged-collectives"]
    assert its.outcome == "passed"


# ---------------------------------------------------------------------------------- side files


def beside(folder: Path, **files: str) -> Facts:
    """A program of one collective with these side files."""
    folder.mkdir()
    text = case_file("plain/fsdp", "cuda:h100-8")
    (folder / text.name).write_bytes(text.read_bytes())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content)
    return Facts(load(folder))


def side_file(case: str, target: str, name: str) -> str:
    return (case_file(case, target).parent / f"{name}.json").read_text()


def test_what_a_side_file_of_one_program_tells_is_not_judged(tmp_path: Path) -> None:
    provenance = side_file("plain/fsdp", "cuda:h100-8", "provenance")
    with_it = beside(tmp_path / "with", provenance=provenance)
    without = beside(tmp_path / "without")
    for good, new, who in ((with_it, without, "the baseline"), (without, with_it, "this program")):
        assert not_judged(good, new) == {
            "unchanged-collectives": "intra_host of 1 row: one side does not know it; "
            f"provenance.json lies beside {who} alone"
        }
    assert not_judged(with_it, with_it) == {}
    broken = beside(tmp_path / "broken", provenance='{"garbage')
    found = by_id(unchanged(with_it, broken, ()))
    assert outcomes(found) == {"passed", "not judged"}
    assert "provenance.json lies beside the baseline alone" in found["unchanged-collectives"].why


def test_rows_that_a_side_file_of_one_program_makes_are_not_judged(tmp_path: Path) -> None:
    case = case_file("moe/expert-parallel-train", "tpu:v6e-8", "before_optimizations")
    bare = tmp_path / case.name
    bare.write_bytes(case.read_bytes())
    good, new = Facts(load(case)), Facts(load(bare))
    found = by_id(unchanged(good, new, ()))
    assert not failed(found)
    its = found["unchanged-findings"]
    assert its.outcome == "not judged"
    assert its.found.startswith("perhaps ")
    assert its.why.startswith("what differs only a side file tells: ")
    assert "provenance.json" in its.why
    assert by_id(unchanged(good, good, ()))["unchanged-findings"].outcome == "passed"


def test_what_differs_also_without_side_files_fails(tmp_path: Path) -> None:
    provenance = side_file("plain/fsdp", "cuda:h100-8", "provenance")
    good = beside(tmp_path / "with", provenance=provenance)
    new = beside(tmp_path / "without")
    text = Path(str(new.program.main.filename))
    text.write_text(text.read_text().replace("'axis_0'=8,'axis_1'=1", "'axis_0'=4,'axis_1'=2"))
    its = by_id(unchanged(good, Facts(load(text.parent)), ()))["unchanged-collectives"]
    assert its.outcome == "failed"
    assert "group_size 8 → 4" in its.offenders[0].text
