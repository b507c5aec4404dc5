"""Attention that the text spells out: QKᵀ, softmax and PV, and what the backward makes of them.

Found from the products: in the forward, PV takes exp(scores), perhaps divided by its sum, and sums
over the keys; the scores are a product whose free dimensions are exactly the queries and the keys,
and the softmax reduces over exactly the keys. In the backward, dV sums P over the queries; dS, made
of P and of another product of that form (dP), gives dQ summed over the keys and dK over the
queries. P may be what a forward loop has stacked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, consumers, trace, value_source
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import (
    Axes,
    Axis,
    as_set,
    length,
    merged,
    operand_axes,
    sides,
    split,
)
from hlo_lens_passes._attention_masks import Mask, mask_of, positions
from hlo_lens_passes._attention_values import Row, Spot, Tree, Values, array_text, elements_of
from hlo_lens_passes._matmul_dims import Dims
from hlo_lens_passes._matmul_split import split_k

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.analysis.contractions import Contraction

# What may stand between the softmax and the product with V: dropout and division.
_OF_P: Final = frozenset(("divide", "multiply", "select"))
_MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape", "transpose"))

Written = set[tuple[Instruction, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, eq=False)
class Softmax:
    """exp(scores), shown to be a softmax over the keys.

    scores: the products, or what was saved of them; maxima, sums: the reduces; rows: what is
    subtracted from the scores where no maximum was found.
    """

    exponential: Spot
    tree: Tree
    scores: tuple[Spot, ...]
    maxima: tuple[Instruction, ...]
    sums: tuple[Instruction, ...]
    rows: tuple[Instruction, ...]
    mask: Mask
    positions: int | None
    found_in: Written

    @property
    def products(self) -> tuple[Instruction, ...]:
        return tuple(spot.instr for spot in self.scores)


@dataclass(slots=True, eq=False)
class Exposed:
    """One site. roles: its instructions by what they are; product: the matmul that stands for it;
    saved: whether the backward takes probabilities that a forward made, by the numbers of values:
    through what its loop has stacked, or a copy in pieces."""

    direction: str
    product: Instruction
    softmax: Softmax
    axes: Axes
    roles: dict[str, dict[Instruction, None]] = field(default_factory=dict)
    written: Written = field(default_factory=set)
    saved: bool = False
    divided_after: bool = False

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
    by_key: whether it sums over the keys."""

    taken: _Taken
    softmaxes: tuple[Softmax, ...]
    grads: tuple[Spot, ...]
    by_key: bool
    saved: bool


