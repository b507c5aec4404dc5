"""The process in which CHECK lines run: its time limit, what else is printed in it, how it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hlo_lens.check import check_child
from hlo_lens.check.filechecking import file_checked
from hlo_lens.check.model import Verdict
from hlo_lens.facts import Facts
from hlo_lens.files import InputError
from hlo_lens.hlo import parse
from hlo_lens.program import Program

HLO = f"""HloModule step

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %k = f32[8] custom-call(%x), custom_call_target="{"a" * 60}"
  ROOT %out = f32[8] tanh(%k)
}}
"""
SLOW = "CHECK: {{(a+)+b}}"


def checked(tmp_path: Path, *lines: str) -> Verdict:
    file = tmp_path / "step.check"
    file.write_text("".join(f"// {line}\n" for line in lines))
    return file_checked(Facts(Program([parse(HLO)])), str(file))


@pytest.fixture
def short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_child, "SECONDS", 0.5)


def first(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """What the process does before anything else, as a sitecustomize would."""
    monkeypatch.setattr(check_child, "_CODE", f"{code}\n{check_child._CODE}")


# --- what comes back from it ---


def test_what_holds(tmp_path: Path) -> None:
    verdict = checked(tmp_path, "CHECK: custom-call(", "CHECK-NEXT: tanh(")
    assert (verdict.outcome, verdict.found) == ("passed", "2 CHECK lines hold")


def test_what_does_not_hold(tmp_path: Path) -> None:
    verdict = checked(tmp_path, "CHECK: [[K:%[^ ]+]] = {{.*}} custom-call(", "CHECK: tanh([[K]]) é")
    assert (verdict.outcome, verdict.place) == ("failed", f"{tmp_path / 'step.check'}:2")
    assert verdict.expected.endswith("step.check:2: CHECK: tanh([[K]]) é")
    assert verdict.found.endswith("; [[K]] is '%custom-call.1'")
    assert verdict.nearest.startswith("its beginning matches in canonical line 6")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"step\.check:2: Malformed regex"):
        checked(tmp_path, "CHECK: tanh(", "CHECK: {{[}}")


# --- time ---


@pytest.mark.usefixtures("short_time")
@pytest.mark.parametrize(
    "lines",
    [
        ["CHECK: custom-call(", SLOW, "CHECK: never run"],
        ["CHECK-NOT: {{x+}}", "CHECK-NOT: {{(a+)+b}}", "CHECK: ROOT"],
        ["CHECK-LABEL: ENTRY", "CHECK-LABEL: {{(a+)+b}}"],
        # Python's re warns of the class on stderr.
        ["CHECK-NOT: {{[a&&b]zzz}}", SLOW],
    ],
)
def test_a_line_that_takes_too_long_is_not_judged(tmp_path: Path, lines: list[str]) -> None:
    verdict = checked(tmp_path, *lines)
    assert (verdict.outcome, verdict.found) == ("not judged", "")
    assert verdict.why == f"line 2, // {lines[1]}, took longer than 0.5 s"
    assert verdict.place == f"{tmp_path / 'step.check'}:2"


@pytest.mark.usefixtures("short_time")
def test_a_failure_is_told_where_it_takes_too_long_to_find_what_is_like_it(tmp_path: Path) -> None:
    verdict = checked(tmp_path, "CHECK: tanh(", SLOW)
    assert (verdict.outcome, verdict.nearest) == ("failed", "")
    assert verdict.found.startswith("nothing matches, searched from canonical line 6")


# --- what else is printed ---

NOISE = {
    "lines": "print('hello'); print('[1, 2]')",
    "no end of the line": "print('hello ', end='')",
    "bytes that are no text": "import os; os.write(1, b'\\xff\\x00\\r')",
    "at the end": "import atexit; atexit.register(print, 'bye', end='')",
    "on stderr": "import sys; print('hello', file=sys.stderr)",
}


@pytest.mark.parametrize("code", NOISE.values(), ids=NOISE)
def test_what_others_print_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    first(monkeypatch, code)
    assert checked(tmp_path, "CHECK: tanh(").outcome == "passed"
    assert checked(tmp_path, "CHECK: dot(").outcome == "failed"


@pytest.mark.usefixtures("short_time")
def test_what_others_print_does_not_hide_that_the_time_was_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(monkeypatch, "import sys; sys.stderr.write('hello '); sys.stderr.flush(); print('hello')")
    assert checked(tmp_path, SLOW).why == f"line 1, // {SLOW}, took longer than 0.5 s"


# --- how it ends ---

ENDS = {
    "raise OSError('no more memory')": (
        "ended with code 1 and no result; the last line that it wrote: OSError: no more memory"
    ),
    "print('hello'); raise SystemExit": "ended with code 0 and no result",
    "import os; os._exit(3)": "ended with code 3 and no result",
    "import io, sys; sys.stdout = io.StringIO()": "ended with code 0 and no result",
}


@pytest.mark.parametrize("code", ENDS)
def test_a_process_that_ends_without_a_result_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    first(monkeypatch, code)
    verdict = checked(tmp_path, "CHECK: tanh(")
    assert (verdict.outcome, verdict.found) == ("not judged", "")
    assert verdict.why == f"the file could not be run: its process {ENDS[code]}"


def test_a_process_that_cannot_be_started_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    verdict = checked(tmp_path, "CHECK: tanh(")
    assert verdict.outcome == "not judged"
    assert "no process could be started" in verdict.why
