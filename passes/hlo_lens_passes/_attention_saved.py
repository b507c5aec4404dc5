"""Scores and probabilities that a loop of the forward has stacked and one of the backward takes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from hlo_lens.analysis.dataflow import Value
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, as_set

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.congruence import Context
    from hlo_lens.analysis.views import View
    from hlo_lens.hlo import Computation
    from hlo_lens_passes._attention_softmax import Softmax
    from hlo_lens_passes._attention_values import Spot


class Saved:
    """Which values are the same, by `hlo_lens.analysis.congruence`; nothing is run before asked."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self._analysis = analysis
        self._known: dict[tuple[int, Axes], tuple[Softmax, bool]] = {}

    @cached_property
    def _contexts(self) -> dict[Computation, list[Context]]:
        found: dict[Computation, list[Context]] = {}
        for context in self._analysis.congruence.contexts():
            found.setdefault(context.evaluation.computation, []).append(context)
        return found

    def number(self, instr: Instruction) -> object:
        """What stands for the value of an instruction, in whatever order its elements are: equal
        for what computes the same. Itself where the program does not run it."""
        contexts = self._contexts.get(instr.computation)
        if not contexts or instr.index < 0:
            return instr
        numbers = self._analysis.congruence.numbers
        number = contexts[0].evaluation.values[instr.index]
        node = numbers[number]
        if node.kind == "tuple" and node.operands:
            number = node.operands[0]
        return numbers.unviewed(number)

    def _context(self, value: Value) -> Context | None:
        contexts = self._contexts.get(value.instr.computation, ())
        via = value.via
        return next(
            (one for one in contexts if not via or one.via[-len(via) :] == via),
            contexts[0] if contexts else None,
        )

    def _of_value(self, value: Value) -> int | None:
        """The number of a value; None where the program does not run it."""
        context = self._context(value)
        if context is None or value.instr.index < 0:
            return None
        number = context.evaluation.values[value.instr.index]
        for index in value.path:
            number = self._analysis.congruence.numbers.element(number, index)
        return number

    def before_loop(self, value: Value) -> Value | None:
        """What a loop gets for an element of its carry that stays what it is, though each
        iteration moves it about, as where it is fetched ahead; None where it changes."""
        site = self._analysis.graph.only_caller(value.instr.computation)
        if site is None or site.kind != "body" or value.via or not value.path:
            return None
        operands = site.caller.operands
        if not operands:
            return None
        before = Value(operands[0], value.path)
        number = self._of_value(value)
        return before if number is not None and number == self._of_value(before) else None

    def placed(self, spot: Spot) -> tuple[int, Axes] | None:
        """The value of a spot by its number, and where its axes lie in that."""
        number = self._of_value(spot.value)
        if number is None:
            return None
        numbers = self._analysis.congruence.numbers
        axes = spot.axes
        try:
            while (node := numbers[number]).kind == "view":
                axes = axes.through(cast("View", node.detail))
                number = node.operands[0]
        except ValueError:
            return None
        return number, Axes(as_set(axes.batch), as_set(axes.query), as_set(axes.key))

    def note(self, spot: Spot, softmax: Softmax, *, is_score: bool) -> None:
        """Take down a value of a forward site."""
        placed = self.placed(spot)
        if placed is not None:
            self._known.setdefault(placed, (softmax, is_score))

    def softmax(self, spot: Spot) -> Softmax | None:
        """The softmax whose probabilities a value is, with the same queries and keys."""
        found = self._find(spot)
        return None if found is None or found[1] else found[0]

    def is_score(self, spot: Spot) -> bool:
        """Whether a value is the scores of a softmax that is known, or made of them on the way."""
        found = self._find(spot)
        return found is not None and found[1]

    def is_known(self, spot: Spot) -> bool:
        """Whether a value is scores or probabilities of a softmax that is known."""
        return self._find(spot) is not None

    def _find(self, spot: Spot) -> tuple[Softmax, bool] | None:
        if not self._known:
            return None
        placed = self.placed(spot)
        return None if placed is None else self._known.get(placed)
