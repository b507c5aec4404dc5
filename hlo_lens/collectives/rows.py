"""The rows of a program's collectives, each with its costs, and their sums over a step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlo_lens.collectives.chosen import Filters, checked
from hlo_lens.facts import COMMON, Column, Facts, Measure, Table
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.chosen import in_loops
from hlo_lens.present.groups import total, total_runs
from hlo_lens.present.quantities import Bounds, bounds_text, bytes_text, exactly
from hlo_lens.present.reading import read

COLLECTIVES: Final = "collectives"
COSTS: Final = "collective_costs"
ARRAYS: Final = "collective_values"
HIDING: Final = ("nothing", "light", "heavy")
_COMMON: Final = frozenset(column.name for column in COMMON)
Record = dict[str, object]

# A part of the bytes or of the time of a row, for sums that may be bounds: `…_max` stands in where
# the part is not known.
_PARTS: Final = (
    *(Column(f"{part}_bytes_{end}", "bytes", "measure", "…")
      for part in HIDING for end in ("known", "most")),
    *(Column(f"{part}_ns_{end}", "int", "measure", "…")
      for part in ("whole", "exposed") for end in ("known", "most")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over some rows in one step, one execution of the entry. None: nothing is known of it.

    `hidden` has the bytes that are sent while nothing, light or heavy work runs. Times are
    estimates in nanoseconds; `exposed` is what no compute hides.
    """

    rows: int
    runs: Bounds | None
    sent: Bounds | None
    hidden: tuple[Bounds | None, Bounds | None, Bounds | None]
    time: Bounds | None
    exposed: Bounds | None
    weight: tuple[float, float]
    """Of the rows that no heavy work hides, and of all; what groups are ordered by."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The collectives of one module with their costs, in order of rank; `table` has the columns of
    both. `all` is how many the module has, filters aside."""

    facts: Facts
    cells: Cells
    module: int
    table: Table
    rows: tuple[Row, ...]
    all: int
    arrays: Mapping[object, Sequence[Record]]
    """The arrays of each that moves several, by its id."""

    @property
    def scheduled(self) -> bool:
        """Whether anything is known of what hides them."""
        return any(self.value(row, "hidden_by") is not None for row in self.rows)

    def value(self, row: Row, column: str) -> object:
        return row[self.table.position(column)]

    def sums(self, rows: Sequence[Row]) -> Sums:
        def step(column: str, most: str) -> Bounds | None:
            return total(self.table, Measure(column, "per_step", column, most), rows)

        weights = [(self.value(row, "weight"), self.value(row, "hidden_by")) for row in rows]
        known = [(weight, by) for weight, by in weights if isinstance(weight, float)]
        nothing, light, heavy = (step(f"{by}_bytes_known", f"{by}_bytes_most") for by in HIDING)
        return Sums(
            len(rows),
            total_runs(self.table, rows),
            step("wire_bytes", "wire_bytes_max"),
            (nothing, light, heavy),
            step("whole_ns_known", "whole_ns_most"),
            step("exposed_ns_known", "exposed_ns_most"),
            (
                sum(weight for weight, by in known if by != "heavy"),
                sum(weight for weight, _ in known),
            ),
        )

    def records(self) -> list[dict[str, object]]:
        """The rows as mappings from column name, as the tables have them."""
        own = {column.name for column in _PARTS}
        names = self.table.names
        return [
            {name: value for name, value in zip(names, row, strict=True) if name not in own}
            for row in self.rows
        ]


def joined(facts: Facts, filters: Filters) -> Joined:
    """The collectives of the module that runs. Raises `NoSuchNameError` for a filter that names
    nothing."""
    program = facts.program
    module = program.index(program.main)
    table, costs = facts.table(COLLECTIVES), facts.table(COSTS)
    filters = checked(filters, table)
    more = tuple(column for column in costs.columns if column.name not in table.names)
    wide = replace(table, columns=(*table.columns, *more, *_PARTS), summary=None)
    priced: dict[object, dict[str, object]] = {
        row["id"]: row for row in facts.records(COSTS) if row["module"] == module
    }
    ranked: list[tuple[int, Row]] = []
    for record in facts.records(COLLECTIVES):
        cost = priced.get(record["id"]) if record["module"] == module else None
        if cost is not None:
            record |= {column.name: cost[column.name] for column in more}
            record |= _parts(record)
            rank = record["rank"]
            row = tuple(record[name] for name in wide.names)
            ranked.append((rank if isinstance(rank, int) else 0, row))
    rows = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
    cells = Cells(program)
    shown = tuple(_filtered(rows, wide, filters, cells))
    return Joined(facts, cells, module, wide, shown, len(rows), _arrays(facts, module))


