"""What else is drawn: the neighbours of what was selected, what lies between two, or everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hlo_lens.analysis import ModuleAnalysis, Value, consumers
from hlo_lens.analysis.origins import origins
from hlo_lens.hlo import Instruction, Module

_MOST_VALUES = 20_000


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


def neighbours(
    analysis: ModuleAnalysis,
    start: Iterable[Instruction],
    steps: int,
    pruning: Pruning,
    wanted: Callable[[Instruction], bool] = lambda _: True,
    most: int | None = None,
) -> Iterator[tuple[list[Instruction], int]]:
    """The instructions that are 1, 2, … `steps` computing steps away, each once: the first of every
    instruction before the second of any. Of an instruction at most `most` before and behind it;
    with them, how many that leaves out."""
    seen = set(start)
    edge = list(seen)
    for _ in range(steps):
        found: dict[Instruction, int] = {}
        over: set[Instruction] = set()
        for instr in edge:
            for side in (_before, _after):
                near = dict.fromkeys(side(analysis, instr, pruning))
                for rank, one in enumerate(one for one in near if one not in seen and wanted(one)):
                    if most is not None and rank >= most:
                        over.add(one)
                    else:
                        found[one] = min(rank, found.get(one, rank))
        edge = sorted(found, key=lambda one: (found[one], one.id))
        seen.update(edge)
        yield edge, len(over - seen)


def _before(
    analysis: ModuleAnalysis, instr: Instruction, pruning: Pruning
) -> Iterator[Instruction]:
    computation = instr.computation
    indices = computation.operand_indices(instr.index)
    waiting = [Value(Instruction(computation, index)) for index in indices]
    seen = set(waiting)
    for value in waiting:  # grows while it is walked
        if pruning.why(value.instr) is None:
            yield value.instr
        elif pruning.why(value.instr) != "constants" and len(seen) < _MOST_VALUES:
            # Fusions are drawn whole unless something inside is selected.
            for before, _ in origins(analysis.graph, value, lambda _: False):
                if before not in seen:
                    seen.add(before)
                    waiting.append(before)


def _after(analysis: ModuleAnalysis, instr: Instruction, pruning: Pruning) -> Iterator[Instruction]:
    waiting, seen = [instr], {instr}
    for one in waiting:
        for consumer in _users(analysis, one, pruning):
            user = _outermost_fusion(analysis, consumer, instr)
            if user is None or user in seen or user.implied:
                continue
            seen.add(user)
            if pruning.why(user) is None:
                yield user
            elif len(seen) < _MOST_VALUES:
                waiting.append(user)


def _users(analysis: ModuleAnalysis, instr: Instruction, pruning: Pruning) -> Iterator[Instruction]:
    """What takes a value: through tuples, unless they are drawn, and in and out of computations."""
    if "tuples" in pruning.kinds:
        yield from consumers(analysis.graph, instr, moves=frozenset(), enter=False)
    else:
        yield from instr.users
        if not instr.is_root:
            return
    yield from consumers(analysis.graph, instr, moves=frozenset(), enter=True)


def _outermost_fusion(
    analysis: ModuleAnalysis, instr: Instruction, seen_from: Instruction
) -> Instruction | None:
    """The fusion around an instruction, unless the one it is seen from lies inside too; None
    where several call it."""
    while instr.computation is not seen_from.computation:
        callers = analysis.graph.callers(instr.computation)
        if not any(site.kind in ("fusion", "async", "apply") for site in callers):
            break
        if len(callers) > 1:
            return None
        instr = callers[0].caller
    return instr


def between(analysis: ModuleAnalysis, first: Instruction, last: Instruction) -> list[Instruction]:
    """The instructions on the operand paths from `first` to `last`, nearest to `last` first; empty
    where there is no path."""
    start = Value(last)
    users: dict[Value, list[Value]] = {start: []}
    order = [start]
    for value in order:  # grows while it is walked
        if value.instr == first or len(users) > 10 * _MOST_VALUES:
            continue
        for before, _ in origins(analysis.graph, value):
            if before not in users:
                users[before] = []
                order.append(before)
            users[before].append(value)
    on_a_path = {value for value in order if value.instr == first}
    waiting = list(on_a_path)
    for value in waiting:
        for user in users[value]:
            if user not in on_a_path:
                on_a_path.add(user)
                waiting.append(user)
    found = dict.fromkeys(value.instr for value in order if value in on_a_path)
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
