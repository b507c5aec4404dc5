"""The README's outputs are real: its commands are run and compared, its Python is a doctest.

A block behind `<!-- output of: COMMAND -->` holds what COMMAND prints, and one behind
`<!-- output of: COMMAND, first N lines -->` its beginning. A command that ends with another exit
code than 0 says so: `<!-- output of: COMMAND, exit 1, first N lines -->`. `make readme` puts them
in place, and `python -m tests.test_readme PAGE…` those of other pages. A block behind
`<!-- file: PATH -->` holds that file.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo_lens.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
FILE = re.compile(r"<!-- file: (?P<path>.+?) -->\n```\w*\n(?P<content>.*?)^```$", re.M | re.DOTALL)
BLOCK = re.compile(
    r"(?P<head><!-- output of: (?P<command>hlolens .+?)"
    r"(?:, exit (?P<code>\d))?(?:, first (?P<lines>\d+) lines)? -->\n"
    r"```\w*\n)(?P<output>.*?)(?P<tail>^```$)",
    re.MULTILINE | re.DOTALL,
)


def output_of(command: str, lines: str | None, expected: str | None = None) -> str:
    """What `command` prints on standard output, from the root of the checkout."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        code = main(shlex.split(command)[1:])
    assert code == int(expected or 0), f"{command} gave {code}"
    printed = [line.rstrip() for line in stream.getvalue().splitlines()]
    if lines is not None and len(printed) > int(lines):
        printed = [*printed[: int(lines)], "…"]
    return "".join(f"{line}\n" for line in printed)


@contextlib.contextmanager
def at_root() -> Iterator[None]:
    before = dict(os.environ)
    with contextlib.chdir(ROOT):
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("COLUMNS", None)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(README.read_text())), ids=lambda block: block["command"]
)
def test_a_block_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`make readme` puts the output in place; look at what changed"
        )


def test_a_file_that_is_shown_is_so() -> None:
    shown = list(FILE.finditer(README.read_text()))
    assert [one["content"] for one in shown] == [(ROOT / one["path"]).read_text() for one in shown]
    assert shown


def test_every_command_with_an_output_is_checked() -> None:
    assert len(list(BLOCK.finditer(README.read_text()))) == README.read_text().count("output of:")


def test_the_python_in_it_runs() -> None:
    with at_root():
        failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_the_two_commands_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make ([a-z]+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{command}:.*## ", makefile, re.MULTILINE), command


def test_every_verb_is_in_the_table_and_every_page_is_there() -> None:
    from hlo_lens.cli import VERBS

    text = README.read_text()
    assert set(re.findall(r"^\| `(\w+)[^`]*` \| ", text, re.MULTILINE)) >= set(VERBS)
    for page in re.findall(r"\]\((docs/[^)]*)\)", text):
        assert (ROOT / page).exists(), page


def test_the_exit_codes_are_those_of_the_help() -> None:
    from hlo_lens.cli import EXIT_CODES

    text = README.read_text()
    for code, meaning in re.findall(r"^  (\d)  (.*)$", EXIT_CODES, re.MULTILINE):
        assert f"| {code} | {meaning} |" in text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or [README]):
        text = page.read_text(encoding="utf-8")
        with at_root():
            filled = BLOCK.sub(
                lambda m: m["head"] + output_of(m["command"], m["lines"], m["code"]) + m["tail"],
                text,
            )
        page.write_text(filled, encoding="utf-8")
    sys.exit()
