"""Fills the tables of collectives: what the pass of `hlo_lens_passes.collectives` runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import channel_of, configured, frontend_attributes
from hlo_lens.analysis.schedule import Between, find_done, schedules, synchronous
from hlo_lens.facts import COMMON, Member, PassResult, common
from hlo_lens.hlo import Instruction, Module, Shape
from hlo_lens_passes._collective_arrays import Array, Arrays, agreed, sent
from hlo_lens_passes._collective_axes import SIDE_FILE, axes_of, meshes_of
from hlo_lens_passes._collective_flow import Flow
from hlo_lens_passes._collective_hosts import SIDE_FILE as PROVENANCE
from hlo_lens_passes._collective_hosts import hosts_of
from hlo_lens_passes._collective_logical import Logical, windowed_wire
from hlo_lens_passes._collective_tables import SHARED
from hlo_lens_passes._collective_training import TrainingLoops, under_checkpoint
from hlo_lens_passes._named_scopes import named_scope

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.program import Program

_PLACE: Final = tuple(column.name for column in COMMON if column.name != "id")
_OF_ARRAYS: Final = tuple(column.name for column in SHARED)
_STAYS: Final = frozenset(("bitcast", "copy"))
"""What a value passes on the way to its first real use; converts compute."""


def run(program: Program, found: Sequence[Sequence[Logical]]) -> PassResult:
    """The rows of both tables, with their members. found: the collectives of each module."""
    rows: list[dict[str, object]] = []
    values: list[dict[str, object]] = []
    members: list[Member] = []
    for position, module in enumerate(program.modules):
        described = _Described(program, position, module)
        for logical, row, arrays in described.rows(found[position]):
            members += _members(logical, len(rows), position)
            members += _ways(arrays, len(values), position)
            values += _values(logical, row, arrays, len(rows))
            rows.append(row)
    return PassResult({"collectives": rows, "collective_values": values}, members)


class _Described:
    """The rows of one module."""

    def __init__(self, program: Program, position: int, module: Module) -> None:
        self.program = program
        self.position = position
        self.analysis: ModuleAnalysis = program.analysis(module)
        self.schedules = schedules(self.analysis.graph)
        self.flow = Flow(self.analysis.graph)
        self.training = TrainingLoops(self.analysis)
        self.meshes = meshes_of(module, program.side_files.get(SIDE_FILE))
        self.hosts = hosts_of(program.side_files.get(PROVENANCE))
        self.trips = {loop.instr: loop.trip_count for loop in self.analysis.loops}

    def rows(
        self, found: Sequence[Logical]
    ) -> Iterator[tuple[Logical, dict[str, object], list[Array]]]:
        known = Arrays(self.analysis, self.flow, self.training, found)
        for logical in found:
            row = self._place(logical)
            row |= _what(logical) | self._who(logical) | self._wire(logical) | self._hidden(logical)
            row |= self._when(logical, row)
            arrays = known.of(logical, row)
            row |= agreed(arrays, _OF_ARRAYS)
            row["arrays"] = len(arrays)
            if logical.logical_kind == "all-gather" and any(
                "gather_number" in array.columns for array in arrays
            ):
                first = next((array.first for array in arrays if array.first is not None), None)
                row["is_regather"] = first is not None
                row["regather_of"] = None if first is None else first.id
            yield logical, row, arrays

    def _when(self, logical: Logical, row: Mapping[str, object]) -> dict[str, object]:
        """Where it stands in a training step."""
        in_backward = self.training.in_backward(logical.instr)
        replays = under_checkpoint(self.analysis, self.flow, logical, row["phase"], in_backward)
        return {
            "in_backward_loop": in_backward,
            "in_microbatch_loop": self.training.in_microbatches(logical.instr),
            "under_checkpoint": replays,
        }

    def _place(self, logical: Logical) -> dict[str, object]:
        """The common columns; names and source of the operation where its site has none."""
        row = common(self.program, self.position, logical.instr)
        named, operation = logical.instr, logical.operation
        if logical.instr.op_name is None and operation.op_name is not None:
            named = operation
            phase = self.analysis.phase(operation)
            row |= {
                "phase": phase.phase, "phase_from": phase.phase_from, "source": operation.source
            }  # fmt: skip
        name = self.analysis.full_op_name(named)
        row["scope"] = None if name is None else named_scope(name)
        return row

    def _who(self, logical: Logical) -> dict[str, object]:
        operation = logical.operation
        axes = axes_of(operation, self.meshes)
        return {
            "group_size": logical.groups.size,
            "groups": logical.groups.count,
            "uneven_groups": logical.groups.uneven,
            "axes": None if axes is None else list(axes.names),
            "axis_sizes": None if axes is None else list(axes.sizes),
            "axes_from": None if axes is None else axes.named_by,
            "intra_host": None if self.hosts is None else self.hosts.within(operation),
            "channel_id": channel_of(operation),
            "core": _core(logical),
            "spmd_generated": _spmd_generated({logical.start or logical.instr, operation}),
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
            use.instr.index
            for use in self.flow.uses(logical.results, _STAYS, enter=False)
            if use.position is not None
            and use.instr.computation is end.computation
            and use.instr not in own
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
        "operand_shape": _shape_text(logical.shapes or ()),
        "operand_bytes": logical.operand,
        "result_bytes": logical.result,
    }


def _shape_text(shapes: Iterable[Shape]) -> str | None:
    """`bf16[8,128]`, several by commas."""
    leaves = [leaf for shape in shapes for leaf in shape.leaves()]
    return ", ".join(leaf.without_layout for leaf in leaves) or None


def _core(logical: Logical) -> str | None:
    operation = logical.operation
    if logical.form == "sparsecore-call" or "DEVICE_TYPE_SPARSECORE" in operation.tail:
        return "sparsecore"
    # Tiles in a layout and this field are TPU's alone.
    on_tpu = ":T(" in operation.shape_text or '"flag_configs"' in operation.tail
    return "tensorcore" if on_tpu else None


def _spmd_generated(instructions: Iterable[Instruction]) -> bool | None:
    """`is_spmd_generated` of the backend_config (GPU) or the frontend attributes (TPU)."""
    found: set[bool | None] = set()
    for instruction in instructions:
        if "is_spmd_generated" not in instruction.tail:
            continue
        config = configured(instruction, "collective_backend_config", "is_spmd_generated")
        found.add(config if isinstance(config, bool) else None)
        stated = frontend_attributes(instruction).get("is_spmd_generated")
        found.add(None if stated is None else stated == "true")
    if True in found:
        return True
    return False if False in found else None


def _values(
    logical: Logical, row: Mapping[str, object], arrays: Sequence[Array], collective: int
) -> Iterator[dict[str, object]]:
    """A row for each array, which stands where its collective does."""
    for number, array in enumerate(arrays):
        shape = array.moved.shape
        yield {
            **{name: row[name] for name in _PLACE},
            "collective": collective,
            "number": number,
            "logical_kind": logical.logical_kind,
            "operand_shape": _shape_text(() if shape is None else (shape,)),
            "operand_bytes": None if shape is None else shape.bytes,
            "wire_bytes": sent(logical, shape, row["wire_bytes"]),
            **array.columns,
        }


def _ways(arrays: Sequence[Array], first: int, position: int) -> Iterator[Member]:
    """For each array, from row `first` on, what it feeds and what moves it there."""
    for row, array in enumerate(arrays, first):
        if array.feed is not None:
            for moving in array.feed.path:
                yield Member("collective_values", row, "path", position, moving.id)
            yield Member("collective_values", row, "feeds", position, array.feed.instr.id)


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
