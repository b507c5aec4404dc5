"""`hlolens targets`: what can be compiled for here, and what to install for the rest."""

from __future__ import annotations

import click

from hlo_lens.cli.common import console, format_option, verb, write_json


@verb()
@format_option("terminal", "json")
def command(output_format: str) -> None:
    """List the targets of `hlolens compile`: ready, or the pip line that makes it so.

    Other sizes and topologies of the same chips are ready where these are; versions are pinned to
    the jaxlib that is installed.
    """
    from hlo_lens.aot import KNOWN, parse_target, readiness

    targets = [parse_target(name) for name in KNOWN]
    found = [(target, readiness(target)) for target in targets]
    if output_format == "json":
        write_json(
            [
                {
                    "target": target.name,
                    "platform": target.platform,
                    "topology": target.topology or None,
                    "devices": target.devices,
                    "ready": state.ready,
                    "install": state.install,
                    "note": state.note,
                }
                for target, state in found
            ]
        )
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("target", style="cyan", no_wrap=True)
    table.add_column("devices", justify="right")
    table.add_column("topology", no_wrap=True)
    table.add_column("", overflow="fold")
    for target, state in found:
        if state.ready:
            told = Text("ready", style="green")
            told.append("" if state.note is None else f"; {state.note}", style="default")
        else:
            told = Text(state.install or "")
        table.add_row(target.name, str(target.devices), target.topology, told)
    console(rows=True).print(table)
    for line in dict.fromkeys(state.install for _, state in found if state.ready and state.install):
        click.echo(f"\nfor what is not there: {line}")
