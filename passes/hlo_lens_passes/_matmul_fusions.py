"""The fusion around a matmul: what its config says makes the code, and in which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.hlo import Instruction
from hlo_lens_passes._calls import attributes_of, config_of
from hlo_lens_passes._fusion_kernels import FusionKernel, fusion_kernel, numbers

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

_LAUNCH: Final = ("num_warps", "num_stages", "split_k")


def fusions_around(graph: CallGraph, instr: Instruction) -> Iterator[Instruction]:
    """The fusion that holds the instruction, the fusion that holds that one, and so on."""
    site = graph.only_caller(instr.computation)
    while site is not None and site.kind == "fusion":
        yield site.caller
        site = graph.only_caller(site.caller.computation)


def kernel_columns(graph: CallGraph, dot: Instruction) -> dict[str, object]:
    """backend, tiles, num_warps, num_stages and split_k, as far as the fusions around say."""
    for fusion in fusions_around(graph, dot):
        kernel = fusion_kernel(fusion)
        if kernel is not None and kernel.family != "unknown":
            return {
                "backend": kernel.family,
                "tiles": _tiles(kernel, dot) or None,
                **{name: kernel.launch.get(name) for name in _LAUNCH},
            }
    return {}


def _tiles(kernel: FusionKernel, dot: Instruction) -> dict[str, object]:
    """Of the first output; with the tile of what is summed, which in block-level configs stands at
    the dot itself."""
    found = dict(kernel.tiles)
    output = found.get("output")
    if isinstance(output, list) and isinstance(output[0], list):
        found["output"] = output[0]
    own = config_of(attributes_of(dot)) if output and "sizes" in dot.tail else None
    summed = None if own is None else numbers(own.get("sizes"))
    if summed is not None:
        found.setdefault("contracted", summed)
    return found
