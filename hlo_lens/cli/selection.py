"""Options that choose a part of a program to draw or export, and the panels they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hlo_lens.cli.common import NO, answer_is_no, complete_tables, note, numbered_programs, words

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options of `selection_options` as they were given."""

    view: str | None
    table: str | None
    rows: tuple[int, ...]
    where: str | None
    around: tuple[str, ...]
    radius: int | None
    start: str | None
    end: str | None
    nodes: int | None
    keep: tuple[str, ...]
    view_files: tuple[str, ...]


def selection_options(function: F) -> F:
    """`--view`, `--table` with `--row` and `--where`, `--around`, `--from` and `--to`, `--nodes`,
    `--keep`; the function takes them as the keywords that `chosen_of` takes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def _complete_views(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hlo_lens.figure import views

    return [name for name in views().views if name.startswith(incomplete)]


_OPTIONS = (
    click.option(
        "--view",
        metavar="NAME",
        shell_complete=_complete_views,
        help="A named view: remat, attention, ragged, moe, collectives, overlap, or one of yours.",
    ),
    click.option(
        "--table",
        metavar="NAME",
        shell_complete=complete_tables,
        help="Draw the instructions that make up rows of this table.",
    ),
    click.option(
        "--row",
        "rows",
        metavar="ID",
        type=click.IntRange(min=0),
        multiple=True,
        help="Of --table, the row with this id; may be repeated.",
    ),
    click.option(
        "--where", metavar="SQL", help="Of --table, the rows for which this condition holds."
    ),
    click.option(
        "--around",
        metavar="NAME",
        multiple=True,
        help="Draw an instruction with its neighbours: name, computation/name or #id; may be "
        "repeated.",
    ),
    click.option(
        "--radius",
        metavar="N",
        type=click.IntRange(min=0),
        help="How many computing instructions away a neighbour may be; 2 with --around, 1 where a "
        "row is a single instruction, else what the view says.",
    ),
    click.option(
        "--from", "start", metavar="NAME", help="Draw the operand paths from this instruction …"
    ),
    click.option("--to", "end", metavar="NAME", help="… to this one."),
    click.option(
        "--nodes",
        metavar="N",
        type=click.IntRange(min=1),
        show_default="40",
        help="Draw about that many instructions; what does not fit is told.",
    ),
    click.option(
        "--keep",
        metavar="KIND,…",
        multiple=True,
        callback=words,
        help="Draw these kinds too, which are left out otherwise: layout, tuples, constants.",
    ),
    click.option(
        "--views",
        "view_files",
        metavar="FILE",
        type=click.Path(),
        multiple=True,
        help="A TOML file with views of your own, of the form of hlo_lens/figure/data/views.toml.",
    ),
)


def chosen_of(options: dict[str, Any]) -> Chosen:
    """The options of `selection_options`, taken out of a command's keywords."""
    return Chosen(**{name: options.pop(name) for name in Chosen.__slots__})


def facts_of(files: Sequence[str], module: str | None, stage: str | None) -> list[Facts]:
    """The Facts of each input that can be read; where one cannot, that is told (exit code 2)."""
    return [facts for _, facts in numbered_facts(files, module, stage)]


def numbered_facts(
    files: Sequence[str], module: str | None, stage: str | None
) -> list[tuple[int, Facts]]:
    """`facts_of`, each with the position of its input among `files`."""
    from hlo_lens.facts import Facts

    numbered = numbered_programs(files, module=module, stage=stage)
    return [(at, Facts(program)) for at, program in numbered]


def drawn(facts: Sequence[Facts], chosen: Chosen, **more: Any) -> Figure:
    """The figure that the options mean; `more` goes to `hlo_lens.figure.draw`.

    Where there is nothing of what was asked for, that is told, and the command ends: exit code 1.
    """
    from hlo_lens.figure import NothingSelectedError, draw, views

    known = views(chosen.view_files)
    if chosen.view is not None and known.view(chosen.view).lanes is not None:
        chosen = _without_config(chosen)
    try:
        return draw(
            facts,
            view=chosen.view,
            table=chosen.table,
            row=chosen.rows or None,
            where=chosen.where,
            around=chosen.around,
            radius=chosen.radius,
            start=chosen.start,
            end=chosen.end,
            nodes=chosen.nodes,
            keep=chosen.keep,
            known=known,
            **more,
        )
    except NothingSelectedError as problem:
        note(str(problem), level=-1)
        answer_is_no()
        raise click.exceptions.Exit(NO) from None


def _without_config(chosen: Chosen) -> Chosen:
    """Without what a config file says of graphs: a view of the schedule takes nothing of it, and
    only refuses what this command line asks for."""
    context = click.get_current_context()
    unset: dict[str, Any] = {"radius": None, "nodes": None, "keep": ()}
    of_config = [
        name for name in unset if context.get_parameter_source(name) is ParameterSource.DEFAULT_MAP
    ]
    return replace(chosen, **{name: unset[name] for name in of_config})
