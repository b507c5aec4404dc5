"""The fusion around a matmul: what its config says makes the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import attributes_of, config_of

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# Where the config of a fusion says what makes its code, on a GPU, a CPU, and a GPU in 2023.
_FUSION_KIND: Final = (("fusion_backend_config", "kind"), ("fusion_config", "kind"), ("kind",))
_FUSION_KINDS: Final = {
    "__triton": "triton",
    "__triton_gemm": "triton",
    "__triton_nested_gemm_fusion": "triton",
    "__cudnn$fusion": "cudnn",
    "__ynn_fusion": "ynnpack",
}


def fusions_around(graph: CallGraph, instr: Instruction) -> Iterator[Instruction]:
    site = graph.only_caller(instr.computation)
    while site is not None and site.kind == "fusion":
        yield site.caller
        site = graph.only_caller(site.caller.computation)


def fusion_backend(fusion: Instruction) -> str | None:
    """What makes the code of the fusion; None where its config names nothing that is known."""
    if not any(kind in fusion.tail for kind in _FUSION_KINDS):
        return None
    config = config_of(attributes_of(fusion))
    if config is None:
        return None
    kinds = (config.get(*path) for path in _FUSION_KIND)
    return next((_FUSION_KINDS[kind] for kind in kinds if kind in _FUSION_KINDS), None)
