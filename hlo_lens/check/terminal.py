"""What the gate says, for a terminal: a line an expectation, the rows of what failed below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Verdict
from hlo_lens.check.wording import (
    Place,
    counts,
    more_rows,
    place_text,
    places,
    program_text,
    remark,
    row_text,
    told,
)
from hlo_lens.facts import Finding
from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Line, Span, folded, line
from hlo_lens.present.quantities import visible

_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "not judged": ("?", "yellow")}
_SHOWN = 8  # rows of one expectation


def as_lines(checked: Sequence[Checked], *, width: int | None = None) -> Iterator[Line]:
    """The outcome for each program, and a line that counts."""
    width = width or PROSE
    for one in checked:
        yield line(Span(program_text(one), "bold"))
        yield from _verdicts(one.verdicts, width)
        where = places(one)
        for finding in (*one.failing, *one.others):
            yield from _finding(finding, where, width)
        for why in one.broken:
            yield from map(line, folded(f"? {visible(why)}", width, indent="  ", hanging="    "))
    yield line(counts(checked))


def _verdicts(verdicts: Sequence[Verdict], width: int) -> Iterator[Line]:
    """A line each; of a baseline, one for all tables of a stage of which there is nothing to say,
    where the first of them stands."""
    unchanged: dict[str, list[str]] = {}
    for verdict in verdicts:
        if _is_plain(verdict):
            unchanged.setdefault(verdict.stage, []).append(verdict.table)
    for verdict in verdicts:
        if not _is_plain(verdict):
            yield from _verdict(verdict, width)
        elif tables := unchanged.pop(verdict.stage, None):
            mark, style = _MARKS["passed"]
            where = f" in {visible(verdict.stage)}" if verdict.stage else ""
            text = f"{mark} unchanged{where}: {', '.join(tables)}"
            first, *others = folded(text, width, indent="  ", hanging=" " * 6)
            yield line("  ", Span(mark, style), first.removeprefix(f"  {mark}"))
            yield from map(line, others)


def _is_plain(verdict: Verdict) -> bool:
    return verdict.kind == "baseline" and verdict.outcome == "passed" and not remark(verdict)


def _verdict(verdict: Verdict, width: int) -> Iterator[Line]:
    mark, style = _MARKS[verdict.outcome]
    warning = verdict.outcome == "failed" and verdict.severity == "warning"
    name = visible(verdict.id)
    yield line("  ", Span(mark, "yellow" if warning else style), f" {name}", *_kind(warning))
    if verdict.outcome == "passed":
        if text := remark(verdict):
            yield from map(line, folded(text, width, indent=" " * 6, hanging=" " * 8))
        return
    yield from detail(verdict, width)


def detail(verdict: Verdict, width: int = PROSE, *, but: Sequence[str] = ()) -> Iterator[Line]:
    """What stands below the name of a verdict that has not passed; without the words of `but`,
    which are said elsewhere."""
    for word, (first, *others) in told(verdict):
        if word in but:
            continue
        yield from map(line, folded(f"{word}: {first}", width, indent=" " * 6, hanging=" " * 8))
        for each in others:
            yield from map(line, folded(each, width, indent=" " * 8, hanging=" " * 8))
    for row in verdict.offenders[:_SHOWN]:
        yield from map(line, folded(row_text(row), width, indent=" " * 6, hanging=" " * 10))
    if left := more_rows(verdict, _SHOWN):
        yield line(f"      {left}")
    if verdict.command:
        yield line("      ", Span(visible(verdict.command), "dim"))


def _kind(warning: bool) -> tuple[str, ...]:
    return ("  (warning)",) if warning else ()


def _finding(finding: Finding, where: Mapping[Finding, Place], width: int) -> Iterator[Line]:
    yield from (line("  ", *each) for each in finding_lines(finding, width - 2))
    if text := place_text(where[finding]):
        yield line("    ", Span(text, "dim"))
