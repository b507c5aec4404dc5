"""The offload table: what moves between device and host, what lies in host memory, and whether the
transfers overlap with compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Finding,
    Measure,
    Member,
    PassResult,
    Rule,
    Summary,
    Table,
    common,
)
from hlo_lens_passes._host_values import HostValues
from hlo_lens_passes._saved_residuals import HOST
from hlo_lens_passes.async_pairs import memory_name, names_vmem

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._host_moves import HostMove
    from hlo_lens_passes._host_values import Row

Pair = Mapping[str, Any]
"""A row of async_pairs."""
_Told = tuple[Mapping[str, object], "Row", Pair | None]

_KINDS: Final = ("annotation", "move", "copy", "parameter", "result")
_VALUES: Final = ("residual", "parameter", "result", "activation", "gradient")

TABLE = Table(
    "offload",
    "a move of a value between device and host, or an argument or result in host memory",
    (
        *COMMON,
        Column(
            "kind",
            "enum",
            "identity",
            "annotation: annotate_device_placement, as jax writes it; move: MoveToHost or"
            " MoveToDevice, as XLA has it then; copy: an operation that takes from one memory and"
            " gives in the other, in any spelling; parameter, result: an array of the entry that"
            " lies in host memory",
            values=_KINDS,
        ),
        Column(
            "direction",
            "enum",
            "structural",
            "where it moves; NULL for parameter and result",
            values=("to_host", "to_device"),
        ),
        Column(
            "value",
            "enum",
            "structural",
            "what is moved: residual: it has a row in residuals; parameter: an argument, such as"
            " weights and optimizer state; result: the entry returns it from host memory;"
            " activation, gradient: computed in forward or remat, or in backward, and none of"
            " these; NULL where no name tells",
            values=_VALUES,
        ),
        Column("shape", "text", "structural", "dtype and dimensions of what one run moves"),
        Column("bytes", "bytes", "measure", "size of that"),
        Column("moved_bytes", "bytes", "measure", "what one run moves: 0 of what only lies there"),
        Column(
            "from_memory",
            "text",
            "structural",
            "memory it is taken from: device, host, vmem for S(1) of a TPU, else S(n)",
        ),
        Column("to_memory", "text", "structural", "memory it is given in"),
        Column(
            "position",
            "int",
            "structural",
            "of parameter and result: which of the arrays of the arguments, or of the results, from"
            " 0",
        ),
        Column(
            "matched",
            "ref",
            "volatile",
            "the first counterpart of the same value: of a move the one the other way, else the"
            " argument it comes from or the root that returns it; of these, the move",
        ),
        Column("is_matched", "bool", "structural", "whether there is one"),
        Column("residual", "int", "volatile", "id of the value's row in residuals"),
        Column("pair", "ref", "volatile", "the row of async_pairs that it is, by its instr"),
        Column(
            "is_sync",
            "bool",
            "structural",
            "of a copy: whether its start's backend_config makes it synchronous, or a schedule has"
            " it without start and done; NULL where a start has no such field",
        ),
        Column(
            "compute_between",
            "int",
            "measure",
            "instructions between start and done that compute, as in async_pairs",
            unit="instructions",
        ),
        Column(
            "heavy_between",
            "int",
            "measure",
            "those of them that hold a core for long, as in async_pairs",
            unit="instructions",
        ),
        Column(
            "overlapped",
            "bool",
            "structural",
            "whether a copy has compute beside it, as in async_pairs; not one that is not started;"
            " NULL where the text is not scheduled",
        ),
    ),
    summary=Summary(
        "host memory",
        order=18,
        about="bytes of what one run moves, or of what lies there",
        by=(
            Cell("kind"),
            Cell("{from_memory}→{to_memory}", "memory", merged=True),
            Cell("value", "what"),
            Cell("loop"),
            Cell("phase"),
        ),
        measures=(
            Measure("values", "rows"),
            Measure("runs", "executions"),
            Measure("matched", "true", "is_matched"),
            Measure("overlap", "true", "overlapped"),
            Measure("bytes", "once", "bytes"),
            Measure("moved per step", "per_step", "moved_bytes"),
        ),
        unknown=(Cell("kind"),),
    ),
)

UNMATCHED: Final = Rule(
    "offload-unmatched",
    "warning",
    "A value is moved to the host and never back.",
    "annotate_device_placement or MoveToHost moves a value to the host, no move back takes it, no"
    " computation on the host does, and the entry does not return it in host memory. Where it is"
    " returned, but in device memory, XLA stops with error E1200 (host offload output mismatch):"
    " give the output a sharding of memory kind pinned_host, or move the value back.",
)
EXPOSED: Final = Rule(
    "offload-exposed",
    "note",
    "A copy between host and device has no compute beside it.",
    "Either it is synchronous, or nothing that computes stands between its start and its done in"
    " the schedule: the device waits for the host link. One finding is of the copies of a loop that"
    " go the same way, with their bytes for a step; its evidence are their rows.",
)


@dataclass(frozen=True, slots=True)
class OffloadPass:
    """One row a logical move, however many instructions spell it.

    Members: `move` (the instruction, of a pair `start`, `update`, `done` instead), `operation` (the
    slice, update or copy in a fusion or wrapper), `repeat` (further placements of the same value).
    """

    name: str = "offload"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("async_pairs", "residuals")
    rules: tuple[Rule, ...] = (UNMATCHED, EXPOSED)

    def run(self, program: Program, facts: Facts) -> PassResult:
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


PASS = OffloadPass()
