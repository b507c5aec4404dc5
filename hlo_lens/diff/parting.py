"""Where two modules part: the place on each side, with the first token that is not the same."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

from hlo_lens.diff.canonical import written_attributes, written_header
from hlo_lens.hlo import Computation, Instruction, Module

PartingKind = Literal[
    "header", "computation", "end", "root", "opcode", "shape", "literal", "parameter", "operand",
    "attribute", "line",
]  # fmt: skip
"""What is not the same: a field of the header; a computation; where a computation or text ends;
something of an instruction; a line of the text."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one side parts from the other.

    computation: its name; None in front of the first. line: of the text, from 1. text: the
    instruction on one line without its metadata, or the line as written. column: where in `text`
    the first token begins that is not the same, from 0; its length where something is missing.
    """

    computation: str | None
    line: int
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Parting:
    """The first place where two modules are not the same.

    name: of the field of the header or the attribute that differs, if it is one. message: the
    difference in words. old, new: the place on each side, None for a side that has ended.
    """

    kind: PartingKind
    name: str | None
    message: str
    old: Place | None
    new: Place | None


Part = tuple[str, Hashable]
"""A part of a line that is shown: ("shape", None), ("operand", 0), ("attribute", "window")."""


class _Line:
    """A line that is put together from parts, and where each of them stands."""

    def __init__(self) -> None:
        self.text = ""
        self.spans: dict[Part, tuple[int, int]] = {}

    def put(self, piece: str, part: Part | None = None) -> None:
        piece = _BREAK.sub(" ", piece)
        if part is not None:
            self.spans[part] = (len(self.text), len(self.text) + len(piece))
        self.text += piece

    def piece(self, part: Part) -> str:
        start, end = self.spans.get(part, (0, 0))
        return self.text[start:end]

    def column(self, part: Part, offset: int) -> int:
        """Where `offset` of the part stands; the end of the line where it has no such part."""
        return self.spans[part][0] + offset if part in self.spans else len(self.text)


_BREAK = re.compile(r"\s*[\r\n]\s*")


def parting(
    kind: PartingKind, message: str, old: Instruction, new: Instruction, part: Part
) -> Parting:
    """Two instructions part in `part` of their lines."""
    lines = _instruction(old), _instruction(new)
    offset = differs_at(lines[0].piece(part), lines[1].piece(part))
    places = [
        Place(each.computation.name, each.text_line, line.text, line.column(part, offset))
        for each, line in zip((old, new), lines, strict=True)
    ]
    name = str(part[1]) if part[0] == "attribute" else None
    return Parting(kind, name, message, *places)


def header_parting(name: str, old: Module, new: Module) -> Parting:
    """Two headers part in the field `name`."""
    part = ("field", name)
    lines = _header(old), _header(new)
    offset = differs_at(lines[0].piece(part), lines[1].piece(part))
    places = [
        Place(None, _header_line(module), line.text, line.column(part, offset))
        for module, line in zip((old, new), lines, strict=True)
    ]
    return Parting("header", name, f"another {name} in the header", *places)


def whole(instruction: Instruction) -> Place:
    """The place of an instruction that the other side has not."""
    line = _instruction(instruction)
    return Place(instruction.computation.name, instruction.text_line, line.text, 0)


def opening(computation: Computation) -> Place:
    """The place of a computation as such."""
    thread = computation.execution_thread
    text = f"%{computation.name}" + (f', execution_thread="{thread}"' if thread else "")
    return Place(computation.name, computation.text_line, text, 0)


def line_parting(
    old: tuple[Module, int, str] | None, new: tuple[Module, int, str] | None
) -> Parting:
    """Two texts part in these lines, each with its number; None for a text that has ended."""
    column = differs_at(old[2], new[2]) if old and new else 0
    message = "another line" if old and new else "one text ends"
    return Parting("line" if old and new else "end", None, message, *(
        None if each is None
        else Place(_computation_at(each[0], each[1]), each[1], each[2], column)
        for each in (old, new)
    ))  # fmt: skip


def differs_at(old: str, new: str) -> int:
    """Where the first token begins that is not in both; 0 where the texts are the same."""
    if old == new:
        return 0
    both = min(len(old), len(new))
    at = next((at for at in range(both) if old[at] != new[at]), both)
    following = old[at : at + 1], new[at : at + 1]
    if any(map(_WORD.match, following)):
        while at and _WORD.match(old[at - 1]):
            at -= 1
    return at


_WORD = re.compile(r"[\w.%-]")


def _instruction(instruction: Instruction) -> _Line:
    line = _Line()
    line.put("ROOT " if instruction.is_root else "", ("root", None))
    line.put(f"%{instruction.name} = ")
    line.put(instruction.shape_text, ("shape", None))
    line.put(" " if instruction.shape_text else "")
    line.put(instruction.opcode, ("opcode", None))
    line.put("(")
    if instruction.opcode in ("constant", "parameter"):
        line.put(instruction.argument_text, ("argument", None))
    for number, operand in enumerate(instruction.operands):
        line.put(", " if number else "")
        line.put(f"%{operand.name}", ("operand", number))
    line.put(")", ("end", None))
    for name, value in written_attributes(instruction.tail).items():
        line.put(", " if name else "")
        line.put(f"{name}={value}" if name else value, ("attribute", name))
    return line


def _header(module: Module) -> _Line:
    line = _Line()
    line.put(f"HloModule {module.name}")
    for name, value in written_header(module).items():
        line.put(", ")
        line.put(f"{name}={value}", ("field", name))
    return line


def _header_line(module: Module) -> int:
    found = re.search(r"^\s*HloModule\b", module.text, re.M)
    return 1 if found is None else module.text.count("\n", 0, found.end()) + 1


def _computation_at(module: Module, line: int) -> str | None:
    """The computation that the line is in; None in front of the first."""
    starts = [computation.text_line for computation in module.computations]
    at = bisect_right(starts, line) - 1
    return module.computations[at].name if at >= 0 else None
