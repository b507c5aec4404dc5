"""Runs passes when somebody asks for a table, with what they require, and survives broken ones."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import PathFinder
from threading import RLock
from typing import TYPE_CHECKING

from hlo_lens.facts.columns import FINDINGS, MEMBERS, Table
from hlo_lens.facts.context import common
from hlo_lens.facts.findings import PASS_FAILED, PLUGIN_BROKEN, Finding, Rule
from hlo_lens.facts.passes import Member, Pass, PassResult
from hlo_lens.facts.rows import RowError, checked_rows, json_text

if TYPE_CHECKING:
    from hlo_lens.program import Program

ENTRY_POINT_GROUP = "hlo_lens.passes"

_RUNNER_TABLES = (FINDINGS, MEMBERS)
# A plugin that calls sys.exit() while it is imported or run must not end the tool either.
_CRASH = (Exception, SystemExit)


class UnknownTableError(LookupError):
    """No pass fills a table of that name; the message suggests what may be meant."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The passes that can be used together, and what they own.

    `tables` are sorted by name; `members` and `findings` are among them. `findings` holds a
    `plugin-broken` for every pass that was left out.
    """

    passes: tuple[Pass, ...]
    tables: tuple[Table, ...]
    owners: Mapping[str, Pass]
    rules: Mapping[str, Rule]
    findings: tuple[Finding, ...]

    def table(self, name: str) -> Table:
        """The table of that name; `UnknownTableError` where there is none."""
        for table in self.tables:
            if table.name == name:
                return table
        import difflib

        names = [table.name for table in self.tables]
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
        raise UnknownTableError(f"no table {name}; {hint}")


def register(passes: Iterable[object], findings: Iterable[Finding] = ()) -> Registry:
    """Put passes together; one that is no pass or claims what is taken becomes a finding."""
    kept: list[Pass] = []
    broken = list(findings)
    owners: dict[str, Pass] = {}
    rules = {rule.id: rule for rule in (PASS_FAILED, PLUGIN_BROKEN)}
    for candidate in passes:
        try:
            problem = _problem(candidate, kept, owners, rules)
        except _CRASH as error:
            problem = f"pass {candidate!r:.80} cannot be used: {_described(error)}"
        if problem or not isinstance(candidate, Pass):
            broken.append(Finding(PLUGIN_BROKEN.id, PLUGIN_BROKEN.level, problem or "not a pass"))
            continue
        kept.append(candidate)
        owners.update((table.name, candidate) for table in candidate.tables)
        rules.update((rule.id, rule) for rule in candidate.rules)
    tables = [table for one in kept for table in one.tables]
    tables.extend(_RUNNER_TABLES)
    return Registry(
        tuple(kept),
        tuple(sorted(tables, key=lambda table: table.name)),
        owners,
        dict(sorted(rules.items())),
        tuple(broken),
    )


def _problem(
    candidate: object,
    kept: Sequence[Pass],
    owners: Mapping[str, Pass],
    rules: Mapping[str, Rule],
) -> str | None:
    """Why `candidate` cannot join the passes kept so far, as a sentence; None where it can."""
    if not isinstance(candidate, Pass):
        wanted = ("name", "tables", "requires", "rules", "run")
        lacks = ", ".join(name for name in wanted if not hasattr(candidate, name))
        return f"{candidate!r:.80} is no pass: it lacks {lacks}"
    name = candidate.name
    if any(name == other.name for other in kept):
        return f"pass {name} is left out: another pass has that name"
    for table in candidate.tables:
        if not isinstance(table, Table):
            return f"pass {name} is left out: {table!r:.80} is no Table"
        if any(table.name == own.name for own in _RUNNER_TABLES):
            return f"pass {name} is left out: table {table.name} is filled by the runner"
        if table.name in owners:
            return f"pass {name} is left out: pass {owners[table.name].name} owns {table.name}"
    for rule in candidate.rules:
        if rules.get(rule.id, rule) != rule:
            return f"pass {name} is left out: rule {rule.id} is already defined otherwise"
    return None


@cache
def discover_passes(*, installed: bool = True) -> Registry:
    """The built-in passes, in order of their file names, then those of packages `installed`.

    Every module of `hlo_lens_passes` whose name has no leading underscore exposes `PASS`; an entry
    point of group `hlo_lens.passes` names a pass object. Nothing is raised: what cannot be
    loaded is a `plugin-broken` finding of the result.
    """
    passes: list[object] = []
    findings: list[Finding] = []
    for name, load in (*_built_in(), *(_installed() if installed else ())):
        try:
            passes.append(load())
        except _CRASH as error:
            message = f"pass {name} cannot be loaded: {_described(error)}"
            findings.append(Finding(PLUGIN_BROKEN.id, PLUGIN_BROKEN.level, message))
    return register(passes, findings)


def _built_in() -> Iterator[tuple[str, Callable[[], object]]]:
    import hlo_lens_passes

    for info in sorted(pkgutil.iter_modules(hlo_lens_passes.__path__), key=lambda info: info.name):
        if not info.name.startswith("_"):
            yield info.name, partial(_load_built_in, info.name)


def _load_built_in(name: str) -> object:
    return importlib.import_module(f"hlo_lens_passes.{name}").PASS


def _installed() -> Iterator[tuple[str, Callable[[], object]]]:
    if not _group_may_be_named():
        return
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        yield point.name, point.load


def _group_may_be_named() -> bool:
    """False where no package has an entry point of the group, by what importlib.metadata reads.

    To import that takes longer than to discover the passes (it imports email, socket and zipfile).
    Archives, and finders other than that of folders, are left to it.
    """
    finders = [one for one in sys.meta_path if hasattr(one, "find_distributions")]
    if finders != [PathFinder]:
        return True
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except FileNotFoundError:
            continue
        except OSError:
            return True
        for name in names:
            if not name.lower().endswith("-info"):  # .dist-info, .egg-info, EGG-INFO in an egg
                continue
            path = os.path.join(folder, name, "entry_points.txt")
            with suppress(OSError), open(path, "rb") as file:
                if ENTRY_POINT_GROUP.encode() in file.read():
                    return True
    return False


class Facts:
    """The tables of one program, each computed once, when first asked for.

    `passes` None means every pass that is installed. `module` in every row is the position of
    the module in `program.modules`.
    """

    def __init__(self, program: Program, passes: Iterable[object] | None = None) -> None:
        self.program = program
        self.registry = discover_passes() if passes is None else register(passes)
        self._rows: dict[str, list[tuple[object, ...]]] = {}
        self._members: dict[str, list[Member]] = {}
        self._findings: dict[object, Finding] = {}
        self._finished: set[str] = set()  # names of passes, failed ones included
        self._failed: set[str] = set()
        self._running: list[Pass] = []
        self._lock = RLock()  # passes are run by one thread at a time
        for finding in self.registry.findings:
            self._add_finding(finding)

    def __repr__(self) -> str:
        return (
            f"<Facts of {self.program.name!r}: {len(self.tables)} tables,"
            f" {len(self._rows)} computed>"
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table there is, sorted by name; asking runs nothing."""
        return self.registry.tables

    def table(self, name: str) -> Table:
        """The schema of one table; `UnknownTableError` where there is none."""
        return self.registry.table(name)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a table, in column order; runs its pass and what that requires, once.

        `refs` are tuples of int, `json` is text. Raises `UnknownTableError`; inside a pass also
        `LookupError` for a table it does not require.
        """
        table = self.table(name)
        with self._lock:
            self._check_required(name)
            if table is MEMBERS:
                return self._member_rows()
            if table is FINDINGS:
                self.run_all()
                return self.finding_rows()
            self._compute(self.registry.owners[name])
            return self._rows[name]

    def records(self, name: str) -> list[dict[str, object]]:
        """The rows of a table as mappings from column name; raises as `rows` does."""
        names = self.table(name).names
        return [dict(zip(names, row, strict=True)) for row in self.rows(name)]

    def records_by_module(self, name: str) -> dict[int, list[dict[str, object]]]:
        """The rows of a table as mappings, by the position of their module; raises as `rows`."""
        at = self.table(name).position("module")
        found: dict[int, list[dict[str, object]]] = {}
        for row, record in zip(self.rows(name), self.records(name), strict=True):
            position = row[at]
            assert isinstance(position, int)
            found.setdefault(position, []).append(record)
        return found

    def members(self, name: str | None = None) -> list[Member]:
        """The members of the rows of one table, or of all tables (which runs every pass)."""
        with self._lock:
            if name is None:
                self._check_required("members")
                self.run_all()
                return [one for table in sorted(self._members) for one in self._members[table]]
            self.rows(name)
            return self._members.get(name, [])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the passes run so far, each once."""
        return tuple(self._findings.values())

    def finding_rows(self) -> list[tuple[object, ...]]:
        """The rows of the findings table, as far as passes have run; runs nothing."""
        records: Iterable[dict[str, object]] = (
            {
                **self._place(finding),
                "id": number,
                "rule": finding.rule,
                "level": finding.level,
                "message": finding.message,
                "evidence": json_text(finding.evidence),
                "help": finding.help,
            }
            for number, finding in enumerate(self.findings)
        )
        return [tuple(map(record.get, FINDINGS.names)) for record in records]

    def run_all(self) -> None:
        """Run every pass that has not run; `LookupError` inside a pass."""
        self.run(self.registry.passes)

    def run(self, passes: Iterable[Pass]) -> None:
        """Run those of the registry's passes that have not run; `LookupError` inside a pass."""
        with self._lock:
            self._check_required("findings")
            for one in passes:
                self._compute(one)

    def _check_required(self, name: str) -> None:
        if self._running and name not in self._running[-1].requires:
            raise LookupError(f"it reads table {name} but does not require it")

    def _compute(self, owner: Pass, path: tuple[Pass, ...] = ()) -> None:
        """Run `owner` after what it requires; `path` is who requires it, to find cycles."""
        if owner.name in self._finished:
            return
        names = [one.name for one in path]
        if owner.name in names:
            cycle = path[names.index(owner.name) :]
            text = " → ".join([*(one.name for one in cycle), owner.name])
            for one in cycle:
                self._fail(one, f"it requires itself: {text}")
            return
        for name in owner.requires:
            required = self.registry.owners.get(name)
            if required is None:
                self._fail(owner, f"it requires table {name}, which no pass fills")
                return
            self._compute(required, (*path, owner))
            if owner.name in self._finished:  # it is part of a cycle
                return
            if required.name in self._failed:
                self._fail(owner, f"it requires table {name}, and pass {required.name} failed")
                return
        self._run(owner)

    def _run(self, owner: Pass) -> None:
        self._running.append(owner)
        try:
            result = owner.run(self.program, self)
            rows = self._checked(owner, result)
            members = self._checked_members(rows, result.members)
            self._check_findings(result.findings)
        except _CRASH as error:
            self._fail(owner, _described(error))
            return
        finally:
            self._running.pop()
        self._finished.add(owner.name)
        self._rows.update(rows)
        self._members.update(members)
        for finding in result.findings:
            self._add_finding(finding)

    def _checked(self, owner: Pass, result: PassResult) -> dict[str, list[tuple[object, ...]]]:
        if not isinstance(result, PassResult):
            raise RowError(f"run gave a {type(result).__name__}, not a PassResult")
        own = {table.name for table in owner.tables}
        if strange := sorted(result.rows.keys() - own):
            raise RowError(f"it gives rows of {', '.join(strange)}, which it does not own")
        return {
            table.name: checked_rows(table, result.rows.get(table.name, ()), self.program.modules)
            for table in owner.tables
        }

    def _checked_members(
        self, rows: Mapping[str, list[tuple[object, ...]]], members: Sequence[Member]
    ) -> dict[str, list[Member]]:
        checked: dict[str, list[Member]] = {}
        keys: dict[str, set[tuple[object, object]]] = {}
        for member in members:
            if member.table not in rows:
                raise RowError(f"a member of {member.table}, a table it does not own")
            if member.table not in keys:
                table = self.table(member.table)
                at, module_at = table.position("id"), table.position("module")
                keys[member.table] = {(row[module_at], row[at]) for row in rows[member.table]}
            if (member.module, member.row) not in keys[member.table]:
                raise RowError(f"{member} is part of no row")
            self._check_place(member.module, member.instr)
            checked.setdefault(member.table, []).append(member)
        return checked

    def _check_findings(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.rule not in self.registry.rules:
                raise RowError(f"it reports rule {finding.rule}, which no pass declares")
            self._check_place(finding.module, finding.instr)

    def _check_place(self, module: int | None, instr: int | None) -> None:
        if module is None and instr is None:
            return
        modules = self.program.modules
        if module is None or not 0 <= module < len(modules):
            raise RowError(f"there is no module {module}")
        if instr is not None and not 0 <= instr < modules[module].instruction_count:
            raise RowError(f"module {module} has no instruction {instr}")

    def _fail(self, owner: Pass, why: str) -> None:
        self._finished.add(owner.name)
        self._failed.add(owner.name)
        for table in owner.tables:
            self._rows[table.name] = []
        self._add_finding(Finding(PASS_FAILED.id, PASS_FAILED.level, f"pass {owner.name}: {why}"))

    def _add_finding(self, finding: Finding) -> None:
        key = (finding.rule, finding.module, finding.instr, finding.message)
        self._findings.setdefault(key, finding)

    def _member_rows(self) -> list[tuple[object, ...]]:
        return [
            (number, member.module, member.table, member.row, member.role, member.instr)
            for number, member in enumerate(self.members())
        ]

    def _place(self, finding: Finding) -> Mapping[str, object]:
        """The common columns of a finding; only where it is if the analysis cannot say more."""
        if finding.module is None or finding.instr is None:
            return {"module": finding.module}
        instruction = self.program.modules[finding.module].instruction(finding.instr)
        try:
            return common(self.program, finding.module, instruction)
        except _CRASH:
            return {"module": finding.module, "instr": finding.instr, "name": instruction.name}


def _described(error: BaseException) -> str:
    """What was raised, on one line; only the message where the runner raised it itself."""
    message = " ".join(str(error).split())
    return message if isinstance(error, RowError) else f"{type(error).__name__}: {message}"
