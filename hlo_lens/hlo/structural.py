"""The attributes of an instruction that say what it computes, free of names, ids and places."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_lens.hlo.attributes import braces, split_attributes, strip_comments
from hlo_lens.hlo.opcodes import CALLING_ATTRIBUTES

COMMENTARY: Final = frozenset(("metadata", "origin", "statistics"))
"""Attributes that tell where an instruction comes from."""

IDENTITY: Final = frozenset(("channel_id", "control-predecessors", *CALLING_ATTRIBUTES))
"""Attributes whose value is an id, or names instructions or computations of the module."""

PLACEMENT: Final = frozenset(("backend_config", "frontend_attributes", "sharding"))
"""Attributes that say how or where a back end runs it, not what it computes."""

# The metadata is the one part that nearly every instruction has of its own. It goes first, so
# that what is left is one of a few texts, and each of these is split once.
_METADATA: Final = re.compile(rf", metadata={braces(2)}", re.DOTALL)
_BLANKS: Final = re.compile(r"\s+")


def structural_attributes(tail: str, *, without: frozenset[str]) -> str:
    """`tail` without the attributes in `without`: sorted by name, `name=value` after `, `.

    Comments, blanks and empty values (`{}`, which printers may leave out) are dropped. A tail that
    cannot be split is given as it is, without metadata.
    """
    if "metadata" in without and (at := tail.find(", metadata=")) >= 0 and '"' not in tail[:at]:
        tail = _METADATA.sub("", tail, count=1)
    return _sorted(tail, without)


@lru_cache(maxsize=1 << 14)
def _sorted(tail: str, without: frozenset[str]) -> str:
    try:
        attributes = split_attributes(tail)
    except ValueError:
        return tail
    kept = (
        f", {name}={_BLANKS.sub('', strip_comments(value))}"
        for name, value in sorted(attributes.items())
        if name not in without
    )
    return "".join(text for text in kept if not text.endswith("={}"))
