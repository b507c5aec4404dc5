"""A table of a program as Python reads it: rows by position, filtered, and their instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, overload

from hlo_lens.facts import Column, Facts, Table
from hlo_lens.facts.columns import FINDINGS
from hlo_lens.hlo import Instruction
from hlo_lens.notebook.conditions import decoded, has_value, keys_where, no_column
from hlo_lens.present.quantities import visible
from hlo_lens.present.reading import read

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

Values = tuple[object, ...]

_LONGEST_CONDITION = 60  # characters of it in a repr


def table(facts: Facts, name: str) -> TableView:
    """All rows of a table; runs its pass.

    Raises `UnknownTableError` where no pass fills one of that name, `NotReadError` where the pass
    failed: no rows would read as there being nothing.
    """
    schema = facts.table(name)
    if name in facts.registry.owners:
        read(facts, name)
    rows = tuple(facts.rows(name))
    return TableView(_Whole(facts, schema, len(rows)), rows)


def findings(facts: Facts) -> TableView:
    """What the passes have to say that `hlolens inspect` tells, the gravest first."""
    from hlo_lens.inspect.report import findings as told

    weight = {one.finding: place for place, one in enumerate(told(facts))}
    rows = zip(facts.findings, facts.finding_rows(), strict=True)
    sorted_rows = [row for _, row in sorted(rows, key=lambda pair: weight[pair[0]])]
    return TableView(_Whole(facts, FINDINGS, len(sorted_rows)), tuple(sorted_rows))


class _Whole:
    """What the views and rows of one table share."""

    def __init__(self, facts: Facts, schema: Table, size: int) -> None:
        self.facts = facts
        self.schema = schema
        self.size = size
        self.positions = {name: at for at, name in enumerate(schema.names)}

    @cached_property
    def members(self) -> dict[tuple[int, int], list[tuple[str, int]]]:
        """(role, instruction) of each row that has members, by module and id."""
        found: dict[tuple[int, int], list[tuple[str, int]]] = {}
        owned = self.schema.name in self.facts.registry.owners
        for one in self.facts.members(self.schema.name) if owned else ():
            found.setdefault((one.module, one.row), []).append((one.role, one.instr))
        return found

    def __deepcopy__(self, _: object) -> _Whole:
        return self  # nothing in it changes

    def position(self, name: str) -> int:
        """Where the column stands. Raises `KeyError` with what may be meant."""
        if name not in self.positions:
            raise KeyError(no_column(name, self.schema))
        return self.positions[name]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TableRow(Mapping[str, object]):
    """A row: `row["wire_bytes"]` by column, None where it is not known; and its instructions.

    A `json` column is what the JSON says, a `ref` the id of an instruction, which `ref` looks up.
    """

    _whole: _Whole
    _values: Values

    def __getitem__(self, column: str) -> object:
        at = self._whole.position(column)
        value = self._values[at]
        if self._whole.schema.columns[at].type == "json" and isinstance(value, str):
            return decoded(value)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole.positions)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def schema(self) -> Table:
        """The table's columns, with their types, units and meanings."""
        return self._whole.schema

    @property
    def name(self) -> str | None:
        """What the column `name` holds; None where the table has none."""
        at = self._whole.positions.get("name")
        value = None if at is None else self._values[at]
        return value if isinstance(value, str) else None

    @property
    def instr(self) -> Instruction | None:
        """The instruction the row is about; None where it is about none."""
        return self.ref("instr") if "instr" in self._whole.positions else None

    def ref(self, column: str) -> Instruction | None:
        """The instruction a column of type `ref` holds, such as `loop`; None for NULL.

        Raises `KeyError` where there is no such column, `TypeError` where it holds no instruction.
        """
        at = self._whole.position(column)
        if self.schema.columns[at].type != "ref":
            raise TypeError(f"column {column} holds no instruction; row[{column!r}] is its value")
        return self._instruction(self._values[at])

    @property
    def members(self) -> tuple[tuple[str, Instruction], ...]:
        """The instructions that make up the row, each as (role, instruction)."""
        module, id = self["module"], self["id"]
        assert isinstance(id, int)
        if not isinstance(module, int):
            return ()
        instruction = self._whole.facts.program.modules[module].instruction
        members = self._whole.members.get((module, id), ())
        return tuple((role, instruction(at)) for role, at in members)

    def _instruction(self, id: object) -> Instruction | None:
        module = self["module"]
        if not isinstance(id, int) or not isinstance(module, int):
            return None
        return self._whole.facts.program.modules[module].instruction(id)

    def __repr__(self) -> str:
        name = f": {visible(self.name)}" if self.name else ""
        return f"<Row {self['id']} of {self.schema.name}{name}>"

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_tables import row_html

        return row_html(self, self._values, self._whole.facts.program)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TableView(Sequence[TableRow]):
    """Some or all rows of a table, in order. Nothing in it changes; `where` gives another view."""

    _whole: _Whole
    _rows: tuple[Values, ...]
    conditions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    """Columns that the conditions name."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.schema.name

    @property
    def schema(self) -> Table:
        """The table's columns, with their types, units and meanings."""
        return self._whole.schema

    @property
    def columns(self) -> Columns:
        """The columns by name, in order, with their types, units and meanings."""
        return Columns(self.schema)

    @property
    def total(self) -> int:
        """How many rows the whole table has."""
        return self._whole.size

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[TableRow]:
        return (TableRow(self._whole, row) for row in self._rows)

    @overload
    def __getitem__(self, at: int) -> TableRow: ...
    @overload
    def __getitem__(self, at: slice) -> TableView: ...
    def __getitem__(self, at: int | slice) -> TableRow | TableView:
        if isinstance(at, slice):
            return replace(self, _rows=self._rows[at])
        return TableRow(self._whole, self._rows[at])

    def where(self, condition: str | None = None, /, **values: object) -> TableView:
        """The rows of which an SQL condition holds and whose columns have the values given.

            table.where(phase="bwd", in_backward_loop=True)
            table.where("wire_bytes > 1e6", logical_kind=["all-gather", "reduce-scatter"])

        A list, tuple or set of values is any of them; None is "not known", which equals nothing
        else. Of a `refs` or `json` column a list or tuple is one value. SQL is SQLite's; texts
        stand in single quotes, and it may ask other tables, which are then computed.

        Raises `QueryError` for an unknown column, a value the column cannot hold (a word an enum
        does not list) and SQL that cannot be answered.
        """
        whole = self._whole
        tests = [has_value(self.schema, name, value) for name, value in values.items()]
        rows = [row for row in self._rows if all(test(row) for test in tests)]
        told = [f"{name}={value!r}" for name, value in values.items()]
        asked = list(values)
        if condition is not None:
            keys = keys_where(whole.facts, self.schema, condition)
            module, id = whole.positions["module"], whole.positions["id"]
            rows = [row for row in rows if (row[module], row[id]) in keys]
            told.insert(0, condition)
            asked += [word for word in re.findall(r"\w+", condition) if word in whole.positions]
        asked = list(dict.fromkeys((*self.asked, *asked)))
        return replace(
            self, _rows=tuple(rows), conditions=(*self.conditions, *told), asked=tuple(asked)
        )

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame with nullable dtypes: NULL stays missing, ints stay ints.

        `refs` are tuples of int, `json` is text. Raises ImportError where pandas is not installed.
        """
        from hlo_lens.notebook.frames import kind_of, pandas_frame

        kinds = [kind_of(column.type) for column in self.schema.columns]
        return pandas_frame(self.schema.names, self._rows, kinds)

    def to_polars(self) -> pl.DataFrame:
        """The rows as a polars DataFrame; `refs` are lists of int, `json` is text.

        Raises ImportError where polars is not installed.
        """
        from hlo_lens.notebook.frames import kind_of, polars_frame

        kinds = [kind_of(column.type) for column in self.schema.columns]
        return polars_frame(self.schema.names, self._rows, kinds)

    def __repr__(self) -> str:
        return f"<Table {self.name}: {self.summary}>"

    @property
    def summary(self) -> str:
        """`3 of 12 rows where phase='bwd'`, on one line."""
        of = f"{len(self)} of {self.total}" if len(self) != self.total else f"{len(self)}"
        text = f"{of} row{'' if of == '1' else 's'}"
        if self.conditions:
            listed = visible(" and ".join(self.conditions))
            cut = listed[:_LONGEST_CONDITION] + "…" * (len(listed) > _LONGEST_CONDITION)
            text += f" where {cut}"
        return text

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_tables import table_html

        return table_html(self, self._rows, self._whole.facts.program)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Columns(Mapping[str, Column]):
    """The columns of a table, by name."""

    table: Table

    def __getitem__(self, name: str) -> Column:
        return self.table.column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.names)

    def __len__(self) -> int:
        return len(self.table.columns)

    def __repr__(self) -> str:
        return f"<{len(self)} columns of {self.table.name}: {', '.join(self)}>"

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_tables import columns_html

        return columns_html(self.table)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tables(Mapping[str, Columns]):
    """The tables there are, each by its name with its columns; looking computes none."""

    facts: Facts

    def __getitem__(self, name: str) -> Columns:
        for one in self.facts.tables:
            if one.name == name:
                return Columns(one)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (one.name for one in self.facts.tables)

    def __len__(self) -> int:
        return len(self.facts.tables)

    def __repr__(self) -> str:
        return f"<{len(self)} tables: {', '.join(self)}>"

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_tables import tables_html

        return tables_html(self.facts.tables)
