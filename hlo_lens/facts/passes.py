"""What a pass is: a named owner of tables that fills them from a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from hlo_lens.facts.columns import Table
from hlo_lens.facts.findings import Finding, Rule

if TYPE_CHECKING:
    from hlo_lens.facts.runner import Facts
    from hlo_lens.program import Program

Row: TypeAlias = Mapping[str, object] | tuple[object, ...]
"""A row as a pass gives it: by column name (a missing name is NULL), or in column order."""


@dataclass(frozen=True, slots=True)
class Member:
    """Instruction `instr` of module `module` is part of row `row` of `table`, as `role`.

    `row` is the row's id: its position among the rows the pass gives, where it gives no ids. The
    row is of the same module.
    """

    table: str
    row: int
    role: str
    module: int
    instr: int


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass found: rows of the tables it owns, their member instructions, findings.

    `rows` maps a table name to rows; a table left out is empty. `id` is filled in where a row
    leaves it NULL, counting from 0 over the program. In a `json` column a str is JSON text
    already; any other value is encoded.
    """

    rows: Mapping[str, Iterable[Row]]
    members: Sequence[Member] = ()
    findings: Sequence[Finding] = ()


@runtime_checkable
class Pass(Protocol):
    """A rule pass: an object without state, mostly one a file, exposed there as `PASS`.

    `requires` names every table `run` reads through `facts`; they are computed before. `module`
    in rows, members and findings is the position in `program.modules`. Whatever `run` raises
    becomes a `pass-failed` finding.
    """

    @property
    def name(self) -> str: ...

    @property
    def tables(self) -> tuple[Table, ...]: ...

    @property
    def requires(self) -> tuple[str, ...]: ...

    @property
    def rules(self) -> tuple[Rule, ...]: ...

    def run(self, program: Program, facts: Facts) -> PassResult: ...