class Finder:
    """The exposed attention of one module."""

    def __init__(self, analysis: ModuleAnalysis, matmuls: Sequence[Mapping[str, object]]) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        module = analysis.module
        ids = [row["instr"] for row in matmuls if not row["ragged"]]
        dims = [_dims(row) for row in matmuls if not row["ragged"]]
        products = {one: d for one, d in zip(ids, dims, strict=True) if isinstance(one, int)}
        self.values = Values(analysis, products)
        self.products = [module.instruction(one) for one in products]
        cut = [row for row in matmuls if isinstance(row.get("split_k"), int)]
        self._slices = {
            number: count
            for row in cut
            if isinstance(number := row["instr"], int)
            and (count := _slices(self.graph, module.instruction(number), row)) is not None
        }
        self._softmaxes: dict[tuple[Instruction, Axes], Softmax | None] = {}
        self.saved = self.values.saved

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
        known = [softmax for softmax in self._softmaxes.values() if softmax is not None]
        if known and open_ and self.analysis.loops:
            self._note(uses, known)
            uses += [use for one in open_ if (use := self._saved_use(one)) is not None]
        forward = self._forward(uses)
        return [*forward, *self._backward(uses, forward)]

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
                if self._may_be_softmax(Instruction(computation, index)):
                    found.add(count)
        return found

    def _may_be_softmax(self, exponential: Instruction) -> bool:
        of = exponential.computation
        operands = of.operand_indices(exponential.index)
        if not operands:
            return False
        before = trace(self.graph, Value(Instruction(of, operands[0])), moves=_MOVES).instr
        if before.opcode != "negate":
            return True
        return any(user.opcode == "reduce" for user in self._users(exponential))

    def _users(self, instr: Instruction) -> tuple[Instruction, ...]:
        return consumers(self.graph, instr, moves=_MOVES)

    def _taken(self, counts: set[int]) -> Iterator[_Taken]:
        for product in self.products:
            of = product.computation
            operands = of.operand_indices(product.index)[:2]
            if len(operands) < 2:
                continue
            for side, operand in enumerate(operands):
                if elements_of(of.shape_of(operand)) not in counts:
                    continue
                as_matrices = self.values.product(product)
                if as_matrices is None:
                    break
                axes = _axes(as_matrices, side, self._slices.get(product.id, 1))
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
                if (softmax := self._softmax(_turned(spot, by_key))) is not None
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
            and self._sides(_turned(spot, by_key)) is not None
            and not self._is_score(spot, softmaxes)
        )
        if not grads and not taken.tree.opcodes <= _OF_P:
            return None
        if not grads and taken.tree.products:
            return None
        if by_key and not grads and self._is_gradient_of_logsumexp(taken, softmaxes[0]):
            return None
        return _Use(taken, softmaxes, grads, by_key, saved)

    def _is_score(self, spot: Spot, softmaxes: Sequence[Softmax]) -> bool:
        """Whether a product is the scores again, as where a cap is differentiated."""
        numbers = {self.saved.number(one.instr) for of in softmaxes for one in of.scores}
        return self.saved.number(spot.instr) in numbers

    def _is_gradient_of_logsumexp(self, taken: _Taken, softmax: Softmax) -> bool:
        """Whether the product is with the very weight that made the scores: the gradient of a
        logsumexp, as of a cross-entropy over a vocabulary, and no attention."""
        if length(taken.axes.batch) > 1:
            return False
        other = self._source(taken.product, 1 - taken.side)
        for spot in softmax.scores:
            where = self._sides(Spot(spot.value, spot.axes))
            if where is not None and self._source(spot.instr, where[1]) == other:
                return True
        return False

    def _source(self, product: Instruction, side: int) -> object:
        of = product.computation
        operand = Instruction(of, of.operand_indices(product.index)[side])
        return value_source(self.graph, operand, moves=_MOVES)

    def _sides(self, spot: Spot) -> tuple[int, int] | None:
        product = self.values.product(spot.instr)
        return None if product is None else sides(product, spot.axes)

    # -- the softmax ------------------------------------------------------------------------------

    def _softmax(self, spot: Spot) -> Softmax | None:
        key = (spot.instr, spot.axes)
        if key not in self._softmaxes:
            self._softmaxes[key] = None
            self._softmaxes[key] = self._read_softmax(spot)
        return self._softmaxes[key]

    def _read_softmax(self, spot: Spot) -> Softmax | None:
        operand = spot.operand(0)
        if operand is None or length(spot.axes.key) < 2:
            return None
        tree = self.values.tree(operand, spot.axes)
        scores = tuple(one for one in tree.products if self._sides(one) is not None)
        if not scores:
            scores = tuple(one for one in tree.leaves if self.saved.is_score(one))
        if not scores:
            return None
        written = set(tree.written)
        maxima = tuple(self._maxima(tree, written))
        rows = tuple(
            row.spot.instr
            for row in tree.rows
            if row.taker.opcode == "subtract" and row.position == 1 and row.spot.axes.of_rows
        )
        sums = tuple(self._sums(spot))
        if not maxima and not rows and not sums:
            return None
        return Softmax(
            spot,
            tree,
            scores,
            maxima,
            sums,
            rows if not maxima else (),
            mask_of(self.values, tree, scores),
            positions(self.values, tree),
            written,
        )

    def _maxima(self, tree: Tree, written: Written) -> Iterator[Instruction]:
        """The reduces of the scores over the keys by their maximum."""
        for row in tree.rows:
            if not row.spot.axes.of_rows or row.taker.opcode not in ("add", "subtract"):
                continue
            for reduce, value, axes in self.values.reduces(row.spot, "maximum"):
                if not axes.whole:
                    continue
                before = self.values.tree(value, axes)
                if any(self._sides(one) is not None for one in before.products) or any(
                    self.saved.is_score(one) for one in before.leaves
                ):
                    written |= before.written
                    yield reduce.instr

    def _sums(self, spot: Spot) -> Iterator[Instruction]:
        """The sums of an exponential over the keys, and over nothing else."""
        for user in self._users(spot.instr):
            if user.opcode != "reduce":
                continue
            if self.sums_over_keys(Spot(Value(user), spot.axes), spot):
                yield user

    def sums_over_keys(self, reduce: Spot, exponential: Spot) -> bool:
        """Whether a reduce adds up an exponential over exactly its keys."""
        over = self.values.reduced_over(reduce.instr, "add")
        if over is None:
            return False
        before = self.values.at(*over)
        if before is None or before.instr != exponential.instr:
            return False
        return as_set(before.axes.key) == as_set(exponential.axes.key)

    # -- saved by the forward ---------------------------------------------------------------------

    def _note(self, uses: Sequence[_Use], known: Sequence[Softmax]) -> None:
        for softmax in known:
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
                if not use.saved:
                    self._add_softmax(site, use)
                else:
                    site.written |= use.taken.tree.written
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

    def _add_softmax(self, site: Exposed, use: _Use) -> None:
        site.written |= use.taken.tree.written
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
        site.add("qk", *softmax.products)
        site.add("scale", *self._scales(softmax))
        site.add("mask", *softmax.mask.selects)
        site.add("max", *softmax.maxima)
        site.add("exp", softmax.exponential.instr)
        site.add("sum", *softmax.sums)

    def _scales(self, softmax: Softmax) -> Iterator[Instruction]:
        for spot in softmax.tree.nodes:
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
                again = self._softmax(exponential)
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
        for user in self._users(use.taken.product):
            if user.opcode not in ("divide", "multiply"):
                continue
            for operand in user.operands:
                before = trace(self.graph, Value(operand), moves=_MOVES | {"broadcast"}).instr
                behind = [before]
                if before.opcode == "divide":
                    behind += [
                        trace(self.graph, Value(one), moves=_MOVES | {"broadcast"}).instr
                        for one in before.operands
                    ]
                found = tuple(one for one in behind if one in sums)
                if found:
                    yield user, found


