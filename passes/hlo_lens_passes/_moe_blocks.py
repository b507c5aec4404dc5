"""Expert blocks: products with a matrix for each expert, tied to a choice that each token makes.

**dense_masked**: what combines is a sum over experts, of results for every token and expert, times
an array with one number a token and expert and nothing else. **fixed_capacity**: what combines sums
over experts and slots, times an array of tokens, experts and slots; an array of the same origin
puts the tokens into the slots. **ragged**: the products of ragged_dots. In the first two the choice
is a router's, or softmax scores, or an argument of the program: with weights in its place this
would be another layer, such as the projections of attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens_passes._moe_axes import Axis, leaves
from hlo_lens_passes._moe_exchanged import find_exchanged

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Cut, Product, Products
    from hlo_lens_passes._moe_routing import Routing

Path = Literal["dense_masked", "fixed_capacity", "ragged"]
_SOFTMAX: Final = frozenset(("divide", "exponential"))


@dataclass(slots=True)
class Block:
    """Numbers of the products of one expert block, of all phases.

    members: those with a matrix for each expert, by what they are; forward: of these, no gradients;
    joined: products that are one with others, such as the router's. moves: what takes rows to
    experts, and puts results together, as `dispatch` and `combine`. router: the number of its
    router. experts, tokens, capacity (slots of an expert): where axes tell. told: what showed it.
    """

    path: Path
    members: dict[int, str] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)
    moves: dict[int, str] = field(default_factory=dict)
    forward: set[int] = field(default_factory=set)
    router: int | None = None
    experts: int | None = None
    tokens: int | None = None
    capacity: int | None = None
    told: list[str] = field(default_factory=list)
    gated: bool | None = None


def find_blocks(
    products: Products, routing: Routing, phases: Mapping[int, str | None]
) -> list[Block]:
    """The blocks of a module. phases: of each row of matmuls, by instruction."""
    found = [*_ragged(products, routing)]
    placed: set[int] = set()
    for product in _unique(products):
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
    for block in found:
        _name_members(products, block)
        if block.path == "ragged":
            block.moves = dict.fromkeys(_combines(products, block), "combine")
    return found


def _unique(products: Products) -> Iterator[Product]:
    seen: set[int] = set()
    for product in products.found.values():
        if id(product) not in seen:
            seen.add(id(product))
            yield product


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
            and router.experts == _size(self.product.summed, self.cut.summed)
        )

    def _dense(self, placed: set[int]) -> Block | None:
        experts, tokens, features = self.cut.summed, self.cut.batch, self.cut.lhs
        for start in self.products.sources(self.mine, along=experts):
            product = self.products.found.get(start)
            if product is None or not product.rows or start in placed:
                continue
            cut = self.products.cut(product)
            gives = experts <= cut.result and features & cut.result
            if not gives or not _is_expert(cut, experts, tokens):
                continue
            choice = self._choice((self.yours,))
            if choice is None:
                return None
            members, joined = _cluster(self.products, start, experts, tokens, frozenset())
            count, rows = _size(self.product.summed, experts), _size(self.product.batch, tokens)
            told = [choice[1], f"combine sums over {count} experts"]
            return Block(
                "dense_masked", members, joined, {self.product.number: "combine"}, {start},
                choice[0], count, rows, None, told,
            )  # fmt: skip
        return None

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
            if not _is_expert(cut, experts, slots):
                continue
            members, joined = _cluster(self.products, start, experts, slots, tokens)
            dispatch = self._dispatch(start, members, experts | slots, tokens)
            if dispatch is None:
                continue
            other = dispatch.right if self.products.cut(dispatch).rhs & slots else dispatch.left
            choice = self._choice((self.yours, other))
            if choice is None:
                continue
            count, each = _size(self.product.summed, experts), _size(self.product.summed, slots)
            free = self.product.rhs if self.yours == self.product.right else self.product.lhs
            rows = _size(free, tokens) * _size(self.product.batch, self.cut.batch)
            moves = dict(self._moves(experts | slots, tokens))
            told = [choice[1], f"dispatch into {count} experts of {each} slots"]
            return Block(
                "fixed_capacity", members, joined, moves, {start},
                choice[0], count, rows, each, told,
            )  # fmt: skip
        return self._exchanged(placed)

    def _exchanged(self, placed: set[int]) -> Block | None:
        found = find_exchanged(
            self.products, self.routing, self.product, self.mine, self.yours, self.cut.rhs
        )
        if found is None or placed & {*found.forward}:
            return None
        router = self.routing.routers[found.router]
        slots = _size(self.product.summed, self.cut.summed)
        if slots % router.experts:
            return None
        members = dict.fromkeys((*found.forward, *found.gradients), "product")
        capacity = slots // router.experts
        told = ["top-k of scores", f"{router.experts} experts of {capacity} slots, exchanged"]
        return Block(
            "fixed_capacity", members, set(), found.moves, {*found.forward},
            found.router, None, router.tokens, capacity, told,
        )  # fmt: skip

    def _dispatch(
        self, start: int, members: Iterable[int], slots: frozenset[Axis], tokens: frozenset[Axis]
    ) -> Product | None:
        """What the products take, from the last one back: it sums over the tokens, and has experts
        and slots of one operand alone."""
        waiting, seen = [start], {start}
        while waiting:
            for operand in self.products.found[waiting.pop()].operands:
                for one in self.products.sources(operand, along=slots):
                    product = self.products.found.get(one)
                    if product is None or one in seen:
                        continue
                    seen.add(one)
                    cut = self.products.cut(product)
                    if one in members:
                        waiting.append(one)
                    elif tokens & cut.summed and (slots <= cut.lhs or slots <= cut.rhs):
                        return product
        return None

    def _moves(self, slots: frozenset[Axis], tokens: frozenset[Axis]) -> Iterator[tuple[int, str]]:
        """Products of tokens and slots, gradients too."""
        for product in _unique(self.products):
            cut = self.products.cut(product)
            if slots <= cut.all and tokens & cut.all:
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
        ways = set().union(*(ways for one in sources for ways in one.values()))
        if (
            len(arrays) == 1
            and ways >= _SOFTMAX
            and any(one in self.products.found for one in sources[0])
        ):
            return None, "softmax scores, no top-k"
        return None


def _is_expert(cut: Cut, experts: frozenset[Axis], rows: frozenset[Axis]) -> bool:
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


def _cluster(
    products: Products,
    start: int,
    experts: frozenset[Axis],
    rows: frozenset[Axis],
    tokens: frozenset[Axis],
) -> tuple[dict[int, str], set[int]]:
    """The products of experts that hang together with one: that share an operand, or of which one
    takes what another gives, element by element."""
    candidates = {
        product.number: product
        for product in _unique(products)
        if product.rows
        and not (tokens & products.cut(product).all)
        and _is_expert(products.cut(product), experts, rows)
    }
    links = {
        number: _links(products, product.operands, experts, candidates)
        for number, product in candidates.items()
    }
    members = _reached(start, links)
    joined = {one for one in members if one not in candidates}
    for product in _unique(products):
        if (
            product.rows
            and product.number not in members
            and _is_joined(products, product, experts, members)
        ):
            joined.add(product.number)
    return dict.fromkeys([*members, *sorted(joined - members)], "product"), joined


def _links(
    products: Products, operands: Iterable[int], along: frozenset[Axis], known: Iterable[int]
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


def _reached(start: int, links: Mapping[int, set[tuple[str, int]]]) -> set[int]:
    """All that hangs together with `start`."""
    by_link: dict[tuple[str, int], list[int]] = {}
    for number, mine in links.items():
        for link in (*mine, ("product", number)):
            by_link.setdefault(link, []).append(number)
    reached: set[int] = set()
    waiting = [start]
    while waiting:
        number = waiting.pop()
        if number in reached:
            continue
        reached.add(number)
        for link in (*links.get(number, ()), ("product", number)):
            waiting += by_link.get(link, [])
            if link[0] == "product":
                waiting.append(link[1])
    return reached


def _is_joined(
    products: Products, product: Product, experts: frozenset[Axis], members: set[int]
) -> bool:
    """Whether an operand is put together of arrays of which one comes from the block's products."""
    for operand in product.operands:
        base = products.numbers.unviewed(operand)
        node = products.numbers[base]
        if node.kind != "concatenate":
            continue
        for part in node.operands:
            if members & products.sources(part, along=experts).keys():
                return True
    return False


