"""Rows of a table grouped as its summary says, with the numbers of each group and of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.facts import Column, Measure, Summary, Table
from hlo_lens.present.cells import Cells, Row, runs, trips_text, unit_text
from hlo_lens.present.quantities import (
    UNKNOWN,
    Bounds,
    bounds_text,
    count_text,
    exactly,
    executions_text,
)

NO_LOOP = "no loop"
Tests = Sequence[tuple[str, tuple[object, ...]]]  # columns, and the values looked for in them
_LAST = (1, 0)  # the place of NULL in an order


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that agree on what they are grouped by: the texts of that, and of each measure."""

    keys: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[Row, ...]


def wanted(table: Table, rows: Iterable[Row], skip: Tests, only: Tests = ()) -> list[Row]:
    """The rows that `skip` does not leave out and of which all of `only` holds."""
    unwanted, needed = (
        [(table.position(name), frozenset(values)) for name, values in tests]
        for tests in (skip, only)
    )
    return [
        row
        for row in rows
        if not any(row[at] in values for at, values in unwanted)
        and all(row[at] in values for at, values in needed)
    ]


def grouped(cells: Cells, table: Table, summary: Summary, rows: Sequence[Row]) -> list[Group]:
    """The groups of `rows`, in the order of what they are grouped by."""
    keys = [_key(cells, table, name) for cell in summary.by for name in cell.columns]
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(key(row) for key in keys), []).append(row)
    orders = [_order(cells, table, name, rows) for cell in summary.by for name in cell.columns]
    readers = [_group_text(cells, table, summary, position) for position in range(len(summary.by))]
    groups = sorted(found.values(), key=lambda group: [order(group[0]) for order in orders])
    return [
        Group(
            tuple(read(group) for read in readers),
            measured(table, summary, group),
            tuple(group),
        )
        for group in groups
    ]


# ---------------------------------------------------------------------------------- keys


def _key(cells: Cells, table: Table, name: str) -> Callable[[Row], object]:
    """What rows must agree on to be of one group. Loops inside one loop that run equally often are
    alike: a layer has many small ones, of one kind."""
    column, at = table.column(name), table.position(name)
    if column.type != "ref":
        return lambda row: row[at]
    module_at, depth_at = table.position("module"), _depth_at(table, column)

    def key(row: Row) -> object:
        id, module = row[at], row[module_at]
        if not isinstance(id, int) or not isinstance(module, int):
            return None if depth_at is None else (None, row[depth_at] == 0)
        chain = cells.loops(module).chain(id)
        if len(chain) < 2:
            return id
        return (chain[-2].instr.id, trips_text(chain[-1]))

    return key


def _depth_at(table: Table, column: Column) -> int | None:
    """Where the loop depth stands, for the column `loop`: 0 tells "outside" from "not known"."""
    if column.name == "loop" and "loop_depth" in table.names:
        return table.position("loop_depth")
    return None


def _order(cells: Cells, table: Table, name: str, rows: Iterable[Row]) -> Callable[[Row], object]:
    """Where a group stands: loops as they run, words as the enum lists them, else as found."""
    column, at = table.column(name), table.position(name)
    module_at = table.position("module")
    if column.type == "ref":

        def order(row: Row) -> object:
            id, module = row[at], row[module_at]
            if not isinstance(id, int) or not isinstance(module, int):
                return (1, ())
            chain = cells.loops(module).chain(id)
            return (0, tuple(loop.instr.id for loop in chain) or (id,))

        return order
    if column.type == "enum":
        values: Iterable[object] = column.values
    else:
        values = dict.fromkeys(row[at] for row in rows)
    places = {value: place for place, value in enumerate(values)}
    return lambda row: _LAST if row[at] is None else (0, places[row[at]])


