"""Where the handed material lies, unpacked once: real dumps, the corpus and the published cases."""

from __future__ import annotations

import os
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared"
SHARED: Path | None = Path(os.environ.get("HLOLENS_SHARED", _BESIDE))
if SHARED is not None and not SHARED.is_dir():
    SHARED = None

needs_shared = pytest.mark.skipif(SHARED is None, reason="the shared material is not beside this checkout")


@cache
def unpacked(archive: str) -> Path:
    """The folder of `archive` (relative to the shared folder) unpacked; made once a machine, atomically."""
    assert SHARED is not None
    source = SHARED / archive
    stamp = f"{source.stat().st_size}-{source.stat().st_mtime_ns}"
    target = Path(tempfile.gettempdir()) / f"hlo-lens-{source.name}-{stamp}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            with tarfile.open(source) as tar:
                tar.extractall(scratch, filter="data")
            try:
                Path(scratch).rename(target)
            except OSError:
                if not target.is_dir():  # another worker may have been quicker
                    raise
            Path(scratch).mkdir(exist_ok=True)
    return target


def texts(*patterns: str) -> list[Path]:
    """Files of the shared folder that match, sorted; empty where there is no shared folder."""
    if SHARED is None:
        return []
    return sorted(path for pattern in patterns for path in SHARED.glob(pattern))
