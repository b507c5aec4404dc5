"""What a comparison says, before it is laid out: headline, sums that differ, rows, loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hlo_lens.diff.instructions import Body, InstructionLine, bodies, changed_instructions
from hlo_lens.diff.model import ProgramDiff, StageDiff
from hlo_lens.diff.sections import Section, section_of, summary_of
from hlo_lens.diff.values import ARROW, Sides
from hlo_lens.present.quantities import count_text, visible
from hlo_lens.present.reading import place_of


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage. same: titles of the tables in which nothing differs, with the number of rows."""

    stage: str
    counts: str
    sections: tuple[Section, ...]
    instructions: tuple[InstructionLine, ...]
    bodies: tuple[Body, ...]
    same: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiffReport:
    """All that is said about two programs; the stage that runs is the first of `stages`."""

    same: bool
    headline: str
    old: str
    new: str
    stages: tuple[StageReport, ...]
    notes: tuple[str, ...]


def report(diff: ProgramDiff, *, whole: bool = False) -> DiffReport:
    """What there is to say about a comparison; `whole`: of a row that changed all that did."""
    main = diff.main
    stages = sorted(diff.stages, key=lambda stage: stage is not main)
    return DiffReport(
        diff.same,
        _headline(diff),
        place_of(diff.old.program, [stage.old for stage in diff.stages]),
        place_of(diff.new.program, [stage.new for stage in diff.stages]),
        tuple(_stage(diff, stage, whole) for stage in stages),
        tuple(_notes(diff)),
    )


def _headline(diff: ProgramDiff) -> str:
    tables = [table for stage in diff.stages for table in stage.tables]
    same = sum(table.unchanged for table in tables)
    differ: Counter[str] = Counter()
    for table in tables:
        differ[summary_of(table.table).title] += (
            len(table.added) + len(table.removed) + len(table.changed)
        )
    compared = len(differ)
    differ["instructions"] = sum(
        len(matching.changed) + len(matching.only_old) + len(matching.only_new)
        for matching in (stage.matching for stage in diff.stages if stage.instructions_count)
    )
    apart = [f"{name} {count_text(number)}" for name, number in differ.items() if number]
    rows = f"{count_text(same)} row{'' if same == 1 else 's'}"
    if not apart:
        return f"same: {rows} of {compared} {'table' if compared == 1 else 'tables'}"
    return f"different: {', '.join(apart)}; {rows} the same"


def _notes(diff: ProgramDiff) -> Iterator[str]:
    for name, stages in (("old", diff.only_old), ("new", diff.only_new)):
        if stages:
            yield f"not compared, on the {name} side only: {', '.join(map(visible, stages))}"
    for name, facts in (("old", diff.old), ("new", diff.new)):
        if any(module.truncated for module in facts.program.modules):
            yield f"the {name} text is cut off: what is behind the cut counts as not there"
    told = [any(one.has_metadata for one in side.program.modules) for side in (diff.old, diff.new)]
    if told[0] != told[1]:
        name = "new" if told[0] else "old"
        yield (
            f"the {name} text has no op_names: what these tell, such as phases, values kept outside"
            " of loops and what is replayed, is not known there, and counts as not there"
        )


# ---------------------------------------------------------------------------------- a stage


def _stage(diff: ProgramDiff, stage: StageDiff, whole: bool) -> StageReport:
    summaries = {one.table.name: summary_of(one.table) for one in stage.tables}
    tables = sorted(stage.tables, key=lambda one: (summaries[one.table.name].order, one.table.name))
    sides = Sides(diff, stage)
    matching = stage.matching
    counts = f"{count_text(matching.matched - len(matching.changed))} instructions the same"
    for what, number in (
        ("changed", len(matching.changed)),
        ("only in old", len(matching.only_old)),
        ("only in new", len(matching.only_new)),
    ):
        if number:
            counts += f", {count_text(number)} {what}"
    instructions = stage.instructions_count
    names = dict.fromkeys((diff.old.program.stages[stage.old], diff.new.program.stages[stage.new]))
    return StageReport(
        ARROW.join(names),
        counts,
        tuple(
            section_of(sides, one, summaries[one.table.name], whole=whole)
            for one in tables
            if not one.same
        ),
        tuple(changed_instructions(matching)) if instructions else (),
        tuple(bodies([each for each in stage.bodies if not each.same])) if instructions else (),
        tuple(
            f"{summaries[one.table.name].title} {count_text(one.unchanged)}"
            for one in tables
            if one.same and one.unchanged
        ),
    )
