"""A report on policies as data: whole rows, exact numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hlo_lens.facts import SCHEMA_VERSION, Facts
from hlo_lens.present.findings import finding_data
from hlo_lens.remat.joint import SIDES, Joint, Record, row_of
from hlo_lens.remat.report import findings_of, kept_rows

REMAT_VERSION = 1

_ANSWERS = ("residuals_smaller", "work_replayed", "peak_lower")


def joint_data(joint: Joint) -> dict[str, object]:
    """`{"remat_version", "schema_version", "holds", "answers", "notes", "baseline", "policy",
    "stages"}`.

    "holds" and each "answer" are true, false, or null for not known. "stages" are in the order of
    a compile, with the rows of the table checkpointing.
    """
    sides = dict(zip(SIDES, (joint.baseline, joint.policy), strict=True))
    return {
        "remat_version": REMAT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "holds": joint.holds,
        "answers": {
            name: {"answer": answer.yes, "why": answer.why}
            for name, answer in zip(_ANSWERS, joint.answers, strict=True)
        },
        "notes": list(joint.notes),
        **{name: _program(facts) for name, facts in sides.items()},
        "stages": [
            {"stage": stage.name, "baseline": dict(stage.baseline), "policy": dict(stage.policy)}
            for stage in joint.stages
        ],
    }


def program_data(facts: Facts) -> dict[str, object]:
    """`{"remat_version", "schema_version", "program", "stages"}`: of each stage the row of
    checkpointing, what is kept (rows of residuals), and the regions (rows of remat, each with its
    rows of remat_ops).

    Raises `NoAnswerError` where a pass failed.
    """
    return {
        "remat_version": REMAT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "program": _program(facts),
        "stages": [_stage(facts, module) for module in range(len(facts.program.modules))],
    }


def _program(facts: Facts) -> dict[str, object]:
    program = facts.program
    return {
        "name": program.name,
        "files": [module.filename for module in program.modules],
        "findings": [finding_data(finding) for finding in findings_of(facts)],
    }


def _stage(facts: Facts, module: int) -> Mapping[str, object]:
    def rows(table: str) -> list[Record]:
        return [row for row in facts.records(table) if row["module"] == module]

    names = facts.table("residuals").names
    operations: dict[object, list[Record]] = {}
    for row in rows("remat_ops"):
        operations.setdefault(row["region"], []).append(row)
    return {
        "stage": facts.program.stages[module],
        "checkpointing": row_of(facts, module),
        "kept": [dict(zip(names, row, strict=True)) for row in kept_rows(facts, module)],
        "regions": [row | {"operations": operations.get(row["id"], [])} for row in rows("remat")],
    }
