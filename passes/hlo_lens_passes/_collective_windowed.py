"""Windowed einsum: loops that hide a gather or a scatter in a ring of permutes and partial dots.

XLA's SPMD partitioner makes them (xla/service/spmd/dot_handler.cc, windowed dot general): each
iteration multiplies with the shard at hand while a permute brings the next one (all-gather), or
adds a partial product to an accumulator that travels round the ring (reduce-scatter).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.collectives import Site, groups_of, moved_operands, ring_like, shape_of
from hlo_lens.analysis.dataflow import JOINED, Value, called, consumers, trace
from hlo_lens.analysis.schedule import find_done
from hlo_lens.hlo import Computation, Instruction, Shape

_MATMULS: Final = frozenset(("dot", "convolution", "ragged-dot", "scaled-dot", "custom-call"))
_PERMUTES: Final = frozenset(("collective-permute", "collective-permute-start"))
_NAMES: Final = {
    "windowed_dot_general_body_ag": "all-gather",
    "windowed_dot_general_body_rs": "reduce-scatter",
}


@dataclass(frozen=True, slots=True)
class Shard:
    """One device's part of what a loop gathers or scatters: its shape, what a gather starts with,
    and the carry elements in which it is gathered or scattered."""

    shape: Shape
    source: Value | None = None
    elements: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Windowed:
    """One hidden collective: the while, the permutes in its body, and those peeled off it.

    `conditional` are those of `inside` that a branch in the body holds. `shards` are the parts of
    one device, one a value: what goes round both ways, or in two accumulators that are added up
    behind the loop, is one. `matmuls` are what takes them in the body; `results` are the carry
    elements that hold what is scattered.
    """

    loop: Instruction
    logical_kind: str
    inside: tuple[Site, ...]
    peeled: tuple[Site, ...]
    conditional: frozenset[Site]
    shards: tuple[Shard, ...]
    matmuls: tuple[Instruction, ...]
    results: tuple[int, ...]


def find_windowed(sites: Iterable[Site], graph: CallGraph) -> list[Windowed]:
    """The windowed loops among the permutes of a module, in text order of the permutes."""
    permutes: dict[Computation, list[Site]] = {}
    for site in sites:
        if site.kind != "collective-permute" or not site.operation.operands:
            continue
        if ring_like(groups_of(site.operation).pairs):
            permutes.setdefault(site.instr.computation, []).append(site)
    by_body: dict[Computation, list[Site]] = {}
    for computation, found in permutes.items():
        body = _loop_body_around(computation, graph)
        if body is not None:
            by_body.setdefault(body, []).extend(found)
    windowed: list[Windowed] = []
    for body, found in by_body.items():
        caller = graph.only_caller(body)
        if caller is not None and caller.caller.opcode == "while" and caller.caller.operands:
            ring = _Ring(caller.caller, body, found, graph)
            outside = permutes.get(caller.caller.computation, [])
            windowed.extend(ring.collectives(outside))
    return windowed


def _loop_body_around(computation: Computation, graph: CallGraph) -> Computation | None:
    """The while body that is this computation, or holds it as a branch."""
    for _ in range(64):  # branches nest a few deep; a text may call in a circle
        site = graph.only_caller(computation)
        if site is None:
            return None
        if site.kind == "body":
            return computation
        if site.kind != "branch":
            return None
        computation = site.caller.computation
    return None


class _Ring:
    """The permutes of one loop body, and what they carry round."""

    def __init__(
        self, loop: Instruction, body: Computation, permutes: list[Site], graph: CallGraph
    ) -> None:
        self.loop = loop
        self.body = body
        self.graph = graph
        self.permutes = {site.instr: site for site in permutes}
        self.by_operation = {site.operation: site for site in permutes} | self.permutes

    def collectives(self, outside: list[Site]) -> Iterator[Windowed]:
        """The hidden collectives, with the permutes of `outside` that were peeled off the loop."""
        gathers = {site for chain in self.passed_on.values() for site in chain}
        rest = [site for site in self.permutes.values() if site not in gathers]
        scatters = {site for site in rest if self._accumulates(site)}
        if gathers and not self._gathered_is_multiplied():
            gathers = set()
        named = self._kind_by_name()
        unclear = set(self.permutes.values()) - gathers - scatters
        if named == "all-gather":
            gathers |= unclear
        elif named == "reduce-scatter":
            scatters |= unclear
        beside = {site.instr: site for site in outside}
        if gathers:
            yield self._windowed("all-gather", gathers, self._peeled_in_front(beside))
        if scatters:
            yield self._windowed("reduce-scatter", scatters, self._peeled_behind(beside))

    def _windowed(self, kind: str, inside: set[Site], peeled: tuple[Site, ...]) -> Windowed:
        ordered = tuple(site for site in self.permutes.values() if site in inside)
        rings = {groups_of(site.operation).pairs for site in ordered}
        rings |= {frozenset((target, source) for source, target in ring) for ring in rings}
        gather = kind == "all-gather"
        shards = self._gathered() if gather else self._scattered(inside)
        return Windowed(
            self.loop,
            kind,
            ordered,
            tuple(site for site in peeled if groups_of(site.operation).pairs in rings),
            frozenset(site for site in ordered if not self._is_direct(site)),
            shards or tuple(map(Shard, (moved_operands(ordered[0].operation) or ())[:1])),
            tuple(Instruction(self.body, at) for at in self.multiplying),
            () if gather else self._products(),
        )

    def _gathered(self) -> tuple[Shard, ...]:
        """What goes round, each value in front of the loop once."""
        shards: dict[object, Shard] = {}
        for element, chain in self.passed_on.items():
            source = trace(self.graph, Value(self.loop.operands[0], (element,)))
            while source.instr.opcode in _PERMUTES and source.instr.operands:
                source = trace(self.graph, Value(source.instr.operands[0]))
            shape = shape_of(chain[-1].operation.operands[0])
            if shape is not None:
                key = source.instr, source.path
                before = shards.get(key, Shard(shape))
                shards[key] = Shard(before.shape, source, (*before.elements, element))
        return tuple(shards.values())

    def _scattered(self, inside: set[Site]) -> tuple[Shard, ...]:
        """The accumulators; those that meet behind the loop are one value."""
        sent = {site.instr.index for site in inside if self._is_direct(site)}
        found: list[tuple[set[Instruction], Shape, list[int]]] = []
        for element, operand in enumerate(self.body.operand_indices(self.body.root.index)):
            shape = shape_of(Instruction(self.body, operand))
            if shape is None or sent.isdisjoint(self._backward((operand,))):
                continue
            takers = self._takers(element)
            meets = next((its for others, _, its in found if takers & others), None)
            if meets is not None:
                meets.append(element)
            elif takers:
                found.append((takers, shape, [element]))
        return tuple(Shard(shape, None, tuple(elements)) for _, shape, elements in found)

    def _takers(self, element: int) -> set[Instruction]:
        """What computes with a carry element behind the loop, also behind what only moves it: a
        peeled permute, and the copy in slices (`slice-start`, ConcatBitcast) of TPU."""
        takers: set[Instruction] = set()
        seen: set[Instruction] = set()
        waiting: list[tuple[Instruction, tuple[int, ...]]] = [(self.loop, (element,))]
        for instr, path in waiting:  # grows while it is walked
            for user in consumers(self.graph, instr, path, enter=False):
                moves = user.opcode in _PERMUTES or user.opcode == "slice-start"
                if not moves and user.custom_call_target != JOINED:
                    takers.add(user)
                elif user not in seen:
                    seen.add(user)
                    waiting.append(((find_done(user)[0] if moves else None) or user, ()))
        return takers

    def _kind_by_name(self) -> str | None:
        return next((kind for name, kind in _NAMES.items() if name in self.body.name), None)

    # -- all-gather: the carry goes round unchanged

    @cached_property
    def passed_on(self) -> Mapping[int, tuple[Site, ...]]:
        """Carry element → the permutes through which alone a carry element becomes it."""
        root = self.body.root
        found: dict[int, tuple[Site, ...]] = {}
        for element in range(len(self.body.operand_indices(root.index))):
            chain: list[Site] = []
            value = trace(self.graph, Value(root, (element,)))
            while (site := self._permute_at(value)) is not None and site not in chain:
                chain.append(site)
                value = trace(self.graph, Value(site.operation.operands[0], (), value.via))
            if chain and value.instr.opcode == "parameter" and value.instr.computation is self.body:
                found[element] = tuple(chain)
        return found

    def _permute_at(self, value: Value) -> Site | None:
        """The permute that gives a value, also where a branch skips it in the last iteration."""
        site = self.by_operation.get(value.instr)
        if site is None and value.instr.opcode == "conditional":
            for branch in value.instr.called:
                inner = trace(self.graph, Value(branch.root, value.path, (*value.via, value.instr)))
                site = site or self.by_operation.get(inner.instr)
        return site

    def _gathered_is_multiplied(self) -> bool:
        """Whether a matmul of the body takes what goes round."""
        starts = [node for element in self.passed_on for node in self.carried.get(element, ())]
        starts += [site.instr.index for site in self.permutes.values() if self._is_direct(site)]
        return self._reach(starts)[1]

    # -- reduce-scatter: what goes round gains a partial product an iteration

    def _accumulates(self, site: Site) -> bool:
        """Whether this permute sends a carry element on, which becomes that plus a matmul.

        The matmul must not use what goes round: a pipeline that multiplies what it passes from
        stage to stage is something else.
        """
        if not self._is_direct(site) or self._reach([site.instr.index])[1]:
            return False
        sent = self._backward(self.body.operand_indices(site.instr.index))
        for element, operand in enumerate(self.body.operand_indices(self.body.root.index)):
            if sent.isdisjoint(self.carried.get(element, ())):
                continue
            before = self._backward((operand,))
            if site.instr.index in before and not self.multiplying.isdisjoint(before):
                return True
        return False

    def _is_direct(self, site: Site) -> bool:
        return site.instr.computation is self.body

    def _products(self) -> tuple[int, ...]:
        """The carry elements that depend on a matmul of the body."""
        return tuple(
            element
            for element, operand in enumerate(self.body.operand_indices(self.body.root.index))
            if not self.multiplying.isdisjoint(self._backward((operand,)))
        )

    # -- dependence between instructions of the body

    def _backward(self, indices: Iterable[int]) -> set[int]:
        """Positions in the body that these positions depend on, themselves included."""
        seen: set[int] = set()
        waiting = list(indices)
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting.extend(self.body.operand_indices(at))
        return seen

    def _reach(self, starts: list[int]) -> tuple[set[int], bool]:
        """Positions that depend on `starts`, through the carry too; whether a matmul takes one."""
        reached: set[int] = set()
        multiplied = False
        waiting = list(starts)
        root = self.body.root.index
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            for user in self.body.user_indices(at):
                operands = self.body.operand_indices(user)
                taken = [n for n, o in enumerate(operands) if self._comes_from(o, at)]
                if user == root:
                    waiting.extend(node for n in taken for node in self.carried.get(n, ()))
                else:
                    multiplied |= self._multiplied_in(user, taken)
                    waiting.append(user)
        return reached, multiplied

    def _comes_from(self, operand: int, node: int) -> bool:
        """Whether an operand is this instruction, or `x#i` of it."""
        while operand != node and operand < 0 and (inner := self.body.operand_indices(operand)):
            operand = inner[0]
        return operand == node

    @cached_property
    def carried(self) -> Mapping[int, tuple[int, ...]]:
        """Carry element → where the body takes it out of its parameter, `param#i` included."""
        found: dict[int, tuple[int, ...]] = {}
        body = self.body
        for index in (*range(len(body.names)), *(~k for k in range(len(body.rows.implied)))):
            if body.opcode_of(index) != "get-tuple-element":
                continue
            operand = body.operand_indices(index)[:1]
            if operand and body.opcode_of(operand[0]) == "parameter":
                element = Instruction(body, index).tuple_index
                if element is not None:
                    found[element] = (*found.get(element, ()), index)
        return found

    @cached_property
    def multiplying(self) -> frozenset[int]:
        """Positions of the instructions of the body that are, or hold, a matmul."""
        found = set()
        for index, opcode in enumerate(self.body.opcodes):
            if opcode in _MATMULS:
                found.add(index)
            elif opcode == "fusion":
                callee = called(Instruction(self.body, index), "calls")
                if callee is not None and _holds_matmul(callee):
                    found.add(index)
        return frozenset(found)

    def _multiplied_in(self, index: int, operands: list[int]) -> bool:
        """Whether an instruction multiplies what it takes at these operand positions."""
        if index not in self.multiplying:
            return False
        if self.body.opcodes[index] != "fusion":
            return True
        callee = called(Instruction(self.body, index), "calls")
        return callee is not None and any(_feeds_matmul(callee, number) for number in operands)

    # -- permutes peeled off the loop

    def _peeled_in_front(self, beside: Mapping[Instruction, Site]) -> tuple[Site, ...]:
        """Permutes whose result a gathered carry element starts with."""
        found: list[Site] = []
        for element in self.passed_on:
            value = trace(self.graph, Value(self.loop.operands[0], (element,)))
            while (site := beside.get(value.instr)) is not None and site not in found:
                found.append(site)
                value = trace(self.graph, Value(site.operation.operands[0]))
        return tuple(found)

    def _peeled_behind(self, beside: Mapping[Instruction, Site]) -> tuple[Site, ...]:
        """Permutes that take an accumulator out of the loop."""
        direct = {site.instr.index for site in self.permutes.values() if self._is_direct(site)}
        found: list[Site] = []
        for element, operand in enumerate(self.body.operand_indices(self.body.root.index)):
            if direct.isdisjoint(self._backward((operand,))):
                continue
            for user in consumers(self.graph, self.loop, (element,), enter=False):
                site = beside.get(user)
                if site is not None and site not in found:
                    found.append(site)
        return tuple(found)


def _holds_matmul(computation: Computation) -> bool:
    return not _MATMULS.isdisjoint(computation.opcodes) or any(
        _holds_matmul(callee)
        for index, opcode in enumerate(computation.opcodes)
        if opcode == "fusion"
        for callee in Instruction(computation, index).called
    )


def _feeds_matmul(computation: Computation, number: int) -> bool:
    """Whether a matmul in a fused computation depends on parameter `number`."""
    reached = {p.index for p in computation.parameters if p.parameter_number == number}
    waiting = list(reached)
    while waiting:
        at = waiting.pop()
        for user in computation.user_indices(at):
            opcode = computation.opcodes[user]
            if opcode in _MATMULS:
                return True
            if opcode == "fusion":
                operands = computation.operand_indices(user)
                for callee in Instruction(computation, user).called:
                    if any(_feeds_matmul(callee, n) for n, o in enumerate(operands) if o == at):
                        return True
            if user not in reached:
                reached.add(user)
                waiting.append(user)
    return False
