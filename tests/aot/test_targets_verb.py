"""`hlolens targets` and `hlolens compile`, as far as they go without jax."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hlo_lens.aot import KNOWN, Readiness
from tests.conftest import Ran

Cli = Callable[..., Ran]


def pretend(monkeypatch: pytest.MonkeyPatch, state: Readiness) -> None:
    monkeypatch.setattr("hlo_lens.aot.readiness", lambda _: state)
    monkeypatch.setattr("hlo_lens.aot.compiling.readiness", lambda _: state)


def test_targets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Readiness(False, "pip install jax==1"))
    ran = cli("targets")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(KNOWN)
    assert all(line.rstrip().endswith("pip install jax==1") for line in lines[1:])
    found = json.loads(cli("targets", "--format", "json").out)
    assert found[2] == {
        "target": "tpu:v5e-8", "platform": "tpu", "topology": "2x4", "devices": 8,
        "ready": False, "install": "pip install jax==1", "note": None,
    }  # fmt: skip


def test_ready_targets(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, Readiness(True, "pip install more", "not all is there"))
    lines = cli("targets").out.splitlines()
    assert lines[1].split(None, 2) == ["cpu", "1", "ready; not all is there"]
    assert lines[-1] == "for what is not there: pip install more"


def test_what_is_not_installed_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, Readiness(False, "pip install jax==1"))
    ran = cli("compile", "model:step", "--target", "cpu", "-o", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "hlolens: error: cpu needs packages that are not installed: pip install jax==1\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["model", "--target", "cpu"], "'model' names no function; write MODULE:FUNCTION"),
        (["m:f", "--target", "gpu"], "no target 'gpu'"),
        (["m:f", "--target", "cpu:8", "--mesh", "x=4"], "the mesh x=4 needs 4 devices"),
        (["m:f", "--target", "cpu", "--arg", "64"], "no argument '64'"),
        (["m:f", "--target", "cpu", "--xla-flag", "-O3"], "'-O3' is no XLA flag"),
        (["m:f", "--target", "cpu", "--set", "3"], "'3'; write it as layers=4"),
    ],
)
def test_wrong_words(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    pretend(monkeypatch, Readiness(True))
    ran = cli("compile", *words, "-o", tmp_path / "out")
    assert ran.code == 2
    assert told in ran.err
    assert not (tmp_path / "out").exists()


def test_help_imports_no_jax() -> None:
    code = "import sys; from hlo_lens.__main__ import main; main(sys.argv[1:]); "
    code += "sys.exit(any(name.split('.')[0] in ('jax', 'jaxlib') for name in sys.modules))"
    for words in (["--help"], ["compile", "--help"], ["targets"]):
        ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=60)
        assert ran.returncode == 0, words
