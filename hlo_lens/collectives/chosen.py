"""What a reader picks: the columns to group by, and which collectives."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from hlo_lens.facts import Cell, Table
from hlo_lens.present.cells import Cells

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
OUTSIDE: Final = "none"
"""What `--loop` calls the place outside of every loop."""


class NoSuchNameError(ValueError):
    """What was picked is not there; the message says what is."""


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
            hint = _close(name, names_of_keys(table)) or (
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
        _words("phase", filters.phases, table.column("phase").values, {}),
        filters.loops,
        _words("kind", filters.kinds, table.column("logical_kind").values, _KINDS),
    )


def _words(
    what: str, given: Sequence[str], known: Sequence[str], short: dict[str, str]
) -> tuple[str, ...]:
    words = [short.get(word.lower(), word) for word in given]
    for word in words:
        if word not in known and not (what == "phase" and word == OUTSIDE):
            raise NoSuchNameError(f"no {what} {word!r}{_hint(word, known)}")
    return tuple(words)


def in_loops(
    wanted: Sequence[str], places: Collection[tuple[int, object, object]], cells: Cells
) -> frozenset[tuple[int, object, object]]:
    """Which of the places (module, loop, loop_depth) are in a loop that is wanted.

    Raises `NoSuchNameError` where a name fits none of them.
    """
    named: dict[tuple[int, object, object], tuple[str, ...]] = {}
    for place in places:
        module, loop, depth = place
        if isinstance(loop, int):
            chain = cells.loops(module).chain(loop)
            named[place] = tuple(one.instr.name for one in chain)
        else:
            named[place] = (OUTSIDE,) if depth == 0 else ()
    known = list(dict.fromkeys(name for names in named.values() for name in names))
    for word in wanted:
        if not any(fnmatchcase(name, word) for name in known):
            raise NoSuchNameError(f"no collective is in a loop {word!r}{_hint(word, known)}")
    return frozenset(
        place
        for place, names in named.items()
        if any(fnmatchcase(name, word) for name in names for word in wanted)
    )


def _hint(name: str, known: Sequence[str]) -> str:
    return _close(name, known) or f"; there are {', '.join(known)}"


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
