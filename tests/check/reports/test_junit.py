"""JUnit XML by the schema of Jenkins, as junitparser reads it back."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import xmlschema
from junitparser import JUnitXml, TestCase

from hlo_lens.check.reports import report_text
from tests.check.reports.samples import HOSTILE, Outcome, hostile, passing

SCHEMA = Path(__file__).parent / "data" / "junit-10.xsd"


@cache
def schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMA)


def read_back(outcome: Outcome, fail_on: Any = "error") -> JUnitXml:
    """The report, which is valid."""
    text = report_text("junit", outcome.checked, fail_on, outcome.problems)
    schema().validate(text.encode())
    return JUnitXml.fromstring(text.encode())


def cases(outcome: Outcome, fail_on: Any = "error") -> dict[str, TestCase]:
    return {case.name: case for suite in read_back(outcome, fail_on) for case in suite}


def kind(case: TestCase) -> str:
    return "error" if case.is_error else "failure" if case.is_failure else "passed"


def test_each_thing_that_was_judged_is_a_case(outcome: Outcome) -> None:
    assert [(case.name, kind(case)) for case in cases(outcome).values()] == [
        ("two", "passed"),
        ("none-in-backward", "failure"),
        ("few", "passed"),
        ("channels", "error"),
        ("loops", "passed"),
        ("collectives", "failure"),
        ("step.check", "failure"),
        ("never-seen", "passed"),
        ("of-the-module", "passed"),
        ("summed-twice", "failure"),
        ("pass breaks", "error"),
        ("none.hlo: no such file or folder", "error"),
    ]
    report = read_back(outcome)
    assert (report.tests, report.failures, report.errors) == (12, 4, 3)


def test_a_rule_whose_pass_broke_is_no_case_that_passed(outcome: Outcome) -> None:
    assert "not-known" not in cases(outcome)


def test_a_suite_is_a_program_and_a_class_says_what_kind_it_is(outcome: Outcome) -> None:
    first, second = read_back(outcome)
    assert (first.name, second.name) == ("step step.hlo", "could not be done")
    assert list(dict.fromkeys(case.classname for case in first)) == [
        "step step_hlo.expectation",
        "step step_hlo.baseline",
        "step step_hlo.filecheck",
        "step step_hlo.rule",
        "step step_hlo.pass",
    ]


def test_a_failure_holds_what_the_terminal_says(outcome: Outcome) -> None:
    (result,) = cases(outcome)["none-in-backward"].result
    assert result.message == "expected: collectives where phase = 'bwd': none at all; found: 1 row"
    assert result.text.splitlines() == [
        "expected: collectives where phase = 'bwd': none at all",
        "found: 1 row",
        "because: it is | summed once",
        "first  model.py:2  line 11  phase = bwd, executions = 1",
        'hlolens query step.hlo "SELECT name, phase, loop_name, executions, source FROM collectives'
        " WHERE phase = 'bwd'\"",
    ]
    (result,) = cases(outcome)["channels"].result
    assert (result.message, result.type) == (
        "of 2 rows it is not known: the condition is NULL",
        "not judged",
    )


def test_a_warning_is_told_and_fails_where_warnings_do(outcome: Outcome) -> None:
    few = cases(outcome)["few"]
    assert few.system_out.startswith("failed, as a warning\nexpected: collectives: count <= 1\n")
    assert kind(cases(outcome, "warning")["few"]) == "failure"


def test_a_warning_that_cannot_be_judged_fails_where_warnings_do(outcome: Outcome) -> None:
    (one,) = outcome.checked
    (open_one,) = (each for each in one.verdicts if each.id == "channels")
    only = replace(one, verdicts=(replace(open_one, severity="warning"),), failing=(), broken=())
    told = cases(Outcome((only,)))["channels"]
    assert told.system_out.startswith("not judged, as a warning\nexpected: ")
    assert kind(cases(Outcome((only,)), "warning")["channels"]) == "error"


def test_what_differs_as_allowed_is_told(outcome: Outcome) -> None:
    assert cases(outcome)["loops"].system_out == "1 row differs, as allowed"


def test_two_cases_of_one_name_are_told_apart(outcome: Outcome) -> None:
    (one,) = outcome.checked
    twice = replace(one, verdicts=one.verdicts[:1] * 2, rules=(), failing=(), others=(), broken=())
    assert list(cases(Outcome((twice,)))) == ["two", "two (2)"]


def test_what_passed_alone_has_neither_failures_nor_errors(workspace: Path) -> None:
    report = read_back(passing(workspace))
    assert (report.tests, report.failures, report.errors) == (2, 0, 0)


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_sentences_of_a_file_do_no_harm(text: str) -> None:
    report = read_back(hostile(text))
    assert (report.tests, report.failures, report.errors) == (13, 4, 6)
