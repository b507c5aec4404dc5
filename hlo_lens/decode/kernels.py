"""Kernel bodies in a backend config, without where they were written: by jaxlib where it is there.

Triton and Mosaic kernels are MLIR bytecode, escaped (`ir = "ML\\EFR…"`) or in base64
(`"body":"TUzvUg…"`), which holds the file and line of each operation.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache, lru_cache
from typing import Any

_MAGIC = b"ML\xefR"
# Base64 of the magic begins with TUzvU whatever follows it.
_BODY = re.compile(
    r'"(?:(?P<base64>TUzvU[A-Za-z0-9+/]*+={0,2})|(?P<escaped>ML\\EFR(?:[^"\\]++|\\.)*+))"', re.S
)
_LOCATIONS = re.compile(r'"debug_locations"\s*:\s*"[^"]*",?')
_IN_TEXT = re.compile(r"#loc\d* = loc\([^\n]*|\bloc\((?:[^()]++|\([^()]*\))*+\)")
_ESCAPE = re.compile(rb'\\(?:([0-9a-fA-F]{2})|(["\\nt]))')
_ESCAPED = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t"}


def without_locations(config: str) -> str:
    """The raw text of a backend config without the source locations of the kernels in it.

    Bytecode becomes MLIR text; it stays as it is where jaxlib is not installed or cannot read it.
    """
    return _IN_TEXT.sub("", _BODY.sub(_replaced, _LOCATIONS.sub("", config)))


def _replaced(found: re.Match[str]) -> str:
    text = _text_of(_bytes(found))
    return found.group() if text is None else f'"{text}"'


def _bytes(found: re.Match[str]) -> bytes:
    if found["base64"] is None:
        return _ESCAPE.sub(
            lambda one: bytes.fromhex(one[1].decode()) if one[1] else _ESCAPED[one[2]],
            found["escaped"].encode("utf-8", "surrogatepass"),
        )
    try:
        return base64.b64decode(found["base64"])
    except binascii.Error:
        return b""


@lru_cache(maxsize=64)
def _text_of(bytecode: bytes) -> str | None:
    context = _context()
    if context is None or not bytecode.startswith(_MAGIC):
        return None
    from jaxlib.mlir import ir

    try:
        with context, ir.Location.unknown(context):
            module = ir.Module.parse(bytecode)
            return str(module.operation.get_asm(enable_debug_info=False))
    except Exception:  # of another version, or damaged: jaxlib raises a class of its own
        return None


@cache
def _context() -> Any:
    """A context that knows the dialects of kernels; None without jaxlib."""
    try:
        from jaxlib.mlir import ir
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext, _tpu_ext, _triton_ext

        context = ir.Context()
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        context.append_dialect_registry(registry)
        for extension in (_tpu_ext, _triton_ext):
            extension.register_dialect(context)
    except (ImportError, AttributeError, TypeError):
        return None
    context.load_all_available_dialects()
    context.allow_unregistered_dialects = True
    return context
