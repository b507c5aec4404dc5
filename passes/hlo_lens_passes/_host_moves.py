"""Moves between device and host as the text writes them, and what lies in host memory.

Memory space 5 is the host's (xla::Layout::kHostMemorySpace). Before XLA assigns it, custom calls
mark what is to be moved: xla/service/memory_annotations.h has their names, and
xla/hlo/transforms/convert_memory_placement_to_internal_annotations.cc what each placement means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis import Value
from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES, attribute, shape_of
from hlo_lens.hlo import Computation, Instruction, Module, Shape, parse_shape
from hlo_lens.hlo.attributes import inside, parse_frontend_attributes
from hlo_lens.hlo.opcodes import sugar
from hlo_lens_passes._calls import attributes_of, target_of
from hlo_lens_passes._saved_residuals import HOST

if TYPE_CHECKING:
    from hlo_lens.analysis import CallGraph

Direction = Literal["to_host", "to_device"]

_PLACEMENTS: Final[Mapping[str, Direction]] = {
    "pinned_host": "to_host", "unpinned_host": "to_host", "device": "to_device",
}  # fmt: skip
"""Not among them: device_sram and pinned_device, which say where on the device."""

_MOVES: Final[Mapping[str, Direction]] = {"MoveToHost": "to_host", "MoveToDevice": "to_device"}

# The operand that each of them moves.
_MOVED: Final[Mapping[str, int]] = {
    "copy": 0, "copy-start": 0, "slice": 0, "dynamic-slice": 0, "dynamic-update-slice": 1,
}  # fmt: skip
_WRAPPING: Final = frozenset(("async", "call", "custom_call", "fusion"))
_MOST: Final = 1024  # chains of callers around a computation


@dataclass(frozen=True, slots=True)
class HostMove:
    """A move between device and host, or a value that lies in host memory.

    instr: what stands for it in the schedule: the start, the fusion, the instruction itself.
    operation: what moves, inside of `via`, the fusions and starts around it from the outermost.
    source: the value that is moved, or that lies there. shape: of what is moved.
    spaces: the memory it is in before and after, None where the text does not say.
    position: which of the arrays of the arguments, or of the results.
    """

    kind: str
    direction: Direction | None
    instr: Instruction
    operation: Instruction
    source: Value
    shape: Shape | None
    via: tuple[Instruction, ...] = ()
    spaces: tuple[int | None, int | None] = (None, None)
    position: int | None = None


# ---------------------------------------------------------------------------- placements


def placements(module: Module) -> Iterator[HostMove]:
    """The custom calls that mark a value to be moved."""
    for computation in module.computations:
        for index, opcode in enumerate(computation.opcodes):
            if opcode != "custom-call":
                continue
            call = Instruction(computation, index)
            direction = _direction(call, target_of(call))
            if direction is not None and call.operands:
                kind = "move" if target_of(call) in _MOVES else "annotation"
                source = Value(call.operands[0])
                yield HostMove(kind, direction, call, call, source, shape_of(call))


def _direction(call: Instruction, target: str | None) -> Direction | None:
    if target == "annotate_device_placement":
        try:
            told = parse_frontend_attributes(attributes_of(call).get("frontend_attributes", "{}"))
        except ValueError:
            return None
        return _PLACEMENTS.get(told.get("_xla_buffer_placement", "").strip('"'))
    return None if target is None else _MOVES.get(target)


# ---------------------------------------------------------------------------- copies


def copies(graph: CallGraph) -> list[HostMove]:
    """What gives a value of one memory in the other: copies, slices, updates in place, started or
    not, by themselves or in a fusion; and what runs asynchronously on the device and does so."""
    if f"S({HOST})" not in graph.module.text:
        return []
    found: list[HostMove] = []
    for computation in graph.module.computations:
        for index, opcode in enumerate(computation.opcodes):
            operation = opcode.removesuffix("-start") if sugar(opcode) else opcode
            if operation not in _MOVED:
                continue
            written = Instruction(computation, index)
            if operation == opcode:
                around = [(*chain, written) for chain in _around(graph, computation)]
                found.extend(filter(None, (_copy(written, chain) for chain in around)))
            elif (callees := written.called) and (copy := _copy(callees[0].root, (written,))):
                found.append(copy)
    started = {move.instr for move in found}
    found.extend(move for move in _wrapped(graph.module) if move.instr not in started)
    return found


def _around(graph: CallGraph, computation: Computation) -> list[tuple[Instruction, ...]]:
    """The chains of fusions and async starts that a computation is part of, outermost first; one
    empty chain where it is part of none. A loop or branch has a schedule of its own."""
    chains: dict[tuple[Instruction, ...], None] = {}
    waiting: list[tuple[Computation, tuple[Instruction, ...]]] = [(computation, ())]
    for at, chain in waiting:  # grows while it is walked
        sites = [site for site in graph.callers(at) if site.kind in _WRAPPING]
        if len(waiting) < _MOST and len(chain) < _MOST:
            waiting.extend((site.caller.computation, (site.caller, *chain)) for site in sites)
        if not sites:
            wrappers = [n for n, one in enumerate(chain) if _is_wrapper(one)]
            chains[chain[wrappers[0] :] if wrappers else ()] = None
    return list(chains)


def _is_wrapper(caller: Instruction) -> bool:
    return caller.opcode == "fusion" or caller.base_opcode == "async-start"


def _copy(operation: Instruction, chain: tuple[Instruction, ...]) -> HostMove | None:
    """The move that an operation is; None where both sides are in one memory. `chain`: what is
    around it, outermost first, and at the end perhaps the operation itself."""
    at = _MOVED.get(operation.opcode)
    operands = operation.operands
    if at is None or at >= len(operands):
        return None
    read, given = shape_of(operands[at]), shape_of(operation)
    if given is not None and operation.opcode == "copy-start":
        given = given.elements[0] if given.elements else None
    if read is None or given is None or _in_host(read) == _in_host(given):
        return None
    via = tuple(one for one in chain if one != operation)
    return HostMove(
        "copy",
        "to_host" if _in_host(given) else "to_device",
        chain[0],
        operation,
        Value(operands[at], (), via),
        read if operation.opcode == "dynamic-update-slice" else given,
        via,
        (read.memory_space, given.memory_space),
    )


def _wrapped(module: Module) -> Iterator[HostMove]:
    """What an async start runs that takes from one memory and gives in the other: no collective,
    and not on the host."""
    for computation in module.computations:
        for index, opcode in enumerate(computation.opcodes):
            if opcode.endswith("-start") and opcode not in _MOVED:
                yield from _runs(Instruction(computation, index))


def _runs(start: Instruction) -> Iterator[HostMove]:
    shape, callees = shape_of(start), start.called
    thread = (attribute(start, "async_execution_thread") or "").strip('"')
    if start.base_opcode != "async-start" or thread == "host" or not callees or shape is None:
        return
    operation = callees[0].root
    if len(shape.elements) < 2 or not COLLECTIVE_OPCODES.isdisjoint(callees[0].opcodes):
        return
    taken = [leaf for leaf in shape.elements[0].leaves() if leaf.is_array and leaf.rank]
    given = [leaf for leaf in shape.elements[1].leaves() if leaf.is_array]
    in_host = any(map(_in_host, taken)), any(map(_in_host, given))
    if not taken or not given or in_host[0] == in_host[1]:
        return
    for leaf in given if in_host[1] else taken:
        if _in_host(leaf):
            spaces = (taken[0].memory_space, HOST) if in_host[1] else (HOST, given[0].memory_space)
            direction: Direction = "to_host" if in_host[1] else "to_device"
            source = Value(operation, (), (start,))
            yield HostMove("copy", direction, start, operation, source, leaf, (start,), spaces)


def _in_host(shape: Shape) -> bool:
    return shape.is_array and shape.memory_space == HOST


# ---------------------------------------------------------------------------- what lies there


@dataclass(frozen=True, slots=True)
class EntryArray:
    """An array among the arguments or results of the entry.

    position: which of these. in_host: whether it lies in host memory; None where the text has no
    layout for it.
    """

    value: Value
    shape: Shape
    position: int
    in_host: bool | None

    def lying(self, kind: str) -> HostMove:
        """The row of what lies in host memory."""
        instr, spaces = self.value.instr, (HOST, HOST)
        return HostMove(kind, None, instr, instr, self.value, self.shape, (), spaces, self.position)


def arguments(module: Module) -> list[EntryArray]:
    """The arrays that the entry takes."""
    taken, _ = _entry_layout(module)
    found: list[EntryArray] = []
    parameters = sorted(module.entry.parameters, key=lambda one: one.parameter_number or 0)
    for number, parameter in enumerate(parameters):
        for path, leaf, in_host in _memories(parameter, _part(taken, (number,))):
            found.append(EntryArray(Value(parameter, path), leaf, len(found), in_host))
    return found


def results(module: Module) -> list[EntryArray]:
    """The arrays that the entry returns."""
    root, (_, given) = module.entry.root, _entry_layout(module)
    return [
        EntryArray(Value(root, path), leaf, index, in_host)
        for index, (path, leaf, in_host) in enumerate(_memories(root, given))
    ]


def _memories(
    instr: Instruction, layout: Shape | None
) -> Iterator[tuple[tuple[int, ...], Shape, bool | None]]:
    """(path, shape, whether it is in host memory) of each array of an argument or result. The
    header tells it also before layouts are assigned, where the instruction does not."""
    shape = shape_of(instr)
    for path, leaf in () if shape is None else _leaves(shape):
        both = [one for one in (leaf, _part(layout, path)) if one is not None]
        known = [one for one in both if one.layout is not None or not one.rank]
        yield path, leaf, any(map(_in_host, known)) if known else None


def _entry_layout(module: Module) -> tuple[Shape | None, Shape | None]:
    """The arguments as one tuple and the result, as the header has them."""
    try:
        text = inside(module.header.get("entry_computation_layout", "{}"))
        taken, arrow, given = text.partition("->")
        return (parse_shape(taken), parse_shape(given)) if arrow else (None, None)
    except ValueError:
        return None, None


def _leaves(shape: Shape) -> list[tuple[tuple[int, ...], Shape]]:
    """The arrays of a shape, each with its path."""
    if not shape.is_tuple:
        return [((), shape)] if shape.is_array else []
    return [
        ((index, *path), leaf)
        for index, one in enumerate(shape.elements)
        for path, leaf in _leaves(one)
    ]


def _part(shape: Shape | None, path: tuple[int, ...]) -> Shape | None:
    for index in path:
        elements = () if shape is None else shape.elements
        shape = elements[index] if index < len(elements) else None
    return shape
