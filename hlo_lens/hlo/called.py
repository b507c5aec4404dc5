"""Which computations an instruction calls, by name, from its attribute text."""

from __future__ import annotations

import re

from hlo_lens.hlo.attributes import strip_comments
from hlo_lens.hlo.opcodes import CALLING_ATTRIBUTES

_CALLING = re.compile(
    rf",\s*({'|'.join(CALLING_ATTRIBUTES)})=\s*(\{{[^{{}}]*\}}|%?[\w.-]+(?:, *%[\w.-]+)*)",
    re.A,
)
# The same with comments in between; without a match, nothing is called.
_MAY_CALL = re.compile(
    rf",(?:\s|/\*.*?\*/|//[^\n]*)*(?:{'|'.join(CALLING_ATTRIBUTES)})\s*=", re.A | re.S
)
NAMES = re.compile(r"%?([\w.-]+)", re.A)


def called_names(tail: str) -> dict[str, list[str]]:
    """Names of called computations by attribute, from the attribute text of an instruction."""
    tail = "," + tail  # a pattern that begins with a comma is ten times as fast as one with "^|,"
    if _MAY_CALL.search(tail) is None:  # most call nothing
        return {}
    if "/*" in tail or "//" in tail:
        tail = strip_comments(tail)
    found: dict[str, list[str]] = {}
    for match in _CALLING.finditer(tail):
        # A string may hold ", body=x" too: behind an odd number of quotes it is a string.
        if tail.count('"', 0, match.start()) % 2 == 0:
            found[match[1]] = NAMES.findall(match[2])
    return found
