"""What the gate says of one program: verdicts, and findings that are too grave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.check.model import Verdict
from hlo_lens.check.selection import not_whole
from hlo_lens.facts import Facts, Finding
from hlo_lens.facts.findings import LEVELS, MACHINERY, Level
from hlo_lens.present.chosen import fits
from hlo_lens.present.reading import gravest_first

NO_WARNING = "error"


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome for one program. failing: findings at or above the level asked for; others: the
    rest of those that were selected. rules: the ids of those that were judged. broken: why passes
    did not run; what they tell is unknown."""

    facts: Facts
    verdicts: tuple[Verdict, ...] = ()
    failing: tuple[Finding, ...] = ()
    others: tuple[Finding, ...] = ()
    broken: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    def failed(self, fail_on: Level) -> bool:
        """Whether the answer is no."""
        return bool(self.failing) or any(is_no(one, fail_on) for one in self.verdicts)

    def not_judged(self, fail_on: Level) -> bool:
        """Whether something that counts could not be judged."""
        return bool(self.broken) or any(
            one.outcome == "not judged" and is_heeded(one, fail_on) for one in self.verdicts
        )


def is_no(verdict: Verdict, fail_on: Level) -> bool:
    """Whether a verdict makes the answer no: a warning does only where `fail_on` is one."""
    return verdict.outcome == "failed" and is_heeded(verdict, fail_on)


def is_heeded(verdict: Verdict, fail_on: Level) -> bool:
    """Whether the exit code heeds a verdict: a warning, judged or not, only as `fail_on` says."""
    return verdict.severity == "error" or fail_on != NO_WARNING


def exit_code(checked: Sequence[Checked], fail_on: Level, problems: Sequence[str] = ()) -> int:
    """0: yes, 1: no, 2: something could not be judged. problems: what could not be done at all."""
    if problems or any(one.not_judged(fail_on) for one in checked):
        return 2
    return int(any(one.failed(fail_on) for one in checked))


def judged_by_rules(
    facts: Facts, fail_on: Level, selected: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Checked:
    """The findings of all rules, or of those that globs of `selected` match, without `ignored`."""
    facts.run(one for one in facts.registry.passes if one.rules)
    broken = tuple(one.message for one in facts.findings if one.rule in MACHINERY)
    asked_for = [rule for rule in facts.registry.rules if is_wanted(rule, selected, ignored)]
    named, why = _without_op_names(facts, asked_for)
    broken += (*_cut_off(facts), *why)
    wanted = [one for one in gravest_first(facts.findings) if one.rule in asked_for]
    unknown = {
        rule.id
        for one in facts.registry.passes
        if any(why.startswith(f"pass {one.name}: ") for why in broken)
        for rule in one.rules
    }
    grave = LEVELS.index(fail_on)
    return Checked(
        facts,
        failing=tuple(one for one in wanted if LEVELS.index(one.level) >= grave),
        others=tuple(one for one in wanted if LEVELS.index(one.level) < grave),
        broken=broken,
        rules=tuple(rule for rule in asked_for if rule not in unknown and rule not in named),
    )


def is_wanted(rule: str, selected: Sequence[str], ignored: Sequence[str]) -> bool:
    """Whether a rule is judged: one that globs of `selected` match, or any without, and that none
    of `ignored` does. What tells of the machinery is none."""
    chosen = not selected or fits(rule, selected)
    return chosen and not fits(rule, ignored) and rule not in MACHINERY


def _without_op_names(facts: Facts, rules: Sequence[str]) -> tuple[set[str], Sequence[str]]:
    """The rules that a text without op_names may say nothing of, and that in a sentence."""
    if all(module.has_metadata for module in facts.program.modules):
        return set(), ()
    needing = [
        rule.id
        for one in facts.registry.passes
        for rule in one.rules
        if rule.needs_op_names or any(table.needs_op_names for table in one.tables)
        if rule.id in rules
    ]
    if not needing:
        return set(), ()
    why = f"the text has no op_name and no source, which these rules need: {', '.join(needing)}"
    return set(needing), (why,)


def _cut_off(facts: Facts) -> Iterator[str]:
    for module in facts.program.modules:
        if why := not_whole(module):
            yield f"{module.name}: {why}"
