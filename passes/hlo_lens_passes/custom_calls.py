"""The custom_calls table: every custom call, what library it goes to and under which contract."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Finding,
    Lane,
    Measure,
    Member,
    PassResult,
    Rule,
    Summary,
    Table,
    common,
)
from hlo_lens.hlo import Instruction, Shape
from hlo_lens.hlo.config import BackendConfig
from hlo_lens.hlo.metadata import parse_metadata
from hlo_lens.hlo.shape import parse_shapes
from hlo_lens_passes._calls import (
    attributes_of,
    config_of,
    custom_calls,
    entry_of,
    result_of,
    target_of,
)
from hlo_lens_passes._catalogue import Catalogue, catalogue

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_LONGEST_TEXT: Final = 256
_LONGEST_CONFIG: Final = 1 << 16
_SCRATCH: Final = frozenset(("s8", "u8"))

TABLE = Table(
    "custom_calls",
    "a custom call, as often as it is written; one in an async wrapper once",
    (
        *COMMON,
        Column("target", "text", "identity", "custom_call_target"),
        Column(
            "family",
            "text",
            "structural",
            "library or compiler part behind the target, by the catalogue; `unknown` where no"
            " entry knows it",
        ),
        Column("op", "text", "structural", "what it computes, by target or kernel name"),
        Column(
            "direction",
            "enum",
            "structural",
            "forward or backward where target or kernel name fix it; `phase` says where it runs",
            values=("fwd", "bwd"),
        ),
        Column("kernel", "text", "structural", "name of the kernel that a generic target launches"),
        Column(
            "kernel_from",
            "enum",
            "volatile",
            "what gave the kernel's name: its config, the op_name of the Pallas call, or the name"
            " of the instruction",
            values=("config", "op_name", "name"),
        ),
        Column("operand_layouts", "json", "structural", "shapes and layouts it takes, a list"),
        Column("result_layouts", "json", "structural", "shapes and layouts of the result's leaves"),
        Column("api_version", "text", "structural", "custom-call ABI as XLA names it"),
        Column(
            "workspace_bytes",
            "bytes",
            "measure",
            "scratch memory that the call takes as the last leaf of its result",
        ),
        Column(
            "scoped_memory_bytes", "bytes", "measure", "TPU: on-chip memory reserved for the call"
        ),
        Column(
            "thread",
            "text",
            "structural",
            "execution thread it runs on (`sparsecore`, `host`, …); NULL for the main one",
        ),
        Column("has_side_effect", "bool", "structural", "whether it may not be dropped or merged"),
        Column(
            "config",
            "json",
            "structural",
            "backend_config; a text longer than 256 characters is its size and hash instead",
        ),
    ),
    summary=Summary(
        "custom calls",
        order=40,
        none="no custom calls",
        by=(
            Cell("family"),
            Cell("op"),
            Cell("target"),
            Cell("kernel"),
            Cell("phase"),
            Cell("loop"),
        ),
        measures=(
            Measure("calls", "rows"),
            Measure("runs", "executions"),
            Measure("workspace", "each", "workspace_bytes"),
        ),
        lane=Lane(
            "compute",
            line=(Cell("op"), Cell("family"), Cell("{kernel}"), Cell("target")),
            details=(Cell("operand_layouts"), Cell("result_layouts")),
            skip=(
                ("family", ("buffer", "layout", "sharding")),
                (
                    "op",
                    (
                        "annotate_placement",
                        "assertion",
                        "barrier",
                        "call_marker",
                        "debug",
                        "dynamic_shape",
                        "fusion_annotation",
                        "index_annotation",
                        "ordering",
                        "x64_split",
                    ),
                ),
            ),
        ),
    ),
)

_RULES: Final = (
    Rule(
        "catalogue-broken",
        "warning",
        "A catalogue of the user cannot be used.",
        "The file named by HLOLENS_CATALOGUE or by `catalogues` in the config is left out; the"
        " built-in catalogue and the other files hold. The message says what is wrong with it.",
    ),
)


@dataclass(frozen=True, slots=True)
class CustomCallsPass:
    """One row a written custom call, in fusions and called computations too."""

    name: str = "custom_calls"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = _RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        known = catalogue()
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        for position, module in enumerate(program.modules):
            analysis = program.analysis(module)
            for instruction in custom_calls(module.computations):
                members += _members(len(rows), position, analysis, instruction)
                rows.append({**common(program, position, instruction), **_row(instruction, known)})
        findings = [Finding("catalogue-broken", "warning", why) for why in known.broken]
        return PassResult({"custom_calls": rows}, members, findings)


def _row(call: Instruction, known: Catalogue) -> dict[str, object]:
    entry = entry_of(call, known)
    attributes = attributes_of(call)
    config = config_of(attributes)
    kernel, kernel_from = None, None
    if entry.op == "kernel":
        kernel, kernel_from = _kernel(call, attributes, config)
    launched = known.kernel(kernel) if kernel is not None else None
    result = result_of(call)
    return {
        "target": target_of(call),
        "family": entry.family,
        "op": (launched and launched.op) or entry.op,
        "direction": (launched and launched.direction) or entry.direction,
        "kernel": kernel,
        "kernel_from": kernel_from,
        "operand_layouts": _operand_layouts(call, attributes),
        "result_layouts": None if result is None else [str(leaf) for leaf in result.leaves()],
        "api_version": attributes.get("api_version"),
        "workspace_bytes": _workspace_bytes(result) if entry.workspace else None,
        "scoped_memory_bytes": None if config is None else _scoped_memory(config),
        "thread": _thread(call, attributes),
        "has_side_effect": attributes.get("custom_call_has_side_effect") in ("true", "1"),
        "config": None if config is None else _config_text(config),
    }


def _members(
    row: int, position: int, analysis: ModuleAnalysis, call: Instruction
) -> Iterator[Member]:
    """The call itself, and the starts and dones of the wrappers around it."""
    yield Member("custom_calls", row, "call", position, call.id)
    starts = [call] if call.opcode == "custom-call-start" else []
    starts += [
        site.caller for site in analysis.graph.callers(call.computation) if site.kind == "async"
    ]
    for start in starts:
        if start != call:
            yield Member("custom_calls", row, "start", position, start.id)
        for done in _dones(start):
            yield Member("custom_calls", row, "done", position, done.id)


def _dones(start: Instruction) -> Iterator[Instruction]:
    for user in start.users:
        if user.base_opcode == "async-done":
            yield user
        elif user.base_opcode == "async-update":
            yield from _dones(user)


# ---------------------------------------------------------------------------------- kernel names

_PALLAS_NAME = re.compile(r"pallas_call\[(?:[^\]]*[ ,])?name=([\w.\-]+)")
_PALLAS_SCOPE = re.compile(r"(?:^|/)([^/()]+)/pallas_call\b[^/]*\Z")
# Components that a transformation or a loop puts into a path: no kernel is called so.
_SCOPES: Final = frozenset(
    (
        "while", "body", "cond", "scan", "checkpoint", "remat", "rematted_computation",
        "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
        "shard_map", "pjit", "xla_call", "eval_jaxpr", "run_state",
    )
)  # fmt: skip
_NUMBERED = re.compile(r"(?:\.(?:\d+|clone|remat\d*))+\Z")
_NAMELESS: Final = frozenset(
    ("custom-call", "custom-call-start", "pallas_call", "tpu_custom_call", "ffi_call", "cc")
)


def _kernel(
    call: Instruction, attributes: Mapping[str, str], config: BackendConfig | None
) -> tuple[str | None, str | None]:
    """The kernel's name and where it stands: the config, else the path of the Pallas call, else
    the instruction, which XLA names after the kernel."""
    if config is not None:
        for path in (("name",), ("kernel_name",), ("custom_call_config", "kernel_name")):
            name = config.get(*path)
            if isinstance(name, str) and name:
                return name, "config"
    op_name = _op_name(attributes)
    found = _PALLAS_NAME.search(op_name)
    if found is not None:
        return found[1], "op_name"
    found = _PALLAS_SCOPE.search(op_name)
    if found is not None and found[1] not in _SCOPES:
        return found[1], "op_name"
    stem = _NUMBERED.sub("", call.name)
    return (None, None) if stem in _NAMELESS else (stem, "name")


def _op_name(attributes: Mapping[str, str]) -> str:
    """The op_name of the metadata; "" where there is none or it cannot be read."""
    text = attributes.get("metadata")
    try:
        return "" if text is None else parse_metadata(text).op_name or ""
    except ValueError:
        return ""


# ---------------------------------------------------------------------------------- contract


def _workspace_bytes(result: Shape | None) -> int | None:
    """Bytes of the last leaf of a result tuple where it is s8[n] or u8[n]; else None."""
    if result is None or not result.is_tuple or not result.elements:
        return None
    last = result.elements[-1]
    return last.bytes if last.dtype in _SCRATCH and last.rank == 1 else None


def _operand_layouts(call: Instruction, attributes: Mapping[str, str]) -> list[str] | None:
    """The shapes the call constrains its operands to, else those of the operands."""
    constraints = attributes.get("operand_layout_constraints")
    if constraints is not None:
        try:
            return [str(shape) for shape in parse_shapes(constraints)]
        except ValueError:
            return None
    shapes = [shape_of(operand) for operand in call.operands]
    return None if None in shapes else [str(shape) for shape in shapes]


def _thread(call: Instruction, attributes: Mapping[str, str]) -> str | None:
    """The thread an async start names, or the one its computation runs on."""
    named = attributes.get("async_execution_thread")
    return named.strip("\"'") if named is not None else call.computation.execution_thread


def _scoped_memory(config: BackendConfig) -> int | None:
    """Bytes of TPU memory reserved while the call runs, over all memory spaces.

    What the compiler found it to use counts before what was asked for.
    """
    for field in ("used_scoped_memory_configs", "scoped_memory_configs"):
        reserved = config.get(field)
        if not isinstance(reserved, list) or not reserved:
            continue
        sizes = [one.get("size") if isinstance(one, dict) else None for one in reserved]
        if all(isinstance(size, int) or str(size).isdigit() for size in sizes):
            return sum(int(size) for size in sizes if size is not None)
    return None


# ---------------------------------------------------------------------------------- config


@lru_cache(maxsize=1 << 10)
def _config_text(config: BackendConfig) -> str:
    """A backend_config as compact JSON. A text of more than 256 characters, such as a kernel's
    body, is `{"bytes": its length in UTF-8, "sha256": the first 16 digits of its hash}`; so is a
    whole config that is still longer than 64 Ki characters."""
    value = config.raw if config.value is None else config.value
    text = json.dumps(_short(value), ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _LONGEST_CONFIG else json.dumps(_digest(config.raw))


def _short(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return _digest(value)
    return value


def _digest(text: str) -> dict[str, object]:
    data = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()[:16]}


PASS = CustomCallsPass()
