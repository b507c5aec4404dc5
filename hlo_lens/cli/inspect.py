"""`hlolens inspect FILE…`: what a module is and does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    INPUT,
    choice_options,
    complete_tables,
    console,
    error,
    format_option,
    open_output,
    output_option,
    programs,
    verb,
    write_json,
)
from hlo_lens.cli.page import width_of, write_lines
from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.inspect.markdown import Linked

_LONGEST_NAME = 80  # characters of a program's name in that of a file


@verb()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT)
@choice_options
@format_option("terminal", "json", "markdown")
@output_option
@click.option(
    "--table",
    "tables",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_tables,
    help="Give the rows of this table in full instead of the report; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="Give the rows of every table in full.")
@click.option(
    "--figures",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    help="With --format markdown: draw each view of `hlolens figure` that has rows into this "
    "folder, and show it on the page.",
)
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    output_format: str,
    output: str | None,
    tables: tuple[str, ...],
    everything: bool,
    figures: str | None,
) -> None:
    """Report what FILE... is and does: loops, collectives, kernels, matmuls, findings.

    The report groups the rows of the tables; --table and --all give the rows themselves, and
    `hlolens schema` says what they mean. JSON always holds rows, and exact numbers:

    \b
    {"schema_version": 1,
     "programs": [{"name": …, "modules": [{…}], "tables": {NAME: [{COLUMN: VALUE}]},
                   "findings": [{"rule": …, "level": …, "message": …}]}]}

    Markdown is for a pull request: a verdict, findings by rule, then tables folded away, of a size
    that a comment holds. Of a folder's stages the groups are of the last one.
    """
    from hlo_lens.facts import Facts

    names = _names(tables, everything)
    if names == ():
        return
    if figures is not None and (output_format != "markdown" or names is not None):
        raise click.UsageError("--figures goes with the report of --format markdown")
    found: Iterator[Facts] = map(Facts, programs(files, module=module, stage=stage))
    first = next(found, None)
    if first is None and (output is not None or output_format != "json"):
        return  # what -o names stays as it was
    found = chain(() if first is None else (first,), found)
    with open_output(output) as stream:
        if output_format == "json":
            from hlo_lens.inspect import as_data

            write_json(as_data(found, names), stream)
            return
        if output_format == "markdown" and names is None:
            _write_page(found, stream, figures, output)
            return
        for position, facts in enumerate(found):
            if position:
                stream.write("\n")
            if names is None:
                _write_report(facts, stream)
            else:
                _write_tables(facts, names, output_format, stream)


def _names(tables: Sequence[str], everything: bool) -> tuple[str, ...] | None:
    """The tables to give in full; None for the report, () where one is unknown, which is told."""
    from hlo_lens.facts import UnknownTableError, discover_passes

    registry = discover_passes()
    if everything:
        return tuple(table.name for table in registry.tables)
    try:
        names = [registry.table(name).name for name in tables]
    except UnknownTableError as problem:
        error(str(problem))
        return ()
    return tuple(dict.fromkeys(names)) or None


def _write_report(facts: Facts, stream: IO[str]) -> None:
    from hlo_lens.inspect import as_lines, report

    write_lines(as_lines(report(facts), width=width_of(stream)), stream)


def _write_page(
    found: Iterable[Facts], stream: IO[str], folder: str | None, output: str | None
) -> None:
    """One page of Markdown of all programs, which a comment on a pull request can hold."""
    from hlo_lens.inspect import report
    from hlo_lens.inspect.markdown import Page, pages_as_markdown

    start = Path(output).parent if output is not None else Path()
    pages: list[Page] = []
    taken: set[str] = set()
    for facts in found:
        figures = () if folder is None else _figures(facts, Path(folder), start, taken)
        pages.append(Page(report(facts), facts.program.main.filename, tuple(figures)))
    stream.write(pages_as_markdown(pages))


def _figures(facts: Facts, folder: Path, start: Path, taken: set[str]) -> Iterator[Linked]:
    """Draw the views that have rows into `folder`, and say how a page in `start` shows them.

    `taken` are names of programs that have figures: the next of that name gets a number.
    """
    from hlo_lens.figure import NothingSelectedError, draw, views
    from hlo_lens.figure.drawing import views_with_rows
    from hlo_lens.figure.layout import LayoutError
    from hlo_lens.inspect.markdown import Linked

    plain = re.sub(r"[^\w.-]+", "_", facts.program.name)[:_LONGEST_NAME].strip(".") or "program"
    numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
    name = next(each for each in numbered if each not in taken)
    taken.add(name)
    known = views()
    for view in views_with_rows(facts, known):
        path = folder / f"{name}.{view}.svg"
        try:
            figure = draw(facts, view=view, known=known)
            drawn = figure.svg()
        except NothingSelectedError:
            continue
        except LayoutError as problem:
            error(problem.render())
            return
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
        shows, how_much = (*figure.caption, "")[:2]
        alt = f"{shows} {how_much.partition(';')[0]}"
        yield Linked(shows.rstrip("."), alt, PurePath(os.path.relpath(path, start)))


def _write_tables(facts: Facts, names: Sequence[str], output_format: str, stream: IO[str]) -> None:
    from hlo_lens.inspect.markdown import tables_as_markdown

    tables = [facts.table(name) for name in names]
    if output_format == "markdown":
        stream.write(tables_as_markdown(facts, tables))
        return
    from hlo_lens.facts.rows import json_text
    from hlo_lens.facts.sqlite import QueryResult
    from hlo_lens.query import as_table, print_table

    def as_sql(value: object) -> object:
        if isinstance(value, tuple):
            return json_text(value)
        return int(value) if isinstance(value, bool) else value

    head = "  ".join(filter(None, (facts.program.name, facts.program.main.filename)))
    stream.write(f"{visible(head)}\n")
    for table in tables:
        stream.write(f"\n{table.name}: a row is {table.row}\n")
        # What can be long stands last: the rest of a row is found at its place.
        columns = sorted(table.columns, key=lambda column: column.type in ("json", "refs"))
        places = [table.position(column.name) for column in columns]
        rows = [tuple(as_sql(row[at]) for at in places) for row in facts.rows(table.name)]
        result = QueryResult(tuple(column.name for column in columns), rows)
        if stream.isatty():
            print_table(result, console(stream))
        else:
            stream.write(as_table(result))
