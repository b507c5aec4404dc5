"""`hlolens diff OLD NEW`: what changed between two programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click
from click.core import ParameterSource

from hlo_lens.cli.common import (
    FAILED,
    INPUT,
    answer_is_no,
    choice_options,
    complete_tables,
    error,
    format_option,
    one_program,
    open_output,
    output_option,
    tell_of_broken_passes,
    verb,
    write_json,
)
from hlo_lens.cli.page import width_of, write_lines

if TYPE_CHECKING:
    from hlo_lens.program import Program

_LINES = 12


@verb()
@click.argument("old", metavar="OLD", type=INPUT)
@click.argument("new", metavar="NEW", type=INPUT)
@choice_options
@click.option(
    "--exact",
    type=click.Choice(("program", "text")),
    help="Say only whether they are the same, and where they part first: program leaves out "
    "names, ids, metadata and source locations, text compares line by line without metadata.",
)
@click.option(
    "--only",
    metavar="TABLE",
    multiple=True,
    shell_complete=complete_tables,
    help="Compare this table and no other; may be repeated.",
)
@click.option(
    "--ignore-table",
    "ignored",
    metavar="TABLE",
    multiple=True,
    shell_complete=complete_tables,
    help="Leave this table out; may be repeated.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Show N lines of each list at most, 0 for all; {_LINES} without it, but all in JSON.",
)
@format_option("terminal", "json", "markdown")
@output_option
def command(
    old: str,
    new: str,
    module: str | None,
    stage: str | None,
    exact: Literal["program", "text"] | None,
    only: tuple[str, ...],
    ignored: tuple[str, ...],
    limit: int | None,
    output_format: str,
    output: str | None,
) -> None:
    """Say what changed from OLD to NEW; exit code 0 where nothing did, 1 where something did.

    Instructions are matched by what they compute, not by their names, and rows of the tables by
    their instructions. Names, ids, channel ids and metadata make no difference. Of two dump
    folders, each stage that both have is compared; two files are compared whatever their stages
    are. Without --only, that is all instructions, the tables that a report shows, and the findings.

    \b
    hlolens diff before/ after/ --stage opt
    hlolens diff before.hlo after.hlo --only collectives --format markdown
    hlolens diff --exact program yesterday.hlo today.hlo > /dev/null && echo the same
    """
    context = click.get_current_context()
    given = map(context.get_parameter_source, ("only", "ignored", "limit"))
    if exact and ParameterSource.COMMANDLINE in given:
        raise click.UsageError("--exact compares no tables: it takes no --only and the like")
    if not _tables_are_known((*only, *ignored)):
        return
    if only and set(only) <= set(ignored):
        raise click.UsageError(
            "--ignore-table leaves out all that --only names: nothing to compare"
        )
    sides = _sides((old, new), module, stage)
    if exact:
        _exact(exact, *sides, output_format, output)
    else:
        _compare(*sides, only, ignored, limit, output_format, output)


def _tables_are_known(names: Sequence[str]) -> bool:
    from hlo_lens.facts import UnknownTableError, discover_passes

    try:
        for name in names:
            discover_passes().table(name)
    except UnknownTableError as problem:
        error(str(problem))
        return False
    return True


def _sides(
    files: tuple[str, str], module: str | None, stage: str | None
) -> tuple[Program, Program]:
    """Both programs; where one cannot be read, that is told, of both, and the command ends."""
    if files == ("-", "-"):
        raise click.UsageError("standard input can be one of the two sides, not both")
    loaded = []
    for file in files:
        try:
            loaded.append(one_program(file, module=module, stage=stage))
        except click.exceptions.Exit:
            continue
    if len(loaded) < 2:
        raise click.exceptions.Exit(FAILED)
    return loaded[0], loaded[1]


def _compare(
    old: Program,
    new: Program,
    only: tuple[str, ...],
    ignored: tuple[str, ...],
    limit: int | None,
    output_format: str,
    output: str | None,
) -> None:
    from hlo_lens.diff import NothingInCommonError, compare

    try:
        diff = compare(old, new, only=only, ignore=ignored)
    except NothingInCommonError as problem:
        error(str(problem))
        return
    tell_of_broken_passes((diff.old, diff.new))
    if not diff.same:
        answer_is_no()
    with open_output(output) as stream:
        if output_format == "json":
            from hlo_lens.diff.as_json import as_data

            write_json(as_data(diff, limit=limit or 0), stream)
            return
        from hlo_lens.diff.report import report

        lines = _LINES if limit is None else limit
        found = report(diff, whole=lines == 0)
        if output_format == "markdown":
            from hlo_lens.diff.markdown import as_markdown

            stream.write(as_markdown(found, limit=lines))
        else:
            from hlo_lens.diff.terminal import as_lines

            write_lines(as_lines(found, limit=lines, width=width_of(stream)), stream)


def _exact(
    by: Literal["program", "text"],
    old: Program,
    new: Program,
    output_format: str,
    output: str | None,
) -> None:
    from hlo_lens.diff import NothingInCommonError, stage_pairs
    from hlo_lens.diff.exact import first_parting
    from hlo_lens.diff.exact_report import Stage, exact_report

    try:
        pairs = stage_pairs(old, new)
    except NothingInCommonError as problem:
        error(str(problem))
        return
    stages = [
        Stage(
            name,
            old.modules[at],
            new.modules[its],
            first_parting(old.modules[at], new.modules[its], by=by),
        )
        for name, at, its in pairs
    ]
    if any(stage.parting is not None for stage in stages):
        answer_is_no()
    with open_output(output) as stream:
        if output_format == "json":
            from hlo_lens.diff.as_json import exact_data

            write_json(exact_data(by, old, new, stages), stream)
            return
        found = exact_report(by, old, new, stages)
        if output_format == "markdown":
            from hlo_lens.diff.markdown import exact_as_markdown

            stream.write(exact_as_markdown(found))
        else:
            from hlo_lens.diff.terminal import exact_as_lines

            write_lines(exact_as_lines(found, width=width_of(stream)), stream)
