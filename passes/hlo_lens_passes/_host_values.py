"""Which moves between device and host are of one value, and what value that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis import Value, consumers
from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import steps
from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import target_of
from hlo_lens_passes._host_moves import EntryArray, HostMove, arguments, copies, placements, results

if TYPE_CHECKING:
    from hlo_lens.analysis import CallGraph, ModuleAnalysis
    from hlo_lens.facts import Facts

_PARTS: Final = frozenset(("dynamic-slice", "slice"))
_SAME: Final = frozenset(
    (
        "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape",
    )
)  # fmt: skip
"""Custom calls that give their operand, sharded in another way."""

_MADE: Final = frozenset(("broadcast", "constant", "iota"))
_FROM_ELSEWHERE: Final = frozenset(("custom-call", "infeed", "recv"))
_MOST: Final = 1024  # values on the ways back from one

_VALUE_OF_PHASE: Final[Mapping[str | None, str]] = {
    "fwd": "activation", "remat": "activation", "bwd": "gradient",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Row:
    """A row in the making.

    ways: on which its value comes. matched: its first counterpart. value, residual: what is moved,
    and its row in residuals. repeats: further placements of the value in the same memory.
    """

    move: HostMove
    ways: Ways
    id: int = -1
    matched: Row | None = None
    value: str | None = None
    residual: int | None = None
    repeats: list[Instruction] = field(default_factory=list)

    @property
    def is_placement(self) -> bool:
        """Whether it is a custom call that says what XLA is to do."""
        return self.move.kind in ("annotation", "move")


class HostValues:
    """The rows of one module, in text order, numbered from `first`."""

    def __init__(self, analysis: ModuleAnalysis, facts: Facts, position: int, first: int) -> None:
        self.analysis = analysis
        self.graph = graph = analysis.graph
        module = analysis.module
        self.results = results(module)
        self.in_host = {one.value: one.in_host for one in arguments(module)}
        moves = [*placements(module), *copies(graph)]
        moves += [one.lying("parameter") for one in arguments(module) if one.in_host]
        moves += [one.lying("result") for one in self.results if one.in_host]
        moves.sort(key=lambda move: move.instr.id)
        # What gives a value moved, and the rows that it does it for.
        self._marks: dict[Instruction, list[Row]] = {}
        self.rows = [Row(move, Ways()) for move in moves]
        for row in self.rows:
            if row.move.direction is not None:
                self._marks.setdefault(row.move.operation, []).append(row)
        if self.rows:
            self._find(_Residuals(facts, position))
        for number, row in enumerate(self.rows):
            row.id = first + number

    def _find(self, residuals: _Residuals) -> None:
        for row in self.rows:
            row.ways = ways_back(self.graph, row.move.source, lambda at: bool(self._at(at)))
        self._merge()
        self._drop(lambda row: row.move.direction == "to_host")
        self._match()
        self._drop(lambda row: row.move.direction == "to_device" and row.matched is None)
        for row in self.rows:
            self._tell(row, residuals)

    def _at(self, value: Value) -> list[Row]:
        """The moves that give this value; of what stands in fusions and wrappers, those that the
        way goes through."""
        found = self._marks.get(value.instr, [])
        if found and value.via:
            inner = [one for one in reversed(value.via) if not one.implied]
            return [row for row in found if _agree(reversed(row.move.via), inner)]
        return found

    def _before(self, row: Row) -> list[Row]:
        """The nearest moves on the ways to what a row moves."""
        return [one for at in row.ways.values for one in self._at(at) if one is not row]

    def _merge(self) -> None:
        """A placement of what has been moved there already is part of that row."""
        first: dict[Row, Row] = {}
        for row in self.rows:
            before = self._before(row) if row.is_placement else []
            if before and all(one.move.direction == row.move.direction for one in before):
                first[row] = before[0]
        for row in first:
            base, passed = row, {row}
            while base in first and first[base] not in passed:
                base = first[base]
                passed.add(base)
            base.repeats.append(row.move.operation)
            self._marks[row.move.operation] = [base]
        self.rows = [row for row in self.rows if row not in first]

    def _match(self) -> None:
        lying = {row.move.source: row for row in self.rows if row.move.kind == "parameter"}
        back = [row for row in self.rows if row.move.direction == "to_device"]
        for row in (*back, *(row for row in self.rows if row.move.kind == "result")):
            found = [one for one in self._before(row) if one.move.direction == "to_host"]
            held = [lying[key] for at in row.ways.values if (key := _place(at)) in lying]
            for one in found or held:
                row.matched = row.matched or one
                one.matched = one.matched or row

    def _drop(self, may_stay: Callable[[Row], bool]) -> None:
        """Leave out placements of what is there anyway: jax marks each output whose memory kind is
        given, and what a computation on the host gives."""
        stays: set[Row] = set()
        for row in self.rows:
            ends = row.ways.ends
            at_home = _is_on_host if row.move.direction == "to_host" else self._is_on_device
            if not row.is_placement or not may_stay(row) or not ends or not row.ways.whole:
                continue
            if not self._before(row) and all(map(at_home, ends)):
                stays.add(row)
                self._marks[row.move.operation] = []
        self.rows = [row for row in self.rows if row not in stays]

    def _is_on_device(self, end: Value) -> bool:
        """Whether it is known that what ends a way is in device memory."""
        if end.instr.opcode == "parameter":
            return self.in_host.get(_place(end)) is False
        return end.instr.opcode not in _FROM_ELSEWHERE and not _is_on_host(end)

    def _tell(self, row: Row, residuals: _Residuals) -> None:
        """Say what value a row moves."""
        if row.move.kind in ("parameter", "result"):
            row.value = row.move.kind
            return
        ways = ways_back(self.graph, row.move.source)
        ends = [end for end in ways.ends if not _is_made(end.instr)]
        row.residual = residuals.of(row.move.operation, ways.values)
        if row.residual is not None:
            row.value = "residual"
        elif ends and _place(ends[0]) in self.in_host:
            row.value = "parameter"
        elif row.matched is not None and row.matched.move.kind == "result":
            row.value = "result"
        elif ends:
            made = (*ends[0].via, ends[0].instr)[0]
            row.value = _VALUE_OF_PHASE.get(self.analysis.phase(made).phase)

    def unmatched(self) -> Iterator[tuple[Row, bool]]:
        """The placements in host memory that nothing takes from there, and whether the entry
        returns the value, in device memory. Nothing is said where there are too many ways."""
        if not all(row.ways.whole for row in self.rows):
            return
        alone = [
            row
            for row in self.rows
            if row.is_placement and row.move.direction == "to_host" and row.matched is None
            if not any(
                _is_on_host(Value(user)) for user in consumers(self.graph, row.move.operation)
            )
        ]
        returned: dict[Row, EntryArray] = {}
        for result in self.results if alone else ():
            ways = ways_back(self.graph, result.value, lambda at: bool(self._at(at)))
            for row in [row for at in ways.values for row in self._at(at)]:
                returned.setdefault(row, result)
        for row in alone:
            goes_to = returned.get(row)
            if goes_to is None or goes_to.in_host is False:
                yield row, goes_to is not None


def _agree(one: Iterable[Instruction], other: Iterable[Instruction]) -> bool:
    """Whether two ways into a computation, from the inside, are the same as far as both go."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _place(value: Value) -> Value:
    """The value without the way that led to it."""
    return Value(value.instr, value.path)


