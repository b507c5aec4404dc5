"""One instruction or computation, found by name, with all that is known about it."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from hlo_lens.analysis import CallSite, ModuleAnalysis
from hlo_lens.files import InputError
from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.attributes import whole_number
from hlo_lens.hlo.frames import Frame
from hlo_lens.program import Program

MOST_PATHS = 8
_MOST_STEPS = 100_000  # where a text calls in circles, most ways lead nowhere

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reference:
    """Another instruction, as far as a line about it goes. `bytes` is None where not known."""

    id: int | None  # None for an implied instruction, which the text does not write
    name: str
    computation: str
    opcode: str
    shape: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Runs:
    """How often something runs in one execution of the module; None is not known."""

    executions: int | None
    executions_min: int | None
    executions_max: int | None
    trips_kind: str | None


@dataclass(frozen=True, slots=True)
class Trips:
    """How often a while runs its body each time it is executed; None is not known."""

    count: int | None
    kind: str  # annotated, inferred, bounded, unknown


@dataclass(frozen=True, slots=True)
class Reach:
    """How a computation is reached from ENTRY: `paths` are calls, outermost first.

    A step is (instruction, what it calls the next computation as). `more` counts the paths left
    out; no path at all is dead code, or ENTRY itself where `is_entry`.
    """

    entry: str
    is_entry: bool
    paths: tuple[tuple[tuple[str, str], ...], ...]
    more: int


@dataclass(frozen=True, slots=True)
class InstructionFacts:
    """What `hlolens show` says about an instruction."""

    kind: str  # "instruction"
    module: str
    stage: str
    id: int
    name: str
    computation: str
    opcode: str
    is_root: bool
    shape: str
    bytes: int | None
    text: str
    text_line: int
    operands: tuple[Reference, ...]
    users: tuple[Reference, ...]
    control_predecessors: tuple[Reference, ...]
    called: dict[str, tuple[str, ...]]
    reach: Reach
    runs: Runs
    loop: str | None
    loop_depth: int | None
    trips: Trips | None
    op_name: str | None
    full_op_name: str | None
    phase: str | None
    phase_from: str | None
    frames: tuple[Frame, ...]
    backend_config: Any  # the JSON or MLIR value, else its text
    config_text: str | None  # as it stands in `text`
    problems: tuple[str, ...]  # attributes that cannot be read, and why


@dataclass(frozen=True, slots=True)
class ComputationFacts:
    """What `hlolens show` says about a computation."""

    kind: str  # "computation"
    module: str
    stage: str
    name: str
    is_entry: bool
    execution_thread: str | None
    text_line: int
    instructions: int
    parameters: tuple[Reference, ...]
    root: Reference
    opcodes: dict[str, int]
    reach: Reach
    runs: Runs
    loop: str | None
    loop_depth: int | None


def find(module: Module, wanted: str) -> tuple[list[Instruction], list[Computation]]:
    """What `wanted` means: `name`, `%name`, `computation/name`, `#id`, or a computation's name.

    Where no name is that, a parameter of the entry by its op_name, which is jax's name of the
    argument: `state['params']['head']`.
    """
    found, named = _by_name(module, wanted.strip())
    if not found and not named:
        found = [one for one in module.entry.parameters if one.op_name == wanted.strip()]
    return found, named


def _by_name(module: Module, wanted: str) -> tuple[list[Instruction], list[Computation]]:
    if wanted.startswith("#") and (id := whole_number(wanted[1:])) is not None:
        return ([module.instruction(id)] if id < module.instruction_count else []), []
    place, slash, name = wanted.rpartition("/")
    place, name = place.lstrip("%"), name.lstrip("%")
    if slash:
        computation = module.computations.get(place)
        instruction = computation.instructions.get(name) if computation else None
        return ([instruction] if instruction else []), []
    named = module.computations.get(name)
    instructions = (each.instructions.get(name) for each in module.computations)
    return [each for each in instructions if each is not None], [named] if named else []


def suggestions(module: Module, wanted: str, most: int = 5) -> list[str]:
    """Names that `wanted` may have meant: those that contain it, else those that look alike."""
    place, _, name = wanted.strip().rpartition("/")
    place, name = place.lstrip("%"), name.lstrip("%#")
    within = module.computations.get(place) if place else None
    prefix = f"{place}/" if within else ""
    names: dict[str, None] = {}
    for computation in [within] if within else module.computations:
        names |= dict.fromkeys(computation.names)
    if not within:
        names |= dict.fromkeys(computation.name for computation in module.computations)
    close = [each for each in names if name and name in each][:most]
    if not close:
        close = difflib.get_close_matches(name, list(names), n=most)
    return [prefix + each for each in close]


def instruction_facts(program: Program, instruction: Instruction) -> InstructionFacts:
    """All that is known about `instruction`, which must be written in a module of `program`.

    Raises `InputError` where its text is so broken that what it uses and calls cannot be told.
    """
    try:
        return _instruction_facts(program, instruction)
    except ValueError as problem:  # of an attribute, which is read when it is asked for
        place = f"{instruction.computation.module.filename}:{instruction.text_line}"
        raise InputError(place, f"{instruction.name} cannot be read: {problem}") from problem


def _instruction_facts(program: Program, instruction: Instruction) -> InstructionFacts:
    module = instruction.computation.module
    analysis = program.analysis(module)
    problems: list[str] = []

    def read(what: str, get: Callable[[], T]) -> T | None:
        try:
            return get()
        except ValueError as problem:
            problems.append(f"{what}: {problem}")
            return None

    shape = read("shape", lambda: instruction.shape)
    config = read("backend_config", lambda: instruction.backend_config)
    metadata = read("metadata", lambda: instruction.metadata)
    frames: tuple[Frame, ...] = ()
    if metadata is not None and metadata.stack_frame_id:
        frame = metadata.stack_frame_id
        frames = read("stack frames", lambda: module.frames.stack(frame)) or ()
    if metadata is not None and not frames and metadata.source_file:
        line, column = metadata.source_line or 0, metadata.source_column or 0
        frames = (Frame(metadata.source_file, "", line, column),)
    computation = instruction.computation
    phase = analysis.phase(instruction)
    loop = analysis.loop(computation)
    return InstructionFacts(
        kind="instruction",
        module=module.name,
        stage=program.stages[program.index(module)],
        id=instruction.id,
        name=instruction.name,
        computation=computation.name,
        opcode=instruction.opcode,
        is_root=instruction.is_root,
        shape=instruction.shape_text,
        bytes=shape.bytes if shape is not None else None,
        text=instruction.text,
        text_line=instruction.text_line,
        operands=tuple(map(reference, instruction.operands)),
        users=tuple(map(reference, instruction.users)),
        control_predecessors=tuple(map(reference, instruction.control_predecessors)),
        called={
            attribute: tuple(each.name for each in called)
            for attribute, called in instruction.called_by.items()
        },
        reach=reach(analysis, computation),
        runs=_runs(analysis, computation),
        loop=loop.instr.name if loop is not None else None,
        loop_depth=analysis.loop_depth(computation),
        trips=_trips(analysis, instruction),
        op_name=instruction.op_name,
        full_op_name=analysis.full_op_name(instruction),
        phase=phase.phase,
        phase_from=phase.phase_from,
        frames=frames,
        backend_config=None if config is None else config.value or config.raw,
        config_text=instruction.attribute("backend_config"),
        problems=tuple(problems),
    )


def computation_facts(program: Program, computation: Computation) -> ComputationFacts:
    """All that is known about `computation`, of a module of `program`."""
    module = computation.module
    analysis = program.analysis(module)
    loop = analysis.loop(computation)
    return ComputationFacts(
        kind="computation",
        module=module.name,
        stage=program.stages[program.index(module)],
        name=computation.name,
        is_entry=computation.is_entry,
        execution_thread=computation.execution_thread,
        text_line=computation.text_line,
        instructions=len(computation.instructions),
        parameters=tuple(map(reference, computation.parameters)),
        root=reference(computation.root),
        opcodes=dict(Counter(computation.opcodes).most_common()),
        reach=reach(analysis, computation),
        runs=_runs(analysis, computation),
        loop=loop.instr.name if loop is not None else None,
        loop_depth=analysis.loop_depth(computation),
    )


def reference(instruction: Instruction) -> Reference:
    try:
        size = instruction.shape.bytes
    except ValueError:
        size = None
    return Reference(
        id=None if instruction.implied else instruction.id,
        name=instruction.name,
        computation=instruction.computation.name,
        opcode=instruction.opcode,
        shape=instruction.shape_text,
        bytes=size,
    )


def reach(analysis: ModuleAnalysis, computation: Computation) -> Reach:
    """The call paths from ENTRY to `computation`, at most `MOST_PATHS` of them."""
    entry = computation.module.entry
    if computation.is_entry:
        return Reach(entry.name, True, (), 0)
    reached = _reached(analysis, entry)
    paths = tuple(islice(_paths(analysis, computation, entry, reached), MOST_PATHS))
    total = _count_paths(analysis, computation, entry)
    return Reach(entry.name, False, paths, max(0, total - len(paths)))


def _reached(analysis: ModuleAnalysis, entry: Computation) -> set[int]:
    """The positions of the computations that ENTRY calls, directly or not, and of itself."""
    callees: dict[int, list[int]] = {}
    for site in analysis.call_sites:
        callees.setdefault(site.caller.computation.index, []).append(site.callee.index)
    reached = {entry.index}
    waiting = [entry.index]
    while waiting:
        new = set(callees.get(waiting.pop(), ())) - reached
        reached |= new
        waiting += new
    return reached


def _count_paths(analysis: ModuleAnalysis, computation: Computation, entry: Computation) -> int:
    """How many call paths lead from ENTRY to a computation; 0 where text calls in circles."""
    counts = [0] * len(computation.module.computations)
    for each in analysis.graph.order:
        callers = analysis.graph.callers(each)
        count = (each is entry) + sum(counts[site.caller.computation.index] for site in callers)
        counts[each.index] = min(count, sys.maxsize)
    return counts[computation.index]


def _paths(
    analysis: ModuleAnalysis, computation: Computation, entry: Computation, reached: set[int]
) -> Iterator[tuple[tuple[str, str], ...]]:
    """The call paths, found from the callee up; of a text that calls in circles, not all."""
    graph = analysis.graph
    path: list[CallSite] = []
    waiting = [iter(graph.callers(computation))]
    on_path = {computation.index}
    steps = 0
    while waiting and steps < _MOST_STEPS:
        steps += 1
        site = next(waiting[-1], None)
        if site is None:
            waiting.pop()
            if path:
                on_path.discard(path.pop().caller.computation.index)
            continue
        place = site.caller.computation
        if place.index not in reached or place.index in on_path:
            continue
        if place is entry:
            up = (site, *reversed(path))
            yield tuple((step.caller.name, step.kind) for step in up)
            continue
        path.append(site)
        on_path.add(place.index)
        waiting.append(iter(graph.callers(place)))


def _runs(analysis: ModuleAnalysis, computation: Computation) -> Runs:
    found = analysis.executions(computation)
    return Runs(found.exact, found.minimum, found.maximum, found.trips_kind)


def _trips(analysis: ModuleAnalysis, instruction: Instruction) -> Trips | None:
    if instruction.opcode != "while":
        return None
    loops = (loop for loop in analysis.loops if loop.instr == instruction)
    return next((Trips(loop.trip_count, loop.trips_kind) for loop in loops), None)


def names_of(instructions: Sequence[Instruction]) -> list[str]:
    """`computation/name` of each, which `find` takes back."""
    return [f"{each.computation.name}/{each.name}" for each in instructions]
