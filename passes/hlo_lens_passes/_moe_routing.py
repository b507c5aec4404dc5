"""Who chooses the experts, and what moves rows because of it: top-k, sorts, gathers, scatters, ….

A router is a top-k of scores that are a product's: `topk`, a TopK call, a sort of which a part is
taken, or a maximum with its place. An operation routes for the last router that what steers it
depends on: its indices, its keys, what it counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import attribute_text
from hlo_lens.hlo import Instruction, Shape
from hlo_lens_passes._moe_axes import Axis, dims_of, leaves
from hlo_lens_passes._moe_rules import array, dimension_numbers, number_of

if TYPE_CHECKING:
    from hlo_lens.analysis.congruence import Context
    from hlo_lens_passes._moe_products import Products

Kind = Literal["sort", "gather", "scatter", "all_to_all", "top_k", "dispatch"]

ALL_TO_ALL: Final = frozenset(
    ("all-to-all", "all-to-all-start", "ragged-all-to-all", "ragged-all-to-all-start")
)
# Of an operation that routes: what it is, and which operands steer it (from, to).
_STEERED: Final[Mapping[str, tuple[Kind, slice]]] = {
    "gather": ("gather", slice(1, None)),
    "ragged-all-to-all": ("all_to_all", slice(2, None)),
    "ragged-all-to-all-start": ("all_to_all", slice(2, None)),
    "reduce-window": ("dispatch", slice(0, 1)),
    "scatter": ("scatter", slice(1, -1)),
    "sort": ("sort", slice(0, 1)),
}


@dataclass(frozen=True, slots=True)
class Router:
    """A choice of `top_k` of `experts` for each of `tokens`. number: what it gives, see
    `congruence`; scores: what it chooses by; products: those the scores come from; chosen: the
    axes that it chooses along. It chooses tokens for each expert where these are of tokens: see
    `_moe_choice`."""

    number: int
    top_k: int
    experts: int
    tokens: int
    scores: int
    products: tuple[int, ...]
    chosen: frozenset[Axis]


@dataclass(frozen=True, slots=True)
class Moved:
    """An operation that moves rows, or finds where to. bytes: read and written in one run; None
    where a size is not known. router: the number of the router that steers it."""

    instr: Instruction
    kind: Kind
    bytes: int | None
    router: int | None
    number: int
    operands: tuple[int, ...]


class Routing:
    """The routers of a module, by number, and the operations that may route."""

    def __init__(self, products: Products) -> None:
        self.products = products
        self.numbers = products.numbers
        self.routers: dict[int, Router] = {}
        self.instrs: dict[int, list[Instruction]] = {}
        contexts = products.contexts
        slices = dict(self._slices(contexts))
        for context in contexts:
            self._find(context, slices)
        self._latest: list[int] = []
        self.moved: list[Moved] = []
        seen: set[tuple[int, int | None]] = set()
        for context in contexts:
            for one in self._moves(context):
                if (one.instr.id, one.router) not in seen:
                    seen.add((one.instr.id, one.router))
                    self.moved.append(one)

    def latest(self, number: int) -> int | None:
        """The last router that a value depends on; None for none."""
        known = self._latest
        while len(known) <= number:
            at = len(known)
            if at in self.routers:
                known.append(at)
            else:
                of = self.numbers[at].operands
                known.append(max((known[one] for one in of if one < at), default=-1))
        return None if known[number] < 0 else known[number]

    def again(self, number: int) -> list[int]:
        """The router and what chooses as it does by scores of the same products, as where a
        forward is computed again."""
        return self._again.get(_kind_of(self.routers[number]), [])

    def alike(self, one: int, other: int) -> bool:
        """Whether two routers choose as many of as many, by whatever scores."""
        return _kind_of(self.routers[one])[1:] == _kind_of(self.routers[other])[1:]

    @cached_property
    def _again(self) -> dict[tuple[object, ...], list[int]]:
        found: dict[tuple[object, ...], list[int]] = {}
        for one in self.routers.values():
            found.setdefault(_kind_of(one), []).append(one.number)
        return found

    @cached_property
    def moved_by(self) -> dict[int | None, list[Moved]]:
        """What moves, by the number of the router; None: those of no router."""
        found: dict[int | None, list[Moved]] = {}
        for one in self.moved:
            found.setdefault(one.router, []).append(one)
        return found

    # -- routers ----------------------------------------------------------------------------------

    def _slices(self, contexts: Sequence[Context]) -> Iterator[tuple[int, tuple[int, int]]]:
        """What is taken a part of: how many elements it has, and the part."""
        for context in contexts:
            computation = context.evaluation.computation
            for index, opcode in enumerate(computation.opcodes):
                if opcode != "slice":
                    continue
                operands = computation.operand_indices(index)
                number = number_of(self.products.flow, context, operands[0]) if operands else None
                given = dims_of(computation.shape_of(operands[0])) if operands else None
                part = dims_of(computation.shape_of(index))
                if number is not None and given is not None and part is not None:
                    yield self.numbers.unviewed(number), (math.prod(given), math.prod(part))

    def _find(self, context: Context, slices: Mapping[int, tuple[int, int]]) -> None:
        computation = context.evaluation.computation
        for index, opcode in enumerate(computation.opcodes):
            if opcode not in ("custom-call", "reduce", "sort", "topk"):
                continue
            operands = computation.operand_indices(index)
            given = dims_of(computation.shape_of(operands[0])) if operands else None
            scores = number_of(self.products.flow, context, operands[0]) if operands else None
            if given is None or scores is None or not given:
                continue
            number = context.evaluation.values[index]
            instr = Instruction(computation, index)
            axes = array(self.products.flow, context, operands[0]) or []
            if opcode == "sort":
                chosen = self._sorted(number, given, instr, slices)
            elif opcode == "reduce":
                chosen = self._largest(instr, given, context)
            else:
                chosen = _top_k(instr, given)
            if chosen is None:
                continue
            if number not in self.routers:
                of = self.products.sources(scores)
                found = self.products.found
                products = tuple(one for one in of if one in found and found[one].rows)
                if not products:
                    continue
                k, experts, at = chosen
                along = frozenset(leaves(axes[at])) if at < len(axes) else frozenset[Axis]()
                self.routers[number] = Router(
                    number, k, experts, math.prod(given) // experts, scores, products, along
                )
            instrs = self.instrs.setdefault(number, [])
            if instr not in instrs:
                instrs.append(instr)

    def _sorted(
        self,
        number: int,
        given: tuple[int, ...],
        instr: Instruction,
        slices: Mapping[int, tuple[int, int]],
    ) -> tuple[int, int, int] | None:
        """(k, of how many, along which dimension): a sort of which the first are taken."""
        dimension = dimension_numbers(instr.computation, instr.index)
        if dimension is None or len(dimension) != 1 or dimension[0] >= len(given):
            return None
        size, total = given[dimension[0]], math.prod(given)
        count = len(instr.operands)
        ones = [number] if count == 1 else [self.numbers.element(number, k) for k in range(count)]
        for one in ones:
            whole, part = slices.get(self.numbers.unviewed(one), (0, 0))
            if whole == total and part < whole and (part * size) % total == 0:
                return part * size // total, size, dimension[0]
        return None

    def _largest(
        self, instr: Instruction, given: tuple[int, ...], context: Context
    ) -> tuple[int, int, int] | None:
        """(1, of how many, along which dimension): a maximum with its place, as of argmax."""
        operands = instr.computation.operand_indices(instr.index)
        dimension = dimension_numbers(instr.computation, instr.index)
        if len(operands) != 4 or dimension is None or len(dimension) != 1:
            return None
        places = number_of(self.products.flow, context, operands[1])
        integers = instr.computation.shape_of(operands[1]).startswith(("s", "u"))
        if places is None or not integers or not self.products.flow.is_constant(places):
            return None
        at = dimension[0]
        return (1, given[at], at) if at < len(given) else None

    # -- what moves -------------------------------------------------------------------------------

    def _moves(self, context: Context) -> Iterator[Moved]:
        computation = context.evaluation.computation
        for index, opcode in enumerate(computation.opcodes):
            number = context.evaluation.values[index]
            if opcode in ("topk", "custom-call", "sort", "reduce") and number in self.routers:
                instr = Instruction(computation, index)
                yield Moved(instr, "top_k", _bytes_of(instr, "top_k"), number, number, ())
                continue
            steered = _STEERED.get(opcode)
            if steered is None and opcode not in ALL_TO_ALL:
                continue
            instr = Instruction(computation, index)
            of = [
                number_of(self.products.flow, context, one)
                for one in computation.operand_indices(index)
            ]
            kind, by = steered or ("all_to_all", slice(0, 0))
            if opcode == "scatter":
                arrays = len(of) // 2
                by = slice(arrays, arrays + 1)
            found = [self.latest(one) for one in of[by] if one is not None]
            router = max((one for one in found if one is not None), default=None)
            operands = tuple(one for one in of if one is not None)
            yield Moved(instr, kind, _bytes_of(instr, kind), router, number, operands)


def _kind_of(router: Router) -> tuple[object, ...]:
    return router.products, router.top_k, router.experts, router.tokens


def _top_k(instr: Instruction, given: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(k, of how many, along which dimension) of a `topk` or a call of TopK: the last one."""
    if instr.opcode == "custom-call":
        target = (attribute_text(instr, "custom_call_target") or "").strip('"')
        if target != "TopK":
            return None
    shape = shape_of(instr)
    if shape is None or not shape.is_tuple or not shape.elements:
        return None
    sizes = shape.elements[0].dimensions
    known = sizes and sizes[-1] is not None
    return (sizes[-1], given[-1], len(given) - 1) if known else None  # type: ignore[return-value]


