"""Values of both sides as texts: loops by the names of the new side, what differs in two values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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


def change_text(sides: Sides, change: Change, *, whole: bool = False) -> str:
    """A value on both sides, `8 → 16`; of lists and mappings, each place where they differ, by the
    keys that lead there, `sliding_window_length 0 → 48`: `TOLD` of them, or all where `whole`."""
    if change.column.type not in _DATA:
        return ARROW.join(texts_of(sides, change))
    apart = _apart(change)
    told = [f"{name} {ARROW.join(pair)}".strip() for name, *pair in apart[: _most(whole)]]
    left = len(apart) - len(told)
    return ", ".join(told) + (f" and {count_text(left)} more" if left else "")


def texts_of(sides: Sides, change: Change, *, whole: bool = False) -> tuple[str, str]:
    """A value on both sides; of lists and mappings, what differs in them."""
    if change.column.type in _DATA:
        apart = _apart(change)
        old, new = (
            ", ".join(f"{name} {pair[at]}".strip() for name, *pair in apart[: _most(whole)])
            for at in (0, 1)
        )
        left = len(apart) - TOLD
        return old, f"{new} and {count_text(left)} more" if left > 0 and not whole else new
    old, new = (
        cells.text(change.column, value, module)
        for cells, value, module in zip(
            sides.cells, (change.old, change.new), sides.modules, strict=True
        )
    )
    if old == new:  # too close to tell apart as they are shown
        return _exact(change.old), _exact(change.new)
    return old, new


_DATA = ("json", "refs")


def _most(whole: bool) -> int | None:
    return None if whole else TOLD


def _exact(value: object) -> str:
    return count_text(value) if isinstance(value, int) else visible(str(value))


# ---------------------------------------------------------------------------------- data


@dataclass(frozen=True, slots=True)
class _Place:
    """A place where two values differ: the keys that lead there, and what each has there."""

    path: tuple[str, ...]
    old: object
    new: object

    @property
    def order(self) -> int:
        """Numbers and words of mappings say more than what is in lists, such as sizes."""
        is_listed = any(key.startswith("[") for key in self.path)
        return 2 if is_listed else int(isinstance(self.old or self.new, (dict, list)))


def _apart(change: Change) -> list[tuple[str, str, str]]:
    """Where two lists or mappings differ, as texts: the place, and what each has there."""
    try:
        places = sorted(
            _places((), _data(change.old), _data(change.new)), key=lambda place: place.order
        )
        shared = _shared([place.path for place in places])
        return [(_path_text(one.path[shared:]), *_pair_text(one)) for one in places]
    except RecursionError:
        return [("", "…", "…")]


def _places(path: tuple[str, ...], old: object, new: object) -> Iterator[_Place]:
    """The innermost places where two values differ; a list of numbers is one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                yield from _places((*path, str(key)), old.get(key), new.get(key))
    elif not _are_lists(old, new):
        yield _Place(path, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        for at, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                yield from _places((*path, f"[{at}]"), one, other)


def _are_lists(old: object, new: object) -> bool:
    """Whether they are lists whose elements stand side by side, and no sizes."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return False
    return not (_is_numbers(old) and _is_numbers(new))


def _shared(paths: Sequence[tuple[str, ...]]) -> int:
    """How many keys lead to all of the places: nobody needs them."""
    shortest = min((len(path) for path in paths), default=1) - 1
    for at in range(shortest):
        if len({path[at] for path in paths}) > 1 or paths[0][at + 1].startswith("["):
            return at
    return max(shortest, 0)


def _path_text(path: Sequence[str]) -> str:
    """`window.dimensions[2]`."""
    return visible(".".join(path).replace(".[", "["))


def _pair_text(place: _Place) -> tuple[str, str]:
    """What each side has; of lists of another length, the length."""
    old, new = place.old, place.new
    if isinstance(old, list) and isinstance(new, list) and not _is_numbers(old or new):
        return count_text(len(old)), f"{count_text(len(new))} entries"
    return _data_text(old), _data_text(new)


def _is_numbers(value: object) -> bool:
    """A short list of numbers, such as sizes."""
    return (
        isinstance(value, list)
        and len(value) <= _SHORT
        and all(isinstance(one, (int, float)) or _is_digits(one) for one in value)
    )


_SHORT = 8  # numbers of a list that is read as a whole


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdigit()


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
        listed = map(_data_text, value)
        return f"[{','.join(listed)}]" if _is_numbers(value) else ", ".join(listed)
    if isinstance(value, bool):
        return "true" if value else "false"
    return visible(str(value))
