"""What differs in instructions that are matched and not equal: shape, attributes, operands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from hlo_lens.diff.canonical import same_value, unblanked, without_layouts, written_attributes
from hlo_lens.diff.model import Matching
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.structural import IDENTITY

# How a back end runs it; what the tables say of that is compared there.
_NOT_HERE = IDENTITY | {"backend_config", "frontend_attributes"}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing that differs between two matched instructions, as each side has it."""

    what: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Matched instructions of one opcode that differ in the same things: the first pair, how many
    there are, and what differs of the first."""

    opcode: str
    old: Instruction
    new: Instruction
    number: int
    aspects: tuple[Aspect, ...]


def changed(matching: Matching) -> list[Changed]:
    """The instructions that are matched and not equal, in groups, in the order of the new text."""
    alike: defaultdict[tuple[str, tuple[str, ...]], list[tuple[Instruction, Instruction]]]
    alike = defaultdict(list)
    for at, to in sorted(matching.changed, key=lambda pair: pair[1]):
        old, new = matching.old.instruction(at), matching.new.instruction(to)
        whats = tuple(aspect.what for aspect in aspects(matching, old, new))
        alike[old.opcode, whats].append((old, new))
    return [
        Changed(opcode, *pairs[0], len(pairs), tuple(aspects(matching, *pairs[0])))
        for (opcode, _), pairs in alike.items()
    ]


def aspects(matching: Matching, old: Instruction, new: Instruction) -> list[Aspect]:
    """What differs between two matched instructions, the first the most telling."""
    found = [*_of_itself(old, new), *_operands(matching, old, new)]
    if not found and old.opcode == "get-tuple-element":
        return [Aspect("which element it is", "", "")]
    return found or [Aspect("what it calls", "", "")]


def _of_itself(old: Instruction, new: Instruction) -> Iterator[Aspect]:
    if old.opcode != new.opcode:
        yield Aspect("opcode", old.opcode, new.opcode)
    if unblanked(old.shape_text) != unblanked(new.shape_text):
        alike = without_layouts(old.shape_text) == without_layouts(new.shape_text)
        yield Aspect("layout" if alike else "shape", old.shape_text, new.shape_text)
    if old.opcode in ("constant", "parameter"):
        arguments = old.argument_text, new.argument_text
        if unblanked(arguments[0]) != unblanked(arguments[1]):
            yield Aspect("literal" if old.opcode == "constant" else "number", *arguments)
    ours, theirs = written_attributes(old.tail), written_attributes(new.tail)
    for name in dict.fromkeys((*ours, *theirs)):
        values = ours.get(name, ""), theirs.get(name, "")
        if name not in _NOT_HERE and not same_value(name, *values):
            yield Aspect(name or "attributes", *values)
    if old.is_root != new.is_root:
        yield Aspect("ROOT", *("yes" if one.is_root else "no" for one in (old, new)))


def _operands(matching: Matching, old: Instruction, new: Instruction) -> Iterator[Aspect]:
    ours, theirs = old.operands, new.operands
    partners = [matching.new_of(operand.id) for operand in ours]
    ids = [operand.id for operand in theirs]
    if partners == ids:
        return
    what = "operands"
    if None not in partners and sorted(map(str, partners)) == sorted(map(str, ids)):
        what = "order of operands"
    if len(ours) == len(theirs):
        apart = [at for at, partner in enumerate(partners) if partner != ids[at]]
        ours, theirs = (tuple(side[at] for at in apart) for side in (ours, theirs))
    yield Aspect(what, *(", ".join(f"%{each.name}" for each in side) for side in (ours, theirs)))
