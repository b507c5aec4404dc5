"""The instructions of two matched computations, matched with each other.

Nodes that compute the same and become the same are matched first, then those that do one of the
two, then neighbours of matched nodes, then what is left by op_name and in order. Every step looks
at each node and operand a fixed number of times.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from hlo_lens.analysis.names import last_component
from hlo_lens.diff.fingerprints import Body, downs, ups
from hlo_lens.diff.given import Given
from hlo_lens.diff.keys import Key
from hlo_lens.diff.neighbours import CONTROL, Neighbours
from hlo_lens.diff.sides import Keys, Pairing, Side, both

_MOST_COMPARED: Final = 256  # pairs of loops of one kind that are compared; more go in order


def match_equal(pairing: Pairing) -> None:
    """Match two computations of one class."""
    if pairing.join_whole():
        return
    keys, others = (
        both(body.up, downs(side.bodies, body))
        for side, body in (
            (pairing.old_side, pairing.old),
            (pairing.new_side, pairing.new),
        )
    )
    neighbours = Neighbours(pairing, pairing.join)
    several: list[tuple[list[int], deque[int]]] = []
    for nodes, partners in pairing.groups(keys, others):
        if len(nodes) == len(partners) == 1:
            pairing.join(nodes[0], partners[0])
        else:
            several.append((nodes, deque(partners)))
    for nodes, left in several:
        for node in nodes:  # of several that are alike any will do, but then what is around them
            pairing.join_first(node, left)
            neighbours.spread()
    neighbours.spread()


def match_different(pairing: Pairing, given: Given) -> None:
    """Match what two computations have in common."""
    old, new = pairing.old, pairing.new
    old_up = ups(pairing.old_side.bodies, old, given.old)
    new_up = ups(pairing.new_side.bodies, new, given.new)
    old_down = downs(pairing.old_side.bodies, old, given.old_ends)
    new_down = downs(pairing.new_side.bodies, new, given.new_ends)
    pairing.in_order(both(old_up, old_down), both(new_up, new_down))
    phases = pairing.old_side.phases(old), pairing.new_side.phases(new)
    for classes, others in ((old_up, new_up), (old_down, new_down)):
        keys, its = _telling(old, classes), _telling(new, others)
        # What is replayed computes the same as in the forward: the phase tells them apart.
        pairing.in_order(both(keys, phases[0]), both(its, phases[1]))
        pairing.in_order(keys, its)
    roots = old.root[0], new.root[0]
    if min(roots) >= 0 and old.opcode(roots[0]) == new.opcode(roots[1]):
        pairing.join(*roots)
    neighbours = Neighbours(pairing, pairing.join_alike)
    neighbours.spread()
    if pairing.some_are_left():
        _match_left(pairing, neighbours)


def _match_left(pairing: Pairing, neighbours: Neighbours) -> None:
    """Match what no neighbour tells: loops by what they hold, others by op_name and in order."""
    sides = (pairing.old_side, pairing.old), (pairing.new_side, pairing.new)
    names = [side.names(body) for side, body in sides]
    phases = [side.phases(body) for side, body in sides]
    _match_loops(pairing, names, phases)
    neighbours.spread()
    for kind in (_strong, _weak, _loose):
        keys, others = (
            _named(body, its, kind) for (_, body), its in zip(sides, names, strict=True)
        )
        pairing.nearest_in_order(keys, others)
        neighbours.spread()
    if pairing.some_are_left():
        keys, others = (
            _kinds(body, its, their)
            for (_, body), its, their in zip(sides, names, phases, strict=True)
        )
        pairing.nearest_in_order(keys, others)
        neighbours.spread()


def _strong(key: Key) -> int:
    return key.strong


def _weak(key: Key) -> int:
    return key.weak


def _loose(key: Key) -> int:
    return key.loose


def _named(body: Body, names: Sequence[str | None], kind: Callable[[Key], int]) -> Keys:
    """What a node is, with its op_name; None for what has none, and for loops and calls. Only of a
    fusion does the opcode tell enough, as what it gives grows with its users."""
    return [
        None
        if key is None
        or name is None
        or body.opcode(at) in CONTROL
        or (kind is _loose and body.opcode(at) != "fusion")
        else (kind(key), name)
        for at, (key, name) in enumerate(zip(body.keys, names, strict=True))
    ]


def _kinds(body: Body, names: Sequence[str | None], phases: Sequence[str | None]) -> Keys:
    """What a node is, with the last part of its op_name and its phase."""
    found: list[Hashable] = []
    for at, key in enumerate(body.keys):
        if key is None or body.opcode(at) in CONTROL:
            found.append(None)
        elif key.trivial:
            found.append((key.strong,))
        else:
            name = names[at]
            last = None if name is None else last_component(name)
            found.append((key.strong, phases[at], last))
    return found


def _telling(body: Body, classes: Sequence[int]) -> list[int | None]:
    """The classes of the nodes that are not the same everywhere: constants and what is made of
    these alone tell nothing of where they stand."""
    plain = [False] * len(body.keys)
    found: list[int | None] = [None] * len(body.keys)
    for node in body.nodes:
        is_parameter = body.opcode(node) == "parameter"
        values = body.values[node]
        plain[node] = not is_parameter and (
            all(plain[producer] for producer, _ in values) if values else body.key(node).trivial
        )
        if not plain[node] and not is_parameter:
            found[node] = classes[node]
    return found


# ---------------------------------------------------------------------------------- loops


def _match_loops(
    pairing: Pairing, names: Sequence[Sequence[str | None]], phases: Sequence[Sequence[str | None]]
) -> None:
    """Match the loops and calls that are left: those of one phase by what they hold, the most
    alike first, and of those that are as much alike the ones of one op_name, in order."""
    groups: list[dict[Hashable, list[int]]] = []
    bodies = pairing.old, pairing.new
    for body, free, its in zip(bodies, pairing.free(), phases, strict=True):
        group: dict[Hashable, list[int]] = {}
        for node in free:
            if body.opcode(node) in CONTROL:
                group.setdefault((body.opcode(node), its[node]), []).append(node)
        groups.append(group)
    for key, nodes in groups[0].items():
        others = groups[1].get(key, [])
        if len(nodes) * len(others) > _MOST_COMPARED:
            for node, other in zip(nodes, others, strict=False):
                pairing.join(node, other)
            continue
        for node, other in _most_alike(pairing, nodes, others, names):
            pairing.join(node, other)


def _most_alike(
    pairing: Pairing,
    nodes: Sequence[int],
    others: Sequence[int],
    names: Sequence[Sequence[str | None]],
) -> list[tuple[int, int]]:
    bags = [_held(pairing.old_side, pairing.old, node) for node in nodes]
    their = [_held(pairing.new_side, pairing.new, other) for other in others]
    scored = sorted(
        (-_similarity(bag, its), names[0][node] != names[1][other], at - to, node, other)
        for at, (node, bag) in enumerate(zip(nodes, bags, strict=True))
        for to, (other, its) in enumerate(zip(others, their, strict=True))
    )
    return [(node, other) for score, *_, node, other in scored if score < 0]


def _held(side: Side, body: Body, node: int) -> Counter[int]:
    """What the computations that a node calls hold, by key, without what these call."""
    bodies = (side.bodies.of.get(site.callee.index) for site in body.callees.get(node, ()))
    return Counter(inner.base[at] for inner in bodies if inner is not None for at in inner.nodes)


def _similarity(one: Counter[int], other: Counter[int]) -> float:
    """The share of what two bags hold that both hold, from 0 to 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0
