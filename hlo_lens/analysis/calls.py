"""The call graph of a module: who calls which computation, how, and callers before callees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.called import called_names
from hlo_lens.hlo.opcodes import OWN_ASYNC, sugar

CallKind = Literal["call", "fusion", "async", "body", "condition", "branch", "apply", "custom_call"]

CALLING_OPCODES = frozenset(
    (
        "all-reduce",
        "all-reduce-start",
        "async-start",
        "call",
        "conditional",
        "cross-replica-sum",
        "custom-call",
        "fusion",
        "map",
        "reduce",
        "reduce-scatter",
        "reduce-window",
        "scan",
        "scatter",
        "select-and-scatter",
        "sort",
        "while",
    )
)
"""Opcodes that take computations. An `OP-start` of any other OP may take some too."""

_BY_ATTRIBUTE: dict[str, CallKind] = {
    "body": "body",
    "condition": "condition",
    "branch_computations": "branch",
    "true_computation": "branch",
    "false_computation": "branch",
    "select": "apply",
    "scatter": "apply",
    "comparator": "apply",
}
_BY_OPERATION: dict[str, CallKind] = {
    "call": "call",
    "fusion": "fusion",
    "async-start": "async",
    "custom-call": "custom_call",
}
# Opcodes that call one computation, which one attribute names.
_ONE_CALLEE: dict[str, CallKind] = {
    "all-reduce": "apply",
    "call": "call",
    "fusion": "fusion",
    "reduce": "apply",
    "reduce-scatter": "apply",
    "scatter": "apply",
    "sort": "apply",
}
_CALLEE = re.compile(r", (?:calls|to_apply)=%?([\w.-]+)", re.A)


@dataclass(frozen=True, slots=True)
class CallSite:
    """`caller` calls `callee`. An instruction that calls n computations is n call sites.

    kind: `call`, `fusion`, `async` (async-start around a computation), `body` and `condition` of
    a while, `branch` of a conditional, `custom_call`, and `apply` for what an operation applies
    to elements: reducers, comparators, map functions, scan bodies.
    """

    caller: Instruction
    callee: Computation
    kind: CallKind


class CallGraph:
    """Call sites of a module, by caller and by callee. Everything is found on first use.

    A computation that `OP-start` implies is no node: what its operation calls, `OP-start` calls.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        # What `dataflow.is_invariant` found, by while and element.
        self.invariant_carries: dict[tuple[Instruction, tuple[int, ...]], bool] = {}
        self.walking_into = 0  # how many loops deep it is looking for them
        self._parameters: dict[Computation, dict[int | None, Instruction]] = {}

    @cached_property
    def sites(self) -> tuple[CallSite, ...]:
        """Every call site, in text order of the callers."""
        return tuple(site for c in self.module.computations for site in _sites_of(c))

    @cached_property
    def _callers(self) -> list[list[CallSite]]:
        callers: list[list[CallSite]] = [[] for _ in self.module.computations]
        for site in self.sites:
            callers[site.callee.index].append(site)
        return callers

    def callers(self, computation: Computation) -> list[CallSite]:
        """The call sites that call it, in text order; the host of an implied computation."""
        if computation.host is not None:
            return [CallSite(computation.host, computation, "async")]
        return self._callers[computation.index]

    def parameter(self, computation: Computation, number: int) -> Instruction | None:
        """Parameter `number` of a computation; None where the text has none of that number."""
        known = self._parameters.get(computation)
        if known is None:
            known = {one.parameter_number: one for one in computation.parameters}
            self._parameters[computation] = known
        return known.get(number)

    def only_caller(self, computation: Computation) -> CallSite | None:
        """The one call site of a computation; None where there is none or more than one.

        Also None for what calls itself, so that going from caller to caller ends.
        """
        callers = self.callers(computation)
        if len(callers) != 1 or not (computation.implied or computation.index in self._ordered):
            return None
        return callers[0]

    @cached_property
    def _ordered(self) -> frozenset[int]:
        return frozenset(computation.index for computation in self.order)

    @cached_property
    def order(self) -> tuple[Computation, ...]:
        """Callers before callees. Computations that call themselves, and what only they call,
        are left out: no HLO has them, but a text may."""
        computations = self.module.computations
        callees: list[list[int]] = [[] for _ in computations]
        waiting = [0] * len(computations)
        for site in self.sites:
            callees[site.caller.computation.index].append(site.callee.index)
            waiting[site.callee.index] += 1
        ready = [i for i, count in enumerate(waiting) if not count]
        order: list[Computation] = []
        for index in ready:  # grows while it is walked
            order.append(computations[index])
            for callee in callees[index]:
                waiting[callee] -= 1
                if not waiting[callee]:
                    ready.append(callee)
        return tuple(order)


def written_computation(computation: Computation) -> Computation:
    """The computation itself, or the one around the `OP-start` that implies it."""
    while computation.host is not None:
        computation = computation.host.computation
    return computation


def written_instruction(instr: Instruction) -> Instruction:
    """The instruction itself, or the `OP-start` that implies the computation it stands in."""
    while instr.computation.host is not None:
        instr = instr.computation.host
    return instr


def _sites_of(computation: Computation) -> Iterator[CallSite]:
    for index, opcode in enumerate(computation.opcodes):
        if opcode in CALLING_OPCODES or (opcode.endswith("-start") and opcode not in OWN_ASYNC):
            yield from _sites_at(computation, index, opcode)


def _sites_at(computation: Computation, index: int, opcode: str) -> Iterator[CallSite]:
    caller = Instruction(computation, index)
    if opcode in _ONE_CALLEE:
        # Most call sites of an optimized module are of this form.
        tail = computation.tails[index]
        match = _CALLEE.search(tail)
        if match is not None and '"' not in tail[: match.start()]:
            callee = computation.module.computations.get(match[1])
            if callee is not None:
                yield CallSite(caller, callee, _ONE_CALLEE[opcode])
                return
    written = sugar(opcode)
    operation = written[0] if written else opcode
    for attribute, callees in _called(computation, index, written is not None).items():
        kind = _BY_ATTRIBUTE.get(attribute) or _BY_OPERATION.get(operation)
        if kind is None:
            kind = "apply" if attribute == "to_apply" else "call"
        for callee in callees:
            yield CallSite(caller, callee, kind)


def _called(
    computation: Computation, index: int, is_sugar: bool
) -> dict[str, tuple[Computation, ...]]:
    if not is_sugar:
        return computation.calls_of(index)
    computations = computation.module.computations
    found = {
        attribute: tuple(callee for name in names if (callee := computations.get(name)) is not None)
        for attribute, names in called_names(computation.tails[index]).items()
    }
    for attribute, indices in computation.rows.inline.get(index, {}).items():
        found[attribute] = tuple(computations[i] for i in indices)
    return found
