"""`hlolens figure FILE…`: draw a part of a program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lens.cli.common import (
    FAILED,
    INPUT,
    bad_input_told,
    choice_options,
    error,
    note,
    open_binary_output,
    open_output,
    output_option_with,
    tell_of_broken_passes,
    verb,
)
from hlo_lens.cli.selection import chosen_of, drawn, numbered_facts, selection_options

if TYPE_CHECKING:
    from hlo_lens.figure import Figure, Format


@verb()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT)
@choice_options
@selection_options
@output_option_with(
    "Write to this file, as its suffix says: .svg, .png, .pdf or .dot; DOT to standard output "
    "otherwise."
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("svg", "png", "pdf", "dot")),
    help="The format, whatever the suffix.",
)
@click.option(
    "--theme",
    type=click.Choice(("light", "dark", "print")),
    default="light",
    show_default=True,
    help="For light pages, dark ones, or print without colour.",
)
@click.option(
    "--color-by", "color_by", type=click.Choice(("phase", "family")), help="What colours tell."
)
@click.option(
    "--title",
    "titles",
    metavar="TEXT",
    multiple=True,
    help="The heading of each FILE, in order, also of one that cannot be read.",
)
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    output: str | None,
    output_format: Format | None,
    theme: str,
    color_by: str | None,
    titles: tuple[str, ...],
    **options: Any,
) -> None:
    """Draw a part of FILE..., each a panel: what a row is made of, or what is around a name.

    Every node is an instruction of the text with its name, shape and opcode; every edge is an
    operand path. What is not drawn between two nodes is a dashed edge with its number.

    \b
    hlolens figure none/ full/ --view remat -o remat.svg
    hlolens figure step.opt.hlo --table collectives --where 'in_backward_loop' -o gathers.svg
    hlolens figure step.opt.hlo --around dot_general.8 --radius 2 -o dot.png
    hlolens figure step.opt.hlo --from tanh.5 --to dot_general.9 | dot -Tx11

    Layout is by Graphviz: its `dot` where that is installed, else what pygraphviz brings.
    """
    if len(titles) > len(files):
        raise click.UsageError(
            f"--title: {len(titles)} titles for {len(files)} FILE{'s'[len(files) == 1 :]}"
        )
    chosen = chosen_of(options)
    form = _format(output, output_format)
    numbered = numbered_facts(files, module, stage)
    if not numbered:
        return
    facts = [one for _, one in numbered]
    headings = [titles[at] if at < len(titles) else "" for at, _ in numbered]
    with bad_input_told():
        figure = drawn(facts, chosen, theme=theme, color=color_by, titles=headings)
        tell_of_broken_passes(facts)
        _write(figure, form, output)


def _format(output: str | None, output_format: Format | None) -> Format:
    """The format asked for, by name or by the suffix of the output."""
    from hlo_lens.figure import format_of
    from hlo_lens.files import InputError

    if output_format is not None:
        return output_format
    if output is None or output == "-":
        return "dot"
    try:
        return format_of(Path(output))
    except InputError as problem:
        error(str(problem))
        raise click.exceptions.Exit(FAILED) from None


def _write(figure: Figure, form: Format, output: str | None) -> None:
    """Write the figure; where no layout engine is there, the DOT of it beside."""
    if form == "dot":
        with open_output(output) as stream:
            stream.write(figure.dot())
        return
    from hlo_lens.figure.layout import LayoutError

    try:
        data = figure.render(form)
    except LayoutError as problem:
        error(problem.render())
        if output is not None and output != "-":
            _write_beside(figure, Path(output).with_suffix(".dot"))
        return
    with open_binary_output(output) as binary:
        if form in ("png", "pdf") and binary.isatty():
            error(f"{form} is not for a terminal; name a file with -o")
            return
        binary.write(data)


def _write_beside(figure: Figure, beside: Path) -> None:
    """Write the DOT of a figure that could not be laid out, where nothing else stands."""
    if os.path.lexists(beside):
        note(f"{beside} is there already and stays as it is; -o NAME.dot writes the DOT")
        return
    with open_output(str(beside)) as stream:
        stream.write(figure.dot())
    note(f"the DOT is in {beside}")
