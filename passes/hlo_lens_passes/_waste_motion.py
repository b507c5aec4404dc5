"""Where a loop puts a value: into a sum that it carries, or into a stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis import constant_value, stacked
from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import MOVES, Value, trace
from hlo_lens.hlo import Computation, Instruction
from hlo_lens_passes._collective_flow import Flow, Place, Taken

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop

_FORMS: Final = (MOVES | {"transpose"}) - {"convert"}
_ANY_DTYPE: Final = _FORMS | {"convert"}
_SPREADING: Final = MOVES | {"broadcast"}
# Longer sums, and values used in more places, are not followed.
_MOST_TERMS: Final = 256


@dataclass(frozen=True, slots=True)
class Sum:
    """Element `index` of a carry, to which each iteration adds and which it uses for nothing else.

    sliced: each iteration adds to a slice of its own.
    """

    index: int
    sliced: bool


@dataclass(frozen=True, slots=True)
class Destination:
    """Where all of a value goes in the loops around it.

    loops: those that only collect it, innermost first. summing: those of them whose iterations are
    added up. index: the element of the carry of the last loop; None where it goes into several.
    blockers: what happens to the value on the way, in words; steps: the instructions that do it.
    writes: the adds, scatters and dynamic-update-slices at the end, those of the last loop first.
    """

    kind: Literal["sum", "stack"]
    index: int | None
    loops: tuple[Loop, ...]
    summing: tuple[Loop, ...]
    blockers: tuple[str, ...]
    steps: tuple[Instruction, ...]
    writes: tuple[Instruction, ...]


@dataclass(slots=True)
class _End:
    """What one loop does with a value: `writes` put it into elements of the carry."""

    kind: Literal["sum", "stack"] = "stack"
    writes: dict[Instruction, int] = field(default_factory=dict)
    passed: dict[Instruction, str] = field(default_factory=dict)


class Motion:
    """Follows values to the carries of the loops around them."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.graph = flow.graph
        self._sums: dict[Instruction, dict[Instruction, Sum]] = {}
        self._stacks: dict[Instruction, dict[Instruction, int]] = {}
        self._written: dict[Instruction, dict[Instruction, int]] = {}

    def destination(self, loop: Loop, results: Sequence[Place]) -> Destination | None:
        """Where a loop puts a value; None where it uses it for something else, or not at all."""
        end = self._end(loop, results)
        loops: list[Loop] = []
        ends: list[_End] = []
        at: Loop | None = loop
        while at is not None and end is not None:
            loops.append(at)
            ends.append(end)
            stacks = [(at.instr, (index,)) for index in sorted(set(end.writes.values()))]
            at = at.parent if end.kind == "stack" else None
            end = None if at is None else self._end(at, stacks)
        if not ends:
            return None
        last = ends[-1]
        adding = self._adding(loops[-1], last.writes) if last.kind == "sum" else []
        loops += adding[1:]
        indices = set(last.writes.values())
        if adding:
            indices = {self.sums(loops[-1])[write].index for write in last.writes}
        return Destination(
            last.kind,
            indices.pop() if len(indices) == 1 else None,
            tuple(loops),
            tuple(one for one in adding if not self._is_sliced(one, last.writes)),
            tuple(dict.fromkeys(word for end in ends for word in end.passed.values() if word)),
            tuple(step for end in ends for step, word in end.passed.items() if word),
            tuple(dict.fromkeys(write for end in reversed(ends) for write in end.writes)),
        )

    def _adding(self, loop: Loop, writes: Iterable[Instruction]) -> list[Loop]:
        """The loops that do nothing but add: that of the sum, and those around it."""
        found: list[Loop] = []
        at: Loop | None = loop
        while at is not None and all(write in self.sums(at) for write in writes):
            found.append(at)
            at = at.parent
        return found

    def _is_sliced(self, loop: Loop, writes: Iterable[Instruction]) -> bool:
        sums = self.sums(loop)
        return any(sums[write].sliced for write in writes)

    def _end(self, loop: Loop, places: Sequence[Place]) -> _End | None:
        """Where one loop puts a value; None where it uses it for something else."""
        sums, stacks = self.sums(loop), self.stacks(loop)
        end, kinds = _End(), set[Literal["sum", "stack"]]()
        queue = list(places)
        for place in queue:  # grows while it is walked
            taken = self.flow.uses((place,), _FORMS, inside=loop.instr)
            if not taken or len(queue) > _MOST_TERMS:
                return None
            for use in taken:
                instr = use.instr
                if instr in sums:
                    kinds.add("sum")
                    end.writes[instr] = sums[instr].index
                    if instr.opcode == "scatter":
                        end.passed[instr] = "scatter"
                elif instr in stacks and use.position == 1:
                    kinds.add("stack")
                    end.writes[instr] = stacks[instr]
                else:
                    word = self._passed(use)
                    if word is None:
                        return None
                    if instr not in end.passed:
                        end.passed[instr] = word
                        queue.append((instr, ()))
        if len(kinds) != 1:
            return None
        end.kind = kinds.pop()
        return end

    def _passed(self, use: Taken) -> str | None:
        """What is done with a value on its way to a sum or stack, where each part of that can be
        done behind it as well: "" for what does not matter; None for everything else."""
        instr, position = use.instr, use.position
        opcode, operands = instr.opcode, instr.operands
        if opcode == "slice":
            return ""
        if opcode in ("convert", "negate"):
            return opcode
        if opcode == "dynamic-slice" and position == 0:
            return "slice"
        scales = opcode == "multiply" or (opcode == "divide" and position == 0)
        if scales and position is not None and len(operands) == 2:
            return f"scalar {opcode}" if self._is_scalar(operands[1 - position]) else None
        if opcode == "select" and position in (1, 2) and len(operands) == 3:
            return "select" if constant_value(self.graph, operands[3 - position]) == 0 else None
        return None

    def _is_scalar(self, instr: Instruction) -> bool:
        """Whether a value is one number for all elements."""
        shape = shape_of(trace(self.graph, Value(instr), moves=_SPREADING).instr)
        return shape is not None and shape.is_array and shape.rank == 0

    # -- what a loop adds up, and what it stacks

    def sums(self, loop: Loop) -> dict[Instruction, Sum]:
        """The adds and scatters of a loop into sums that it carries."""
        known = self._sums.get(loop.instr)
        if known is None:
            known = self._sums[loop.instr] = {}
            for index in range(_width(loop.instr)):
                terms, sliced = self._terms(loop, index)
                known.update((term, Sum(index, sliced)) for term in terms)
        return known

    def _terms(self, loop: Loop, index: int) -> tuple[list[Instruction], bool]:
        """What adds to an element of the carry, and whether to slices of it; [] for one that is no
        sum, or is used for something else."""
        start = self._parameter(loop.body)
        terms: list[Instruction] = []
        if start is None or self._condition_reads(loop, index):
            return [], False
        place: Place = (start, (index,))
        seen: set[tuple[Instruction, int | None]] = set()
        write: Instruction | None = None
        sliced = False
        for _ in range(_MOST_TERMS):
            taken = self.flow.uses((place,), _ANY_DTYPE, inside=loop.instr)
            leaves = {use.path for use in taken if use.position is None}
            steps = [use for use in taken if use.position is not None]
            # Where a loop inside does the adding, its next iteration comes back to the same add.
            steps = [use for use in steps if (use.instr, use.position) not in seen]
            seen.update((use.instr, use.position) for use in steps)
            if leaves or not steps:
                ends = leaves == {(index,)} and not steps and write is None
                return (terms if ends else [], sliced)
            if len(steps) == 2 and not terms and write is None:
                cut, write = self._cut_and_written(steps)
                if cut is None or write is None:
                    break
                sliced = write in self._written_by(loop)
                place = cut, ()
                continue
            use = steps[0]
            if len(steps) > 1:
                break
            if use.instr == write and use.position == 1:
                write = None
            elif _adds(use):
                terms.append(use.instr)
            else:
                break
            place = use.instr, ()
        return [], False

    def _cut_and_written(
        self, steps: Sequence[Taken]
    ) -> tuple[Instruction | None, Instruction | None]:
        """A dynamic-slice, and the dynamic-update-slice that writes at the same place."""
        by_opcode = {use.instr.opcode: use for use in steps if use.position == 0}
        cut, write = by_opcode.get("dynamic-slice"), by_opcode.get("dynamic-update-slice")
        if cut is None or write is None:
            return None, None
        if self._at(cut.instr.operands[1:]) != self._at(write.instr.operands[2:]):
            return None, None
        return cut.instr, write.instr

    def _at(self, operands: Iterable[Instruction]) -> list[object]:
        ends = [trace(self.graph, Value(operand)) for operand in operands]
        return [
            end.instr.argument_text if end.instr.opcode == "constant" else (end.instr, end.path)
            for end in ends
        ]

    def stacks(self, loop: Loop) -> dict[Instruction, int]:
        """What writes to each stack of a loop that the loop does not read, and to which element."""
        known = self._stacks.get(loop.instr)
        if known is None:
            known = self._stacks[loop.instr] = {}
            start = self._parameter(loop.body)
            for write, index in self._written_by(loop).items():
                if start is None:
                    break
                taken = self.flow.uses([(start, (index,))], _ANY_DTYPE, inside=loop.instr)
                if {(use.instr, use.position) for use in taken} == {(write, 0)}:
                    known[write] = index
        return known

    def _written_by(self, loop: Loop) -> dict[Instruction, int]:
        known = self._written.get(loop.instr)
        if known is None:
            known = {one.update: one.index for one in stacked(self.graph, loop)}
            self._written[loop.instr] = known
        return known

    def _parameter(self, computation: Computation | None) -> Instruction | None:
        return None if computation is None else self.graph.parameter(computation, 0)

    def _condition_reads(self, loop: Loop, index: int) -> bool:
        start = self._parameter(loop.condition)
        return start is not None and bool(self.flow.uses([(start, (index,))], _ANY_DTYPE))


def _adds(use: Taken) -> bool:
    """Whether what is added to is operand `use.position`."""
    instr = use.instr
    if instr.opcode == "scatter" and use.position == 0 and len(instr.operands) == 3:
        return any(callee.root.opcode == "add" for callee in instr.called)
    return instr.opcode == "add" or (instr.opcode == "subtract" and use.position == 0)


def _width(instr: Instruction) -> int:
    shape = shape_of(instr)
    return 0 if shape is None else len(shape.elements)
