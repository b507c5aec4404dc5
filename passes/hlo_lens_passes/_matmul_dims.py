"""Dimension numbers of matmuls, from attributes and configs, and the sizes they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_ints
from hlo_lens_passes._calls import result_of


@dataclass(frozen=True, slots=True)
class Matmul:
    """What the text says of one matmul: columns, its operands (left, right; () unknown), and its
    dimension numbers, where it is one that has them."""

    columns: Mapping[str, object]
    operands: tuple[Instruction, ...]
    dims: Dims | None = None


@dataclass(frozen=True, slots=True)
class Dims:
    """Dimension numbers of a dot; `lhs_ragged` and `rhs_group` of a ragged one."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    lhs_ragged: tuple[int, ...] = ()
    rhs_group: tuple[int, ...] = ()

    def described(self) -> dict[str, tuple[int, ...]]:
        names = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
        found = {name: getattr(self, name) for name in names}
        ragged = {name: getattr(self, name) for name in ("lhs_ragged", "rhs_group")}
        return {**found, **{name: dims for name, dims in ragged.items() if dims}}

    def is_plain(self, rank: int | None) -> bool:
        """Whether an operand of that rank has one contracted and one other dimension beside its
        batch; so that both are, ask for both ranks."""
        return len(self.lhs_contracting) == 1 and rank == len(self.lhs_batch) + 2

    def sizes(self, lhs: Shape, rhs: Shape) -> dict[str, int | None]:
        """batch, m, n, k and flops; all NULL where the numbers do not fit the shapes.

        A dimension that is bounded (`<=n`) counts n, an unbounded one makes its size NULL.
        """
        left, right = lhs.dimensions, rhs.dimensions
        known = (
            are_dimensions((*self.lhs_contracting, *self.lhs_batch), left)
            and are_dimensions((*self.rhs_contracting, *self.rhs_batch, *self.rhs_group), right)
            and len(self.lhs_contracting) == len(self.rhs_contracting)
            and len(self.lhs_batch) == len(self.rhs_batch)
        )
        if not known:
            return {}
        batch = size(left, self.lhs_batch)
        m = size(left, others(left, (*self.lhs_contracting, *self.lhs_batch)))
        n = size(right, others(right, (*self.rhs_contracting, *self.rhs_batch, *self.rhs_group)))
        k = size(left, self.lhs_contracting)
        flops = None
        if batch is not None and m is not None and n is not None and k is not None:
            flops = 2 * batch * m * n * k
        return {"batch": batch, "m": m, "n": n, "k": k, "flops": flops}


def are_dimensions(numbers: Sequence[int], dimensions: Sequence[int | None]) -> bool:
    return len(set(numbers)) == len(numbers) and all(0 <= n < len(dimensions) for n in numbers)


