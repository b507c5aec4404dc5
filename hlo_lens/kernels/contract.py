"""What a kernel is called with: operands, results, memory, launch and body, as pairs of texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from hlo_lens.kernels.rows import Kernels, Record
from hlo_lens.present.cells import Row
from hlo_lens.present.groups import total_runs
from hlo_lens.present.quantities import (
    UNKNOWN,
    bytes_text,
    count_text,
    executions_text,
    flops_text,
    visible,
)

# Columns that kernels must agree on to be one; others differ from call to call.
_ALIKE: Final = (
    "family", "op", "called", "target", "direction", "operand_layouts", "result_layouts",
    "api_version", "aliasing", "epilogue", "grid", "tiles", "num_warps", "num_stages", "split_k",
    "body_hash", "algorithm", "thread",
)  # fmt: skip
_MOST_OPS: Final = 12  # operations of a body that are named


@dataclass(frozen=True, slots=True)
class Contract:
    """A distinct kernel: its calls, and the record of the first of them."""

    rows: tuple[Row, ...]
    record: Record


def contracts(found: Kernels, rows: Sequence[Row]) -> tuple[Contract, ...]:
    """The distinct kernels among the rows, in their order."""
    kinds: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        record = found.record(row)
        kinds.setdefault(tuple(_hashable(record.get(name)) for name in _ALIKE), []).append(row)
    return tuple(Contract(tuple(same), found.record(same[0])) for same in kinds.values())


def _hashable(data: object) -> object:
    return json.dumps(data, sort_keys=True) if isinstance(data, (dict, list)) else data


def lines_of(found: Kernels, contract: Contract) -> Iterator[tuple[str, str]]:
    """What there is to say, as a word and a text; what is not known is left out."""
    record = contract.record
    yield "runs", _runs(found, contract.rows)
    if record.get("target") and record["target"] != record["called"]:
        yield "target", visible(str(record["target"]))
    for word, name in (("takes", "operand_layouts"), ("gives", "result_layouts")):
        if (shapes := _decoded(record.get(name))) is not None:
            yield word, _shapes_text(shapes) or "nothing"
    for word, name, text in _TEXTS:
        if (data := _decoded(record.get(name))) not in (None, [], {}, ""):
            yield word, text(data)
    if attributes := ", ".join(_attributes(_decoded(record.get("config")))):
        yield "attributes", attributes
    yield from _memory(found, contract.rows)
    if launch := ", ".join(_launch(record)):
        yield "launch", launch
    yield from _sizes(record)
    if body := "; ".join(_body(record)):
        yield "body", body
    sources = list(dict.fromkeys(str(found.value(row, "source")) for row in contract.rows
                                 if found.value(row, "source") is not None))  # fmt: skip
    if sources:
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        yield "source", visible(sources[0]) + more


def _runs(found: Kernels, rows: Sequence[Row]) -> str:
    """`8 fwd, 8 remat in 2 calls`."""
    parts = []
    for phase in dict.fromkeys(found.value(row, "phase") for row in rows):
        of_phase = [row for row in rows if found.value(row, "phase") == phase]
        runs = executions_text(total_runs(found.table, of_phase), None)
        parts.append(f"{runs} {phase}" if phase else runs)
    calls = "1 call" if len(rows) == 1 else f"{count_text(len(rows))} calls"
    return f"{', '.join(parts)} in {calls}"


def _shapes_text(shapes: object) -> str:
    """`bf16[2,64]{1,0} ×3, f32[2]{0}`: what repeats side by side, once."""
    listed = [str(one) for one in shapes] if isinstance(shapes, list) else [str(shapes)]
    runs = [(shape, len(list(same))) for shape, same in groupby(listed)]
    return visible(", ".join(f"{shape} ×{n}" if n > 1 else shape for shape, n in runs))


# What a config holds besides what is said elsewhere, and for which the compiler is to be asked.
_INNER: Final = "_backend_config"
_ELSEWHERE: Final = frozenset(
    ("name", "kernel_name", "ir", "body", "debug", "num_warps", "num_stages", "grid_x", "grid_y",
     "grid_z", "serialized_metadata", "serialization_format", "operation_queue_id",
     "force_earliest_schedule", "device_type", "epilogue", "wait_on_operation_queues")
)  # fmt: skip
_NESTED: Final = ("gemm_backend_config", "ragged_dot_dimension_numbers")


def _attributes(config: object) -> Iterator[str]:
    """`mask_type CAUSAL`: numbers and words of a config that belong to the call itself."""
    if not isinstance(config, dict):
        return
    inner = [one for name, one in config.items() if isinstance(one, dict) and name.endswith(_INNER)]
    if not inner and any(name.endswith("_configs") for name in config):
        return  # of the TPU compiler
    for part in inner or (config,):
        for name, data in part.items():
            if isinstance(data, dict) and name in _NESTED:
                yield from _attributes(
                    {key: one for key, one in data.items() if key not in _NESTED}
                )
            elif name not in _ELSEWHERE and _is_plain(data):
                yield f"{visible(str(name))} {_data_text(data)}"


def _is_plain(data: object) -> bool:
    if isinstance(data, list):
        return bool(data) and all(isinstance(one, (bool, int, float, str)) for one in data)
    return isinstance(data, (bool, int, float, str)) and data != ""


def _memory(found: Kernels, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for word, column in (("workspace", "workspace_bytes"), ("on-chip", "scoped_memory_bytes")):
        sizes = [size for row in rows if isinstance(size := found.value(row, column), int)]
        if sizes:
            low, high = min(sizes), max(sizes)
            most = "" if low == high else f" – {bytes_text(high)}"
            yield word, bytes_text(low) + most


def _launch(record: Mapping[str, object]) -> Iterator[str]:
    if (grid := _decoded(record.get("grid"))) not in (None, [], {}):
        yield f"grid {_extent_text(grid)}"
    if (tiles := _decoded(record.get("tiles"))) not in (None, [], {}):
        yield f"tiles {_extent_text(tiles)}"
    for name, one, many in _COUNTS:
        number = record.get(name)
        if isinstance(number, int):
            yield f"{number} {one if number == 1 else many}"
    for name in ("split_k", "waves_per_eu"):
        if record.get(name):
            yield f"{name} {record[name]}"


_COUNTS: Final = (
    ("num_warps", "warp", "warps"), ("num_stages", "stage", "stages"), ("num_ctas", "CTA", "CTAs"),
)  # fmt: skip


def _sizes(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Of a fusion around a matmul."""
    sizes = [(name, record.get(name)) for name in ("batch", "m", "n", "k")]
    if all(isinstance(size, int) for _, size in sizes):
        text = " ".join(f"{name} {size}" for name, size in sizes if (name, size) != ("batch", 1))
        flops = record.get("flops")
        yield "matmul", f"{text}, {flops_text(flops)}" if isinstance(flops, int) else text


