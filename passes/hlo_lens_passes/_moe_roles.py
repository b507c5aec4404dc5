"""What the products of an expert block are: gate, up and down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lens_passes._moe_ragged import direction_of

if TYPE_CHECKING:
    from hlo_lens_passes._moe_block import Block
    from hlo_lens_passes._moe_products import Products


def name_members(products: Products, block: Block) -> None:
    """gate, up and down, of the forward by dataflow, of gradients by the arrays they share."""
    members = block.members
    if block.path == "ragged":
        for number in members:
            names = {row["projection"] for row in products.ragged[number]} - {None}
            if len(names) == 1:
                members[number] = str(names.pop())
            if {direction_of(row) for row in products.ragged[number]} <= {"fwd", None}:
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
