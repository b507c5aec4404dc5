"""The catalogue of custom-call targets, kernel names and opcodes: family, operation, direction.

Built-in entries are `catalogues/custom_calls.toml` and `opcodes.toml`. A user adds TOML files of
the same form with the environment variable HLOLENS_CATALOGUE (paths joined as in PATH), or with
`catalogues = [...]` in `hlolens.toml` or in `[tool.hlolens]` of a pyproject.toml, looked for
upward from the working directory; a relative path there counts from that file's folder. A user's
entry wins.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Final

VARIABLE: Final = "HLOLENS_CATALOGUE"
_KINDS: Final = ("target", "kernel", "opcode")
_OTHERS: Final = ("device",)
"""Entries of a user's file that are read elsewhere: `_device_specs`."""
_ASYNC_PARTS: Final = frozenset(("start", "update", "done"))
_LISTS: Final = ("names", "patterns")
_TEXTS: Final = ("family", "op", "note", "source")
_KEYS: Final = (*_LISTS, *_TEXTS, "direction", "workspace")


class CatalogueError(ValueError):
    """A catalogue file cannot be read or says what no entry says; the message names the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one name means.

    `family` is the library or compiler part, "unknown" where no entry says; `op` what is
    computed and `direction` "fwd" or "bwd", each None where the name does not fix it. `workspace`
    says that the last leaf of the result, if it is s8 or u8 of rank 1, is scratch memory.
    """

    family: str = "unknown"
    op: str | None = None
    direction: str | None = None
    workspace: bool = False
    note: str | None = None
    source: str | None = None


UNKNOWN: Final = Entry()


@dataclass(frozen=True, slots=True)
class Layer:
    """The entries of one file for one kind of name: exact names, and globs, the longest first."""

    exact: Mapping[str, Entry]
    globs: tuple[tuple[str, Entry], ...]

    def find(self, name: str) -> Entry | None:
        """The entry for `name`: an exact one, else that of the longest glob that matches."""
        entry = self.exact.get(name)
        if entry is not None:
            return entry
        return next((entry for glob, entry in self.globs if fnmatchcase(name, glob)), None)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Layers of entries, of which the first that knows a name decides."""

    targets: tuple[Layer, ...]
    kernels: tuple[Layer, ...]
    opcodes: tuple[Layer, ...]
    broken: tuple[str, ...] = field(default=())
    """A sentence for each file that could not be used."""

    def target(self, name: str) -> Entry:
        """What the custom-call target `name` is; `UNKNOWN` where no entry says."""
        return _first(self.targets, name) or UNKNOWN

    def kernel(self, name: str) -> Entry | None:
        """What the kernel `name` of a generic target is; None where no entry says."""
        return _first(self.kernels, name)

    def opcode_class(self, opcode: str) -> str:
        """The class of an opcode, "unknown" where no entry says; `all-gather-done` counts as
        `all-gather` where it has no entry of its own."""
        found = _first(self.opcodes, opcode)
        if found is None:
            operation, _, part = opcode.rpartition("-")
            found = _first(self.opcodes, operation) if part in _ASYNC_PARTS else None
        return (found or UNKNOWN).family


_File = tuple[Layer, Layer, Layer]
"""The layers of one file, in the order of `_KINDS`."""


def _first(layers: Iterable[Layer], name: str) -> Entry | None:
    return next((found for layer in layers if (found := layer.find(name)) is not None), None)


def catalogue(paths: Sequence[str | Path] | None = None) -> Catalogue:
    """The built-in entries under those of `paths`, an earlier path over a later one.

    None stands for the files that the environment and the config name. A file that cannot be
    used is left out and described in `broken`; nothing is raised.
    """
    broken: list[str] = []
    if paths is None:
        try:
            paths = configured(Path.cwd(), os.environ)
        except (CatalogueError, OSError) as error:
            broken.append(str(error))
            paths = ()
    files: list[_File] = []
    for path in paths:
        try:
            files.append(_read_user(os.fspath(path), _stamp(path)))
        except CatalogueError as error:
            broken.append(str(error))
    targets, kernels, opcodes = zip(*files, *_built_in(), strict=True)
    return Catalogue(targets, kernels, opcodes, tuple(broken))


def configured(folder: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The catalogue files of a user: those of the environment, then those of the nearest config.

    Raises `CatalogueError` where the config is no TOML or `catalogues` is no list of paths.
    """
    named = [Path(part) for part in environment.get(VARIABLE, "").split(os.pathsep) if part]
    found = config_of_user(folder)
    if found is None:
        return tuple(named)
    file, table = found
    given = table.get("catalogues", [])
    if not isinstance(given, list) or not all(isinstance(path, str) for path in given):
        raise CatalogueError(f"{file}: catalogues is a list of paths, not {given!r}")
    return (*named, *(file.parent / Path(path).expanduser() for path in given))


