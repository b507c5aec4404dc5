"""What the verbs share: options, input, output, errors in sentences, exit codes.

A verb is a function under `@verb()`; it has `-h`, `-q`, `-v` and `--color` from there. It takes its
input through `programs()` or `one_program()`, which tell of bad files and remember the exit code,
prints through `console()` or `write_json()`, and calls `answer_is_no()` where the answer is no.
"""

from __future__ import annotations

import difflib
import gc
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from hlo_lens.present.quantities import visible

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lens.dumps import DumpedModule
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

OK = 0  # fine
NO = 1  # the answer is no: not found, a gate failed, programs differ
FAILED = 2  # could not do it: bad input, usage

# Off a terminal: where sentences are folded, and a width that no row of a listing reaches.
_PROSE_WIDTH = 100
_UNBOUND_WIDTH = 1_000_000

# A file, a dump folder or "-": only `load` knows what is good; as a Path, shells complete it.
INPUT = click.Path()

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class State:
    """What one run of `hlolens` carries: the common options, the exit code so far, and what was
    told of that could not be done."""

    color: str = "auto"
    verbosity: int = 0  # -1 with -q, 1 and more with -v
    exit_code: int = OK
    errors: list[str] = field(default_factory=list)

    def worst(self, code: int) -> None:
        self.exit_code = max(self.exit_code, code)


def state() -> State:
    """The state of the run in progress."""
    context = click.get_current_context(silent=True)
    return (context.find_object(State) if context else None) or State()


def answer_is_no() -> None:
    """The command did its work and the answer is no: exit code 1, unless something failed."""
    state().worst(NO)


def error(message: str) -> None:
    """Tell a person of something that could not be done; stderr, exit code 2 at the end."""
    state().worst(FAILED)
    state().errors.append(message)
    print_error(message)


def print_error(message: str) -> None:
    print(f"hlolens: error: {harmless(message)}", file=sys.stderr)


def harmless(message: str) -> str:
    """The lines of a message without control characters: names of files may hold some."""
    return "\n".join(visible(each.replace("\t", "  ")) for each in message.split("\n"))


def note(message: str, *, level: int = 0) -> None:
    """Tell something on stderr: level 0 unless `-q`, level 1 only with `-v`."""
    if state().verbosity >= level:
        print(f"hlolens: {harmless(message)}", file=sys.stderr)


def tell_of_broken_passes(facts: Iterable[Facts]) -> None:
    """An empty table must not look like an answer where its pass failed."""
    from hlo_lens.facts.findings import MACHINERY

    broken = (
        finding.message for one in facts for finding in one.findings if finding.rule in MACHINERY
    )
    for message in dict.fromkeys(broken):
        note(message)


# --- options ---------------------------------------------------------------------------------


def _remember_color(ctx: click.Context, param: click.Parameter, value: str) -> None:
    _set(ctx, param, "color", value)


def _remember_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    _set(ctx, param, "verbosity", -1 if value else 0)


def _remember_verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    _set(ctx, param, "verbosity", value)


def _set(ctx: click.Context, param: click.Parameter, field: str, value: Any) -> None:
    """Keep a common option; a config file's value does not replace one of the command line."""
    source = ctx.get_parameter_source(str(param.name))
    given = ctx.meta.setdefault("hlolens.given", set())
    if source is ParameterSource.COMMANDLINE:
        given.add(field)
    elif source is not ParameterSource.DEFAULT_MAP or field in given:
        return
    setattr(ctx.ensure_object(State), field, value)


def common_options() -> list[click.Parameter]:
    """`--color`, `-q` and `-v`, taken before the verb and behind it."""
    return [
        click.Option(
            ["--color"],
            type=click.Choice(("auto", "always", "never")),
            default="auto",
            expose_value=False,
            callback=_remember_color,
            help="Color the output; auto: on a terminal, unless NO_COLOR is set.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_remember_quiet,
            help="Say nothing on stderr but errors.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_remember_verbose,
            help="Say more on stderr; show the traceback of an internal error.",
        ),
    ]


