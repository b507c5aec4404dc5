"""Attention that the text spells out: QKᵀ, softmax and PV, and what the backward makes of them.

Found from the products: in the forward, PV takes exp(scores), perhaps divided by its sum, and sums
over the keys; the scores are a product whose free dimensions are exactly the queries and the keys,
and the softmax reduces over exactly the keys. In the backward, dV sums P over the queries; dS, made
of P and of another product of that form (dP), gives dQ summed over the keys and dK over the
queries. P may be what a forward loop has stacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, trace, value_source
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, array_text, elements_of, length
from hlo_lens_passes._attention_products import Products
from hlo_lens_passes._attention_repeats import Repeats
from hlo_lens_passes._attention_softmax import MOVES, Softmax, Softmaxes
from hlo_lens_passes._attention_values import Row, Spot, Tree, Values, Written
from hlo_lens_passes._attention_weights import Operand, Weights

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

# What may stand between the softmax and the product with V: dropout and division.
_OF_P: Final = frozenset(("divide", "multiply", "select"))


@dataclass(slots=True, eq=False)
class Exposed:
    """One site. roles: its instructions by what they are; product: the matmul that stands for it;
    saved: whether the backward takes probabilities that a forward made, by the numbers of values:
    through what its loop has stacked, or a copy in pieces. as_given: whether K or V may be a weight
    and is taken as data."""

    direction: str
    product: Instruction
    softmax: Softmax
    axes: Axes
    roles: dict[str, dict[Instruction, None]] = field(default_factory=dict)
    written: Written = field(default_factory=set)
    saved: bool = False
    divided_after: bool = False
    as_given: bool = False

    def add(self, role: str, *instrs: Instruction) -> None:
        self.roles.setdefault(role, {}).update(dict.fromkeys(instrs))

    def of(self, role: str) -> tuple[Instruction, ...]:
        return tuple(self.roles.get(role, ()))


@dataclass(frozen=True, slots=True)
class _Taken:
    """An operand of a product that scores may be: its tree, with what is summed as the keys."""

    product: Instruction
    side: int
    axes: Axes
    tree: Tree


@dataclass(frozen=True, slots=True)
class _Use:
    """A product that takes what a softmax gives; grads: the products that dS is made of besides;
    by_key: whether it sums over the keys; as_given: see `Exposed`."""

    taken: _Taken
    softmaxes: tuple[Softmax, ...]
    grads: tuple[Spot, ...]
    by_key: bool
    saved: bool
    as_given: bool = False


class Finder:
    """The exposed attention of one module."""

    def __init__(self, analysis: ModuleAnalysis, matmuls: Sequence[Mapping[str, object]]) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.products = Products(analysis, matmuls)
        self.values = Values(analysis, self.products)
        self.softmaxes = Softmaxes(self.values)
        self.saved = self.values.saved
        self.weights = Weights(self.values)
        self.repeats = Repeats(analysis, self.products, self.saved)

    def sites(self) -> list[Exposed]:
        """Every site, forward in front of backward."""
        counts = self._softmax_sizes()
        if not counts:
            return []
        taken = [*self._taken(counts)]
        uses: list[_Use] = []
        open_: list[_Taken] = []
        for one in taken:
            use = self._use(one)
            if use is not None:
                uses.append(use)
            elif one.tree.leaves and not one.tree.exponentials:
                open_.append(one)
        uses = [one for one in uses if not self._is_gradient_of_logsumexp(one, uses)]
        if open_ and self.softmaxes.known:
            self._note(uses)
            uses += [use for one in open_ if (use := self._saved_use(one)) is not None]
            uses = [one for one in uses if not self._is_gradient_of_logsumexp(one, uses)]
        forward = self._forward(uses)
        found = [*forward, *self._backward(uses, forward)]
        self.repeats.claim(found)
        return found

    # -- what may be attention --------------------------------------------------------------------

    def _softmax_sizes(self) -> set[int]:
        """How many scores an exponential has that may be a softmax: something is subtracted from
        them, or they are summed."""
        found: set[int] = set()
        for computation in self.analysis.module.computations:
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
        before = trace(self.graph, Value(Instruction(of, operands[0])), moves=MOVES).instr
        if before.opcode != "negate":
            return True
        return any(user.opcode == "reduce" for user in self.softmaxes.users(exponential))

    def _beside_a_sink(self, exponential: Instruction) -> int | None:
        """How many scores there are where something else is concatenated to them."""
        at = exponential
        for opcode in ("subtract", "concatenate"):
            operands = at.operands
            if not operands:
                return None
            at = trace(self.graph, Value(operands[0]), moves=MOVES).instr
            if at.opcode != opcode:
                return None
        return elements_of(at.operands[0].shape_text) if at.operands else None

    def _taken(self, counts: set[int]) -> Iterator[_Taken]:
        for product in self.products:
            of = product.computation
            operands = of.operand_indices(product.index)[:2]
            if len(operands) < 2:
                continue
            for side, operand in enumerate(operands):
                if elements_of(of.shape_of(operand)) not in counts:
                    continue
                axes = self.products.axes(product, side)
                if axes is None:
                    continue
                tree = self.values.tree(Value(Instruction(of, operand)), axes)
                yield _Taken(product, side, axes, tree)

    # -- what it is -------------------------------------------------------------------------------

    def _use(self, taken: _Taken) -> _Use | None:
        """What a product is where its operand holds exponentials of this text's own."""
        for by_key in (True, False):
            found = [
                softmax
                for spot in taken.tree.exponentials
                if (softmax := self.softmaxes.of(_turned(spot, by_key))) is not None
            ]
            if found:
                return self._sorted(taken, tuple(found), by_key, saved=False)
        return None

    def _sorted(
        self, taken: _Taken, softmaxes: tuple[Softmax, ...], by_key: bool, *, saved: bool
    ) -> _Use | None:
        own = {one for softmax in softmaxes for one in softmax.products}
        grads = tuple(
            spot
            for spot in taken.tree.products
            if spot.instr not in own
            and self.softmaxes.sides(_turned(spot, by_key)) is not None
            and not self._is_score(spot, softmaxes)
        )
        if not grads and not taken.tree.opcodes <= _OF_P:
            return None
        if not grads and taken.tree.products:
            return None
        v = self._values_of(taken, grads, by_key)
        judged: bool | None = False
        if v is not None:
            judged = self.weights.judge(softmaxes[0], self._queries(softmaxes), v)
        return None if judged else _Use(taken, softmaxes, grads, by_key, saved, judged is None)

    def _queries(self, softmaxes: Sequence[Softmax]) -> list[Operand]:
        """Q, of each product that scores are a sum of."""
        found = [(one, self.softmaxes.sides(one)) for of in softmaxes for one in of.scores]
        return [Operand(one, sides[0]) for one, sides in found if sides is not None]

    def _values_of(self, taken: _Taken, grads: Sequence[Spot], by_key: bool) -> Operand | None:
        """V: what P is multiplied with, or what makes dP; None of a product that has neither."""
        if grads:
            sides = self.softmaxes.sides(_turned(grads[0], by_key))
            return None if sides is None else Operand(grads[0], sides[1])
        if not by_key:
            return None
        return Operand(Spot(Value(taken.product), taken.axes), 1 - taken.side)

    def _is_score(self, spot: Spot, softmaxes: Sequence[Softmax]) -> bool:
        """Whether a product is the scores again, as where a cap is differentiated."""
        numbers = {self.saved.number(one.instr) for of in softmaxes for one in of.scores}
        return self.saved.number(spot.instr) in numbers

    def _is_gradient_of_logsumexp(self, use: _Use, uses: Sequence[_Use]) -> bool:
        """Whether a product is with the very weight that made the scores, in a backward: the
        gradient of a logsumexp, as of a cross-entropy over a vocabulary, and no attention. It is
        one where P also makes the gradient of that weight, with what the weight was multiplied
        with."""
        taken = use.taken
        if not use.by_key or use.grads or length(taken.axes.batch) > 1:
            return False
        other = self._source(taken.product, 1 - taken.side)
        queries = self._queries(use.softmaxes[:1])
        if all(self._source(one.spot.instr, 1 - one.side) != other for one in queries):
            return False
        if self.analysis.phase(taken.product).phase == "bwd":
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
        return value_source(self.graph, operand, moves=MOVES)

    # -- saved by the forward ---------------------------------------------------------------------

    def _note(self, uses: Sequence[_Use]) -> None:
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

    def _saved_use(self, taken: _Taken) -> _Use | None:
        """What a product is where its operand holds probabilities that a loop has stacked, or
        scores that it has, of which the probabilities are made again."""
        again = self._use(taken) if taken.tree.exponentials else None
        if again is not None:
            return again
        for by_key in (True, False):
            found = [
                softmax
                for spot in taken.tree.leaves
                if (softmax := self.saved.softmax(_turned(spot, by_key))) is not None
            ]
            if found:
                return self._sorted(taken, tuple(found), by_key, saved=True)
        return None

    # -- sites ------------------------------------------------------------------------------------

    def _forward(self, uses: Sequence[_Use]) -> list[Exposed]:
        sites: dict[tuple[Instruction, ...], Exposed] = {}
        for use in uses:
            if not use.by_key or use.grads:
                continue
            softmax = use.softmaxes[0]
            key = (softmax.exponential.instr, *softmax.products)
            site = sites.get(key)
            if site is None:
                product = use.taken.product
                site = sites[key] = Exposed("fwd", product, softmax, softmax.exponential.axes)
            site.add("pv", use.taken.product)
            site.as_given = site.as_given or use.as_given
            self._add_softmax(site, use)
        return [*sites.values()]

    def _backward(self, uses: Sequence[_Use], forward: Sequence[Exposed]) -> list[Exposed]:
        claimed = {one for site in forward for one in site.of("qk")}
        before: Written = set()
        for site in forward:
            before |= site.written
        groups: dict[tuple[object, ...], list[_Use]] = {}
        for use in uses:
            if not use.by_key or use.grads:
                groups.setdefault(self._place(use), []).append(use)
        sites: list[Exposed] = []
        for group in groups.values():
            grads = [use for use in group if use.grads]
            if not grads:
                continue  # the gradient of V alone, or what looks like one
            first = next((use for use in grads if use.by_key), grads[0])
            softmax = first.softmaxes[0]
            site = Exposed("bwd", first.taken.product, softmax, softmax.exponential.axes)
            for use in group:
                role = ("dq" if use.by_key else "dk") if use.grads else "dv"
                site.add(role, use.taken.product)
                site.add("dp", *(one.instr for one in use.grads))
                site.saved = site.saved or use.saved
                site.as_given = site.as_given or use.as_given
                if not use.saved:
                    self._add_softmax(site, use)
                else:
                    site.written |= self._written(use)
            for role in [role for role in site.roles if role not in ("dq", "dk", "dv", "dp")]:
                if role == "qk":
                    site.roles[role] = {one: None for one in site.roles[role] if one not in claimed}
            site.written -= before
            sites.append(site)
        return sites

    def _place(self, use: _Use) -> tuple[object, ...]:
        """What the products of one backward have in common: the scores, and the loop."""
        scores = {self.saved.number(one.instr) for of in use.softmaxes for one in of.scores}
        loop = self.analysis.loop(use.taken.product.computation)
        return frozenset(scores), None if loop is None else loop.instr

    def _written(self, use: _Use) -> Written:
        """What is written to memory of scores between a product and what it takes."""
        tree = use.taken.tree
        return tree.written(
            leaf for leaf in tree.leaves if self.saved.is_known(_turned(leaf, use.by_key))
        )

    def _add_softmax(self, site: Exposed, use: _Use) -> None:
        site.written |= self._written(use)
        for softmax in use.softmaxes:
            self._add_parts(site, softmax)
        if self._add_divisions(site, use) or site.direction == "bwd":
            return
        for division, sums in self._late_divisions(use):
            site.divided_after = True
            site.add("div", division)
            site.add("sum", *sums)

    def _add_parts(self, site: Exposed, softmax: Softmax) -> None:
        site.written |= softmax.found_in
        site.add("qk", *softmax.products, *softmax.repeated)
        site.add("mask", *softmax.mask.selects)
        for tree in (softmax.tree, *softmax.again):
            site.add("scale", *self._scales(tree))
            site.add("mask", *(choice.select.instr for choice in tree.choices))
        site.add("max", *softmax.maxima)
        site.add("exp", softmax.exponential.instr)
        site.add("sum", *softmax.sums)

    def _scales(self, tree: Tree) -> Iterator[Instruction]:
        for spot in tree.nodes:
            if spot.instr.opcode in ("divide", "multiply"):
                for n in (0, 1):
                    if self.values.number(spot.operand(n), spot.axes) is not None:
                        yield spot.instr

    def _add_divisions(self, site: Exposed, use: _Use) -> bool:
        """Where the probabilities are divided by their sum, or multiplied with its reciprocal."""
        found = False
        for row in use.taken.tree.rows:
            if row.taker.opcode not in ("divide", "multiply"):
                continue
            for reduce, exponential in self._sums_behind(row, use):
                found = True
                site.add("div", row.taker)
                site.add("sum", reduce)
                # A fusion of its own may make the scores again for the sum.
                again = self.softmaxes.of(exponential)
                if again is not None and again not in use.softmaxes:
                    self._add_parts(site, again)
        return found

    def _sums_behind(self, row: Row, use: _Use) -> Iterator[tuple[Instruction, Spot]]:
        spot = _turned(row.spot, use.by_key)
        for reduce, value, axes in self.values.reduces(spot, "add"):
            before = self.values.at(value, axes) if axes.whole else None
            if before is not None and before.instr.opcode == "exponential":
                yield reduce.instr, before

    def _late_divisions(self, use: _Use) -> Iterator[tuple[Instruction, tuple[Instruction, ...]]]:
        """Where what the product with V gives is divided by the sum."""
        sums = use.softmaxes[0].sums
        for user in self.softmaxes.users(use.taken.product):
            if user.opcode not in ("divide", "multiply"):
                continue
            for operand in user.operands:
                before = trace(self.graph, Value(operand), moves=MOVES | {"broadcast"}).instr
                behind = [before]
                if before.opcode == "divide":
                    behind += [
                        trace(self.graph, Value(one), moves=MOVES | {"broadcast"}).instr
                        for one in before.operands
                    ]
                found = tuple(one for one in behind if one in sums)
                if found:
                    yield user, found


def _turned(spot: Spot, by_key: bool) -> Spot:
    return spot if by_key else Spot(spot.value, spot.axes.turned())


def score_text(site: Exposed) -> str:
    """The shape of the scores: of the product that makes them, or of their gradient."""
    made = site.of("qk") or site.of("dp")
    return array_text(made[0]) if made else array_text(site.softmax.exponential.instr)
