"""Where a module computes a value: in which kernels, in which phase, how often, and how often anew.

A kernel is what runs by itself: a fusion that is in no other, or an instruction outside of fusions.
Two instructions compute the same where `congruence` gives them one number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.hlo import Instruction
from hlo_lens_passes._remat_paths import is_compiler_remat

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.congruence import Context
    from hlo_lens.analysis.values import Number, Numbers
    from hlo_lens.hlo import Computation

_EVERYWHERE: Final = -1

Place = tuple[tuple[Instruction, ...], Instruction]
"""A kernel where it is called: the calls around it, and itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Occurrence:
    """An instruction where it is called.

    number: of its value, in whatever order its elements are. place: of its kernel. phase: of the
    kernel, as a fusion runs where it stands, whatever its parts were made for. branch: the branches
    of conditionals around it. times: how often it runs in one execution of the entry, and anew:
    how many different values these are; None: not known. bytes: of the value.
    """

    instr: Instruction
    number: int
    place: Place
    phase: str | None
    branch: tuple[object, ...]
    times: int | None
    anew: int | None
    bytes: int | None

    @property
    def kernel(self) -> Instruction:
        return self.place[1]


class Places:
    """The occurrences of a module."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self.numbers: Numbers = analysis.congruence.numbers
        self.contexts = list(analysis.congruence.contexts())
        self._levels = Levels(analysis, self.contexts)
        self._at: dict[Computation, dict[str, list[int]]] = {}

    def find(
        self, opcodes: Collection[str], wanted: Callable[[int], bool] = lambda number: True
    ) -> dict[int, list[Occurrence]]:
        """By number, the occurrences of instructions with these opcodes, in the order of calls."""
        found: dict[int, list[Occurrence]] = {}
        for context in self.contexts:
            values = context.evaluation.values
            for index in self._indices(context.evaluation.computation, opcodes):
                number = self.numbers.unviewed(values[index])
                if wanted(number):
                    found.setdefault(number, []).append(self._occurrence(context, index, number))
        return found

    def _indices(self, computation: Computation, opcodes: Collection[str]) -> list[int]:
        """Where a computation has these opcodes; each computation is read once."""
        at = self._at.get(computation)
        if at is None:
            at = self._at[computation] = {}
            for index, opcode in enumerate(computation.opcodes):
                if opcode in OPCODES:
                    at.setdefault(opcode, []).append(index)
        found = [at[opcode] for opcode in opcodes if opcode in at] if at else []
        return found[0] if len(found) == 1 else sorted(index for each in found for index in each)

    def _occurrence(self, context: Context, index: int, number: int) -> Occurrence:
        instr = Instruction(context.evaluation.computation, index)
        place = _kernel(context.via, instr)
        phase = self.analysis.phase(place[1]).phase or self.analysis.phase(instr).phase
        branches = [
            (caller, inside)
            for caller, inside in zip(context.via, _inside(context), strict=False)
            if caller.opcode == "conditional"
        ]
        anew = self._levels.anew(context.via, number)
        return Occurrence(
            instr, number, place, phase, tuple(branches), context.times, anew, bytes_of(instr)
        )


OPCODES: Final = frozenset(
    (
        "cosine", "custom-call", "divide", "multiply", "power", "reduce", "rsqrt", "sine", "sort",
        "sqrt",
    )
)  # fmt: skip
"""What `Places.find` finds."""


def _inside(context: Context) -> list[Computation]:
    """What each of the calls around a place calls."""
    return [*(c.computation for c in context.via[1:]), context.evaluation.computation]


def _kernel(via: tuple[Instruction, ...], instr: Instruction) -> Place:
    for depth, caller in enumerate(via):
        if caller.opcode == "fusion":
            return via[:depth], caller
    return via, instr


def bytes_of(instr: Instruction) -> int | None:
    """Bytes of what it gives; None where its shape cannot be read."""
    try:
        return instr.shape.bytes
    except ValueError:
        return None


class Levels:
    """On which levels of loops a number changes: bit l for loops that l - 1 others are around.

    What is not known changes on every level, so that nothing is taken for the same that may not be.
    """

    def __init__(self, analysis: ModuleAnalysis, contexts: Iterable[Context]) -> None:
        self._numbers = analysis.congruence.numbers
        self._loops = analysis.congruence.loops
        self._carried = analysis.congruence.carried
        self._bits: list[int] = []  # of each number; operands have smaller ones
        self._level: dict[Instruction, int] = {}
        for context in contexts:
            whiles = [caller for caller in context.via if caller.opcode == "while"]
            if whiles and context.via[-1] is whiles[-1]:
                level = self._level.setdefault(whiles[-1], len(whiles))
                if level != len(whiles):
                    self._level[whiles[-1]] = 0

    def anew(self, via: Sequence[Instruction], number: int) -> int | None:
        """How many different values a number is there in one execution of the entry."""
        bits, count = self._of(number), 1
        whiles = [caller for caller in via if caller.opcode == "while"]
        for level, caller in enumerate(whiles, 1):
            loop = self._loops.get(caller)
            if bits >> level & 1:
                if loop is None or loop.trip_count is None:
                    return None
                count *= loop.trip_count
        return count

    def _of(self, number: int) -> int:
        known = self._bits
        while len(known) <= number:
            at = len(known)
            node = self._numbers[at]
            bits = self._leaf(at, node.kind)
            for operand in node.operands:
                bits |= known[operand]
            known.append(bits)
        return known[number]

    def _leaf(self, number: int, kind: str) -> int:
        if kind == "series":
            series = self._numbers.series_of(number)
            return _EVERYWHERE if series is None else 1 << series.level
        if kind == "carry":
            loop = self._carried.get(number)
            level = self._level.get(loop, 0) if loop is not None else 0
            return 1 << level if level else _EVERYWHERE
        return _EVERYWHERE if kind == "unknown" else 0


# -- what numbers say -----------------------------------------------------------------------------


def plain(numbers: Numbers, number: int) -> Number:
    """How an array is computed, in whatever order its elements are."""
    return numbers[numbers.unviewed(number)]


def constant_of(numbers: Numbers, number: int) -> float | None:
    """The one number that all elements of an array are, as far as the text says it."""
    node = numbers[number]
    while node.kind in ("view", "filled", "broadcast") and node.operands:
        node = numbers[node.operands[0]]
    if node.kind == "integer" and isinstance(node.detail, int):
        return float(node.detail)
    if node.kind != "constant" or not isinstance(node.detail, tuple):
        return None
    try:
        return float(str(node.detail[1]).strip("{} "))
    except ValueError:
        return None


def dimensions_of(node: Number) -> str | None:
    """The dimensions of what an operation gives, where its number has them, as `[8,64]`."""
    detail = node.detail
    if isinstance(detail, tuple) and len(detail) > 1 and isinstance(detail[1], str):
        return detail[1]
    return None


# -- what occurrences amount to -------------------------------------------------------------------


def by_kernel(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """One of each kernel that computes a value: twice in one kernel is once."""
    first: dict[object, Occurrence] = {}
    for one in occurrences:
        first.setdefault(one.place, one)
    return list(first.values())


def beyond_first(occurrences: Iterable[Occurrence]) -> int | None:
    """How often one value is computed that was computed before; None where that is not known."""
    ones = by_kernel(occurrences)
    times = [one.times for one in ones]
    anew = [one.anew for one in ones]
    known = [time for time in times if time is not None]
    different = [count for count in anew if count is not None]
    if len(known) < len(times) or len(different) < len(anew) or not known:
        return None
    return max(0, sum(known) - max(different))


def bytes_beyond_first(occurrences: Iterable[Occurrence]) -> int | None:
    """Bytes of a value where it is computed again, in one execution of the entry."""
    ones = by_kernel(occurrences)
    anew = [one.anew for one in ones]
    whole = total(product(one.times, one.bytes) for one in ones)
    if whole is None or None in anew or not ones:
        return None
    first = product(max(count for count in anew if count is not None), ones[0].bytes)
    return None if first is None else max(0, whole - first)


def remade(occurrences: Iterable[Occurrence]) -> list[Instruction]:
    """Kernels that XLA's own rematerialization has made, to hold less in memory."""
    kernels = [written_instruction(one.kernel) for one in occurrences]
    return [kernel for kernel in kernels if is_compiler_remat(kernel.name)]


