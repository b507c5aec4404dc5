"""Lay DOT out as SVG, PNG or PDF: by Graphviz's `dot`, or by the Graphviz inside pygraphviz.

`dot` is taken where it is on PATH, else pygraphviz, whose wheels from 2.0.4 on hold the engine and
need no `dot`. HLOLENS_LAYOUT=dot or HLOLENS_LAYOUT=pygraphviz chooses one: positions differ between
versions of Graphviz, so set it where figures must be the same everywhere.

Either runs in a process of its own: a crash in it is an error here, an interrupt stops it, and what
Fontconfig writes to standard error from C can be left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from hlo_lens.present.quantities import visible

OutputFormat = Literal["svg", "png", "pdf"]

CHOICE = "HLOLENS_LAYOUT"
_NAMES = ("dot", "pygraphviz")

_PIP = 'pip install "pygraphviz>=2.0.4"'

# Package manager -> how it installs Graphviz, and a font.
_INSTALL = {
    "apt-get": ("apt install graphviz", "apt install fonts-dejavu-core"),
    "apk": ("apk add graphviz font-dejavu", "apk add font-dejavu"),
    "dnf": ("dnf install graphviz", "dnf install dejavu-sans-fonts"),
    "brew": ("brew install graphviz", ""),
    "winget": ("winget install graphviz", ""),
}

_MOST_SAID = 4  # lines of what an engine said, in a message

# Run by `python -P -c`, with the folder of pygraphviz and -TFORMAT: DOT in, the picture out.
_PYGRAPHVIZ = """
import sys
sys.path.append(sys.argv[1])
try:
    from pygraphviz import AGraph
    graph = AGraph(string=sys.stdin.buffer.read().decode())
    picture = graph.draw(format=sys.argv[2][2:], prog="dot")
except Exception as problem:
    sys.exit(f"{type(problem).__name__}: {problem}")
