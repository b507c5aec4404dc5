"""Fills the checkpointing table: what the pass of `hlo_lens_passes.checkpointing` runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import PassResult
from hlo_lens.program import AFTER, BEFORE
from hlo_lens_passes._remat_occurrences import fused_copies
from hlo_lens_passes._remat_paths import plain_path
from hlo_lens_passes._residuals_run import is_of_step
from hlo_lens_passes.checkpointing import SIDE_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

KEPT: Final = ("stacked", "barrier", "direct")

Record = Mapping[str, object]


def run(program: Program, facts: Facts) -> PassResult:
    """One row a module."""
    memory = _Memory.read(program.side_files.get(SIDE_FILE))
    undone = _undone(program, facts.records("remat"))
    rows: list[Record] = []
    for position, stage in enumerate(program.stages):
        analysis = program.analysis(program.modules[position])
        of = _Module(facts, analysis, position, stage)
        row: dict[str, object] = {"id": position, "module": position}
        if not of.about["truncated"]:
            row |= {**of.kept(), **of.replayed()}
            row["undone_operations"] = undone if stage in (BEFORE, AFTER) else None
        if stage == AFTER:
            row |= memory.cells(of.about["platform"])
        rows.append(row)
    return PassResult({"checkpointing": rows})


class _Module:
    """The rows of other tables that are about one module."""

    def __init__(self, facts: Facts, analysis: ModuleAnalysis, position: int, stage: str) -> None:
        self.facts = facts
        self.analysis = analysis
        self.position = position
        self.stage = stage
        self.about = self.rows("modules")[0]

    def rows(self, table: str) -> list[Record]:
        return [row for row in self.facts.records(table) if row["module"] == self.position]

    def kept(self) -> Record:
        """The cells about what is kept."""
        # A loop that runs again stacks what the backward of that run reads: nothing crosses over.
        rows = [row for row in self.rows("residuals") if row["phase"] != "remat"]
        values = [row for row in rows if row["kind"] in KEPT]
        there = [row for row in values if not row["offloaded"]]
        exact = self._is_exact(values)
        if not values and not exact:
            return {"saved_exact": False}
        kinds = [kind for kind in KEPT if any(row["kind"] == kind for row in there)]
        return {
            "saved_values": len(there),
            "saved_bytes": _sum(there, "bytes"),
            "saved_from": " + ".join(kinds) or "nothing",
            "stacked_bytes": _sum((row for row in there if row["kind"] == "stacked"), "bytes"),
            "saved_exact": exact,
            "offloaded_bytes": _sum((row for row in values if row["offloaded"]), "bytes"),
            "copied_input_bytes": _sum(
                (row for row in rows if row["kind"] == "copy_of_input"), "bytes"
            ),
        }

    def _is_exact(self, values: Iterable[Record]) -> bool:
        if not self.about["has_metadata"]:
            return False
        # Once equal operations are merged and fused, what is not in a loop has one name of several.
        if self.stage == AFTER and {row["kind"] for row in values} != {"stacked"}:
            return False
        return not any(
            row["kind"] == "call" and row["phase"] in ("fwd", None) and self._is_of_step(row)
            for row in self.rows("call_sites")
        )

    def _is_of_step(self, row: Record) -> bool:
        caller = self.analysis.module.instruction(_int(row["instr"]))
        return is_of_step(self.analysis, caller.computation)

    def replayed(self) -> Record:
        """The cells about what is computed again, but for what the compiler undid."""
        regions = [row for row in self.rows("remat") if row["kind"] != "compiler"]
        named = self.about["has_metadata"]
        if not regions and not named:
            return {}
        operations = [row for row in self.rows("remat_ops") if row["kind"] != "compiler"]
        flops, forward = _sum(regions, "flops"), self._forward_flops() if named else None
        return {
            "regions": len(regions),
            "replayed_operations": sum(row["verdict"] == "replayed" for row in operations),
            "replayed_matmuls": _sum(regions, "matmuls"),
            "replayed_kernels": _sum(regions, "kernels"),
            "replayed_collectives": _sum(regions, "collectives"),
            "duplicated_operations": sum(
                row["verdict"] == "fusion-duplicated" and row["work"] is None for row in operations
            ),
            "replayed_flops": flops,
            "forward_flops": forward,
            "recompute_factor": flops / forward if flops is not None and forward else None,
        }

    def _forward_flops(self) -> int | None:
        """Without copies in fusions, as none are in what is replayed."""
        rows = {
            self.analysis.module.instruction(_int(row["instr"])): row
            for row in self.rows("matmuls")
            if row["phase"] in ("fwd", None)
        }
        copies = fused_copies(self.analysis, rows)
        total = 0
        for instr, row in rows.items():
            flops, runs = row["flops"], row["executions"]
            if row["phase"] is None or not isinstance(flops, int) or not isinstance(runs, int):
                return None
            total += 0 if instr in copies else flops * runs
        return total


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _sum(rows: Iterable[Record], column: str) -> int | None:
    """None where one of them is not known."""
    total = 0
    for row in rows:
        value = row[column]
        if not isinstance(value, int):
            return None
        total += value
    return total


def _undone(program: Program, regions: Iterable[Record]) -> int | None:
    """What is replayed before optimization and not after it; None where a stage is not there, is
    cut off or has no op_names.

    Every region of a scope has the number of the scope.
    """
    stages = [program.stage(name) for name in (BEFORE, AFTER)]
    if any(one is None or one.truncated or not one.has_metadata for one in stages):
        return None
    scopes: dict[tuple[str, ...], int] = {}
    for row in regions:
        count, scope = row["undone"], row["scope"]
        if isinstance(count, int):
            scopes[plain_path(scope) if isinstance(scope, str) else ()] = count
    return sum(scopes.values())


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the side file says, in bytes of one device; None for what it does not say."""

    peak: int | None = None
    temp: int | None = None
    allocated: int | None = None

    @classmethod
    def read(cls, path: Path | None) -> _Memory:
        """Of what is not there or cannot be read, nothing."""
        try:
            told = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        except (OSError, ValueError, RecursionError):
            return cls()

        def number(name: str) -> int | None:
            value = told.get(f"{name}_in_bytes") if isinstance(told, dict) else None
            known = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            return value if known else None

        temp = number("temp_size")
        parts = number("argument_size"), number("output_size"), temp
        allocated = None
        if None not in parts:
            allocated = sum(filter(None, parts)) - (number("alias_size") or 0)
        # A jaxlib that does not model the peak reports 0.
        return cls(number("peak_memory") or None, temp, allocated)

    def cells(self, platform: object) -> Record:
        """The cells about memory."""
        peak, source = self.peak, "peak_memory"
        if peak is None or platform == "cpu":
            peak, source = self.allocated, "allocations"
        return {
            "peak_bytes": peak,
            "peak_from": None if peak is None else source,
            "temp_bytes": self.temp,
        }
