"""A Program: the stages of one compile, and the files that say more about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hlo_lens import dumps
from hlo_lens.dumps import AFTER, BEFORE, PARTITIONED, STAGES, UNKNOWN
from hlo_lens.files import STDIN, InputError, read_text, refuse_special
from hlo_lens.hlo import Module, parse

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.facts.sqlite import QueryResult
    from hlo_lens.figure import Figure
    from hlo_lens.notebook import Tables, TableView

__all__ = ["AFTER", "BEFORE", "PARTITIONED", "STAGES", "UNKNOWN", "Program", "load", "load_dumped"]

# The most optimized stage is the one that runs. A single pass's dump lies between its neighbours.
_MAIN_ORDER = {BEFORE: 0, PARTITIONED: 2, UNKNOWN: 3, AFTER: 4}


class Program:
    """One compile: `modules`, with `stages[i]` naming the stage of `modules[i]`.

    A stage is "before_optimizations", "after_spmd_partitioner", "after_optimizations", the name
    that XLA gave to one pass's dump, or "unknown". `side_files` holds, by file name (or
    "buffer-assignment"), what else the compile left beside the text.
    """

    __slots__ = ("_analyses", "_facts", "modules", "name", "side_files", "stages")

    def __init__(
        self,
        modules: Sequence[Module],
        stages: Sequence[str] | None = None,
        *,
        name: str | None = None,
        side_files: Mapping[str, Path] | None = None,
    ) -> None:
        """Raises ValueError where there is no module, or not one stage a module."""
        self.modules: tuple[Module, ...] = tuple(modules)
        if not self.modules:
            raise ValueError("a Program needs at least one module")
        if stages is None:
            stages = [guess_stage(module) for module in self.modules]
        self.stages: tuple[str, ...] = tuple(stages)
        if len(self.stages) != len(self.modules):
            raise ValueError(f"{len(self.modules)} modules, but {len(self.stages)} stages")
        self.side_files: Mapping[str, Path] = MappingProxyType(dict(side_files or {}))
        self.name: str = name or self.main.name
        self._analyses: dict[int, ModuleAnalysis] = {}
        self._facts: Facts | None = None

    @property
    def main(self) -> Module:
        """The module of the most optimized stage: the one that runs."""
        ranks = [_MAIN_ORDER.get(stage, 1) for stage in self.stages]
        return self.modules[max(range(len(ranks)), key=lambda i: (ranks[i], i))]

    def stage(self, name: str) -> Module | None:
        """The module at stage `name`, short as for `--stage` (`opt`) or in full; None where the
        Program has no such stage."""
        wanted = name if name in self.stages else _stage_name(name)
        return next(
            (
                module
                for module, its in zip(self.modules, self.stages, strict=True)
                if its == wanted
            ),
            None,
        )

    def index(self, module: Module) -> int:
        """The position of `module` in `modules`. Raises ValueError where it is none of them."""
        for position, own in enumerate(self.modules):
            if own is module:
                return position
        raise ValueError(f"module {module.name!r} is not part of {self!r}")

    def analysis(self, module: Module) -> ModuleAnalysis:
        """The analysis of `module`, made once."""
        from hlo_lens.analysis import ModuleAnalysis

        position = self.index(module)
        if position not in self._analyses:
            self._analyses[position] = ModuleAnalysis(module)
        return self._analyses[position]

    @property
    def facts(self) -> Facts:
        """The tables of this program by every installed pass, each computed once."""
        if self._facts is None:
            from hlo_lens.facts import Facts

            self._facts = Facts(self)
        return self._facts

    @property
    def tables(self) -> Tables:
        """The tables there are, by name, and what a row of each is; computes none."""
        from hlo_lens.notebook import Tables

        return Tables(self.facts)

    def table(self, name: str, *, stage: str | None = None) -> TableView:
        """The rows of one table, computed when first asked for; of one stage, or of all there are.

            program.table("collectives", stage="after_optimizations").where(phase="bwd")

        Raises `UnknownTableError`, `NotReadError` where the pass that fills it failed, and
        ValueError where the program has no such stage.
        """
        from hlo_lens.notebook import table

        view = table(self.facts, name)
        if stage is None:
            return view
        module = self.stage(stage)
        if module is None:
            raise ValueError(f"no stage {stage!r}; there are: {', '.join(self.stages)}")
        return view.where(module=self.index(module))

    @property
    def findings(self) -> TableView:
        """What the passes have to say about the program, the gravest first."""
        from hlo_lens.notebook import findings

        return findings(self.facts)

    def query(self, sql: str) -> QueryResult:
        """Answer one SELECT over the tables; computes those it touches. Raises `QueryError`."""
        from hlo_lens.facts.sqlite import run_query

        return run_query([self.facts], sql)

    def figure(self, view: str | None = None, **wanted: Any) -> Figure:
        """A drawing of a small part of the program: a named view, or what `hlo_lens.figure.draw`
        is asked for by keyword.

            program.figure("remat").save("remat.svg")
            program.figure(table="collectives", row=3)

        Raises as `draw` does.
        """
        from hlo_lens.figure import draw

        return draw(self.facts, view=view, **wanted)

    def _repr_html_(self) -> str:
        from hlo_lens.notebook.shown_program import program_html

        return program_html(self)

    def __repr__(self) -> str:
        return f"<Program {self.name!r}: {', '.join(self.stages)}>"


def guess_stage(module: Module) -> str:
    """The stage of a module, by its file's name, else by whether it is scheduled.

    Only the compiler's last passes schedule; a module that is not scheduled may be anything.
    """
    if module.filename is not None:
        name = dumps.read_name(os.path.basename(module.filename))
        if name is not None and name.stage != UNKNOWN:
            return name.stage
    return AFTER if module.is_scheduled else UNKNOWN


def load(
    path: str | os.PathLike[str], *, module: str | None = None, stage: str | None = None
) -> Program:
    """Read `path`: HLO text, gzip, a serialized proto, "-" (standard input) or a dump folder.

    A folder with one module gives a Program with the stages it holds there; of several, `module`
    names one (its key as `hlolens ls` prints it, its name, its number, a glob or a part of the
    key). `stage` keeps one stage of a folder, and says what the stage of a single file is.

    Raises `HloParseError` where text cannot be read, `InputError` where there is no HLO or the
    choice is not clear, `OSError` where a file cannot be opened.
    """
    path = os.fspath(path)
    if path != STDIN:
        refuse_special(path)
        if os.path.isdir(path):
            return load_dumped(choose_module(path, module), stage=stage)
    one = _read(path)
    if module is not None and module != one.name:
        raise InputError(path, f"this file holds the module {one.name!r}, not {module!r}")
    side_files = {} if path == STDIN else dumps.side_files_of(Path(path))
    return Program([one], [_stage_name(stage) or guess_stage(one)], side_files=side_files)


def dumped_matching(folder: str, glob: str) -> tuple[dumps.DumpedModule, ...]:
    """Every module of `folder` whose key or name `glob` matches.

    Raises `InputError` that lists what there is where none does.
    """
    return dumps.choose(modules_in(folder), glob) or (choose_module(folder, glob),)


def load_dumped(dumped: dumps.DumpedModule, *, stage: str | None = None) -> Program:
    """Read one module of a dump folder: its named stages, or the one that `stage` means.

    Raises as `load` does.
    """
    files = dumped.main_stages()
    if stage is not None:
        names = [file.stage for file in dumped.stages]
        chosen = dumps.choose_stage(names, stage)
        if len(chosen) != 1:
            what = "no stage" if not chosen else "several stages"
            listed = _listing(chosen or names)
            raise InputError(dumped.key, f"{what} {stage!r} here; choose --stage from{listed}")
        files = tuple(file for file in dumped.stages if file.stage in chosen)
    modules = [_read(str(file.path)) for file in files]
    stages = [
        file.stage if file.stage != UNKNOWN else guess_stage(one)
        for file, one in zip(files, modules, strict=True)
    ]
    return Program(modules, stages, side_files=dumped.side_files)


def modules_in(folder: str) -> tuple[dumps.DumpedModule, ...]:
    """The modules under `folder`, at least one. Raises `InputError` where there is none."""
    modules = dumps.scan(folder)
    if not modules:
        raise InputError(
            folder,
            "no HLO in this folder; one made by XLA_FLAGS=--xla_dump_to=DIR holds files such as "
            "module_0001.jit_step.before_optimizations.txt",
        )
    return modules


def choose_module(folder: str, wanted: str | None) -> dumps.DumpedModule:
    """The one module of `folder` that `wanted` means, or the only one there is.

    Raises `InputError` that lists what there is to choose from.
    """
    modules = modules_in(folder)
    chosen = modules if wanted is None else dumps.choose(modules, wanted)
    if len(chosen) == 1:
        return chosen[0]
    if wanted is None:
        what = f"{len(modules)} modules in this folder"
    else:
        what = f"{'several modules match' if chosen else 'no module matches'} {wanted!r}"
    listed = _listing([module.key for module in chosen or modules])
    raise InputError(folder, f"{what}; choose one with --module:{listed}")


def _listing(names: Sequence[str], most: int = 20) -> str:
    shown = "".join(f"\n  {name}" for name in names[:most])
    return shown + (f"\n  … and {len(names) - most} more" if len(names) > most else "")


def _stage_name(stage: str | None) -> str | None:
    if stage is None:
        return None
    return next(iter(dumps.choose_stage(STAGES, stage)), stage)


def _read(path: str) -> Module:
    name = "<stdin>" if path == STDIN else path
    return parse(read_text(path), filename=name)
