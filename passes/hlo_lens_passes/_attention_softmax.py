"""A softmax over keys: the exponential of scores, shown to be one by what is reduced."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import consumers
from hlo_lens.hlo import Instruction
from hlo_lens_passes._attention_axes import Axes, covers, elements_of, length
from hlo_lens_passes._attention_masks import Mask, mask_of, positions
from hlo_lens_passes._attention_reduces import reduced_over

if TYPE_CHECKING:
    from hlo_lens_passes._attention_values import Spot, Tree, Values, Written

MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape", "transpose"))
"""What changes how an array lies, and not what it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Softmax:
    """exp(scores), shown to be a softmax over the keys.

    scores: the products, those in front that have the batch of the scores as theirs, or what was
    saved of them; maxima, sums: the reduces; rows: what is
    subtracted from the scores where no maximum was found; again: the scores as the maximum takes
    them, where it does not take these; repeated: the products that make those.
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
    again: tuple[Tree, ...]
    repeated: tuple[Instruction, ...]

    @property
    def has_sink(self) -> bool:
        """Whether the softmax is over more than the keys."""
        count = elements_of(self.exponential.instr.shape_text)
        return count is not None and count > math.prod(map(length, self.exponential.axes))

    @property
    def products(self) -> tuple[Instruction, ...]:
        return tuple(spot.instr for spot in self.scores)


class Softmaxes:
    """The softmaxes of a module, each looked for once."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.saved = values.saved
        self._found: dict[tuple[Instruction, Axes], Softmax | None] = {}

    @property
    def known(self) -> list[Softmax]:
        """Those that were found."""
        return [one for one in self._found.values() if one is not None]

    def users(self, instr: Instruction) -> tuple[Instruction, ...]:
        """What computes with a value."""
        return consumers(self.values.graph, instr, moves=MOVES)

    def sides(self, spot: Spot) -> tuple[int, int] | None:
        """Which operands of a product its queries and keys come from; None for another value."""
        return self.values.products.sides(spot.instr, spot.axes)

    def of(self, spot: Spot) -> Softmax | None:
        key = (spot.instr, spot.axes)
        if key not in self._found:
            self._found[key] = None
            self._found[key] = self._read(spot)
        return self._found[key]

    def _read(self, spot: Spot) -> Softmax | None:
        operand = spot.operand(0)
        if operand is None or length(spot.axes.key) < 2:
            return None
        tree = self.values.tree(operand, spot.axes)
        scores = tuple(one for one in tree.products if self.sides(one) is not None)
        if scores:
            scores += tuple(one for one in self._parts(tree) if one not in scores)
        else:
            scores = tuple(one for one in tree.leaves if self.saved.is_score(one))
        if not scores:
            return None
        behind = [*self._maxima(spot, tree)]
        maxima = tuple(reduce for reduce, _, _ in behind)
        written = tree.written(scores).union(*(before for _, _, before in behind))
        products = {one.instr for one in scores}
        made = [(before, [one.instr for one in self._parts(before)]) for _, before, _ in behind]
        again = [(before, its) for before, its in made if not products.issuperset(its)]
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
            tuple(before for before, _ in again),
            tuple(instr for _, its in again for instr in its),
        )

    def _parts(self, tree: Tree) -> Iterator[Spot]:
        """The products that scores are a sum of."""
        for one in tree.products:
            if self.values.products.is_part(one.instr, one.axes):
                yield one

    def _maxima(self, spot: Spot, tree: Tree) -> Iterator[tuple[Instruction, Tree, Written]]:
        """The reduces of the scores over the keys by their maximum, with what they reduce and what
        is written to memory for that."""
        for row in tree.rows:
            if not row.spot.axes.of_rows or row.taker.opcode not in ("add", "subtract"):
                continue
            for reduce, value, axes in self.values.reduces(row.spot, "maximum"):
                if not axes.whole:
                    continue
                if covers(axes.key, spot.axes.key):  # over the keys, and a sink beside them
                    axes = Axes(axes.batch, axes.query, spot.axes.key)
                before = self.values.tree(value, axes)
                saved = [one for one in before.leaves if self.saved.is_score(one)]
                if saved or any(self.sides(one) is not None for one in before.products):
                    yield reduce.instr, before, before.written(saved)

    def _sums(self, spot: Spot) -> Iterator[Instruction]:
        """The sums of an exponential over the keys, and over nothing else."""
        for user in self.users(spot.instr):
            if user.opcode != "reduce":
                continue
            if _sums_over_keys(self.values, user, spot):
                yield user


def _sums_over_keys(values: Values, reduce: Instruction, exponential: Spot) -> bool:
    """Whether a reduce adds up an exponential over exactly its keys."""
    over = reduced_over(reduce, "add")
    before = None if over is None else values.at(*over)
    if before is None or before.instr != exponential.instr:
        return False
    return covers(before.axes.key, exponential.axes.key)
