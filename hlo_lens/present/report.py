"""A report on one topic, before it is laid out: sentences at its head, sections, findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hlo_lens.facts import Finding
from hlo_lens.present.page import Column


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
