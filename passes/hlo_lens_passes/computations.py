"""The computations and call_sites tables: who calls what, how, and how often it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Column, PassResult, Table, common_row

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Computation
    from hlo_lens.program import Program

_KINDS: Final = (
    "call", "fusion", "async", "body", "condition", "branch", "apply", "custom_call",
)  # fmt: skip
_COMMON: Final = {column.name: column for column in COMMON}

COMPUTATIONS = Table(
    "computations",
    "a computation of the text",
    (
        _COMMON["id"],
        _COMMON["module"],
        Column("name", "text", "volatile", "name of the computation, without the leading %"),
        Column(
            "kind",
            "enum",
            "identity",
            "how it is called; `several` where its callers differ, `none` where nothing calls it",
            values=("entry", *_KINDS, "several", "none"),
        ),
        Column("callers", "int", "structural", "number of call sites that call it"),
        Column("instructions", "int", "measure", "number of instructions it holds"),
        Column("root", "ref", "volatile", "its root; NULL where the text stops before it"),
        Column("execution_thread", "text", "structural", "thread it runs on; NULL: the main one"),
        *(
            _COMMON[name]
            for name in (
                "loop", "loop_name", "loop_depth", "executions", "executions_min",
                "executions_max", "trips_kind", "text_line",
            )
        ),
    ),
)  # fmt: skip

CALL_SITES = Table(
    "call_sites",
    "a call: an instruction and one computation it calls; the common columns are the caller's",
    (
        *COMMON,
        Column("caller", "text", "volatile", "computation the calling instruction stands in"),
        Column("callee", "text", "volatile", "computation it calls"),
        Column("callee_id", "int", "volatile", "row of the callee in computations"),
        Column(
            "kind",
            "enum",
            "identity",
            "body and condition of a while, branch of a conditional; apply: to elements, as a"
            " reducer or comparator",
            values=_KINDS,
        ),
        Column(
            "multiplicity",
            "int",
            "measure",
            "times the callee runs each time the caller does; NULL where the bounds differ, and"
            " for what is applied to elements",
            "times",
        ),
        Column("multiplicity_min", "int", "measure", "least times", "times"),
        Column("multiplicity_max", "int", "measure", "most times; NULL: no bound", "times"),
    ),
)


class ComputationsPass:
    """One row a computation, and one a call site, in text order."""

    __slots__ = ()

    name: Final = "computations"
    tables: Final = (COMPUTATIONS, CALL_SITES)
    requires: Final = ()
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        return PassResult({"computations": _computations(program), "call_sites": _sites(program)})


def _computations(program: Program) -> Iterator[tuple[object, ...]]:
    row = 0
    for position, module in enumerate(program.modules):
        analysis = program.analysis(module)
        for computation in module.computations:
            loop = analysis.loop(computation)
            runs = analysis.executions(computation)
            count = len(computation.names)
            yield (
                row,
                position,
                computation.name,
                _kind(analysis, computation),
                len(analysis.graph.callers(computation)),
                count,
                computation.root.id if count else None,
                computation.execution_thread,
                None if loop is None else loop.instr.id,
                None if loop is None else loop.instr.name,
                analysis.loop_depth(computation),
                runs.exact,
                runs.minimum,
                runs.maximum,
                runs.trips_kind,
                computation.text_line,
            )
            row += 1


def _kind(analysis: ModuleAnalysis, computation: Computation) -> str:
    if computation is computation.module.entry:
        return "entry"
    kinds = {site.kind for site in analysis.graph.callers(computation)}
    if len(kinds) > 1:
        return "several"
    return kinds.pop() if kinds else "none"


def _sites(program: Program) -> Iterator[tuple[object, ...]]:
    first = 0
    for position, module in enumerate(program.modules):
        analysis = program.analysis(module)
        for site in analysis.call_sites:
            bounds = analysis.multiplicity(site)
            least, most = (None, None) if bounds is None else bounds
            yield (
                *common_row(program, position, site.caller),
                site.caller.computation.name,
                site.callee.name,
                first + site.callee.index,
                site.kind,
                least if least == most else None,
                least,
                most,
            )
        first += len(module.computations)


PASS = ComputationsPass()
