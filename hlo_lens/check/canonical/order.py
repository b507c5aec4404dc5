"""The canonical order: of instructions by what they compute, of computations by who calls them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias, TypeVar

from hlo_lens.check.canonical.operations import Operation, operation
from hlo_lens.hlo import Computation, Instruction

Value: TypeAlias = tuple[int, tuple[int, ...]]
"""An instruction by its position, and a path of tuple indices into what it gives."""

T = TypeVar("T", bound=Hashable)


@dataclass(slots=True)
class Body:
    """A computation. operations: what its instructions are, without get-tuple-elements; elements:
    an instruction that takes each element, or is implied to. order: all values, as printed."""

    computation: Computation
    operations: dict[int, Operation] = field(default_factory=dict)
    operands: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    elements: dict[Value, Instruction] = field(default_factory=dict)
    root: Value = (0, ())
    order: list[Value] = field(default_factory=list)

    @property
    def callees(self) -> list[tuple[str, str, Computation]]:
        """(opcode, attribute, computation) of each call, in the canonical order."""
        found = (self.operations[at] for at, path in self.order if not path)
        return [
            (one.opcode, attribute, callee)
            for one in found
            for attribute, callees in one.callees.items()
            for callee in callees
        ]

    def needs(self, value: Value) -> tuple[Value, ...]:
        """What must stand in front of a value."""
        at, path = value
        if path:
            return ((at, path[:-1]),)
        return (*self.operands[at], *self.predecessors(at))

    def predecessors(self, at: int) -> list[Value]:
        if "control-predecessors" not in self.operations[at].attributes:
            return []
        instruction = Instruction(self.computation, at)
        return [self.value(each) for each in instruction.control_predecessors]

    def value(self, operand: Instruction) -> Value:
        """The value that an operand is: a get-tuple-element is an element of another one."""
        taken = []
        while (index := element_index(operand)) is not None:
            taken.append((index, operand))
            operand = operand.operands[0]
        at = operand.index
        path: tuple[int, ...] = ()
        for index, taker in reversed(taken):
            path = (*path, index)
            self.elements.setdefault((at, path), taker)
        return at, path


def element_index(instruction: Instruction) -> int | None:
    """Which element a get-tuple-element takes; None for everything else."""
    index = instruction.tuple_index
    return index if index is not None and instruction.operands else None


def bodies(entry: Computation) -> list[Body]:
    """The computations that run, called ones first, each with its order."""
    found: dict[Computation, Body] = {}

    def called(computation: Computation) -> Iterable[Computation]:
        body = found.get(computation)
        if body is None:
            body = found[computation] = _body(computation)
        return [callee for _, _, callee in body.callees]

    prints: dict[Computation, str] = {}
    for computation in behind_what_they_need([entry], called):
        body = found[computation]
        if not computation.module.is_scheduled:
            prints[computation] = _put_in_order(body, prints)
    return [found[each] for each in behind_what_they_need([entry], called)]


def behind_what_they_need(items: Iterable[T], needs: Callable[[T], Iterable[T]]) -> list[T]:
    """The items and all they need, depth first, each once; a circle is cut where it closes."""
    order: dict[T, None] = {}
    opened: set[T] = set()
    for item in items:
        waiting = [item]
        while waiting:
            top = waiting[-1]
            if top in opened:
                order.setdefault(waiting.pop())
                continue
            opened.add(top)
            waiting += [each for each in reversed(list(needs(top))) if each not in opened]
    return list(order)


def _body(computation: Computation) -> Body:
    """The computation in the order of the text, but for parameters and elements: a schedule says
    nothing of these, they take no time."""
    body = Body(computation)
    written = list(computation.instructions)
    for instruction in (*computation.parameters, *written):
        if element_index(instruction) is None:
            body.operations[instruction.index] = operation(instruction)
            operands = tuple(map(body.value, instruction.operands))
            body.operands[instruction.index] = operands
    body.root = body.value(computation.root)
    # Parameters come first among the operations.
    body.order = behind_what_they_need(
        [*((at, ()) for at in body.operations), body.root], body.needs
    )
    return body


def _put_in_order(body: Body, prints: Mapping[Computation, str]) -> str:
    """Set the order; gives a fingerprint of the computation, which is free of names and order."""
    own = _fingerprints(body, prints)
    parameters: list[Value] = [(each.index, ()) for each in body.computation.parameters]
    ends: list[Value] = sorted(((at, ()) for at in _ends(body)), key=own.__getitem__)
    wanted = [*parameters, *ends, body.root]
    in_circles = [(at, ()) for at in body.operations]  # which no valid text has
    body.order = behind_what_they_need([*wanted, *in_circles], body.needs)
    return _digest([own[each] for each in (*ends, body.root)])


def _ends(body: Body) -> list[int]:
    """Instructions that none uses: those with effects, and dead ones."""
    used = {value[0] for at in body.operations for value in body.needs((at, ()))}
    used.add(body.root[0])
    is_parameter = {each.index for each in body.computation.parameters}
    return [at for at in body.operations if at not in used and at not in is_parameter]


def _fingerprints(body: Body, prints: Mapping[Computation, str]) -> dict[Value, str]:
    found: dict[Value, str] = {}
    for value in body.order:
        at, path = value
        needed = [found.get(each, "") for each in body.needs(value)]
        if path:
            found[value] = _digest([str(path[-1]), *needed])
            continue
        one = body.operations[at]
        callees = [prints.get(each, "") for group in one.callees.values() for each in group]
        found[value] = _digest([one.opcode, one.shape, one.said, one.structure, *callees, *needed])
    return found


def _digest(parts: Iterable[str]) -> str:
    return sha256("\0".join(parts).encode(errors="replace")).hexdigest()
