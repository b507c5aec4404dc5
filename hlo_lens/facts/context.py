"""The common columns: where an instruction stands, in which phase, and how often it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hlo_lens.facts.columns import COMMON

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Computation, Instruction
    from hlo_lens.program import Program

_NAMES = tuple(column.name for column in COMMON)

# What all instructions of a computation share, held no longer than the analysis it comes from. A
# module of 64,000 instructions has a few thousand computations.
_Shared = tuple[int | None, str | None, int | None, int | None, int | None, int | None, str | None]
_shared: WeakKeyDictionary[ModuleAnalysis, dict[Computation, _Shared]] = WeakKeyDictionary()


def common(program: Program, module_index: int, instruction: Instruction) -> dict[str, object]:
    """Every common column of an instruction, by name; `id` is NULL, for the runner to fill."""
    return dict(zip(_NAMES, common_row(program, module_index, instruction), strict=True))


def common_row(program: Program, module_index: int, instruction: Instruction) -> tuple[object, ...]:
    """The common columns in the order of `COMMON`: the start of a row, for tables that are long.

    An instruction that is implied and not written stands where the one does that implies it.
    """
    analysis = program.analysis(program.modules[module_index])
    phase = analysis.phase(instruction)
    return (
        None,
        module_index,
        instruction.id,
        instruction.name,
        phase.phase,
        phase.phase_from,
        *_of_computation(analysis, instruction.computation),
        source_of(instruction),
        instruction.text_line,
    )


def source_of(instruction: Instruction) -> str | None:
    """Its `file:line`; None also where its metadata cannot be read: one bad line of a text must
    not empty a table."""
    try:
        return instruction.source
    except ValueError:
        return None


def _of_computation(analysis: ModuleAnalysis, computation: Computation) -> _Shared:
    known = _shared.setdefault(analysis, {})
    found = known.get(computation)
    if found is None:
        loop = analysis.loop(computation)
        runs = analysis.executions(computation)
        found = known[computation] = (
            None if loop is None else loop.instr.id,
            None if loop is None else loop.instr.name,
            analysis.loop_depth(computation),
            runs.exact,
            runs.minimum,
            runs.maximum,
            runs.trips_kind,
        )
    return found
