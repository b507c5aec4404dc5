"""What the gate says, for a terminal: a line an expectation, the rows of what failed below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Verdict
from hlo_lens.present.findings import finding_lines
from hlo_lens.present.page import PROSE, Line, Span, folded, line
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import place_of

_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "not judged": ("?", "yellow")}
_SHOWN = 8  # rows of one expectation


def as_lines(checked: Sequence[Checked], *, width: int | None = None) -> Iterator[Line]:
    """The outcome for each program, and a line that counts."""
    width = width or PROSE
    for one in checked:
        program = one.facts.program
        yield line(Span(place_of(program, [program.index(program.main)]), "bold"))
        for verdict in one.verdicts:
            yield from _verdict(verdict, width)
        for finding in (*one.failing, *one.others):
            yield from finding_lines(finding, width)
        for why in one.broken:
            yield from map(line, folded(f"? {visible(why)}", width, indent="  ", hanging="    "))
    yield line(_count(checked))


def _verdict(verdict: Verdict, width: int) -> Iterator[Line]:
    mark, style = _MARKS[verdict.outcome]
    warning = verdict.outcome == "failed" and verdict.severity == "warning"
    name = visible(verdict.id)
    yield line("  ", Span(mark, "yellow" if warning else style), f" {name}", *_kind(warning))
    if verdict.outcome == "passed":
        return
    told = [f"expected: {verdict.expected}"]
    told += [f"found: {verdict.found}"] if verdict.found else []
    told += [f"not judged: {verdict.why}"] if verdict.why else []
    told += [f"nearest: {verdict.nearest}"] if verdict.nearest else []
    told += [f"because: {visible(verdict.because)}"] if verdict.because else []
    for one in told:
        yield from map(line, folded(one, width, indent="      ", hanging="        "))
    for row in verdict.offenders[:_SHOWN]:
        where = row.source or (f"line {row.text_line}" if row.text_line is not None else "")
        parts = [visible(row.name or f"row {row.id}"), visible(where), row.text]
        yield from map(
            line,
            folded("  ".join(filter(None, parts)), width, indent="      ", hanging="          "),
        )
    if verdict.against > _SHOWN:
        yield line(f"      … {count_text(verdict.against - _SHOWN)} more rows")
    if verdict.command:
        yield line("      ", Span(verdict.command, "dim"))


def _kind(warning: bool) -> tuple[str, ...]:
    return ("  (warning)",) if warning else ()


def _count(checked: Sequence[Checked]) -> str:
    outcomes: Counter[str] = Counter(one.outcome for each in checked for one in each.verdicts)
    parts = [f"{count_text(outcomes[name])} {name}" for name in _MARKS if outcomes[name]]
    levels = Counter(one.level for each in checked for one in (*each.failing, *each.others))
    parts += [
        f"{count_text(levels[level])} {level}{'' if levels[level] == 1 else 's'}"
        for level in ("error", "warning", "note")
        if levels[level]
    ]
    broken = sum(len(each.broken) for each in checked)
    parts += [f"{count_text(broken)} passes did not run"] if broken else []
    return ", ".join(parts) or "nothing to tell"
