"""Jaxprs: the equations within equations, and where a value in one was made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LITERAL", "Level", "Origin", "checkpoint_name", "source", "sub_jaxprs", "trace_back"]

# Equations that hand a value on; a policy puts some of them between a value and its name.
_PASSING = {
    "reduce_precision", "device_put", "optimization_barrier", "sharding_constraint", "copy",
    "copy_p", "pvary",
}  # fmt: skip

LITERAL = "literal"


class Level:
    """A jaxpr, with the equation that runs it and the level where that one stands."""

    __slots__ = ("_made_by", "equation", "jaxpr", "outer")

    def __init__(self, jaxpr: Any, equation: Any = None, outer: Level | None = None) -> None:
        self.jaxpr = jaxpr
        self.equation = equation
        self.outer = outer
        self._made_by = {id(out): eqn for eqn in jaxpr.eqns for out in eqn.outvars}

    def definition(self, variable: Any) -> Any:
        """The equation that makes `variable`; None for what comes from outside."""
        return self._made_by.get(id(variable))


@dataclass(slots=True)
class Origin:
    """Where a value was made. `made_by` are the equations that made it and handed it on.

    `kind` is "argument", "constant", "literal", "carry" of a scan, "name", or a primitive's name.
    """

    kind: str = "constant"
    name: str | None = None
    stacked: int | None = None
    offloaded: bool = False
    source: str | None = None
    made_by: list[Any] = field(default_factory=list)


def trace_back(variable: Any, level: Level) -> Origin:
    """Where `variable` was made: through calls, loops and what only hands it on."""
    origin = Origin()
    while True:
        if "host" in str(getattr(variable.aval, "memory_space", "")).lower():
            origin.offloaded = True
        eqn = level.definition(variable)
        if eqn is None:
            if _is_carry(variable, level):
                origin.kind, origin.source = "carry", source(level.equation)
                return origin
            outside = _outside(variable, level)
            if outside is None:
                is_argument = level.outer is None and _among(level.jaxpr.invars, variable)
                origin.kind = "argument" if is_argument else "constant"
                return origin
            variable, level = outside
            continue
        if eqn.primitive.name in _PASSING:
            origin.made_by.append(eqn)
            variable = eqn.invars[_position(eqn.outvars, variable)]
        elif (inside := _inside(eqn, variable, level, origin)) is not None:
            variable, level = inside
        else:
            origin.made_by.append(eqn)
            origin.name = checkpoint_name(eqn)
            origin.kind = "name" if origin.name else _kind(eqn)
            origin.source = source(eqn)
            return origin
        if hasattr(variable, "val"):
            return origin


def _kind(eqn: Any) -> str:
    """What made a value; what literals alone make, or nothing, costs nothing to make again."""
    return LITERAL if all(hasattr(each, "val") for each in eqn.invars) else eqn.primitive.name


def _is_carry(variable: Any, level: Level) -> bool:
    """Whether `variable` is what one iteration of a scan hands to the next.

    A scan takes constants, carries and sequences, in this order, and gives carries and sequences;
    within, an element of a sequence has one dimension less. How the parameters say so differs
    between releases of jax.
    """
    eqn = level.equation
    if eqn is None or eqn.primitive.name != "scan" or not _among(level.jaxpr.invars, variable):
        return False

    def sequences(outside: Sequence[Any], within: Sequence[Any]) -> int:
        pairs = zip(outside, within, strict=True)
        return sum(len(out.aval.shape) > len(inner.aval.shape) for out, inner in pairs)

    end = len(eqn.invars) - sequences(eqn.invars, level.jaxpr.invars)
    carries = len(eqn.outvars) - sequences(eqn.outvars, level.jaxpr.outvars)
    return end - carries <= _position(level.jaxpr.invars, variable) < end


def _among(variables: Sequence[Any], wanted: Any) -> bool:
    return any(each is wanted for each in variables)


def _inside(eqn: Any, variable: Any, level: Level, origin: Origin) -> tuple[Any, Level] | None:
    """The value within the equation's jaxpr that becomes `variable`; None where it runs none."""
    name, inner = eqn.primitive.name, list(sub_jaxprs(eqn))
    if len(inner) != 1 or len(inner[0].outvars) != len(eqn.outvars) or name == "while":
        return None
    within = inner[0].outvars[_position(eqn.outvars, variable)]
    if name == "scan" and len(variable.aval.shape) == len(within.aval.shape) + 1:
        origin.stacked = eqn.params["length"]  # a carry has the shape that it has within
    return within, Level(inner[0], eqn, level)


def _outside(variable: Any, level: Level) -> tuple[Any, Level] | None:
    """What an equation hands in as `variable`; None for the arguments of the whole function."""
    if level.outer is None or len(level.equation.invars) != len(level.jaxpr.invars):
        return None
    for its, handed in zip(level.jaxpr.invars, level.equation.invars, strict=True):
        if its is variable and not hasattr(handed, "val"):
            return handed, level.outer
    return None


def sub_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs that an equation runs: of scan, jit, checkpoint, cond, shard_map and so on."""
    for value in eqn.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if hasattr(each, "eqns"):
                yield each.jaxpr if hasattr(each, "jaxpr") else each


def _position(variables: Sequence[Any], wanted: Any) -> int:
    return next(index for index, each in enumerate(variables) if each is wanted)


def checkpoint_name(eqn: Any) -> str | None:
    """The name that `checkpoint_name` gave; as a primitive, or as one of jax's newer kind."""
    if eqn.primitive.name == "name":
        return str(eqn.params["name"])
    own = eqn.params.get("_prim")
    return str(own.name) if type(own).__name__ == "CheckpointName" else None


def source(eqn: Any) -> str | None:
    """`file:line` of the user's code; None where this jax does not tell."""
    try:
        from jax._src import source_info_util

        told = source_info_util.summarize(eqn.source_info)
    except Exception:  # private to jax, and no reason to fail
        return None
    match = re.match(r"(.+?):(\d+)(?::\d+)?(?: |$)", told)
    return f"{match[1]}:{match[2]}" if match else None