def repeating_phases(occurrences: Iterable[Occurrence]) -> list[str]:
    """Phases, other than the replay of a checkpoint, that compute a value more than once.

    What a checkpoint replays once for each region is what it was asked for, and what XLA's own
    rematerialization makes again it makes for want of memory.
    """
    phases: dict[str, list[Occurrence]] = {}
    for one in occurrences:
        if one.phase not in (None, "remat") and not remade([one]):
            assert one.phase is not None
            phases.setdefault(one.phase, []).append(one)
    return [phase for phase, ones in phases.items() if is_repeated(ones)]


def is_repeated(occurrences: Sequence[Occurrence]) -> bool:
    """Whether several kernels compute it, or one in iterations that do not change it."""
    return len(by_kernel(occurrences)) > 1 or bool(beyond_first(occurrences))


def in_loops(occurrences: Iterable[Occurrence]) -> bool:
    """Whether a loop computes it in each iteration though no iteration changes it."""
    return any(
        one.times is not None and one.anew is not None and one.times > one.anew
        for one in occurrences
    )


def for_memory(occurrences: Iterable[Occurrence]) -> list[str]:
    """What is to say of kernels that XLA has made again for want of memory."""
    kernels = remade(occurrences)
    return [f"{named(kernels)}: XLA's own rematerialization, for want of memory"] if kernels else []


