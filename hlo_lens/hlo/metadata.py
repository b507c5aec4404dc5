"""Metadata of an instruction: `metadata={op_name="jit(f)/add" stack_frame_id=7}` as a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hlo_lens.hlo.attributes import c_unescape, inside, parse_int

_TEXTS: Final = frozenset(
    ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")
)
_NUMBERS: Final = frozenset(
    ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """OpMetadata in XLA's names; None is what the text doesn't have.

    `stack_frame_id` counts from 1 in the module's table of stack frames; 0 is no frame. `other`
    keeps the raw text of what has no field here (`profile_type`, `metadata_payload`, ...).
    """

    op_type: str | None = None
    op_name: str | None = None
    source_file: str | None = None
    source_line: int | None = None
    source_end_line: int | None = None
    source_column: int | None = None
    source_end_column: int | None = None
    stack_frame_id: int | None = None
    deduplicated_name: str | None = None
    scheduling_name: str | None = None
    other: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        given = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__dataclass_fields__
            if getattr(self, name) not in (None, {})
        )
        return f"Metadata({', '.join(given)})"


# scheduling_name is printed without escapes: it ends at the quote that something else follows.
_ENTRY = re.compile(
    r"""[\s,]*+(?:
        (scheduling_name)\s*=\s*"(.*?)"(?=[\s,]+\w+\s*=|[\s,]*\Z)
      | (\w+)\s*=\s*(?: "((?:[^"\\]++|\\.)*+)" | '((?:[^'\\]++|\\.)*+)'
                      | (\{[^{}]*+\} | [^\s,"'{}]++) )
    )""",
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1 << 14)
def parse_metadata(text: str) -> Metadata:
    """`{op_type="" op_name="" source_file="" source_line=1 stack_frame_id=7}`, commas optional.

    Values are cached: equal texts give the same object.

    Raises:
        ValueError: something isn't `name=value`, or a number isn't one.
    """
    body = inside(text).rstrip(" \t\n\r,")
    values: dict[str, str | int] = {}
    other: dict[str, str] = {}
    position = 0
    while position < len(body):
        found = _ENTRY.match(body, position)
        if found is None:
            rest = body[position : position + 40].strip()
            raise ValueError(f"expected name=value in the metadata, found {rest!r}")
        position = found.end()
        plain, plain_text, name, double, single, bare = found.groups()
        quoted = double if double is not None else single
        if plain is not None:
            values["scheduling_name"] = plain_text
        elif name in _TEXTS and quoted is not None:
            values[name] = c_unescape(quoted)
        elif name in _NUMBERS and bare is not None:
            values[name] = parse_int(bare)
        else:
            other[name] = bare if bare is not None else c_unescape(quoted)
    return Metadata(**values, other=other)  # type: ignore[arg-type]
