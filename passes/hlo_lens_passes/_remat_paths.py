"""What op_names say of a checkpointed region: its scope, its depth, and the same path forward."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_lens.analysis import split_path
from hlo_lens.analysis.names import is_absolute

LABEL: Final = "rematted_computation"
_BOUNDARY: Final = frozenset(("checkpoint", "remat", "remat2"))
# Components that only say that jax called something.
_EMPTY: Final = _BOUNDARY | {LABEL, "", "closed_call", "core_call", "eval_jaxpr", "pjit"}
_PHASE: Final = re.compile(r"(?:transpose|jvp)\((.*)\)", re.DOTALL)
_COMPILER: Final = re.compile(r"\.remat\d*(?=\.|\Z)")


def scope_of(op_name: str) -> str | None:
    """The path in front of the last label, without the program's own name: where the region stands.
    None without a label.

    A part that labels hold twice, as in a checkpoint inside a checkpoint, is a scope of its own.
    """
    path = split_path(op_name)
    labels = [k for k, component in enumerate(path) if _plain(component) == LABEL]
    return "/".join(path[int(is_absolute(path[0])) : labels[-1]]) if labels else None


def depth_of(scope: str) -> int:
    """How many checkpoints are inside each other there, the region's own included; at least 1."""
    return max(1, sum(_plain(component) == "checkpoint" for component in split_path(scope)))


@lru_cache(maxsize=1 << 14)
def plain_path(op_name: str) -> tuple[str, ...]:
    """The path without what tells phases and checkpoints: equal for an operation of the forward,
    and for what replays it."""
    plain = (_plain(component) for component in split_path(op_name))
    return tuple(component for component in plain if component not in _EMPTY)


def _plain(component: str) -> str:
    while (found := _PHASE.fullmatch(component)) is not None:
        component = found[1]
    return component


def is_compiler_remat(name: str) -> bool:
    """Whether XLA's own rematerialization named the instruction: `fusion.3.remat2`."""
    return ".remat" in name and _COMPILER.search(name) is not None
