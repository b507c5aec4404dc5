"""The rows of a table on two sides: which is which, and what differs of those that are matched.

Rows of matched instructions are matched first. What is left is matched by what it is, in the
matched loop before any other: so a row whose instruction moved, or was written anew, is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.analysis import Loop
from hlo_lens.diff.keys import given_shape
from hlo_lens.diff.model import Change, ChangedRow, Matching, Move, Row, TableDiff
from hlo_lens.facts import COMMON, Column, Table
from hlo_lens.hlo import Module

_KEY: Final = frozenset(("id", "module"))
_COMMON: Final = frozenset(column.name for column in COMMON)


@dataclass(frozen=True, slots=True)
class Scene:
    """Two modules whose rows are compared: matched instructions, and the loops of each by id."""

    matching: Matching
    old_loops: Mapping[int, Loop]
    new_loops: Mapping[int, Loop]


def diff_table(scene: Scene, table: Table, old: Sequence[Row], new: Sequence[Row]) -> TableDiff:
    """What differs between the rows that two modules have of a table."""
    to_old = _matched(scene, table, old, new)
    taken = set(to_old.values())
    compare = _Comparer(scene, table)
    pairs = [(old[to_old[at]], row) for at, row in enumerate(new) if at in to_old]
    changed = [found for pair in pairs if (found := compare(*pair)) is not None]
    return TableDiff(
        table,
        len(pairs) - len(changed),
        tuple(row for at, row in enumerate(new) if at not in to_old),
        tuple(row for at, row in enumerate(old) if at not in taken),
        tuple(changed),
    )


def compared(table: Table) -> list[Column]:
    """The columns that are compared: all but volatile ones and the key of the row."""
    return [
        column for column in table.columns if column.role != "volatile" and column.name not in _KEY
    ]


# ---------------------------------------------------------------------------------- matching


@dataclass(frozen=True, slots=True)
class _Step:
    """Rows that agree on `what` they are and on `where` they stand are matched in order; with
    `only`, where there is one of them on either side."""

    what: str
    where: tuple[str, ...]
    only: bool = False


_BY_PLACE: Final = (
    _Step("all", ("place",)),
    _Step("structure", ("place",)),
    _Step("identity", ("place",), only=True),
    _Step("nothing", ("place", "alone")),
)
_NEAR: Final = (("loop", "source"), ("loop",), ("source",))
_BY_KIND: Final = (
    *(_Step("all", where) for where in (*_NEAR, ())),
    *(_Step("structure", ("shape", *where)) for where in (*_NEAR, ())),
    # What moves is issued, overlapped and used otherwise.
    *(_Step("numbers", ("shape", *where)) for where in (*_NEAR, ())),
    *(_Step("identity", ("shape", *where)) for where in _NEAR),
    _Step("structure", ("loop", "source")),
    _Step("numbers", ("loop", "source")),
)


def _matched(scene: Scene, table: Table, old: Sequence[Row], new: Sequence[Row]) -> dict[int, int]:
    """By position of a new row, the position of the old row that it is.

    A row of another phase is another thing, also where it is the same operation: the forward's, or
    its replay. Where one side has no phases, this cannot tell.
    """
    pool = _Pool(_Rows(scene, table, old, is_new=False), _Rows(scene, table, new, is_new=True))
    for step in _BY_PLACE:
        pool.match(step)
    for step in _BY_KIND:
        pool.match(_Step(step.what, (*step.where, "phase")))
    if pool.without_phase():
        for step in _BY_KIND:
            pool.match(step)
    if not any(column.type == "ref" for column in table.columns):
        pool.match(_Step("identity", (), only=True))
    return pool.to_old


class _Pool:
    """The rows of both sides that are not matched yet."""

    def __init__(self, old: _Rows, new: _Rows) -> None:
        self.sides = old, new
        self.left = list(range(len(old.rows))), list(range(len(new.rows)))
        self.to_old: dict[int, int] = {}

    def match(self, step: _Step) -> None:
        if not all(self.left):
            return
        groups, others = (
            rows.groups(left, step) for rows, left in zip(self.sides, self.left, strict=True)
        )
        taken: set[int] = set()
        for key, positions in groups.items():
            partners = others.get(key, ())
            if not partners or (step.only and not len(positions) == len(partners) == 1):
                continue
            for at, to in zip(positions, partners, strict=False):
                self.to_old[to] = at
                taken.add(at)
        if taken:
            self.left[0][:] = [at for at in self.left[0] if at not in taken]
            self.left[1][:] = [at for at in self.left[1] if at not in self.to_old]

    def without_phase(self) -> bool:
        """Whether no row that is left on one of the sides has a phase."""
        return any(
            all(rows.phase(at) is None for at in left)
            for rows, left in zip(self.sides, self.left, strict=True)
        )


class _Rows:
    """The rows of one side: what each is, and where it stands as the other side would say it."""

    def __init__(self, scene: Scene, table: Table, rows: Sequence[Row], *, is_new: bool) -> None:
        self.rows = rows
        self._is_new = is_new
        self._matching = scene.matching
        self._module: Module = scene.matching.new if is_new else scene.matching.old
        names = table.names
        self._at = {name: at for at, name in enumerate(names)}
        refs = [at for at, column in enumerate(table.columns) if column.type == "ref"]
        loop = self._at.get("loop")
        instr = self._at.get("instr")
        self._places = [at for at in refs if at != loop] if instr is None else [instr]
        own = [
            (self._at[column.name], column.role)
            for column in compared(table)
            if column.name not in _COMMON and column.type not in ("ref", "refs")
        ]
        self._columns = {
            "all": [at for at, _ in own],
            "structure": [at for at, role in own if role != "measure"],
            "numbers": [at for at, role in own if role != "structural"],
            "identity": [at for at, role in own if role == "identity"],
            "nothing": [],
        }
        self._counts: Counter[Hashable] | None = None

    def groups(self, left: Sequence[int], step: _Step) -> dict[Hashable, list[int]]:
        """Positions by what the rows must agree on, those left out that cannot be matched so."""
        columns = self._columns[step.what]
        where = [_WHERE[name] for name in step.where]
        found: dict[Hashable, list[int]] = {}
        for at in left:
            row = self.rows[at]
            stands = [read(self, row) for read in where]
            if None in stands:
                continue
            key = (*stands, *[row[column] for column in columns])
            found.setdefault(key, []).append(at)
        return found

    def value(self, row: Row, name: str) -> object:
        """What it has in a column; None where the table lacks it."""
        at = self._at.get(name)
        return None if at is None else row[at]

    def phase(self, at: int) -> object:
        return self.value(self.rows[at], "phase")

    def place(self, row: Row) -> Hashable | None:
        """The instructions that a row is about, as the new side numbers them; None where one has
        no partner, and for a row that is about none."""
        ids: list[int] = []
        for at in self._places:
            id = row[at]
            if isinstance(id, int):
                its = self._matching.place_of(id) if self._is_new else self._matching.new_of(id)
                if its is None:
                    return None
                ids.append(its)
            else:
                ids.append(-1)
        return tuple(ids) if any(id >= 0 for id in ids) else None

    def loop(self, row: Row) -> Hashable:
        """The innermost loop around it, as the new side numbers it; by depth where it is none."""
        loop = self.value(row, "loop")
        if not isinstance(loop, int):
            return ("no loop", self.value(row, "loop_depth") == 0)
        its = loop if self._is_new else self._matching.to_new[loop]
        return ("only old", loop) if its is None else its

    def alone(self, row: Row) -> Hashable | None:
        """Whether it is the only row of its instruction; None for no."""
        if self._counts is None:
            self._counts = Counter(map(self.place, self.rows))
        return True if self._counts[self.place(row)] == 1 else None

    def shape(self, row: Row) -> Hashable:
        """What its instruction gives."""
        id = self.value(row, "instr")
        return (given_shape(self._module.instruction(id)) if isinstance(id, int) else None,)


_WHERE: Final[Mapping[str, Callable[[_Rows, Row], Hashable | None]]] = {
    "place": _Rows.place,
    "alone": _Rows.alone,
    "loop": _Rows.loop,
    "shape": _Rows.shape,
    "source": lambda rows, row: (rows.value(row, "source"),),
    "phase": lambda rows, row: (rows.value(row, "phase"),),
}


# ---------------------------------------------------------------------------------- comparing


class _Comparer:
    """Says what differs between two matched rows of a table; None for nothing."""

    def __init__(self, scene: Scene, table: Table) -> None:
        self._scene = scene
        columns = compared(table)
        self._columns = [(column, table.position(column.name)) for column in columns]
        self._refs = any(column.type in ("ref", "refs") for column in columns)
        self._loop = table.position("loop") if "loop" in table.names else None
        self._depth = table.position("loop_depth") if "loop_depth" in table.names else None

    def __call__(self, old: Row, new: Row) -> ChangedRow | None:
        moved = None if self._loop is None else self._moved(old, new)
        changes = tuple(
            Change(column, old[at], new[at])
            for column, at in self._columns
            if old[at] != new[at] or self._refs
            if not self._equal(column, old[at], new[at])
        )
        return ChangedRow(old, new, changes, moved) if changes or moved is not None else None

    def _equal(self, column: Column, old: object, new: object) -> bool:
        if column.type == "ref" and isinstance(old, int):
            return self._scene.matching.new_of(old) == new
        if column.type == "refs" and isinstance(old, tuple):
            return tuple(map(self._scene.matching.new_of, old)) == new
        return old == new

    def _moved(self, old: Row, new: Row) -> Move | None:
        """The loops around them, where these are not matched; None also where one is not known."""
        loop, its = self._loop_of(old), self._loop_of(new)
        if loop is None or its is None:
            return None
        partner = self._scene.matching.to_new[loop] if loop >= 0 else None
        if (partner == its) if loop >= 0 else (its < 0):
            return None
        return Move(self._scene.old_loops.get(loop), self._scene.new_loops.get(its))

    def _loop_of(self, row: Row) -> int | None:
        """The id of the innermost loop, -1 outside of loops, None where that is not known."""
        assert self._loop is not None
        loop = row[self._loop]
        if isinstance(loop, int):
            return loop
        return -1 if self._depth is None or row[self._depth] == 0 else None