def by_branch(occurrences: Iterable[Occurrence]) -> list[list[Occurrence]]:
    """Occurrences that run together: of the branches of a conditional only one does."""
    groups: dict[tuple[object, ...], list[Occurrence]] = {}
    for one in occurrences:
        groups.setdefault(one.branch, []).append(one)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class Group:
    """A row in the making.

    repeated: what computes it, in the order of calls. members: roles and instructions, of these
    and of what belongs to them. value: the shape of what is computed. bytes: computed or written
    beyond the first. blamed: the phases that compute it more than once, other than for a
    checkpoint; unknown: whether there is no name that tells.
    """

    kind: str
    form: str
    repeated: tuple[Occurrence, ...]
    members: tuple[tuple[str, Occurrence], ...]
    value: str | None
    bytes: int | None
    blamed: tuple[str, ...]
    evidence: tuple[str, ...]
    instr: Instruction
    unknown: bool = False

    @property
    def phases(self) -> list[str]:
        return [one for one in dict.fromkeys(o.phase for o in self.repeated) if one is not None]

    @property
    def kernels(self) -> list[Instruction]:
        """In text order."""
        places = {one.place for one in self.repeated}
        return sorted({written_instruction(kernel) for _, kernel in places}, key=lambda k: k.id)

    @property
    def kernel_count(self) -> int:
        return len({one.place for one in self.repeated})

    @property
    def times(self) -> int | None:
        """How often kernels compute it in one execution of the entry."""
        return total(one.times for one in by_kernel(self.repeated))


def total(numbers: Iterable[int | None]) -> int | None:
    """Their sum; None where one is not known."""
    known = list(numbers)
    return None if None in known else sum(one for one in known if one is not None)


def product(*numbers: int | None) -> int | None:
    """None where one is not known."""
    result = 1
    for number in numbers:
        if number is None:
            return None
        result *= number
    return result


def spelled(instr: Instruction) -> str | None:
    """The dtype and dimensions of the first array that an instruction gives."""
    try:
        shape = next((leaf for leaf in instr.shape.leaves() if leaf.is_array), None)
    except ValueError:
        return None
    return None if shape is None else shape.without_layout


def named(instructions: Iterable[Instruction], most: int = 3) -> str:
    """Their names, as a sentence has them."""
    names = list(dict.fromkeys(written_instruction(one).name for one in instructions))
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
