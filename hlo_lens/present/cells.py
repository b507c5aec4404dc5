"""Cells of a table's rows as text: by the column's type, refs by name, loops with trip counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from hlo_lens.facts import Cell, Column, Table
from hlo_lens.present.quantities import (
    UNKNOWN,
    Bounds,
    bytes_text,
    count_text,
    exactly,
    flops_text,
    visible,
)

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop
    from hlo_lens.program import Program

Row = tuple[object, ...]

_WIDEST = 200  # characters that a format may fill a value up to


class Loops:
    """The whiles of a module by instruction id, and how they read."""

    def __init__(self, program: Program, module: int) -> None:
        self._analysis = program.analysis(program.modules[module])

    @cached_property
    def by_id(self) -> dict[int, Loop]:
        return {loop.instr.id: loop for loop in self._analysis.loops}

    def chain(self, id: int) -> tuple[Loop, ...]:
        """A while and those around it, outermost first; () where the instruction is none."""
        loop: Loop | None = self.by_id.get(id)
        found: list[Loop] = []
        while loop is not None and len(found) < len(self.by_id):
            found.append(loop)
            loop = loop.parent
        return tuple(reversed(found))

    def text(self, id: int) -> str:
        """`while.3 ×4 › while.7 ×8`."""
        return " › ".join(loop_text(loop) for loop in self.chain(id))


def loop_text(loop: Loop) -> str:
    """A while and its trip count: `while.3 ×32`."""
    return f"{visible(loop.instr.name)} {trips_text(loop)}"


def trips_text(loop: Loop) -> str:
    """`×32`; `×≤8` where only a bound is known, `×?` where nothing is."""
    if loop.trip_count is not None:
        return f"×{loop.trip_count}"
    return "×?" if loop.trips.most is None else f"×≤{loop.trips.most}"


class Cells:
    """Reads cells of the rows of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._loops: dict[int, Loops] = {}

    def loops(self, module: int) -> Loops:
        """The loops of the module at that position."""
        if module not in self._loops:
            self._loops[module] = Loops(self.program, module)
        return self._loops[module]

    def reader(self, table: Table, cell: Cell) -> Callable[[Row], str | None]:
        """What reads `cell` of a row of `table`: its text, or None where all it shows is NULL.

        Raises `KeyError` for a column that is not there and `ValueError` for a text that is no
        format or would fill a page; the reader raises `ValueError` for a format that is none of
        such a value.
        """
        module_at = table.position("module")
        parts = [
            (literal, None if name is None else (table.column(name), table.position(name)), spec)
            for literal, name, spec in cell.parts
        ]
        for number in (number for *_, spec in parts for number in re.findall(r"\d+", spec)):
            if len(number) > len(str(_WIDEST)) or int(number) > _WIDEST:
                raise ValueError(f"{cell.text!r} has a format wider than {_WIDEST} characters")
        shown = [found for _, found, _ in parts if found is not None]
        names = dict(cell.names)

        def value_text(column: Column, value: object, module: object, spec: str = "") -> str:
            return names.get(value) or self.text(column, value, module, spec, cell.words)

        def read(row: Row) -> str | None:
            values = [row[at] for _, at in shown]
            if all(value is None or value in cell.blank for value in values):
                return None
            if cell.merged and len(set(values)) == 1:
                return value_text(shown[0][0], values[0], row[module_at])
            texts: list[str] = []
            for literal, found, spec in parts:
                texts.append(literal)
                if found is not None:
                    column, at = found
                    texts.append(value_text(column, row[at], row[module_at], spec))
            return "".join(texts)

        return read

    def text(
        self,
        column: Column,
        value: object,
        module: object,
        spec: str = "",
        words: tuple[str, str] | None = None,
    ) -> str:
        """One value by the type of its column; `–` for NULL."""
        if value is None:
            return UNKNOWN
        if spec:
            return format(value, spec)
        if column.type == "bool":
            return (words or ("yes", "no"))[0 if value else 1]
        if column.type == "ref" and isinstance(value, int) and isinstance(module, int):
            return self.instruction_text(module, value)
        return _PLAIN[column.type](value)

    def instruction_text(self, module: int, id: int) -> str:
        """The name of an instruction; of a while, the loops around it too, with trip counts."""
        loops = self.loops(module)
        if id in loops.by_id:
            return loops.text(id)
        return visible(self.program.modules[module].instruction(id).name)


def number_of(value: object) -> int:
    """A whole number of a row; 0 for anything else."""
    return value if isinstance(value, int) else 0


def _json_text(value: object) -> str:
    """JSON text; a list of words or numbers without its brackets."""
    text = str(value)
    try:
        data = json.loads(text)
    except ValueError:
        return visible(text)
    if isinstance(data, list) and all(isinstance(each, (str, int, float)) for each in data):
        return visible(", ".join(map(str, data)))
    return visible(text)


_PLAIN: dict[str, Callable[[object], str]] = {
    "ref": str,
    "refs": lambda value: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value),
    "int": str,
    "float": lambda value: f"{value:.3g}",
    "bytes": lambda value: bytes_text(number_of(value)),
    "flops": lambda value: flops_text(value if isinstance(value, (int, float)) else None),
    "enum": str,
    "text": lambda value: visible(str(value)),
    "json": _json_text,
}


def unit_text(column: Column) -> Callable[[int], str]:
    """How a number of that column reads."""
    return text_of_type(column.type)


def text_of_type(type: str) -> Callable[[int], str]:
    """How a number of a column of that type reads."""
    if type == "bytes":
        return bytes_text
    return flops_text if type == "flops" else count_text


def runs(table: Table) -> Callable[[Row], Bounds | None]:
    """What reads how often a row runs; None where nothing is known of it."""
    exact, least, most = (
        table.position(name) for name in ("executions", "executions_min", "executions_max")
    )

    def read(row: Row) -> Bounds | None:
        if isinstance(count := row[exact], int):
            return exactly(count)
        low, high = row[least], row[most]
        if low is None and high is None:
            return None
        return Bounds(number_of(low), high if isinstance(high, int) else None)

    return read
