"""Fusions that a code generator or a library other than XLA's own emitters makes into a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.config import BackendConfig

# Where the config of a fusion says what makes its code: on a GPU, a CPU, and a GPU in 2023.
_KIND: Final = (("fusion_backend_config", "kind"), ("fusion_config", "kind"), ("kind",))
_SIGN: Final = '"kind"'
_FAMILIES: Final = (
    ("__triton", "triton"), ("__cudnn", "cudnn"), ("__ynn", "ynnpack"), ("__onednn", "onednn"),
)  # fmt: skip
_CUSTOM: Final = "__custom_fusion"
_TILES: Final = ("block_m", "block_n", "block_k")
_NUMBERS: Final = ("num_warps", "num_stages", "num_ctas", "waves_per_eu", "split_k")


@dataclass(frozen=True, slots=True)
class Generated:
    """A fusion, the `kind` that its config names (`__triton_gemm`), whose kernel that is, and
    numbers of its launch as the config has them."""

    fusion: Instruction
    kind: str
    family: str
    launch: Mapping[str, object]

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces, such as a softmax or a norm."""
        return any("reduce" in one.opcodes for one in self.fusion.called)


def families() -> tuple[str, ...]:
    """The families that a fusion may be of."""
    return (*(name for _, name in _FAMILIES), "cutlass", "xla")


def generated(module: Module) -> Iterator[Generated]:
    """Such fusions, in text order."""
    for computation in module.computations:
        if "fusion" not in computation.opcodes:
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode == "fusion" and _SIGN in computation.tail_of(index):
                found = _read(Instruction(computation, index))
                if found is not None:
                    yield found


def _read(fusion: Instruction) -> Generated | None:
    try:
        config = fusion.backend_config
    except ValueError:
        return None
    if config is None:
        return None
    kind = next((one for path in _KIND if isinstance(one := config.get(*path), str)), "")
    if not kind.startswith("__"):
        return None
    family = next((name for sign, name in _FAMILIES if kind.startswith(sign)), "unknown")
    if kind == _CUSTOM:
        name = config.get("fusion_backend_config", "custom_fusion_config", "name")
        # Others of this kind wrap a slice and a call, which is a custom call of its own.
        if not isinstance(name, str) or any(map(_calls, fusion.called)):
            return None
        kind, family = name, "cutlass" if name.startswith("cutlass") else "xla"
    return Generated(fusion, kind, family, _launch(config))


def _calls(computation: Computation) -> bool:
    return any(opcode.startswith("custom-call") for opcode in computation.opcodes)


def _launch(config: BackendConfig) -> Mapping[str, object]:
    """`{"tiles": [[16, 64]], "num_warps": 4, …}`, as far as the config says so."""
    found: dict[str, object] = {}
    blocks = config.get("fusion_backend_config", "block_level_fusion_config")
    if isinstance(blocks, dict):
        tiles = blocks.get("output_tiles")
        if isinstance(tiles, list):
            sizes = [one.get("sizes") for one in tiles if isinstance(one, dict)]
            found["tiles"] = [list(map(_number, size)) for size in sizes if isinstance(size, list)]
    gemm = config.get("fusion_backend_config", "triton_gemm_config")
    if isinstance(gemm, dict) and any(name in gemm for name in _TILES):
        found["tiles"] = {name: _number(gemm[name]) for name in _TILES if name in gemm}
    for source in (blocks, gemm):
        if isinstance(source, dict):
            found |= {name: _number(source[name]) for name in _NUMBERS if name in source}
    return found


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdigit() else value
