"""Options that choose a part of a program to draw or export, and the panels they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hlo_lens.cli.common import FAILED, answer_is_no, complete_tables, error, note, programs, words

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
    nodes: int
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
        help="How many computing instructions away a neighbour may be; 2 with --around, else what "
        "the view says.",
    ),
    click.option(
        "--from", "start", metavar="NAME", help="Draw the operand paths from this instruction …"
    ),
    click.option("--to", "end", metavar="NAME", help="… to this one."),
    click.option(
        "--nodes",
        metavar="N",
        type=click.IntRange(min=1),
        default=40,
        show_default=True,
        help="Draw about that many instructions; what does not fit is told.",
    ),
    click.option(
        "--keep",
        metavar="KIND,…",
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
    from hlo_lens.facts import Facts

    return [Facts(one) for one in programs(files, module=module, stage=stage)]


def drawn(facts: Sequence[Facts], chosen: Chosen, **more: Any) -> Figure:
    """The figure that the options mean; `more` goes to `hlo_lens.figure.draw`.

    Where there is nothing of what was asked for, that is told, and the command ends: exit code 1.
    """
    from hlo_lens.figure import NothingSelectedError, draw, views

    known = views(chosen.view_files)
    for kind in chosen.keep:
        if kind not in known.prune:
            error(f"--keep: no kind {kind!r}; there are {', '.join(known.prune)}")
            raise click.exceptions.Exit(FAILED)
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
        raise click.exceptions.Exit(1) from None
