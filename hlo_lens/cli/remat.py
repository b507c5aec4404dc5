"""`hlolens remat PROGRAM [POLICY]`: what a checkpoint keeps and replays, or what it changes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    FAILED,
    INPUT,
    answer_is_no,
    choice_options,
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
    from hlo_lens.remat.report import Report

_LINES = 12


@verb()
@click.argument("program", metavar="PROGRAM", type=INPUT)
@click.argument("policy", metavar="[POLICY]", type=INPUT, required=False)
@choice_options
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=_LINES,
    show_default=True,
    help="Show N lines of each list at most, 0 for all. JSON has all.",
)
@format_option("terminal", "json", "markdown")
@output_option
def command(
    program: str,
    policy: str | None,
    module: str | None,
    stage: str | None,
    limit: int,
    output_format: str,
    output: str | None,
) -> None:
    """Say what PROGRAM keeps for its backward and computes again; with POLICY, what that changes.

    With two, PROGRAM is the baseline, usually the one without a checkpoint. Three questions are
    answered, each by itself: does the forward keep fewer bytes for the backward, is more work
    replayed, and is the peak of memory lower? The peak is that of memory_analysis.json, which
    `hlolens compile` writes beside the text.

    Exit code 0: all three are yes; 1: one is no, or is not known, so that no gate passes on what
    nobody has seen; 2: it could not be done, as for texts of different stages. With one program 0.

    \b
    hlolens remat full/
    hlolens remat none/ full/
    hlolens remat none/ full/ --stage before --format markdown
    """
    if program == policy == "-":
        raise click.UsageError("standard input can be one of the two programs, not both")
    loaded = _loaded([program] if policy is None else [program, policy], module, stage)
    if len(loaded) == 1:
        _one(loaded[0], limit, output_format, output)
    else:
        _pair(loaded[0], loaded[1], limit, output_format, output)


def _loaded(files: list[str], module: str | None, stage: str | None) -> list[Program]:
    """The programs; where one cannot be read, that is told, of both, and the command ends."""
    loaded = []
    for file in files:
        try:
            loaded.append(one_program(file, module=module, stage=stage))
        except click.exceptions.Exit:
            continue
    if len(loaded) < len(files):
        raise click.exceptions.Exit(FAILED)
    return loaded


def _one(program: Program, limit: int, output_format: str, output: str | None) -> None:
    from hlo_lens.facts import Facts
    from hlo_lens.remat import NoAnswerError
    from hlo_lens.remat.as_json import program_data
    from hlo_lens.remat.report import program_report

    facts = Facts(program)
    try:
        made = program_data(facts) if output_format == "json" else program_report(facts)
    except NoAnswerError as problem:
        error(str(problem))
        return
    tell_of_broken_passes((facts,))
    with open_output(output) as stream:
        _write(made, limit, output_format, stream)


def _pair(
    baseline: Program, policy: Program, limit: int, output_format: str, output: str | None
) -> None:
    from hlo_lens.remat import NoAnswerError, compare
    from hlo_lens.remat.as_json import joint_data
    from hlo_lens.remat.report import joint_report

    try:
        joint = compare(baseline, policy)
    except NoAnswerError as problem:
        error(str(problem))
        return
    tell_of_broken_passes((joint.baseline, joint.policy))
    if not joint.holds:
        answer_is_no()
    with open_output(output) as stream:
        made = joint_data(joint) if output_format == "json" else joint_report(joint)
        _write(made, limit, output_format, stream)


def _write(
    made: Report | dict[str, object], limit: int, output_format: str, stream: IO[str]
) -> None:
    if isinstance(made, dict):
        write_json(made, stream)
    elif output_format == "markdown":
        from hlo_lens.remat.markdown import as_markdown

        stream.write(as_markdown(made, limit=limit))
    else:
        from hlo_lens.remat.terminal import as_lines

        write_lines(as_lines(made, limit=limit, width=width_of(stream)), stream)
