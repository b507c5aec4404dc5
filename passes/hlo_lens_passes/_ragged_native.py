"""Ragged dots that are still there, and those that became one grouped kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import attributes_of, config_of, result_of
from hlo_lens_passes._matmul_convs import ragged_config
from hlo_lens_passes._matmul_dims import Dims, config_dims, dot_dims, result_path
from hlo_lens_passes._matmul_fusions import fusions_around
from hlo_lens_passes._matmul_grouped import read_kernel
from hlo_lens_passes._ragged_found import FIRST, LAST, Ragged, Side, class_of, sides_of
from hlo_lens_passes._ragged_origins import Factor, Origin, names_of, origin_of, shape_at

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph
    from hlo_lens.hlo import Shape
    from hlo_lens_passes._ragged_masks import Masks

Row = Mapping[str, object]

_FUSED: Final = {"triton": "triton_fusion", "cudnn": "cudnn_fusion"}


# ---------------------------------------------------------------------------------- by dims


def ragged_dot(graph: CallGraph, dot: Instruction, row: Row) -> Ragged:
    """A `ragged-dot`, alone or in the custom fusion of a back end that runs it as one kernel."""
    fusions = list(fusions_around(graph, dot))
    backend = _text(row["backend"])
    lowering = _FUSED.get(backend or "", "ragged-dot")
    shapes = [shape_of(one) for one in dot.operands[:2]]
    dims = dot_dims(attributes_of(dot), shapes, result_of(dot))
    found = Ragged(dot, lowering, backend=backend)
    found.members.append(("dot", dot))
    found.evidence.append("ragged-dot")
    if lowering != "ragged-dot":
        found.members += [("fusion", one) for one in fusions]
        found.evidence.append(f"custom fusion of {backend}")
    _by_dims(found, dims, row)
    if lowering == "ragged-dot":
        found.flops = None
    return found


def grouped_call(graph: CallGraph, call: Instruction, row: Row) -> Ragged:
    """A call of a library's grouped gemm, with ragged dimension numbers in its config."""
    config = config_of(attributes_of(call))
    get = (lambda *_: None) if config is None else config.get
    gemm = ("grouped_gemm_backend_config",)
    numbers = get(*gemm, "gemm_backend_config", "dot_dimension_numbers")
    ragged = get(*gemm, "ragged_dot_dimension_numbers")
    dims = None if ragged is None else config_dims(numbers or {}, ragged)
    found = Ragged(call, "grouped_gemm", backend=_text(row["backend"]))
    found.members.append(("call", call))
    found.evidence.append(f"custom call {row['target']}")
    if dims is not None:
        found.evidence.append("ragged dimension numbers")
    _by_dims(found, dims, row)
    return found


def _by_dims(found: Ragged, dims: Dims | None, row: Row) -> None:
    """Class, variant, sizes and operands of what has ragged dimension numbers."""
    instr = found.instr
    found.m, found.n, found.k = (whole(row[name]) for name in ("m", "n", "k"))
    found.flops = found.useful = whole(row["flops"])
    found.dtypes = tuple(_text(row[f"{of}_dtype"]) for of in ("lhs", "rhs", "out"))
    found.results = (Value(instr, result_path(instr)),)
    if dims is None:
        return
    operands = instr.operands
    if len(operands) >= 2:
        found.lhs, found.rhs = (Value(operands[0]),), (Value(operands[1]),)
    found.groups = _groups(instr, dims)
    ragged = set(dims.lhs_ragged)
    if not ragged or len(operands) < 2:
        return
    if ragged <= set(dims.lhs_batch):
        found.variant = "batch"
    elif ragged <= set(dims.lhs_contracting):
        found.variant, found.kind = "contracting", "wgrad"
    elif ragged.isdisjoint((*dims.lhs_batch, *dims.lhs_contracting)):
        found.variant = "non_contracting"
        shape = shape_of(operands[1])
        named = (*dims.rhs_batch, *dims.rhs_group, *dims.rhs_contracting)
        free = [] if shape is None else [d for d in range(shape.rank) if d not in named]
        if len(free) == len(dims.rhs_contracting) == 1:
            found.kind = class_of(FIRST if dims.rhs_contracting[0] < free[0] else LAST)


