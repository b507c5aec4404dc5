"""Where the handed material lies, unpacked once: real dumps, the corpus and the published cases."""

from __future__ import annotations

import contextlib
import os
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared"
_FOLDER = Path(os.environ.get("HLOLENS_SHARED", _BESIDE))
SHARED: Path | None = _FOLDER if _FOLDER.is_dir() else None

needs_shared = pytest.mark.skipif(
    SHARED is None, reason="the shared material is not beside this checkout"
)


@cache
def unpacked(archive: str) -> Path:
    """The folder of `archive` (relative to the shared folder) unpacked, once a machine."""
    assert SHARED is not None
    source = SHARED / archive
    stamp = source.stat()
    folder = f"hlo-lens-{source.name}-{stamp.st_size}-{stamp.st_mtime_ns}"
    target = Path(tempfile.gettempdir()) / folder
    if not target.is_dir():
        # Another worker may be unpacking too: the first whole folder takes the name.
        scratch = Path(tempfile.mkdtemp(dir=target.parent))
        with tarfile.open(source) as tar:
            tar.extractall(scratch, filter="data")
        with contextlib.suppress(OSError):
            scratch.rename(target)
    return target


def texts(*patterns: str) -> list[Path]:
    """Files of the shared folder that match, sorted; empty where there is no shared folder."""
    if SHARED is None:
        return []
    return sorted(path for pattern in patterns for path in SHARED.glob(pattern))
