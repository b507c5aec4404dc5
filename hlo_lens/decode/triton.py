"""Triton kernels that JAX compiles itself: the compressed message in a call's `opaque` attribute.

`TritonAnyKernelCall` of jaxlib/gpu/triton.proto, compressed with zlib
(jax/_src/pallas/triton/pallas_call_registration.py, jax-triton), escaped as MLIR writes bytes. An
autotuned call holds several kernels: the first stands for them, as all compute the same.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hlo_lens.hlo.config import BackendConfig

_LONGEST: Final = 1 << 25
_OPAQUE = re.compile(r'\bopaque\s*=\s*"(x(?:[^"\\]++|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(rb'\\(?:([0-9a-fA-F]{2})|(["\\nt]))')
_ESCAPED = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t"}


@dataclass(frozen=True, slots=True)
class TritonCall:
    """How the kernel is launched, and its Triton IR as text; None is what the message lacks.

    grid: programs in x, y, z. shared_bytes: shared memory of a program. configurations: how many
    kernels autotuning chooses from; 1 where there is nothing to choose.
    """

    kernel: str | None
    num_warps: int | None
    num_ctas: int | None
    shared_bytes: int | None
    grid: tuple[int, int, int]
    ir: str | None
    configurations: int = 1


def unescaped(text: str) -> bytes:
    r"""The bytes that MLIR writes as `ML\EFR\22…`."""
    return _ESCAPE.sub(
        lambda one: bytes.fromhex(one[1].decode()) if one[1] else _ESCAPED[one[2]],
        text.encode("utf-8", "surrogatepass"),
    )


@lru_cache(maxsize=1 << 10)
def triton_call_of(config: BackendConfig) -> TritonCall | None:
    """What `opaque` says; None where there is none, or it is damaged."""
    if config.kind != "mlir" or not isinstance(config.get("opaque"), str):
        return None
    found = _OPAQUE.search(config.raw)
    if found is None:
        return None
    try:
        data = zlib.decompressobj().decompress(unescaped(found[1]), _LONGEST)
        return _any_call(dict(_fields(data)))
    except (zlib.error, ValueError, UnicodeDecodeError):
        return None


def _any_call(call: dict[int, int | bytes]) -> TritonCall | None:
    plain, tuned = call.get(1), call.get(2)
    if isinstance(plain, bytes):
        return _call(dict(_fields(plain)), 1)
    if not isinstance(tuned, bytes):
        return None
    configs = [value for number, value in _fields(tuned) if number == 2]
    first = configs[0] if configs else None
    inner = dict(_fields(first)).get(1) if isinstance(first, bytes) else None
    return _call(dict(_fields(inner)), len(configs)) if isinstance(inner, bytes) else None


def _call(call: dict[int, int | bytes], configurations: int) -> TritonCall | None:
    held = call.get(1)
    if not isinstance(held, bytes):
        return None
    kernel = dict(_fields(held))
    x, y, z = (_number(call.get(number)) or 0 for number in (2, 3, 4))
    return TritonCall(
        _text(kernel.get(1)),
        _number(kernel.get(2)),
        _number(kernel.get(10)),
        _number(kernel.get(3)),
        (x or 1, y or 1, z or 1),
        _text(kernel.get(5)),
        configurations,
    )


def _number(value: int | bytes | None) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: int | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) and value else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, by number. Raises ValueError where it is none."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
        elif wire == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("a field ends behind its message")
            yield number, data[position : position + length]
            position += length
        else:
            raise ValueError(f"no wire type {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number does not end")
