"""SARIF by the schema of OASIS and by what GitHub takes; a result stands where it helps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Verdict
from hlo_lens.check.reports import report_text
from hlo_lens.facts import Facts, Finding
from hlo_lens.hlo import parse
from hlo_lens.program import Program
from tests.check.reports.samples import (
    GATE,
    HOSTILE,
    STEP,
    Outcome,
    facts_with,
    hostile,
    passing,
)

SCHEMA = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"


@cache
def validator() -> jsonschema.Draft4Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def run_of(outcome: Outcome, fail_on: Any = "warning") -> dict[str, Any]:
    """The one run of the report, which is valid."""
    log = json.loads(report_text("sarif", outcome.checked, fail_on, outcome.problems))
    validator().validate(log)
    (run,) = log["runs"]
    return dict(run)


def by_rule(run: dict[str, Any]) -> dict[str, Any]:
    return {result["ruleId"]: result for result in run["results"]}


def uris(result: dict[str, Any], where: str = "locations") -> list[tuple[str, int]]:
    places = [one["physicalLocation"] for one in result[where]]
    return [(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in places]


def test_what_has_not_passed_is_a_result_with_its_level(outcome: Outcome) -> None:
    found = [(one["ruleId"], one["kind"], one["level"]) for one in run_of(outcome)["results"]]
    assert found == [
        ("expectation/none-in-backward", "fail", "error"),
        ("expectation/few", "fail", "warning"),
        ("expectation/channels", "open", "none"),
        ("baseline/collectives", "fail", "error"),
        ("filecheck/step.check", "fail", "error"),
        ("summed-twice", "fail", "warning"),
        ("of-the-module", "fail", "note"),
    ]


def test_what_passed_is_no_result_as_github_would_make_an_alert_of_it(outcome: Outcome) -> None:
    run = run_of(outcome)
    assert "expectation/two" not in by_rule(run)
    (invocation,) = run["invocations"]
    told = [
        (one["level"], one["message"]["text"]) for one in invocation["toolExecutionNotifications"]
    ]
    assert told == [
        ("error", "none.hlo: no such file or folder\n  ^"),
        ("error", "step  step.hlo: pass breaks: KeyError: 'lost'"),
        ("none", "step  step.hlo: two passed"),
        (
            "error",
            "step  step.hlo: channels not judged: of 2 rows it is not known: the condition is NULL",
        ),
        ("none", "step  step.hlo: loops passed: 1 row differs, as allowed"),
    ]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)


def test_a_run_that_judged_everything_was_successful(workspace: Path) -> None:
    run = run_of(passing(workspace))
    assert run["invocations"][0]["executionSuccessful"] is True
    assert run["results"] == []
    assert [one["id"] for one in run["tool"]["driver"]["rules"]] == [
        "expectation/two",
        "never-seen",
    ]


def test_a_rule_says_what_is_expected_and_why(outcome: Outcome) -> None:
    rules = {one["id"]: one for one in run_of(outcome)["tool"]["driver"]["rules"]}
    assert rules["expectation/none-in-backward"] == {
        "id": "expectation/none-in-backward",
        "shortDescription": {"text": "collectives where phase = 'bwd': none at all"},
        "fullDescription": {"text": "it is | summed once"},
        "help": {
            "text": "collectives where phase = 'bwd': none at all\n"
            "because: it is | summed once\nexpectation of gate.toml:7"
        },
        "defaultConfiguration": {"level": "error"},
    }
    assert rules["summed-twice"]["shortDescription"] == {"text": "What summed-twice is."}
    assert rules["summed-twice"]["help"]["text"].endswith("hlolens rules summed-twice")


def test_a_result_stands_in_the_source_and_names_its_rows(outcome: Outcome) -> None:
    results = by_rule(run_of(outcome))
    few = results["expectation/few"]
    assert uris(few) == [("model.py", 2)]
    assert uris(few, "relatedLocations") == [
        ("model.py", 2),
        ("step.hlo", 11),
        ("file:///elsewhere/lib.py", 7),
        ("step.hlo", 12),
    ]
    assert few["analysisTarget"] == {"uri": "step.hlo", "uriBaseId": "%SRCROOT%"}
    assert "\n[first](1)  model.py:2  line 11  phase = bwd" in few["message"]["text"]
    assert "\n[last](4)  /elsewhere/" in few["message"]["text"]
    assert uris(results["of-the-module"]) == [("step.hlo", 1)]


def test_without_a_source_in_the_checkout_it_stands_where_it_is_expected(
    outcome: Outcome, workspace: Path
) -> None:
    (workspace / "model.py").unlink()
    results = by_rule(run_of(outcome))
    assert uris(results["expectation/few"]) == [
        ("gate.toml", GATE.splitlines().index('id = "few"') + 1)
    ]
    assert uris(results["summed-twice"]) == [("step.hlo", 11)]


def test_paths_are_from_the_root_of_the_workflow(
    outcome: Outcome, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace.parent))
    run = run_of(outcome)
    assert uris(by_rule(run)["summed-twice"]) == [(f"{workspace.name}/model.py", 2)]
    root = run["originalUriBaseIds"]["%SRCROOT%"]["uri"]
    assert root == f"{workspace.parent.as_uri()}/"


def test_the_texts_are_artifacts_with_their_hash(outcome: Outcome) -> None:
    (artifact,) = run_of(outcome)["artifacts"]
    assert artifact["location"]["uri"] == "step.hlo"
    (one,) = outcome.checked
    assert artifact["hashes"] == {"sha-256": one.facts.program.main.sha256}


def prints(text: str, file: str = "/elsewhere/step.hlo") -> list[dict[str, str]]:
    """The fingerprints of a verdict and of a finding on each all-reduce."""
    program = Program([parse(text, filename=file)])
    ids = [one.id for one in program.main.entry.instructions if one.opcode == "all-reduce"]
    findings = [Finding("summed-twice", "warning", f"{at} of {file}", 0, at) for at in ids]
    facts = facts_with(program, *findings)
    facts.run_all()
    failed = Verdict("few", "expectation", "failed", "few", "many")
    run = run_of(Outcome((Checked(facts, (failed,), tuple(findings)),)))
    return [one["partialFingerprints"] for one in run["results"]]


def test_fingerprints_do_not_change_with_names_of_instructions(workspace: Path) -> None:
    before = prints(STEP)
    assert before == prints(STEP.replace("first", "all-reduce.7").replace("last", "r.1"))
    assert before != prints(STEP.replace("[8]", "[16]"))
    assert len({json.dumps(one) for one in before}) == 3


def test_fingerprints_of_what_is_alike_are_numbered(workspace: Path) -> None:
    alike = STEP.replace('jvp()/psum"', 'x"').replace("transpose(x", "x")
    same = re.sub(r", metadata=\{.*?\}", "", alike)
    first, last = (one["finding/v1"] for one in prints(same)[1:])
    assert (first.partition(":")[0], first[-2:]) == (last.partition(":")[0], ":1")
    assert last.endswith(":2")


def test_github_gets_a_fingerprint_where_its_upload_can_make_none(
    outcome: Outcome, workspace: Path
) -> None:
    inside = by_rule(run_of(outcome))["summed-twice"]["partialFingerprints"]
    assert set(inside) == {"finding/v1"}
    outside = prints(STEP)[2]
    assert outside["primaryLocationLineHash"] == outside["finding/v1"]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_sentences_of_a_file_do_no_harm(text: str) -> None:
    run = run_of(hostile(text))
    assert len(run["results"]) == 7
    github_takes(run)
    for result in run["results"]:
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x1b\x7f]", result["message"]["text"])


def test_github_takes_it(outcome: Outcome) -> None:
    github_takes(run_of(outcome))


def github_takes(run: dict[str, Any]) -> None:
    """What GitHub says it needs: a place for each result, texts of limited length."""
    rules = run["tool"]["driver"]["rules"]
    for rule in rules:
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        assert result["partialFingerprints"]
        (uri,) = uris(result)
        assert uri[0]
        assert uri[1] >= 1
        assert ":" not in uri[0].removeprefix("file:")
        ids = [one["id"] for one in result["relatedLocations"]]
        links = re.findall(r"(?<!\\)\]\((\d+)\)", result["message"]["text"])
        assert {int(link) for link in links} <= set(ids)
        assert len(ids) == len(set(ids)) <= 100


def test_a_program_of_no_file_is_placed_too() -> None:
    facts = Facts(Program([parse(STEP)]))
    preset = Verdict("p", "expectation", "failed", "a", "b", place="expectation")
    run = run_of(Outcome((Checked(facts, (preset,)),)))
    assert uris(run["results"][0]) == [("step", 1)]
    assert run["artifacts"] == []


def test_a_long_expectation_is_cut_in_the_title_alone(outcome: Outcome) -> None:
    (one,) = outcome.checked
    long = replace(one.verdicts[1], expected="x" * 3000, because="y" * 3000)
    run = run_of(Outcome((replace(one, verdicts=(long,)),)))
    github_takes(run)
    assert "x" * 3000 in run["results"][0]["message"]["text"]
