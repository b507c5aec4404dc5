"""Rows laid out for every group and masked: how XLA expands a ragged dot to a dense one.

The expansion (XLA's ragged_dot_rewriter.cc, and jax's own for a CPU) broadcasts the rows over a new
dimension of groups and keeps each where its number lies between the start and the end of the
group: `select(start <= iota < end, broadcast(rows), 0)`, start and end being the cumulative sums of
the group sizes. What makes a mask one of groups:

- an order comparison of an iota along the rows with one integer a group, which is no iota itself
  (a causal mask compares two iotas; one-hot routing asks for equality, and along the groups);
- rows that are the same for all groups (a padding mask takes from what each sequence has of its
  own).

Of a batch of ragged dots (vmap) the bounds have the dimensions of the batch, too. These are the
ones that rows have; then the bounds must be seen to be sums of group sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import Value, attribute_text, constant_value, operands, trace
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_int, parse_ints
from hlo_lens_passes._ragged_origins import names_of, operand, origin_of, shape_at

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Module

_KEPT: Final = frozenset(("copy", "convert"))
_NOTHING: Final[frozenset[str]] = frozenset()
_MOVED: Final = frozenset(("bitcast", "broadcast", "reshape", "transpose"))
_ORDER: Final = frozenset(("LT", "LE", "GT", "GE"))
ONE_GROUP: Final = -1
_MOST_NESTED: Final = 32
# How far back from a bound the sum of the group sizes is looked for.
_MOST_LOOKED_AT: Final = 64


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask of groups: along which dimensions the bounds differ, and which are the rows.

    along: groups and batch; nothing where there is only one group and so no dimension; then the
    rows are masked as any padding is, and only a name can tell what for. cumulative: whether the
    bounds are seen to be sums of group sizes. parts: the comparisons.
    """

    along: tuple[int, ...]
    rows: int
    cumulative: bool
    parts: tuple[Instruction, ...]

    def described(self) -> tuple[str, ...]:
        bounds = "cumulative group sizes" if self.cumulative else "one bound a group"
        return ("mask", "iota compare", bounds)


@dataclass(frozen=True, slots=True)
class Masked:
    """A select that keeps rows for their group. rows: what is laid out for every group. groups:
    the dimension of the groups, or ONE_GROUP; batch: those of a batch."""

    select: Value
    mask: Mask
    rows: Value
    groups: int
    batch: tuple[int, ...] = ()


