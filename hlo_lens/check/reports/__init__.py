"""The outcome of a gate for other programs: SARIF, JUnit XML, JSON, Markdown, annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo_lens.check.gate import Checked
from hlo_lens.facts.findings import Level


def report_text(
    kind: str, checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]
) -> str:
    """The report of a kind: `sarif`, `junit`, `json` or `markdown`. problems: what could not be
    done at all, in sentences, such as a file that is not there."""
    raise NotImplementedError


def github_annotations(
    checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]
) -> Iterator[str]:
    """Workflow commands of GitHub Actions, one a line."""
    raise NotImplementedError
