"""Themes of figures: colours as data, for light and dark pages and for print without colour."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from hlo_lens.figure.views import ColorBy

ThemeName = Literal["light", "dark", "print"]
THEMES: tuple[ThemeName, ...] = ("light", "dark", "print")


@dataclass(frozen=True, slots=True)
class Paint:
    """How a node looks: fill and border colour, and the border's Graphviz style ("" is solid).

    word: the look in words, for a theme without colours; "" where the colour says it.
    """

    fill: str
    line: str
    style: str = ""
    word: str = ""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one theme; `data/themes.toml` says what they are for."""

    name: ThemeName
    page: str
    text: str
    muted: str
    line: str
    frame: str
    panel: str
    cross: str
    phase: Mapping[str, Paint]
    family: Mapping[str, Paint]
    lanes: Mapping[str, str]

    def paint(self, by: ColorBy, value: str | None) -> Paint:
        """How a node of this phase or family looks."""
        paints = self.phase if by == "phase" else self.family
        return paints.get(value or "", paints["other"])


@cache
def theme(name: ThemeName) -> Theme:
    """The theme of that name."""
    place = resources.files("hlo_lens.figure") / "data" / "themes.toml"
    given = tomllib.loads(place.read_text(encoding="utf-8"))[name]
    phase, family = (
        {value: Paint(**paint) for value, paint in given.pop(by).items()}
        for by in ("phase", "family")
    )
    return Theme(name=name, phase=phase, family=family, **given)
