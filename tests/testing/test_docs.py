"""docs/pytest.md is true: its tests are run, and print what stands there.

`python -m tests.testing.test_docs` puts the output in place.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hlo_lens.testing import assert_lowering

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pytest.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
OUTPUT = re.compile(r"(<!-- output of: (pytest .*?) -->\n```\n)(.*?)(?=^```$)", re.DOTALL | re.M)
RUNS = re.compile(r"<!-- runs -->\n```python\n(.*?)```", re.DOTALL)
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(FILE.findall(TEXT))


def output_of(command: str, folder: Path, *files: str) -> str:
    """What pytest prints in a folder with these files of the page; times are not the page's."""
    (folder / "fixtures").symlink_to(ROOT / "fixtures")
    for name in files:
        (folder / name).write_text(FILES[name])
    # A plugin that is installed beside ours may print something.
    options = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:xdist"]
    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *options, "--color=no"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return without_time(ran.stdout)


def without_time(text: str) -> str:
    return re.sub(r" in [\d.]+s\b", " in 0.50s", text)


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert TEXT.count("```python") == len(FILES) + len(RUNS.findall(TEXT)) == 3
    assert TEXT.count("output of:") == len(OUTPUT.findall(TEXT)) == 1


def test_the_output_is_what_pytest_prints(tmp_path: Path) -> None:
    ((_, command, output),) = OUTPUT.findall(TEXT)
    assert without_time(output) == output_of(command, tmp_path, "test_step.py")


def test_the_script_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = RUNS.findall(TEXT)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["assert_lowering"] is assert_lowering


@pytest.mark.jax
def test_the_example_with_targets_runs(tmp_path: Path) -> None:
    out = output_of("pytest -q", tmp_path, "test_targets.py")
    assert re.search(r"^[1-3] passed(, [12] skipped)? in", out, re.MULTILINE), out


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        filled = OUTPUT.sub(lambda m: m[1] + output_of(m[2], Path(scratch), "test_step.py"), TEXT)
    PAGE.write_text(filled, encoding="utf-8")
