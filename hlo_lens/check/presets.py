"""Presets: the expectations that have a name, what they take, and how a person says them
otherwise."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from hlo_lens.check.comparing import number_of_bytes
from hlo_lens.check.conditions import in_parentheses
from hlo_lens.check.model import QUANTITIES
from hlo_lens.check.places import ExpectationError, Place, written
from hlo_lens.facts.sqlite import QueryError, check_closed

Given = Mapping[str, Any]

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_CONDITIONS: Final = ("every", "none", "any")


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a person says to a preset. kind: `text`, or `bytes` for a size with its unit. known: a
    name of what the values are of, where they are listed somewhere. default: None where one has to
    be given."""

    name: str
    about: str
    kind: str = "text"
    known: str | None = None
    default: str | None = None

    def values(self) -> tuple[str, ...]:
        """What it may be; () where that is not listed."""
        return () if self.known is None else _LISTED[self.known]()


@dataclass(frozen=True, slots=True)
class Preset:
    """An expectation with a name: `keys` in the words of a file, `{parameter}` in them. about: what
    counts, and what does not pass. if_empty: what it means that no row is meant."""

    name: str
    about: str
    keys: Given
    parameters: Mapping[str, Parameter]
    if_empty: str = ""

    @property
    def summary(self) -> str:
        """What it expects, in a line."""
        return self.about.partition(":")[0]

    @property
    def complete(self) -> bool:
        """Whether it can be judged by its name alone."""
        return all(one.default is not None for one in self.parameters.values())

    @property
    def fixed(self) -> tuple[str, ...]:
        """The keys that a person may not say: those that a parameter stands in, but for `where`,
        and quantities that would take their place."""
        filled = {key for key, value in self.keys.items() if key != "where" and _in(value)}
        return (*QUANTITIES, "is") if filled & {*QUANTITIES, "is"} else ()

    @property
    def takes(self) -> str:
        """Its parameters in a sentence."""
        names = [
            f"{one.name} = {'' if one.default is None else f'{one.default!r}, or '}{one.about}"
            for one in self.parameters.values()
        ]
        return f"{self.name} takes {'; '.join(names)}" if names else f"{self.name} takes nothing"


def _families() -> tuple[str, ...]:
    from hlo_lens_passes.kernels import families

    return families()


_LISTED: Final[Mapping[str, Callable[[], tuple[str, ...]]]] = {"families": _families}


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by its name, in the order of the file."""
    place = resources.files("hlo_lens.check") / "data" / "presets.toml"
    content = tomllib.loads(place.read_text(encoding="utf-8"))
    return {name: _preset(name, one) for name, one in content.items()}


def _preset(name: str, content: Given) -> Preset:
    own = ("about", "if_empty", "parameters")
    keys = {key: value for key, value in content.items() if key not in own}
    parameters = {
        key: Parameter(key, **value) for key, value in content.get("parameters", {}).items()
    }
    about = " ".join(content.get("about", content["because"]).split())
    return Preset(name, about, keys, parameters, content.get("if_empty", ""))


def from_command_line(text: str) -> dict[str, str]:
    """What `NAME` or `NAME:KEY=VALUE,…` says, in the words of a file.

    Raises `ExpectationError` for another form.
    """
    name, colon, rest = text.partition(":")
    said = {"preset": name}
    # A comma before another KEY= ends a value; any other belongs to it, as in 1,000 B.
    for part in re.split(r",(?=[^,=]*=)", rest) if colon else ():
        key, equals, value = (one.strip() for one in part.partition("="))
        if not equals or not key or key == "preset" or key in said:
            raise ExpectationError(
                f"--preset {text}", f"{part!r} is no KEY=VALUE; write NAME:KEY=VALUE,…"
            )
        said[key] = value
    return said


def expanded(given: Given, place: Place) -> tuple[Given, str, str]:
    """`given` without its preset, but with what that expects; as it is, where it names none. And
    that in a sentence, and what it means that no row is meant; "" where that is told by its keys.

    A `where` narrows the one of the preset: both hold (AND). `count`, `sum`, `max` and `min` are of
    the rows for which the preset's condition holds, `every`, `none` and `any` take its place. Every
    other key takes the place of the preset's.

    Raises `ExpectationError` for a preset or parameter that does not exist or is missing, a value
    that it cannot be, and a key that a preset does not leave open.
    """
    if "preset" not in given:
        return given, "", ""
    preset = _named(given["preset"], place)
    own = {key: value for key, value in given.items() if key != "preset"}
    _check_keys(preset, own, place)
    _check_open(preset, {key: own[key] for key in own if key not in preset.parameters}, place)
    values = {
        name: _value(one, own.pop(name, one.default), preset, place)
        for name, one in preset.parameters.items()
    }
    base = {key: _filled(key, value, values) for key, value in preset.keys.items()}
    said = [str(given[name]) for name in preset.parameters if name in given]
    base["id"] = "-".join([preset.name, *(re.sub(r"\W+", "-", one) for one in said)])
    if_empty = "" if "where" in own else preset.if_empty
    return _said_otherwise(base, own, place), _sentence(preset, own, values), if_empty


def _sentence(preset: Preset, own: Given, values: Mapping[str, _Value]) -> str:
    """What is expected in words; "" for another quantity."""
    if any(key in own for key in QUANTITIES):
        return ""
    told = ", ".join(f"{name} = {value.text}" for name, value in values.items())
    where = f", where {' '.join(str(own['where']).split())}" if "where" in own else ""
    return f"{preset.summary}{f' ({told})' if told else ''}{where}"


def _named(name: object, place: Place) -> Preset:
    found = presets().get(name) if isinstance(name, str) else None
    if found is None:
        hint = close(name, tuple(presets())) if isinstance(name, str) else ""
        raise ExpectationError(place("preset"), f"no preset {written(name)}{hint}")
    return found


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a parameter, in SQL and as a person wrote it."""

    sql: str
    text: str


