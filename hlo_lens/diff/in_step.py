"""Pairs of instructions of two computations that ought to be the same, for an exact comparison."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Generic, TypeVar

from hlo_lens.diff.canonical import unblanked, written_attributes
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.structural import IDENTITY

T = TypeVar("T", bound=Hashable)
Pair = tuple[int | None, int | None]
"""Positions in the old and the new computation; None where one side has no partner for it."""


class Pairs(Generic[T]):
    """What is paired one to one so far."""

    __slots__ = ("to_new", "to_old")

    def __init__(self) -> None:
        self.to_new: dict[T, T] = {}
        self.to_old: dict[T, T] = {}

    def add(self, old: T, new: T) -> bool:
        """Pair the two; False where one of them has another partner."""
        if old not in self.to_new and new not in self.to_old:
            self.to_new[old] = new
            self.to_old[new] = old
            return True
        return self.holds(old, new)

    def holds(self, old: T, new: T) -> bool:
        """Whether the two are paired with each other."""
        return old in self.to_new and self.to_new[old] == new


def links(computation: Computation, index: int) -> Sequence[int]:
    """Positions of the operands, and behind them of the control predecessors."""
    operands = computation.operand_indices(index)
    if "control-predecessors" not in computation.tail_of(index):
        return operands
    predecessors = Instruction(computation, index).control_predecessors
    return (*operands, *(each.index for each in predecessors))


def by_text(old: Computation, new: Computation, pairs: Pairs[int]) -> Iterator[Pair]:
    """The first with the first, the second with the second: where the order is the schedule."""
    for one, other in zip_longest(_text_order(old), _text_order(new)):
        if one is not None and other is not None:
            pairs.add(one, other)
        yield one, other


def by_graph(old: Computation, new: Computation, pairs: Pairs[int]) -> Iterator[Pair]:
    """Parameters by number, then what the roots depend on, then what nothing depends on.

    Operands come before what takes them, so that the first pair that is not the same is where the
    difference begins, not where it shows.
    """
    numbers = [
        {each.parameter_number: each.index for each in side.parameters} for side in (old, new)
    ]
    for number in dict.fromkeys((*numbers[0], *numbers[1])):
        one, other = numbers[0].get(number), numbers[1].get(number)
        if one is not None and other is not None:
            pairs.add(one, other)
        yield one, other
    yield from _upward(old, old.root_index, new, new.root_index, pairs)
    for one, other in _unused(old, new, pairs):
        if one is None or other is None:
            yield one, other
        else:
            yield from _upward(old, one, new, other, pairs)


def _upward(
    old: Computation, one: int, new: Computation, other: int, pairs: Pairs[int]
) -> Iterator[Pair]:
    """The pair and, in front of it, the pairs of all that it depends on.

    Operands are not paired where they are nothing alike: whoever compares the pair that takes them
    finds that, and stops.
    """
    waiting: list[tuple[int, int, Iterator[tuple[int, int]]]] = []

    def alike(one: int, other: int) -> bool:
        return old.opcode_of(one) == new.opcode_of(other)

    def enter(one: int, other: int) -> None:
        if one in pairs.to_new or other in pairs.to_old:
            return
        above, beside = links(old, one), links(new, other)
        as_many = len(above) == len(beside)
        same_opcode = alike(one, other)
        # Another operation on such operands has taken its place; else it is another value.
        in_place = same_opcode or (above and as_many and all(map(alike, above, beside)))
        if waiting and not in_place:
            return
        pairs.add(one, other)
        onward = same_opcode and as_many
        waiting.append((one, other, zip(above, beside, strict=True) if onward else iter(())))

    enter(one, other)
    while waiting:
        one, other, above = waiting[-1]
        following = next(above, None)
        if following is not None:
            enter(*following)
        else:
            waiting.pop()
            yield one, other


def _text_order(computation: Computation) -> Iterator[int]:
    """Positions in text order, what an operand implies in front of the first that takes it."""
    if not computation.rows.implied:
        yield from range(computation.size)
        return
    placed: set[int] = set()
    for index in range(computation.size):
        for operand in computation.operand_indices(index):
            chain = []
            while operand < 0 and operand not in placed:
                chain.append(operand)
                placed.add(operand)
                operand = next(iter(computation.operand_indices(operand)), 0)
            yield from reversed(chain)
        yield index


# ---------------------------------------------------------------------------------- unused


def _unused(old: Computation, new: Computation, pairs: Pairs[int]) -> Iterator[Pair]:
    """What is not paired yet and has no user, matched by all that it is computed from.

    Where two are alike in that but share their operands in other ways, each may get the other's
    partner; then the sides read as not the same.
    """
    numbers: dict[Hashable, int] = {}
    ends = _ends(old, list(pairs.to_new), numbers), _ends(new, list(pairs.to_old), numbers)
    left: tuple[list[int], list[int]] = [], []
    for number in dict.fromkeys((*ends[0], *ends[1])):
        ours, theirs = ends[0][number], ends[1][number]
        both = min(len(ours), len(theirs))
        yield from zip(ours[:both], theirs[:both], strict=True)
        left[0].extend(ours[both:])
        left[1].extend(theirs[both:])
    yield from zip_longest(*left)


def _ends(
    computation: Computation, paired: Sequence[int], numbers: dict[Hashable, int]
) -> defaultdict[int, list[int]]:
    """What is not in `paired` and has no user, by a number that says what it is computed from.

    `paired` stands in the order of the pairs, which is one for both sides.
    """
    known = {index: ~place for place, index in enumerate(paired)}
    used: set[int] = set()
    found: dict[int, int] = {}
    for index in _text_order(computation):
        if index in known:
            continue
        above = links(computation, index)
        used.update(above)
        key = (_says(Instruction(computation, index)), tuple(map(known.get, above)))
        known[index] = found[index] = numbers.setdefault(key, len(numbers))
    ends: defaultdict[int, list[int]] = defaultdict(list)
    for index, number in found.items():
        if index not in used:
            ends[number].append(index)
    return ends


def _says(instruction: Instruction) -> Hashable:
    """What an instruction says by itself, to find those that may be the same."""
    attributes = written_attributes(instruction.tail)
    return (
        instruction.opcode,
        unblanked(instruction.shape_text),
        unblanked(instruction.argument_text) if not instruction.operands else "",
        frozenset(
            (name, "" if name in IDENTITY else unblanked(value))
            for name, value in attributes.items()
        ),
    )


def says(computation: Computation) -> Hashable:
    """What a computation holds, in any order, to find one that may be the same."""
    return frozenset(Counter(map(_says, computation.instructions)).items())
