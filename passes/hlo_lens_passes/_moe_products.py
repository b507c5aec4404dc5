"""Products of a module with their axes: what each sums over, and what only one operand has.

Two forms count: a matmul of the table matmuls, and what back ends make of a small one, a sum of
`multiply` over some dimensions. A product that is split along its sum, and added up after it, sums
over that part, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction
from hlo_lens_passes._moe_axes import Axes, Axis, AxisFlow, dims_of, is_elementwise, leaves
from hlo_lens_passes._moe_rules import (
    Parts,
    array,
    conv_parts,
    dimension_numbers,
    dot_parts,
    number_of,
    run_context,
)
from hlo_lens_passes._moe_sources import Sources

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.congruence import Congruence, Context
    from hlo_lens.analysis.values import Numbers
    from hlo_lens_passes._moe_clusters import Clusters

Row = Mapping[str, object]


@dataclass(slots=True)
class Product:
    """A product: the numbers (see `congruence`) of its operands and result, and its axes.

    rows: its rows in matmuls; none for a sum of a multiply. instrs: that, or those of the rows.
    """

    number: int
    left: int
    right: int
    batch: Axes
    summed: Axes
    lhs: Axes
    rhs: Axes
    instrs: list[Instruction] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def operands(self) -> tuple[int, int]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class Cut:
    """The axes of a product as they are when all is known."""

    batch: frozenset[Axis]
    summed: frozenset[Axis]
    lhs: frozenset[Axis]
    rhs: frozenset[Axis]

    @property
    def all(self) -> frozenset[Axis]:
        return self.batch | self.summed | self.lhs | self.rhs

    @property
    def result(self) -> frozenset[Axis]:
        return self.batch | self.lhs | self.rhs

    @property
    def turned(self) -> Cut:
        """The same with the operands exchanged."""
        return replace(self, lhs=self.rhs, rhs=self.lhs)


class Products:
    """The products of a module, by the number of their results, and the axes of all arrays."""

    def __init__(
        self, analysis: ModuleAnalysis, matmuls: Iterable[Row], ragged: Iterable[Row]
    ) -> None:
        """The rows of one module in matmuls and in ragged_dots."""
        self.congruence: Congruence = analysis.congruence
        self.numbers: Numbers = self.congruence.numbers
        self.flow = AxisFlow(self.numbers)
        self.found: dict[int, Product] = {}
        # Ragged ones, by the numbers of what they give: their rows.
        self.ragged: dict[int, list[Row]] = {}
        self.ragged_operands: dict[int, tuple[int, ...]] = {}
        # Where the parts of one that is cut along its sum are added up: that one.
        self.added: dict[int, int] = {}
        self._sources = Sources(self)
        # See `_moe_clusters`: what hangs together along some axes.
        self.clusters: dict[tuple[frozenset[Axis], ...], Clusters] = {}
        self._ragged = {row["instr"]: row for row in ragged}
        self._rows = {row["instr"]: row for row in matmuls if not row["ragged"]} | self._ragged
        self._sums: list[tuple[Context, int]] = []
        # What is called several times on the same arrays is one.
        contexts = {id(one.evaluation): one for one in self.congruence.contexts()}
        self.contexts = tuple(contexts.values())
        for context in self.contexts:
            run_context(self.flow, context)
            self._read(context)
        sums = [(one, index, self._given(one, index)) for one, index in self._sums]
        self.flow.finished = True
        for context, index, given in sums:
            if given is not None:
                self._read_sum(context, index, *given)
        self._cuts = {number: _cut(product) for number, product in self.found.items()}

    def cut(self, product: Product) -> Cut:
        return self._cuts[product.number]

    def leaves(self, axes: Axes) -> frozenset[Axis]:
        return frozenset(leaves(axes))

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, context: Context) -> None:
        computation = context.evaluation.computation
        for index, opcode in enumerate(computation.opcodes):
            if opcode == "reduce":
                self._sums.append((context, index))
                continue
            instr = Instruction(computation, index)
            row = self._rows.get(instr.id)
            if row is None:
                continue
            number = context.evaluation.values[index]
            if computation.shape_of(index).startswith("("):
                number = self.numbers.element(number, 1 if opcode.endswith("-start") else 0)
            number = self.numbers.unviewed(number)
            if instr.id in self._ragged:
                self._read_ragged(context, index, number, row)
            else:
                self._read_product(context, instr, number, row)

    def _read_ragged(self, context: Context, index: int, number: int, row: Row) -> None:
        computation = context.evaluation.computation
        given = (number_of(self.flow, context, one) for one in computation.operand_indices(index))
        self.ragged_operands[number] = tuple(one for one in given if one is not None)
        rows = self.ragged.setdefault(number, [])
        if row not in rows:
            rows.append(row)

    def _read_product(self, context: Context, instr: Instruction, number: int, row: Row) -> None:
        known = self.found.get(number)
        if known is not None:
            if row not in known.rows:
                known.rows.append(row)
                known.instrs.append(instr)
            return
        parts = self._parts(context, instr.index, row)
        operands = instr.computation.operand_indices(instr.index)[:2]
        numbers = [number_of(self.flow, context, one) for one in operands]
        if parts is None or len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
            return
        self.found[number] = Product(
            number, numbers[0], numbers[1], *parts, instrs=[instr], rows=[row]
        )

    def _parts(self, context: Context, index: int, row: Row) -> Parts | None:
        computation = context.evaluation.computation
        operands = computation.operand_indices(index)[:2]
        sides = [array(self.flow, context, one) for one in operands]
        result = _result(self.flow, context, index)
        told = row["dims"]
        dims: dict[str, Any] = json.loads(told) if isinstance(told, str) else {}
        if len(sides) < 2 or sides[0] is None or sides[1] is None or result is None or not dims:
            return None
        if "dim_labels" in dims:
            return conv_parts(sides[0], sides[1], result, dims["dim_labels"], dims["window"])
        return dot_parts(sides[0], sides[1], result, dims)

    def _given(self, context: Context, index: int) -> tuple[int, Axes] | None:
        """Of a sum over some dimensions: the number of what it sums, and the axes it sums over;
        None where that is no multiply and nothing that a product left to be added up."""
        computation = context.evaluation.computation
        operands = computation.operand_indices(index)
        number = self.numbers.unviewed(context.evaluation.values[index])
        product = self.found.get(number)
        if product is not None and product.rows:
            return None
        if len(operands) != 2 or not _adds(computation, index):
            return None
        base = number_of(self.flow, context, operands[0])
        if base is None or self.flow.is_constant(base) or not self._may_sum(base):
            return None
        given = array(self.flow, context, operands[0]) or []
        gone = dimension_numbers(computation, index) or ()
        return base, [axis for at in gone if at < len(given) for axis in given[at]]

    def _read_sum(self, context: Context, index: int, base: int, summed: Axes) -> None:
        computation = context.evaluation.computation
        number = self.numbers.unviewed(context.evaluation.values[index])
        instr = Instruction(computation, index)
        known = self.found.get(number)
        if known is not None:
            if not known.rows and instr not in known.instrs:
                known.instrs.append(instr)
            return
        below = self.numbers.unviewed(base)
        below = self.added.get(below, below)
        if below in self.ragged:
            row, sizes = self.ragged[below][0], dims_of(computation.shape_of(index))
            if sizes is not None and math.prod(sizes) == _times(row["m"], row["n"]):
                self.added[number] = below
            return
        split = self.found.get(below)
        if split is not None:
            if split.rows and set(leaves(summed)) <= set(leaves(split.batch)):
                already = leaves(split.summed)
                split.summed += [axis for axis in leaves(summed) if axis not in already]
                self.added[number] = below
            return
        factors = [*self._factors(base)]
        for left, right in _pairs(factors, self.flow):
            parts = self._of_factors(left, right, set(leaves(summed)))
            if parts is not None:
                self.found[number] = Product(number, left, right, *parts, instrs=[instr])
                return

    def _may_sum(self, number: int) -> bool:
        below = self.numbers.unviewed(number)
        return any(below in known for known in (self.ragged, self.found, self.added)) or (
            self._is_multiply(below)
        )

    def _factors(self, number: int) -> Iterator[int]:
        waiting = [number]
        for _ in range(16):
            if not waiting:
                return
            one = waiting.pop()
            node = self.numbers[one]
            if node.kind == "multiply" and is_elementwise(node.detail):
                waiting += node.operands
            elif node.kind == "view" and self._is_multiply(node.operands[0]):
                waiting.append(node.operands[0])  # axes do not depend on their order
            else:
                yield one

    def _is_multiply(self, number: int) -> bool:
        node = self.numbers[number]
        return node.kind == "multiply" and is_elementwise(node.detail)

    def _of_factors(self, left: int, right: int, summed: set[Axis]) -> Parts | None:
        mine, yours = self.flow.varies_in(left), self.flow.varies_in(right)
        if mine is None or yours is None or not summed <= mine & yours:
            return None
        return list(mine & yours - summed), list(summed), list(mine - yours), list(yours - mine)

    # -- walking ----------------------------------------------------------------------------------

    def sources(
        self,
        number: int,
        along: frozenset[Axis] = frozenset(),
        through: frozenset[str] = frozenset(),
    ) -> Mapping[int, frozenset[str]]:
        """What a value is made of, element by element: numbers that are computed otherwise, and
        what is on the ways there: words for what is not linear, and `[…` for which part is taken.
        With `along`, only ways on which all have these axes; `through` more opcodes."""
        return self._sources.of(number, along, through)

    def hands_on(self, number: int) -> bool:
        """Whether `sources` looks at what a number is made of."""
        return self._sources.hands_on(number)

    def computes(self, number: int) -> bool:
        """Whether a number is a product, and no scale: one that sums over nothing, and of which one
        operand has no axis of its own, hands on the other one as a multiply does."""
        product = self.found.get(number)
        if product is None:
            return number in self.ragged
        cut = self.cut(product)
        return bool(cut.summed or (cut.lhs and cut.rhs) or not cut.batch)

    # -- looking up -------------------------------------------------------------------------------

    def having(self, axes: frozenset[Axis]) -> Iterable[Product]:
        """The products that have all these axes."""
        if not axes:
            return self.found.values()
        few = min((self._by_axis.get(axis, ()) for axis in axes), key=len)
        return [one for one in few if axes <= self.cut(one).all]

    def taking(self, bases: Iterable[int]) -> list[Product]:
        """The products that take one of these arrays, in whichever order, as they are found."""
        found = {one.number: one for base in bases for one in self._by_base.get(base, ())}
        return sorted(found.values(), key=lambda one: self._order[one.number])

    @cached_property
    def _order(self) -> dict[int, int]:
        return {number: at for at, number in enumerate(self.found)}

    @cached_property
    def _by_axis(self) -> dict[Axis, list[Product]]:
        found: dict[Axis, list[Product]] = {}
        for product in self.found.values():
            for axis in self.cut(product).all:
                found.setdefault(axis, []).append(product)
        return found

    @cached_property
    def _by_base(self) -> dict[int, list[Product]]:
        found: dict[int, list[Product]] = {}
        for product in self.found.values():
            for base in {self.numbers.unviewed(one) for one in product.operands}:
                found.setdefault(base, []).append(product)
        return found

    @cached_property
    def summed_up(self) -> dict[int, list[int]]:
        """Of products that are cut along their sum: where the parts are added up."""
        found: dict[int, list[int]] = {}
        for number, of in self.added.items():
            found.setdefault(of, []).append(number)
        return found

    @cached_property
    def concatenated(self) -> list[tuple[Product, tuple[int, ...]]]:
        """Products of matmuls that take arrays put together, and what these are put together of."""
        found = []
        for product in self.found.values():
            for operand in product.operands if product.rows else ():
                node = self.numbers[self.numbers.unviewed(operand)]
                if node.kind == "concatenate":
                    found.append((product, node.operands))
        return found


def _result(flow: AxisFlow, context: Context, index: int) -> list[Axes] | None:
    """The axes of the result, the first of a tuple."""
    computation = context.evaluation.computation
    text = computation.shape_of(index)
    if not text.startswith("("):
        return array(flow, context, index)
    at = 1 if computation.opcode_of(index).endswith("-start") else 0
    shape = shape_of(Instruction(computation, index))
    if shape is None or at >= len(shape.elements):
        return None
    sizes = dims_of(str(shape.elements[at]))
    number = flow.numbers.element(context.evaluation.values[index], at)
    return None if sizes is None else flow.dimensions(number, sizes)


def _times(one: object, other: object) -> int | None:
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _adds(computation: object, index: int) -> bool:
    instr = Instruction(computation, index)  # type: ignore[arg-type]
    called = instr.called
    return len(called) == 1 and called[0].root.opcode == "add"


def _pairs(factors: Sequence[int], flow: AxisFlow) -> Iterator[tuple[int, int]]:
    """Which of the factors may be the two operands: the one that has most axes, and another."""
    if len(factors) == 2:
        yield factors[0], factors[1]
    elif 2 < len(factors) <= 4:
        order = sorted(factors, key=lambda one: -len(flow.varies_in(one) or ()))
        for other in order[1:]:
            yield order[0], other


def _cut(product: Product) -> Cut:
    summed = frozenset(leaves(product.summed))
    batch, lhs, rhs = (
        frozenset(leaves(axes)) - summed for axes in (product.batch, product.lhs, product.rhs)
    )
    return Cut(batch, summed, lhs, rhs)
