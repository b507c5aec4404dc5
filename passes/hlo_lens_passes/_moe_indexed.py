"""Expert blocks of fixed capacity whose rows are put into slots by index, with no mask: a gather or
scatter that a router steers fills the rows of a product with a matrix for each expert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_block import Block
from hlo_lens_passes._moe_clusters import cluster, is_expert, size_along

if TYPE_CHECKING:
    from hlo_lens_passes._moe_axes import Axis
    from hlo_lens_passes._moe_products import Product, Products
    from hlo_lens_passes._moe_routing import Router, Routing


def find_indexed(
    products: Products, routing: Routing, placed: set[int], phases: Mapping[int, str | None]
) -> Iterator[Block]:
    """The blocks among the products that are in none yet. phases: of each row of matmuls, by
    instruction."""
    steered = {
        products.numbers.unviewed(one.number): one.router
        for one in routing.moved
        if one.kind in ("gather", "scatter") and one.router is not None
    }
    placed = set(placed)
    for product in products.found.values() if steered else ():
        backward = any(phases.get(instr.id) == "bwd" for instr in product.instrs)
        if backward or not product.rows or product.number in placed:
            continue
        cut = products.cut(product)
        for mine, yours, free, axes in (
            (product.left, product.right, cut.lhs, product.lhs),
            (product.right, product.left, cut.rhs, product.rhs),
        ):
            router = _router(products, routing, steered, mine)
            if router is None or not _is_weights(products, yours):
                continue
            # A device may have some of the experts only.
            local = size_along(product.batch, cut.batch)
            if local < 2 or router.experts % local or not free:
                continue
            if is_expert(cut, cut.batch, free):
                block = _block(products, product, router, free, size_along(axes, free))
                placed |= block.members.keys()
                yield block
                break


def _is_weights(products: Products, number: int) -> bool:
    """Whether no product gives it: queries of attention meet keys that are chosen, too."""
    return products.found.keys().isdisjoint(products.sources(number))


def _router(
    products: Products, routing: Routing, steered: Mapping[int, int | None], rows: int
) -> Router | None:
    """The router that fills the rows of an operand."""
    found = [
        router
        for one in products.sources(rows)
        if (router := steered.get(products.numbers.unviewed(one))) is not None
    ]
    return routing.routers[max(found)] if found else None


def _block(
    products: Products, product: Product, router: Router, slots: frozenset[Axis], capacity: int
) -> Block:
    experts = products.cut(product).batch
    local = size_along(product.batch, experts)
    members, joined = cluster(products, product.number, experts, slots, frozenset())
    told = ["top-k of scores", f"rows put into {local} experts of {capacity} slots"]
    return Block(
        "fixed_capacity", members, joined, {}, {product.number}, router.number,
        local, router.tokens, capacity, told, among=router.tokens,
    )  # fmt: skip
