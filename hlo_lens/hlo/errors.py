"""The one error of the reader: where a text stops being HLO, and what was expected there."""

from __future__ import annotations

_SHOWN_WIDTH = 120
_LONGEST_WORDS = 200  # of what was expected and found, where a name may be of any length


class HloParseError(ValueError):
    """HLO text could not be read.

    Attributes:
      filename: name of the file, or None for a bare string.
      line, column: 1-based position in the text; `offset` counts its characters from 0.
      expected: what the grammar allows there, in words.
      found: what stands there, shortened.
      source_line: the whole line of text.
    """

    def __init__(
        self, text: str, offset: int, expected: str, *, found: str | None = None,
        filename: str | None = None,
    ) -> None:
        offset = min(offset, len(text))
        start = text.rfind("\n", 0, offset) + 1
        end = text.find("\n", offset)
        self.filename = filename
        self.offset = offset
        self.line = text.count("\n", 0, offset) + 1
        self.column = offset - start + 1
        self.expected = _clipped(expected)
        self.found = _found(text, offset) if found is None else _clipped(found)
        self.source_line = text[start : end if end >= 0 else len(text)].rstrip("\r")
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        where = f"{self.filename or '<text>'}:{self.line}:{self.column}"
        return f"{where}: expected {self.expected}, found {self.found}"

    def render(self) -> str:
        """The sentence, then the line (a window of it when long) with a caret under the column."""
        start = max(0, self.column - 1 - _SHOWN_WIDTH // 2)
        window = _visible(self.source_line[start : start + _SHOWN_WIDTH].replace("\t", " "))
        left = "…" if start else ""
        right = "…" if start + _SHOWN_WIDTH < len(self.source_line) else ""
        caret = " " * (self.column - 1 - start + len(left)) + "^"
        return f"{self._sentence()}\n  {left}{window}{right}\n  {caret}"


def _found(text: str, offset: int) -> str:
    if offset >= len(text):
        return "the end of the text"
    word = _visible(text[offset : offset + 24].split("\n", 1)[0].rstrip("\r"))
    return f"'{word}'" if word.strip() else "the end of the line"


def _visible(text: str) -> str:
    """What a terminal would act on, such as an escape, as a sign of the same width."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST_WORDS:
        return text
    half = _LONGEST_WORDS // 2
    return f"{text[:half]}…{text[-half:]}"
