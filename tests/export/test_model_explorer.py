"""Model Explorer JSON: it keeps to the published format, and every edge is a way of the text."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.export.model_explorer import collection_text, panel_graph
from hlo_lens.export.whole_module import module_graph
from hlo_lens.figure.model import Cluster, Edge, Node, Panel
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.cli.test_hostile_text import PAYLOADS
from tests.export.panels import TEXT, named, panel, program

Json = dict[str, Any]

SCHEMA = Path(__file__).parent / "model_explorer.schema.json"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# The TPU, CUDA, ROCm and CPU back ends, optimized and not.
WHOLE = (
    "demo/fsdp_train_step.opt.hlo",
    "hlo/remat/full-scanned/tpu-v6e-1",
    "hlo/remat/full-scanned/cpu",
    "hlo/remat/full-scanned/cuda-h100",
    "hlo/moe/ragged-grouped/rocm-gfx950",
)


def whole(text: str) -> Json:
    made = program(text)
    return module_graph(made, made.main)


def collection(*graphs: Json) -> Json:
    written: Json = json.loads(collection_text("label", graphs))
    return written


def check(written: Json) -> None:
    """The collection keeps to our schema of the published format, and within itself."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    jsonschema.validate(written, json.loads(SCHEMA.read_text()))
    names = [graph["id"] for graph in written["graphs"]]
    assert len(set(names)) == len(names)
    for graph in written["graphs"]:
        ids = [node["id"] for node in graph["nodes"]]
        assert len(set(ids)) == len(ids)
        edges = [edge for node in graph["nodes"] for edge in node["incomingEdges"]]
        assert {edge["sourceNodeId"] for edge in edges} <= set(ids)


def named_nodes(graph: Json) -> dict[str, Json]:
    return {f"{attrs(node)['computation']}.{attrs(node)['name']}": node for node in graph["nodes"]}


def attrs(node: Json) -> Json:
    return {pair["key"]: pair["value"] for pair in node["attrs"]}


def edges(graph: Json) -> Iterator[tuple[str, str, str]]:
    """(source, target, input) of all edges."""
    names = {node["id"]: name for name, node in named_nodes(graph).items()}
    for node in graph["nodes"]:
        for edge in node["incomingEdges"]:
            source, target = names[edge["sourceNodeId"]], names[node["id"]]
            yield source, target, edge["targetNodeInputId"]


# -- a selection ----------------------------------------------------------------------------------


def test_a_node_of_a_selection() -> None:
    module = parse(TEXT)
    node = named_nodes(panel_graph(panel(module)))["body.y"]
    assert (node["id"], node["label"]) == (str(named(module, "body", "y").id), "fusion")
    assert node["namespace"] == "while a|b, c/loop x 3"
    assert attrs(node) == {
        "kind": "kOutput",
        "calls": "%fused",
        "name": "y",
        "computation": "body",
        "shape": "f32[8,8]",
        "phase": "fwd",
        "family": "matmul",
        "roles": "dot, kernel",
        "op_name": "jit(f)/jvp(layer)/dot_general",
        "source": "layer.py:7",
        "line": "21",
    }


def test_a_contracted_edge_names_what_is_not_drawn() -> None:
    module = parse(TEXT)
    node = named_nodes(panel_graph(panel(module)))["main.row"]
    assert node["incomingEdges"] == [
        {
            "sourceNodeId": str(named(module, "body", "y").id),
            "sourceNodeOutputId": "0",
            "targetNodeInputId": "0",
            "metadata": {"through": "r, loop, out", "opcodes": "tuple, while, get-tuple-element"},
        }
    ]
    assert node["inputsMetadata"] == [
        {
            "id": "0",
            "attrs": [
                {"key": "__tensor_tag", "value": "out"},
                {
                    "key": "through",
                    "value": "r (tuple), loop (while), out (get-tuple-element)",
                },
            ],
        }
    ]


