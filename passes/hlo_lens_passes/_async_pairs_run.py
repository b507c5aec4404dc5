"""Fills the async_pairs table: what the pass of `hlo_lens_passes.async_pairs` runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import attribute, shape_of
from hlo_lens.analysis.schedule import Schedules, find_done, schedules, synchronous
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.hlo import Computation, Instruction, Module, Shape
from hlo_lens_passes._host_moves import HostMove, copies
from hlo_lens_passes._platforms import platform_of
from hlo_lens_passes.async_pairs import UNMATCHED

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_STARTS: Final = ("send", "recv")
_CARRIERS: Final = frozenset(
    ("conditional", "get-tuple-element", "opt-barrier", "parameter", "while")
)
"""What brings a started operation from another computation or iteration."""

# xla::Layout's kDefaultMemorySpace and kHostMemorySpace.
_MEMORIES: Final = {0: "device", 5: "host"}

_FRAME: Final = frozenset(("bitcast", "constant", "get-tuple-element", "parameter", "tuple"))


@dataclass(frozen=True, slots=True)
class Pair:
    """A start and its done. One of them is None where another computation has it.

    `fused` is the operation where both are fusions of an async-collective fusion.
    """

    start: Instruction | None
    updates: tuple[Instruction, ...]
    done: Instruction | None
    fused: str | None = None

    @property
    def instr(self) -> Instruction:
        """The start, or the done where that is all there is."""
        instr = self.start or self.done
        assert instr is not None
        return instr


def run(program: Program, facts: Facts) -> PassResult:
    """One row a pair, with its members, and the findings."""
    collectives = facts.records("collectives")
    by_row = {row["id"]: row["logical_kind"] for row in collectives}
    kinds = {(m.module, m.instr): by_row[m.row] for m in facts.members("collectives")}
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        own = [row for row in collectives if row["module"] == position]
        counted = schedules(program.analysis(module).graph)
        pairs = (*_pairs(module), *_fused_pairs(module, own))
        has_vmem = names_vmem(module)
        graph = program.analysis(module).graph
        around = _around(graph, pairs)
        moves = {move.instr: move for move in reversed(copies(graph))}
        for pair in sorted(pairs, key=lambda pair: pair.instr.id):
            members += _members(pair, len(rows), position)
            rows.append(
                common(program, position, pair.instr)
                | _columns(pair, counted)
                | _memories(pair, moves.get(pair.instr), has_vmem)
                | {
                    "collective": kinds.get((position, pair.instr.id)),
                    "inside": around.get(pair.instr.computation),
                }
            )
            if _is_unmatched(pair) and not module.truncated:
                findings.append(_finding(pair, position, len(rows) - 1))
    return PassResult({"async_pairs": rows}, members, findings)


# ---------------------------------------------------------------------------- finding pairs


def _pairs(module: Module) -> Iterator[Pair]:
    """Starts with what waits for them, and dones whose start is elsewhere."""
    for computation in module.computations:
        waited: set[int] = set()
        for index, opcode in enumerate(computation.opcodes):
            if opcode.endswith("-start") or opcode in _STARTS:
                start = Instruction(computation, index)
                done, updates = find_done(start)
                if done is not None:
                    waited.add(done.index)
                yield Pair(start, updates, done)
            elif opcode.endswith("-done") and index not in waited:
                done = Instruction(computation, index)
                if not _is_start(_begin(done)):
                    yield Pair(None, (), done)


def _begin(done: Instruction) -> Instruction | None:
    """What a done waits for, in front of all updates; None where it has no operand."""
    at: Instruction | None = done
    while at is not None and at.opcode.endswith(("-done", "-update")):
        operands = at.operands
        at = operands[0] if operands else None
    return at


def _is_start(instr: Instruction | None) -> bool:
    return instr is not None and (instr.opcode.endswith("-start") or instr.opcode in _STARTS)


def _fused_pairs(module: Module, collectives: list[dict[str, object]]) -> Iterator[Pair]:
    """The fusions that start and end an async-collective fusion."""
    for row in collectives:
        start, done = row["start"], row["done"]
        if row["form"] == "async-fusion" and isinstance(start, int) and isinstance(done, int):
            ends = module.instruction(start), module.instruction(done)
            yield Pair(ends[0], (), ends[1], fused=str(row["kind"]))


def _around(graph: CallGraph, pairs: Iterable[Pair]) -> dict[Computation, int | None]:
    """The start of the pair that each computation runs in, where one runs it, perhaps through
    calls, branches and loops: what it starts itself, such as a slice that feeds a gather on a
    SparseCore, is part of that pair's work."""
    starts = {pair.start.id for pair in pairs if pair.start is not None}
    around: dict[Computation, int | None] = {}
    for computation in graph.order:
        found = [
            site.caller.id if site.caller.id in starts else around.get(site.caller.computation)
            for site in graph.callers(computation)
        ]
        around[computation] = found[0] if found and None not in found else None
    return around


def _is_unmatched(pair: Pair) -> bool:
    if pair.start is not None and pair.done is None:
        last = (pair.start, *pair.updates)[-1]
        return not last.users and not last.is_root
    if pair.start is None and pair.done is not None:
        begin = _begin(pair.done)
        return begin is None or begin.opcode not in _CARRIERS
    return False


