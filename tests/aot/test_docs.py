"""The example of docs/compile.md compiles, with the commands that stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import hlo_lens
from hlo_lens.aot import parse_target
from hlo_lens.cli.compile import command
from tests.conftest import Ran

PAGE = (Path(__file__).parents[2] / "docs" / "compile.md").read_text()
EXAMPLE = re.search(r"<!-- file: model\.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.strip("`. ") for line in PAGE.splitlines() if re.match(r"\W*hlolens compile ", line)
]


def test_every_command_is_one() -> None:
    assert len(COMMANDS) == 4
    for line in COMMANDS:
        words = shlex.split(line)[2:]
        context = command.make_context("compile", words)
        assert parse_target(context.params["target"]).devices == 8


def test_every_target_of_the_table_is_one() -> None:
    for name in re.findall(r"`((?:cpu|tpu|cuda|rocm)(?::[\w:-]+)?)`", PAGE):
        parse_target(name)


@pytest.mark.jax
def test_the_example(
    cli: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EXAMPLE is not None
    (tmp_path / "model.py").write_text(EXAMPLE[1])
    monkeypatch.chdir(tmp_path)
    for line in (COMMANDS[0].replace("tpu:v6e-8", "cpu:8"), COMMANDS[-1]):
        words = shlex.split(line)
        ran = cli(*words[1:])
        assert ran.code == 0, ran.err
        assert hlo_lens.load(words[-1]).main.num_partitions == 8