def _is_on_host(value: Value) -> bool:
    """Whether it is computed on the host."""
    return any(
        one.computation.execution_thread == "host"
        or '_xla_compute_type="host"' in one.tail
        or 'async_execution_thread="host"' in one.tail
        for one in (*value.via, value.instr)
    )


def _is_made(instr: Instruction) -> bool:
    """Whether it is what an array begins with before anything is written into it."""
    return instr.opcode in _MADE or '"AllocateBuffer"' in instr.tail


class _Residuals:
    """The residuals of a module, by what makes, writes and reads them."""

    def __init__(self, facts: Facts, module: int) -> None:
        rows = [row for row in facts.records("residuals") if row["module"] == module]
        kept = {row["id"] for row in rows if row["kind"] in ("stacked", "barrier")}
        self._of = {
            member.instr: member.row
            for member in facts.members("residuals")
            if member.module == module and member.row in kept
            if member.role in ("producer", "write", "read")
        }
        # What a forward instruction hands to the backward may be one element of its result.
        self._direct = {
            (row["producer"], row["tuple_index"]): row["id"]
            for row in rows
            if row["kind"] == "direct"
        }

    def of(self, operation: Instruction, values: Iterable[Value]) -> int | None:
        """The row of what an operation moves, which comes on these ways."""
        for value in (Value(operation), *values):
            row: object = self._of.get(value.instr.id)
            if row is None:
                element = value.path[0] if value.path else None
                row = self._direct.get((value.instr.id, element))
            if isinstance(row, int):
                return row
        return None


