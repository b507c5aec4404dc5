"""Which projection of an expert each ragged dot is: by what it takes and who takes its result.

A forward one whose rows are computed, element by element, from results of others is the second
(wo); those others are first ones (wi). Of two first ones the gate is that whose result goes through
a nonlinearity in front of the product. Gradients, and what is replayed without its second, are of
the forward one with which they share weights, or rows, or cotangents (definitions.md, role).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from hlo_lens.analysis.dataflow import MOVES, Value, attribute_text, steps, trace
from hlo_lens_passes._ragged_origins import operand, operands

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.analysis.congruence import Evaluation
    from hlo_lens.hlo import Computation, Instruction
    from hlo_lens_passes._ragged_found import Projection, Ragged, Role

_NOTHING: Final[frozenset[str]] = frozenset()
_SMOOTH: Final = frozenset(
    ("erf", "exponential", "exponential-minus-one", "logistic", "log-plus-one", "tanh")
)
# Nonlinear, too; but a limit may be set on both halves of a product.
_LIMITS: Final = frozenset(("clamp", "maximum", "minimum"))
# What stands between two layers, or mixes rows: the second product is not behind these.
_NOT_ELEMENTWISE: Final = frozenset(
    (
        "convolution", "dot", "gather", "ragged-dot", "reduce", "reduce-window", "rng", "scatter",
        "sort", "while",
    )
)  # fmt: skip
# What gives weights in another form, or part of them: weights are told apart by where they begin.
_WEIGHTS_MOVE: Final = MOVES | {
    "all-gather", "dynamic-slice", "opt-barrier", "reduce-precision", "transpose",
}  # fmt: skip
_MOST_LOOKED_AT: Final = 1 << 12
_MOST_MOVES: Final = 256

_DIGITS: Final = re.compile(r"\d+", re.A)

Key = Hashable
_Part: TypeAlias = "tuple[Role, Projection | None]"
_Known: TypeAlias = "dict[Key, set[_Part]]"


class Roles:
    """Finds and sets role and projection of the ragged dots of a module."""

    def __init__(self, analysis: ModuleAnalysis, found: Sequence[Ragged]) -> None:
        self.analysis = analysis
        self.graph: CallGraph = analysis.graph
        self.found = found
        self.by_instr: dict[Instruction, Ragged] = {}
        for one in found:
            self.by_instr[one.instr] = one
            for result in one.results:
                self.by_instr[result.instr] = one
        self._numbers: dict[Computation, Evaluation] | None = None
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
        places = [self._places(value, "weights") for value in one.rhs]
        flat = [place for each in places for place in each]
        for number, place in enumerate(flat):
            projection = one.projection
            if gate is not None and len(flat) == 2:
                projection = "gate" if number == gate else "up"
            yield ("from", place), (one.role, projection)
        if len(flat) < 2:
            for value in one.rhs:
                number_of = self._number(value)
                if number_of is not None:
                    yield ("number", number_of), (one.role, one.projection)

    def _is_forward(self, one: Ragged) -> bool:
        """Forward, or replayed: of one that is backward by name the dimension numbers only show
        that somebody transposed the weights."""
        if one.variant != "non_contracting" or one.kind == "dgrad":
            return False
        return self.analysis.phase(one.instr).phase != "bwd"

    # -- forward ----------------------------------------------------------------------------------

    def _set_forward(self, forward: Sequence[Ragged]) -> None:
        """Layers that follow on each other are firsts and seconds in turn: what takes the result
        of a second is a first of the next."""
        known = set(forward)
        feeders = {
            one: {given: ways for given, ways in self._feeders(one).items() if given in known}
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

    def _feeders(self, second: Ragged) -> dict[Ragged, _Ways]:
        """The ragged dots that the rows of one are computed from, element by element."""
        found: dict[int, tuple[Ragged, _Ways]] = {}
        waiting: list[tuple[Value, frozenset[str], str | None]] = [
            (value, _NOTHING, None) for value in second.lhs
        ]
        seen = set(waiting)
        for value, passed, part in waiting:  # grows while it is walked
            if len(waiting) > _MOST_LOOKED_AT:
                break
            at, given = self._given(value)
            opcode = at.instr.opcode
            if given is not None:
                ways = found.setdefault(id(given), (given, _Ways()))[1]
                ways.add(passed, part)
                continue
            if opcode in _NOT_ELEMENTWISE or opcode.startswith("custom-call"):
                continue
            if opcode in ("slice", "dynamic-slice"):
                part = attribute_text(at.instr, "slice") or at.instr.argument_text
            if opcode in _SMOOTH or opcode in _LIMITS:
                passed = passed | {opcode}
            count = 1 if opcode in ("slice", "dynamic-slice") else None
            for one in list(operands(at))[:count]:
                step = (one, passed, part)
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return dict(found.values())

    def _given(self, value: Value) -> tuple[Value, Ragged | None]:
        """What computes a value, and which ragged dot that is."""
        at = value
        for at in steps(self.graph, value, moves=_NOTHING):
            given = self.by_instr.get(at.instr)
            if given is not None:
                return at, given
        return at, self._split_sum(at)

    def _split_sum(self, at: Value) -> Ragged | None:
        """The ragged dot whose slices a reduce adds up."""
        given = operand(at, 0) if at.instr.opcode == "reduce" else None
        if given is None:
            return None
        one = self.by_instr.get(trace(self.graph, given, moves=MOVES | {"transpose"}).instr)
        parts = [] if one is None else one.members
        return one if ("reduce", at.instr) in parts else None

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
                    for key in self._keys(value, "rows"):
                        taken.setdefault(key, set()).add((one.role, one.projection))
        for one in self.found:
            if one.kind != "wgrad":
                continue
            sides = [side for side in (one.lhs, one.rhs) if len(side) > 1] or [one.lhs, one.rhs]
            shared = [self._shared(taken, side, "rows") for side in sides]
            for parts in sorted(filter(None, shared), key=len):
                if one.projection is None:
                    _inherit(one, parts)
            apart = max((len(side) for side in sides), default=1) > 1
            if apart and any(len({each for _, each in parts}) > 1 for parts in shared):
                one.projection = "fused"

    def _shared(self, known: _Known, values: Sequence[Value], of: str) -> set[_Part]:
        keys = (key for value in values for key in self._keys(value, of))
        return set().union(*(known.get(key, ()) for key in keys))

    def _keys(self, value: Value, of: str) -> list[Key]:
        """What a value is known by: the place it comes from, and its number in the program."""
        keys: list[Key] = [("from", place) for place in self._places(value, of)]
        number = self._number(value)
        return keys if number is None else [*keys, ("number", number)]

    def _places(self, value: Value, of: str) -> list[Key]:
        """Where weights, or rows, come from; for a concatenation the places of its parts."""
        waiting: list[tuple[Value, tuple[str, ...]]] = [(value, ())]
        places: list[Key] = []
        for at, cuts in waiting:  # grows while it is walked
            if len(waiting) > _MOST_MOVES:
                break
            at = trace(self.graph, at, moves=_WEIGHTS_MOVE if of == "weights" else MOVES)
            opcode = at.instr.opcode
            if of == "weights" and opcode == "all-gather-start" and (one := operand(at, 0)):
                waiting.append((one, cuts))
            elif opcode == "slice" and (one := operand(at, 0)):
                cut = attribute_text(at.instr, "slice") or ""
                waiting.append((one, (*cuts, "".join(cut.split()))))
            elif opcode == "concatenate":
                waiting += [(one, cuts) for one in operands(at)]
            else:
                places.append((at.instr, at.path, cuts))
        return places

    def _number(self, value: Value) -> int | None:
        """The number of a value where its computation runs first, in whatever order its elements
        are; None where it is not reached."""
        congruence = self.analysis.congruence
        if self._numbers is None:
            self._numbers = {}
            for context in congruence.contexts():
                self._numbers.setdefault(context.evaluation.computation, context.evaluation)
        evaluation = self._numbers.get(value.instr.computation)
        index = value.instr.index
        if evaluation is None or index < 0:
            return None
        number = evaluation.values[index]
        for element in value.path:
            number = congruence.numbers.element(number, element)
        number = congruence.numbers.unviewed(number)
        return None if congruence.numbers[number].kind in ("unknown", "argument") else number


class _Ways:
    """The ways on which a second product takes the result of a first one: what each goes through,
    and which part of the result it takes."""

    def __init__(self) -> None:
        self.passed: list[tuple[str | None, frozenset[str]]] = []

    def add(self, passed: frozenset[str], part: str | None) -> None:
        self.passed.append((part, passed))

    @property
    def parts(self) -> set[str]:
        return {part for part, _ in self.passed if part is not None}

    def gate_half(self) -> int | None:
        """Which of two halves goes through a nonlinearity, counted as they lie in the result."""
        halves = sorted(self.parts, key=lambda part: [int(n) for n in _DIGITS.findall(part)])
        gates = {part for part, passed in self.passed if passed & _SMOOTH}
        if len(halves) != 2 or len(gates) != 1 or None in gates:
            return None
        return halves.index(str(gates.pop()))

    def through(self, opcodes: frozenset[str]) -> bool:
        return any(passed & opcodes for _, passed in self.passed)


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


def _projections(ways: dict[Ragged, _Ways]) -> dict[Ragged, Projection | None]:
    """Gate and up of two, fused of one whose result is split in two; else not known."""
    none: dict[Ragged, Projection | None] = dict.fromkeys(ways)
    if len(ways) == 1:
        (only,) = ways
        return {only: "fused"} if len(ways[only].parts) == 2 else none
    if len(ways) != 2:
        return none
    for opcodes in (_SMOOTH, _LIMITS):
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
