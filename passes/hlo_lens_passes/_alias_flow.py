"""How an output comes into its memory: back through what leaves a value where it is, and copies.

XLA gives one buffer to the init, the parameter, the body's root and the result of a while, to what
a dynamic-update-slice or a scatter takes and gives, and to the operand and the output that a custom
call aliases (`HloDataflowAnalysis::GetInPlaceInputOutputPairs`). A copy gives another one, but for
a fused one: there the fusion writes what it computes straight to the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis import Value
from hlo_lens.analysis.collectives import attribute, shape_of
from hlo_lens.analysis.dataflow import steps
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import OperandAlias, parse_output_to_operand_aliasing

if TYPE_CHECKING:
    from hlo_lens.analysis import CallGraph

_STAYS: Final = frozenset(("bitcast", "copy"))
_COPIES: Final = ("copy", "copy-start")
_IN_PLACE: Final = ("dynamic-update-slice", "scatter")
_MOST: Final = 4096  # values on the ways to one output


@dataclass(slots=True)
class Ways:
    """The ways back from an output.

    ends: what computes it, and parameters. copies: of the whole value, within one memory; nearest
    to the output first. updates: what writes parts of it in place. whole: false where there are
    too many ways to follow.
    """

    ends: list[Value] = field(default_factory=list)
    copies: list[Value] = field(default_factory=list)
    updates: list[Value] = field(default_factory=list)
    whole: bool = True


def ways_to(graph: CallGraph, output: Value) -> Ways:
    """How the entry's output comes to be where it is."""
    found = Ways()
    queue, seen = [output], set[Value]()
    for begin in queue:  # grows while it is walked
        at = begin
        for at in steps(graph, begin, moves=_STAYS):
            if at in seen or len(seen) > _MOST:
                found.whole &= at in seen
                break
            seen.add(at)
            if is_copy(at):
                found.copies.append(at)
            if at.instr.opcode == "while" and at.path:
                queue.extend(_operand(at, 0, at.path))
        else:
            further = list(_beyond(at))
            queue.extend(further)
            if further and at.instr.opcode in _IN_PLACE:
                found.updates.append(at)
            if not further and (at.instr.opcode != "parameter" or not at.via):
                found.ends.append(at)
    return found


def _beyond(at: Value) -> Iterator[Value]:
    """What has the same memory, where the instruction computes or is reached in several ways."""
    opcode = at.instr.opcode
    if opcode in _IN_PLACE:
        yield from _operand(at, at.path[0] if at.path else 0, at.path[1:])
    elif opcode == "conditional":
        for branch in at.instr.called:
            yield Value(branch.root, at.path, (*at.via, at.instr))
    elif opcode == "custom-call":
        for one in _aliased_operands(at.instr):
            if one.output_index == at.path:
                yield from _operand(at, one.operand, one.operand_index)
    elif opcode == "parameter" and at.via and at.via[-1].opcode == "while":
        for body in at.via[-1].called_by.get("body", ()):
            yield Value(body.root, at.path, at.via)
        yield from _operand(Value(at.via[-1], (), at.via[:-1]), 0, at.path)


def _aliased_operands(call: Instruction) -> tuple[OperandAlias, ...]:
    text = attribute(call, "output_to_operand_aliasing")
    try:
        return () if text is None else parse_output_to_operand_aliasing(text)
    except ValueError:
        return ()


def _operand(at: Value, position: int, path: tuple[int, ...]) -> Iterator[Value]:
    operands = at.instr.operands
    if position < len(operands):
        yield Value(operands[position], path, at.via)


def outermost(value: Value) -> Instruction:
    """The fusion that an instruction is part of, seen from where it is called; else itself."""
    return next((one for one in value.via if one.opcode == "fusion"), value.instr)


# ---------------------------------------------------------------------------- copies


def is_copy(at: Value) -> bool:
    """Whether it is a copy of a whole array within one memory, in a buffer of its own."""
    if at.instr.opcode not in _COPIES:
        return False
    read, given = copied_shapes(at.instr)
    if read is None or given is None or (read.memory_space or 0) != (given.memory_space or 0):
        return False
    fusion = at.via[-1] if at.via else None
    return fusion is None or fusion.opcode != "fusion" or _only_copies(at.instr)


def copied_shapes(copy: Instruction) -> tuple[Shape | None, Shape | None]:
    """What a copy reads and what it gives."""
    operands, given = copy.operands, shape_of(copy)
    if given is not None and given.is_tuple:
        given = given.elements[0] if given.elements else None
    return (shape_of(operands[0]) if operands else None), given


def _only_copies(copy: Instruction) -> bool:
    """Whether a copy in a fusion is all that the fusion does for that output."""
    root = copy.computation.root
    for top in root.operands if root.opcode == "tuple" else (root,):
        at, passed = top, False
        while at.opcode in _STAYS and at.operands:
            passed |= at == copy
            at = at.operands[0]
        if passed and at.opcode == "parameter":
            return True
    return False


_Copied = Mapping[tuple[Instruction, tuple[int, ...]], Instruction]
_Takers = Mapping[int | None, Sequence[Instruction]]


class DefensiveCopies:
    """The copies of arguments that a program works on instead of the arguments.

    One tuple may hold thousands of arguments, and one instruction may take as many: what takes the
    tuple, and what the instruction takes, is read once.
    """

    def __init__(self, graph: CallGraph) -> None:
        self._graph = graph
        self._takers: dict[Instruction, _Takers] = {}
        self._copied: dict[Value, _Copied] = {}

    def of(self, parameter: Value, ends: Sequence[Value]) -> Instruction | None:
        """The copy of the parameter that is all that takes it, or that the instruction takes that
        computes the output. The layout is the same."""
        only = self._only_use(parameter)
        if only is not None and _keeps_layout(only):
            return only
        for end in ends:
            at, via = end.instr, end.via
            while via and via[-1].opcode == "fusion":
                at, via = via[-1], via[:-1]
            copy = self._taken_by(Value(at, (), via)).get((parameter.instr, parameter.path))
            if copy is not None:
                return copy
        return None

    def _only_use(self, parameter: Value) -> Instruction | None:
        """The copy that is the only user of a parameter, or of the element of it that is meant."""
        at = parameter.instr
        for index in parameter.path:
            takers = self._takers_of(at)
            one, whole = takers.get(index, ()), takers.get(None, ())
            if len(one) != 1 or whole:
                return None
            at = one[0]
        users = at.users
        return users[0] if len(users) == 1 and is_copy(Value(users[0])) else None

    def _takers_of(self, instr: Instruction) -> _Takers:
        """The users, by the element that they take; under None those that take all of it."""
        found = self._takers.get(instr)
        if found is None:
            takers: dict[int | None, list[Instruction]] = {}
            for user in instr.users:
                takers.setdefault(user.tuple_index, []).append(user)
            found = self._takers[instr] = takers
        return found

    def _taken_by(self, at: Value) -> _Copied:
        """What an instruction takes through a copy that keeps the layout: that copy, by what it is
        a copy of."""
        found = self._copied.get(at)
        if found is None:
            copied: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}
            for operand in at.instr.operands if at.instr.opcode != "parameter" else ():
                copy = None
                for one in steps(self._graph, Value(operand, (), at.via), moves=_STAYS):
                    if is_copy(one) and _keeps_layout(one.instr):
                        copy = one.instr
                    if copy is not None:
                        copied.setdefault((one.instr, one.path), copy)
            found = self._copied[at] = copied
        return found


def _keeps_layout(copy: Instruction) -> bool:
    read, given = copied_shapes(copy)
    return read is not None and given is not None and read.layout == given.layout
