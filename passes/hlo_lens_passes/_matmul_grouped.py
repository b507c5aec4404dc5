"""Grouped matmuls that are kernels of their own (Mosaic, Triton): sizes by their contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import whole_number
from hlo_lens_passes._calls import attributes_of, result_of
from hlo_lens_passes._matmul_dims import Matmul, dtypes

_TILING: Final = "ragged_dot_tiling"


def read_kernel(call: Instruction, known: Mapping[str, object]) -> Matmul:
    """The row of a kernel call that is a grouped matmul; `known` is its row in custom_calls.

    gmm takes lhs [m, k] and rhs [groups, k, n], or [groups, n, k], and gives [m, n]; tgmm takes two
    matrices that share m, the first of them as [m, k] or [k, m], and gives [groups, k, n]. In front
    of the two stand tables of the groups, behind each there may be a scale (JAX megablox gmm.py,
    tokamax pallas_mosaic_tpu_kernel.py, and the kernels ragged-dot-* of XLA TPU). What does not fit
    leaves the sizes NULL.
    """
    result = result_of(call)
    if result is not None and result.is_tuple:
        result = result.elements[0] if result.elements else None
    matrices = [
        (operand, shape)
        for operand in call.operands
        if (shape := shape_of(operand)) is not None and shape.is_array and shape.rank in (2, 3)
    ]
    sizes, operands = (None, None) if result is None else _fitting(matrices, result)
    flops = None if sizes is None else 2 * sizes["m"] * sizes["n"] * sizes["k"]
    columns: dict[str, object] = {
        "form": "custom_call",
        "target": known["target"],
        "backend": known["family"],
        **dtypes(operands or (), result, None),
        **({} if sizes is None else {"batch": 1, **sizes, "flops": flops}),
        "ragged": True,
        "tiles": _tiles(call, result),
    }
    return Matmul(columns, operands or ())


_Matrix = tuple[Instruction, Shape]
_Fit = tuple[dict[str, int] | None, tuple[Instruction, Instruction] | None]


def _fitting(matrices: list[_Matrix], result: Shape) -> _Fit:
    """m, n, k, groups, and the left and right operand: the first two that fit the result."""
    read = {2: _gmm, 3: _tgmm}.get(result.rank)
    for at, (left, lhs) in enumerate(matrices):
        for right, rhs in matrices[at + 1 :]:
            sizes = None if read is None else read(lhs.dimensions, rhs.dimensions, result)
            if sizes is not None and None not in sizes.values():
                known = {name: size for name, size in sizes.items() if size is not None}
                return known, (left, right)
    return None, None


_Dimensions = tuple[int | None, ...]


def _gmm(lhs: _Dimensions, rhs: _Dimensions, result: Shape) -> dict[str, int | None] | None:
    m, n = result.dimensions
    if (
        len(lhs) != 2
        or len(rhs) != 3
        or lhs[0] != m
        or sorted(map(str, rhs[1:])) != sorted(map(str, (lhs[1], n)))
    ):
        return None
    return {"m": m, "n": n, "k": lhs[1], "groups": rhs[0]}


def _tgmm(lhs: _Dimensions, rhs: _Dimensions, result: Shape) -> dict[str, int | None] | None:
    """The contraction is over the rows, which are m of the whole: here k, as of any dot."""
    groups, rows, columns = result.dimensions
    if len(lhs) != 2 or len(rhs) != 2 or rhs[1] != columns:
        return None
    if lhs not in ((rhs[0], rows), (rows, rhs[0])):
        return None
    return {"m": rows, "n": columns, "k": rhs[0], "groups": groups}


def _tiles(call: Instruction, result: Shape | None) -> dict[str, list[int]] | None:
    """Tiles as the call asks for them, in the order m, k, n of the whole."""
    if result is None or _TILING not in call.tail:
        return None
    text = attributes_of(call).get("frontend_attributes", "")
    given = text.partition(f'{_TILING}="')[2].partition('"')[0].split(",")
    sizes = [size for size in map(whole_number, given) if size is not None]
    if len(sizes) != 3:
        return None
    rows, summed, columns = sizes if result.rank == 2 else (sizes[1], sizes[0], sizes[2])
    return {"output": [rows, columns], "contracted": [summed]}
