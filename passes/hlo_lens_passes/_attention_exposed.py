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
from typing import TYPE_CHECKING

from hlo_lens.analysis.dataflow import Value, steps, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, array_text
from hlo_lens_passes._attention_repeats import Repeats
from hlo_lens_passes._attention_softmax import MOVES, Softmax
from hlo_lens_passes._attention_uses import Use, Uses, turned

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens_passes._attention_values import Row, Spot, Tree, Written


@dataclass(slots=True, eq=False)
class Exposed:
    """One site. roles: its instructions by what they are; product: the matmul that stands for it;
    saved: whether the backward takes probabilities that a forward made, by the numbers of values:
    through what its loop has stacked, or a copy in pieces. trees: of a forward, how its scores and
    probabilities are made; as_given: whether K or V may be a weight and is taken as data; mixed:
    whether softmaxes of several scores make its probabilities."""

    direction: str
    product: Instruction
    softmax: Softmax
    axes: Axes
    roles: dict[str, dict[Instruction, None]] = field(default_factory=dict)
    written: Written = field(default_factory=set)
    trees: list[Tree] = field(default_factory=list)
    saved: bool = False
    divided_after: bool = False
    as_given: bool = False
    mixed: bool = False

    def add(self, role: str, *instrs: Instruction) -> None:
        self.roles.setdefault(role, {}).update(dict.fromkeys(instrs))

    def of(self, role: str) -> tuple[Instruction, ...]:
        return tuple(self.roles.get(role, ()))


class Finder:
    """The exposed attention of one module."""

    def __init__(self, analysis: ModuleAnalysis, matmuls: Sequence[Mapping[str, object]]) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.uses = Uses(analysis, matmuls)
        self.values = self.uses.values
        self.softmaxes = self.uses.softmaxes
        self.saved = self.values.saved
        self.repeats = Repeats(analysis, self.uses.products, self.saved)

    def sites(self) -> list[Exposed]:
        """Every site, forward in front of backward."""
        uses = [*self.uses]
        forward = self._forward(uses)
        found = [*forward, *self._backward(uses, forward)]
        self._add_stacked(forward)
        if found:
            self.repeats.claim(found)
        return found

    def _forward(self, uses: Sequence[Use]) -> list[Exposed]:
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
            site.trees += [use.taken.tree, *(one.tree for one in use.softmaxes)]
            site.as_given = site.as_given or use.as_given
            several = {self.uses.scores_of((one,)) for one in use.softmaxes}
            site.mixed = site.mixed or len(several) > 1
            self._add_softmax(site, use)
        return [*sites.values()]

    def _backward(self, uses: Sequence[Use], forward: Sequence[Exposed]) -> list[Exposed]:
        claimed = {one for site in forward for one in site.of("qk")}
        before: Written = set()
        for site in forward:
            before |= site.written
        sites: list[Exposed] = []
        for group in self._backwards(uses):
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

    def _backwards(self, uses: Sequence[Use]) -> list[list[Use]]:
        """The products of each backward: they have scores in common, and the loop."""
        groups: list[tuple[set[object], object, list[Use]]] = []
        for use in uses:
            if use.by_key and not use.grads:
                continue
            place = self._loop(use.taken.product)
            scores, its = {*self.uses.scores_of(use.softmaxes)}, [use]
            for group in [one for one in groups if one[1] == place and one[0] & scores]:
                groups.remove(group)
                scores |= group[0]
                its = [*group[2], *its]
            groups.append((scores, place, its))
        return [its for _, _, its in groups]

    def _written(self, use: Use) -> Written:
        """What is written to memory of scores between a product and what it takes, and between the
        sums over the keys in that, as of P · dP, and what they add up."""
        tree = use.taken.tree
        written = self._of_scores(tree, use.by_key)
        for row in tree.rows:
            if not row.spot.axes.of_rows:
                continue
            for _, value, axes in self.values.reduces(turned(row.spot, use.by_key), "add"):
                if axes.whole:
                    written |= self._of_scores(self.values.tree(value, axes), by_key=True)
        return written

    def _of_scores(self, tree: Tree, by_key: bool) -> Written:
        return tree.written(
            leaf for leaf in tree.leaves if self.saved.is_known(turned(leaf, by_key))
        )

    def _add_stacked(self, forward: Sequence[Exposed]) -> None:
        """What a loop keeps of the scores of each iteration for a backward, as written there."""
        if not forward:
            return
        made: dict[tuple[object, object], Exposed] = {}
        for site in forward:
            loop = self._loop(site.product)
            spots = {spot for tree in site.trees for spot in tree.of_scores() if spot.axes.whole}
            for spot in spots:
                made.setdefault((loop, self.saved.number(spot.instr)), site)
        for update in self._updates():
            loop = self._loop(update)
            for one in steps(self.graph, Value(update.operands[1]), moves=MOVES):
                its = made.get((loop, self.saved.number(one.instr)))
                if its is not None:
                    its.written.add((update, ()))
                    break

    def _loop(self, instr: Instruction) -> Instruction | None:
        loop = self.analysis.loop(instr.computation)
        return None if loop is None else loop.instr

    def _updates(self) -> Iterator[Instruction]:
        """Every dynamic-update-slice in a loop."""
        for computation in self.analysis.module.computations:
            if "dynamic-update-slice" not in computation.opcodes:
                continue
            if self.analysis.loop(computation) is None:
                continue
            for index, opcode in enumerate(computation.opcodes):
                update = Instruction(computation, index)
                if opcode == "dynamic-update-slice" and len(update.operands) > 1:
                    yield update

    def _add_softmax(self, site: Exposed, use: Use) -> None:
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

    def _add_divisions(self, site: Exposed, use: Use) -> bool:
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

    def _sums_behind(self, row: Row, use: Use) -> Iterator[tuple[Instruction, Spot]]:
        spot = turned(row.spot, use.by_key)
        for reduce, value, axes in self.values.reduces(spot, "add"):
            before = self.values.at(value, axes) if axes.whole else None
            if before is not None and before.instr.opcode == "exponential":
                yield reduce.instr, before

    def _late_divisions(self, use: Use) -> Iterator[tuple[Instruction, tuple[Instruction, ...]]]:
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


def score_text(site: Exposed) -> str:
    """The shape of the scores: of the product that makes them, or of their gradient."""
    made = site.of("qk") or site.of("dp")
    return array_text(made[0]) if made else array_text(site.softmax.exponential.instr)
