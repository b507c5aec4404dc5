"""A workspace of its own for each test of reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.reports.samples import Outcome, everything


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is no checkout of a GitHub workflow."""
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def outcome(workspace: Path) -> Outcome:
    return everything(workspace)
