"""Fills the residuals table: what the pass of `hlo_lens_passes.residuals` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis import MOVES, Value, consumers, origin, stacked, trace
from hlo_lens.analysis.calls import written_instruction
from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.trips import Inference
from hlo_lens.facts import Member, PassResult, common
from hlo_lens.hlo import Computation, Instruction, Shape
from hlo_lens_passes import _saved_residuals as side
from hlo_lens_passes._calls import attributes_of, target_of
from hlo_lens_passes.residuals import SIDE_FILE

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis, Stacked
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_KEPT: Final = ("stacked", "barrier", "direct")

_BACKWARD: Final = ("bwd", "remat")
# How what is called has instructions of the step, and not what is applied to elements.
_RUN_ON: Final = ("body", "branch", "call")
_BARRIERS: Final = ("opt-barrier", "optimization-barrier")
# What gives the same value again and again at no cost: nobody keeps it.
_MADE: Final = frozenset(("broadcast", "constant", "iota", "parameter", "partition-id"))
# Before optimization a computation is shared by dozens of calls, and a slice may be one of those.
_MOST_WAYS: Final = 256
_NO_VALUE: Final = frozenset(
    ("add-dependency", "after-all", "call", "conditional", "get-tuple-element", "tuple")
)

_Place = tuple[Instruction, tuple[int, ...]]


@dataclass(slots=True)
class _Residual:
    """A row in the making. roles: its members, as (role, instruction)."""

    kind: str
    instr: Instruction
    producer: Instruction
    shape: Shape | None
    evidence: str
    tuple_index: int | None = None
    bytes_per_iteration: int | None = None
    offloaded: bool = False
    forward: Instruction | None = None
    backward: Instruction | None = None
    input: Instruction | None = None
    roles: list[tuple[str, Instruction]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Read:
    """A dynamic-slice of a stack in a backward loop. by_name: whether an op_name says backward."""

    slice: Instruction
    loop: Instruction
    by_name: bool


@dataclass(slots=True)
class _Stack:
    """Element `one.index` of `loop`, what writes it (`update`, as `trace` finds it in the body),
    the slices that backward loops take of it, and whether anything uses it."""

    loop: Loop
    one: Stacked
    update: Value
    reads: list[_Read] = field(default_factory=list)
    used: bool = False

    def gives(self, value: Value) -> bool:
        """Whether a traced value is this stack: the same write on the same way into the loop."""
        way = (self.loop.instr, *self.update.via)
        return value.instr == self.update.instr and value.via[-len(way) :] == way


def run(program: Program, facts: Facts) -> PassResult:
    """One row a residual, with its members, and the findings."""
    saved = side.read(program.side_files.get(SIDE_FILE))
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings = list(side.policies(saved))
    for position, module in enumerate(program.modules):
        found = list(_Search(program.analysis(module)).residuals())
        kept = [
            (len(rows) + number, one.shape, one.offloaded)
            for number, one in enumerate(found)
            if one.shape is not None and one.kind in _KEPT
        ]
        names = side.names(saved, (shape for _, shape, _ in kept))
        if module is program.main:
            findings.extend(side.offloads(saved, program, kept))
        for one in found:
            members.extend(_members(len(rows), position, one))
            about = common(program, position, written_instruction(one.instr))
            if one.forward is not None:
                # What writes the slices may be called by loops of several phases.
                phase = program.analysis(module).phase(one.forward)
                about |= {"phase": phase.phase, "phase_from": phase.phase_from}
            rows.append(about | _row(one, names))
    return PassResult({"residuals": rows}, members, findings)


class _Search:
    """The residuals of one module."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.inferences: dict[Instruction, Inference] = {}
        self.hosted, self.barriers = self._marked()
        self.stacks: dict[Instruction, set[int]] = {}
        self.by_body: dict[Computation, list[Loop]] = {}
        for loop in analysis.loops:
            if loop.body is not None:
                self.by_body.setdefault(loop.body, []).append(loop)

    def residuals(self) -> Iterator[_Residual]:
        yield from self._stacked()
        seen: set[_Place] = set()
        yield from self._behind_barriers(seen)
        yield from self._direct(seen)

    def _marked(self) -> tuple[set[_Place], list[Instruction]]:
        """What computes each value that is moved to the host, and the barriers."""
        moved: list[Value] = []
        barriers: list[Instruction] = []
        for computation in self.analysis.module.computations:
            for index, opcode in enumerate(computation.opcodes):
                if opcode in ("copy", "copy-start", "custom-call"):
                    call = Instruction(computation, index)
                    path = (0,) if opcode == "copy-start" else ()
                    if _moves_to_host(call, path):
                        moved.append(Value(call, path))
                elif opcode in _BARRIERS:
                    barriers.append(Instruction(computation, index))
        return set(_keys(*(trace(self.graph, value) for value in moved))), barriers

    # -- what loops stack -------------------------------------------------------------------------

    def _stacked(self) -> Iterator[_Residual]:
        found = [
            (_Stack(loop, one, trace(self.graph, Value(loop.body.root, (one.index,)))))
            for loop in self.analysis.loops
            if loop.body is not None
            for one in stacked(self.graph, loop)
        ]
        backward: set[Instruction] = set()
        for stack in found:
            self.stacks.setdefault(stack.loop.instr, set()).add(stack.one.index)
            users = consumers(self.graph, stack.loop.instr, (stack.one.index,))
            stack.used = bool(users)
            for user in users:
                if user.opcode == "dynamic-slice":
                    stack.reads.extend(self._reads(stack, user))
            backward.update(read.loop for read in stack.reads)
        returned = self._returned() if found else []
        for stack in found:
            phase = self.analysis.phase(stack.loop.instr).phase
            if phase == "bwd" or (phase is None and stack.loop.instr in backward):
                continue  # a gradient
            if not stack.reads and (phase == "remat" or origin(stack.loop).compiler_made):
                continue  # an array that XLA fills bit by bit
            stack.used = stack.used or any(map(stack.gives, returned))
            yield self._stack(stack)

    def _stack(self, stack: _Stack) -> _Residual:
        loop, one, update, reads = stack.loop, stack.one, stack.update, stack.reads
        written = trace(self.graph, Value(update.instr.operands[1], (), update.via))
        source = self._copied(loop, one, update, written)
        shape = _part(shape_of(loop.instr), (one.index,))
        name = update.instr.name
        if source is not None:
            kind = "copy_of_input"
            slice_name = written.instr.name
            evidence = f"{name} writes back the slice that {slice_name} takes of {source.name}"
        elif reads:
            kind = "stacked"
            evidence = (
                f"{name} writes a slice an iteration of {loop.instr.name}; {reads[0].slice.name}"
                f" in {reads[0].loop.name} takes it"
            )
            if not reads[0].by_name:
                evidence += "; no op_name says backward: it takes them in the opposite order"
        elif stack.used:
            kind, evidence = "ys", f"{name} stacks it; used, and sliced by no backward loop"
        else:
            kind, evidence = "unread", f"{name} stacks it; nothing computes with it or returns it"
        return _Residual(
            kind,
            update.instr,
            written.instr,
            shape,
            evidence,
            one.index,
            one.bytes_per_iteration,
            _in_host(shape)
            or _in_host(shape_of(update.instr))
            or not self.hosted.isdisjoint(_keys(written, update)),
            loop.instr,
            reads[0].loop if reads else None,
            source,
            [
                ("producer", written.instr),
                ("while", loop.instr),
                ("write", update.instr),
                *(("read", read.slice) for read in reads),
                *(("backward", read.loop) for read in reads),
            ],
        )

    def _reads(self, stack: _Stack, cut: Instruction) -> Iterator[_Read]:
        """The backward loops in which this slice takes what `stack` wrote, as it wrote it."""
        if not cut.operands:
            return
        for body, via in self._ways_in(cut.computation):
            value = trace(self.graph, Value(cut.operands[0], (), via))
            for reader in self.by_body.get(body, ()) if stack.gives(value) else ():
                step = None if reader is stack.loop else self._step(reader, stack, cut, via)
                if step is None:
                    continue
                phase = self.analysis.phase(reader.instr).phase
                if phase in _BACKWARD or (phase is None and step * stack.one.step < 0):
                    yield _Read(cut, reader.instr, phase is not None)

    def _ways_in(
        self, computation: Computation
    ) -> Iterator[tuple[Computation, tuple[Instruction, ...]]]:
        """Each way from the body of a loop into a computation, as the calls on it."""
        ways: list[tuple[Computation, tuple[Instruction, ...]]] = [(computation, ())]
        for at, via in ways:  # grows while it is walked
            if at in self.by_body:
                yield at, via
            elif len(ways) < _MOST_WAYS and len(via) < _MOST_WAYS:
                ways.extend(
                    (site.caller.computation, (site.caller, *via))
                    for site in self.graph.callers(at)
                )

    def _step(
        self, reader: Loop, stack: _Stack, cut: Instruction, via: tuple[Instruction, ...]
    ) -> int | None:
        """What the index of a slice moves by, where it cuts the buffer as the write does."""
        one = stack.one
        whole, part = shape_of(cut.operands[0]), shape_of(cut)
        kept = shape_of(stack.update.instr.operands[0])
        if whole is None or part is None or kept is None:
            return None
        starts = cut.operands[1:]
        if not len(whole.dimensions) == len(part.dimensions) == len(starts):
            return None
        count = kept.dimensions[one.dimension]
        sizes = list(zip(whole.dimensions, part.dimensions, strict=True))
        narrower = [d for d, (size, cut_size) in enumerate(sizes) if size != cut_size]
        candidates = narrower or [d for d, (size, _) in enumerate(sizes) if size == 1]
        if len(narrower) > 1:
            return None
        for dimension in candidates:
            if sizes[dimension][0] != count:
                continue
            moves = self._inference(reader).progression(Value(starts[dimension], (), via))
            if moves is not None and abs(moves.step) == abs(one.step):
                return moves.step
        return None

    def _copied(
        self, loop: Loop, one: Stacked, update: Value, written: Value
    ) -> Instruction | None:
        """The array from outside the loop of which each iteration stacks its own slice again."""
        cut = written.instr
        if cut.opcode != "dynamic-slice" or len(cut.operands) != len(update.instr.operands) - 1:
            return None
        inference = self._inference(loop)
        at = inference.progression(Value(cut.operands[1 + one.dimension], (), written.via))
        to = inference.progression(Value(update.instr.operands[2 + one.dimension], (), update.via))
        if at is None or at != to:
            return None
        whole, buffer = shape_of(cut.operands[0]), shape_of(update.instr)
        if whole is None or buffer is None or whole.dimensions != buffer.dimensions:
            return None
        source = trace(self.graph, Value(cut.operands[0], (), written.via))
        place = (source.via[0] if source.via else source.instr).computation
        around = self.analysis.loop(place)
        while around is not None:
            if around is loop:
                return None
            around = around.parent
        return source.instr

    def _returned(self) -> list[Value]:
        """What computes each element of the result of the module."""
        entry = self.analysis.module.entry
        shape = None if entry is None else shape_of(entry.root)
        if entry is None or shape is None:
            return []
        return [trace(self.graph, Value(entry.root, path)) for path in _leaves(shape)]

    def _inference(self, loop: Loop) -> Inference:
        known = self.inferences.get(loop.instr)
        if known is None:
            known = Inference(self.graph, loop.instr, loop.trip_count)
            self.inferences[loop.instr] = known
        return known

    # -- what goes to the backward outside of loops -----------------------------------------------

    def _behind_barriers(self, seen: set[_Place]) -> Iterator[_Residual]:
        for barrier in self.barriers:
            shape = shape_of(barrier)
            if shape is None:
                continue
            for path in _leaves(shape):
                value = self._kept(Value(barrier, path))
                if value is None or (value.instr, value.path) in seen:
                    continue
                users = self._backward_users(barrier, path)
                if not users:
                    continue
                seen.add((value.instr, value.path))
                yield _Residual(
                    "barrier",
                    value.instr,
                    value.instr,
                    _part(shape, path),
                    f"{value.instr.name} of the forward goes through {barrier.name} to"
                    f" {users[0].name}",
                    path[0] if path else None,
                    offloaded=self._lies_in_host(value),
                    roles=[("producer", value.instr), ("barrier", barrier)],
                )

    def _direct(self, seen: set[_Place]) -> Iterator[_Residual]:
        for computation in self.analysis.module.computations:
            if not is_of_step(self.analysis, computation) or any(
                site.kind not in _RUN_ON for site in self.graph.callers(computation)
            ):
                continue
            phases = self.analysis.phases(computation)
            for index, phase in enumerate(phases):
                opcode = computation.opcodes[index]
                if phase.phase != "fwd" or opcode in _NO_VALUE or opcode in _MADE:
                    continue
                if opcode in MOVES or opcode.endswith(("-start", "-update", "-done")):
                    continue
                instr = Instruction(computation, index)
                shape = shape_of(instr)
                for path in () if shape is None else _leaves(shape):
                    yield from self._if_direct(Value(instr, path), _part(shape, path), seen)

    def _if_direct(
        self,
        value: Value,
        shape: Shape | None,
        seen: set[_Place],
    ) -> Iterator[_Residual]:
        instr, path = value.instr, value.path
        if path and path[0] in self.stacks.get(instr, ()):
            return
        users = self._backward_users(instr, path)
        kept = self._kept(value) if users else None
        if kept is None or (kept.instr, kept.path) in seen:
            return
        seen.add((kept.instr, kept.path))
        yield _Residual(
            "direct",
            instr,
            instr,
            shape,
            f"{instr.name} is forward, {users[0].name} that takes it is backward",
            path[0] if path else None,
            offloaded=_in_host(shape) or self._lies_in_host(kept),
            roles=[("producer", instr), *(("user", user) for user in users)],
        )

    def _backward_users(self, instr: Instruction, path: tuple[int, ...]) -> list[Instruction]:
        users = consumers(self.graph, instr, path, enter=False)
        return [user for user in users if self.analysis.phase(user).phase in _BACKWARD]

    def _kept(self, value: Value) -> Value | None:
        """What computes a value in the forward; None for inputs, parts of them and constants."""
        found = trace(self.graph, value, into_loops=False)
        source = trace(self.graph, found, moves=_PARTS, into_loops=False)
        if found.instr.opcode in _MADE or source.instr.opcode in _MADE:
            return None
        outermost = found.via[0] if found.via else found.instr
        return found if self.analysis.phase(outermost).phase == "fwd" else None

    def _lies_in_host(self, value: Value) -> bool:
        place = value.instr, value.path
        return place in self.hosted or _in_host(_part(shape_of(value.instr), value.path))


