"""A finding on the terminal and as data, where a report is about one topic."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.facts import Finding
from hlo_lens.present.page import Line, Span, folded, line
from hlo_lens.present.quantities import visible

_LEVELS = {"note": "cyan", "warning": "yellow", "error": "bold red"}


def finding_lines(finding: Finding, width: int, *, side: str | None = None) -> Iterator[Line]:
    """Level, rule and message, then the help; `side` says in front which program it is of."""
    head = " ".join(filter(None, (side, finding.level, finding.rule)))
    first, *others = folded(f"{head}  {visible(finding.message)}", width, hanging="  ")
    split = min(len(first), len(head))
    yield line(Span(first[:split], _LEVELS[finding.level]), first[split:])
    yield from map(line, others)
    if finding.help:
        for part in folded(f"help: {visible(finding.help)}", width, indent="  ", hanging="  "):
            yield line(Span(part, "dim"))


def finding_data(finding: Finding) -> dict[str, object]:
    """`{"rule", "level", "message", "module", "instr", "help"}`."""
    return {
        "rule": finding.rule,
        "level": finding.level,
        "message": finding.message,
        "module": finding.module,
        "instr": finding.instr,
        "help": finding.help,
    }