def _numbers(row: Mapping[str, object]) -> Mapping[str, object]:
    """The dimension numbers of a matmul, by their names; none where they are not known."""
    dims = row["dims"]
    found = json.loads(dims) if isinstance(dims, str) else dims
    return found if isinstance(found, Mapping) else {}


def _dims(row: Mapping[str, object]) -> str | None:
    """The dimension numbers of a gemm call as those of a dot; None for what has its own."""
    if row["form"] != "custom_call":
        return None
    return "".join(
        f", {name}_dims={{{','.join(map(str, numbers))}}}"
        for name, numbers in _numbers(row).items()
        if isinstance(numbers, list) and numbers
    )


def _axes(product: Contraction, side: int, slices: int) -> Axes | None:
    """The axes of an operand, with what is summed as the keys. slices: in how many the sum is cut,
    which the product then has in its batch, next to what is left of the sum."""
    try:
        batch, free, summed = operand_axes(product, side)
        if slices > 1:
            batch, summed = _whole_sum(batch, summed, slices)
    except ValueError:
        return None
    return Axes(batch, free, summed)


def _whole_sum(batch: Axis, summed: Axis, slices: int) -> tuple[Axis, Axis]:
    """Batch and sum of a product whose sum is in slices: XLA's split-K keeps the slices in front of
    what is summed in memory. Raises ValueError where they are not there."""
    rest = length(batch) // slices
    for outer, inner, which in ((rest, slices, 1), (slices, rest, 0)):
        parts = split(batch, (outer, inner))
        together = merged([*parts[which], *summed])
        if len(together) == len(summed):
            return parts[1 - which], together
    raise ValueError("slices that are not of the sum")


def _slices(graph: CallGraph, product: Instruction, row: Mapping[str, object]) -> int | None:
    """In how many slices the text shows a sum to be cut; what a kernel does inside is not asked."""
    numbers = {name: tuple(its) for name, its in _numbers(row).items() if isinstance(its, list)}
    return split_k(graph, product, Dims(**numbers)) if "lhs_batch" in numbers else None


def _turned(spot: Spot, by_key: bool) -> Spot:
    return spot if by_key else Spot(spot.value, spot.axes.turned())


def score_text(site: Exposed) -> str:
    """The shape of the scores: of the product that makes them, or of their gradient."""
    made = site.of("qk") or site.of("dp")
    return array_text(made[0]) if made else array_text(site.softmax.exponential.instr)
