"""Ragged dots that became a dense contraction over all groups of masked rows.

Forward and data gradient contract groups and K at once: [M,G·K] × [G·K,N], perhaps in slices that
a reduce adds up (split K; it may cut along the groups). A weight gradient is a batch of dots over
all rows, one a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, consumers, steps
from hlo_lens.analysis.names import last_component
from hlo_lens.hlo.attributes import parse_ints
from hlo_lens_passes._calls import attributes_of
from hlo_lens_passes._matmul_dims import result_path
from hlo_lens_passes._matmul_fusions import fusions_around
from hlo_lens_passes._ragged_found import Ragged, Side, class_of, sides_of
from hlo_lens_passes._ragged_masks import ONE_GROUP
from hlo_lens_passes._ragged_native import place_in_weights
from hlo_lens_passes._ragged_origins import (
    Origin,
    aligned,
    names_of,
    operand,
    origin_of,
    shape_at,
)

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Computation, Instruction
    from hlo_lens_passes._ragged_masks import Masked, Masks

NAME: Final = "ragged_dot_general"
"""What jax calls the operation in an op_name."""

# What changes how a result lies in memory, and its dtype.
_MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape", "transpose"))
# What does not write a buffer of its own.
_FREE: Final = frozenset(("bitcast", "get-tuple-element", "parameter", "tuple", "opt-barrier"))


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a dot: its dimensions, where it comes from, and what is masked in it."""

    value: Value
    side: Side
    origin: Origin
    masked: tuple[Masked, ...]

    @property
    def labels(self) -> tuple[int, int, tuple[int, ...]] | None:
        """Dimensions of groups, rows and batch in the sources; None where nothing is masked."""
        found = {(one.groups, one.mask.rows, one.batch) for one in self.masked}
        return found.pop() if len(found) == 1 else None

    def names(self, dimensions: tuple[int, ...]) -> set[int]:
        return self.origin.names(dimensions)

    def size(self, dimensions: tuple[int, ...]) -> int:
        return prod(size for _, size in self.origin.of(dimensions))

    def of_source(self, dimension: int) -> int:
        """The size of a dimension of what is masked; 1 for that of a single group."""
        shape = shape_at(self.masked[0].select)
        size = None if shape is None or dimension == ONE_GROUP else shape.dimensions[dimension]
        return size or 1


def padded(analysis: ModuleAnalysis, matmul: Instruction, masks: Masks) -> Ragged | None:
    """The dense form of a ragged dot that a matmul is; None where it is another one."""
    graph = analysis.graph
    sides, operands = sides_of(matmul), matmul.operands
    if sides is None:
        return None
    both: list[_Operand] = []
    named = _is_named(analysis, matmul)
    for one, side in zip(operands[:2], sides, strict=True):
        origin = origin_of(graph, Value(one))
        if origin is None:
            return None
        masked = [masks.masked(source) for source in origin.sources]
        kept = tuple(
            each for each in masked if each is not None and (named or each.groups != ONE_GROUP)
        )
        both.append(_Operand(Value(one), side, origin, kept if len(kept) == len(masked) else ()))
    left, right = both
    if left.labels is not None and right.labels is not None:
        return _weight_gradient(graph, matmul, left, right)
    if left.labels is not None:
        return _rows(graph, matmul, left, right)
    if right.labels is not None:
        return _rows(graph, matmul, right, left)
    return None


def _weight_gradient(
    graph: CallGraph, matmul: Instruction, left: _Operand, right: _Operand
) -> Ragged | None:
    """Groups are a batch, and the rows are summed: `[G,M,K], [G,M,N] -> [G,K,N]`."""
    for one in (left, right):
        assert one.labels is not None
        groups, rows, batch = one.labels
        kept = one.names(one.side.batch)
        if not _holds(kept, groups) or not kept.issuperset(batch):
            return None
        if one.names(one.side.meeting) - {groups, *batch} != {rows}:
            return None
        if {groups, rows, *batch} & one.names(one.side.free):
            return None
    assert left.labels is not None
    groups, rows, batch = left.labels
    found = _found(matmul, left, right)
    found.variant, found.kind = "contracting", "wgrad"
    found.groups, found.k = left.of_source(groups), left.of_source(rows)
    found.m, found.n = left.size(left.side.free), right.size(right.side.free)
    found.lhs, found.rhs = ((*(each.rows for each in one.masked),) for one in (left, right))
    found.batch = prod(left.of_source(d) for d in batch)
    found.split_k = left.size(left.side.batch) // found.groups // found.batch
    if found.split_k > 1 and not _sum_slices(graph, found, left, {groups, *batch}):
        return None
    found.evidence += ["rows summed", "groups a batch"]
    return _finished(graph, found, (left, right))


