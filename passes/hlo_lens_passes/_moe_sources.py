"""What a value is made of, element by element, found once for all that are made of the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._moe_axes import Axis, is_elementwise

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Products

Ways = frozenset[str]
Found = Mapping[int, Ways]
_Place = tuple[int, bool]
"""A number, and whether a slice of it is taken."""

# What hands on its operand, or part of it, without computing.
_HANDED: Final = frozenset(
    (
        "all-gather", "all-reduce", "bitcast-convert", "broadcast", "concatenate", "dynamic-slice",
        "element", "global", "local", "pad",
        "reduce-scatter", "select", "slice", "view",
    )
)  # fmt: skip
# What is no longer linear in its operand, by a word for it.
_BENT: Final = {
    "divide": "divide", "erf": "bent", "exponential": "exponential", "logistic": "bent",
    "maximum": "bent", "select": "bent", "tanh": "bent",
}  # fmt: skip
_PARTS: Final = frozenset(("dynamic-slice", "slice"))
# On a way where no part is taken.
_WHOLE: Final = ""
# Of a sum of many layers the last ones count: those of the largest numbers.
_MOST_SOURCES: Final = 128


class Sources:
    """Sources of the values of one module. A value is made of what its operands are made of, so
    that what many layers add up is not walked for each of them."""

    def __init__(self, products: Products) -> None:
        self._products = products
        self._numbers = products.numbers
        self._flow = products.flow
        self._known: dict[tuple[frozenset[Axis], Ways], dict[_Place, Found]] = {}
        self._told: dict[tuple[int, frozenset[Axis], Ways], Found] = {}
        self._clean: dict[Ways, Ways] = {}

    def of(self, number: int, along: frozenset[Axis], through: frozenset[str]) -> Found:
        """See `Products.sources`."""
        key = (number, along, through)
        told = self._told.get(key)
        if told is None:
            known = self._known.setdefault((along, through), {})
            found = self._find((number, False), along, through, known)
            told = self._told[key] = {one: self._cleaned(ways) for one, ways in found.items()}
        return told

    def hands_on(self, number: int, through: frozenset[str] = frozenset()) -> bool:
        node = self._numbers[number]
        return node.kind in _HANDED or node.kind in through or is_elementwise(node.detail)

    def _cleaned(self, ways: Ways) -> Ways:
        found = self._clean.get(ways)
        if found is None:
            found = self._clean[ways] = ways - {_WHOLE}
        return found

    def _find(
        self,
        start: _Place,
        along: frozenset[Axis],
        through: frozenset[str],
        known: dict[_Place, Found],
    ) -> Found:
        waiting = [start]
        while waiting:
            place = waiting[-1]
            if place in known:
                waiting.pop()
                continue
            of = self._behind(place, along, through)
            missing = [one for one in of or () if one not in known]
            if missing:  # operands have smaller numbers: there is no circle
                waiting += missing
                continue
            waiting.pop()
            number = self._products.added.get(place[0], place[0])
            if of is None:
                known[place] = {number: frozenset((_WHOLE,))}
            else:
                known[place] = self._through(number, _joined([known[one] for one in of]))
        return known[start]

    def _behind(
        self, place: _Place, along: frozenset[Axis], through: frozenset[str]
    ) -> list[_Place] | None:
        """What a value is made of next; None where it is a source."""
        products = self._products
        number, sliced = products.added.get(place[0], place[0]), place[1]
        if self._flow.is_constant(number):
            return []
        product = products.computes(number)
        node = self._numbers[number]
        # Of several products that are joined to one, a slice has the axes, the whole has not.
        whole = sliced and (product or node.kind == "view")
        if along and not whole and not self._has(number, along):
            return []
        scale = number in products.found and not product
        if product or not (scale or self.hands_on(number, through)):
            return None
        of = node.operands[1:] if node.kind == "select" else node.operands
        if node.kind in ("dynamic-slice", "pad"):
            of = of[:1]
        part = bool(along) and (node.kind in _PARTS or (sliced and node.kind == "view"))
        return [(operand, part) for operand in of[::-1]]

    def _has(self, number: int, axes: frozenset[Axis]) -> bool:
        mine = self._flow.varies_in(number)
        return mine is None or axes <= mine

    def _through(self, number: int, found: Found) -> Found:
        """With what an operation does to all of it."""
        node = self._numbers[number]
        changed: dict[Ways, Ways] = {}
        if node.kind in _PARTS:
            mine = f"[{node.detail}"
            for ways in set(found.values()):
                # Of parts of parts the innermost counts.
                changed[ways] = ways - {_WHOLE} | {mine} if _WHOLE in ways else ways
        elif node.kind in _BENT:
            for ways in set(found.values()):
                changed[ways] = ways | {_BENT[node.kind]}
        else:
            return found
        return {one: changed[ways] for one, ways in found.items()}


def _joined(parts: Sequence[Found]) -> Found:
    parts = [part for part in parts if part]
    if len(parts) < 2 or all(part is parts[0] for part in parts[1:]):
        return parts[0] if parts else {}
    first, *others = sorted(parts, key=len, reverse=True)
    found = dict(first)
    for part in others:
        for one, ways in part.items():
            mine = found.get(one)
            if mine is not ways:
                found[one] = ways if mine is None else mine | ways
    return found if len(found) <= _MOST_SOURCES else _last(found)


def _last(found: Mapping[int, Ways]) -> Found:
    kept: Iterable[int] = sorted(found, reverse=True)[:_MOST_SOURCES]
    return {one: found[one] for one in kept}
