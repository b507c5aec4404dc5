"""The collectives table: every logical collective once, whatever its spelling.

`reference/definitions.md`, "Collectives", says what each column means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import KINDS, channel_of, configured, frontend_attributes
from hlo_lens.analysis.dataflow import consumers
from hlo_lens.analysis.schedule import Between, find_done, schedules, synchronous
from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Lane,
    Measure,
    Member,
    PassResult,
    Summary,
    Table,
    common,
)
from hlo_lens.hlo import Instruction, Module
from hlo_lens_passes._collective_axes import axes_of, header_meshes
from hlo_lens_passes._collective_logical import (
    FORMS,
    Logical,
    logical_collectives,
    windowed_wire,
)
from hlo_lens_passes._collective_training import BackwardLoops, earlier_gathers, under_checkpoint

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_STAYS: Final = frozenset(("bitcast", "copy"))
"""What a value passes on the way to its first real use; converts compute."""

_SPELLINGS: Final = (("sugar", "start-done (sugar)"),)
"""How the report names a form whose word only those know who print HLO."""

TABLE = Table(
    "collectives",
    "a logical collective: one operation in any spelling, or the loop or chain of fusions that"
    " amounts to one",
    (
        *COMMON,
        Column("kind", "enum", "structural", "the operation that the text writes", values=KINDS),
        Column(
            "logical_kind",
            "enum",
            "identity",
            "what it amounts to: the all-gather or reduce-scatter of a windowed einsum loop, the"
            " reduce-scatter of a fused all-reduce and slice; else as kind",
            values=KINDS,
        ),
        Column(
            "form",
            "enum",
            "volatile",
            "how the text spells it: start-done is an operation with opcodes of its own for start"
            " and done, sugar is OP-start and OP-done for an async-start and async-done around OP",
            values=FORMS,
        ),
        Column(
            "static_ops",
            "int",
            "volatile",
            "collective operations of the text that make up the row (a start and its done are one)",
        ),
        Column(
            "is_sync",
            "bool",
            "structural",
            "whether the start's backend_config makes it synchronous; NULL where it has no such"
            " field, and for what has no start",
        ),
        Column("dtype", "text", "structural", "dtype on the wire; several by commas"),
        Column(
            "operand_shape",
            "text",
            "identity",
            "what one device gives, without layouts; of a windowed loop what one permute moves",
        ),
        Column("operand_bytes", "bytes", "measure", "what one device gives, per execution"),
        Column("result_bytes", "bytes", "measure", "what one device gets, per execution"),
        Column(
            "wire_bytes",
            "bytes",
            "measure",
            "what one device sends per execution, in a ring; of a windowed loop all its permutes."
            " NULL where group size, trip count or send sizes are not known",
        ),
        Column("wire_bytes_max", "bytes", "measure", "upper bound of wire_bytes; NULL: no bound"),
        Column(
            "logical_wire_bytes",
            "bytes",
            "measure",
            "what a ring sends for the logical kind; less than wire_bytes where a windowed loop"
            " sends shards that nobody needs",
        ),
        Column(
            "algorithm",
            "enum",
            "volatile",
            "the algorithm that wire_bytes assumes",
            values=("ring",),
        ),
        Column(
            "group_size",
            "int",
            "structural",
            "devices of the largest group as XLA reads it; of a permute, devices its pairs connect",
            unit="devices",
        ),
        Column("groups", "int", "structural", "groups that are listed, 1 for everybody"),
        Column("uneven_groups", "bool", "structural", "whether groups differ in size"),
        Column(
            "axes",
            "json",
            "volatile",
            "mesh axes of a group, as the mesh form or a mesh of the header names them; NULL where"
            " neither does",
        ),
        Column("channel_id", "int", "volatile", "channel_id of the operation"),
        Column(
            "core",
            "enum",
            "structural",
            "which core of a TPU runs it; NULL elsewhere",
            values=("tensorcore", "sparsecore"),
        ),
        Column(
            "compute_between",
            "int",
            "measure",
            "instructions between start and done that compute, in a scheduled text; 0 for one that"
            " is synchronous; of a windowed loop the least of its permutes",
            unit="instructions",
        ),
        Column(
            "heavy_between",
            "int",
            "measure",
            "those of them that hold a core for long: matmuls, kernels, reduce, sort, scatter,"
            " gather, while",
            unit="instructions",
        ),
        Column(
            "overlapped",
            "bool",
            "structural",
            "compute_between > 0 and not is_sync; NULL where the text is not scheduled",
        ),
        Column(
            "issued_before_use",
            "int",
            "measure",
            "compute instructions from the start to the first real use of the result; NULL where"
            " the computation does not use it, and for a gather that a loop uses up",
            unit="instructions",
        ),
        Column(
            "landed_before_use",
            "int",
            "measure",
            "compute instructions from the done to that use",
            unit="instructions",
        ),
        Column(
            "in_backward_loop",
            "bool",
            "structural",
            "whether a loop around it runs in the backward pass: its while is bwd or remat, or it"
            " holds backward matmuls and no forward ones; NULL where no name tells",
        ),
        Column(
            "under_checkpoint",
            "bool",
            "structural",
            "whether it replays for a checkpoint: its own remat label, or it sits in the backward"
            " pass and feeds what has one; NULL where no name tells",
        ),
        Column(
            "regather_of",
            "ref",
            "volatile",
            "the first all-gather of the same source value; NULL for the first",
        ),
        Column(
            "is_regather",
            "bool",
            "structural",
            "whether an earlier all-gather has the same source value; NULL for other kinds",
        ),
        Column(
            "spmd_generated",
            "bool",
            "structural",
            "whether the SPMD partitioner made it; NULL where the text does not say",
        ),
        Column("start", "ref", "volatile", "the start, where it is asynchronous"),
        Column("done", "ref", "volatile", "the done, where it is asynchronous and in sight"),
    ),
    summary=Summary(
        "collectives",
        order=20,
        about="what one device sends, in a ring",
        none="no collectives",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("logical_kind", "operation"),
            Cell("form", "written as", names=_SPELLINGS),
            Cell("dtype"),
        ),
        measures=(
            Measure("count", "rows"),
            Measure("runs", "executions"),
            Measure("overlap", "true", "overlapped"),
            Measure("sent per run", "once", "wire_bytes", "wire_bytes_max"),
            Measure("sent per step", "per_step", "wire_bytes", "wire_bytes_max"),
        ),
        unknown=(Cell("logical_kind"),),
        lane=Lane(
            "communication",
            line=(
                Cell("logical_kind"),
                Cell("form", names=_SPELLINGS),
                Cell("operand_shape"),
                Cell("is_sync", words=("synchronous", "")),
                Cell("overlapped", words=("overlapped", "exposed")),
            ),
            details=(
                Cell("groups {groups}×{group_size}"),
                Cell("axes"),
                Cell("channel {channel_id}"),
                Cell("core"),
            ),
            total=Measure("sends", "per_step", "wire_bytes", "wire_bytes_max"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class CollectivesPass:
    """One row a logical collective; its operations, starts and dones are members of the row."""

    name: str = "collectives"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[()] = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        for position, module in enumerate(program.modules):
            described = _Described(program, position, module)
            for logical, row in described.rows():
                members += _members(logical, len(rows), position)
                rows.append(row)
        return PassResult({"collectives": rows}, members)


class _Described:
    """The rows of one module."""

    def __init__(self, program: Program, position: int, module: Module) -> None:
        self.program = program
        self.position = position
        self.analysis: ModuleAnalysis = program.analysis(module)
        self.schedules = schedules(self.analysis.graph)
        self.backward = BackwardLoops(self.analysis)
        self.meshes = header_meshes(module)
        self.trips = {loop.instr: loop.trip_count for loop in self.analysis.loops}

    def rows(self) -> Iterator[tuple[Logical, dict[str, object]]]:
        found = logical_collectives(self.analysis.module, self.analysis.graph)
        gathers = [logical for logical in found if logical.logical_kind == "all-gather"]
        earlier = earlier_gathers(self.analysis, gathers)
        first = {gathers[at].instr: instr for at, instr in earlier.items()}
        for logical in found:
            row = self._place(logical)
            row |= _what(logical) | self._who(logical) | self._wire(logical) | self._hidden(logical)
            row["in_backward_loop"] = self.backward.around(logical.instr)
            row["under_checkpoint"] = under_checkpoint(
                self.analysis, logical, row["phase"], self.backward.around(logical.instr)
            )
            if logical.logical_kind == "all-gather" and logical.source is not None:
                again = first.get(logical.instr)
                row["is_regather"] = again is not None
                row["regather_of"] = None if again is None else again.id
            yield logical, row

    def _place(self, logical: Logical) -> dict[str, object]:
        """The common columns; names and source of the operation where its site has none."""
        row = common(self.program, self.position, logical.instr)
        operation = logical.operation
        if logical.instr.op_name is None and operation.op_name is not None:
            phase = self.analysis.phase(operation)
            row |= {
                "phase": phase.phase, "phase_from": phase.phase_from, "source": operation.source
            }  # fmt: skip
        return row

    def _who(self, logical: Logical) -> dict[str, object]:
        operation = logical.operation
        axes = axes_of(operation, self.meshes)
        return {
            "group_size": logical.groups.size,
            "groups": logical.groups.count,
            "uneven_groups": logical.groups.uneven,
            "axes": None if axes is None else list(axes),
            "channel_id": channel_of(operation),
            "core": _core(logical),
            "spmd_generated": _spmd_generated((logical.start or logical.instr, operation)),
        }

    def _wire(self, logical: Logical) -> dict[str, object]:
        if logical.windowed is not None:
            sent, most = windowed_wire(logical.windowed, self.trips.get(logical.instr))
        else:
            sent = most = logical.logical_wire
            if logical.kind == "ragged-all-to-all":
                most = logical.operand
        return {
            "wire_bytes": sent,
            "wire_bytes_max": most,
            "logical_wire_bytes": logical.logical_wire,
            "algorithm": "ring",
        }

    # -- whether it hides

    def _hidden(self, logical: Logical) -> dict[str, object]:
        start = logical.start
        is_sync = None if start is None else synchronous(start)
        between = self._between(logical)
        row: dict[str, object] = {
            "is_sync": is_sync,
            "start": None if start is None else start.id,
            "done": None if logical.done is None else logical.done.id,
        }
        if between is not None:
            row |= {
                "compute_between": between.compute,
                "heavy_between": between.heavy,
                "overlapped": between.compute > 0 and not is_sync,
            }
        return row | self._until_use(logical)

    def _between(self, logical: Logical) -> Between | None:
        if logical.windowed is not None:
            inside = [
                self._pair(site.instr, find_done(site.instr)[0]) for site in logical.windowed.inside
            ]
            known = [between for between in inside if between is not None]
            return min(known, key=lambda between: between.compute) if known else None
        if logical.start is None:
            scheduled = self.schedules.of(logical.instr.computation) is not None
            return Between(0, 0, 0) if scheduled else None
        return self._pair(logical.start, logical.done)

    def _pair(self, start: Instruction, done: Instruction | None) -> Between | None:
        schedule = self.schedules.of(start.computation)
        if schedule is None or done is None:
            return None
        return schedule.between(start.index, done.index)

    def _until_use(self, logical: Logical) -> dict[str, object]:
        begin, end = logical.start or logical.instr, logical.done or logical.instr
        schedule = self.schedules.of(begin.computation)
        if schedule is None or (logical.start is not None and logical.done is None):
            return {}
        peeled = () if logical.windowed is None else logical.windowed.peeled
        own = {site.instr for site in peeled}
        used = [
            user.index
            for result, path in logical.results
            for user in consumers(self.analysis.graph, result, path, moves=_STAYS, enter=False)
            if user.computation is end.computation and user not in own
        ]
        if not used:
            return {}
        first = min(used)
        landed = max((end, *logical.peeled_ends), key=lambda instr: instr.index)
        return {
            "issued_before_use": schedule.between(begin.index, first).compute,
            "landed_before_use": schedule.between(landed.index, first).compute,
        }


def _what(logical: Logical) -> dict[str, object]:
    return {
        "kind": logical.kind,
        "logical_kind": logical.logical_kind,
        "form": logical.form,
        "static_ops": len(logical.operations),
        "dtype": logical.dtype,
        "operand_shape": _shape_text(logical),
        "operand_bytes": logical.operand,
        "result_bytes": logical.result,
    }


def _shape_text(logical: Logical) -> str | None:
    """`bf16[8,128]`, several by commas."""
    if not logical.shapes:
        return None
    leaves = [leaf for shape in logical.shapes for leaf in shape.leaves()]
    return ", ".join(
        f"{leaf.dtype}[{','.join('?' if size is None else str(size) for size in leaf.dimensions)}]"
        for leaf in leaves
    )


def _core(logical: Logical) -> str | None:
    operation = logical.operation
    if logical.form == "sparsecore-call" or "DEVICE_TYPE_SPARSECORE" in operation.tail:
        return "sparsecore"
    # Tiles in a layout and this field are TPU's alone.
    on_tpu = ":T(" in operation.shape_text or '"flag_configs"' in operation.tail
    return "tensorcore" if on_tpu else None


def _spmd_generated(instructions: tuple[Instruction, ...]) -> bool | None:
    """`is_spmd_generated` of the backend_config (GPU) or the frontend attributes (TPU)."""
    found: set[object] = set()
    for instruction in instructions:
        if "is_spmd_generated" not in instruction.tail:
            continue
        found.add(configured(instruction, "collective_backend_config", "is_spmd_generated"))
        stated = frontend_attributes(instruction).get("is_spmd_generated")
        found.add(None if stated is None else stated == "true")
    if True in found:
        return True
    return False if False in found else None


def _members(logical: Logical, row: int, position: int) -> Iterator[Member]:
    """What makes up a row, each instruction once, as what it is most."""
    roles: dict[int, str] = {}
    if logical.windowed is not None:
        roles[logical.instr.id] = "loop"
    elif logical.form == "fusion":
        roles[logical.instr.id] = "fusion"
    if logical.start is not None:
        roles.setdefault(logical.start.id, "start")
    for update in logical.updates:
        roles.setdefault(update.id, "update")
    if logical.done is not None:
        roles.setdefault(logical.done.id, "done")
    if logical.windowed is not None:
        for site in (*logical.windowed.peeled, *logical.windowed.inside):
            roles.setdefault(site.instr.id, "permute")
            if (done := find_done(site.instr)[0]) is not None:
                roles.setdefault(done.id, "done")
    for operation in logical.operations:
        roles.setdefault(operation.id, "operation")
    for instr, role in roles.items():
        yield Member("collectives", row, role, position, instr)


PASS = CollectivesPass()
