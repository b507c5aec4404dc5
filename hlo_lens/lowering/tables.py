"""The tables behind a lowering: their rows of one module, and what could not be read of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hlo_lens.facts import Cell, Facts, Measure, Summary, Table
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.groups import Group, grouped, total, total_runs
from hlo_lens.present.quantities import Bounds, exactly
from hlo_lens.present.reading import not_read
from hlo_lens.program import BEFORE

MATMULS: Final = "matmuls"
RAGGED: Final = "ragged_dots"
ATTENTION: Final = "attention"
EXPERTS: Final = "moe"
DUPLICATES: Final = "duplicates"
TABLES: Final = (RAGGED, ATTENTION, EXPERTS, MATMULS, DUPLICATES)
Record = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table in one module. `problem` says why there are none to read."""

    table: Table | None
    rows: tuple[Row, ...]
    problem: str | None = None

    def __bool__(self) -> bool:
        return bool(self.rows)

    def records(self, rows: Iterable[Row] | None = None) -> list[Record]:
        names = () if self.table is None else self.table.names
        return [dict(zip(names, row, strict=True)) for row in (self.rows if rows is None else rows)]

    def groups(self, cells: Cells, by: Sequence[Cell]) -> list[Group]:
        """The rows that agree on the cells, of which those are left out that the table lacks."""
        if self.table is None:
            return []
        here = known(self.table, by)
        return grouped(cells, self.table, Summary(self.table.name, 0, by=here), self.rows)

    def runs(self, rows: Sequence[Row]) -> Bounds | None:
        """How often the rows run together in a step."""
        return None if self.table is None else total_runs(self.table, rows)

    def per_step(self, column: str, rows: Sequence[Row] | None = None) -> Bounds | None:
        """The sum of a column over a step; None where nothing is known of it."""
        rows = self.rows if rows is None else rows
        if self.table is None or column not in self.table.names:
            return None
        # A sum of nothing is 0, which is known.
        return total(self.table, Measure(column, "per_step", column), rows) if rows else exactly(0)


def known(table: Table, cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells whose columns the table has."""
    return tuple(cell for cell in cells if set(cell.columns) <= set(table.names))


class Lowered:
    """The tables of the module that runs, and those of the stage before optimization."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.module = facts.program.index(facts.program.main)
        self.cells = Cells(facts.program)
        self._problems = {name: not_read(facts, name) for name in TABLES}

    def rows(self, name: str, module: int | None = None) -> Rows:
        """The rows of a table in a module, by default the one that runs."""
        if self._problems[name] is not None:
            return Rows(None, (), self._problems[name])
        table = self.facts.table(name)
        wanted, at = self.module if module is None else module, table.position("module")
        return Rows(table, tuple(row for row in self.facts.rows(name) if row[at] == wanted))

    @cached_property
    def before(self) -> int | None:
        """The position of the first stage, where it is another than the one that runs."""
        stages = self.facts.program.stages
        first = stages.index(BEFORE) if BEFORE in stages else self.module
        return None if first == self.module else first

    @property
    def problems(self) -> list[str]:
        """Why tables could not be read, each reason once."""
        return list(dict.fromkeys(one for one in self._problems.values() if one is not None))
