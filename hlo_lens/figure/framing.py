"""Frames of a figure: loops, fusions and calls around what they run, passes, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hlo_lens.analysis import CallSite, ModuleAnalysis
from hlo_lens.figure.model import Cluster, ClusterKind, Node
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.present.cells import trips_text
from hlo_lens.present.quantities import count_text

_KINDS: Mapping[str, ClusterKind] = {
    "body": "loop",
    "condition": "condition",
    "fusion": "fusion",
    "branch": "branch",
    "async": "async",
}
_PASSES: Mapping[str | None, str] = {"fwd": "forward", "bwd": "backward", "remat": "backward"}

# Frames inside each other. Programs have a handful; what is nested deeper stands beside the rest.
_MOST_NESTED = 24

T = TypeVar("T")


@dataclass(slots=True)
class _Level:
    """What is drawn of one computation: nodes, and the computations called there."""

    nodes: list[Node] = field(default_factory=list)
    inner: list[Computation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """The frame of a computation; the pass and the number of the boundary that all in it belongs
    to."""

    cluster: Cluster
    half: str | None
    boundary: int | None


def frames_around(analysis: ModuleAnalysis, drawn: Iterable[Instruction]) -> set[Instruction]:
    """The calls around what is drawn: they are frames, not nodes."""
    found: set[Instruction] = set()
    waiting = [instr.computation for instr in drawn]
    seen = set(waiting)
    for computation in waiting:  # grows while it is walked
        for site in analysis.graph.callers(computation):
            found.add(site.caller)
            if site.caller.computation not in seen:
                seen.add(site.caller.computation)
                waiting.append(site.caller.computation)
    return found


def clusters(
    analysis: ModuleAnalysis,
    nodes: Sequence[Node],
    boundaries: Sequence[tuple[str, frozenset[Instruction]]],
    roles: Mapping[Instruction, tuple[str, ...]],
    prefix: str,
) -> tuple[Cluster, ...]:
    """The frames around the nodes, nested as the calls are; in them, the forward and the backward
    pass where a computation holds both, and `boundaries`: a label with the instructions inside.

    `roles` of a call are told in its frame's label. `prefix` makes the ids unique in a figure.
    """
    module = analysis.module
    levels = _levels(analysis, nodes)
    inner_ones = {one for level in levels.values() for one in level.inner}
    top = [one for one in levels if one not in inner_ones]
    numbers = iter(range(1 << 30))

    def numbered() -> str:
        return f"{prefix}f{next(numbers)}"

    def made(computation: Computation, outermost: bool = False) -> _Part:
        level = levels[computation]
        inner = [made(one) for one in level.inner]
        boundary = None
        if not outermost:
            within = [_boundary(node, boundaries) for node in level.nodes]
            boundary = _one({*within, *(one.boundary for one in inner)})
        # A boundary around all of it is drawn around its frame.
        cluster = _grouped(level.nodes, inner, () if boundary is not None else boundaries, numbered)
        site = analysis.graph.only_caller(computation)
        kind: ClusterKind = _KINDS.get(site.kind, "call") if site is not None else "call"
        label = _label(analysis, computation, site, roles)
        if outermost and site is not None:
            label = (*label, _deep_text(analysis, computation))
        its = {*(_PASSES.get(node.phase) for node in level.nodes), *(one.half for one in inner)}
        return _Part(replace(cluster, id=numbered(), kind=kind, label=label), _one(its), boundary)

    found: list[Cluster] = []
    for computation in top:
        cluster = made(computation, outermost=True).cluster
        if computation is module.entry:
            # What the entry runs stands in no frame but the panel's: kind and label are not shown.
            found.insert(0, replace(cluster, label=()))
        else:
            found.append(cluster)
    return tuple(found)


def _one(values: set[T | None]) -> T | None:
    """The one value there is, None where there are several."""
    return next(iter(values)) if len(values) == 1 else None


def _boundary(node: Node, boundaries: Sequence[tuple[str, frozenset[Instruction]]]) -> int | None:
    """The number of the first boundary around a node."""
    return next((at for at, (_, inside) in enumerate(boundaries) if node.instr in inside), None)


def _levels(analysis: ModuleAnalysis, nodes: Iterable[Node]) -> dict[Computation, _Level]:
    levels: dict[Computation, _Level] = {}
    for node in nodes:
        levels.setdefault(node.instr.computation, _Level()).nodes.append(node)
    depths = _depths(analysis) if levels else {}
    for computation in list(levels):
        inner = computation
        while (outer := _parent(analysis, inner)) is not None and depths.get(
            inner, 1
        ) % _MOST_NESTED:
            known = outer in levels
            level = levels.setdefault(outer, _Level())
            if inner not in level.inner:
                level.inner.append(inner)
            if known:
                break
            inner = outer
    return levels


def _depths(analysis: ModuleAnalysis) -> dict[Computation, int]:
    """How many calls each computation stands in, as far as it has one caller."""
    depths: dict[Computation, int] = {}
    for computation in analysis.graph.order:
        outer = _parent(analysis, computation)
        depths[computation] = 0 if outer is None else depths[outer] + 1
    return depths


def _deep_text(analysis: ModuleAnalysis, computation: Computation) -> str:
    """How many calls are around the one that calls it."""
    calls, outer = -1, _parent(analysis, computation)
    while outer is not None:
        calls, outer = calls + 1, _parent(analysis, outer)
    return f"inside {count_text(calls)} more calls"


def _parent(analysis: ModuleAnalysis, computation: Computation) -> Computation | None:
    site = analysis.graph.only_caller(computation)
    return None if site is None else site.caller.computation


def _label(
    analysis: ModuleAnalysis,
    computation: Computation,
    site: CallSite | None,
    roles: Mapping[Instruction, tuple[str, ...]],
) -> tuple[str, ...]:
    """The caller and what it does, on one line; the roles of the caller on another."""
    if site is None:
        callers = len(analysis.graph.callers(computation))
        return (f"computation %{computation.name}, called at {callers} places",)
    caller = site.caller
    if site.kind in ("body", "condition"):
        loop = next((one for one in analysis.loops if one.instr == caller), None)
        trips = trips_text(loop) if loop is not None else ""
        first = f"%{caller.name} while {trips}".rstrip()
        if site.kind == "condition":
            first += ", its condition"
    else:
        first = f"%{caller.name} {caller.opcode}"
    told = [role for role in roles.get(caller, ()) if role not in ("", caller.opcode)]
    return (first, ", ".join(told)) if told else (first,)


def _grouped(
    nodes: Sequence[Node],
    inner: Sequence[_Part],
    boundaries: Sequence[tuple[str, frozenset[Instruction]]],
    numbered: Callable[[], str],
) -> Cluster:
    """Nodes and inner frames of one computation, in frames of the passes where it runs both."""
    passes = [_PASSES.get(node.phase) for node in nodes]
    if not {"forward", "backward"} <= {*passes, *(one.half for one in inner)}:
        return _bounded(nodes, inner, boundaries, numbered)
    parts: list[Cluster] = []
    for name in ("forward", "backward"):
        own = [node for node, its in zip(nodes, passes, strict=True) if its == name]
        held = [one for one in inner if one.half == name]
        part = _bounded(own, held, boundaries, numbered)
        parts.append(replace(part, id=numbered(), kind="pass", label=(f"{name} pass",)))
    own = [node for node, its in zip(nodes, passes, strict=True) if its is None]
    rest = _bounded(own, [one for one in inner if one.half is None], boundaries, numbered)
    return replace(rest, clusters=(*parts, *rest.clusters))


def _bounded(
    nodes: Sequence[Node],
    inner: Sequence[_Part],
    boundaries: Sequence[tuple[str, frozenset[Instruction]]],
    numbered: Callable[[], str],
) -> Cluster:
    """Nodes and inner frames, with a frame around those of each boundary."""
    parts: list[Cluster] = []
    for at, (label, _) in enumerate(boundaries):
        held = tuple(node.id for node in nodes if _boundary(node, boundaries) == at)
        frames = tuple(one.cluster for one in inner if one.boundary == at)
        if held or frames:
            parts.append(Cluster(numbered(), "boundary", (label,), held, frames))
    left = tuple(node.id for node in nodes if _boundary(node, boundaries) is None)
    rest = (one.cluster for one in inner if not boundaries or one.boundary is None)
    return Cluster("", "call", (), left, (*parts, *rest))
