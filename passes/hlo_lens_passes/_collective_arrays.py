"""What is known of each array that the collectives of a module move: whose it is, what it feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.analysis.collectives import wire_bytes
from hlo_lens.analysis.dataflow import Value
from hlo_lens.analysis.names import own_op_name
from hlo_lens.hlo import Instruction, Shape
from hlo_lens_passes._collective_flow import Flow
from hlo_lens_passes._collective_gathers import Key, ahead, numbered
from hlo_lens_passes._collective_logical import Logical
from hlo_lens_passes._collective_uses import Feed, Following
from hlo_lens_passes._collective_values import Moved, moved_values, origin_of
from hlo_lens_passes._collective_whose import Owner, Owners, phases_in_front

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens_passes._collective_training import TrainingLoops


@dataclass(frozen=True, slots=True)
class Array:
    """One array: its columns, the first gather of its source value (None where it is that), and
    what it feeds."""

    moved: Moved
    columns: Mapping[str, object]
    first: Instruction | None
    feed: Feed | None


class Arrays:
    """The arrays of all collectives of a module."""

    def __init__(
        self,
        analysis: ModuleAnalysis,
        flow: Flow,
        loops: TrainingLoops,
        collectives: Sequence[Logical],
    ) -> None:
        self.analysis = analysis
        every = [(one, moved) for one in collectives for moved in moved_values(one, analysis.graph)]
        self._moved: dict[int, list[Moved]] = {}
        for one, moved in every:
            self._moved.setdefault(id(one), []).append(moved)
        origins = {
            (one.instr, moved.number): origin_of(analysis.graph, moved.source)
            for one, moved in every
            if moved.source is not None
        }
        self._names: dict[Instruction, str] = {}
        self._ahead = ahead(analysis, flow, every, origins)
        gathers = [(one, moved) for one, moved in every if one.logical_kind == "all-gather"]
        self._numbered = numbered(analysis, gathers, origins, self._ahead.peeled)
        self._following = Following(analysis, flow, loops, every)
        self._owners = Owners(analysis, self._following, every, origins)

    def of(self, logical: Logical, row: Mapping[str, object]) -> list[Array]:
        """The arrays of one collective, which has this row so far."""
        return [self._array(logical, moved, row) for moved in self._moved.get(id(logical), ())]

    def _array(self, logical: Logical, moved: Moved, row: Mapping[str, object]) -> Array:
        phase = row["phase"] if isinstance(row["phase"], str) else None
        owner = self._owners.owner(logical, moved, phase, row["phase_from"])
        feed = None if owner.moves == "gradient" else self._following.feed(logical, moved)
        columns = self._whose(owner) | _fed(feed) | self._fetched(logical, moved)
        key = logical.instr, moved.number
        peeled = self._ahead.peeled.get(key)
        if peeled is not None:
            key = peeled[0].instr, peeled[1].number
        gather = self._numbered.get(key)
        first = None
        if gather is not None:
            columns["gather_number"] = gather.number
            first = gather.first
            if first is not None:
                columns["regather_for"] = self._purpose(feed, row)
        return Array(moved, columns, first, feed)

    def _whose(self, owner: Owner) -> dict[str, object]:
        parameter = owner.parameter
        if parameter is not None and parameter not in self._names:
            self._names[parameter] = own_op_name(parameter) or parameter.name
        return {
            "moves": owner.moves,
            "parameter": None if parameter is None else self._names[parameter],
            "parameter_number": None if parameter is None else parameter.parameter_number,
            "source_instr": None if owner.source is None else owner.source.id,
        }

    def _fetched(self, logical: Logical, moved: Moved) -> dict[str, object]:
        key: Key = logical.instr, moved.number
        carry = self._ahead.carries.get(key)
        peeled = self._ahead.peeled.get(key)
        return {
            "prefetched": carry is not None,
            "prefetch_carry": carry,
            "peeled_of": None if peeled is None else peeled[0].instr.id,
        }

    def _purpose(self, feed: Feed | None, row: Mapping[str, object]) -> str | None:
        """What it is gathered again for: the matmul that it feeds says so, by its name or by those
        in front of what it multiplies with; else its own label. In the forward for neither."""
        if feed is None:
            return "replay" if row["phase"] == "remat" or row["under_checkpoint"] else None
        phase = self.analysis.phase(feed.instr).phase
        if phase == "bwd" and own_op_name(feed.instr) is None:
            others = enumerate(feed.instr.operands)
            values = [Value(operand) for at, operand in others if at != feed.operand]
            phase = next(phases_in_front(self.analysis, values), None)
        in_forward = row["phase"] not in ("bwd", "remat") and not row["in_backward_loop"]
        if phase == "remat" or (phase == "fwd" and not in_forward):
            return "replay"
        return "backward" if phase == "bwd" else None


def agreed(arrays: Iterable[Array], names: Iterable[str]) -> dict[str, object]:
    """These columns of a collective: what all its arrays have; NULL where they differ."""
    columns = [array.columns for array in arrays]
    found: dict[str, object] = {}
    for name in names:
        values = {one.get(name) for one in columns}
        found[name] = values.pop() if len(values) == 1 else None
    return found


def sent(logical: Logical, shape: Shape | None, total: object) -> int | None:
    """An array's part of the wire bytes of its collective; of a windowed loop by its size."""
    if shape is None or shape.bytes is None:
        return None
    if logical.windowed is None:
        return wire_bytes(logical.logical_kind, shape.bytes, logical.groups)
    all_shapes = logical.shapes or ()
    whole = sum(one.bytes or 0 for one in all_shapes)
    return total * shape.bytes // whole if isinstance(total, int) and whole else None


def _fed(feed: Feed | None) -> dict[str, object]:
    if feed is None:
        return dict.fromkeys(("feeds", "feeds_kind", "feeds_operand", "feeds_name"))
    return {
        "feeds": feed.instr.id,
        "feeds_kind": feed.kind,
        "feeds_operand": feed.operand,
        "feeds_name": feed.instr.name,
    }
