"""Files as others see them: by their path in the checkout, where they are in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hlo_lens.check.gate import Checked
from hlo_lens.check.model import Offender, Verdict

_FILE_LINE = re.compile(r"(?P<file>.+?):(?P<line>[1-9][0-9]*)(?::[0-9]+)?", re.DOTALL)


class FileLine(NamedTuple):
    """A file as it is named, and a line of it from 1, or None."""

    file: str
    line: int | None = None


def file_line(text: str | None) -> FileLine | None:
    """`FILE:LINE` or `FILE:LINE:COLUMN` taken apart; None for what has no line."""
    match = _FILE_LINE.fullmatch(text or "")
    return None if match is None else FileLine(match["file"], int(match["line"]))


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder that holds the checkout: of GitHub's workflow, else the working directory."""

    root: Path

    def inside(self, file: str) -> str | None:
        """The path from the root, with slashes; None for what is no file in it."""
        for folder in ("", self.root):
            try:
                path = Path(os.path.realpath(os.path.join(folder, file)))
                if path.is_file() and path.is_relative_to(self.root):
                    return path.relative_to(self.root).as_posix()
            except (OSError, ValueError):  # too long a name, a NUL in it
                continue
        return None


def workspace() -> Workspace:
    """The workspace of this process."""
    return Workspace(Path(os.path.realpath(os.environ.get("GITHUB_WORKSPACE") or ".")))


def text_place(checked: Checked, module: int | None, line: int | None) -> FileLine | None:
    """Where something is in the HLO text; None where the text is of no file."""
    program = checked.facts.program
    file = (program.main if module is None else program.modules[module]).filename
    return None if not file or file.startswith("<") else FileLine(file, line)


def row_places(checked: Checked, verdict: Verdict, row: Offender) -> Iterator[FileLine]:
    """Where a row is: in the source, in the HLO text, as far as it is known."""
    if source := file_line(row.source):
        yield source
    if row.text_line is not None and (text := text_place(checked, verdict.module, row.text_line)):
        yield text


def first_inside(space: Workspace, *candidates: FileLine | None) -> FileLine | None:
    """The first of the places that is in the checkout, by its path in it."""
    for one in candidates:
        path = None if one is None else space.inside(one.file)
        if path is not None and one is not None:
            return FileLine(path, one.line)
    return None
