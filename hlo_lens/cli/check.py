"""`hlolens check PROGRAM…`: judge expectations, or fail on findings."""

from __future__ import annotations

import errno
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import IO, TYPE_CHECKING

import click

from hlo_lens.cli.common import (
    FAILED,
    INPUT,
    bad_input_told,
    choice_options,
    describe,
    error,
    once,
    one_program,
    open_output,
    programs,
    state,
    verb,
    words,
)
from hlo_lens.cli.page import width_of, write_lines
from hlo_lens.files import InputError

if TYPE_CHECKING:
    from hlo_lens.check.baseline import Allowed
    from hlo_lens.check.gate import Checked
    from hlo_lens.check.model import Expectation, Verdict
    from hlo_lens.facts import Facts
    from hlo_lens.facts.findings import Level

_REPORTS = ("sarif", "junit", "json", "markdown")
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _reports(
    _ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> list[tuple[str, str]]:
    """(kind, file) of each `--report KIND=FILE`."""
    found = []
    for one in value:
        kind, mark, file = one.partition("=")
        if kind not in _REPORTS or not mark or not file:
            raise click.BadParameter(f"{one!r} is not KIND=FILE with KIND of {', '.join(_REPORTS)}")
        found.append((kind, "-" if file in _STDOUT else file))
    places = [_real(file) for _, file in found]
    for place, (_, file) in zip(places, found, strict=True):
        if places.count(place) > 1:
            what = "standard output" if file == "-" else file
            raise click.BadParameter(f"{what} can hold one report")
    return found


def _real(file: str) -> str:
    return file if file == "-" else os.path.realpath(file)


def _complete_presets(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hlo_lens.check.presets import presets

    return [name for name in presets() if name.startswith(incomplete)]


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
    metavar="NAME[:KEY=VALUE,…]",
    multiple=True,
    shell_complete=_complete_presets,
    help="Judge this expectation that hlolens brings (`hlolens presets` lists them); may be "
    "repeated.",
)
@click.option(
    "--against",
    metavar="GOOD",
    type=INPUT,
    multiple=True,
    callback=once,
    help="Fail on whatever differs from this program: rows of the tables, instructions.",
)
@click.option(
    "--allow-change",
    "allowed",
    metavar="TABLE[:COLUMN,…]",
    multiple=True,
    help="With --against, what may change: a table (also findings and instructions), or of it "
    "these columns (loop: the loop of a row), or added, removed or changed rows; `where CONDITION` "
    "behind it says which rows. May be repeated.",
)
@click.option(
    "--filecheck",
    "checks",
    metavar="FILE[:PREFIX,…]",
    type=click.Path(),
    multiple=True,
    help="Run the CHECK lines of this file (or PREFIX ones) on the canonical text, which `hlolens "
    "show --canonical` prints; may be repeated.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("note", "warning", "error")),
    default="error",
    show_default=True,
    help="The level at which findings fail the check; with --expect, whether warnings do.",
)
@click.option(
    "--select",
    metavar="RULE,…",
    multiple=True,
    callback=words,
    help="Of findings, those of these rules; globs.",
)
@click.option(
    "--ignore",
    metavar="RULE,…",
    multiple=True,
    callback=words,
    help="Leave these rules out; globs.",
)
@click.option(
    "--report",
    "reports",
    metavar="KIND=FILE",
    multiple=True,
    callback=_reports,
    help="Write the outcome to FILE too, as sarif, junit, json or markdown; may be repeated.",
)
def command(
    files: Sequence[str],
    module: str | None,
    stage: str | None,
    expected: tuple[str, ...],
    presets: tuple[str, ...],
    against: str | None,
    allowed: tuple[str, ...],
    checks: tuple[str, ...],
    fail_on: Level,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    reports: list[tuple[str, str]],
) -> None:
    """Say whether PROGRAM... is as expected: exit code 0 yes, 1 no, 2 it could not be judged.

    Without --expect, --preset, --against and --filecheck the findings are judged: what `hlolens
    rules` lists. With them, findings are judged where --select or --ignore is given.

    \b
    hlolens check step.opt.hlo --fail-on warning
    hlolens check dump/ --expect gate.toml --report junit=gate.xml
    hlolens check new/ --against good/ --allow-change collectives --allow-change instructions
    """
    from hlo_lens.facts import Facts

    checked_files = [file if os.path.exists(file) else file.rpartition(":")[0] for file in checks]
    _check_reports(reports, (*files, *expected, *checked_files, *filter(None, (against,))))
    if allowed and against is None:
        raise click.UsageError("--allow-change is for a comparison: give --against GOOD")
    if against == "-" and "-" in files:
        raise click.UsageError("standard input can be the program or GOOD, not both")
    try:
        _check_rules(select, ignore)
        expectations = _expectations(expected, presets)
        changes = _allowed(allowed)
        good = None if against is None else Facts(one_program(against, module=module, stage=stage))
    except click.exceptions.Exit:  # what was told stands in the reports too
        _write((), fail_on, reports)
        raise
    others = bool(expectations or checks or good is not None)
    by_rules = not others or bool(select or ignore)
    found = [Facts(one) for one in programs(files, module=module, stage=stage)]
    read = [*found, *([good] if good is not None else [])]
    _check_reports(reports, (name for one in read for name in _files_of(one)))
    checked: list[Checked] = []
    for one in found:
        verdicts = _verdicts(one, expectations, good, changes, checks)
        checked.append(_checked(one, verdicts, by_rules, fail_on, select, ignore))
    # Before anything is written: a closed pipe changes no answer.
    from hlo_lens.check.gate import exit_code

    state().worst(exit_code(checked, fail_on))
    _write(checked, fail_on, reports)


def _check_reports(reports: Sequence[tuple[str, str]], read: Iterable[str]) -> None:
    """Refuse a report in the place of what is read."""
    written = {_real(file) for _, file in reports if file != "-"}
    for file in read:
        if file != "-" and _real(file) in written:
            raise click.UsageError(f"--report would overwrite {file}")


def _files_of(facts: Facts) -> Iterator[str]:
    """The files that a program was read from."""
    yield from (one.filename for one in facts.program.modules if one.filename)
    yield from map(str, facts.program.side_files.values())


def _verdicts(
    facts: Facts,
    expectations: Sequence[Expectation],
    good: Facts | None,
    allowed: Sequence[Allowed],
    checks: Sequence[str],
) -> Iterator[Verdict]:
    if expectations:
        from hlo_lens.check.judging import judge

        yield from judge(facts, expectations, mistake=_tell_once)
    if good is not None:
        from hlo_lens.check.baseline import unchanged

        try:
            yield from unchanged(good, facts, allowed)
        except InputError as problem:
            _tell_once(problem)
    for file in checks:
        from hlo_lens.check.filechecking import file_checked

        try:
            yield file_checked(facts, file)
        except (InputError, OSError) as problem:
            _tell_once(problem)


def _tell_once(problem: Exception) -> None:
    """A mistake of a file is the same for every program."""
    sentence = describe(problem) or str(problem)
    if sentence not in state().errors:
        error(sentence)


def _checked(
    facts: Facts,
    verdicts: Iterable[Verdict],
    by_rules: bool,
    fail_on: Level,
    select: Sequence[str],
    ignore: Sequence[str],
) -> Checked:
    from dataclasses import replace

    from hlo_lens.check.gate import Checked, judged_by_rules

    outcome = judged_by_rules(facts, fail_on, select, ignore) if by_rules else Checked(facts)
    return replace(outcome, verdicts=tuple(verdicts))


def _expectations(files: Sequence[str], presets: Sequence[str]) -> list[Expectation]:
    """Those of the files and the presets; where one cannot be read, that is told: exit code 2."""
    if not files and not presets:
        return []
    from hlo_lens.check.reading import named, read_file
    from hlo_lens.facts import discover_passes

    registry = discover_passes()
    found: list[Expectation] = []
    with bad_input_told():
        for file in files:
            if not file:
                raise click.UsageError("--expect needs the name of a file")
            found += read_file(file, registry)
        found += [named(one, registry) for one in presets]
        return found
    raise click.exceptions.Exit(FAILED)


def _check_rules(select: Sequence[str], ignore: Sequence[str]) -> None:
    """A name or glob that no rule has would pass as if nothing were wrong: exit code 2."""
    if not select and not ignore:
        return
    from hlo_lens.check.gate import is_wanted
    from hlo_lens.facts import discover_passes
    from hlo_lens.present.chosen import close, fits

    known = tuple(discover_passes().rules)
    for word in (*select, *ignore):
        if not any(fits(rule, (word,)) for rule in known):
            error(f"no rule {word!r}{close(word, known) or '; `hlolens rules` lists them'}")
            raise click.exceptions.Exit(FAILED)
    if not any(is_wanted(rule, select, ignore) for rule in known):
        error("--select and --ignore leave no rule: nothing would be checked")
        raise click.exceptions.Exit(FAILED)


def _allowed(texts: Sequence[str]) -> list[Allowed]:
    """The changes that are meant; one that names what does not exist is told: exit code 2."""
    if not texts:
        return []
    from hlo_lens.check.baseline import allowed_change
    from hlo_lens.facts import discover_passes

    with bad_input_told():
        return [allowed_change(one, discover_passes()) for one in texts]
    raise click.exceptions.Exit(FAILED)


def _write(checked: Sequence[Checked], fail_on: Level, reports: Sequence[tuple[str, str]]) -> None:
    """The reports; the page for people, on standard error where a report takes standard output; and
    annotations where a GitHub workflow runs this."""
    from hlo_lens.check.terminal import as_lines

    problems = tuple(state().errors)
    if not checked and not problems:
        return
    for kind, file in sorted(reports, key=lambda report: report[1] == "-"):
        from hlo_lens.check.reports import report_text

        with bad_input_told(), _opened(file) as stream:
            stream.write(report_text(kind, checked, fail_on, problems))
    page = sys.stderr if any(file == "-" for _, file in reports) else sys.stdout
    if any(one.verdicts or one.rules or one.broken for one in checked):
        with _no_commands(page):
            write_lines(as_lines(checked, width=width_of(page)), page)
    if _in_a_github_workflow():
        from hlo_lens.check.reports import github_annotations

        page.writelines(f"{one}\n" for one in github_annotations(checked, fail_on, problems))


def _opened(file: str) -> AbstractContextManager[IO[str]]:
    """The file of a report. The summary of a step of a GitHub workflow is appended to: every
    command of the step writes into it."""
    if file == os.environ.get("GITHUB_STEP_SUMMARY"):
        return open(file, "a", encoding="utf-8")
    if file == "-" and getattr(sys.stdout, "name", None) == os.devnull:  # as `cli.run` makes it
        raise OSError(errno.EBADF, "standard output is closed: the report has nowhere to go")
    return open_output(None if file == "-" else file)


@contextmanager
def _no_commands(page: IO[str]) -> Iterator[None]:
    """Keep GitHub from taking a name in the page for a command to its runner."""
    if not _in_a_github_workflow():
        yield
        return
    word = secrets.token_hex(16)
    page.write(f"::stop-commands::{word}\n")
    yield
    page.write(f"::{word}::\n")


def _in_a_github_workflow() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"
