"""Source paths without the machine they were on: relative to the project, or to site-packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Roots"]

# In HLO text a path stands in the table of file names, or behind source_file.
_QUOTED = re.compile(r'((?:^\d+ |\bsource_file=)")(/[^"]+)(")', re.MULTILINE)
_IN_PROSE = re.compile(r"(?<![\w)/.:])/(?:[^\s'\":,/]+/)+[^\s'\":,]*")
_PACKAGES = r".*/(?=(?:site|dist)-packages/)"
_PYTHON = r".*/(?=python\d+\.\d+/)"


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders that paths are made relative to: the working directory, then those of imports.

    All are absolute and end in "/"; the filesystem's own root is none.
    """

    folders: tuple[str, ...]

    @classmethod
    def of(cls, working: str, imports: Iterable[str] = ()) -> Roots:
        """The working directory, and `imports` as sys.path has them.

        Python's own folders are left out: what is in them is told from "site-packages/" on.
        """
        own = re.compile(f"{_PACKAGES}|{_PYTHON}")
        found = {os.path.abspath(each) + "/" for each in imports if each}
        others = {each for each in found if not own.match(each)} - {f"{working}/"}
        # The longest first: the innermost folder makes the shortest path.
        ordered = (f"{working}/", *sorted(others, key=len, reverse=True))
        return cls(tuple(each for each in ordered if each.strip("/")))

    def path(self, path: str) -> str:
        """`path` relative to the first folder that holds it; of any other, the file's name only.

        What is installed is told from "site-packages/" on, the standard library from "python3.N/".
        """
        return re.sub(self.pattern(), "", path, count=1)

    def pattern(self) -> str:
        """A regular expression for what to cut off in front of a path.

        jax takes it, too, as `jax_hlo_source_file_canonicalization_regex`: so it reaches what is
        no text, the locations within a serialized kernel.
        """
        return "|".join(
            [
                f"^{_PACKAGES}",
                *(f"^{re.escape(folder)}" for folder in self.folders),
                f"^{_PYTHON}",
                "^/(?:.*/)?",
            ]
        )

    def text(self, text: str) -> str:
        """HLO text with every source path in it so written; nothing else of it is touched."""
        return _QUOTED.sub(lambda match: match[1] + self.path(match[2]) + match[3], text)

    def message(self, message: str) -> str:
        """A message of a compiler, with every path in it so written."""
        return _IN_PROSE.sub(lambda match: self.path(match[0]), message)
