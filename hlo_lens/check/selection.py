"""The rows that an expectation is about: which are meant, and for which its condition holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from hlo_lens.check.conditions import columns_read_by
from hlo_lens.check.model import Expectation
from hlo_lens.facts import FINDINGS, MEMBERS, Facts
from hlo_lens.facts.findings import MACHINERY
from hlo_lens.facts.sqlite import Database, QueryError
from hlo_lens.files import InputError
from hlo_lens.hlo import Module
from hlo_lens.present.cells import Loops
from hlo_lens.present.quantities import visible
from hlo_lens.present.reading import not_read

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop

_NOT_WHOLE: Final = {
    "truncated": "the text is cut off: what stands behind the cut is not known",
    "no-entry": "the text has no ENTRY: it may be cut off",
    "missing-computation": "the text is not whole: {}",
}
_ALL: Final = 2**31 - 1


def not_whole(module: Module) -> str:
    """Why what a text says cannot be taken for all there is; "" where it can."""
    for repair in module.repairs:
        if why := _NOT_WHOLE.get(repair.kind):
            return why.format(repair.message)
    return ""


class Truth(NamedTuple):
    """What SQL says of one row; None where it says NULL: it is not known."""

    meant: bool | None
    holds: bool | None


_KNOWN: Final = (True, False, None)
_TRUTHS: Final[Mapping[object, Truth]] = {
    (meant, holds): Truth(meant, holds) for meant in _KNOWN for holds in _KNOWN
}


class Selection:
    """The rows of the table of one expectation, in one module.

    Raises `InputError` where the SQL of the expectation cannot be read, and `QueryError` where it
    cannot be answered for this program.
    """

    def __init__(self, facts: Facts, expected: Expectation, position: int, asked: Database) -> None:
        self.facts = facts
        self.expected = expected
        self.position = position
        self.module = facts.program.modules[position]
        self.table = facts.table(expected.table)
        self._asked = asked

    @cached_property
    def columns_read(self) -> frozenset[tuple[str, str]]:
        """(table, column) of what `where` and the condition read."""
        expected = self.expected
        read: frozenset[tuple[str, str]] = frozenset()
        for condition, place in (
            (expected.where, expected.where_place),
            (expected.condition, expected.condition_place),
        ):
            if not condition:
                continue
            try:
                read |= columns_read_by(condition, self.table.name, self.facts, self._asked)
            except QueryError as problem:
                place = place or expected.place or visible(expected.id)
                raise InputError(place, str(problem)) from None
        return read

    @property
    def _conditions(self) -> tuple[str, str]:
        return self.expected.where, self.expected.condition

    def why_not(self) -> str:
        """Why nothing can be said here, whatever the rows are; "" where something can."""
        for name in {self.table.name, *(table for table, _ in self.columns_read)}:
            if (problem := self._not_read(name)) is not None:
                return problem
        modules = self.facts.program.modules
        # Passes compare stages, so that a fact about one needs the others.
        for module, stage in zip(modules, self.facts.program.stages, strict=True):
            if why := not_whole(module):
                return f"{stage}: {why}" if len(modules) > 1 else why
        looks_around = any("select" in one.lower() for one in self._conditions)
        looked_at = modules if looks_around else [self.module]
        needed = sorted(self._needs("needs_op_names"))
        if needed and not all(module.has_metadata for module in looked_at):
            return f"the text has no op_name and no source, which {', '.join(needed)} needs"
        needed = sorted(self._needs("needs_configs"))
        if needed and any(module.lacks_configs for module in looked_at):
            return f"the text has no backend_config, which {', '.join(needed)} needs"
        return ""

    def _not_read(self, table: str) -> str | None:
        if table not in (FINDINGS.name, MEMBERS.name):
            return not_read(self.facts, table)
        self.facts.run_all()
        broken = (one for one in self.facts.findings if one.rule in MACHINERY)
        return next((one.message for one in broken), None)

    def _needs(self, what: Literal["needs_op_names", "needs_configs"]) -> Iterator[str]:
        """What of it a text without metadata, or configs, cannot tell: columns, or whole tables."""
        for name in {self.table.name, *(table for table, _ in self.columns_read)}:
            table = self.facts.table(name)
            read = {column for its, column in self.columns_read if its == name}
            if getattr(table, what):
                yield f"the table {name}"
            yield from (
                one.name for one in table.columns if getattr(one, what) and one.name in read
            )

    @cached_property
    def records(self) -> dict[int, dict[str, object]]:
        """All rows of the table in this module, by id."""
        rows = self.facts.records(self.table.name)
        return {
            id: row
            for row in rows
            if isinstance(id := row["id"], int) and row["module"] in self._modules
        }

    @cached_property
    def loops(self) -> Mapping[int, Loop]:
        """The whiles of the module, by instruction."""
        return Loops(self.facts.program, self.position).by_id

    @property
    def _modules(self) -> tuple[int | None, ...]:
        """The module; where it is the one that runs, with what is said of the whole program."""
        program = self.facts.program
        whole = self.position == program.index(program.main)
        return (self.position, None) if whole else (self.position,)

    @cached_property
    def truths(self) -> dict[int, Truth]:
        """What SQL says of each row, by id, in their order."""
        return self._truths(*self._conditions)

    @cached_property
    def meant(self) -> list[int]:
        """The rows for which `where` holds."""
        return [id for id, truth in self.truths.items() if truth.meant]

    @cached_property
    def perhaps(self) -> list[int]:
        """The rows for which `where` is NULL."""
        return [id for id, truth in self.truths.items() if truth.meant is None]

    def fulfilling(self, condition: str) -> list[int]:
        """The rows for which another condition holds."""
        return [id for id, truth in self._truths(condition, "").items() if truth.meant]

    def columns_of(self, condition: str) -> list[str]:
        """The columns of the table that a condition reads, in the order of the table."""
        read = self._asked.columns_read(self._sql(condition, ""))
        own = {column for table, column in read if table == self.table.name} - {"id", "module"}
        return [name for name in self.table.names if name in own]

    def _truths(self, where: str, condition: str) -> dict[int, Truth]:
        rows = self._asked.ask(self._sql(where, condition), limit_rows=_ALL).rows
        return {id: _TRUTHS[meant, holds] for id, meant, holds in rows if isinstance(id, int)}

    def _sql(self, where: str, condition: str) -> str:
        """Each condition stands on lines of its own: it may end in a comment."""
        truths = ", ".join(f"NOT NOT (\n{one or '1'}\n)" for one in (where, condition))
        of_all = " OR module IS NULL" if None in self._modules else ""
        rows = f'"{self.table.name}" WHERE (module = {self.position}{of_all})'
        return f"SELECT id, {truths} FROM {rows} ORDER BY id"
