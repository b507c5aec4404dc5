"""`hlolens query FILE… "SQL"`: read-only SQL over the tables."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    INPUT,
    choice_options,
    console,
    error,
    format_option,
    note,
    open_output,
    output_option,
    programs,
    tell_of_broken_passes,
    verb,
)

if TYPE_CHECKING:
    from hlo_lens.query import QueryResult


@verb()
@click.argument("files", metavar="FILE...", nargs=-1, type=INPUT)
@click.argument("sql", metavar="SQL")
@choice_options
@format_option("table", "json", "csv")
@output_option
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Stop the query after that long.",
)
@click.option(
    "--max-rows",
    metavar="N",
    type=click.IntRange(min=1, max=2**31 - 1),
    default=1_000_000,
    show_default=True,
    help="Give that many rows at most, and say so where there are more.",
)
def command(
    files: Sequence[str],
    sql: str,
    module: str | None,
    stage: str | None,
    output_format: str,
    output: str | None,
    timeout: float,
    max_rows: int,
) -> None:
    """Answer SQL over the tables of FILE..., which it can only read.

    Every table is there (see `hlolens schema`), and only those the query touches are computed. With
    several files the tables hold the rows of all; module counts through them, in order. The
    dialect is SQLite's: a ref is the id of a row of instructions; refs and json columns are JSON
    text, which json_each() and -> take apart; a bool is 1 or 0. NULL is printed as NULL, and is
    an empty field in CSV.

    \b
    hlolens query step.hlo "SELECT logical_kind, count(*) FROM collectives GROUP BY 1"
    hlolens query step.hlo "SELECT loop_name, phase, sum(executions * flops) FROM matmuls
      GROUP BY 1, 2"
    """
    from hlo_lens.facts import Facts
    from hlo_lens.facts.sqlite import QueryError, run_query

    if isnan(timeout):
        raise click.UsageError("--timeout is no number of seconds")
    if not files:
        if sql == "-" or os.path.exists(sql):
            raise click.UsageError(f"the SQL behind {sql} is missing")
        raise click.UsageError("no FILE before the SQL")
    if _is_sql(files[0]) and not _is_sql(sql):
        raise click.UsageError(f'the SQL stands last: hlolens query {sql} "{files[0]}"')
    facts = [Facts(program) for program in programs(files, module=module, stage=stage)]
    if not facts:
        return
    try:
        result = run_query(facts, sql, limit_seconds=timeout, limit_rows=max_rows)
    except QueryError as problem:
        error(str(problem))
        return
    tell_of_broken_passes(facts)
    _write(result, output_format, output)
    if not result.complete:
        # Even with --quiet: a cut answer must not pass for the whole.
        note(f"only the first {max_rows} rows are shown; allow more with --max-rows", level=-1)


def _is_sql(text: str) -> bool:
    return bool(re.match(r"\s*(select|with|values|explain)\s", text, re.IGNORECASE))


def _write(result: QueryResult, output_format: str, output: str | None) -> None:
    from hlo_lens.query import as_csv, as_json, as_table, print_table

    if output_format == "table" and output is None and (screen := console()).is_terminal:
        print_table(result, screen)
        return
    text = {"table": as_table, "json": as_json, "csv": as_csv}[output_format](result)
    with open_output(output) as stream:
        stream.write(text)
