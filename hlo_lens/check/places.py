"""Where the keys of an expectation file stand, and the error that says what is wrong there."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hlo_lens.files import InputError

Place = Callable[[str], str]
"""Tells where a key of one expectation is written, as `file:line`; of a key that is not written,
where the expectation begins."""

_TEXT_OR_COMMENT: Final = re.compile(
    r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*", re.DOTALL
)


class ExpectationError(InputError):
    """An expectation that cannot be judged by: what is wrong, and in which line."""

    __module__ = "hlo_lens.testing"  # where people find it


def HERE(key: str) -> str:
    """The place of an expectation that no file holds."""
    return "expectation"


class Places:
    """Where keys stand in a TOML text, as far as lines tell."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        # What stands in a text of several lines, or behind a #, is no key.
        self.lines = _TEXT_OR_COMMENT.sub(_blank, text).splitlines()
        self.starts = [
            number
            for number, line in enumerate(self.lines)
            if re.match(r"\s*\[\[\s*['\"]?expect['\"]?\s*\]\]", line)
        ]

    def top(self, key: str) -> str:
        """The place of a key beside the expectations."""
        return self._found(key, range(len(self.lines)))

    def of(self, number: int) -> Place:
        """The place of the keys of one expectation."""
        if number >= len(self.starts):  # in an array that is written inline
            return lambda _: self.top("expect")
        ends = [*self.starts[1:], len(self.lines)]
        return lambda key: self._found(key, range(self.starts[number], ends[number]))

    def _found(self, key: str, lines: range) -> str:
        written = re.compile(rf"\s*\[*\s*(?:expect\s*\.\s*)?['\"]?{re.escape(key)}['\"]?\s*[.=\]]")
        for number in lines:
            if written.match(self.lines[number]):
                return f"{self.name}:{number + 1}"
        return f"{self.name}:{lines[0] + 1}" if lines else self.name


def _blank(match: re.Match[str]) -> str:
    """Nothing but the line ends, of a text of several lines; a key may be in quotes."""
    found = match[0]
    return found if "\n" not in found and not found.startswith("#") else "\n" * found.count("\n")


def written(value: object) -> str:
    """What a TOML file says, in a sentence about it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (datetime.date, datetime.time)):
        return f"the date or time {value.isoformat()}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "an array"
    return repr(value) if isinstance(value, str) else _number(value)


def _number(value: object) -> str:
    """A number, shortened where nobody would read it."""
    try:
        text = str(value)
    except ValueError:  # more digits than Python makes a text of
        return "a number with thousands of digits"
    return text if len(text) <= 40 else f"{text[:20]}… ({len(text)} digits)"
