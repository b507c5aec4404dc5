"""Tables and findings of the passes that a report is about, told apart from those that failed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from hlo_lens.facts import Facts, Finding, UnknownTableError
from hlo_lens.facts.findings import LEVELS, MACHINERY
from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from hlo_lens.program import Program


class NotReadError(ValueError):
    """A pass that is needed failed: no rows would look like there being nothing."""


def read(facts: Facts, *tables: str) -> None:
    """Fill the tables. Raises `NotReadError` where a pass is missing or fails."""
    problems = [problem for table in tables if (problem := not_read(facts, table)) is not None]
    if problems:
        # A pass that failed says more than that a table is missing, which may be why it did.
        raise NotReadError(next((one for one in problems if one.startswith("pass ")), problems[0]))


def not_read(facts: Facts, table: str) -> str | None:
    """Why the rows of a table are not known, as a sentence; None where they are."""
    owner = facts.registry.owners.get(table)
    with suppress(UnknownTableError):
        facts.rows(table)
    names = {table} if owner is None else {table, owner.name}
    for finding in facts.findings:
        is_broken = finding.rule in MACHINERY
        words = finding.message.replace(":", " ").split(maxsplit=2)
        if is_broken and words[:1] == ["pass"] and words[1] in names:
            return finding.message
    return f"no pass fills the table {table}" if owner is None else None


def findings_of(facts: Facts, tables: Iterable[str]) -> list[Finding]:
    """What the passes that own these tables have to say, the gravest first."""
    found = {name: facts.registry.owners.get(name) for name in tables}
    owners = {owner.name: owner for owner in found.values() if owner is not None}
    facts.run(owners.values())
    rules = {rule.id for owner in owners.values() for rule in owner.rules}
    return gravest_first(finding for finding in facts.findings if finding.rule in rules)


def file_argument(file: str | None, word: str = "FILE") -> str:
    """A file in a command for a shell; `word` where there is none, or came through standard input
    (`<stdin>`) and is gone."""
    return word if not file or file.startswith("<") else visible(shlex.quote(file))


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, warnings, notes; each in the order given."""
    return sorted(findings, key=lambda finding: -LEVELS.index(finding.level))


def place_of(program: Program, modules: Iterable[int]) -> str:
    """A program by its name and file; by the folder where it has several."""
    files = list(dict.fromkeys(program.modules[at].filename or "" for at in modules))
    folders = {os.path.dirname(file) for file in files}
    if len(files) > 1 and len(folders) == 1 and folders != {""}:
        files = [os.path.join(*folders, "")]
    return visible("  ".join(filter(None, (program.name, *files))))
