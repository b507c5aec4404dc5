"""Fusions that a code generator or a library makes into a kernel, read from their configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import whole_number
from hlo_lens.hlo.config import BackendConfig
from hlo_lens_passes._calls import attributes_of, config_of

OPCODES: Final = frozenset(("fusion", "fusion-start"))
SIGN: Final = '"__'
"""What stands in every config that names a generator, escaped ones too."""

# Where the config of a fusion says what makes its code, on a GPU, a CPU, and a GPU in 2023.
_AT: Final[tuple[tuple[str, ...], ...]] = (("fusion_backend_config",), ("fusion_config",), ())
# By how the kind begins: xla/service/gpu/ir_emission_utils.h, xla/backends/cpu/ynn_emitter.h and
# the other libraries of the CPU back end.
_FAMILIES: Final = {
    "__triton": "triton",
    "__cudnn": "cudnn",
    "__ynn": "ynnpack",
    "__xnn": "xnnpack",
    "__onednn": "onednn",
}
_CUSTOM: Final = "__custom_fusion"
# Custom fusions are kernels that XLA is linked with, by name: xla/service/gpu/kernels.
_CUSTOM_FAMILIES: Final = {"cutlass": "cutlass", "ck_": "composable_kernel"}
_OTHER_CUSTOM: Final = "xla_gpu"
# XLA's own ways to give a call a part of a buffer (the call is a row of its own) and to copy.
_OF_XLA: Final = frozenset(
    ("address_computation", "dynamic_address_computation", "dynamic_slice_fusion")
)
_COPY: Final = "__dynamic_memcpy"

FAMILIES: Final = (*_FAMILIES.values(), *_CUSTOM_FAMILIES.values(), _OTHER_CUSTOM)
"""What a fusion may be of, besides "unknown"."""

_NUMBERS: Final = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "split_k")


@dataclass(frozen=True, slots=True)
class FusionKernel:
    """What the config of a fusion says of its kernel.

    `kind` is what makes it, as the config says (`__triton_gemm`), or the name of a custom fusion
    (`cutlass_gemm`); `family` whose that is, "unknown" for a kind that is not known here. `tiles`
    are `{"output": [16, 64], "contracted": [32]}` in the order of dimensions (of several outputs,
    a list each); `launch` has those of num_warps, num_stages, num_ctas, waves_per_eu and split_k
    that the config says.
    """

    kind: str
    family: str
    tiles: Mapping[str, object]
    launch: Mapping[str, int]


def fusion_kernel(fusion: Instruction) -> FusionKernel | None:
    """None for a fusion that XLA's own emitters make, and where the config cannot be read."""
    if SIGN not in fusion.tail:
        return None
    config = config_of(attributes_of(fusion))
    for path in () if config is None else _AT:
        kind = config.get(*path, "kind") if config is not None else None
        if config is not None and isinstance(kind, str) and kind.startswith("__"):
            return _read(config, path, kind)
    return None


def _read(config: BackendConfig, path: tuple[str, ...], kind: str) -> FusionKernel | None:
    families, otherwise = _FAMILIES, "unknown"
    if kind == _CUSTOM:
        kind = config.get(*path, "custom_fusion_config", "name")
        families, otherwise = _CUSTOM_FAMILIES, _OTHER_CUSTOM
    if not isinstance(kind, str) or kind == _COPY or kind in _OF_XLA:
        return None
    family = next((name for sign, name in families.items() if kind.startswith(sign)), otherwise)
    return FusionKernel(kind, family, *_launch(config, path))


def _launch(
    config: BackendConfig, path: tuple[str, ...]
) -> tuple[dict[str, object], dict[str, int]]:
    """Tiles and launch of a Triton kernel, from either form that XLA gives them in."""
    block = (*path, "block_level_fusion_config")
    if config.get(*block) is not None:
        given = config.get(*block, "output_tiles")
        each = [numbers(config.get(*block, "output_tiles", at, "sizes"))
                for at in range(len(given) if isinstance(given, list) else 0)]  # fmt: skip
        output: object = each[0] if len(each) == 1 else None if None in each else each
        summed = None  # stands at the dot
    else:
        # Until 2025; split_k until 2024.
        block = (*path, "triton_gemm_config")
        output = numbers([config.get(*block, "block_m"), config.get(*block, "block_n")])
        summed = numbers([config.get(*block, "block_k")])
    tiles = {"output": output, "contracted": summed}
    told = {name: _number(config.get(*block, name)) for name in _NUMBERS}
    return (
        {name: sizes for name, sizes in tiles.items() if sizes},
        {name: number for name, number in told.items() if number is not None},
    )


def _number(value: object) -> int | None:
    """A number of a config, which may stand there as text."""
    return whole_number(str(value)) if isinstance(value, (int, str)) else None


def numbers(values: object) -> list[int] | None:
    """A list of numbers; None where one is missing."""
    read = [_number(value) for value in values] if isinstance(values, list) else []
    known = [number for number in read if number is not None]
    return known if known and len(known) == len(read) else None
