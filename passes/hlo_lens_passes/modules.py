"""The modules table: what each text is, how whole it is, and whose sizes it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES
from hlo_lens.dumps import AFTER, BEFORE, PARTITIONED
from hlo_lens.facts import Cell, Column, Finding, PassResult, Rule, Summary, Table
from hlo_lens_passes._calls import custom_calls, target_of
from hlo_lens_passes._catalogue import catalogue

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation, Module
    from hlo_lens.program import Program

_PLATFORM_OF_FAMILY: Final = {
    **dict.fromkeys(
        (
            "cublas", "cublaslt", "hipblas", "cudnn", "miopen", "cusolver", "hipsolver", "magma",
            "cusparse", "hipsparse", "cufft", "hipfft", "cub", "jax_cuda", "jax_rocm", "triton",
            "mosaic_gpu", "ptx", "cutlass", "transformer_engine", "jax_aiter", "flash_attn_jax",
            "xla_gpu",
        ),
        "gpu",
    ),
    **dict.fromkeys(("lapack", "onednn", "ducc", "eigen"), "cpu"),
    **dict.fromkeys(("mosaic_tpu", "tpu_linalg", "sparsecore"), "tpu"),
    "neuron": "neuron",
}  # fmt: skip
_PLATFORM_OF_TARGET = re.compile(r"xla_(?:ffi_)?(?:partitioned_)?python_(cpu|gpu)_callback\Z")
# Fields that only one compiler writes. In a string the quotes would be escaped twice.
_CONFIG_FIELD: Final = {
    "flag_configs": "tpu",
    "scoped_memory_configs": "tpu",
    "operation_queue_id": "gpu",
    "fusion_backend_config": "gpu",
    "gemm_backend_config": "gpu",
    "grouped_gemm_backend_config": "gpu",
    "cudnn_conv_backend_config": "gpu",
    "cudnn_fmha_backend_config": "gpu",
    "cudnn_norm_backend_config": "gpu",
    "block_scaled_dot_backend_config": "gpu",
    "reification_cost": "gpu",
    "outer_dimension_partitions": "cpu",
    "onednn_matmul_config": "cpu",
}
_CONFIG = re.compile(rf'backend_config=(?:\{{"|"\{{\s*\\")({"|".join(_CONFIG_FIELD)})\\?"')
_CPU_FUSION = re.compile(r'"fusion_config":\{"kind":"(__(?:ynn|xnn|onednn)_fusion)"')

# How a sharding over more than one device is written: tiles, a mesh, Shardy's attribute.
_TILES = re.compile(r"\bdevices=\[([\d,]+)\]")
_MESH = re.compile(r"sharding=\{+mesh\[([^\]]*)\]")
_SHARDY_MESH = re.compile(r"#sdy\.mesh<\[([^\]]*)\]")
_SIZE = re.compile(r"=\s*(\d+)")

TABLE = Table(
    "modules",
    "a module: one HLO text",
    (
        Column("id", "int", "volatile", "number of the row in its program; `module` joins tables"),
        Column("module", "int", "identity", "position of the module among those loaded"),
        Column("name", "text", "volatile", "the name behind HloModule"),
        Column("file", "text", "volatile", "the file it was read from"),
        Column(
            "stage",
            "text",
            "volatile",
            "before_optimizations, after_spmd_partitioner, after_optimizations, the name XLA gave"
            " to one pass's dump, or unknown",
        ),
        Column(
            "platform",
            "enum",
            "structural",
            "what it is compiled for; NULL where the text does not show it",
            values=("cpu", "gpu", "tpu", "neuron"),
        ),
        Column(
            "platform_from", "text", "volatile", "what showed the platform, or what contradicts"
        ),
        Column("is_scheduled", "bool", "structural", "whether text order is execution order"),
        Column(
            "size_scope",
            "enum",
            "volatile",
            "whether shapes are of whole arrays or of one device's part of them; never add the two"
            " up. NULL where the text does not show it",
            values=("global", "device"),
        ),
        Column("size_scope_from", "text", "volatile", "what showed the scope of the sizes"),
        Column("num_partitions", "int", "structural", "SPMD partitions, where the header says"),
        Column("replica_count", "int", "structural", "replicas, where the header says"),
        Column("computations", "int", "volatile", "computations written"),
        Column("instructions", "int", "volatile", "instructions written"),
        Column("text_bytes", "bytes", "volatile", "size of the text in UTF-8"),
        Column("truncated", "bool", "structural", "whether the text stops in the middle"),
        Column("has_metadata", "bool", "volatile", "whether any instruction carries an op_name"),
        Column(
            "metadata_share", "float", "volatile", "share of the instructions that carry an op_name"
        ),
    ),
    summary=Summary(
        "modules",
        order=0,
        heads=(
            Cell("name"),
            Cell("file"),
            Cell("stage"),
            Cell("platform"),
            Cell("is_scheduled", words=("scheduled", "not scheduled")),
            Cell("truncated", words=("cut off", "")),
            Cell("partitions {num_partitions}"),
            Cell("replicas {replica_count}"),
            Cell("{size_scope} shapes"),
            Cell("computations {computations:,}"),
            Cell("instructions {instructions:,}"),
            Cell("text_bytes"),
            Cell("{metadata_share:.0%} of the instructions have an op_name"),
            Cell("has_metadata", words=("", "phases and sources cannot be told")),
        ),
    ),
)

_RULES: Final = (
    Rule(
        "truncated",
        "warning",
        "The text stops in the middle.",
        "Everything up to the cut is read and shown. Counts and sums are of that part only: what"
        " comes behind it, often the entry computation, is missing.",
    ),
    Rule(
        "missing-computation",
        "warning",
        "An instruction calls a computation that the text does not define.",
        "What that computation does, and all it calls, is missing from every table.",
    ),
    Rule(
        "no-entry",
        "note",
        "No computation is marked ENTRY; the last one is taken, as XLA does.",
        "In a cut-off text the last computation may be any, and executions count from it.",
    ),
    Rule(
        "elided-operands",
        "warning",
        "A printer left operands out.",
        "A compact print such as `tuple(%a, ...(+12))` names some operands only. Edges to the"
        " others are missing.",
    ),
    Rule(
        "log-prefix",
        "note",
        "Lines began with a log prefix, which was taken off.",
        "The text was copied from a log. Line numbers count the lines as they are in the file.",
    ),
    Rule(
        "repaired",
        "note",
        "The text lacks something and was read around it.",
        "The message says what.",
    ),
    Rule(
        "no-metadata",
        "note",
        "No instruction carries metadata, so phases and sources cannot be told.",
        "`lowered.as_text('hlo')` drops metadata unless debug_info=True, and XLA's dumps hold it"
        " only with --xla_dump_hlo_as_long_text. Columns that need a name are NULL: that says"
        " nothing about the program. No remat label in such a text is no sign of no remat.",
    ),
)
_RULE_LEVELS = {rule.id: rule.level for rule in _RULES}


@dataclass(frozen=True, slots=True)
class ModulesPass:
    """One row a module; a finding for everything the text lacks."""

    name: str = "modules"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = _RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        rows = [_row(program, position) for position in range(len(program.modules))]
        findings = [
            finding
            for position, module in enumerate(program.modules)
            for finding in _findings(position, module)
        ]
        return PassResult({"modules": rows}, findings=findings)


def _row(program: Program, position: int) -> dict[str, object]:
    module = program.modules[position]
    stage = program.stages[position]
    platform, platform_from = platform_of(module)
    scope, scope_from = _size_scope(module, stage)
    named = sum('op_name="' in tail for one in module.computations for tail in one.tails)
    count = module.instruction_count
    return {
        "id": position,
        "module": position,
        "name": module.name,
        "file": module.filename,
        "stage": stage,
        "platform": platform,
        "platform_from": platform_from,
        "is_scheduled": module.is_scheduled,
        "size_scope": scope,
        "size_scope_from": scope_from,
        "num_partitions": module.num_partitions,
        "replica_count": module.replica_count,
        "computations": len(module.computations),
        "instructions": count,
        "text_bytes": _utf8_bytes(module.text),
        "truncated": module.truncated,
        "has_metadata": named > 0,
        "metadata_share": named / count if count else None,
    }


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _findings(position: int, module: Module) -> Iterator[Finding]:
    for repair in module.repairs:
        rule = repair.kind if repair.kind in _RULE_LEVELS else "repaired"
        yield Finding(
            rule,
            _RULE_LEVELS[rule],
            f"{module.name}, line {repair.line}: {repair.message}",
            module=position,
            evidence=(("modules", position),),
        )
    if module.instruction_count and not module.has_metadata:
        yield Finding(
            "no-metadata",
            _RULE_LEVELS["no-metadata"],
            f"{module.name} has no metadata: phases and sources cannot be told",
            module=position,
            evidence=(("modules", position),),
            help="print with as_text('hlo', debug_info=True), or dump with"
            " --xla_dump_hlo_as_long_text",
        )


# ---------------------------------------------------------------------------------- platform


def platform_of(module: Module) -> tuple[str | None, str | None]:
    """The platform and what showed it; (None, both) where the evidence contradicts itself."""
    found: dict[str, str] = {}
    for platform, evidence in _platform_evidence(module):
        found.setdefault(platform, evidence)
    if len(found) > 1:
        return None, "; ".join(f"{platform}: {evidence}" for platform, evidence in found.items())
    return next(iter(found.items()), (None, None))


def _platform_evidence(module: Module) -> Iterator[tuple[str, str]]:
    config = _CONFIG.search(module.text)
    if config is not None:
        yield _CONFIG_FIELD[config[1]], f"backend_config {config[1]}"
    fusion = _CPU_FUSION.search(module.text)
    if fusion is not None:
        yield "cpu", f"fusion {fusion[1]}"
    if "fingerprint_before_lhs" in module.header.get("frontend_attributes", ""):
        yield "gpu", "header fingerprint_before_lhs"
    known = catalogue()
    for target in dict.fromkeys(map(target_of, custom_calls(module.computations))):
        if target is None:
            continue
        callback = _PLATFORM_OF_TARGET.match(target)
        platform = callback[1] if callback else _PLATFORM_OF_FAMILY.get(known.target(target).family)
        if platform is not None:
            yield platform, f"custom call {target}"
    for computation in module.computations:
        if any(":T(" in shape for shape in computation.shape_texts):
            yield "tpu", "tiled layouts"
            return


# ---------------------------------------------------------------------------------- scope of sizes


def _size_scope(module: Module, stage: str) -> tuple[str | None, str | None]:
    """Whether shapes are global or of one device, and what showed it.

    `num_partitions` alone shows nothing: before and after partitioning both carry it.
    """
    if module.is_scheduled:
        return "device", "is_scheduled"
    if stage in (PARTITIONED, AFTER):
        return "device", f"stage {stage}"
    if not _spread(module) and (module.num_partitions or 1) == 1:
        return "device", "nothing is sharded"
    if stage == BEFORE:
        return "global", f"stage {stage}"
    if any("partition-id" in computation.opcodes for computation in module.computations):
        return "device", "partition-id"
    if module.entry.name.endswith("_spmd"):
        return "device", "entry named by the partitioner"
    # The partitioner leaves shardings on parameters and on the result only, and no meshes.
    if "xla.sdy.meshes" in module.header.get("frontend_attributes", ""):
        return "global", "Shardy meshes"
    if any(map(_sharded_inside, module.computations)):
        return "global", "shardings of intermediate values"
    if not COLLECTIVE_OPCODES.isdisjoint(chain(*(one.opcodes for one in module.computations))):
        return "device", "collectives, and no sharding of an intermediate value"
    return None, None


def _spread(module: Module) -> bool:
    """Whether a sharding spreads anything over more than one device."""
    text = module.text
    if "sharding=" not in text:
        return False
    if any(prod(map(int, sizes[1].strip(",").split(","))) > 1 for sizes in _TILES.finditer(text)):
        return True
    meshes = [found[1] for found in _MESH.finditer(text)]
    if "xla.sdy.sharding=" in text:
        header = module.header.get("frontend_attributes", "")
        meshes += [found[1] for found in _SHARDY_MESH.finditer(header)]
    return any(prod(map(int, _SIZE.findall(mesh))) > 1 for mesh in meshes)


def _sharded_inside(computation: Computation) -> bool:
    """Whether anything but a parameter or the result of the computation has a sharding."""
    columns = zip(computation.opcodes, computation.tails, strict=True)
    return any(
        "sharding=" in tail and opcode != "parameter" and index != computation.root_index
        for index, (opcode, tail) in enumerate(columns)
    )


PASS = ModulesPass()
