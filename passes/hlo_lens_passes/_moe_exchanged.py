"""Expert blocks of fixed capacity whose slots are exchanged between devices.

Behind an all-to-all an array has other axes: slots of the experts of this device, from all. So
here the products between dispatch and combine are told by dataflow alone: both take masks of one
router's choice, the first sums over the tokens and the last has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_lens_passes._moe_axes import Axis
    from hlo_lens_passes._moe_products import Product, Products
    from hlo_lens_passes._moe_routing import Routing

EXCHANGES: Final = frozenset(("all-to-all", "ragged-all-to-all"))
# A block has two or three products in its forward.
_MOST_PRODUCTS: Final = 8


@dataclass(frozen=True, slots=True)
class Exchanged:
    """forward: numbers of the products between; gradients: of those that take what they take;
    moves: what dispatches and combines; router: the number of the router."""

    forward: tuple[int, ...]
    gradients: tuple[int, ...]
    moves: dict[int, str]
    router: int


def find_exchanged(
    products: Products,
    routing: Routing,
    combine: Product,
    mine: int,
    yours: int,
    tokens: frozenset[Axis],
) -> Exchanged | None:
    """The block that a product combines: `mine` its operand that may come from experts, `yours`
    its mask, which has the axes of the tokens; None where it combines none."""
    router = routing.latest(yours)
    if router is None:
        return None
    forward: list[int] = []
    masks: set[int] = set()
    waiting = [mine]
    while waiting and len(forward) <= _MOST_PRODUCTS:
        for one in products.sources(waiting.pop(), through=EXCHANGES):
            product = products.found.get(one)
            if product is None or not product.rows or product.number in forward:
                continue
            cut = products.cut(product)
            if tokens & cut.summed:
                masks |= {n for n in product.operands if _is_mask(routing, n, router)}
            elif not tokens & cut.all:
                forward.append(product.number)
                waiting += product.operands
    if not masks or not forward or len(forward) > _MOST_PRODUCTS:
        return None
    masks.add(yours)
    taken = {base for one in forward for base in _bases(products, products.found[one])}
    gradients = [
        one.number
        for one in products.taking(taken)
        if one.rows and one.number not in forward and not tokens & products.cut(one).all
    ]
    unviewed = {products.numbers.unviewed(one) for one in masks}
    moves = {
        one.number: "dispatch" if tokens & products.cut(one).summed else "combine"
        for one in products.taking(unviewed)
        if one is combine or tokens & products.cut(one).all
    }
    return Exchanged(tuple(forward), tuple(gradients), moves, router)


def _is_mask(routing: Routing, number: int, router: int) -> bool:
    return routing.latest(number) == router


def _bases(products: Products, product: Product) -> Iterator[int]:
    """The arrays it takes."""
    for operand in product.operands:
        base = products.numbers.unviewed(operand)
        if not products.flow.is_constant(base):
            yield base
