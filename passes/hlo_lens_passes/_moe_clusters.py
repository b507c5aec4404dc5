"""Which products of experts hang together, forward and backward."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_axes import Axis, leaves

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Cut, Products


def is_expert(cut: Cut, experts: frozenset[Axis], rows: frozenset[Axis]) -> bool:
    """Whether one array of a product is a matrix for each expert, and the two others have rows."""
    sides = (
        (cut.summed, cut.rhs, cut.lhs),  # the right operand has no rows
        (cut.summed, cut.lhs, cut.rhs),
        (cut.lhs, cut.rhs, cut.summed),  # nor has the result
    )
    for one, other, where in sides:
        matrix = cut.batch | one | other
        if not rows <= where or rows & matrix or not experts <= matrix:
            continue
        if one - experts and other - experts:
            return True
    return False


class Links:
    """What products hang together by: arrays and products."""

    def __init__(self, links: Mapping[int, Iterable[tuple[str, int]]]) -> None:
        """Of each product."""
        self._of = links
        self._by_link: dict[tuple[str, int], list[int]] = {}
        for number, mine in links.items():
            for link in (*mine, ("product", number)):
                self._by_link.setdefault(link, []).append(number)

    def reached(self, start: int) -> set[int]:
        """All that hangs together with `start`."""
        found: set[int] = set()
        waiting = [start]
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            for link in (*self._of.get(number, ()), ("product", number)):
                waiting += self._by_link.get(link, ())
                if link[0] == "product":
                    waiting.append(link[1])
        return found


class Clusters:
    """The products with a matrix for each expert, along the axes of experts and of their rows:
    which of them hang together. Layers may have the axes in common."""

    def __init__(
        self,
        products: Products,
        experts: frozenset[Axis],
        rows: frozenset[Axis],
        tokens: frozenset[Axis],
    ) -> None:
        self.candidates = {
            product.number: product
            for product in products.having(experts | rows)
            if product.rows
            and not (tokens & products.cut(product).all)
            and is_expert(products.cut(product), experts, rows)
        }
        self.links = Links(
            {
                number: _links(products, product.operands, experts, self.candidates)
                for number, product in self.candidates.items()
            }
        )
        # What takes a concatenation of which one array comes from a product: by that product.
        self.joined: dict[int, set[int]] = {}
        for product, parts in products.concatenated:
            for part in parts:
                for one in products.sources(part, along=experts):
                    self.joined.setdefault(one, set()).add(product.number)


def cluster(
    products: Products,
    start: int,
    experts: frozenset[Axis],
    rows: frozenset[Axis],
    tokens: frozenset[Axis],
) -> tuple[dict[int, str], set[int]]:
    """The products of experts that hang together with one: that share an operand, or of which one
    takes what another gives, element by element."""
    key = (experts, rows, tokens)
    found = products.clusters.get(key)
    if found is None:
        found = products.clusters[key] = Clusters(products, *key)
    members = found.links.reached(start)
    joined = members - found.candidates.keys()
    behind = {number for one in members for number in found.joined.get(one, ())} - members
    return dict.fromkeys([*members, *sorted(behind)], "product"), joined | behind


def _links(
    products: Products, operands: Iterable[int], along: frozenset[Axis], known: Container[int]
) -> set[tuple[str, int]]:
    """What a product hangs together with others by: the arrays it takes, and products before it."""
    found: set[tuple[str, int]] = set()
    for operand in operands:
        base = products.numbers.unviewed(operand)
        if not products.flow.is_constant(base):
            found.add(("array", base))
        for one in products.sources(operand, along=along):
            product = products.found.get(one)
            if product is not None and product.rows:
                number = product.number
                cut = products.cut(product)
                if number in known or not along <= cut.all:
                    found.add(("product", number))
    return found


def size_along(axes: Iterable[Axis], of: frozenset[Axis]) -> int:
    size = 1
    for axis in leaves(axes):
        if axis in of:
            size *= axis.size
    return size
