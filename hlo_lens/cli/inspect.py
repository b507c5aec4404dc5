"""`hlolens inspect FILE…`: what a module is and does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
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
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    output_format: str,
    output: str | None,
    tables: tuple[str, ...],
    everything: bool,
) -> None:
    """Report what FILE... is and does: loops, collectives, kernels, matmuls, findings.

    The report groups the rows of the tables; --table and --all give the rows themselves, and
    `hlolens schema` says what they mean. JSON always holds rows, and exact numbers:

    \b
    {"schema_version": 1,
     "programs": [{"name": …, "modules": [{…}], "tables": {NAME: [{COLUMN: VALUE}]},
                   "findings": [{"rule": …, "level": …, "message": …}]}]}

    Markdown has the findings first and folds long tables away, for a pull request. Of a folder's
    stages the groups are of the last one.
    """
    from hlo_lens.facts import Facts

    names = _names(tables, everything)
    if names == ():
        return
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
        for position, facts in enumerate(found):
            if position:
                stream.write("\n")
            if names is None:
                _write_report(facts, output_format, stream)
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


def _write_report(facts: Facts, output_format: str, stream: IO[str]) -> None:
    from hlo_lens.inspect import as_lines, as_markdown, report

    found = report(facts)
    if output_format == "markdown":
        stream.write(as_markdown(found))
    else:
        write_lines(as_lines(found, width=width_of(stream)), stream)


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
