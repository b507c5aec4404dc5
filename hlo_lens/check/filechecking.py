"""CHECK lines, run by the `filecheck` package on the canonical text of a program."""

from __future__ import annotations

import os
import re
import shlex
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from hlo_lens.check.check_child import Failure, Ran, run_checks
from hlo_lens.check.model import Offender, Verdict
from hlo_lens.check.selection import not_whole
from hlo_lens.facts import Facts
from hlo_lens.files import InputError, refuse_special
from hlo_lens.present.quantities import count_text, visible

if TYPE_CHECKING:
    from hlo_lens.check.canonical import CanonicalText
    from hlo_lens.hlo import Module

_PREFIX: Final = re.compile(r"[A-Za-z][\w-]*(?:,[A-Za-z][\w-]*)*", re.A)
_INSTALL: Final = (
    "the package filecheck is not installed: pip install 'hlo-lens[filecheck]' brings it"
)
_MOST_SHOWN: Final = 160  # characters of a line of the text


def file_checked(facts: Facts, file: str) -> Verdict:
    """The verdict of a FileCheck file, `FILE` or `FILE:PREFIX,…`, on the module that runs.

    Raises `InputError` for a file that holds no CHECK line or one that cannot be run, `OSError`
    for one that cannot be read.
    """
    path, prefixes = _path_and_prefixes(file)
    text = _read(path)
    module = facts.program.main
    if why := not_whole(module) or ("" if _is_installed() else _INSTALL):
        return _not_judged(file, path, why)
    canonical = _canonical(module)
    ran = run_checks(path, text, prefixes, str(canonical))
    if ran.stopped:
        return _not_judged(file, path, _why_stopped(ran, text), line=ran.line)
    if ran.failure is not None:
        return _failed(file, path, ran.failure, canonical, module)
    lines = "1 CHECK line holds" if ran.count == 1 else f"{count_text(ran.count)} CHECK lines hold"
    return Verdict(file, "filecheck", "passed", _all_of(path), lines, place=path)


def _is_installed() -> bool:
    try:
        return find_spec("filecheck") is not None
    except ValueError:  # something else of that name was put among the modules
        return False


def _not_judged(file: str, path: str, why: str, line: int | None = None) -> Verdict:
    place = path if line is None else f"{path}:{line}"
    return Verdict(file, "filecheck", "not judged", _all_of(path), "", why=why, place=place)


def _why_stopped(ran: Ran, text: str) -> str:
    """`line 3, CHECK: {{(a+)+b}}, took longer than 30 s`."""
    if ran.line is None:
        return f"the file {ran.stopped}"
    written = _short(text.split("\n")[ran.line - 1])
    return f"line {ran.line}, {written}, {ran.stopped}"


@lru_cache(maxsize=1)  # several files are run on one program
def _canonical(module: Module) -> CanonicalText:
    from hlo_lens.check.canonical import canonical_text

    return canonical_text(module)


def _path_and_prefixes(file: str) -> tuple[str, Sequence[str]]:
    if os.path.exists(file):
        return file, ("CHECK",)
    for mark in re.finditer(":", file):
        path, listed = file[: mark.start()], file[mark.end() :]
        if os.path.isfile(path):
            _refuse_no_prefixes(file, listed)
            return path, listed.split(",")
    path, _, listed = file.rpartition(":")
    return (path, listed.split(",")) if path and _PREFIX.fullmatch(listed) else (file, ("CHECK",))


def _refuse_no_prefixes(file: str, listed: str) -> None:
    if not _PREFIX.fullmatch(listed):
        why = "letters, digits, - and _, a letter first, and a comma between two"
        raise InputError(file, f"{listed!r} is no prefix of CHECK lines: {why}")
    for one in listed.split(","):
        if one in ("COM", "RUN"):  # as LLVM's
            raise InputError(file, f"{one} is no prefix of CHECK lines: {one}: begins a comment")


def _read(path: str) -> str:
    refuse_special(path)
    with open(path, "rb") as stream:
        data = stream.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise InputError(f"{path}:{line}", "not UTF-8, so no file of CHECK lines") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")  # a line ends at each, as in LLVM's


