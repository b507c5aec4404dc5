"""Attribute text of an instruction: the split into name and raw value, and the small value forms.

Grammar: `ParseAttributeHelper` in xla/hlo/parser/hlo_parser.cc. Every function here takes text and
raises ValueError with a sentence when the text has another form. Comments and blanks may stand
between any two tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from sys import intern
from typing import Final

# ---------------------------------------------------------------------------- names and values

_STRING: Final = r'"(?:[^"\\]++|\\.)*+"'
_QUOTED: Final = r"'(?:[^'\\\n]++|\\.)*+'"
_SLASH: Final = r"/(?![*/])"


def braces(levels: int) -> str:
    """A pattern for `{...}` with at most `levels` braces inside each other and no comment."""
    inner = rf"[^{{}}\"'/]++|{_STRING}|{_QUOTED}|{_SLASH}"
    pattern = rf"\{{(?:{inner})*+\}}"
    for _ in range(levels - 1):
        pattern = rf"\{{(?:{inner}|{pattern})*+\}}"
    return pattern


# The forms that printers emit, each in one go. Possessive quantifiers keep a miss linear. What
# must follow (a comma and an attribute, or the end) is looked at by the caller.
_FAST = re.compile(
    rf"""\s*+,\s*+([A-Za-z_][\w.\-]*+)\s*+=\s*+
    ( {braces(6)}
    | {_STRING}
    | (?: [^\s,{{}}()\[\]"'/]++ | \[[^\[\](){{}}"'/]*+\] | \([^\[\](){{}}"'/]*+\) )++
    )(?=,|\s*+\Z)""",
    re.VERBOSE | re.DOTALL,
)
_BLANK: Final = r"(?:[\s]++|/\*.*?\*/|//[^\n\r]*+)*+"
_BLANKS = re.compile(_BLANK, re.DOTALL)
_NAME = re.compile(rf"({_BLANK}),{_BLANK}([A-Za-z_][\w.\-]*+){_BLANK}={_BLANK}", re.DOTALL)
_CONTINUED = re.compile(rf"{_BLANK},{_BLANK}%?[A-Za-z_][\w.\-]*+(?={_BLANK}(?:,|\Z))", re.DOTALL)
_TOKEN = re.compile(
    rf"{_STRING}|{_QUOTED}|/\*.*?\*/|//[^\n\r]*+|\\.|[^{{}}()\[\]\"'/,\\]++|.", re.DOTALL
)
_CLOSER: Final = {"{": "}", "(": ")", "[": "]"}


def split_attributes(tail: str) -> dict[str, str]:
    """Name -> raw value text, in order, of `, name=value, name={...}` after an operand list.

    Commas inside strings, braces, parentheses, brackets and comments don't split; `calls=%a, %b`
    is one value, and so is `replica_groups=mesh['a'=2], device_ids=(1,0) {'a'}`. Values are the
    written text without the blanks and comments around them. A leading comma may be absent. Of a
    repeated name the first value counts. Linear in `len(tail)`.

    Raises:
        ValueError: a bracket or string doesn't close, or something else than `name=` follows.
    """
    values: dict[str, str] = {}
    text = tail
    position = 0
    fast = _FAST.match
    while True:
        found = fast(text, position)
        if found is not None:
            name, value = found.groups()
            position = found.end()
        else:
            start = _BLANKS.match(text, position).end()  # type: ignore[union-attr]
            if start == len(text):
                return values
            head = _NAME.match(text, position)
            if head is None and position == 0 and text[start] != ",":
                text, position = "," + text, 0
                continue
            if head is None:
                more = _CONTINUED.match(text, position)
                if more is None or not values:
                    raise ValueError(
                        f"expected ', name=value' in the attributes, found {_excerpt(text, start)}"
                    )
                last = next(reversed(values))
                values[last] += strip_comments(more.group()).rstrip()
                position = more.end()
                continue
            name = head[2]
            value, position = _value(text, head.end())
        if name == "device_ids" and values.get("replica_groups", "").startswith("mesh"):
            values["replica_groups"] += f", device_ids={value}"
        elif name not in values:
            values[intern(name)] = value


def _value(text: str, start: int) -> tuple[str, int]:
    """The value that starts at `start`, without blanks and comments after it, and where it ends.

    It ends at the next comma outside brackets, or with the text.
    """
    open_brackets: list[tuple[str, int]] = []
    content_end = start
    for found in _TOKEN.finditer(text, start):
        token = found.group()
        first = token[0]
        if token == "," and not open_brackets:
            return text[start:content_end].strip(), found.start()
        if first == "/" and token[:2] in ("//", "/*"):
            continue
        content_end = found.end()
        if token in _CLOSER:
            open_brackets.append((_CLOSER[token], found.start()))
        elif token in ("}", ")", "]"):
            if not open_brackets or open_brackets.pop()[0] != token:
                raise ValueError(f"{token!r} closes nothing at {_excerpt(text, found.start())}")
        elif token == '"' or (token == "/" and text.startswith("/*", found.start())):
            what = "string" if token == '"' else "comment"
            raise ValueError(f"a {what} doesn't end: {_excerpt(text, found.start())}")
    if open_brackets:
        raise ValueError(f"no {open_brackets[-1][0]!r} for {_excerpt(text, open_brackets[-1][1])}")
    return text[start:content_end].strip(), len(text)


def split_list(text: str) -> list[str]:
    """The elements of `a, b, {c, d}` (commas inside brackets and strings don't split), stripped.

    `text` has no brackets of its own around it; blank text has no elements.
    """
    elements: list[str] = []
    position = 0
    while True:
        element, end = _value(text, position)
        elements.append(strip_comments(element).strip())
        if end == len(text):
            break
        position = end + 1
    return [] if elements == [""] else elements


def inside(text: str, brackets: str = "{}") -> str:
    """What stands between the outer `brackets` of `text`; ValueError when they aren't there."""
    text = strip_comments(text).strip()
    if len(text) < 2 or text[0] != brackets[0] or text[-1] != brackets[1]:
        raise ValueError(f"expected {brackets[0]}...{brackets[1]}, found {_excerpt(text, 0)}")
    return text[1:-1]


_COMMENT = re.compile(rf"{_STRING}|{_QUOTED}|/\*.*?\*/|//[^\n\r]*+", re.DOTALL)


def strip_comments(text: str) -> str:
    """`text` with each comment replaced by a blank; strings are left as they are."""
    if "/" not in text:
        return text
    return _COMMENT.sub(lambda found: found.group() if found.group()[0] in "\"'" else " ", text)


def _excerpt(text: str, position: int) -> str:
    return repr(text[position : position + 40]) if position < len(text) else "the end of the text"


# ---------------------------------------------------------------------------- strings

_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv])|([0-7]{1,3})|x([0-9a-fA-F]+)|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\\?'\"]))"
)
_ESCAPED: Final = dict(zip(b"abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def c_unescape(text: str) -> str:
    r"""Undo absl::CEscape: `\n`, `\"`, `\x1f`, octal `\303\251` (UTF-8 bytes), `\u00e9`.

    Escapes that C doesn't know stay as they are; bytes that aren't UTF-8 become `\xHH` text.
    """
    if "\\" not in text:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_unescape_one, raw).decode("utf-8", "backslashreplace")


def _unescape_one(found: re.Match[bytes]) -> bytes:
    letter, octal, hexadecimal, short, long, itself = found.groups()
    if letter is not None:
        return bytes([_ESCAPED[letter[0]]])
    if itself is not None:
        return bytes(itself)
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16) & 0xFF])
    point = int(short or long, 16)
    return chr(point).encode("utf-8", "replace") if point <= 0x10FFFF else found.group()


