"""`hlolens tree`: options, formats, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.inspect.test_report import NAMELESS, STEP

Cli = Callable[..., Ran]


@pytest.fixture
def step(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    return path


def test_the_skeleton(cli: Cli, step: Path) -> None:
    ran = cli("tree", step)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("jit_step  after_optimizations\n\n")
    assert "\n├ while ×4 " in ran.out
    assert "\n│ ├ all-gather  sync  f32[256,256]  exposed " in ran.out
    assert "\nper step  rows of the text × executions\n" in ran.out


def test_one_lane(cli: Cli, step: Path) -> None:
    assert "all-gather" not in cli("tree", step, "--only", "compute").out
    assert " dot " not in cli("tree", step, "--only", "communication").out
    assert cli("tree", step, "--only", "memory").code == 2


def test_depth_source_and_groups(cli: Cli, step: Path) -> None:
    assert "all-gather  sync" not in cli("tree", step, "--depth", "1").out
    assert "model.py:7" in cli("tree", step, "--source").out
    assert "groups 1×2" in cli("tree", step, "--groups").out
    assert cli("tree", step, "--depth", "-1").code == 2


def test_json(cli: Cli, step: Path) -> None:
    ran = cli("tree", step, "--format", "json")
    data = json.loads(ran.out)
    assert (ran.code, data["schema_version"]) == (0, 1)
    assert [one["name"] for one in data["roots"][0]["children"]] == ["while.f", "while.b"]


def test_into_a_file(cli: Cli, step: Path, tmp_path: Path) -> None:
    assert cli("tree", step, "-o", tmp_path / "tree.txt").out == ""
    assert (tmp_path / "tree.txt").read_text().startswith("jit_step")


def test_a_bad_file(cli: Cli, tmp_path: Path) -> None:
    ran = cli("tree", tmp_path / "missing.hlo")
    assert (ran.code, ran.out) == (2, "")
    assert "no such file" in ran.err


def test_of_a_dump_folder_the_stage_that_runs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "module_0001.jit_step.before_optimizations.txt").write_text(NAMELESS)
    (tmp_path / "module_0001.jit_step.gpu_after_optimizations.txt").write_text(STEP)
    assert cli("tree", tmp_path).out.startswith("jit_step  after_optimizations")
    before = cli("tree", tmp_path, "--stage", "before_optimizations").out
    assert before.startswith("m  before_optimizations\nnot scheduled")
