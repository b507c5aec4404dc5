"""Stand-ins for ROCm's shared libraries, so that its compiler loads where ROCm is not installed.

The plugin library is linked against HIP, BLAS, MIOpen, RCCL and more. While it compiles it calls
none of them, apart from the registration of device code when it is loaded: a library that exports
the same names, each returning an error, is enough. With ROCm installed none of this is needed.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

__all__ = ["StandInError", "build", "missing_library", "preload"]

# What ROCm's libraries export, by the beginning of the names.
_NAMES = re.compile(r"(__)?hip|roc(blas|solver|profiler)|rsmi_|miopen|nccl|_ZNK?13hipblaslt")
_SYSTEM = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux.*)\.so(\.\d+)*"
)
# Called when a library with device code is loaded; these must succeed.
_REGISTRATION = re.compile(r"__hip(Register|Unregister|Push|Pop)\w+|hipGetLastError")
_TEXTS = re.compile(r"(?i)\w*(error_?string|error_?name|status_?string)\w*")
_FAILED = 1  # an error in every enumeration of them; hipErrorNoDevice is 100
_NO_DEVICE = 100
_RECIPE = "1"  # part of the cache key: raise it when what is built changes


class StandInError(RuntimeError):
    """The stand-ins cannot be built: a sentence that says what is missing."""


def missing_library(library: Path) -> str | None:
    """What keeps `library` from being loaded, in the dynamic linker's words; None if it loads."""
    try:
        ctypes.CDLL(str(library))
    except OSError as problem:
        return str(problem)
    return None


def build(libraries: Sequence[Path]) -> Path:
    """A folder with a stand-in for each library that `libraries` need; built once, then kept.

    Raises `StandInError` where there is no C compiler or no binutils, or they fail.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not (shutil.which("readelf") and shutil.which("nm")):
        raise StandInError(
            "building stand-ins for ROCm's libraries takes a C compiler and binutils; "
            "on Debian and Ubuntu: apt install gcc"
        )
    sonames = sorted({name for library in libraries for name in _needed(library)})
    symbols = {pair for library in libraries for pair in _undefined(library)}
    source, script = _source(symbols), _version_script(symbols)
    key = sha256("\n".join((_RECIPE, *sonames, source, script)).encode()).hexdigest()[:16]
    folder = _cache() / f"rocm-stand-ins-{key}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _compile_all(compiler, Path(scratch), sonames, source, script)
            try:
                Path(scratch).rename(folder)
            except OSError:
                if not folder.is_dir():  # another process may have been quicker
                    raise
            Path(scratch).mkdir(exist_ok=True)  # for the end of the with block
    return folder


def preload(folder: Path) -> list[str]:
    """Load every stand-in of `folder` where all libraries look for names; their sonames."""
    names = sorted(path.name for path in folder.glob("*.so*"))
    for name in names:
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    return names


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "hlo_lens"


def _output(*command: str) -> str:
    try:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=300
        ).stdout
    except (subprocess.CalledProcessError, OSError) as problem:
        stderr = str(getattr(problem, "stderr", "") or problem).strip()
        last = stderr.splitlines()[-1] if stderr else "failed"
        raise StandInError(f"{os.path.basename(command[0])}: {last}") from problem


def _needed(library: Path) -> Iterable[str]:
    dynamic = _output("readelf", "--dynamic", "--wide", str(library))
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not _SYSTEM.fullmatch(name):
            yield name


def _undefined(library: Path) -> Iterable[tuple[str, str]]:
    """(name, version) of each symbol of ROCm's that `library` wants; version "" for none."""
    for line in _output("nm", "--dynamic", "--undefined-only", str(library)).splitlines():
        kind, _, symbol = line.strip().rpartition(" ")
        name, _, its_version = symbol.partition("@")
        if kind.strip() == "U" and _NAMES.match(name):
            yield name, its_version.lstrip("@")


def _source(symbols: Iterable[tuple[str, str]]) -> str:
    """C that defines every symbol: it returns an error, or a text that says what it is."""
    lines = ["static void *handle;"]
    for name in sorted({name for name, _ in symbols}):
        if name == "__hipRegisterFatBinary":
            lines.append(f"void *{name}(void) {{ return &handle; }}")
        elif _REGISTRATION.fullmatch(name):
            lines.append(f"int {name}(void) {{ return 0; }}")
        elif _TEXTS.fullmatch(name):
            lines.append(f'const char *{name}(void) {{ return "a stand-in, not ROCm"; }}')
        else:
            code = _NO_DEVICE if name.startswith("hip") else _FAILED
            lines.append(f"int {name}(void) {{ return {code}; }}")
    return "\n".join(lines) + "\n"


def _version_script(symbols: Iterable[tuple[str, str]]) -> str:
    """A linker script that gives the symbols the versions under which they are wanted."""
    nodes: dict[str, set[str]] = {}
    for name, its_version in symbols:
        if its_version:
            nodes.setdefault(its_version, set()).add(name)
    return "".join(
        f"{node} {{ {' '.join(f'{name};' for name in sorted(names))} }};\n"
        for node, names in sorted(nodes.items())
    )


def _compile_all(
    compiler: str, folder: Path, sonames: Sequence[str], source: str, script: str
) -> None:
    """One library holds all names, HIP's, since versions are asked of it; the others are empty."""
    full = next((name for name in sonames if name.startswith("libamdhip")), sonames[0])
    with tempfile.TemporaryDirectory() as scratch:
        code, versions, nothing = (Path(scratch, name) for name in ("all.c", "all.map", "no.c"))
        code.write_text(source)
        versions.write_text(script)
        nothing.write_text("")
        for name in sonames:
            command = [compiler, "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
            command += ["-o", str(folder / name), str(code if name == full else nothing)]
            if name == full and script:
                command.append(f"-Wl,--version-script={versions}")
            _output(*command)