def _groups(instr: Instruction, dims: Dims) -> int | None:
    """The size of the group dimension of the weights, else the number of group sizes."""
    operands = instr.operands
    shape = shape_of(operands[1]) if len(operands) > 1 else None
    if dims.rhs_group and shape is not None and dims.rhs_group[0] < shape.rank:
        return shape.dimensions[dims.rhs_group[0]]
    sizes = shape_of(operands[2]) if len(operands) > 2 else None
    return sizes.dimensions[-1] if sizes is not None and sizes.dimensions else None


# ---------------------------------------------------------------------------------- kernels


def kernel_call(graph: CallGraph, call: Instruction, known: Row) -> Ragged:
    """A kernel for groups of rows, of Mosaic (XLA's TPU compiler, megablox, tokamax) or Triton;
    `known` is its row in custom_calls.

    Rows [M,K] and weights [G,K,N] give [M,N]; rows and cotangents give [G,K,N] (gmm and tgmm of
    jax/experimental/pallas/ops/tpu/megablox). Tables of groups, in front of them, have rank 1.
    """
    kernel = str(known["kernel"] or "")
    result = Value(call, result_path(call))
    lowering = "triton_kernel" if known["family"] == "triton" else "mosaic_kernel"
    found = Ragged(call, lowering, backend=_text(known["family"]), results=(result,))
    found.members.append(("call", call))
    found.evidence.append(f"kernel name {kernel}")
    found.members += _tables(graph, call)
    read = read_kernel(call, known)
    columns = read.columns
    found.m, found.n, found.k, found.groups, found.flops = (
        whole(columns.get(name)) for name in ("m", "n", "k", "groups", "flops")
    )
    found.useful = found.flops
    given = shape_at(result)
    if len(read.operands) != 2 or given is None:
        return found
    found.lhs, found.rhs = (Value(read.operands[0]),), (Value(read.operands[1]),)
    found.dtypes = tuple(_text(columns[f"{of}_dtype"]) for of in ("lhs", "rhs", "out"))
    if given.rank == 3:
        found.variant, found.kind = "contracting", "wgrad"
        found.evidence.append("rows and cotangents give one matrix a group")
        return found
    found.variant = "non_contracting"
    weights = shape_of(read.operands[1])
    contracted = None if weights is None else _contracted_by(kernel, weights, found.k, found.n)
    origin = origin_of(graph, found.rhs[0])
    if contracted is not None and origin is not None:
        place = place_in_weights(origin.of((contracted,)), origin.of((3 - contracted,)))
        found.kind = class_of(contracted if place is None else place)
        found.evidence.append(f"dimension {place or contracted} of the weights is contracted")
    return found


def _contracted_by(kernel: str, weights: Shape, k: int | None, n: int | None) -> int | None:
    """Which dimension of the weights a kernel contracts: XLA's own the first behind the groups,
    gmm also the last, with transpose_rhs, which only the sizes can show."""
    if kernel.startswith("ragged-dot"):
        return FIRST
    if k == n:
        return None
    return {(k, n): FIRST, (n, k): LAST}.get((weights.dimensions[1], weights.dimensions[2]))


def place_in_weights(contracted: Sequence[Factor], free: Sequence[Factor]) -> int | None:
    """FIRST or LAST: where in weights [G,K,N], as they come, what is contracted besides the groups
    stands; None where that is not one dimension."""
    summed, kept = names_of(contracted), names_of(free)
    if len(summed) != 1 or len(kept) != 1 or summed == kept:
        return None
    return FIRST if min(summed) < min(kept) else LAST


