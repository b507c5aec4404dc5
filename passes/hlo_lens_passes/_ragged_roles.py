"""Which projection of an expert each ragged dot is: by what it takes and who takes its result.

A forward one whose rows are computed, element by element, from results of others is the second
(wo); those others are first ones (wi). Of two first ones the gate is that whose result goes through
a nonlinearity in front of the product. Gradients, and what is replayed without its second, are of
the forward one with which they share weights, or rows, or cotangents (definitions.md, role).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES, Value, attribute_text, trace
from hlo_lens_passes._ragged_origins import operand, operands

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Instruction
    from hlo_lens_passes._ragged_found import Projection, Ragged

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

Key = Hashable


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
        self._numbers: dict[object, object] | None = None

    def set(self) -> None:
        forward = [one for one in self.found if self._is_forward(one)]
        for one in forward:
            self._set_forward(one)
        known: dict[Key, list[Ragged]] = {}
        for one in forward:
            if one.role is not None:
                for key in self._keys(one.rhs, "weights"):
                    known.setdefault(key, []).append(one)
        by_weights = [one for one in self.found if one.kind in ("fwd", "dgrad")]
        for one in by_weights:
            if one.role is None:
                _inherit(one, self._sharing(known, self._keys(one.rhs, "weights")))
        self._set_weight_gradients(by_weights)

    def _is_forward(self, one: Ragged) -> bool:
        """Forward, or replayed: of one that is backward by name the dimension numbers only show
        that somebody transposed the weights."""
        if one.variant != "non_contracting" or one.kind == "dgrad":
            return False
        return self.analysis.phase(one.instr).phase != "bwd"

    # -- forward ----------------------------------------------------------------------------------

    def _set_forward(self, second: Ragged) -> None:
        feeders = self._feeders(second)
        firsts = [one for one in feeders if self._is_forward(one) and one is not second]
        if not firsts:
            return
        second.role, second.projection = "wo", "down"
        for first, projection in _projections({one: feeders[one] for one in firsts}).items():
            if first.role != "wo":
                first.role, first.projection = "wi", projection

    def _feeders(self, second: Ragged) -> dict[Ragged, _Ways]:
        """The ragged dots that the rows of one are computed from, element by element."""
        found: dict[int, tuple[Ragged, _Ways]] = {}
        if second.lhs is None:
            return {}
        start = (second.lhs, _NOTHING, None)
        waiting: list[tuple[Value, frozenset[str], str | None]] = [start]
        seen = {waiting[0]}
        for value, passed, part in waiting:  # grows while it is walked
            if len(waiting) > _MOST_LOOKED_AT:
                break
            at = trace(self.graph, value, moves=_NOTHING)
            opcode = at.instr.opcode
            given = self.by_instr.get(at.instr) or self._split_sum(at)
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
        return {given: ways for given, ways in found.values()}

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
        """Rows that a forward one takes, and cotangents that a data gradient takes."""
        taken: dict[Key, list[Ragged]] = {}
        for one in by_weights:
            for key in self._keys(one.lhs, "rows"):
                taken.setdefault(key, []).append(one)
        for one in self.found:
            if one.kind != "wgrad" or one.role is not None:
                continue
            sides = [self._sharing(taken, self._keys(side, "rows")) for side in (one.lhs, one.rhs)]
            # Two projections share rows; each has cotangents of its own, and they decide.
            for shared in sorted(filter(None, sides), key=lambda side: len(_projected(side))):
                if one.projection is None:
                    _inherit(one, shared)

    def _sharing(self, known: dict[Key, list[Ragged]], keys: Iterable[Key]) -> list[Ragged]:
        return [one for key in keys for one in known.get(key, ())]

    def _keys(self, value: Value | None, of: str) -> list[Key]:
        """What a value is known by: the place it comes from, and its number in the program."""
        if value is None:
            return []
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
        number = evaluation.values[index]  # type: ignore[attr-defined]
        for element in value.path:
            number = congruence.numbers.element(number, element)
        number = congruence.numbers.unviewed(number)
        return None if congruence.numbers[number].kind in ("unknown", "argument") else number


class _Ways:
    """The ways on which a second product takes the result of a first one: what each goes through,
    and which part of the result it takes."""

    def __init__(self) -> None:
        self.passed: list[frozenset[str]] = []
        self.parts: set[str] = set()

    def add(self, passed: frozenset[str], part: str | None) -> None:
        self.passed.append(passed)
        if part is not None:
            self.parts.add(part)

    def through(self, opcodes: frozenset[str]) -> bool:
        return any(passed & opcodes for passed in self.passed)


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


def _inherit(one: Ragged, shared: Sequence[Ragged]) -> None:
    """Role and projection of those it shares something with, where they agree."""
    roles = {other.role for other in shared if other.role is not None}
    if len(roles) != 1 or one.role not in (None, *roles):
        return
    one.role = roles.pop()
    projections = _projected(shared)
    if len(projections) == 1:
        one.projection = projections.pop()


def _projected(shared: Sequence[Ragged]) -> set[Projection]:
    return {other.projection for other in shared if other.projection is not None}
