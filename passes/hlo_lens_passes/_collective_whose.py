"""What a collective moves: a parameter, a gradient, an activation, and of which parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import Value, trace
from hlo_lens.analysis.names import own_op_name
from hlo_lens.hlo import Instruction
from hlo_lens_passes._collective_flow import Path, Place
from hlo_lens_passes._collective_gathers import Key
from hlo_lens_passes._collective_logical import Logical
from hlo_lens_passes._collective_uses import Following
from hlo_lens_passes._collective_values import ARITHMETIC, CUTS, Made, Moved, Origin, made_of

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

# How many values are looked at for one that says which pass computes what is moved.
_MOST_PRODUCERS: Final = 24
_NAMED: Final = ("own", "caller")


def phases_in_front(analysis: ModuleAnalysis, values: Iterable[Value]) -> Iterator[str]:
    """The phases that the nearest names in front of values show, the nearest first."""
    waiting = list(values)
    seen: set[Place] = set()
    for value in waiting:  # grows while it is walked
        at = trace(analysis.graph, value, moves=CUTS)
        if (at.instr, at.path) in seen or len(seen) >= _MOST_PRODUCERS:
            continue
        seen.add((at.instr, at.path))
        found = analysis.phase(at.instr)
        named = found.phase if found.phase_from in _NAMED else None
        if named is not None:
            yield named
        # A sum, also over the iterations of a loop, may have the name of neither pass.
        if named is None or (named == "other" and at.instr.opcode in ARITHMETIC):
            waiting += [Value(operand, (), at.via) for operand in at.instr.operands]


@dataclass(frozen=True, slots=True)
class Owner:
    """What an array is (None where not known), the parameter of the entry that it
    belongs to, and what gives it."""

    moves: Literal["parameter", "gradient", "activation", "constant"] | None
    parameter: Instruction | None
    source: Instruction | None


class Owners:
    """Whose the values are that the collectives of a module move."""

    def __init__(
        self,
        analysis: ModuleAnalysis,
        following: Following,
        values: Sequence[tuple[Logical, Moved]],
        origins: Mapping[Key, Origin],
    ) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.following = following
        self._values = values
        self._origins = origins
        self._known: dict[Key, Made] = {}
        entry = analysis.module.entry
        found = (Instruction(entry, at) for at, op in enumerate(entry.opcodes) if op == "parameter")
        self._parameters = {one.parameter_number: one for one in found}

    @cached_property
    def _updated(self) -> dict[Path, int]:
        """By element of the entry's result, the parameter that it takes the place of."""
        try:
            aliases = self.analysis.module.input_output_alias
        except ValueError:  # nothing is known to be updated
            return {}
        return {one.output_index: one.parameter for one in aliases if not one.parameter_index}

    def owner(self, logical: Logical, moved: Moved, phase: str | None, phase_from: object) -> Owner:
        """Whose an array of a collective is; `phase` is that of the collective."""
        key = logical.instr, moved.number
        origin = self._origins.get(key)
        if origin is None:
            return self._computed(logical, moved, None, phase, phase_from)
        source, made = origin.value.instr, self._made(key, origin)
        if made.kind == "parameter":
            return Owner("parameter", made.of[0] if len(made.of) == 1 else None, made.of[0])
        if made.kind == "constant":
            return Owner("constant", None, source)
        if made.kind == "unknown":
            return Owner(None, None, source)
        return self._computed(logical, moved, source, phase, phase_from)

    def _made(self, key: Key, origin: Origin) -> Made:
        if key not in self._known:
            self._known[key] = made_of(self.graph, origin.value)
        return self._known[key]

    @cached_property
    def _fetched(self) -> frozenset[Instruction]:
        """The parameters that collectives fetch."""
        found: set[Instruction] = set()
        for logical, moved in self._values:
            key = logical.instr, moved.number
            origin = self._origins.get(key)
            made = None if origin is None else self._made(key, origin)
            if made is not None and made.kind == "parameter":
                found.update(made.of)
        return frozenset(found)

    def _computed(
        self,
        logical: Logical,
        moved: Moved,
        source: Instruction | None,
        phase: str | None,
        phase_from: object,
    ) -> Owner:
        windowed = logical.windowed
        if source is None and windowed is not None and windowed.matmuls:
            source = windowed.matmuls[0]
        # The name of several arrays in one collective is that of one of them.
        own = phase if phase_from in _NAMED and len(logical.shapes or ()) == 1 else None
        backward: bool | None = own == "bwd"
        if own not in ("fwd", "bwd", "remat"):
            updated = self._new_value(logical, moved)
            if updated is not None:
                return Owner("parameter", updated, source)
            backward = self._is_backward(moved)
            if backward is None and phase is not None:
                backward = phase == "bwd"
        if backward is False:
            return Owner("activation", None, source)
        reached = self.following.reached(moved)
        if reached.multiplied or not reached.outputs:
            return Owner("activation", None, source)
        if backward is None:
            return Owner(None, None, source)
        return Owner("gradient", self._of_gradient(reached.outputs), source)

    def _is_backward(self, moved: Moved) -> bool | None:
        """Whether the backward pass computes what is moved, by the nearest names in front of it;
        None where there are none."""
        values = [] if moved.source is None else [moved.source]
        phases = set(phases_in_front(self.analysis, values))
        return None if not phases else "bwd" in phases

    def _new_value(self, logical: Logical, moved: Moved) -> Instruction | None:
        """The parameter of which this gathers the new value: the result, only moved, takes the
        place of that."""
        if logical.logical_kind != "all-gather":
            return None
        numbers = {
            self._updated.get(use.path)
            for use in self.following.flow.uses(moved.results, CUTS)
            if use.position is None
        }
        number = numbers.pop() if len(numbers) == 1 else None
        return None if number is None else self._parameters.get(number)

    # -- the parameter of a gradient

    def _of_gradient(self, outputs: frozenset[Path]) -> Instruction | None:
        """The parameter that a gradient belongs to: the one of those that are replaced by results
        it gets into (weights and moments alike) that the model computes with. Where the program
        replaces none, the only one that has the shape of such a result."""
        if not self._updated:
            found = self._of_shape(outputs)
            return found[0] if len(found) == 1 else None
        numbers = sorted({self._updated[path] for path in outputs if path in self._updated})
        found = [one for n in numbers if (one := self._parameters.get(n)) is not None]
        for tells in (self._fetched.__contains__, self._is_taken, self._is_trained):
            if len(found) > 1:
                found = list(filter(tells, found)) or found
        return found[0] if len(found) == 1 else None

    def _of_shape(self, outputs: frozenset[Path]) -> list[Instruction]:
        result = shape_of(self.analysis.module.entry.root)
        shapes = set()
        for path in outputs:
            at = result
            for index in path:
                at = at.elements[index] if at is not None and index < len(at.elements) else None
            if at is not None and at.rank:
                shapes.add((at.dtype, at.dimensions))
        return [
            one
            for one in self._parameters.values()
            if (shape := shape_of(one)) is not None and (shape.dtype, shape.dimensions) in shapes
        ]

    def _is_taken(self, parameter: Instruction) -> bool:
        """Whether something takes a parameter that is not by its own name part of the update; that
        is sooner told than `_is_trained`."""
        return any(
            not own_op_name(user) or self.analysis.phase(user).phase != "other"
            for user in self._takers(parameter)
        )

    def _is_trained(self, parameter: Instruction) -> bool:
        """Whether more than the update of the step, which is of neither pass, takes a parameter: a
        loop, or what has another phase."""
        return any(
            user.opcode == "while" or self.analysis.phase(user).phase != "other"
            for user in self._takers(parameter)
        )

    def _takers(self, parameter: Instruction) -> list[Instruction]:
        taken = self.following.flow.uses(((parameter, ()),), CUTS, enter=False)
        return [use.instr for use in taken if use.position is not None]
