"""What `compare` finds between two programs: rows, loop bodies and instructions, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hlo_lens.analysis import Loop
from hlo_lens.facts import Column, Facts, Table
from hlo_lens.hlo import Instruction, Module

Row: TypeAlias = tuple[object, ...]
"""A row as `Facts.rows` gives it: its values in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class Change:
    """A column whose value differs between two rows that are matched.

    For a `ref` and `refs` the values are ids of instructions, each of its own side's module.
    """

    column: Column
    old: object
    new: object


@dataclass(frozen=True, slots=True)
class Move:
    """The innermost loops around two matched rows, which are not matched with each other.

    None is "outside of loops": a row that moved out of a loop has `new` None.
    """

    old: Loop | None
    new: Loop | None


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """Two rows that are matched and differ: in `changes`, in where they stand, or both."""

    old: Row
    new: Row
    changes: tuple[Change, ...]
    moved: Move | None


@dataclass(frozen=True, slots=True)
class TableDiff:
    """The rows of one table: how many are matched and equal, and the rows that are not.

    Rows stand in the order of their side: `changed` and `added` by the new one, `removed` by the
    old one.
    """

    table: Table
    unchanged: int
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    changed: tuple[ChangedRow, ...]

    @property
    def same(self) -> bool:
        """Whether no row is added, removed or changed."""
        return not (self.added or self.removed or self.changed)

    def record(self, row: Row) -> dict[str, object]:
        """A row of this table as a mapping from column name."""
        return dict(zip(self.table.names, row, strict=True))


@dataclass(frozen=True, slots=True)
class Count:
    """How many instructions of one opcode, dtype and shape each side has.

    dtype: `tuple` for a tuple. shape: dtype and dimensions, without layouts; "" where the text
    leaves it out.
    """

    opcode: str
    dtype: str
    shape: str
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class BodyDelta:
    """The instructions of two matched loops whose numbers differ.

    Counted is what runs once an iteration: body and condition, with the computations that they
    call or fuse, without loops inside. old, new: the loops; None for a loop that one side alone
    has, and both None for what stands outside of loops. unchanged: instructions that both sides
    have equally often.
    """

    old: Loop | None
    new: Loop | None
    counts: tuple[Count, ...]
    unchanged: int

    @property
    def outside(self) -> bool:
        """Whether this is what stands outside of loops."""
        return self.old is None and self.new is None

    @property
    def same(self) -> bool:
        """Whether both sides have the loop, with as many trips and the same instructions."""
        if self.counts or (self.old is None) != (self.new is None):
            return False
        return self.old is None or self.new is None or self.old.trip_count == self.new.trip_count


@dataclass(frozen=True, slots=True)
class Matching:
    """Which instruction of the old module is which of the new one, by id; None for no one.

    changed: the pairs (old id, new id) that are matched and not equal: another layout or attribute,
    other operands. spelled_old, spelled_new: instructions without a partner that the other side
    has in another spelling: a get-tuple-element that it writes as `x#1`, the operation that an
    `async-start` wraps. hosts_old, hosts_new: of such operations the `async-start`.
    """

    old: Module
    new: Module
    to_new: Sequence[int | None]
    to_old: Sequence[int | None]
    changed: tuple[tuple[int, int], ...] = ()
    spelled_old: frozenset[int] = frozenset()
    spelled_new: frozenset[int] = frozenset()
    hosts_old: Mapping[int, int] = field(default_factory=dict)
    hosts_new: Mapping[int, int] = field(default_factory=dict)

    @property
    def matched(self) -> int:
        """The number of instructions that have a partner; as many on either side."""
        return len(self.to_new) - self.to_new.count(None)

    @property
    def only_old(self) -> list[Instruction]:
        """The instructions that the new module does not have, in text order."""
        missing = (i for i, its in enumerate(self.to_new) if its is None)
        return [self.old.instruction(i) for i in missing if i not in self.spelled_old]

    @property
    def only_new(self) -> list[Instruction]:
        """The instructions that the old module does not have, in text order."""
        missing = (i for i, its in enumerate(self.to_old) if its is None)
        return [self.new.instruction(i) for i in missing if i not in self.spelled_new]

    @property
    def same(self) -> bool:
        """Whether every instruction has a partner and equals it: the modules are one graph."""
        return not (self.changed or self.only_old or self.only_new)

    def new_of(self, old: int) -> int | None:
        """The partner of an instruction of the old module. For an operation in an `async-start`
        that has none, the one of the start."""
        found = self.to_new[old]
        host = self.hosts_old.get(old)
        return self.to_new[host] if found is None and host is not None else found

    def place_of(self, new: int) -> int | None:
        """The instruction of the new module that stands for one of it in `new_of`: itself, the
        start around it, or None where neither has a partner."""
        if self.to_old[new] is not None:
            return new
        host = self.hosts_new.get(new)
        return None if host is None or self.to_old[host] is None else host


@dataclass(frozen=True, slots=True)
class StageDiff:
    """One stage of both programs.

    old, new: positions of its module in the two programs. The stages have one name, but for two
    lone modules, which are compared whatever their stages are called. instructions_count: whether
    an instruction that is not matched and equal makes a difference by itself; not where somebody
    asked for some tables only.
    """

    old: int
    new: int
    matching: Matching
    tables: tuple[TableDiff, ...]
    bodies: tuple[BodyDelta, ...]
    instructions_count: bool = True

    @property
    def same(self) -> bool:
        """Whether no compared table differs and, where they count, no instruction does."""
        if self.instructions_count and not self.matching.same:
            return False
        return all(table.same for table in self.tables)

    def table(self, name: str) -> TableDiff:
        """The diff of one table. Raises KeyError where it was not compared."""
        for table in self.tables:
            if table.table.name == name:
                return table
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ProgramDiff:
    """All that differs between two programs.

    `stages` are those that both have, in the order of the old program; `only_old` and `only_new`
    name stages that one side alone has, which are not compared.
    """

    old: Facts
    new: Facts
    stages: tuple[StageDiff, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether no stage that both have differs."""
        return all(stage.same for stage in self.stages)

    @property
    def main(self) -> StageDiff:
        """The stage that runs: the one of the old program's main module, else the last."""
        program = self.old.program
        main = program.index(program.main)
        return next((one for one in self.stages if one.old == main), self.stages[-1])
