"""Slices at a device's own place: what each device keeps of a value that all of them have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import MOVES, Value, trace
from hlo_lens.hlo import Instruction
from hlo_lens_passes._collective_flow import Flow, Place

Offset = Instruction | Literal["number", "other"]
"""What says where a slice begins: what gives the number of the device, a constant, another value.
"""

_DEVICE: Final = frozenset(("partition-id", "replica-id"))
_FORMS: Final = MOVES | {"transpose"}
# An offset is made of a few scalars.
_MOST_SCALARS: Final = 256


class OwnPlaces:
    """Which dynamic-slices of a module begin where the number of the device says."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.graph = flow.graph
        self._known: dict[Instruction, Instruction | None] = {}
        self._offsets: dict[Place, Offset] = {}

    def is_own(self, cut: Instruction) -> bool:
        """Whether a dynamic-slice takes the part of this device, and nothing else says which."""
        return self.device(cut) is not None

    def device(self, cut: Instruction) -> Instruction | None:
        """The partition-id or replica-id by which a dynamic-slice takes the part of this device;
        None where something else says, or has a say, which part it takes."""
        if cut not in self._known:
            offsets = [self._offset(Value(operand)) for operand in cut.operands[1:]]
            devices = [offset for offset in offsets if isinstance(offset, Instruction)]
            self._known[cut] = devices[0] if devices and "other" not in offsets else None
        return self._known[cut]

    def kept(self, place: Place) -> tuple[Instruction, ...]:
        """The slices that are all that is used of a value, each at the device's own place; () where
        it is used otherwise."""
        taken = self.flow.uses((place,), _FORMS)
        if any(use.instr.opcode != "dynamic-slice" or use.position != 0 for use in taken):
            return ()
        cuts = tuple(dict.fromkeys(use.instr for use in taken))
        return cuts if all(map(self.is_own, cuts)) else ()

    def fraction(self, cuts: Iterable[Instruction], whole: int | None) -> float | None:
        """The share of `whole` elements that slices take, slices of one place counted once; None
        where the text does not say."""
        kept: dict[object, int] = {}
        for cut in cuts:
            shape = shape_of(cut)
            count = None if shape is None else shape.element_count
            if shape is None or count is None:
                return None
            ends = [trace(self.graph, Value(operand)) for operand in cut.operands[1:]]
            begins = tuple(
                end.instr.argument_text if end.instr.opcode == "constant" else (end.instr, end.path)
                for end in ends
            )
            kept[shape.dimensions, begins] = count
        return sum(kept.values()) / whole if whole else None

    def _offset(self, value: Value) -> Offset:
        """What says where a slice begins in one dimension."""
        first = trace(self.graph, value)
        key = first.instr, first.path
        if not first.via and key in self._offsets:
            return self._offsets[key]
        found = self._find_offset(first)
        if not first.via:
            self._offsets[key] = found
        return found

    def _find_offset(self, first: Value) -> Offset:
        waiting, seen = [first], set[Place]()
        own: Instruction | None = None
        computed = False
        for at in waiting:  # grows while it is walked
            end = trace(self.graph, at)
            if (end.instr, end.path) in seen:
                continue
            seen.add((end.instr, end.path))
            opcode = end.instr.opcode
            if opcode in _DEVICE:
                own = end.instr
            elif opcode == "constant":
                shape = shape_of(end.instr)
                computed |= shape is None or bool(shape.rank)
            elif opcode == "parameter" or not end.instr.operands or len(seen) > _MOST_SCALARS:
                return "other"
            else:
                waiting += (Value(operand, (), end.via) for operand in end.instr.operands)
        if own is not None:
            return own
        return "other" if computed else "number"
