"""The skeleton of a module: loops, branches and calls around the rows of every table with a lane.

A row stands where its instruction does; one inside a fusion, an async wrapper or what an operation
applies stands where that does, so that a line is something the schedule runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hlo_lens.facts import Cell, Facts, Lane, Table
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.present.cells import Cells, Row, runs
from hlo_lens.present.groups import total, total_runs, wanted
from hlo_lens.present.quantities import Bounds, exactly

if TYPE_CHECKING:
    from hlo_lens.analysis import CallSite, Executions, Loop, ModuleAnalysis

NodeKind = Literal["entry", "loop", "condition", "conditional", "branch", "call", "uncalled"]

STRUCTURE = frozenset(("body", "condition", "branch", "call"))
"""Kinds of calls that are nodes; what other calls hold stands where the caller does."""

_DEEPEST = 100  # levels; real programs have a dozen


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a table with a lane, and the instruction it stands at.

    `cells` are those of the lane's line that are not empty, the kind of work first. `total` is the
    lane's total for this row: value × executions.
    """

    lane: Lane
    table: Table
    row: Row
    instr: Instruction
    cells: tuple[str, ...]
    details: tuple[str, ...]
    phase: str | None
    source: str | None
    runs: Bounds | None
    total: Bounds | None


@dataclass(frozen=True, slots=True)
class Node:
    """A computation in its place. `instr` is what calls it, None for the entry.

    items: of `instr` itself, such as a collective that is written as a loop. children: nodes and
    items in text order. loop: of a loop. omitted: why its children are left out: they stand where
    the computation is called first (`again`), or are nested too deep to be read (`deep`).
    """

    kind: NodeKind
    computation: Computation | None
    instr: Instruction | None
    loop: Loop | None
    phase: str | None
    runs: Bounds | None
    items: tuple[Item, ...]
    children: tuple[Node | Item, ...]
    omitted: Literal["again", "deep"] | None = None

    def walk(self) -> Iterator[Item]:
        """Every item of it, in order."""
        yield from self.items
        for child in self.children:
            if isinstance(child, Item):
                yield child
            else:
                yield from child.walk()


@dataclass(frozen=True, slots=True)
class Total:
    """Of one kind of work: rows, how often they run, and their lane's total, where it has one."""

    lane: Lane
    table: Table
    kind: str
    rows: int
    runs: Bounds | None
    total: Bounds | None


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The skeleton of one module: its entry, then what nothing calls; totals by lane and kind."""

    name: str
    stage: str
    is_scheduled: bool
    truncated: bool
    roots: tuple[Node, ...]
    totals: tuple[Total, ...]


def skeleton(facts: Facts, *, only: str | None = None) -> Skeleton:
    """The skeleton of the module of `facts` that runs; with `only`, of one of the lanes."""
    program = facts.program
    module = program.main
    position = program.index(module)
    analysis = program.analysis(module)
    items = list(_items(facts, position, only))
    places = _Places(analysis)
    at: dict[Instruction, list[Item]] = {}
    for item in items:
        for instr in places.of(item.instr):
            at.setdefault(instr, []).append(replace(item, instr=instr))
    roots = _Builder(analysis, at, bare_loops=only is None).roots()
    return Skeleton(
        program.name,
        program.stages[position],
        module.is_scheduled,
        module.truncated,
        tuple(roots),
        tuple(_totals(items)),
    )


# ---------------------------------------------------------------------------------- items


def _items(facts: Facts, position: int, only: str | None) -> Iterator[Item]:
    """A line for each row with a lane; for what several tables know, that of the first of them."""
    cells = Cells(facts.program)
    module = facts.program.modules[position]
    taken: set[int] = set()
    tables = [table for table in facts.tables if table.summary is not None]
    tables.sort(key=lambda table: (table.summary.order if table.summary else 0, table.name))
    for table in tables:
        lane = table.summary.lane if table.summary is not None else None
        if lane is None:
            continue
        module_at, instr_at = table.position("module"), table.position("instr")
        rows = [
            row
            for row in wanted(table, facts.rows(table.name), lane.skip)
            if row[module_at] == position and row[instr_at] not in taken
        ]
        # What makes up a row of one table is no line of another.
        taken |= {m.instr for m in facts.members(table.name) if m.module == position}
        taken |= {id for row in rows if isinstance(id := row[instr_at], int)}
        if only in (None, lane.name):
            yield from (_item(cells, table, lane, row, module.instruction) for row in rows)


def _item(
    cells: Cells,
    table: Table,
    lane: Lane,
    row: Row,
    instruction: Callable[[int], Instruction],
) -> Item:
    id = row[table.position("instr")]
    assert isinstance(id, int)
    phase, source = row[table.position("phase")], row[table.position("source")]
    return Item(
        lane,
        table,
        row,
        instruction(id),
        tuple(_texts(cells, table, lane.line, row)),
        tuple(_texts(cells, table, lane.details, row)),
        str(phase) if phase is not None else None,
        str(source) if source is not None else None,
        runs(table)(row),
        None if lane.total is None else total(table, lane.total, [row]),
    )


def _texts(cells: Cells, table: Table, shown: Iterable[Cell], row: Row) -> Iterator[str]:
    for cell in shown:
        if text := cells.reader(table, cell)(row):
            yield text


def _totals(items: Iterable[Item]) -> Iterator[Total]:
    """The totals of each kind of work, a lane after the other."""
    kinds: dict[tuple[str, str, str], list[Item]] = {}
    for item in items:
        kinds.setdefault((item.lane.name, item.table.name, item.cells[0]), []).append(item)
    for found in kinds.values():
        first, rows = found[0], [item.row for item in found]
        lane, table = first.lane, first.table
        yield Total(
            lane,
            table,
            first.cells[0],
            len(rows),
            total_runs(table, rows),
            None if lane.total is None else total(table, lane.total, rows),
        )


# ---------------------------------------------------------------------------------- places


class _Places:
    """Where the schedule runs an instruction: itself, or the fusions and wrappers around it."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self._around: dict[Computation, tuple[Instruction, ...]] = {}
        graph = analysis.graph
        for computation in graph.order:  # callers before callees
            sites = graph.callers(computation)
            inside = computation is not analysis.module.entry and bool(sites)
            if inside and not any(site.kind in STRUCTURE for site in sites):
                outer = (instr for site in sites for instr in self.of(site.caller))
                self._around[computation] = tuple(dict.fromkeys(outer))

    def of(self, instr: Instruction) -> tuple[Instruction, ...]:
        """The instructions of loop bodies, branches, called computations and the entry that run
        `instr`; itself where it stands there, or where nothing calls its computation."""
        return self._around.get(instr.computation) or (instr,)


