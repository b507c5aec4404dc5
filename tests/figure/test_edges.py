"""Every edge of a figure is an operand path of the text: each is walked, on fixtures and dumps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.figure import Edge, Panel, draw, views, views_with_rows
from hlo_lens.program import Program, load
from tests.figure.texts import drawn, find
from tests.figure.walking import Feeds, seams, wrong_steps
from tests.shared import SHARED, needs_shared

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"
CASES = sorted(
    next(iter(sorted(case.iterdir()))) for group in FIXTURES.iterdir() for case in group.iterdir()
)


def edges_are_paths(panel: Panel) -> int:
    """Walk every edge of the panel; how many there are."""
    if not panel.nodes:
        return 0
    module = panel.nodes[0].instr.computation.module
    feeds, through = Feeds(module), seams(module)
    for edge in panel.edges:
        assert not list(wrong_steps(panel, edge, feeds, through)), edge
    return len(panel.edges)


def graphs(program: Program) -> Iterator[Panel]:
    """What each named view with rows draws of a program."""
    facts = Facts(program)
    known = views()
    for name in views_with_rows(facts):
        if known.views[name].kind == "graph":
            yield from draw(facts, view=name).panels


@pytest.mark.parametrize("folder", CASES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_edge_of_every_view_of_a_fixture_is_an_operand_path(folder: Path) -> None:
    for panel in graphs(load(folder)):
        edges_are_paths(panel)


@needs_shared
def test_every_edge_of_every_view_of_the_handed_fixtures_is_an_operand_path() -> None:
    count = 0
    for folder in sorted((SHARED / "gfx950").glob("*/*")):
        for panel in graphs(load(folder)):
            count += edges_are_paths(panel)
    assert count > 60


def test_the_walk_knows_a_wrong_element_of_a_tuple() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  t = (f32[4], f32[4]) tuple(x, y)
  g = f32[4] get-tuple-element(t), index=1
  ROOT n = f32[4] negate(g)
}
"""
    panel = drawn(text, around=["x", "y", "n"], radius=0)
    module = panel.nodes[0].instr.computation.module
    ids = {node.name: node.id for node in panel.nodes}
    between = (find(module, "t"), find(module, "g"))
    feeds, through = Feeds(module), seams(module)
    wrong = {
        name: [
            [one.name for one in step]
            for step in wrong_steps(
                panel, Edge(ids[name], ids["n"], 0, (), between), feeds, through
            )
        ]
        for name in ("x", "y")
    }
    assert wrong == {"x": [["x", "t", "g"]], "y": []}
