"""What is the same in every iteration of a loop, also deep inside what its body calls."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import PASSING, is_invariant, tuple_index
from hlo_lens.hlo import Computation, Instruction

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis
    from hlo_lens.analysis.calls import CallSite

Changing = frozenset[int] | None
"""Which elements of a value change; None: all of it, or it is no tuple."""

_NOTHING: Final[Changing] = frozenset()
# What gives something else each time, whatever its operands.
_EFFECTS: Final = frozenset(("infeed", "recv", "recv-done", "rng", "rng-get-and-update-state"))
# Calls inside each other; real programs have a handful.
_MOST_CALLS: Final = 64


class Invariance:
    """Which loops around an instruction give it the same value in each iteration.

    counting: what the iterations count does not matter, so that the value may be another one each
    time, but those of all iterations are known in front of the loop.
    """

    def __init__(self, analysis: ModuleAnalysis, *, counting: bool = False) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.counting = counting
        self._counters = {loop.instr: loop.induction_index for loop in analysis.loops}
        self._known: dict[tuple[Instruction, Computation], dict[int, Changing]] = {}

    def unchanged(self, instr: Instruction) -> tuple[Loop, ...]:
        """Those loops, from the innermost out. What stands in a branch runs in some iterations
        only: then there is none."""
        found: list[Loop] = []
        computation = instr.computation
        loop = self.analysis.loop(computation)
        while loop is not None:
            way = self._way(loop, computation)
            if way is None:
                break
            if _state(self._changing(loop, way), computation, instr.index) != _NOTHING:
                break
            found.append(loop)
            loop = loop.parent
        return tuple(found)

    def _way(self, loop: Loop, computation: Computation) -> list[CallSite] | None:
        """The calls from the body of a loop to a computation. None where the body is never met,
        as in a condition, or where a branch, or more than one caller, is on the way."""
        way: list[CallSite] = []
        while computation is not loop.body:
            site = self.graph.only_caller(computation)
            if site is None or site.kind in ("apply", "branch") or len(way) > _MOST_CALLS:
                return None
            way.append(site)
            computation = site.caller.computation
        way.reverse()
        return way

    def _changing(self, loop: Loop, way: list[CallSite]) -> dict[int, Changing]:
        """What the iterations of a loop change at the end of a way from its body, by position."""
        body = loop.body
        assert body is not None
        found = self._known.get((loop.instr, body))
        if found is None:
            moving = self._moving(loop.instr)
            first = {one.index: moving for one in body.parameters if moving != _NOTHING}
            found = self._known[loop.instr, body] = self._spread(body, first)
        for site in way:
            inside = self._known.get((loop.instr, site.callee))
            if inside is None:
                inside = self._spread(site.callee, self._given(site, found))
                self._known[loop.instr, site.callee] = inside
            found = inside
        return found

    def _moving(self, loop: Instruction) -> Changing:
        """What a loop changes of its carry."""
        width = _width(loop)
        if width is None:
            return _NOTHING if is_invariant(self.graph, loop, ()) else None
        counter = self._counters.get(loop) if self.counting else None
        return frozenset(
            k for k in range(width) if k != counter and not is_invariant(self.graph, loop, (k,))
        )

    def _given(self, site: CallSite, outside: dict[int, Changing]) -> dict[int, Changing]:
        """What changes of the parameters of a computation that is called, or of a body inside."""
        caller = site.caller
        operands = caller.computation.operand_indices(caller.index)
        own = self._moving(caller) if caller.opcode == "while" else _NOTHING
        found: dict[int, Changing] = {}
        for one in site.callee.parameters:
            number = one.parameter_number
            given: Changing = None
            if number is not None and number < len(operands):
                given = _state(outside, caller.computation, operands[number])
            changes = _both(own, given)
            if changes != _NOTHING:
                found[one.index] = changes
        return found

    def _spread(self, computation: Computation, first: dict[int, Changing]) -> dict[int, Changing]:
        """Everything in a computation that depends on what changes. One pass does, where operands
        stand in front of what takes them, as they do unless somebody changed the text."""
        found = dict(first)
        again = True
        while again:
            again = False
            for index, opcode in enumerate(computation.opcodes):
                before = found.get(index, _NOTHING)
                if before is None or opcode == "parameter":
                    continue
                operands = computation.operand_indices(index)
                after = _both(before, self._through(computation, index, opcode, operands, found))
                if after != before:
                    found[index] = after
                    again |= any(user < index for user in computation.user_indices(index))
        return found

    def _through(
        self,
        computation: Computation,
        index: int,
        opcode: str,
        operands: tuple[int, ...],
        found: dict[int, Changing],
    ) -> Changing:
        """What changes of an instruction, by what it is and by its operands."""
        if opcode in _EFFECTS or self._has_effects(computation, index, opcode):
            return None
        if not operands:
            return _NOTHING
        states = [_state(found, computation, operand) for operand in operands]
        if opcode == "tuple":
            return frozenset(n for n, state in enumerate(states) if state != _NOTHING)
        if opcode == "get-tuple-element":
            return _element(states[0], tuple_index(Instruction(computation, index)))
        if opcode in PASSING:
            return states[0]
        if opcode == "while" and states[0]:
            return _both(states[0], self._moving(Instruction(computation, index)))
        return None if any(state != _NOTHING for state in states) else _NOTHING

    def _has_effects(self, computation: Computation, index: int, opcode: str) -> bool:
        if opcode == "custom-call":
            return "custom_call_has_side_effect=true" in computation.tails[index]
        return (computation.index, index) in self._effects

    @cached_property
    def _effects(self) -> frozenset[tuple[int, int]]:
        """The calls, fusions and loops in which something gives another value each time."""
        computations = self.analysis.module.computations
        waiting = [one for one in computations if not _EFFECTS.isdisjoint(one.opcodes)]
        seen = set(waiting)
        found: set[tuple[int, int]] = set()
        for computation in waiting:  # grows while it is walked
            for site in self.graph.callers(computation):
                caller = site.caller.computation
                found.add((caller.index, site.caller.index))
                if caller not in seen:
                    seen.add(caller)
                    waiting.append(caller)
        return frozenset(found)


def _both(one: Changing, other: Changing) -> Changing:
    return None if one is None or other is None else one | other


def _state(found: dict[int, Changing], computation: Computation, operand: int) -> Changing:
    """What changes of an operand, which may be an element (`x#1`)."""
    path: list[int | None] = []
    while operand < 0:
        operands = computation.operand_indices(operand)
        if not operands:
            break
        path.append(tuple_index(Instruction(computation, operand)))
        operand = operands[0]
    state = found.get(operand, _NOTHING)
    for index in reversed(path):
        state = _element(state, index)
    return state


def _element(state: Changing, index: int | None) -> Changing:
    if state is None or index is None:
        return None if state is None or state else _NOTHING
    return None if index in state else _NOTHING


def _width(instr: Instruction) -> int | None:
    """The number of elements of a tuple; None where it is none, or where it cannot be read."""
    try:
        shape = instr.shape
    except ValueError:
        return None
    return len(shape.elements) if shape.is_tuple else None
