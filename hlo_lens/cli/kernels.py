"""`hlolens kernels FILE`: which kernels run, in which pass, how often, under which contract."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
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
    words,
)
from hlo_lens.cli.reports import write_report

if TYPE_CHECKING:
    pass

_FINDINGS = 3  # of one rule


def _complete(given: str, names: Iterable[str]) -> list[str]:
    front, comma, begun = given.rpartition(",")
    return [f"{front}{comma}{name}" for name in names if name.startswith(begun)]


def _complete_families(_ctx: click.Context, _param: click.Parameter, given: str) -> list[str]:
    from hlo_lens_passes.kernels import families

    return _complete(given, families())


def _complete_phases(_ctx: click.Context, _param: click.Parameter, given: str) -> list[str]:
    from hlo_lens.facts import COMMON

    return _complete(given, next(one.values for one in COMMON if one.name == "phase"))


@verb()
@click.argument("file", metavar="FILE", type=INPUT)
@choice_options
@click.option(
    "--family",
    metavar="NAMES",
    multiple=True,
    callback=words,
    shell_complete=_complete_families,
    help="Only these: cudnn, cublaslt, transformer_engine, triton, mosaic_tpu, …; those of "
    "HLOLENS_CATALOGUE, a catalogue of your own, too.",
)
@click.option(
    "--phase",
    metavar="PHASES",
    multiple=True,
    callback=words,
    shell_complete=_complete_phases,
    help="Only these: fwd, bwd, remat, other; none: not known.",
)
@click.option(
    "--loop",
    metavar="LOOPS",
    multiple=True,
    callback=words,
    help="Only what is in these whiles; none: outside.",
)
@click.option(
    "--kernel",
    metavar="NAMES",
    multiple=True,
    callback=words,
    help="Only kernels of these names, which Triton and Mosaic calls have.",
)
@click.option(
    "--target",
    metavar="NAMES",
    multiple=True,
    callback=words,
    help="Only these custom_call_targets; a name is the whole name, 'x*' what begins with x.",
)
@click.option(
    "--contract",
    is_flag=True,
    help="Say of each distinct kernel what it takes and gives, with layouts, how it is launched, "
    "its memory and its body.",
)
@click.option(
    "--all",
    "helpers",
    is_flag=True,
    help="Show calls that do no work, too: shardings, marks, buffers.",
)
@format_option("text", "json", "csv", "markdown")
@output_option
def command(
    file: str,
    module: str | None,
    stage: str | None,
    family: tuple[str, ...],
    phase: tuple[str, ...],
    loop: tuple[str, ...],
    kernel: tuple[str, ...],
    target: tuple[str, ...],
    contract: bool,
    helpers: bool,
    output_format: str,
    output: str | None,
) -> None:
    """Say which kernels FILE runs, in which pass and loop, and how often in a step.

    A kernel is a custom call (fused attention, Pallas, Triton, Mosaic, cuBLASLt, cuDNN,
    TransformerEngine, …) or a fusion whose code a generator or library makes. What XLA's own
    emitters make is none: `hlolens lowering` says what matmuls and attention became.

    Options take names by commas, or globs of whole names. Exit code 1: there is none of those that
    are asked for. JSON has every call with its contract, CSV the groups.

    \b
    hlolens kernels step.opt.hlo
    hlolens kernels dump/ --family cudnn --contract
    hlolens kernels dump/ --target '__cublas$lt$matmul$f8' --phase fwd
    hlolens kernels dump/ --kernel 'splash_mha_fwd*' --phase remat
    """
    from hlo_lens_passes.kernels import families

    from hlo_lens.facts import Facts
    from hlo_lens.kernels import (
        Filters,
        NoSuchNameError,
        NotReadError,
        as_data,
        kernels_report,
    )

    facts = Facts(one_program(file, module=module, stage=stage))
    try:
        report = kernels_report(
            facts,
            Filters(family, phase, loop, kernel, target),
            helpers=helpers,
            contract=contract,
            known_families=families() if family else (),
        )
    except (NoSuchNameError, NotReadError) as problem:
        error(str(problem))
        return
    tell_of_broken_passes((facts,))
    if report.answer is False:
        answer_is_no()
    with open_output(output) as stream:
        write_report(
            report, "kernels", output_format, stream, partial(as_data.as_data, report),
            partial(as_data.as_columns, report), of_a_rule=_FINDINGS,
        )  # fmt: skip