def _rows(
    graph: CallGraph, matmul: Instruction, rows: _Operand, weights: _Operand
) -> Ragged | None:
    """Groups and K are summed at once, the rows are free: `[M,G·K], [G·K,N] -> [M,N]`."""
    assert rows.labels is not None
    groups, row, batch = rows.labels
    side, free = rows.side, rows.names(rows.side.free)
    if not _holds(rows.names(side.meeting), groups) or row not in free:
        return None
    if groups in free or row in rows.names(side.meeting):
        return None
    if not rows.names(side.batch).issuperset(batch) or free.intersection(batch):
        return None
    found = _found(matmul, rows, weights)
    found.batch = prod(rows.of_source(d) for d in batch)
    slices = rows.size(side.batch) // found.batch
    if slices > 1 and not _sum_slices(graph, found, rows, {*batch}):
        return None
    found.variant = "non_contracting"
    found.groups = rows.of_source(groups)
    found.m, found.n = rows.size(side.free), weights.size(weights.side.free)
    found.k = rows.size(side.meeting) // found.groups // found.batch
    found.split_k = slices
    found.lhs = tuple(each.rows for each in rows.masked)
    found.rhs = weights.origin.sources
    found.evidence.append("groups and K summed at once")
    place = _contracted(rows, weights, groups, batch)
    if place is not None:
        found.kind = class_of(place)
        found.evidence.append(f"dimension {place} of the weights is contracted")
    return _finished(graph, found, (rows,))


def _contracted(
    rows: _Operand, weights: _Operand, groups: int, batch: tuple[int, ...]
) -> int | None:
    """Which dimension of [G,K,N] is contracted besides the groups."""
    inner = rows.origin.of(rows.side.meeting)
    outer = weights.origin.of(weights.side.meeting)
    free = weights.origin.of(weights.side.free)
    of_batch = {d for one in batch for d in aligned(inner, outer, one)}
    outer = tuple(one for one in outer if one[0] not in of_batch)
    of_groups = aligned(inner, outer, groups)
    if groups == ONE_GROUP or len(of_groups) == 1:
        return place_in_weights([one for one in outer if one[0] not in of_groups], free)
    # Cut across groups: they stand first in weights, by what ragged_dot takes.
    summed = names_of(outer)
    return place_in_weights([(max(summed), 1)], free) if len(summed) == 2 else None


def _found(matmul: Instruction, *operands: _Operand) -> Ragged:
    masked = [one for each in operands for one in each.masked]
    found = Ragged(matmul, "dense_padded")
    found.members.append(("dot", matmul))
    found.evidence += masked[0].mask.described()
    for one in dict.fromkeys(each.select.instr for each in masked):
        found.members.append(("mask", one))
    for part in dict.fromkeys(part for each in masked for part in each.mask.parts):
        found.members.append(("compare", part))
    return found


def _finished(graph: CallGraph, found: Ragged, masked: tuple[_Operand, ...]) -> Ragged:
    """The numbers that all forms have."""
    sides = sides_of(found.instr)
    shapes = [shape_of(one) for one in found.instr.operands[:2]]
    if sides is not None and shapes[0] is not None and shapes[1] is not None:
        first, second = shapes[0].dimensions, shapes[1].dimensions
        sizes = [first[d] for d in (*sides[0].batch, *sides[0].free, *sides[0].summed)]
        sizes += [second[d] for d in sides[1].free]
        found.flops = 2 * prod(size for size in sizes if size is not None)
    sizes = [found.batch, found.m, found.n, found.k]
    found.useful = 2 * prod(size for size in sizes if size is not None)
    found.results = (Value(found.instr, result_path(found.instr)),)
    # The text does not show the dtype of the result, which is added up in another one.
    found.dtypes = tuple(None if shape is None else shape.dtype for shape in shapes)
    found.extra_bytes = _extra(graph, found, masked)
    return found


# ---------------------------------------------------------------------------------- around it


def _holds(names: set[int], groups: int) -> bool:
    return groups == ONE_GROUP or groups in names


def _is_named(analysis: ModuleAnalysis, matmul: Instruction) -> bool:
    name = analysis.full_op_name(matmul)
    return name is not None and last_component(name) == NAME


def _sum_slices(graph: CallGraph, found: Ragged, masked: _Operand, kept: set[int]) -> bool:
    """Whether reduces add up the batch dimensions of a dot, those of `kept` left out; they then
    are members."""
    wide = {place for place, d in enumerate(masked.side.batch) if not masked.names((d,)) <= kept}
    reduces = _added_up(graph, found.instr, wide)
    if reduces:
        found.members += [("reduce", one) for one in reduces]
        found.evidence.append("slices added up")
    return bool(reduces)


