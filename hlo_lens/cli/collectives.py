"""`hlolens collectives FILE`: which collectives run, where, how often, and what hides them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    INPUT,
    choice_options,
    device_asked_for,
    error,
    format_option,
    one_program,
    open_output,
    output_option,
    spec_option,
    tell_of_broken_passes,
    verb,
    words,
)
from hlo_lens.cli.reports import write_report

if TYPE_CHECKING:
    pass

_TOP = 5


def _complete_keys(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hlo_lens.collectives.chosen import names_of_keys
    from hlo_lens.collectives.rows import COLLECTIVES
    from hlo_lens.facts import discover_passes

    given, comma, begun = incomplete.rpartition(",")
    names = names_of_keys(discover_passes().table(COLLECTIVES))
    return [f"{given}{comma}{name}" for name in names if name.startswith(begun)]


@verb()
@click.argument("file", metavar="FILE", type=INPUT)
@choice_options
@click.option(
    "--by",
    metavar="KEYS",
    default=("loop,phase,kind",),
    show_default="loop,phase,kind",
    multiple=True,
    callback=words,
    shell_complete=_complete_keys,
    help="Group by these, of loop, phase, kind, axis, parameter, source, scope, dtype, group and "
    "any column of the table collectives.",
)
@click.option(
    "--phase",
    metavar="PHASES",
    multiple=True,
    callback=words,
    help="Only these: fwd, bwd, remat, …",
)
@click.option(
    "--loop",
    metavar="LOOPS",
    multiple=True,
    callback=words,
    help="Only what is in these whiles; none: outside.",
)
@click.option(
    "--kind",
    metavar="KINDS",
    multiple=True,
    callback=words,
    help="Only these: all-gather or AG, all-reduce, …",
)
@click.option(
    "--top",
    metavar="N",
    type=click.IntRange(min=0),
    default=_TOP,
    show_default=True,
    help="Show N single collectives, what to look at first in front. JSON has all.",
)
@spec_option("for estimates of times")
@format_option("text", "json", "csv", "markdown")
@output_option
def command(
    file: str,
    module: str | None,
    stage: str | None,
    by: tuple[str, ...],
    phase: tuple[str, ...],
    loop: tuple[str, ...],
    kind: tuple[str, ...],
    top: int,
    spec: str | None,
    output_format: str,
    output: str | None,
) -> None:
    """Say which collectives run in FILE, where, how often, what they send and what hides them.

    Groups come first, what to look at first in front: what no heavy work hides, by estimated time
    where the device is known, else by bytes. Times are estimates of a ring on idle connections, by
    a device spec; which, and where it is from, is said. Then what is exposed and what overlaps in
    each loop and phase, single collectives, and findings. CSV has the groups.

    \b
    hlolens collectives step.opt.hlo --spec v6e
    hlolens collectives dump/ --by axis,kind --phase bwd
    hlolens collectives dump/ --by parameter --top 20
    """
    from hlo_lens.collectives import (
        Filters,
        NoSuchNameError,
        NotReadError,
        as_data,
        collectives_report,
    )
    from hlo_lens.facts import Facts

    if not by:
        raise click.UsageError("--by names nothing to group by")
    facts = Facts(one_program(file, module=module, stage=stage))
    with device_asked_for(spec):
        try:
            report = collectives_report(facts, by, Filters(phase, loop, kind), top)
        except (NoSuchNameError, NotReadError) as problem:
            error(str(problem))
            return
    tell_of_broken_passes((facts,))
    if spec is not None and (broken := [f for f in report.findings if f.rule == "spec-broken"]):
        error(broken[0].message)
        return
    with open_output(output) as stream:
        write_report(
            report, "collectives", output_format, stream, partial(as_data.as_data, report),
            partial(as_data.as_columns, report),
        )  # fmt: skip
