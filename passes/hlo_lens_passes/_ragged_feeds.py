"""Which ragged dots the rows of another one are computed from, element by element, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import MOVES, Value, attribute_text, operands, steps, trace
from hlo_lens_passes._ragged_origins import operand

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Instruction
    from hlo_lens_passes._ragged_found import Ragged

_NOTHING: Final[frozenset[str]] = frozenset()
SMOOTH: Final = frozenset(
    ("erf", "exponential", "exponential-minus-one", "logistic", "log-plus-one", "tanh")
)
# Nonlinear, too; but a limit may be set on both halves of a product.
LIMITS: Final = frozenset(("clamp", "maximum", "minimum"))
# What stands between two layers, or mixes rows: the second product is not behind these.
_NOT_ELEMENTWISE: Final = frozenset(
    (
        "convolution", "dot", "gather", "ragged-dot", "reduce", "reduce-window", "rng", "scatter",
        "sort", "while",
    )
)  # fmt: skip
_MOST_LOOKED_AT: Final = 1 << 12

_DIGITS: Final = re.compile(r"\d+", re.A)


class Ways:
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
        gates = {part for part, passed in self.passed if passed & SMOOTH}
        if len(halves) != 2 or len(gates) != 1 or None in gates:
            return None
        return halves.index(str(gates.pop()))

    def through(self, opcodes: frozenset[str]) -> bool:
        return any(passed & opcodes for _, passed in self.passed)


class Feeds:
    """Looks for what the rows of each ragged dot of a module are made of."""

    def __init__(self, graph: CallGraph, found: Sequence[Ragged]) -> None:
        self.graph = graph
        self._by_instr: dict[Instruction, Ragged] = {}
        for one in found:
            self._by_instr[one.instr] = one
            for result in one.results:
                self._by_instr[result.instr] = one
        self._known: dict[Ragged, dict[Ragged, Ways]] = {}

    def of(self, second: Ragged) -> dict[Ragged, Ways]:
        """The ragged dots that the rows of one are computed from, element by element."""
        if second not in self._known:
            self._known[second] = self._look(second)
        return self._known[second]

    def _look(self, second: Ragged) -> dict[Ragged, Ways]:
        found: dict[Ragged, Ways] = {}
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
                found.setdefault(given, Ways()).add(passed, part)
                continue
            if opcode in _NOT_ELEMENTWISE or opcode.startswith("custom-call"):
                continue
            if opcode in ("slice", "dynamic-slice"):
                part = attribute_text(at.instr, "slice") or at.instr.argument_text
            if opcode in SMOOTH or opcode in LIMITS:
                passed = passed | {opcode}
            count = 1 if opcode in ("slice", "dynamic-slice") else None
            for one in list(operands(at))[:count]:
                step = (one, passed, part)
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return found

    def _given(self, value: Value) -> tuple[Value, Ragged | None]:
        """What computes a value, and which ragged dot that is."""
        at = value
        for at in steps(self.graph, value, moves=_NOTHING):
            given = self._by_instr.get(at.instr)
            if given is not None:
                return at, given
        return at, self._split_sum(at)

    def _split_sum(self, at: Value) -> Ragged | None:
        """The ragged dot whose slices a reduce adds up."""
        given = operand(at, 0) if at.instr.opcode == "reduce" else None
        if given is None:
            return None
        one = self._by_instr.get(trace(self.graph, given, moves=MOVES | {"transpose"}).instr)
        parts = [] if one is None else one.members
        return one if ("reduce", at.instr) in parts else None
