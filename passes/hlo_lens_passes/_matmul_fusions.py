"""The fusion around a matmul: what its config says makes the code, and in which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import whole_number
from hlo_lens.hlo.config import BackendConfig
from hlo_lens_passes._calls import attributes_of, config_of

if TYPE_CHECKING:
    from hlo_lens.analysis.calls import CallGraph

# Where the config of a fusion says what makes its code, on a GPU, a CPU, and a GPU in 2023.
_AT: Final[tuple[tuple[str, ...], ...]] = (("fusion_backend_config",), ("fusion_config",), ())
_KINDS: Final = {
    "__triton": "triton",
    "__triton_gemm": "triton",
    "__triton_nested_gemm_fusion": "triton",
    "__cudnn$fusion": "cudnn",
    "__ynn_fusion": "ynnpack",
}


def fusions_around(graph: CallGraph, instr: Instruction) -> Iterator[Instruction]:
    """The fusion that holds the instruction, the fusion that holds that one, and so on."""
    site = graph.only_caller(instr.computation)
    while site is not None and site.kind == "fusion":
        yield site.caller
        site = graph.only_caller(site.caller.computation)


def kernel_columns(graph: CallGraph, dot: Instruction) -> dict[str, object]:
    """backend, tiles, num_warps, num_stages and split_k, as far as the fusions around say."""
    for fusion in fusions_around(graph, dot):
        if not any(kind in fusion.tail for kind in _KINDS):
            continue
        config = config_of(attributes_of(fusion))
        for path in () if config is None else _AT:
            backend = _KINDS.get(str(config.get(*path, "kind"))) if config is not None else None
            if config is not None and backend is not None:
                return {"backend": backend, **_launch(config, path, dot)}
    return {}


def _launch(config: BackendConfig, path: tuple[str, ...], dot: Instruction) -> dict[str, object]:
    """Tiles and launch of a Triton kernel, from either form that XLA gives them in."""
    block = (*path, "block_level_fusion_config")
    if config.get(*block) is not None:
        output = _numbers(config.get(*block, "output_tiles", 0, "sizes"))
        # The tile of what is summed stands at the dot itself.
        own = config_of(attributes_of(dot)) if "sizes" in dot.tail else None
        summed = None if own is None else _numbers(own.get("sizes"))
    else:
        # Until 2025; split_k until 2024.
        block = (*path, "triton_gemm_config")
        output = _numbers([config.get(*block, "block_m"), config.get(*block, "block_n")])
        summed = _numbers([config.get(*block, "block_k")])
    tiles = {"output": output, "contracted": summed}
    return {
        "tiles": {name: sizes for name, sizes in tiles.items() if sizes} or None,
        "num_warps": _number(config.get(*block, "num_warps")),
        "num_stages": _number(config.get(*block, "num_stages")),
        "split_k": _number(config.get(*block, "split_k")),
    }


def _number(value: object) -> int | None:
    """A number of a config, which may stand there as text."""
    return whole_number(str(value)) if isinstance(value, (int, str)) else None


def _numbers(values: object) -> list[int] | None:
    """A list of numbers; None where one is missing."""
    read = [_number(value) for value in values] if isinstance(values, list) else []
    known = [number for number in read if number is not None]
    return known if known and len(known) == len(read) else None
