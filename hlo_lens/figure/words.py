"""What a figure says in words: its caption, and all of it for those who cannot see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_lens._version import __version__
from hlo_lens.figure.model import Cluster, Panel
from hlo_lens.present.quantities import count_text

if TYPE_CHECKING:
    from hlo_lens.figure.lanes import Lanes, Step

_WHY = {
    "others": "of other things",
    "layout": "of layout, shape or dtype",
    "tuples": "of tuples",
    "constants": "of constants",
}


def caption(panels: Sequence[Panel | Lanes], about: str) -> Iterator[str]:
    """Sentences under a figure: what it shows, what is left out, where it is from."""
    if about:
        yield f"{about[:1].upper()}{about[1:]}."
    same = len({one.about for one in panels}) == 1
    for one in panels:
        head = _head(one, panels)
        yield head + "; ".join(_left_out(one))
        if one.about and not same:
            yield head + ", ".join(one.about)
    if same and panels[0].about:
        yield ", ".join(panels[0].about)
    yield f"drawn by hlolens {__version__}"


def _head(one: Panel | Lanes, panels: Sequence[Panel | Lanes]) -> str:
    """Which panel a sentence is about; "" of the only one. Modules of a dump may share a title."""
    if len(panels) == 1:
        return ""
    is_shared = one.title and sum(one.title == other.title for other in panels) > 1
    return f"{one.title} ({one.name}): " if is_shared else f"{one.title or one.name}: "


def drawn_names(one: Panel | Lanes) -> list[str]:
    """The names of the instructions that are drawn."""
    if isinstance(one, Panel):
        return [node.name for node in one.nodes]
    ends = [name for bar in one.bars for name in (bar.start, bar.done)]
    return list(dict.fromkeys(filter(None, [*(step.name for step in one.steps), *ends])))


def _left_out(one: Panel | Lanes) -> Iterator[str]:
    total = f"{count_text(one.total)} instructions"
    if not isinstance(one, Panel):
        yield f"{count_text(one.positions)} of {total} are in this schedule"
    else:
        yield f"{count_text(len(one.nodes))} of {total} are drawn"
    parts = [
        f"{count_text(n)} {_WHY.get(why, why)}"
        for why, n in sorted(one.left_out.items(), key=lambda item: item[0] != "others")
    ]
    if parts:
        where = " of the same computations" if isinstance(one, Panel) else ""
        yield f"left out{where}: {', '.join(parts)}"
    yield from one.notes


def in_words(panels: Sequence[Panel | Lanes], about: str) -> Iterator[str]:
    """A figure in sentences, for those who cannot see it."""
    if about:
        yield f"{about[:1].upper()}{about[1:]}."
    for one in panels:
        what = f"{one.title or one.name} ({one.stage})"
        if not isinstance(one, Panel):
            yield f"Schedule of {what}: {'; '.join(one.heading)}."
            yield f"In order: {'; '.join(map(_step_told, one.steps))}."
            yield from (f"{', '.join(bar.lines)}; {bar.words}." for bar in one.bars)
            continue
        yield from (f"{line}." for line in one.heading)
        yield f"Dataflow of {what}, {len(one.nodes)} instructions:"
        yield "; ".join(_told(one)) + "."
        yield from _frames_told(one.clusters, {node.id: node.name for node in one.nodes})


def _step_told(step: Step) -> str:
    does = {"start": "start of ", "done": "wait for ", "both": "", "work": "", "run": ""}[step.kind]
    return f"{does}{step.name or ', '.join(step.lines)}"


def _frames_told(clusters: Iterable[Cluster], names: Mapping[str, str]) -> Iterator[str]:
    for one in clusters:
        if one.label:
            yield f"{', '.join(one.label)} holds {', '.join(names[id] for id in one.all_nodes())}."
        yield from _frames_told(one.clusters, names)


def _told(one: Panel) -> Iterable[str]:
    into: dict[str, list[str]] = {}
    for edge in one.edges:
        into.setdefault(edge.target, []).append(edge.source)
    by_id = {node.id: node for node in one.nodes}
    for node in one.nodes:
        roles = f" ({', '.join(node.roles)})" if node.roles else ""
        sources = [by_id[source].name for source in into.get(node.id, ())]
        taken = f" from {', '.join(sources)}" if sources else ""
        yield f"{node.name}, {node.instr.opcode}{roles}{taken}"
