"""Backend configs: JSON, MLIR attribute dictionaries, and text of no known form, as values."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from hlo_lens.hlo.attributes import parse_string


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """What an instruction's `backend_config=` says.

    `raw` is the text without its quotes and escapes. `kind` is "json", "mlir" (an attribute
    dictionary such as `{grid_x = 1 : i32}`), "string" (quoted text of another form) or "raw"
    (unquoted text of another form). `value` is the JSON or MLIR value and None for the other two;
    it is shared between equal configs and not to be changed.
    """

    raw: str
    kind: str
    value: Any = field(default=None, hash=False)

    def get(self, *path: str | int) -> Any:
        """The value below the keys (or list positions) of `path`; None where there is none."""
        value = self.value
        for key in path:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and -1 < key < len(value):
                value = value[key]
            else:
                return None
        return value

    def __repr__(self) -> str:
        shown = self.raw if len(self.raw) <= 60 else self.raw[:57] + "..."
        return f"BackendConfig({self.kind}, {shown!r})"


@lru_cache(maxsize=1 << 11)
def parse_config(text: str) -> BackendConfig:
    r"""Read `{"a":1}`, `"{\"a\":1}"`, `{grid_x = 1 : i32}` or anything else; texts are cached.

    Raises:
        ValueError: the text starts with a quote and doesn't end with it.
    """
    text = text.strip()
    quoted = text[:1] in ("'", '"')
    raw = parse_string(text) if quoted else text
    if raw.lstrip()[:1] in ("{", "["):
        for kind, read in (("json", _json), ("mlir", parse_mlir), ("json", _proto_json)):
            try:
                return BackendConfig(raw, kind, read(raw))
            except (ValueError, RecursionError):
                continue
    return BackendConfig(raw, "string" if quoted else "raw")


def _json(text: str) -> Any:
    return json.loads(text, strict=False, parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    """A number that JSON can hold: Python also reads and writes NaN and Infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number of JSON")
    return number


_LOOSE = re.compile(r'"(?:[^"\\]++|\\.)*+"|([A-Za-z_]\w*+)(?=\s*:)|,(?=\s*[}\]])', re.DOTALL)


def _proto_json(text: str) -> Any:
    """JSON as protobuf's reader takes it: bare keys, and a comma may stand at the end."""
    return _json(
        _LOOSE.sub(
            lambda found: f'"{found[1]}"' if found[1] else found.group().removeprefix(","), text
        )
    )


# ---------------------------------------------------------------------------- MLIR attributes

_MAX_NESTING: Final = 60
_BLANK = re.compile(r"(?:\s++|//[^\n]*+)*+")
_KEY = re.compile(r'([A-Za-z_][\w.$\-]*+)|"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_WORD = re.compile(r"(true|false|unit)\b(?![\w.<])")
_NUMBER = re.compile(r"(-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))(?![\w.])")
_ARRAY = re.compile(r"(?:array<\s*\w+\s*(?::|(?=>))|dense<)")
_ESCAPE = re.compile(r'\\(?:([0-9a-fA-F]{2})|(["\\nt]))')
_STOP = re.compile(r'"(?:[^"\\]++|\\.)*+"|->|[<>()\[\]{},]', re.DOTALL)
_OPENERS: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}


def parse_mlir(text: str) -> Any:
    """An MLIR attribute in generic form: dictionaries, lists, numbers, strings, array<>, dense<>.

    Types after a colon are dropped, a name without a value is True, and an attribute of any other
    kind (`#triton.x<...>`, `@symbol`, a type) is its text.

    Raises:
        ValueError: the text isn't one attribute, or nests too deep.
    """
    value, end = _attribute(text, _skip(text, 0), 0)
    if _skip(text, end) != len(text):
        raise ValueError(f"expected the end of the attribute, found {text[end : end + 40]!r}")
    return value


def _skip(text: str, position: int) -> int:
    return _BLANK.match(text, position).end()  # type: ignore[union-attr]