class Masks:
    """The masks of a module, each looked at once."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph
        self._known: dict[Value, Masked | None] = {}

    def are_in(self, module: Module) -> bool:
        """Whether a module may mask by groups: by a mask of some, or by one that its computation
        is given, as a function is that several call."""
        for computation in module.computations:
            if "select" not in computation.opcodes:
                continue
            for index, opcode in enumerate(computation.opcodes):
                if opcode == "select" and "," in computation.shape_texts[index].partition("]")[0]:
                    value = Value(Instruction(computation, index))
                    if self._may_mask(value):
                        return True
        return False

    def _may_mask(self, select: Value) -> bool:
        chosen = operand(select, 0)
        if chosen is None:
            return False
        at = trace(self.graph, chosen, moves=_KEPT | {"broadcast"})
        return at.instr.opcode == "parameter" or self.masked(select) is not None

    def masked(self, value: Value) -> Masked | None:
        """What is masked, where a value is a select by a mask of groups; else None."""
        if value.instr.opcode != "select" or value.path:
            return None
        if value not in self._known:
            try:
                self._known[value] = self._read(value)
            except ValueError:
                self._known[value] = None
        return self._known[value]

    def _read(self, select: Value) -> Masked | None:
        chosen, given, zero = (*operands(select), None, None, None)[:3]
        if chosen is None or given is None or zero is None:
            return None
        mask = self.mask(chosen)
        if mask is None or not self._is_zero(zero):
            return None
        if not mask.along:
            return Masked(select, mask, self._without_ones(given), ONE_GROUP)
        laid_out = {d: rows for d in mask.along if (rows := self.laid_out(given, d)) is not None}
        batch = tuple(d for d in mask.along if d not in laid_out)
        if len(laid_out) != 1 or (batch and not mask.cumulative):
            return None
        ((groups, rows),) = laid_out.items()
        return Masked(select, mask, rows, groups, batch)

    def _without_ones(self, value: Value) -> Value:
        """What a value is before a broadcast gives it a dimension of size 1."""
        at = trace(self.graph, value, moves=_KEPT)
        inner = operand(at, 0) if at.instr.opcode == "broadcast" else None
        if inner is None:
            return at
        shapes = shape_at(at), shape_at(inner)
        counts = [None if shape is None else shape.element_count for shape in shapes]
        return inner if counts[0] is not None and counts[0] == counts[1] else at

    def _is_zero(self, value: Value) -> bool:
        at = trace(self.graph, value, moves=_KEPT | {"broadcast", "bitcast", "reshape"})
        return constant_value(self.graph, at.instr) == 0

    def laid_out(self, value: Value, groups: int) -> Value | None:
        """What is the same for every group, where a value is a broadcast over them."""
        at = trace(self.graph, value, moves=_KEPT)
        if at.instr.opcode != "broadcast":
            return None
        dimensions = _dimensions(at)
        shape = shape_at(at)
        wide = shape is not None and 0 <= groups < shape.rank
        return operand(at, 0) if wide and groups not in dimensions else None

    def mask(self, value: Value, depth: int = 0) -> Mask | None:
        """The mask that a truth value is. Raises ValueError for attributes it cannot read."""
        at = trace(self.graph, value, moves=_KEPT)
        opcode, first = at.instr.opcode, operand(at, 0)
        if first is None or depth > _MOST_NESTED:
            return None
        if opcode == "compare":
            return self._compared(at)
        if opcode == "and":
            both = [self.mask(one, depth + 1) for one in operands(at)]
            return _both(both[0], both[1]) if len(both) == 2 else None
        inner = None
        if opcode in _MOVED:
            inner = self.mask(first, depth + 1)
        return None if inner is None else self._carried(inner, at)

    def _carried(self, inner: Mask, at: Value) -> Mask | None:
        """A mask in other dimensions."""
        opcode = at.instr.opcode
        if opcode == "broadcast":
            places = _dimensions(at)
            if max(inner.rows, *inner.along, 0) >= len(places):
                return None
            rows, *along = (places[d] for d in (inner.rows, *inner.along))
        else:
            moved = [self._moved(at, d) for d in (inner.rows, *inner.along)]
            known = [d for d in moved if d is not None]
            if len(known) < len(moved):
                return None
            rows, *along = known
        return Mask(tuple(sorted(along)), rows, inner.cumulative, inner.parts)

    def _moved(self, at: Value, dimension: int) -> int | None:
        """Where a transpose, a reshape or a bitcast puts a dimension of its operand; None where it
        is no dimension of its own any more."""
        origin = origin_of(self.graph, at, lambda one: one.instr != at.instr)
        names = [] if origin is None else [names_of(factors) for factors in origin.factors]
        return names.index({dimension}) if {dimension} in names else None

    def _compared(self, compare: Value) -> Mask | None:
        if (attribute_text(compare.instr, "direction") or "") not in _ORDER:
            return None
        both = list(operands(compare))
        if len(both) != 2:
            return None
        for numbered, bound in (both, both[::-1]):
            rows = self._counted(numbered)
            found = None if rows is None else self._one_a_group(bound)
            if rows is not None and found is not None and rows not in found[0]:
                along, bounds = found
                cumulative = self._is_cumulative(bounds)
                return Mask(along, rows, cumulative, (compare.instr,))
        return None

    def _counted(self, value: Value, depth: int = 0) -> int | None:
        """The dimension along which a value counts 0, 1, 2, …; None where it is no iota."""
        at = trace(self.graph, value, moves=_KEPT)
        opcode, inner = at.instr.opcode, operand(at, 0)
        if opcode == "iota":
            return parse_int(attribute_text(at.instr, "iota_dimension") or "")
        if inner is None or opcode not in _MOVED or depth > _MOST_NESTED:
            return None
        below = self._counted(inner, depth + 1)
        if below is None or opcode != "broadcast":
            return None if below is None else self._moved(at, below)
        places = _dimensions(at)
        return places[below] if below < len(places) else None

    def _one_a_group(self, value: Value) -> tuple[tuple[int, ...], Value] | None:
        """The dimensions along which an integer differs, and these integers."""
        at = trace(self.graph, value, moves=_KEPT)
        inner = operand(at, 0)
        if at.instr.opcode != "broadcast" or inner is None:
            return None
        shape, places = shape_at(inner), _dimensions(at)
        if shape is None or shape.dtype[:1] not in ("s", "u") or len(places) != shape.rank:
            return None
        wide = [d for d, size in enumerate(shape.dimensions) if size != 1]
        source = trace(self.graph, inner, moves=_KEPT | {"bitcast", "reshape"})
        if source.instr.opcode in ("iota", "constant"):
            return None
        return tuple(sorted(places[d] for d in wide)), inner

    def _is_cumulative(self, bounds: Value) -> bool:
        """Whether a windowed sum, or a scan, is what bounds are made of."""
        waiting = [bounds]
        for at in islice(waiting, _MOST_LOOKED_AT):  # grows while it is walked
            at = trace(self.graph, at, moves=_NOTHING)
            if at.instr.opcode in ("reduce-window", "scan"):
                return True
            waiting += operands(at)
        return False


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    """A row lies behind the start of its group and in front of its end."""
    if one is None or other is None or (one.along, one.rows) != (other.along, other.rows):
        return None
    cumulative = one.cumulative or other.cumulative
    return Mask(one.along, one.rows, cumulative, (*one.parts, *other.parts))


def _dimensions(value: Value) -> tuple[int, ...]:
    """Raises ValueError."""
    return parse_ints(attribute_text(value.instr, "dimensions") or "{}")
