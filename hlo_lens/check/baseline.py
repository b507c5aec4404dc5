"""No change against a program that is known to be good, but for what is meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from hlo_lens.check.allowing import (
    ADDED,
    CHANGED,
    INSTRUCTIONS,
    REMOVED,
    Allowed,
    Meant,
    allowed_change,
)
from hlo_lens.check.comparable import (
    BASELINE,
    THIS,
    lone_side_files,
    why_not,
    without_lone_side_files,
)
from hlo_lens.check.counting import rows_text
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
from hlo_lens.facts.findings import MACHINERY
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import file_argument, not_read

__all__ = ["Allowed", "allowed_change", "unchanged"]

_MOST_OFFENDERS: Final = 20
_MOST_SUMS: Final = 4
_MOST_COLUMNS: Final = 6  # that are named one by one

_Rows: TypeAlias = tuple[tuple[Differing, frozenset[str]], ...]
"""Rows that differ, each with the parts that matter."""


def unchanged(good: Facts, facts: Facts, allowed: Sequence[Allowed]) -> Iterator[Verdict]:
    """A verdict for each table that `diff` compares and one for the instructions, of each stage
    that both programs have, the one that runs first.

    A stage of `good` is not judged where one side cannot tell what the other does: a text that is
    not whole or has no op_names, shapes of whole arrays against those of one device, a stage that
    is not there. A table is not where rows differ only in what one side does not know. Stages that
    `facts` alone has are told. Raises `InputError` for a condition of `allowed` that cannot be
    read.
    """
    meant = Meant(good, facts, allowed)
    try:
        pairs = stage_pairs(good.program, facts.program)
    except NothingInCommonError:
        has = (
            f"{who} has {', '.join(one.program.stages)}"
            for who, one in ((BASELINE, good), (THIS, facts))
        )
        why = visible(f"no stage in common: {'; '.join(has)}")
        yield _not_judged(good, None, why)
        return
    reasons = {(at, to): why_not(good, facts, at, to) for _, at, to in pairs}
    comparable = [pair for pair, reason in reasons.items() if reason is None]
    if comparable:
        verdicts = _verdicts(good, facts, comparable, meant)
        yield _with_lone_stages(next(verdicts), facts, {to for _, _, to in pairs})
        yield from verdicts
    for (at, _), reason in reasons.items():
        if reason is not None:
            yield _not_judged(good, at, reason)
    both = good.program.stages[pairs[0][1]]
    for at, name in enumerate(good.program.stages):
        if at not in {position for position, _ in reasons}:
            reason = f"{THIS} has no {name}; --stage {both} compares what both have"
            yield _not_judged(good, at, visible(reason))


def _verdicts(
    good: Facts, facts: Facts, pairs: Sequence[tuple[int, int]], meant: Meant
) -> Iterator[Verdict]:
    """Those on the stages that can be compared."""
    stages = _sorted_out(good, facts, pairs, meant)
    lone_files = lone_side_files(good, facts)
    if lone_files and any(outcome.left for one in stages for outcome in one.outcomes.values()):
        alike = without_lone_side_files(good, facts)
        plain = _sorted_out(*alike, pairs, Meant(*alike, meant.all))
        for one, its in zip(stages, plain, strict=True):
            one.leave_open(its)
    for one in stages:
        yield from one.verdicts(lone_files)


def _sorted_out(
    good: Facts, facts: Facts, pairs: Sequence[tuple[int, int]], meant: Meant
) -> list[_Stage]:
    diff = compare(good, facts)
    stages = [
        _Stage(diff, one, meant)
        for one in sorted(diff.stages, key=lambda one: one is not diff.main)
        if (one.old, one.new) in pairs
    ]
    for one in stages:  # what is met in one stage is worth allowing in all
        one.sort_out()
    return stages


def _with_lone_stages(verdict: Verdict, facts: Facts, compared: Collection[int]) -> Verdict:
    """The verdict, with the stages that the baseline says nothing about."""
    lone = [name for at, name in enumerate(facts.program.stages) if at not in compared]
    if not lone:
        return verdict
    told = visible(f"{BASELINE} has no {', '.join(lone)}: not compared")
    return replace(verdict, found="; ".join(filter(None, (verdict.found, told))))


# ---------------------------------------------------------------------------------- a stage


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What differs of a table: the rows that may not, and those of which that is not known, each
    with the parts that may not; the parts of each row that differs as it may; and the number of
    rows that do not differ. by_files: whether only side files make what is not known."""

    table: str
    left: _Rows
    open: _Rows
    as_allowed: tuple[frozenset[str], ...]
    same: int
    by_files: bool = False


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
        open: list[tuple[Differing, frozenset[str]]] = []
        as_allowed: list[frozenset[str]] = []
        for one in differing:
            parts, perhaps = self.meant.left(table, one.parts, one.old, one.new)
            if parts - one.unknown:
                left.append((one, parts | perhaps))
            elif parts or perhaps:
                open.append((one, parts | perhaps))
            else:
                as_allowed.append(one.parts)
        self.outcomes[table] = _Outcome(table, tuple(left), tuple(open), tuple(as_allowed), same)

    def leave_open(self, plain: _Stage) -> None:
        """Leave open what differs only by side files that one of the programs has. plain: the same
        stage without these."""
        for table, its in self.outcomes.items():
            if its.left and not plain.outcomes[table].left:
                open = (*its.left, *its.open)
                self.outcomes[table] = replace(its, left=(), open=open, by_files=True)

    def verdicts(self, lone_files: str) -> Iterator[Verdict]:
        for one in self.stage.tables:
            yield self._verdict(one.table.name, one, lone_files)
        yield self._verdict(INSTRUCTIONS, None, lone_files)

    def _verdict(self, table: str, one: TableDiff | None, lone_files: str) -> Verdict:
        good, at = self.diff.old, self.stage.old
        if (why := self._not_known(table)) is not None:
            return _not_judged(good, at, why, table)
        outcome = self.outcomes[table]
        rows = outcome.left or outcome.open
        passes = f"it passes with --allow-change {_covering(outcome)}" if rows else ""
        return Verdict(
            _id(good, at, table),
            "baseline",
            "failed" if outcome.left else "not judged" if outcome.open else "passed",
            _expected(good, at, table, self.meant.of(table)),
            self._found(outcome, one),
            why=_why_open(outcome, lone_files) if rows is outcome.open else "",
            offenders=tuple(each.told(parts) for each, parts in rows[:_MOST_OFFENDERS]),
            against=len(rows),
            nearest=passes,
            command=self._command(table) if rows else "",
            module=self.stage.new,
            table=table,
            stage=_stage(good, at),
        )

    def _not_known(self, table: str) -> str | None:
        """Why it is not known what there is on one of the sides, or what is allowed."""
        sides = (self.diff.old, self.diff.new)
        if table == FINDINGS.name:
            for side in sides:
                for finding in side.findings:
                    if finding.rule in MACHINERY:
                        return finding.message
        elif table != INSTRUCTIONS:
            for side in sides:
                if (problem := not_read(side, table)) is not None:
                    return problem
        return self.meant.unknown(table)

    # --- words ---

    def _found(self, outcome: _Outcome, one: TableDiff | None) -> str:
        told = [_counts(parts for _, parts in outcome.left)]
        if outcome.open:
            told.append(f"perhaps {_counts(parts for _, parts in outcome.open)}")
        if outcome.as_allowed:
            told.append(f"{_counts(outcome.as_allowed)}, as allowed")
        if outcome.left or outcome.open:
            told += [f"{count_text(outcome.same)} unchanged"] if outcome.same else []
            told += [", ".join(self._sums(one))] if outcome.left and one is not None else []
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
            files.append(file_argument(facts.program.modules[at].filename, word))
        only = "" if table == INSTRUCTIONS else f"--only {table} "
        return f"hlolens diff {' '.join(files)} {only}--limit 0"


