"""The verdict on each instruction that is labelled, or named, as computed again."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from hlo_lens.analysis import Value, trace
from hlo_lens.analysis.contractions import Sizes, turned
from hlo_lens.analysis.degenerate import dimensions_text
from hlo_lens.analysis.values import Number, Origins
from hlo_lens.analysis.views import View, exchanged
from hlo_lens.facts.context import source_of
from hlo_lens.hlo import Instruction
from hlo_lens_passes._remat_occurrences import MOVERS, Occurrence, Occurrences
from hlo_lens_passes._remat_paths import plain_path

# What derivatives are made of. A labelled instruction of another opcode computes a primal value.
_DERIVATIVE: Final = frozenset(
    (
        "abs", "add", "and", "clamp", "compare", "convert", "cosine", "divide", "exponential",
        "is-finite", "log", "maximum", "minimum", "multiply", "negate", "not", "or", "power",
        "rsqrt", "select", "sign", "sine", "sqrt", "subtract", "broadcast", "transpose", "slice",
    )
)  # fmt: skip

_GROUPS: Final = re.compile(r"replica_groups=(\S*?)(?:, |\Z)")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word` for one occurrence. basis: what it rests on, one of `remat.BASES`; None for unknown.
    twins: the forward instructions that compute the same; the first is the nearest."""

    word: str
    basis: str | None
    evidence: str
    twins: tuple[Instruction, ...] = ()


def verdicts(found: Occurrences) -> dict[Occurrence, Verdict]:
    """The verdict on each labelled occurrence."""
    return _Judge(found).framework()


def compiler_verdicts(found: Occurrences) -> dict[Occurrence, Verdict]:
    """The verdict on each occurrence that XLA's own rematerialization named."""
    if not found.renamed:
        return {}
    renamed = {one.instr for one in found.renamed}
    originals: dict[int, Instruction] = {}
    for context in found.congruence.contexts():
        computation = context.evaluation.computation
        for index, value in enumerate(context.evaluation.values):
            instr = Instruction(computation, index)
            if instr not in renamed:
                originals.setdefault(value, instr)
    return {one: _compiler_verdict(one, originals.get(one.number)) for one in found.renamed}


def _compiler_verdict(one: Occurrence, original: Instruction | None) -> Verdict:
    if original is None:
        return Verdict("unknown", None, f"nothing else computes what {one.instr.name} does")
    evidence = f"{one.instr.name} computes what {original.name} does"
    return Verdict("replayed", "value", evidence, (original,))


