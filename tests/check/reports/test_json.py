"""JSON: all that a verdict has, names as they are in the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.check.reports import report_text
from tests.check.reports.samples import HOSTILE, PROBLEM, Outcome, hostile, passing


def data_of(outcome: Outcome, fail_on: Any = "warning") -> dict[str, Any]:
    text = report_text("json", outcome.checked, fail_on, outcome.problems)
    text.encode()
    return dict(json.loads(text))


def test_the_head_says_what_it_is_and_how_it_ended(outcome: Outcome, workspace: Path) -> None:
    data = data_of(outcome)
    assert (data["check_version"], data["schema_version"], data["exit_code"]) == (1, 1, 2)
    assert (data["fail_on"], data["problems"]) == ("warning", [PROBLEM])
    assert data_of(passing(workspace))["exit_code"] == 0


def test_a_program_has_the_hash_of_its_text(outcome: Outcome) -> None:
    (program,) = data_of(outcome)["programs"]
    (one,) = outcome.checked
    assert program["modules"] == [
        {
            "stage": "after_optimizations",
            "file": "step.hlo",
            "sha256": one.facts.program.main.sha256,
        }
    ]
    assert (program["name"], program["module"]) == ("step", 0)
    assert program["rules"] == ["never-seen", "of-the-module", "summed-twice"]
    assert program["broken"] == ["pass breaks: KeyError: 'lost'"]


def test_a_verdict_has_all_that_was_judged(outcome: Outcome) -> None:
    verdicts = data_of(outcome)["programs"][0]["verdicts"]
    assert [(one["id"], one["kind"], one["outcome"]) for one in verdicts] == [
        ("two", "expectation", "passed"),
        ("none-in-backward", "expectation", "failed"),
        ("few", "expectation", "failed"),
        ("channels", "expectation", "not judged"),
        ("loops", "baseline", "passed"),
        ("collectives", "baseline", "failed"),
        ("step.check", "filecheck", "failed"),
    ]
    command = verdicts[1].pop("command")
    assert command.startswith("hlolens query step.hlo ")
    assert verdicts[1] == {
        "id": "none-in-backward",
        "kind": "expectation",
        "outcome": "failed",
        "severity": "error",
        "expected": "collectives where phase = 'bwd': none at all",
        "found": "1 row",
        "why": "",
        "remark": "",
        "because": "it is | summed\nonce",
        "table": "collectives",
        "place": "gate.toml:7",
        "nearest": "",
        "module": 0,
        "against": 1,
        "rows": [
            {
                "id": 0,
                "name": "first",
                "source": "model.py:2",
                "text_line": 11,
                "text": "phase = bwd, executions = 1",
            }
        ],
    }


def test_a_finding_says_whether_it_fails(outcome: Outcome) -> None:
    found = data_of(outcome)["programs"][0]["findings"]
    assert [(one["rule"], one["level"], one["fails"]) for one in found] == [
        ("summed-twice", "warning", True),
        ("of-the-module", "note", False),
    ]
    assert (found[0]["name"], found[0]["source"], found[0]["text_line"]) == (
        "first",
        "model.py:2",
        11,
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_as_they_are(text: str) -> None:
    data = data_of(hostile(text))
    verdict = data["programs"][0]["verdicts"][0]
    assert (verdict["id"], verdict["rows"][0]["name"], data["problems"]) == (text, text, [text])
