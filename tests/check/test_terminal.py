"""The page of the gate: what failed with its rows, findings with their place, what is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lens.check.terminal import as_lines
from hlo_lens.present.page import plain
from tests.check.reports.samples import HOSTILE, Outcome, everything, hostile


@pytest.fixture
def outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    monkeypatch.chdir(tmp_path)
    return everything(tmp_path)


def page(outcome: Outcome) -> list[str]:
    return plain(as_lines(outcome.checked)).splitlines()


def test_what_has_not_passed_is_told_with_why(outcome: Outcome) -> None:
    lines = page(outcome)
    assert lines[:6] == [
        "step  step.hlo",
        "  ✓ two",
        "  ✗ none-in-backward",
        "      expected: collectives where phase = 'bwd': none at all",
        "      found: 1 row",
        "      because: it is | summed once",
    ]
    assert "  ✗ few  (warning)" in lines
    at = lines.index("  ✗ step.check")
    assert lines[at + 2 : at + 4] == ["      found: no match", "          here"]


def test_a_finding_is_told_with_its_place(outcome: Outcome) -> None:
    lines = page(outcome)
    at = lines.index("  warning summed-twice  first is summed")
    assert lines[at + 1 : at + 3] == [
        "    help: sum once",
        "    first · model.py:2 · line 11 of the text",
    ]


def test_all_is_counted(outcome: Outcome) -> None:
    counted = "2 passed, 3 failed, 1 not judged, 2 warnings, 1 note, 1 pass did not run"
    assert page(outcome)[-1] == counted


def test_of_what_passed_only_what_differs_as_allowed_is_told(outcome: Outcome) -> None:
    lines = page(outcome)
    at = lines.index("  ✓ loops")
    assert lines[at + 1 : at + 3] == ["      1 row differs, as allowed", "  ✗ collectives"]


def test_more_rows_than_are_told_are_counted(outcome: Outcome) -> None:
    (one,) = outcome.checked
    many = replace(one.verdicts[1], offenders=one.verdicts[1].offenders * 12, against=1234)
    lines = page(Outcome((replace(one, verdicts=(many,)),)))
    assert sum("first  model.py:2" in each for each in lines) == 8
    assert "      … 1,226 more rows" in lines


@pytest.mark.parametrize("text", HOSTILE)
def test_no_character_of_a_file_acts(text: str) -> None:
    assert plain(as_lines(hostile(text).checked)).replace("\n", "").isprintable()
