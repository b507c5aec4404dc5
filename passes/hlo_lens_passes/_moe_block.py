"""An expert block: which products it is, and what was found of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Path = Literal["dense_masked", "fixed_capacity", "ragged"]


@dataclass(slots=True)
class Block:
    """Numbers of the products of one expert block, of all phases.

    members: those with a matrix for each expert, by what they are; forward: of these, no gradients;
    joined: products that are one with others, such as the router's. moves: what takes rows to
    experts, and puts results together, as `dispatch` and `combine`. router: the number of its
    router. experts, tokens, capacity (slots of an expert): where axes tell; among: how many tokens
    share the slots, fewer than all where they are dispatched batch by batch. told: what showed it.
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
    among: int | None = None
