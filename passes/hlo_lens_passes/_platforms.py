"""The platform that a text is for, by what only one compiler writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens_passes._calls import custom_calls, target_of
from hlo_lens_passes._catalogue import catalogue

if TYPE_CHECKING:
    from hlo_lens.hlo import Module

_PLATFORM_OF_FAMILY: Final = {
    **dict.fromkeys(
        (
            "cublas", "cublaslt", "hipblas", "cudnn", "miopen", "cusolver", "hipsolver", "magma",
            "cusparse", "hipsparse", "cufft", "hipfft", "cub", "jax_cuda", "jax_rocm", "triton",
            "mosaic_gpu", "ptx", "cutlass", "transformer_engine", "jax_aiter", "flash_attn_jax",
            "xla_gpu",
        ),
        "gpu",
    ),
    **dict.fromkeys(("lapack", "onednn", "ducc", "eigen"), "cpu"),
    **dict.fromkeys(("mosaic_tpu", "tpu_linalg", "sparsecore"), "tpu"),
    "neuron": "neuron",
}  # fmt: skip
_PLATFORM_OF_TARGET = re.compile(r"xla_(?:ffi_)?(?:partitioned_)?python_(cpu|gpu)_callback\Z")
# Fields that only one compiler writes. In a string the quotes would be escaped twice.
_CONFIG_FIELD: Final = {
    "flag_configs": "tpu",
    "scoped_memory_configs": "tpu",
    "operation_queue_id": "gpu",
    "fusion_backend_config": "gpu",
    "gemm_backend_config": "gpu",
    "grouped_gemm_backend_config": "gpu",
    "cudnn_conv_backend_config": "gpu",
    "cudnn_fmha_backend_config": "gpu",
    "cudnn_norm_backend_config": "gpu",
    "block_scaled_dot_backend_config": "gpu",
    "reification_cost": "gpu",
    "outer_dimension_partitions": "cpu",
    "onednn_matmul_config": "cpu",
}
_CONFIG = re.compile(rf'backend_config=(?:\{{"|"\{{\s*\\")({"|".join(_CONFIG_FIELD)})\\?"')
_CPU_FUSION = re.compile(r'"fusion_config":\{"kind":"(__(?:ynn|xnn|onednn)_fusion)"')


def platform_of(module: Module) -> tuple[str | None, str | None]:
    """The platform and what showed it; (None, both) where the evidence contradicts itself."""
    found: dict[str, str] = {}
    for platform, evidence in _platform_evidence(module):
        found.setdefault(platform, evidence)
    if len(found) > 1:
        return None, "; ".join(f"{platform}: {evidence}" for platform, evidence in found.items())
    return next(iter(found.items()), (None, None))


def _platform_evidence(module: Module) -> Iterator[tuple[str, str]]:
    config = _CONFIG.search(module.text)
    if config is not None:
        yield _CONFIG_FIELD[config[1]], f"backend_config {config[1]}"
    fusion = _CPU_FUSION.search(module.text)
    if fusion is not None:
        yield "cpu", f"fusion {fusion[1]}"
    if "fingerprint_before_lhs" in module.header.get("frontend_attributes", ""):
        yield "gpu", "header fingerprint_before_lhs"
    known = catalogue()
    for target in dict.fromkeys(map(target_of, custom_calls(module.computations))):
        if target is None:
            continue
        callback = _PLATFORM_OF_TARGET.match(target)
        platform = callback[1] if callback else _PLATFORM_OF_FAMILY.get(known.target(target).family)
        if platform is not None:
            yield platform, f"custom call {target}"
    for computation in module.computations:
        if any(":T(" in shape for shape in computation.shape_texts):
            yield "tpu", "tiled layouts"
            return
