"""jax's GPU plugins without a GPU: what they ask for before they compile, and what to answer."""

from __future__ import annotations

from typing import Any

__all__ = ["answer_for_cudnn", "believe_in_a_gpu"]


def believe_in_a_gpu() -> None:
    """ROCm's plugin counts GPUs and gives up at none, though it needs none to compile."""
    from jax._src import hardware_utils

    if hardware_utils.num_available_amd_gpus(stop_at=1) == 0:
        hardware_utils.num_available_amd_gpus = lambda stop_at=None: 1


def answer_for_cudnn() -> list[str]:
    """Where cuDNN is not installed, let jax see the version it was built against.

    `jax.nn.dot_product_attention(implementation="cudnn")` asks for nothing else of it when it is
    lowered. Returns what was answered for, in words, for provenance.
    """
    from jax._src import lib

    versions: Any = getattr(lib, "cuda_versions", None)
    if versions is None:
        return []
    try:
        versions.cudnn_get_version()
        return []
    except RuntimeError:
        built = versions.cudnn_build_version()
        versions.cudnn_get_version = lambda: built
        return [f"cuDNN's version ({built}), asked for by jax"]
