"""A figure as DOT, for Graphviz to lay out: the same text for the same figure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hlo_lens.figure.escape import text, tooltip
from hlo_lens.figure.model import Cluster, Edge, Node, Panel
from hlo_lens.figure.themes import Paint, Theme
from hlo_lens.figure.views import ColorBy
from hlo_lens.hlo import Instruction
from hlo_lens.present.quantities import count_text

if TYPE_CHECKING:
    import graphviz  # type: ignore[import-untyped]

    from hlo_lens.figure.lanes import Lanes

_FONT = "Helvetica,Arial,sans-serif"
_MONO = "Menlo,Consolas,DejaVu Sans Mono,monospace"
# Frames around a single node are told in it.
_TOLD = frozenset(("async", "call", "fusion"))
_WIDEST = 34  # characters of a line in a node
_MOST_HEADING = 6  # lines above a panel
_MOST_FOLDED = 3  # lines of a title, a frame's label, a role, a custom call's target
_MOST_ELEMENTS = 4  # of a tuple's shape
_MOST_TOLD = 12  # instructions of a contracted edge, in its tooltip
_LONGEST = 1000  # characters of an instruction's text in its tooltip
_CAPTION = 96  # characters of a line of the caption


def dot_text(
    panels: Sequence[Panel | Lanes],
    theme: Theme,
    color: ColorBy,
    words: Mapping[str, str],
    caption: Sequence[str],
    name: str,
) -> str:
    """The DOT of a figure: a frame a panel, side by side, the legend and the caption below.

    `words`: what a phase or family reads as in the legend.
    """
    import graphviz

    graph = graphviz.Digraph(name="figure")
    graph.attr(
        "graph",
        bgcolor=theme.page,
        fontname=_FONT,
        fontsize="11",
        fontcolor=theme.text,
        labelloc="b",
        labeljust="l",
        nodesep="0.22",
        ranksep="0.32",
        pad="0.15",
        tooltip=tooltip(name),
        label=_below(panels, theme, color, words, caption),
    )
    graph.attr("node", shape="box", fontname=_FONT, fontsize="11", margin="0.10,0.05")
    graph.attr("edge", fontname=_FONT, fontsize="9", color=theme.line, fontcolor=theme.muted,
               arrowsize="0.7")  # fmt: skip
    for number, panel in enumerate(panels):
        with _frame(graph, f"cluster_p{number}", panel, theme) as frame:
            if isinstance(panel, Panel):
                nodes = {node.id: node for node in panel.nodes}
                for cluster in panel.clusters:
                    _add_cluster(frame, cluster, nodes, theme, color)
            else:
                label = _lanes(panel, theme)
                frame.node(f"p{number}_lanes", label=label, shape="plain", tooltip=" ")
        if isinstance(panel, Panel):
            _add_edges(graph, panel, theme)
    return str(graph.source)


def _lanes(panel: Lanes, theme: Theme) -> str:
    """The label of the node that a schedule is."""
    from hlo_lens.figure.lanes_dot import LanesStyle, lanes_node

    colors: dict[str, Any] = dict(theme.lanes)
    return lanes_node(panel, LanesStyle(theme.page, theme.text, theme.muted, **colors))


@contextmanager
def _frame(
    graph: graphviz.Digraph, id: str, panel: Panel | Lanes, theme: Theme
) -> Iterator[graphviz.Digraph]:
    """The frame around a panel, with its heading."""
    heading = [f"<B>{one}</B>" for one in _folded(panel.title or panel.name)]
    is_told = (panel.title or panel.name).partition(" (")[0] == panel.name
    beside = [] if is_told else [panel.name]
    heading += [_small(theme, one) for one in _folded(" · ".join([*beside, panel.stage]))]
    if isinstance(panel, Panel):
        lines = list(panel.heading[:_MOST_HEADING])
        if more := len(panel.heading) - len(lines):
            lines.append(f"and {count_text(more)} more")
        heading += [text(textwrap.shorten(one, _CAPTION, placeholder=" …")) for one in lines]
    with graph.subgraph(name=id) as frame:
        frame.attr(
            label=f"<{'<BR/>'.join(heading)}>",
            labelloc="t",
            labeljust="c",
            style="rounded,filled",
            color=theme.frame,
            fillcolor=theme.panel,
            fontname=_FONT,
            tooltip=tooltip(panel.file or panel.name),
        )
        yield frame


def _add_edges(graph: graphviz.Digraph, panel: Panel, theme: Theme) -> None:
    nodes = {node.id: node for node in panel.nodes}
    phases = {node.id: node.phase for node in panel.nodes}
    for edge in panel.edges:
        look = _edge(edge, nodes, theme, _crosses(edge, phases))
        graph.edge(edge.source, edge.target, **look)


def _add_cluster(
    graph: graphviz.Digraph,
    cluster: Cluster,
    nodes: dict[str, Node],
    theme: Theme,
    color: ColorBy,
) -> None:
    def fill(target: graphviz.Digraph) -> None:
        for id in cluster.nodes:
            _add_node(target, nodes[id], theme, color)
        for inner in cluster.clusters:
            _add_cluster(target, inner, nodes, theme, color)

    if not cluster.label:
        fill(graph)
        return
    held = [*cluster.all_nodes()]
    if len(held) == 1 and cluster.kind in _TOLD:
        lone = nodes[held[0]]
        notes = (*lone.notes, *reversed([*_frames_told(cluster)]))
        _add_node(graph, replace(lone, notes=notes), theme, color)
        return
    style = {"boundary": "rounded,dashed", "pass": "rounded,dotted"}.get(cluster.kind, "rounded")
    first, *rest = cluster.label
    lines = [*_folded(first), *(f"<I>{line}</I>" for one in rest for line in _folded(one))]
    label = "<BR/>".join(lines)
    with graph.subgraph(name=f"cluster_{cluster.id}") as frame:
        frame.attr(
            label=f"<{_small(theme, label)}>",
            labelloc="t",
            labeljust="l",
            style=style,
            color=theme.phase["remat"].line if cluster.kind == "boundary" else theme.line,
            fontname=_FONT,
            tooltip=tooltip(" ".join(cluster.label)),
        )
        fill(frame)


def _frames_told(cluster: Cluster) -> Iterator[str]:
    """What the frames around a lone node say, outermost first."""
    first, *rest = cluster.label
    yield f"in {first}" + (f": {', '.join(rest)}" if rest else "")
    for inner in cluster.clusters:
        yield from _frames_told(inner)


def _add_node(graph: graphviz.Digraph, node: Node, theme: Theme, color: ColorBy) -> None:
    paint = theme.paint(color, node.phase if color == "phase" else node.family)
    lines = [f"<B>{one}</B>" for one in _wrapped(f"%{node.name}")]
    lines += _shape(node.instr.shape_text)
    lines += [_small(theme, one) for one in _folded(_what(node))]
    roles = [one for one in node.roles if one != node.instr.opcode]
    lines += [_small(theme, f"<I>{line}</I>") for one in roles for line in _folded(one)]
    lines += [_small(theme, one) for note in node.notes for one in _wrapped(note, _WIDEST + 8)]
    graph.node(
        node.id,
        label=f"<{'<BR/>'.join(lines)}>",
        style=",".join(filter(None, ("rounded,filled", paint.style))),
        fillcolor=paint.fill,
        color=paint.line,
        fontcolor=theme.text,
        penwidth="2" if node.selected else "1",
        tooltip=tooltip(_cut(node.instr.text.strip())),
    )


def _what(node: Node) -> str:
    """The opcode, with the target of a custom call."""
    try:
        target = node.instr.custom_call_target
    except ValueError:  # of an attribute that cannot be read
        target = None
    return node.instr.opcode if target is None else f"{node.instr.opcode} {target}"


def _small(theme: Theme, markup: str) -> str:
    return f'<FONT POINT-SIZE="9" COLOR="{theme.muted}">{markup}</FONT>'


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _wrapped(value: str, widest: int = _WIDEST) -> list[str]:
    """A long name in lines, as markup; broken behind a dot, an underscore, a hyphen or a space."""
    lines = [""]
    for part in re.split(r"(?<=[ ._-])", value):
        for piece in (part[at : at + widest] for at in range(0, len(part), widest)):
            if lines[-1] and len(lines[-1]) + len(piece) > widest:
                lines.append("")
            lines[-1] += piece
    return [text(line) for line in lines]


def _folded(value: str) -> list[str]:
    """A text in lines no wider than the caption, as markup; of a long one, the first."""
    lines = _wrapped(value, _CAPTION)
    return lines if len(lines) <= _MOST_FOLDED else [*lines[:_MOST_FOLDED], "…"]


def _shape(shape_text: str) -> list[str]:
    """A shape without layouts in lines, as markup: an element of a tuple a line."""
    plain = re.sub(r"\{[^{}]*\}|/\*.*?\*/", "", shape_text).replace(" ", "")
    if not plain.startswith("("):
        return [text(plain[:_WIDEST])]
    elements = re.findall(r"[a-z][a-z0-9]*\[[^\]]*\]", plain)
    shown = elements[:_MOST_ELEMENTS]
    lines = [one + ("," if at < len(elements) - 1 else "") for at, one in enumerate(shown)]
    if len(elements) > len(shown):
        lines.append(f"… {count_text(len(elements) - len(shown))} more")
    if not lines:
        return [text(plain[:_WIDEST])]
    lines[0], lines[-1] = f"({lines[0]}", f"{lines[-1]})"
    return [text(line) for line in lines]


def _edge(edge: Edge, nodes: dict[str, Node], theme: Theme, crosses: bool) -> dict[str, str]:
    source, target = nodes[edge.source].instr, nodes[edge.target].instr
    marks = ["#" + "#".join(map(str, edge.element))] if edge.element else []
    if edge.left_out:
        marks.append(_count(edge.left_out))
    if edge.next_iteration:
        here = target.computation is source.computation
        marks.append("next iteration" if here else "by the loop's carry")
    way = [f"%{source.name}", *_told(edge), f"%{target.name}, operand {edge.operand}"]
    if edge.also:
        way.append(f"and {edge.also} more operands")
    found = {"tooltip": tooltip(" → ".join(way)), "labeltooltip": tooltip(" → ".join(way))}
    if marks:
        found["label"] = f"<&#160;{text(' · '.join(marks))}&#160;>"  # off the line
    if edge.next_iteration:
        found["style"] = "dotted"
        if target.computation is source.computation:
            found["constraint"] = "false"  # it goes up
    elif edge.left_out:
        found["style"] = "dashed"
    if crosses:
        found |= {"color": theme.cross, "penwidth": "1.6"}
    return found


def _count(left_out: Sequence[Instruction]) -> str:
    """`7`; `1 convert` where it is one."""
    if len(left_out) == 1:
        return f"1 {left_out[0].opcode}"
    return count_text(len(left_out))


def _crosses(edge: Edge, phases: Mapping[str, str | None]) -> bool:
    """Whether it goes from the forward to the backward pass, what is computed again included."""
    return phases[edge.source] == "fwd" and phases[edge.target] in ("bwd", "remat")


def _told(edge: Edge) -> Iterator[str]:
    for one in edge.through[:_MOST_TOLD]:
        yield f"{one.name} {one.opcode}"
    if len(edge.through) > _MOST_TOLD:
        yield f"… {len(edge.through) - _MOST_TOLD} more"


def _below(
    panels: Sequence[Panel | Lanes],
    theme: Theme,
    color: ColorBy,
    words: Mapping[str, str],
    caption: Sequence[str],
) -> str:
    """The legend and the caption, as one HTML-like label. Lanes have a legend of their own."""
    graphs = [panel for panel in panels if isinstance(panel, Panel)]
    looks: dict[Paint, list[str]] = {}
    for value, paint in _used(graphs, theme, color):
        looks.setdefault(paint, []).append(words.get(value, value))
    swatches = [_swatch(paint, ", ".join(values)) for paint, values in looks.items()]
    rows = [f'<TR><TD ALIGN="LEFT">{"   ".join(swatches)}</TD></TR>'] if swatches else []
    signs = "; ".join(_signs(graphs))
    for part in (*([signs] if signs else []), *caption):
        for line in textwrap.wrap(part, _CAPTION * max(1, len(panels)), break_long_words=True):
            rows.append(f'<TR><TD ALIGN="LEFT">{_small(theme, text(line))}</TD></TR>')
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0">{"".join(rows)}</TABLE>>'


def _used(panels: Iterable[Panel], theme: Theme, color: ColorBy) -> Iterator[tuple[str, Paint]]:
    """The phases or families of the drawn nodes, and how they look; none where none is known."""
    values = {
        (node.phase if color == "phase" else node.family)
        for panel in panels
        for node in panel.nodes
    }
    if values == {None}:
        return
    paints = theme.phase if color == "phase" else theme.family
    for value, paint in paints.items():
        if value in values and value != "other":
            yield value, paint
    rest = sorted(one or "not known" for one in values if one is None or one not in paints)
    rest += ["other"] if "other" in values else []
    yield from ((value, paints["other"]) for value in rest)


def _swatch(paint: Paint, word: str) -> str:
    """An entry of the legend: a square in the colour, or the look in words."""
    if paint.word:
        return text(f"{paint.word}: {word}")
    return f'<FONT COLOR="{paint.line}">■</FONT> {text(word)}'


def _signs(panels: Iterable[Panel]) -> Iterator[str]:
    """What the lines mean, of those that are drawn."""
    edges = [edge for panel in panels for edge in panel.edges]
    phases = {node.id: node.phase for panel in panels for node in panel.nodes}
    if any(edge.left_out for edge in edges):
        yield "dashed line, with a number: through that many instructions that are not drawn"
    if any(_crosses(edge, phases) for edge in edges):
        yield "thick edge: from the forward to the backward pass"
    if any(edge.next_iteration for edge in edges):
        yield "dotted line: to a later iteration of a loop"
    if any(edge.element for edge in edges):
        yield "#n: element n of a tuple"
    if any(node.selected for panel in panels for node in panel.nodes):
        yield "thick border: what was asked for"
