"""Where a collective stands in a training step: backward loops, checkpoints, repeated gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import attribute, shape_of
from hlo_lens.analysis.dataflow import MOVES, Value, consumers, trace
from hlo_lens.hlo import Computation, Instruction
from hlo_lens_passes._collective_logical import Logical, execution_order

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph

_BACKWARD: Final = frozenset(("bwd", "remat"))
_MATMULS: Final = frozenset(("convolution", "dot", "ragged-dot", "scaled-dot"))
_REARRANGES: Final = MOVES | {"transpose"}
_ENTERS: Final = frozenset(("body", "call", "fusion", "branch", "async", "custom_call"))


class BackwardLoops:
    """Which loops of a module run in the backward pass, each decided once.

    A loop does where the phase of its while is bwd or remat, or, where that phase is neither those
    nor fwd, where it holds matmuls of the backward pass and none of the forward pass. A loop over
    microbatches holds both and is none. None where no name tells.
    """

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self._known: dict[Instruction, bool | None] = {}
        self._phases: dict[Computation, frozenset[str]] = {}
        self._callees: dict[Computation, list[Computation]] | None = None

    def around(self, instruction: Instruction) -> bool | None:
        """Whether some loop around the instruction is a backward loop.

        Which loops are around comes from the call graph, never from an op_name.
        """
        computation = instruction.computation
        loop = self.analysis.loop(computation)
        if loop is None:
            return False if self.analysis.loop_depth(computation) == 0 else None
        verdicts = []
        while loop is not None:
            verdicts.append(self._is_backward(loop))
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
    analysis: ModuleAnalysis, logical: Logical, phase: object, in_backward_loop: bool | None
) -> bool | None:
    """Whether it replays for a checkpoint: its own remat label, or it sits in the backward pass
    and feeds an instruction with one. None where no name tells."""
    if phase == "remat":
        return True
    if phase != "bwd" and not in_backward_loop:
        return None if phase is None else False
    feeds = [
        user
        for result, path in logical.results
        for user in consumers(analysis.graph, result, path, enter=False)
    ]
    if logical.windowed is not None and logical.logical_kind == "all-gather":
        feeds += logical.windowed.matmuls
    return any(analysis.phase(user).phase == "remat" for user in feeds)


# ---------------------------------------------------------------------------- gathered again


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What a gather takes: a value, and how it is cut before. `places` is where it is cut."""

    value: Instruction
    path: tuple[int, ...]
    cuts: tuple[str, ...]
    places: tuple[object, ...]

    @property
    def key(self) -> object:
        return self.value, self.path, self.cuts


def earlier_gathers(analysis: ModuleAnalysis, gathers: Sequence[Logical]) -> dict[int, Instruction]:
    """Position of a gather → what stands for the first gather of the same source value.

    Followed back through moves, converts, transposes, slices, opt-barriers, fusions, carries that
    loops hand on, and what one loop stacks and another reads back. Slices of one value at places
    that change are the same source in different loops (layer by layer, forward and backward), but
    not in one iteration.
    """
    graph = analysis.graph
    order = sorted(range(len(gathers)), key=lambda at: execution_order(graph, gathers[at].instr))
    seen: dict[object, list[tuple[_Gathered, Loop | None, Instruction]]] = {}
    found: dict[int, Instruction] = {}
    for at in order:
        source = gathers[at].source
        if source is None:
            continue
        gathered = _gathered(graph, source)
        loop = analysis.loop(gathers[at].instr.computation)
        earlier = seen.setdefault(gathered.key, [])
        for other, its_loop, instr in earlier:
            if its_loop is not loop or other.places == gathered.places:
                found[at] = instr
                break
        earlier.append((gathered, loop, gathers[at].instr))
    return found


def _gathered(graph: CallGraph, value: Value) -> _Gathered:
    cuts: list[str] = []
    places: list[tuple[object, ...]] = []
    for _ in range(64):  # more slices of slices do not occur
        value = trace(graph, value, moves=_REARRANGES)
        instr, operands = value.instr, value.instr.operands
        if not operands:
            break
        if instr.opcode == "slice":
            cuts.append(attribute(instr, "slice") or "")
            places.append(())
            value = Value(operands[0], (), value.via)
        elif instr.opcode == "dynamic-slice":
            cuts.append(attribute(instr, "dynamic_slice_sizes") or "")
            ends = [trace(graph, Value(place, (), value.via)) for place in operands[1:]]
            places.append(tuple((end.instr, end.path) for end in ends))
            value = Value(operands[0], (), value.via)
        elif cuts and _is_stacked_so(graph, value, cuts[-1]):
            # One slice of what a loop stacked is what it wrote in some iteration.
            cuts.pop()
            places.pop()
            value = Value(operands[1], (), value.via)
        else:
            break
    return _Gathered(value.instr, value.path, tuple(cuts), tuple(places))


def _is_stacked_so(graph: CallGraph, value: Value, sizes: str) -> bool:
    """Whether a value is a carry into which a loop writes slices of these sizes."""
    operands = value.instr.operands
    if value.instr.opcode != "dynamic-update-slice" or len(operands) < 2:
        return False
    written = shape_of(operands[1])
    if written is None or sizes.strip("{}") != ",".join(map(str, written.dimensions)):
        return False
    buffer = trace(graph, Value(operands[0], (), value.via))
    return buffer.instr.opcode == "parameter" and bool(buffer.path)
