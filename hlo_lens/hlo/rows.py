"""The flat columns that a computation is read into, and what a text implies or lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Repair:
    """Something the text lacks that was read around.

    kind is one of truncated, missing-computation, no-entry, elided-operands, log-prefix.
    """

    kind: str
    message: str
    line: int


@dataclass(slots=True)
class Rows:
    """The columns of one computation; position in a column is the index of the instruction.

    `operands` is one flat array; those of instruction i are `operands[bounds[i]:bounds[i + 1]]`.
    A negative operand ~k points to `implied[k]`. `lines` holds the 1-based line of each.
    """

    names: Sequence[str]
    opcodes: Sequence[str]
    shapes: Sequence[str]
    arguments: Sequence[str]
    tails: Sequence[str]
    operands: tuple[int, ...]
    bounds: Sequence[int]
    root: int
    implied: list[Implied]
    lines: Sequence[int] = ()
    # By instruction and attribute, the positions in the module of computations written in place.
    inline: Mapping[int, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    _index: dict[str, int] | None = None

    @property
    def index(self) -> dict[str, int]:
        """Position by name."""
        index = self._index
        if index is None:
            index = self._index = dict(zip(self.names, range(len(self.names)), strict=True))
        return index


class SharedRows(Protocol):
    """Columns of several computations in one; those of one can be cut out."""

    @property
    def operands(self) -> tuple[int, ...]: ...
    @property
    def bounds(self) -> Sequence[int]: ...
    @property
    def lines(self) -> Sequence[int]: ...

    def cut(self, start: int) -> Rows:
        """The rows of the computation whose first row is `start`."""


@dataclass(frozen=True, slots=True)
class Implied:
    """An instruction that the text implies: one `#i` of `x#i`, an undeclared parameter, a wrapped
    operation or its parameter."""

    name: str
    opcode: str
    shape: str
    operands: tuple[int, ...] = ()
    tail: str = ""
    argument: str = ""
