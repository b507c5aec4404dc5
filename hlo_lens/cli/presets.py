"""`hlolens presets [NAME]`: the expectations that have a name, or one in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    console,
    format_option,
    is_there,
    open_output,
    output_option,
    verb,
    write_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lens.check.presets import Preset


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hlo_lens.check.presets import presets

    return [name for name in presets() if name.startswith(incomplete)]


@verb()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=_complete)
@format_option("terminal", "json")
@output_option
def command(name: str | None, output_format: str, output: str | None) -> None:
    """List the expectations that have a name, or say what NAME expects and takes.

    \b
    hlolens check step.opt.hlo --preset no-f32-matmul --preset family-absent:family=cudnn
    """
    from hlo_lens.check.presets import presets

    known = presets()
    if name is not None and not is_there("preset", name, known):
        return
    chosen = list(known.values()) if name is None else [known[name]]
    with open_output(output) as stream:
        if output_format == "json":
            write_json([_data(one) for one in chosen], stream)
        elif name is None:
            _print_list(chosen, console(stream))
        else:
            _print_preset(chosen[0], console(stream))


def _data(preset: Preset) -> dict[str, object]:
    parameters = [
        {"name": one.name, "about": one.about, "kind": one.kind, "default": one.default}
        for one in preset.parameters.values()
    ]
    return {
        "name": preset.name,
        "about": preset.about,
        "expects": dict(preset.keys),
        "parameters": parameters,
    }


def _print_list(presets: Iterable[Preset], screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for preset in presets:
        takes = ", ".join(preset.parameters)
        grid.add_row(Text(preset.name), Text(takes, "cyan"), Text(preset.summary))
    screen.print(grid)


def _print_preset(preset: Preset, screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    screen.print(Text(preset.name, "bold"))
    screen.print(Text(preset.about))
    screen.print()
    grid = Table.grid(padding=(0, 2, 0, 0))
    for key, value in preset.keys.items():
        shown = " ".join(value.split()) if isinstance(value, str) else str(value).lower()
        grid.add_row(Text(key, "cyan"), Text(shown))
    for one in preset.parameters.values():
        default = "" if one.default is None else f"; {one.default} where it is not said"
        grid.add_row(Text(f"{{{one.name}}}", "cyan"), Text(f"{one.about}{default}"))
    screen.print(grid)
