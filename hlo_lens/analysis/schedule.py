"""The order of a scheduled text: what stands between two instructions, and how much of it computes.

`reference/definitions.md`, "Collectives", defines compute_between and heavy_between.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES, configured
from hlo_lens.hlo import Computation, Instruction

_IDLE: Final = frozenset(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy", "after-all",
        "add-dependency", "domain", "opt-barrier", "optimization-barrier", "partition-id",
        "replica-id",
    )
)  # fmt: skip
_IDLE_ENDINGS: Final = ("-start", "-update", "-done")
IDLE_TARGETS: Final = frozenset(
    (
        "AllocateBuffer", "AssumeGatherIndicesInBound", "AsyncCollectiveDone",
        "AsyncCollectiveStart", "ConcatBitcast", "GatherScatterIndicesBitpacked", "MoveToDevice",
        "MoveToHost", "PrepareAsyncCallDone", "PrepareAsyncCallStart", "SPMDFullToShardShape",
        "SPMDShardToFullShape", "Sharding", "annotate_device_placement",
        "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    )
)  # fmt: skip
"""Custom calls that mark, allocate or wait; every other one runs a kernel."""

_MATMULS: Final = frozenset(("convolution", "dot", "ragged-dot", "scaled-dot"))
_HEAVY: Final = _MATMULS | {"reduce", "sort", "scatter", "gather", "while"}
_CALLERS: Final = frozenset(("fusion", "call", "conditional"))
_CALLS: Final = frozenset(("fusion", "call", "branch"))
_STRONG: Final = _MATMULS | _CALLERS | {"custom-call"}
"""What makes a fusion around it heavy; a reduce or gather in a larger fusion does not."""
_TELLING: Final = _HEAVY | _STRONG | COLLECTIVE_OPCODES


class Work(NamedTuple):
    """What an instruction, or all that a computation holds, does."""

    computes: bool
    heavy: bool
    communicates: bool


class Between(NamedTuple):
    """Counts over the instructions strictly between two places of a schedule."""

    instructions: int
    compute: int
    heavy: int


class Schedule:
    """Running counts over the text order of one computation."""

    __slots__ = ("_compute", "_heavy", "computation")

    def __init__(self, computation: Computation, works: list[Work]) -> None:
        self.computation = computation
        self._compute = [0, *accumulate(work.computes for work in works)]
        self._heavy = [0, *accumulate(work.computes and work.heavy for work in works)]

    def between(self, first: int, second: int) -> Between:
        """Counts of what stands behind position `first` and before position `second`."""
        begin, end = first + 1, max(second, first + 1)
        return Between(
            end - begin,
            self._compute[end] - self._compute[begin],
            self._heavy[end] - self._heavy[begin],
        )


class Schedules:
    """The schedules of a module, each counted once, when asked for."""

    def __init__(self, graph: CallGraph) -> None:
        self.module = graph.module
        # By computation and position of the caller: what fusions, calls and branches call.
        self.callees: dict[tuple[int, int], list[Computation]] = {}
        for site in graph.sites:
            if site.kind in _CALLS:
                key = site.caller.computation.index, site.caller.index
                self.callees.setdefault(key, []).append(site.callee)
        self._schedules: dict[int, Schedule] = {}
        self._contents: dict[int, Work] = {}
        self._array_shapes: dict[str, bool] = {}

    def of(self, computation: Computation) -> Schedule | None:
        """The schedule of a computation; None where its text order is none.

        Only in a module with `is_scheduled=true` is the text order the order of execution.
        """
        if not self.module.is_scheduled or computation.implied:
            return None
        known = self._schedules.get(computation.index)
        if known is None:
            works = [self._work(computation, i) for i in range(len(computation.names))]
            known = self._schedules[computation.index] = Schedule(computation, works)
        return known

    def work(self, instruction: Instruction) -> Work:
        """Whether an instruction counts as compute, as heavy compute, as communication."""
        return self._work(instruction.computation, instruction.index)

    def _work(self, computation: Computation, index: int) -> Work:
        opcode = computation.opcodes[index]
        if opcode in COLLECTIVE_OPCODES:
            return Work(False, False, True)
        if opcode in _IDLE or opcode.endswith(_IDLE_ENDINGS):
            return _NOTHING
        inside = self._inside(computation, index, opcode)
        if inside.communicates and not inside.heavy:
            return inside._replace(computes=False)
        return inside._replace(computes=inside.computes and self._is_array(computation, index))

    def _inside(self, computation: Computation, index: int, opcode: str) -> Work:
        """What the operation does by itself, whatever the shape of its result."""
        if opcode in _CALLERS:
            callees = self.callees.get((computation.index, index), ())
            inside = [self.contents(callee, opcode) for callee in callees]
            return Work(
                not inside or any(work.computes for work in inside),
                any(work.heavy for work in inside),
                any(work.communicates for work in inside),
            )
        if opcode == "custom-call":
            kernel = Instruction(computation, index).custom_call_target not in IDLE_TARGETS
            return Work(kernel, kernel, False)
        return Work(True, opcode in _HEAVY, False)

    def contents(self, computation: Computation, caller: str = "call") -> Work:
        """What a called computation holds, through what it calls.

        A call or branch is heavy by any heavy operation; a fusion by the matmuls and kernels in it.
        A fusion of one operation (`wrapped_reduce`) counts as that operation.
        """
        key = computation.index * 2 + (caller == "fusion")
        known = self._contents.get(key)
        if known is None:
            self._contents[key] = _NOTHING  # a text may call in a circle
            known = self._contents[key] = self._read_contents(computation, caller)
        return known

    def _read_contents(self, computation: Computation, caller: str) -> Work:
        computes = heavy = communicates = False
        opcodes = computation.opcodes
        alone = len(opcodes) - opcodes.count("parameter") == 1
        if not alone and _TELLING.isdisjoint(opcodes):
            return _ORDINARY
        for index, opcode in enumerate(opcodes):
            if opcode in COLLECTIVE_OPCODES:
                communicates = True
            elif opcode not in _IDLE and not opcode.endswith(_IDLE_ENDINGS):
                work = self._inside(computation, index, opcode)
                computes |= work.computes
                communicates |= work.communicates
                heavy |= work.heavy and (caller != "fusion" or alone or opcode in _STRONG)
        return Work(computes or not alone, heavy, communicates)

    def _is_array(self, computation: Computation, index: int) -> bool:
        """Whether the result holds something else than scalars."""
        text = computation.shape_texts[index]
        known = self._array_shapes.get(text)
        if known is None:
            known = self._array_shapes[text] = not text or _has_dimensions(text)
        return known


_NOTHING: Final = Work(False, False, False)
_ORDINARY: Final = Work(True, False, False)


def _has_dimensions(shape_text: str) -> bool:
    """Whether some `[…]` in the shape is not empty."""
    return any(part.lstrip()[:1] not in ("]", "") for part in shape_text.split("[")[1:])


_made: WeakKeyDictionary[CallGraph, Schedules] = WeakKeyDictionary()


def schedules(graph: CallGraph) -> Schedules:
    """The schedules of a module, the same object for every pass that asks."""
    known = _made.get(graph)
    if known is None:
        known = _made[graph] = Schedules(graph)
    return known


def find_done(start: Instruction) -> tuple[Instruction | None, tuple[Instruction, ...]]:
    """The done of a start or send or recv, and the updates between them.

    None where the value leaves the computation before it is waited for, or nobody waits.
    """
    updates: list[Instruction] = []
    at = start
    while True:
        following = None
        for user in at.users:
            if user.opcode.endswith("-done"):
                return user, tuple(updates)
            if user.opcode.endswith("-update"):
                following = user
        if following is None:
            return None, tuple(updates)
        updates.append(following)
        at = following


def synchronous(start: Instruction) -> bool | None:
    """`is_sync` of the start's backend_config; None where the back end has no such field.

    GPU keeps it in `collective_backend_config`; before 2023-11 it stood at the top.
    """
    if "is_sync" not in start.tail:
        return None
    for path in (("collective_backend_config", "is_sync"), ("is_sync",)):
        value = configured(start, *path)
        if isinstance(value, bool):
            return value
    return None
