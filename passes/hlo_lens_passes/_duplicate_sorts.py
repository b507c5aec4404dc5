"""Sorts by the same keys, and sorts that do nothing but turn the order of another sort around."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import consumers
from hlo_lens.hlo import Instruction
from hlo_lens_passes._duplicate_occurrences import (
    Group,
    Occurrence,
    Places,
    by_branch,
    by_kernel,
    bytes_beyond_first,
    for_memory,
    in_loops,
    is_repeated,
    named,
    plain,
    product,
    repeating_phases,
    spelled,
    total,
)

if TYPE_CHECKING:
    from hlo_lens.analysis.values import Number, Numbers

# Calls of CUB's radix sort, in both spellings; the keys are operand 0. Source: XLA,
# xla/service/gpu/cublas_cudnn.h and transforms/sort_rewriter.cc.
_RADIX: Final = re.compile(r"custom-call (__cub\$DeviceRadixSort|xla\.gpu\.ext\.cub_sort)")
_DIMENSION: Final = re.compile(r"dimension(?:s=\{|=)(\d*)")
_STABLE: Final = re.compile(r", is_stable=\w+")

Key = Hashable
_ORDER: Final = "order"


def sorts(places: Places) -> Iterator[Group]:
    """Sorts by equal keys, then sorts of an order that another has made."""
    numbers = places.numbers
    found = places.find(("custom-call", "sort"), lambda number: _is_sort(numbers[number]))
    keys = _Keys(numbers, found)
    together: dict[Key, list[Occurrence]] = {}
    for number, occurrences in found.items():
        together.setdefault(keys.of_sort[number], []).extend(occurrences)
    for key, occurrences in together.items():
        for ones in by_branch(occurrences):
            if is_repeated(ones):
                yield _again(places, ones)
        if key in keys.turned:
            for ones in by_branch(occurrences):
                yield _turned(places, keys, key, together, ones)


def _is_sort(node: Number) -> bool:
    return node.kind == "sort" or _RADIX.match(node.kind) is not None


class _Keys:
    """What each sort sorts by: equal for two that put everything in the same order.

    of_sort: by number of the sort. turned: for the key of a sort that is ascending in the order
    that another sort gives, the key of that other; the two are each other's inverse.
    """

    def __init__(self, numbers: Numbers, found: dict[int, list[Occurrence]]) -> None:
        self.numbers = numbers
        self.of_sort: dict[int, Key] = {}
        self.turned: dict[Key, Key] = {}
        self._forms: dict[Key, int] = {}
        for number in sorted(found):  # what one takes from another has the smaller number
            self._read(number)

    def _read(self, number: int) -> None:
        node = self.numbers[number]
        arrays, comparator = _taken_apart(node)
        if comparator is None:
            by = [self.value(one) for one in arrays[:1]] if node.kind != "sort" else arrays
            key: Key = (node.kind, node.detail, tuple(by))
            rises = False
        else:
            form, used, rises = self._comparator(comparator, arrays)
            by = [self.value(arrays[k]) for k in used if not self._is_iota(node, arrays[k])]
            key = (node.kind, _STABLE.sub("", _attributes(node)), form)
        self.of_sort[number] = key
        if rises and len(by) == 1 and isinstance(by[0], tuple) and by[0][0] == _ORDER:
            self.turned[key] = by[0][1]

    def value(self, number: int) -> Key:
        """An array that is sorted by: (`order`, key) for the order that another sort gives, so
        that it does not matter what else the other sorts along."""
        number = self.numbers.unviewed(number)
        node = self.numbers[number]
        source = node.operands[0] if node.kind == "element" else -1
        if source in self.of_sort and isinstance(node.detail, int):
            sort = self.numbers[source]
            arrays, _ = _taken_apart(sort)
            if node.detail < len(arrays) and self._is_iota(sort, arrays[node.detail]):
                return _ORDER, self.of_sort[source]
        return number

    def _is_iota(self, sort: Number, number: int) -> bool:
        """Whether an array counts along the dimension that is sorted."""
        node = plain(self.numbers, number)
        if node.kind != "iota":
            return False
        along, counts = _DIMENSION.search(_attributes(sort)), _DIMENSION.search(_attributes(node))
        return counts is None or along is None or along[1] == counts[1]

    def _comparator(self, comparator: int, arrays: Sequence[int]) -> tuple[int, list[int], bool]:
        """A number for the order that a comparator puts arrays in, which of the arrays it looks at,
        and whether it is ascending in the first."""
        forms: dict[int, int] = {}
        used: dict[int, None] = {}
        rises = False
        for number in _below(self.numbers, comparator):
            node = self.numbers[number]
            form: Key = (node.kind, node.detail, tuple(forms[one] for one in node.operands))
            if node.kind == "argument" and isinstance(node.detail, tuple):
                position = node.detail[1]
                if isinstance(position, int) and position // 2 < len(arrays):
                    used.setdefault(position // 2)
                    form = ("of", self.value(arrays[position // 2]), position % 2)
            forms[number] = self._forms.setdefault(form, len(self._forms))
            rises = rises or self._rises(node)
        return forms[comparator], sorted(used), rises

    def _rises(self, node: Number) -> bool:
        """Whether it asks if the first of two is less, as an ascending sort does."""
        given = [self.numbers[one].detail for one in node.operands]
        if node.kind != "compare" or len(given) != 2:
            return False
        positions = [one[1] for one in given if isinstance(one, tuple) and len(one) == 2]
        less, greater = (word in repr(node.detail) for word in ("LT", "GT"))
        return (positions == [0, 1] and less) or (positions == [1, 0] and greater)


def _attributes(node: Number) -> str:
    return str(node.detail[0]) if isinstance(node.detail, tuple) and node.detail else ""


def _taken_apart(node: Number) -> tuple[tuple[int, ...], int | None]:
    """The arrays that a sort takes, and its comparator."""
    given = node.detail[2] if isinstance(node.detail, tuple) and len(node.detail) > 2 else ()
    count = len(given) if isinstance(given, tuple) else len(node.operands)
    rest = node.operands[count:] if node.kind == "sort" else ()
    return node.operands[:count], rest[0] if rest else None


def _below(numbers: Numbers, number: int) -> list[int]:
    """A number and all that it is computed from; operands come first."""
    seen = {number}
    waiting = [number]
    while waiting:
        for operand in numbers[waiting.pop()].operands:
            if operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return sorted(seen)


# -- rows -----------------------------------------------------------------------------------------


def _again(places: Places, ones: Sequence[Occurrence]) -> Group:
    first = ones[0]
    evidence = ["equal keys, one comparator"]
    if len({one.number for one in ones}) > 1:
        evidence.append("they sort different arrays along")
    if in_loops(ones):
        evidence.append("the keys do not change in the loop")
    evidence += for_memory(ones)
    evidence += _for_scatter(places, ones)
    return Group(
        "sort",
        "recomputed",
        tuple(ones),
        tuple(("sort", one) for one in ones),
        spelled(first.instr),
        bytes_beyond_first(ones),
        tuple(repeating_phases(ones)),
        tuple(evidence),
        first.instr,
        any(one.phase is None for one in ones),
    )


def _turned(
    places: Places,
    keys: _Keys,
    key: Key,
    together: dict[Key, list[Occurrence]],
    ones: Sequence[Occurrence],
) -> Group:
    """A sort of an order gives the inverse of that order. Sorted once more, it gives it back."""
    source = keys.turned[key]
    shown = next((one for one in ones if one.phase != "remat"), ones[0])
    given = _beside(ones, together.get(source, []))
    evidence = [f"sorts the order that {_named_for(shown, given)} made"]
    members = [("inverse", one) for one in ones] + [("sort", one) for one in given]
    before = together.get(keys.turned[source], []) if source in keys.turned else []
    before = _beside(ones, before)
    if before:
        evidence.append(f"so it gives what {_named_for(shown, before)} gave")
        members += [("original", one) for one in before]
    blamed = [one.phase or "" for one in ones if one.phase != "remat"]
    return Group(
        "sort",
        "inverse",
        tuple(ones),
        tuple(members),
        spelled(ones[0].instr),
        total(product(one.times, one.bytes) for one in by_kernel(ones)),
        tuple(dict.fromkeys(blamed)),
        (*evidence, *_for_scatter(places, ones)),
        shown.instr,
    )


def _named_for(shown: Occurrence, others: Sequence[Occurrence]) -> str:
    """Names of those in the phase of the one that is shown, where there are any: a replay has its
    own."""
    of_phase = [other for other in others if other.phase == shown.phase] or others
    return named([other.instr for other in of_phase])


def _beside(ones: Sequence[Occurrence], others: list[Occurrence]) -> list[Occurrence]:
    """Those of the others that stand where these do, in the same loop; all, where none does."""
    around = {one.place[0] for one in ones}
    return [other for other in others if other.place[0] in around] or others


def _for_scatter(places: Places, ones: Sequence[Occurrence]) -> list[str]:
    """Sorts of the indices of a scatter, as XLA puts in front of one."""
    graph = places.analysis.graph
    scatters: list[Instruction] = []
    for one in ones:
        element = (0,) if one.instr.shape_text.startswith("(") else ()
        users = consumers(graph, one.instr, element)
        scatters += [user for user in users if user.opcode == "scatter"]
    return [f"sorts the indices of {named(scatters)}"] if scatters else []
