"""Which instructions a figure is about: members of rows, names, what lies between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hlo_lens.facts import Cell, Facts, Table, UnknownTableError
from hlo_lens.facts.sqlite import QueryError, check_condition, check_order, run_query
from hlo_lens.figure.views import Frame, Select, View
from hlo_lens.files import InputError
from hlo_lens.hlo import Instruction, Module
from hlo_lens.present.cells import Cells
from hlo_lens.present.quantities import count_text

_Member: TypeAlias = tuple[Instruction, str]  # with its role


class NothingSelectedError(LookupError):
    """No row, or no instruction, is what was asked for: the answer is no."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to draw. Of `selects`, `around` and `between` any may be given; none: the whole module.

    around: names, with the instructions at most `radius` computing steps away; None: one step
    around a single one of a row, which says little alone, else none. between: two names with what
    lies on the operand paths from the one to the other. The others: as in a view.
    """

    selects: tuple[Select, ...] = ()
    around: tuple[str, ...] = ()
    radius: int | None = None
    between: tuple[str, str] | None = None
    frames: tuple[Frame, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    same_phase: bool = False
    neighbours: int | None = None
    longest_path: int | None = None

    @property
    def everything(self) -> bool:
        return not (self.selects or self.around or self.between)


@dataclass(slots=True)
class Selection:
    """Roles by instruction, in order of importance. `notes` say what did not fit, `heading` what
    the rows are."""

    roles: dict[Instruction, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    heading: list[str] = field(default_factory=list)

    def add(self, instr: Instruction, role: str) -> None:
        roles = self.roles.get(instr, ())
        if role not in roles:
            self.roles[instr] = (*roles, role)


def wanted_of(view: View) -> Wanted:
    """What a named view draws."""
    return Wanted(
        view.select,
        radius=view.around,
        frames=view.frame,
        names=view.names,
        same_phase=view.same_phase,
        neighbours=view.neighbours,
        longest_path=view.longest_path,
    )


def select(
    facts: Facts,
    position: int,
    wanted: Wanted,
    most: int,
    weight: Callable[[Instruction], int | None] = lambda _: 0,
) -> Selection:
    """The instructions of module `position` that are asked for by row or name, about `most`.

    A row's members are taken together or not at all, but for those of the first row: where these do
    not fit, those of the least `weight`, and none without one. Raises `InputError` for a table, a
    condition or a name that is not there, `NothingSelectedError` where no row is what was asked
    for.
    """
    found = Selection()
    for one in wanted.selects:
        all_ids = row_ids(facts, position, one)
        ids = all_ids[: one.rows]
        members = _members(facts, position, one, ids, wanted.names, found.notes)
        taken = _take(found, members, one, most, weight)
        if one.label or one.told:
            labels = _labels(facts, position, one.table, one.label)
            found.heading += _counted(labels[id] for id in ids[:taken])
        if taken < len(all_ids):
            counts = f"{count_text(taken)} of {count_text(len(all_ids))}"
            found.notes.append(f"{counts} rows of {one.table} drawn")
    module = facts.program.modules[position]
    for name in wanted.around:
        found.add(instruction_named(module, name), "asked for")
    if wanted.selects and not found.roles:
        raise NothingSelectedError(_nothing(facts, position, wanted.selects))
    return found


def _counted(labels: Iterable[str]) -> Iterator[str]:
    """Each label once, with how many rows it tells of."""
    for label, count in Counter(labels).items():
        if label:
            yield label if count == 1 else f"{count_text(count)} × {label}"


def row_ids(facts: Facts, position: int, one: Select) -> list[int]:
    """The ids of the rows that are asked for, in order, also of those beyond `one.rows`."""
    try:
        facts.table(one.table)
    except UnknownTableError as problem:
        raise InputError("--table", str(problem)) from None
    where = f" AND (\n{one.where}\n)" if one.where else ""
    if one.ids is not None:
        where += f" AND id IN ({', '.join(map(str, one.ids))})"
    sql = f'SELECT id FROM "{one.table}" WHERE module = {position}{where}\n ORDER BY '
    sql += one.order or "id"
    try:
        if one.where:
            check_condition((facts,), one.table, one.where)
        if one.order:
            check_order((facts,), one.table, one.order)
        rows = run_query((facts,), sql).rows
    except QueryError as problem:
        raise InputError(f"rows of {one.table}", str(problem)) from None
    return [row[0] for row in rows if isinstance(row[0], int)]


def _members(
    facts: Facts,
    position: int,
    one: Select,
    ids: Sequence[int],
    names: Mapping[str, str],
    notes: list[str],
) -> list[list[_Member]]:
    """Of each of these rows the members, with the words for their roles; notes of what is over
    `each`."""
    members = members_of(facts, position, one.table, one.roles)
    module = facts.program.modules[position]
    over: Counter[str] = Counter()
    rows: list[list[_Member]] = []
    for id in ids:
        seen: Counter[str] = Counter()
        row: list[_Member] = []
        for number, role in members.get(id, ()):
            instr = module.instruction(number)
            word = names.get(f"{role}/{instr.opcode}", names.get(role, role))
            seen[role] += 1
            if one.each is None or seen[role] <= one.each:
                row.append((instr, word))
            else:
                over[word] += 1
        rows.append(row)
    notes += (f"{count_text(n)} more “{role}” not drawn" for role, n in over.items())
    return rows


def _take(
    found: Selection,
    rows: Sequence[Sequence[_Member]],
    one: Select,
    most: int,
    weight: Callable[[Instruction], int | None],
) -> int:
    """Add the members of these rows until the figure is full; how many rows were added."""
    has_room = not found.roles or one.members is not None
    limit = most if one.members is None else min(most, len(found.roles) + one.members)
    for taken, row in enumerate(rows):
        new = {instr for instr, _ in row if instr not in found.roles}
        kept, room = new, limit - len(found.roles)
        if len(new) > room:
            if taken or not has_room or room <= 0:
                return taken
            kept = _most_telling(row, new, room, weight)
            counts = f"{count_text(len(kept))} of {count_text(len(new))}"
            found.notes.append(f"{counts} instructions of a row of {one.table} drawn")
        for instr, role in row:
            if instr in kept or instr not in new:
                found.add(instr, role)
    return len(rows)


def _most_telling(
    row: Sequence[_Member],
    new: Collection[Instruction],
    room: int,
    weight: Callable[[Instruction], int | None],
) -> set[Instruction]:
    """`room` of the `new` members of a row: those of the least weight, of each role as many; those
    without a weight only where no member has one."""
    weights = {instr: weight(instr) for instr in new}
    some_have = any(weight is not None for weight in weights.values())
    seen: Counter[tuple[int, str]] = Counter()
    ranked: dict[Instruction, tuple[int, int]] = {}
    for instr, role in row:
        own = weights.get(instr)
        if instr in new and instr not in ranked and not (own is None and some_have):
            kind = (own or 0, role)
            ranked[instr] = (kind[0], seen[kind])
            seen[kind] += 1
    return set(sorted(ranked, key=ranked.__getitem__)[:room])


def members_of(
    facts: Facts, position: int, table: str, roles: Sequence[str] = ()
) -> dict[int, list[tuple[int, str]]]:
    """(instruction id, role) of each row of a table; `instr` itself of one without members."""
    found: dict[int, list[tuple[int, str]]] = {}
    for member in facts.members(table):
        if member.module == position and (not roles or member.role in roles):
            found.setdefault(member.row, []).append((member.instr, member.role))
    its = facts.table(table)
    if not roles and "instr" in its.names:
        at, module_at, id_at = (its.position(name) for name in ("instr", "module", "id"))
        for row in facts.rows(table):
            id, instr = row[id_at], row[at]
            if row[module_at] == position and isinstance(id, int) and isinstance(instr, int):
                found.setdefault(id, [(instr, table)])
    return found


def frames_of(
    facts: Facts, position: int, frame: Frame
) -> Iterator[tuple[str, frozenset[Instruction]]]:
    """The label and the members of each row that a frame goes around."""
    ids = row_ids(facts, position, Select(frame.table, frame.where))
    labels = _labels(facts, position, frame.table, frame.label)
    members = members_of(facts, position, frame.table, frame.roles)
    module = facts.program.modules[position]
    for id in ids:
        yield labels[id], frozenset(module.instruction(one) for one, _ in members.get(id, ()))


def _labels(facts: Facts, position: int, table_name: str, label: str) -> dict[int, str]:
    """Of each row what `label` tells of it, by id; where that is "", what the table itself does."""
    table = facts.table(table_name)
    at, module_at = table.position("id"), table.position("module")
    cells = (Cell(label),) if label else _own_cells(table)
    try:
        reading = Cells(facts.program)
        readers = [reading.reader(table, cell) for cell in cells]
        return {
            id: " · ".join(filter(None, (read(row) for read in readers))) or label
            for row in facts.rows(table_name)
            if row[module_at] == position and isinstance(id := row[at], int)
        }
    except (KeyError, ValueError, TypeError) as problem:
        raise InputError(f"a label of {table_name}", str(problem.args[0])) from None


def _own_cells(table: Table) -> tuple[Cell, ...]:
    """What a report groups the rows of a table by; of a table without a summary, its sentences."""
    if table.summary is not None:
        return table.summary.by
    return tuple(Cell(name) for name in ("message", "evidence") if name in table.names)[:1]


def _nothing(facts: Facts, position: int, selects: Sequence[Select]) -> str:
    tables = " and ".join(dict.fromkeys(one.table for one in selects))
    stage = facts.program.stages[position]
    where = _told(selects[0]) if len(selects) == 1 else ""
    for one in selects:
        there = dict.fromkeys(member.role for member in facts.members(one.table))
        if there and one.roles and not there.keys() & {*one.roles}:
            roles, known = ", ".join(one.roles), ", ".join(there)
            return f"no row of {one.table} has a member {roles}; there are: {known}"
    others = [
        other
        for at, other in enumerate(facts.program.stages)
        if at != position and any(row_ids(facts, at, one) for one in selects)
    ]
    hint = f"; there are some in {', '.join(others)}: --stage" if others else ""
    return f"no rows of {tables}{where} in {facts.program.name} ({stage}){hint}"


def _told(one: Select) -> str:
    """` where …`: which rows are asked for; "" for all."""
    parts = [] if one.ids is None else [f"id IN ({', '.join(map(str, one.ids))})"]
    if one.where:
        condition = " ".join(one.where.split())
        parts.append(f"({condition})" if parts else condition)
    return f" where {' AND '.join(parts)}" if parts else ""


def instruction_named(module: Module, wanted: str) -> Instruction:
    """The instruction that `name`, `%name`, `computation/name` or `#id` means.

    Raises `InputError` with suggestions where there is none, or which ones where there are several.
    """
    from hlo_lens.show import find, suggestions

    found, _ = find(module, wanted)
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{one.computation.name}/{one.name}" for one in found[:8])
        raise InputError(wanted, f"several instructions have that name: {places}")
    close = suggestions(module, wanted)
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise InputError(wanted, f"no such instruction in {module.name}{hint}")
