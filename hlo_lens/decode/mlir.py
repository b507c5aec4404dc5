"""MLIR bytecode and text in generic form, read by jaxlib in a process of its own.

Damaged bytecode can end the process that reads it, or keep it for ever: MLIR's reader asserts what
it is given. So a child reads it, started when the first kernel is met, once; its death, or seconds
without an answer, mean that this body cannot be read.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from threading import Lock, Timer
from typing import IO, Any, Final

_SECONDS: Final = 10.0
_MOST_DEATHS: Final = 4
_LENGTH: Final = struct.Struct(">cI")
"""Before each body: b for bytecode or t for text; before each answer: y, or n for none."""
_CODE: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.buffer.readline());"
    " from hlo_lens.decode.mlir import answer; answer()"
)


@dataclass(slots=True)
class Reader:
    """Reads kernels; holds the child that does."""

    _child: subprocess.Popen[bytes] | None = None
    _parent: int = 0
    _deaths: int = 0
    _lock: Lock = field(default_factory=Lock)

    def generic(self, given: bytes | str) -> str | None:
        """A module in generic form without locations: so text and bytecode of one kernel are the
        same, in whatever version of jaxlib, and every operation has its dialect. None where it
        cannot be read."""
        kind = b"t" if isinstance(given, str) else b"b"
        data = given.encode("utf-8", "replace") if isinstance(given, str) else given
        with self._lock:
            if self._deaths >= _MOST_DEATHS:
                return None
            try:
                return self._ask(kind, data)
            except (OSError, struct.error, UnicodeDecodeError):
                self._deaths += 1
                self.close()
                return None

    def start(self) -> None:
        """Start the child, if there is none, and do not wait for it."""
        with self._lock, contextlib.suppress(OSError):
            stream = self._running().stdin
            assert stream is not None
            stream.flush()

    def close(self) -> None:
        """End the child, if this process has one."""
        child, self._child = self._child, None
        if child is None or self._parent != os.getpid():
            return
        child.kill()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        child.wait()

    def _ask(self, kind: bytes, data: bytes) -> str | None:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        timer = Timer(_SECONDS, child.kill)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(_LENGTH.pack(kind, len(data)) + data)
            child.stdin.flush()
            told, length = _LENGTH.unpack(_read(child.stdout, _LENGTH.size))
            text = _read(child.stdout, length).decode()
        finally:
            timer.cancel()
        return text if told == b"y" else None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._parent != os.getpid():
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._parent = os.getpid()
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps([str(one) for one in sys.path]).encode() + b"\n")
        return self._child


def _read(stream: IO[bytes], length: int) -> bytes:
    """That many bytes. Raises OSError where the stream ends before."""
    data = stream.read(length)
    if len(data) < length:
        raise OSError("the reader of kernels has ended")
    return data


@cache
def reader() -> Reader | None:
    """The reader of this process; None where jaxlib is not installed. Imports nothing of it."""
    try:
        if not sys.executable or find_spec("jaxlib") is None:
            return None
    except (ImportError, ValueError):
        return None
    found = Reader()
    atexit.register(found.close)
    return found


# ------------------------------------------------------------------------------- in the child


def answer() -> None:
    """Read modules from stdin and write them to stdout, until stdin ends."""
    given, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    context = _context()
    while len(head := given.read(_LENGTH.size)) == _LENGTH.size:
        kind, length = _LENGTH.unpack(head)
        data = given.read(length)
        text = (
            None if context is None else _generic(context, data.decode() if kind == b"t" else data)
        )
        out.write(_LENGTH.pack(b"n" if text is None else b"y", len((text or "").encode())))
        out.write((text or "").encode())
        out.flush()


def _generic(context: Any, given: bytes | str) -> str | None:
    from jaxlib.mlir import ir

    try:
        with context, ir.Location.unknown(context):
            operation = ir.Module.parse(given).operation
            return str(operation.get_asm(enable_debug_info=False, print_generic_op_form=True))
    except Exception:  # of another version, or damaged: jaxlib raises a class of its own
        return None


def _context() -> Any:
    """A context that knows the dialects of kernels; None where this jaxlib has none."""
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
