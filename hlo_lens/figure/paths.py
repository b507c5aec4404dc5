"""Operand paths between the instructions that are drawn, through those that are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from hlo_lens.analysis import ModuleAnalysis, Value
from hlo_lens.analysis.origins import origins
from hlo_lens.hlo import Computation, Instruction

MOST_BETWEEN = 12
"""A path through more instructions that compute than this is not followed further."""

MOST_AROUND = 3
"""As `MOST_BETWEEN`, of a path that goes round a loop: what an iteration hands to the next one lies
behind nearly everything in it."""

# Values that are looked at behind an instruction, and at least behind each of its operands.
_MOST_VALUES = 20_000
_LEAST_VALUES = 500


@dataclass(frozen=True, slots=True)
class Path:
    """`source` reaches operand `operand` of `target`. `through`: the written instructions between,
    the source's side first. `around`: by way of a loop's iteration before."""

    source: Instruction
    target: Instruction
    operand: int
    element: tuple[int, ...]
    through: tuple[Instruction, ...]
    around: bool


@dataclass(slots=True)
class Walk:
    """Walks back from instructions to those of `drawn`, which end a path.

    `frames` are calls that are drawn as a frame around what they call: they, and the parameters of
    what they call, are no part of `through`. `free` says which instructions count as none towards
    `most`: a path through more of the others is given up, which `gave_up` tells.
    """

    analysis: ModuleAnalysis
    drawn: Collection[Instruction]
    frames: Collection[Instruction]
    free: Callable[[Instruction], bool]
    most: int = MOST_BETWEEN
    gave_up: bool = False
    _holding: set[Computation] = field(init=False)

    def __post_init__(self) -> None:
        self._holding = _holding(self.analysis, self.drawn)

    def into(self, target: Instruction) -> Iterator[Path]:
        """The shortest path from each instruction that reaches an operand of `target`."""
        indices = target.computation.operand_indices(target.index)
        room = max(_LEAST_VALUES, _MOST_VALUES // max(1, len(indices)))
        for position, index in enumerate(indices):
            start = Value(Instruction(target.computation, index))
            for end, steps, around in self._back(start, room):
                yield Path(end.instr, target, position, end.path, self._between(steps), around)

    def _between(self, values: list[Value]) -> tuple[Instruction, ...]:
        """What is left out between a source and its target, of the values on the way back."""
        inside = {callee for one in self.frames for callee in one.called}
        found: list[Instruction] = []
        for value in reversed(values):
            instr = value.instr
            is_seam = instr in self.frames or (
                instr.opcode == "parameter" and instr.computation in inside
            )
            if not instr.implied and not is_seam:
                found.append(instr)  # twice where the way goes round a loop
        return tuple(found)

    def _back(self, start: Value, room: int) -> Iterator[tuple[Value, list[Value], bool]]:
        """(a drawn value, those between it and the operand, whether round a loop), nearest first,
        of the `room` values that are looked at.

        Of several ways the one through fewest instructions that compute, and not round a loop.
        """
        graph = self.analysis.graph
        behind: dict[Value, Value | None] = {start: None}
        round_loop = {start: False}
        queue = deque([(start, 0)])
        ended: set[Instruction] = set()
        while queue:
            value, length = queue.popleft()
            if value.instr in self.drawn:
                if value.instr not in ended:
                    ended.add(value.instr)
                    yield value, _way(behind, value), round_loop[value]
                continue
            costs = 0 if self.free(value.instr) else 1
            most = min(MOST_AROUND, self.most) if round_loop[value] else self.most
            if length + costs > most or len(behind) > room:
                self.gave_up = True
                continue
            for before, around in origins(graph, value, self._holding.__contains__):
                if before not in behind:
                    behind[before] = value
                    round_loop[before] = around or round_loop[value]
                    if costs or around:
                        queue.append((before, length + costs))
                    else:
                        queue.appendleft((before, length))


def _way(behind: dict[Value, Value | None], end: Value) -> list[Value]:
    """The values between `end` and the start of the walk, from `end`'s side."""
    way: list[Value] = []
    value = behind[end]
    while value is not None:
        way.append(value)
        value = behind[value]
    return list(reversed(way))


def _holding(analysis: ModuleAnalysis, drawn: Collection[Instruction]) -> set[Computation]:
    """The computations that hold something drawn, and those that call them."""
    found: set[Computation] = set()
    waiting = [instr.computation for instr in drawn]
    while waiting:
        computation = waiting.pop()
        if computation not in found:
            found.add(computation)
            waiting += [site.caller.computation for site in analysis.graph.callers(computation)]
    return found