def parse_string(text: str) -> str:
    """The content of `"..."` or `'...'`, escapes undone."""
    text = text.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        raise ValueError(f"expected a quoted string, found {_excerpt(text, 0)}")
    return c_unescape(text[1:-1])


# ---------------------------------------------------------------------------- numbers

_INT = re.compile(r"-?\d+\Z", re.ASCII)


def parse_int(text: str) -> int:
    """`-3`."""
    text = strip_comments(text).strip()
    if _INT.match(text) is None:
        raise ValueError(f"expected an integer, found {_excerpt(text, 0)}")
    return int(text)


def whole_number(text: str) -> int | None:
    """`3`; None for anything else: a sign, other digits than ours, more than 64 bits hold."""
    # Of a number of some thousand digits, `int` raises ValueError.
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        return None
    number = int(text)
    return number if number < 2**64 else None


def parse_bool(text: str) -> bool:
    """`true` or `false`; old text also has `1` and `0`."""
    text = text.strip()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"expected true or false, found {_excerpt(text, 0)}")
    return text in ("true", "1")


def parse_bools(text: str) -> tuple[bool, ...]:
    """`{true,false}`, or a bare `true`."""
    if text.lstrip().startswith("{"):
        return tuple(map(parse_bool, split_list(inside(text))))
    return (parse_bool(text),)


