"""The instructions of two matched computations, matched with each other.

Nodes that compute the same and become the same are matched first, then those that do one of the
two, then neighbours of matched nodes by ever weaker keys, then what is left by op_name and in
order. Every step looks at each node and operand a fixed number of times.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.analysis.names import last_component
from hlo_lens.diff.fingerprints import Bodies, Body, Key, Value, downs, ups
from hlo_lens.diff.given import Given, Route

_CONTROL: Final = frozenset(("while", "conditional", "call"))
_MOST_COMPARED: Final = 64  # pairs of loops whose bodies are compared; more are taken in order

Keys: TypeAlias = Sequence[Hashable]
"""What nodes must agree on to be matched, by position; None for a node that has nothing."""


@dataclass(slots=True)
class Side:
    """One of the two modules. partners: of each place the place of its partner on the other
    side, -1 for none."""

    analysis: ModuleAnalysis
    bodies: Bodies
    partners: list[int] = field(default_factory=list)

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
        """The phases by position."""
        phases = [phase.phase for phase in self.analysis.phases(body.computation)]
        return [*phases, *[None] * (len(body.keys) - len(phases))]


class Pairing:
    """Matches the nodes of two computations; `old_side` and `new_side` hold what it finds."""

    def __init__(self, old_side: Side, new_side: Side, old: Body, new: Body) -> None:
        self.old_side, self.new_side = old_side, new_side
        self.old, self.new = old, new
        self._waiting: tuple[deque[tuple[int, int]], ...] = (deque(), deque(), deque())

    # ------------------------------------------------------------------------------ partners

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

    def join(self, node: int, other: int) -> bool:
        """Make two nodes partners, if they have none; whether they were free."""
        place, others = self.old.first + node, self.new.first + other
        if self.old_side.partners[place] >= 0 or self.new_side.partners[others] >= 0:
            return False
        self.old_side.partners[place] = others
        self.new_side.partners[others] = place
        for waiting in self._waiting:
            waiting.append((node, other))
        return True

    # ------------------------------------------------------------------------------ all steps

    def match_equal(self) -> None:
        """Match two computations of one class whole."""
        old, new = self.old, self.new
        if [old.up[node] for node in old.nodes] == [new.up[node] for node in new.nodes]:
            for node, other in zip(old.nodes, new.nodes, strict=True):
                self.join(node, other)
            return
        bodies = (self.old_side.bodies, old), (self.new_side.bodies, new)
        old_keys, new_keys = (
            list(zip(body.up, downs(all_bodies, body), strict=True)) for all_bodies, body in bodies
        )
        self.in_order(old_keys, new_keys)

    def match_different(self, given: Given) -> None:
        """Match what two computations have in common."""
        old_bodies, new_bodies = self.old_side.bodies, self.new_side.bodies
        old_up = ups(old_bodies, self.old, given.old)
        new_up = ups(new_bodies, self.new, given.new)
        old_down = downs(old_bodies, self.old, given.old_ends)
        new_down = downs(new_bodies, self.new, given.new_ends)
        self.in_order(
            list(zip(old_up, old_down, strict=True)), list(zip(new_up, new_down, strict=True))
        )
        self.in_order(telling(self.old, old_up), telling(self.new, new_up))
        self.in_order(telling(self.old, old_down), telling(self.new, new_down))
        self._join_roots()
        self.spread()
        self._match_left()

    def _join_roots(self) -> None:
        old, new = self.old.root[0], self.new.root[0]
        if old >= 0 and new >= 0 and self.old.opcode(old) == self.new.opcode(new):
            self.join(old, new)

    def _match_left(self) -> None:
        """Match what no neighbour tells: by op_name, by what loops hold, and in order."""
        if not self._some_are_left():
            return
        names = self.old_side.names(self.old), self.new_side.names(self.new)
        self._by_name(names, lambda key: key.strong)
        self._similar_loops()
        self.spread()
        self._by_name(names, lambda key: key.weak)
        if not self._some_are_left():
            return
        phases = self.old_side.phases(self.old), self.new_side.phases(self.new)

        def kinds(body: Body, side: int) -> Keys:
            return [
                None
                if key is None
                else (key.strong,)
                if key.trivial
                else (key.strong, phases[side][at], last(names[side][at]))
                for at, key in enumerate(body.keys)
            ]

        self.in_order(kinds(self.old, 0), kinds(self.new, 1), even=False)
        self.spread()

    def _some_are_left(self) -> bool:
        """Whether both sides have nodes without a partner."""
        return bool(self.old_side.free(self.old) and self.new_side.free(self.new))

    def _by_name(self, names: tuple[Sequence[str | None], ...], kind: Callable[[Key], int]) -> None:
        old, new = (
            [
                (kind(key), name) if key is not None and name is not None else None
                for key, name in zip(body.keys, its, strict=True)
            ]
            for body, its in zip((self.old, self.new), names, strict=True)
        )
        self.in_order(old, new, even=False)
        self.spread()

    def in_order(self, old: Keys, new: Keys, *, even: bool = True) -> None:
        """Match free nodes of equal keys in the order of the text; with `even`, only where both
        sides have as many of them."""
        found = _buckets(self.old_side.free(self.old), old)
        others = _buckets(self.new_side.free(self.new), new)
        for key, nodes in found.items():
            partners = others.get(key)
            if partners is None or (even and len(nodes) != len(partners)):
                continue
            for node, other in zip(nodes, partners, strict=False):
                self.join(node, other)

    # ------------------------------------------------------------------------------ neighbours

    def spread(self) -> None:
        """Match the neighbours of what is matched, as long as there are any: those with the
        strongest keys first."""
        while True:
            level = next((at for at, waiting in enumerate(self._waiting) if waiting), None)
            if level is None:
                return
            node, other = self._waiting[level].popleft()
            self._operands(node, other, level)
            self._users(node, other, level)

    def _operands(self, node: int, other: int, level: int) -> None:
        values, others = self.old.values[node], self.new.values[other]
        if len(values) == len(others):
            for (producer, _), (its, _) in zip(values, others, strict=True):
                if self._alike(producer, its, level):
                    self.join(producer, its)
        else:
            self._join_groups(
                _grouped(self._free_operands(values, self.old, self.old_side), self.old, level),
                _grouped(self._free_operands(others, self.new, self.new_side), self.new, level),
            )

    def _free_operands(self, values: Sequence[Value], body: Body, side: Side) -> Iterator[int]:
        for producer in dict.fromkeys(producer for producer, _ in values):
            if side.partners[body.first + producer] < 0:
                yield producer

    def _alike(self, node: int, other: int, level: int) -> bool:
        one, its = self.old.keys[node], self.new.keys[other]
        if one is None or its is None or (level and self.old.opcode(node) == "parameter"):
            return False
        return _told(one, level) == _told(its, level)

    def _users(self, node: int, other: int, level: int) -> None:
        if self.old.key(node).trivial and self.old.opcode(node) != "parameter":
            return
        found = self._free_users(node, self.old, self.old_side, level)
        others = self._free_users(other, self.new, self.new_side, level)
        self._join_groups(found, others)

    def _free_users(
        self, node: int, body: Body, side: Side, level: int
    ) -> dict[Hashable, list[int]]:
        # Which elements of a loop's result are which is not known yet.
        is_loop = body.opcode(node) == "while"
        groups: dict[Hashable, list[int]] = {}
        for user, at, path in body.users[node]:
            if side.partners[body.first + user] < 0:
                told = _told(body.key(user), level)
                groups.setdefault((told, at, () if is_loop else path), []).append(user)
        return groups

    def _join_groups(
        self, found: Mapping[Hashable, list[int]], others: Mapping[Hashable, list[int]]
    ) -> None:
        for key, nodes in found.items():
            partners = others.get(key, ())
            if len(nodes) == len(partners):
                for node, other in zip(nodes, partners, strict=True):
                    if self._agree(node, other):
                        self.join(node, other)

    def _agree(self, node: int, other: int) -> bool:
        """Whether no operand of one has a partner that the other does not take there."""
        values, others = self.old.values[node], self.new.values[other]
        if len(values) != len(others):
            return True
        for (producer, _), (its, _) in zip(values, others, strict=True):
            key = self.old.keys[producer]
            if key is not None and key.trivial and self.old.opcode(producer) != "parameter":
                continue
            if self.to_new(producer) not in (-1, its) or self.to_old(its) not in (-1, producer):
                return False
        return True

    # ------------------------------------------------------------------------------ loops

    def _similar_loops(self) -> None:
        """Match the loops and calls that are left by what they hold, the most alike first."""
        old = [node for node in self.old_side.free(self.old) if self.old.opcode(node) in _CONTROL]
        new = [node for node in self.new_side.free(self.new) if self.new.opcode(node) in _CONTROL]
        if len(old) * len(new) > _MOST_COMPARED:
            return
        bags = [held(self.old_side.bodies, self.old, node) for node in old]
        others = [held(self.new_side.bodies, self.new, node) for node in new]
        scores = sorted(
            (-similarity(bag, its), at, to)
            for at, bag in enumerate(bags)
            for to, its in enumerate(others)
            if self.old.opcode(old[at]) == self.new.opcode(new[to])
        )
        for score, at, to in scores:
            if score < 0:
                self.join(old[at], new[to])


def last(name: str | None) -> str | None:
    """The last component of an op_name."""
    return None if name is None else last_component(name)


def held(bodies: Bodies, body: Body, node: int) -> Counter[int]:
    """What the computations that a node calls hold, by key, without what they call."""
    return Counter(
        bodies.of[site.callee.index].key(inner).weak
        for site in body.callees.get(node, ())
        if site.callee.index in bodies.of
        for inner in bodies.of[site.callee.index].nodes
    )


def similarity(one: Counter[int], other: Counter[int]) -> float:
    """The share of what two bags hold that both hold, from 0 to 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0


def telling(body: Body, classes: Sequence[int]) -> list[int | None]:
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


def _within(place: int, body: Body) -> int:
    return place - body.first if body.first <= place < body.first + len(body.keys) else -1


def _told(key: Key, level: int) -> int:
    return (key.strong, key.weak, key.loose)[level]


def _buckets(nodes: Sequence[int], keys: Keys) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for node in nodes:
        key = keys[node]
        if key is not None:
            found.setdefault(key, []).append(node)
    return found


def _grouped(nodes: Iterator[int], body: Body, level: int) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for node in nodes:
        key = body.keys[node]
        if key is not None and not (level and body.opcode(node) == "parameter"):
            found.setdefault(_told(key, level), []).append(node)
    return found
