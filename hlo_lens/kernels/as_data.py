"""A report on kernels as data: exact numbers, for JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress

from hlo_lens.facts import SCHEMA_VERSION, Measure
from hlo_lens.kernels.report import SUMMARY, Report
from hlo_lens.kernels.rows import Kernels
from hlo_lens.present.cells import Row
from hlo_lens.present.findings import finding_data
from hlo_lens.present.groups import Group, total, total_runs
from hlo_lens.present.quantities import Bounds

_KEYS = tuple(name for cell in SUMMARY.by for name in cell.columns)
_STEP = "flops_per_step"
_SIZES = ("flops", "workspace_bytes", "scoped_memory_bytes")


def as_data(report: Report) -> dict[str, object]:
    """`{"schema_version", "name", "module", "stage", "answer", "groups", "kernels", "left_out",
    "findings"}`.

    "answer" is true or false where something was asked for, else null. A group has the runs and the
    FLOP of a step: a number, {"min", "max"} where only bounds are known ("max" null for none), null
    where nothing is; "flops" is of one run. "kernels" are the distinct ones, each with its "calls":
    rows of the table kernels with the columns that custom_calls has besides ("custom_call" is the
    id there), sizes of the first matmul and the ids of all in matmuls ("matmul_rows").
    """
    found = report.kernels
    program = found.facts.program
    return {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "module": found.module,
        "stage": program.stages[found.module],
        "answer": report.answer,
        "groups": [_group(report, group) for group in report.groups],
        "kernels": [
            {
                "op": one.record.get("op"),
                "family": one.record.get("family"),
                "name": one.record.get("called"),
                "is_fusion": one.record["is_fusion"],
                "runs": _runs(found, one.rows),
                "calls": [_call(found.record(row)) for row in one.rows],
            }
            for one in report.contracts
        ],
        "left_out": len(found.shown) - len(report.rows),
        "findings": [finding_data(finding) for finding in report.findings],
    }


def _group(report: Report, group: Group) -> dict[str, object]:
    found, first = report.kernels, group.rows[0]
    keys = {name: found.value(first, name) for name in _KEYS}
    if keys["loop"] is not None or found.value(first, "loop_depth") == 0:
        keys["loop"] = group.keys[_KEYS.index("loop")]  # what a reader calls it
    sizes = {name: _range(found.value(row, name) for row in group.rows) for name in _SIZES}
    numbers = {"runs": _runs(found, group.rows), _STEP: _flops(found, group.rows)}
    return keys | {"calls": len(group.rows)} | numbers | sizes


def _runs(found: Kernels, rows: Iterable[Row]) -> object:
    return _bounds(total_runs(found.table, list(rows)))


def _flops(found: Kernels, rows: Sequence[Row]) -> object:
    return _bounds(total(found.table, Measure("FLOP", "per_step", "flops"), rows))


def _bounds(bounds: Bounds | None) -> object:
    if bounds is None:
        return None
    return bounds.low if bounds.is_exact else {"min": bounds.low, "max": bounds.high}


def _range(values: Iterable[object]) -> object:
    known = [one for one in values if isinstance(one, int)]
    if not known:
        return None
    low, high = min(known), max(known)
    return low if low == high else {"min": low, "max": high}


def _call(record: dict[str, object]) -> dict[str, object]:
    """A record with JSON columns as JSON values."""
    found: dict[str, object] = {}
    for name, data in record.items():
        if isinstance(data, str) and data[:1] in ("[", "{"):
            with suppress(ValueError):
                data = json.loads(data)
        found[name] = data
    return found


def as_columns(report: Report) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """The groups as one table: a row a group, bounds as two columns."""
    names = [*_KEYS, "calls"]
    numbers = ("runs", _STEP, *_SIZES)
    names += [f"{name}{end}" for name in numbers for end in ("_min", "_max")]
    rows = []
    for group in report.groups:
        data = _group(report, group)
        cells = [data[name] for name in (*_KEYS, "calls")]
        for name in numbers:
            number = data[name]
            if isinstance(number, dict):
                cells += [number["min"], number["max"]]
            else:
                cells += [number, number]
        rows.append(tuple(cells))
    return tuple(names), rows
