"""What `assert_lowering` states: it holds, it raises with what `hlolens check` says, or it is a
mistake of the test."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hlo_lens
from hlo_lens.check.filechecking import file_checked
from hlo_lens.check.model import Verdict
from hlo_lens.check.terminal import as_lines
from hlo_lens.facts.sqlite import Database
from hlo_lens.hlo import parse
from hlo_lens.program import Program
from hlo_lens.testing import (
    ExpectationError,
    Lowering,
    LoweringError,
    LoweringWarning,
    NotJudgedError,
    Rows,
    UnknownNameError,
    assert_lowering,
)
from hlo_lens.testing.asking import Asked
from hlo_lens.testing.failures import in_python
from tests.check.test_judging import LOOP, UNKNOWN_TRIPS
from tests.conftest import Ran

FIXTURES = Path(__file__).parents[2] / "fixtures"
NO_NAMES = re.sub(r", metadata=\{.*\}", "", LOOP)


@pytest.fixture(scope="module")
def step() -> Program:
    return Program([parse(LOOP)])


def reductions(step: Program) -> Rows:
    return assert_lowering(step).table("collectives")


# --- what is stated ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holds", "fails"),
    [
        (lambda rows: rows.count(3), lambda rows: rows.count(0)),
        (lambda rows: rows.count("<= 3"), lambda rows: rows.count("< 3")),
        (lambda rows: rows.count(9, per="step"), lambda rows: rows.count(3, per="step")),
        (lambda rows: rows.every("group_size = 2"), lambda rows: rows.every("phase = 'bwd'")),
        (lambda rows: rows.none("phase = 'remat'"), lambda rows: rows.none("phase = 'fwd'")),
        (lambda rows: rows.where(phase="remat").none(), lambda rows: rows.none()),
        (lambda rows: rows.any("phase = 'fwd'"), lambda rows: rows.any("phase = 'remat'")),
        (lambda rows: rows.any(), lambda rows: rows.where(phase="remat").any()),
        (lambda rows: rows.sum("wire_bytes", 96), lambda rows: rows.sum("wire_bytes", 0)),
        (
            lambda rows: rows.sum("wire_bytes", "<= 288 B", per="step"),
            lambda rows: rows.sum("wire_bytes", "<= 96 B", per="step"),
        ),
        (
            lambda rows: rows.max("wire_bytes", "< 1 KiB"),
            lambda rows: rows.max("wire_bytes", "> 1 KiB"),
        ),
        (lambda rows: rows.min("wire_bytes", 32), lambda rows: rows.min("wire_bytes", 0)),
        (
            lambda rows: rows.where(loop_depth=1).count(2, per="loop execution"),
            lambda rows: rows.where(loop_depth=1).count(1, per="loop execution"),
        ),
    ],
)
def test_what_holds_goes_on_and_what_does_not_raises(
    step: Program, holds: Callable[[Rows], Rows], fails: Callable[[Rows], Rows]
) -> None:
    assert isinstance(holds(reductions(step)), Rows)
    with pytest.raises(LoweringError):
        fails(reductions(step))


def test_several_things_are_stated_in_a_row(step: Program) -> None:
    (
        assert_lowering(step)
        .collectives("all-reduce")
        .count(3)
        .where(phase="bwd")
        .count(2)
        .every("loop_depth = 1")
        .loops()
        .count(1)
        .every("trip_count = 4")
    )


def test_an_empty_selection_does_not_pass_unless_that_is_meant(step: Program) -> None:
    gathers = assert_lowering(step).collectives("all-gather")
    with pytest.raises(LoweringError, match="no row is selected"):
        gathers.every("phase = 'fwd'")
    gathers.every("phase = 'fwd'", allow_empty=True)
    gathers.max("wire_bytes", "< 1 GiB", allow_empty=True)


def test_the_text_is_what_check_prints(
    step: Program, cli: Callable[..., Ran], tmp_path: Path
) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LOOP)
    gate = tmp_path / "gate.toml"
    gate.write_text(
        "[[expect]]\nid = 'no-fwd'\ntable = 'collectives'\nnone = \"phase = 'fwd'\"\n"
        "because = 'it is slow'\n[[expect]]\ntable = 'loops'\ncount = 1\n"
    )
    printed = cli("check", file, "--expect", gate)
    with pytest.raises(LoweringError) as caught:
        assert_lowering(file).expect(gate)
    first, _, rest = str(caught.value).partition("\n")
    assert first == "collectives: none phase = 'fwd'; found: 1 of 3 rows breaks it"
    assert f"{rest}\n" == printed.out
    assert "last  line 33  phase = fwd" in rest
    assert "because: it is slow" in rest
    assert "hlolens query" in rest
    assert [one.outcome for one in caught.value.verdicts] == ["failed", "passed"]


def test_no_name_is_told_that_nobody_gave(step: Program) -> None:
    with pytest.raises(LoweringError) as caught:
        reductions(step).count(0, because="it is slow")
    first, name, because, *rows = str(caught.value).splitlines()
    assert first == "collectives: count == 0; found: 3"
    assert (name, because) == ("step", "  because: it is slow")
    assert [row.split()[0] for row in rows] == ["r1", "r2", "last"]
    with pytest.raises(LoweringError, match="✗ none-is-left"):
        reductions(step).count(0, id="none-is-left")


def test_columns_are_chosen_that_are_told_of_a_row(step: Program) -> None:
    for show in (["group_size", "dtype"], ("group_size", "dtype")):
        with pytest.raises(LoweringError, match="line 33  group_size = 2, dtype = f32"):
            reductions(step).none("phase = 'fwd'", show=show)
    with pytest.raises(LoweringError, match=r"line 33  dtype = f32$"):
        reductions(step).none("phase = 'fwd'", show="dtype")


def test_what_is_said_is_said_for_python(step: Program, tmp_path: Path) -> None:
    """In a file, or in none: no command names one that is not there."""
    other = LOOP.replace("  r2 = f32[8] all-reduce(r1)", "  r2 = f32[8] all-reduce(x)")
    with pytest.raises(LoweringError) as caught:
        assert_lowering(other).unchanged_from(step)
    assert 'it passes with allow=["instructions:' in str(caught.value)
    assert "--" not in str(caught.value)
    assert "hlolens diff" not in str(caught.value)
    with pytest.raises(LoweringError) as caught:
        reductions(step).count(0)
    assert "hlolens query" not in str(caught.value)
    (verdict,) = caught.value.verdicts
    assert verdict.command.startswith("hlolens query FILE ")
    (tmp_path / "step.hlo").write_text(LOOP)
    with pytest.raises(LoweringError, match=rf"hlolens query {tmp_path}/step.hlo"):
        assert_lowering(tmp_path / "step.hlo").collectives().count(0)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("it passes with --allow-change loops:a,b", 'it passes with allow=["loops:a,b"]'),
        (
            "--allow-change loops was not needed; --allow-change \"loops where x = 'a b'\" was not"
            " needed",
            'allow=["loops"] was not needed; allow=["loops where x = \'a b\'"] was not needed',
        ),
        ("whether the condition of --allow-change holds", "whether the condition of allow holds"),
        (
            "--stage opt compares what both have",
            'stage="opt" of hlo_lens.load compares what both have',
        ),
        ("lhs--rhs", "lhs--rhs"),
    ],
)
def test_an_option_is_an_argument(said: str, told: str) -> None:
    verdict = Verdict("x", "baseline", "failed", "", said, why=said, nearest=said)
    shown = in_python(verdict)
    assert (shown.found, shown.why, shown.nearest) == (told, told, told)


def test_of_several_that_fail_the_first_line_has_the_names(step: Program, tmp_path: Path) -> None:
    gate = tmp_path / "gate.toml"
    gate.write_text("".join(f"[[expect]]\nid='{id}'\ntable='loops'\ncount=7\n" for id in "ab"))
    with pytest.raises(LoweringError, match=r"^a, b\n"):
        assert_lowering(step).expect(gate)


def test_a_stage_is_chosen_with_the_table() -> None:
    program = hlo_lens.load(FIXTURES / "hlo/remat/full/cpu")
    lowering = assert_lowering(program)
    for stage in program.stages:
        lowering.table("modules", stage=stage).every(f"stage = '{stage}'")
        assert [row["stage"] for row in lowering.modules(stage=stage).rows()] == [stage]
    with pytest.raises(NotJudgedError, match="no stage nowhere"):
        lowering.table("modules", stage="nowhere").count(1)


# --- what is not known ------------------------------------------------------------------------


def test_what_cannot_be_judged_raises_and_is_no_assertion_error(step: Program) -> None:
    with pytest.raises(NotJudgedError, match="how often they run") as caught:
        assert_lowering(UNKNOWN_TRIPS).collectives().count(9, per="step")
    assert not isinstance(caught.value, AssertionError)
    with pytest.raises(NotJudgedError, match="op_name"):
        assert_lowering(NO_NAMES).collectives(phase="bwd").count(2)
    assert_lowering(NO_NAMES).collectives().count(3)  # which takes no names


def test_rows_of_which_it_is_not_known_whether_they_are_meant_are_not_given(step: Program) -> None:
    rows = reductions(step)
    assert [row["name"] for row in rows.where(phase="bwd").rows()] == ["r1", "r2"]
    assert rows.where("channel_id IS NULL").rows()[0]["group_size"] == 2
    with pytest.raises(NotJudgedError, match="IS TRUE to leave them out"):
        rows.where(channel_id=1).rows()
    assert len(rows.where("(channel_id = 1) IS TRUE").rows()) == 0


# --- mistakes of a test ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda a: a.table("colectives"), "no table colectives; did you mean collectives"),
        (lambda a: a.collectives(phas="bwd"), "no column phas; did you mean phase"),
        (lambda a: a.collectives(phase="back"), "column phase never is 'back'"),
        (lambda a: a.collectives(group_size="two"), "column group_size holds numbers"),
        (lambda a: a.collectives("all-gathr"), "not told by 'all-gathr': logical_kind is all-gat"),
        (lambda a: a.ragged_dots("fwd"), "'fwd' is not clear; write class= or direction="),
        (lambda a: a.loops("while"), "write the column"),
        (lambda a: a.collectives().where("phas = 1"), "no column phas"),
        (lambda a: a.collectives().where("1) OR (1"), "a condition is one expression"),
        (lambda a: a.collectives().every("phas = 1"), "no column phas"),
        (lambda a: a.collectives(phase=[]).count(0), "phase is one of no values"),
        (lambda a: a.collectives().every("phase = 'backward'"), "phase never is 'backward'"),
        (lambda a: a.collectives().count(True), "true is no comparison"),
        (lambda a: a.collectives().count(-1), "there never are -1 rows"),
        (lambda a: a.collectives().count(2.5), "there never are 2.5 rows"),
        (lambda a: a.collectives().count(1, show=["phas"]), "no column 'phas'"),
        (lambda a: a.colectives(), "no table and no assertion colectives"),
        (lambda a: a.collectives().count("< 3 GiB"), "a count has no unit 'GiB'"),
        (lambda a: a.collectives().count("many"), "'many' is no comparison"),
        (lambda a: a.collectives().sum("wire_byte", 1), "no column 'wire_byte'"),
        (lambda a: a.collectives().max("phase", 1), "holds no numbers"),
        (lambda a: a.collectives().count(1, per="second"), "per is"),
        (lambda a: a.preset("no-f64-matmul"), "no preset 'no-f64-matmul'"),
        (lambda a: a.unchanged_from(LOOP, allow=["colectives"]), "no table colectives"),
    ],
)
def test_a_mistake_is_told_by_the_line_of_the_test(
    step: Program, wrong: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(ExpectationError, match=re.escape(told)) as caught:
        wrong(assert_lowering(step))
    line = wrong.__code__.co_firstlineno
    assert str(caught.value).startswith(f"{Path(__file__).relative_to(Path.cwd())}:{line}: ")
    assert isinstance(caught.value, ValueError)


def test_a_misspelt_method_says_what_there_is(step: Program) -> None:
    assert issubclass(UnknownNameError, ExpectationError)
    assert not hasattr(assert_lowering(step), "colectives")
    with pytest.raises(AttributeError, match="no table and no assertion colectives; did you mean"):
        assert_lowering(step).colectives("all-gather")
    with pytest.raises(AttributeError, match="did you mean count"):
        assert_lowering(step).table("loops").cuont(1)
    with pytest.raises(AttributeError, match="choose a table first"):
        assert_lowering(step).count(1)


def test_what_states_nothing_is_warned_of_at_its_line(step: Program) -> None:
    for nothing in (
        lambda: assert_lowering(step),
        lambda: assert_lowering(step).collectives("all-gather"),
        lambda: assert_lowering(step).table("loops").where(loop_depth=0),
    ):
        with pytest.warns(LoweringWarning, match="nothing is stated of") as warned:
            nothing()
        assert [Path(one.filename) for one in warned] == [Path(__file__)]


def test_bad_input_is_told_as_load_does(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        assert_lowering(tmp_path / "none.hlo")
    (tmp_path / "empty.hlo").touch()
    with pytest.raises(hlo_lens.InputError, match="the file is empty"):
        assert_lowering(tmp_path / "empty.hlo")
    with pytest.raises(hlo_lens.HloParseError):
        assert_lowering("HloModule x\n nothing")
    with pytest.raises(TypeError, match=r"no program: 3; give a Program"):
        assert_lowering(3)


def test_frames_of_the_package_are_hidden(step: Program) -> None:
    with pytest.raises(LoweringError) as caught:
        reductions(step).count(0)
    shown = [entry for entry in caught.traceback if not entry.ishidden(caught)]
    assert [Path(entry.path) for entry in shown] == [Path(__file__)]
    with pytest.raises(ExpectationError) as mistaken:
        reductions(step).count("many")
    shown = [entry for entry in mistaken.traceback if not entry.ishidden(mistaken)]
    assert [Path(entry.path) for entry in shown] == [Path(__file__)]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda step: reductions(step).count(0), LoweringError),
        (lambda step: reductions(step).sum("wire_bytes_max", 0, per="step"), LoweringError),
        (lambda step: assert_lowering(NO_NAMES).collectives(phase="bwd").count(2), NotJudgedError),
        (lambda step: reductions(step).count("many"), ExpectationError),
        (lambda step: reductions(step).cuont(1), UnknownNameError),
    ],
)
@pytest.mark.parametrize("again", [copy.copy, lambda it: pickle.loads(pickle.dumps(it))])
def test_errors_come_through_to_another_process(
    step: Program,
    wrong: Callable[[Program], object],
    error: type[Exception],
    again: Callable[[Exception], Any],
) -> None:
    with pytest.raises(error) as caught:
        wrong(step)
    caught.value.add_note("of rank 3")
    other = again(caught.value)
    assert type(other) is type(caught.value)
    assert type(other).__module__ == "hlo_lens.testing"
    assert (str(other), other.__notes__) == (str(caught.value), ["of rank 3"])
    if isinstance(other, (LoweringError, NotJudgedError)):
        assert (other.verdicts, other.program) == (caught.value.verdicts, None)
        assert caught.value.program is not None


def test_what_is_stated_of_can_be_copied(step: Program) -> None:
    rows = reductions(step)
    assert copy.deepcopy({"all": rows})["all"].count(3) is rows
    (row, *_) = copy.deepcopy(rows.rows())
    assert row["name"] == copy.deepcopy(row)["name"] == "r1"
    assert copy.copy(rows).count(3).loops().count(1)


def test_numbers_are_also_those_of_numpy(step: Program) -> None:
    numpy = pytest.importorskip("numpy")
    rows = reductions(step)
    rows.count(numpy.int64(3)).where(group_size=numpy.int32(2)).count(numpy.uint8(3))
    rows.sum("wire_bytes", numpy.float32(96)).max("wire_bytes", numpy.int64(32))
    with pytest.raises(LoweringError, match="count == 2; found: 3"):
        rows.count(numpy.int64(2))
    for value in (numpy.True_, numpy.ones(2), numpy.float64("nan"), numpy.float64(2.5)):
        with pytest.raises(ExpectationError):
            rows.count(value)


# --- the database -----------------------------------------------------------------------------


def test_statements_of_one_ask_one_database(step: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Database] = []
    begin = Database.__init__

    def counted(self: Database, *args: Any) -> None:
        opened.append(self)
        begin(self, *args)

    monkeypatch.setattr(Database, "__init__", counted)
    rows = assert_lowering(step).collectives().count(3).where("group_size = 2").none("dtype = 's8'")
    rows.loops().count(1)
    assert len(opened) == 1
    with pytest.raises(ExpectationError):
        rows.every("phas = 1")
    rows.count(3)  # a mistake leaves the others
    del rows
    gc.collect()
    for one in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            one.ask("SELECT 1")


def test_a_database_is_asked_from_any_thread(step: Program) -> None:
    rows = reductions(step).count(3)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(rows.sum, "wire_bytes", 96) for _ in range(20)]:
            assert done.result() is rows


def test_what_is_closed_is_opened_when_it_is_asked(step: Program) -> None:
    asked = Asked(step.facts)
    asked.close()
    for _ in range(2):
        with asked.database() as database:
            assert database.ask("SELECT count(*) FROM loops").rows == [(1,)]
        asked.close()


# --- the other kinds of expectations ----------------------------------------------------------


def test_a_warning_of_a_file_warns(step: Program, tmp_path: Path) -> None:
    gate = tmp_path / "gate.toml"
    gate.write_text("[[expect]]\ntable = 'loops'\ncount = 2\nseverity = 'warning'\n")
    with pytest.warns(LoweringWarning, match=r"loops: count == 2; found: 1") as warned:
        assert_lowering(step).expect(gate)
    assert Path(warned[0].filename) == Path(__file__)


def test_a_bad_file_is_told_by_its_line(step: Program, tmp_path: Path) -> None:
    gate = tmp_path / "gate.toml"
    gate.write_text("[[expect]]\ntable = 'loops'\ncount = 'many'\n")
    with pytest.raises(ExpectationError, match=r"gate\.toml:3: 'many' is no comparison"):
        assert_lowering(step).expect(gate)
    with pytest.raises(FileNotFoundError):
        assert_lowering(step).expect(tmp_path / "none.toml")


def test_a_preset(step: Program) -> None:
    demo = assert_lowering(FIXTURES / "demo/fsdp_train_step.opt.hlo")
    demo.preset("no-f32-matmul").preset("family-absent", family="mosaic_tpu")
    with pytest.raises(LoweringError, match="because: the kernels are ours"):
        demo.preset("family-absent", family="cudnn", because="the kernels are ours")


def test_nothing_but_what_is_allowed_has_changed(step: Program) -> None:
    other = LOOP.replace("  r2 = f32[8] all-reduce(r1)", "  r2 = f32[8] all-reduce(x)")
    assert other != LOOP
    assert_lowering(step).unchanged_from(LOOP)
    with pytest.raises(LoweringError, match="instructions"):
        assert_lowering(other).unchanged_from(step)
    allowed = ["instructions", "collectives", "collective_waste:removed", "findings:removed"]
    assert_lowering(other).unchanged_from(step, allow=allowed)


def test_the_lines_of_a_filecheck_file(step: Program, tmp_path: Path) -> None:
    pytest.importorskip("filecheck")
    (tmp_path / "good").write_text("CHECK: all-reduce\nCHECK-NOT: all-gather\n")
    (tmp_path / "bad").write_text("CHECK: all-gather\n")
    lowering = assert_lowering(step).filecheck(tmp_path / "good")
    with pytest.raises(LoweringError) as caught:
        lowering.filecheck(tmp_path / "bad")
    (verdict,) = caught.value.verdicts
    assert verdict == file_checked(step.facts, str(tmp_path / "bad"))


# --- what is taken -----------------------------------------------------------------------------


def test_a_program_is_taken_in_each_form(step: Program, tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(LOOP)
    for form in (step, LOOP, file, str(file)):
        lowering = assert_lowering(form).loops().count(1)
        assert isinstance(lowering, Lowering)
    assert_lowering(FIXTURES / "hlo/remat/full/cpu").matmuls().any()


@pytest.mark.jax
def test_what_jax_holds_is_taken() -> None:
    import jax
    import jax.numpy as jnp

    lowered = jax.jit(lambda x: x @ x).lower(jnp.ones((64, 64)))
    assert_lowering(lowered).matmuls().count(1)
    assert_lowering(lowered.compile()).matmuls().count(1)
    with pytest.raises(LoweringError):
        assert_lowering(lowered.compile()).matmuls().count(2)


def test_it_is_found_under_the_package() -> None:
    assert hlo_lens.testing.assert_lowering is assert_lowering
    assert as_lines  # of the terminal: what a failure says is made there