def _bytes_of(instr: Instruction, kind: Kind) -> int | None:
    """Bytes an operation reads and writes; of a gather or scatter, of the rows that it moves."""
    operands = [size_of(shape_of(one)) for one in instr.operands]
    shape = shape_of(instr)
    if shape is not None and instr.opcode.endswith("-start") and len(shape.elements) > 1:
        shape = shape.elements[1]  # behind the operands
    result = size_of(shape)
    if instr.opcode == "scatter":
        arrays = len(operands) // 2
        parts = [*operands[arrays : arrays + 1], *(2 * [*operands[arrays + 1 :]])]
    elif kind == "gather":
        parts = [*operands[1:], result, result]
    elif kind == "sort":
        parts = [*operands, *operands]
    elif kind == "all_to_all":
        parts = [*operands[:1], result]
    elif instr.opcode == "reduce-window":
        parts = [*operands[: len(operands) // 2], result]
    else:
        parts = [*operands, result]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def size_of(shape: Shape | None) -> int | None:
    """Bytes of the arrays of a shape; None where one is not known."""
    if shape is None:
        return None
    total = 0
    for leaf in shape.leaves():
        if leaf.is_array:
            if leaf.bits is None or leaf.element_count is None:
                return None
            total += leaf.bits * leaf.element_count
    return -(-total // 8)
