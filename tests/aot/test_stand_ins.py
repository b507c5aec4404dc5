"""Stand-ins for ROCm's libraries, built for a small library that wants some."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlo_lens.aot import stand_ins

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "readelf", "nm"))), reason="no C compiler or no binutils here"
)

REAL = """
int hipMalloc(void) { return 0; }
int hipGetLastError(void) { return 7; }
const char *hipGetErrorString(int code) { return "real"; }
"""
WANTS = """
int hipMalloc(void);
int hipGetLastError(void);
const char *hipGetErrorString(int);
int allocate(void) { return hipMalloc(); }
int last(void) { return hipGetLastError(); }
const char *tell(void) { return hipGetErrorString(1); }
"""
LOAD = """
import ctypes, sys
from pathlib import Path
from hlo_lens.aot import stand_ins
print(stand_ins.preload(Path(sys.argv[1])))
plugin = ctypes.CDLL(sys.argv[2])
plugin.tell.restype = ctypes.c_char_p
print(plugin.allocate(), plugin.last(), plugin.tell().decode())
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A library linked against a libamdhip64.so.7 with versions, which is then taken away."""
    for name, code in (("real.c", REAL), ("plugin.c", WANTS), ("v.map", "hip_4.2 { hip*; };\n")):
        (tmp_path / name).write_text(code)
    hip, made = tmp_path / "libamdhip64.so.7", tmp_path / "plugin.so"
    shared = ["cc", "-shared", "-fPIC", "-o"]
    versions = f"-Wl,--version-script={tmp_path / 'v.map'}"
    soname = "-Wl,-soname,libamdhip64.so.7"
    subprocess.run([*shared, hip, tmp_path / "real.c", soname, versions], check=True)
    subprocess.run([*shared, made, tmp_path / "plugin.c", hip], check=True)
    hip.unlink()
    return made


def test_what_was_missing_loads(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "libamdhip64.so.7" in str(stand_ins.missing_library(plugin))
    folder = stand_ins.build([plugin])
    assert folder.parent == tmp_path / "cache" / "hlo_lens"
    assert [path.name for path in folder.iterdir()] == ["libamdhip64.so.7"]
    ran = subprocess.run(
        [sys.executable, "-c", LOAD, folder, plugin], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["['libamdhip64.so.7']", "100 0 a stand-in, not ROCm"]
    assert ran.stderr == ""  # the loader would complain of a version that is not there


def test_built_once(plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = stand_ins.build([plugin]) / "libamdhip64.so.7"
    stamp = made.stat().st_mtime_ns
    assert stand_ins.build([plugin]) == made.parent
    assert made.stat().st_mtime_ns == stamp
    assert len(list(made.parent.parent.iterdir())) == 1


def test_no_compiler(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(stand_ins.StandInError, match="takes a C compiler and binutils"):
        stand_ins.build([plugin])


def test_what_needs_nothing_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int one(void) { return 1; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", tmp_path / "a.so", tmp_path / "a.c"], check=True
    )
    assert stand_ins.missing_library(tmp_path / "a.so") is None