def compute(facts: Facts) -> None:
    """Fill the tables that are shown. Raises `NotReadError` where a pass is missing or fails."""
    read(facts, COLLECTIVES, COSTS)


def _arrays(facts: Facts, module: int) -> Mapping[object, Sequence[Record]]:
    found: dict[object, list[Record]] = {}
    for record in facts.records(ARRAYS) if _tells_arrays(facts) else ():
        if record["module"] == module:
            found.setdefault(record["collective"], []).append(record)
    return {id: arrays for id, arrays in found.items() if len(arrays) > 1}


def _tells_arrays(facts: Facts) -> bool:
    return any(table.name == ARRAYS for table in facts.tables)


def by_array(found: Joined, columns: Collection[str]) -> Joined:
    """The same with a row for each array, where one of the columns tells arrays apart; times and
    weights are shared out by bytes."""
    if not _tells_arrays(found.facts):
        return found
    own = set(found.facts.table(ARRAYS).names)
    told = own & set(found.table.names) - {*_COMMON, "logical_kind"}
    if told.isdisjoint(columns):
        return found
    rows: list[Row] = []
    for row in found.rows:
        arrays = found.arrays.get(found.value(row, "id"))
        whole = dict(zip(found.table.names, row, strict=True))
        for array in arrays or ():
            part = whole | {name: array[name] for name in told}
            part["wire_bytes_max"] = part["wire_bytes"]
            share = _share(part["wire_bytes"], whole["wire_bytes"])
            for name in ("estimate_us", "weight"):
                value = whole[name]
                part[name] = value * share if isinstance(value, float) and share else None
            part |= _parts(part)
            rows.append(tuple(part[name] for name in found.table.names))
        if not arrays:
            rows.append(row)
    return replace(found, rows=tuple(rows))


def _share(part: object, whole: object) -> float | None:
    return part / whole if isinstance(part, int) and isinstance(whole, int) and whole else None


def _filtered(rows: Sequence[Row], table: Table, filters: Filters, cells: Cells) -> Iterable[Row]:
    phase, kind, *place = (
        table.position(name) for name in ("phase", "logical_kind", "module", "loop", "loop_depth")
    )

    def place_of(row: Row) -> tuple[int, object, object]:
        module, loop, depth = (row[at] for at in place)
        return (module if isinstance(module, int) else 0), loop, depth

    inside = in_loops(filters.loops, {place_of(row) for row in rows}, cells, "collective")
    for row in rows:
        if (
            (not filters.phases or (row[phase] or "none") in filters.phases)
            and (not filters.kinds or row[kind] in filters.kinds)
            and (not filters.loops or place_of(row) in inside)
        ):
            yield row


def _parts(row: dict[str, object]) -> dict[str, int | None]:
    """The columns of `_PARTS`."""
    sent, most, hidden_by = row["wire_bytes"], row["wire_bytes_max"], row["hidden_by"]
    parts: dict[str, int | None] = {}
    for by in HIDING:
        is_it, may_be = hidden_by == by, hidden_by in (by, None)
        known = sent if is_it else None if may_be else 0
        parts[f"{by}_bytes_known"] = known if isinstance(known, int) else None
        parts[f"{by}_bytes_most"] = most if may_be and isinstance(most, int) else None
    one = row["estimate_us"]
    time = round(one * 1000) if isinstance(one, float) else None
    exposed = time if hidden_by == "nothing" else None
    return parts | {
        "whole_ns_known": time, "whole_ns_most": time,
        "exposed_ns_known": exposed, "exposed_ns_most": time,
    }  # fmt: skip


# ---------------------------------------------------------------------------------- as text


def time_text(nanoseconds: int) -> str:
    """A time for people: "850 ns", "12.3 µs", "1.2 ms", "3.4 s"."""
    if nanoseconds < 1000:
        return f"{nanoseconds} ns"
    value = float(nanoseconds)
    for unit in ("µs", "ms", "s"):
        value /= 1000
        if value < 999.95 or unit == "s":
            break
    return f"{value:.1f} {unit}"


def step_bytes(bounds: Bounds | None) -> str:
    return bounds_text(bounds or Bounds(0, None), bytes_text)


def step_time(bounds: Bounds | None) -> str:
    return bounds_text(bounds or Bounds(0, None), time_text)


NOTHING: Final = exactly(0)
