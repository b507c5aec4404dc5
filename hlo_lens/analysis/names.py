"""What an op_name says: its path components and the phase of a training step it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from hlo_lens.hlo import Instruction

PHASES: tuple[str | None, ...] = (None, "other", "fwd", "bwd", "remat")
"""Phases by rank: a path that shows several has the last of them."""

NO_NAME, OTHER, FWD, BWD, REMAT = range(5)

_STARTS = re.compile(r"\(*(p?jit\([^/:]*)", re.A)
_TRANSPOSE = re.compile(r"(?<![\w.-])transpose\(", re.A)
_JVP = re.compile(r"(?<![\w.-])jvp\(", re.A)
_WRAPPER = re.compile(r"[\w.-]+\((.*)\)", re.A | re.S)
_NAMED_FROM_OUTSIDE = frozenset(("while", "conditional"))
_OPENING, _CLOSING = "([{", ")]}"


def own_op_name(instr: Instruction) -> str | None:
    """The op_name of the instruction's own metadata; None also where that cannot be read."""
    try:
        return instr.op_name
    except ValueError:
        return None


def is_absolute(op_name: str, program: str | None = None) -> bool:
    """Whether the path starts at the program: with this `jit(step)`, or where that is not known
    with any `jit(` or `pjit(`."""
    start = start_of(op_name)
    return start is not None and program in (None, start)


def start_of(op_name: str) -> str | None:
    """The `jit(f)` or `pjit(f)` that the path starts with; None for any other."""
    found = _STARTS.match(op_name)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Front:
    """What stands in front of the op_names in a computation.

    path: the full op_name of the caller; "" where nothing is in front.
    again: the caller's own op_name, where the names in it may begin with it again. jax names what
    is in a loop or a branch from the function that the loop is in: `while`, then `while/body/mul`.
    program: what names start with that need nothing in front, as `is_absolute` takes it.
    """

    path: str = ""
    again: str | None = None
    program: str | None = None

    def full(self, name: str) -> str:
        """The full op_name of an instruction of the computation that has this one."""
        if not self.path or is_absolute(name, self.program):
            return name
        if self.again is not None and f"{name}/".startswith(f"{self.again}/"):
            return self.path + name[len(self.again) :]
        return f"{self.path}/{name}"

    def inside(self, caller: Instruction) -> Front:
        """What stands in front in the computations that an instruction with this front calls."""
        name = own_op_name(caller)
        if name is None:
            return self
        again = name if caller.opcode in _NAMED_FROM_OUTSIDE else None
        return Front(self.full(name), again, self.program)


@lru_cache(maxsize=1 << 14)
def split_path(op_name: str) -> tuple[str, ...]:
    """The components of an op_name: split at `/` outside brackets.

    `(a:b)`, the name XLA gives to what it merged, gives the components of a, then those of b;
    so does such a component. Where brackets do not match, every `/` splits.
    """
    components: list[str] = []
    waiting = [op_name]
    while waiting:
        text = waiting.pop()
        parts = _split(text, "/")
        if len(parts) > 1:
            waiting.extend(reversed(parts))
            continue
        merged = _merged(text)
        if merged:
            waiting.extend(reversed(merged))
        elif text:
            components.append(text)
    return tuple(components)


def _merged(text: str) -> list[str]:
    """The parts of `(a:b)`; empty for anything else."""
    if not (text.startswith("(") and text.endswith(")") and ":" in text):
        return []
    parts = _split(text[1:-1], ":")
    return parts if len(parts) > 1 else []


def _split(text: str, separator: str) -> list[str]:
    if separator not in text:
        return [text]
    parts: list[str] = []
    depth = start = 0
    for position, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth < 0:
                break
        elif char == separator and not depth:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        return text.split(separator)
    return [*parts, text[start:]]


def last_component(op_name: str) -> str | None:
    """The operation a path ends in: `scatter-add` of `jit(f)/vmap(scatter-add)`; parameters in
    square brackets are left out. None for an empty path."""
    path = split_path(op_name)
    if not path:
        return None
    last = path[-1].split("[")[0]
    while (wrapped := _WRAPPER.fullmatch(last)) is not None:
        last = wrapped[1]
    return last or None


def rank_of(op_name: str) -> int:
    """The rank in `PHASES` of the phase an op_name shows: a path component
    `rematted_computation`, else `transpose(`, else `jvp(`, else any name at all."""
    if "rematted_computation" in op_name:
        components = (component.split("[")[0] for component in split_path(op_name))
        if any(last_component(component) == "rematted_computation" for component in components):
            return REMAT
    if "transpose(" in op_name or "jvp(" in op_name:
        text = "/".join(component.split("[")[0] for component in split_path(op_name))
        if _TRANSPOSE.search(text):
            return BWD
        if _JVP.search(text):
            return FWD
    return OTHER
