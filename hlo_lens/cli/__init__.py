"""The command line: one file a verb, imported when the verb is run."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hlo_lens._version import __version__
from hlo_lens.cli import config
from hlo_lens.cli.common import FAILED, State, common_options, describe, print_error

# verb -> what it does, in a line. The verb's command is `hlo_lens.cli.VERB.command`.
VERBS = {
    "inspect": "Report what a module is and does: loops, collectives, kernels, findings.",
    "tree": "Print the execution skeleton: what runs, in which loop, how often.",
    "query": "Ask the tables with SQL.",
    "show": "Show one instruction or computation, and how it is reached.",
    "collectives": "Say which collectives run, where, how often, and what hides them.",
    "kernels": "Say which kernels run, in which pass, how often, under which contract.",
    "lowering": "Say what matmuls, ragged dots, attention and experts became.",
    "diff": "Say what changed between two programs, or whether they are the same.",
    "figure": "Draw a part of a program: a row, a neighbourhood, a path, a named view.",
    "export": "Write all tables as SQLite, or a graph for other tools.",
    "check": "Judge expectations about a program, or fail on findings.",
    "expect": "Write a starting expectation file from a good program.",
    "presets": "List the expectations that have a name, or say what one expects.",
    "remat": "Say what a checkpoint keeps and replays, or what a policy changes.",
    "ls": "List the modules and stages of a dump folder.",
    "compile": "Compile a jax function for a TPU, GPU or CPU that need not be here.",
    "targets": "List what can be compiled for, and what to install for it.",
    "ledger": "Compute a closed form: saved bytes, executed FLOPs, experts, counters.",
    "schema": "Describe the tables and their columns.",
    "rules": "List the rules behind the findings, or explain one.",
    "completion": "Print the shell completion script.",
}

EXIT_CODES = """\
\b
Exit codes:
  0  fine; also for a cut-off file, which is read to the cut and marked
  1  the answer is no: not found, a gate failed, programs differ
  2  could not do it: bad input or usage (with several files, the rest is shown)
"""


COMPLETE_VARIABLE = "_HLOLENS_COMPLETE"


class Verbs(click.Group):
    """Knows its verbs from a table, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"hlo_lens.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            ctx.fail(f"no verb {name!r}{_hint(name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=text)
            for name, text in VERBS.items()
            if name.startswith(incomplete)
        ]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)


def _hint(name: str) -> str:
    if os.path.exists(name):
        return f"; to read the file: hlolens inspect {name}"
    return config.hint(name, VERBS)


@click.group(
    cls=Verbs,
    name="hlolens",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VERB [ARGS]...",
)
@click.version_option(__version__, message="hlolens %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Inspect XLA HLO text: what runs, where, how often, in which lowering.

    FILE is HLO text, gzip, a serialized HloModuleProto, a dump folder, or - for standard input.
    """
    verb = ctx.invoked_subcommand
    if verb in VERBS:
        found = config.find(_working_folder(), VERBS)
        if found is not None:
            command = cli.get_command(ctx, verb)
            assert command is not None
            ctx.default_map = {verb: found.defaults(verb, command)}


def _working_folder() -> Path:
    """The working directory; the root where it was deleted under us."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


cli.params += common_options()


_IN_ASCII = "hlolens-in-ascii"
_SIGNS = str.maketrans(
    {"✓": "+", "✗": "x", "×": "x", "·": "-", "→": "->", "−": "-", "–": "-", "─": "-", "│": "|"}
    | {"├": "|", "└": "|", "…": "...", "≤": "<=", "≥": ">=", "›": ">", "“": '"', "”": '"'}
)


def _in_ascii(problem: UnicodeError) -> tuple[str, int]:
    """What an output cannot hold, in signs that it can."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    lost = problem.object[problem.start : problem.end].translate(_SIGNS)
    return "".join(sign if sign.isascii() else "?" for sign in lost), problem.end


codecs.register_error(_IN_ASCII, _in_ascii)


def run(args: Sequence[str]) -> int:
    """Run `hlolens` with `args`; the exit code. What goes wrong is a sentence on stderr."""
    # Where a stream was closed (`>&-`), what goes there is lost.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (open until the end)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_IN_ASCII)  # an arrow is no reason to fail in a C locale
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        try:
            return shell_complete(cli, {}, "hlolens", COMPLETE_VARIABLE, instruction)
        except (KeyError, ValueError):  # not asked by a shell
            return FAILED
    if not args:
        with cli.make_context("hlolens", [], resilient_parsing=True) as context:
            print(context.get_help(), file=sys.stderr)
        return FAILED
    state = State()
    try:
        with cli.make_context("hlolens", list(args), obj=state) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        state.worst(end.exit_code)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (the interpreter flushes it when it ends)
    except (KeyboardInterrupt, click.Abort):
        return 130
    except click.ClickException as problem:
        _tell_usage(problem)
        return FAILED
    except Exception as problem:
        return _tell(problem, state)
    return state.exit_code


def _tell_usage(problem: click.ClickException) -> None:
    message = problem.format_message()
    context = getattr(problem, "ctx", None)
    if isinstance(problem, click.BadParameter) and problem.param is not None and context:
        source = context.get_parameter_source(problem.param.name)
        if source is ParameterSource.DEFAULT_MAP:
            message += " (set in the config file)"
    print_error(message)
    if isinstance(problem, click.UsageError) and context is not None:
        print(f"{context.get_usage()}\nHelp: {context.command_path} -h", file=sys.stderr)


def _tell(problem: Exception, state: State) -> int:
    sentence = describe(problem)
    if sentence is not None:
        print_error(sentence)
        return FAILED
    if os.environ.get("HLOLENS_DEBUG") or state.verbosity > 0:
        import traceback

        traceback.print_exception(problem)
    print_error(
        f"internal error, a bug in hlolens: {type(problem).__name__}: {problem} "
        "(HLOLENS_DEBUG=1 or -v shows the traceback)"
    )
    return FAILED
