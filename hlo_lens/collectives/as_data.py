"""A report on collectives as data: exact numbers, for JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hlo_lens.collectives.report import Group, Report
from hlo_lens.collectives.rows import HIDING, Sums
from hlo_lens.facts import SCHEMA_VERSION
from hlo_lens.present.findings import finding_data
from hlo_lens.present.groups import NO_LOOP
from hlo_lens.present.quantities import UNKNOWN, Bounds


def as_data(report: Report) -> dict[str, object]:
    """`{"schema_version", "name", "module", "stage", "spec", "by", "total", "groups",
    "groups_of", "overlap", "collectives", "findings"}`.

    A sum is a number, null where nothing is known of it, or {"min", "max"} where only bounds are,
    "max" null for none. Bytes and runs are of one step and device, times estimates in µs.
    "collectives" has every row, with the columns of collectives and collective_costs, in order of
    rank.
    """
    found = report.joined
    program = found.facts.program
    records = found.records()
    for record in records:
        _decode(record, report)
    one = records[0] if records else {}
    return {
        "schema_version": SCHEMA_VERSION,
        "name": program.name,
        "module": found.module,
        "stage": program.stages[found.module],
        "spec": {"name": one.get("spec"), "from": one.get("spec_from")},
        "by": list(names_of(report)),
        "total": sums_data(report.total),
        "groups": [_group(report, group) for group in report.groups],
        "groups_of": "arrays" if report.of_arrays else "collectives",
        "overlap": [
            dict(zip(("loop", "phase"), map(_known, group.keys), strict=True))
            | sums_data(group.sums)
            for group in report.overlap
        ],
        "collectives": records,
        "findings": [finding_data(finding) for finding in report.findings],
    }


def names_of(report: Report) -> tuple[str, ...]:
    """What the groups are by: columns of the table."""
    return tuple(name for cell in report.by for name in cell.columns)


def _keys(report: Report, group: Group) -> dict[str, object]:
    """The values of a group's columns, as the table has them; of a reference, such as a loop, what
    a reader calls it."""
    keys: dict[str, object] = {}
    values = iter(group.values)
    for cell, text in zip(report.by, group.keys, strict=True):
        for name in cell.columns:
            value, type = next(values), report.joined.table.column(name).type
            if type == "ref" and (value is not None or text == NO_LOOP):
                value = text
            keys[name] = value
    return keys


def _group(report: Report, group: Group) -> dict[str, object]:
    keys = _keys(report, group)
    _decode(keys, report)
    return keys | sums_data(group.sums)


def _decode(values: dict[str, object], report: Report) -> None:
    """JSON columns as JSON values."""
    for column in report.joined.table.columns:
        text = values.get(column.name)
        if column.type == "json" and isinstance(text, str):
            values[column.name] = json.loads(text)


def _known(text: str) -> str | None:
    return None if text == UNKNOWN else text


def sums_data(sums: Sums) -> dict[str, object]:
    """The sums by name."""
    return {
        "count": sums.rows,
        "runs": _number(sums.runs),
        "sent_bytes": _number(sums.sent),
        **{
            f"{'exposed' if by == 'nothing' else f'over_{by}_work'}_bytes": _number(part)
            for by, part in zip(HIDING, sums.hidden, strict=True)
        },
        "estimate_us": _number(sums.time, 1000),
        "exposed_us": _number(sums.exposed, 1000),
    }


def _number(bounds: Bounds | None, per: int = 1) -> object:
    if bounds is None:
        return None
    low, high = bounds.low, bounds.high
    if per != 1:
        lower, upper = low / per, None if high is None else high / per
        return lower if lower == upper else {"min": lower, "max": upper}
    return low if low == high else {"min": low, "max": high}


def as_columns(report: Report) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """The groups as one table: a row a group, bounds as two columns."""
    names = [*names_of(report), "count"]
    kinds = ("runs", "sent_bytes", "exposed_bytes", "over_light_work_bytes",
             "over_heavy_work_bytes", "estimate_us", "exposed_us")  # fmt: skip
    names += [f"{kind}{end}" for kind in kinds for end in ("_min", "_max")]
    rows = []
    for group in report.groups:
        data = sums_data(group.sums)
        keys = _keys(report, group).values()
        cells: list[object] = [int(key) if isinstance(key, bool) else key for key in keys]
        cells.append(data["count"])
        for kind in kinds:
            cells += _ends(data[kind])
        rows.append(tuple(cells))
    return tuple(names), rows


def _ends(value: object) -> Sequence[object]:
    if isinstance(value, dict):
        return value["min"], value["max"]
    return value, value
