"""The packages that a target needs: what is installed, and the pip line for what is not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

from hlo_lens.aot.targets import Target

__all__ = ["Readiness", "installed_versions", "plugin_library", "readiness"]

# Where none is installed: versions that are known to work together, by the newest Python's first.
_TESTED = (((3, 12), "0.11.0"), ((3, 11), "0.10.2"))

_LIBRARIES = {"cuda": "xla_cuda_plugin.so", "rocm": "xla_rocm_plugin.so"}
_NEWEST = {"cuda": "13", "rocm": "7"}

# Whose versions a compile depends on; for provenance.
_REPORTED = (
    "jax", "jaxlib", "libtpu",
    "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-plugin", "jax-cuda13-pjrt",
    "jax-rocm7-plugin", "jax-rocm7-pjrt", "nvidia-cuda-nvcc", "nvidia-nvvm",
)  # fmt: skip
_OF_PLATFORM: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "tpu": ("libtpu",),
    "cuda": ("jax-cuda", "nvidia-"),
    "rocm": ("jax-rocm",),
}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this Python can compile for a target; `install` is the pip line where it cannot.

    `note` says what is not as it would be with everything there; `needs_stub_runtime`, that it
    compiles only with `allow_stub_runtime`.
    """

    ready: bool
    install: str | None = None
    note: str | None = None
    needs_stub_runtime: bool = False


def readiness(target: Target) -> Readiness:
    """What this Python lacks for `target`. Imports neither jax nor a plugin."""
    jaxlib = _version("jaxlib")
    release = jaxlib or _tested()
    missing = [] if jaxlib and _version("jax") else [f"jax=={release}"]
    if target.platform == "tpu" and _version("libtpu") is None:
        missing.append(f"libtpu=={_libtpu(release)}" if jaxlib else f"jax[tpu]=={release}")
    elif target.platform in _LIBRARIES and not _plugin_fits(target.platform, release):
        missing += _plugin_packages(target.platform, release)
    if missing:
        return Readiness(False, pip_line(missing))
    return _less_than_all(target, release) or Readiness(True)


def _less_than_all(target: Target, release: str) -> Readiness | None:
    """What is not as it would be with everything there; None where everything is."""
    if target.platform == "tpu":
        wanted, there = _libtpu(release), str(_version("libtpu"))
        if not f"{there}.".startswith(wanted.rstrip("*")):
            told = f"libtpu {there} is not the one that jax {release} was released with"
            return Readiness(True, pip_line([f"libtpu=={wanted}"]), told)
    if target.platform == "cuda" and not _has_ptxas():
        told = "no ptxas here: the HLO is complete, but there is no executable to measure"
        return Readiness(True, pip_line(["nvidia-cuda-nvcc", "nvidia-nvvm"]), told)
    if target.platform == "rocm" and not _loads(str(plugin_library("rocm"))):
        told = "ROCm is not installed: give --allow-stub-runtime"
        return Readiness(True, None, told, needs_stub_runtime=True)
    return None


def pip_line(packages: list[str]) -> str:
    """`pip install` with what a shell would expand in quotes."""
    packages = [each for each in packages if not _implied(each, packages)]
    words = (f"'{each}'" if set(each) & set("*[]<>") else each for each in packages)
    return f"pip install {' '.join(words)}"


def _implied(package: str, packages: list[str]) -> bool:
    """jax==V, where jax[tpu]==V is asked for, too."""
    return package.replace("jax==", "jax[tpu]==") in packages and package.startswith("jax==")


def _plugin_fits(platform: str, release: str) -> bool:
    """Whether a plugin is installed that was released with this jaxlib; jax refuses any other."""
    library = plugin_library(platform)
    if library is None:
        return False
    its = _version(f"jax-{platform}{library.parent.name.removeprefix(f'xla_{platform}')}-plugin")
    return its is not None and f"{its}.".startswith(f"{release}.")


def _plugin_packages(platform: str, release: str) -> list[str]:
    """A plugin is released with jaxlib, and again as .postN: any of these, but of this release."""
    major = _NEWEST[platform]
    pin = f"=={release}" if platform == "cuda" else f"=={release}.*"
    names = [f"jax-{platform}{major}-{part}{pin}" for part in ("plugin", "pjrt")]
    return names + (["nvidia-cuda-nvcc", "nvidia-nvvm"] if platform == "cuda" else [])


def _libtpu(release: str) -> str:
    """The libtpu that the installed jax was released with, by its own metadata."""
    for requirement in _requirements("jax"):
        match = re.match(r"libtpu\s*==\s*([^\s;]+)", requirement)
        if match:
            return match[1]
    return {"0.11.0": "0.0.44.*", "0.10.2": "0.0.42.*"}.get(release, "*")


def _requirements(package: str) -> Iterator[str]:
    try:
        yield from requires(package) or ()
    except PackageNotFoundError:
        return


def _tested() -> str:
    return next(
        (release for python, release in _TESTED if sys.version_info >= python), _TESTED[-1][1]
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed_versions(platform: str) -> dict[str, str]:
    """The versions of jax, jaxlib and what compiles for `platform`, by package."""
    own = _OF_PLATFORM[platform]
    wanted = [name for name in _REPORTED if name in ("jax", "jaxlib") or name.startswith(own)]
    found = {name: _version(name) for name in wanted}
    return {name: number for name, number in found.items() if number is not None}


def plugin_library(platform: str) -> Path | None:
    """The shared library of the PJRT plugin for "cuda" or "rocm"; None where none is installed."""
    try:
        spec = find_spec("jax_plugins")
    except ImportError:
        return None
    name = _LIBRARIES[platform]
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or () for path in Path(folder).glob(f"xla_*/{name}")]
    return max(found, default=None)  # the newest major version


@cache
def _loads(library: str) -> bool:
    """Whether the dynamic linker finds all that `library` needs; tried in another process."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    tried = subprocess.run([sys.executable, "-c", code, library], capture_output=True, timeout=60)
    return tried.returncode == 0


def _has_ptxas() -> bool:
    if shutil.which("ptxas"):
        return True
    try:
        spec = find_spec("nvidia")
    except ImportError:
        return False
    folders = spec.submodule_search_locations if spec else None
    return any(next(Path(folder).glob("*/bin/ptxas"), None) is not None for folder in folders or ())
