"""The code of docs/notebooks.md runs as it stands there, from top to bottom."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "notebooks.md"
BLOCKS = re.findall(
    r"<!-- runs(?: with ([\w, ]+))? -->\n```python\n(.*?)```",
    PAGE.read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.fixture(autouse=True)
def _in_a_folder_with_fixtures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)


def run(*needs: str) -> dict[str, object]:
    """What the blocks define that need nothing, or these."""
    names: dict[str, object] = {}
    for given, block in BLOCKS:
        if given in ("", *needs):
            exec(block, names)
    return names


def test_every_block_is_run_by_a_test() -> None:
    assert PAGE.read_text(encoding="utf-8").count("```python") == len(BLOCKS)
    assert {given for given, _ in BLOCKS} == {"", "jax and libtpu", "pandas and polars"}


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names = run()
    assert names["row"]
    assert capsys.readouterr().out.startswith("What a checkpoint keeps for the backward pass")
    for written in ("remat.dot", "remat.graphml", "remat.json", "step.sqlite"):
        assert Path(written).stat().st_size > 1000


def test_the_data_frames_of_the_page() -> None:
    for package in ("pandas", "polars"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (block,) = (block for given, block in BLOCKS if given == "pandas and polars")
    sums, backward = block.strip().split("\n")
    names = run()
    assert {"all-gather", "reduce-scatter"} < set(eval(sums, names).index)
    assert set(eval(backward, names)["phase"]) == {"bwd"}


@pytest.mark.jax
def test_the_programs_that_jax_makes() -> None:
    if find_spec("libtpu") is None or find_spec("cloudpickle") is None:
        pytest.skip("libtpu or cloudpickle is not installed")
    names = run("jax and libtpu")
    stages = [getattr(names[name], "stages", None) for name in ("here", "there")]
    assert stages == [("before_optimizations", "after_optimizations")] * 2
    assert Path("step-v6e", "provenance.json").exists()
