"""What else is drawn: the neighbours of what was selected, what lies between two, or everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hlo_lens.analysis import ModuleAnalysis, Value
from hlo_lens.analysis.origins import Destinations, inputs, origins
from hlo_lens.files import InputError
from hlo_lens.hlo import Instruction, Module
from hlo_lens.present.quantities import count_text

MOST_VALUES = 1_000_000
"""Values that are looked at in one walk. A text has about as many as instructions, but one whose
computations call each other at several places has as many as there are ways through the calls."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """Tells which instructions are not drawn of themselves, and why.

    `by_opcode`: opcode → why; `kinds`: the reasons that hold. A broadcast of a scalar and a scalar
    parameter of the entry count as constants; another parameter of the entry is drawn.
    """

    module: Module
    by_opcode: Mapping[str, str]
    kinds: Collection[str]

    def why(self, instr: Instruction) -> str | None:
        """Why the instruction is left out, None where it is drawn."""
        if instr.implied:
            return "tuples"
        opcode = instr.opcode
        of_entry = opcode == "parameter" and instr.computation is self.module.entry
        if (of_entry and _is_scalar(instr)) or (
            opcode == "broadcast" and all(map(_is_scalar, instr.operands))
        ):
            return "constants" if "constants" in self.kinds else None
        why = None if of_entry else self.by_opcode.get(opcode)
        return why if why in self.kinds else None


def _is_scalar(instr: Instruction) -> bool:
    shape = instr.shape_text
    return not shape.startswith("(") and "[]" in shape.partition("{")[0]


@dataclass(slots=True)
class Neighbours:
    """Finds what lies before and behind instructions, some computing steps away.

    `wanted` says what may be found at all. `most`: so many before and so many behind each
    instruction. `gave_up`: there was more to look at than is looked at.
    """

    analysis: ModuleAnalysis
    pruning: Pruning
    wanted: Callable[[Instruction], bool] = lambda _: True
    most: int | None = None
    gave_up: bool = False
    _forward: Destinations = field(init=False)

    def __post_init__(self) -> None:
        # What is drawn where it stands is not entered; fusions are drawn whole.
        self._forward = Destinations(
            self.analysis.graph, lambda instr: self.pruning.why(instr) is not None
        )

    def around(
        self, start: Iterable[Instruction], steps: int
    ) -> Iterator[tuple[list[Instruction], int]]:
        """The instructions that are 1, 2, … `steps` steps away, each once: the first of every
        instruction before the second of any; with them, how many `most` leaves out."""
        seen = set(start)
        edge = list(seen)
        while edge and steps > 0:
            steps -= 1
            found: dict[Instruction, int] = {}
            over: set[Instruction] = set()
            for instr in edge:
                for side in (self._before, self._after):
                    near = (one for one in dict.fromkeys(side(instr)) if one not in seen)
                    for rank, one in enumerate(filter(self.wanted, near)):
                        if self.most is not None and rank >= self.most:
                            over.add(one)
                        else:
                            found[one] = min(rank, found.get(one, rank))
            edge = sorted(found, key=lambda one: (found[one], one.id))
            seen.update(edge)
            yield edge, len(over - seen)

    def _before(self, instr: Instruction) -> Iterator[Instruction]:
        graph = self.analysis.graph
        waiting = list(dict.fromkeys(value for _, value, _ in inputs(graph, instr)))
        seen = set(waiting)
        for value in waiting:  # grows while it is walked
            why = self.pruning.why(value.instr)
            if why is None:
                yield value.instr
            elif why != "constants":
                # Fusions are drawn whole unless something inside is selected.
                self._add(waiting, seen, (one for one, _ in origins(graph, value, lambda _: False)))

    def _after(self, instr: Instruction) -> Iterator[Instruction]:
        waiting = [Value(instr)]
        seen = set(waiting)
        for value in waiting:  # grows while it is walked
            goes_on: list[Value] = []
            for after, leaves in self._forward.of(value):
                if not leaves and self.pruning.why(after.instr) is None:
                    yield after.instr
                else:
                    goes_on.append(after)
            self._add(waiting, seen, goes_on)

    def _add(self, waiting: list[Value], seen: set[Value], more: Iterable[Value]) -> None:
        for value in more:
            if value not in seen:
                if len(seen) >= MOST_VALUES:
                    self.gave_up = True
                    return
                seen.add(value)
                waiting.append(value)


def between(analysis: ModuleAnalysis, first: Instruction, last: Instruction) -> list[Instruction]:
    """The instructions on the operand paths from `first` to `last`: those of the shortest path,
    then the others, nearest to `last` first; empty where there is no path.

    Raises `InputError` where more lies behind `last` than is looked at.
    """
    start = Value(last)
    users: dict[Value, list[Value]] = {start: []}
    order = [start]
    for value in order:  # grows while it is walked
        if value.instr == first:
            continue
        if len(users) > MOST_VALUES:
            raise InputError(
                last.name,
                f"more than {count_text(MOST_VALUES)} values lie behind it: ask for what lies"
                f" between %{first.name} and something nearer to it",
            )
        for before, _ in origins(analysis.graph, value):
            if before not in users:
                users[before] = []
                order.append(before)
            users[before].append(value)
    waiting = [value for value in order if value.instr == first]
    # What a value was first found from lies on the shortest way to `last`.
    shortest = waiting[:1]
    while shortest and shortest[-1] != start:  # which a text that calls itself reaches again
        shortest.append(users[shortest[-1]][0])
    on_a_path = set(waiting)
    for value in waiting:
        for user in users[value]:
            if user not in on_a_path:
                on_a_path.add(user)
                waiting.append(user)
    rest = (value for value in order if value in on_a_path)
    found = dict.fromkeys(value.instr for value in (*shortest, *rest))
    return [instr for instr in found if not instr.implied]


def everything(module: Module, analysis: ModuleAnalysis, pruning: Pruning) -> list[Instruction]:
    """All that is not pruned of the computations that are run as written: the entry, bodies,
    conditions, branches, called functions."""
    inside = {"fusion", "apply", "async", "custom_call"}
    return [
        instr
        for computation in module.computations
        if not any(site.kind in inside for site in analysis.graph.callers(computation))
        for instr in computation.instructions
        if pruning.why(instr) is None
    ]


def why_left_out(
    drawn: Collection[Instruction],
    frames: Collection[Instruction],
    why: Callable[[Instruction], str | None],
) -> dict[str, int]:
    """Why → how many, the most first, of the instructions of the computations in which something is
    drawn."""
    computations = dict.fromkeys(instr.computation for instr in drawn)
    counts: dict[str, int] = {}
    for computation in computations:
        for instr in computation.instructions:
            if instr not in drawn and instr not in frames:
                reason = why(instr) or "others"
                counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
