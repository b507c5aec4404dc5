"""The networkx views: documented nodes and edges."""

from __future__ import annotations

from hlo_lens.graph import call_graph, instruction_graph
from hlo_lens.hlo import parse
from tests.analysis.loop_texts import loop_text

TEXT = """HloModule m
f {
  p = (f32[4], f32[4]) parameter(0)
  ROOT a = f32[4] add(p#0, p#1)
}
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] negate(x), metadata={op_name="jit(f)/jvp(g)/neg"}
  t = (f32[4], f32[4]) tuple(x, x), control-predecessors={y}
  ROOT r = f32[4] call(t), to_apply=f
}
"""


def test_nodes_of_the_instruction_graph() -> None:
    module = parse(TEXT)
    graph = instruction_graph(module)
    assert list(graph.nodes) == list(range(module.instruction_count))
    assert graph.nodes[3] == {
        "name": "y",
        "computation": "main",
        "opcode": "negate",
        "shape": "f32[4]",
        "phase": "fwd",
        "is_root": False,
    }


def test_edges_of_the_instruction_graph() -> None:
    graph = instruction_graph(parse(TEXT))
    names = dict(graph.nodes(data="name"))
    edges = [(names[a], names[b], data) for a, b, data in graph.edges(data=True)]
    assert edges == [
        ("p", "a", {"kind": "operand", "operand": 0, "element": (0,)}),
        ("p", "a", {"kind": "operand", "operand": 1, "element": (1,)}),
        ("x", "y", {"kind": "operand", "operand": 0, "element": ()}),
        ("x", "t", {"kind": "operand", "operand": 0, "element": ()}),
        ("x", "t", {"kind": "operand", "operand": 1, "element": ()}),
        ("y", "t", {"kind": "control"}),
        ("t", "r", {"kind": "operand", "operand": 0, "element": ()}),
        ("r", "a", {"kind": "call", "call": "call"}),
    ]


def test_the_graph_of_one_computation() -> None:
    module = parse(TEXT)
    graph = instruction_graph(module.computations["f"])
    assert sorted(graph.nodes) == [0, 1]
    assert {kind for *_, kind in graph.edges(data="kind")} == {"operand"}


def test_call_graph() -> None:
    module = parse(loop_text())
    graph = call_graph(module)
    assert set(graph.nodes) == {"body", "cond", "main"}
    assert graph.nodes["body"] == {
        "index": 0,
        "instructions": 7,
        "is_entry": False,
        "executions": 10,
        "executions_min": 10,
        "executions_max": 10,
        "trips_kind": "inferred",
    }
    caller = module.entry.root.id
    assert list(graph.edges(data=True)) == [
        ("main", "cond", edge("condition", caller, 11)),
        ("main", "body", edge("body", caller, 10)),
    ]


def edge(kind: str, caller: int, times: int) -> dict[str, object]:
    return {
        "kind": kind,
        "caller": caller,
        "multiplicity": times,
        "multiplicity_min": times,
        "multiplicity_max": times,
    }


def test_an_unknown_multiplicity() -> None:
    graph = call_graph(parse(loop_text(init="copy(b)")))
    (data,) = graph.get_edge_data("main", "body").values()
    assert (data["multiplicity"], data["multiplicity_min"], data["multiplicity_max"]) == (
        None,
        0,
        None,
    )