def test_ways_of_several_nodes_to_one_operand_are_told_apart() -> None:
    module = parse(TEXT)
    nodes = tuple(Node(one, named(module, "main", one)) for one in ("p", "zero", "loop"))
    through = (named(module, "main", "init"),)
    ways = (Edge("p", "loop", 0, (1,), through), Edge("zero", "loop", 0, (0,), through))
    node = named_nodes(panel_graph(Panel("", "m", "", None, nodes, ways)))["main.loop"]
    inputs = ["0 from p", "0 from zero"]
    assert [edge["targetNodeInputId"] for edge in node["incomingEdges"]] == inputs
    assert [one["id"] for one in node["inputsMetadata"]] == inputs


def test_a_way_round_a_loop_says_so() -> None:
    (edge,) = named_nodes(panel_graph(panel(parse(TEXT))))["body.y"]["incomingEdges"]
    assert edge["metadata"]["next_iteration"] == "true"
    assert edge["metadata"]["also"] == "1 more operands"


def test_an_element_is_an_output_with_its_shape() -> None:
    module = parse(TEXT)
    loop, row = Node("a", named(module, "main", "loop")), Node("b", named(module, "main", "row"))
    drawn = Panel("", "m", "", None, (loop, row), (Edge("a", "b", 0, (1,)),))
    nodes = named_nodes(panel_graph(drawn))
    assert nodes["main.row"]["incomingEdges"][0]["sourceNodeOutputId"] == "{1}"
    assert [
        (one["id"], one["attrs"][0]["value"]) for one in nodes["main.loop"]["outputsMetadata"]
    ] == [
        ("0", "(s32[], f32[8,8])"),
        ("{1}", "f32[8,8]"),
    ]


def test_outside_of_clusters_a_computation_is_the_namespace_and_the_entry_is_none() -> None:
    module = parse(TEXT)
    instrs = (named(module, "sum", "c"), named(module, "main", "p"))
    drawn = Panel("", "m", "", None, tuple(Node(one.name, one) for one in instrs), ())
    spaces = {name: node["namespace"] for name, node in named_nodes(panel_graph(drawn)).items()}
    assert spaces == {"sum.c": "sum", "main.p": ""}


def test_clusters_with_one_label_are_two_groups() -> None:
    module = parse(TEXT)
    drawn = panel(module)
    clusters = tuple(
        Cluster(f"c{number}", "fusion", ("same",), (node.id,))
        for number, node in enumerate(drawn.nodes)
    )
    graph = panel_graph(replace(drawn, clusters=clusters))
    assert [node["namespace"] for node in graph["nodes"]] == ["same", "same (c1)"]


def test_a_cluster_without_a_label_is_no_group() -> None:
    module = parse(TEXT)
    (inner,) = panel(module).clusters
    graph = panel_graph(
        replace(panel(module), clusters=(Cluster("e", "call", (), ("n1",), (inner,)),))
    )
    spaces = {name: node["namespace"] for name, node in named_nodes(graph).items()}
    assert spaces == {"body.y": "while a|b, c/loop x 3", "main.row": ""}
    assert graph == panel_graph(panel(module))


def test_the_graph_says_where_it_is_from() -> None:
    graph = panel_graph(panel(parse(TEXT)))
    assert graph["id"] == "one of two"
    assert graph["groupNodeAttributes"] == {
        "": {
            "module": "step",
            "stage": "after_optimizations",
            "file": "step.hlo",
            "sha256": "ab" * 32,
            "about": "jax 0.11; v6e",
            "instructions": "2 of 26",
            "left out": "2 scalar constants",
        },
        "while a|b, c": {"kind": "loop"},
        "while a|b, c/loop x 3": {"kind": "fusion"},
    }


# -- a whole module -------------------------------------------------------------------------------


def test_every_instruction_of_the_text_is_a_node() -> None:
    module = parse(TEXT)
    ids = [int(node["id"]) for node in whole(TEXT)["nodes"]]
    assert ids == list(range(module.instruction_count))


