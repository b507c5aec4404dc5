"""Expert blocks of ragged products (see ragged_dots): which of them are of one layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_block import Block
from hlo_lens_passes._moe_clusters import Links

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Products
    from hlo_lens_passes._moe_routing import Routing


def ragged_blocks(products: Products, routing: Routing) -> Iterator[Block]:
    """Blocks of ragged products: those that share an array or take what another gives."""
    links = Links({number: {*_ragged_links(products, number)} for number in products.ragged})
    placed: set[int] = set()
    for number in products.ragged:
        if number in placed:
            continue
        members = {one for one in links.reached(number) if one in products.ragged}
        placed |= members
        routers = [
            router
            for one in sorted(members)
            for operand in products.ragged_operands[one]
            if (router := routing.latest(operand)) is not None
        ]
        rows = [row for one in members for row in products.ragged[one]]
        groups = [row["groups"] for row in rows if isinstance(row["groups"], int)]
        block = Block("ragged", dict.fromkeys(sorted(members), "product"))
        block.router = min(routers, default=None)
        block.experts = max(groups, default=None)
        block.told = ["ragged products", *(["top-k of scores"] if routers else [])]
        yield block


class Combines:
    """What sums the rows that the experts give, put back, for each token."""

    def __init__(self, products: Products) -> None:
        self._order = {number: at for at, number in enumerate(products.found)}
        # By the numbers of ragged products whose rows are put back.
        self._behind: dict[int, set[int]] = {}
        for product in products.found.values() if products.ragged else ():
            if not products.cut(product).summed:
                continue
            moves = {one for operand in product.operands for one in products.sources(operand)}
            for one in moves:
                node = products.numbers[one]
                at = {"gather": 0, "scatter": 2}.get(node.kind)
                if at is None or at >= len(node.operands):
                    continue
                for source in products.sources(node.operands[at]).keys() & products.ragged.keys():
                    self._behind.setdefault(source, set()).add(product.number)

    def of(self, block: Block) -> list[int]:
        """The numbers of the products."""
        found = {one for number in block.forward for one in self._behind.get(number, ())}
        return sorted(found - block.members.keys(), key=self._order.__getitem__)


def _ragged_links(products: Products, number: int) -> Iterator[tuple[str, int]]:
    """See `_links`. What the last product of a layer gives, the next layers may take as it is."""
    for operand in products.ragged_operands[number]:
        base = products.numbers.unviewed(operand)
        if _is_array(products, base):
            yield "array", base
        for one, ways in products.sources(operand).items():
            if one in products.ragged:
                if not _is_last(products, one):
                    yield "product", one
            elif products.numbers[one].kind == "argument" or any(w[:1] == "[" for w in ways):
                continue  # weights of all layers in one array, or what goes past the layers
            elif _is_array(products, one):
                yield "array", one


def _is_last(products: Products, number: int) -> bool:
    """Whether no product of its own layer takes what it gives: it leaves the layer, forward or
    backward."""
    row = products.ragged[number][0]
    return (row["role"], direction_of(row)) in (("wo", "fwd"), ("wi", "dgrad"))


def direction_of(row: Mapping[str, object]) -> object:
    """What a ragged product computes in the step: its class, but where weights are stored the
    other way round."""
    return row["direction"] or row["class"]


def _is_array(products: Products, number: int) -> bool:
    """Whether it is more than a list of numbers, such as sizes of groups, which unrelated products
    may share."""
    axes = products.flow.known(number)
    return not products.flow.is_constant(number) and axes is not None and len(axes) > 1