class _Judge:
    def __init__(self, found: Occurrences) -> None:
        self.found = found
        self.numbers = found.numbers
        self.verdicts: dict[Occurrence, Verdict] = {}

    def framework(self) -> dict[Occurrence, Verdict]:
        seen: dict[object, Occurrence] = {}
        open_: list[Occurrence] = []
        for one in self.found.labelled:
            verdict = (
                self._by_place(one)
                or self._again(one, seen)
                or self._by_value(one)
                or self._by_use(one)
            )
            if verdict is None:
                open_.append(one)
            else:
                self.verdicts[one] = verdict
        _Rest(self.found, self.verdicts, open_).judge()
        return self.verdicts

    def _by_place(self, one: Occurrence) -> Verdict | None:
        if not one.in_forward:
            return None
        return Verdict("shared", "place", "it stands in a loop of the forward")

    def _again(self, one: Occurrence, seen: dict[object, Occurrence]) -> Verdict | None:
        """A copy, in another fusion, of a labelled instruction."""
        key = one.number, one.op_name, tuple(c for c in one.via if c.opcode == "while")
        first = seen.setdefault(key, one)
        if first is one or first.instr == one.instr or not one.fused:
            return None
        evidence = f"a copy of {first.instr.name}, fused into another consumer"
        return Verdict("fusion-duplicated", "value", evidence, (first.instr,))

    def _by_value(self, one: Occurrence) -> Verdict | None:
        found = [self.found.forward.get(each) for each in self.found.results_of(one.number)]
        twins = tuple(dict.fromkeys(twin for twin in found if twin is not None))
        if not twins or None in found:
            return None
        twin = twins[0]
        if one.operation is None and one.fused and self._same_operands(one, twin):
            evidence = f"a copy of {twin.name}, of the same operands, in another fusion"
            return Verdict("fusion-duplicated", "value", evidence, (twin,))
        where = f" through {one.barrier.name}" if one.barrier is not None else ""
        evidence = f"{twin.name} of the forward computes the same value{where}"
        return Verdict("replayed", "value", evidence, twins)

    def _same_operands(self, one: Occurrence, twin: Instruction) -> bool:
        """Whether both take the very same results: then nothing but the fusion separates them."""
        if one.barrier is not None:
            return False
        graph = self.found.analysis.graph
        pairs = zip(one.instr.operands, twin.operands, strict=False)
        for a, b in pairs:
            ours, theirs = trace(graph, Value(a)), trace(graph, Value(b))
            if ours.instr != theirs.instr and ours.instr.opcode not in ("constant", "broadcast"):
                return False
        return True

    def _by_use(self, one: Occurrence) -> Verdict | None:
        """Nothing of the forward computes it, and something of the forward takes it."""
        user = self.found.taken.get(one.number)
        if user is None:
            return None
        taker = self.found.forward[user]
        evidence = f"{taker.name} of the forward takes it, and the forward has no other"
        return Verdict("shared", "use", evidence, (taker,))


class _Runs:
    """How often matmuls, kernels, collectives and `MOVERS` of the forward run, and how many of
    these runs are known to be replayed. Where a number is not known, one replay takes all runs."""

    def __init__(self, found: Occurrences) -> None:
        self._runs = found.runs
        self._all: dict[Instruction, float] = {}
        for one in found.of_forward:
            runs = self._runs(one)
            known = self._all.get(one.instr, 0)
            self._all[one.instr] = known + (-math.inf if runs is None else runs)
        self._replayed: dict[Instruction, float] = {}

    def __contains__(self, twin: Instruction) -> bool:
        """Whether something replays it."""
        return twin in self._replayed

    def add(self, one: Occurrence, twins: Iterable[Instruction]) -> None:
        """Note that `one` replays these."""
        runs = self._runs(one)
        for twin in twins:
            known = self._replayed.get(twin, 0)
            self._replayed[twin] = known + (math.inf if runs is None else runs)

    def any_left(self, twin: Instruction) -> bool:
        """Whether something may replay it, besides what is known to."""
        return twin not in self or self._replayed[twin] < self._all.get(twin, 0)

    def left_for(self, one: Occurrence, twin: Instruction) -> bool:
        """Whether `one` may replay it, besides what is known to."""
        if twin not in self:
            return True
        runs = self._runs(one)
        return runs is not None and self._replayed[twin] + runs <= self._all.get(twin, 0)


