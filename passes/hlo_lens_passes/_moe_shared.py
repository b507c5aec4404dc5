"""Shared experts: a gated MLP that every token goes through, added to what its experts give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._moe_axes import leaves

if TYPE_CHECKING:
    from hlo_lens_passes._moe_block import Block
    from hlo_lens_passes._moe_products import Product, Products
    from hlo_lens_passes._moe_routing import Routing

_MOST_ADDS: Final = 4
# Operations between the products of a gated MLP, and those of the router beside them.
_MOST_WALKED: Final = 512


class Shared:
    """Looks for the shared experts of the blocks of one module."""

    def __init__(self, products: Products, routing: Routing) -> None:
        self.products = products
        self.numbers = products.numbers
        self.routing = routing
        self._users: dict[int, list[int]] | None = None

    def of(self, block: Block) -> list[int] | None:
        """The numbers of their products, the last one behind the others; None where there is no
        router, whose tokens they would share. They take the array that the router takes."""
        router = self.routing.routers.get(block.router) if block.router is not None else None
        if router is None:
            return None
        found = self.products.found
        taken = {
            self.numbers.unviewed(operand)
            for one in router.products
            for operand in found[one].operands
        }
        first = {
            one.number
            for one in self.products.taking(taken)
            if one.rows and one.number not in block.members
        }
        for last in self._behind(first, block):
            # One that is cut along its sum gives its result where the parts are added up.
            gives = self.products.summed_up.get(last.number, [])
            if self._is_added([last.number, *gives], router.number):
                of = {one for operand in last.operands for one in self.products.sources(operand)}
                return [*sorted(of & first), last.number]
        return []

    def width(self, last: int) -> int:
        """How wide the hidden layer is."""
        size = 1
        for axis in leaves(self.products.found[last].summed):
            size *= axis.size
        return size

    def _behind(self, first: set[int], block: Block) -> Iterator[Product]:
        """Products that take what the first ones give, element by element, and nothing else."""
        for number in self._takers(first):
            one = self.products.found[number]
            if not one.rows or one.number in block.members or one.number in first:
                continue
            for operand in one.operands:
                sources = self.products.sources(operand)
                products = {n for n in sources if n in self.products.found}
                bent = any(way[:1] != "[" for ways in sources.values() for way in ways)
                if products and products <= first and bent:
                    yield one

    def _takers(self, first: set[int]) -> list[int]:
        """Products of what the first ones give, that are not many operations away."""
        waiting = sorted(first)
        seen = set(waiting)
        for number in waiting:  # grows while it is walked
            for user in self._users_of(number):
                if user not in seen and len(seen) < _MOST_WALKED:
                    seen.add(user)
                    if user not in self.products.found and self.products.hands_on(user):
                        waiting.append(user)
        return sorted(number for number in seen - first if number in self.products.found)

    def _is_added(self, numbers: list[int], router: int) -> bool:
        """Whether one of them is added to what depends on the router's choice."""
        waiting = [(number, 0) for number in numbers]
        seen: set[int] = set()
        while waiting:
            one, adds = waiting.pop()
            if one in seen or adds > _MOST_ADDS:
                continue
            seen.add(one)
            for user in self._users_of(one):
                node = self.numbers[user]
                if node.kind == "add":
                    others = [operand for operand in node.operands if operand != one]
                    if any(self.routing.latest(other) == router for other in others):
                        return True
                    waiting.append((user, adds + 1))
                elif node.kind in ("all-reduce", "reduce-scatter", "view"):
                    waiting.append((user, adds))
        return False

    def _users_of(self, number: int) -> list[int]:
        if self._users is None:
            self._users = {}
            for user in range(len(self.numbers)):
                for operand in self.numbers[user].operands:
                    self._users.setdefault(operand, []).append(user)
        return self._users.get(number, [])
