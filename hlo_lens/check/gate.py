"""What the gate says of one program: verdicts, and findings that are too grave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts, Finding
from hlo_lens.facts.findings import LEVELS, PASS_FAILED, PLUGIN_BROKEN, Level
from hlo_lens.present.reading import gravest_first

NO_WARNING = "error"


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome for one program. failing: findings at or above the level asked for; others: the
    rest of those that were selected. broken: why passes did not run; what they tell is unknown."""

    facts: Facts
    verdicts: tuple[Verdict, ...] = ()
    failing: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()
    broken: tuple[str, ...] = ()

    def failed(self, fail_on: Level) -> bool:
        """Whether the answer is no: a warning counts only where `fail_on` is one."""
        counts = ("error", "warning") if fail_on != NO_WARNING else ("error",)
        return bool(self.failing) or any(
            one.outcome == "failed" and one.severity in counts for one in self.verdicts
        )

    @property
    def not_judged(self) -> bool:
        """Whether something could not be judged."""
        return bool(self.broken) or any(one.outcome == "not judged" for one in self.verdicts)


def judged_by_rules(
    facts: Facts, fail_on: Level, selected: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Checked:
    """The findings of all rules, or of those that globs of `selected` match, without `ignored`."""
    facts.run(one for one in facts.registry.passes if one.rules)
    machinery = (PASS_FAILED.id, PLUGIN_BROKEN.id)
    broken = tuple(one.message for one in facts.findings if one.rule in machinery)
    wanted = [
        one
        for one in gravest_first(facts.findings)
        if one.rule not in machinery
        and (not selected or _matches(one.rule, selected))
        and not _matches(one.rule, ignored)
    ]
    grave = LEVELS.index(fail_on)
    return Checked(
        facts,
        failing=tuple(one for one in wanted if LEVELS.index(one.level) >= grave),
        others=tuple(one for one in wanted if LEVELS.index(one.level) < grave),
        broken=broken,
    )


def _matches(rule: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(rule, glob) for glob in globs)