def _attribute(text: str, position: int, depth: int) -> tuple[Any, int]:
    if depth > _MAX_NESTING:
        raise ValueError(f"attributes nest more than {_MAX_NESTING} deep")
    if text.startswith("{", position):
        return _dictionary(text, position, depth)
    if text.startswith("[", position):
        return _sequence(text, position + 1, "]", depth)
    array = _ARRAY.match(text, position)
    if array is not None:
        values, end = _sequence(text, array.end(), ">", depth)
        if array.group() == "dense<":
            return (values[0] if len(values) == 1 else values), _type_end(text, end)
        return values, end
    return _scalar(text, position)


def _scalar(text: str, position: int) -> tuple[Any, int]:
    found = _STRING.match(text, position)
    if found is not None:
        return _mlir_unescape(found[1]), _type_end(text, found.end())
    found = _WORD.match(text, position)
    if found is not None:
        return found[1] != "false", found.end()
    found = _NUMBER.match(text, position)
    if found is not None:
        return _number(found[1]), _type_end(text, found.end())
    end = _other_end(text, position)
    if not text[position:end].strip():
        raise ValueError(f"expected an attribute, found {text[position : position + 40]!r}")
    return text[position:end].strip(), end


def _number(text: str) -> int | float:
    if "x" in text:
        return int(text, 16)
    return _finite(text) if any(mark in text for mark in ".eE") else int(text)


def _dictionary(text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    position = _skip(text, position + 1)
    while not text.startswith("}", position):
        key = _KEY.match(text, position)
        if key is None:
            raise ValueError(f"expected a name, found {text[position : position + 40]!r}")
        name = key[1] if key[1] is not None else _mlir_unescape(key[2])
        position = _skip(text, key.end())
        if text.startswith("=", position):
            values[name], position = _attribute(text, _skip(text, position + 1), depth + 1)
        else:
            values[name] = True
        position = _comma(text, position, "}")
    return values, position + 1


def _sequence(text: str, position: int, closer: str, depth: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    position = _skip(text, position)
    while not text.startswith(closer, position):
        value, position = _attribute(text, position, depth + 1)
        values.append(value)
        position = _comma(text, position, closer)
    return values, position + 1


def _comma(text: str, position: int, closer: str) -> int:
    """Past a comma, or at the closer."""
    position = _skip(text, position)
    if text.startswith(",", position):
        return _skip(text, position + 1)
    if not text.startswith(closer, position):
        raise ValueError(f"expected ',' or {closer!r}, found {text[position : position + 40]!r}")
    return position


def _type_end(text: str, position: int) -> int:
    """Past the `: type` that may follow a value."""
    start = _skip(text, position)
    if text.startswith(":", start) and not text.startswith("::", start):
        return _other_end(text, start + 1)
    return position


def _other_end(text: str, position: int) -> int:
    """Where something of no closer interest ends: before a comma or bracket that isn't its own."""
    closers: list[str] = []
    for found in _STOP.finditer(text, position):
        token = found.group()
        if token in _OPENERS:
            closers.append(_OPENERS[token])
        elif closers and token == closers[-1]:
            closers.pop()
        elif token in (">", ")", "]", "}") or (token == "," and not closers):
            if closers:
                raise ValueError(f"expected {closers[-1]!r}, found {token!r} in an attribute")
            return found.start()
    return len(text)


def _mlir_unescape(text: str) -> str:
    r"""Undo MLIR's escapes `\"`, `\\`, `\n`, `\t` and `\HH`, whose bytes are UTF-8."""
    if "\\" not in text:
        return text
    plain: Final = {'"': b'"', "\\": b"\\", "n": b"\n", "t": b"\t"}
    parts: list[bytes] = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[end : found.start()].encode("utf-8", "surrogatepass"))
        parts.append(bytes.fromhex(found[1]) if found[1] else plain[found[2]])
        end = found.end()
    parts.append(text[end:].encode("utf-8", "surrogatepass"))
    return b"".join(parts).decode("utf-8", "backslashreplace")