def parse_ints(text: str) -> tuple[int, ...]:
    """`{1,2}`, `[1,2]` or a bare `1`; `{}` is the empty tuple."""
    text = strip_comments(text).strip()
    if text[:1] in ("{", "["):
        text = inside(text, "{}" if text[0] == "{" else "[]").strip()
        if not text:
            return ()
    return tuple(map(parse_int, text.split(",")))


def parse_source_target_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """`{{0,1},{1,2}}` -> ((0, 1), (1, 2))."""
    pairs = []
    for element in split_list(inside(text)):
        pair = parse_ints(element)
        if len(pair) != 2:
            raise ValueError(f"expected a pair {{source,target}}, found {element!r}")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


# ---------------------------------------------------------------------------- windows, dimensions


@dataclass(frozen=True, slots=True)
class Window:
    """A window of convolution or reduce-window; every tuple has one entry a spatial dimension."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    lhs_dilate: tuple[int, ...]
    rhs_dilate: tuple[int, ...]
    rhs_reversal: tuple[bool, ...]


def parse_window(text: str) -> Window:
    """`{size=3x3 stride=2x2 pad=0_1x-1_0 lhs_dilate=.. rhs_dilate=.. rhs_reversal=1x1}`.

    What isn't written has XLA's default: stride and dilations 1, no padding, no reversal.
    """
    fields: dict[str, list[str]] = {}
    for part in inside(text).replace(",", " ").split():
        name, equals, value = part.partition("=")
        if not equals or name not in Window.__dataclass_fields__ or name in fields:
            raise ValueError(f"{part!r} is no part of a window")
        fields[name] = value.split("x")
    rank = len(next(iter(fields.values()))) if fields else 0
    if any(len(values) != rank for values in fields.values()):
        raise ValueError(f"the parts of the window {text!r} differ in their number of dimensions")

    def ints(name: str, default: int) -> tuple[int, ...]:
        return tuple(map(parse_int, fields[name])) if name in fields else (default,) * rank

    return Window(
        size=ints("size", 1),
        stride=ints("stride", 1),
        pad=tuple(map(_low_high, fields.get("pad", ["0_0"] * rank))),
        lhs_dilate=ints("lhs_dilate", 1),
        rhs_dilate=ints("rhs_dilate", 1),
        rhs_reversal=tuple(value != 0 for value in ints("rhs_reversal", 0)),
    )


def _low_high(text: str) -> tuple[int, int]:
    low, _, high = text.partition("_")
    return parse_int(low), parse_int(high)


@dataclass(frozen=True, slots=True)
class DimLabels:
    """Dimension labels of a convolution, one character a dimension, as in `b01f_01io->b01f`.

    `lhs` and `output` hold b (batch), f (feature) and spatial digits; `rhs` holds i (input
    feature), o (output feature) and spatial digits. `?` is a dimension that isn't used. The
    position of a character is the dimension: `labels.lhs.index("b")`.
    """

    lhs: str
    rhs: str
    output: str


_DIM_LABELS = re.compile(r"([0-9bf?]*)_([0-9io?]*)->([0-9bf?]*)\Z")


def parse_dim_labels(text: str) -> DimLabels:
    """`b01f_01io->b01f`."""
    found = _DIM_LABELS.match("".join(text.split()))
    if found is None:
        raise ValueError(f"expected dimension labels as in b01f_01io->b01f, found {text!r}")
    return DimLabels(*found.groups())


def parse_padding(text: str) -> tuple[tuple[int, int, int], ...]:
    """`0_0_0x-1_2` -> (low, high, interior) for every dimension."""
    text = text.strip()
    padding = []
    for part in text.split("x") if text else ():
        numbers = tuple(map(parse_int, part.split("_")))
        if len(numbers) not in (2, 3):
            raise ValueError(f"expected low_high or low_high_interior, found {part!r}")
        padding.append((numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else 0))
    return tuple(padding)


_SLICE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]\Z")


def parse_slice(text: str) -> tuple[tuple[int, int, int], ...]:
    """`{[0:4], [1:8:2]}` -> (start, limit, stride) for every dimension."""
    slices = []
    for element in split_list(inside(text)):
        found = _SLICE.match("".join(element.split()))
        if found is None:
            raise ValueError(f"expected [start:limit] or [start:limit:stride], found {element!r}")
        slices.append((int(found[1]), int(found[2]), int(found[3] or 1)))
    return tuple(slices)


# ---------------------------------------------------------------------------- aliases


@dataclass(frozen=True, slots=True)
class Alias:
    """One entry of input_output_alias: this output may or must share the parameter's buffer."""

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...]
    kind: str
    """"may-alias" (also when not written) or "must-alias"."""


