"""What an instruction and a header say, free of names, ids and places, for an exact comparison."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from hlo_lens.hlo import Computation, Instruction, Module, parse_shape
from hlo_lens.hlo.attributes import (
    braces,
    inside,
    parse_alias,
    split_attributes,
    split_list,
    strip_comments,
)
from hlo_lens.hlo.config import parse_config
from hlo_lens.hlo.lexer import STRING
from hlo_lens.hlo.opcodes import NEVER_CALLS, sugar
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY

UNREAD: Final = ""
"""Names all attributes of a text that cannot be taken apart."""

_METADATA = re.compile(rf",\s*metadata={braces(2)}", re.S)
_BLANK_OR_STRING = re.compile(rf"{STRING.pattern}|\s+", re.S)


# ---------------------------------------------------------------------------------- attributes


def written_attributes(tail: str, *, said_empty: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """The attributes but commentary, as written; one with an empty value is as good as none, but
    for those of `said_empty`."""
    if (at := tail.find(", metadata=")) >= 0 and '"' not in tail[:at]:
        # Nearly every one has metadata of its own; what is left is one of a few texts.
        tail = _METADATA.sub("", tail, count=1)
    return _written(tail, said_empty)


@lru_cache(maxsize=1 << 14)
def _written(tail: str, said_empty: frozenset[str]) -> Mapping[str, str]:
    try:
        attributes = split_attributes(tail)
    except ValueError:
        return MappingProxyType({UNREAD: tail})
    return MappingProxyType(
        {
            name: value
            for name, value in attributes.items()
            if name not in COMMENTARY and (name in said_empty or not _is_empty(value))
        }
    )


def _is_empty(value: str) -> bool:
    return value[:1] == "{" and len(value) < 80 and unblanked(value) == "{}"


@lru_cache(maxsize=1 << 14)
def unblanked(text: str) -> str:
    """`text` without comments and blanks; what strings hold stays."""
    return _BLANK_OR_STRING.sub(
        lambda found: "" if found[0].isspace() else found[0], strip_comments(text)
    )


def differing_attribute(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """The first attribute that is not the same on both sides; None where all are.

    Those that hold ids, or name instructions or computations, need only be there.
    """
    if old == new:
        return None
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            return name
        if name not in IDENTITY and not same_value(name, old[name], new[name]):
            return name
    return None


def same_value(name: str, old: str, new: str) -> bool:
    """Whether two values of an attribute mean the same."""
    if old == new or unblanked(old) == unblanked(new):
        return True
    try:
        if name == "replica_groups":
            return parse_replica_groups(old).groups == parse_replica_groups(new).groups
        if name == "backend_config":
            return _same_config(old, new)
    except ValueError:
        pass
    return False


def _same_config(old: str, new: str) -> bool:
    one, other = parse_config(old), parse_config(new)
    if one.raw == other.raw or (one.kind == other.kind == "json" and one.value == other.value):
        return True
    from hlo_lens.decode.kernels import without_locations

    return without_locations(one.raw) == without_locations(other.raw)


def without_layouts(shape: str) -> object:
    """A shape text as dtypes and dimensions; the text itself where it is no shape."""
    try:
        return [(leaf.dtype, leaf.dimensions) for leaf in parse_shape(shape).leaves()]
    except ValueError:
        return shape


def callees(instruction: Instruction) -> Mapping[str, tuple[Computation, ...]]:
    """What it calls, by attribute; of `OP-start`, what OP calls."""
    if instruction.opcode in NEVER_CALLS:
        return {}
    called = instruction.called_by
    written = sugar(instruction.opcode)
    if written is not None and written[1] == "start":
        (wrapped,) = called["calls"]
        return wrapped.root.called_by
    return called


# ---------------------------------------------------------------------------------- headers

_NO_FIELD = frozenset(("origin_recovery_table", "debug_attributes"))
_COUNTS = frozenset(("replica_count", "num_partitions"))  # 1 where the header does not say


def written_header(module: Module) -> Mapping[str, str]:
    """The fields of the header that are no commentary; one with a default value is left out."""
    return {
        name: value
        for name, value in module.header.items()
        if name not in _NO_FIELD and not _is_empty(value) and not (name in _COUNTS and value == "1")
    }


def differing_field(old: Mapping[str, str], new: Mapping[str, str]) -> str | None:
    """The first field of two headers that is not the same; None where all are."""
    for name in dict.fromkeys((*old, *new)):
        if not _same_field(name, old.get(name, "{}"), new.get(name, "{}")):
            return name
    return None


def _same_field(name: str, old: str, new: str) -> bool:
    if unblanked(old) == unblanked(new):
        return True
    try:
        if name == "input_output_alias":
            return parse_alias(old) == parse_alias(new)
        if name == "frontend_attributes":
            return _settings(old) == _settings(new)
    except ValueError:
        pass
    return False


def _settings(text: str) -> list[str]:
    """The frontend attributes of a module; a fingerprint of the program is an id of it."""
    return [
        unblanked(one) for one in split_list(inside(text)) if not one.startswith("fingerprint_")
    ]


# ---------------------------------------------------------------------------------- lines


def written_lines(module: Module) -> Iterator[tuple[int, str]]:
    """The lines of the text and their numbers, without metadata, frame tables and empty lines."""
    text, frames = module.text, module.frames_text
    if frames and (at := text.find(frames)) >= 0:
        text = "".join((text[:at], "\n" * frames.count("\n"), text[at + len(frames) :]))
    text = _METADATA.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if kept := line.rstrip():
            yield number, kept
