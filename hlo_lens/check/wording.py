"""What the gate says of an outcome, in the words that the terminal and the reports share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Offender, Outcome, Verdict
from hlo_lens.facts import Facts, Finding
from hlo_lens.facts.columns import FINDINGS
from hlo_lens.facts.findings import LEVELS
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import place_of

OUTCOMES: Final[tuple[Outcome, ...]] = ("passed", "failed", "not judged")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding is: the stage where there are several, the name of the instruction,
    `file:line` of the source, line of the text; None where that is not known."""

    stage: str | None
    name: str | None
    source: str | None
    text_line: int | None


def program_text(checked: Checked) -> str:
    """The program by its name and the file of the module that runs."""
    program = checked.facts.program
    return place_of(program, [program.index(program.main)])


def told(verdict: Verdict) -> Iterator[tuple[str, list[str]]]:
    """(word, lines) of what is said of a verdict that has not passed, but for its rows."""
    for word, text in (
        ("expected", verdict.expected),
        ("found", verdict.found),
        ("not judged", verdict.why),
        ("nearest", verdict.nearest),
        ("because", " ".join(verdict.because.split())),
    ):
        if text:
            yield word, lines_of(text)


def remark(verdict: Verdict) -> str:
    """What is to be known of a verdict that has passed: of a baseline, what differs as allowed."""
    if verdict.outcome != "passed":
        return ""
    told = verdict.found if verdict.kind == "baseline" else verdict.remark
    return visible(" ".join(told.split()))


def lines_of(text: str) -> list[str]:
    """The lines of a text, none of its characters acting."""
    return [visible(each.expandtabs(4)) for each in text.splitlines()] or [""]


def row_cells(row: Offender) -> tuple[str, str, str, str]:
    """Name, source, line of the text and cells of a row that is against an expectation."""
    line = "" if row.text_line is None else f"line {row.text_line}"
    name = row.name if row.name is not None else f"row {row.id}"
    return visible(name), visible(row.source or ""), line, visible(row.text)


def row_text(row: Offender) -> str:
    """A row on one line."""
    return "  ".join(filter(None, row_cells(row)))


def more_rows(verdict: Verdict, shown: int) -> str:
    """How many rows are not told where `shown` of them are; "" where all are."""
    left = verdict.against - min(shown, len(verdict.offenders))
    return f"… {count_text(left)} more {_plural(left, 'row')}" if left > 0 else ""


def verdict_text(verdict: Verdict) -> str:
    """All that is said of a verdict that has not passed, as lines."""
    lines: list[str] = []
    for word, (first, *others) in told(verdict):
        lines += [f"{word}: {first}", *(f"  {each}" for each in others)]
    lines += map(row_text, verdict.offenders)
    lines += filter(None, (more_rows(verdict, len(verdict.offenders)), visible(verdict.command)))
    return "\n".join(lines)


def finding_text(finding: Finding, place: Place) -> str:
    """All that is said of a finding, as lines."""
    lines = [f"{finding.level} {finding.rule}  {visible(finding.message)}", place_text(place)]
    lines += [f"help: {visible(finding.help)}"] if finding.help else []
    return "\n".join(filter(None, lines))


def places(checked: Checked) -> Mapping[Finding, Place]:
    """Where each finding of a program is."""
    if not checked.failing and not checked.others:
        return {}
    facts = checked.facts
    rows = (dict(zip(FINDINGS.names, row, strict=True)) for row in facts.finding_rows())
    return {one: _place(facts, one, row) for one, row in zip(facts.findings, rows, strict=True)}


def _place(facts: Facts, finding: Finding, row: Mapping[str, object]) -> Place:
    name, source, line = (row[key] for key in ("name", "source", "text_line"))
    several = len(facts.program.modules) > 1
    return Place(
        facts.program.stages[finding.module] if several and finding.module is not None else None,
        name if isinstance(name, str) else None,
        source if isinstance(source, str) else None,
        line if isinstance(line, int) else None,
    )


def place_text(place: Place) -> str:
    """`after_optimizations · dot.3 · model.py:12 · line 40 of the text`, as far as it is known."""
    line = None if place.text_line is None else f"line {place.text_line} of the text"
    return visible(" · ".join(filter(None, (place.stage, place.name, place.source, line))))


def answer(code: int, checked: Sequence[Checked]) -> str:
    """The exit code as a word or a sentence."""
    if code != 2:
        return "failed" if code else "passed"
    return "not everything could be judged" if checked else "nothing could be judged"


def counts(checked: Sequence[Checked], problems: Sequence[str] = ()) -> str:
    """How many verdicts, findings, passes and problems there are: `2 passed, 1 failed, 1 warning`;
    what fails as a warning is one."""
    verdicts = [one for each in checked for one in each.verdicts]
    warnings = sum(one.outcome == "failed" and one.severity == "warning" for one in verdicts)
    outcomes: Counter[str] = Counter(one.outcome for one in verdicts)
    outcomes["failed"] -= warnings
    parts = [f"{count_text(outcomes[name])} {name}" for name in OUTCOMES if outcomes[name]]
    levels = Counter(one.level for each in checked for one in (*each.failing, *each.others))
    levels["warning"] += warnings
    parts += [
        f"{count_text(levels[level])} {_plural(levels[level], level)}"
        for level in reversed(LEVELS)
        if levels[level]
    ]
    broken = sum(len(each.broken) for each in checked)
    if broken:
        parts.append(f"{count_text(broken)} {_plural(broken, 'pass', 'passes')} did not run")
    if problems:
        parts.append(f"{count_text(len(problems))} {_plural(len(problems), 'problem')}")
    return ", ".join(parts) or "nothing to tell"


def _plural(count: int, one: str, several: str = "") -> str:
    return one if count == 1 else several or f"{one}s"
