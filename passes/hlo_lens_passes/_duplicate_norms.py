"""Normalisations whose statistic is computed again, or that are spread over several kernels.

The statistic of an RMS or layer norm is a sum of squares x·x, or (x - mean)², over some dimensions;
divided by their number, with an epsilon, its root scales x. A softmax has a sum of exponentials and
no root; an optimizer's root is of an average over steps, which no sum of squares is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._duplicate_occurrences import (
    Group,
    Occurrence,
    Places,
    by_branch,
    by_kernel,
    bytes_beyond_first,
    constant_of,
    dimensions_of,
    for_memory,
    in_loops,
    is_repeated,
    plain,
    product,
    repeating_phases,
    spelled,
    total,
)

if TYPE_CHECKING:
    from hlo_lens.analysis.values import Number, Numbers

_ROOTS: Final = ("power", "rsqrt", "sqrt")
# What hands a statistic on to the elements that it scales.
_SPREADS: Final = frozenset(("broadcast", "convert", "filled", "slice", "view"))
_MOST_STEPS: Final = 64


@dataclass(slots=True)
class _Norm:
    """The statistic of an array. statistic, array, roots, applied: numbers."""

    statistic: int
    array: int
    roots: set[int] = field(default_factory=set)
    applied: set[int] = field(default_factory=set)


def norms(places: Places) -> Iterator[Group]:
    """Norms in the order of their statistics."""
    numbers = places.numbers
    roots = places.find(_ROOTS)
    found: dict[int, _Norm] = {}
    for number in roots:
        norm = _norm(numbers, number)
        if norm is not None:
            found.setdefault(norm.statistic, norm).roots.add(number)
    if not found:
        return
    _find_applied(numbers, found)
    statistics = places.find(("reduce",), found.__contains__)
    applied = {number for norm in found.values() for number in norm.applied}
    products = places.find(("divide", "multiply"), applied.__contains__)
    for statistic, occurrences in statistics.items():
        norm = found[statistic]
        for ones in by_branch(occurrences):
            parts = _Parts(ones, _of(roots, norm.roots), _of(products, norm.applied))
            if is_repeated(ones):
                yield _again(parts)
            elif len(parts.places) > 1:
                yield _split(parts)


def _of(found: dict[int, list[Occurrence]], numbers: set[int]) -> list[Occurrence]:
    return [one for number in sorted(numbers) for one in found.get(number, ())]


# -- structure ------------------------------------------------------------------------------------


def _norm(numbers: Numbers, root: int) -> _Norm | None:
    """The norm that a root belongs to: 1/√, or √, of a mean of squares."""
    node = numbers[root]
    if node.kind not in _ROOTS or not node.operands:
        return None
    if node.kind == "power" and abs(constant_of(numbers, node.operands[-1]) or 0) != 0.5:
        return None
    number, scaled, shifted = node.operands[0], False, False
    for _ in range(_MOST_STEPS):
        node = plain(numbers, number)
        if node.kind == "reduce" or node.kind == "element":
            array = _squared(numbers, node)
            if array is not None:
                # The norm of all gradients is a number, and no mean.
                whole = dimensions_of(_reduce(numbers, node)) == "[]"
                fits = (scaled and shifted) if whole else (scaled or shifted)
                return (
                    _Norm(numbers.unviewed(_reduce_number(numbers, number)), array)
                    if fits
                    else None
                )
        behind = _behind(numbers, node)
        if behind is None:
            return None
        scaled |= node.kind in ("multiply", "divide")
        shifted |= node.kind == "add"
        number = behind
    return None


def _behind(numbers: Numbers, node: Number) -> int | None:
    """What a mean, an epsilon, or a sum in several steps is taken of; None for anything else."""
    if node.kind in ("add", "divide", "maximum", "multiply") and len(node.operands) == 2:
        left, right = node.operands
        if constant_of(numbers, right) is not None:
            return left
        if constant_of(numbers, left) is not None and node.kind != "divide":
            return right
        return None
    if node.kind == "subtract":
        return node.operands[0]  # the mean of squares, less the square of the mean
    if node.kind in ("all-reduce", "broadcast", "convert", "pad", "reduce", "slice"):
        return node.operands[0] if node.operands else None
    return None


def _reduce_number(numbers: Numbers, number: int) -> int:
    node = plain(numbers, number)
    return node.operands[0] if node.kind == "element" else number


def _reduce(numbers: Numbers, node: Number) -> Number:
    return plain(numbers, node.operands[0]) if node.kind == "element" else node


def _squared(numbers: Numbers, node: Number) -> int | None:
    """The array whose squares a reduce adds up; of one with several results, an element."""
    reduce, position = _reduce(numbers, node), 0
    if node.kind == "element" and isinstance(node.detail, int):
        position = node.detail
    if reduce.kind != "reduce" or position >= len(reduce.operands):
        return None
    adds = numbers[reduce.operands[-1]]
    if adds.kind == "tuple" and position < len(adds.operands):
        adds = numbers[adds.operands[position]]
    square = plain(numbers, reduce.operands[position])
    if adds.kind != "add" or len(square.operands) != 2:
        return None
    left, right = map(numbers.unviewed, square.operands)
    is_square = square.kind == "multiply" and left == right
    is_power = square.kind == "power" and constant_of(numbers, right) == 2
    return left if is_square or is_power else None


def _find_applied(numbers: Numbers, found: dict[int, _Norm]) -> None:
    """The products of an array and its own root, in one pass over the numbers."""
    scale: dict[int, _Norm] = {root: norm for norm in found.values() for root in norm.roots}
    for number in range(len(numbers)):
        node = numbers[number]
        if not node.operands:
            continue
        if node.kind in _SPREADS or (
            node.kind == "divide" and constant_of(numbers, node.operands[0]) is not None
        ):
            norm = scale.get(node.operands[-1])
            if norm is not None:
                scale[number] = norm
        elif node.kind in ("divide", "multiply") and len(node.operands) == 2:
            for one, other in (node.operands, node.operands[::-1]):
                norm = scale.get(numbers.unviewed(other))
                if norm is not None and numbers.unviewed(one) == numbers.unviewed(norm.array):
                    norm.applied.add(number)


# -- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the parts of one norm are computed."""

    statistics: Sequence[Occurrence]
    roots: Sequence[Occurrence]
    applied: Sequence[Occurrence]

    @property
    def all(self) -> tuple[tuple[str, Occurrence], ...]:
        roles = (("statistic", self.statistics), ("root", self.roots), ("apply", self.applied))
        return tuple((role, one) for role, ones in roles for one in ones)

    @property
    def places(self) -> set[object]:
        return {one.place for _, one in self.all}

    def spread(self) -> str:
        """In how many kernels of each phase it is."""
        phases: dict[str, set[object]] = {}
        for _, one in self.all:
            phases.setdefault(one.phase or "no phase", set()).add(one.place)
        told = ", ".join(f"{len(at)} of {phase}" for phase, at in phases.items())
        return f"statistic, root and product are in {told}: kernels"


def _again(parts: _Parts) -> Group:
    ones = parts.statistics
    first = ones[0]
    evidence = ["sum of squares of equal arrays", parts.spread()]
    if in_loops(ones):
        evidence.append("the array does not change in the loop")
    evidence += for_memory(ones)
    return Group(
        "norm",
        "recomputed",
        tuple(ones),
        parts.all,
        spelled(first.instr),
        bytes_beyond_first(ones),
        tuple(repeating_phases(ones)),
        tuple(evidence),
        first.instr,
        any(one.phase is None for one in ones),
    )


def _split(parts: _Parts) -> Group:
    """Once computed, in more than one kernel: what one hands to another is written to memory."""
    ends = {one.place for one in parts.applied}
    between = by_kernel(one for one in (*parts.statistics, *parts.roots) if one.place not in ends)
    return Group(
        "norm",
        "split",
        tuple(one for _, one in parts.all),
        parts.all,
        spelled(parts.statistics[0].instr),
        total(product(one.times, one.bytes) for one in between),
        (),
        ("the statistic is computed once", parts.spread()),
        parts.statistics[0].instr,
    )
