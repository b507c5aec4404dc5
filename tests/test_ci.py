"""What CI relies on: a required capability is not skipped, and .ci/run calls `make test`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SUITE = '''
import pytest

@pytest.mark.skipif(True, reason="the shared material is not beside this checkout")
def test_shared(): ...

@pytest.mark.skipif(True, reason="root may read everything")
def test_other(): ...

@pytest.mark.parametrize("path", [])
def test_no_files(path): ...

@pytest.mark.xfail(reason="a known gap in the shared material")
def test_known(): assert False

def test_runs(): ...
'''


def run_suite(folder: Path, required: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "test_it.py").write_text(SUITE)
    (folder / "test_module.py").write_text("import pytest\npytest.importorskip('jaxxx')\n")
    environment = os.environ | {"HLOLENS_REQUIRE": required, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-c", "/dev/null",
         "--continue-on-collection-errors", "--rootdir", str(folder), str(folder)],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip


def test_nothing_required_skips_in_peace(tmp_path: Path) -> None:
    ran = run_suite(tmp_path, "")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed, 4 skipped, 1 xfailed" in ran.stdout


@pytest.mark.parametrize(
    ("required", "failures"), [("shared", 2), ("jax", 1), ("jax,shared", 3)]
)
def test_what_is_required_must_not_be_skipped(
    tmp_path: Path, required: str, failures: int
) -> None:
    """Also not by parametrizing over files that are not there, or while collecting."""
    ran = run_suite(tmp_path, required)
    assert ran.returncode != 0
    assert ran.stdout.count(f"HLOLENS_REQUIRE={required}, but skipped: ") == failures


def test_an_unknown_capability_is_refused(tmp_path: Path) -> None:
    ran = run_suite(tmp_path, "jaks")
    assert ran.returncode == 4
    assert "HLOLENS_REQUIRE names jaks; there are: shared, jax" in ran.stderr


def test_ci_runs_the_command_of_the_readme() -> None:
    assert "make test\n" in (ROOT / ".ci" / "run").read_text()
    assert "\nmake test\n" in (ROOT / "README.md").read_text()
