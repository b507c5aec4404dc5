"""What weights and rows of ragged dots are known by: where they come from, and their number."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.dataflow import MOVES, Value, attribute_text, operands, trace
from hlo_lens_passes._ragged_origins import operand

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.congruence import Evaluation
    from hlo_lens.hlo import Computation

# What gives weights in another form, or part of them: weights are told apart by where they begin.
_WEIGHTS_MOVE: Final = MOVES | {
    "all-gather", "dynamic-slice", "opt-barrier", "reduce-precision", "transpose",
}  # fmt: skip
_MOST_MOVES: Final = 256

Key = Hashable
Side = Literal["weights", "rows"]


class Keys:
    """Tells whether two ragged dots of a module take the same weights, or the same rows."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self._numbers: dict[Computation, Evaluation] | None = None

    def of(self, value: Value, side: Side) -> list[Key]:
        """What a value is known by: the places it comes from, and its number in the program."""
        keys: list[Key] = [("from", place) for place in self.places(value, side)]
        number = self.number(value)
        return keys if number is None else [*keys, ("number", number)]

    def places(self, value: Value, side: Side) -> list[Key]:
        """Where weights, or rows, come from; for a concatenation the places of its parts."""
        graph, weights = self.analysis.graph, side == "weights"
        waiting: list[tuple[Value, tuple[str, ...]]] = [(value, ())]
        places: list[Key] = []
        for at, cuts in waiting:  # grows while it is walked
            if len(waiting) > _MOST_MOVES:
                break
            at = trace(graph, at, moves=_WEIGHTS_MOVE if weights else MOVES)
            opcode = at.instr.opcode
            if weights and opcode == "all-gather-start" and (one := operand(at, 0)):
                waiting.append((one, cuts))
            elif opcode == "slice" and (one := operand(at, 0)):
                cut = attribute_text(at.instr, "slice") or ""
                waiting.append((one, (*cuts, "".join(cut.split()))))
            elif opcode == "concatenate":
                waiting += [(one, cuts) for one in operands(at)]
            else:
                places.append((at.instr, at.path, cuts))
        return places

    def number(self, value: Value) -> int | None:
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
