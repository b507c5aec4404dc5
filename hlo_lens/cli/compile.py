"""`hlolens compile MODULE:FUNCTION`: the HLO that a jax function becomes on a device not here."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lens.cli.common import console, note, state, verb

if TYPE_CHECKING:
    from hlo_lens.program import Program

_TIMEOUT = 900.0


@verb()
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option(
    "--target",
    required=True,
    metavar="TARGET",
    help="cpu, cpu:8, tpu:v6e-8, cuda:h100-8, rocm:gfx950, …; `hlolens targets` lists them.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The folder to write to; made where it is not there.",
)
@click.option(
    "--mesh",
    multiple=True,
    metavar="AXIS=SIZE",
    help="The axes of the mesh, such as fsdp=4,tensor=2; otherwise one, devices.",
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="SPEC",
    help="FUNCTION itself is compiled, and this is its next argument: bf16[64,128]@fsdp,None.",
)
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Pass FUNCTION a keyword: a number, true, false or null, else text.",
)
@click.option(
    "--xla-flag",
    "flags",
    multiple=True,
    metavar="FLAG",
    help="A flag of XLA: --xla_gpu_enable_triton_gemm=false.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="End the compile when it takes longer.",
)
@click.option("--all-passes", is_flag=True, help="Keep the text between every two passes, too.")
@click.option(
    "--allow-stub-runtime",
    is_flag=True,
    help="Let stand-ins take the place of ROCm's libraries, or of cuDNN, where they are missing.",
)
def command(
    function: str,
    target: str,
    output: str,
    mesh: Sequence[str],
    arguments: Sequence[str],
    options: Sequence[str],
    flags: Sequence[str],
    timeout: float,
    all_passes: bool,
    allow_stub_runtime: bool,
) -> None:
    """Compile a jax function for TARGET, which need not be here, and keep the HLO in DIR.

    FUNCTION(mesh), or FUNCTION(), returns (fn, args): what to compile, and its arguments, arrays
    or jax.ShapeDtypeStruct. With --arg, FUNCTION itself is compiled. MODULE is looked for in the
    working directory, too.

    DIR is read by every other verb: hlolens inspect DIR.
    """
    from hlo_lens.aot import CompileError, compile_reference

    if os.environ.get("XLA_FLAGS"):
        note("XLA_FLAGS is not used here, so that the command says it all; give --xla-flag")

    try:
        with _progress(f"{function} on {target}") as progress:
            program = compile_reference(
                function,
                target=target,
                arguments=arguments,
                options=_options(options),
                mesh=",".join(mesh) or None,
                flags=flags,
                out=output,
                timeout=timeout,
                all_passes=all_passes,
                allow_stub_runtime=allow_stub_runtime,
                progress=progress,
            )
    except CompileError as problem:
        note(problem.log.rstrip(), level=1)
        raise
    _tell(program, output)


def _options(texts: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{text!r}; write it as layers=4", param_hint="--set")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


@contextmanager
def _progress(title: str) -> Iterator[Callable[[str], None]]:
    """A line with the step and the seconds on a terminal; elsewhere, a line a step with -v."""
    verbosity = state().verbosity  # what is yielded is called from another thread
    if verbosity < 0 or not sys.stderr.isatty():
        yield lambda step: print(f"hlolens: {step}", file=sys.stderr) if verbosity > 0 else None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as screen:
        task = screen.add_task(f"{title}: starting", total=None)
        yield lambda step: screen.update(task, description=f"{title}: {step}")


def _tell(program: Program, output: str) -> None:
    """What was made, and what is not as on the device itself."""
    provenance = json.loads(Path(output, "provenance.json").read_text())
    sizes = ", ".join(
        f"{stage} ({len(module.text):,} characters)"
        for stage, module in zip(program.stages, program.modules, strict=True)
    )
    click.echo(f"{output}: {sizes}")
    if provenance["error"]:
        note(f"the HLO is complete, but no executable came of it: {provenance['error']}")
    if provenance["stand_ins"]:
        note(f"with stand-ins: {', '.join(provenance['stand_ins'])}")
    if provenance["autotuned"] is False:
        note("not autotuned: tiles, split-K, algorithms and workspace sizes are defaults")
    note(f"next: hlolens inspect {shlex.quote(output)}")
