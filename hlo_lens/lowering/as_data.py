"""A report on lowerings as data: the rows of each table, with exact numbers, for JSON."""

from __future__ import annotations

import json

from hlo_lens.facts import SCHEMA_VERSION
from hlo_lens.lowering.report import Report
from hlo_lens.lowering.tables import TABLES, Lowered
from hlo_lens.present.findings import finding_data


def as_data(report: Report) -> dict[str, object]:
    """`{"schema_version", "name", "module", "stage", "answers", "tables", "before", "not_known",
    "findings"}`.

    "answers" are the sentences of the head by kind of work. "tables" has the rows of the module
    that runs by the name of the table, null for one that could not be read; "before" the same of
    the stage before optimization, null where the program has none. Columns are those of
    `hlolens schema`.
    """
    found = report.lowered
    program = found.facts.program
    return {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "module": found.module,
        "stage": program.stages[found.module],
        "answers": dict(report.answers),
        "tables": _tables(found, found.module),
        "before": None if found.before is None else _tables(found, found.before),
        "not_known": found.problems,
        "findings": [finding_data(finding) for finding in report.findings],
    }


def _tables(found: Lowered, module: int) -> dict[str, object]:
    data: dict[str, object] = {}
    for name in TABLES:
        rows = found.rows(name, module)
        if rows.table is None:
            data[name] = None
            continue
        as_json = {column.name for column in rows.table.columns if column.type == "json"}
        data[name] = [
            {
                column: json.loads(value) if column in as_json and isinstance(value, str) else value
                for column, value in record.items()
            }
            for record in rows.records()
        ]
    return data
