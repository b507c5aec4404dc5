"""Collective operations: where they stand, what they move, who takes part, bytes on the wire.

`reference/definitions.md`, "Collectives", says what each number means; group modes are those of
xla/service/collective_ops_utils.cc (GetCollectiveOpGroupMode).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.attributes import (
    inside,
    parse_frontend_attributes,
    parse_ints,
    parse_source_target_pairs,
    split_attributes,
    split_list,
    whole_number,
)
from hlo_lens.hlo.config import parse_config
from hlo_lens.hlo.opcodes import sugar
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens.hlo.shape import Shape, dtype_bits

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

KINDS: Final[tuple[str, ...]] = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast", "send", "recv",
)  # fmt: skip
"""Collective operations by today's opcode."""

_KIND_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{kind: kind for kind in KINDS},
        **{f"{kind}-start": kind for kind in KINDS},
        "cross-replica-sum": "all-reduce",  # the name of all-reduce until 2018-12
    }
)
COLLECTIVE_OPCODES: Final = frozenset(_KIND_OF)
"""Opcodes that are, or start, a collective: `all-gather`, `reduce-scatter-start` (sugar), …"""

_KEEPS_SHAPE: Final = frozenset(
    ("all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "send")
)
_WRAPPING: Final = frozenset(("async", "call", "custom_call", "fusion"))
_MOST_WRAPPERS: Final = 32
_REDUCING: Final = frozenset(("all-gather", "all-reduce", "reduce-scatter"))


def kind_of(opcode: str) -> str | None:
    """The collective an opcode is or starts, by its name without `-start`; None for all others."""
    return _KIND_OF.get(opcode)


@dataclass(frozen=True, slots=True)
class Site:
    """One collective operation of the text, and the instruction that stands for it in the schedule.

    `operation` is the collective itself: the instruction, its own `-start`, or the implied
    operation of `OP-start` sugar. `instr` is the outermost of the operation, the fusion that holds
    it and the async-start that wraps it: what its neighbours in the schedule see.
    """

    operation: Instruction
    instr: Instruction
    kind: str


def find_sites(module: Module, graph: CallGraph) -> Iterator[Site]:
    """Every collective operation of the module, in text order of the operations.

    An operation in a fusion or an async wrapper stands where its caller stands, once a caller; one
    in a plain called computation, branch or loop body stands where it is written, once. Transfers
    to and from the host (`is_host_transfer=true`) are no collectives.
    """
    known: dict[tuple[int, int], tuple[Instruction, ...]] = {}
    for computation in module.computations:
        if COLLECTIVE_OPCODES.isdisjoint(computation.opcodes):
            continue
        around = _outer_instructions(computation, graph, _MOST_WRAPPERS, known)
        for index, opcode in enumerate(computation.opcodes):
            kind = _KIND_OF.get(opcode)
            if kind is None or _is_host_transfer(computation, index, kind):
                continue
            written = Instruction(computation, index)
            operation = written.called[0].root if sugar(opcode) else written
            for instr in around or (written,):
                yield Site(operation, instr, kind)


def _is_host_transfer(computation: Computation, index: int, kind: str) -> bool:
    return kind in ("send", "recv") and "is_host_transfer=true" in computation.tails[index]


def _outer_instructions(
    computation: Computation,
    graph: CallGraph,
    depth: int,
    known: dict[tuple[int, int], tuple[Instruction, ...]],
) -> tuple[Instruction, ...]:
    """The fusions or async-starts around a computation, outermost; () where it has none.

    A wrapper that calls another computation hands its own on; a loop or branch in a wrapper does
    not, since it has a schedule and a count of its own. `depth` ends where a text calls in circles;
    `known` keeps what was found, as each computation may be called from several places.
    """
    key = computation.index, depth
    if (around := known.get(key)) is not None:
        return around
    found: list[Instruction] = []
    for site in graph.callers(computation):
        if site.kind not in _WRAPPING or not depth:
            continue
        around = _outer_instructions(site.caller.computation, graph, depth - 1, known)
        if around:
            found.extend(around)
        elif site.caller.opcode == "fusion" or site.caller.base_opcode == "async-start":
            found.append(site.caller)
    known[key] = tuple(dict.fromkeys(found))
    return known[key]


# ---------------------------------------------------------------------------- bytes


def moved_operands(operation: Instruction) -> tuple[Shape, ...] | None:
    """Shapes of the operands whose bytes a collective sends, those of the wrapped operation.

    Destination buffers, offsets, roots and tokens are none of them. None where the text does not
    give a shape.
    """
    kind = _KIND_OF[operation.opcode]
    operands = operation.operands
    if kind in ("ragged-all-to-all", "collective-broadcast", "send"):
        operands = operands[:1]
    elif kind == "recv":
        operands = ()
    if kind == "collective-permute" and (slices := attribute(operation, "slice_sizes")):
        shape = shape_of(operands[0]) if operands else None
        return None if shape is None else _sliced(shape, slices)
    shapes = tuple(shape for operand in operands if (shape := shape_of(operand)) is not None)
    if len(shapes) == len(operands) and (operands or kind == "recv"):
        return shapes
    if kind not in _KEEPS_SHAPE or (result := result_shape(operation)) is None:
        return None
    return (result,)


def _sliced(shape: Shape, slice_sizes: str) -> tuple[Shape, ...] | None:
    """What a permute in place sends: the slices of `slice_sizes={{1,2},{3,4}}` of its input."""
    dtypes = {leaf.dtype for leaf in shape.leaves()}
    if len(dtypes) != 1:
        return None
    try:
        sizes = [parse_ints(part) for part in split_list(inside(slice_sizes))]
    except ValueError:
        return None
    dtype = dtypes.pop()
    return tuple(Shape(dtype, size, (False,) * len(size)) for size in sizes)


def operand_bytes(operation: Instruction) -> int | None:
    """Bytes of what one device gives to the collective; 0 for a recv."""
    shapes = moved_operands(operation)
    return None if shapes is None else total_bytes(shapes)


def result_shape(operation: Instruction) -> Shape | None:
    """What one device gets, for a send what it gives: of a start tuple only that; None where the
    text does not give it."""
    shape = shape_of(operation)
    opcode = operation.opcode
    if shape is None:
        return None
    if opcode in ("send", "send-start", "recv", "recv-start"):
        return shape.elements[0] if shape.elements else None
    if opcode in ("all-gather-start", "collective-permute-start") and len(shape.elements) > 1:
        return shape.elements[1]
    return shape


def total_bytes(shapes: tuple[Shape, ...]) -> int | None:
    """The sum; None where one is not known."""
    sizes = [shape.bytes for shape in shapes if shape.bytes is not None]
    return sum(sizes) if len(sizes) == len(shapes) else None


def dtypes(shapes: tuple[Shape, ...]) -> str | None:
    """The dtype of the arrays, `bf16,f32` where they differ; None where there is none."""
    found = {
        leaf.dtype
        for shape in shapes
        for leaf in shape.leaves()
        if leaf.is_array and dtype_bits(leaf.dtype) is not None
    }
    return ",".join(sorted(found)) or None


def shape_of(instruction: Instruction) -> Shape | None:
    """The shape, or None where the text leaves it out or it cannot be read."""
    try:
        return instruction.shape if instruction.shape_text else None
    except ValueError:
        return None


# ---------------------------------------------------------------------------- groups


@dataclass(frozen=True, slots=True)
class Groups:
    """Who takes part together, as XLA reads it.

    `size` is the devices of the largest group, None where it depends on a count that the module
    does not give; `count` the groups listed. For permutes a group is a set of devices that the
    `pairs` (source, target) connect.
    """

    size: int | None
    count: int | None
    uneven: bool | None
    pairs: frozenset[tuple[int, int]] = frozenset()


_UNKNOWN_GROUPS: Final = Groups(None, None, None)


def groups_of(operation: Instruction) -> Groups:
    """The groups of a collective; all unknown where the attribute cannot be read."""
    kind = _KIND_OF[operation.opcode]
    try:
        if kind == "collective-permute":
            return _permute_groups(operation)
        if kind in ("send", "recv"):
            return _UNKNOWN_GROUPS
        return _replica_groups(operation, kind)
    except ValueError:
        return _UNKNOWN_GROUPS


def _replica_groups(operation: Instruction, kind: str) -> Groups:
    written = attribute(operation, "replica_groups")
    groups = None if written is None else parse_replica_groups(written)
    listed = None if groups is None or groups.is_empty else groups.group_size
    replicas, partitions = device_counts(operation.computation.module)
    everybody = {
        "cross_replica": replicas,
        "cross_partition": partitions,
        "cross_replica_and_partition": replicas,
        "flattened_id": _product(replicas, partitions),
    }
    mode = group_mode(operation, kind)
    size = listed if listed is not None else everybody[mode]
    if mode == "cross_replica_and_partition":
        size = _product(size, partitions)
    if groups is None or groups.is_empty:
        return Groups(size, 1, False)
    return Groups(size, groups.group_count, groups.uneven)


def group_mode(operation: Instruction, kind: str) -> str:
    """What the listed ids are: cross_replica, cross_partition, cross_replica_and_partition or
    flattened_id. An explicit `mode=` attribute (2025-07) wins."""
    stated = attribute(operation, "mode")
    if stated is not None and stated.startswith(("cross_", "flattened_")):
        return stated
    channel = attribute(operation, "channel_id") or attribute(operation, "all_reduce_id")
    if channel is None:
        return "cross_replica"
    if kind not in _REDUCING:
        return "cross_partition"
    if attribute(operation, "use_global_device_ids") == "true":
        return "flattened_id"
    return "cross_replica_and_partition"


def device_counts(module: Module) -> tuple[int | None, int | None]:
    """(replicas, partitions). A printer leaves out a count of 1, so one count implies the other;
    where neither stands the text may be older than both, and nothing is known."""
    replicas, partitions = module.replica_count, module.num_partitions
    if replicas is None and partitions is None:
        return None, None
    return replicas or 1, partitions or 1


def _product(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _permute_groups(operation: Instruction) -> Groups:
    text = attribute(operation, "source_target_pairs")
    if text is None:
        return _UNKNOWN_GROUPS
    pairs = frozenset(parse_source_target_pairs(text))
    sizes = [len(group) for group in _connected(pairs)]
    return Groups(
        size=max(sizes, default=None),
        count=len(sizes),
        uneven=len(set(sizes)) > 1,
        pairs=pairs,
    )


def _connected(pairs: frozenset[tuple[int, int]]) -> list[set[int]]:
    """Sets of devices that the pairs connect."""
    group_of: dict[int, set[int]] = {}
    for source, target in sorted(pairs):
        merged = group_of.get(source, {source}) | group_of.get(target, {target})
        for device in merged:
            group_of[device] = merged
    return list({id(group): group for group in group_of.values()}.values())


# ---------------------------------------------------------------------------- wire


def moves(groups: Groups) -> bool | None:
    """Whether some pair of a permute has source ≠ target; None where the text has no pairs."""
    if groups.count is None:
        return None
    return any(source != target for source, target in groups.pairs)


def wire_bytes(kind: str, operand: int | None, groups: Groups) -> int | None:
    """Bytes one device sends in a ring of its group, from the bytes of its operand.

    all-gather (n-1)·operand; reduce-scatter, all-to-all (n-1)/n·operand; all-reduce twice that;
    permute, broadcast, send: operand. 0 where n = 1 or no pair moves. None where not known, and
    for ragged-all-to-all, which sends at most its operand.
    """
    if operand == 0 or (kind == "collective-permute" and moves(groups) is False):
        return 0
    if operand is None or kind == "ragged-all-to-all":
        return None
    if kind in ("send", "recv"):
        return operand
    if kind == "collective-permute":
        return operand if moves(groups) else None
    size = groups.size
    if size is None:
        return None
    if size <= 1:
        return 0
    if kind == "all-gather":
        return (size - 1) * operand
    if kind == "collective-broadcast":
        return operand
    times = 2 if kind == "all-reduce" else 1
    return times * (size - 1) * operand // size


def ring_like(pairs: frozenset[tuple[int, int]]) -> bool:
    """Whether the pairs move every device's value to another device and back round: a rotation."""
    sources = {source for source, _ in pairs}
    targets = {target for _, target in pairs}
    return (
        len(pairs) > 1
        and sources == targets
        and len(sources) == len(pairs)
        and all(source != target for source, target in pairs)
    )


# ---------------------------------------------------------------------------- attributes


def channel_of(operation: Instruction) -> int | None:
    """channel_id; None where it has none, and where it is no number."""
    text = attribute(operation, "channel_id")
    return None if text is None else whole_number(text)


def attribute(instruction: Instruction, name: str) -> str | None:
    """Raw text of an attribute; cheap where several are asked of the same collectives."""
    tail = instruction.tail
    return _attributes(tail).get(name) if f"{name}=" in tail else None


@lru_cache(maxsize=1 << 10)
def _attributes(tail: str) -> Mapping[str, str]:
    try:
        return split_attributes(tail)
    except ValueError:
        return {}


def frontend_attributes(instruction: Instruction) -> Mapping[str, str]:
    """`frontend_attributes={k="v",…}` as a mapping, values without quotes; {} where unreadable."""
    text = attribute(instruction, "frontend_attributes")
    if text is None:
        return {}
    try:
        return parse_frontend_attributes(text)
    except ValueError:
        return {}


def configured(instruction: Instruction, *path: str) -> object:
    """A field of the backend_config, by the names that lead to it; None where it has none."""
    text = attribute(instruction, "backend_config")
    return None if text is None else parse_config(text).get(*path)