def _tables(graph: CallGraph, call: Instruction) -> Iterator[tuple[str, Instruction]]:
    """The call that makes the tables of groups for a kernel."""
    found: dict[Instruction, None] = {}
    for one in call.operands:
        shape = shape_of(one)
        if shape is not None and shape.rank == 1:
            at = trace(graph, Value(one)).instr
            if at.opcode == "custom-call":
                found[at] = None
    return (("metadata", one) for one in found)


# ---------------------------------------------------------------------------------- TPU


def is_native(graph: CallGraph, conv: Instruction) -> bool:
    """Whether the TPU compiler's config of a convolution, or of a fusion around it, says that it
    is a ragged dot, or that its loops skip what belongs to another group."""
    return ragged_config(graph, conv) is not None


def native(graph: CallGraph, conv: Instruction, masks: Masks, row: Row) -> Ragged:
    """A convolution of a TPU that runs over the rows of each group only; `row` is that of matmuls.

    As text it is a batched dot [G,M,K] × [G,K,N] of rows laid out for every group, with what
    belongs to another group masked: in the result, or of a weight gradient in both operands.
    """
    fusions = list(fusions_around(graph, conv))
    found = Ragged(conv, "tpu_native", backend="xla_tpu")
    found.members.append(("convolution", conv))
    found.members += [("fusion", one) for one in fusions]
    config = ragged_config(graph, conv)
    flag = config is not None and config.get("convolution_algorithm_config", "is_ragged_dot")
    found.evidence.append("is_ragged_dot" if flag else "iteration_skipper_mode")
    outer = fusions[-1] if fusions else conv
    # Of a fusion with several results it is not looked for which one this is.
    found.results = () if outer.shape_text.startswith("(") else (Value(outer),)
    found.groups, found.m, found.n, found.k, found.flops = (
        whole(row[name]) for name in ("groups", "m", "n", "k", "flops")
    )
    found.useful = found.flops
    found.dtypes = tuple(_text(row[f"{of}_dtype"]) for of in ("lhs", "rhs", "out"))
    sides = sides_of(conv)
    inside = {conv.computation, *(one.computation for one in fusions[:-1])} if fusions else set()

    def ends(value: Value) -> bool:
        return bool(inside) and value.instr.computation not in inside and not value.via

    origins = [origin_of(graph, Value(one), ends) for one in conv.operands[:2]]
    if sides is None or len(origins) < 2 or origins[0] is None or origins[1] is None:
        return found
    kept = [None if one is None else masks.masked(one.sources[0]) for one in origins]
    if kept[0] is not None and kept[1] is not None:
        found.variant, found.kind = "contracting", "wgrad"
        found.lhs, found.rhs = (kept[0].rows,), (kept[1].rows,)
        found.members += [("mask", one.select.instr) for one in kept if one is not None]
        found.evidence.append("both operands masked by group")
    else:
        _native_rows(found, masks, (origins[0], sides[0]), (origins[1], sides[1]))
    return found


_Side = tuple[Origin, Side]


def _native_rows(found: Ragged, masks: Masks, left: _Side, right: _Side) -> None:
    """Rows and weights: the rows are what is laid out for every group."""
    found.variant = "non_contracting"
    laid_out = [masks.laid_out(one.sources[0], _at(one, side.batch)) for one, side in (left, right)]
    weights, side = left if laid_out[1] is not None else right
    found.lhs = tuple(rows for rows in laid_out if rows is not None)[:1]
    found.rhs = weights.sources
    place = place_in_weights(weights.of(side.summed), weights.of(side.free))
    found.kind = class_of(place)
    if place is not None:
        found.evidence.append(f"dimension {place} of the weights is contracted")


def _at(origin: Origin, dimensions: tuple[int, ...]) -> int:
    """The dimension of the origin that these are; -1 where it is not one."""
    names = origin.names(dimensions)
    return names.pop() if len(names) == 1 else -1


def whole(value: object) -> int | None:
    """A whole number of a row; None for anything else."""
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
