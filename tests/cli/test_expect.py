"""`hlolens expect`: a file that `hlolens check` takes, and what cannot be made one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.test_judging import LOOP
from tests.conftest import Ran

Cli = Callable[..., Ran]

DEMO = Path(__file__).resolve().parents[2] / "fixtures/demo/fsdp_train_step.opt.hlo"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(LOOP)
    return path


def test_the_file_holds_for_its_program_and_not_for_another(
    cli: Cli, text: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate.toml"
    ran = cli("expect", text, "-o", gate)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert cli("check", text, "--expect", gate).code == 0
    other = tmp_path / "other.hlo"
    other.write_text(LOOP.replace("constant(4)", "constant(5)"))
    ran = cli("check", other, "--expect", gate)
    assert (ran.code, "✗ loops-every" in ran.out) == (1, True)
    assert "found: 288 B" not in ran.out


def test_without_a_file_it_is_printed(cli: Cli) -> None:
    ran = cli("expect", DEMO, "--table", "loops")
    assert ran.code == 0
    assert ran.out.startswith("# What jit_train_step is, after_optimizations. `hlolens check")
    assert 'every = "trip_count = 4 AND loop_depth = 0"' in ran.out
    assert "collectives" not in ran.out


def test_tables_are_chosen(cli: Cli, text: Path) -> None:
    ran = cli("expect", text, "--table", "loops", "--table", "attention")
    titles = [line.partition(":")[0] for line in ran.out.splitlines() if line[:5] == "# ---"]
    assert titles == ["# --- loops", "# --- attention"]


def test_a_table_that_is_not_there_is_2(cli: Cli, text: Path) -> None:
    ran = cli("expect", text, "--table", "loop")
    assert (ran.code, ran.out) == (2, "")
    assert "no table loop; did you mean loops?" in ran.err


def test_a_cut_off_text_is_2_and_leaves_the_file_as_it_is(
    cli: Cli, text: Path, tmp_path: Path
) -> None:
    text.write_text(LOOP[: LOOP.rindex("ROOT last")])
    gate = tmp_path / "gate.toml"
    gate.write_text("mine")
    ran = cli("expect", text, "-o", gate)
    assert (ran.code, gate.read_text()) == (2, "mine")
    assert "the text is cut off" in ran.err
