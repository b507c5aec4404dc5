"""One spelling for shapes, attributes and constants: no layouts, no double braces, one form."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any, Final

from hlo_lens.hlo.attributes import braces, inside, split_attributes, strip_comments
from hlo_lens.hlo.config import parse_config
from hlo_lens.hlo.lexer import STRING
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens.hlo.sharding import Sharding, parse_sharding

ELIDED: Final = "{...}"
_MOST_ELEMENTS: Final = 10  # XLA elides longer literals, where it is not asked to print them
_MOST_TEXT: Final = 200  # longer strings of a configuration are bodies of kernels

_LAYOUT = re.compile(r"\{[^{}]*\}")
_BLANKS = re.compile(r"\s+")
_COMMA_OF_TUPLE = re.compile(r",(?![^\[\]]*\])")
_PIECE = re.compile(rf"({STRING.pattern})|\s*([{{}},])(\s*)|\s+", re.S)
_DOUBLE = re.compile(r"([{}])(?=\1)")
_METADATA = re.compile(rf",?\s*metadata={braces(3)}", re.S)


@lru_cache(maxsize=1 << 14)
def shape(text: str) -> str:
    """A shape without layouts and comments: `(f32[8,4], s32[])`."""
    plain = _LAYOUT.sub("", _BLANKS.sub("", strip_comments(text)))
    return _COMMA_OF_TUPLE.sub(", ", plain)


@lru_cache(maxsize=1 << 12)
def parted(text: str) -> str:
    """`text` on one line without comments; no brace stands beside a second one: in a CHECK line
    `{{` begins a regular expression."""
    return _PIECE.sub(_piece, strip_comments(text)).strip()


def _piece(found: re.Match[str]) -> str:
    string, mark, behind = found.groups()
    if string is not None:
        one_line = str(string).replace("\n", "\\n").replace("\r", "\\r")
        return _DOUBLE.sub(r"\1 ", one_line)
    if mark is None:
        return " "
    following = found.string[found.end() : found.end() + 1]
    if mark == ",":
        return ", " if behind else ","
    if following == mark:
        return f"{mark} "
    return f"{mark} " if mark == "}" and behind and following not in ("}", ",", "") else mark


@lru_cache(maxsize=1 << 14)
def attribute(name: str, text: str) -> str:
    """The value of an attribute that names nothing of the module."""
    try:
        if name == "replica_groups":
            return _groups(text)
        if name == "sharding":
            return _sharding(text)
        if name == "backend_config":
            return _config(text)
        if name == "frontend_attributes":
            return _settings(text)
    except ValueError:
        pass  # of no known form: as written
    return parted(text)


# ---------------------------------------------------------------------------- devices


def _groups(text: str) -> str:
    groups = parse_replica_groups(text).groups
    if len(set(map(len, groups))) == 1:
        flat = [number for group in groups for number in group]
        if (order := _iota(flat)) is not None:
            return f"[{len(groups)},{len(groups[0])}]{order}"
    listed = ",".join(f"{{{','.join(map(str, group))}}}" for group in groups)
    return parted(f"{{{listed}}}")


def _iota(numbers: Sequence[int]) -> str | None:
    """`<=[2,4]T(1,0)`: the numbers 0, 1, 2, … as an array with its dimensions in another order,
    as few of them as can be; None where they are in no such order."""
    digits: list[tuple[int, int]] = []  # (size, stride), innermost first
    rest = list(numbers)
    while len(rest) > 1:
        step = rest[1] - rest[0]
        size = next(
            (at for at in range(1, len(rest)) if rest[at] - rest[at - 1] != step), len(rest)
        )
        if step < 1 or len(rest) % size:
            return None
        digits.append((size, step))
        rest = rest[::size]
    digits.reverse()
    outer_first = sorted(range(len(digits)), key=lambda at: -digits[at][1])
    sizes = [digits[at][0] for at in outer_first]
    strides = list(accumulate(reversed(sizes), lambda a, b: a * b, initial=1))[-2::-1]
    if [digits[at][1] for at in outer_first] != strides or list(numbers) != _counted(digits):
        return None
    if len(sizes) < 2:
        return f"<=[{len(numbers)}]"
    order = ",".join(str(outer_first.index(at)) for at in range(len(digits)))
    return f"<=[{','.join(map(str, sizes))}]T({order})"


def _counted(digits: Sequence[tuple[int, int]]) -> list[int]:
    """The numbers that digits of these sizes and strides count, the first digit the slowest."""
    numbers = [0]
    for size, stride in digits:
        numbers = [number + at * stride for number in numbers for at in range(size)]
    return numbers


def _sharding(text: str) -> str:
    found = parse_sharding(text)
    if found.kind == "tuple":
        return parted(f"{{{', '.join(_one_sharding(each) for each in found.elements)}}}")
    return _one_sharding(found)


def _one_sharding(found: Sharding) -> str:
    """By tiles and devices where that says it all, however it is written."""
    special = (*found.unreduced_axes, *found.manual_axes)
    spread = set(found.subgroup_types) <= {"replicated"} and not special
    if found.kind == "replicated" and spread:
        return "{replicated}"
    devices = found.devices
    parts = prod(found.tile_dims)
    if found.kind != "tiled" or not spread or not parts or len(devices) % parts:
        return parted(_METADATA.sub("", found.text))
    copies = len(devices) // parts
    dims = [*found.tile_dims, *([copies] if copies > 1 else [])]
    order = _iota(devices) or ",".join(map(str, devices))
    last = " last_tile_dim_replicate" if copies > 1 else ""
    marks = "".join(
        f" {name} {number}"
        for name, number in (("shard_as", found.shard_as), ("shard_like", found.shard_like))
        if number is not None
    )
    return f"{{devices=[{','.join(map(str, dims))}]{order}{last}{marks}}}"


# ---------------------------------------------------------------------------- configurations


def _config(text: str) -> str:
    found = parse_config(text)
    if found.kind == "json":
        short = _shortened(found.value)
        plain = json.dumps(short, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return plain.replace("{{", "{ {")  # which only strings hold
    return parted(text) if len(found.raw) <= _MOST_TEXT else '"..."'


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MOST_TEXT else "..."
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return value


def _settings(text: str) -> str:
    """Frontend attributes by name."""
    settings = split_attributes(inside(text))
    return f"{{{','.join(f'{name}={parted(settings[name])}' for name in sorted(settings))}}}"


# ---------------------------------------------------------------------------- constants, header


def literal(text: str, shape_text: str) -> str:
    """A constant: `5`, `{1, 2}`; `{...}` for more elements than XLA prints."""
    text = text.strip()
    if len(text) > 10_000 or (text[:1] == "{" and text.count(",") >= _MOST_ELEMENTS):
        return ELIDED if text[:1] == "{" else f"{text[:_MOST_TEXT]}..."
    plain = "".join(_BLANKS.sub("", strip_comments(text)))
    return parted(plain.replace(",", ", ")) if plain[:1] in ("{", "(") else plain


_LAYOUT_BEHIND = re.compile(r"(?<=\])\{[^{}]*\}")


def header_field(name: str, text: str) -> str:
    """The value of a field behind the name of the module."""
    if name == "entry_computation_layout":
        text = _LAYOUT_BEHIND.sub("", strip_comments(text))
        return _COMMA_OF_TUPLE.sub(", ", _BLANKS.sub("", text))
    return parted(text)
