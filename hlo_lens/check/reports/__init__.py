"""The outcome of a gate for other programs: SARIF, JUnit XML, JSON, Markdown, annotations.

None of them leaves out what could not be judged. They say what the terminal says, in its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo_lens.check.gate import Checked
from hlo_lens.facts.findings import Level


def report_text(
    kind: str, checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]
) -> str:
    """The report of a kind: `sarif`, `junit`, `json` or `markdown`. problems: what could not be
    done at all, in sentences, such as a file that is not there. Raises `ValueError` for another
    kind."""
    if kind == "sarif":
        from hlo_lens.check.reports.as_sarif import sarif_text as written
    elif kind == "junit":
        from hlo_lens.check.reports.as_junit import junit_text as written
    elif kind == "json":
        from hlo_lens.check.reports.as_json import json_text as written
    elif kind == "markdown":
        from hlo_lens.check.reports.as_markdown import markdown_text as written
    else:
        raise ValueError(f"no report {kind!r}; there are sarif, junit, json, markdown")
    return _encodable(written(checked, fail_on, problems))


def github_annotations(
    checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]
) -> Iterator[str]:
    """Workflow commands of GitHub Actions, one a line; `fail_on` makes no difference to them."""
    from hlo_lens.check.reports.github import annotations_of, commands

    yield from map(_encodable, commands(list(annotations_of(checked, problems))))


def _encodable(text: str) -> str:
    """Text that UTF-8 can hold: a byte of a file name that is none is written `\\udcXX`, as JSON
    escapes it."""
    return text.encode(errors="backslashreplace").decode()
