"""What is known of one module beyond its text, each part found once, when first asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from hlo_lens.analysis.calls import CallGraph, CallSite, written_computation
from hlo_lens.analysis.loops import Loop, Nesting
from hlo_lens.analysis.multiplicity import Bounds, Executions, executions, multiplicity
from hlo_lens.analysis.names import Front
from hlo_lens.analysis.phase import Naming, Phase
from hlo_lens.hlo import Computation, Instruction, Module

if TYPE_CHECKING:
    from hlo_lens.analysis.congruence import Congruence


class ModuleAnalysis:
    """Calls, loops, executions, names and phases of a module.

    Every question about a computation or an instruction is about one of this module; of what
    `OP-start` implies it is answered as for the start.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.graph = CallGraph(module)
        self._nesting = Nesting(self.graph)
        self._naming = Naming(self.graph)

    def __repr__(self) -> str:
        return f"<ModuleAnalysis of {self.module!r}>"

    @property
    def call_sites(self) -> tuple[CallSite, ...]:
        """Every call site, in text order of the callers."""
        return self.graph.sites

    def multiplicity(self, site: CallSite) -> Bounds | None:
        """(least, most) runs of the callee per run of the caller; most None: no bound. None
        where the text cannot say, as for a reducer. See `multiplicity.multiplicity`."""
        return multiplicity(self._nesting, site)

    def executions(self, computation: Computation) -> Executions:
        """How often a computation runs when the entry runs once: the sum over its call sites."""
        return self._executions[written_computation(computation).index]

    @cached_property
    def _executions(self) -> Sequence[Executions]:
        return executions(self._nesting)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Every while, in text order."""
        return self._nesting.loops

    def loop(self, computation: Computation) -> Loop | None:
        """The innermost loop whose body or condition holds this computation, called from there
        or from what is called there. None outside of loops and where its callers differ."""
        return self._nesting.places[written_computation(computation).index].loop

    def loop_depth(self, computation: Computation) -> int | None:
        """How many loops are around a computation; None where its callers differ and where
        nothing calls it."""
        return self._nesting.places[written_computation(computation).index].depth

    @cached_property
    def congruence(self) -> Congruence:
        """Which instructions compute the same value; see `congruence`."""
        from hlo_lens.analysis.congruence import Congruence

        return Congruence(self)

    def op_names(self, computation: Computation) -> Sequence[str | None]:
        """The op_name of each written instruction of a computation, by position."""
        return self._naming.op_names(computation)

    def full_op_name(self, instr: Instruction) -> str | None:
        """The op_name with those of the callers in front, as far as a `jit(` or `pjit(`.

        None where the instruction has no op_name. Where callers differ, its own op_name.
        """
        return self._naming.full_op_name(instr)

    def full_op_names(self, computation: Computation) -> Sequence[str | None]:
        """The full op_name of each written instruction of a computation, by position."""
        return self._naming.full_op_names(computation)

    def front(self, computation: Computation) -> Front | None:
        """What stands in front of the op_names in a computation; None where callers differ."""
        return self._naming.front(written_computation(computation))

    def phase(self, instr: Instruction) -> Phase:
        """The phase of a training step an instruction belongs to; see `phase`."""
        return self._naming.phase(instr)

    def phases(self, computation: Computation) -> Sequence[Phase]:
        """The phase of each written instruction of a computation, by position."""
        return self._naming.phases(computation)
