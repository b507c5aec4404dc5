"""Attention that a kernel computes: the calls of a site, and what their contracts tell of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import value_source
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.attributes import whole_number
from hlo_lens_passes._attention_sizes import NOT_KNOWN, Sizes
from hlo_lens_passes._attention_splash import IN_KERNEL, splash_mask
from hlo_lens_passes._calls import attributes_of, config_of, result_of

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo.config import BackendConfig

ROUTES: Final = {
    "cudnn": "cudnn",
    "transformer_engine": "transformer_engine",
    "jax_aiter": "aiter",
    "triton": "triton",
    "mosaic_tpu": "mosaic",
    "mosaic_gpu": "mosaic",
}
_MOVES: Final = frozenset(("bitcast", "convert", "copy", "reshape", "transpose"))
_FLOATS: Final = ("bf", "f")
# transformer_engine/fused_attn.h, NVTE_Mask_Type.
_ENGINE_CAUSAL: Final = {0: False, 1: False, 2: True, 3: True, 4: True, 5: True}
_QKV: Final = 3
_LAYOUTS: Final = re.compile(r'"([qkv])_layout\\*": *(\d)')
# The one of splash attention that lays depth last; in the other, positions are.
_DEPTH_LAST: Final = "1"


@dataclass(frozen=True, slots=True)
class Told:
    """What the contract of a call tells. score: its shape, where the config names it. v_dim: depth
    of V, None where that is the depth of Q. written: how many arrays of scores the call gives.
    why: what told it, for evidence."""

    sizes: Sizes = NOT_KNOWN
    causal: bool | None = None
    window: int | None = None
    score: str | None = None
    v_dim: int | None = None
    written: int | None = 0
    why: tuple[str, ...] = ()
    hidden: str = "no config of the call says so"


@dataclass(frozen=True, slots=True)
class Fused:
    """One site: its calls, in the order of the text, as rows of custom_calls."""

    calls: tuple[Instruction, ...]
    rows: tuple[Mapping[str, object], ...]
    told: Told

    @property
    def direction(self) -> object:
        return self.rows[0]["direction"]

    @property
    def route(self) -> str:
        return ROUTES.get(str(self.rows[0]["family"]), "other")

    @property
    def kernel(self) -> str:
        names = (str(row["kernel"] or row["target"]) for row in self.rows)
        return ", ".join(dict.fromkeys(names))


def fused_sites(analysis: ModuleAnalysis, rows: Sequence[Mapping[str, object]]) -> list[Fused]:
    """The sites of a module. rows: the custom calls that are attention."""
    module = analysis.module
    groups: list[list[tuple[Instruction, Mapping[str, object]]]] = []
    for row in rows:
        number = row["instr"]
        if not isinstance(number, int):
            continue
        call = module.instruction(number)
        mine = next((one for one in groups if _belongs(analysis, call, row, one)), None)
        if mine is None:
            groups.append([(call, row)])
        else:
            mine.append((call, row))
    found = []
    for group in groups:
        calls = tuple(call for call, _ in group)
        its = tuple(row for _, row in group)
        found.append(Fused(calls, its, _told(calls, its)))
    return found


def _belongs(
    analysis: ModuleAnalysis,
    call: Instruction,
    row: Mapping[str, object],
    group: Sequence[tuple[Instruction, Mapping[str, object]]],
) -> bool:
    """Whether a kernel is another part of the same backward: of another name, beside the first,
    on the same arrays (three of Q, K, V and the gradient), or on what one of them gives."""
    first, its = group[0]
    if row["direction"] != "bwd" or its["direction"] != "bwd" or row["family"] != its["family"]:
        return False
    if call.computation is not first.computation or row["phase"] != its["phase"]:
        return False
    if any(row["kernel"] == other["kernel"] for _, other in group):
        return False
    mine = {*_sources(analysis, call)}
    calls = {one for one, _ in group}
    if any(instr in calls for instr, _ in mine):
        return True
    shared = max(len(mine & {*_sources(analysis, one)}) for one in calls)
    return shared >= _QKV


def _sources(
    analysis: ModuleAnalysis, call: Instruction
) -> Iterator[tuple[Instruction, tuple[int, ...]]]:
    """Where the arrays of numbers that a call takes come from."""
    for operand in call.operands:
        shape = shape_of(operand)
        if shape is not None and shape.dtype.startswith(_FLOATS) and shape.rank >= 2:
            source = value_source(analysis.graph, operand, moves=_MOVES)
            yield source.instr, source.path


# ---------------------------------------------------------------------------------- contracts


def _told(calls: Sequence[Instruction], rows: Sequence[Mapping[str, object]]) -> Told:
    """What the first call that tells something tells."""
    told = Told()
    for call, row in zip(calls, rows, strict=True):
        name = str(row["kernel"] or row["target"])
        read = _READERS.get(str(row["family"]))
        if read is None:
            continue
        found = read(call, name, config_of(attributes_of(call)))
        if found.sizes.q_length is not None:
            return found
        told = found if told == Told() else told
    return told


def _arrays(call: Instruction) -> list[Shape]:
    """The shapes of the operands, those that are no array of numbers left out."""
    shapes = (shape_of(operand) for operand in call.operands)
    return [one for one in shapes if one is not None and one.dtype.startswith(_FLOATS)]


def _known(shape: Shape) -> list[int] | None:
    sizes = [size for size in shape.dimensions if size is not None]
    return sizes if len(sizes) == shape.rank else None


def _first_three(call: Instruction) -> list[list[int]]:
    return [known for shape in _arrays(call)[:_QKV] if (known := _known(shape)) is not None]


def _cudnn(call: Instruction, name: str, config: BackendConfig | None) -> Told:
    """q, k, v and, backward, the logsumexp [batch, heads, queries] behind them; the arrays as
    [batch, length, heads, depth] or [batch, heads, length, depth]; the config has the scores as
    [batch, heads, queries, keys] (xla/service/gpu/gpu_fused_mha_runner.cc).

    A sliding window goes back from each query, which makes the mask causal
    (jax/_src/cudnn/fused_attention_stablehlo.py).
    """
    field = "cudnn_fmha_backend_config"
    get: Callable[..., object] = (
        (lambda *_: None) if config is None else (lambda *path: config.get(field, *path))
    )
    arrays = _first_three(call)
    score = _listed(get("intermediate_tensor_shape", "dimensions"))
    dtype = get("intermediate_tensor_shape", "element_type")
    sizes, v_dim = _of_cudnn(arrays, score, _logsumexp(call))
    mask, window = get("mask_type"), get("sliding_window_length")
    length = whole_number(str(window)) or 0
    causal = None
    if isinstance(mask, str):
        causal = "CAUSAL" in mask or length > 0
    flash = get("is_flash_attention")
    text = None
    if score is not None and isinstance(dtype, str):
        text = f"{dtype.lower()}[{','.join(map(str, score))}]"
    why = [f"mask_type {mask}"] if mask is not None else []
    if length:
        why.append(f"sliding_window_length {length}")
    if flash is not None:
        why.append(f"is_flash_attention {str(flash).lower()}")
    return Told(sizes, causal, length or None, text, v_dim, _scores_given(call, score), tuple(why))


def _listed(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(str(one).isdigit() for one in value):
        return None
    return [int(one) for one in value] if len(value) == 4 else None


def _logsumexp(call: Instruction) -> list[int] | None:
    """[batch, heads, queries] of a call that takes it, or gives it."""
    result = result_of(call)
    leaves = [] if result is None else [*result.leaves()]
    shapes = [*_arrays(call)[_QKV:], *leaves]
    found = (one for one in shapes if one.dtype == "f32" and one.rank == 3)
    return next((sizes for one in found if (sizes := _known(one)) is not None), None)


def _of_cudnn(
    arrays: Sequence[Sequence[int]], score: Sequence[int] | None, sums: Sequence[int] | None
) -> tuple[Sizes, int | None]:
    if len(arrays) != _QKV or any(len(one) != 4 for one in arrays):
        return NOT_KNOWN, None
    q, k, v = arrays
    known = score if score is not None else sums
    if known is None:
        return NOT_KNOWN, None
    batch, heads, queries = known[:3]
    if [*q[:3]] == [batch, queries, heads]:
        length, its = 1, 2
    elif [*q[:3]] == [batch, heads, queries]:
        length, its = 2, 1
    else:
        return NOT_KNOWN, None
    if queries == heads and score is not None and k[length] != score[3]:
        length, its = its, length  # both layouts fit Q
    return Sizes(batch, heads, k[its], queries, k[length], q[3]), v[3]


def _scores_given(call: Instruction, score: Sequence[int] | None) -> int | None:
    """How many arrays of scores a call gives: none of a flash kernel."""
    result = result_of(call)
    if result is None:
        return None
    given = [_known(leaf) for leaf in result.leaves() if leaf.is_array]
    return sum(sizes is not None and score is not None and sizes == [*score] for sizes in given)


def _engine(call: Instruction, name: str, config: BackendConfig | None) -> Told:
    """The attributes name all sizes (transformer_engine/jax/cpp_extensions/attention.py). A
    window counts the keys on the left of a query."""
    get: Callable[..., object] = (lambda *_: None) if config is None else config.get
    names = (
        "input_batch", "attn_heads", "num_gqa_groups", "q_max_seqlen", "kv_max_seqlen",
        "qk_head_dim",
    )  # fmt: skip
    found = [value if isinstance(value := get(one), int) else None for one in names]
    mask, left = get("mask_type"), get("window_size_left")
    causal = _ENGINE_CAUSAL.get(mask) if isinstance(mask, int) else None
    v_dim = get("v_head_dim")
    why = (f"mask_type {mask}",) if mask is not None else ()
    return Told(
        Sizes(*found),
        causal,
        _window(left, get("window_size_right"), causal),
        v_dim=v_dim if isinstance(v_dim, int) else None,
        why=why,
    )


def _window(left: object, right: object, causal: bool | None) -> int | None:
    if not isinstance(left, int) or left < 0:
        return None
    return left + 1 if causal or right == 0 else None


def _aiter(call: Instruction, name: str, config: BackendConfig | None) -> Told:
    """q, k, v as [batch, length, heads, depth], backward behind the gradient; of three dimensions
    where sequences are packed (jax_aiter/mha)."""
    get: Callable[..., object] = (lambda *_: None) if config is None else config.get
    arrays = [known for shape in _arrays(call) if (known := _known(shape)) is not None]
    first = 1 if "Bwd" in name else 0
    q, k, v = ([*arrays[first : first + _QKV], [], [], []])[:_QKV]
    sizes, v_dim = NOT_KNOWN, None
    if len(q) == len(k) == len(v) == 4:
        sizes = Sizes(q[0], q[2], k[2], q[1], k[1], q[3])
        v_dim = v[3]
    causal = get("is_causal")
    told = causal if isinstance(causal, bool) else None
    window = _window(get("window_size_left"), get("window_size_right"), told)
    why = (f"is_causal {str(told).lower()}",) if told is not None else ()
    return Told(sizes, told, window, v_dim=v_dim, why=why)


def _pallas_gpu(call: Instruction, name: str, config: BackendConfig | None) -> Told:
    """jax's own kernels take q, k, v as [batch, length, heads, depth]
    (jax/experimental/pallas/ops/gpu/attention.py); those of others are not known."""
    arrays = _first_three(call)
    if name not in ("mha_forward", "mha_backward") or [len(one) for one in arrays] != [4] * _QKV:
        return Told(hidden=IN_KERNEL)
    q, k, v = arrays
    return Told(Sizes(q[0], q[2], k[2], q[1], k[1], q[3]), v_dim=v[3], hidden=IN_KERNEL)


def _mosaic(call: Instruction, name: str, config: BackendConfig | None) -> Told:
    """Splash attention takes q, k, v as [heads, length, depth], k and v of mqa without heads, each
    with the batch of a vmap in front; the mask is data
    (jax/experimental/pallas/ops/tpu/splash_attention/splash_attention_kernel.py).

    Flash attention takes them as [batch, heads, length, depth] (…/tpu/flash_attention.py).
    """
    arrays = _first_three(call)
    if len(arrays) != _QKV:
        return Told(hidden=IN_KERNEL)
    if name.startswith(("splash_mha", "splash_mqa")):
        why, hidden = splash_mask(call, name)
        return replace(_splash(call, arrays, shared="mqa" in name), why=why, hidden=hidden)
    if "flash_attention" in name and "paged" not in name:
        q, k, v = arrays
        if len(q) == len(k) == len(v) == 4:
            sizes = Sizes(q[0], q[1], k[1], q[2], k[2], q[3])
            return Told(sizes, v_dim=v[3], hidden=IN_KERNEL)
    return Told(hidden=IN_KERNEL)


def _splash(call: Instruction, arrays: Sequence[list[int]], *, shared: bool) -> Told:
    layouts = dict(_LAYOUTS.findall(call.tail[: 1 << 14]))
    turned = []
    for which, sizes in zip("qkv", arrays, strict=True):
        swap = layouts.get(which, _DEPTH_LAST) != _DEPTH_LAST and len(sizes) >= 2
        turned.append([*sizes[:-2], sizes[-1], sizes[-2]] if swap else sizes)
    q, k, v = turned
    ahead = len(q) - 3
    if ahead not in (0, 1) or len(k) != len(v) or len(k) != len(q) - shared:
        return Told()
    batch = q[0] if ahead else 1
    heads = 1 if shared else k[ahead]
    return Told(Sizes(batch, q[ahead], heads, q[-2], k[-2], q[-1]), v_dim=v[-1])


_READERS: Final[dict[str, Callable[[Instruction, str, BackendConfig | None], Told]]] = {
    "cudnn": _cudnn,
    "transformer_engine": _engine,
    "jax_aiter": _aiter,
    "triton": _pallas_gpu,
    "mosaic_tpu": _mosaic,
}


def flops_of(direction: object, sizes: Sizes, v_dim: int | None) -> int | None:
    """Two products of all scores forward, QKᵀ and PV; five backward, where a flash kernel makes
    QKᵀ again: 2·batch·heads·queries·keys·depth each."""
    parts = (sizes.batch, sizes.heads, sizes.q_length, sizes.kv_length, sizes.head_dim)
    known = [one for one in parts if one is not None]
    if len(known) != len(parts) or direction not in ("fwd", "bwd"):
        return None
    batch, heads, queries, keys, depth = known
    deep = depth if v_dim is None else v_dim
    of_depth = depth + deep if direction == "fwd" else 3 * depth + 2 * deep
    return 2 * batch * heads * queries * keys * of_depth
