"""The values that a function keeps for its backward pass, read from the jaxpr.

Where the function is a gradient already, they are what its backward equations take from outside:
jax marks an equation that it transposed in the equation's name stack. A function that is none, but
could be, is differentiated for the purpose. Anything else is not known, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["saved_residuals"]

# Equations that hand a value on; a policy puts some of them between a value and its name.
_PASSING = {
    "reduce_precision", "device_put", "optimization_barrier", "sharding_constraint", "copy",
    "copy_p", "pvary",
}  # fmt: skip

_LITERAL = "literal"


def saved_residuals(
    closed_jaxpr: Any, function: Callable[..., Any], arguments: Sequence[Any]
) -> dict[str, Any]:
    """What is kept for the backward pass of `closed_jaxpr`, as JSON.

    `{"known": bool, "how": str, "residuals": [...]}`; a residual has `shape`, `dtype`, `bytes`,
    `kind` ("argument", "constant", "carry" of a scan, or the primitive that made it),
    `checkpoint_name`, `stacked` (the scan's length, where each of its iterations adds a slice),
    `offloaded`, `repeats` (how often an enclosing loop makes it anew) and `source`. `function` of
    `arguments` is what was traced; it is differentiated where the jaxpr holds no backward pass.
    """
    found = list(_of_gradient(_Level(closed_jaxpr.jaxpr), 1))
    if found:
        how = "the backward equations of the jaxpr"
    elif _is_loss(closed_jaxpr.jaxpr):
        found = list(_of_loss(function, arguments))
        how = "the function, differentiated by jax.vjp"
    else:
        why = "the function has no backward pass, and is no scalar loss that could be given one"
        return {"known": False, "how": why, "residuals": []}
    return {
        "known": True,
        "how": how,
        "residuals": [each for each in found if each["kind"] != _LITERAL],
    }


class _Level:
    """A jaxpr, with the equation that runs it and the level where that one stands."""

    __slots__ = ("_made_by", "equation", "jaxpr", "outer")

    def __init__(self, jaxpr: Any, equation: Any = None, outer: _Level | None = None) -> None:
        self.jaxpr = jaxpr
        self.equation = equation
        self.outer = outer
        self._made_by = {id(out): eqn for eqn in jaxpr.eqns for out in eqn.outvars}

    def definition(self, variable: Any) -> Any:
        """The equation that makes `variable`; None for what comes from outside."""
        return self._made_by.get(id(variable))


def _of_gradient(level: _Level, repeats: int) -> Iterator[dict[str, Any]]:
    backward = [eqn for eqn in level.jaxpr.eqns if _is_backward(eqn)]
    made_there = {id(out) for eqn in backward for out in eqn.outvars}
    seen = set(made_there)
    for eqn in backward:
        for variable in eqn.invars:
            if not hasattr(variable, "val") and id(variable) not in seen:  # a Literal has one
                seen.add(id(variable))
                yield _describe(variable, level, repeats)
    for eqn in level.jaxpr.eqns:
        if not _is_backward(eqn):
            times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
            for inner in _sub_jaxprs(eqn):
                yield from _of_gradient(_Level(inner, eqn, level), repeats * times)


def _is_backward(eqn: Any) -> bool:
    return bool(re.search(r"\btranspose\(", str(eqn.source_info.name_stack)))


def _is_loss(jaxpr: Any) -> bool:
    from jax import numpy as jnp

    outs = [out.aval for out in jaxpr.outvars]
    return len(outs) == 1 and outs[0].shape == () and jnp.issubdtype(outs[0].dtype, jnp.floating)


def _of_loss(function: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """What `jax.vjp` returns beside the output is a pytree of the residuals."""
    import jax

    closed = jax.make_jaxpr(lambda *args: jax.vjp(function, *args)[1])(*arguments)
    level = _Level(closed.jaxpr)
    seen: set[int] = set()
    for variable in closed.jaxpr.outvars:
        if not hasattr(variable, "val") and id(variable) not in seen:
            seen.add(id(variable))
            yield _describe(variable, level, 1)


def _describe(variable: Any, level: _Level, repeats: int) -> dict[str, Any]:
    aval = variable.aval
    origin = _trace_back(variable, level)
    return {
        "shape": list(aval.shape),
        "dtype": str(aval.dtype),
        "bytes": _bytes(aval),
        "kind": origin.kind,
        "checkpoint_name": origin.name,
        "stacked": origin.stacked,
        "offloaded": origin.offloaded,
        "repeats": repeats,
        "source": origin.source,
    }


def _bytes(aval: Any) -> int | None:
    bits = getattr(aval.dtype, "itemsize", None)
    return None if bits is None else int(aval.size) * int(bits)


@dataclass(slots=True)
class _Origin:
    kind: str = "constant"
    name: str | None = None
    stacked: int | None = None
    offloaded: bool = False
    source: str | None = None


def _trace_back(variable: Any, level: _Level) -> _Origin:
    """Where `variable` was made: through calls, loops and what only hands it on."""
    origin = _Origin()
    while True:
        if "host" in str(getattr(variable.aval, "memory_space", "")).lower():
            origin.offloaded = True
        eqn = level.definition(variable)
        if eqn is None:
            if _is_carry(variable, level):
                origin.kind, origin.source = "carry", _source(level.equation)
                return origin
            outside = _outside(variable, level)
            if outside is None:
                is_argument = level.outer is None and _among(level.jaxpr.invars, variable)
                origin.kind = "argument" if is_argument else "constant"
                return origin
            variable, level = outside
            continue
        if eqn.primitive.name in _PASSING:
            variable = eqn.invars[_position(eqn.outvars, variable)]
        elif (inside := _inside(eqn, variable, level, origin)) is not None:
            variable, level = inside
        else:
            origin.name = _checkpoint_name(eqn)
            origin.kind = "name" if origin.name else _kind(eqn)
            origin.source = _source(eqn)
            return origin
        if hasattr(variable, "val"):
            return origin


def _kind(eqn: Any) -> str:
    """What made a value; what literals alone make, or nothing, costs nothing to make again."""
    return _LITERAL if all(hasattr(each, "val") for each in eqn.invars) else eqn.primitive.name


def _is_carry(variable: Any, level: _Level) -> bool:
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


def _inside(eqn: Any, variable: Any, level: _Level, origin: _Origin) -> tuple[Any, _Level] | None:
    """The value within the equation's jaxpr that becomes `variable`; None where it runs none."""
    name, inner = eqn.primitive.name, list(_sub_jaxprs(eqn))
    if len(inner) != 1 or len(inner[0].outvars) != len(eqn.outvars) or name == "while":
        return None
    within = inner[0].outvars[_position(eqn.outvars, variable)]
    if name == "scan" and len(variable.aval.shape) == len(within.aval.shape) + 1:
        origin.stacked = eqn.params["length"]  # a carry has the shape that it has within
    return within, _Level(inner[0], eqn, level)


def _outside(variable: Any, level: _Level) -> tuple[Any, _Level] | None:
    """What an equation hands in as `variable`; None for the arguments of the whole function."""
    if level.outer is None or len(level.equation.invars) != len(level.jaxpr.invars):
        return None
    for its, handed in zip(level.jaxpr.invars, level.equation.invars, strict=True):
        if its is variable and not hasattr(handed, "val"):
            return handed, level.outer
    return None


def _sub_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs that an equation runs: of scan, jit, checkpoint, cond, shard_map and so on."""
    for value in eqn.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if hasattr(each, "eqns"):
                yield each.jaxpr if hasattr(each, "jaxpr") else each


def _position(variables: Sequence[Any], wanted: Any) -> int:
    return next(index for index, each in enumerate(variables) if each is wanted)


def _checkpoint_name(eqn: Any) -> str | None:
    """The name that `checkpoint_name` gave; as a primitive, or as one of jax's newer kind."""
    if eqn.primitive.name == "name":
        return str(eqn.params["name"])
    own = eqn.params.get("_prim")
    return str(own.name) if type(own).__name__ == "CheckpointName" else None


def _source(eqn: Any) -> str | None:
    """`file:line` of the user's code; None where this jax does not tell."""
    try:
        from jax._src import source_info_util

        told = source_info_util.summarize(eqn.source_info)
    except Exception:  # private to jax, and no reason to fail
        return None
    match = re.match(r"(.+?):(\d+)(?::\d+)?(?: |$)", told)
    return f"{match[1]}:{match[2]}" if match else None
