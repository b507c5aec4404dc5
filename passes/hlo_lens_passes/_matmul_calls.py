"""Calls of gemm libraries: sizes, dtypes and epilogue by their config or by their contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import attributes_of, config_of, entry_of, result_of, target_of
from hlo_lens_passes._catalogue import Catalogue
from hlo_lens_passes._matmul_dims import Dims, Matmul, config_dims, dtypes, ragged_groups, sizes

_SCALED_DOTS: Final = frozenset(("__op$block_scaled_dot", "__cudnn$blockScaledDot"))
_ENGINE_GEMMS: Final = frozenset(("te_gemm_ffi", "te_gemm_v2_ffi"))
_ENGINE_FIELDS: Final = (
    "lhs_axis_boundary", "rhs_axis_boundary", "lhs_transposed", "rhs_transposed", "collective_op",
)  # fmt: skip


def read_call(call: Instruction, known: Catalogue) -> Matmul:
    entry = entry_of(call, known)
    config = config_of(attributes_of(call))
    get: Callable[..., object] = (lambda *_: None) if config is None else config.get
    gemm: tuple[str, ...] = ("gemm_backend_config",)
    if get("grouped_gemm_backend_config") is not None:
        gemm = ("grouped_gemm_backend_config", *gemm)
    elif get(*gemm) is None:
        gemm = ()  # before 2024 the fields stood at the top
    ragged = get("grouped_gemm_backend_config", "ragged_dot_dimension_numbers")
    dims = config_dims(get(*gemm, "dot_dimension_numbers"), ragged)
    algorithm = named(get(*gemm, "precision_config", "algorithm"), "alg_", "unset")
    precision = get(*gemm, "precision_config", "operand_precision")
    places: tuple[int, int] | None = None if dims is None else (0, 1)
    if dims is None:
        dims, places = by_contract(target_of(call), call.operands, get)
    # Only where the config or the target's contract tells is it sure which its operands are.
    operands: tuple[Instruction, ...] = ()
    if places is not None and len(call.operands) > max(places):
        operands = tuple(call.operands[place] for place in places)
    columns: dict[str, object] = {
        "form": "custom_call",
        "target": target_of(call),
        "backend": entry.family,
        **dtypes(operands, result_of(call), algorithm),
        "algorithm": algorithm,
        "operand_precision": (
            ",".join(str(one).lower() for one in precision) if isinstance(precision, list) else None
        ),
        **sizes(dims, operands),
        "groups": None if ragged is None else ragged_groups(dims, call.operands),
        "ragged": ragged is not None or entry.op == "grouped_gemm",
        "epilogue": named(get(*gemm, "epilogue"), "", ""),
        "dims": None if dims is None else dims.described(),
    }
    return Matmul(columns, operands, dims)


def by_contract(
    target: str | None, operands: Sequence[Instruction], get: Callable[..., object]
) -> tuple[Dims | None, tuple[int, int] | None]:
    """Dimension numbers of a call, and which operands are left and right, where its target fixes
    them; None for what it leaves open.

    A block-scaled dot takes left, right and their scales; both contract their last dimension
    (XLA's block_scaling_rewriter.cc). A gemm of TransformerEngine takes each operand in front of
    its scale, and from 2025 says where the dimensions of each are cut in two (its
    cpp_extensions/gemm.py); with communication inside the sizes of its products are not told.
    """
    if target in _SCALED_DOTS and len(operands) >= 4:
        shape = shape_of(operands[0])
        last = -1 if shape is None else shape.rank - 1
        dims = {1: Dims((1,), (1,)), 2: Dims((2,), (2,), (0,), (0,))}.get(last)
        return dims, (0, 1)
    if target not in _ENGINE_GEMMS:
        return None, None
    if len(operands) == 2:
        return None, (0, 1)
    if len(operands) < 6:
        return None, None
    fields = [get("config", name) if get("config") else get(name) for name in _ENGINE_FIELDS]
    lhs_at, rhs_at, lhs_transposed, rhs_transposed, together = fields
    shapes = [shape_of(operands[place]) for place in (0, 2)]
    dims = None
    if isinstance(lhs_at, int) and isinstance(rhs_at, int) and not together and None not in shapes:
        lhs, rhs = (() if shape is None else range(shape.rank) for shape in shapes)
        dims = Dims(
            tuple(lhs[:lhs_at] if lhs_transposed else lhs[lhs_at:]),
            tuple(rhs[rhs_at:] if rhs_transposed else rhs[:rhs_at]),
        )
    return dims, (0, 2)


def named(value: object, prefix: str, nothing: str) -> str | None:
    """An enum of a config in lower case without its prefix; NULL where it names nothing."""
    if not isinstance(value, str):
        return None
    text = value.lower().removeprefix(prefix)
    return None if text == nothing else text
