"""How often a while runs its body: what XLA noted, or what init, step and condition say.

Inference follows the condition back to compares of integers that change by a constant each
iteration: elements of the carry whose init is a constant and which the body replaces by
themselves plus a constant, and what add, subtract, multiply, negate and convert make of those.
It calculates without bound; where a value would leave the range of its dtype, and so wrap
around, the answer is unknown.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.dataflow import Value, attribute_text, called, number_of, trace
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import whole_number

TripsKind = Literal["annotated", "inferred", "bounded", "unknown"]

_MOVES = frozenset(("bitcast", "copy", "reshape"))
_INTEGER = re.compile(r"([su])(\d{1,4})\[", re.A)
_WIDEST = 64
# Before 2019-03 each direction was an opcode of its own.
_OLD_COMPARES = {
    "equal-to": "EQ",
    "not-equal-to": "NE",
    "less-than": "LT",
    "less-than-or-equal-to": "LE",
    "greater-than": "GT",
    "greater-than-or-equal-to": "GE",
}
_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
_SIGNS = {"EQ": "=", "NE": "≠", "LT": "<", "LE": "≤", "GT": ">", "GE": "≥"}
_NOTHING = (0, math.inf)
# A value computed from operations nested deeper than this is taken as unknown.
_MOST_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Progression:
    """An integer that is `start + k·step` in iteration k = 0, 1, …"""

    start: int
    step: int

    def at(self, k: int) -> int:
        return self.start + k * self.step

    def __str__(self) -> str:
        if not self.step:
            return str(self.start)
        return f"{self.start}, {self.at(1)}, …"


@dataclass(frozen=True, slots=True)
class Trips:
    """What is known of how often the body of a while runs.

    count: the number, or None. most: an upper bound, or None; equal to `count` where that is
    known. kind: `annotated`, `inferred`, `bounded` (only `most` is known) or `unknown`. inferred:
    what the structure says, also where an annotation says something else. induction_index:
    the element of the carry that the condition compares; start, step: its progression.
    evidence: how the count is known, for people.
    """

    count: int | None
    most: int | None
    kind: TripsKind
    inferred: int | None
    induction_index: int | None
    start: int | None
    step: int | None
    evidence: str


def trips_of(graph: CallGraph, loop: Instruction) -> Trips:
    """The trip count of a while. An annotation wins over what is inferred."""
    inference = Inference(graph, loop)
    least, most = inference.trips()
    inferred = int(least) if least == most and not math.isinf(least) else None
    annotated, index, step = _annotation(loop)
    start = None
    said = ""
    if inference.compared is not None:
        index, values, said = inference.compared
        start, step = values.start, values.step
    if annotated is not None:
        said = f"known_trip_count {annotated}" + (f"; {said}" if said else "")
        return Trips(annotated, annotated, "annotated", inferred, index, start, step, said)
    if inferred is not None:
        said = said or "the condition is constant"
        return Trips(inferred, inferred, "inferred", inferred, index, start, step, said)
    if not math.isinf(most):
        said = f"{said}, at most {int(most)} times; another condition may end it earlier"
        return Trips(None, int(most), "bounded", None, index, start, step, said)
    said = f"{said}, which does not end it" if said else "the condition compares no known integers"
    return Trips(None, None, "unknown", None, index, start, step, said)


def _annotation(loop: Instruction) -> tuple[int | None, int | None, int | None]:
    """(trip count, index of the induction variable, its step) as the backend_config has them.

    What cannot be one, such as a count below zero, is taken for none.
    """
    try:
        config = loop.backend_config
    except ValueError:
        config = None
    if config is None:
        return None, None, None
    count, index, step = (
        str(value) if isinstance(value, int | str) else ""
        for value in (
            config.get("known_trip_count", "n"),
            config.get("known_induction_variable", "tuple_index"),
            config.get("known_init_step", "step"),
        )
    )
    change = whole_number(step.removeprefix("-"))
    if change is not None and step.startswith("-"):
        change = -change
    return whole_number(count), whole_number(index), change


@dataclass(frozen=True, slots=True)
class _Affine:
    """scale · (an element of the carry) + offset; element None: the constant `offset`."""

    element: tuple[int, ...] | None
    scale: int
    offset: int


class Inference:
    """Integers and preds in the body and the condition of one while, by iteration.

    `trip_count` bounds the iterations that are asked about, where it is known from elsewhere.
    `compared`: of the first compare in the condition that changes, the index of the element of
    the carry behind it, the progression of that element, and a sentence.
    """

    def __init__(self, graph: CallGraph, loop: Instruction, trip_count: int | None = None) -> None:
        self.loop = loop
        self.body = called(loop, "body")
        self.condition = called(loop, "condition")
        self.compared: tuple[int | None, Progression, str] | None = None
        self._most = math.inf if trip_count is None else trip_count
        self._graph = graph
        self._elements: dict[tuple[int, ...], Progression | None] = {}
        # Values that must be in the range of their dtype for the arithmetic to hold.
        self._limits: list[tuple[_Affine, Instruction]] = []
        self._known_affine: dict[Value, _Affine | None] = {}
        self._known_holds: dict[tuple[Value, bool], tuple[float, float]] = {}

    def trips(self) -> tuple[float, float]:
        """(least, most) iterations: (0, inf) where nothing is known, (inf, inf) if none ends it."""
        if self.body is None or self.condition is None:
            return _NOTHING
        return self._holds(Value(self.condition.root), False, 0)

    def progression(self, value: Value) -> Progression | None:
        """The values that an integer of the body or condition takes, where they are one."""
        return self._progression(self._affine(value, 0))

    def _trace(self, value: Value) -> Value:
        return trace(self._graph, value, moves=_MOVES, into_loops=False)

    def _holds(self, value: Value, negated: bool, depth: int) -> tuple[float, float]:
        """For how many iterations a pred is true (or false) until it is not: (least, most)."""
        value = self._trace(value)
        known = self._known_holds.get((value, negated))
        if known is None:
            known = self._find_holds(value, negated, depth) if depth < _MOST_DEPTH else _NOTHING
            self._known_holds[value, negated] = known
        return known

    def _find_holds(self, value: Value, negated: bool, depth: int) -> tuple[float, float]:
        opcode = value.instr.opcode
        if value.path and opcode not in ("constant", "parameter"):
            return _NOTHING
        if opcode == "not":
            return self._holds(_operand(value, 0), not negated, depth + 1)
        if opcode == ("or" if negated else "and"):
            # It fails as soon as one of the two does.
            sides = [self._holds(_operand(value, i), negated, depth + 1) for i in (0, 1)]
            return min(side[0] for side in sides), min(side[1] for side in sides)
        if opcode == "compare" or opcode in _OLD_COMPARES:
            return self._compare_holds(value, negated, depth)
        constant = self._constant_pred(value)
        if constant is not None:
            return (math.inf, math.inf) if constant != negated else (0, 0)
        if self.body is not None and self._is_carry(value):
            # A pred that the body computes for the iteration after.
            first = self._constant_pred(self._initial(value.path))
            if first is not None and first == negated:
                return 0, 0
            least, most = self._holds(Value(self.body.root, value.path), negated, depth + 1)
            return (0 if first is None else 1 + least), 1 + most
        return _NOTHING

    def _compare_holds(self, value: Value, negated: bool, depth: int) -> tuple[float, float]:
        opcode = value.instr.opcode
        direction = _OLD_COMPARES.get(opcode) or attribute_text(value.instr, "direction")
        sides = [_operand(value, i) for i in (0, 1)]
        affine = [self._affine(side, depth + 1) for side in sides]
        left, right = (self._progression(side) for side in affine)
        if left is None or right is None or direction not in _SIGNS:
            return _NOTHING
        if negated:
            direction = _OPPOSITE[direction]
        varying = affine[0] if left.step else affine[1]
        if varying is not None and varying.element is not None and self.compared is None:
            self._note(varying.element, f"{left} {_SIGNS[direction]} {right}")
        count = _iterations(left, right, direction)
        last = 0 if math.isinf(count) else int(count)
        # The text may leave out the shape of one side.
        dtype = next((s.instr for s in sides if _INTEGER.match(s.instr.shape_text)), sides[0].instr)
        limits = [*self._limits, *((a, dtype) for a in affine)]
        if not all(self._stays_in_range(a, instr, last) for a, instr in limits):
            return _NOTHING
        return count, count

    def _note(self, element: tuple[int, ...], compare: str) -> None:
        values = self._element(element)
        if values is not None:
            name = f"carry {'.'.join(map(str, element))}" if element else "the carry"
            said = f"{name} from {values.start} in steps of {values.step} while {compare}"
            self.compared = (element[0] if element else None, values, said)

    def _stays_in_range(self, affine: _Affine | None, instr: Instruction, last: int) -> bool:
        values = self._progression(affine)
        return values is None or all(_fits(values.at(k), instr.shape_text) for k in (0, last))

    def _is_carry(self, value: Value) -> bool:
        """Whether this is an element of the carry as an iteration finds it."""
        return (
            value.instr.opcode == "parameter"
            and not value.via
            and value.instr.computation in (self.body, self.condition)
        )

    def _initial(self, path: tuple[int, ...]) -> Value:
        return _operand(Value(self.loop), 0, path)

    def _constant_pred(self, value: Value) -> bool | None:
        number = number_of(self._trace(value))
        return number if isinstance(number, bool) else None

    def _progression(self, affine: _Affine | None) -> Progression | None:
        if affine is None:
            return None
        if affine.element is None:
            return Progression(affine.offset, 0)
        values = self._element(affine.element)
        if values is None:
            return None
        return Progression(affine.scale * values.start + affine.offset, affine.scale * values.step)

    def _element(self, path: tuple[int, ...]) -> Progression | None:
        """The values of an element of the carry."""
        if path not in self._elements:
            self._elements[path] = None  # the answer for one that depends on itself in a circle
            self._elements[path] = self._find_element(path)
        return self._elements[path]

    def _find_element(self, path: tuple[int, ...]) -> Progression | None:
        initial = self._trace(self._initial(path))
        start = self._affine(initial, 0)
        following = self._affine(Value(self.body.root, path), 0) if self.body else None
        if start is None or start.element is not None or following is None:
            return None
        if following.element == path and following.scale == 1:
            return Progression(start.offset, _signed(following.offset, initial.instr.shape_text))
        # One that takes what another one was in the iteration before.
        other = self._progression(following)
        if other is not None and start.offset == other.start - other.step:
            return Progression(start.offset, other.step)
        return None

    def _affine(self, value: Value, depth: int) -> _Affine | None:
        """An integer as a linear function of one element of the carry."""
        value = self._trace(value)
        if value not in self._known_affine:
            found = self._find_affine(value, depth) if depth < _MOST_DEPTH else None
            self._known_affine[value] = found
        return self._known_affine[value]

    def _find_affine(self, value: Value, depth: int) -> _Affine | None:
        opcode = value.instr.opcode
        if self._is_carry(value):
            return _Affine(value.path, 1, 0)
        if opcode == "constant":
            number = number_of(value)
            if isinstance(number, int) and not isinstance(number, bool):
                return _Affine(None, 0, number)
            return None
        if value.path:
            return None
        if opcode == "convert":
            operand = _operand(value, 0)
            affine = self._affine(operand, depth + 1)
            if affine is None or _INTEGER.match(value.instr.shape_text) is None:
                return None
            self._limits.append((affine, operand.instr))
            return affine
        if opcode == "negate":
            return _scaled(self._affine(_operand(value, 0), depth + 1), -1)
        if opcode in ("add", "subtract", "multiply"):
            return _combined(
                opcode,
                self._affine(_operand(value, 0), depth + 1),
                self._affine(_operand(value, 1), depth + 1),
            )
        if opcode == "select":
            return self._selected(value, depth)
        return None

    def _selected(self, value: Value, depth: int) -> _Affine | None:
        """A select that takes the same side in every iteration, as `i < 0 ? i + n : i` does."""
        compared, pred = self.compared, _operand(value, 0)
        chosen = None
        if self._holds(pred, False, depth + 1)[0] >= self._most:
            chosen = 1
        elif self._holds(pred, True, depth + 1)[0] >= self._most:
            chosen = 2
        self.compared = compared
        return None if chosen is None else self._affine(_operand(value, chosen), depth + 1)


def _operand(value: Value, position: int, path: tuple[int, ...] = ()) -> Value:
    computation = value.instr.computation
    operands = computation.operand_indices(value.instr.index)
    if position >= len(operands):
        return Value(value.instr, (position,))  # cut off; there is nothing to find there
    return Value(Instruction(computation, operands[position]), path, value.via)


def _scaled(affine: _Affine | None, by: int) -> _Affine | None:
    if affine is None:
        return None
    if not by:
        return _Affine(None, 0, 0)
    return _Affine(affine.element, affine.scale * by, affine.offset * by)


def _combined(opcode: str, left: _Affine | None, right: _Affine | None) -> _Affine | None:
    if left is None or right is None:
        return None
    if opcode == "multiply":
        if left.element is None:
            return _scaled(right, left.offset)
        return _scaled(left, right.offset) if right.element is None else None
    if opcode == "subtract":
        right = _Affine(right.element, -right.scale, -right.offset)
    if left.element is not None and right.element not in (None, left.element):
        return None
    scale = left.scale + right.scale
    element = left.element if left.element is not None else right.element
    return _Affine(element if scale else None, scale, left.offset + right.offset)


def _iterations(left: Progression, right: Progression, direction: str) -> float:
    """How many k = 0, 1, … from the first on satisfy left < right (…); inf where all do."""
    start, step = left.start - right.start, left.step - right.step
    if direction == "EQ":
        return 0 if start else (1 if step else math.inf)
    if direction == "NE":
        if not start:
            return 0
        meets = step and start % step == 0 and start // step < 0
        return -(start // step) if meets else math.inf
    if direction in ("GT", "GE"):
        start, step = -start, -step
    if direction in ("LE", "GE"):
        start -= 1  # integers: a ≤ b is a - 1 < b
    if start >= 0:
        return 0
    return -(start // step) if step > 0 else math.inf


def _fits(number: int, shape_text: str) -> bool:
    integer = _INTEGER.match(shape_text)
    if integer is None:
        return False
    bits = int(integer[2])
    if not 0 < bits <= _WIDEST:
        return False
    if integer[1] == "u":
        return 0 <= number < 1 << bits
    return -(1 << bits - 1) <= number < 1 << bits - 1


def _signed(step: int, shape_text: str) -> int:
    """The step an unsigned addition makes: adding 2³²-1 to a u32 steps by -1."""
    integer = _INTEGER.match(shape_text)
    if integer is None or integer[1] != "u" or not 0 < int(integer[2]) <= _WIDEST:
        return step
    modulus = 1 << int(integer[2])
    step %= modulus
    return step - modulus if step >= modulus // 2 else step