def _all_of(path: str) -> str:
    return f"the CHECK lines of {visible(path)} hold of the canonical text"


# ---------------------------------------------------------------------------- words


def _failed(
    file: str, path: str, failure: Failure, canonical: CanonicalText, module: Module
) -> Verdict:
    shown = _Shown(canonical)
    against = None if failure.matched is None else shown.offender(failure.matched)
    offenders = () if against is None else (against,)
    return Verdict(
        file,
        "filecheck",
        "failed",
        f"{visible(path)}:{failure.line}: {visible(failure.written)}",
        _found(failure, shown) + _variables(failure),
        place=f"{path}:{failure.line}",
        offenders=offenders,
        against=len(offenders),
        nearest=_nearest(failure, shown),
        command=f"hlolens show {shlex.quote(module.filename or 'FILE')} --canonical",
    )


def _found(failure: Failure, shown: _Shown) -> str:
    start = shown.place(failure.start)
    if failure.matched is not None:
        return f"it matches in {shown.place(failure.matched)}, searched from {start}"
    if failure.kind == "LABEL":
        behind = f" behind the label before it, which is in {start}" if failure.start else ""
        return f"no line matches{behind}"
    if failure.kind in ("NEXT", "EMPTY"):
        following = shown.next_line(failure.start)
        return f"the next line is {following}" if following else "there is no next line"
    if failure.kind == "SAME":
        return f"not in the rest of {start}: {shown.rest(failure.start)}"
    if failure.counted:
        matches = f"{count_text(failure.counted)} of {count_text(failure.count)} matches"
        return f"{matches}; nothing more matches, searched from {start}"
    return f"nothing matches, searched from {start}"


def _variables(failure: Failure) -> str:
    values = (f"[[{name}]] is {visible(value)!r}" for name, value in failure.variables.items())
    return "".join(f"; {one}" for one in values)


def _nearest(failure: Failure, shown: _Shown) -> str:
    if failure.near is None:
        return ""
    at, is_whole = failure.near
    if not is_whole:
        return f"its beginning matches in {shown.place(at)}: {shown.text(at)}"
    where = "further on" if at >= failure.start else "before that"
    return f"it matches {where}, in {shown.place(at)}: {shown.text(at)}"


class _Shown:
    """The canonical text by offsets into it."""

    def __init__(self, canonical: CanonicalText) -> None:
        self.lines = canonical.lines
        self.starts = list(accumulate((len(line.text) + 1 for line in self.lines), initial=0))

    def number(self, offset: int) -> int:
        """The position of the line; an offset at its end belongs to it."""
        return min(bisect_right(self.starts, offset), len(self.lines)) - 1

    def place(self, offset: int) -> str:
        """`canonical line 12 (line 40 of the program)`."""
        at = self.number(offset)
        own = self.lines[at].text_line
        return f"canonical line {at + 1}" + ("" if own is None else f" (line {own} of the program)")

    def text(self, offset: int) -> str:
        """The line; of a long one what is around the offset."""
        at = self.number(offset)
        first = max(0, offset - self.starts[at] - _MOST_SHOWN // 2)
        return ("…" if first else "") + _short(self.lines[at].text[first:])

    def rest(self, offset: int) -> str:
        at = self.number(offset)
        return _short(self.lines[at].text[offset - self.starts[at] :])

    def next_line(self, offset: int) -> str:
        """The line behind, with its place; "" at the end."""
        at = self.number(offset) + (1 if offset else 0)
        if at >= len(self.lines):
            return ""
        text = _short(self.lines[at].text) or "empty"
        return f"{self.place(self.starts[at])}: {text}"

    def offender(self, offset: int) -> Offender | None:
        """The instruction there; None for a line that is of none."""
        line = self.lines[self.number(offset)]
        one = line.instruction
        if one is None:
            return None
        return Offender(one.id, one.name, one.source, line.text_line, self.text(offset))


def _short(text: str) -> str:
    text = visible(text.strip())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
