"""Operand paths between the instructions that are drawn, through those that are not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from hlo_lens.analysis import ModuleAnalysis, Value
from hlo_lens.analysis.origins import inputs, origins
from hlo_lens.hlo import Computation, Instruction

MOST_BETWEEN = 12
"""A path through more instructions that compute than this is not followed further."""

MOST_AROUND = 3
"""As `MOST_BETWEEN`, of a path that goes round a loop: what an iteration hands to the next one lies
behind nearly everything in it."""

# Values that are looked at for a figure, at least behind each instruction that is drawn, and at
# least behind each of its operands.
_MOST_VALUES = 800_000
_LEAST_VALUES = 20_000
_LEAST_OF_OPERAND = 500
_State = tuple[Value, bool]  # a value, and whether the way to it goes round a loop
# (round a loop, how many compute, steps, a number of its own, the value, from where)
_Waiting = tuple[bool, int, int, int, Value, _State | None]


@dataclass(frozen=True, slots=True)
class Path:
    """`source` reaches operand `operand` of `target`. `through`: the written instructions between,
    the source's side first; `computing` of them count. `around`: by way of a loop's iteration
    before."""

    source: Instruction
    target: Instruction
    operand: int
    element: tuple[int, ...]
    through: tuple[Instruction, ...]
    computing: int
    around: bool

    @property
    def length(self) -> tuple[bool, int, int]:
        """Less of a path that is rather drawn: in one iteration, through few that compute."""
        return self.around, self.computing, len(self.through)


@dataclass(slots=True)
class Walk:
    """Walks back from instructions to those of `drawn`, which end a path.

    `frames` are calls that are drawn as a frame around what they call: they, and the parameters of
    what they call, are no part of `through`. `free` says which instructions count as none towards
    `most`: a path through more of the others is given up, which `too_long` tells; `too_many`, that
    there were more values than are looked at.
    """

    analysis: ModuleAnalysis
    drawn: Collection[Instruction]
    frames: Collection[Instruction]
    free: Callable[[Instruction], bool]
    most: int = MOST_BETWEEN
    too_long: bool = False
    too_many: bool = False
    _holding: set[Computation] = field(init=False)
    _inside: set[Computation] = field(init=False)  # the frames

    def __post_init__(self) -> None:
        self._holding = _holding(self.analysis, self.drawn)
        self._inside = {callee for one in self.frames for callee in one.called}

    @property
    def room(self) -> int:
        """How many values are looked at behind an instruction that is drawn."""
        return max(_LEAST_VALUES, _MOST_VALUES // max(1, len(self.drawn)))

    def into(self, target: Instruction) -> Iterator[Path]:
        """The shortest path from each instruction that reaches an operand of `target`, or by its
        callers a parameter."""
        starts: dict[int, list[_State]] = {}
        for position, value, around in inputs(self.analysis.graph, target):
            starts.setdefault(position, []).append((value, around))
        room = max(_LEAST_OF_OPERAND, self.room // max(1, len(starts)))
        for position, some in starts.items():
            for end, between, computing, around in self._back(some, room):
                through = self._written(between)
                yield Path(end.instr, target, position, end.path, through, computing, around)

    def _written(self, values: list[Value]) -> tuple[Instruction, ...]:
        """What is left out between a source and its target, of the values on the way back."""
        found: list[Instruction] = []
        for value in values:
            instr = value.instr
            is_seam = instr in self.frames or (
                instr.opcode == "parameter" and instr.computation in self._inside
            )
            if not instr.implied and not is_seam:
                found.append(instr)  # twice where the way goes round a loop
        return tuple(found)

    def _back(
        self, starts: list[_State], room: int
    ) -> Iterator[tuple[Value, list[Value], int, bool]]:
        """(a drawn value, those between it and the operand, how many compute, whether round a loop)
        of the `room` nearest values.

        Of several ways the one not round a loop, then through the fewest instructions that compute,
        then in the fewest steps: the shortest paths of Dijkstra, over values that are reached round
        a loop and those that are not, since what is long may still be the way that is not.
        """
        numbers = count()
        waiting: list[_Waiting] = [
            (around, 0, 0, next(numbers), value, None) for value, around in starts
        ]
        waiting.sort()
        behind: dict[_State, _State | None] = {}
        in_iteration: dict[Value, int] = {}
        ended: set[Instruction] = set()
        while waiting:
            around, computing, steps, _, value, user = heappop(waiting)
            state = (value, around)
            # Reached in the same iteration through no more: what is behind it is known too.
            if state in behind or (around and in_iteration.get(value, computing + 1) <= computing):
                continue
            if len(behind) >= room:
                self.too_many = True
                return
            behind[state] = user
            if not around:
                in_iteration[value] = computing
            if value.instr not in self.drawn:
                for before, length in self._steps(state, computing):
                    if before not in behind:
                        step = (before[1], length, steps + 1, next(numbers), before[0], state)
                        heappush(waiting, step)
            elif value.instr not in ended:
                ended.add(value.instr)
                yield value, _way(behind, state), computing, around

    def _steps(self, state: _State, computing: int) -> Iterator[tuple[_State, int]]:
        """Those a step behind, as far as they are not too far."""
        value, around = state
        computing += not self.free(value.instr)
        for before, goes_round in origins(self.analysis.graph, value, self._holding.__contains__):
            most = min(MOST_AROUND, self.most) if around or goes_round else self.most
            if computing > most:
                self.too_long = True
            else:
                yield (before, around or goes_round), computing


def _way(behind: dict[_State, _State | None], end: _State) -> list[Value]:
    """The values between `end` and the start of the walk, from `end`'s side."""
    way: list[Value] = []
    state = behind[end]
    while state is not None:
        way.append(state[0])
        state = behind[state]
    return way


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
