"""What `examples/gate/` says of workflows is executed: a GitHub workflow, pre-commit, a script and
pytest, each with a program that is as expected, one that is not, and one that cannot be judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
GATE = ROOT / "examples" / "gate"
GOOD = ROOT / "fixtures" / "demo" / "fsdp_train_step.opt.hlo"
FAILS = "two gathers and two scatters of each of the four layers"

# What each action is given, and may be.
ACTIONS = {
    "actions/checkout": set(),
    "actions/setup-python": {"python-version"},
    "actions/upload-artifact": {"name", "path"},
    "github/codeql-action/upload-sarif": {"sarif_file", "category"},
}

needs_hlolens = pytest.mark.skipif(
    not (Path(sys.executable).parent / "hlolens").exists() or os.name == "nt",
    reason="hlolens is not installed beside this Python",
)
pytestmark = needs_hlolens


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that has the files of `examples/gate` where they say that they belong."""
    folder = tmp_path / "repository"
    (folder / "gate").mkdir(parents=True)
    (folder / "hlo").mkdir()
    shutil.copy(GOOD, folder / "hlo" / "train_step.hlo")
    shutil.copy(GATE / "maxtext_identity.toml", folder / "gate" / "train_step.toml")
    shutil.copy(GATE / "axlearn_dots_saved.toml", folder / "gate" / "dots_saved.toml")
    for name in ("gate.sh", ".pre-commit-config.yaml", "test_lowering.py"):
        shutil.copy(GATE / name, folder / name)
    return folder


def broken(repository: Path) -> None:
    """The weights are gathered for five layers: no program for this gate."""
    step = repository / "hlo" / "train_step.hlo"
    text = step.read_text()
    assert text.count('"n":"4"') == 2
    step.write_text(text.replace('"n":"4"', '"n":"5"'))


