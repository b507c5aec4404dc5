"""Rows of tables as a view of lanes asks for them: bars by their ends in a schedule, and work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.schedule import schedules
from hlo_lens.facts import Cell, Facts, Table, UnknownTableError
from hlo_lens.facts.sqlite import QueryError, check_condition, run_query
from hlo_lens.files import InputError
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.present.cells import Cells, Row
from hlo_lens.present.quantities import count_text, visible

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

BarKind = Literal["hidden", "partly", "exposed", "synchronous", "open"]
"""What lies between start and done: heavy work, light work alone, nothing; `synchronous`: what is
started is waited for at once; `open`: start or done is in another iteration or computation."""

_OPEN: Final = "start or done elsewhere"
_HANDS_ON: Final = frozenset(
    ("bitcast", "get-tuple-element", "opt-barrier", "optimization-barrier", "tuple")
)
"""What a started operation passes on its way to another iteration or computation."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a bar is whose row fulfils the SQL condition `where`; "" is any row.

    words: printed in the bar. label: what such bars are called in the sum over all.
    """

    kind: BarKind
    label: str
    words: Cell
    where: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows of `table` that fulfil the SQL condition `where` are bars.

    start, done: columns with the instructions at the bar's ends. A row that has neither stands at
    its `instr` alone; one that has one of them is open. title: what the rows are, in the plural.
    cells: the lines in the bar. verdicts: the first that fits counts. size: a column of bytes; the
    largest bars are drawn. instead: only where the `Bars` before have none in the computation.
    """

    table: str
    title: str
    cells: tuple[Cell, ...]
    verdicts: tuple[Verdict, ...]
    where: str = ""
    start: str = "start"
    done: str = "done"
    size: str | None = None
    instead: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Members in `roles` (of any role where empty) of the rows of `table` that fulfil `where` are
    work with a line of its own. title: what the rows are, in the plural. cells: told of a row."""

    table: str
    title: str
    cells: tuple[Cell, ...]
    where: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LanesView:
    """What is drawn of a schedule.

    quiet: opcodes that only name values, which are not told. steps, lanes: at most so many.
    """

    bars: tuple[Bars, ...]
    work: tuple[Work, ...] = ()
    quiet: frozenset[str] = frozenset()
    steps: int = 40
    lanes: int = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A bar by positions in the schedule of `computation`: `first` is -1 where it is open at its
    start, `last` one behind the last position where it is open at its end. source: of the view's
    `bars`, from 0. size: bytes of one execution, where known."""

    source: int
    computation: Computation
    first: int
    last: int
    kind: BarKind
    label: str
    start: Instruction | None
    done: Instruction | None
    lines: tuple[str, ...]
    words: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Known:
    """What tables know of the work at a position: how many rows by title, and of each table what
    its only row says there, or how many they are."""

    counts: Mapping[str, int]
    line: str


