"""Full op_names and phases: what names say, then what callers say, then what users agree on.

An instruction with an op_name has the phase its full op_name shows (`names.rank_of`). The full
op_name is its own one where that starts at the program: with the `jit(…)` or `pjit(…)` that most
names of the entry start with, or with any where those do not. Else the op_names of the call, while,
conditional and async instructions around it are in front of its own (`names.Front`); fusions and
appliers hand on what is in front of themselves. Where several callers give different phases, the
phase is not known.

An instruction without one has the phase that all compute users agree on (`dataflow`). Users that
only move or hold a value (`_PLUMBING`) are looked through; so are compute users without a name,
except that a fusion counts with what its named compute instructions agree on. Results of fusions,
calls and branches are used by the users of the caller; the next iteration of a loop is not looked
at. A fusion without a name has first the phase that its own compute instructions agree on. What
all this leaves open has the phase of the callers' names (`caller`), where they have one.

Everything is done a computation at a time, in one pass in reverse text order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hlo_lens.analysis.calls import CallGraph, written_computation, written_instruction
from hlo_lens.analysis.names import (
    NO_NAME,
    PHASES,
    Front,
    is_absolute,
    own_op_name,
    rank_of,
    start_of,
)
from hlo_lens.hlo import Computation, Instruction

_JOINED = frozenset(("call", "async", "body", "condition", "branch"))
# Kinds of call sites whose result is the result of the caller.
_GIVES_RESULT = frozenset(("call", "fusion", "async", "branch", "apply", "custom_call"))
_PLUMBING = frozenset(
    (
        "add-dependency", "after-all", "bitcast", "copy", "copy-start", "domain",
        "get-tuple-element", "opt-barrier", "optimization-barrier", "parameter", "tuple",
    )
)  # fmt: skip
# What a fusion holds that says nothing of the fusion.
_NO_EVIDENCE = _PLUMBING | {"broadcast", "constant", "iota"}

_FAST_NAME = ', metadata={op_name="'


@dataclass(frozen=True, slots=True)
class Phase:
    """The phase of a training step: fwd, bwd, remat, other, or None where nothing tells.

    phase_from: `own` (its op_name alone shows it), `caller` (an op_name of a caller does),
    `dataflow` (its users agree on it, or the inside of a fusion); None without a phase.
    """

    phase: str | None
    phase_from: Literal["own", "caller", "dataflow"] | None


NO_PHASE = Phase(None, None)

# Sets of ranks are bit masks.
_ONLY_NO_NAME = 1 << NO_NAME
_RANKS = {1 << rank: rank for rank in range(len(PHASES))}
_OWN, _CALLER, _DATAFLOW = (
    {1 << rank: Phase(PHASES[rank], how) for rank in range(1, len(PHASES))}
    for how in ("own", "caller", "dataflow")
)


class Naming:
    """Names and phases of a module, found a computation at a time."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph
        self._names: dict[int, list[str | None]] = {}
        self._ranks: dict[str, tuple[int, bool]] = {}
        self._masks: dict[int, list[int]] = {}
        self._flows: dict[int, list[int]] = {}
        self._phases: dict[int, list[Phase]] = {}

    def op_names(self, computation: Computation) -> Sequence[str | None]:
        """The op_name of each written instruction of a computation of the module, by position."""
        names = self._names.get(computation.index)
        if names is None:
            names = self._names[computation.index] = _op_names(computation)
        return names

    def full_op_name(self, instr: Instruction) -> str | None:
        """The op_name with those of its callers in front; None where it has none itself.

        Where callers differ, nothing is put in front.
        """
        return self._full(own_op_name(instr), written_computation(instr.computation))

    def front(self, computation: Computation) -> Front | None:
        """What stands in front of the op_names in a computation; None where its callers differ."""
        return self._fronts[computation.index]

    def full_op_names(self, computation: Computation) -> Sequence[str | None]:
        """The full op_name of each written instruction of a computation, by position."""
        return [self._full(own, computation) for own in self.op_names(computation)]

    def _full(self, own: str | None, computation: Computation) -> str | None:
        if own is None or self._rank(own)[1]:
            return own
        front = self._fronts[computation.index]
        return own if front is None else front.full(own)

    def phase(self, instr: Instruction) -> Phase:
        """The phase of an instruction; of an implied one, that of the one that implies it."""
        instr = written_instruction(instr)
        if instr.index < 0:
            instr = instr.computation.module.instruction(instr.id)
        if instr.computation.index not in self._phases:
            name = own_op_name(instr)
            if name is not None and (found := self._rank(name))[1]:
                return _OWN.get(1 << found[0], NO_PHASE)  # its own name says it all
        return self.phases(instr.computation)[instr.index]

    def phases(self, computation: Computation) -> Sequence[Phase]:
        """The phase of each written instruction of a computation of the module, by position."""
        found = self._phases.get(computation.index)
        if found is None:
            found = self._phases[computation.index] = self._find_phases(computation)
        return found

    def _find_phases(self, computation: Computation) -> list[Phase]:
        masks = self._named(computation)
        phases = [_OWN.get(mask, NO_PHASE) for mask in masks]
        before = _ONLY_NO_NAME if computation.is_entry else self._before[computation.index]
        if before != _ONLY_NO_NAME:
            for index, (name, mask) in enumerate(
                zip(self.op_names(computation), masks, strict=True)
            ):
                if name is not None and mask != 1 << self._rank(name)[0]:
                    phases[index] = _CALLER.get(mask, NO_PHASE)
        if not all(masks):
            from_caller = _CALLER.get(before, NO_PHASE)
            flows = self._flow(computation)
            for index, mask in enumerate(masks):
                if not mask:
                    phases[index] = _DATAFLOW.get(flows[index], from_caller)
        return phases

    def _rank(self, name: str) -> tuple[int, bool]:
        """(rank, whether the path starts at the program) of an op_name."""
        known = self._ranks.get(name)
        if known is None:
            known = self._ranks[name] = rank_of(name), is_absolute(name, self.program)
        return known

    @cached_property
    def program(self) -> str | None:
        """The `jit(step)` that most names of the entry start with; None where they have none. A
        function that the program calls may have names that start with the jit of another one."""
        names = filter(None, self.op_names(self.graph.module.entry))
        starts = Counter(start for name in names if (start := start_of(name)) is not None)
        return max(starts, key=starts.__getitem__, default=None)

    def _named(self, computation: Computation) -> list[int]:
        """The ranks that each instruction can have by its name; 0 for one without."""
        masks = self._masks.get(computation.index)
        if masks is None:
            masks = [
                0 if name is None else self._mask(name, computation)
                for name in self.op_names(computation)
            ]
            self._masks[computation.index] = masks
        return masks

    def _mask(self, name: str, computation: Computation) -> int:
        rank, absolute = self._rank(name)
        if absolute or computation.is_entry:
            return 1 << rank
        return _at_least(self._before[computation.index], rank)

    @cached_property
    def _before(self) -> list[int]:
        """The ranks that the op_names in front of each computation can have, by its index."""
        masks = [_ONLY_NO_NAME] * len(self.graph.module.computations)
        for computation in self.graph.order:
            mask = 0
            for site in self.graph.callers(computation):
                around = masks[site.caller.computation.index]
                name = own_op_name(site.caller) if site.kind in _JOINED else None
                if name is not None:
                    rank, absolute = self._rank(name)
                    around = 1 << rank if absolute else _at_least(around, rank)
                mask |= around
            masks[computation.index] = mask or _ONLY_NO_NAME
        return masks

    @cached_property
    def _fronts(self) -> list[Front | None]:
        """What is in front of the op_names in each computation; None where its callers differ."""
        start = Front(program=self.program)
        fronts: list[Front | None] = [start] * len(self.graph.module.computations)
        for computation in self.graph.order:
            found: set[Front | None] = set()
            for site in self.graph.callers(computation):
                around = fronts[site.caller.computation.index]
                if site.kind in _JOINED and own_op_name(site.caller) is not None:
                    around = (around or start).inside(site.caller)
                found.add(around)
            if found:
                fronts[computation.index] = found.pop() if len(found) == 1 else None
        return fronts

    def _flow(self, computation: Computation) -> list[int]:
        """For each instruction without a name, the ranks its users (or insides) have."""
        waiting = [computation]
        entered: set[int] = set()
        while waiting:
            current = waiting[-1]
            if current.index not in entered:
                entered.add(current.index)
                waiting += [
                    caller
                    for caller in self._open_callers(current)
                    if caller.index not in entered and caller.index not in self._flows
                ]
            else:
                waiting.pop()
                if current.index not in self._flows:
                    self._flows[current.index] = self._find_flow(current)
        return self._flows[computation.index]

    def _open_callers(self, computation: Computation) -> list[Computation]:
        """Callers that this computation gives its result to and that only dataflow can tell of."""
        if computation.is_entry or self._named(computation)[computation.root_index]:
            return []
        return [
            site.caller.computation
            for site in self.graph.callers(computation)
            if site.kind in _GIVES_RESULT and not self._said(site.caller)
        ]

    def _said(self, instr: Instruction) -> int:
        """The ranks an instruction has by its name, or as a fusion by what it holds."""
        known = self._masks.get(instr.computation.index)
        if known is not None:
            mask = known[instr.index]
        else:
            name = own_op_name(instr)
            mask = 0 if name is None else self._mask(name, instr.computation)
        return mask or (self._inside(instr) if instr.opcode == "fusion" else 0)

    def _inside(self, fusion: Instruction) -> int:
        """The one rank that the named compute instructions of a fusion have, or 0."""
        mask = 0
        for callee in fusion.called:
            for opcode, named in zip(callee.opcodes, self._named(callee), strict=True):
                if named and opcode not in _NO_EVIDENCE:
                    mask |= named
        return mask if mask in _RANKS else 0

    def _find_flow(self, computation: Computation) -> list[int]:
        named = self._named(computation)
        flow = [0] * len(named)
        if not computation.is_entry:
            for site in self.graph.callers(computation):
                if site.kind in _GIVES_RESULT:
                    caller = site.caller
                    outer = self._flows.get(caller.computation.index)
                    flow[computation.root_index] |= self._said(caller) or (
                        outer[caller.index] if outer is not None else 0
                    )
        rows, opcodes = computation.rows, computation.opcodes
        operands, bounds = rows.operands, rows.bounds
        for index in range(len(named) - 1, -1, -1):
            mask = named[index]
            opcode = opcodes[index]
            if opcode in _PLUMBING or opcode.endswith(("-done", "-update")):
                mask = flow[index] or mask
            elif not mask:
                if opcode == "fusion":
                    flow[index] = self._inside(Instruction(computation, index)) or flow[index]
                mask = flow[index]
            if mask:
                for operand in operands[bounds[index] : bounds[index + 1]]:
                    while operand < 0 and rows.implied[~operand].operands:
                        operand = rows.implied[~operand].operands[0]
                    if operand >= 0:
                        flow[operand] |= mask
        return flow


def _at_least(mask: int, rank: int) -> int:
    """The ranks of a mask, each raised to `rank` where it is lower."""
    higher = mask >> rank + 1 << rank + 1
    return higher | 1 << rank if mask != higher else higher


def _op_names(computation: Computation) -> list[str | None]:
    names: list[str | None] = []
    for index, tail in enumerate(computation.tails):
        start = tail.find(_FAST_NAME)
        if start >= 0 and not tail.count('"', 0, start) % 2:  # not inside a string
            start += len(_FAST_NAME)
            name = tail[start : tail.find('"', start)]
            if "\\" not in name:
                names.append(name)
                continue
        has_metadata = "metadata={" in tail
        names.append(own_op_name(Instruction(computation, index)) if has_metadata else None)
    return names