sys.stdout.buffer.write(picture)
"""


class LayoutError(ValueError):
    """A figure that could not be laid out: a sentence with why, and the line that mends it."""

    def render(self) -> str:
        """The sentence, as `InputError.render` gives it."""
        return str(self)


@dataclass(frozen=True, slots=True)
class _Engine:
    """A layout engine and the command that runs it; `-TFORMAT` follows."""

    name: str
    command: tuple[str, ...]


def render(dot: str, output_format: OutputFormat) -> bytes:
    """`dot` laid out as `output_format`.

    Each node needs a label: for one without, `dot` writes the id and pygraphviz may write nothing.
    What the engine warns of goes to `sys.stderr`, without what Fontconfig says of its own files.
    Where no font is installed an SVG has guessed text widths and tight rows, but its text is text;
    a PNG or PDF would have boxes for letters and is refused.

    Raises `LayoutError` where there is no engine, no font, or where the engine fails.
    """
    chosen = _engine()
    if output_format != "svg" and not _has_fonts(chosen):
        raise LayoutError(
            f"no font is installed, so the text of a {output_format.upper()} would be boxes; "
            + (_by_package_manager(font=True) or "install a font")
            + ", or write SVG"
        )
    picture, said = _ran(chosen, dot, output_format)
    if said and sys.stderr is not None:
        print(*said, sep="\n", file=sys.stderr)
    return picture


def engine() -> str:
    """The engine and its version: "dot 2.43.0", "pygraphviz 2.0.4, Graphviz 14.1.5".

    Raises `LayoutError` where there is none, or where it does not run.
    """
    if _engine().name == "dot":
        import graphviz  # type: ignore[import-untyped]

        try:
            return "dot " + ".".join(map(str, graphviz.version()))
        except (OSError, RuntimeError, subprocess.CalledProcessError) as problem:
            raise LayoutError(f"`dot` does not tell its version: {problem}") from None
    try:
        import pygraphviz
    except ImportError as problem:
        raise LayoutError(f"pygraphviz cannot be loaded: {problem}") from None
    # Before 2.0 it did not know which Graphviz it was built with.
    inside = getattr(pygraphviz, "__graphviz_version__", "of the system")
    return f"pygraphviz {pygraphviz.__version__}, Graphviz {inside}"


def _engine() -> _Engine:
    """The engine to lay out with, HLOLENS_LAYOUT heeded. Raises `LayoutError` for none."""
    wanted = os.environ.get(CHOICE, "")
    if wanted not in ("", *_NAMES):
        raise LayoutError(f"{CHOICE} is {visible(wanted)!r}; it may be {' or '.join(_NAMES)}")
    for name, command in (("dot", _dot()), ("pygraphviz", _pygraphviz())):
        if command is not None and wanted in ("", name):
            return _Engine(name, command)
    from_packages = _by_package_manager() or "install Graphviz: https://graphviz.org/download"
    mended = _PIP if _has_wheel() else from_packages
    if wanted == "dot":
        raise LayoutError(f"{CHOICE} is dot, but no `dot` is on PATH; {from_packages}")
    if wanted:
        raise LayoutError(f"{CHOICE} is pygraphviz, which is not installed; {_PIP}")
    raise LayoutError(f"no layout engine: neither `dot` nor pygraphviz is installed; {mended}")


def _dot() -> tuple[str, ...] | None:
    path = shutil.which("dot")
    return None if path is None else (path,)


def _pygraphviz() -> tuple[str, ...] | None:
    """The command that lays out by pygraphviz; None where it is not installed."""
    spec = find_spec("pygraphviz")
    if spec is None or spec.origin is None or not sys.executable:
        return None
    folder = str(Path(spec.origin).parents[1])  # where this process found it, also when it is no
    return (sys.executable, "-P", "-c", _PYGRAPHVIZ, folder)  # place that a new one looks in


def _ran(chosen: _Engine, dot: str, output_format: OutputFormat) -> tuple[bytes, list[str]]:
    """The picture and what the engine warned of. Raises `LayoutError` where it fails."""
    try:
        ran = subprocess.run(
            [*chosen.command, f"-T{output_format}"],
            input=dot.encode("utf-8", "backslashreplace"),
            capture_output=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (OSError, MemoryError) as problem:
        raise LayoutError(f"{chosen.name} does not run: {problem}") from None
    lines = map(str.strip, ran.stderr.decode(errors="replace").splitlines())
    said = [visible(line) for line in lines if line and not line.startswith("Fontconfig ")]
    # An error in a label is an error to `dot`, but no exception in pygraphviz.
    if ran.returncode or not ran.stdout or any(line.startswith("Error:") for line in said):
        raise LayoutError(f"{chosen.name} failed: " + _why(ran.returncode, said))
    return ran.stdout, said


def _why(returncode: int, said: list[str]) -> str:
    if returncode < 0:
        said = [*said, f"it was ended by signal {-returncode}"]
    if not said:
        return f"it gave nothing and said nothing (exit code {returncode})"
    more = len(said) - _MOST_SAID
    return "; ".join(said[:_MOST_SAID]) + (f"; and {more} more lines" if more > 0 else "")


@cache
def _has_fonts(chosen: _Engine) -> bool:
    """Whether letters are drawn by a font: then a PDF with a letter has it inside.

    Only Linux is known without any, as in slim container images.
    """
    if not sys.platform.startswith("linux"):
        return True
    try:
        picture, _ = _ran(chosen, 'digraph { a [shape=plain, label="a"] }', "pdf")
    except LayoutError:  # a Graphviz without PDF may draw PNG with fonts of its own
        return True
    return b"/Font" in picture


def _has_wheel() -> bool:
    """Whether `pip` finds a pygraphviz with an engine inside for this Python and machine."""
    import platform
    import sysconfig

    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    machine = platform.machine().lower()
    if sys.platform == "win32":
        return machine == "amd64"
    if sys.platform == "darwin":
        return True
    libc, version = platform.libc_ver()
    if not sys.platform.startswith("linux") or libc != "glibc":
        return False
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return machine in ("x86_64", "aarch64") and numbers >= (2, 28)


def _by_package_manager(*, font: bool = False) -> str | None:
    """The line that installs Graphviz, or a font, here; None where no way is known."""
    for program, (graphviz_line, font_line) in _INSTALL.items():
        if shutil.which(program):
            return (font_line if font else graphviz_line) or None
    return None
