"""Softmax of x·W times V, where W or V is a weight: a gate, a codebook, a memory, and no attention.

Attention mixes values of tokens. A K or V that is an argument of the program, moved about and no
more, may be a weight: it is one where the scores have no batch (or heads) that it shares with Q,
unless something says that it holds tokens. A query that is an argument says nothing: it may be
learned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lens.analysis.dataflow import Value, operands, trace
from hlo_lens.analysis.degenerate import sizes_of
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hlo_lens_passes._attention_softmax import Softmax
    from hlo_lens_passes._attention_values import Spot, Values

# What takes a part of its operand, or all parts of several devices, and computes nothing.
_MOVES: Final = frozenset(
    (
        "all-gather", "bitcast", "broadcast", "convert", "copy", "dynamic-slice",
        "optimization-barrier", "opt-barrier", "reshape", "slice", "transpose",
    )
)  # fmt: skip
# Between an array of tokens and a Q made of it stand a norm and one product.
_MOST_STEPS: Final = 64
_MOST_SCALES: Final = 8

AS_GIVEN: Final = "K or V is an argument without a batch, as Q is one: taken as data"


class Operand(NamedTuple):
    """An operand of a product, as seen from some consumer."""

    spot: Spot
    side: int

    @property
    def value(self) -> Value | None:
        return self.spot.operand(self.side)


class Weights:
    """Which operands of the products of one module are weights."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._graph = values.graph

    def judge(self, softmax: Softmax, scores: Sequence[Operand], v: Operand) -> bool | None:
        """Whether K or V is a weight. scores: the Q of each product that the scores are a sum of.
        None: taken as data because Q is an argument of the same standing."""
        mask = softmax.mask
        if length(softmax.exponential.axes.batch) > 1 or mask.by_position or mask.hidden:
            return False
        if any(self._up_to_a_length(choice.select) for choice in softmax.tree.choices):
            return False
        weak = False
        for query in scores:
            key = Operand(query.spot, 1 - query.side)
            k, its = self._argument(key), self._argument(v)
            near = self._near(query) if k is not None or its is not None else set()
            given = {one for one in (k, its) if one and not _is_data(one, near)}
            if not given:
                return False
            # Whether a memory or a codebook, which is K and V, holds tokens is not told.
            tied = k == its
            if not tied and all(self._as_query(query, key, one) for one in given):
                weak = True
        return None if weak else bool(scores)

    def _as_query(self, query: Operand, key: Operand, given: Value) -> bool:
        """Whether an argument is of the standing of Q: that is one too, of the same rank, and K
        lies as Q does."""
        at = self._argument(query)
        if at is None or _rank(at.instr) != _rank(given.instr):
            return False
        return self._depth_last(query) == self._depth_last(key)

    def _up_to_a_length(self, select: Spot) -> bool:
        """Whether a mask leaves the keys up to a number that is data, as of a cache in part full.
        (Up to a constant is what a padded vocabulary leaves.)"""
        predicate = select.operand(0)
        compare = None if predicate is None else trace(self._graph, predicate, moves=_MOVES)
        if compare is None or compare.instr.opcode != "compare":
            return False
        found = {trace(self._graph, one, moves=_MOVES).instr.opcode for one in operands(compare)}
        return "iota" in found and "constant" not in found and len(found) > 1

    def _argument(self, operand: Operand) -> Value | None:
        """The argument of the program, or constant, that an operand is; None where it is
        computed."""
        before = operand.value
        found = None if before is None else self._scaled(before)
        if found is None or found.instr.opcode not in ("constant", "parameter"):
            return None
        if found.instr.opcode == "parameter" and self._graph.callers(found.instr.computation):
            return None  # what a loop changes
        return Value(found.instr, found.path)

    def _scaled(self, value: Value) -> Value:
        """What a value is moved from, or multiplied from by a constant."""
        for _ in range(_MOST_SCALES):
            value = trace(self._graph, value, moves=_MOVES)
            if value.instr.opcode not in ("divide", "multiply") or value.path:
                break
            its = [(one, trace(self._graph, one, moves=_MOVES)) for one in operands(value)]
            varies = [one for one, at in its if at.instr.opcode != "constant"]
            if len(varies) != 1:
                break
            (value,) = varies
        return value

    def _near(self, operand: Operand) -> set[Value]:
        """The arguments that an operand is computed from through one product at most."""
        start = operand.value
        waiting = [] if start is None else [(start, False)]
        found: set[Value] = set()
        for count, (value, behind) in enumerate(waiting):  # grows while it is walked
            if count > _MOST_STEPS:
                break
            at = trace(self._graph, value, moves=_MOVES, into_loops=False)
            if at.instr.opcode == "parameter":
                found.add(Value(at.instr, at.path))
            elif at.instr in self._values.products:
                if not behind:
                    waiting += ((one, True) for one in operands(at))
            elif at.instr.opcode not in ("constant", "while"):
                waiting += ((one, behind) for one in operands(at))
        return found

    def _depth_last(self, operand: Operand) -> bool | None:
        """Whether the depth of Q or K is the last dimension of the array furthest back."""
        axes = self._values.products.axes(operand.spot.instr, operand.side)
        value = operand.value
        if axes is None or value is None:
            return None
        last: Axes | None = None
        for spot in self._values.passed(value, axes):
            last = spot.axes
        return None if last is None or not last.key else last.key[-1][1] == 1


def _is_data(given: Value, near: set[Value]) -> bool:
    """Whether an argument holds tokens: Q is made of it, or it has a batch, of 1."""
    sizes = sizes_of(given.instr.shape_text)
    return given in near or (len(sizes) > 2 and sizes[0] == "1")


def _rank(instr: Instruction) -> int:
    return len(sizes_of(instr.shape_text))
