"""docs/gate.md shows what its commands print, and files as they are."""

from __future__ import annotations

import re

import pytest

from hlo_lens.check.model import SIGNS
from hlo_lens.check.reading import KEYS
from tests.test_readme import BLOCK, FILE, ROOT, at_root, output_of

PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", list(BLOCK.finditer(PAGE)), ids=lambda block: block["command"])
def test_a_block_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_readme docs/gate.md` puts it in place; look at what changed"
        )


def test_a_file_that_is_shown_is_so() -> None:
    shown = list(FILE.finditer(PAGE))
    assert [one["content"] for one in shown] == [(ROOT / one["path"]).read_text() for one in shown]
    assert len(list(BLOCK.finditer(PAGE))) == PAGE.count("output of:")


def test_every_key_and_sign_is_described() -> None:
    described = set(re.findall(r"(?<!`)`([^`\n]+)`", PAGE))
    assert {*KEYS, *SIGNS} <= described
