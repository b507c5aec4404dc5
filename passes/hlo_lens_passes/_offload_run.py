"""Fills the offload table: what the pass of `hlo_lens_passes.offload` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens_passes._async_pairs_run import memory_name, names_vmem
from hlo_lens_passes._host_values import HostValues
from hlo_lens_passes._saved_residuals import HOST
from hlo_lens_passes.offload import EXPOSED, UNMATCHED

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._host_moves import HostMove
    from hlo_lens_passes._host_values import Row

Pair = Mapping[str, Any]
"""A row of async_pairs."""
_Told = tuple[Mapping[str, object], "Row", Pair | None]


def run(program: Program, facts: Facts) -> PassResult:
    """One row a move or value in host memory, with its members, and the findings."""
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        values = HostValues(program.analysis(module), facts, position, len(rows))
        pairs = _pairs(facts, position) if values.rows else {}
        has_vmem = names_vmem(module)
        exposed: dict[tuple[object, ...], list[_Told]] = {}
        for row in values.rows:
            pair = pairs.get(row.move.instr.id) if row.move.kind == "copy" else None
            columns = _columns(row) | _memories(row.move, has_vmem)
            columns |= _overlap(row.move, pair, module.is_scheduled)
            rows.append(common(program, position, row.move.instr) | columns)
            members.extend(_members(row, pair, position))
            if _is_exposed(rows[-1], row.move, pair):
                told = rows[-1]
                key = (told["direction"], told["loop"], told["is_sync"] is True)
                exposed.setdefault(key, []).append((told, row, pair))
        findings.extend(_exposed(alike, position) for alike in exposed.values())
        if not module.truncated:
            findings.extend(_unmatched(row, how, position) for row, how in values.unmatched())
    return PassResult({"offload": rows}, members, findings)


# ---------------------------------------------------------------------------- columns


def _pairs(facts: Facts, module: int) -> dict[object, Pair]:
    """The rows of async_pairs by their instr."""
    rows = facts.records("async_pairs")
    return {row["instr"]: row for row in rows if row["module"] == module}


def _columns(row: Row) -> dict[str, object]:
    move = row.move
    size = None if move.shape is None else move.shape.bytes
    return {
        "kind": move.kind,
        "direction": move.direction,
        "value": row.value,
        "shape": None if move.shape is None else move.shape.without_layout,
        "bytes": size,
        "moved_bytes": 0 if move.direction is None else size,
        "position": move.position,
        "matched": None if row.matched is None else row.matched.move.instr.id,
        "is_matched": row.matched is not None,
        "residual": row.residual,
    }


def _memories(move: HostMove, has_vmem: bool) -> dict[str, object]:
    first, last = move.spaces
    if move.direction == "to_host":
        last = HOST
    elif move.direction == "to_device":
        first = HOST
    return {
        "from_memory": memory_name(first or 0, has_vmem),
        "to_memory": memory_name(last or 0, has_vmem),
    }


def _overlap(move: HostMove, pair: Pair | None, is_scheduled: bool) -> dict[str, object]:
    """What stands beside a copy: as its pair has it; nothing, where it is not started."""
    names = ("is_sync", "compute_between", "heavy_between", "overlapped")
    if pair is not None:
        return {name: pair[name] for name in names} | {"pair": pair["instr"]}
    if move.kind != "copy":
        return {}
    return {"is_sync": True, "overlapped": False} if is_scheduled else {}


def _members(row: Row, pair: Pair | None, module: int) -> Iterator[Member]:
    move = row.move
    found: list[tuple[str, int]] = []
    if pair is None:
        found.append(("move", move.instr.id))
    else:
        for role in ("start", "updates", "done"):
            told = pair[role]
            for one in told if isinstance(told, tuple) else (told,):
                if isinstance(one, int):
                    found.append(("update" if role == "updates" else role, one))
    if move.operation != move.instr and not move.operation.implied:
        found.append(("operation", move.operation.id))
    found.extend(("repeat", one.id) for one in row.repeats)
    for role, instr in found:
        yield Member("offload", row.id, role, module, instr)


# ---------------------------------------------------------------------------- findings


def _is_exposed(columns: Mapping[str, object], move: HostMove, pair: Pair | None) -> bool:
    """Whether the device waits for it. What is part of another pair runs beside what that does."""
    return (
        columns.get("overlapped") is False
        and columns["executions_max"] != 0
        and move.shape is not None
        and move.shape.rank > 0
        and (pair is None or pair["inside"] is None)
    )


def _exposed(alike: Sequence[_Told], module: int) -> Finding:
    """One finding for the copies of a loop that go one way: unrolled layers have hundreds."""
    columns, row, _ = alike[0]
    several = len(alike) > 1
    who = f"%{row.move.instr.name}"
    who += f" and {len(alike) - 1} more move" if several else " moves"
    where = "host" if row.move.direction == "to_host" else "device"
    why = "with no compute beside " + ("them" if several else "it")
    if columns["is_sync"]:
        why = "synchronously"
    moved = [_per_step(columns) for columns, _, _ in alike]
    step = f"{sum(filter(None, moved)):,} bytes a step"
    if None in moved:
        step = "how many bytes a step is not known"
    evidence = [("offload", row.id) for _, row, _ in alike]
    evidence += [("async_pairs", pair["id"]) for _, _, pair in alike if pair is not None]
    return Finding(
        EXPOSED.id,
        EXPOSED.level,
        f"{who} to the {where} {why}: {step}",
        module,
        row.move.instr.id,
        tuple(evidence),
    )


def _per_step(columns: Mapping[str, object]) -> int | None:
    size, runs = columns["bytes"], columns["executions"]
    return size * runs if isinstance(size, int) and isinstance(runs, int) else None


def _unmatched(row: Row, is_returned: bool, module: int) -> Finding:
    move = row.move
    shape = "a value" if move.shape is None else move.shape.without_layout
    then = "the entry returns it in device memory" if is_returned else "nothing moves it back"
    return Finding(
        UNMATCHED.id,
        UNMATCHED.level,
        f"%{move.instr.name} moves {shape} to the host, and {then}",
        module,
        move.instr.id,
        (("offload", row.id),),
    )
