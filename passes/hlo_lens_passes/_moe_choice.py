"""Expert choice: a router by which each expert chooses tokens, and not each token experts.

What tells is along which axis it chooses: that of the rows that a steered gather takes, or that a
dispatch sums over, is of tokens (arXiv 2202.09368, "Mixture-of-Experts with Expert Choice
Routing"). Sizes tell nothing: there may be as many tokens as experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_clusters import size_along

if TYPE_CHECKING:
    from hlo_lens_passes._moe_block import Block
    from hlo_lens_passes._moe_products import Products
    from hlo_lens_passes._moe_routing import Router, Routing


@dataclass(frozen=True, slots=True)
class Choice:
    """How many experts choose among how many tokens."""

    experts: int
    tokens: int


def experts_choose(products: Products, routing: Routing, block: Block) -> Choice | None:
    """The numbers of a block whose experts choose; None where tokens do, or it is not known."""
    router = None if block.router is None else routing.routers[block.router]
    if router is None or not router.chosen or not _chooses_rows(products, routing, block, router):
        return None
    for number in router.products:
        product = products.found[number]
        cut = products.cut(product)
        for mine, yours in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
            if router.chosen <= cut.lhs | cut.rhs and router.chosen & products.leaves(mine):
                experts = size_along(yours, products.leaves(yours))
                tokens = size_along(mine, products.leaves(mine))
                if experts * tokens == router.experts * router.tokens:
                    return Choice(experts, tokens)
    return Choice(router.tokens, router.experts)


def _chooses_rows(products: Products, routing: Routing, block: Block, router: Router) -> bool:
    for number, role in block.moves.items():
        if role == "dispatch" and router.chosen <= products.cut(products.found[number]).summed:
            return True
    for moved in routing.moved_by.get(router.number, ()):
        if moved.kind == "gather" and moved.operands and _fills(products, block, moved.number):
            rows = products.flow.varies_in(moved.operands[0])
            if rows is not None and router.chosen <= rows:
                return True
    return False


def _fills(products: Products, block: Block, number: int) -> bool:
    """Whether a gather gives rows that a product of the block takes."""
    base = products.numbers.unviewed(number)
    return any(
        base in products.sources(operand)
        for member in block.members
        if member in products.found
        for operand in products.found[member].operands
    )