def _body(record: Mapping[str, object]) -> Iterator[str]:
    size, digest, source = (record.get(f"body_{name}") for name in ("bytes", "hash", "from"))
    if isinstance(size, int):
        yield bytes_text(size)
    if digest is not None:
        told = {"mlir": "of its MLIR without locations", "bytes": "of its bytes"}
        yield " ".join(filter(None, (f"hash {digest}", told.get(str(source), ""))))
    ops = _decoded(record.get("body_ops"))
    if isinstance(ops, dict) and ops:
        ranked = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
        listed = [f"{name} ×{n}" if n > 1 else name for name, n in ranked[:_MOST_OPS]]
        left = len(ranked) - len(listed)
        yield visible(", ".join(listed) + (f" and {left} others" if left else ""))


def _extent_text(data: object) -> str:
    """`8×16`, of a list; `block_m 64, block_n 32`, of names; lists in lists by commas."""
    if isinstance(data, dict):
        return ", ".join(f"{name} {_extent_text(one)}" for name, one in data.items())
    if isinstance(data, list):
        inner = any(isinstance(one, (list, dict)) for one in data)
        return (", " if inner else "×").join(map(_extent_text, data))
    return visible(str(data))


def _data_text(data: object) -> str:
    """Data of any form, without the marks of JSON."""
    if isinstance(data, dict):
        return ", ".join(f"{visible(str(name))} {_data_text(one)}" for name, one in data.items())
    if isinstance(data, list):
        inner = any(isinstance(one, (list, dict)) for one in data)
        return ("; " if inner else ", ").join(map(_data_text, data))
    if isinstance(data, bool):
        return "true" if data else "false"
    return UNKNOWN if data is None else visible(str(data))


def _listed(data: object, text: Callable[[dict[str, object]], str]) -> str:
    """A list of objects, each as `text` says; another form as it is."""
    if isinstance(data, list) and all(isinstance(one, dict) for one in data):
        runs = [(told, len(list(same))) for told, same in groupby(map(text, data))]
        return visible("; ".join(f"{n} × {told}" if n > 1 else told for told, n in runs))
    return _data_text(data)


def _alias_text(data: object) -> str:
    """`result 0 is operand 3`."""

    def text(one: dict[str, object]) -> str:
        result = "result" if one.get("output") in (None, []) else f"result {one.get('output')}"
        inside = one.get("operand_index")
        return f"{result} is operand {one.get('operand')}" + (f" at {inside}" if inside else "")

    return _listed(data, text)


def _gathered_text(data: object) -> str:
    """`operand 0 by all-gather.1`."""
    return _listed(data, lambda one: f"operand {one.get('operand')} by {one.get('collective')}")


def _buffers_text(data: object) -> str:
    """`2 × window bf16[128,64] in vmem, 2 buffers`: two windows, alike."""

    def text(one: dict[str, object]) -> str:
        parts = [str(one[name]) for name in ("role", "shape") if one.get(name) is not None]
        parts += [f"in {one['memory']}"] if one.get("memory") is not None else []
        depth = one.get("buffers")
        copies = "" if depth is None else f", {depth} buffer{'' if depth == 1 else 's'}"
        return " ".join(parts) + copies

    return _listed(data, text)


_TEXTS: Final = (
    ("aliases", "aliasing", _alias_text), ("ABI", "api_version", _data_text),
    ("epilogue", "epilogue", _data_text), ("algorithm", "algorithm", _data_text),
    ("converts", "converts", _data_text), ("dequantised", "dequantized", _data_text),
    ("thread", "thread", _data_text), ("gathered", "gathered_by", _gathered_text),
    ("buffers", "buffers", _buffers_text), ("settings", "settings", _data_text),
)  # fmt: skip


def _decoded(data: object) -> object:
    """JSON text of a table as data; what is data already, or no JSON, as it is."""
    if not isinstance(data, str):
        return data
    try:
        return json.loads(data)
    except ValueError:
        return data
