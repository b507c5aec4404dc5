"""A table of our own with named members, and what a figure draws, as short texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hlo_lens.facts import (
    Column,
    Facts,
    Finding,
    Member,
    PassResult,
    Rule,
    Summary,
    discover_passes,
)
from hlo_lens.figure import Cluster, Edge, Panel, draw
from hlo_lens.hlo import Instruction, Module, parse
from hlo_lens.program import Program
from tests.facts.toys import Toy, table

SAID = Rule("marked", "note", "what a mark says", "What a mark says.")
MARKS = table("marks", Column("size", "int", "measure", "how large"))

Mark = Mapping[str, str]
"""A row: role → names of its members, blank between; `size` and `module` as numbers; `says` is a
finding about the first member."""


def find(module: Module, name: str) -> Instruction:
    (found,) = (
        instr for c in module.computations if (instr := c.instructions.get(name)) is not None
    )
    return found


def facts_of(
    *texts: str,
    marks: Sequence[Mark] = (),
    stages: Sequence[str] | None = None,
    summary: Summary | None = None,
) -> Facts:
    """The facts of a program, with `marks` as rows of a table of that name and summary."""
    program = Program([parse(text) for text in texts], stages)
    return Facts(program, [*discover_passes(installed=False).passes, _pass(marks, summary)])


def _pass(marks: Sequence[Mark], summary: Summary | None) -> Toy:
    def run(program: Program, facts: Facts) -> PassResult:
        rows, members, findings = [], [], []
        for number, mark in enumerate(marks):
            module = int(mark.get("module", 0))
            rows.append({"module": module, "size": int(mark.get("size", 0))})
            own = [
                Member("marks", number, role, module, find(program.modules[module], name).id)
                for role, names in mark.items()
                if role not in ("size", "module", "says")
                for name in names.split()
            ]
            members += own
            if says := mark.get("says"):
                findings.append(Finding(SAID.id, SAID.level, says, module, own[0].instr))
        return PassResult({"marks": rows}, findings=findings, members=members)

    return Toy("marks", (replace(MARKS, summary=summary),), run, rules=(SAID,))


def drawn(text: str, *, marks: Sequence[Mark] = (), **asked: Any) -> Panel:
    """What is drawn of a text; `asked` goes to `draw`."""
    (panel,) = draw(facts_of(text, marks=marks), **asked).panels
    assert isinstance(panel, Panel)
    return panel


def names(panel: Panel) -> list[str]:
    return [node.name for node in panel.nodes]


def roles(panel: Panel) -> dict[str, tuple[str, ...]]:
    return {node.name: node.roles for node in panel.nodes}


def edges(panel: Panel) -> list[str]:
    """`a>b`, with what is between: `a-[c]>b`; `a#1>b` for an element, `a>>b` round a loop."""
    return sorted(edge_text(panel, edge) for edge in panel.edges)


def edge_text(panel: Panel, edge: Edge) -> str:
    by_id = {node.id: node.name for node in panel.nodes}
    element = "".join(f"#{index}" for index in edge.element)
    between = f"-[{' '.join(one.name for one in edge.left_out)}]" if edge.left_out else ""
    arrow = ">>" if edge.next_iteration else ">"
    return f"{by_id[edge.source]}{element}{between}{arrow}{by_id[edge.target]}"


def frames(panel: Panel) -> dict[str, list[str]]:
    """The lines of each frame's label → the names of the nodes directly in it."""
    by_id = {node.id: node.name for node in panel.nodes}
    return {
        " | ".join(cluster.label): [by_id[id] for id in cluster.nodes]
        for cluster in all_frames(panel.clusters)
    }


def all_frames(clusters: Sequence[Cluster]) -> Iterator[Cluster]:
    for cluster in clusters:
        yield cluster
        yield from all_frames(cluster.clusters)


def named(op_name: str) -> str:
    return f', metadata={{op_name="{op_name}"}}'


FWD, BWD = named("jit(f)/jvp(g)/mul"), named("jit(f)/transpose(jvp(g))/mul")
REMAT = named("jit(f)/transpose(jvp(g))/checkpoint/rematted_computation/mul")