def is_of_step(analysis: ModuleAnalysis, computation: Computation) -> bool:
    """Whether a computation stands outside of loops, or in such that hold both the forward and the
    backward, as the one over microbatches does: then it keeps values for itself."""
    if analysis.loop_depth(computation) is None:
        return False
    loop = analysis.loop(computation)
    while loop is not None:
        if analysis.phase(loop.instr).phase != "other":
            return False
        loop = loop.parent
    return True


_PARTS: Final = MOVES | {"slice", "dynamic-slice", "transpose", "broadcast"}


def _keys(*values: Value) -> Iterator[_Place]:
    for value in values:
        yield value.instr, value.path


def _leaves(shape: Shape) -> list[tuple[int, ...]]:
    """The path of each array in a shape."""
    if not shape.is_tuple:
        return [()] if shape.is_array else []
    return [(index, *path) for index, one in enumerate(shape.elements) for path in _leaves(one)]


def _part(shape: Shape | None, path: tuple[int, ...]) -> Shape | None:
    for index in path:
        elements = () if shape is None else shape.elements
        shape = elements[index] if index < len(elements) else None
    return shape


def _in_host(shape: Shape | None) -> bool:
    return shape is not None and not shape.is_tuple and shape.memory_space == side.HOST


def _moves_to_host(call: Instruction, path: tuple[int, ...]) -> bool:
    if call.opcode != "custom-call":
        return f"S({side.HOST})" in call.shape_text and _in_host(_part(shape_of(call), path))
    target = target_of(call)
    if target == "annotate_device_placement":
        return "host" in attributes_of(call).get("frontend_attributes", "")
    return target == "MoveToHost"


def _row(one: _Residual, names: Mapping[side.Key, str]) -> dict[str, object]:
    shape = one.shape
    named = shape is not None and one.kind in _KEPT
    return {
        "kind": one.kind,
        "forward_loop": _id(one.forward),
        "tuple_index": one.tuple_index,
        "shape": None if shape is None else shape.without_layout,
        "bytes": None if shape is None else shape.bytes,
        "bytes_per_iteration": one.bytes_per_iteration,
        "saved_name": names.get((shape.dtype, shape.dimensions)) if named and shape else None,
        "offloaded": one.offloaded,
        "producer": _id(one.producer),
        "input": _id(one.input),
        "backward_loop": _id(one.backward),
        "evidence": one.evidence,
    }


def _id(instr: Instruction | None) -> int | None:
    return None if instr is None else written_instruction(instr).id


def _members(row: int, module: int, one: _Residual) -> Iterator[Member]:
    for role, instr in dict.fromkeys(
        (role, written_instruction(instr)) for role, instr in one.roles
    ):
        yield Member("residuals", row, role, module, instr.id)
