"""`hlolens export FILE… -o PATH`: tables as SQLite; graphs as GraphML, DOT, Model Explorer JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lens.cli.common import (
    INPUT,
    bad_input_told,
    choice_options,
    note,
    open_output,
    output_option_with,
    tell_of_broken_passes,
    verb,
)
from hlo_lens.cli.selection import Chosen, chosen_of, drawn, facts_of, selection_options

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.figure import Panel

_SUFFIXES = {
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".graphml": "graphml",
    ".dot": "dot",
    ".gv": "dot",
    ".json": "model-explorer",
}
_FORMATS = tuple(dict.fromkeys(_SUFFIXES.values()))


@verb()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT)
@choice_options
@selection_options
@output_option_with(
    "Write to this file, as its suffix says: .sqlite or .db, .graphml, .dot, .json (Model "
    "Explorer). Texts go to standard output otherwise."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(_FORMATS),
    help="The format, whatever the suffix.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="For Model Explorer: the whole module, every instruction of it, however large.",
)
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    output: str | None,
    output_format: str | None,
    everything: bool,
    **options: Any,
) -> None:
    """Write what is known of FILE... for other tools: all tables, or a graph of a part.

    A SQLite file holds every table of all FILE..., as `hlolens query` has them, and describes them
    (schema_columns). The other formats hold what `hlolens figure` draws with the same options:
    GraphML and DOT for graph tools, JSON for Model Explorer, which also takes a whole module.

    \b
    hlolens export none/ full/ -o remat.sqlite
    hlolens export step.opt.hlo --table collectives --where in_backward_loop -o gathers.graphml
    hlolens export step.opt.hlo --all -o step.json
      (then: pip install ai-edge-model-explorer; model-explorer step.json)
    """
    chosen = chosen_of(options)
    form = output_format or _format_of(output)
    _check(form, output, chosen, everything, len(files))
    facts = facts_of(files, module, stage)
    if not facts:
        return
    with bad_input_told():
        if form == "sqlite":
            from hlo_lens.export import write_sqlite

            assert output is not None  # or `_check` had refused
            write_sqlite(facts, output)
        else:
            text = _text(form, facts, chosen, everything)
            with open_output(output) as stream:
                stream.write(text)
        tell_of_broken_passes(facts)


def _format_of(output: str | None) -> str:
    """The format that the suffix of the output names."""
    if output is None or output == "-":
        raise click.UsageError(f"--format says what to write: {', '.join(_FORMATS)}")
    suffix = Path(output).suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(f"{suffix} ({form})" for suffix, form in _SUFFIXES.items())
        raise click.UsageError(
            f"{output}: the suffix says no format; there are {known}; or name one with --format"
        )
    return _SUFFIXES[suffix]


def _check(form: str, output: str | None, chosen: Chosen, everything: bool, files: int) -> None:
    """Refuse what does not go together, before anything is read."""
    if form == "sqlite" and output in (None, "-"):
        raise click.UsageError("a SQLite file is no text; name it with -o")
    if everything and form != "model-explorer":
        raise click.UsageError("--all is for --format model-explorer")
    if (form == "sqlite" or everything) and _chooses(chosen):
        what = "--all is the whole module" if everything else "a SQLite file holds every table"
        raise click.UsageError(f"{what}; leave out what chooses a part")
    if form == "graphml" and files > 1:
        raise click.UsageError("a GraphML file holds one graph; give one FILE")


def _chooses(chosen: Chosen) -> bool:
    return any(
        (
            chosen.view, chosen.table, chosen.rows, chosen.where, chosen.around, chosen.start,
            chosen.end,
        )
    )  # fmt: skip


def _text(form: str, facts: Sequence[Facts], chosen: Chosen, everything: bool) -> str:
    """The graph, or the graphs, that were asked for."""
    from hlo_lens.export import as_graphml, collection_text, module_graph, panel_graph

    if form == "dot":
        return drawn(facts, chosen).dot()
    label = ", ".join(dict.fromkeys(one.program.name for one in facts))
    if everything:
        return collection_text(
            label, (module_graph(one.program, one.program.main) for one in facts)
        )
    panels = _panels(form, facts, chosen)
    if form == "graphml":
        return as_graphml(panels[0])
    return collection_text(label, map(panel_graph, panels))


def _panels(form: str, facts: Sequence[Facts], chosen: Chosen) -> list[Panel]:
    """What is chosen of each program. Raises `InputError` where that is no graph, or too much."""
    from hlo_lens.figure import Panel
    from hlo_lens.files import InputError

    try:
        figure = drawn(facts, chosen)
    except InputError:
        if form == "model-explorer" and not _chooses(chosen):
            note("Model Explorer takes the whole module with --all")
        raise
    panels = [one for one in figure.panels if isinstance(one, Panel)]
    if len(panels) < len(figure.panels):
        raise InputError(
            f"--view {chosen.view}", f"it is drawn as lanes, which are no graph for {form}; use dot"
        )
    if form == "graphml" and len(panels) > 1:
        raise InputError("--module", "a GraphML file holds one graph; choose one module")
    return panels
