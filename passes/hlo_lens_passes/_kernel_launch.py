"""How a kernel is launched: its grid, warps, stages, tiles, buffers and settings.

Sources: jax/_src/pallas/triton/pallas_call_registration.py (Triton's attributes),
jax/_src/tpu_custom_call.py (Mosaic's config), jax/_src/pallas/mosaic/lowering.py (what Mosaic
writes at a kernel's function), xla/backends/gpu/codegen/triton (`block_level_fusion_config`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_lens.decode.kernels import Body
from hlo_lens.decode.triton import TritonCall, triton_call_of
from hlo_lens.hlo.attributes import parse_frontend_attributes
from hlo_lens.hlo.config import BackendConfig

# ------------------------------------------------------------------------------------- numbers


def number(value: object) -> int | None:
    """An integer of a config, which protobuf writes as text where it has 64 bits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value) else None


def numbers(values: object) -> list[int] | None:
    """A list of integers; None where it is none, or holds something else."""
    if not isinstance(values, list) or not values:
        return None
    found = [one for value in values if (one := number(value)) is not None]
    return found if len(found) == len(values) else None


_BLOCK: Final = ("fusion_backend_config", "block_level_fusion_config")
_GEMM: Final = ("fusion_backend_config", "triton_gemm_config")


def _first(config: BackendConfig | None, *paths: tuple[str, ...]) -> int | None:
    found = (number(config.get(*path)) for path in paths) if config is not None else iter(())
    return next((one for one in found if one is not None), None)


def num_warps(config: BackendConfig | None) -> int | None:
    """Warps (on AMD: wavefronts) of a Triton kernel's block of threads."""
    told = _first(config, ("num_warps",), (*_BLOCK, "num_warps"), (*_GEMM, "num_warps"))
    compiled = _compiled(config)
    return compiled.num_warps if told is None and compiled is not None else told


def _compiled(config: BackendConfig | None) -> TritonCall | None:
    """The launch of a kernel that JAX has compiled itself."""
    return None if config is None else triton_call_of(config)


def num_stages(config: BackendConfig | None) -> int | None:
    """Stages of the software pipeline that Triton makes of a kernel's loops."""
    return _first(config, ("num_stages",), (*_BLOCK, "num_stages"), (*_GEMM, "num_stages"))


def grid(config: BackendConfig | None, body: Body | None) -> list[int] | None:
    """How many programs run in each dimension: Triton's x, y, z, or the bounds of Mosaic's grid,
    outermost first; -1 for one that only the running program knows."""
    if config is not None:
        sizes = [number(config.get(f"grid_{axis}")) for axis in "xyz"]
        if sizes[0] is not None:
            return [1 if size is None else size for size in sizes]
    compiled = _compiled(config)
    if compiled is not None:
        return list(compiled.grid)
    launch = None if body is None else launch_of(body)
    if launch is None or launch.grid is None:
        return None
    return [size if size >= 0 else -1 for size in launch.grid]


# ------------------------------------------------------------------------------------- tiles

_TILE_KEY = re.compile(r"(?:block|tile|chunk)(?:_\w+)?|b(?:q|kv?|kvp|m|n|k|h)(?:_\w+)?|t[mkn]")
# `gmm-tm_512-tk_1024`, `RPA-bq_32-bkvp_8`, `paged_attention_block_h_16_pages_per_…`
_TILE_IN_NAME = re.compile(
    r"(?:^|[-_.])(tile_[mkn]|t[mkn]|block_(?:q|kv|m|n|k|h|d)(?:_(?:major|minor|compute))?"
    r"|b(?:q|kvp?|m|n|k))[_=](\d+)(?!\d)"
)


def tiles(config: BackendConfig | None, frontend: str | None, kernel: str | None) -> object | None:
    """The blocks that a kernel works on: those XLA chose, as `output_tiles` or `block_m` has them;
    those the author noted in the metadata of the call (`pallas_call(metadata=…)`); or those in the
    kernel's name."""
    if config is not None:
        chosen = _chosen(config)
        if chosen is not None:
            return chosen
    noted: dict[str, int] = {}
    for text in _noted(config, frontend):
        for path, value in _flat(text):
            size, key = number(value), path.rpartition(".")[2]  # `tiles.tile_m`
            if size is not None and _TILE_KEY.fullmatch(key):
                noted[key] = size
    if noted or kernel is None:
        return noted or None
    named = {found[1]: int(found[2]) for found in _TILE_IN_NAME.finditer(kernel)}
    return named or None


def _chosen(config: BackendConfig) -> object | None:
    block = config.get(*_BLOCK, "output_tiles")
    if isinstance(block, list) and block:
        sizes = [numbers(one.get("sizes")) if isinstance(one, dict) else None for one in block]
        if None not in sizes:
            return {"output_tiles": sizes}
    gemm = config.get(*_GEMM)
    if not isinstance(gemm, dict):
        return None
    return {k: size for k, v in gemm.items() if k.startswith("block_") and (size := number(v))}


