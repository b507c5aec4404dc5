"""XLA's own HLO parser as the reference, kept in a subprocess because it aborts on some inputs."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jaxlib") is None or importlib.util.find_spec("jaxlib._hlo") is None,
    reason="needs jax: jaxlib._hlo is the reference parser",
)

# `p#1`, an element of a tuple: jaxlib reads it since 0.11, which needs Python 3.12.
_ELEMENT = re.compile(r"[\w.]#\d")

Structure = tuple[tuple[tuple[str, tuple[int, ...]], ...], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the reference made of one text: its structure, or why there is none."""

    structure: Structure | None
    error: str = ""


def reference_answers(texts: Sequence[str]) -> list[Answer]:
    """One answer a text, in order. A text that kills the parser answers with error 'crashed'."""
    answers: list[Answer] = []
    while len(answers) < len(texts):
        answers.extend(_one_process(texts[len(answers) :]))
    return answers


def too_new(text: str) -> bool:
    """Whether `text` takes elements by `#`, for which the jaxlib at hand is too old."""
    return _ELEMENT.search(text) is not None and not _reads_elements()


@cache
def _reads_elements() -> bool:
    text = "HloModule m\nENTRY e { p = (s32[], s32[]) parameter(0) ROOT a = s32[] abs(p#1) }"
    return reference_answers([text])[0].structure is not None


def _one_process(texts: Sequence[str]) -> Iterator[Answer]:
    """The answers of one process: for all of `texts`, or up to the one that killed it."""
    done = subprocess.run(
        [sys.executable, __file__],
        input="".join(json.dumps(text) + "\n" for text in texts),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = done.stdout.splitlines()
    for line in lines:
        found = json.loads(line)
        if isinstance(found, str):
            yield Answer(None, found)
        else:
            yield Answer(tuple(tuple((op, tuple(to)) for op, to in body) for body in found))
    if len(lines) < len(texts):
        yield Answer(None, "crashed")


def _serve() -> None:
    """Answer each JSON string on stdin with a line: the structure as JSON, or the error text."""
    from jaxlib import _hlo

    for line in sys.stdin:
        try:
            module = _hlo.hlo_module_from_text(json.loads(line))
        except Exception as error:  # the message is the answer
            print(json.dumps(str(error) or "refused"), flush=True)
            continue
        found = []
        for computation in module.computations():
            instructions = computation.instructions()
            index = {each.name: position for position, each in enumerate(instructions)}
            found.append(
                [(i.opcode.name, [index[o.name] for o in i.operands()]) for i in instructions]
            )
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _serve()
