"""The HLO text of a path: gzip, protos, encodings; each failure is said in a sentence."""

from __future__ import annotations

import os
import stat
import sys
import zlib
from pathlib import Path

STDIN = "-"

# What people hand over by mistake, by its first bytes, and what to do about it.
_FOREIGN = (
    (b"\xff\xfe\x00\x00", "UTF-32 text; convert it first: iconv -f UTF-32 -t UTF-8"),
    (b"\x00\x00\xfe\xff", "UTF-32 text; convert it first: iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"),
    (b"ML\xefR", "MLIR bytecode, not HLO; use lowered.as_text(dialect='hlo')"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd; decompress it first: zstd -d"),
    (b"\xfd7zXZ\x00", "compressed with xz; decompress it first: xz -d"),
    (b"BZh", "compressed with bzip2; decompress it first: bzip2 -d"),
    (b"PK\x03\x04", "a zip archive; unpack it first"),
    (b"\x7fELF", "a compiled object (ELF), not HLO"),
)


_MLIR = ("module @", "module {", "module attributes", "#loc", "builtin.module", "func.func")


class InputError(ValueError):
    """An input that is no HLO program: a sentence that says what it is and what to do.

    `path` is what was asked for, as a person would write it.
    """

    def __init__(self, path: str | Path, message: str) -> None:
        super().__init__(path, message)
        self.path = "<stdin>" if path == STDIN else str(path)
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    def render(self) -> str:
        """The sentence, as `HloParseError.render` gives it."""
        return str(self)


def read_text(path: str | Path) -> str:
    """The HLO text of `path` ("-" is standard input).

    gzip is told by its magic bytes, whatever the name; of a gzip file that was cut off, the part
    that can be read. A serialized `HloModuleProto` or `HloProto` is printed by jaxlib.

    Raises `InputError` for what holds no HLO text, `OSError` for what cannot be opened.
    """
    data = _ungzip(path, _read_bytes(path))
    if not data.strip():
        raise InputError(path, "nothing came in" if path == STDIN else "the file is empty")
    for magic, what in _FOREIGN:
        if data.startswith(magic):
            raise InputError(path, f"this is {what}")
    data = data.removeprefix(b"\xef\xbb\xbf")  # a UTF-8 byte order mark says nothing
    if b"\x00" in data[:65536] or data[:1] == b"\n":
        from hlo_lens.decode import protos

        if protos.is_serialized_module(data):
            return protos.text_of(data, path)
    return _decode(path, data)


def _decode(path: str | Path, data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(path, _undecodable(data, error.start)) from None
    if "\x00" in text:
        offset = data.index(b"\x00")
        raise InputError(
            path, f"this is a binary file (a NUL byte at offset {offset}), not HLO text"
        )
    from hlo_lens.hlo.lexer import skip_space  # only what reads text needs the reader

    # Behind comments: HLO of a test may quote MLIR in its `// CHECK` lines.
    if text.startswith(_MLIR, skip_space(text, 0)):
        raise InputError(
            path,
            "this is MLIR (StableHLO) text, not HLO; "
            "use lowered.as_text(dialect='hlo'), or compiled.as_text()",
        )
    return text


def _undecodable(data: bytes, offset: int) -> str:
    controls = sum(byte < 9 or 13 < byte < 32 for byte in data[:4096])
    if controls > len(data[:4096]) // 50:
        return (
            "this is a binary file, not HLO text "
            f"(byte 0x{data[offset]:02x} at offset {offset} is no UTF-8)"
        )
    line = data.count(b"\n", 0, offset) + 1
    return f"not UTF-8: byte 0x{data[offset]:02x} at offset {offset} (line {line})"


def _read_bytes(path: str | Path) -> bytes:
    if path == STDIN:
        if sys.stdin is None:
            raise InputError(path, "there is no standard input")
        return sys.stdin.buffer.read()
    refuse_special(path)
    return Path(path).read_bytes()


def refuse_special(path: str | Path) -> None:
    """Raise `InputError` for a pipe, socket or device by name: reading one may never end.

    Pipes that the shell opened for us (`<(…)`, /dev/stdin) are fine: their writer is there.
    Raises `OSError` where there is nothing of that name.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    if stat.S_ISFIFO(mode) and os.fspath(path).startswith(("/dev/", "/proc/")):
        return
    kinds = (
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    what = next((name for test, name in kinds if test(mode)), "not a regular file")
    raise InputError(
        path, f"this is {what}, not a file; to read a stream, pipe it into `hlolens … -`"
    )


def _ungzip(path: str | Path, data: bytes) -> bytes:
    """`data`, decompressed while it starts with gzip's magic bytes; what a cut file still holds."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    parts: list[bytes] = []
    rest = data
    while rest.startswith(b"\x1f\x8b"):  # members may be concatenated
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            parts.append(member.decompress(rest))
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]  # behind "Error -3 while decompressing data"
            raise InputError(path, f"broken gzip data: {reason}") from None
        rest = member.unused_data
        if not member.eof:
            break
    plain = b"".join(parts)
    if not plain:
        raise InputError(path, "an empty gzip file, or one cut off before its first block")
    return plain