def test_computations_stand_in_the_group_of_their_one_caller() -> None:
    spaces = {name: node["namespace"] for name, node in named_nodes(whole(TEXT)).items()}
    assert spaces["main.p"] == ""
    assert spaces["main.loop"] == "loop x3"
    assert spaces["body.next"] == "loop x3/body"
    assert spaces["cond.n"] == "loop x3/condition"
    assert spaces["body.y"] == spaces["fused.d"] == "loop x3/body/y"
    assert spaces["sum.c"] == "other computations/sum"


def test_edges_are_the_operands_and_what_crosses_into_a_group() -> None:
    found = set(edges(whole(TEXT)))
    operands = {
        (f"{one.computation.name}.{operand.name}", f"{one.computation.name}.{one.name}", str(at))
        for computation in parse(TEXT).computations
        for one in computation.instructions
        for at, operand in enumerate(one.operands)
    }
    assert operands <= found
    assert found - operands == {
        ("main.out", "main.total", "control"),
        ("main.init", "body.t", "0"),
        ("main.init", "cond.t", "0"),
        ("body.r", "body.t", "next iteration"),
        ("body.r", "main.loop", "result of body"),
        ("body.x", "fused.p", "0"),
        ("body.x", "fused.q", "0"),
        ("fused.d", "body.y", "result of fused"),
    }


def test_a_shared_computation_is_linked_from_its_callers() -> None:
    nodes = named_nodes(whole(TEXT))
    root = nodes["sum.c"]["id"]
    for caller in ("main.row", "main.all", "main.total"):
        assert attrs(nodes[caller])["calls"] == {"type": "node_ids", "nodeIds": [root]}
    assert attrs(nodes["body.y"])["calls"] == "%fused"


def test_groups_say_how_often_they_run() -> None:
    groups = whole(TEXT)["groupNodeAttributes"]
    assert groups["loop x3"] == {"opcode": "while"}
    assert groups["loop x3/body"] == {
        "computation": "body",
        "called as": "body",
        "executions": "3",
        "trips": "inferred",
    }
    assert groups["other computations/sum"]["call sites"] == "3"
    assert groups[""]["module"] == "step"


def test_branches_take_their_own_operand() -> None:
    text = """HloModule m
%one (x: f32[2]) -> f32[2] {
  ROOT %x = f32[2] parameter(0)
}
%two (y: f32[3]) -> f32[2] {
  %y = f32[3] parameter(0)
  ROOT %s = f32[2] slice(%y), slice={[0:2]}
}
ENTRY %e (i: s32[], a: f32[2], b: f32[3]) -> f32[2] {
  %i = s32[] parameter(0)
  %a = f32[2] parameter(1)
  %b = f32[3] parameter(2)
  ROOT %c = f32[2] conditional(%i, %a, %b), branch_computations={%one, %two}
}
"""
    graph = whole(text)
    assert {("e.a", "one.x", "0"), ("e.b", "two.y", "0")} <= set(edges(graph))
    assert ("e.b", "one.x", "0") not in set(edges(graph))
    spaces = {name: node["namespace"] for name, node in named_nodes(graph).items()}
    assert (spaces["e.c"], spaces["one.x"], spaces["two.y"]) == ("c", "c/one", "c/two")


def test_what_is_implied_is_an_element_of_what_is_written() -> None:
    text = """HloModule m
ENTRY e {
  p = (f32[4], (f32[2], f32[3])) parameter(0)
  ROOT n = f32[3] negate(p#1#1)
}
"""
    nodes = named_nodes(whole(text))
    (edge,) = nodes["e.n"]["incomingEdges"]
    assert (edge["sourceNodeId"], edge["sourceNodeOutputId"]) == ("0", "{1,1}")
    assert nodes["e.p"]["outputsMetadata"][1] == {
        "id": "{1,1}",
        "attrs": [{"key": "shape", "value": "f32[3]"}],
    }


