"""`hlolens rules [ID]`: the rules behind the findings, or one explained."""

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

    from hlo_lens.facts import Rule

_STYLES = {"note": "cyan", "warning": "yellow", "error": "red"}


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hlo_lens.facts import discover_passes

    return [rule for rule in discover_passes().rules if rule.startswith(incomplete)]


@verb()
@click.argument("rule", metavar="[ID]", required=False, shell_complete=_complete)
@format_option("terminal", "json")
@output_option
def command(rule: str | None, output_format: str, output: str | None) -> None:
    """List the rules whose findings `inspect` reports, or explain the rule ID."""
    from hlo_lens.facts import discover_passes

    known = discover_passes().rules
    if rule is not None and not is_there("rule", rule, known):
        return
    chosen = list(known.values()) if rule is None else [known[rule]]
    with open_output(output) as stream:
        if output_format == "json":
            write_json([_data(one) for one in chosen], stream)
        elif rule is None:
            _print_list(chosen, console(stream))
        else:
            _print_rule(chosen[0], console(stream))


def _data(rule: Rule) -> dict[str, str]:
    return {"id": rule.id, "level": rule.level, "summary": rule.summary, "doc": rule.doc}


def _print_list(rules: Iterable[Rule], screen: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for rule in rules:
        grid.add_row(rule.id, Text(rule.level, style=_STYLES[rule.level]), Text(rule.summary))
    screen.print(grid)


def _print_rule(rule: Rule, screen: Console) -> None:
    from rich.text import Text

    head = Text.assemble((rule.id, "bold"), "  ", (rule.level, _STYLES[rule.level]))
    screen.print(head)
    screen.print(Text(rule.summary))
    screen.print()
    screen.print(Text(rule.doc))