@dataclass(frozen=True, slots=True)
class OperandAlias:
    """One entry of output_to_operand_aliasing: this output is written into that operand."""

    output_index: tuple[int, ...]
    operand: int
    operand_index: tuple[int, ...]


def parse_alias(text: str) -> tuple[Alias, ...]:
    """`{ {0}: (1, {}, may-alias), {1}: (2, {0}) }`, the header's input_output_alias."""
    return tuple(
        Alias(output, number, index, kind or "may-alias")
        for output, number, index, kind in _aliases(text)
    )


def parse_output_to_operand_aliasing(text: str) -> tuple[OperandAlias, ...]:
    """`{{}: (0, {}), {1}: (2, {0})}`."""
    return tuple(OperandAlias(output, number, index) for output, number, index, _ in _aliases(text))


def _aliases(text: str) -> list[tuple[tuple[int, ...], int, tuple[int, ...], str]]:
    entries = []
    for element in split_list(inside(text)):
        output, colon, target = element.partition(":")
        if target.strip().isdigit():  # `{}: 0`, text of 2018
            target = f"({target}, {{}})"
        parts = split_list(inside(target, "()")) if colon else []
        if len(parts) not in (2, 3):
            raise ValueError(f"expected {{output}}: (number, {{index}}), found {element!r}")
        kind = parts[2] if len(parts) == 3 else ""
        entries.append((parse_ints(output), parse_int(parts[0]), parse_ints(parts[1]), kind))
    return entries


def parse_buffer_donor(text: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """`{ (1, {}), (2, {0}) }` -> (parameter, index in the parameter), the header's buffer_donor."""
    donors = []
    for element in split_list(inside(text)):
        parts = split_list(inside(element, "()"))
        if len(parts) != 2:
            raise ValueError(f"expected (parameter, {{index}}), found {element!r}")
        donors.append((parse_int(parts[0]), parse_ints(parts[1])))
    return tuple(donors)


# ---------------------------------------------------------------------------- dictionaries


def parse_frontend_attributes(text: str) -> dict[str, str]:
    """`{k="v",k2={json},_x-y.z="v"}`: strings without quotes and escapes, braces as written."""
    return {
        name: parse_string(value) if value[:1] in ("'", '"') else value
        for name, value in split_attributes(inside(text)).items()
    }


def parse_statistics(text: str) -> dict[str, float]:
    """`{visualizing_index=1,stat-1=33,stat-2=44.5}`."""
    return {name: float(value) for name, value in split_attributes(inside(text)).items()}
