"""What a test is told: the program is not as expected, that could not be judged, or it is wrong."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hlo_lens.check.model import Verdict
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

# pytest leaves the frames of such a module out of a traceback.
__tracebackhide__ = True

T = TypeVar("T")


class LoweringError(AssertionError):
    """The program is not as expected; the text is what `hlolens check` prints.

    `verdicts` are those on all that was asked at once, on `program`.
    """

    __module__ = "hlo_lens.testing"

    def __init__(self, message: str, verdicts: Sequence[Verdict], program: Program) -> None:
        super().__init__(message)
        self.verdicts = tuple(verdicts)
        self.program = program


class NotJudgedError(Exception):
    """It is not known whether the program is as expected; the text says why.

    No AssertionError: the program may be right. `verdicts` and `program` as in `LoweringError`.
    """

    __module__ = "hlo_lens.testing"

    def __init__(self, message: str, verdicts: Sequence[Verdict], program: Program) -> None:
        super().__init__(message)
        self.verdicts = tuple(verdicts)
        self.program = program


class LoweringWarning(UserWarning):
    """An expectation of severity "warning" that is not met, or a test that states nothing."""

    __module__ = "hlo_lens.testing"


def tell(facts: Facts, verdicts: Sequence[Verdict]) -> None:
    """Raise where a verdict is no, or is none; warn where it is no but only a warning."""
    failed = [one for one in verdicts if one.outcome == "failed" and one.severity == "error"]
    warned = [one for one in verdicts if one.outcome == "failed" and one.severity == "warning"]
    unknown = [one for one in verdicts if one.outcome == "not judged"]
    if failed:
        raise LoweringError(_text(facts, failed, verdicts), verdicts, facts.program)
    if unknown:
        raise NotJudgedError(_text(facts, unknown, verdicts), verdicts, facts.program)
    if warned:
        warn(_text(facts, warned, verdicts))


def _text(facts: Facts, about: Sequence[Verdict], verdicts: Sequence[Verdict]) -> str:
    """A line that says it all, since summaries show no more, and the report below."""
    from hlo_lens.check.gate import Checked
    from hlo_lens.check.terminal import as_lines
    from hlo_lens.present.page import plain
    from hlo_lens.present.quantities import visible

    first = ", ".join(visible(one.id) for one in about)
    if len(about) == 1:
        (one,) = about
        first = f"{one.expected}; {one.why or f'found: {one.found}'}"
    report = plain(as_lines([Checked(facts, tuple(verdicts))]))
    return f"{first}\n{report.rstrip()}"


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
    from hlo_lens.check.reading import ExpectationError
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