class Rows:
    """The rows of one module. Every method raises `InputError` where the view names a table,
    column or condition that is not there."""

    def __init__(self, facts: Facts, position: int, analysis: ModuleAnalysis) -> None:
        self.facts = facts
        self.position = position
        self.analysis = analysis
        self.module = facts.program.modules[position]
        self.cells = Cells(facts.program)

    def bars(self, sources: Sequence[Bars]) -> Iterator[Found]:
        """Every bar of the module. What one source starts, a later one does not."""
        taken: set[Instruction] = set()
        for number, source in enumerate(sources):
            found = list(self._of_source(number, source))
            yield from (bar for instr, bar in found if instr not in taken)
            taken |= {instr for instr, _ in found}

    def _of_source(self, number: int, source: Bars) -> Iterator[tuple[Instruction, Found]]:
        table = self.table(source.table)
        ends = [_position(table, name) for name in (source.start, source.done)]
        instr_at = _position(table, "instr")
        size_at = None if source.size is None else _position(table, source.size)
        read = self._reader(table, source.cells)
        words = [self._reader(table, (one.words,)) for one in source.verdicts]
        for row, verdict in self._matching(table, source.where, source.verdicts):
            start, done = (self._instruction(row[end]) for end in ends)
            instr = start or done or self._instruction(row[instr_at])
            if verdict is None or instr is None:
                continue
            said = source.verdicts[verdict]
            size = None if size_at is None else row[size_at]
            bar = Found(
                number, instr.computation, instr.index, (done or instr).index, said.kind,
                said.label, start, done, read(row), "".join(words[verdict](row)),
                size if isinstance(size, int) else None,
            )  # fmt: skip
            is_open = (start is None) != (done is None)
            yield instr, self._opened(bar, instr) if is_open else bar

    def work(self, sources: Sequence[Work], computation: Computation) -> dict[int, Known]:
        """What is known of work, by position in the schedule of a computation: of the instruction
        there, and of all that it calls. What one source names, a later one does not."""
        places = _Places(self.analysis, computation)
        taken: set[Instruction] = set()
        counts: dict[int, Counter[str]] = {}
        lines: dict[int, list[str]] = {}
        for source in sources:
            at = self._work_of(source, places, taken)
            for place, found in at.items():
                counts.setdefault(place, Counter())[source.title] += len(found)
                several = f"{count_text(len(found))} {source.title}"
                line = found[0] if len(found) == 1 else several
                lines.setdefault(place, []).extend([line] if line else [])
        return {place: Known(its, " · ".join(lines[place])) for place, its in counts.items()}

    def _work_of(
        self, source: Work, places: _Places, taken: set[Instruction]
    ) -> dict[int, list[str]]:
        """What the rows of one source say, by position; fills in `taken` what they are about."""
        table = self.table(source.table)
        read, id_at = self._reader(table, source.cells), _position(table, "id")
        rows = {row[id_at]: row for row, _ in self._matching(table, source.where, ())}
        members = [
            (member.row, self.module.instruction(member.instr))
            for member in self.facts.members(table.name)
            if member.module == self.position
            and member.row in rows
            and (not source.roles or member.role in source.roles)
        ]
        new = [(row, instr) for row, instr in members if instr not in taken]
        taken.update(instr for _, instr in members)
        found: dict[int, list[str]] = {}
        for place, row in dict.fromkeys(
            (place, row) for row, instr in new for place in places.of(instr)
        ):
            found.setdefault(place, []).append(" · ".join(read(rows[row])))
        return found

    def table(self, name: str) -> Table:
        """The schema of a table that the view names."""
        try:
            return self.facts.table(name)
        except UnknownTableError as problem:
            raise InputError("a view of lanes", str(problem)) from None

    def _matching(
        self, table: Table, where: str, verdicts: Sequence[Verdict]
    ) -> Iterator[tuple[Row, int | None]]:
        """The rows of the module that fulfil `where`, each with the number of its verdict."""
        columns = "".join(f",\n (\n{one.where or 'TRUE'}\n)" for one in verdicts)
        chosen = f" AND (\n{where}\n)" if where else ""
        sql = f'SELECT id{columns} FROM "{table.name}" WHERE module = {self.position}{chosen}'
        conditions = filter(None, (where, *(one.where for one in verdicts)))
        try:
            check_condition((self.facts,), table.name, *conditions)
            answer = run_query((self.facts,), sql).rows
        except QueryError as problem:
            raise InputError(f"rows of {table.name}", str(problem)) from None
        found = {
            id: next((number for number, holds in enumerate(tests) if holds), None)
            for id, *tests in answer
        }
        id_at, module_at = table.position("id"), table.position("module")
        for row in self.facts.rows(table.name):
            if row[module_at] == self.position and row[id_at] in found:
                yield row, found[row[id_at]]

    def _reader(self, table: Table, cells: Sequence[Cell]) -> Callable[[Row], tuple[str, ...]]:
        """What reads the cells of a row that are not empty; one without columns is a text."""
        try:
            for cell in cells:
                for column in cell.columns:
                    _position(table, column)
            given = [(cell, self.cells.reader(table, cell)) for cell in cells]
        except ValueError as problem:
            raise _unreadable(table, problem) from None

        def read(row: Row) -> tuple[str, ...]:
            try:
                texts = [read(row) if cell.columns else cell.text for cell, read in given]
            except (ValueError, TypeError) as problem:  # a format that is none of such a value
                raise _unreadable(table, problem) from None
            return tuple(text for text in texts if text)

        return read

    def _instruction(self, id: object) -> Instruction | None:
        return self.module.instruction(id) if isinstance(id, int) else None

    # -- bars with one end elsewhere

    def _opened(self, bar: Found, instr: Instruction) -> Found:
        """A bar with one end, as far as its value stays in the computation."""
        computation = instr.computation
        goes_on = bar.done is None
        other, element = _taker(instr) if goes_on else _giver(instr)
        at_edge = other is None or (other.is_root if goes_on else other.opcode == "parameter")
        words = self._edge_words(computation, goes_on, element)
        if other is not None and not at_edge:
            words = f"{'goes on into' if goes_on else 'was started in'} %{visible(other.name)}"
        edge = len(computation.names) if goes_on else -1
        place = edge if other is None or at_edge else other.index
        first, last = (instr.index, place) if goes_on else (place, instr.index)
        schedule = schedules(self.analysis.graph).of(computation)
        if schedule is not None:
            here = schedule.between(first, last)
            words += f"; {here.heavy} heavy of {here.compute} compute meanwhile here"
        return replace(bar, first=first, last=last, kind="open", label=_OPEN, words=words)

    def _edge_words(self, computation: Computation, goes_on: bool, element: int | None) -> str:
        loop = self.analysis.loop(computation)
        carried = "" if element is None else f" (carry element {element})"
        if loop is not None and loop.body is computation:
            where = "waited for in the next" if goes_on else "started in the previous"
            return f"{where} iteration{carried}"
        return "waited for elsewhere" if goes_on else "started elsewhere"


