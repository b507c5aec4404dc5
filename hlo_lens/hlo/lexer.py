"""Lexical pieces of HLO text: where a space, a bracket, a shape or an attribute value ends.

Every function takes the text and an offset and returns an offset; nothing is copied. Follows
`xla/hlo/parser/hlo_lexer.cc` in what it accepts, and accepts more where dumps need it.
"""

from __future__ import annotations

import re

from hlo_lens.hlo.errors import HloParseError

SPACE = re.compile(r"(?:[ \t\r\n\xa0]++|/\*.*?\*/|//[^\r\n]*+)*+", re.S)
"""White space and comments, which may stand between any two tokens; also the no-break space
of texts copied from web pages."""

IDENTIFIER = re.compile(r"[A-Za-z_][\w.-]*", re.A)
NAME = re.compile(r"%?([A-Za-z_0-9][\w.-]*)", re.A)
"""A name of something; XLA wants a letter first, old dumps also begin with a digit."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S)

_CLOSING = {"{": "}", "(": ")", "[": "]"}
_CONFIG = "{ "  # stands for the brace of a configuration
_CONFIGS = ("backend_config", "frontend_attributes")
# In a bracket, strings are opaque; comments are too, except that in a configuration `//` may be
# part of an unquoted word. Brackets of the other kinds need no counting: they are balanced inside.
_OPAQUE = {
    opening: rf'[{re.escape(opening.strip() + closing)}]|"(?:[^"\\]|\\.)*"|"|\'[^\'"\n{{}}]*\''
    + ("" if opening == _CONFIG else r"|//[^\r\n]*")
    for opening, closing in (*_CLOSING.items(), (_CONFIG, "}"))
}
_INSIDE = {
    opening: re.compile(rf"{pattern}|/\*(?:.*?\*/)?", re.S) for opening, pattern in _OPAQUE.items()
}
# The same where no comment ends any more.
_INSIDE_WITHOUT_COMMENTS = {
    opening: re.compile(pattern, re.S) for opening, pattern in _OPAQUE.items()
}
_WORD = re.compile(r"(?:[%\w.+*:#?@]|-(?!>))+", re.A)
_CONTINUES = re.compile(r"[{(\[]|<=|->|\+|~")
_MORE_NAMES = re.compile(r"\s*,\s*(%[\w.-]+)(?!\s*=)", re.A)


def skip_space(text: str, pos: int) -> int:
    """The first offset at or after `pos` that is neither white space nor in a comment."""
    return SPACE.match(text, pos).end()  # type: ignore[union-attr]  # the pattern matches ""


def match_bracket(text: str, pos: int, *, config: bool = False) -> int:
    """The offset behind the bracket that closes the one at `pos`.

    Raises HloParseError at the end of the text when nothing closes it.
    """
    opening = text[pos]
    kind = _CONFIG if config and opening == "{" else opening
    depth = 0
    tokens = _INSIDE[kind].finditer(text, pos)
    while (match := next(tokens, None)) is not None:
        token = match.group()
        if token == opening:
            depth += 1
        elif token == _CLOSING[opening]:
            depth -= 1
            if depth == 0:
                return match.end()
        elif token == '"':
            raise _unclosed(text, match.start(), token)
        elif token == "/*":  # no comment: not to look for the end of each such one
            tokens = _INSIDE_WITHOUT_COMMENTS[kind].finditer(text, match.end())
    raise _unclosed(text, pos, _CLOSING[opening])


# A line that begins like an instruction, or that ends the last computation.
_NEXT_LINE = re.compile(
    r"\n[ \t]*(?:ROOT )?%?[\w.-]+ = (?:\(|[a-z]\w*\[)|\n\}\s*\Z", re.A
)


def _unclosed(text: str, pos: int, closing: str) -> HloParseError:
    """The error for what opens at `pos` and never closes.

    Where other lines follow it stands there, else at the end: then the text may be cut off.
    """
    line = text.count("\n", 0, pos) + 1
    expected = f"'{closing}' to close the '{text[pos]}' of line {line}"
    following = _NEXT_LINE.search(text, pos)
    if following is None:
        return HloParseError(text, len(text), expected)
    line = text.count("\n", 0, following.start()) + 2
    return HloParseError(text, pos, expected, found=f"line {line}")


_ARRAY = re.compile(r"[a-z][a-z0-9]*\[[^\[\]{}()\"]*\]", re.A)
_LAYOUT = re.compile(r"\s*\{(?=\s*(?:\d|:))")
_SPARSE = re.compile(r"sparse\{[^}]*\}")
_BUFFER = re.compile(r"b\(")


def skip_shape(text: str, pos: int) -> int | None:
    """The offset behind the shape that starts at `pos`, or None where no shape starts.

    Raises HloParseError for a tuple or layout that is never closed.
    """
    if text.startswith("(", pos):
        return match_bracket(text, pos)
    array = _ARRAY.match(text, pos)
    if array is None:
        if _BUFFER.match(text, pos):
            return _skip_buffer(text, pos)
        return _skip_spaced_array(text, pos)
    end = array.end()
    if (sparse := _SPARSE.match(text, end)) is not None:
        return sparse.end()
    return skip_layout(text, end)


def _skip_buffer(text: str, pos: int) -> int | None:
    """`b(shape)`; `b(` may also be an operation called b, then another word does not follow."""
    inner = skip_space(text, pos + 2)
    if text.startswith("b(", inner) or skip_shape(text, inner) is None:
        return None
    return match_bracket(text, pos + 1)


def _skip_spaced_array(text: str, pos: int) -> int | None:
    """An array shape with spaces or comments between its tokens."""
    word = re.compile(r"[a-z][a-z0-9]*", re.A).match(text, pos)
    if word is None:
        return None
    bracket = skip_space(text, word.end())
    if not text.startswith("[", bracket):
        return None
    return skip_layout(text, match_bracket(text, bracket))


def skip_layout(text: str, pos: int) -> int:
    """`pos`, or the offset behind the layout that follows (after spaces and comments)."""
    at = skip_space(text, pos)
    if text.startswith("{", at):
        first = skip_space(text, at + 1)
        # `{}` is what 2018 printed for a scalar; a computation body is never empty.
        if first < len(text) and (text[first].isdigit() or text[first] in ":}"):
            return match_bracket(text, at)
    return pos


def skip_value(text: str, pos: int, key: str) -> int:
    """The offset behind the value of attribute `key` that starts at `pos`.

    A value is a run of words, strings and bracketed parts. White space ends it unless a bracket
    or an arrow follows: nothing else in HLO text may begin with one (`mesh['a'=2] {'a'}`,
    `[2,4] <= [8]`). A list of names goes on over its commas (`calls=%a, %b`).
    """
    start = pos
    while pos < len(text):
        char = text[pos]
        if char in _CLOSING:
            pos = match_bracket(text, pos, config=key in _CONFIGS)
            if char == "{" and not _CONTINUES.match(text, skip_space(text, pos)):
                break  # a word here is the next instruction: `dimensions={0}%x = …`
        elif char in "\"'":
            string = STRING.match(text, pos)
            if string is None:
                raise _unclosed(text, pos, char)
            pos = string.end()
        elif (token := _CONTINUES.match(text, pos) or _WORD.match(text, pos)) is not None:
            pos = token.end()
        else:
            break
        after = skip_space(text, pos)
        if after != pos and _CONTINUES.match(text, after):
            pos = after
    if key == "literal":
        pos = _skip_literal(text, start, pos)
    while text.startswith("%", start) and (more := _MORE_NAMES.match(text, pos)) is not None:
        pos = more.end()
    if pos == start:
        raise HloParseError(text, pos, f"a value for '{key}'")
    return pos


_SCALAR = re.compile(r"-?(?:\d[\w.+-]*|true|false|inf|nan(?:\(\w+\))?)", re.A)


def _skip_literal(text: str, start: int, pos: int) -> int:
    """`literal=f32[] 3`: the scalar behind the shape belongs to the value."""
    scalar = _SCALAR.match(text, skip_space(text, pos))
    return scalar.end() if scalar is not None and skip_shape(text, start) == pos else pos