# ---------------------------------------------------------------------------- ways back


@dataclass(slots=True)
class Ways:
    """The ways back from a value.

    values: all on them, nearest first. ends: the last ones, which compute or come from elsewhere.
    whole: false where there are too many to follow.
    """

    values: list[Value] = field(default_factory=list)
    ends: list[Value] = field(default_factory=list)
    whole: bool = True


def ways_back(
    graph: CallGraph, value: Value, stops: Callable[[Value], bool] = lambda at: False
) -> Ways:
    """Where a value may come from: as `trace`, and through what holds parts of it or one of
    several: slices, updates in place, carries that change, branches, shared computations. A way
    goes on no further than where `stops` holds."""
    found = Ways()
    queue, seen = [value], set[Value]()
    for begin in queue:  # grows while it is walked
        at = begin
        for at in steps(graph, begin):
            if at in seen or len(seen) > _MOST:
                found.whole &= at in seen
                break
            seen.add(at)
            found.values.append(at)
            if stops(at):
                break
        else:
            further = list(_beyond(graph, at))
            queue.extend(further)
            found.ends.extend([] if further else [at])
    return found


def _beyond(graph: CallGraph, value: Value) -> Iterator[Value]:
    """Where a way goes on that `trace` ends at."""
    instr, path, via = value.instr, value.path, value.via
    opcode = instr.opcode
    if opcode in _PARTS or _is_same(instr):
        yield from _operands(instr, (0,), path, via)
    elif opcode == "dynamic-update-slice":
        yield from _operands(instr, (1, 0), path, via)
    elif opcode == "conditional":
        yield from (Value(branch.root, path, (*via, instr)) for branch in instr.called)
    elif opcode == "parameter":
        callers = via[-1:] or [site.caller for site in graph.callers(instr.computation)]
        for caller in callers:
            number = instr.parameter_number
            if caller.opcode == "while":
                bodies = caller.called_by.get("body", ())
                yield from (Value(body.root, path, via) for body in bodies)
                yield from _operands(caller, (0,), path, via[:-1])
            elif not via and number is not None and _hands_operands(caller):
                yield from _operands(caller, (number,), path, ())


def _is_same(instr: Instruction) -> bool:
    """Whether it gives its operand in another sharding, or without dimensions of size 1."""
    if instr.opcode == "custom-call":
        return target_of(instr) in _SAME
    if instr.opcode != "reduce" or not instr.operands:
        return False
    before, after = shape_of(instr.operands[0]), shape_of(instr)
    return (
        before is not None
        and after is not None
        and after.is_array
        and (before.element_count == after.element_count)
    )


def _hands_operands(caller: Instruction) -> bool:
    """Whether the parameters of what an instruction calls are its operands."""
    return caller.opcode in ("call", "fusion") or caller.base_opcode == "async-start"


def _operands(
    instr: Instruction,
    positions: tuple[int, ...],
    path: tuple[int, ...],
    via: tuple[Instruction, ...],
) -> Iterator[Value]:
    operands = instr.operands
    yield from (Value(operands[at], path, via) for at in positions if at < len(operands))
