"""A report as data: the full rows of tables, exact, and the findings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from hlo_lens.facts import SCHEMA_VERSION, Facts, Table
from hlo_lens.inspect.report import Told, findings, summaries


def as_data(programs: Iterable[Facts], tables: Sequence[str] | None = None) -> dict[str, object]:
    """`{"schema_version", "programs": [{"name", "modules", "tables", "findings"}, …]}`.

    `modules`: position, name, stage and file of each, and whether it is the one that runs.
    `tables`: name → rows, each a mapping from column name; of the tables named, or of all that have
    a summary. A `refs` or `json` column is a JSON value, a bool is true or false, NULL is null.
    `findings`: of the passes that ran for that.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "programs": [_program(facts, tables) for facts in programs],
    }


def _program(facts: Facts, names: Sequence[str] | None) -> dict[str, object]:
    if names is None:
        tables = [table for table, _ in summaries(facts)]
        told = list(findings(facts))
    else:
        tables = [facts.table(name) for name in names]
        told = []
    program = facts.program
    rows = {table.name: records(facts, table) for table in tables}
    if names is not None:
        told = list(findings(facts))
    return {
        "name": program.name,
        "modules": [
            {
                "module": position,
                "name": module.name,
                "stage": stage,
                "file": module.filename,
                "main": module is program.main,
            }
            for position, (module, stage) in enumerate(
                zip(program.modules, program.stages, strict=True)
            )
        ],
        "tables": rows,
        "findings": [_finding(one) for one in told],
    }


def records(facts: Facts, table: Table) -> list[dict[str, object]]:
    """The rows of a table as JSON holds them."""
    rows = facts.records(table.name)
    texts = [column.name for column in table.columns if column.type == "json"]
    for row in rows if texts else ():
        for name in texts:
            value = row[name]
            if isinstance(value, str):
                row[name] = json.loads(value)
    return rows


def _finding(told: Told) -> dict[str, object]:
    finding = told.finding
    return {
        "rule": finding.rule,
        "level": finding.level,
        "message": finding.message,
        "module": finding.module,
        "instr": finding.instr,
        "name": told.name,
        "source": told.source,
        "text_line": told.text_line,
        "evidence": [list(row) for row in finding.evidence],
        "help": finding.help,
    }
