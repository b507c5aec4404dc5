"""`hlolens expect PROGRAM`: write a starting expectation file from a good program."""

from __future__ import annotations

import click

from hlo_lens.cli.common import (
    INPUT,
    bad_input_told,
    choice_options,
    complete_tables,
    error,
    one_program,
    open_output,
    output_option,
    tell_of_broken_passes,
    verb,
)


@verb()
@click.argument("file", metavar="PROGRAM", type=INPUT)
@choice_options
@click.option(
    "--table",
    "tables",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_tables,
    help="Expect something of this table only; may be repeated.",
)
@output_option
def command(
    file: str, module: str | None, stage: str | None, tables: tuple[str, ...], output: str | None
) -> None:
    """Write what PROGRAM is as expectations, for `hlolens check --expect` to judge others by.

    The file holds for PROGRAM itself: loops and how often they run, what is kept and recomputed,
    collectives, matmuls, kernels, by what they are and not by names. It is a start: take out what
    need not stay, and say why the rest must.

    \b
    hlolens expect good.opt.hlo -o gate.toml
    hlolens expect dump/ --table collectives --table loops
    """
    from hlo_lens.check.starting import starting
    from hlo_lens.check.starting_text import starting_text
    from hlo_lens.facts import Facts, UnknownTableError
    from hlo_lens.present.reading import NotReadError

    facts = Facts(one_program(file, module=module, stage=stage))
    with bad_input_told():
        try:
            text = starting_text(starting(facts, tables), stage=stage)
        except (UnknownTableError, NotReadError) as problem:
            error(str(problem))
            return
        with open_output(output) as stream:
            stream.write(text)
    tell_of_broken_passes([facts])
