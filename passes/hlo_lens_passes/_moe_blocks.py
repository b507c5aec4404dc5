"""Expert blocks: products with a matrix for each expert, tied to a choice that each token makes.

**dense_masked**: what combines is a sum over experts, of results for every token and expert, times
an array with one number a token and expert and nothing else. **fixed_capacity**: what combines sums
over experts and slots, times an array of tokens, experts and slots; an array of the same origin
puts the tokens into the slots. **ragged**: the products of ragged_dots. In the first two the choice
is a router's or an argument of the program: with weights in its place this would be another layer,
such as the projections of attention. A mixture of all experts, without a choice, is none of these.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_axes import Axis
from hlo_lens_passes._moe_block import Block
from hlo_lens_passes._moe_clusters import cluster, is_expert, size_along
from hlo_lens_passes._moe_exchanged import find_exchanged
from hlo_lens_passes._moe_indexed import find_indexed
from hlo_lens_passes._moe_ragged import Combines, ragged_blocks
from hlo_lens_passes._moe_roles import name_members

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Cut, Product, Products
    from hlo_lens_passes._moe_routing import Routing


def find_blocks(
    products: Products, routing: Routing, phases: Mapping[int, str | None]
) -> list[Block]:
    """The blocks of a module. phases: of each row of matmuls, by instruction."""
    found = [*ragged_blocks(products, routing)]
    placed: set[int] = set()
    for product in products.found.values():
        if any(phases.get(instr.id) == "bwd" for instr in product.instrs):
            continue  # a sum over features times a cotangent looks alike
        cut = products.cut(product)
        for mine, yours, one in ((product.left, product.right, cut),
                                 (product.right, product.left, cut.turned)):  # fmt: skip
            block = _Search(products, routing, product, mine, yours, one).run(placed)
            if block is not None:
                placed |= block.members.keys()
                found.append(block)
                break
    found += find_indexed(products, routing, placed, phases)
    combines = Combines(products)
    for block in found:
        name_members(products, block)
        if block.path == "ragged":
            block.moves = dict.fromkeys(combines.of(block), "combine")
    return found


@dataclass(slots=True)
class _Search:
    """Whether a product combines: `mine` its operand that may come from experts, `yours` the other
    one, `cut` with `mine` as the left operand."""

    products: Products
    routing: Routing
    product: Product
    mine: int
    yours: int
    cut: Cut

    def run(self, placed: set[int]) -> Block | None:
        cut = self.cut
        if not cut.summed or not cut.lhs:
            return None
        if not cut.rhs:
            return self._dense(placed) if cut.batch or self._is_one_token() else None
        return self._capacity(placed) if len(cut.summed) > 1 else None

    def _is_one_token(self) -> bool:
        """Whether the sum goes over the experts of a router that chooses for one token, which has
        no axis."""
        router = self.routing.routers.get(self.routing.latest(self.yours) or -1)
        return (
            router is not None
            and router.tokens == 1
            and router.experts == size_along(self.product.summed, self.cut.summed)
        )

    def _dense(self, placed: set[int]) -> Block | None:
        experts, tokens, features = self.cut.summed, self.cut.batch, self.cut.lhs
        choice = self._choice((self.yours,))
        if choice is None:
            return None
        for start in self.products.sources(self.mine, along=experts):
            product = self.products.found.get(start)
            if product is None or not product.rows or start in placed:
                continue
            cut = self.products.cut(product)
            gives = experts <= cut.result and features & cut.result
            if not gives or not is_expert(cut, experts, tokens):
                continue
            members, joined = cluster(self.products, start, experts, tokens, frozenset())
            if self._are_heads(start, members, experts):
                continue
            count, rows = (
                size_along(self.product.summed, experts),
                size_along(self.product.batch, tokens),
            )
            told = [choice[1], f"combine sums over {count} experts"]
            return Block(
                "dense_masked", members, joined, {self.product.number: "combine"}, {start},
                choice[0], count, rows, None, told,
            )  # fmt: skip
        return None

    def _are_heads(self, start: int, members: Container[int], axes: frozenset[Axis]) -> bool:
        """Whether the products take, for each expert, what a product of no matrix of experts gives:
        values of attention, whose heads a router may choose, too."""
        return any(
            product.rows and cut.summed and axes <= cut.batch
            for product, cut in self._feeding(start, members, axes)
        )

    def _feeding(
        self, start: int, members: Container[int], along: frozenset[Axis]
    ) -> Iterator[tuple[Product, Cut]]:
        """The products outside of the members that what these take is made of, along these axes;
        from the last member back."""
        waiting, seen = [start], {start}
        while waiting:
            for operand in self.products.found[waiting.pop()].operands:
                for one in self.products.sources(operand, along=along):
                    product = self.products.found.get(one)
                    if product is None or one in seen:
                        continue
                    seen.add(one)
                    if one in members:
                        waiting.append(one)
                    else:
                        yield product, self.products.cut(product)

    def _capacity(self, placed: set[int]) -> Block | None:
        for start in self.products.sources(self.mine, along=self.cut.summed):
            product = self.products.found.get(start)
            if product is None or not product.rows or start in placed:
                continue
            cut = self.products.cut(product)
            experts = cut.batch & self.cut.summed
            slots = self.cut.summed - experts
            tokens = self.cut.rhs
            if not experts or not slots or tokens & cut.all:
                continue
            if not is_expert(cut, experts, slots):
                continue
            members, joined = cluster(self.products, start, experts, slots, tokens)
            dispatch = self._dispatch(start, members, experts | slots, tokens)
            if dispatch is None:
                continue
            other = dispatch.right if self.products.cut(dispatch).rhs & slots else dispatch.left
            choice = self._choice((self.yours, other))
            if choice is None:
                continue
            count, each = (
                size_along(self.product.summed, experts),
                size_along(self.product.summed, slots),
            )
            among = self._tokens()
            rows = among * size_along(self.product.batch, self.cut.batch)
            moves = dict(self._moves(experts | slots, tokens))
            told = [choice[1], f"dispatch into {count} experts of {each} slots"]
            return Block(
                "fixed_capacity", members, joined, moves, {start},
                choice[0], count, rows, each, told, among=among,
            )  # fmt: skip
        return self._exchanged(placed)

    def _tokens(self) -> int:
        """How many tokens share the slots: those that only the mask has."""
        free = self.product.rhs if self.yours == self.product.right else self.product.lhs
        return size_along(free, self.cut.rhs)

    def _exchanged(self, placed: set[int]) -> Block | None:
        found = find_exchanged(
            self.products, self.routing, self.product, self.mine, self.yours, self.cut.rhs
        )
        if found is None or placed & {*found.forward}:
            return None
        router = self.routing.routers[found.router]
        slots = size_along(self.product.summed, self.cut.summed)
        if slots % router.experts:
            return None
        members, joined = dict.fromkeys((*found.forward, *found.gradients), "product"), set[int]()
        count, capacity = None, slots // router.experts
        start = self.products.found[found.forward[0]]
        if size_along(start.batch, self.products.cut(start).batch) == router.experts:
            # All experts are here: masks whose slots are padded tell more than there are.
            rows = self._rows_of(start, router.number)
            count, capacity = router.experts, size_along([*start.lhs, *start.rhs], rows)
            experts = self.products.cut(start).batch
            members, joined = cluster(self.products, start.number, experts, rows, self.cut.rhs)
            found.moves.update(self._moves(experts | rows, self.cut.rhs))
        told = ["top-k of scores", f"{router.experts} experts of {capacity} slots"]
        return Block(
            "fixed_capacity", members, joined, found.moves, {*found.forward},
            found.router, count, router.tokens, capacity, told, among=self._tokens(),
        )  # fmt: skip

    def _rows_of(self, product: Product, router: int) -> frozenset[Axis]:
        """The axes that only the operand has that depends on the router's choice."""
        cut = self.products.cut(product)
        return cut.lhs if self.routing.latest(product.left) == router else cut.rhs

    def _dispatch(
        self, start: int, members: Container[int], slots: frozenset[Axis], tokens: frozenset[Axis]
    ) -> Product | None:
        """What the products take, from the last one back: it sums over the tokens, and has experts
        and slots of one operand alone."""
        return next(
            (
                product
                for product, cut in self._feeding(start, members, slots)
                if tokens & cut.summed and (slots <= cut.lhs or slots <= cut.rhs)
            ),
            None,
        )

    def _moves(self, slots: frozenset[Axis], tokens: frozenset[Axis]) -> Iterator[tuple[int, str]]:
        """Products of tokens and slots, gradients too."""
        for product in self.products.having(slots):
            cut = self.products.cut(product)
            # A sum of a mask's choices is no matmul, and moves no rows.
            if tokens & cut.all and (product.rows or cut.summed & (tokens | slots)):
                yield product.number, "dispatch" if tokens & cut.summed else "combine"

    def _choice(self, arrays: tuple[int, ...]) -> tuple[int | None, str] | None:
        """(the router, in words) of arrays that say which token goes to which expert; None where
        nothing tells that they do."""
        routers = {self.routing.latest(one) for one in arrays}
        if None not in routers and len(routers) == 1:
            return routers.pop(), "top-k of scores"
        sources = [self.products.sources(one) for one in arrays]
        common = set.intersection(*(set(one) for one in sources))
        arguments = {one for one in common if self.products.numbers[one].kind == "argument"}
        if arguments and all(set(one) <= arguments for one in sources):
            return None, "routing is an argument"
        return None
