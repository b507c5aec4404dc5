"""Sections as two builds of one program share them: lines by their words, loops by their order.

The compiler numbers instructions anew with every change and lists them in another order; a page
that is compared with the one before should show what differs besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hlo_lens.inspect.report import Section
from hlo_lens.present.groups import NO_LOOP
from hlo_lens.present.quantities import UNKNOWN

NUMBER = re.compile(r"(?:\.\d+)+(?!\w|\.\w)")
"""What the compiler puts behind a name: `.3` of `dot.3`."""

_LOOP = re.compile(r"(?:^|(?<= › ))(?P<name>[^›]+?)(?= ×)")
_ORDERED = {"ref", "enum"}  # loops as they run, words as the schema lists them


def stable(sections: Iterable[Section]) -> tuple[list[Section], dict[str, str]]:
    """The sections in that form, and what each loop is called there, by its name in the text."""
    found = list(sections)
    names = _loop_names(found)
    return [_in_order(_renamed(section, names)) for section in found], names


def natural(text: str) -> tuple[object, ...]:
    """Where a text stands: numbers in it by their value; what is not known last."""
    parts = re.split(r"(\d+)", text)
    numbers = [int(part) if at % 2 else part for at, part in enumerate(parts)]
    return (text in ("", UNKNOWN, NO_LOOP), *numbers)


def _in_order(section: Section) -> Section:
    kinds = _kinds(section)

    def ordered(lines: Sequence[tuple[str, ...]], at: int) -> Iterator[tuple[str, ...]]:
        if at == len(kinds):
            yield from lines
            return
        blocks: dict[str, list[tuple[str, ...]]] = {}
        for line in lines:
            blocks.setdefault(line[at], []).append(line)
        for key in blocks if kinds[at] & _ORDERED else sorted(blocks, key=natural):
            yield from ordered(blocks[key], at + 1)

    return replace(section, lines=tuple(ordered(section.lines, 0)))


def _kinds(section: Section) -> list[set[str]]:
    """The types of the columns behind each cell that the section is grouped by."""
    summary = section.table.summary
    cells = iter(summary.by if summary is not None else ())
    kinds: list[set[str]] = []
    for column in section.columns:
        # Cells that say nothing have no column; the others stand in order.
        cell = next((cell for cell in cells if cell.heading == column.heading), None)
        if cell is None:
            break
        kinds.append({section.table.column(name).type for name in cell.columns})
    return kinds


def _refs(section: Section) -> list[int]:
    """The positions of cells that name an instruction, which may be a loop."""
    return [at for at, kind in enumerate(_kinds(section)) if kind == {"ref"}]


def _loop_names(sections: Iterable[Section]) -> dict[str, str]:
    """`while` for the only `while.7` of a report, `1st while`, `2nd while` for the first that runs
    and the next."""
    found: dict[str, list[str]] = {}
    for section in sections:
        refs = _refs(section)
        for name in (name for line in section.lines for at in refs for name in _names(line[at])):
            alike = found.setdefault(NUMBER.sub("", name), [])
            alike += [] if name in alike else [name]
    return {
        name: base if len(alike) == 1 else f"{_ordinal(at)} {base}"
        for base, alike in found.items()
        for at, name in enumerate(alike, start=1)
        if alike != [base]
    }


def _names(cell: str) -> list[str]:
    """The loops of `while.3 ×4 › while.7 ×8`, outermost first."""
    return _LOOP.findall(cell)


def _ordinal(number: int) -> str:
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{('th', 'st', 'nd', 'rd')[last] if last < 4 else 'th'}"


def _renamed(section: Section, names: dict[str, str]) -> Section:
    refs = _refs(section)

    def rename(line: tuple[str, ...]) -> tuple[str, ...]:
        cells = list(line)
        for at in refs:
            cells[at] = _LOOP.sub(lambda found: names.get(found["name"], found["name"]), cells[at])
        return tuple(cells)

    return replace(section, lines=tuple(map(rename, section.lines)))
