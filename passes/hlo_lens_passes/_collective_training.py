"""Where a collective stands in a training step: loops of the backward pass and over microbatches,
checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES
from hlo_lens.hlo import Computation, Instruction
from hlo_lens_passes._collective_flow import Flow
from hlo_lens_passes._collective_logical import Logical

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis

_BACKWARD: Final = frozenset(("bwd", "remat"))
_MATMULS: Final = frozenset(("convolution", "dot", "ragged-dot", "scaled-dot"))
_ENTERS: Final = frozenset(("body", "call", "fusion", "branch", "async", "custom_call"))


class TrainingLoops:
    """Which loops of a module run in the backward pass, and which over microbatches.

    A loop runs in the backward pass where the phase of its while is bwd or remat, or, where that
    phase is neither those nor fwd, where it holds matmuls of the backward pass and none of the
    forward pass. One that holds both runs over microbatches. None where no name tells.
    """

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self._known: dict[Instruction, bool | None] = {}
        self._phases: dict[Computation, frozenset[str]] = {}
        self._callees: dict[Computation, list[Computation]] | None = None

    def in_backward(self, instruction: Instruction) -> bool | None:
        """Whether some loop around the instruction is a backward loop.

        Which loops are around comes from the call graph, never from an op_name.
        """
        return self._some(instruction, self._is_backward)

    def in_microbatches(self, instruction: Instruction) -> bool | None:
        """Whether some loop around it holds matmuls of both passes, so that each iteration is a
        step of its own."""
        return self._some(instruction, self.is_over_microbatches)

    def is_over_microbatches(self, loop: Loop) -> bool | None:
        """Whether a loop holds forward and backward matmuls, and is not itself of one pass."""
        phase = self.analysis.phase(loop.instr).phase
        if phase == "fwd" or phase in _BACKWARD:
            return False
        phases = frozenset() if loop.body is None else self._matmul_phases(loop.body)
        if {"fwd", "bwd"} <= phases:
            return True
        return False if phases else None

    def _some(self, instruction: Instruction, holds: Callable[[Loop], bool | None]) -> bool | None:
        computation = instruction.computation
        loop = self.analysis.loop(computation)
        if loop is None:
            return False if self.analysis.loop_depth(computation) == 0 else None
        verdicts = []
        while loop is not None:
            verdicts.append(holds(loop))
            loop = loop.parent
        if True in verdicts:
            return True
        return None if None in verdicts else False

    def _is_backward(self, loop: Loop) -> bool | None:
        if loop.instr not in self._known:
            self._known[loop.instr] = self._decide(loop)
        return self._known[loop.instr]

    def _decide(self, loop: Loop) -> bool | None:
        phase = self.analysis.phase(loop.instr).phase
        if phase in _BACKWARD:
            return True
        if phase == "fwd":
            return False
        phases = frozenset() if loop.body is None else self._matmul_phases(loop.body)
        if "fwd" in phases:
            return False
        if phases & _BACKWARD:
            return True
        return None if phase is None else False

    def _matmul_phases(self, computation: Computation) -> frozenset[str]:
        """The phases of all matmuls in a computation and what it calls."""
        known = self._phases.get(computation)
        if known is not None:
            return known
        self._phases[computation] = frozenset()  # a text may call in a circle
        found = {
            phase
            for index, opcode in enumerate(computation.opcodes)
            if opcode in _MATMULS
            and (phase := self.analysis.phase(Instruction(computation, index)).phase)
        }
        for callee in self._called(computation):
            found |= self._matmul_phases(callee)
        self._phases[computation] = frozenset(found)
        return self._phases[computation]

    def _called(self, computation: Computation) -> Sequence[Computation]:
        if self._callees is None:
            self._callees = {}
            for site in self.analysis.call_sites:
                if site.kind in _ENTERS:
                    self._callees.setdefault(site.caller.computation, []).append(site.callee)
        return self._callees.get(computation, ())


def under_checkpoint(
    analysis: ModuleAnalysis,
    flow: Flow,
    logical: Logical,
    phase: object,
    in_backward_loop: bool | None,
) -> bool | None:
    """Whether it replays for a checkpoint: its own remat label, or it sits in the backward pass
    and feeds an instruction with one. None where no name tells."""
    if phase == "remat":
        return True
    if phase != "bwd" and not in_backward_loop:
        return None if phase is None else False
    windowed = logical.windowed
    feeds = (
        set() if windowed is None or logical.logical_kind != "all-gather" else {*windowed.matmuls}
    )
    for enter in (False, True):  # a fusion as it is named, then what it does with the value
        taken = flow.uses(logical.results, MOVES, enter=enter)
        feeds.update(use.instr for use in taken if use.position is not None)
        if any(analysis.phase(user).phase == "remat" for user in feeds):
            return True
    return False
