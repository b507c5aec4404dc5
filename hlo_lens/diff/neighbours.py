"""The neighbours of matched nodes, matched with each other by ever weaker keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from hlo_lens.diff.fingerprints import Body
from hlo_lens.diff.sides import Pairing, Side

CONTROL: Final = frozenset(("while", "conditional", "call"))
"""Operations that are what they call: a neighbour tells too little of them."""

_LEVELS: Final = 4
_Groups = dict[Hashable, list[int]]


class Neighbours:
    """Goes from matched nodes to their operands and users, as long as it finds some that match:
    those with the strongest keys first. Each matched pair is looked at once a level. `join` makes
    two nodes of the pairing partners."""

    def __init__(self, pairing: Pairing, join: Callable[[int, int], None]) -> None:
        self._pairing = pairing
        self._join = join
        self._old, self._new = pairing.old, pairing.new
        self._waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(_LEVELS)]

    def spread(self) -> None:
        """Match all neighbours that can be."""
        while True:
            joined = self._pairing.joined
            for waiting in self._waiting if joined else ():
                waiting.extend(joined)
            joined.clear()
            level = next((at for at, waiting in enumerate(self._waiting) if waiting), None)
            if level is None:
                return
            node, other = self._waiting[level].popleft()
            self._match_operands(node, other, level)
            self._match_users(node, other, level)

    def _match_operands(self, node: int, other: int, level: int) -> None:
        values, others = self._old.values[node], self._new.values[other]
        if len(values) == len(others):
            for (producer, _), (its, _) in zip(values, others, strict=True):
                told = _told(self._old, producer, level)
                if told is not None and told == _told(self._new, its, level):
                    self._join(producer, its)
            return
        if level == _LEVELS - 1:  # by its opcode alone, one is not told from another
            return
        pairing = self._pairing
        found = _free(pairing.old_side, self._old, (producer for producer, _ in values))
        free = _free(pairing.new_side, self._new, (producer for producer, _ in others))
        self._join_groups(
            _grouped((_told(self._old, node, level), node) for node in found),
            _grouped((_told(self._new, node, level), node) for node in free),
            level,
        )

    def _match_users(self, node: int, other: int, level: int) -> None:
        if self._old.key(node).trivial and self._old.opcode(node) != "parameter":
            return
        self._join_groups(
            self._users(node, self._old, self._pairing.old_side, level),
            self._users(other, self._new, self._pairing.new_side, level),
            level,
        )

    def _users(self, node: int, body: Body, side: Side, level: int) -> _Groups:
        """The free users of a node, by what they are and where they take it."""
        # Which elements of a loop's result are which is not known yet.
        is_loop = body.opcode(node) == "while"
        return _grouped(
            (None if told is None else (told, at, () if is_loop else path), user)
            for user, at, path in body.users[node]
            if side.partners[body.first + user] < 0
            for told in (_told(body, user, level),)
        )

    def _join_groups(self, found: _Groups, others: _Groups, level: int) -> None:
        for key, nodes in found.items():
            partners = others.get(key, ())
            # By its opcode alone, one of several is not told from another.
            if len(nodes) == len(partners) and (level < _LEVELS - 1 or len(nodes) == 1):
                for node, other in zip(nodes, partners, strict=True):
                    if self._agree(node, other):
                        self._join(node, other)

    def _agree(self, node: int, other: int) -> bool:
        """Whether no operand of one has a partner that the other does not take there."""
        values, others = self._old.values[node], self._new.values[other]
        if len(values) != len(others):
            return True
        for (producer, _), (its, _) in zip(values, others, strict=True):
            key = self._old.keys[producer]
            if key is not None and key.trivial and self._old.opcode(producer) != "parameter":
                continue
            new, old = self._pairing.to_new(producer), self._pairing.to_old(its)
            if new not in (-1, its) or old not in (-1, producer):
                return False
        return True


def _told(body: Body, node: int, level: int) -> Hashable | None:
    """What a node is, the less the higher the level; None where that is too little."""
    key = body.keys[node]
    if level == 0 or key is None:
        return None if key is None else body.base[node]
    if body.opcode(node) == "parameter" or body.opcode(node) in CONTROL:
        return None
    return (key.strong, key.weak, key.loose)[level - 1]


def _free(side: Side, body: Body, nodes: Iterable[int]) -> Iterator[int]:
    return (node for node in dict.fromkeys(nodes) if side.partners[body.first + node] < 0)


def _grouped(pairs: Iterable[tuple[Hashable | None, int]]) -> _Groups:
    found: _Groups = {}
    for key, node in pairs:
        if key is not None:
            found.setdefault(key, []).append(node)
    return found