def verb(**attributes: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of its verb; `attributes` go to `click.command`."""
    attributes.setdefault("context_settings", {}).setdefault("help_option_names", ["-h", "--help"])

    def decorate(function: Callable[..., Any]) -> click.Command:
        command: click.Command = click.command(**attributes)(function)
        command.params += common_options()
        return command

    return decorate


def once(_ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> str | None:
    """The callback of an option that chooses, with `multiple`: else click drops one of two."""
    if len(value) > 1:
        raise click.UsageError(f"{param.opts[0]} is given {len(value)} times: give one")
    return value[0] if value else None


def choice_options(function: F) -> F:
    """`--module` and `--stage`: which module and stage of a dump folder."""
    for option in (
        click.option(
            "--stage",
            metavar="STAGE",
            multiple=True,
            callback=once,
            help="The stage of a dump folder, such as before_optimizations or opt; "
            "of a single file, the stage that it is.",
        ),
        click.option(
            "--module",
            metavar="NAME",
            multiple=True,
            callback=once,
            help="The module of a dump folder: its name, number, a glob or a part of it; "
            "inspect, query and check take all that a glob matches.",
        ),
    ):
        function = option(function)
    return function


def format_option(*formats: str) -> Callable[[F], F]:
    """`--format`, the first of `formats` by default."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print it.",
    )


SPEC = "HLOLENS_SPEC"  # the passes read it


def spec_option(use: str) -> Callable[[F], F]:
    """`--spec`, the device that a program runs on; `use` says what that is asked for."""
    return click.option(
        "--spec",
        metavar="NAME|FILE",
        help=f"The device that it runs on, {use}: h100, mi300x, v6e, …, or a TOML file of the form "
        "of catalogues/devices.toml. HLOLENS_SPEC and `spec` in the config say the same.",
    )


@contextmanager
def device_asked_for(spec: str | None) -> Iterator[None]:
    """Passes see the spec where they look for one: in the environment."""
    before = os.environ.get(SPEC)
    if spec is not None:
        os.environ[SPEC] = spec
    try:
        yield
    finally:
        if spec is not None:
            os.environ.pop(SPEC)
            if before is not None:
                os.environ[SPEC] = before


