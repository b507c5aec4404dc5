"""`hlolens tree FILE`: the execution skeleton."""

from __future__ import annotations

import click

from hlo_lens.cli.common import (
    INPUT,
    choice_options,
    format_option,
    one_program,
    open_output,
    output_option,
    verb,
    write_json,
)
from hlo_lens.cli.page import width_of, write_lines


@verb()
@click.argument("file", metavar="FILE", type=INPUT)
@choice_options
@click.option(
    "--only",
    type=click.Choice(("communication", "compute")),
    help="Show one lane of the two.",
)
@click.option(
    "--depth", metavar="N", type=click.IntRange(min=0), help="Show N levels below the entry only."
)
@click.option("--source", is_flag=True, help="Show where in the source each line comes from.")
@click.option(
    "--groups",
    is_flag=True,
    help="Show more of each line: replica groups and mesh axes, algorithms, layouts.",
)
@format_option("terminal", "json")
@output_option
def command(
    file: str,
    module: str | None,
    stage: str | None,
    only: str | None,
    depth: int | None,
    source: bool,
    groups: bool,
    output_format: str,
    output: str | None,
) -> None:
    """Print what FILE executes: the collectives, matmuls and kernels in each loop, in order.

    What is inside a fusion or an asynchronous wrapper stands where that does. Lines that are alike
    and follow each other are one line with a count. "each" is of one execution, "per step" of one
    execution of the entry: of a loop, all that is in it.
    """
    from hlo_lens.facts import Facts
    from hlo_lens.tree import Options, as_data, as_lines, skeleton

    found = skeleton(Facts(one_program(file, module=module, stage=stage)), only=only)
    options = Options(depth=depth, source=source, details=groups)
    with open_output(output) as stream:
        if output_format == "json":
            write_json(as_data(found), stream)
        else:
            write_lines(as_lines(found, options, width=width_of(stream)), stream)
