"""Model Explorer JSON: a selection as a graph that Google's viewer of large graphs opens.

The format is `GraphCollection` of ai-edge-model-explorer 0.1.34, as its `graph_builder.py` has it;
`metadata` of an edge is in `input_graph.ts` of its user interface alone.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hlo_lens.facts.context import source_of
from hlo_lens.hlo import Instruction
from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from hlo_lens.figure.model import Cluster, Edge, Panel

Json = dict[str, Any]
Element = tuple[int, ...]

_LONGEST = 300  # of the shape of a tuple, or of an attribute such as all groups of a collective
_SHOWN_ELSEWHERE = frozenset(("metadata", "backend_config"))
# The viewer draws labels in a font that has ASCII alone. A namespace is a path, and of several,
# set apart by semicolons, the last is taken.
_DRAWN = str.maketrans(
    {"×": "x", "→": "->", "–": "-", "−": "-", "…": "...", "≤": "<=", "≥": ">=", "·": "-"}
)
_IN_PATH = str.maketrans({"/": "|", ";": ","})


@dataclass(frozen=True, slots=True)
class Incoming:
    """A value that reaches a node: `element` of `source`, as its input `input`. `facts`: what else
    is known of the way."""

    source: Instruction
    input: str
    element: Element = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def collection_text(label: str, graphs: Iterable[Json]) -> str:
    """Graphs as one collection, on one line: a large module is for a viewer, not a reader. Of
    graphs of the same name, the second gets a number, since their names tell them apart."""
    seen: Counter[str] = Counter()
    named = []
    for graph in graphs:
        seen[graph["id"]] += 1
        count = seen[graph["id"]]
        named.append(graph if count == 1 else graph | {"id": f"{graph['id']} ({count})"})
    # `json.dump`, which writes bits, takes several times as long.
    return json.dumps({"label": visible(label), "graphs": named}, separators=(",", ":")) + "\n"


def panel_graph(panel: Panel) -> Json:
    """A panel as a graph.

    Ids are those of the instructions in the tables, so that node data of a query fits. A node's
    namespace is the clusters around it, else its computation where that is not the entry. Inputs
    are positions of operands, with the source where several nodes reach one by ways that are not
    drawn. Such an edge names the instructions on its way, and so does the input of its target.
    """
    instrs = {node.id: node.instr for node in panel.nodes}
    into: dict[str, list[Edge]] = defaultdict(list)
    elements: dict[str, set[Element]] = defaultdict(set)
    for edge in panel.edges:
        into[edge.target].append(edge)
        elements[edge.source].add(edge.element)
    groups = list(_groups(panel.clusters, ""))
    around = {node: path for path, cluster in groups for node in cluster.nodes}
    nodes = []
    for node in panel.nodes:
        home = node.instr.computation
        outside = "" if home.is_entry else path_of("", home.name)
        given = {
            "phase": node.phase,
            "family": node.family,
            "roles": ", ".join(node.roles),
            "notes": "; ".join(node.notes),
            "op_name": node.instr.op_name,
        }
        ways = list(zip(into[node.id], _incoming(into[node.id], instrs), strict=True))
        incoming = [one for _, one in ways]
        drawn = graph_node(
            node.instr, around.get(node.id, outside), given, incoming, elements[node.id]
        )
        inputs = [_input(node.instr, edge, one.input) for edge, one in ways]
        nodes.append(drawn | {"inputsMetadata": inputs})
    facts = {path: {"kind": cluster.kind} for path, cluster in groups if cluster.label}
    return graph_of(panel.title or panel.name, nodes, {"": _about(panel), **facts})


def graph_of(name: str, nodes: list[Json], groups: Mapping[str, Mapping[str, str | None]]) -> Json:
    """A graph; `groups`: namespace → what is known of it, "" for the graph itself."""
    return {
        "id": visible(name),
        "nodes": nodes,
        "groupNodeAttributes": {path: _known(facts) for path, facts in groups.items()},
        # A loop around one instruction that is drawn is a loop still.
        "layoutConfigs": {"keepLayersWithASingleChild": True},
    }


def graph_node(
    instr: Instruction,
    namespace: str,
    given: Mapping[str, str | None],
    incoming: Iterable[Incoming],
    elements: Collection[Element],
) -> Json:
    """An instruction as a node. `given`: attributes beside those that its text has. `elements`: the
    tuple indices that edges take of it; () for the whole."""
    own = {
        "name": instr.name,
        "computation": instr.computation.name,
        "shape": instr.shape_text,
        **given,
        "value": instr.argument_text if instr.opcode == "constant" else None,
        "source": source_of(instr),
        "line": str(instr.text_line),
    }
    attributes = _known({**dict(_attributes(instr)), **own})
    return {
        "id": str(instr.id),
        "label": visible(instr.opcode),
        "namespace": namespace,
        "attrs": _pairs(attributes),
        "incomingEdges": [_edge(one) for one in incoming],
        "outputsMetadata": list(_outputs(instr, elements)),
    }


def path_of(outer: str, name: str) -> str:
    """The namespace of a group called `name` inside `outer`."""
    drawn = visible(name.translate(_DRAWN)).translate(_IN_PATH) or "_"
    return f"{outer}/{drawn}" if outer else drawn


def _groups(clusters: Iterable[Cluster], outer: str) -> Iterator[tuple[str, Cluster]]:
    """(namespace, cluster) of all clusters. Two with the same label are two groups; one without is
    none, and what is in it stands in the group around."""
    taken: set[str] = set()
    for cluster in clusters:
        label = " ".join(cluster.label)
        path = path_of(outer, label) if label else outer
        if label and path in taken:
            path = path_of(outer, f"{label} ({cluster.id})")
        taken.add(path)
        yield path, cluster
        yield from _groups(cluster.clusters, path)


def _incoming(edges: Sequence[Edge], instrs: Mapping[str, Instruction]) -> Iterator[Incoming]:
    reached = Counter(edge.operand for edge in edges)
    for edge in edges:
        source = instrs[edge.source]
        several = f" from {source.name}" if reached[edge.operand] > 1 else ""
        facts = {
            "through": ", ".join(one.name for one in edge.through),
            "opcodes": ", ".join(one.opcode for one in edge.through),
            "next_iteration": "true" if edge.next_iteration else "",
            "also": f"{edge.also} more operands" if edge.also else "",
        }
        yield Incoming(source, f"{edge.operand}{several}", edge.element, _known(facts))


def _input(instr: Instruction, edge: Edge, id: str) -> Json:
    """What the viewer shows of an input: the operand as written, and the way that is not drawn."""
    operands = instr.operands
    facts = {
        "__tensor_tag": operands[edge.operand].name if edge.operand < len(operands) else None,
        "through": ", ".join(f"{one.name} ({one.opcode})" for one in edge.through),
    }
    return {"id": id, "attrs": _pairs(_known(facts))}


def _outputs(instr: Instruction, elements: Collection[Element]) -> Iterator[Json]:
    for element in sorted({(), *elements}):
        shape = instr.shape_text if not element else _shape_at(instr, element)
        if shape:
            yield {"id": _output(element), "attrs": _pairs(_known({"shape": shape}))}


def _shape_at(instr: Instruction, element: Element) -> str:
    try:
        shape = instr.shape
        for index in element:
            shape = shape.elements[index]
    except (ValueError, IndexError):  # the text says otherwise, or nothing that can be read
        return ""
    return str(shape)


def _output(element: Element) -> str:
    """`0` for the whole value; an element as XLA prints a ShapeIndex: `{1,0}`."""
    return f"{{{','.join(map(str, element))}}}" if element else "0"


def _edge(one: Incoming) -> Json:
    edge: Json = {
        "sourceNodeId": str(one.source.id),
        "sourceNodeOutputId": _output(one.element),
        "targetNodeInputId": one.input,
    }
    return edge | {"metadata": dict(one.facts)} if one.facts else edge


def _attributes(instr: Instruction) -> Iterator[tuple[str, str]]:
    """The attributes of the text, but for those that are said otherwise or are no reading."""
    try:
        attributes = instr.attributes
    except ValueError:  # one bad line of a text must not lose the graph
        return
    for name, text in attributes.items():
        if name not in _SHOWN_ELSEWHERE:
            yield name, text


def _about(panel: Panel) -> dict[str, str | None]:
    return {
        "module": panel.name,
        "stage": panel.stage,
        "file": panel.file,
        "sha256": panel.sha256,
        "about": "; ".join(panel.about),
        "instructions": f"{len(panel.nodes)} of {panel.total}" if panel.total else None,
        "left out": ", ".join(f"{count} {why}" for why, count in sorted(panel.left_out.items())),
        "notes": " ".join(panel.notes),
    }


def _known(facts: Mapping[str, str | None]) -> dict[str, str]:
    """Those that say something, on one line each, and none without end."""
    return {name: _cut(visible(text)) for name, text in facts.items() if text}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"


def _pairs(facts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in facts.items()]
