"""`hlolens ls`: the modules and stages of a dump folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

Cli = Callable[..., Ran]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    for number, stage, size in (
        (1, "before_optimizations", 2048),
        (1, "0001.simplify.after_dce.before_cse", 1024),
        (1, "0002.simplify.after_cse.before_dce", 1024),
        (1, "sm_9.0_gpu_after_optimizations", 10),
        (1, "sm_9.0_gpu_after_optimizations-buffer-assignment", 300),
        (2, "before_optimizations", 100),
    ):
        (tmp_path / f"module_000{number}.jit_f.{stage}.txt").write_text("x" * size)
    return tmp_path


def rows(ran: Ran) -> list[list[str]]:
    return [line.split() for line in ran.out.splitlines()[1:]]


def test_modules_with_their_stages_and_sizes(cli: Cli, dump: Path) -> None:
    ran = cli("ls", dump)
    assert ran.code == 0
    assert rows(ran) == [
        ["module_0001.jit_f", "before_optimizations", "2.0", "KiB",
         "module_0001.jit_f.before_optimizations.txt"],
        ["after_optimizations", "10", "B", "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"],
        ["2", "passes", "2.0", "KiB", "--all", "lists", "them"],
        ["(buffer-assignment)", "300", "B",
         "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt"],
        ["module_0002.jit_f", "before_optimizations", "100", "B",
         "module_0002.jit_f.before_optimizations.txt"],
    ]  # fmt: skip


def test_a_listing_is_not_folded_and_lines_end_with_their_text(
    cli: Cli, dump: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    long = dump / f"{'deep_' * 40}" / "after_optimizations.txt"
    long.parent.mkdir()
    long.write_text("x")
    for arguments in (("ls", dump), ("schema", "loops"), ("rules",), ("targets",)):
        lines = cli(*arguments).out.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []
    assert str(long.relative_to(dump)) in cli("ls", dump).out


def test_all_lists_every_pass(cli: Cli, dump: Path) -> None:
    assert "0002.simplify.after_cse.before_dce" in cli("ls", dump, "--all").out


def test_choosing(cli: Cli, dump: Path) -> None:
    assert [row[0] for row in rows(cli("ls", dump, "--module", "2"))] == ["module_0002.jit_f"]
    assert [row[1] for row in rows(cli("ls", dump, "--stage", "opt"))] == [
        "after_optimizations",
        "300",
    ]
    assert "0001.simplify" in cli("ls", dump, "--stage", "0001").out


def test_what_is_not_there_is_a_no(cli: Cli, dump: Path) -> None:
    ran = cli("ls", dump, "--module", "nope", "--stage", "opt")
    assert (ran.code, ran.out) == (1, "")
    assert "no module 'nope' with stage 'opt' here" in ran.err


def test_json(cli: Cli, dump: Path) -> None:
    found = json.loads(cli("ls", dump, "--format", "json").out)
    assert [module["module"] for module in found] == ["module_0001.jit_f", "module_0002.jit_f"]
    assert [stage["stage"] for stage in found[0]["stages"]] == [
        "before_optimizations",
        "0001.simplify.after_dce.before_cse",
        "0002.simplify.after_cse.before_dce",
        "after_optimizations",
    ]
    assert found[0]["stages"][3]["platform"] == "sm_9.0_gpu"
    assert found[0]["stages"][3]["bytes"] == 10
    assert list(found[0]["side_files"]) == ["buffer-assignment"]


def test_a_file_is_no_folder(cli: Cli, dump: Path) -> None:
    path = dump / "module_0002.jit_f.before_optimizations.txt"
    ran = cli("ls", path, dump)
    assert ran.code == 2
    assert f"this is a file, not a folder; hlolens inspect {path} reads it" in ran.err
    assert "module_0001.jit_f" in ran.out, "the other folder is listed all the same"
