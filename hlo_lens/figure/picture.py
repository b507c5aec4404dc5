"""A figure, which writes itself as DOT, SVG, PNG or PDF and shows itself in a notebook."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hlo_lens._version import __version__
from hlo_lens.figure.dot import dot_text
from hlo_lens.figure.model import Panel
from hlo_lens.figure.themes import THEMES, Theme, ThemeName
from hlo_lens.figure.themes import theme as theme_named
from hlo_lens.figure.views import ColorBy
from hlo_lens.figure.words import caption, drawn_names, in_words
from hlo_lens.files import InputError
from hlo_lens.present.quantities import count_text, visible

if TYPE_CHECKING:
    from hlo_lens.figure.lanes import Lanes

Format = Literal["svg", "png", "pdf", "dot"]
FORMATS: tuple[Format, ...] = ("svg", "png", "pdf", "dot")


@dataclass(frozen=True, slots=True, repr=False)
class Figure:
    """What was drawn. `color`: what the colours of nodes tell; `about`: the sentence of its view;
    `words`: what a phase or family reads as.

    A figure with one panel is about one program; several stand side by side.
    """

    panels: tuple[Panel | Lanes, ...]
    color: ColorBy
    about: str
    words: Mapping[str, str] = field(default_factory=dict)
    theme: ThemeName = "light"

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        names = dict.fromkeys(one.title or one.name for one in self.panels)
        return " | ".join(names)

    @property
    def caption(self) -> tuple[str, ...]:
        """Sentences under the figure: what it shows, what is left out, where it is from."""
        return tuple(caption(self.panels, self.about))

    @property
    def alt(self) -> str:
        """The figure in words, for those who cannot see it."""
        return " ".join(in_words(self.panels, self.about))

    def dot(self, theme_name: ThemeName | None = None) -> str:
        """The DOT text: the same for the same figure. Raises `InputError` for an unknown theme."""
        chosen = theme_of(theme_name or self.theme)
        return dot_text(self.panels, chosen, self.color, self.words, self.caption, self.title)

    def render(self, output_format: Format, theme_name: ThemeName | None = None) -> bytes:
        """The laid-out figure. Raises `LayoutError` where no layout engine is installed,
        `InputError` for an unknown format or theme.
        """
        if output_format not in FORMATS:
            raise InputError(
                "the format", f"a figure is written as {', '.join(FORMATS)}, not {output_format!r}"
            )
        source = self.dot(theme_name)
        if output_format == "dot":
            return source.encode()
        from hlo_lens.figure.annotate import annotated
        from hlo_lens.figure.layout import render

        return annotated(
            render(source, output_format),
            output_format,
            title=self.title,
            description=self.alt,
            provenance={
                **self.provenance(),
                "dot_sha256": hashlib.sha256(source.encode(errors="replace")).hexdigest(),
            },
        )

    def svg(self, theme_name: ThemeName | None = None) -> str:
        """The figure as SVG."""
        return self.render("svg", theme_name).decode()

    def save(self, path: str | os.PathLike[str], theme_name: ThemeName | None = None) -> Path:
        """Write it to `path`, in the format of its suffix. Raises `InputError` for another one."""
        target = Path(path)
        data = self.render(format_of(target), theme_name)
        target.write_bytes(data)
        return target

    def provenance(self) -> dict[str, object]:
        """What the metadata of the file holds: the tool, and of each panel where it is from."""
        return {
            "made_by": f"hlolens {__version__}",
            "panels": [
                {
                    "module": one.name,
                    "stage": one.stage,
                    "sha256": one.sha256,
                    "about": list(one.about),
                    "instructions": drawn_names(one),
                }
                for one in self.panels
            ],
        }

    def __repr__(self) -> str:
        drawn = sum(len(drawn_names(one)) for one in self.panels)
        return f"<Figure {visible(self.title)}: {count_text(drawn)} instructions>"

    def _repr_svg_(self) -> str:
        return self.svg()


def format_of(path: Path) -> Format:
    """The format that the suffix of a file names. Raises `InputError` for another one."""
    suffix = path.suffix.lower().lstrip(".")
    for known in FORMATS:
        if suffix == known or (suffix == "gv" and known == "dot"):
            return known
    raise InputError(path, f"a figure is written as {', '.join(FORMATS)}, not as {suffix!r}")


def theme_of(name: ThemeName) -> Theme:
    """The theme of that name. Raises `InputError` with what there is."""
    if name not in THEMES:
        raise InputError("--theme", f"no theme {name!r}; there are {', '.join(THEMES)}")
    return theme_named(name)