def _noted(config: BackendConfig | None, frontend: str | None) -> Iterator[str]:
    """The texts in which JAX hands on what the author noted of the kernel."""
    if config is not None and isinstance(config.get("serialized_metadata"), str):
        yield config.get("serialized_metadata")
    if frontend is not None and "kernel_metadata" in frontend:
        try:
            yield parse_frontend_attributes(frontend).get("kernel_metadata", "")
        except ValueError:
            return


@lru_cache(maxsize=256)
def _flat(text: str) -> tuple[tuple[str, object], ...]:
    """Keys and values of JSON, of objects in it, and of objects written as text in it."""
    found: list[tuple[str, object]] = []
    waiting: list[object] = [text]
    for value in waiting:
        if len(waiting) > 1000:
            break
        if isinstance(value, str) and "{" in value:
            try:
                value = json.loads(value, strict=False)
            except (ValueError, RecursionError):
                continue
        if isinstance(value, dict):
            found += value.items()
            waiting += value.values()
    return tuple(found)


# ------------------------------------------------------------------------------------- buffers


@dataclass(frozen=True, slots=True)
class Launch:
    """What Mosaic writes at a kernel's function. buffers: as the column has them."""

    grid: tuple[int, ...] | None
    semantics: tuple[str, ...]
    core: str | None
    buffers: tuple[Mapping[str, object], ...]


_GRID = re.compile(r"\biteration_bounds = array<i64(?:: ([-0-9, ]*))?>")
_INTEGER = re.compile(r"-?\d+")
_SEMANTICS = re.compile(r"#tpu\.dimension_semantics<(\w+)>")
_CORE = re.compile(r"\btpu\.core_type = #tpu\.core_type<(\w+)>")
_PREFETCH = re.compile(r"\bscalar_prefetch = (\d+)")
_TYPE = re.compile(r"\bfunction_type = \((.*?)\) -> \(\)")
_WINDOWS = re.compile(r"\bwindow_params = \[(.*)\]")
_WINDOW = re.compile(r"\{([^{}]*)\}")
_MODE = re.compile(r"#tpu\.pipeline_mode<(\w+)>")
_COPIES: Final[Mapping[str, int]] = {"synchronous": 1, "double_buffered": 2}
_MEMREF = re.compile(r"memref<((?:(?:\?|\d+)x)*)([^,<>]+(?:<[^<>]*>)?)((?:[^<>]|<[^<>]*>)*)>")
_SPACE = re.compile(r"#tpu\.memory_space<(\w+)>")
_ALLOCATED = re.compile(
    r'"(?:stable_mosaic\.)?(?:memref\.alloca?|tpu\.alloca)"[^\n]*-> (memref<[^\n]*>)$', re.M
)
_BUFFERS_NOTED = re.compile(r"(?:.*\.)?(?:num_buffers|(\w*?)_?buffer_count)")
_BUFFERS_IN_NAME = re.compile(r"(?:^|[-_.])(\w*?)_?buf(?:fer)?s?_(\d+)(?!\w)")


@lru_cache(maxsize=256)
def launch_of(body: Body) -> Launch | None:
    """How Mosaic runs a kernel; None where the body is not read or does not say."""
    if body.text is None or "iteration_bounds" not in body.text:
        return None
    line = next(line for line in body.text.splitlines() if "iteration_bounds" in line)
    bounds, core = _GRID.search(line), _CORE.search(line)
    made = (found for one in _ALLOCATED.finditer(body.text) for found in _arrays(one[1]))
    return Launch(
        None
        if bounds is None
        else tuple(int(n) for n in (bounds[1] or "").split(",") if n.strip()),
        tuple(_SEMANTICS.findall(line)),
        None if core is None else core[1],
        (*_arguments(line), *({"role": "alloc", **one} for one in made)),
    )


def _arguments(line: str) -> Iterator[dict[str, object]]:
    """The arrays of a kernel's function: scalars that are fetched before the grid runs, then a
    block of each operand and result, then scratch."""
    written, windows = _TYPE.search(line), _WINDOWS.search(line)
    before = found[1] if (found := _PREFETCH.search(line)) else "0"
    modes = [] if windows is None else [_MODE.search(one) for one in _WINDOW.findall(windows[1])]
    for at, array in enumerate(_arrays(written[1] if written else "")):
        place = at - int(before)
        if place < 0:
            yield {"role": "prefetch", **array}
        elif place < len(modes):
            mode = modes[place]
            copies = {} if mode is None else {"buffers": _COPIES.get(mode[1])}
            yield {"role": "window", **array, **copies}
        else:
            yield {"role": "scratch", **array}


