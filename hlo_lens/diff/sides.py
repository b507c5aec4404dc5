"""The two modules while they are matched: who is whose partner, and two computations of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.diff.fingerprints import Bodies, Body, Value
from hlo_lens.diff.given import Route

Keys: TypeAlias = Sequence[Hashable]
"""What nodes must agree on to be matched, by position; None for a node that cannot be."""

_STEP: Final = frozenset(("fwd", "bwd", "remat"))


@dataclass(slots=True)
class Side:
    """One of the two modules. partners: of each place the place of its partner on the other
    side, -1 for none."""

    analysis: ModuleAnalysis
    bodies: Bodies
    partners: list[int] = field(default_factory=list)
    _phases: dict[int, list[str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.partners = [-1] * self.bodies.size

    def free(self, body: Body) -> list[int]:
        """The nodes of a body that have no partner, in text order."""
        partners, first = self.partners, body.first
        return sorted(node for node in body.nodes if partners[first + node] < 0)

    def names(self, body: Body) -> list[str | None]:
        """The full op_names by position; None for what has none."""
        names = self.analysis.full_op_names(body.computation)
        return [*names, *[None] * (len(body.keys) - len(names))]

    def phases(self, body: Body) -> list[str | None]:
        """The phases by position; None where nothing tells."""
        found = self._phases.get(body.first)
        if found is None:
            phases = [phase.phase for phase in self.analysis.phases(body.computation)]
            found = [*phases, *[None] * (len(body.keys) - len(phases))]
            self._phases[body.first] = found
        return found


class Pairing:
    """Two computations whose nodes are being matched with each other; partners are in the sides.

    joined: the pairs that are new, for those who look at neighbours. whole: whether all nodes are
    matched so that operands are matched with operands.
    """

    def __init__(self, old_side: Side, new_side: Side, old: Body, new: Body) -> None:
        self.old_side, self.new_side = old_side, new_side
        self.old, self.new = old, new
        self.joined: deque[tuple[int, int]] = deque()
        self.whole = False

    def to_new(self, node: int) -> int:
        """The partner of a node of the old body; -1 for none in the new body."""
        return _within(self.old_side.partners[self.old.first + node], self.new)

    def to_old(self, node: int) -> int:
        """The partner of a node of the new body; -1 for none in the old body."""
        return _within(self.new_side.partners[self.new.first + node], self.old)

    def translated(self, value: Value, routes: Mapping[int, Route]) -> Value | None:
        """The value of the new body that a value of the old one is; None where it has none.

        `routes`: by place of an old node, which element of its result is which of its partner's;
        the same one where it has none.
        """
        node, path = value
        other = self.to_new(node)
        if other < 0:
            return None
        route = routes.get(self.old.first + node) if path else None
        if route is None:
            return (other, path)
        first = route.get(path[0])
        return None if first is None else (other, (first, *path[1:]))

    def join(self, node: int, other: int) -> None:
        """Make two nodes partners, if neither has one."""
        place, others = self.old.first + node, self.new.first + other
        if self.old_side.partners[place] < 0 and self.new_side.partners[others] < 0:
            self.old_side.partners[place] = others
            self.new_side.partners[others] = place
            self.joined.append((node, other))

    def join_whole(self) -> bool:
        """Match all nodes in order, where none has a partner yet and the graphs are the same in
        that order; whether they are."""
        old, new = self.old, self.new
        if [old.up[node] for node in old.nodes] != [new.up[node] for node in new.nodes]:
            return False
        pairs = dict(zip(old.nodes, new.nodes, strict=True))
        if pairs.get(old.root[0], -1) != new.root[0]:
            return False
        partners, theirs = self.old_side.partners, self.new_side.partners
        for node, other in pairs.items():
            if partners[old.first + node] >= 0 or theirs[new.first + other] >= 0:
                return False
            for (producer, _), (its, _) in zip(old.values[node], new.values[other], strict=True):
                if pairs.get(producer) != its:
                    return False
        for node, other in pairs.items():
            partners[old.first + node] = new.first + other
            theirs[new.first + other] = old.first + node
        self.whole = True
        return True

    def join_first(self, node: int, others: deque[int]) -> None:
        """Join a node with the first of these that has no partner, if it has none itself; what
        stands in front of that in the queue goes."""
        if self.old_side.partners[self.old.first + node] >= 0:
            return
        while others:
            other = others.popleft()
            if self.new_side.partners[self.new.first + other] < 0:
                self.join(node, other)
                return

    def join_alike(self, node: int, other: int) -> None:
        """Make two nodes partners, unless names say that one is of another part of the step: what
        the backward replays is what the forward computes, and yet another thing."""
        if self.old.key(node).trivial:
            self.join(node, other)
            return
        old = self.old_side.phases(self.old)[node]
        new = self.new_side.phases(self.new)[other]
        if old == new or old not in _STEP or new not in _STEP:
            self.join(node, other)

    def free(self) -> tuple[list[int], list[int]]:
        """The nodes without a partner of both bodies, in text order."""
        return self.old_side.free(self.old), self.new_side.free(self.new)

    def some_are_left(self) -> bool:
        """Whether both bodies have nodes without a partner."""
        return all(self.free())

    def in_order(self, old: Keys, new: Keys) -> None:
        """Match free nodes of equal keys in the order of the text, where both bodies have as many
        of them."""
        for nodes, others in self.groups(old, new):
            if len(nodes) == len(others):
                self._join_all(nodes, others)

    def nearest_in_order(self, old: Keys, new: Keys) -> None:
        """Match free nodes of equal keys: first those behind the same matched node, then as many
        as there are, in the order of the text."""
        near = self._behind(self.old, self.to_new)
        its = self._behind(self.new, lambda node: node if self.to_old(node) >= 0 else -1)
        for nodes, others in self.groups(both(old, near), both(new, its)):
            self._join_all(nodes, others)
        for nodes, others in self.groups(old, new):
            self._join_all(nodes, others)

    def groups(self, old: Keys, new: Keys) -> Iterator[tuple[list[int], list[int]]]:
        """The free nodes of both bodies by key, those of one key together."""
        nodes, others = self.free()
        partners = _buckets(others, new)
        for key, group in _buckets(nodes, old).items():
            if key in partners:
                yield group, partners[key]

    def _join_all(self, nodes: Sequence[int], others: Sequence[int]) -> None:
        for node, other in zip(nodes, others, strict=False):
            self.join_alike(node, other)

    def _behind(self, body: Body, partner: Callable[[int], int]) -> list[int]:
        """By position, the last node in front of it that has a partner, as the new body has it."""
        found, last = [-1] * len(body.keys), -1
        for node in sorted(body.nodes):
            found[node] = last
            its = partner(node)
            if its >= 0 and not body.key(node).trivial:
                last = its
        return found


def both(keys: Keys, others: Keys) -> Keys:
    """Pairs of keys; None where the first is."""
    return [None if key is None else (key, its) for key, its in zip(keys, others, strict=True)]


def _buckets(nodes: Iterable[int], keys: Keys) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for node in nodes:
        key = keys[node]
        if key is not None:
            found.setdefault(key, []).append(node)
    return found


def _within(place: int, body: Body) -> int:
    return place - body.first if body.first <= place < body.first + len(body.keys) else -1