def _counts(left: Iterable[frozenset[str]]) -> str:
    """`1 removed, 2 added, 3 changed`."""
    words = Counter(next(iter(parts & {ADDED, REMOVED}), CHANGED) for parts in left)
    return ", ".join(
        f"{count_text(words[word])} {word}" for word in (REMOVED, ADDED, CHANGED) if words[word]
    )


def _why_open(outcome: _Outcome, lone_files: str) -> str:
    """Why it is not known whether rows differ as they may not."""
    if outcome.by_files:
        return f"what differs only a side file tells: {lone_files}"
    told = []
    unknown = [parts & one.unknown for one, parts in outcome.open if parts & one.unknown]
    if unknown:
        names = ", ".join(sorted(significant(frozenset().union(*unknown))))
        told.append(f"{names} of {rows_text(len(unknown))}: one side does not know it")
        told += [lone_files] if lone_files else []
    unsure = sum(not parts <= one.unknown for one, parts in outcome.open)
    if unsure:
        told.append(
            f"whether the condition of --allow-change holds is not known of {rows_text(unsure)}"
        )
    return "; ".join(told)


def _covering(outcome: _Outcome) -> str:
    """The argument of --allow-change that would allow all that differs."""
    words: set[str] = set()
    columns: dict[str, None] = {}
    for _, parts in (*outcome.left, *outcome.open):
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


def _not_judged(good: Facts, at: int | None, why: str, table: str = "") -> Verdict:
    return Verdict(
        _id(good, at, table),
        "baseline",
        "not judged",
        _expected(good, at, table or "the same", ()),
        "",
        why=why,
        table=table,
        stage=_stage(good, at),
    )


def _id(good: Facts, at: int | None, table: str) -> str:
    return visible("-".join(filter(None, ("unchanged", table, _stage(good, at)))))


def _stage(good: Facts, at: int | None) -> str:
    """The stage, where it is not the one that runs."""
    program = good.program
    return "" if at is None or program.modules[at] is program.main else program.stages[at]


def _file(facts: Facts, at: int | None) -> str:
    """The file of a module, of the one that runs for None."""
    program = facts.program
    return (program.main if at is None else program.modules[at]).filename or "the baseline"


def _quoted(allowed: Allowed) -> str:
    return f'"{allowed}"' if allowed.where else str(allowed)
