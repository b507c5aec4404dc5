"""`hlolens check --report`: which files are written, when, and that the answer stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.check.reports.samples import GATE, MODEL, STEP
from tests.conftest import Ran

Cli = Callable[..., Ran]
KINDS = ("sarif", "junit", "json", "markdown")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name, text in (("model.py", MODEL), ("step.hlo", STEP), ("gate.toml", GATE)):
        (tmp_path / name).write_text(text)
    return tmp_path


def reports(*kinds: str) -> list[str]:
    return [f"--report={kind}=out.{kind}" for kind in kinds]


def test_each_kind_is_written_and_the_page_stays(cli: Cli, folder: Path) -> None:
    plain = cli("check", "step.hlo", "--expect", "gate.toml")
    ran = cli("check", "step.hlo", "--expect", "gate.toml", *reports(*KINDS))
    assert ran == plain
    assert plain.code == 2
    assert json.loads((folder / "out.json").read_text())["exit_code"] == 2
    sarif = json.loads((folder / "out.sarif").read_text())
    assert sarif["runs"][0]["invocations"][0]["exitCode"] == 2
    assert JUnitXml.fromfile(str(folder / "out.junit")).errors == 1
    assert (folder / "out.markdown").read_text().startswith("## ❌ hlolens check: failed, and not")


@pytest.mark.parametrize(
    ("given", "code"),
    [("count = 2", 0), ("count = 3", 1), ("every = 'channel_id = 1'", 2)],
)
def test_the_exit_code_is_that_of_the_report(cli: Cli, folder: Path, given: str, code: int) -> None:
    (folder / "gate.toml").write_text(f"[[expect]]\ntable = 'collectives'\n{given}\n")
    ran = cli("check", "step.hlo", "--expect", "gate.toml", *reports("json"))
    assert ran.code == code
    assert json.loads((folder / "out.json").read_text())["exit_code"] == code


def test_one_on_standard_output_moves_the_page_to_standard_error(cli: Cli) -> None:
    ran = cli("check", "step.hlo", "--expect", "gate.toml", "--report", "json=-")
    assert json.loads(ran.out)["exit_code"] == ran.code == 2
    assert "✗ none-in-backward" in ran.err


def test_a_program_that_cannot_be_read_stands_in_them(cli: Cli, folder: Path) -> None:
    ran = cli("check", "none.hlo", "step.hlo", "--expect", "gate.toml", *reports(*KINDS))
    assert ran.code == 2
    for kind in KINDS:
        assert "none.hlo: no such file or folder" in (folder / f"out.{kind}").read_text()


@pytest.mark.parametrize(
    "options",
    [
        ("none.hlo",),
        ("step.hlo", "--expect", "none.toml"),
        ("step.hlo", "--preset", "no-such-preset"),
        ("step.hlo", "--against", "none.hlo"),
        ("step.hlo", "--against", "step.hlo", "--allow-change", "nothing"),
    ],
    ids=" ".join,
)
def test_they_are_written_where_nothing_could_be_judged(
    cli: Cli, folder: Path, options: tuple[str, ...]
) -> None:
    ran = cli("check", *options, *reports(*KINDS))
    assert (ran.code, ran.out) == (2, "")
    (problem,) = json.loads((folder / "out.json").read_text())["problems"]
    assert problem in ran.err
    assert JUnitXml.fromfile(str(folder / "out.junit")).errors == 1
    assert (folder / "out.markdown").read_text().startswith("## ❔ hlolens check: nothing could")


def test_a_mistake_in_the_sql_of_an_expectation_stands_in_them(cli: Cli, folder: Path) -> None:
    (folder / "gate.toml").write_text("[[expect]]\ntable = 'collectives'\nevery = 'phas = 1'\n")
    assert cli("check", "step.hlo", "--expect", "gate.toml", *reports("markdown")).code == 2
    assert "no column phas, did you mean phase?" in (folder / "out.markdown").read_text()


def test_findings_stand_in_them(cli: Cli, folder: Path) -> None:
    padded = Path(__file__).parents[2] / "fixtures/hlo/moe/ragged-layer/rocm-gfx950"
    assert cli("check", padded, "--fail-on", "warning", *reports("junit", "sarif")).code == 1
    (suite,) = JUnitXml.fromfile(str(folder / "out.junit"))
    assert [case.name for case in suite if case.is_failure] == ["ragged-dense-padded"]
    (run,) = json.loads((folder / "out.sarif").read_text())["runs"]
    assert "ragged-dense-padded" in [one["ruleId"] for one in run["results"]]


def test_a_file_that_cannot_be_written_is_told(cli: Cli) -> None:
    ran = cli("check", "step.hlo", "--expect", "gate.toml", "--report", "json=none/out.json")
    assert ran.code == 2
    assert "none/out.json: no such file or folder" in ran.err


@pytest.mark.parametrize("given", ["xml=a", "json", "json=", "=a"])
def test_another_kind_is_usage(cli: Cli, given: str) -> None:
    ran = cli("check", "step.hlo", "--report", given)
    assert ran.code == 2
    assert "is not KIND=FILE with KIND of sarif, junit, json, markdown" in ran.err


def test_a_workflow_of_github_gets_annotations(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ran = cli("check", "step.hlo", "--expect", "gate.toml")
    found = [one for one in ran.out.splitlines() if one.startswith(("::error", "::warning"))]
    assert [one.partition(",title=")[0] for one in found] == [
        "::error file=model.py,line=2",
        "::error file=model.py,line=2",
        "::warning file=model.py,line=2",
    ]
    ran = cli("check", "step.hlo", "--expect", "gate.toml", "--report", "json=-")
    assert json.loads(ran.out)["exit_code"] == 2
    assert "\n::error file=model.py" in ran.err


def test_the_summary_of_a_step_is_appended_to(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for _ in range(2):
        cli("check", "step.hlo", "--expect", "gate.toml", "--report", f"markdown={summary}")
    assert summary.read_text().count("## ❌ hlolens check") == 2


@pytest.mark.parametrize("first", [True, False])
def test_a_report_that_cannot_be_written_leaves_the_others(
    cli: Cli, tmp_path: Path, first: bool
) -> None:
    bad = ("--report", f"sarif={tmp_path / 'none' / 'x.sarif'}")
    good = ("--report", f"json={tmp_path / 'x.json'}")
    ran = cli("check", "step.hlo", "--expect", "gate.toml", *bad, *good)
    assert (ran.code, (tmp_path / "x.json").exists()) == (2, True)
    assert "x.sarif" in ran.err


def test_a_report_takes_the_place_of_nothing_else(cli: Cli) -> None:
    twice = ("--report", "json=x", "--report", "sarif=x")
    assert "x can hold one report" in cli("check", "step.hlo", *twice).err
    assert "x can hold one report" in cli("check", "step.hlo", *twice[:3], "sarif=./x").err
    Path("a.check").write_text("CHECK: ENTRY")
    options = ("--expect", "gate.toml", "--filecheck", "a.check:CHECK")
    for file in ("step.hlo", "gate.toml", "a.check"):
        ran = cli("check", "step.hlo", *options, "--report", f"json=./{file}")
        assert (ran.code, f"--report would overwrite {file}" in ran.err) == (2, True)


def test_a_report_takes_the_place_of_no_file_of_a_dump(cli: Cli, tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    dump.mkdir()
    text = Path("step.hlo").read_text()
    (dump / "module_0001.step.after_optimizations.txt").write_text(text)
    report = dump / "module_0001.step.after_optimizations.txt"
    ran = cli("check", dump, "--expect", "gate.toml", "--report", f"json={report}")
    assert (ran.code, "--report would overwrite" in ran.err) == (2, True)
    assert report.read_text() == text


def test_standard_output_has_one_report_and_nothing_else(folder: Path) -> None:
    command = [sys.executable, "-m", "hlo_lens", "check", "step.hlo", "--expect", "gate.toml"]
    ran = subprocess.run(
        [*command, "--report", "json=/dev/stdout"], capture_output=True, text=True, check=False
    )
    assert json.loads(ran.stdout)["exit_code"] == ran.returncode == 2
    assert "✗ none-in-backward" in ran.stderr


def test_a_report_to_a_closed_standard_output_is_not_written(folder: Path) -> None:
    gate = "[[expect]]\ntable = 'collectives'\ncount = 2\n"
    (folder / "gate.toml").write_text(gate)
    command = f"{sys.executable} -m hlo_lens check step.hlo --expect gate.toml"
    assert subprocess.run(f"{command} >&-", shell=True, check=False).returncode == 0
    ran = subprocess.run(
        f"{command} --report json=- >&-", shell=True, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "standard output is closed: the report has nowhere to go" in ran.stderr
