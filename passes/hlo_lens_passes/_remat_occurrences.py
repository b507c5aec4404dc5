"""What a module computes in the forward, and what it computes again, place by place.

An occurrence is an instruction in one of the places where its computation is called: before
optimization computations are shared, and one instruction is forward here and labelled there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis import origin
from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES
from hlo_lens.analysis.names import PHASES, Front, rank_of
from hlo_lens.facts.context import source_of
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.opcodes import sugar
from hlo_lens_passes._remat_paths import is_compiler_remat, plain_path, scope_of

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, ModuleAnalysis
    from hlo_lens.analysis.congruence import Context
    from hlo_lens.hlo import Computation

Work = Literal["matmul", "kernel", "collective"]
Kind = Literal["framework", "compiler", "unlabelled"]

BARRIERS: Final = frozenset(("opt-barrier", "optimization-barrier"))
# What only holds, moves or hands on values: it computes nothing that could be computed again.
_PLUMBING: Final = BARRIERS | {
    "add-dependency", "after-all", "bitcast", "call", "conditional", "constant", "copy", "domain",
    "fusion", "get-tuple-element", "parameter", "partition-id", "replica-id", "tuple", "while",
}  # fmt: skip
PRODUCTS: Final = frozenset(("convolution", "dot"))
# What XLA may write in another form where it is replayed, with one more array, say.
MOVERS: Final = frozenset(("gather", "scatter", "sort"))
_PARTS: Final = ("-start", "-update", "-done")
_JOINED: Final = frozenset(("call", "conditional", "while"))

_Names = Callable[[int], str | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """A matmul, kernel or collective, as its table has it. flops: of one run. regather_of: for a
    collective, the earlier one that gathers the same array. row: of a collective, its row, which
    may hold several operations."""

    work: Work
    flops: int | None = None
    regather_of: int | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """An instruction where it is called.

    number: of its value, see `congruence`, in whatever order its elements are; given: in theirs.
    op_name: with those of the callers. unit: what counts as one of it: a windowed einsum is one
    matmul, and so are the copies of one in several fusions; a collective is its row.
    times: how often it runs there in one execution of the entry; None: not known. in_forward:
    whether it stands in a loop of the forward.
    """

    instr: Instruction
    number: int
    given: int
    op_name: str | None
    operation: Operation | None
    unit: object
    times: int | None
    via: tuple[Instruction, ...]
    barrier: Instruction | None
    in_forward: bool

    @property
    def work(self) -> Work | None:
        return None if self.operation is None else self.operation.work

    @property
    def fused(self) -> bool:
        return bool(self.via) and self.via[-1].opcode == "fusion"

    @property
    def source(self) -> str | None:
        return source_of(self.instr)

    @property
    def path(self) -> tuple[str, ...]:
        """Its op_name without what tells phase and checkpoint."""
        return plain_path(self.op_name) if self.op_name else ()

    @property
    def scope(self) -> str | None:
        return scope_of(self.op_name) if self.op_name else None


class Occurrences:
    """The occurrences of a module, callers first.

    labelled: what carries the label of the framework. renamed: what the compiler made again.
    forward: an instruction for each number that the forward computes, or what belongs to no phase;
    what stands in a forward loop is of the forward, whatever its label says. of_forward: the
    matmuls, kernels, collectives and `MOVERS` of the forward. taken: for each number, one that a
    named operation of the forward computes from it.
    """

    def __init__(self, analysis: ModuleAnalysis, operations: Mapping[int, Operation]) -> None:
        """`operations`: the matmuls, kernels and collectives of the module, by instruction id."""
        self.analysis = analysis
        self.operations = operations
        self.congruence = analysis.congruence
        self.numbers = self.congruence.numbers
        self.labelled: list[Occurrence] = []
        self.renamed: list[Occurrence] = []
        self.forward: dict[int, Instruction] = {}
        self.of_forward: list[Occurrence] = []
        self.of_any: list[Occurrence] = []
        self.taken: dict[int, int] = {}
        self._made = {loop.instr for loop in analysis.loops if origin(loop).compiler_made}
        self._made_in: dict[Computation, list[Instruction]] = {}
        for instr in self._made:
            self._made_in.setdefault(instr.computation, []).append(instr)
        self._barred = any(
            not BARRIERS.isdisjoint(one.opcodes) for one in analysis.module.computations
        )
        self._barriers: dict[object, list[Instruction | None]] = {}
        self.any_names = any(
            name is not None
            for computation in analysis.module.computations
            for name in analysis.op_names(computation)
        )
        # What each loop gives that the compiler made of one operation.
        self.results: dict[Instruction, int] = {}
        for context in self.congruence.contexts():
            self._collect(context)

    def loop_of(self, one: Occurrence) -> Loop | None:
        """The loop of the program that a region belongs to: the innermost backward one around it,
        not what the compiler made of one operation; in the forward, the innermost loop."""
        found: Loop | None = None
        for caller in one.via:
            if caller.opcode == "while" and caller not in self._made:
                loop = self.congruence.loops.get(caller)
                if found is None or self.analysis.phase(caller).phase != "remat":
                    found = loop
        return found

    def runs(self, one: Occurrence) -> int | None:
        """How often it runs in one execution of the entry: what the compiler made a loop of, a
        windowed einsum say, once each time the loop runs. None: not known."""
        times = one.times
        for caller in one.via:
            if caller in self._made and times is not None:
                trips = self.congruence.loops[caller].trip_count
                times = times // trips if trips else None
        return times

    @property
    def carried(self) -> set[int]:
        """What the loops of the program hand from iteration to iteration."""
        loops = self.congruence.carried.items()
        return {number for number, loop in loops if loop not in self._made}

    def _collect(self, context: Context) -> None:
        computation = context.evaluation.computation
        phases, names = self._named(context)
        barriers = self._barriers_in(context) if self._barred else None
        compute = _computing(computation)
        values = context.evaluation.values
        place = self._place(context.via)
        for instr in self._made_in.get(computation, ()):
            self.results[instr] = values[instr.index]
        for index in compute:
            number = values[index]
            opcode = computation.opcodes[index]
            if opcode != "transpose":
                number = self.numbers.unviewed(number)
            if not self._makes(number, opcode):
                continue
            instr = Instruction(computation, index)
            operation = self.operations.get(instr.id)
            phase, named = phases[index]
            if place == "fwd" or (place is None and phase not in ("bwd", "remat")):
                self.forward.setdefault(number, instr)
                for result in self.results_of(number):
                    self.forward.setdefault(result, instr)
                if named and phase == "fwd":
                    for operand in self.numbers[number].operands:
                        self.taken.setdefault(operand, number)
                        self.taken.setdefault(self.numbers.unviewed(operand), number)
            again = phase == "remat" and (named or operation is not None)
            if operation is not None and place == "bwd" and names(index) is None:
                # XLA drops the names of some matmuls: what takes them, or their value, tells.
                again = again or (operation.work != "collective" and number in self.forward)
            renamed = is_compiler_remat(computation.name_of(index))
            moves = opcode in MOVERS and phase == "fwd"
            if not again and not renamed and operation is None and not moves:
                continue
            one = Occurrence(
                instr,
                number,
                values[index],
                names(index),
                operation,
                self._unit(context.via, number, operation),
                context.times,
                context.via,
                None if barriers is None else barriers[index],
                place == "fwd",
            )
            if again and not self.numbers.is_integer(number) and not self._is_made(number):
                self.labelled.append(one)
            elif renamed and phase != "remat":
                self.renamed.append(one)
            if operation is not None:
                self.of_any.append(one)
            if phase == "fwd" and (moves or operation is not None):
                self.of_forward.append(one)

    def _place(self, via: tuple[Instruction, ...]) -> str | None:
        """The phase of the loops around a place: fwd, bwd, or None outside of such."""
        for caller in reversed(via):
            if caller.opcode == "while":
                phase = self.analysis.phase(caller).phase
                if phase in ("bwd", "fwd", "remat"):
                    return "fwd" if phase == "fwd" else "bwd"
        return None

    def results_of(self, number: int) -> tuple[int, ...]:
        """The numbers of the arrays that one collective gives."""
        node = self.numbers[number]
        return node.operands if node.kind == "tuple" else (number,)

    def products(self, one: Occurrence) -> int:
        """How many products a matmul is: XLA merges two of one operand, and puts their other
        operands together."""
        operands = [self.numbers.unviewed(n) for n in self.numbers[one.number].operands[:2]]
        joined = [self.numbers[n] for n in operands if self.numbers[n].kind == "concatenate"]
        return len(joined[0].operands) if len(joined) == 1 else 1

    def _makes(self, number: int, opcode: str) -> bool:
        """Whether an opcode computes a value, and does not hand on that of an operand."""
        if opcode == "transpose":
            return self.numbers[number].kind == "view"
        kind = self.numbers[number].kind
        if kind == "tuple" and opcode in COLLECTIVE_OPCODES:
            return True  # of several arrays, each has the number of its own result
        if (opcode in PRODUCTS and kind == "dot") or (opcode, kind) == ("broadcast", "filled"):
            return True
        return kind in (opcode, opcode.removesuffix("-start")) or (
            opcode == "custom-call" and kind.startswith(opcode)
        )

    def _is_made(self, number: int) -> bool:
        """Whether a value is made of constants alone: nobody keeps it, so nobody replays it."""
        kind, operands = self.numbers[number].kind, self.numbers[number].operands
        if kind in ("broadcast", "filled", "pad"):
            return all(self._is_made(operand) for operand in operands)
        return kind in ("constant", "iota", "integer", "series")

    def _unit(
        self, via: tuple[Instruction, ...], number: int, operation: Operation | None
    ) -> object:
        if operation is not None and operation.row is not None:
            return "row", operation.row
        return next((caller for caller in reversed(via) if caller in self._made), number)

    def _named(self, context: Context) -> tuple[list[tuple[str | None, bool]], _Names]:
        """The phase of each instruction, and whether names tell it; its op_name, when asked."""
        computation, analysis = context.evaluation.computation, self.analysis
        host = computation.host
        if host is not None:
            phase, name = analysis.phase(host), analysis.full_op_name(host)
            told = phase.phase, phase.phase_from != "dataflow"
            return [told] * len(computation.opcodes), lambda index: name
        if analysis.front(computation) is not None or computation.is_entry:
            return (
                [(one.phase, one.phase_from != "dataflow") for one in analysis.phases(computation)],
                lambda index: analysis.full_op_name(Instruction(computation, index)),
            )
        front = self._front(context.via)
        full = [name and front.full(name) for name in analysis.op_names(computation)]
        ranks = [rank_of(name or front.path) if name or front.path else 0 for name in full]
        return [(PHASES[rank], True) for rank in ranks], lambda index: full[index]

    def _front(self, via: tuple[Instruction, ...]) -> Front:
        """What these calls put in front of an op_name."""
        front = self.analysis.front(self.analysis.module.entry) or Front()
        for caller in via:
            if caller.opcode in _JOINED or caller.opcode.endswith("-start"):
                front = front.inside(caller)
        return front

    # -- barriers ---------------------------------------------------------------------------------

    def _barriers_in(self, context: Context) -> list[Instruction | None]:
        """The barrier that the operands of each instruction come through, if they do."""
        computation = context.evaluation.computation
        given: Instruction | None = None
        if context.via and context.via[-1].opcode != "while":
            caller = context.via[-1]
            outside = self._barriers.get((context.via[:-1], caller.computation))
            given = outside[caller.index] if outside is not None and caller.index >= 0 else None
        found: list[Instruction | None] = [given] * len(computation.opcodes)
        for index, opcode in enumerate(computation.opcodes):
            if opcode in BARRIERS:
                found[index] = Instruction(computation, index)
            elif opcode != "parameter":
                sources = (_written(computation, one) for one in computation.operand_indices(index))
                through = (found[one] for one in sources if 0 <= one < index)
                found[index] = next((one for one in through if one is not None), given)
        self._barriers[context.via, computation] = found
        return found


def fused_copies(analysis: ModuleAnalysis, wanted: Iterable[Instruction]) -> set[Instruction]:
    """Which of these stand in a fusion and compute what another of them does in the same loops:
    the back end gives each consumer its own."""
    inside: dict[Computation, list[Instruction]] = {}
    for instr in wanted:
        inside.setdefault(instr.computation, []).append(instr)
    if len(inside) < 2:
        return set()
    congruence = analysis.congruence
    first: dict[object, Instruction] = {}
    copies: set[Instruction] = set()
    others: set[Instruction] = set()
    for context in congruence.contexts():
        fused = bool(context.via) and context.via[-1].opcode == "fusion"
        loops = tuple(caller for caller in context.via if caller.opcode == "while")
        for instr in inside.get(context.evaluation.computation, ()):
            number = congruence.numbers.unviewed(context.evaluation.values[instr.index])
            original = first.setdefault((number, loops), instr)
            (copies if fused and original != instr else others).add(instr)
    return copies - others


def _computing(computation: Computation) -> list[int]:
    return [
        index
        for index, opcode in enumerate(computation.opcodes)
        if opcode not in _PLUMBING and (not opcode.endswith(_PARTS) or _starts_collective(opcode))
    ]


def _starts_collective(opcode: str) -> bool:
    """Whether it is the start itself that communicates; sugar has the operation inside."""
    return opcode in COLLECTIVE_OPCODES and sugar(opcode) is None


def _written(computation: Computation, position: int) -> int:
    while position < 0:
        operands = computation.operand_indices(position)
        if not operands:
            break
        position = operands[0]
    return position