def _arrays(types: str) -> Iterator[dict[str, object]]:
    """`memref<8x128xf32, #tpu.memory_space<vmem>>` as a shape in HLO's words, and its memory."""
    for found in _MEMREF.finditer(types):
        space = _SPACE.search(found[3])
        shape = f"{_dtype(found[2].strip())}[{found[1].removesuffix('x').replace('x', ',')}]"
        yield {"shape": shape, "memory": space[1] if space else None}


def _dtype(written: str) -> str:
    """A dtype of MLIR by HLO's name: `i8` is s8, `i1` pred, `f8E4M3FN` f8e4m3fn."""
    if written == "i1":
        return "pred"
    return f"s{written[1:]}" if re.fullmatch(r"i\d+", written) else written.lower()


def buffers(
    config: BackendConfig | None, frontend: str | None, body: Body | None, kernel: str | None
) -> list[Mapping[str, object]] | None:
    """The arrays a Mosaic kernel holds on chip, and the depths of pipelines that the author's
    notes (`rhs_buffer_count`) or the kernel's name (`-rhsbuf_2`) tell."""
    launch = None if body is None else launch_of(body)
    held: list[Mapping[str, object]] = [] if launch is None else list(launch.buffers)
    for text in _noted(config, frontend):
        for path, value in _flat(text):
            told, depth = _BUFFERS_NOTED.fullmatch(path), number(value)
            if told is not None and depth is not None:
                held.append({"role": told[1] or "buffer", "buffers": depth, "from": "metadata"})
    held += [
        {"role": found[1] or "buffer", "buffers": int(found[2]), "from": "name"}
        for found in _BUFFERS_IN_NAME.finditer(kernel or "")
    ]
    return held or None


# ------------------------------------------------------------------------------------- settings

_SETTINGS: Final = (
    "has_communication", "collective_id", "needs_hlo_passes", "needs_layout_passes",
    "serialization_format", "shape_invariant_numerics", "internal_scratch_in_bytes",
    "disable_bounds_checks", "disable_semaphore_checks", "skip_device_barrier",
    "allow_input_fusion",
)  # fmt: skip
_OTHERS: Final = ("device_type", "debug", "use_custom_barrier", "num_ctas")
# jax/_src/tpu_custom_call.py, MemorySpace.color
_COLORS: Final = {0: "hbm", 1: "vmem", 2: "semaphore", 4: "smem", 5: "host", 8: "sc_semaphore"}


def settings(config: BackendConfig | None, body: Body | None) -> dict[str, object] | None:
    """What a kernel asks of the compiler, in the words of its config; None for nothing."""
    found: dict[str, object] = {}
    if config is not None and isinstance(config.get("custom_call_config"), dict):
        for key in _SETTINGS:
            value = config.get("custom_call_config", key)
            if value not in (None, []):
                found[key] = value
        for side in ("input", "output"):
            spaces = _spaces(config.get("custom_call_config", f"{side}_memory_space_colors"))
            found |= {f"{side}_memory": spaces} if spaces else {}
        found |= _flags(config.get("flag_configs"))
    for key in _OTHERS if config is not None else ():
        value = config.get(key) if config is not None else None
        found |= {} if value is None else {key: value}
    compiled = _compiled(config)
    if compiled is not None:
        told = {"num_ctas": compiled.num_ctas, "shared_memory_bytes": compiled.shared_bytes}
        found |= {key: value for key, value in told.items() if value is not None}
        found |= {"configurations": compiled.configurations} if compiled.configurations > 1 else {}
    launch = None if body is None else launch_of(body)
    if launch is not None and launch.semantics:
        found["dimension_semantics"] = list(launch.semantics)
    if launch is not None and launch.core is not None:
        found["core_type"] = launch.core
    return found or None


def _spaces(colors: object) -> dict[str, object]:
    """The memory that operands or results have to lie in, by their position."""
    found: dict[str, object] = {}
    for one in colors if isinstance(colors, list) else ():
        if not isinstance(one, dict):
            continue
        index = one.get("operand_index")
        if index is None:
            index = ".".join(str(part) for part in one.get("shape_index") or ()) or "0"
        color = number(one.get("color"))
        if color is not None:
            found[str(index)] = _COLORS.get(color, color)
    return found


def _flags(listed: object) -> dict[str, object]:
    """Flags of the compiler that hold for this call alone."""
    found: dict[str, object] = {}
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("value"), dict):
            found[str(one.get("flag_type"))] = next(iter(one["value"].values()), None)
    return {"flags": found} if found else {}


_COST: Final = ("custom_call_config", "cost_estimate")


def estimated_flops(config: BackendConfig | None) -> int | None:
    """Operations of one run, as the author estimates (`pl.CostEstimate`)."""
    return _first(config, (*_COST, "flops"))


def estimated_bytes(config: BackendConfig | None) -> int | None:
    """Bytes that one run reads and writes, as the author estimates (`pl.CostEstimate`)."""
    return _first(config, (*_COST, "bytes_accessed"))
