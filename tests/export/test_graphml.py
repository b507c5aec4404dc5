"""GraphML of a panel: what networkx reads back is the panel, and no name of a file acts."""

from __future__ import annotations

import io
from dataclasses import replace

import networkx as nx
import pytest

from hlo_lens.export.graphml import as_graphml
from hlo_lens.figure.model import Cluster, Edge, Node, Panel
from hlo_lens.hlo import parse
from hlo_lens.present.quantities import visible
from tests.cli.test_hostile_text import ACTS, PAYLOADS
from tests.export.panels import TEXT, named, panel


def read(text: str) -> nx.MultiDiGraph:
    return nx.read_graphml(
        io.BytesIO(text.encode()), node_type=int, edge_key_type=int, force_multigraph=True
    )


def test_it_reads_back_as_the_graph_of_the_panel() -> None:
    module = parse(TEXT)
    graph = read(as_graphml(panel(module)))
    y, row = named(module, "body", "y").id, named(module, "main", "row").id
    assert dict(graph.nodes(data=True)) == {
        y: {
            "name": "y",
            "computation": "body",
            "opcode": "fusion",
            "shape": "f32[8,8]",
            "phase": "fwd",
            "family": "matmul",
            "roles": "dot, kernel",
            "clusters": "while a/b; c, loop × 3",
        },
        row: {"name": "row", "computation": "main", "opcode": "reduce", "shape": "f32[8]"},
    }
    assert list(graph.edges(keys=True, data=True)) == [
        (
            y,
            y,
            0,
            {
                "operand": 0,
                "through": "r, x",
                "opcodes": "tuple, get-tuple-element",
                "next_iteration": 1,
            },
        ),
        (
            y,
            row,
            1,
            {
                "operand": 0,
                "through": "r, loop, out",
                "opcodes": "tuple, while, get-tuple-element",
                "next_iteration": 0,
            },
        ),
    ]


def test_the_graph_says_where_it_is_from() -> None:
    graph = read(as_graphml(panel(parse(TEXT))))
    about = {name: text for name, text in graph.graph.items() if not name.endswith("_default")}
    assert about == {
        "name": "step",
        "stage": "after_optimizations",
        "file": "step.hlo",
        "sha256": "ab" * 32,
        "about": "jax 0.11, v6e",
        "left_out": "2 scalar constants",
    }


def test_a_cluster_without_a_label_is_not_said() -> None:
    module = parse(TEXT)
    drawn = panel(module)
    entry = Cluster("e", "call", (), ("n1",), drawn.clusters)
    assert as_graphml(replace(drawn, clusters=(entry,))) == as_graphml(drawn)


def test_two_edges_between_the_same_nodes_stay_two() -> None:
    module = parse(TEXT)
    drawn = panel(module)
    edges = (Edge("n0", "n1", 0), Edge("n0", "n1", 1, element=(1, 0)))
    graph = read(as_graphml(replace(drawn, edges=edges)))
    assert [data.get("element") for *_, data in graph.edges(data=True)] == [None, "1, 0"]


def test_the_same_panel_gives_the_same_text() -> None:
    assert as_graphml(panel(parse(TEXT))) == as_graphml(panel(parse(TEXT)))


@pytest.mark.parametrize("payload", [*PAYLOADS.values(), "]]>", "\x01\ufffe\ud800", "&lt;", '"'])
def test_hostile_text_stays_text(payload: str) -> None:
    module = parse("HloModule m\nENTRY e {\n ROOT p = f32[2] parameter(0)\n}\n")
    hostile = Panel(
        title=payload,
        name=payload,
        stage=payload,
        file=payload,
        nodes=(Node("n", module.instruction(0), (payload,), family=payload),),
        edges=(),
        clusters=(Cluster("c", "loop", (payload,), ("n",)),),
        about=(payload,),
        notes=(payload,),
    )
    text = as_graphml(hostile)
    assert not ACTS.search(text)
    graph = read(text)
    (data,) = (data for _, data in graph.nodes(data=True))
    for shown in (data["roles"], data["family"], data["clusters"], graph.graph["notes"]):
        assert shown == visible(payload)
