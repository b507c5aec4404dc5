"""What a figure shows, before it is laid out: panels of nodes, edges and clusters, and its words.

Every node is a written instruction and every edge an operand path of the text; `Edge.through`
holds the instructions on it that are not drawn. Nothing here knows Graphviz, a table or a colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hlo_lens.hlo import Instruction

if TYPE_CHECKING:
    import networkx as nx  # type: ignore[import-untyped]

_TUPLES = frozenset(("get-tuple-element", "parameter", "tuple"))

ClusterKind = Literal["loop", "condition", "fusion", "call", "branch", "async", "pass", "boundary"]


@dataclass(frozen=True, slots=True)
class Node:
    """One instruction that is drawn.

    id: unique in the figure. roles: what it is to the rows that were selected; () for one that is
    drawn as their neighbour. selected: it was asked for. phase: of a training step, None where not
    known. family: what kind of work it is, as the view's data tells. notes: short texts to print
    with it.
    """

    id: str
    instr: Instruction
    roles: tuple[str, ...] = ()
    selected: bool = False
    phase: str | None = None
    family: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.instr.name


@dataclass(frozen=True, slots=True)
class Edge:
    """The value of `source` reaches `target`, both ids of nodes.

    operand: the position among the target's operands. element: the tuple indices that are taken of
    the source on the way. through: the instructions between that are not drawn, the source's side
    first; () where the source is itself the operand. next_iteration: the path goes round a loop, so
    the value is that of the iteration before. also: how many more operand positions of the target
    the source reaches by a path of its own.

    A tuple in between is a way to write an operand (`x#1` is one without), so `left_out` has the
    instructions of `through` that do more than make a tuple, take it apart or hand it on.
    """

    source: str
    target: str
    operand: int
    element: tuple[int, ...] = ()
    through: tuple[Instruction, ...] = ()
    next_iteration: bool = False
    also: int = 0

    @property
    def left_out(self) -> tuple[Instruction, ...]:
        return tuple(one for one in self.through if one.opcode not in _TUPLES)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A frame around nodes: a loop, a fusion, a called computation, the forward or backward pass, a
    checkpoint boundary.

    label: one line a text. nodes: ids of those directly in it. clusters: the frames inside.
    """

    id: str
    kind: ClusterKind
    label: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    clusters: tuple[Cluster, ...] = ()

    def all_nodes(self) -> Iterator[str]:
        """Ids of the nodes in it at any depth."""
        yield from self.nodes
        for inner in self.clusters:
            yield from inner.all_nodes()


@dataclass(frozen=True, slots=True)
class Panel:
    """What is drawn of one module.

    title: what stands above it where there are several. name, stage and file: of the module. about:
    what is known of where it comes from (compiler versions, target), as texts. total: written
    instructions of the module. left_out: why instructions near the drawn ones are not drawn → how
    many. notes: sentences that a reader must know, such as what was too far to follow. sha256: of
    the module's text. heading: what the view tells of the rows that are drawn, a line a row.
    """

    title: str
    name: str
    stage: str
    file: str | None
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple[Cluster, ...] = ()
    about: tuple[str, ...] = ()
    total: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sha256: str = ""
    heading: tuple[str, ...] = ()

    def graph(self) -> nx.MultiDiGraph:
        """The panel as a networkx graph.

        Nodes are `Instruction.id`, with `name`, `computation`, `opcode`, `shape`, `phase`, `family`
        (None where not known), `roles` and `clusters` (labels, outermost first) as tuples. Edges go
        from operand to user, with `operand`, `element`, `through` (names), `opcodes` (of those) and
        `next_iteration`.
        """
        import networkx as nx

        graph = nx.MultiDiGraph(name=self.name)
        around = dict(_around(self.clusters, ()))
        ids = {}
        for node in self.nodes:
            instr = ids[node.id] = node.instr
            graph.add_node(
                instr.id,
                name=instr.name,
                computation=instr.computation.name,
                opcode=instr.opcode,
                shape=instr.shape_text,
                phase=node.phase,
                family=node.family,
                roles=node.roles,
                clusters=around.get(node.id, ()),
            )
        for edge in self.edges:
            graph.add_edge(
                ids[edge.source].id,
                ids[edge.target].id,
                operand=edge.operand,
                element=edge.element,
                through=tuple(one.name for one in edge.through),
                opcodes=tuple(one.opcode for one in edge.through),
                next_iteration=edge.next_iteration,
            )
        return graph


def _around(
    clusters: tuple[Cluster, ...], outer: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for cluster in clusters:
        labels = (*outer, " ".join(cluster.label)) if cluster.label else outer
        yield from ((node, labels) for node in cluster.nodes)
        yield from _around(cluster.clusters, labels)
