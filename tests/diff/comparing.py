"""Texts and files compared, and what differs of a table as tuples of values."""

from __future__ import annotations

from pathlib import Path

from fixtures.building import HLO
from fixtures.cases import folder_name
from hlo_lens.diff import ProgramDiff, TableDiff, compare
from hlo_lens.diff.matching import match
from hlo_lens.diff.model import Matching
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load

AFTER = "after_optimizations"


def program(text: str) -> Program:
    """A program of one module."""
    return Program([parse(text)])


def diff(old: str, new: str, *only: str, ignore: tuple[str, ...] = ()) -> ProgramDiff:
    """Two texts compared."""
    return compare(program(old), program(new), only=only, ignore=ignore)


def diff_cases(old: str, new: str, target: str, stage: str = AFTER, *only: str) -> ProgramDiff:
    """One stage of two committed cases compared, such as "pairs/unsort-scatter"."""
    files = [case_file(case, target, stage) for case in (old, new)]
    return compare(*(load(file, stage=stage) for file in files), only=only)


def case_file(case: str, target: str, stage: str = AFTER) -> Path:
    """The text of a stage of a committed case."""
    return HLO / case / folder_name(target) / f"{stage}.txt"


def matched(old: str, new: str) -> Matching:
    """The instructions of two texts matched."""
    programs = [program(text) for text in (old, new)]
    return match(*(one.analysis(one.main) for one in programs))


def partners(found: Matching) -> dict[str, str]:
    """The name of the partner by the name of each old instruction that has one."""
    return {
        found.old.instruction(at).name: found.new.instruction(its).name
        for at, its in enumerate(found.to_new)
        if its is not None
    }


def names(found: Matching) -> tuple[list[str], list[str], list[str]]:
    """Names of the instructions that only the old has, only the new has, and that changed."""
    return (
        [one.name for one in found.only_old],
        [one.name for one in found.only_new],
        [found.old.instruction(at).name for at, _ in found.changed],
    )


def table(found: ProgramDiff, name: str) -> TableDiff:
    """The diff of a table of the only stage."""
    (stage,) = found.stages
    return stage.table(name)


def removed(found: ProgramDiff, name: str, *columns: str) -> list[tuple[object, ...]]:
    """The values of the rows that are gone, sorted."""
    its = table(found, name)
    return sorted((_values(its, row, columns) for row in its.removed), key=repr)


def added(found: ProgramDiff, name: str, *columns: str) -> list[tuple[object, ...]]:
    """The values of the rows that are new, sorted."""
    its = table(found, name)
    return sorted((_values(its, row, columns) for row in its.added), key=repr)


def changes(found: ProgramDiff, name: str, column: str) -> list[tuple[object, object]]:
    """The old and new values of a column, where it changed, sorted."""
    return sorted(
        (
            (change.old, change.new)
            for row in table(found, name).changed
            for change in row.changes
            if change.column.name == column
        ),
        key=repr,
    )


def moves(
    found: ProgramDiff, name: str, column: str
) -> list[tuple[object, str | None, str | None]]:
    """Of the rows that moved a column's value, and the names of the old and the new loop."""
    its = table(found, name)
    return sorted(
        (
            (
                its.record(row.new)[column],
                row.moved.old and row.moved.old.instr.name,
                row.moved.new and row.moved.new.instr.name,
            )
            for row in its.changed
            if row.moved is not None
        ),
        key=repr,
    )


def counts(found: ProgramDiff, loop: str | None, *opcodes: str) -> dict[tuple[str, str], int]:
    """By opcode and shape, how many more the new loop of that name has; None: outside of loops."""
    (stage,) = found.stages
    for body in stage.bodies:
        name = body.new.instr.name if body.new else None
        if name == loop and (body.new or body.outside):
            return {
                (one.opcode, one.shape or one.dtype): one.new - one.old
                for one in body.counts
                if not opcodes or one.opcode in opcodes
            }
    raise KeyError(loop)


def _values(
    its: TableDiff, row: tuple[object, ...], columns: tuple[str, ...]
) -> tuple[object, ...]:
    record = its.record(row)
    return tuple(record[column] for column in columns)
