"""Serialized `HloModuleProto` and `HloProto` to HLO text, printed by jaxlib."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from hlo_lens.files import InputError

# Where jaxlib has kept `XlaComputation`: since 0.8, since 0.5.3, and before.
_HOMES = ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension")
# HloProto, HloSnapshot and HloModuleProtoWithConfig hold the module in field 1, one in the other.
_MAX_NESTING = 4


def is_serialized_module(data: bytes) -> bool:
    """Whether `data` is a wire-format message that holds an HloModuleProto."""
    return module_bytes(data) is not None


def module_bytes(data: bytes) -> bytes | None:
    """The serialized HloModuleProto inside `data`, or None where there is none.

    HloModuleProto's field 1 is its name, a text; a message that wraps one has it in field 1
    (xla/service/hlo.proto).
    """
    for _ in range(_MAX_NESTING):
        first = _first_field(data)
        if first is None:
            return None
        if _is_name(first):
            return data
        data = first
    return None


def _is_name(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _first_field(data: bytes) -> bytes | None:
    """Field 1 (length-delimited) of the message `data`; None where `data` is no such message.

    Walks the whole top level, so that a text that happens to start like a message is not one.
    """
    first: bytes | None = None
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        wire = tag & 7
        if position < 0 or tag >> 3 == 0:
            return None
        if wire == 0:
            _, position = _varint(data, position)
        elif wire == 1:
            position += 8
        elif wire == 2:
            size, position = _varint(data, position)
            if position < 0 or position + size > end:
                return None
            if tag >> 3 == 1 and first is None:
                first = data[position : position + size]
            position += size
        elif wire == 5:
            position += 4
        else:
            return None
        if position < 0:
            return None
    return first if position == end else None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint and the position behind it, which is -1 where the data ends or it is too long."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            return 0, -1
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1


def text_of(data: bytes, path: str | Path) -> str:
    """The HLO text of a serialized module, constants in full, as jaxlib prints it.

    Raises `InputError` where jaxlib is not installed, or refuses the bytes.
    """
    module = module_bytes(data)
    if module is None:
        raise InputError(path, "not a serialized HLO module")
    computation_class = _xla_computation()
    if computation_class is None:
        raise InputError(
            path,
            "this is a serialized HLO module; reading it needs jaxlib: pip install 'hlo-lens[jax]'",
        )
    try:
        return str(computation_class(module).as_hlo_module().to_string())
    except Exception as error:  # jaxlib raises its own class, and others, on bad bytes
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(path, f"jaxlib cannot read this serialized module: {reason}") from error


def _xla_computation() -> Any:
    for home in _HOMES:
        try:
            return import_module(home).XlaComputation
        except (ImportError, AttributeError):
            continue
    return None
