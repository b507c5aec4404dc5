"""`hlolens lowering FILE`: what matmuls, ragged dots, attention and expert blocks became."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

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
    write_json,
)
from hlo_lens.cli.page import width_of, write_lines

if TYPE_CHECKING:
    from hlo_lens.lowering import Report
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
    from hlo_lens.lowering import lowering_report

    facts = Facts(one_program(file, module=module, stage=stage))
    with device_asked_for(spec):
        if spec is not None and (problem := _unknown_device(facts.program)) is not None:
            error(problem)
            return
        report = lowering_report(facts)
    tell_of_broken_passes((facts,))
    with open_output(output) as stream:
        _write(report, output_format, stream)


def _unknown_device(program: Program) -> str | None:
    """What is wrong with the device that is asked for."""
    from hlo_lens_passes._device_specs import choose

    chosen = choose(program)
    return chosen.broken[-1] if chosen.spec is None and chosen.broken else None


def _write(report: Report, output_format: str, stream: IO[str]) -> None:
    if output_format == "json":
        from hlo_lens.lowering.as_data import as_data

        write_json(as_data(report), stream)
    elif output_format == "markdown":
        from hlo_lens.present.markdown import as_markdown

        stream.write(as_markdown(report, "lowering", of_a_rule=_FINDINGS))
    else:
        from hlo_lens.present.terminal import as_lines

        write_lines(as_lines(report, width=width_of(stream), of_a_rule=_FINDINGS), stream)
