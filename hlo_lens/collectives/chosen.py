"""What a reader picks: the columns to group by, and which collectives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hlo_lens.facts import Cell, Table
from hlo_lens.present.chosen import OUTSIDE, NoSuchNameError, close, known_words

BY_DEFAULT: Final = ("loop", "phase", "kind")

# What people call a column, and how it reads; every column goes by its own name too.
_SHORT: Final = {
    "kind": Cell("logical_kind", "operation"),
    "axis": Cell("axes", "axis"),
    "group": Cell("{groups}×{group_size}", "groups"),
}
_KINDS: Final = {
    "ag": "all-gather", "ar": "all-reduce", "rs": "reduce-scatter", "a2a": "all-to-all",
    "cp": "collective-permute",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filters:
    """Which collectives: () for all. A loop by its name, a glob or `none`; what is in a loop in it
    counts too."""

    phases: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.phases or self.loops or self.kinds)


def keys_named(table: Table, names: Iterable[str]) -> tuple[Cell, ...]:
    """The cells to group by. Raises `NoSuchNameError` for what is no column of the table."""
    cells: dict[str, Cell] = {}
    for name in names:
        short = _SHORT.get(name)
        if short is None and name not in table.names:
            hint = close(name, names_of_keys(table)) or (
                f"; there are {', '.join(dict.fromkeys((*BY_DEFAULT, *_SHORT)))} and the columns"
                f" of {table.name}: {', '.join(table.names)}"
            )
            raise NoSuchNameError(f"no column {name!r} to group by{hint}")
        cells.setdefault(name, short or Cell(name))
    return tuple(cells.values())


def names_of_keys(table: Table) -> list[str]:
    """All that can be grouped by, the short names first."""
    return list(dict.fromkeys((*BY_DEFAULT, *_SHORT, *table.names)))


def checked(filters: Filters, table: Table) -> Filters:
    """The filters with full words. Raises `NoSuchNameError` for a phase or kind that is none."""
    return Filters(
        known_words("phase", filters.phases, table.column("phase").values, more=(OUTSIDE,)),
        filters.loops,
        known_words("kind", filters.kinds, table.column("logical_kind").values, _KINDS),
    )
