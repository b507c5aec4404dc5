"""`hlolens check PROGRAM…`: judge expectations, or fail on findings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    FAILED,
    INPUT,
    answer_is_no,
    bad_input_told,
    choice_options,
    programs,
    state,
    verb,
    words,
)
from hlo_lens.cli.page import width_of, write_lines

if TYPE_CHECKING:
    from hlo_lens.check.gate import Checked
    from hlo_lens.check.model import Expectation
    from hlo_lens.facts import Facts
    from hlo_lens.facts.findings import Level


@verb()
@click.argument("files", metavar="PROGRAM...", nargs=-1, required=True, type=INPUT)
@choice_options
@click.option(
    "--expect",
    "expected",
    metavar="FILE",
    type=click.Path(),
    multiple=True,
    help="Judge the expectations of this TOML file; may be repeated.",
)
@click.option(
    "--preset",
    "presets",
    metavar="NAME",
    multiple=True,
    help="Judge this expectation that hlolens brings; may be repeated.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("note", "warning", "error")),
    default="error",
    show_default=True,
    help="The level at which findings fail the check; with --expect, whether warnings do.",
)
@click.option(
    "--select", metavar="RULE,…", callback=words, help="Of findings, those of these rules; globs."
)
@click.option("--ignore", metavar="RULE,…", callback=words, help="Leave these rules out; globs.")
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    expected: tuple[str, ...],
    presets: tuple[str, ...],
    fail_on: Level,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
) -> None:
    """Say whether PROGRAM... is as expected: exit code 0 yes, 1 no, 2 it could not be judged.

    Without --expect and --preset the findings are judged: what `hlolens rules` lists.

    \b
    hlolens check step.opt.hlo --fail-on warning
    hlolens check dump/ --expect gate.toml
    """
    from hlo_lens.facts import Facts

    expectations = _expectations(expected, presets)
    found = [Facts(one) for one in programs(files, module=module, stage=stage)]
    checked: list[Checked] = []
    with bad_input_told():
        checked = [_checked(one, expectations, fail_on, select, ignore) for one in found]
    _write(checked)
    if any(one.failed(fail_on) for one in checked):
        answer_is_no()
    if any(one.not_judged for one in checked):
        state().worst(FAILED)


def _checked(
    facts: Facts,
    expectations: Sequence[Expectation],
    fail_on: Level,
    select: Sequence[str],
    ignore: Sequence[str],
) -> Checked:
    from hlo_lens.check.gate import by_expectations, by_rules

    if expectations:
        return by_expectations(facts, expectations)
    return by_rules(facts, fail_on, select, ignore)


def _expectations(files: Sequence[str], presets: Sequence[str]) -> list[Expectation]:
    """Those of the files and the presets; where one cannot be read, that is told: exit code 2."""
    from hlo_lens.check.reading import HERE, expectation, read_file
    from hlo_lens.facts import discover_passes

    registry = discover_passes()
    found: list[Expectation] = []
    with bad_input_told():
        for file in files:
            found += read_file(file, registry)
        found += [expectation({"preset": name}, HERE, registry) for name in presets]
        return found
    raise click.exceptions.Exit(FAILED)


def _write(checked: Sequence[Checked]) -> None:
    from hlo_lens.check.terminal import as_lines

    if checked:
        write_lines(as_lines(checked, width=width_of(sys.stdout)), sys.stdout)