def words(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of an option that takes a list by commas, and may be repeated (`multiple`)."""
    return tuple(word for part in ",".join(value).split(",") if (word := part.strip()))


def complete_tables(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of tables, for the shell."""
    from hlo_lens.facts import discover_passes

    names = (table.name for table in discover_passes().tables)
    return [name for name in names if name.startswith(incomplete)]


def output_option(function: F) -> F:
    """`-o PATH`, as `output`: None or "-" for standard output; see `open_output`."""
    return output_option_with("Write to a file instead of standard output.")(function)


def output_option_with(help: str) -> Callable[[F], F]:
    """`output_option` that says what is written."""
    return click.option(
        "-o", "--output", metavar="PATH", type=click.Path(), callback=_named_output, help=help
    )


def _named_output(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.UsageError("-o needs the name of a file")
    return value


# --- input -----------------------------------------------------------------------------------


def programs(
    files: Sequence[str], *, module: str | None = None, stage: str | None = None
) -> Iterator[Program]:
    """The Programs of each path that can be read; the others are told on stderr (exit code 2).

    `module` may be a glob, which of a dump folder means every module that it matches.
    """
    return (program for _, program in numbered_programs(files, module=module, stage=stage))


def numbered_programs(
    files: Sequence[str], *, module: str | None = None, stage: str | None = None
) -> Iterator[tuple[int, Program]]:
    """`programs`, each with the position of its path among `files`."""
    from hlo_lens.program import dumped_matching, load_dumped

    for position, file in enumerate(files):
        if file == "-" and "-" in files[:position]:
            error("-: standard input can be read once")
            continue
        is_glob = module is not None and any(sign in module for sign in "*?[")
        if module is None or not is_glob or not os.path.isdir(file):
            program = _try_load(file, module, stage)
            if program is not None:
                yield position, program
            continue
        chosen: Sequence[DumpedModule] = ()
        with bad_input_told():
            chosen = dumped_matching(file, module)
        for dumped in chosen:
            program = _tried(partial(load_dumped, dumped, stage=stage))
            if program is not None:
                yield position, program


def one_program(file: str, *, module: str | None = None, stage: str | None = None) -> Program:
    """The Program of `file`; where it cannot be read, that is told and the command ends (2)."""
    program = _try_load(file, module, stage)
    if program is None:
        raise click.exceptions.Exit(FAILED)
    return program


def _try_load(file: str, module: str | None, stage: str | None) -> Program | None:
    from hlo_lens.program import load

    if file == "-" and sys.stdin is not None and sys.stdin.isatty():
        note("reading HLO text from the terminal; end it with Ctrl-D")
    return _tried(partial(load, file, module=module, stage=stage))


def _tried(load: Callable[[], Program]) -> Program | None:
    """What is loaded; None where it cannot be read, which is told."""
    with bad_input_told():
        program = load()
        # It is kept until the end, and so is most of what is found in it: the garbage collector
        # need not look at it again and again. That is a fifth of the time of a report.
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        return program
    return None


@contextmanager
def bad_input_told() -> Iterator[None]:
    """Tell of bad input on stderr (exit code 2 at the end) and go on behind the block."""
    try:
        yield
    except BrokenPipeError:  # of what is written: nothing is wrong with what is read
        raise
    except (ValueError, OSError) as problem:
        sentence = describe(problem)
        if sentence is None:
            raise
        error(sentence)


def is_there(what: str, name: str, known: Iterable[str]) -> bool:
    """Whether `hlolens WHATs NAME` is about something that is there; that it is not is told."""
    names = list(known)
    if name in names:
        return True
    close = difflib.get_close_matches(name, names, n=3)
    verb = click.get_current_context().info_name
    hint = f"did you mean {' or '.join(close)}?" if close else f"`hlolens {verb}` lists them"
    print_error(f"no {what} {name}; {hint}")
    answer_is_no()
    return False


def describe(problem: BaseException) -> str | None:
    """A sentence for a problem that is the input's, or None for one that is ours."""
    if isinstance(problem, OSError):
        if problem.filename is None:  # of an open file or the output: a full disk
            return problem.strerror.lower() if problem.strerror else None
        return f"{os.fsdecode(problem.filename)}: {_os_sentence(problem)}"
    render = getattr(problem, "render", None)  # of HloParseError and InputError
    return str(render()) if render is not None else None


def _os_sentence(problem: OSError) -> str:
    if isinstance(problem, FileNotFoundError):
        path = Path(os.fsdecode(problem.filename))
        if path.is_symlink():
            return f"a link to {os.readlink(path)}, which is not there"
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=1)
        hint = f"; did you mean {path.parent / close[0]}?" if close else ""
        return f"no such file or folder{hint}"
    if isinstance(problem, PermissionError):
        return "permission denied"
    return (problem.strerror or str(problem)).lower()


# --- output ----------------------------------------------------------------------------------


class _Trimmed:
    """An output without the blanks that fill the last column of a table that rich prints."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +\n", "\n", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(file: IO[str] | None = None, *, rows: bool = False) -> Console:
    """A rich console on `file` (default: standard output) that keeps to `--color` and NO_COLOR.

    Off a terminal it is 100 columns wide, or COLUMNS where that is set, and lines end where their
    text does. For a listing, whose `rows` are a line each for other programs to read, it is as wide
    as they are.
    """
    from rich import console as rich_console

    class Console(rich_console.Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `run` knows what to do; rich would exit with 1

    target = file or sys.stdout
    color = state().color
    width = None
    if not (target.isatty() or os.environ.get("COLUMNS", "").isdigit()):
        width = _UNBOUND_WIDTH if rows else _PROSE_WIDTH
    return Console(
        file=target if target.isatty() else cast(IO[str], _Trimmed(target)),
        width=width,
        force_terminal=True if color == "always" else None,
        no_color=False if color == "always" else None,
        color_system=None if color == "never" else "auto",
        highlight=False,
        markup=False,
        soft_wrap=False,
    )


@contextmanager
def open_output(path: str | None) -> Iterator[IO[str]]:
    """Standard output, or the file `path`; it is left as it was where the work in between fails."""
    if path is None or path == "-":
        yield sys.stdout
        return
    with _open_file(path, "w", encoding="utf-8") as stream:
        yield stream


@contextmanager
def open_binary_output(path: str | None) -> Iterator[IO[bytes]]:
    """As `open_output`, for bytes."""
    if path is None or path == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    with _open_file(path, "wb") as stream:
        yield stream


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """What goes wrong with an open file, as on a full disk, says which one it is."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or path
        raise


@contextmanager
def _open_file(path: str, mode: str, encoding: str | None = None) -> Iterator[IO[Any]]:
    asked = Path(path)
    if asked.exists() and not asked.is_file():  # /dev/stdout, a pipe
        with _telling(path), asked.open(mode, encoding=encoding) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))  # a link stays one
    part = target.with_name(f".{secrets.token_hex(8)}.part")  # short, where the name is long
    try:
        try:
            stream = part.open(mode, encoding=encoding)
            if target.exists():
                part.chmod(stat.S_IMODE(target.stat().st_mode))
        except OSError as problem:
            problem.filename = path  # a person asked for that one
            raise
        with _telling(path), stream:
            yield stream
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_json(value: object, file: IO[str] | None = None) -> None:
    """Print `value` as JSON, indented, with a newline at the end."""
    target = file or sys.stdout
    json.dump(value, target, indent=2, ensure_ascii=False)
    target.write("\n")
