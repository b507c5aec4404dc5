"""What changed between two programs: rows matched by structure, not by names."""

from __future__ import annotations

from collections.abc import Collection

from hlo_lens.diff.model import (
    BodyDelta,
    Change,
    ChangedRow,
    Count,
    Matching,
    Move,
    ProgramDiff,
    Row,
    StageDiff,
    TableDiff,
)
from hlo_lens.facts import Facts
from hlo_lens.program import Program

__all__ = [
    "BodyDelta",
    "Change",
    "ChangedRow",
    "Count",
    "Matching",
    "Move",
    "ProgramDiff",
    "Row",
    "StageDiff",
    "TableDiff",
    "compare",
]


def compare(
    old: Program | Facts,
    new: Program | Facts,
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    stages: Collection[str] | None = None,
) -> ProgramDiff:
    """What differs between two programs: tables, loop bodies and matched instructions, a stage at
    a time.

    only: the tables that are compared, any there are; without it, those that a report shows (they
    have a summary) and the findings. ignore: tables that are left out. stages: the stages that are
    compared, by name; without it, all that both sides have. Two programs of one module each are
    compared whatever their stages are called.

    Raises `UnknownTableError`, with a suggestion, for a name in `only` or `ignore` that is no
    table; `NothingInCommonError`, with what each side has, where no stage is on both sides.
    """
    raise NotImplementedError
