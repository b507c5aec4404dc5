"""The outcome as Markdown, for a pull request or a job's summary: the answer first, then why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lens.check.gate import Checked, exit_code
from hlo_lens.check.model import Verdict
from hlo_lens.check.wording import (
    answer,
    counts,
    lines_of,
    more_rows,
    place_text,
    places,
    program_text,
    row_cells,
    told,
)
from hlo_lens.facts import Finding
from hlo_lens.facts.findings import Level
from hlo_lens.present.markdown import (
    code_block,
    escaped,
    finding_items,
    folded,
    table_lines,
)
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import count_text, visible

COMMENT: Final = 65_536
"""The characters that a comment on GitHub holds."""

_SIGNS: Final = {"passed": "✅", "failed": "❌", "not judged": "❔"}
_WARNING: Final = "⚠️"
_COLUMNS: Final = (Column(""), Column("id"), Column("expected"), Column("found"))
_ROWS: Final = (Column("name"), Column("source"), Column("HLO text"), Column("columns"))
_OF_A_RULE: Final = 10  # findings that are told
_LAST: Final = 200  # characters that the line on what is left out may take

_Block = list[str]


def markdown_text(
    checked: Sequence[Checked], fail_on: Level, problems: Sequence[str], *, size: int = COMMENT
) -> str:
    """The report as a part of a page, of at most `size` characters; what is left out is counted."""
    blocks = [
        *map(_problem, problems),
        *(block for one in checked for block in _program(one)),
    ]
    page = "\n".join(_head(checked, fail_on, problems))
    left_out = 0
    for block in blocks:
        text = "\n".join(["", *block])
        if left_out or len(page) + len(text) + _LAST > size:
            left_out += 1
        else:
            page += text
    if left_out:
        page += f"\n{count_text(left_out)} parts are left out here; `--report json` has all.\n"
    return f"{page.rstrip()}\n"


def _head(checked: Sequence[Checked], fail_on: Level, problems: Sequence[str]) -> _Block:
    code = exit_code(checked, fail_on, problems)
    failed = any(one.failed(fail_on) for one in checked)
    sign = _SIGNS["failed" if failed else "not judged" if code else "passed"]
    word = f"failed, and {answer(code, checked)}" if failed and code == 2 else answer(code, checked)
    return [f"## {sign} hlolens check: {word}", "", f"{counts(checked, problems)}.", ""]


def _problem(problem: str) -> _Block:
    first, *others = lines_of(problem)
    return [
        f"{_SIGNS['not judged']} {escaped(first)}",
        "",
        *([*code_block("", others), ""] if others else []),
    ]


def _program(checked: Checked) -> Iterator[_Block]:
    """A heading with what has not passed; why, of each; broken passes; findings; what passed."""
    rest = [one for one in checked.verdicts if one.outcome != "passed"]
    passed = [one for one in checked.verdicts if one.outcome == "passed"]
    yield [
        f"### {escaped(program_text(checked))}",
        "",
        *([*table_lines(_COLUMNS, map(_cells, rest)), ""] if rest else []),
    ]
    for verdict in rest:
        title = f"{_sign(verdict)} {visible(verdict.id)}"
        yield folded(title, list(_details(verdict)))
    for why in checked.broken:
        yield [f"{_SIGNS['not judged']} {escaped(why)}", ""]
    yield from _findings(checked)
    if passed:
        lines = table_lines(_COLUMNS, map(_cells, passed))
        yield folded(f"{_SIGNS['passed']} {count_text(len(passed))} passed", lines)


def _sign(verdict: Verdict) -> str:
    warning = verdict.outcome == "failed" and verdict.severity == "warning"
    return _WARNING if warning else _SIGNS[verdict.outcome]


def _cells(verdict: Verdict) -> tuple[str, ...]:
    found = verdict.found
    if verdict.outcome == "not judged":
        found = f"not judged: {verdict.why}"
    return _sign(verdict), verdict.id, verdict.expected, found


def _details(verdict: Verdict) -> Iterator[str]:
    """What the table above does not say."""
    for word, (first, *others) in told(verdict):
        if word in ("expected", "found", "not judged") and not others:
            continue
        yield f"- **{word}**: {escaped(first)}"
        yield from (f"  {line}" for line in (code_block("", others) if others else ()))
    yield ""
    if verdict.offenders:
        cells = list(map(row_cells, verdict.offenders))
        told_ones = [at for at in range(len(_ROWS)) if any(row[at] for row in cells)]
        rows = [[row[at] for at in told_ones] for row in cells]
        yield from (*table_lines([_ROWS[at] for at in told_ones], rows), "")
    if left := more_rows(verdict, len(verdict.offenders)):
        yield from (left, "")
    if verdict.command:
        yield from code_block("", lines_of(verdict.command))


def _findings(checked: Checked) -> Iterator[_Block]:
    """The first findings of each rule, the gravest rule first."""
    where = places(checked)
    by_rule: dict[str, list[Finding]] = {}
    for finding in (*checked.failing, *checked.others):
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, alike in by_rule.items():
        lines: list[str] = []
        for finding in alike[:_OF_A_RULE]:
            lines += finding_items(finding, place=escaped(place_text(where[finding])))
        if (left := len(alike) - _OF_A_RULE) > 0:
            lines.append(f"- {count_text(left)} more of {escaped(rule)}; `--report json` has all")
        yield [*lines, ""]
