"""What an instruction is by itself, free of names, as numbers that are equal for what is equal."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from hlo_lens.hlo import Instruction, parse_shape
from hlo_lens.hlo.attributes import strip_comments
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY, structural_attributes

# What a back end notes of its choices differs between two compiles of one program (kernels hold
# the lines of their source); the tables say what matters of it.
_NOTES: Final = COMMENTARY | IDENTITY | {"backend_config", "frontend_attributes"}
_PLACED: Final = frozenset(("sharding", "operand_layout_constraints"))
_DTYPE: Final = re.compile(r"\b[a-z]\w*(?=\[)")
_BLANKS: Final = re.compile(r"\s+")
_LAYOUT: Final = re.compile(r"\{[^{}]*\}")


class Numbers:
    """One number for all that is equal, counting from 0 as things come."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def of(self, thing: Hashable) -> int:
        """The number of `thing`."""
        return self._known.setdefault(thing, len(self._known))


class Key:
    """What an instruction is by itself, in numbers, from all that is told to the least.

    exact: opcode, shape with layout, attributes, the literal of a constant and the number of a
    parameter. strong: without layouts and sharding. weak: without the dtype, and of a custom call
    without its shape. loose: the opcode, with the target of a custom call. Of what only passes
    values on, the shape tells nothing in any but the first.
    """

    __slots__ = ("exact", "loose", "strong", "trivial", "weak")

    def __init__(self, numbers: Numbers, operation: str, shape: str, attributes: str, said: str):
        plain = plain_shape(shape)
        kept = _without_placement(attributes)
        told = "" if operation in _CARRIED else plain
        dims = _DTYPE.sub("", told)
        named = kept if operation == "custom-call" else ""
        self.exact = numbers.of(("exact", operation, _spelled(shape), attributes, said))
        self.strong = numbers.of(("strong", operation, told, kept, said))
        self.weak = numbers.of(("weak", operation, "" if named else dims, kept, said))
        self.loose = numbers.of(("loose", operation, named))
        self.trivial = operation in TRIVIAL


# Their shape follows from their operands, and grows with these.
_CARRIED: Final = frozenset(("while", "tuple", "opt-barrier"))
TRIVIAL: Final = frozenset(
    ("after-all", "constant", "iota", "partition-id", "replica-id", "parameter", "create-token")
)
"""Operations whose result is the same wherever they stand."""


@lru_cache(maxsize=1 << 14)
def plain_shape(text: str) -> str:
    """A shape without layouts, comments and blanks."""
    return _LAYOUT.sub("", _spelled(text))


@lru_cache(maxsize=1 << 14)
def _spelled(text: str) -> str:
    return _BLANKS.sub("", strip_comments(text)) if "/*" in text or " " in text else text


@lru_cache(maxsize=1 << 14)
def _without_placement(attributes: str) -> str:
    return "".join(
        f", {one}" for one in attributes.split(", ")[1:] if one.partition("=")[0] not in _PLACED
    )


@lru_cache(maxsize=1 << 14)
def _with_groups(attributes: str) -> str:
    """The attributes with replica groups as numbers, however they are written."""
    parts = attributes.split(", ")
    for at, part in enumerate(parts):
        name, _, value = part.partition("=")
        if name == "replica_groups":
            try:
                parts[at] = f"{name}={parse_replica_groups(value).groups}".replace(" ", "")
            except ValueError:
                continue
    return ", ".join(parts)


def given_shape(instr: Instruction) -> str:
    """The shape, without layout, of what an instruction gives; of a start what its done gives."""
    return plain_shape(result_shape(instr.opcode, instr.shape_text))


def result_shape(opcode: str, shape: str) -> str:
    """The shape that an instruction of this opcode and shape gives, as written: of a start what
    its done gives."""
    if opcode == "all-reduce-start" or not opcode.endswith("-start"):
        return shape
    try:
        elements = parse_shape(shape).elements
    except ValueError:
        return shape
    at = 0 if opcode == "copy-start" else 1
    return str(elements[at]) if at < len(elements) else shape


def attributes_of(tail: str) -> str:
    """The attributes that say what an instruction computes, as one text, equal for equal ones."""
    text = structural_attributes(tail, without=_NOTES)
    return _with_groups(text) if "replica_groups=" in text else text


def element_attributes(tail: str) -> str:
    """The attributes of a get-tuple-element, as `attributes_of`, without which element it is."""
    return structural_attributes(tail, without=_NOTES | {"index"})
