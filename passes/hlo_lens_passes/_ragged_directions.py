"""What each ragged dot computes in the step: forward, a data gradient, or a weight gradient.

Its class says which dimension of the weights it contracts, and of weights stored [G,N,K] that is
the other one. What runs forward is told by what takes the same weights: those that contract one
dimension of them are forward, those that contract the other are data gradients. Which is which:

1. names, `transpose(…)` being backward;
2. dataflow: gradients are computed from what the forward gives, and never the other way round: of
   two that share weights, of a weight gradient and what takes its rows, and along all rows;
3. where no gradient is in the program at all: firsts that feed a second are forward;
4. else the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value
from hlo_lens_passes._ragged_found import OTHER_CLASS, Class, Direction, Ragged

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens_passes._ragged_feeds import Feeds
    from hlo_lens_passes._ragged_keys import Key, Keys

_FORWARD: Final = frozenset(("fwd", "remat"))
EXCHANGED: Final = {
    "fwd": "by its numbers a data gradient, but in the forward: its weights are stored [G,N,K]",
    "dgrad": "by its numbers a forward, but a data gradient: its weights are stored [G,N,K]",
}


class _Weights:
    """The ragged dots that take the same weights. forward: the class that the forward ones have;
    None: not known yet."""

    def __init__(self, dots: list[Ragged]) -> None:
        self.dots = dots
        self.forward: Class | None = None
        self.told: str | None = None

    def of(self, kind: Class) -> list[Ragged]:
        return [one for one in self.dots if one.kind == kind]

    def settle(self, forward: Class, told: str) -> None:
        if self.forward is None:
            self.forward, self.told = forward, told

    def settle_as(self, one: Ragged, direction: Direction, told: str) -> None:
        """Settle it by what one of them is."""
        if one.kind is not None:
            self.settle(one.kind if direction == "fwd" else OTHER_CLASS[one.kind], told)


class Directions:
    """Finds and sets the direction of the ragged dots of a module."""

    def __init__(
        self, analysis: ModuleAnalysis, found: Sequence[Ragged], keys: Keys, feeds: Feeds
    ) -> None:
        self.analysis = analysis
        self.keys = keys
        self.feeds = feeds
        self.by_rows = [one for one in found if one.variant == "non_contracting"]
        self.gradients = [one for one in found if one.kind == "wgrad"]
        self.phases = {one: analysis.phase(one.instr).phase for one in found}
        self._bits: dict[Ragged, int] = {}
        self._needs: list[int] = []

    def assign(self) -> None:
        for one, phase in self.phases.items():
            if one.variant != "non_contracting":
                one.direction = one.kind or ("fwd" if phase in _FORWARD else None)
        groups = [_Weights(dots) for dots in self._by_weights()]
        for group in groups:
            self._by_names(group)
        if any(group.forward is None for group in groups):
            self._by_dataflow([group for group in groups if group.forward is None], groups)
        differentiated = self._is_differentiated(groups)
        if not differentiated and self._runs_forward():
            for group in groups:
                for one in group.dots:
                    group.settle_as(one, "fwd", "no gradient in the program")
        for group in groups:
            for one in group.dots:
                one.direction = self._direction(one, group, differentiated)
                if one.direction is not None and one.kind == OTHER_CLASS.get(one.direction):
                    one.evidence += [group.told or "", EXCHANGED[one.direction]]

    def _direction(self, one: Ragged, group: _Weights, differentiated: bool) -> Direction | None:
        phase = self.phases[one]
        if one.kind is None:
            return "fwd" if phase in _FORWARD else "dgrad" if phase == "bwd" else None
        if group.forward is not None:
            return "fwd" if one.kind == group.forward else "dgrad"
        # Alone, and with no name, it may be of weights stored in either way.
        return one.kind if one.kind == "fwd" or differentiated else None

    def _by_weights(self) -> list[list[Ragged]]:
        """Those that take the same weights, or weights put together of these."""
        leader = {one: one for one in self.by_rows}

        def led_by(one: Ragged) -> Ragged:
            while leader[one] is not one:
                leader[one] = leader[leader[one]]
                one = leader[one]
            return one

        known: dict[Key, Ragged] = {}
        for one in self.by_rows:
            for key in (key for value in one.rhs for key in self.keys.of(value, "weights")):
                leader[led_by(one)] = led_by(known.setdefault(key, one))
        groups: dict[Ragged, list[Ragged]] = {}
        for one in self.by_rows:
            groups.setdefault(led_by(one), []).append(one)
        return list(groups.values())

    def _by_names(self, group: _Weights) -> None:
        """What is forward by name has the class of the forward; else what is not backward has."""
        forward = {one.kind for one in group.dots if self.phases[one] in _FORWARD} - {None}
        if len(forward) == 1:
            group.settle(forward.pop(), "phase fwd")  # type: ignore[arg-type]
        backward = {one.kind for one in group.dots if self.phases[one] == "bwd"} - {None}
        if not forward and len(backward) == 1:
            group.settle(OTHER_CLASS[backward.pop()], "phase bwd")  # type: ignore[index]

    # -- dataflow ---------------------------------------------------------------------------------

    def _by_dataflow(self, open_: Sequence[_Weights], groups: Sequence[_Weights]) -> None:
        self._number()
        for group in open_:
            self._by_each_other(group)
            if group.forward is None:
                self._by_weight_gradients(group)
        forward, backward = 0, 0
        for group in groups:
            for one in group.dots:
                if group.forward is not None and one.kind is not None:
                    if one.kind == group.forward:
                        forward |= self._needed(one.lhs)
                    else:
                        backward |= self._bits[one]
        for group in open_:
            for one in group.dots:
                if group.forward is None and self._bits[one] & forward:
                    group.settle_as(one, "fwd", "a forward product depends on it")
                if group.forward is None and self._needed(one.lhs) & backward:
                    group.settle_as(one, "dgrad", "depends on a data gradient")
        for group in open_:
            self._by_takers(group, groups)

    def _number(self) -> None:
        """A bit for each ragged dot, and for each number of the program those it depends on."""
        own: dict[int, int] = {}
        for place, one in enumerate(self.by_rows):
            self._bits[one] = 1 << place
            result = one.results[0] if one.results else Value(one.instr)
            number = self.keys.number(result)
            if number is not None:
                own[number] = own.get(number, 0) | self._bits[one]
        numbers = self.analysis.congruence.numbers
        for number in range(len(numbers)):
            bits = own.get(number, 0)
            for below in numbers[number].operands:  # made before what takes them
                bits |= self._needs[below]
            self._needs.append(bits)

    def _needed(self, values: Iterable[Value]) -> int:
        """The ragged dots that values depend on, in any way."""
        bits = 0
        for value in values:
            number = self.keys.number(value)
            bits |= 0 if number is None else self._needs[number]
        return bits

    def _by_each_other(self, group: _Weights) -> None:
        """Of those that contract the one dimension and those that contract the other, the first
        ones depend on the others, and not the other way round."""
        sides: dict[Class, int] = {}
        depends: dict[Class, int] = {}
        for kind in OTHER_CLASS:
            for one in group.of(kind):
                sides[kind] = sides.get(kind, 0) | self._bits[one]
                depends[kind] = depends.get(kind, 0) | self._needed(one.lhs)
        if len(sides) < 2:
            return
        behind = [kind for kind in sides if depends[kind] & sides[OTHER_CLASS[kind]]]
        if len(behind) == 1:
            group.settle(OTHER_CLASS[behind[0]], "what else takes its weights depends on it")

    def _by_weight_gradients(self, group: _Weights) -> None:
        """The cotangents of a weight gradient depend on the product that takes the same rows."""
        for one in group.dots:
            rows = self._keys(one.lhs)
            for gradient in self.gradients:
                for side, other in (gradient.lhs, gradient.rhs), (gradient.rhs, gradient.lhs):
                    if self._needed(other) & self._bits[one] and rows & self._keys(side):
                        group.settle_as(one, "fwd", "cotangents of its rows depend on it")

    def _by_takers(self, group: _Weights, groups: Sequence[_Weights]) -> None:
        """What only data gradients take, element by element, is one, where what else takes its
        weights is taken by none: each first product has a second in the forward."""
        if group.forward is not None or not (group.of("fwd") and group.of("dgrad")):
            return
        backward = {
            one
            for other in groups
            if other.forward is not None
            for one in other.of(OTHER_CLASS[other.forward])
        }
        taken: dict[Class, set[Ragged]] = {}
        for kind in OTHER_CLASS:
            givers = {*group.of(kind)}
            taken[kind] = {one for one in self.by_rows if not givers.isdisjoint(self.feeds.of(one))}
        for kind, other in OTHER_CLASS.items():
            if taken[kind] and taken[kind] <= backward and not taken[other] & backward:
                group.settle(other, "only data gradients take what else takes its weights")

    def _keys(self, values: Iterable[Value]) -> set[Key]:
        return {key for value in values for key in self.keys.of(value, "rows")}

    # -- no gradient ------------------------------------------------------------------------------

    def _is_differentiated(self, groups: Iterable[_Weights]) -> bool:
        """Whether a gradient is in the program: of weights, by name, or by weights that are
        contracted in both ways."""
        if self.gradients or "bwd" in self.phases.values():
            return True
        return any(group.of("fwd") and group.of("dgrad") for group in groups)

    def _runs_forward(self) -> bool:
        """Whether what shows no gradient is a forward: rows of one are computed from results of
        others. Where data gradients stand alone, what a second product gives is taken by those of
        two first ones; and of a lone product nobody knows."""
        taken: dict[Ragged, int] = {}
        for one in self.by_rows:
            for given in self.feeds.of(one):
                taken[given] = taken.get(given, 0) + 1
        return bool(taken) and max(taken.values()) == 1