def _group_text(
    cells: Cells, table: Table, summary: Summary, position: int
) -> Callable[[Sequence[Row]], str]:
    cell = summary.by[position]
    read = cells.reader(table, cell)
    if len(cell.columns) != 1 or table.column(cell.columns[0]).type != "ref":
        return lambda rows: read(rows[0]) or UNKNOWN
    column = table.column(cell.columns[0])
    at, module_at, depth_at = (
        table.position(column.name),
        table.position("module"),
        _depth_at(table, column),
    )

    def text(rows: Sequence[Row]) -> str:
        first, module = rows[0][at], rows[0][module_at]
        if first is None:
            outside = depth_at is not None and rows[0][depth_at] == 0
            return NO_LOOP if outside else UNKNOWN
        alike = len({row[at] for row in rows})
        if alike == 1 or not isinstance(first, int) or not isinstance(module, int):
            return read(rows[0]) or UNKNOWN
        chain = cells.loops(module).chain(first)
        around = cells.loops(module).text(chain[-2].instr.id)
        return f"{around} › {alike} loops {trips_text(chain[-1])}"

    return text


# ---------------------------------------------------------------------------------- measures


def measured(table: Table, summary: Summary, rows: Sequence[Row]) -> tuple[str, ...]:
    """The texts of the measures of a group, or of all rows."""
    return tuple(measure_text(table, measure, rows) for measure in summary.measures)


def measure_text(table: Table, measure: Measure, rows: Sequence[Row]) -> str:
    """The text of one measure of a group."""
    if measure.how == "rows":
        return count_text(len(rows))
    if measure.how == "executions":
        return executions_text(total_runs(table, rows), _worst_trips(table, rows))
    assert measure.column is not None
    column, at = table.column(measure.column), table.position(measure.column)
    if measure.how == "true":
        known = [row[at] for row in rows if row[at] is not None]
        return f"{count_text(sum(map(bool, known)))}/{count_text(len(known))}" if known else UNKNOWN
    if measure.how == "each":
        return _range_text(column, [row[at] for row in rows])
    found = total(table, measure, rows)
    return UNKNOWN if found is None else bounds_text(found, unit_text(column))


def _range_text(column: Column, values: Sequence[object]) -> str:
    known = [value for value in values if isinstance(value, int)]
    if not known:
        return UNKNOWN
    low, high = map(unit_text(column), (min(known), max(known)))
    return low if low == high else f"{low} – {high}"


def total_runs(table: Table, rows: Sequence[Row]) -> Bounds | None:
    """How often the rows run together; None where nothing is known of any."""
    read = runs(table)
    found = [read(row) for row in rows]
    if found and all(each is None for each in found):
        return None
    return sum((each or Bounds(0, None) for each in found), exactly(0))


def total(table: Table, measure: Measure, rows: Sequence[Row]) -> Bounds | None:
    """A `once` or `per_step` sum; None where no value is known, as for no rows at all.

    What is not known counts as anything from 0 to its upper bound, where it has one.
    """
    assert measure.column is not None
    at = table.position(measure.column)
    most_at = None if measure.at_most is None else table.position(measure.at_most)
    weight = runs(table) if measure.how == "per_step" else None
    result, any_known = exactly(0), False
    for row in rows:
        value, most = row[at], row[most_at] if most_at is not None else None
        if isinstance(value, int):
            amount = exactly(value)
        else:
            amount = Bounds(0, most if isinstance(most, int) else None)
        any_known = any_known or amount.high is not None
        if weight is not None:
            amount *= weight(row) or Bounds(0, None)
        result += amount
    return result if any_known else None


def without_value(
    table: Table, summary: Summary, rows: Sequence[Row]
) -> Iterator[tuple[str, list[Row]]]:
    """The columns of the sums of a step, and the rows that have neither a value nor a bound there.

    A row that never runs lacks nothing; a column that no row lacks is left out.
    """
    sums = {one.column: one for one in summary.measures if one.how == "per_step"}
    if not sums:
        return
    weight, never = runs(table), exactly(0)
    ran = [row for row in rows if weight(row) != never]
    for name, measure in sums.items():
        assert name is not None
        columns = [table.position(one) for one in (name, measure.at_most) if one is not None]
        if found := [row for row in ran if all(row[at] is None for at in columns)]:
            yield name, found


def _worst_trips(table: Table, rows: Sequence[Row]) -> str | None:
    if "trips_kind" not in table.names:
        return None
    at = table.position("trips_kind")
    kinds = {row[at] for row in rows}
    return "unknown" if "unknown" in kinds else None
