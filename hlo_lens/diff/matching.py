"""Which instruction of one module is which of another, by structure, not by names.

Computations are matched from the entries down: the bodies of matched loops, what matched fusions
and calls run. Two that hold the same graph are matched whole. All of it is n log n.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from itertools import count
from typing import Final

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.diff.equality import result
from hlo_lens.diff.fingerprints import Bodies, Body
from hlo_lens.diff.given import (
    Call,
    Given,
    Route,
    Slot,
    arguments,
    calls,
    give,
    goes_round,
    paired,
    slots,
)
from hlo_lens.diff.keys import Numbers
from hlo_lens.diff.model import Matching
from hlo_lens.diff.neighbours import Neighbours
from hlo_lens.diff.pairing import match_different, match_equal
from hlo_lens.diff.sides import Keys, Pairing, Side

_OF_ONE: Final = frozenset(("body", "condition", "branch"))
"""Calls of computations that have one parameter."""


def match(old: ModuleAnalysis, new: ModuleAnalysis) -> Matching:
    """The matching of two modules. Damaged text is matched as far as it goes; nothing is raised."""
    numbers = Numbers()
    sides = [Side(each, Bodies(each.graph, numbers)) for each in (old, new)]
    matcher = Matcher(sides[0], sides[1])
    matcher.match_all()
    return result(matcher.old, matcher.new, matcher.pairs, matcher.routes)


class Matcher:
    """Matches two modules computation by computation.

    pairs: the matched computations with what matches their nodes, by the index of the old one,
    callers mostly before callees. routes: by the place of an old node that gives a tuple, which
    element of it is which of its partner's; where it has none, the same one.
    """

    def __init__(self, old: Side, new: Side) -> None:
        self.old, self.new = old, new
        self.pairs: dict[int, Pairing] = {}
        self.routes: dict[int, Route] = {}
        self._taken: set[int] = set()  # new computations that are matched
        self._waiting: deque[Pairing] = deque()
        self._fresh: Iterator[int] = count()

    def match_all(self) -> None:
        """Match everything, from the entries down; then what moved from one computation to
        another; then computations that nothing matched calls."""
        old, new = (
            side.bodies.of.get(side.analysis.module.entry.index) for side in (self.old, self.new)
        )
        if old is not None and new is not None:
            self._pair(old, new)
        self._match_called()
        self._match_moved()
        self._match_called()
        self._match_left()
        self._match_called()

    def _pair(
        self, old: Body, new: Body, caller: Pairing | None = None, call: Call | None = None
    ) -> None:
        """Match two computations, if neither has a partner yet."""
        if old.computation.index in self.pairs or new.computation.index in self._taken:
            return
        pairing = Pairing(self.old, self.new, old, new)
        self.pairs[old.computation.index] = pairing
        self._taken.add(new.computation.index)
        if old.number == new.number:
            match_equal(pairing)
        else:
            given = self._given(pairing, caller, call)
            for node, other in given.parameters.items():
                pairing.join(node, other)
            for node, route in given.routes.items():
                self.routes[old.first + node] = route
            match_different(pairing, given)
        self._waiting.append(pairing)

    def _match_called(self) -> None:
        """Match what matched nodes call, until nothing is left that waits."""
        while self._waiting:
            caller = self._waiting.popleft()
            for node in caller.old.callees:
                other = caller.to_new(node)
                if other >= 0:
                    for call in calls(caller.old, caller.new, node, other):
                        self._match_call(caller, call)

    def _match_call(self, caller: Pairing, call: Call) -> None:
        old = self.old.bodies.of.get(call.old.callee.index)
        new = self.new.bodies.of.get(call.new.callee.index)
        if old is None or new is None:
            return
        self._pair(old, new, caller, call)
        if call.old.kind == "body":  # what a loop gives is its carry
            route = self.routes.get(old.first + old.parameters().get(0, 0))
            if route is not None:
                self.routes[caller.old.first + call.node] = route

    # ------------------------------------------------------------------------------ what is given

    def _given(self, pairing: Pairing, caller: Pairing | None, call: Call | None) -> Given:
        old, new = pairing.old, pairing.new
        keys: Keys
        its: Keys
        if caller is None or call is None:
            found, others = slots(old, (), None), slots(new, (), None)
            keys, its = self._argument_keys(pairing, found, others)
        else:
            values = arguments(caller.old, call, call.old, call.node)
            found = slots(old, values, caller.old)
            others = slots(new, arguments(caller.new, call, call.new, call.other), caller.new)
            keys = [
                None if slot.outside is None else caller.translated(slot.outside, self.routes)
                for slot in found
            ]
            its = [slot.outside for slot in others]
            if call.old.kind == "apply":  # to elements: their order is all that tells them apart
                keys, its = range(len(found)), range(len(others))
        pairs = list(paired(found, others, keys, its))
        given = give(self.old.bodies.numbers, self._fresh, found, others, pairs)
        if call is not None and call.old.kind in _OF_ONE:
            numbers = old.parameters(), new.parameters()
            if 0 in numbers[0] and 0 in numbers[1]:
                given.parameters.setdefault(numbers[0][0], numbers[1][0])
        if call is not None and call.old.kind == "body":
            goes_round(given, old, new)
        return given

    def _argument_keys(
        self, pairing: Pairing, found: list[Slot], others: list[Slot]
    ) -> tuple[Keys, Keys]:
        """What tells the arguments of entries: their numbers where both take as many, else their
        names."""
        if len(found) == len(others):
            return range(len(found)), range(len(others))
        return (
            _named(found, self.old.names(pairing.old)),
            _named(others, self.new.names(pairing.new)),
        )

    # ------------------------------------------------------------------------------ what is left

    def _match_moved(self) -> None:
        """Match what stands in another computation than before, by all that is known of it: what
        it is, what it calls, its op_name and phase."""
        found, others = self._placed(self.old), self._placed(self.new)
        pairings: dict[tuple[int, int], Pairing] = {}
        for key, places in found.items():
            for (old, node), (new, other) in zip(places, others.get(key, ()), strict=False):
                indices = old.computation.index, new.computation.index
                pairing = pairings.get(indices)
                if pairing is None:
                    pairing = Pairing(self.old, self.new, old, new)
                    pairings[indices] = pairing
                pairing.join(node, other)
        for pairing in pairings.values():
            Neighbours(pairing, pairing.join_alike).spread()
            self._waiting.append(pairing)

    def _placed(self, side: Side) -> dict[Hashable, list[tuple[Body, int]]]:
        """The nodes without a partner whose names tell where in the program they belong."""
        found: dict[Hashable, list[tuple[Body, int]]] = {}
        for body in side.bodies.of.values():
            free = [node for node in side.free(body) if not body.key(node).trivial]
            if not free:
                continue
            names, phases = side.names(body), side.phases(body)
            for node in free:
                if names[node] is not None:
                    key = (body.base[node], phases[node], names[node])
                    found.setdefault(key, []).append((body, node))
        return found

    def _match_left(self) -> None:
        """Match the computations that hold the same graph and that nothing matched calls, those of
        one phase in order."""
        old = [body for index, body in self.old.bodies.of.items() if index not in self.pairs]
        new = [body for index, body in self.new.bodies.of.items() if index not in self._taken]
        partners: dict[Hashable, deque[Body]] = {}
        for body in new:
            partners.setdefault(_graph(self.new, body), deque()).append(body)
        for body in old:
            its = partners.get(_graph(self.old, body))
            if its:
                self._pair(body, its.popleft())


def _graph(side: Side, body: Body) -> Hashable:
    root = body.root[0]
    return body.number, side.phases(body)[root] if root >= 0 else None


def _named(found: list[Slot], names: Sequence[str | None]) -> Keys:
    """The op_names of parameters, which are the names of the arguments."""
    return [
        None if names[node] is None else (names[node], path)
        for node, path in (slot.inside for slot in found)
    ]