def _size(axes: Iterable[Axis], of: frozenset[Axis]) -> int:
    size = 1
    for axis in leaves(axes):
        if axis in of:
            size *= axis.size
    return size


# -- ragged ---------------------------------------------------------------------------------------


def _ragged(products: Products, routing: Routing) -> Iterator[Block]:
    """Blocks of ragged products: those that share an array or take what another gives."""
    links = {number: {*_ragged_links(products, number)} for number in products.ragged}
    placed: set[int] = set()
    for number in products.ragged:
        if number in placed:
            continue
        members = {one for one in _reached(number, links) if one in products.ragged}
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
    return (row["role"], row["class"]) in (("wo", "fwd"), ("wi", "dgrad"))


def _is_array(products: Products, number: int) -> bool:
    """Whether it is more than a list of numbers, such as sizes of groups, which unrelated products
    may share."""
    axes = products.flow.known(number)
    return not products.flow.is_constant(number) and axes is not None and len(axes) > 1


def _combines(products: Products, block: Block) -> Iterator[int]:
    """What sums the rows that the experts give, put back, for each token."""
    for product in _unique(products):
        cut = products.cut(product)
        if not cut.summed or product.number in block.members:
            continue
        for operand in product.operands:
            for one in products.sources(operand):
                node = products.numbers[one]
                at = {"gather": 0, "scatter": 2}.get(node.kind)
                if at is None or at >= len(node.operands):
                    continue
                if block.forward & products.sources(node.operands[at]).keys():
                    yield product.number