def config_of_user(folder: Path) -> tuple[Path, Mapping[str, object]] | None:
    """The nearest config of ours, looking upward from `folder`, and what it says.

    Raises `CatalogueError` where it is no TOML.
    """
    for place in (folder, *folder.parents):
        for file in (place / "hlolens.toml", place / "pyproject.toml"):
            table = _config_table(file)
            if table is not None:
                return file, table
    return None


def _config_table(file: Path) -> Mapping[str, object] | None:
    """The options in a config file; None where there is no file or it says nothing of ours."""
    if not file.is_file():
        return None
    text = file.read_bytes()
    if file.name == "pyproject.toml" and b"hlolens" not in text:
        return None
    try:
        table: dict[str, object] = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{file}: not TOML: {error}") from None
    if file.name == "pyproject.toml":
        tool = table.get("tool")
        own = tool.get("hlolens") if isinstance(tool, dict) else None
        return own if isinstance(own, dict) else None
    return table


def _stamp(path: str | Path) -> int:
    """What changes when the file does, so that an edited catalogue is read again."""
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return 0


@cache
def _built_in() -> tuple[_File, ...]:
    return tuple(
        _layers(name, (resources.files("hlo_lens_passes") / name).read_text(encoding="utf-8"))
        for name in ("catalogues/custom_calls.toml", "catalogues/opcodes.toml")
    )


@lru_cache(maxsize=16)
def _read_user(path: str, _stamped: int) -> _File:
    try:
        if not os.path.isfile(path) and os.path.exists(path):
            raise CatalogueError(f"catalogue {path}: not a file")  # reading a pipe may never end
        return _layers(path, Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"catalogue {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CatalogueError(f"catalogue {path}: not UTF-8 text") from None
    except CatalogueError:
        raise
    except ValueError:
        raise CatalogueError(f"catalogue {path!r}: not the name of a file") from None


def _layers(file: str, text: str) -> _File:
    """The entries of a catalogue, a layer a kind. Raises `CatalogueError`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"catalogue {file}: not TOML: {error}") from None
    except RecursionError:
        raise CatalogueError(f"catalogue {file}: nests too deep") from None
    if strange := sorted(table.keys() - {*_KINDS, *_OTHERS}):
        expected = ", ".join(f"[[{kind}]]" for kind in (*_KINDS, *_OTHERS))
        raise CatalogueError(f"catalogue {file}: no {strange[0]!r} here; there are {expected}")
    targets, kernels, opcodes = (_layer(file, kind, table) for kind in _KINDS)
    return targets, kernels, opcodes


def _layer(file: str, kind: str, table: Mapping[str, object]) -> Layer:
    given = table.get(kind, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise CatalogueError(f"catalogue {file}: {kind} entries are written [[{kind}]]")
    exact: dict[str, Entry] = {}
    globs: dict[str, Entry] = {}
    for number, one in enumerate(given, start=1):
        where = f"catalogue {file}: [[{kind}]] {number}"
        entry = _entry(where, kind, one)
        for key, into in zip(_LISTS, (exact, globs), strict=True):
            for name in one.get(key, ()):
                if into.setdefault(name, entry) != entry:
                    raise CatalogueError(f"{where}: {name!r} is said twice, differently")
    longest_first = sorted(globs.items(), key=lambda item: (-len(item[0]), item[0]))
    return Layer(exact, tuple(longest_first))


def _entry(where: str, kind: str, one: Mapping[str, object]) -> Entry:
    for key, value in one.items():
        if key not in _KEYS:
            raise CatalogueError(f"{where}: no key {key!r}; there are {', '.join(_KEYS)}")
        right = (
            isinstance(value, list) and all(isinstance(name, str) for name in value)
            if key in _LISTS
            else isinstance(value, bool)
            if key == "workspace"
            else value in ("fwd", "bwd")
            if key == "direction"
            else isinstance(value, str)
        )
        if not right:
            raise CatalogueError(f"{where}: {value!r} is no value for {key}")
    if not any(one.get(key) for key in _LISTS):
        raise CatalogueError(f"{where}: names or patterns are missing")
    if kind != "kernel" and "family" not in one:
        raise CatalogueError(f"{where}: family is missing")
    return Entry(**{key: value for key, value in one.items() if key not in _LISTS})  # type: ignore[arg-type]