class _Rest:
    """What has no twin by value, in order.

    A matmul, kernel or collective may be written in another form than in the forward: as a windowed
    einsum, or as an all-gather and a dot; a sort or gather may have one more operand. One of the
    forward of the same path and source, that no other replays and that it does not depend on, is
    its twin. Where a back end takes iterations out of a loop, those that are left and those that
    are outside replay one of the forward together. What is computed from it is then compared as if
    the two were one.
    """

    def __init__(
        self,
        found: Occurrences,
        known: dict[Occurrence, Verdict],
        waiting: list[Occurrence],
    ) -> None:
        self.found = found
        self.numbers = found.numbers
        self.verdicts = known
        self.waiting = waiting
        self.replaced: dict[int, int] = {}
        self.used = _Runs(found)
        self.origins: Origins | None = None
        self.within: Origins | None = None

    def judge(self) -> None:
        for one, known in self.verdicts.items():
            self.used.add(one, known.twins)
        units = {one: unit for unit in _units(self.waiting) for one in unit}
        free = self._free()
        cheap: list[Occurrence] = []
        # What is computed from a value has a larger number, and comes behind it.
        for one in sorted(self.waiting, key=lambda one: one.number):
            if one in self.verdicts:
                continue
            verdict = self._as_replaced(one)
            unit = [one]
            if verdict is None and one.operation is not None:
                unit = units[one]
                verdict = self._regathered(one) or self._by_name(one, free)
                verdict = verdict or self._without_twin(one)
            elif verdict is None and one.instr.opcode in MOVERS:
                verdict = self._by_name(one, free)
            if verdict is None:
                cheap.append(one)
                continue
            self.used.add(one, verdict.twins)
            for each in unit:
                self.verdicts[each] = verdict
        self._primal(cheap)

    def _as_replaced(self, one: Occurrence) -> Verdict | None:
        """Its twin, where what it takes stands for what the forward takes."""
        if not self.replaced:
            return None
        replaced = self._number(one.given)
        if one.instr.opcode != "transpose":
            replaced = self.numbers.unviewed(replaced)
        twin = self.found.forward.get(replaced)
        if twin is None:
            return None
        evidence = f"{twin.name} of the forward computes the same from what is replayed here"
        return Verdict("replayed", "value", evidence, (twin,))

    def _number(self, number: int) -> int:
        """The number a value had if what is replayed in another form were the forward's own."""
        replaced = self.replaced
        waiting = [number]
        while waiting:
            at = waiting[-1]
            if at in replaced:
                waiting.pop()
                continue
            node = self.numbers[at]
            open_ = [operand for operand in node.operands if operand not in replaced]
            if open_:
                waiting.extend(open_)
                continue
            waiting.pop()
            operands = tuple(replaced[operand] for operand in node.operands)
            same = operands == node.operands
            replaced[at] = at if same else self.numbers.again(node, operands)
        return replaced[number]

    def _by_name(
        self, one: Occurrence, free: dict[object, list[list[Occurrence]]]
    ) -> Verdict | None:
        candidates = free.get(_site(one), []) if one.path else []
        origins = self.origins
        if not candidates or origins is None:
            return None
        inputs = origins.arguments(one.number)
        possible = [
            twins
            for twins in candidates
            if all(self.used.left_for(one, twin.instr) for twin in twins)
            and not origins.arguments(twins[0].number) & ~inputs
            and not any(origins.is_computed_from(one.number, twin.number) for twin in twins)
        ]
        if not possible:
            return None
        # Of several, that which is computed from the very same inputs, of the iteration at best.
        twins = max(
            possible,
            key=lambda twins: (twins[0].instr not in self.used, self._nearness(one, twins[0])),
        )
        self._replace(one, twins[0])
        return _named(one, twins)

    def _nearness(self, one: Occurrence, twin: Occurrence) -> int:
        """How many of the two agree: inputs of the iteration, arguments of the program."""
        each = (self.origins, self.within)
        return sum(
            origins is not None and origins.arguments(one.number) == origins.arguments(twin.number)
            for origins in each
        )

    def _replace(self, one: Occurrence, twin: Occurrence) -> None:
        """Let what a twin gives stand for what `one` gives."""
        element = self._of_loop(one, twin.unit)
        if element is not None:
            self.replaced[one.number] = self.numbers.under(element, one.given)
            return
        number = twin.number
        if self._is_exchanged(one, twin):
            view = _exchange(self.numbers[one.number], self.numbers[number])
            number = self.numbers.viewed(number, view) if view is not None else number
        self.replaced[one.number] = number

    def _of_loop(self, one: Occurrence, loop: object) -> int | None:
        """What a windowed einsum gives: the element of the loop that has the shape of `one`; None
        where that is not clear."""
        result = self.found.results.get(loop) if isinstance(loop, Instruction) else None
        elements = None if result is None else self.numbers.elements(result)
        if not isinstance(loop, Instruction) or elements is None:
            return None
        wanted = dimensions_text(one.instr.shape_text)
        shapes = [str(shape) for shape in loop.shape.elements]
        found = {
            number
            for number, shape in zip(elements, shapes, strict=False)
            if self.numbers[number].kind == "after" and dimensions_text(shape) == wanted
        }
        return found.pop() if len(found) == 1 else None

    def _is_exchanged(self, one: Occurrence, twin: Occurrence) -> bool:
        """Whether a product takes as its second operand what the other takes as its first."""
        if one.work != "matmul":
            return False
        within = self.within
        assert within is not None
        ours, theirs = (
            [within.arguments(o) for o in self.numbers[each.number].operands[:2]]
            for each in (one, twin)
        )
        return ours == theirs[::-1] and ours != theirs

    def _free(self) -> dict[object, list[list[Occurrence]]]:
        """The forward's operations that nothing is known to replay, by path and source."""
        if all(one.operation is None and one.instr.opcode not in MOVERS for one in self.waiting):
            return {}
        free: dict[object, list[list[Occurrence]]] = {}
        for unit in _units(self.found.of_forward):
            if all(self.used.any_left(one.instr) for one in unit):
                free.setdefault(_site(unit[0]), []).append(unit)
        units = (unit for units in free.values() for unit in units)
        self.origins = Origins(self.numbers, (one.number for unit in units for one in unit))
        self.within = Origins(self.numbers, inputs=self.found.carried)
        return free

    def _regathered(self, one: Occurrence) -> Verdict | None:
        again = one.operation.regather_of if one.operation is not None else None
        if again is None:
            return None
        first = self.found.analysis.module.instruction(again)
        if self.found.analysis.phase(first).phase != "fwd" or self._among_others(one, first):
            return None
        evidence = f"{first.name} of the forward gathers the same array"
        return Verdict("replayed", "value", evidence, (first,))

    def _among_others(self, one: Occurrence, first: Instruction) -> bool:
        """Whether two plain gathers are of other groups, and so of other arrays in the end."""
        groups = [
            _GROUPS.findall(str(self.numbers[number].detail))
            for number in (
                one.number,
                *(o.number for o in self.found.of_forward if o.instr == first),
            )
            if self.numbers[number].kind == "all-gather"
        ]
        return len(groups) == 2 and groups[0] != groups[1]

    def _without_twin(self, one: Occurrence) -> Verdict:
        if not self.found.congruence.complete:
            return Verdict("unknown", None, "the program is too large to compare values")
        return Verdict("sole", "use", "the forward has none such, and takes nothing from it")

    def _primal(self, waiting: list[Occurrence]) -> None:
        """Cheap instructions without a twin compute primal values that the forward never needed,
        or the factors of a derivative."""
        primal: dict[int, str] = {}
        for one, verdict in self.verdicts.items():
            if verdict.word in ("sole", "shared"):
                primal.setdefault(one.number, one.instr.name)
        sites = self._open_sites({one.instr.opcode for one in waiting})
        users: dict[int, list[int]] = {}
        for one in self.found.labelled:
            for operand in self.numbers[one.number].operands:
                for taken in {operand, self.numbers.unviewed(operand)}:
                    users.setdefault(taken, []).append(one.number)
        for one in reversed(waiting):  # users stand behind what they take
            of = next((user for user in users.get(one.number, ()) if user in primal), None)
            if of is not None:
                primal[one.number] = primal[of]
        for one in waiting:
            self.verdicts[one] = self._cheap(one, primal, sites)

    def _cheap(self, one: Occurrence, primal: dict[int, str], sites: Counter[object]) -> Verdict:
        if one.number in primal:
            evidence = f"{primal[one.number]} is computed from it, and the forward has neither"
            return Verdict("sole", "use", evidence)
        site = _primitive(one)
        if self._is_factor(one):
            evidence = "a factor of the derivative of what is replayed at its line"
            return Verdict("linearization", "source", evidence)
        if site is not None and sites[site] > 0:
            sites[site] -= 1
            evidence = "the forward computes the like from that line elsewhere, and not this one"
            return Verdict("sole", "source", evidence)
        if one.instr.opcode not in _DERIVATIVE:
            evidence = f"no derivative makes a {one.instr.opcode}, and the forward has none such"
            return Verdict("sole", "opcode", evidence)
        evidence = "the forward has none such, and nothing but the backward takes it"
        return Verdict("linearization", "use", evidence)

    def _is_factor(self, one: Occurrence) -> bool:
        """Whether it is derivative arithmetic on a value that is replayed from its own line."""
        source = one.source
        return (
            source is not None
            and one.instr.opcode in _DERIVATIVE
            and any(
                source in self._replayed_from.get(operand, ())
                for operand in self.numbers[one.number].operands
            )
        )

    @cached_property
    def _replayed_from(self) -> dict[int, set[str]]:
        """The lines that each replayed value comes from."""
        lines: dict[int, set[str]] = {}
        for one, verdict in self.verdicts.items():
            if verdict.word == "replayed" and one.source is not None:
                lines.setdefault(one.number, set()).add(one.source)
        return lines

    def _open_sites(self, opcodes: set[str]) -> Counter[object]:
        """(source, opcode, path) of what the forward computes for itself, less
        what is replayed of it; for these opcodes."""
        sites: Counter[object] = Counter()
        names = self.found.analysis.full_op_name
        for number, instr in self.found.forward.items():
            wanted = instr.opcode in opcodes and number in self.found.taken
            name = names(instr) if wanted else None
            if name is not None:
                sites[_site_of(instr, name)] += 1
        replayed = {
            one.number: _primitive(one)
            for one, verdict in self.verdicts.items()
            if verdict.word == "replayed" and one.instr.opcode in opcodes
        }
        sites.subtract(replayed.values())
        return sites


