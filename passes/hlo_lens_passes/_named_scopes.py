"""The scope of an operation: the named_scope path that its op_name shows, equal in all phases."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_lens_passes._remat_paths import plain_path

_COMPILED: Final = re.compile(r"p?jit\(.*\)", re.DOTALL)
# What XLA merged: `decoder/(attention/dot_general:mlp/dot_general)`.
_MERGED: Final = re.compile(r"(?:\A|/)\(")


@lru_cache(maxsize=1 << 14)
def named_scope(op_name: str) -> str:
    """`decoder/mlp` of `jit(step)/transpose(jvp(decoder))/while/body/mlp/dot_general`; "" for an
    operation in no scope, of a merged one what its parts have in front of them.

    Without what is jitted (the program itself, functions of jax), without what tells phases, loops
    and checkpoints, and without the operation.
    """
    if (merged := _MERGED.search(op_name)) is not None:
        op_name = f"{op_name[: merged.start()]}/operation"
    kept: list[str] = []
    for component in plain_path(op_name)[:-1]:
        if component == "body" and kept and kept[-1] == "while":
            kept.pop()
        elif not _COMPILED.fullmatch(component):
            kept.append(component)
    return "/".join(kept)
