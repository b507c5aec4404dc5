"""Logical collectives: what one or more collective operations of the text amount to, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.collectives import (
    Groups,
    Site,
    attribute,
    channel_of,
    configured,
    dtypes,
    find_sites,
    frontend_attributes,
    groups_of,
    moved_operands,
    operand_bytes,
    result_shape,
    shape_of,
    total_bytes,
    wire_bytes,
)
from hlo_lens.analysis.schedule import find_done
from hlo_lens.hlo import Instruction, Module, Shape
from hlo_lens.hlo.opcodes import sugar
from hlo_lens_passes._collective_windowed import Windowed, find_windowed


@dataclass(frozen=True, slots=True)
class Logical:
    """One logical collective.

    `instr` stands for it: the operation, the start, the fusion around it, or the while.
    `operations` are the collective operations of the text that make it up, `operation` the one
    that says most. `start`, `updates` and `done` are set where it is asynchronous. Bytes are those
    that one device gives and gets.
    """

    kind: str
    logical_kind: str
    form: str
    instr: Instruction
    operation: Instruction
    operations: tuple[Instruction, ...]
    groups: Groups
    shapes: tuple[Shape, ...] | None
    dtype: str | None
    operand: int | None
    result: int | None
    start: Instruction | None = None
    updates: tuple[Instruction, ...] = ()
    done: Instruction | None = None
    windowed: Windowed | None = None

    @property
    def results(self) -> tuple[tuple[Instruction, tuple[int, ...]], ...]:
        """Where its result is: the done or what stands for it, and the element of that.

        () for a gather in a windowed loop, which the loop itself uses up. A permute peeled off a
        scatter is no use of its result but gives a part of it.
        """
        if self.windowed is not None:
            carried = tuple((self.instr, (element,)) for element in self.windowed.results)
            return carried + tuple((end, ()) for end in self.peeled_ends if carried)
        return ((self.done or self.instr, ()),)

    @property
    def peeled_ends(self) -> tuple[Instruction, ...]:
        """The dones of the permutes peeled off a windowed loop; the permutes, where synchronous."""
        peeled = () if self.windowed is None else self.windowed.peeled
        return tuple(find_done(site.instr)[0] or site.instr for site in peeled)

    @property
    def logical_wire(self) -> int | None:
        """What a ring for the logical kind sends a device."""
        return wire_bytes(self.logical_kind, self.operand, self.groups)


def logical_collectives(module: Module, graph: CallGraph) -> list[Logical]:
    """Every logical collective of a module, in text order of what stands for it."""
    sites = list(find_sites(module, graph))
    found: list[Logical] = []
    taken: set[Site] = set()
    for windowed in find_windowed(sites, graph):
        taken.update(windowed.inside, windowed.peeled)
        found.append(_of_windowed(windowed))
    for chain in _chains((site for site in sites if site not in taken), graph):
        found.append(_of_chain(chain, graph) if len(chain) > 1 else _of_site(chain[0], graph))
    return sorted(found, key=lambda logical: logical.instr.id)


# ---------------------------------------------------------------------------- one operation


def _of_site(site: Site, graph: CallGraph) -> Logical:
    operation, instr = site.operation, site.instr
    groups = groups_of(operation)
    shapes = moved_operands(operation)
    operand = operand_bytes(operation)
    result = _result_bytes(operation)
    kind = site.kind
    if kind == "all-reduce" and _is_fused(operation, graph):
        kept = _scattered(operation, operand, groups)
        kind, result = (kind, result) if kept is None else ("reduce-scatter", kept)
    start = done = None
    updates: tuple[Instruction, ...] = ()
    if starts(instr):
        start = instr
        done, updates = find_done(instr)
    return Logical(
        site.kind, kind, _form(site), instr, operation, (operation,), groups, shapes,
        None if shapes is None else dtypes(shapes) or _result_dtype(operation),
        operand, result, start, updates, done,
    )  # fmt: skip


def _result_bytes(operation: Instruction) -> int | None:
    if operation.opcode in ("send", "send-start"):
        return 0
    shape = result_shape(operation)
    return None if shape is None else shape.bytes


def _result_dtype(operation: Instruction) -> str | None:
    shape = result_shape(operation)
    return None if shape is None else dtypes((shape,))


def starts(instr: Instruction) -> bool:
    """Whether a done waits for it: a start in any spelling, a send or a recv."""
    return instr.opcode.endswith("-start") or instr.opcode in ("send", "recv")


def _form(site: Site) -> str:
    instr = site.instr
    if instr.base_opcode == "async-start":
        if _on_sparsecore(instr, site.operation):
            return "sparsecore-call"
        return "async-wrapper" if sugar(instr.opcode) is None else "sugar"
    if instr.opcode == "fusion":
        return "fusion"
    return "start-done" if starts(instr) else "sync"


def _on_sparsecore(start: Instruction, operation: Instruction) -> bool:
    thread = (attribute(start, "async_execution_thread") or "").strip('"')
    return "sparsecore" in (thread, operation.computation.execution_thread)


# ---------------------------------------------------------------------------- all-reduce + slice


def _is_fused(operation: Instruction, graph: CallGraph) -> bool:
    return any(site.kind == "fusion" for site in graph.callers(operation.computation))


def _scattered(operation: Instruction, operand: int | None, groups: Groups) -> int | None:
    """Bytes that a fusion keeps of an all-reduce in it, where that makes it a reduce-scatter.

    Everything that the all-reduce gives is cut at the device's own place, and 1/n of it is kept.
    TPU prints a reduce-scatter so (`calls=%all-reduce-scatter`, up to 27 operands). Outside of
    fusions the all-reduce runs, and only its result is cut: that is none.
    """
    if operand is None or not groups.size or groups.size < 2:
        return None
    kept = 0
    for user in _uses(operation):
        if user.opcode != "dynamic-slice" or not _at_own_place(user):
            return None
        shape = shape_of(user)
        kept += (shape.bytes if shape is not None else None) or 0
    return kept if kept * groups.size == operand else None


def _uses(value: Instruction) -> Iterator[Instruction]:
    """What takes a value, behind get-tuple-element, bitcast, reshape and copy."""
    for user in value.users:
        if user.opcode in ("get-tuple-element", "bitcast", "reshape", "copy"):
            yield from _uses(user)
        else:
            yield user


def _at_own_place(dynamic_slice: Instruction) -> bool:
    """Whether the place of a dynamic-slice depends on which device this is."""
    seen: set[int] = set()
    computation = dynamic_slice.computation
    waiting = list(computation.operand_indices(dynamic_slice.index)[1:])
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        if computation.opcode_of(at) in ("partition-id", "replica-id"):
            return True
        waiting.extend(computation.operand_indices(at))
    return False


# ---------------------------------------------------------------------------- chains of fusions


def _chains(sites: Iterable[Site], graph: CallGraph) -> list[list[Site]]:
    """Sites of the same collective together, in the order of execution.

    v5e's async-collective fusion repeats one collective in the fusion that starts it, in those
    that carry it along while they compute, also in loops on the way, and in the one that ends it.
    All have its `chain_id`; the first has flag_start -1.
    """
    chains: list[list[Site]] = []
    by_id: dict[object, list[Site]] = {}
    for site in sites:
        chain = None
        if site.instr.opcode == "fusion" and "chain_id" in site.operation.tail:
            chain = frontend_attributes(site.operation).get("chain_id")
        if chain is None:
            chains.append([site])
        else:
            by_id.setdefault((chain, channel_of(site.operation), site.kind), []).append(site)
    for repeated in by_id.values():
        repeated.sort(key=lambda site: execution_order(graph, site.instr))
        begins = [0, *(at for at, site in enumerate(repeated) if at and _begins(site))]
        chains += (
            repeated[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)
        )
    return chains


def _begins(site: Site) -> bool:
    return configured(site.operation, "async_collective_fusion_config", "flag_start") == "-1"


def _of_chain(chain: list[Site], graph: CallGraph) -> Logical:
    one = _of_site(chain[0], graph)
    return Logical(
        one.kind, one.logical_kind, "async-fusion", one.instr, one.operation,
        tuple(site.operation for site in chain), one.groups, one.shapes, one.dtype, one.operand,
        one.result, chain[0].instr, tuple(site.instr for site in chain[1:-1]), chain[-1].instr,
    )  # fmt: skip


def execution_order(graph: CallGraph, instruction: Instruction) -> tuple[int, ...]:
    """Positions from the entry down to the instruction, by the first caller of several."""
    positions = [instruction.index]
    computation = instruction.computation
    for _ in range(256):  # calls nest less deep; a text may call in a circle
        callers = graph.callers(computation)
        if not callers:
            break
        positions.append(callers[0].caller.index)
        computation = callers[0].caller.computation
    return tuple(reversed(positions))


# ---------------------------------------------------------------------------- windowed loops


def _of_windowed(windowed: Windowed) -> Logical:
    """The collective that a ring of permutes hides, from one device's part of it."""
    operation = windowed.inside[0].operation
    operations = [site.operation for site in (*windowed.peeled, *windowed.inside)]
    groups = groups_of(operation)
    shards = tuple(shard.shape for shard in windowed.shards)
    part = total_bytes(shards) if shards else None
    whole = None if part is None or groups.size is None else part * groups.size
    gather = windowed.logical_kind == "all-gather"
    return Logical(
        "collective-permute", windowed.logical_kind, "windowed-loop", windowed.loop, operation,
        tuple(operations), groups, shards or None, dtypes(shards),
        part if gather else whole, whole if gather else part,
        windowed=windowed,
    )  # fmt: skip


def windowed_wire(windowed: Windowed, trip_count: int | None) -> tuple[int | None, int | None]:
    """Bytes that all permutes of a windowed loop send in one run of it, and at most.

    The two differ where a branch skips permutes; both are None without a trip count.
    """
    inside, outside = _sent(windowed.inside), _sent(windowed.peeled)
    if trip_count is None or inside is None or outside is None:
        return None, None
    total = trip_count * inside + outside
    return (None if windowed.conditional else total), total


def _sent(permutes: Iterable[Site]) -> int | None:
    """Bytes that one device sends in all of these, each run once."""
    operations = [site.operation for site in permutes]
    sizes = [
        wire_bytes("collective-permute", operand_bytes(operation), groups_of(operation))
        for operation in operations
    ]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
