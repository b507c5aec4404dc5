"""Stack-frame tables of a module: `stack_frame_id=7` back to files, functions and lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_lens.hlo.attributes import c_unescape, strip_comments


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame. Lines and columns count from 1; 0 or "" is what the table doesn't say."""

    file: str
    function: str
    line: int
    column: int
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class FrameTable:
    """The four tables FileNames, FunctionNames, FileLocations, StackFrames, by their ids from 1.

    `parents` holds the id of the calling frame, 0 for an outermost frame. The text prints that id
    plus one, so an outermost frame has `parent_frame_id=1`.
    """

    frames: Mapping[int, Frame] = field(default_factory=dict, hash=False)
    parents: Mapping[int, int] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.frames)

    def __repr__(self) -> str:
        return f"FrameTable({len(self.frames)} frames)"

    def stack(self, stack_frame_id: int) -> tuple[Frame, ...]:
        """The frames from `stack_frame_id` outwards, innermost first.

        An id that the table lacks ends the stack, and so does a frame met before: damaged tables
        give a shorter stack, never an endless one.
        """
        found: dict[int, Frame] = {}
        current = stack_frame_id
        while current not in found and current in self.frames:
            found[current] = self.frames[current]
            current = self.parents[current]
        return tuple(found.values())


_ENTRY = re.compile(
    r"""\s*+(?: (FileNames|FunctionNames|FileLocations|StackFrames)\b
              | (\d++)\s*+(?: "((?:[^"\\]++|\\.)*+)" | \{([^{}"]*+)\} ) )""",
    re.VERBOSE | re.DOTALL,
)
_FIELD = re.compile(r"[\s,]*+(\w+)\s*=\s*(-?\d+)")


def parse_frames(text: str) -> FrameTable:
    """Read what stands between the module's header and its first computation; blank is empty.

    Raises:
        ValueError: an entry isn't `id "text"` or `id {name=number ...}`, or stands in no table.
    """
    names: dict[str, dict[int, str]] = {"FileNames": {}, "FunctionNames": {}}
    records: dict[str, dict[int, dict[str, int]]] = {"FileLocations": {}, "StackFrames": {}}
    text = strip_comments(text).rstrip()
    section, position = "", 0
    while position < len(text):
        found = _ENTRY.match(text, position)
        if found is None or not (found[1] or section):
            rest = text[position : position + 40].strip()
            raise ValueError(f"expected an entry of the stack-frame tables, found {rest!r}")
        position = found.end()
        if found[1]:
            section = found[1]
        elif section in names and found[3] is not None:
            names[section][int(found[2])] = c_unescape(found[3])
        elif section in records and found[4] is not None:
            records[section][int(found[2])] = _record(found[4])
        else:
            raise ValueError(f"{found.group().strip()[:40]!r} is no entry of {section}")
    return _table(names["FileNames"], names["FunctionNames"], *records.values())


def _record(text: str) -> dict[str, int]:
    values = {found[1]: int(found[2]) for found in _FIELD.finditer(text)}
    if _FIELD.sub("", text).strip(" \t\r\n,"):
        raise ValueError(f"expected name=number in {text[:60]!r} of the stack-frame tables")
    return values


def _table(
    files: Mapping[int, str],
    functions: Mapping[int, str],
    locations: Mapping[int, Mapping[str, int]],
    stack_frames: Mapping[int, Mapping[str, int]],
) -> FrameTable:
    frames: dict[int, Frame] = {}
    parents: dict[int, int] = {}
    for number, entry in stack_frames.items():
        at = locations.get(entry.get("file_location_id", 0), {})
        frames[number] = Frame(
            file=files.get(at.get("file_name_id", 0), ""),
            function=functions.get(at.get("function_name_id", 0), ""),
            line=at.get("line", 0),
            column=at.get("column", 0),
            end_line=at.get("end_line", 0),
            end_column=at.get("end_column", 0),
        )
        parents[number] = entry.get("parent_frame_id", 1) - 1
    return FrameTable(frames, parents)
