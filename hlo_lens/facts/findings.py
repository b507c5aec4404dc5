"""Findings: what a pass has to say about a program, and the rules that say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["note", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule a pass checks: its id, its usual level, a line on it, and its full explanation.

    needs_op_names: of a text without metadata it may say less, as do the rules of a pass whose
    tables need them. Raises `ValueError` for an unknown level or an id that is not lower-case words
    and hyphens.
    """

    id: str
    level: Level
    summary: str
    doc: str
    needs_op_names: bool = False

    def __post_init__(self) -> None:
        _check_level(self.id, self.level)
        if not all(part.isalnum() for part in self.id.split("-")) or self.id != self.id.lower():
            raise ValueError(f"rule id {self.id!r} is not lower-case words joined by hyphens")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `module` None: about the whole program; `instr` None: about the module.

    `evidence` names rows as (table, id), of the finding's module. Raises `ValueError` for an
    unknown level.
    """

    rule: str
    level: Level
    message: str
    module: int | None = None
    instr: int | None = None
    evidence: tuple[tuple[str, int], ...] = ()
    help: str | None = None

    def __post_init__(self) -> None:
        _check_level(self.rule, self.level)


def _check_level(rule: str, level: str) -> None:
    if level not in LEVELS:
        raise ValueError(f"rule {rule}: unknown level {level!r}, expected {', '.join(LEVELS)}")


PASS_FAILED = Rule(
    "pass-failed",
    "warning",
    "A pass crashed, gave rows that do not fit its tables, or could not run.",
    "The tables of that pass are empty for this program, and so are those of passes that require"
    " them: what they would have shown is not known. Everything else is unaffected. The message"
    " names the pass and what went wrong; for a pass of another package, report it there.",
)
PLUGIN_BROKEN = Rule(
    "plugin-broken",
    "warning",
    "A pass could not be loaded, or claims a name that another pass owns.",
    "A pass that fails to import, lacks what a pass needs (name, tables, requires, rules, run), or"
    " claims a table, pass name or rule id that is already taken is left out. Built-in passes come"
    " first, then the entry points of group `hlo_lens.passes` by name.",
)

MACHINERY = (PASS_FAILED.id, PLUGIN_BROKEN.id)
"""Ids of the rules that tell of passes, not of the program."""
