"""A report on one topic, before it is laid out: sentences at its head, sections, findings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Protocol

from hlo_lens.facts import Finding
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of cells under a title. `total` stands under a rule, `below` has what stands under each
    line, `notes` are last."""

    title: str
    about: str = ""
    columns: tuple[Column, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    total: tuple[str, ...] | None = None
    below: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def without_unknown(section: Section, *, keep: Collection[str] = ()) -> Section:
    """The section without columns in which no line says anything; `keep` are headings of those that
    stay."""
    used = [
        at
        for at, column in enumerate(section.columns)
        if column.heading in keep or {line[at] for line in section.lines} - {UNKNOWN, ""}
    ]

    def only(cells: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cells[at] for at in used)

    return replace(
        section,
        columns=tuple(section.columns[at] for at in used),
        lines=tuple(map(only, section.lines)),
        total=None if section.total is None else only(section.total),
    )


class Report(Protocol):
    """What is laid out of a report: the program's name and file, pairs of a word and a sentence
    under these, sections, and findings, the gravest first."""

    @property
    def name(self) -> str: ...

    @property
    def place(self) -> str: ...

    @property
    def head(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def sections(self) -> tuple[Section, ...]: ...

    @property
    def findings(self) -> tuple[Finding, ...]: ...