# -- what the members are -------------------------------------------------------------------------


def _name_members(products: Products, block: Block) -> None:
    """gate, up and down, of the forward by dataflow, of gradients by the arrays they share."""
    members = block.members
    if block.path == "ragged":
        for number in members:
            names = {row["projection"] for row in products.ragged[number]} - {None}
            if len(names) == 1:
                members[number] = str(names.pop())
            if {row["class"] for row in products.ragged[number]} <= {"fwd", None}:
                block.forward.add(number)
        named = set(members.values())
        block.gated = (
            True if named & {"gate", "up", "fused"} else False if "down" in named else None
        )
        return
    feeds = {
        number: {
            one: ways
            for operand in products.found[number].operands
            for one, ways in products.sources(operand).items()
            if one in members and one != number
        }
        for number in members
    }
    first = [number for number in members if not feeds[number]]
    downs = [n for n in members if feeds[n] and set(feeds[n]) <= set(first)]
    if not downs:
        return
    down = min(downs)
    block.forward |= {down, *feeds[down]}
    members[down] = "down"
    parts = {one: sum(way[:1] == "[" for way in ways) for one, ways in feeds[down].items()}
    block.gated = len(parts) > 1 or max(parts.values()) > 1
    for one, ways in feeds[down].items():
        bent = any(way[:1] != "[" for way in ways)
        members[one] = "fused" if parts[one] > 1 else "gate" if bent and block.gated else "up"
    _name_gradients(products, block)


def _name_gradients(products: Products, block: Block) -> None:
    """A gradient of rows takes the weights; one of weights shares its cotangent with it."""
    for _ in range(2):
        arrays: dict[int, set[str]] = {}
        for number, name in block.members.items():
            if name != "product":
                for operand in products.found[number].operands:
                    arrays.setdefault(products.numbers.unviewed(operand), set()).add(name)
        for number, name in list(block.members.items()):
            if name == "product":
                names = [
                    arrays.get(products.numbers.unviewed(one), set())
                    for one in products.found[number].operands
                ]
                only = [one for one in names if len(one) == 1]
                if only:
                    block.members[number] = next(iter(only[0]))
