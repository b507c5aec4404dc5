"""Fills the modules table: what the pass of `hlo_lens_passes.modules` runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

from hlo_lens.analysis.collectives import COLLECTIVE_OPCODES
from hlo_lens.dumps import AFTER, BEFORE, PARTITIONED
from hlo_lens.facts import Finding, PassResult
from hlo_lens_passes._platforms import platform_of
from hlo_lens_passes.modules import RULES

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation, Module
    from hlo_lens.program import Program

# How a sharding over more than one device is written: tiles, a mesh, Shardy's attribute.
_TILES = re.compile(r"\bdevices=\[([\d,]+)\]")
_MESH = re.compile(r"sharding=\{+mesh\[([^\]]*)\]")
_SHARDY_MESH = re.compile(r"#sdy\.mesh<\[([^\]]*)\]")
_SIZE = re.compile(r"=\s*(\d+)")
_RULE_LEVELS = {rule.id: rule.level for rule in RULES}


def run(program: Program, facts: Facts) -> PassResult:
    """One row a module, and the findings."""
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
