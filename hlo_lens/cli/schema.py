"""`hlolens schema [TABLE]`: the tables, what a row of each is, and their columns; or the JSON
Schema of expectation files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    answer_is_no,
    complete_tables,
    console,
    format_option,
    open_output,
    output_option,
    print_error,
    verb,
    write_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lens.facts import Column, Table


@verb()
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=complete_tables)
@click.option(
    "--expect",
    "of_expectations",
    is_flag=True,
    help="Print the JSON Schema of the files that `hlolens check --expect` reads, for an editor.",
)
@format_option("terminal", "json", "markdown")
@output_option
def command(
    table: str | None, of_expectations: bool, output_format: str, output: str | None
) -> None:
    """Describe TABLE, or every table: what a row is, and each column's type, role and unit.

    With --expect, print the JSON Schema of expectation files. An editor uses it by a first line
    such as `#:schema ./expect.schema.json` in such a file.
    """
    from hlo_lens.facts import SCHEMA_VERSION, UnknownTableError, discover_passes
    from hlo_lens.facts.schema import as_data, as_markdown

    registry = discover_passes()
    if of_expectations:
        from hlo_lens.check.json_schema import json_schema

        if table is not None or output_format == "markdown":
            raise click.UsageError("--expect prints one JSON Schema: no TABLE, no Markdown")
        with open_output(output) as stream:
            write_json(json_schema(registry), stream)
        return
    try:
        tables = registry.tables if table is None else (registry.table(table),)
    except UnknownTableError as problem:
        print_error(str(problem))
        answer_is_no()
        return
    with open_output(output) as stream:
        if output_format == "json":
            write_json(as_data(tables, SCHEMA_VERSION), stream)
        elif output_format == "markdown":
            stream.write(as_markdown(tables, SCHEMA_VERSION))
        else:
            _print(tables, console(stream), in_full=table is not None)


def _print(tables: Iterable[Table], screen: Console, *, in_full: bool) -> None:
    from hlo_lens.facts import COMMON
    from hlo_lens.facts.schema import has_common, own_columns

    if not in_full:
        _print_columns(screen, "common columns", "", COMMON)
    for table in tables:
        columns = table.columns if in_full else own_columns(table)
        also = "; also the common columns" if has_common(table) and not in_full else ""
        _print_columns(screen, table.name, f"a row is {table.row}{also}", columns)


def _print_columns(screen: Console, name: str, about: str, columns: Iterable[Column]) -> None:
    from rich.table import Table
    from rich.text import Text

    from hlo_lens.facts.schema import meaning

    screen.print(Text.assemble((name, "bold"), "  " if about else "", about))
    grid = Table.grid(padding=(0, 0, 0, 2))
    for style in ("cyan", "", "dim", "", ""):
        grid.add_column(style=style, overflow="fold")
    for column in columns:
        cells = (column.name, column.type, column.role, column.unit or "", meaning(column))
        grid.add_row(*map(Text, cells))
    screen.print(grid)
    screen.print()
