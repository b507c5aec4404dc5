"""A whole module for Model Explorer: every instruction, nested as computations call each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hlo_lens.export.model_explorer import Incoming, Json, graph_node, graph_of, path_of
from hlo_lens.graph import instruction_graph
from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.present.cells import trips_text

if TYPE_CHECKING:
    from hlo_lens.analysis import CallSite, ModuleAnalysis
    from hlo_lens.program import Program

_MOST_DEEP = 64  # groups inside each other; a text may nest without end
_ELSEWHERE = "other computations"  # no instruction has a name with a space
_TAKES_ALL = frozenset(("fusion", "call", "async"))  # operand n is parameter n
_GIVES_BACK = frozenset(("fusion", "call", "async", "body", "branch"))


def module_graph(program: Program, module: Module) -> Json:
    """Every written instruction of a module as one graph.

    A computation with one caller stands in the group of that instruction, and the caller with it:
    operands lead on into the parameters, and the root leads back to the caller. What has several
    callers, or none, stands under "other computations"; `calls` of each caller leads there.
    """
    analysis = program.analysis(module)
    groups = _Groups(analysis)
    graph = instruction_graph(module)
    into, elements = _flow(module, graph)
    phases = dict(graph.nodes(data="phase"))
    nodes = []
    for computation in module.computations:
        names = analysis.full_op_names(computation)
        for instr in computation.instructions:
            id = instr.id
            given = {"phase": phases[id], "op_name": names[instr.index]}
            incoming = [*into.get(id, ()), *groups.handed(instr)]
            node = graph_node(instr, groups.namespace(instr), given, incoming, elements.get(id, ()))
            node["attrs"] += groups.elsewhere(instr)
            nodes.append(node)
    stage = program.stages[program.index(module)]
    about = {"module": module.name, "stage": stage, "file": module.filename}
    return graph_of(f"{module.name} ({stage})", nodes, {"": about, **dict(groups.facts())})


def _flow(
    module: Module, graph: Any
) -> tuple[dict[int, list[Incoming]], dict[int, set[tuple[int, ...]]]]:
    """What the text has each instruction take, operands in order and control predecessors behind
    them, and which elements of each are taken."""
    into: dict[int, list[Incoming]] = {}
    elements: dict[int, set[tuple[int, ...]]] = {}
    last = module.instruction_count  # no operand stands as far behind
    edges = [edge for edge in graph.edges(data=True) if edge[2]["kind"] != "call"]
    edges.sort(key=lambda edge: (edge[1], edge[2].get("operand", last)))
    for source, target, data in edges:
        taken = Incoming(module.instruction(source), "control", facts={"kind": "control"})
        if data["kind"] == "operand":
            taken = Incoming(taken.source, str(data["operand"]), data["element"])
            elements.setdefault(source, set()).add(taken.element)
        into.setdefault(target, []).append(taken)
    return into, elements


class _Groups:
    """Where computations stand, and what flows in and out of them."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self._analysis = analysis
        self._sites: dict[Instruction, list[CallSite]] = {}
        for site in analysis.call_sites:
            self._sites.setdefault(site.caller, []).append(site)
        self._loops = {loop.instr: loop for loop in analysis.loops}
        self._paths: dict[Computation, str] = {}
        self._inside: dict[Computation, CallSite] = {}  # computations in the group of their caller
        # Callers first; what calls itself is in no order, and has no one caller.
        for computation in (*analysis.graph.order, *analysis.module.computations):
            if computation not in self._paths:
                self._paths[computation] = self._place(computation)

    def _place(self, computation: Computation) -> str:
        """The namespace of a computation whose caller has one."""
        site = self._analysis.graph.only_caller(computation)
        if site is not None:
            group = self._group(site.caller)
            if site.kind in ("body", "condition"):
                group = path_of(group, site.kind)
            elif len(self._sites[site.caller]) > 1:
                group = path_of(group, computation.name)
            if group.count("/") < _MOST_DEEP:
                self._inside[computation] = site
                return group
        is_entry = computation is self._analysis.module.entry
        return "" if is_entry else path_of(_ELSEWHERE, computation.name)

    def namespace(self, instr: Instruction) -> str:
        """That of its computation, or of the group that it opens."""
        home = self._paths[instr.computation]
        opens = any(site.callee in self._inside for site in self._sites.get(instr, ()))
        return self._group(instr) if opens else home

    def _group(self, caller: Instruction) -> str:
        """The namespace that a caller opens: its name, and of a loop how often it runs."""
        loop = self._loops.get(caller)
        trips = "" if loop is None else f" {trips_text(loop)}"
        return path_of(self._paths[caller.computation], f"{caller.name}{trips}".rstrip())

    def handed(self, instr: Instruction) -> Iterator[Incoming]:
        """What reaches an instruction across the border of its group."""
        site = self._inside.get(instr.computation)
        if site is not None and instr.opcode == "parameter":
            yield from _arguments(site, instr)
        for site in self._sites.get(instr, ()):
            if site.callee in self._inside and site.kind in _GIVES_BACK:
                yield Incoming(site.callee.root, f"result of {site.callee.name}")

    def elsewhere(self, instr: Instruction) -> list[Json]:
        """The attribute that leads from a caller to the roots of what is not in its group."""
        callees = [site.callee for site in self._sites.get(instr, ())]
        roots = [str(one.root.id) for one in callees if one not in self._inside]
        return [{"key": "calls", "value": {"type": "node_ids", "nodeIds": roots}}] if roots else []

    def facts(self) -> Iterator[tuple[str, Mapping[str, str | None]]]:
        """What is known of the group of each computation, and of each caller of several."""
        for computation, path in self._paths.items():
            runs = self._analysis.executions(computation)
            site = self._inside.get(computation)
            callers = len(self._analysis.graph.callers(computation))
            facts = {
                "computation": computation.name,
                "called as": site.kind if site is not None else None,
                "call sites": str(callers) if site is None else None,
                "executions": str(runs.exact) if runs.exact is not None else None,
                "trips": runs.trips_kind,
            }
            if site is not None and path != self._group(site.caller):
                yield self._group(site.caller), {"opcode": site.caller.opcode}
            if path:
                yield path, facts


def _arguments(site: CallSite, parameter: Instruction) -> Iterator[Incoming]:
    """What a caller hands to a parameter of what it calls."""
    operands = site.caller.operands
    position: int | None = None
    if site.kind in _TAKES_ALL:
        position = parameter.parameter_number
    elif site.kind in ("body", "condition"):
        position = 0
    elif site.kind == "branch":
        position = 1 + site.caller.called.index(site.callee)
    if position is not None and position < len(operands) and not operands[position].implied:
        yield Incoming(operands[position], "0", facts={"argument of": site.caller.name})
    if site.kind == "body" and site.callee.root != parameter:
        yield Incoming(site.callee.root, "next iteration", facts={"next_iteration": "true"})