def _added_up(graph: CallGraph, matmul: Instruction, batch: set[int]) -> list[Instruction]:
    """The reduces over just these dimensions of what a dot gives, where its batch stands first."""
    reduces = []
    for user in consumers(graph, matmul, result_path(matmul), moves=_MOVES):
        given = operand(Value(user), 0) if user.opcode == "reduce" else None
        if given is None:
            continue
        origin = origin_of(graph, given, lambda one: one.instr == matmul)
        try:
            dimensions = parse_ints(attributes_of(user).get("dimensions", "{}"))
            summed = set() if origin is None else origin.names(dimensions)
        except (ValueError, IndexError):
            continue
        if batch and summed == batch:
            reduces.append(user)
    return reduces


def _extra(graph: CallGraph, found: Ragged, masked: tuple[_Operand, ...]) -> int | None:
    """Bytes that only the expansion writes: masked copies, less the rows in them, and slices."""
    total = 0
    for one in masked:
        written = _written(graph, one)
        if written is None:
            return None
        rows = shape_at(one.masked[0].rows)
        if written and rows is not None:
            total += written - sum(_bytes(each.rows) for each in one.masked)
    if found.split_k is not None and found.split_k > 1:
        shape = shape_at(found.results[0])
        reduce = next((instr for role, instr in found.members if role == "reduce"), None)
        inside = reduce is not None and reduce.computation is found.instr.computation
        alone = not any(True for _ in fusions_around(graph, found.instr))
        if shape is not None and (alone or not inside):
            total += shape.bytes or 0
    return total


def _bytes(value: Value) -> int:
    shape = shape_at(value)
    return 0 if shape is None else shape.bytes or 0


def _written(graph: CallGraph, one: _Operand) -> int | None:
    """Bytes of the buffers between what masks and the dot that takes it; 0 where it is fused."""
    selects = {each.select.instr for each in one.masked}
    total, passed = 0, set[Value]()
    waiting = [one.value]
    for value in waiting:  # grows while it is walked
        for at in steps(graph, value, moves=_MOVES):
            if at in passed:
                break
            passed.add(at)
            opcode = at.instr.opcode
            if opcode not in _FREE and not _is_fused(graph, at.instr.computation):
                shape = shape_at(at)
                if shape is None:
                    return None
                total += shape.bytes or 0
            if at.instr in selects:
                break
            if opcode in ("concatenate", "slice", "pad"):
                count = len(at.instr.operands) if opcode == "concatenate" else 1
                waiting += [x for n in range(count) if (x := operand(at, n)) is not None]
    return total


def _is_fused(graph: CallGraph, computation: Computation) -> bool:
    site = graph.only_caller(computation)
    return site is not None and site.kind == "fusion"


# ---------------------------------------------------------------------------------- by name


def batched(analysis: ModuleAnalysis, matmul: Instruction) -> Ragged | None:
    """A ragged dot whose ragged dimension is a batch: a plain batched dot, which only its name
    tells from another one (jax lowers it so, for all rows of all groups)."""
    if not _is_named(analysis, matmul):
        return None
    sides = sides_of(matmul)
    shapes = [shape_of(one) for one in matmul.operands[:2]]
    if sides is None or not sides[0].batch or shapes[0] is None or shapes[1] is None:
        return None
    graph = analysis.graph
    if not all(_is_plain(graph, Value(one)) for one in matmul.operands[:2]):
        return None
    if _added_up(graph, matmul, set(range(len(sides[0].batch)))):
        return None
    first, second = shapes[0].dimensions, shapes[1].dimensions
    sizes = [
        [first[d] for d in sides[0].batch],
        [first[d] for d in sides[0].free],
        [second[d] for d in sides[1].free],
        [first[d] for d in sides[0].summed],
    ]
    if any(size is None for each in sizes for size in each):
        return None
    groups, m, n, k = (prod(size for size in each if size is not None) for each in sizes)
    found = Ragged(matmul, "dense_padded", variant="batch", results=(Value(matmul),))
    found.members.append(("dot", matmul))
    found.evidence += [f"op_name {NAME}", "a batched dot, nothing masked"]
    found.groups, found.m, found.n, found.k = groups, m, n, k
    found.flops = found.useful = 2 * groups * m * n * k
    found.split_k, found.extra_bytes = 1, 0
    found.dtypes = tuple(None if shape is None else shape.dtype for shape in shapes)
    return found


def _is_plain(graph: CallGraph, value: Value) -> bool:
    """Whether it is known where an operand comes from, and nothing is masked in it."""
    origin = origin_of(graph, value)
    return origin is not None and all(
        source.instr.opcode not in _MOVES and source.instr.opcode != "select"
        for source in origin.sources
    )
