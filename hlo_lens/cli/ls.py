"""`hlolens ls DIR`: the modules and stages of a dump folder, without reading them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import click

from hlo_lens.cli.common import (
    INPUT,
    answer_is_no,
    bad_input_told,
    choice_options,
    console,
    format_option,
    note,
    verb,
    write_json,
)
from hlo_lens.dumps import DumpedModule, choose, choose_stage
from hlo_lens.files import InputError, refuse_special
from hlo_lens.present.quantities import bytes_text, visible
from hlo_lens.program import modules_in


@verb()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=INPUT)
@choice_options
@click.option("--all", "everything", is_flag=True, help="List the dump of every pass, too.")
@format_option("terminal", "json")
def command(
    folders: Sequence[str],
    module: str | None,
    stage: str | None,
    everything: bool,
    output_format: str,
) -> None:
    """List the modules and stages of the dump folders DIR, nested folders included.

    What stands under "module" is what --module takes, here and in every other verb.
    """
    listings = []
    for folder in folders:
        with bad_input_told():
            listings.append((folder, _selected(folder, module, stage)))
    if output_format == "json":
        write_json([_record(folder, each) for folder, found in listings for each in found])
    for folder, found in listings:
        if not found:
            answer_is_no()
            note(f"{folder}: {_nothing(module, stage)}")
        elif output_format == "terminal":
            _print(folder, found, everything=everything or stage is not None)


def _selected(folder: str, module: str | None, stage: str | None) -> list[DumpedModule]:
    """The modules of `folder` that were asked for, with the stages that were asked for."""
    refuse_special(folder)
    if not os.path.isdir(folder):
        raise InputError(folder, f"this is a file, not a folder; hlolens inspect {folder} reads it")
    modules: Sequence[DumpedModule] = modules_in(folder)
    if module is not None:
        modules = choose(modules, module)
    if stage is None:
        return list(modules)
    selected = []
    for each in modules:
        wanted = choose_stage([file.stage for file in each.stages], stage)
        if wanted:
            files = tuple(file for file in each.stages if file.stage in wanted)
            selected.append(replace(each, stages=files))
    return selected


def _nothing(module: str | None, stage: str | None) -> str:
    asked = [f"module {module!r}"] if module is not None else []
    asked += [f"stage {stage!r}"] if stage is not None else []
    return f"no {' with '.join(asked)} here; without the option, ls lists all there is"


def _print(folder: str, modules: Sequence[DumpedModule], *, everything: bool) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("module", style="cyan", overflow="fold")
    table.add_column("stage", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("file", style="dim", overflow="fold")
    for module in modules:
        label = visible(module.key)
        for file in module.stages if everything else module.main_stages():
            path = visible(os.path.relpath(file.path, folder))
            table.add_row(label, visible(file.stage), bytes_text(file.bytes), path)
            label = ""
        passes = [file for file in module.stages if file not in module.main_stages()]
        if passes and not everything:
            total = sum(file.bytes for file in passes)
            table.add_row("", f"{len(passes)} passes", bytes_text(total), "--all lists them")
        for name, side in module.side_files.items():
            path = visible(os.path.relpath(side, folder))
            table.add_row("", f"({name})", bytes_text(side.stat().st_size), path)
    console(rows=True).print(table)


def _record(folder: str, module: DumpedModule) -> dict[str, object]:
    return {
        "folder": folder,
        "module": module.key,
        "name": module.name,
        "number": module.number,
        "stages": [
            {
                "stage": file.stage,
                "platform": file.platform,
                "bytes": file.bytes,
                "path": str(file.path),
            }
            for file in module.stages
        ],
        "side_files": {name: str(path) for name, path in module.side_files.items()},
    }