def _finding(pair: Pair, position: int, row: int) -> Finding:
    instr = pair.instr
    what = "is never waited for" if pair.start is not None else "waits for nothing"
    return Finding(
        UNMATCHED.id,
        UNMATCHED.level,
        f"%{instr.name} ({instr.opcode}) {what}",
        position,
        instr.id,
        (("async_pairs", row),),
    )


def _members(pair: Pair, row: int, position: int) -> Iterator[Member]:
    if pair.start is not None:
        yield Member("async_pairs", row, "start", position, pair.start.id)
    for update in pair.updates:
        yield Member("async_pairs", row, "update", position, update.id)
    if pair.done is not None:
        yield Member("async_pairs", row, "done", position, pair.done.id)


# ---------------------------------------------------------------------------- columns


def _columns(pair: Pair, counted: Schedules) -> dict[str, object]:
    start, done = pair.start, pair.done
    columns: dict[str, object] = {
        "wraps": _wraps(pair),
        "start": None if start is None else start.id,
        "done": None if done is None else done.id,
        "updates": tuple(update.id for update in pair.updates),
        "bytes": _bytes(pair),
    }
    if start is None:
        return columns
    columns["is_sync"] = is_sync = synchronous(start)
    columns["thread"] = (attribute(start, "async_execution_thread") or "").strip('"') or None
    schedule = counted.of(start.computation)
    if schedule is not None and done is not None and done.computation is start.computation:
        between = schedule.between(start.index, done.index)
        columns |= {
            "instructions_between": between.instructions,
            "compute_between": between.compute,
            "heavy_between": between.heavy,
            "overlapped": between.compute > 0 and not is_sync,
        }
    return columns


def _wraps(pair: Pair) -> str | None:
    """The opcode of what runs; behind calls and custom calls that only wrap a computation."""
    instr = pair.instr
    opcode = instr.opcode
    if pair.fused is not None:
        return pair.fused
    if instr.base_opcode == "async-start":
        return _runs(instr.called[0]) if instr.called else None
    operation = opcode.removesuffix("-start").removesuffix("-done")
    return None if operation == "async" else operation


def _runs(computation: Computation, depth: int = 0) -> str | None:
    """The operation in a wrapper; several by commas."""
    found: dict[str, None] = {}
    for index, opcode in enumerate(computation.opcodes):
        if opcode in _FRAME or opcode.endswith(("-update", "-done")):
            continue
        callees: tuple[Computation, ...] = ()
        if (opcode in ("call", "custom-call") or opcode.endswith("-start")) and depth < 8:
            callees = Instruction(computation, index).called
        inner = [wrapped for callee in callees if (wrapped := _runs(callee, depth + 1))]
        found.update(dict.fromkeys(inner or [opcode.removesuffix("-start")]))
    return ",".join(found) or None


def _result(pair: Pair) -> Shape | None:
    """What the operation gives: the shape of the done, else what the start says of it."""
    if pair.instr.opcode in ("send", "send-start", "send-done"):
        return None
    if pair.done is not None:
        shape = shape_of(pair.done)
        received = pair.done.opcode == "recv-done" and shape is not None and shape.elements
        return received[0] if received else shape
    shape = shape_of(pair.instr)
    opcode = pair.instr.opcode
    if shape is None or not shape.is_tuple or opcode == "all-reduce-start":
        return shape
    at = 0 if opcode in ("copy-start", "recv") else 1
    return shape.elements[at] if at < len(shape.elements) else None


def _read(pair: Pair) -> Shape | None:
    """What the operation reads: its first operand, of an update in place the new slice."""
    start = pair.start
    if start is None or start.opcode == "recv":
        return None
    operands = start.operands or tuple(o for u in pair.updates for o in u.operands[1:])
    at = 1 if _wraps(pair) == "dynamic-update-slice" else 0
    return shape_of(operands[at]) if at < len(operands) else None


def _bytes(pair: Pair) -> int | None:
    shape = _read(pair) if pair.instr.opcode in _STARTS[:1] else _result(pair)
    return None if shape is None else shape.bytes


def _memories(pair: Pair, move: HostMove | None, has_vmem: bool) -> dict[str, object]:
    """The memory spaces it moves between, as numbers and by name. In a wrapper, an update in place
    of a buffer on the host is seen by what it moves."""
    spaces = {"from": _space(_read(pair)), "to": _space(_result(pair))}
    if move is not None and spaces["from"] == spaces["to"]:
        spaces = dict(zip(("from", "to"), move.spaces, strict=True))
    columns: dict[str, object] = {"host_move": None if move is None else move.direction}
    for end, space in spaces.items():
        columns[f"{end}_memory_space"] = space
        columns[f"{end}_memory"] = memory_name(space, has_vmem)
    return columns


def names_vmem(module: Module) -> bool:
    """Whether S(1) of this module is the VMEM of a TPU."""
    return "S(1)" in module.text and platform_of(module)[0] == "tpu"


def memory_name(space: int | None, has_vmem: bool) -> str | None:
    """A memory space by name, where it means the same everywhere or the platform is known."""
    if space == 1 and has_vmem:
        return "vmem"
    return None if space is None else _MEMORIES.get(space, f"S({space})")


def _space(shape: Shape | None) -> int | None:
    """The memory space that all arrays of a shape agree on."""
    if shape is None:
        return None
    spaces = {leaf.memory_space for leaf in shape.leaves() if leaf.is_array}
    return spaces.pop() if len(spaces) == 1 else None