def cut_off(repository: Path) -> None:
    step = repository / "hlo" / "train_step.hlo"
    text = step.read_text()
    step.write_text(text[: len(text) // 2])


def environment(**more: str) -> dict[str, str]:
    """This process's, without what a surrounding workflow or test run says."""
    foreign = ("GITHUB_", "PYTEST_", "GIT_", "PRE_COMMIT")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return kept | {"PATH": path, "NO_COLOR": "1"} | more


def run(
    command: list[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


# --- a GitHub workflow -------------------------------------------------------------------------


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((GATE / "github-workflow.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read", "security-events": "write"}
    found: list[dict[str, Any]] = job["steps"]
    return found


def workflow(repository: Path) -> tuple[list[int], str]:
    """The exit code of each `run:` step, as a runner has bash run them, and what they print."""
    summary = repository.parent / "summary.md"
    told = environment(
        CI="true",
        GITHUB_ACTIONS="true",
        GITHUB_WORKSPACE=str(repository),
        GITHUB_STEP_SUMMARY=str(summary),
        PIP_NO_INDEX="1",  # hlo-lens is installed here; from an index there
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    codes, printed = [], ""
    for step in steps():
        if "run" not in step:
            continue
        script = repository.parent / "step.sh"
        script.write_text(step["run"])
        ran = run(["bash", "--noprofile", "--norc", "-e", str(script)], repository, told)
        codes.append(ran.returncode)
        printed += ran.stdout + ran.stderr
    return codes, printed


def reports(repository: Path) -> tuple[Any, ElementTree.Element, str]:
    sarif = json.loads((repository / "gate.sarif").read_text())
    junit = ElementTree.parse(repository / "gate.xml").getroot()
    return sarif, junit, (repository.parent / "summary.md").read_text()


def test_the_workflow_uses_actions_as_they_are_used() -> None:
    used = [step for step in steps() if "uses" in step]
    for step in used:
        action, mark, version = step["uses"].partition("@")
        assert mark == "@"
        assert version.startswith("v")
        assert set(step.get("with", {})) <= ACTIONS[action]
    assert used[0]["uses"].startswith("actions/checkout@")
    (upload,) = (step for step in used if "upload-sarif" in step["uses"])
    assert "!cancelled()" in upload["if"]  # also where the gate says no
    assert upload["with"]["sarif_file"] == "gate.sarif"


needs_bash_and_pip = pytest.mark.skipif(
    shutil.which("bash") is None or find_spec("pip") is None, reason="bash or pip is missing"
)


@needs_bash_and_pip
def test_the_workflow_passes_and_reports(repository: Path) -> None:
    codes, printed = workflow(repository)
    assert codes == [0, 0], printed
    sarif, junit, summary = reports(repository)
    assert sarif["version"] == "2.1.0"
    assert junit.find(".//testcase") is not None
    assert junit.find(".//failure") is None
    assert "8 passed" in summary
    assert "::error" not in printed


@needs_bash_and_pip
def test_the_workflow_fails_and_reports(repository: Path) -> None:
    broken(repository)
    codes, printed = workflow(repository)
    assert codes == [0, 1], printed
    sarif, junit, summary = reports(repository)
    assert any(each.get("level") == "error" for each in sarif["runs"][0]["results"])
    assert junit.find(".//failure") is not None
    assert FAILS in summary
    assert "::error" in printed


@needs_bash_and_pip
def test_the_workflow_tells_what_it_could_not_judge(repository: Path) -> None:
    cut_off(repository)
    codes, printed = workflow(repository)
    assert codes == [0, 2], printed
    _, junit, summary = reports(repository)
    assert junit.find(".//failure") is None
    assert junit.find(".//error") is not None
    assert "cut off" in summary


# --- pre-commit --------------------------------------------------------------------------------

needs_pre_commit = pytest.mark.skipif(
    find_spec("pre_commit") is None or shutil.which("git") is None,
    reason="pre-commit or git is not installed",
)


def committed(repository: Path) -> subprocess.CompletedProcess[str]:
    """What pre-commit says of the files that are to be committed."""
    home = repository.parent / "home"
    home.mkdir(exist_ok=True)
    told = environment(HOME=str(home), PRE_COMMIT_HOME=str(home / "cache"))
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        assert run(command, repository, told).returncode == 0
    return run([sys.executable, "-m", "pre_commit", "run"], repository, told)


@needs_pre_commit
def test_pre_commit_lets_a_good_program_pass(repository: Path) -> None:
    ran = committed(repository)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lowering is as expected" in ran.stdout
    assert "Passed" in ran.stdout


@needs_pre_commit
@pytest.mark.parametrize(("harm", "code"), [(broken, 1), (cut_off, 2)])
def test_pre_commit_holds_another_back(repository: Path, harm: Any, code: int) -> None:
    harm(repository)
    ran = committed(repository)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"exit code: {code}" in ran.stdout
    assert FAILS in ran.stdout


@needs_pre_commit
def test_pre_commit_runs_where_the_gate_or_the_program_changes(repository: Path) -> None:
    for name in ("hlo", "gate"):
        shutil.rmtree(repository / name)
    ran = committed(repository)
    assert "(no files to check)Skipped" in ran.stdout


@needs_pre_commit
def test_what_pre_commit_finds_in_this_repository_is_a_manifest(tmp_path: Path) -> None:
    manifest = ROOT / ".pre-commit-hooks.yaml"
    ran = run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", str(manifest)],
        tmp_path,
        environment(HOME=str(tmp_path), PRE_COMMIT_HOME=str(tmp_path / "cache")),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (hook,) = yaml.safe_load(manifest.read_text())
    assert hook["entry"] == "hlolens check"


# --- a shell -----------------------------------------------------------------------------------


def gate(repository: Path, program: str, **more: str) -> tuple[int, str]:
    script = [shutil.which("sh") or "sh", "gate.sh", program, "--expect", "gate/train_step.toml"]
    ran = run(script, repository, environment(**more))
    return ran.returncode, ran.stdout + ran.stderr


def test_the_script_tells_no_from_could_not(repository: Path) -> None:
    step = "hlo/train_step.hlo"
    code, printed = gate(repository, step)
    assert (code, printed.splitlines()[-1]) == (0, "gate: as expected")
    code, printed = gate(repository, "hlo/no_such.hlo")
    assert (code, printed.splitlines()[-1]) == (2, "gate: could not be judged (hlolens said 2)")
    broken(repository)
    code, printed = gate(repository, step)
    assert code == 1
    assert "gate: NOT as expected" in printed
    cut_off(repository)
    code, printed = gate(repository, step)
    assert (code, "gate: could not be judged" in printed) == (2, True)


def test_the_script_does_not_pass_without_hlolens(repository: Path, tmp_path: Path) -> None:
    code, printed = gate(repository, "hlo/train_step.hlo", PATH=str(tmp_path))
    assert (code, printed) == (2, "gate: hlolens is not installed: pip install hlo-lens\n")


# --- pytest ------------------------------------------------------------------------------------


def pytest_in(repository: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *options]
    return subprocess.run(
        [*command, "--rootdir", str(repository), "-c", os.devnull, "test_lowering.py"],
        cwd=repository, env=environment(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_pytest_judges_the_program_that_lies_there(repository: Path) -> None:
    ran = pytest_in(repository, "-k", "step or backward")
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout
    broken(repository)
    ran = pytest_in(repository, "-k", "step or backward")
    assert ran.returncode == 1
    assert FAILS in ran.stdout
    assert "1 failed, 1 passed" in ran.stdout


@pytest.mark.jax
def test_pytest_compiles_for_targets_that_are_not_here(repository: Path) -> None:
    """Those whose packages are not installed are skipped, and say what to install."""
    if find_spec("jax") is None:
        pytest.skip("jax is not installed")
    ran = pytest_in(repository, "-k", "policy", "--hlolens-target", "cpu")
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
