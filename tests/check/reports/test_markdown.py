"""Markdown as GitHub shows it: the answer first, what failed folded, nothing of a file acts."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.check.reports import report_text
from hlo_lens.check.reports.as_markdown import COMMENT
from tests.check.reports.samples import HOSTILE, Outcome, hostile, passing

markdown_it = pytest.importorskip("markdown_it")


def page_of(outcome: Outcome, fail_on: Any = "error") -> str:
    return report_text("markdown", outcome.checked, fail_on, outcome.problems)


def shown(page: str) -> str:
    """The page as HTML, by the rules of GitHub for Markdown; its filters come behind."""
    rules = markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return str(rules.render(page))


def test_the_answer_comes_first(outcome: Outcome, workspace: Path) -> None:
    assert page_of(outcome).splitlines()[:3] == [
        "## ❌ hlolens check: failed, and not everything could be judged",
        "",
        "2 passed, 3 failed, 1 not judged, 2 warnings, 1 note, 1 pass did not run, 1 problem.",
    ]
    assert page_of(passing(workspace)).splitlines()[:3] == [
        "## ✅ hlolens check: passed",
        "",
        "1 passed.",
    ]
    assert page_of(Outcome((), outcome.problems)).startswith(
        "## ❔ hlolens check: nothing could be judged\n"
    )


def test_only_warnings_pass_unless_they_are_to_fail(outcome: Outcome) -> None:
    (one,) = outcome.checked
    warned = Outcome((replace(one, verdicts=one.verdicts[2:3], failing=(), broken=()),))
    assert page_of(warned).startswith("## ✅ hlolens check: passed\n\n1 warning, 1 note.")
    assert page_of(warned, "warning").startswith("## ❌ hlolens check: failed\n")


def test_a_table_says_what_was_expected_and_found(outcome: Outcome) -> None:
    lines = page_of(outcome).splitlines()
    at = lines.index("|  | id | expected | found |")
    assert lines[at + 2 : at + 5] == [
        "| ❌ | none-in-backward | collectives where phase = 'bwd': none at all | 1 row |",
        "| ⚠️ | few | collectives: count &lt;= 1 | 2 |".replace("&lt;", "&lt;"),
        "| ❔ | channels | collectives: every channel_id = 1 | not judged: of 2 rows it is not"
        " known: the condition is NULL |",
    ]


def test_why_is_folded_with_rows_and_the_command(outcome: Outcome) -> None:
    page = shown(page_of(outcome))
    folded = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", page, re.DOTALL)
    assert [title for title, _ in folded] == [
        "❌ none-in-backward",
        "⚠️ few",
        "❔ channels",
        "❌ collectives",
        "❌ step.check",
        "✅ 2 passed",
    ]
    body = folded[0][1]
    assert "<strong>because</strong>: it is | summed once" in body
    cells = ("first", "model.py:2", "line 11", "phase = bwd, executions = 1")
    assert "\n".join(f"<td>{cell}</td>" for cell in cells) in body
    assert "<code>hlolens query step.hlo" in body


def test_findings_broken_passes_and_problems_are_told(outcome: Outcome) -> None:
    page = page_of(outcome)
    assert "⚠️ **warning** `summed-twice`: first is summed (first · model.py:2 · line 11" in page
    assert "ℹ️ **note** `of-the-module`: it is small" in page
    assert "❔ pass breaks: KeyError: 'lost'" in page
    assert "❔ none.hlo: no such file or folder" in page


def test_many_findings_of_a_rule_are_counted(outcome: Outcome) -> None:
    (one,) = outcome.checked
    many = replace(one, failing=one.failing * 12)
    assert "- 2 more of summed-twice; `--report json` has all" in page_of(Outcome((many,)))


def test_a_page_fits_into_a_comment_and_says_what_it_left_out(outcome: Outcome) -> None:
    (one,) = outcome.checked
    page = page_of(Outcome((replace(one, verdicts=one.verdicts * 120),) * 3))
    assert len(page) <= COMMENT
    assert re.search(r"\n\d[\d,]* parts are left out here; `--report json` has all\.\n$", page)
    assert page.count("<details>") == page.count("</details>")


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_sentences_of_a_file_do_no_harm(text: str) -> None:
    page = shown(page_of(hostile(text)))
    tags = set(re.findall(r"<(\w+)", page))
    assert not tags & {"script", "a", "img", "em", "s", "hr", "ol", "blockquote", "input"}
    assert page.count("<details>") == page.count("</details>") == 7
    cells = [html.unescape(one) for one in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)]
    if text.isprintable() and text:
        assert cells[1:4] == [text, text, text]