class _Places:
    """Where the schedule of a computation runs what it calls, at any depth."""

    def __init__(self, analysis: ModuleAnalysis, computation: Computation) -> None:
        self._own = computation
        self._under: dict[Computation, tuple[int, ...]] = {}
        for inner in analysis.graph.order:  # callers before callees
            found: dict[int, None] = {}
            for site in analysis.graph.callers(inner):
                if site.caller.computation is computation:
                    found[site.caller.index] = None
                elif site.kind != "apply":
                    found.update(dict.fromkeys(self._under.get(site.caller.computation, ())))
            if found:
                self._under[inner] = tuple(found)

    def of(self, instr: Instruction) -> tuple[int, ...]:
        """Positions at which `instr` runs; () where it does not run under the computation."""
        if instr.computation is self._own:
            return (instr.index,)
        return self._under.get(instr.computation, ())


def _position(table: Table, column: str) -> int:
    if column not in table.names:
        known = ", ".join(table.names)
        raise InputError("a view of lanes", f"{table.name} has no column {column}; it has {known}")
    return table.position(column)


def _unreadable(table: Table, problem: Exception) -> InputError:
    """`problem`, of the cells that a view shows of rows of a table, as a sentence."""
    if isinstance(problem, InputError):
        return problem
    return InputError(f"a cell of {table.name}", str(problem))


def _taker(start: Instruction) -> tuple[Instruction | None, int | None]:
    """What takes a started operation in its computation and does not only hand it on: the root, a
    loop, a call; with the element of the root that holds it."""
    seen = {start}
    found = [start]
    for at in found:  # grows while it is walked
        if at.is_root:
            return at, None
        for user in at.users:
            if user.is_root and user.opcode == "tuple":
                return user, next((n for n, one in enumerate(user.operands) if one == at), None)
            if user.opcode not in _HANDS_ON and not user.opcode.endswith("-update"):
                return user, None
            if user not in seen:
                seen.add(user)
                found.append(user)
    return None, None


def _giver(done: Instruction) -> tuple[Instruction | None, int | None]:
    """What gives a started operation to the computation, a parameter, loop or call; with the
    element of the parameter."""
    at, element = done, None
    for _ in range(len(done.computation.names)):
        operands = at.operands
        if not operands:
            return at, element
        if at.opcode == "get-tuple-element":
            element = at.tuple_index
        picked = element if at.opcode == "tuple" and element is not None else 0
        at = operands[picked if picked < len(operands) else 0]
        if at.opcode not in _HANDS_ON and not at.opcode.endswith("-update"):
            return at, element
    return None, None
