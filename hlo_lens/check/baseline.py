"""No change against a program that is known to be good, but for what is meant."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.check.allowing import (
    ADDED,
    CHANGED,
    INSTRUCTIONS,
    REMOVED,
    Allowed,
    Meant,
    allowed_change,
)
from hlo_lens.check.differing import (
    Differing,
    instruction_differences,
    row_differences,
    significant,
)
from hlo_lens.check.model import Verdict
from hlo_lens.diff import (
    NothingInCommonError,
    ProgramDiff,
    StageDiff,
    TableDiff,
    compare,
    stage_pairs,
)
from hlo_lens.diff.exact import elided_literals
from hlo_lens.diff.sections import section_of, summary_of
from hlo_lens.diff.values import ARROW, Sides
from hlo_lens.facts import FINDINGS, Facts
from hlo_lens.facts.findings import PASS_FAILED, PLUGIN_BROKEN
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import not_read
from hlo_lens.program import UNKNOWN

__all__ = ["Allowed", "allowed_change", "unchanged"]

_MOST_OFFENDERS: Final = 20
_MOST_SUMS: Final = 4
_MOST_COLUMNS: Final = 6  # that are named one by one


def unchanged(good: Facts, facts: Facts, allowed: Sequence[Allowed]) -> Iterator[Verdict]:
    """A verdict for each table that `diff` compares and one for the instructions, of each stage
    that both programs have, the one that runs first.

    A stage is not judged where one side cannot tell what the other does: a text that is cut off or
    has no op_names, shapes of whole arrays against those of one device, a stage that is not there.
    Raises `InputError` for a condition of `allowed` that cannot be read.
    """
    meant = Meant(good, facts, allowed)
    try:
        pairs = stage_pairs(good.program, facts.program)
    except NothingInCommonError as problem:
        yield _not_judged("unchanged", good, None, str(problem))
        return
    why = {(at, to): _why_not(good, facts, at, to) for _, at, to in pairs}
    if None in why.values():
        diff = compare(good, facts)
        stages = [
            _Stage(diff, one, meant)
            for one in sorted(diff.stages, key=lambda one: one is not diff.main)
            if why[one.old, one.new] is None
        ]
        for one in stages:  # what is met in one stage is worth allowing in all
            one.sort_out()
        for one in stages:
            yield from one.verdicts()
    for (at, _), reason in why.items():
        if reason is not None:
            yield _not_judged(_id("unchanged", good, at), good, at, reason)
    both = good.program.stages[pairs[0][1]]
    for at, name in enumerate(good.program.stages):
        if at not in {position for position, _ in why}:
            reason = f"this program has no {name}; --stage {both} compares what both have"
            yield _not_judged(_id("unchanged", good, at), good, at, visible(reason))


def _why_not(good: Facts, facts: Facts, at: int, to: int) -> str | None:
    """Why two modules cannot be compared so that no difference means that there is none."""
    sides = (("the baseline", good, at), ("this program", facts, to))
    modules = [one.program.modules[position] for _, one, position in sides]
    for (who, *_), module in zip(sides, modules, strict=True):
        if module.truncated:
            return f"the text of {who} is cut off: what stands behind the cut is not known"
    named = [module.has_metadata for module in modules]
    if named[0] != named[1]:
        who = sides[named[0]][0]
        return (
            f"the text of {who} has no op_names, the other has: phases, what is kept and what is"
            " replayed are not known there"
        )
    stages = [one.program.stages[position] for _, one, position in sides]
    if stages[0] != stages[1] and UNKNOWN not in stages:
        return visible(f"the baseline is {stages[0]}, this program is {stages[1]}")
    scopes = [
        row["size_scope"]
        for _, one, position in sides
        for row in one.records_by_module("modules").get(position, ())
        if row["size_scope"] is not None
    ]
    if len(set(scopes)) > 1:
        return f"the shapes of the baseline are {scopes[0]}, those of this program {scopes[1]}"
    return None


# ---------------------------------------------------------------------------------- a stage


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What differs of a table: the rows that may not, each with the parts that may not; the parts
    of each row that differs as it may; and the number of rows that do not differ."""

    table: str
    left: tuple[tuple[Differing, frozenset[str]], ...]
    as_allowed: tuple[frozenset[str], ...]
    same: int


