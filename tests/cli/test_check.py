"""`hlolens check`: each exit code, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.test_judging import LOOP
from tests.conftest import Ran

Cli = Callable[..., Ran]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(LOOP)
    return path


def gate(folder: Path, content: str) -> Path:
    path = folder / "gate.toml"
    path.write_text(f"[[expect]]\ntable = 'collectives'\n{content}\n")
    return path


def test_what_is_as_expected_is_0(cli: Cli, text: Path, tmp_path: Path) -> None:
    ran = cli("check", text, "--expect", gate(tmp_path, "count = 3"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1:] == ["  ✓ collectives-count", "1 passed"]


def test_what_is_not_is_1_with_the_rows_and_a_command(cli: Cli, text: Path, tmp_path: Path) -> None:
    ran = cli("check", text, "--expect", gate(tmp_path, "every = \"phase = 'bwd'\""))
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[1:4] == [
        "  ✗ collectives-every",
        "      expected: collectives: every phase = 'bwd'",
        "      found: 1 of 3 rows breaks it",
    ]
    assert lines[4].split() == ["last", "line", "33", "phase", "=", "fwd"]
    assert lines[5].startswith(f"      hlolens query {text} ")
    assert lines[-1] == "1 failed"


def test_a_warning_fails_only_where_warnings_do(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = gate(tmp_path, "count = 4\nseverity = 'warning'")
    ran = cli("check", text, "--expect", file)
    assert ran.code == 0
    assert "✗ collectives-count  (warning)" in ran.out
    assert cli("check", text, "--expect", file, "--fail-on", "warning").code == 1


def test_what_cannot_be_judged_is_2_and_says_why(cli: Cli, text: Path, tmp_path: Path) -> None:
    ran = cli("check", text, "--expect", gate(tmp_path, "every = 'channel_id = 1'"))
    assert ran.code == 2
    assert "not judged: of 3 rows it is not known: the condition is NULL" in ran.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("count = '< 3 GiB'", "gate.toml:3: a count has no unit 'GiB'"),
        ("every = 'phas = 1'", "gate.toml:3: no column phas, did you mean phase?"),
    ],
)
def test_a_bad_file_is_2_and_told_by_its_line(
    cli: Cli, text: Path, tmp_path: Path, content: str, said: str
) -> None:
    ran = cli("check", text, "--expect", gate(tmp_path, content))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_program_that_cannot_be_read_is_2(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = gate(tmp_path, "count = 3")
    ran = cli("check", tmp_path / "none.hlo", text, "--expect", file)
    assert ran.code == 2
    assert "1 passed" in ran.out  # the other one is judged
    assert cli("check", text, "--expect", tmp_path / "none.toml").code == 2


def test_without_expectations_the_findings_count(cli: Cli, tmp_path: Path) -> None:
    padded = Path(__file__).parents[2] / "fixtures/hlo/moe/ragged-layer/rocm-gfx950"
    assert cli("check", padded).code == 0
    ran = cli("check", padded, "--fail-on", "warning")
    assert (ran.code, "warning ragged-dense-padded" in ran.out) == (1, True)
    assert cli("check", padded, "--fail-on", "warning", "--ignore", "ragged-*").code == 0
    assert cli("check", padded, "--fail-on", "warning", "--select", "moe-*").code == 0


def test_a_preset_is_judged_by_its_name(cli: Cli, text: Path) -> None:
    ran = cli("check", text, "--preset", "no-such-preset")
    assert (ran.code, "no preset 'no-such-preset'" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--select", "colective-*"), "no rule 'colective-*'"),
        (("--ignore", "moe-balanse"), "no rule 'moe-balanse'"),
        (("--ignore", "*"), "--select and --ignore leave no rule: nothing would be checked"),
    ],
    ids=str,
)
def test_rules_that_are_not_there_do_not_pass(
    cli: Cli, text: Path, options: tuple[str, ...], said: str
) -> None:
    ran = cli("check", text, *options)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("option", ["against", "module", "stage"])
def test_what_is_chosen_twice_is_a_mistake(cli: Cli, text: Path, option: str) -> None:
    """Of two, one would be left out in silence."""
    ran = cli("check", text, f"--{option}", text, f"--{option}", text)
    assert ran.code == 2
    assert f"--{option} is given 2 times: give one" in ran.err


def test_rules_that_are_named_one_by_one_add_up(cli: Cli) -> None:
    demo = Path(__file__).parents[2] / "fixtures/demo/fsdp_train_step.opt.hlo"
    run = "kernel-run-again"
    for first, second in ((run, "no-metadata"), ("no-metadata", run)):
        rules = ("--fail-on", "note", "--select", first, "--select", second)
        assert cli("check", demo, *rules).code == 1
        rules = ("--fail-on", "note", "--ignore", first, "--ignore", second)
        assert cli("check", demo, *rules).code == 0


def test_rules_cannot_be_judged_on_a_text_that_is_cut_off(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cut.hlo"
    path.write_text(LOOP[: LOOP.rindex("ROOT last")])
    ran = cli("check", path)
    assert ran.code == 2
    assert "? step: the text is cut off: what stands behind the cut is not known" in ran.out


def test_names_give_no_commands_to_a_workflow(
    cli: Cli, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    first, *page = cli("check", text).out.splitlines()
    assert first.startswith("::stop-commands::")
    assert f"::{first.removeprefix('::stop-commands::')}::" in page


def test_a_mistake_in_one_expectation_leaves_the_others(
    cli: Cli, text: Path, tmp_path: Path
) -> None:
    file = gate(tmp_path, "count = 4\n[[expect]]\ntable = 'loops'\nevery = 'trips = 4'")
    ran = cli("check", text, text, "--expect", file, "--filecheck", tmp_path / "none.check")
    assert ran.code == 2
    assert ran.out.count("✗ collectives-count") == 2
    assert ran.err.count("gate.toml:6: no column trips") == 1
    assert ran.err.count("none.check: no such file") == 1


def test_findings_are_rows_too(cli: Cli, tmp_path: Path) -> None:
    padded = Path(__file__).parents[2] / "fixtures/hlo/moe/ragged-layer/rocm-gfx950"
    file = tmp_path / "gate.toml"
    file.write_text("[[expect]]\ntable = 'findings'\nnone = \"rule = 'ragged-dense-padded'\"\n")
    assert cli("check", padded, "--expect", file).code == 1
    file.write_text("[[expect]]\ntable = 'findings'\nany = \"rule = 'ragged-dense-padded'\"\n")
    assert cli("check", padded, "--expect", file).code == 0


def test_a_closed_pipe_changes_no_answer_and_loses_no_report(text: Path, tmp_path: Path) -> None:
    file, report = gate(tmp_path, "count = 4"), tmp_path / "report.json"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hlo_lens", "check", text, "--expect", file]
    command += ["--report", f"json={report}"]
    ran = subprocess.run([str(one) for one in command], stdout=write, check=False)
    os.close(write)
    assert (ran.returncode, json.loads(report.read_text())["exit_code"]) == (1, 1)


def test_a_warning_that_cannot_be_judged_is_one(cli: Cli, text: Path, tmp_path: Path) -> None:
    file = gate(tmp_path, "every = 'channel_id = 1'\nseverity = 'warning'")
    assert cli("check", text, "--expect", file).code == 0
    assert cli("check", text, "--expect", file, "--fail-on", "warning").code == 2


def test_rules_that_need_op_names_are_not_judged_without(cli: Cli, tmp_path: Path) -> None:
    bare = tmp_path / "bare.hlo"
    bare.write_text("\n".join(line.partition(", metadata")[0] for line in LOOP.splitlines()))
    ran = cli("check", bare, "--select", "norm-recomputed")
    assert ran.code == 2
    assert "which these rules need: norm-recomputed" in ran.out
    assert cli("check", bare, "--select", "trip-count-mismatch").code == 0


def test_an_output_without_the_signs_has_others(text: Path, tmp_path: Path) -> None:
    file = gate(tmp_path, "count = 4\n[[expect]]\ntable = 'loops'\ncount = 1")
    command = [sys.executable, "-m", "hlo_lens", "check", text, "--expect", file]
    ran = subprocess.run(
        [str(one) for one in command],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "  x collectives-count\n" in ran.stdout
    assert "  + loops-count\n" in ran.stdout
