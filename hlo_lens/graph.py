"""Views of a module for networkx: the graph of its instructions and the graph of its calls.

`module` may be a Module, or for `instruction_graph` also one Computation. Both functions give a
`networkx.MultiDiGraph`; networkx is imported when one is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_lens.analysis.dataflow import tuple_index
from hlo_lens.hlo import Computation, Instruction, Module

if TYPE_CHECKING:
    import networkx as nx  # type: ignore[import-untyped]

    from hlo_lens.analysis import ModuleAnalysis

__all__ = ["call_graph", "instruction_graph"]

_Edge = tuple[int, int, dict[str, object]]


def instruction_graph(module: Module | Computation) -> nx.MultiDiGraph:
    """Instructions and what flows between them.

    Nodes are instruction ids (`Instruction.id`; names repeat between computations), one for each
    written instruction, with `name`, `computation` (its name), `opcode`, `shape` (as written),
    `phase` (None where not known) and `is_root`.

    Edges go from what comes first to what needs it, with `kind`:

    - `operand`: from an operand to its user, with `operand`, its position, and `element`, the
      tuple indices that `x#1` takes of it (`()`: all of it). One edge a position.
    - `control`: from a control predecessor.
    - `call`: in the graph of a module, from a calling instruction to the root of each computation
      it calls, with `call`: call, fusion, async, body, condition, branch, apply or custom_call.
    """
    import networkx as nx

    from hlo_lens.analysis import ModuleAnalysis

    computations = module.computations if isinstance(module, Module) else (module,)
    analysis = ModuleAnalysis(module if isinstance(module, Module) else module.module)
    graph = nx.MultiDiGraph(name=module.name)
    for computation in computations:
        graph.add_nodes_from(_nodes(analysis, computation))
        graph.add_edges_from(_edges(computation))
    for site in analysis.call_sites if isinstance(module, Module) else ():
        if site.callee.names:
            graph.add_edge(site.caller.id, site.callee.root.id, kind="call", call=site.kind)
    return graph


def _nodes(
    analysis: ModuleAnalysis, computation: Computation
) -> Iterator[tuple[int, dict[str, object]]]:
    phases = analysis.phases(computation)
    for index, name in enumerate(computation.names):
        yield (
            computation.first_id + index,
            {
                "name": name,
                "computation": computation.name,
                "opcode": computation.opcodes[index],
                "shape": computation.shape_texts[index],
                "phase": phases[index].phase,
                "is_root": index == computation.root_index,
            },
        )


def _edges(computation: Computation) -> Iterator[_Edge]:
    first = computation.first_id
    for index, tail in enumerate(computation.tails):
        for position, operand in enumerate(computation.operand_indices(index)):
            source, element = _written(computation, operand)
            if source is not None:
                data: dict[str, object] = {"operand": position, "element": element}
                yield first + source, first + index, {"kind": "operand", **data}
        if "control-predecessors" in tail:
            for before in Instruction(computation, index).control_predecessors:
                yield before.id, first + index, {"kind": "control"}


def _written(computation: Computation, operand: int) -> tuple[int | None, tuple[int, ...]]:
    """The written instruction under `x#1#0` and the indices taken; None for one without."""
    element: tuple[int, ...] = ()
    while operand < 0:
        index = tuple_index(Instruction(computation, operand))
        if index is None:
            return None, ()
        element = (index, *element)
        operand = computation.operand_indices(operand)[0]
    return operand, element


def call_graph(module: Module) -> nx.MultiDiGraph:
    """Computations and who calls whom.

    Nodes are names of computations, with `index` (position in the text), `instructions` (their
    number), `is_entry`, `executions`, `executions_min`, `executions_max` and `trips_kind` (see
    `hlo_lens.analysis.Executions`).

    Edges go from the computation of the caller to the callee, one a call site, with `kind` (as
    `call` above), `caller` (id of the calling instruction), and how often the callee runs each
    time the caller does: `multiplicity_min`, `multiplicity_max` (None: no bound) and
    `multiplicity`, None where the two differ; all three None where the text cannot say.
    """
    import networkx as nx

    from hlo_lens.analysis import ModuleAnalysis

    analysis = ModuleAnalysis(module)
    graph = nx.MultiDiGraph(name=module.name)
    for computation in module.computations:
        runs = analysis.executions(computation)
        graph.add_node(
            computation.name,
            index=computation.index,
            instructions=len(computation.names),
            is_entry=computation is module.entry,
            executions=runs.exact,
            executions_min=runs.minimum,
            executions_max=runs.maximum,
            trips_kind=runs.trips_kind,
        )
    for site in analysis.call_sites:
        bounds = analysis.multiplicity(site)
        least, most = (None, None) if bounds is None else bounds
        graph.add_edge(
            site.caller.computation.name,
            site.callee.name,
            kind=site.kind,
            caller=site.caller.id,
            multiplicity=least if least == most else None,
            multiplicity_min=least,
            multiplicity_max=most,
        )
    return graph
