"""Defaults for options, from `hlolens.toml` or `[tool.hlolens]` of a pyproject.toml.

The nearest such file counts, looking upward from the working directory. Keys at the top are the
common options and hold for every verb; a table named after a verb holds that verb's options:

    color = "never"
    catalogues = ["our_kernels.toml"]
    spec = "h100"
    [inspect]
    format = "markdown"

`catalogues` and `spec` are no options: the passes read them (hlo_lens_passes/catalogues shows the
form).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

COMMON = ("color", "quiet", "verbose")
_OF_PASSES = ("catalogues", "spec")


class ConfigError(click.ClickException):
    """A config file that cannot be read, or says what no verb knows."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Config:
    """One config file: the common options, and the options of each verb."""

    path: Path
    common: dict[str, Any]
    verbs: dict[str, dict[str, Any]]

    def defaults(self, verb: str, command: click.Command) -> dict[str, Any]:
        """The defaults of `verb`, by parameter name. Raises `ConfigError` for an unknown key."""
        known = {name: param for param in command.params for name in _names(param)}
        given = self.common | self.verbs.get(verb, {})
        defaults: dict[str, Any] = {}
        for key, value in given.items():
            parameter = known.get(key.replace("_", "-"))
            if parameter is None:
                raise ConfigError(f"{self.path}: [{verb}] has no option {key!r}{hint(key, known)}")
            if parameter.multiple and isinstance(value, str):
                value = [value]
            if isinstance(parameter.type, click.Path):
                if not _names_files(parameter, value):
                    what = "a list of names" if parameter.multiple else "a name"
                    raise ConfigError(f"{self.path}: [{verb}] {key} is {what}, not {value!r}")
                if parameter.multiple:  # files to read lie beside the config that names them
                    value = [str(self.path.parent / one) for one in value]
            defaults[str(parameter.name)] = value
        return defaults


def find(folder: Path, verbs: Container[str]) -> Config | None:
    """The config that holds in `folder`: of it, or of the nearest folder above that has one.

    Raises `ConfigError` where that file is no TOML or names an unknown verb or common option.
    """
    for place in (folder, *folder.parents):
        own = place / "hlolens.toml"
        if own.is_file():
            return _checked(own, _table(own, _text(own)), verbs)
        project = place / "pyproject.toml"
        if project.is_file() and "hlolens" in (text := _text(project)):
            tools = _table(project, text).get("tool")
            table = tools.get("hlolens") if isinstance(tools, dict) else None
            if isinstance(table, dict):
                return _checked(project, table, verbs)
            if table is not None:
                raise ConfigError(f"{project}: [tool.hlolens] is a table, not {table!r}")
    return None


def _names(param: click.Parameter) -> Iterable[str]:
    """The long names of an option without dashes; arguments have none."""
    if isinstance(param, click.Option):
        for name in (*param.opts, *param.secondary_opts):
            if name.startswith("--"):
                yield name[2:]


def _names_files(parameter: click.Parameter, value: object) -> bool:
    """Whether the value is a name or, for an option that may be repeated, a list of names."""
    if parameter.multiple:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, str)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _table(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not TOML that can be read: it nests too deep") from None


def _checked(path: Path, table: dict[str, Any], verbs: Container[str]) -> Config:
    common: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            if key == "tool" and "hlolens" in value:
                raise ConfigError(
                    f"{path}: [tool.hlolens] is for pyproject.toml; here its keys stand at the top,"
                    " and the verbs' as [VERB]"
                )
            if key not in verbs:
                raise ConfigError(f"{path}: no verb {key!r}{hint(key, verbs)}")
            sections[key] = value
        elif key in COMMON:
            common[key] = value
        elif key not in _OF_PASSES:
            raise ConfigError(
                f"{path}: no common option {key!r}{hint(key, (*COMMON, *_OF_PASSES))}; "
                "an option of one verb belongs under that verb"
            )
    return Config(path, common, sections)


def hint(key: str, known: Any) -> str:
    """ "; did you mean 'x'?" where one of `known` is close, else what there is."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(known)}"
