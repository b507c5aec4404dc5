"""What changed between two programs: rows matched by structure, not by names."""

from __future__ import annotations

from hlo_lens.diff.comparing import NothingInCommonError, compare, stage_pairs
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

__all__ = [
    "BodyDelta",
    "Change",
    "ChangedRow",
    "Count",
    "Matching",
    "Move",
    "NothingInCommonError",
    "ProgramDiff",
    "Row",
    "StageDiff",
    "TableDiff",
    "compare",
    "stage_pairs",
]
