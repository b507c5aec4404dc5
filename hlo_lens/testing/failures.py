"""What a test is told: the program is not as expected, that could not be judged, or it is wrong."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from hlo_lens.check.places import ExpectationError

if TYPE_CHECKING:
    from hlo_lens.check.model import Verdict
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

# pytest leaves the frames of such a module out of a traceback.
__tracebackhide__ = True

T = TypeVar("T")

_INDENT: Final = 4  # of what stands below a name
_ALLOWED: Final = re.compile(r"--allow-change (?:\"(.+?)\"(?= was not needed)|([\w:,]+))")
_STAGE: Final = re.compile(r"--stage (\S+)")
NO_FILE: Final = re.compile(r"hlolens (?:(?:query|show) FILE |diff (?:GOOD |.* NEW ))")
"""A command about a program that is in no file."""


class _Judged(Exception):
    """`verdicts`: what came of all that was asked at once. `program`: the one that was asked; None
    where the error came out of a pickle or is a copy, since a program may be large."""

    def __init__(self, message: str, verdicts: Sequence[Verdict], program: Program | None) -> None:
        super().__init__(message)
        self.verdicts = tuple(verdicts)
        self.program = program

    def __reduce__(self) -> tuple[object, ...]:
        rest = {**vars(self), "program": None}
        return type(self), (str(self), self.verdicts, None), rest


class LoweringError(_Judged, AssertionError):
    """The program is not as expected; the text is what `hlolens check` says.

    `verdicts` are those on all that was asked at once, on `program`, which is None in an error that
    came from another process.
    """

    __module__ = "hlo_lens.testing"


class NotJudgedError(_Judged):
    """It is not known whether the program is as expected; the text says why.

    No AssertionError: the program may be right. `verdicts` and `program` as in `LoweringError`.
    """

    __module__ = "hlo_lens.testing"


class UnknownNameError(ExpectationError, AttributeError):
    """A method that is no assertion and no table."""

    __module__ = "hlo_lens.testing"


class LoweringWarning(UserWarning):
    """An expectation of severity "warning" that is not met, or a test that states nothing."""

    __module__ = "hlo_lens.testing"


def tell(facts: Facts, verdicts: Sequence[Verdict], *, have_names: bool = True) -> None:
    """Raise where a verdict is no, or is none; warn where it is no but only a warning.

    have_names: somebody gave the verdicts their ids, or a file or preset did.
    """
    failed = [one for one in verdicts if one.outcome == "failed" and one.severity == "error"]
    warned = [one for one in verdicts if one.outcome != "passed" and one.severity == "warning"]
    unknown = [one for one in verdicts if one.outcome == "not judged" and one not in warned]
    text = partial(_text if have_names else _text_without_names, facts, verdicts)
    if failed:
        raise LoweringError(text(failed), verdicts, facts.program)
    if unknown:
        raise NotJudgedError(text(unknown), verdicts, facts.program)
    if warned:
        warn(text(warned))


def _text(facts: Facts, verdicts: Sequence[Verdict], about: Sequence[Verdict]) -> str:
    """A line that says it all, since summaries show no more, and the report below."""
    from hlo_lens.check.gate import Checked
    from hlo_lens.check.terminal import as_lines
    from hlo_lens.present.page import plain
    from hlo_lens.present.quantities import visible

    first = ", ".join(visible(one.id) for one in about)
    if len(about) == 1:
        first = _first_line(about[0])
    report = plain(as_lines([Checked(facts, tuple(map(in_python, verdicts)))]))
    return f"{first}\n{report.rstrip()}"


def _text_without_names(facts: Facts, _: Sequence[Verdict], about: Sequence[Verdict]) -> str:
    """As `_text`, but without ids that nobody gave, nor what the first line says already."""
    from hlo_lens.check.gate import Checked
    from hlo_lens.check.terminal import detail
    from hlo_lens.check.wording import program_text
    from hlo_lens.present.page import plain

    lines = [program_text(Checked(facts))]
    for one in about:
        said = ("expected", "not judged" if one.why else "found")
        lines += [each[_INDENT:] for each in plain(detail(in_python(one), but=said)).splitlines()]
    return "\n".join([*map(_first_line, about), *lines])


def _first_line(verdict: Verdict) -> str:
    verdict = in_python(verdict)
    return f"{verdict.expected}; {verdict.why or f'found: {verdict.found}'}"


def in_python(verdict: Verdict) -> Verdict:
    """What options of the command line are in Python; no command for a program in no file."""
    return replace(
        verdict,
        found=_without_options(verdict.found),
        why=_without_options(verdict.why),
        nearest=_without_options(verdict.nearest),
        command="" if NO_FILE.match(verdict.command) else verdict.command,
    )


def _without_options(text: str) -> str:
    text = text.replace(" of --allow-change", " of allow")
    text = _ALLOWED.sub(lambda it: f"allow=[{json.dumps(it[1] or it[2])}]", text)
    return _STAGE.sub(r'stage="\1" of hlo_lens.load', text)


def warn(message: str) -> None:
    """Warn whoever wrote the test, at its line."""
    warnings.warn(message, LoweringWarning, stacklevel=1 + _frames_of_ours())


def place_of_test() -> str:
    """The line of the test that is running, as `file:line`."""
    frame = sys._getframe(_frames_of_ours())
    file = frame.f_code.co_filename.removeprefix(os.path.join(os.getcwd(), ""))
    return f"{file}:{frame.f_lineno}"


def _frames_of_ours() -> int:
    """How many frames from the caller's on, that one included, are of this package."""
    count = 0
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hlo_lens."):
        frame = frame.f_back
        count += 1
    return count


def quietly(work: Callable[[], T]) -> T:
    """What `work` gives. That an input cannot be read is said in a sentence: it is raised again
    without the frames it came from."""
    from hlo_lens.files import InputError
    from hlo_lens.hlo import HloParseError

    problem: Exception
    try:
        return work()
    except (InputError, HloParseError, OSError) as error:
        problem = error.with_traceback(None)
    raise problem


def stated(work: Callable[[], T]) -> T:
    """As `quietly`; what is wrong with a statement becomes an `ExpectationError` with the line of
    the test, or of the file that says it."""
    from hlo_lens.facts import UnknownTableError
    from hlo_lens.facts.sqlite import QueryError
    from hlo_lens.files import InputError

    try:
        return quietly(work)
    except (QueryError, UnknownTableError) as error:
        place, message = place_of_test(), str(error)
    except InputError as error:
        # Where it is said in Python, no option says it.
        place = place_of_test() if error.path.startswith("--") else error.path
        message = error.message
    raise ExpectationError(place, message)