def test_a_text_that_calls_itself_has_an_end() -> None:
    text = """HloModule m
a {
  p = f32[] parameter(0)
  ROOT c = f32[] call(p), to_apply=b
}
b {
  q = f32[] parameter(0)
  ROOT d = f32[] call(q), to_apply=a
}
ENTRY e {
  x = f32[] parameter(0)
  ROOT r = f32[] call(x), to_apply=a
}
"""
    graph = whole(text)
    assert len(graph["nodes"]) == 6
    check(collection(graph))


def test_deep_calls_do_not_make_paths_without_end() -> None:
    parameter = "x = f32[] parameter(0)"
    calls = "".join(
        f"c{depth} {{\n {parameter}\n ROOT r = f32[] call(x), to_apply=c{depth - 1}\n}}\n"
        for depth in range(1, 300)
    )
    text = (
        f"HloModule m\nc0 {{\n ROOT {parameter}\n}}\n{calls}"
        f"ENTRY e {{\n {parameter}\n ROOT r = f32[] call(x), to_apply=c299\n}}\n"
    )
    graph = whole(text)
    assert len(graph["nodes"]) == 2 * 299 + 3
    assert max(node["namespace"].count("/") for node in graph["nodes"]) < 64


# -- the format -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", WHOLE)
def test_a_whole_module_keeps_to_the_format(fixture: str) -> None:
    made = load(FIXTURES / fixture)
    check(collection(*(module_graph(made, module) for module in made.modules)))


def test_panels_keep_to_the_format() -> None:
    module = parse(TEXT)
    one = panel_graph(panel(module))
    other = panel_graph(replace(panel(module), title="two of two"))
    check(collection(one, other))


def test_graphs_of_the_same_name_are_told_apart() -> None:
    written = collection(whole(TEXT), whole(TEXT), whole(TEXT))
    assert [graph["id"] for graph in written["graphs"]] == [
        "step (after_optimizations)",
        "step (after_optimizations) (2)",
        "step (after_optimizations) (3)",
    ]
    check(written)


@pytest.mark.parametrize("graph", ["panel", "module"])
def test_the_classes_of_model_explorer_take_it(graph: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it and what it imports are not ours
        graph_builder = pytest.importorskip(
            "model_explorer.graph_builder", reason="ai-edge-model-explorer is not installed"
        )
        dacite = pytest.importorskip("dacite", reason="dacite is not installed")
    written = collection(panel_graph(panel(parse(TEXT))) if graph == "panel" else whole(TEXT))
    for node in written["graphs"][0]["nodes"]:
        for edge in node["incomingEdges"]:
            edge.pop("metadata", None)  # these classes lack it, the user interface has it
    dacite.from_dict(graph_builder.GraphCollection, written, dacite.Config(strict=True))


def test_the_same_module_gives_the_same_text() -> None:
    assert collection(whole(TEXT)) == collection(whole(TEXT))


@pytest.mark.parametrize("payload", [*PAYLOADS.values(), "a/b;c", "___group___", "/", "\ud800"])
def test_hostile_text_stays_text(payload: str) -> None:
    made: Program = program("HloModule m\nENTRY e {\n ROOT p = f32[2] parameter(0)\n}\n")
    hostile = Panel(
        title=f"{payload}.",
        name=payload,
        stage=payload,
        file=payload,
        nodes=(Node("n", made.main.instruction(0), (payload,), family=payload),),
        edges=(),
        clusters=(Cluster("c", "loop", (payload,), ("n",)),),
        notes=(payload,),
    )
    written = collection(panel_graph(hostile))
    check(written)
    (graph,) = written["graphs"]
    assert all(text.isprintable() for text in attrs(graph["nodes"][0]).values())
    assert graph["nodes"][0]["namespace"].count("/") == 0
