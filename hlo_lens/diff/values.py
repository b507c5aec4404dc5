"""Values of both sides as texts: loops by the names of the new side, what differs in two values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

from hlo_lens.analysis import Loop
from hlo_lens.diff.model import Change, ProgramDiff, Row, StageDiff
from hlo_lens.facts import Summary, Table
from hlo_lens.present.cells import Cells, loop_text
from hlo_lens.present.groups import NO_LOOP, wanted
from hlo_lens.present.quantities import UNKNOWN, count_text, visible

Mark = Literal["−", "+", "~"]
"""What the old side alone has, what the new side alone has, and what both have, changed."""

ARROW = " → "
TOLD = 3  # things that are told of one row


class Sides:
    """Both sides of a stage: the rows of their modules, and what reads their cells."""

    def __init__(self, diff: ProgramDiff, stage: StageDiff) -> None:
        self.facts = diff.old, diff.new
        self.modules = stage.old, stage.new
        self.cells = Cells(diff.old.program), Cells(diff.new.program)
        self._new_names = self._matched_loops(stage)
        self._new = {
            loop_text(loop): id for id, loop in self.cells[1].loops(stage.new).by_id.items()
        }

    def _matched_loops(self, stage: StageDiff) -> dict[str, str]:
        """How a loop of the old side reads, and how the one that is matched with it does."""
        old, new = (
            cells.loops(module).by_id
            for cells, module in zip(self.cells, self.modules, strict=True)
        )
        partners = {id: stage.matching.to_new[id] for id in old}
        return {
            loop_text(old[id]): loop_text(new[partner])
            for id, partner in partners.items()
            if partner is not None and partner in new
        }

    def as_new(self, text: str) -> str:
        """Loops of the old side, `while.3 ×4 › while.7 ×8`, by the names of the new side."""
        return " › ".join(map(self._as_new, text.split(" › ")))

    def _as_new(self, name: str) -> str:
        if name in self._new_names:
            return self._new_names[name]
        return f"{name} of old" if name in self._new else name

    def loop_text(self, at: int, loop: Loop | None) -> str:
        """A loop and those around it; "no loop" for None."""
        if loop is None:
            return NO_LOOP
        text = self.cells[at].loops(self.modules[at]).text(loop.instr.id)
        return text if at else self.as_new(text)

    def loop_place(self, text: str) -> tuple[int, int]:
        """Where the loop of a cell stands on the new side; what is in no loop of it, behind all."""
        outermost = text.rpartition(ARROW)[2].split(" › ")[0]
        return (0, self._new[outermost]) if outermost in self._new else (1, 0)

    def rows(self, table: Table, summary: Summary) -> tuple[list[Row], list[Row]]:
        """The rows that the summary shows, of the module of each side."""
        at = table.position("module")
        old, new = (
            [row for row in facts.rows(table.name) if row[at] == module]
            for facts, module in zip(self.facts, self.modules, strict=True)
        )
        skip, only = summary.skip, summary.only
        return wanted(table, old, skip, only), wanted(table, new, skip, only)


def texts_of(sides: Sides, change: Change) -> tuple[str, str]:
    """A value on both sides; of lists and mappings, what differs in them."""
    if change.column.type in ("json", "refs"):
        try:
            return _differing(change.old, change.new)
        except RecursionError:
            return "…", "…"
    old, new = (
        cells.text(change.column, value, module)
        for cells, value, module in zip(
            sides.cells, (change.old, change.new), sides.modules, strict=True
        )
    )
    if old == new:  # too close to tell apart as they are shown
        return _exact(change.old), _exact(change.new)
    return old, new


def _exact(value: object) -> str:
    return count_text(value) if isinstance(value, int) else visible(str(value))


def _differing(old: object, new: object) -> tuple[str, str]:
    """What differs in two lists or mappings; of lists of another length, the length."""
    one, other = _data(old), _data(new)
    if isinstance(one, list) and isinstance(other, list) and len(one) != len(other):
        return count_text(len(one)), f"{count_text(len(other))} entries"
    apart = [*_leaves("", one, other)]
    texts = [
        ", ".join(f"{name} {_data_text(pair[at])}".strip() for name, *pair in apart[:TOLD])
        for at in (0, 1)
    ]
    if len(apart) > TOLD:
        texts[1] += f" and {len(apart) - TOLD} more"
    return texts[0], texts[1]


def _leaves(name: str, old: object, new: object) -> Iterator[tuple[str, object, object]]:
    """The innermost places where two values differ, by the key that leads there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                yield from _leaves(key, old.get(key), new.get(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            if one != other:
                yield from _leaves(name, one, other)
    else:
        yield name, old, new


def _data(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return list(value) if isinstance(value, tuple) else value


def _data_text(value: object) -> str:
    """Data without what JSON needs and a reader does not."""
    if value is None:
        return UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{visible(key)} {_data_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_data_text, value))
    return visible(str(value))
