"""The skeleton as data: nodes and items as they nest, each item with its row."""

from __future__ import annotations

import json

from hlo_lens.facts import SCHEMA_VERSION
from hlo_lens.present.quantities import Bounds
from hlo_lens.tree.skeleton import Item, Node, Skeleton, Total


def as_data(found: Skeleton) -> dict[str, object]:
    """`{"schema_version", "name", "stage", "is_scheduled", "truncated", "roots": [node],
    "totals": [{…}]}`.

    A node has `kind`, `name` of what calls it, `computation`, `phase`, `executions…`, for a loop
    `trip_count…`, and `items` and `children`; `omitted` says why these are left out: `again` where
    they stand at an earlier call of the computation, `deep` where they are nested too deep. An item
    (`"kind": "item"`) has `lane`, `table`, `row` (that row, whole), `name` of the instruction it
    stands at, `text`, and `total…`.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "name": found.name,
        "stage": found.stage,
        "is_scheduled": found.is_scheduled,
        "truncated": found.truncated,
        "roots": [_node(node) for node in found.roots],
        "totals": [_total(each) for each in found.totals],
    }


def _node(node: Node) -> dict[str, object]:
    data: dict[str, object] = {
        "kind": node.kind,
        "name": None if node.instr is None else node.instr.name,
        "instr": None if node.instr is None else node.instr.id,
        "computation": None if node.computation is None else node.computation.name,
        "phase": node.phase,
        **_bounds("executions", node.runs),
    }
    if node.loop is not None:
        data |= {
            "trip_count": node.loop.trip_count,
            "trip_count_max": node.loop.trips.most,
            "trips_kind": node.loop.trips_kind,
        }
    if node.omitted is not None:
        data["omitted"] = node.omitted
    return data | {
        "items": [_item(item) for item in node.items],
        "children": [
            _item(child) if isinstance(child, Item) else _node(child) for child in node.children
        ],
    }


def _item(item: Item) -> dict[str, object]:
    row = dict(zip(item.table.names, item.row, strict=True))
    for column in item.table.columns:
        value = row[column.name]
        if column.type == "json" and isinstance(value, str):
            row[column.name] = json.loads(value)
    return {
        "kind": "item",
        "lane": item.lane.name,
        "table": item.table.name,
        "name": item.instr.name,
        "text": " ".join(item.cells),
        "phase": item.phase,
        **_bounds("total", item.total),
        "row": row,
    }


def _total(each: Total) -> dict[str, object]:
    return {
        "lane": each.lane.name,
        "table": each.table.name,
        "kind": each.kind,
        "rows": each.rows,
        **_bounds("executions", each.runs),
        "column": None if each.lane.total is None else each.lane.total.column,
        **_bounds("total", each.total),
    }


def _bounds(name: str, found: Bounds | None) -> dict[str, int | None]:
    """`NAME`, and what it lies between where that is not one number."""
    exact = found.low if found is not None and found.is_exact else None
    return {
        name: exact,
        f"{name}_min": None if found is None else found.low,
        f"{name}_max": None if found is None else found.high,
    }
