"""The rows and instructions that two programs differ in: what differs of each, and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.check.allowing import ADDED, CHANGED, LOOP, REMOVED, REPEATED, Key
from hlo_lens.check.model import Offender
from hlo_lens.diff import Change, ChangedRow, Matching, Row, TableDiff
from hlo_lens.diff.changes import Aspect, aspects
from hlo_lens.diff.instructions import by_work, differing_parts
from hlo_lens.diff.sections import summary_of
from hlo_lens.diff.values import ARROW, Sides, change_text
from hlo_lens.facts import Table
from hlo_lens.hlo import Instruction
from hlo_lens.present.groups import grouped
from hlo_lens.present.quantities import UNKNOWN, count_text, visible

_MOST_TOLD = 6  # columns of one row


@dataclass(frozen=True, slots=True)
class Differing:
    """A row, or an instruction, that differs.

    parts: `added`, `removed`, or the columns that changed. old, new: its key on each side, None
    where that has it not. told: it for people, by the parts that are to be told. unknown: of the
    parts, columns that one side does not know, which may be the same.
    """

    parts: frozenset[str]
    old: Key | None
    new: Key | None
    told: Callable[[frozenset[str]], Offender]
    unknown: frozenset[str] = frozenset()


def significant(parts: frozenset[str]) -> frozenset[str]:
    """Without the columns that only repeat that another one has changed."""
    return parts.difference(*(its for column, its in REPEATED.items() if column in parts))


# ---------------------------------------------------------------------------------- rows


def row_differences(sides: Sides, one: TableDiff) -> Iterator[Differing]:
    """The rows of a table that are gone, new or changed, in this order."""
    table = one.table
    module, id = table.position("module"), table.position("id")

    def key(row: Row) -> Key:
        return row[module], row[id]

    for row in one.removed:
        told = _one_sided(sides, table, 0, row)
        yield Differing(frozenset((REMOVED,)), key(row), None, told)
    for row in one.added:
        told = _one_sided(sides, table, 1, row)
        yield Differing(frozenset((ADDED,)), None, key(row), told)
    for both in one.changed:
        parts = {change.column.name for change in both.changes}
        parts |= {LOOP} if both.moved is not None else set()
        told = _changed(sides, table, both)
        unknown = frozenset(_unknown(table, both))
        yield Differing(frozenset(parts), key(both.old), key(both.new), told, unknown)


def _unknown(table: Table, row: ChangedRow) -> set[str]:
    """The columns that one side does not know, so that nobody can say that they changed."""
    found = {one.column.name for one in row.changes if _not_known(one)}
    if "executions" in found:
        bounds = ("executions", "executions_min", "executions_max")
        old, new = ([its[table.position(name)] for name in bounds] for its in (row.old, row.new))
        if _may_be(old[0], new) or _may_be(new[0], old):
            found |= REPEATED["executions"]
        else:
            found -= set(bounds)
    return found


def _not_known(change: Change) -> bool:
    """Whether one of the sides does not know the value.

    NULL is that for truth values, numbers and what op_names tell. Of another column it says that
    there is none: no convert, no epilogue.
    """
    column = change.column
    if column.type == "enum" and "unknown" in (change.old, change.new):
        return True
    says_so = column.type == "bool" or column.role == "measure" or column.needs_op_names
    return says_so and (change.old is None or change.new is None)


def _may_be(number: object, others: Sequence[object]) -> bool:
    """Whether a number of executions lies within the bounds of another one."""
    _, low, high = others
    if not isinstance(number, int) or not isinstance(low, int):
        return False
    return low <= number and (high is None or (isinstance(high, int) and number <= high))


def _one_sided(
    sides: Sides, table: Table, at: int, row: Row
) -> Callable[[frozenset[str]], Offender]:
    """A row that one side alone has: what `diff` shows of it."""

    def told(_: frozenset[str]) -> Offender:
        summary = summary_of(table)
        cells: list[str] = []
        for group in grouped(sides.cells[at], table, summary, [row]):
            cells += group.keys
            for measure, text in zip(summary.measures, group.measures, strict=True):
                if measure.how != "rows" and text != UNKNOWN:
                    cells.append(f"{measure.label} {text}")
        shown = ", ".join(cell for cell in cells if cell not in (UNKNOWN, ""))
        return _offender(table, row, shown, ADDED if at else REMOVED)

    return told


def _changed(sides: Sides, table: Table, row: ChangedRow) -> Callable[[frozenset[str]], Offender]:
    """A row that changed: the old and the new value of each column that is to be told."""

    def told(parts: frozenset[str]) -> Offender:
        kept = significant(parts)
        texts = []
        if row.moved is not None and LOOP in kept:
            loops = (sides.loop_text(0, row.moved.old), sides.loop_text(1, row.moved.new))
            texts.append(f"{LOOP} {ARROW.join(loops)}")
        # Numbers often follow from what the row is.
        for change in sorted(row.changes, key=lambda each: each.column.role == "measure"):
            if change.column.name in kept:
                texts.append(f"{change.column.name} {change_text(sides, change)}")
        return _offender(table, row.new, ", ".join(_first(texts)), CHANGED)

    return told


def _first(texts: Sequence[str]) -> list[str]:
    left = len(texts) - _MOST_TOLD
    return [*texts[:_MOST_TOLD], *([f"and {count_text(left)} more"] if left > 0 else [])]


def _offender(table: Table, row: Row, text: str, word: str) -> Offender:
    record = dict(zip(table.names, row, strict=True))
    id, name, source, line = (record.get(key) for key in ("id", "name", "source", "text_line"))
    return _placed(
        id if isinstance(id, int) else -1,
        str(name) if name is not None else None,
        str(source) if source is not None else None,
        line if isinstance(line, int) else None,
        text,
        word,
    )


def _placed(
    id: int, name: str | None, source: str | None, line: int | None, text: str, word: str
) -> Offender:
    """With what happened to it. A line of the other text is no line of this one."""
    if word == CHANGED:
        return Offender(id, name, source, line, text)
    if word == REMOVED and line is not None:
        word, line = f"{word} (line {line} of the baseline)", None
    return Offender(id, name, source, line, f"{word}: {text}" if text else word)


# ---------------------------------------------------------------------------------- instructions


def instruction_differences(matching: Matching, old: int, new: int) -> Iterator[Differing]:
    """The instructions that changed, are gone or are new; what does some work first. old, new: the
    positions of the modules."""
    found = [
        *((its, REMOVED, its, None) for its in matching.only_old),
        *((its, ADDED, None, its) for its in matching.only_new),
        *(
            ((now := matching.new.instruction(to)), CHANGED, matching.old.instruction(at), now)
            for at, to in matching.changed
        ),
    ]
    found.sort(key=lambda each: by_work(each[0].opcode))
    for _, word, before, after in found:
        yield Differing(
            frozenset((word,)),
            None if before is None else (old, before.id),
            None if after is None else (new, after.id),
            _instruction_told(matching, before, after, word),
        )


def _instruction_told(
    matching: Matching, old: Instruction | None, new: Instruction | None, word: str
) -> Callable[[frozenset[str]], Offender]:
    def told(_: frozenset[str]) -> Offender:
        its = new or old
        assert its is not None
        text = f"{its.opcode} {its.shape_text}"
        if old is not None and new is not None:
            apart = [_aspect_text(one) for one in aspects(matching, old, new)]
            text = f"{its.opcode}: {', '.join(_first(apart))}"
        return _placed(its.id, its.name, its.source, its.text_line, visible(text), word)

    return told


def _aspect_text(one: Aspect) -> str:
    if not one.old and not one.new:
        return one.what
    old, new = differing_parts(one.old, one.new)
    return f"{one.what or 'attributes'} {old or UNKNOWN}{ARROW}{new or UNKNOWN}"