class _Builder:
    """Builds nodes, each computation's inside once."""

    def __init__(
        self, analysis: ModuleAnalysis, at: Mapping[Instruction, list[Item]], *, bare_loops: bool
    ) -> None:
        self._analysis = analysis
        self._bare_loops = bare_loops
        self._at: dict[Computation, dict[int, list[Item]]] = {}
        for instr, items in at.items():
            self._at.setdefault(instr.computation, {})[instr.index] = items
        self._sites: dict[Computation, dict[int, list[CallSite]]] = {}
        for site in analysis.call_sites:
            if site.kind in STRUCTURE:
                caller = site.caller
                of_caller = self._sites.setdefault(caller.computation, {})
                of_caller.setdefault(caller.index, []).append(site)
        self._loops = {loop.instr: loop for loop in analysis.loops}
        self._done: set[Computation] = set()
        self._depth = 0

    def roots(self) -> Iterator[Node]:
        """The entry, unless it is cut off, then every other computation that nothing calls and that
        has an inside."""
        module = self._analysis.module
        if module.entry.is_entry or not module.truncated:
            yield self._node("entry", module.entry, None)
        for computation in (*self._at, *self._sites):
            if computation not in self._done and not self._analysis.graph.callers(computation):
                node = self._node("uncalled", computation, None)
                if node.children:
                    yield node

    def _node(self, kind: NodeKind, computation: Computation, instr: Instruction | None) -> Node:
        omitted: Literal["again", "deep"] | None = None
        children: tuple[Node | Item, ...] = ()
        if computation in self._at or computation in self._sites:
            if computation in self._done:
                omitted = "again"
            elif self._depth >= _DEEPEST:
                omitted = "deep"
            else:
                self._done.add(computation)
                self._depth += 1
                children = tuple(self._children(computation))
                self._depth -= 1
        found = self._analysis.executions(computation)
        return Node(
            kind,
            computation,
            instr,
            self._loops.get(instr) if kind == "loop" and instr is not None else None,
            None if instr is None else self._analysis.phase(instr).phase,
            _bounds(found),
            self._items_at(instr),
            children,
            omitted,
        )

    def _items_at(self, instr: Instruction | None) -> tuple[Item, ...]:
        if instr is None:
            return ()
        return tuple(self._at.get(instr.computation, {}).get(instr.index, ()))

    def _children(self, computation: Computation) -> Iterator[Node | Item]:
        at, sites = self._at.get(computation, {}), self._sites.get(computation, {})
        for index in sorted(at.keys() | sites.keys()):
            if index not in sites:
                yield from at[index]
                continue
            opcode = computation.opcodes[index]
            if opcode == "while":
                yield from self._while(sites[index])
            elif sites[index][0].kind == "branch":
                yield from self._conditional(sites[index])
            else:
                yield from self._call(sites[index], at.get(index, ()))

    def _while(self, sites: Sequence[CallSite]) -> Iterator[Node]:
        """The loop: the inside of its body; its condition only where it has an inside."""
        instr = sites[0].caller
        body = next((site.callee for site in sites if site.kind == "body"), None)
        for site in sites:
            if site.kind == "condition":
                condition = self._node("condition", site.callee, instr)
                if condition.children:
                    yield replace(condition, items=())
        if body is not None:
            node = self._node("loop", body, instr)
            if self._bare_loops or node.children or node.items or node.omitted:
                yield node

    def _conditional(self, sites: Sequence[CallSite]) -> Iterator[Node]:
        instr = sites[0].caller
        branches = [self._node("branch", site.callee, instr) for site in sites]
        branches = [replace(branch, items=()) for branch in branches]
        items = self._items_at(instr)
        if items or any(branch.children or branch.omitted for branch in branches):
            around = self._analysis.executions(instr.computation)
            phase = self._analysis.phase(instr).phase
            yield Node(
                "conditional", None, instr, None, phase, _bounds(around), items, tuple(branches)
            )

    def _call(self, sites: Sequence[CallSite], items: Sequence[Item]) -> Iterator[Node | Item]:
        """The inside of what is called; as a node of its own where that is more than one line."""
        yield from items
        for site in sites:
            node = replace(self._node("call", site.callee, site.caller), items=())
            if len(node.children) == 1:
                yield from node.children
            elif node.children or node.omitted:
                yield node


def _bounds(found: Executions) -> Bounds | None:
    if found.exact is not None:
        return exactly(found.exact)
    return None if found.minimum is None else Bounds(found.minimum, found.maximum)
