"""Lines of styled text on an output: as wide as it is, coloured where it takes colours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import IO

from hlo_lens.cli.common import console, state
from hlo_lens.present.page import Line, plain


def width_of(stream: IO[str]) -> int | None:
    """COLUMNS, else the width of the terminal; None, unbounded, for a file or pipe."""
    if os.environ.get("COLUMNS", "").isdigit() or stream.isatty():
        return shutil.get_terminal_size().columns
    return None


def write_lines(lines: Iterable[Line], stream: IO[str]) -> None:
    """Write the lines, with their styles where `--color` and the output allow them."""
    wants_color = state().color == "always" or os.environ.get("FORCE_COLOR")
    if not (stream.isatty() or wants_color):
        stream.write(plain(lines))
        return
    from rich.text import Text

    screen = console(stream)
    for each in lines:
        text = Text.assemble(*((span.text, span.style) for span in each))
        text.rstrip()
        screen.print(text, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
