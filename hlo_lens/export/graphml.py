"""A selection as GraphML, which Gephi, yEd, Cytoscape and networkx read."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING

from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from hlo_lens.figure.model import Panel


def as_graphml(panel: Panel) -> str:
    """`panel.graph()` as GraphML, UTF-8; the same panel gives the same text.

    Nodes are ids of instructions as in the tables, edges are numbered. Attributes are texts and
    whole numbers, true is 1; what is not known or empty is left out, a list is a text with commas.
    Characters that XML cannot hold are written as their escapes: U+0001 as `\\x01`. The graph has
    `name`, `stage`, `file`, `sha256`, `about`, `left_out` and `notes` of the panel.
    """
    import networkx as nx  # type: ignore[import-untyped]

    drawn = panel.graph()
    graph = nx.MultiDiGraph(**_flat(_about(panel)))
    graph.add_nodes_from((node, _flat(data)) for node, data in drawn.nodes(data=True))
    for number, (source, target, data) in enumerate(drawn.edges(data=True)):
        graph.add_edge(source, target, key=number, **_flat(data))
    stream = BytesIO()
    # Not `write_graphml`, whose text depends on whether lxml is installed.
    nx.write_graphml_xml(graph, stream)
    return stream.getvalue().decode()


def _about(panel: Panel) -> dict[str, object]:
    left_out = tuple(f"{count} {why}" for why, count in sorted(panel.left_out.items()))
    return {
        "name": panel.name,
        "stage": panel.stage,
        "file": panel.file,
        "sha256": panel.sha256,
        "about": panel.about,
        "left_out": left_out,
        "notes": panel.notes,
    }


def _flat(data: Mapping[str, object]) -> dict[str, str | int]:
    """Attributes as GraphML has them. A bool is a number: networkx writes "True", which the schema
    of GraphML does not know."""
    flat: dict[str, str | int] = {}
    for name, value in data.items():
        if isinstance(value, tuple):
            value = ", ".join(filter(None, map(str, value)))
        if isinstance(value, int):
            flat[name] = int(value)
        elif value is not None and value != "":
            flat[name] = visible(str(value))
    return flat
