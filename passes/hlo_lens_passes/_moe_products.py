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
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.congruence import Congruence, Context
    from hlo_lens.analysis.values import Numbers

Row = Mapping[str, object]

# What hands on its operand, or part of it, without computing.
_HANDED: Final = frozenset(
    (
        "all-gather", "all-reduce", "bitcast-convert", "broadcast", "concatenate", "dynamic-slice",
        "element", "global", "local", "pad",
        "reduce-scatter", "select", "slice", "view",
    )
)  # fmt: skip
# What is no longer linear in its operand, by a word for it.
_BENT: Final = {
    "divide": "divide", "erf": "bent", "exponential": "exponential", "logistic": "bent",
    "maximum": "bent", "select": "bent", "tanh": "bent",
}  # fmt: skip
_PARTS: Final = frozenset(("dynamic-slice", "slice"))
_MOST_WALKED: Final = 4096


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
        self._sources: dict[int, Mapping[int, set[str]]] = {}
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
                split.summed += summed
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
    ) -> Mapping[int, set[str]]:
        """What a value is made of, element by element: numbers that are computed otherwise, and
        what is on the ways there: words of `_BENT`, and `[…` for which part is taken. With `along`,
        only ways on which all have these axes; `through` more opcodes."""
        if along or through:
            return self._walk(number, along, through)
        found = self._sources.get(number)
        if found is None:
            found = self._sources[number] = self._walk(number, along, through)
        return found

    def _walk(
        self, number: int, along: frozenset[Axis], through: frozenset[str]
    ) -> Mapping[int, set[str]]:
        found: dict[int, set[str]] = {}
        waiting: list[tuple[int, frozenset[str], bool]] = [(number, frozenset(), False)]
        seen: set[tuple[int, frozenset[str]]] = set()
        while waiting and len(seen) < _MOST_WALKED:
            one, ways, sliced = waiting.pop()
            one = self.added.get(one, one)
            if (one, ways) in seen or self.flow.is_constant(one):
                continue
            seen.add((one, ways))
            node = self.numbers[one]
            product = one in self.found or one in self.ragged
            # Of several products that are joined to one, a slice has the axes, the whole has not.
            if along and not (product and sliced) and not self._has(one, along):
                continue
            goes_on = node.kind in through or _goes_on(node.kind, node.detail)
            if product or not goes_on:
                found.setdefault(one, set()).update(ways)
                continue
            if node.kind in _BENT:
                ways = ways | {_BENT[node.kind]}
            elif node.kind in _PARTS:
                ways = frozenset(way for way in ways if way[:1] != "[") | {f"[{node.detail}"}
            of = node.operands[1:] if node.kind == "select" else node.operands
            if node.kind in ("dynamic-slice", "pad"):
                of = of[:1]
            sliced = node.kind in _PARTS or (sliced and node.kind == "view")
            waiting += [(operand, ways, sliced) for operand in of]
        return found

    def _has(self, number: int, axes: frozenset[Axis]) -> bool:
        mine = self.flow.varies_in(number)
        return mine is None or axes <= mine

    def hands_on(self, number: int) -> bool:
        """Whether `sources` looks at what a number is made of."""
        node = self.numbers[number]
        return _goes_on(node.kind, node.detail)


def _goes_on(kind: str, detail: object) -> bool:
    return kind in _HANDED or is_elementwise(detail)


def _result(flow: AxisFlow, context: Context, index: int) -> list[Axes] | None:
    """The axes of the result, the first of a tuple."""
    computation = context.evaluation.computation
    text = computation.shape_of(index)
    if not text.startswith("("):
        return array(flow, context, index)
    at = 1 if computation.opcode_of(index).endswith("-start") else 0
    shape = Instruction(computation, index).shape
    if at >= len(shape.elements):
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
