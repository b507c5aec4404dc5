"""Which products of experts hang together, forward and backward."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hlo_lens_passes._moe_axes import Axis, leaves

if TYPE_CHECKING:
    from hlo_lens_passes._moe_products import Cut, Product, Products


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


def cluster(
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
        for product in products.found.values()
        if product.rows
        and not (tokens & products.cut(product).all)
        and is_expert(products.cut(product), experts, rows)
    }
    links = {
        number: _links(products, product.operands, experts, candidates)
        for number, product in candidates.items()
    }
    members = reached(start, links)
    joined = {one for one in members if one not in candidates}
    for product in products.found.values():
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


def reached(start: int, links: Mapping[int, set[tuple[str, int]]]) -> set[int]:
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


def size_along(axes: Iterable[Axis], of: frozenset[Axis]) -> int:
    size = 1
    for axis in leaves(axes):
        if axis in of:
            size *= axis.size
    return size