def others(dimensions: Sequence[int | None], numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(number for number in range(len(dimensions)) if number not in numbers)


def size(dimensions: Sequence[int | None], numbers: Iterable[int]) -> int | None:
    sizes = [dimensions[number] for number in numbers]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def sizes(dims: Dims | None, operands: Sequence[Instruction]) -> dict[str, int | None]:
    shapes = [shape_of(operand) for operand in operands]
    if dims is None or len(shapes) < 2 or shapes[0] is None or shapes[1] is None:
        return {}
    return dims.sizes(shapes[0], shapes[1])


def result_path(matmul: Instruction) -> tuple[int, ...]:
    """Where in what the instruction gives its product is: a call may give scratch memory besides,
    a start its operands."""
    result = result_of(matmul)
    element = (0,) if result is not None and result.is_tuple else ()
    return (1, *element) if matmul.opcode.endswith("-start") else element


def ragged_groups(dims: Dims | None, operands: Sequence[Instruction]) -> int | None:
    """How many groups a ragged dot has: as many as the right operand has matrices, or, where that
    has no dimension of groups, as many as there are sizes in the third operand, whose last
    dimension they are."""
    at = 1 if dims is not None and dims.rhs_group else 2
    shape = shape_of(operands[at]) if len(operands) > at else None
    if shape is None or not shape.is_array:
        return None
    numbers = dims.rhs_group if dims is not None and dims.rhs_group else (shape.rank - 1,)
    return size(shape.dimensions, numbers) if are_dimensions(numbers, shape.dimensions) else None


_DIM_ATTRIBUTES: Final = {
    "lhs_contracting": "lhs_contracting_dims",
    "rhs_contracting": "rhs_contracting_dims",
    "lhs_batch": "lhs_batch_dims",
    "rhs_batch": "rhs_batch_dims",
    "lhs_ragged": "lhs_ragged_dims",
    "rhs_group": "rhs_group_dims",
}


def dot_dims(
    attributes: Mapping[str, str], operands: Sequence[Shape | None], result: Shape | None
) -> Dims | None:
    """The dimension numbers; None where an attribute cannot be read.

    A dot without any is an outer product, if its result has the rank of one; text of early 2018
    leaves them out for matrices too, and there they are not known.
    """
    try:
        given = {
            name: parse_ints(attributes[attribute])
            for name, attribute in _DIM_ATTRIBUTES.items()
            if attribute in attributes
        }
    except ValueError:
        return None
    if given:
        return Dims(**{"lhs_contracting": (), "rhs_contracting": (), **given})
    ranks = [shape.rank for shape in (*operands, result) if shape is not None]
    outer = len(ranks) == 3 and ranks[0] + ranks[1] == ranks[2]
    return Dims((), ()) if outer else None


_DIM_FIELDS: Final = {
    "lhs_contracting": "lhs_contracting_dimensions",
    "rhs_contracting": "rhs_contracting_dimensions",
    "lhs_batch": "lhs_batch_dimensions",
    "rhs_batch": "rhs_batch_dimensions",
}


def config_dims(numbers: object, ragged: object) -> Dims | None:
    """Dimension numbers of a gemm's config: integers, also as text; None where it has none."""
    if not isinstance(numbers, Mapping):
        return None
    fields: dict[str, object] = {name: numbers.get(key, []) for name, key in _DIM_FIELDS.items()}
    if isinstance(ragged, Mapping):
        inner = ragged.get("dot_dimension_numbers")
        if isinstance(inner, Mapping):
            fields = {name: inner.get(key, []) for name, key in _DIM_FIELDS.items()}
        fields["lhs_ragged"] = ragged.get("lhs_ragged_dimensions", [])
        fields["rhs_group"] = ragged.get("rhs_group_dimensions", [])
    read: dict[str, tuple[int, ...]] = {}
    for name, given in fields.items():
        if not isinstance(given, list) or not all(str(one).isdigit() for one in given):
            return None
        read[name] = tuple(int(one) for one in given)
    return Dims(**read)


def written(
    matmul: Instruction, operands: Sequence[Instruction], attributes: Mapping[str, str]
) -> dict[str, object]:
    """Dtypes and precision of a matmul that is an operation of HLO's own."""
    algorithm = attributes.get("algorithm")
    precision = attributes.get("operand_precision")
    return {
        **dtypes(operands, result_of(matmul), algorithm),
        "algorithm": algorithm,
        "operand_precision": None if precision is None else "".join(precision.strip("{}").split()),
    }


def dtypes(
    operands: Sequence[Instruction], result: Shape | None, algorithm: str | None
) -> dict[str, str | None]:
    shapes = [shape_of(operand) for operand in operands] or [None, None]
    lhs, rhs = (None if shape is None else shape.dtype for shape in shapes)
    if result is not None and result.is_tuple:
        result = result.elements[0] if result.elements else None
    return {
        "lhs_dtype": lhs,
        "rhs_dtype": rhs,
        "accumulate_dtype": accumulated(algorithm),
        "out_dtype": None if result is None else result.dtype,
    }


def accumulated(algorithm: str | None) -> str | None:
    """`f32` of `dot_bf16_bf16_f32_x3`, `dot_any_f8_any_f8_f32_fast_accum`: the last dtype named."""
    parts = (algorithm or "").lower().removeprefix("dot_").split("_")
    dtypes = [part for part in parts if part[:1] in ("f", "b", "t") and part[-1:].isdigit()]
    return dtypes[-1] if len(dtypes) >= 3 else None
