"""Rotary embeddings: tables of cosines and sines computed again, rotations over several kernels.

A table is a cosine and a sine of one argument that is an array. A rotation multiplies parts of one
array with both; XLA writes a concatenation as the maximum of two padded arrays, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._duplicate_occurrences import (
    Group,
    Occurrence,
    Places,
    by_branch,
    bytes_beyond_first,
    for_memory,
    in_loops,
    is_repeated,
    repeating_phases,
    spelled,
    total,
)

if TYPE_CHECKING:
    from hlo_lens.analysis.values import Number, Numbers

# What parts of an array are made with, and put together again.
_REARRANGES: Final = frozenset(
    ("broadcast", "concatenate", "convert", "negate", "pad", "slice", "view")
)


def ropes(places: Places) -> Iterator[Group]:
    """Tables, then rotations by them."""
    tables = _tables(places)
    for waves in tables.values():
        for branch in dict.fromkeys(one.branch for ones in waves.values() for one in ones):
            at = {
                opcode: [one for one in ones if one.branch == branch]
                for opcode, ones in waves.items()
            }
            if any(is_repeated(ones) for ones in at.values() if ones):
                yield _again(at)
    if tables:
        marks = {
            one.number: opcode
            for waves in tables.values()
            for opcode, ones in waves.items()
            for one in ones
        }
        yield from _rotations(places, marks)


def _tables(places: Places) -> dict[int, dict[str, list[Occurrence]]]:
    """By argument, its cosines and sines: of arrays that have both."""
    found: dict[int, dict[str, list[Occurrence]]] = {}
    for number, ones in places.find(("cosine", "sine")).items():
        node = places.numbers[number]
        if node.kind not in ("cosine", "sine") or not node.operands or _is_scalar(ones[0]):
            continue
        argument = places.numbers.unviewed(node.operands[0])
        found.setdefault(argument, {}).setdefault(node.kind, []).extend(ones)
    return {argument: waves for argument, waves in found.items() if len(waves) == 2}


def _is_scalar(one: Occurrence) -> bool:
    try:
        return one.instr.shape.element_count == 1
    except ValueError:
        return True


def _again(waves: dict[str, list[Occurrence]]) -> Group:
    ones = [one for wave in waves.values() for one in wave]
    first = ones[0]
    evidence = ["cosine and sine of one argument"]
    if in_loops(ones):
        evidence.append("the argument does not change in the loop")
    evidence += for_memory(ones)
    blamed = [phase for wave in waves.values() for phase in repeating_phases(wave)]
    beyond = [bytes_beyond_first(wave) for wave in waves.values() if wave]
    return Group(
        "rope",
        "recomputed",
        tuple(ones),
        tuple((one.instr.opcode, one) for one in ones),
        spelled(first.instr),
        total(beyond),
        tuple(dict.fromkeys(blamed)),
        tuple(evidence),
        first.instr,
        any(one.phase is None for one in ones),
    )


# -- rotations ------------------------------------------------------------------------------------


def _rotations(places: Places, marks: dict[int, str]) -> Iterator[Group]:
    """Arrays that more than one kernel of a phase multiplies with the tables, by array."""
    numbers = places.numbers
    rotated = _rotated(numbers, marks)
    wanted = {number for products in rotated.values() for number in products}
    found = places.find(("multiply",), wanted.__contains__)
    for products in rotated.values():
        ones = [one for number in sorted(products) for one in found.get(number, ())]
        if len(set(products.values())) < 2:
            continue  # no rotation takes the cosine alone
        for together in by_branch(ones):
            yield from _split(together, products)


def _split(ones: Sequence[Occurrence], products: dict[int, str]) -> Iterator[Group]:
    for phase in dict.fromkeys(one.phase for one in ones):
        here = [one for one in ones if one.phase == phase]
        kernels = {one.place for one in here}
        if len(kernels) < 2:
            continue
        numbers = {one.number for one in here}
        twice = sum(
            len({one.place for one in here if one.number == number}) > 1 for number in numbers
        )
        evidence = [f"{len(numbers)} products of one array with cosines and sines"]
        if twice:
            evidence.append(f"{twice} of them in several kernels")
        yield Group(
            "rope",
            "split",
            tuple(here),
            tuple((f"by_{products[one.number]}", one) for one in here),
            spelled(here[0].instr),
            None,
            (),
            tuple(evidence),
            here[0].instr,
        )


def _rotated(numbers: Numbers, marks: dict[int, str]) -> dict[int, dict[int, str]]:
    """By array, the numbers of products of its parts, and by what they are."""
    waves = dict(marks)
    found: dict[int, dict[int, str]] = {}
    for number in range(len(numbers)):
        node = numbers[number]
        if number in marks:
            continue
        if _is_part(numbers, node):
            of = {waves.get(one) for one in _parts(numbers, node)}
            if len(of) == 1 and (wave := of.pop()) is not None:
                waves[number] = wave
        elif node.kind == "multiply" and len(node.operands) == 2:
            for one, other in (node.operands, node.operands[::-1]):
                at = waves.get(other) or waves.get(numbers.unviewed(other))
                if at is not None and one not in waves:
                    base = _base(numbers, one)
                    if base is not None:
                        found.setdefault(base, {})[number] = at
    return found


def _is_part(numbers: Numbers, node: Number) -> bool:
    if node.kind == "maximum":
        return all(numbers[one].kind == "pad" for one in node.operands)
    return node.kind in _REARRANGES and bool(node.operands)


def _parts(numbers: Numbers, node: Number) -> tuple[int, ...]:
    """The arrays that a rearrangement takes its elements from."""
    return node.operands if node.kind in ("concatenate", "maximum") else node.operands[:1]


def _base(numbers: Numbers, number: int) -> int | None:
    """The one array that this is made of parts of; None where there are several."""
    found = {number}
    seen: set[int] = set()
    while found - seen:
        at = max(found - seen)
        seen.add(at)
        node = numbers[at]
        if _is_part(numbers, node):
            found.discard(at)
            found.update(_parts(numbers, node))
    return found.pop() if len(found) == 1 else None
