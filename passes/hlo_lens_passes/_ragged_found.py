"""What is found of one ragged dot, whatever it became, and the sides of a contraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.conv_dots import spatial_kinds
from hlo_lens.hlo.attributes import parse_dim_labels, parse_window
from hlo_lens_passes._calls import attributes_of, config_of, result_of
from hlo_lens_passes._matmul_dims import Dims, config_dims, dot_dims

if TYPE_CHECKING:
    from hlo_lens.analysis.dataflow import Value
    from hlo_lens.hlo import Instruction, Shape

Class = Literal["fwd", "dgrad", "wgrad"]
Direction = Class
OTHER_CLASS: Final[dict[Class, Class]] = {"fwd": "dgrad", "dgrad": "fwd"}
"""Of two products with the same weights: the class of the other one."""
Variant = Literal["non_contracting", "contracting", "batch"]
Role = Literal["wi", "wo"]
Projection = Literal["gate", "up", "fused", "down"]

FIRST, LAST = 1, 2
"""Places of K and N in weights [G,K,N]; a data gradient contracts the last."""


@dataclass(eq=False, slots=True)
class Ragged:
    """One ragged dot.

    instr: the dot, convolution or call. matmul: its row of `matmuls`. lhs, rhs: rows and weights;
    of a weight gradient rows and cotangents; several where they are put together. results: what it
    gives, as the rest of the program takes it. kind: its class. batch: how many it is at once.
    members: (role, instruction). flops: what it issues; None where nobody knows yet. dtypes: of
    lhs, rhs and result, as far as they are known.
    """

    instr: Instruction
    lowering: str
    lhs: tuple[Value, ...] = ()
    rhs: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    kind: Class | None = None
    direction: Direction | None = None
    variant: Variant | None = None
    backend: str | None = None
    groups: int | None = None
    batch: int = 1
    m: int | None = None
    n: int | None = None
    k: int | None = None
    flops: int | None = None
    useful: int | None = None
    split_k: int | None = None
    extra_bytes: int | None = None
    workspace: int | None = None
    dtypes: tuple[str | None, ...] = ()
    evidence: list[str] = field(default_factory=list)
    members: list[tuple[str, Instruction]] = field(default_factory=list)
    matmul: int | None = None
    role: Role | None = None
    projection: Projection | None = None

    @property
    def factor(self) -> float | None:
        return self.flops / self.useful if self.flops is not None and self.useful else None


def class_of(weights_contracted: int | None) -> Class | None:
    """Forward contracts K of [G,K,N], a data gradient N (definitions.md, ragged class)."""
    return {FIRST: "fwd", LAST: "dgrad"}.get(weights_contracted or 0)  # type: ignore[return-value]


# ---------------------------------------------------------------------------------- sides


@dataclass(frozen=True, slots=True)
class Side:
    """The dimensions of an operand: batch and summed ones in the order in which they meet those of
    the other operand."""

    batch: tuple[int, ...]
    free: tuple[int, ...]
    summed: tuple[int, ...]

    @property
    def meeting(self) -> tuple[int, ...]:
        return (*self.batch, *self.summed)


def dims_of(matmul: Instruction) -> Dims | None:
    """The dimension numbers of a dot, or of the config of a gemm call."""
    attributes = attributes_of(matmul)
    if matmul.opcode.startswith("custom-call"):
        config = config_of(attributes)
        if config is None:
            return None
        numbers = config.get("gemm_backend_config", "dot_dimension_numbers")
        return config_dims(numbers, None)
    shapes = [shape_of(one) for one in matmul.operands[:2]]
    return dot_dims(attributes, shapes, result_of(matmul))


def sides_of(matmul: Instruction) -> tuple[Side, Side] | None:
    """Both sides of a dot, a gemm call or a convolution that is a dot; None where not known."""
    shapes = [shape_of(one) for one in matmul.operands[:2]]
    if len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return None
    if matmul.opcode.startswith("convolution"):
        return _of_convolution(matmul, (shapes[0], shapes[1]))
    dims = dims_of(matmul)
    if dims is None:
        return None
    found = []
    for shape, batch, summed in (
        (shapes[0], dims.lhs_batch, dims.lhs_contracting),
        (shapes[1], dims.rhs_batch, dims.rhs_contracting),
    ):
        named = (*batch, *summed)
        if len(set(named)) != len(named) or any(d >= shape.rank for d in named):
            return None
        free = tuple(d for d in range(shape.rank) if d not in named)
        found.append(Side(batch, free, summed))
    left, right = found
    same = len(left.batch) == len(right.batch) and len(left.summed) == len(right.summed)
    return (left, right) if same else None


def _of_convolution(conv: Instruction, given: tuple[Shape, Shape]) -> tuple[Side, Side] | None:
    attributes, result = attributes_of(conv), result_of(conv)
    groups = {"1"} | {attributes.get(f"{of}_group_count", "1") for of in ("feature", "batch")}
    if result is None or groups != {"1"}:
        return None
    try:
        labels = parse_dim_labels(attributes.get("dim_labels", ""))
        text = attributes.get("window")
        window = None if text is None else parse_window(text)
        named = zip((labels.lhs, labels.rhs, labels.output), (*given, result), strict=True)
        sizes = [
            {label: size for label, size in zip(names, shape.dimensions, strict=True) if size}
            for names, shape in named
        ]
        kinds = spatial_kinds(labels, sizes, window)
    except (ValueError, KeyError, IndexError):
        return None
    where = {kind: [at for at, one in kinds.items() if one == kind] for kind in kinds.values()}
    batch, summed = where.get("batch", []), where.get("contracted", [])
    left = _placed(labels.lhs, batch, [*summed, "f"], ["b", *where.get("lhs", [])])
    right = _placed(labels.rhs, batch, [*summed, "i"], ["o", *where.get("rhs", [])])
    return left, right


def _placed(labels: str, batch: Sequence[str], summed: Sequence[str], free: Sequence[str]) -> Side:
    def at(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(labels.index(name) for name in names if name in labels)

    return Side(at(batch), at(free), at(summed))
