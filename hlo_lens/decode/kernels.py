"""Kernel bodies in a backend config: what they hold, without where it was written.

Triton and Mosaic kernels are MLIR bytecode, escaped (`ir = "ML\\EFR…"`) or in base64
(`"body":"TUzvUg…"`), which may hold the file and line of each operation; some are MLIR text.
jaxlib reads them where it is installed (`mlir`), from the first body that is met on.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from hlo_lens.decode.mlir import Reader, reader
from hlo_lens.decode.triton import triton_call_of, unescaped
from hlo_lens.hlo.config import BackendConfig

_MAGIC = b"ML\xefR"
# Base64 of the magic begins with TUzvU whatever follows it.
_BODY = re.compile(
    r'"(?:(?P<base64>TUzvU[A-Za-z0-9+/]*+={0,2})|(?P<escaped>ML\\EFR(?:[^"\\]++|\\.)*+))"', re.S
)
_LOCATIONS = re.compile(r'"debug_locations"\s*:\s*"[^"]*",?')
_IN_TEXT = re.compile(r"#loc\d* = loc\([^\n]*|\bloc\((?:[^()]++|\([^()]*\))*+\)")
# A body that is larger is left as bytes: real ones have a few kilobytes.
_LONGEST: Final = 1 << 24


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
        return unescaped(found["escaped"])
    return _from_base64(found["base64"])


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


# ------------------------------------------------------------------------------------- one body


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a kernel.

    size: in bytes, as the config holds it (base64 undone). text: MLIR in generic form without
    locations, or as it is written where jaxlib could not read it; None where only bytes are known.
    digest: the first 16 digits of the SHA-256 of `text`, else of the bytes.
    """

    size: int
    digest: str
    text: str | None = field(default=None, repr=False)

    @property
    def form(self) -> Literal["mlir", "bytes"]:
        """What `digest` is made from."""
        return "bytes" if self.text is None else "mlir"


@lru_cache(maxsize=1 << 10)
def body_of(config: BackendConfig) -> Body | None:
    """The kernel that a config carries: Mosaic TPU's `custom_call_config.body`, Triton's `ir` or
    the IR in its `opaque`, Mosaic GPU's `module` (jax/_src/tpu_custom_call.py,
    pallas_call_registration.py of jax/_src/pallas/triton, jax/experimental/mosaic/gpu/core.py).
    None where it carries none."""
    path = body_path(config)
    if path is None:
        return None
    written = str(config.get(*path))
    if path == _OPAQUE:
        call = triton_call_of(config)
        written = (call and call.ir) or ""
    if not written:
        return None
    known = None if len(written) > _LONGEST else _BODY.fullmatch(f'"{written}"')
    if known is None and written.startswith(_BEGINS):
        # What is no UTF-8 cannot be had back from the value; the raw text has the escapes.
        known = _BODY.search(config.raw)
    if known is not None:
        return _of_bytes(_bytes(known))
    data = written.encode("utf-8", "surrogatepass")
    if not _is_mlir(written) or len(written) > _LONGEST:
        return Body(len(data), _digest(data))
    text = _generic(written) or _BLANK_ENDS.sub("", _IN_TEXT.sub("", written))
    return Body(len(data), _digest(text.encode("utf-8", "surrogatepass")), text)


def body_path(config: BackendConfig) -> tuple[str, ...] | None:
    """The keys under which the config carries a kernel; None where it carries none."""
    if isinstance(config.get(*_MOSAIC), str):
        return _MOSAIC
    for path in _OTHERS:
        text = config.get(*path)
        if isinstance(text, str) and (text.startswith(_BEGINS) or _is_mlir(text)):
            return path
    call = triton_call_of(config)
    return None if call is None or call.ir is None else _OPAQUE


_MOSAIC: Final = ("custom_call_config", "body")
_OTHERS: Final = (("ir",), ("module",))
_OPAQUE: Final = ("opaque",)
# The magic as it stands in a value: what is no UTF-8 is written as an escape there.
_BEGINS: Final = ("ML\\xefR", "ML\xefR")


@lru_cache(maxsize=256)
def _of_bytes(data: bytes) -> Body:
    text = _text_of(data) if data else None
    return Body(len(data), _digest(data if text is None else text.encode()), text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


_BEGINNING = re.compile(
    r"(?:\s|//[^\n]*|#\S+ = [^\n]*)*"
    r'"?(?:(?:builtin\.)?module\b|(?:\w+\.)?func(?:\.func)?"? ?[@(])'
)
_BLANK_ENDS = re.compile(r"[ \t]+$|^\s*\n", re.M)


def _is_mlir(text: str) -> bool:
    return _BEGINNING.match(text) is not None


# ------------------------------------------------------------------------------------- its text

# An operation begins a line, behind its results: `%3:2 = "scf.for"(`, or `tt.store %1` where the
# text is written by hand or without jaxlib.
_OPERATION = re.compile(
    r'^[ \t]*(?:%[^=\n"]*= )?(?:"([A-Za-z_][\w$-]*(?:\.[\w$-]+)+)"\(|([a-z_]\w*(?:\.\w+)+)\b)', re.M
)
_STABLE: Final = "stable_mosaic."
"""What Mosaic writes in front of the dialect of each operation that it keeps for later versions
(jaxlib/mosaic/dialect/tpu/transforms/serde.cc)."""
_MODULES: Final = frozenset(("builtin.module",))


def operations(body: Body) -> dict[str, int] | None:
    """How often each operation of each dialect stands in the body, by name; None where the body is
    not read. `stable_mosaic.arith.addi` counts as `arith.addi`."""
    if body.text is None:
        return None
    names = (one[1] or one[2] for one in _OPERATION.finditer(body.text))
    counts = Counter(name.removeprefix(_STABLE) for name in names)
    return {name: counts[name] for name in sorted(counts) if name not in _MODULES}


_NAME = re.compile(r'\bsym_name = "([^"\\]+)"|\b(?:tt\.)?func\.?(?:func)? (?:public )?@([\w.$-]+)')
_NAMELESS: Final = frozenset(("main", "kernel", "body", "transform_0"))


def name_in(body: Body) -> str | None:
    """The name of the kernel's function, where its author gave it one."""
    if body.text is None:
        return None
    for found in _NAME.finditer(body.text):
        name = found[1] or found[2]
        if name and name not in _NAMELESS and not name.startswith("transform_"):
            return name
    return None


@lru_cache(maxsize=64)
def _text_of(bytecode: bytes) -> str | None:
    if not bytecode.startswith(_MAGIC) or len(bytecode) > _LONGEST:
        return None
    return _parsed(bytecode)


@lru_cache(maxsize=64)
def _generic(text: str) -> str | None:
    return _parsed(text)


def _parsed(given: bytes | str) -> str | None:
    context = _context()
    return None if context is None else context.generic(given)


def get_ready() -> None:
    """Start what reads bodies, in a process of its own: it takes a while to begin."""
    context = _context()
    if context is not None:
        context.start()


def _context() -> Reader | None:
    """What reads MLIR; None without jaxlib."""
    return reader()
