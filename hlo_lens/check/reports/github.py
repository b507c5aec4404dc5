"""Annotations of GitHub Actions: workflow commands, at most as many as GitHub shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Verdict
from hlo_lens.check.reports.workspace import (
    FileLine,
    file_line,
    first_inside,
    text_place,
    workspace,
)
from hlo_lens.check.wording import (
    Place,
    finding_text,
    lines_of,
    places,
    program_text,
    verdict_text,
)
from hlo_lens.facts import Finding
from hlo_lens.facts.findings import Level
from hlo_lens.present.quantities import count_text, visible

Command = Literal["error", "warning", "notice"]

MOST = 10
"""Annotations of one kind that GitHub shows of one step."""

_OF_LEVEL: dict[Level, Command] = {"error": "error", "warning": "warning", "note": "notice"}


class Annotation(NamedTuple):
    """command: what GitHub makes of it. place: a path in the checkout, a line; None: nowhere."""

    command: Command
    title: str
    message: str
    place: FileLine | None


def annotations_of(checked: Sequence[Checked], problems: Sequence[str]) -> Iterator[Annotation]:
    """One for each verdict that has not passed, finding, broken pass and problem, the gravest of
    each program first. What could not be judged is as grave as what has failed."""
    for problem in problems:
        yield Annotation("error", "could not be done", "\n".join(lines_of(problem)), None)
    for one in checked:
        name = one.facts.program.name
        for why in one.broken:
            yield Annotation("error", f"{name}: a pass did not run", visible(why), None)
        yield from (_of_verdict(one, each) for each in one.verdicts if each.outcome != "passed")
        where = places(one)
        yield from (_of_finding(one, each, where[each]) for each in (*one.failing, *one.others))


def _of_finding(checked: Checked, finding: Finding, place: Place) -> Annotation:
    text = text_place(checked, finding.module, place.text_line)
    return Annotation(
        _OF_LEVEL[finding.level],
        f"{checked.facts.program.name}: {finding.rule}",
        f"{program_text(checked)}\n{finding_text(finding, place)}",
        first_inside(workspace(), file_line(place.source), text),
    )


def _of_verdict(checked: Checked, verdict: Verdict) -> Annotation:
    sources = [file_line(row.source) for row in verdict.offenders]
    texts = [text_place(checked, verdict.module, row.text_line) for row in verdict.offenders]
    return Annotation(
        verdict.severity,
        f"{checked.facts.program.name}: {verdict.id} {verdict.outcome}",
        f"{program_text(checked)}\n{verdict_text(verdict)}",
        first_inside(workspace(), *sources, file_line(verdict.place), *texts),
    )


def commands(found: Sequence[Annotation]) -> Iterator[str]:
    """The annotations as workflow commands; the last of a kind says how many are left out."""
    for command in ("error", "warning", "notice"):
        of_kind = [one for one in found if one.command == command]
        shown = of_kind if len(of_kind) <= MOST else of_kind[: MOST - 1]
        yield from map(_line, shown)
        if left := len(of_kind) - len(shown):
            text = f"and {count_text(left)} more; the log of this step has them"
            yield _line(Annotation(command, "hlolens check", text, None))


def _line(one: Annotation) -> str:
    properties = {"title": visible(one.title)}
    if one.place is not None:
        properties = {"file": one.place.file, "line": str(one.place.line or 1), **properties}
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{one.command} {written}::{_data(one.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