def _exchange(ours: Number, theirs: Number) -> View | None:
    """The product `theirs` with its operands exchanged, as a view; None where it is not like
    `ours` then."""
    if ours.kind != "dot" or theirs.kind != "dot":
        return None
    sizes = [cast(tuple[Sizes, str], each.detail)[0] for each in (ours, theirs)]
    return exchanged(*sizes[0][:3]) if sizes[0] == turned(sizes[1]) else None


def _units(occurrences: Iterable[Occurrence]) -> list[list[Occurrence]]:
    units: dict[object, list[Occurrence]] = {}
    for one in occurrences:
        units.setdefault((one.work or one.instr.opcode, one.unit), []).append(one)
    return list(units.values())


def _site(one: Occurrence) -> object:
    return one.work or one.instr.opcode, one.path, one.source


def _primitive(one: Occurrence) -> object:
    return _site_of(one.instr, one.op_name) if one.op_name else None


def _site_of(instr: Instruction, op_name: str) -> object:
    source = source_of(instr)
    return None if source is None else (source, instr.opcode, plain_path(op_name))


def _named(one: Occurrence, twins: Sequence[Occurrence]) -> Verdict:
    evidence = f"{twins[0].instr.name} of the forward has its path and source, in another form"
    return Verdict("replayed", "name", evidence, tuple(twin.instr for twin in twins))


def unlabelled(found: Occurrences) -> Iterator[tuple[Occurrence, Verdict]]:
    """Matmuls, kernels and collectives that compute what an earlier one does, where the text has
    no names: behind a barrier, or in a loop that takes what another has stacked."""
    first: dict[int, Occurrence] = {}
    for one in found.of_any:
        earlier = first.setdefault(one.number, one)
        if earlier is one or earlier.instr == one.instr:
            continue
        loops = [tuple(c for c in each.via if c.opcode == "while") for each in (earlier, one)]
        if one.barrier is None and loops[0] == loops[1]:
            continue
        how = f"behind {one.barrier.name}" if one.barrier else f"in {one.via[-1].name}"
        evidence = f"{earlier.instr.name} computes the same value, and this one stands {how}"
        yield one, Verdict("replayed", "value", evidence, (earlier.instr,))
