"""Fills the loops table: what the pass of `hlo_lens_passes.loops` runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_lens.analysis import origin, stacked
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens_passes.loops import MISMATCH, UNKNOWN

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop, Stacked
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


def run(program: Program, facts: Facts) -> PassResult:
    """One row a while, with its members, and the findings."""
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        analysis = program.analysis(module)
        for loop in analysis.loops:
            stacks = tuple(stacked(analysis.graph, loop))
            members.extend(_members(len(rows), position, loop, stacks))
            findings.extend(_findings(len(rows), position, loop))
            rows.append(common(program, position, loop.instr) | _row(loop, stacks))
    return PassResult({"loops": rows}, members, findings)


def _row(loop: Loop, stacks: tuple[Stacked, ...]) -> dict[str, object]:
    trips = loop.trips
    made = origin(loop)
    return {
        "trips_kind": trips.kind,
        "body": None if loop.body is None else loop.body.name,
        "condition": None if loop.condition is None else loop.condition.name,
        "trip_count": trips.count,
        "trip_count_max": trips.most,
        "trip_count_inferred": trips.inferred,
        "evidence": trips.evidence,
        "induction_index": trips.induction_index,
        "init": trips.start,
        "step": trips.step,
        "parent": None if loop.parent is None else loop.parent.instr.id,
        "compiler_made": made.compiler_made,
        "origin_op": made.op,
        "carry_bytes": _carry_bytes(loop),
        "stacked_bytes": None if loop.body is None else _sum(one.bytes for one in stacks),
        "stacked": [
            {
                "element": one.index,
                "dimension": one.dimension,
                "step": one.step,
                "bytes": one.bytes,
                "bytes_per_iteration": one.bytes_per_iteration,
            }
            for one in stacks
        ],
    }


def _carry_bytes(loop: Loop) -> int | None:
    try:
        return loop.instr.shape.bytes
    except ValueError:
        return None


def _sum(sizes: Iterator[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _members(row: int, module: int, loop: Loop, stacks: tuple[Stacked, ...]) -> Iterator[Member]:
    yield Member("loops", row, "while", module, loop.instr.id)
    if loop.condition is not None:
        yield Member("loops", row, "condition", module, loop.condition.root.id)
    for one in stacks:
        yield Member("loops", row, "stacked", module, one.update.id)


def _findings(row: int, module: int, loop: Loop) -> Iterator[Finding]:
    trips = loop.trips
    name, instr = loop.instr.name, loop.instr.id
    evidence = (("loops", row),)
    if trips.kind == "unknown":
        message = f"{name}: trip count not known; {trips.evidence}"
        yield Finding(UNKNOWN.id, UNKNOWN.level, message, module, instr, evidence)
    elif trips.kind == "annotated" and trips.inferred not in (None, trips.count):
        message = f"{name}: {trips.evidence}, which is {trips.inferred} times"
        yield Finding(MISMATCH.id, MISMATCH.level, message, module, instr, evidence)
