"""The contract of a custom call: layouts, aliases, workspace, epilogue, memory, thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import parse_output_to_operand_aliasing
from hlo_lens.hlo.config import BackendConfig
from hlo_lens.hlo.shape import parse_shapes

_SCRATCH: Final = frozenset(("s8", "u8"))


def workspace_bytes(result: Shape | None) -> int | None:
    """Bytes of the last leaf of a result tuple where it is s8[n] or u8[n]; else None."""
    if result is None or not result.is_tuple or not result.elements:
        return None
    last = result.elements[-1]
    return last.bytes if last.dtype in _SCRATCH and last.rank == 1 else None


def operand_layouts(call: Instruction, attributes: Mapping[str, str]) -> list[str] | None:
    """The shapes the call constrains its operands to, else those of the operands."""
    constraints = attributes.get("operand_layout_constraints")
    if constraints is not None:
        try:
            return [str(shape) for shape in parse_shapes(constraints)]
        except ValueError:
            return None
    shapes = [shape_of(operand) for operand in call.operands]
    return None if None in shapes else [str(shape) for shape in shapes]


def aliasing(attributes: Mapping[str, str]) -> list[dict[str, object]] | None:
    """Which result is written into which operand; [] where the call writes into none, None where
    the text cannot be read."""
    text = attributes.get("output_to_operand_aliasing")
    if text is None:
        return []
    try:
        found = parse_output_to_operand_aliasing(text)
    except ValueError:
        return None
    return [
        {
            "output": list(one.output_index),
            "operand": one.operand,
            **({"operand_index": list(one.operand_index)} if one.operand_index else {}),
        }
        for one in found
    ]


# Where a gemm's or convolution's config says what it does to its result besides: gpu's
# GemmBackendConfig and CudnnConvBackendConfig (xla/service/gpu/backend_configs.proto), oneDNN's
# OneDnnMatMulConfig (xla/service/cpu/backend_config.proto).
_EPILOGUES: Final = (
    ("gemm_backend_config", "epilogue"),
    ("epilogue",),
    ("cudnn_conv_backend_config", "activation_mode"),
    ("onednn_matmul_config", "fusions", "ops"),
    ("onednn_conv_config", "fusions", "ops"),
    ("custom_call_config", "onednn_matmul_config", "fusions", "ops"),
)


def epilogue(config: BackendConfig | None) -> str | None:
    """The epilogue in the words of the config (`DEFAULT` is none, `BIAS_RELU`, `kRelu`), several
    joined with `+`; of a Transformer Engine gemm what its `fuse_…` attributes switch on."""
    if config is None:
        return None
    for path in _EPILOGUES:
        value = config.get(*path)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return "+".join(str(one) for one in value)
    if config.kind != "mlir" or not isinstance(config.value, dict):
        return None
    fused = {key: on for key, on in config.value.items() if key.startswith("fuse_")}
    if not fused or not all(isinstance(on, bool) for on in fused.values()):
        return None
    on = [key.removeprefix("fuse_").upper() for key, switched in fused.items() if switched]
    return "+".join(on) or "DEFAULT"


def thread(call: Instruction, attributes: Mapping[str, str]) -> str | None:
    """The thread an async start names, or the one its computation runs on."""
    named = attributes.get("async_execution_thread")
    return named.strip("\"'") if named is not None else call.computation.execution_thread


def scoped_memory(config: BackendConfig | None) -> int | None:
    """Bytes of TPU memory reserved while the call runs, over all memory spaces.

    What the compiler found it to use counts before what was asked for.
    """
    used = _reserved(config, "used_scoped_memory_configs")
    return _reserved(config, "scoped_memory_configs") if used is None else used


def vmem_limit(config: BackendConfig | None) -> int | None:
    """Bytes that the kernel asks for (`vmem_limit_bytes` of its compiler parameters)."""
    return _reserved(config, "scoped_memory_configs")


def _reserved(config: BackendConfig | None, field: str) -> int | None:
    reserved = None if config is None else config.get(field)
    if not isinstance(reserved, list) or not reserved:
        return None
    sizes = [one.get("size") if isinstance(one, dict) else None for one in reserved]
    if not all(isinstance(size, int) or str(size).isdigit() for size in sizes):
        return None
    return sum(int(size) for size in sizes if size is not None)
