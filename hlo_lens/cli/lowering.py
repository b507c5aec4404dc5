"""`hlolens lowering FILE`: what matmuls, ragged dots, attention and expert blocks became."""

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
)
from hlo_lens.cli.reports import write_report

if TYPE_CHECKING:
    from hlo_lens.program import Program

_FINDINGS = 3  # of one rule


@verb()
@click.argument("file", metavar="FILE", type=INPUT)
@choice_options
@spec_option("to tell whether routing or the experts are heavier")
@format_option("text", "json", "markdown")
@output_option
def command(
    file: str,
    module: str | None,
    stage: str | None,
    spec: str | None,
    output_format: str,
    output: str | None,
) -> None:
    """Say what the matmuls, ragged dots, attention and expert blocks of FILE became.

    Did a ragged dot become a grouped GEMM, and if not, why, and what does that cost? Did attention
    stay fused, forward and backward? Which matmuls run where, and what stands in front of them?
    The sentences at the head answer; the sections below them have the numbers.

    With the text before optimization in the same folder, the last section sets both side by side.

    \b
    hlolens lowering step.opt.hlo --spec v6e
    hlolens lowering dump/ --module '*train_step*'
    hlolens lowering dump/ --stage before --format markdown
    """
    from hlo_lens.facts import Facts
    from hlo_lens.lowering import as_data, lowering_report

    facts = Facts(one_program(file, module=module, stage=stage))
    with device_asked_for(spec):
        if spec is not None and (problem := _unknown_device(facts.program)) is not None:
            error(problem)
            return
        report = lowering_report(facts)
    tell_of_broken_passes((facts,))
    with open_output(output) as stream:
        write_report(
            report, "lowering", output_format, stream, partial(as_data.as_data, report),
            of_a_rule=_FINDINGS,
        )  # fmt: skip


def _unknown_device(program: Program) -> str | None:
    """What is wrong with the device that is asked for."""
    from hlo_lens_passes._device_specs import choose

    chosen = choose(program)
    return chosen.broken[-1] if chosen.spec is None and chosen.broken else None