def _value(parameter: Parameter, said: object, preset: Preset, place: Place) -> _Value:
    name = parameter.name
    if said is None:
        raise ExpectationError(place("preset"), f"{name} is missing: preset {preset.takes}")
    if parameter.kind == "bytes":
        try:
            return _Value(str(number_of_bytes(said)), str(said))
        except ValueError as problem:
            raise ExpectationError(place(name), f"{name}: {problem}") from None
    if not isinstance(said, str) or not said.strip():
        raise ExpectationError(place(name), f"{name} is a text, not {written(said)}")
    known = parameter.values()
    if known and said not in known:
        raise ExpectationError(place(name), f"no {name} {said!r}{close(said, known)}")
    return _Value("'" + said.replace("'", "''") + "'", said)


def _check_keys(preset: Preset, own: Given, place: Place) -> None:
    """Refuse a key that is nearly a parameter, before that one is missing."""
    for key in own:
        near = difflib.get_close_matches(key, preset.parameters, n=1)
        if near and key not in preset.parameters:
            raise ExpectationError(place(key), f"no key {key!r}; did you mean {near[0]!r}?")


def _check_open(preset: Preset, own: Given, place: Place) -> None:
    """Refuse what would make another expectation of it, or a parameter that says nothing."""
    for key in own:
        if key == "table":
            raise ExpectationError(
                place(key), f"preset {preset.name} is about {preset.keys['table']}"
            )
        if key in preset.fixed:
            names = " and ".join(preset.parameters)
            raise ExpectationError(
                place(key), f"preset {preset.name} makes its {key} of {names}; leave out {key}"
            )


def _in(value: object) -> bool:
    """Whether a parameter stands in it."""
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def _filled(key: str, value: object, values: Mapping[str, _Value]) -> object:
    if not isinstance(value, str):
        return value
    in_sql = key != "is"
    return _PLACEHOLDER.sub(
        lambda found: values[found[1]].sql if in_sql else values[found[1]].text, value
    )


def _said_otherwise(base: Given, own: Given, place: Place) -> Given:
    """`base` with what a person says about it."""
    merged = {**base, **own}
    parts = [base["where"]] if "where" in base else []
    if any(key in own for key in QUANTITIES):
        dropped = {*QUANTITIES, "is"} - {*own}
        merged = {key: value for key, value in merged.items() if key not in dropped}
        condition = next((base[key] for key in _CONDITIONS if isinstance(base.get(key), str)), None)
        if condition is not None and not any(key in own for key in _CONDITIONS):
            parts.append(f"({condition.strip()})")
    if isinstance(mine := own.get("where"), str) and mine.strip():
        parts.append(_alone(mine, place))
    elif "where" in own:
        return merged  # the reader tells what is wrong with it
    if parts:
        merged["where"] = " AND ".join(part.strip() for part in parts)
    return merged


def _alone(condition: str, place: Place) -> str:
    """A condition in parentheses that it cannot leave."""
    try:
        check_closed(condition)
    except QueryError as problem:
        raise ExpectationError(place("where"), str(problem)) from None
    return in_parentheses(condition)


def close(word: str, known: Sequence[str]) -> str:
    """What was probably meant, or what there is, behind a sentence."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
