"""Frames of a figure: loops, fusions and calls around what they run, passes, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hlo_lens.analysis import CallSite, ModuleAnalysis
from hlo_lens.figure.model import Cluster, ClusterKind, Node
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.present.cells import trips_text

_KINDS: Mapping[str, ClusterKind] = {
    "body": "loop",
    "condition": "condition",
    "fusion": "fusion",
    "branch": "branch",
    "async": "async",
}
_PASSES: Mapping[str | None, str] = {"fwd": "forward", "bwd": "backward", "remat": "backward"}


@dataclass(slots=True)
class _Level:
    """What is drawn of one computation: nodes, and the computations called there."""

    nodes: list[Node] = field(default_factory=list)
    inner: list[Computation] = field(default_factory=list)


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
    top = [one for one in levels if _parent(analysis, one) not in levels]
    numbers = iter(range(1 << 30))

    def numbered() -> str:
        return f"{prefix}f{next(numbers)}"

    def made(computation: Computation) -> tuple[Cluster, str | None]:
        """The frame of a computation, and the pass that all in it belongs to."""
        level = levels[computation]
        inner = [made(one) for one in level.inner]
        cluster = _grouped(level.nodes, inner, boundaries, numbered)
        site = analysis.graph.only_caller(computation)
        kind: ClusterKind = _KINDS.get(site.kind, "call") if site is not None else "call"
        label = _label(analysis, computation, site, roles)
        its = {_PASSES.get(node.phase) for node in level.nodes} | {one for _, one in inner}
        return (
            replace(cluster, id=numbered(), kind=kind, label=label),
            its.pop() if len(its) == 1 else None,
        )

    found: list[Cluster] = []
    for computation in top:
        cluster, _ = made(computation)
        if computation is module.entry:
            # What the entry runs stands in no frame but the panel's: kind and label are not shown.
            found.insert(0, replace(cluster, label=()))
        else:
            found.append(cluster)
    return tuple(found)


def _levels(analysis: ModuleAnalysis, nodes: Iterable[Node]) -> dict[Computation, _Level]:
    levels: dict[Computation, _Level] = {}
    for node in nodes:
        levels.setdefault(node.instr.computation, _Level()).nodes.append(node)
    for computation in list(levels):
        inner = computation
        while (outer := _parent(analysis, inner)) is not None:
            known = outer in levels
            level = levels.setdefault(outer, _Level())
            if inner not in level.inner:
                level.inner.append(inner)
            if known:
                break
            inner = outer
    return levels


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
    told = [role for role in roles.get(caller, ()) if role]
    return (first, ", ".join(told)) if told else (first,)


def _grouped(
    nodes: Sequence[Node],
    inner: Sequence[tuple[Cluster, str | None]],
    boundaries: Sequence[tuple[str, frozenset[Instruction]]],
    numbered: Callable[[], str],
) -> Cluster:
    """Nodes and inner frames of one computation, in frames of the passes where it runs both.

    `inner`: each frame with its pass.
    """
    passes = [_PASSES.get(node.phase) for node in nodes]
    if not {"forward", "backward"} <= {*passes, *(its for _, its in inner)}:
        return _bounded(nodes, [one for one, _ in inner], boundaries, numbered)
    parts: list[Cluster] = []
    for name in ("forward", "backward"):
        own = [node for node, its in zip(nodes, passes, strict=True) if its == name]
        held = [one for one, its in inner if its == name]
        part = _bounded(own, held, boundaries, numbered)
        parts.append(replace(part, id=numbered(), kind="pass", label=(f"{name} pass",)))
    rest = [node.id for node, its in zip(nodes, passes, strict=True) if its is None]
    return Cluster("", "call", (), tuple(rest), (*parts, *(one for one, its in inner if not its)))


def _bounded(
    nodes: Sequence[Node],
    inner: Sequence[Cluster],
    boundaries: Sequence[tuple[str, frozenset[Instruction]]],
    numbered: Callable[[], str],
) -> Cluster:
    """Nodes and inner frames, with a frame around those of each boundary."""
    left = list(nodes)
    parts: list[Cluster] = []
    for label, inside in boundaries:
        held = [node for node in left if node.instr in inside]
        if held:
            left = [node for node in left if node.instr not in inside]
            ids = tuple(node.id for node in held)
            parts.append(Cluster(numbered(), "boundary", (label,), ids))
    return Cluster("", "call", (), tuple(node.id for node in left), (*parts, *inner))
