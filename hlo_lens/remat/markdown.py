"""A report on policies as Markdown, for a pull request: the answer first, long lists folded."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lens.present.markdown import escaped, finding_items, section_parts, table_lines
from hlo_lens.present.page import Column
from hlo_lens.present.terminal import cut, legend, more
from hlo_lens.remat.report import Report, answer_word

_SIGNS = {True: "✅", False: "❌", None: "❔"}
_ANSWERS = (Column(""), Column(""), Column(""))


def as_markdown(report: Report, *, limit: int = 0) -> str:
    """The report as a part of a page, `limit` lines of each list (0: all)."""
    parts = list(_head(report))
    for told in report.findings:
        parts += finding_items(told.finding, side=told.side)
    if report.findings:
        parts.append("")
    for section in cut(report.sections, limit):
        parts += section_parts(section, limit)
    parts += [f"{escaped(text)}.\n" for text in more(len(report.sections), limit, "parts")]
    if signs := legend(report.sections):
        parts.append(f"<sub>{signs}</sub>")
    return "\n".join(parts).rstrip() + "\n"


def _head(report: Report) -> Iterator[str]:
    word, rest = report.headline
    sign = f"{_SIGNS[report.good]} " if report.answers else ""
    yield f"## {sign}{word[:1].upper()}{word[1:]}: {escaped(rest)}"
    yield ""
    for name, place in report.programs:
        yield f"- {name}: {escaped(place)}" if name else escaped(place)
    yield ""
    if report.answers:
        yield from table_lines(
            _ANSWERS, [(name, answer_word(answer), answer.why) for name, answer in report.answers]
        )
        yield ""
    for note in report.notes:
        yield f"{escaped(note[:1].upper() + note[1:])}."
        yield ""
