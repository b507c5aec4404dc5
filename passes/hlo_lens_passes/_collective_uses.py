"""What takes what a collective gives: the matmul or kernel that it feeds, the results it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.schedule import IDLE_TARGETS
from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import entry_of, target_of
from hlo_lens_passes._catalogue import Catalogue, catalogue
from hlo_lens_passes._collective_flow import Flow, Path, Place, Taken
from hlo_lens_passes._collective_logical import Logical, execution_order
from hlo_lens_passes._collective_training import TrainingLoops
from hlo_lens_passes._collective_values import CUTS, MOVING, Moved

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

_MATMULS: Final = frozenset(("convolution", "dot", "ragged-dot", "scaled-dot"))
_GEMMS: Final = frozenset(("gemm", "scaled_gemm", "grouped_gemm"))
# What a value passes to the matmul that it feeds. In windowed loops XLA puts what comes from both
# sides together with the maximum of the two, padded.
_FEEDING: Final = CUTS | {"concatenate", "reverse"}
_FEEDING_LOOP: Final = _FEEDING | {"maximum"}
# Behind these, what is left is no longer the gradient of a parameter.
_LOOKUPS: Final = frozenset(("gather", "scatter", "select-and-scatter"))
# What a gradient passes on its way to the parameter: elementwise arithmetic, moves, stacks.
_UPDATES: Final = CUTS | frozenset(
    (
        "abs", "add", "and", "clamp", "compare", "concatenate", "divide", "dynamic-update-slice",
        "exponential", "is-finite", "log", "maximum", "minimum", "multiply", "negate", "not", "or",
        "power", "reverse", "rsqrt", "select", "sign", "sqrt",
        "stochastic-convert", "subtract", "tanh",
    )
)  # fmt: skip
_MOST_MOVES: Final = 64


@dataclass(frozen=True, slots=True)
class Feed:
    """The first matmul or kernel that takes a value, as which operand, and what moves it on the
    way there; `path` is () where that leads into a loop."""

    instr: Instruction
    kind: Literal["matmul", "kernel"]
    operand: int
    path: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """The elements of the entry's result that a value gets into with its shape kept; `multiplied`:
    whether a matmul, kernel or scatter of the backward pass takes it."""

    outputs: frozenset[Path]
    multiplied: bool


class Following:
    """What takes the values that the collectives of a module give."""

    def __init__(
        self,
        analysis: ModuleAnalysis,
        flow: Flow,
        loops: TrainingLoops,
        values: Sequence[tuple[Logical, Moved]],
    ) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.flow = flow
        self.loops = loops
        self._given = {
            (operation, moved.number): moved
            for logical, moved in values
            for operation in logical.operations
        }

    def feed(self, logical: Logical, moved: Moved) -> Feed | None:
        """The first matmul or kernel that takes an array, in the order of the schedule; where the
        text has none, the nearest. Passes moves, converts and slices, and collectives that move."""
        moves = _FEEDING_LOOP if logical.windowed is not None else _FEEDING
        found: list[tuple[Taken, Literal["matmul", "kernel"]]] = []
        waiting = list(moved.results)
        seen = set(waiting)
        while waiting:
            taken, waiting = self.flow.uses(waiting, moves), []
            for use in taken:
                kind = None if use.position is None else self._kind(use.instr)
                if kind is not None:
                    found.append((use, kind))
                else:
                    waiting += self._goes_on(use, seen, MOVING)
        if not found:
            return None
        if self.graph.module.is_scheduled:
            found.sort(key=lambda one: execution_order(self.graph, one[0].instr))
        use, kind = found[0]
        assert use.position is not None
        return Feed(use.instr, kind, use.position, self._path(use, moved))

    @cached_property
    def _catalogue(self) -> Catalogue:
        return catalogue()

    def _kind(self, instr: Instruction) -> Literal["matmul", "kernel"] | None:
        opcode = instr.opcode
        if opcode in _MATMULS:
            return "matmul"
        if opcode not in ("custom-call", "custom-call-start"):
            return None
        if entry_of(instr, self._catalogue).op in _GEMMS:
            return "matmul"
        target = target_of(instr)
        return None if target is None or target in IDLE_TARGETS else "kernel"

    def _goes_on(
        self, use: Taken, seen: set[Place], through: frozenset[str] | None
    ) -> Iterator[Place]:
        """Where a value goes on behind another collective (of these kinds; None for all)."""
        if use.position is None:
            return
        moved = self._given.get((use.instr, use.position))
        kind = use.instr.opcode.removesuffix("-start")
        if moved is not None and (through is None or kind in through):
            for place in moved.results:
                if place not in seen:
                    seen.add(place)
                    yield place

    def _path(self, use: Taken, moved: Moved) -> tuple[Instruction, ...]:
        """What stands between the result of a collective and this use, the nearest to it first."""
        starts = {instr for instr, _ in moved.results}
        assert use.position is not None
        at = use.instr.operands[use.position]
        path: list[Instruction] = []
        for _ in range(_MOST_MOVES):
            if at in starts:
                return tuple(reversed(path))
            operands = at.operands
            if at.opcode == "parameter":
                site = self.graph.only_caller(at.computation)
                number = at.parameter_number
                if site is None or site.kind not in ("fusion", "call") or number is None:
                    break
                operands = site.caller.operands[number : number + 1]
            elif at.opcode in _FEEDING_LOOP:
                path.append(at)
            if not operands:
                break
            at = operands[0]
        return ()

    # -- where a gradient ends

    def reached(self, moved: Moved) -> Reached:
        """Which results of the entry an array gets into; not followed into the next iteration of a
        loop over microbatches, where what was updated is used."""
        outputs: set[Path] = set()
        waiting = list(moved.results)
        seen = set(waiting)
        for place in waiting:  # grows while it is walked
            around = self._microbatches(place[0])
            for use in self.flow.uses((place,), _UPDATES, inside=around):
                if use.position is not None:
                    if self._multiplies(use.instr):
                        return Reached(frozenset(), multiplied=True)
                    waiting += self._goes_on(use, seen, None)
                elif around is None:
                    outputs.add(use.path)
                elif (use.instr, use.path) not in seen:
                    seen.add((use.instr, use.path))
                    waiting.append((use.instr, use.path))
        return Reached(frozenset(outputs), multiplied=False)

    def _multiplies(self, instr: Instruction) -> bool:
        if instr.opcode not in _LOOKUPS and self._kind(instr) is None:
            return False
        return self.analysis.phase(instr).phase in ("bwd", "remat", None)

    def _microbatches(self, instr: Instruction) -> Instruction | None:
        loop = self.analysis.loop(instr.computation)
        while loop is not None and not self.loops.is_over_microbatches(loop):
            loop = loop.parent
        return None if loop is None else loop.instr
