"""Which products take what a softmax gives, and as what: P·V, and what a backward makes of P.

The forward and the backward are sorted by what their operand is made of: exponentials of scores of
this text, probabilities that a forward has stacked, and dP besides. See `_attention_exposed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, trace, value_source
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, as_set, elements_of, length
from hlo_lens_passes._attention_products import Products
from hlo_lens_passes._attention_softmax import MOVES, Softmax, Softmaxes
from hlo_lens_passes._attention_values import Spot, Tree, Values
from hlo_lens_passes._attention_weights import Operand, Weights

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

# What may stand between the softmax and the product with V: dropout and division.
_OF_P: Final = frozenset(("divide", "multiply", "select"))
_OF_SEVERAL: Final = frozenset(("add", "subtract"))


@dataclass(frozen=True, slots=True)
class Taken:
    """An operand of a product that scores may be: its tree, with what is summed as the keys."""

    product: Instruction
    side: int
    axes: Axes
    tree: Tree


@dataclass(frozen=True, slots=True)
class Use:
    """A product that takes what a softmax gives; grads: the products that dS is made of besides;
    by_key: whether it sums over the keys; as_given: see `Exposed`."""

    taken: Taken
    softmaxes: tuple[Softmax, ...]
    grads: tuple[Spot, ...]
    by_key: bool
    saved: bool
    as_given: bool = False


class Uses:
    """The products of one module that take what a softmax gives."""

    def __init__(self, analysis: ModuleAnalysis, matmuls: Sequence[Mapping[str, object]]) -> None:
        self._analysis = analysis
        self._graph = analysis.graph
        self.products = Products(analysis, matmuls)
        self.values = Values(analysis, self.products)
        self.softmaxes = Softmaxes(self.values)
        self.saved = self.values.saved
        self._weights = Weights(self.values)

    def __iter__(self) -> Iterator[Use]:
        counts = self._softmax_sizes()
        if not counts:
            return
        self.products.add_sums(self._analysis.module.computations)
        taken = [*self._taken(counts)]
        uses: list[Use] = []
        open_: list[Taken] = []
        others: list[Taken] = []
        for one in taken:
            use = self._use(one)
            if use is not None:
                uses.append(use)
            elif one.tree.exponentials:
                others.append(one)
            elif one.tree.leaves:
                open_.append(one)
        shared = [self._shared_use(one, uses) for one in others] if uses else []
        uses += [use for use in shared if use is not None]
        uses = [one for one in uses if not self._is_gradient_of_logsumexp(one, uses)]
        if open_ and self.softmaxes.known:
            self._note(uses)
            uses += [use for one in open_ if (use := self._saved_use(one)) is not None]
            uses = [one for one in uses if not self._is_gradient_of_logsumexp(one, uses)]
        yield from uses

    # -- what may be attention --------------------------------------------------------------------

    def _softmax_sizes(self) -> set[int]:
        """How many scores an exponential has that may be a softmax: something is subtracted from
        them, or they are summed."""
        found: set[int] = set()
        for computation in self._analysis.module.computations:
            if "exponential" not in computation.opcodes:
                continue
            for index, opcode in enumerate(computation.opcodes):
                if opcode != "exponential":
                    continue
                count = elements_of(computation.shape_of(index))
                if count is None or count in found:
                    continue
                exponential = Instruction(computation, index)
                if self._may_be_softmax(exponential):
                    found.add(count)
                    beside = self._beside_a_sink(exponential)
                    found.update(() if beside is None else (beside,))
        return found

    def _may_be_softmax(self, exponential: Instruction) -> bool:
        of = exponential.computation
        operands = of.operand_indices(exponential.index)
        if not operands:
            return False
        before = trace(self._graph, Value(Instruction(of, operands[0])), moves=MOVES).instr
        if before.opcode != "negate":
            return True
        return any(user.opcode == "reduce" for user in self.softmaxes.users(exponential))

    def _beside_a_sink(self, exponential: Instruction) -> int | None:
        """How many scores there are where something else stands beside them: concatenated, or, in
        TPU text, by the maximum of both, each padded to the size of both."""
        at = exponential
        for opcodes in (("subtract",), ("concatenate", "maximum"), ("pad",)):
            operands = at.operands
            if not operands:
                return None
            at = trace(self._graph, Value(operands[0]), moves=MOVES).instr
            if at.opcode not in opcodes:
                return None
            if at.opcode == "concatenate":
                break
        return elements_of(at.operands[0].shape_text) if at.operands else None

    def _taken(self, counts: set[int]) -> Iterator[Taken]:
        for product in self.products:
            of = product.computation
            operands = of.operand_indices(product.index)[:2]
            if len(operands) < 2:
                continue
            for side, operand in enumerate(operands):
                if self.products.elements(product, side) not in counts:
                    continue
                axes = self.products.axes(product, side)
                if axes is None:
                    continue
                tree = self.values.tree(Value(Instruction(of, operand)), axes)
                yield Taken(product, side, axes, tree)

    # -- what it is -------------------------------------------------------------------------------

    def _use(self, taken: Taken) -> Use | None:
        """What a product is where its operand holds exponentials of this text's own."""
        for by_key in (True, False):
            found = [
                softmax
                for spot in taken.tree.exponentials
                if (softmax := self.softmaxes.of(turned(spot, by_key))) is not None
            ]
            if found:
                return self._sorted(taken, tuple(found), by_key, saved=False)
        return None

    def _shared_use(self, taken: Taken, uses: Sequence[Use]) -> Use | None:
        """What a product is that has heads as queries: all of them share its K, Q's gradient or V.

        Its exponential is that of another product, with the same keys, and so is dP.
        """
        for by_key in (True, False):
            axes = [turned(spot, by_key) for spot in taken.tree.exponentials]
            its = [
                use
                for use in uses
                if any(self._is_same(one, softmax) for one in axes for softmax in use.softmaxes)
            ]
            if its:
                grads = {self.saved.number(spot.instr) for use in its for spot in use.grads}
                return self._sorted(taken, its[0].softmaxes, by_key, saved=False, known=grads)
        return None

    def _is_same(self, spot: Spot, softmax: Softmax) -> bool:
        """Whether an exponential is that of a softmax, perhaps made again, over the same keys;
        batch and queries may be cut elsewhere."""
        made = self.softmaxes.of(spot)
        if made is not None and self.scores_of((made,)) == self.scores_of((softmax,)):
            return True
        mine, its = self.saved.placed(spot), self.saved.placed(softmax.exponential)
        if mine is None or its is None or mine[0] != its[0] or mine[1].key != its[1].key:
            return False
        return as_set((*mine[1].batch, *mine[1].query)) == as_set((*its[1].batch, *its[1].query))

    def _sorted(
        self,
        taken: Taken,
        softmaxes: tuple[Softmax, ...],
        by_key: bool,
        *,
        saved: bool,
        known: AbstractSet[object] = frozenset(),
    ) -> Use | None:
        """known: what stands for products that are known to be dP."""
        own = {one for softmax in softmaxes for one in softmax.products}
        grads = tuple(
            spot
            for spot in taken.tree.products
            if spot.instr not in own
            and not self._is_score(spot, softmaxes)
            and (
                self.softmaxes.sides(turned(spot, by_key)) is not None
                or (known and self.saved.number(spot.instr) in known)
            )
        )
        if not grads and not taken.tree.opcodes <= _OF_P:
            # One softmax less another, as in differential attention.
            several = len({self.scores_of((one,)) for one in softmaxes}) > 1
            if not several or taken.tree.leaves or not taken.tree.opcodes <= _OF_P | _OF_SEVERAL:
                return None
        if not grads and taken.tree.products:
            return None
        v = self._values_of(taken, grads, by_key)
        judged: bool | None = False
        if v is not None:
            judged = self._weights.judge(softmaxes[0], self._queries(softmaxes), v)
        return None if judged else Use(taken, softmaxes, grads, by_key, saved, judged is None)

    def _queries(self, softmaxes: Sequence[Softmax]) -> list[Operand]:
        """Q, of each product that scores are a sum of."""
        found = [(one, self.softmaxes.sides(one)) for of in softmaxes for one in of.scores]
        return [Operand(one, sides[0]) for one, sides in found if sides is not None]

    def _values_of(self, taken: Taken, grads: Sequence[Spot], by_key: bool) -> Operand | None:
        """V: what P is multiplied with, or what makes dP; None of a product that has neither."""
        if grads:
            sides = self.softmaxes.sides(turned(grads[0], by_key))
            return None if sides is None else Operand(grads[0], sides[1])
        if not by_key:
            return None
        return Operand(Spot(Value(taken.product), taken.axes), 1 - taken.side)

    def _is_score(self, spot: Spot, softmaxes: Sequence[Softmax]) -> bool:
        """Whether a product is the scores again, as where a cap is differentiated."""
        return self.saved.number(spot.instr) in self.scores_of(softmaxes)

    def scores_of(self, softmaxes: Sequence[Softmax]) -> frozenset[object]:
        """What stands for the values of their scores."""
        return frozenset(self.saved.number(one.instr) for of in softmaxes for one in of.scores)

    def _is_gradient_of_logsumexp(self, use: Use, uses: Sequence[Use]) -> bool:
        """Whether a product is with the very weight that made the scores, in a backward: the
        gradient of a logsumexp, as of a cross-entropy over a vocabulary, and no attention. It is
        one where P also makes the gradient of that weight, with what the weight was multiplied
        with."""
        taken = use.taken
        if not use.by_key or use.grads or length(taken.axes.batch) > 1:
            return False
        other = self._source(taken.product, 1 - taken.side)
        queries = self._queries(use.softmaxes)
        if all(self._source(one.spot.instr, 1 - one.side) != other for one in queries):
            return False
        if self._analysis.phase(taken.product).phase == "bwd":
            return True
        weighted = {self._source(one.spot.instr, one.side) for one in queries}
        return any(
            not one.by_key
            and not one.grads
            and one.softmaxes[0].exponential.instr == use.softmaxes[0].exponential.instr
            and self._source(one.taken.product, 1 - one.taken.side) in weighted
            for one in uses
        )

    def _source(self, product: Instruction, side: int) -> object:
        of = product.computation
        operand = Instruction(of, of.operand_indices(product.index)[side])
        return value_source(self._graph, operand, moves=MOVES)

    # -- saved by the forward ---------------------------------------------------------------------

    def _note(self, uses: Sequence[Use]) -> None:
        """Take down the scores and the probabilities of the sites that are known."""
        for softmax in self.softmaxes.known:
            for one in softmax.scores:
                self.saved.note(one, softmax, is_score=True)
            for one in softmax.tree.nodes:
                self.saved.note(one, softmax, is_score=True)
            self.saved.note(softmax.exponential, softmax, is_score=False)
        for use in uses:
            if use.by_key and not use.grads:
                for one in use.taken.tree.nodes:
                    self.saved.note(one, use.softmaxes[0], is_score=False)

    def _saved_use(self, taken: Taken) -> Use | None:
        """What a product is where its operand holds probabilities that a loop has stacked, or
        scores that it has, of which the probabilities are made again."""
        again = self._use(taken) if taken.tree.exponentials else None
        if again is not None:
            return again
        for by_key in (True, False):
            found = [
                softmax
                for spot in taken.tree.leaves
                if (softmax := self.saved.softmax(turned(spot, by_key))) is not None
            ]
            if found:
                return self._sorted(taken, tuple(found), by_key, saved=True)
        return None


def turned(spot: Spot, by_key: bool) -> Spot:
    """A value with what is summed over the queries as one that is summed over the keys."""
    return spot if by_key else Spot(spot.value, spot.axes.turned())
