"""Which projection of an expert each ragged dot is: by what it takes and who takes its result.

A forward one whose rows are computed, element by element, from results of others is the second
(wo); those others are first ones (wi). Of two first ones the gate is that whose result goes through
a nonlinearity in front of the product. Gradients, and what is replayed without its second, are of
the forward one with which they share weights, or rows, or cotangents (definitions.md, role).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from hlo_lens_passes._ragged_feeds import LIMITS, SMOOTH

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.dataflow import Value
    from hlo_lens_passes._ragged_feeds import Feeds, Ways
    from hlo_lens_passes._ragged_found import Projection, Ragged, Role
    from hlo_lens_passes._ragged_keys import Key, Keys, Side

_Part: TypeAlias = "tuple[Role, Projection | None]"
_Known: TypeAlias = "dict[Key, set[_Part]]"


class Roles:
    """Finds and sets role and projection of the ragged dots of a module."""

    def __init__(
        self, analysis: ModuleAnalysis, found: Sequence[Ragged], keys: Keys, feeds: Feeds
    ) -> None:
        self.analysis = analysis
        self.found = found
        self.keys = keys
        self.feeds = feeds
        # Which of the two halves of a fused result the gate is.
        self._gate_of: dict[Ragged, int] = {}

    def assign(self) -> None:
        forward = [one for one in self.found if self._is_forward(one)]
        self._set_forward(forward)
        known: _Known = {}
        for one in forward:
            for key, part in self._parts(one):
                known.setdefault(key, set()).add(part)
        by_weights = [one for one in self.found if one.variant == "non_contracting"]
        for one in by_weights:
            if one.role is None:
                _inherit(one, self._shared(known, one.rhs, "weights"))
        self._set_weight_gradients(by_weights)

    def _parts(self, one: Ragged) -> Iterator[tuple[Key, _Part]]:
        """What the weights of a forward one are known by, and what they are: weights put together
        of those of gate and up are these, each by itself."""
        if one.role is None:
            return
        gate = self._gate_of.get(one)
        places = [self.keys.places(value, "weights") for value in one.rhs]
        flat = [place for each in places for place in each]
        for number, place in enumerate(flat):
            projection = one.projection
            if gate is not None and len(flat) == 2:
                projection = "gate" if number == gate else "up"
            yield ("from", place), (one.role, projection)
        if len(flat) < 2:
            for value in one.rhs:
                number_of = self.keys.number(value)
                if number_of is not None:
                    yield ("number", number_of), (one.role, one.projection)

    def _is_forward(self, one: Ragged) -> bool:
        """Forward, or replayed. A kernel of which neither class nor direction is known may be."""
        if one.variant != "non_contracting":
            return False
        if one.direction is None and one.kind is None:
            return self.analysis.phase(one.instr).phase != "bwd"
        return one.direction == "fwd"

    # -- forward ----------------------------------------------------------------------------------

    def _set_forward(self, forward: Sequence[Ragged]) -> None:
        """Layers that follow on each other are firsts and seconds in turn: what takes the result
        of a second is a first of the next."""
        known = set(forward)
        feeders = {
            one: {given: ways for given, ways in self.feeds.of(one).items() if given in known}
            for one in forward
        }
        seconds: dict[Ragged, bool] = {}
        for one in _feeders_first(feeders):
            # What feeds itself, through a loop, is not known yet.
            seconds[one] = any(not seconds.get(given, True) for given in feeders[one])
        for second in forward:
            firsts = {given: ways for given, ways in feeders[second].items() if not seconds[given]}
            if not firsts:
                continue
            second.role, second.projection = "wo", "down"
            for first, projection in _projections(firsts).items():
                first.role, first.projection = "wi", projection
                gate = firsts[first].gate_half() if projection == "fused" else None
                if gate is not None:
                    self._gate_of[first] = gate

    # -- gradients --------------------------------------------------------------------------------

    def _set_weight_gradients(self, by_weights: Sequence[Ragged]) -> None:
        """Rows that a forward one takes, and cotangents that a data gradient takes.

        Two projections share rows; each has cotangents of its own, and these decide. Put together
        of two, they are those of a fused one.
        """
        taken: _Known = {}
        for one in by_weights:
            if one.role is not None:
                for value in one.lhs:
                    for key in self.keys.of(value, "rows"):
                        taken.setdefault(key, set()).add((one.role, one.projection))
        for one in self.found:
            if one.kind != "wgrad":
                continue
            together = [side for side in (one.lhs, one.rhs) if len(side) > 1]
            for sides in (together, (one.lhs, one.rhs)):
                shared = [self._shared(taken, side, "rows") for side in sides]
                for parts in sorted(filter(None, shared), key=len):
                    if one.projection is None:
                        _inherit(one, parts)
                if one.role is not None:
                    break
            apart = max((len(side) for side in sides), default=1) > 1
            if apart and any(len({each for _, each in parts}) > 1 for parts in shared):
                one.projection = "fused"

    def _shared(self, known: _Known, values: Sequence[Value], of: Side) -> set[_Part]:
        keys = (key for value in values for key in self.keys.of(value, of))
        return set().union(*(known.get(key, ()) for key in keys))


def _feeders_first(feeders: Mapping[Ragged, Iterable[Ragged]]) -> list[Ragged]:
    """Each behind those that feed it."""
    order: dict[Ragged, None] = {}
    entered: set[Ragged] = set()
    for start in feeders:
        waiting = [start]
        while waiting:
            one = waiting[-1]
            left = [given for given in feeders[one] if given not in entered]
            entered.add(one)
            if left:
                waiting += left
            else:
                order.setdefault(waiting.pop())
    return list(order)


def _projections(ways: dict[Ragged, Ways]) -> dict[Ragged, Projection | None]:
    """Gate and up of two, fused of one whose result is split in two; else not known."""
    none: dict[Ragged, Projection | None] = dict.fromkeys(ways)
    if len(ways) == 1:
        (only,) = ways
        return {only: "fused"} if len(ways[only].parts) == 2 else none
    if len(ways) != 2:
        return none
    for opcodes in (SMOOTH, LIMITS):
        gates = [one for one in ways if ways[one].through(opcodes)]
        if len(gates) == 1:
            return {one: "gate" if one is gates[0] else "up" for one in ways}
        if len(gates) == 2:
            return none
    return none


def _inherit(one: Ragged, shared: Iterable[_Part]) -> None:
    """Role and projection of those it shares something with, where they agree."""
    parts = set(shared)
    roles = {role for role, _ in parts}
    if len(roles) != 1 or one.role not in (None, *roles):
        return
    one.role = roles.pop()
    projections = {projection for _, projection in parts if projection is not None}
    if len(projections) == 1:
        one.projection = projections.pop()
