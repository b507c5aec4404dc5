"""CHECK lines run in a process of its own, which ends where one of them takes too long.

Python's regular expressions can backtrack for ever, and nothing in their process stops them: they
hold its lock. Imports nothing of the package filecheck: that is the child's.
"""

from __future__ import annotations

import faulthandler
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from hlo_lens.files import InputError

SECONDS: Final = 30
# In front of what is told. Others print, too: a sitecustomize, say, which Python runs first.
_MARK: Final = b"hlolens told: "
_TIMEOUT: Final = re.compile(r"Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!")  # of faulthandler
_CODE: Final = (
    "import json, sys; asked = json.load(sys.stdin.buffer); sys.path[:] = asked.pop('path');"
    " from hlo_lens.check.check_child import answer; answer(**asked)"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The CHECK line that does not hold. line: where it stands in its file; kind: NEXT, NOT, …,
    CHECK; start: the offset in the text at which the search began; matched: the offset of what a
    CHECK-NOT found; variables: what it uses of what lines before it captured. near: (offset,
    whether it is all of the line, not only its beginning) of what was meant perhaps. counted, of
    count: the matches of a CHECK-COUNT."""

    line: int
    kind: str
    written: str
    start: int
    matched: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    near: tuple[int, bool] | None = None
    counted: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of CHECK lines. count: how many there are; failure: the first that does not hold.
    stopped: why they could not be run to the end; line: that of their file at which they were, None
    while it was read."""

    count: int = 0
    failure: Failure | None = None
    stopped: str = ""
    line: int | None = None


def run_checks(name: str, text: str, prefixes: Sequence[str], program: str) -> Ran:
    """Run the CHECK lines of `text`, those of the prefixes, on a program.

    Raises `InputError` with its line for one that cannot be run, and where there are none.
    """
    asked = {"path": [str(one) for one in sys.path], "seconds": SECONDS, "name": name}
    asked |= {"text": text, "prefixes": list(prefixes), "program": program}
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-c", _CODE],
            input=json.dumps(asked).encode(),
            capture_output=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as problem:
        return Ran(stopped=f"was not run: no process could be started for it: {problem}")
    told = _told(child.stdout)
    ran = outcome(told)
    return ran if ran is not None else Ran(stopped=_why_ended(child), line=told.get("line"))


def _told(printed: bytes) -> dict[str, Any]:
    """What the child told; what else was printed, and a line that it did not end, are left out."""
    whole, _, _ = printed.rpartition(b"\n")
    parts = (line.partition(_MARK) for line in whole.split(b"\n"))
    return dict(json.loads(pair) for _, mark, pair in parts if mark)


def outcome(told: Mapping[str, Any]) -> Ran | None:
    """What was told by `check`; None where it did not come to an end.

    Raises `InputError` for a line that was refused.
    """
    if "refused" in told:
        raise InputError(*told["refused"])
    if "failure" in told:
        near = told.get("near")
        failure = Failure(**told["failure"])
        return Ran(failure=failure if near is None else replace(failure, near=tuple(near)))
    if "held" in told:
        return Ran(count=told["held"])
    return None


def _why_ended(child: subprocess.CompletedProcess[bytes]) -> str:
    said = child.stderr.decode(errors="replace").strip()
    if _TIMEOUT.search(said):
        return f"took longer than {SECONDS} s"
    why = f"could not be run: its process ended with code {child.returncode} and no result"
    last = said.rpartition("\n")[2]
    return f"{why}; the last line that it wrote: {last}" if last else why


# ------------------------------------------------------------------------------- in the child


def answer(seconds: float, name: str, text: str, prefixes: Sequence[str], program: str) -> None:
    """Tell on stdout, a JSON pair a line, which CHECK line is being run and what came of all."""
    out = sys.stdout

    def tell(what: str, value: object) -> None:
        """What comes next has the time for itself."""
        faulthandler.dump_traceback_later(seconds, file=2, exit=True)  # the descriptor of stderr
        out.write(f"{_MARK.decode()}{json.dumps((what, value))}\n")
        out.flush()

    check(name, text, prefixes, program, tell)


def check(
    name: str,
    text: str,
    prefixes: Sequence[str],
    program: str,
    tell: Callable[[str, object], None],
) -> None:
    """Run the CHECK lines in this process; `tell` is called with each line before it is run, and
    with what came of all: see `outcome`."""
    from hlo_lens.check.check_lines import read_checks
    from hlo_lens.check.check_matching import match

    tell("line", None)
    try:
        checks = read_checks(name, text, prefixes)
        matched = match(checks, program, lambda line: tell("line", line))
    except InputError as problem:
        tell("refused", (problem.path, problem.message))
        return
    if matched.failure is None:
        tell("held", len(checks.operations))
        return
    tell("failure", asdict(matched.failure))
    tell("near", matched.near())  # where that does not come to an end, the failure is told
