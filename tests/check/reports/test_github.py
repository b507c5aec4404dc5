"""Annotations of GitHub: where they stand, how they are escaped, how many there are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hlo_lens.check.reports import github_annotations
from tests.check.reports.samples import HOSTILE, Outcome, hostile, passing


def commands(outcome: Outcome) -> list[str]:
    return list(github_annotations(outcome.checked, "error", outcome.problems))


def test_each_stands_in_the_source_with_its_level(outcome: Outcome) -> None:
    assert [re.match("::(.*?)::", one)[1] for one in commands(outcome)] == [  # type: ignore[index]
        "error title=could not be done",
        "error title=step%3A a pass did not run",
        "error file=model.py,line=2,title=step%3A none-in-backward failed",
        "error file=model.py,line=2,title=step%3A channels not judged",
        "error title=step%3A collectives failed",
        "error title=step%3A step.check failed",
        "warning file=model.py,line=2,title=step%3A few failed",
        "warning file=model.py,line=2,title=step%3A summed-twice",
        "notice file=step.hlo,line=1,title=step%3A of-the-module",
    ]


def test_a_message_is_what_the_terminal_says_on_one_line(outcome: Outcome) -> None:
    message = commands(outcome)[2].partition("failed::")[2]
    assert message.replace("%0A", "\n").splitlines()[:3] == [
        "step  step.hlo",
        "expected: collectives where phase = 'bwd': none at all",
        "found: 1 row",
    ]


def test_without_the_source_it_stands_where_it_is_expected(
    outcome: Outcome, workspace: Path
) -> None:
    (workspace / "model.py").unlink()
    assert commands(outcome)[2].startswith("::error file=gate.toml,line=7,")
    assert commands(outcome)[7].startswith("::warning file=step.hlo,line=11,")


def test_paths_are_from_the_root_of_the_workflow(
    outcome: Outcome, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace.parent))
    assert f"file={workspace.name}/model.py,line=2," in commands(outcome)[2]


def test_what_passed_is_not_annotated(workspace: Path) -> None:
    assert commands(passing(workspace)) == []


def test_at_most_ten_of_a_kind_and_the_rest_is_counted(outcome: Outcome) -> None:
    (one,) = outcome.checked
    for number, last in ((10, "step%3A few failed"), (14, "and 5 more; the log of this step")):
        verdicts = one.verdicts[2:3] * number
        found = commands(Outcome((replace(one, verdicts=verdicts, failing=(), broken=()),)))
        warnings = [each for each in found if each.startswith("::warning")]
        assert len(warnings) == 10
        assert last in warnings[-1]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_sentences_of_a_file_do_no_harm(text: str) -> None:
    for one in commands(hostile(text)):
        one.encode()
        assert not re.search(r"[\x00-\x1f]", one)
        head = re.match(r"::(?:error|warning|notice) (.*?)::", one)
        assert head is not None
        assert all(
            re.fullmatch(r"(?:file|line|title)=(?:[^%:,]|%25|%3A|%2C|%0[AD])*", each)
            for each in head[1].split(",")
        )


def test_a_warning_that_cannot_be_judged_is_one(outcome: Outcome) -> None:
    (one,) = outcome.checked
    (channels,) = (each for each in one.verdicts if each.id == "channels")
    only = replace(one, verdicts=(replace(channels, severity="warning"),), broken=())
    assert "::warning file=model.py,line=2,title=step%3A channels not judged::" in "".join(
        commands(Outcome((only,)))
    )
