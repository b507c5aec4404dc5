"""Source paths without the machine they were on: relative to the project, or to site-packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Roots"]

# In HLO text a path stands in the table of file names, or behind source_file.
_QUOTED = re.compile(r'((?:^\d+ |\bsource_file=)")(/[^"]+|[A-Za-z]:[\\/][^"]+)(")', re.MULTILINE)
_PACKAGES = re.compile(r".*[/\\](?=(?:site|dist)-packages[/\\])")
_PYTHON = re.compile(r".*[/\\](?=python\d+\.\d+[/\\])")


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders that paths are made relative to: the working directory, then those of imports.

    All are absolute; the filesystem's own root is none.
    """

    working: str
    imports: tuple[str, ...] = ()

    @classmethod
    def here(cls, imports: Iterable[str] = ()) -> Roots:
        """The working directory of this process, and `imports` as sys.path has them."""
        working = os.getcwd()
        absolute = (os.path.abspath(each) for each in imports if each)
        # The longest first: the innermost folder makes the shortest path.
        return cls(working, tuple(sorted({*absolute} - {working}, key=len, reverse=True)))

    def path(self, path: str) -> str:
        """`path` relative to the first root that holds it; of any other, the file's name only.

        What is installed is told from "site-packages/" on, the standard library from "python3.N/".
        """
        if not (path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path)):
            return path
        for packages in (_PACKAGES, _PYTHON):
            if (match := packages.match(path)) is not None:
                return path[match.end() :]
        for root in (self.working, *self.imports):
            if path.startswith(root.rstrip(os.sep) + os.sep) and root.rstrip(os.sep):
                return path[len(root.rstrip(os.sep)) + 1 :]
        return re.split(r"[/\\]", path)[-1]

    def text(self, text: str) -> str:
        """HLO text with every path in it so written; nothing else of the text is touched."""
        text = _QUOTED.sub(lambda match: match[1] + self.path(match[2]) + match[3], text)
        working = self.working.rstrip(os.sep)
        return text.replace(working + os.sep, "") if working else text

    def pattern(self) -> str:
        """A regular expression for what to cut off in front of a path, as jax takes it.

        jax's `jax_hlo_source_file_canonicalization_regex`: it reaches what text cannot, the
        locations within a serialized kernel.
        """
        prefixes = [r"^.*/(?=(?:site|dist)-packages/)", r"^.*/(?=python\d+\.\d+/)"]
        roots = [root.rstrip("/") for root in (self.working, *self.imports)]
        prefixes += [f"^{re.escape(root)}/" for root in roots if root]
        return "|".join([*prefixes, "^/(?:.*/)?"])
