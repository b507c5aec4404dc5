"""A comparison as data: every row that differs, exact, in a shape that stays."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hlo_lens.analysis import Loop
from hlo_lens.diff.changes import aspects
from hlo_lens.diff.exact import By, Parting, Place, elided_literals
from hlo_lens.diff.exact_report import Stage
from hlo_lens.diff.model import (
    BodyDelta,
    ChangedRow,
    Matching,
    ProgramDiff,
    Row,
    StageDiff,
    TableDiff,
)
from hlo_lens.diff.sections import amounts
from hlo_lens.diff.values import Sides
from hlo_lens.facts import SCHEMA_VERSION, Table
from hlo_lens.hlo import Instruction
from hlo_lens.present.quantities import Bounds
from hlo_lens.program import Program

DIFF_VERSION = 1
"""Raised when a key changes its meaning or goes; not when one is added."""


def as_data(diff: ProgramDiff, *, limit: int = 0) -> dict[str, object]:
    """A comparison as JSON holds it.

        {"diff_version", "schema_version", "same", "old": SIDE, "new": SIDE,
         "only_old": [STAGE NAME], "only_new": […],
         "stages": [{"stage", "same", "old_module", "new_module",
                     "instructions": {"matched", "only_old", "only_new", "changed"},
                     "tables": [{"table", "unchanged", "sums", "removed", "added", "changed"}],
                     "loops": [{"old", "new", "unchanged", "counts"}]}]}

    `sums` are the measures that a report adds up over all rows of the table, `{"label", "how",
    "column", "old", "new"}`, where a side is `{"least", "most"}`: the same number where it is
    known, `most` null where there is no bound; null where nothing is known.
    `removed` and `added` are rows, as `hlolens inspect --format json` has them; a changed one is
    `{"old": row, "new": row, "changes": [{"column", "old", "new"}], "moved"}`, where `moved` is
    null or `{"old": LOOP, "new": LOOP}`. `only_old` and `only_new` of instructions are
    `{"id", "name", "opcode", "line"}`, and `changed` the matched ones that are not equal,
    `{"old", "new", "what": [what differs]}`. A loop is `{"name", "id", "trip_count"}`, and null
    where that side has none; both null is what stands outside of loops. `counts` are
    `{"opcode", "dtype", "shape", "old", "new"}`.

    With a `limit`, each list of rows, loops, counts and instructions holds that many at most, and
    the object that it is in has `"left_out"`: {KEY: how many more there are}.
    """
    return {
        "diff_version": DIFF_VERSION,
        "schema_version": SCHEMA_VERSION,
        "same": diff.same,
        "old": _side(diff.old.program),
        "new": _side(diff.new.program),
        "only_old": list(diff.only_old),
        "only_new": list(diff.only_new),
        "stages": [_stage(diff, stage, limit) for stage in diff.stages],
    }


def exact_data(by: By, old: Program, new: Program, stages: Sequence[Stage]) -> dict[str, object]:
    """An exact comparison as JSON holds it: of each stage, whether it is the same.

        {"diff_version", "exact": "program" or "text", "same", "old": SIDE, "new": SIDE,
         "stages": [{"stage", "same", "old_module", "new_module", "elided_literals", "parting"}]}

    `parting` is null, or `{"kind", "name", "message", "old", "new"}` with a place on each side,
    `{"computation", "line", "text", "column"}`, and null for a side that has ended.
    `elided_literals`: how many constants of the old text have no values in it.
    """
    return {
        "diff_version": DIFF_VERSION,
        "exact": by,
        "same": all(stage.parting is None for stage in stages),
        "old": _side(old),
        "new": _side(new),
        "stages": [
            {
                "stage": stage.name,
                "same": stage.parting is None,
                "old_module": old.index(stage.old),
                "new_module": new.index(stage.new),
                "elided_literals": elided_literals(stage.old),
                "parting": _parting(stage.parting),
            }
            for stage in stages
        ],
    }


def _side(program: Program) -> dict[str, object]:
    return {
        "name": program.name,
        "modules": [
            {"module": position, "name": module.name, "stage": stage, "file": module.filename}
            for position, (module, stage) in enumerate(
                zip(program.modules, program.stages, strict=True)
            )
        ],
    }


# ---------------------------------------------------------------------------------- a stage


def _stage(diff: ProgramDiff, stage: StageDiff, limit: int) -> dict[str, object]:
    matching = stage.matching
    bodies = [body for body in stage.bodies if not body.same]
    sides = Sides(diff, stage)
    return _limited(
        {
            "stage": diff.old.program.stages[stage.old],
            "same": stage.same,
            "old_module": stage.old,
            "new_module": stage.new,
            "instructions": _limited(
                {
                    "matched": matching.matched,
                    "only_old": list(map(_instruction, matching.only_old)),
                    "only_new": list(map(_instruction, matching.only_new)),
                    "changed": [_pair(matching, *pair) for pair in matching.changed],
                },
                limit,
            ),
            "tables": [_table(sides, table, limit) for table in stage.tables],
            "loops": [_body(body, limit) for body in bodies],
        },
        limit,
        keep=("tables",),
    )


def _limited(data: dict[str, object], limit: int, *, keep: Sequence[str] = ()) -> dict[str, object]:
    """The object with its lists cut, and how much is left out."""
    left_out: dict[str, int] = {}
    for key, value in data.items() if limit else ():
        if isinstance(value, list) and key not in keep and len(value) > limit:
            left_out[key] = len(value) - limit
            data[key] = value[:limit]
    return {**data, "left_out": left_out} if limit else data


def _pair(matching: Matching, old: int, new: int) -> dict[str, object]:
    one, other = matching.old.instruction(old), matching.new.instruction(new)
    return {
        "old": _instruction(one),
        "new": _instruction(other),
        "what": [aspect.what for aspect in aspects(matching, one, other)],
    }


def _instruction(instruction: Instruction) -> dict[str, object]:
    return {
        "id": instruction.id,
        "name": instruction.name,
        "opcode": instruction.opcode,
        "line": instruction.text_line,
    }


def _table(sides: Sides, one: TableDiff, limit: int) -> dict[str, object]:
    return _limited(
        {
            "table": one.table.name,
            "unchanged": one.unchanged,
            "sums": [
                {
                    "label": measure.label,
                    "how": measure.how,
                    "column": measure.column,
                    "old": _bounds(old),
                    "new": _bounds(new),
                }
                for measure, old, new in amounts(sides, one.table)
            ],
            "removed": [_row(one.table, row) for row in one.removed],
            "added": [_row(one.table, row) for row in one.added],
            "changed": [_changed(one.table, row) for row in one.changed],
        },
        limit,
        keep=("sums",),
    )


def _bounds(bounds: Bounds | None) -> dict[str, object] | None:
    return None if bounds is None else {"least": bounds.low, "most": bounds.high}


def _changed(table: Table, changed: ChangedRow) -> dict[str, object]:
    moved = changed.moved
    return {
        "old": _row(table, changed.old),
        "new": _row(table, changed.new),
        "changes": [
            {
                "column": change.column.name,
                "old": _value(change.column.type, change.old),
                "new": _value(change.column.type, change.new),
            }
            for change in changed.changes
        ],
        "moved": None if moved is None else {"old": _loop(moved.old), "new": _loop(moved.new)},
    }


def _row(table: Table, row: Row) -> dict[str, object]:
    return {
        column.name: _value(column.type, value)
        for column, value in zip(table.columns, row, strict=True)
    }


def _value(type: str, value: object) -> object:
    return json.loads(value) if type == "json" and isinstance(value, str) else value


def _body(body: BodyDelta, limit: int) -> dict[str, object]:
    counts = [
        {
            "opcode": one.opcode,
            "dtype": one.dtype,
            "shape": one.shape,
            "old": one.old,
            "new": one.new,
        }
        for one in body.counts
    ]
    return _limited(
        {
            "old": _loop(body.old),
            "new": _loop(body.new),
            "unchanged": body.unchanged,
            "counts": counts,
        },
        limit,
    )


def _loop(loop: Loop | None) -> dict[str, object] | None:
    if loop is None:
        return None
    return {"name": loop.instr.name, "id": loop.instr.id, "trip_count": loop.trip_count}


def _parting(parting: Parting | None) -> dict[str, object] | None:
    if parting is None:
        return None
    return {
        "kind": parting.kind,
        "name": parting.name,
        "message": parting.message,
        "old": _place(parting.old),
        "new": _place(parting.new),
    }


def _place(place: Place | None) -> dict[str, object] | None:
    if place is None:
        return None
    return {
        "computation": place.computation,
        "line": place.line,
        "text": place.text,
        "column": place.column,
    }