class _Stage:
    """One stage of both programs."""

    def __init__(self, diff: ProgramDiff, stage: StageDiff, meant: Meant) -> None:
        self.diff, self.stage, self.meant = diff, stage, meant
        self.sides = Sides(diff, stage)
        self.outcomes: dict[str, _Outcome] = {}

    def sort_out(self) -> None:
        """Tell what may differ from what may not."""
        for one in self.stage.tables:
            its = row_differences(self.sides, one)
            self._sort_out(one.table.name, its, one.unchanged)
        matching = self.stage.matching
        its = instruction_differences(matching, self.stage.old, self.stage.new)
        self._sort_out(INSTRUCTIONS, its, matching.matched - len(matching.changed))

    def _sort_out(self, table: str, differing: Iterable[Differing], same: int) -> None:
        left: list[tuple[Differing, frozenset[str]]] = []
        as_allowed: list[frozenset[str]] = []
        for one in differing:
            parts = self.meant.left(table, one.parts, one.old, one.new)
            if parts:
                left.append((one, parts))
            else:
                as_allowed.append(one.parts)
        self.outcomes[table] = _Outcome(table, tuple(left), tuple(as_allowed), same)

    def verdicts(self) -> Iterator[Verdict]:
        for one in self.stage.tables:
            yield self._verdict(one.table.name, one)
        yield self._verdict(INSTRUCTIONS, None)

    def _verdict(self, table: str, one: TableDiff | None) -> Verdict:
        id = _id(f"unchanged-{table}", self.diff.old, self.stage.old)
        if (why := self._not_known(table)) is not None:
            return _not_judged(id, self.diff.old, self.stage.old, why, table)
        outcome = self.outcomes[table]
        failed = bool(outcome.left)
        return Verdict(
            id,
            "baseline",
            "failed" if failed else "passed",
            _expected(self.diff.old, self.stage.old, table, self.meant.of(table)),
            self._found(outcome, one),
            offenders=tuple(each.told(parts) for each, parts in outcome.left[:_MOST_OFFENDERS]),
            against=len(outcome.left),
            nearest=f"it passes with --allow-change {_covering(outcome)}" if failed else "",
            command=self._command(table) if failed else "",
            module=self.stage.new,
        )

    def _not_known(self, table: str) -> str | None:
        """Why it is not known what there is on one of the sides, or what is allowed."""
        sides = (self.diff.old, self.diff.new)
        if table == FINDINGS.name:
            for side in sides:
                for finding in side.findings:
                    if finding.rule in (PASS_FAILED.id, PLUGIN_BROKEN.id):
                        return finding.message
        elif table != INSTRUCTIONS:
            for side in sides:
                if (problem := not_read(side, table)) is not None:
                    return problem
        return self.meant.unknown(table)

    # --- words ---

    def _found(self, outcome: _Outcome, one: TableDiff | None) -> str:
        told = [_counts(parts for _, parts in outcome.left)]
        if outcome.as_allowed:
            told.append(f"{_counts(outcome.as_allowed)}, as allowed")
        if outcome.left:
            told += [f"{count_text(outcome.same)} unchanged"] if outcome.same else []
            told += [", ".join(self._sums(one))] if one is not None else []
        else:
            told += [
                f"--allow-change {visible(_quoted(idle))} was not needed"
                for idle in self.meant.not_there(outcome.table)
            ]
            told += [self._elided()] if one is None else []
        return "; ".join(filter(None, told))

    def _sums(self, one: TableDiff) -> Iterator[str]:
        """What differs of the table in sum."""
        summary = summary_of(one.table)
        if summary.heads:
            return
        for its in section_of(self.sides, one, summary).sums[:_MOST_SUMS]:
            share = f" ({its.share})" if its.share else ""
            yield f"{its.label} {its.old}{ARROW}{its.new}{share}"

    def _elided(self) -> str:
        """What no comparison of instructions sees."""
        number = elided_literals(self.stage.matching.old)
        if not number:
            return ""
        noun = (
            "literal that the text elides is"
            if number == 1
            else "literals that the text elides are"
        )
        return f"{count_text(number)} {noun} not compared"

    def _command(self, table: str) -> str:
        sides = (
            (self.diff.old, self.stage.old, "GOOD"),
            (self.diff.new, self.stage.new, "NEW"),
        )
        files = []
        for facts, at, word in sides:
            file = facts.program.modules[at].filename or ""
            is_file = file and not file.startswith("<")
            files.append(visible(shlex.quote(file)) if is_file else word)
        only = "" if table == INSTRUCTIONS else f"--only {table} "
        return f"hlolens diff {' '.join(files)} {only}--limit 0"


def _counts(left: Iterable[frozenset[str]]) -> str:
    """`1 removed, 2 added, 3 changed`."""
    words = Counter(next(iter(parts & {ADDED, REMOVED}), CHANGED) for parts in left)
    return ", ".join(
        f"{count_text(words[word])} {word}" for word in (REMOVED, ADDED, CHANGED) if words[word]
    )


def _covering(outcome: _Outcome) -> str:
    """The argument of --allow-change that would allow all that differs."""
    words: set[str] = set()
    columns: dict[str, None] = {}
    for _, parts in outcome.left:
        if parts <= {ADDED, REMOVED, CHANGED}:
            words |= parts
        else:
            columns.update(dict.fromkeys(sorted(significant(parts))))
    if len(columns) > _MOST_COLUMNS:
        words, columns = words | {CHANGED}, {}
    if words == {ADDED, REMOVED, CHANGED}:
        return outcome.table
    return f"{outcome.table}:{','.join((*sorted(words), *columns))}"


def _expected(good: Facts, at: int | None, table: str, allowed: Sequence[Allowed]) -> str:
    but = f", but for {' and '.join(map(str, allowed))}" if allowed else ""
    return visible(f"{table} as in {_file(good, at)}{but}")


def _not_judged(id: str, good: Facts, at: int | None, why: str, table: str = "") -> Verdict:
    return Verdict(
        id, "baseline", "not judged", _expected(good, at, table or "the same", ()), "", why=why
    )


def _id(id: str, good: Facts, at: int) -> str:
    """With the stage, where that is not the one that runs."""
    program = good.program
    return id if program.modules[at] is program.main else visible(f"{id}-{program.stages[at]}")


def _file(facts: Facts, at: int | None) -> str:
    """The file of a module, of the one that runs for None."""
    program = facts.program
    return (program.main if at is None else program.modules[at]).filename or "the baseline"


def _quoted(allowed: Allowed) -> str:
    return f'"{allowed}"' if allowed.where else str(allowed)
