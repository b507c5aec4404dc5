"""The values that a function keeps for its backward pass, read from the jaxpr.

Where the function is a gradient already, they are what its backward equations take from outside:
jax marks an equation that it transposed in the equation's name stack. A function that is none, but
could be, is differentiated for the purpose. Anything else is not known, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hlo_lens.aot.jaxprs import LITERAL, Level, sub_jaxprs, trace_back

__all__ = ["saved_residuals"]


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
    found = list(_of_gradient(Level(closed_jaxpr.jaxpr), 1))
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
        "residuals": [each for each in found if each["kind"] != LITERAL],
    }


def _of_gradient(level: Level, repeats: int) -> Iterator[dict[str, Any]]:
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
            for inner in sub_jaxprs(eqn):
                yield from _of_gradient(Level(inner, eqn, level), repeats * times)


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
    level = Level(closed.jaxpr)
    seen: set[int] = set()
    for variable in closed.jaxpr.outvars:
        if not hasattr(variable, "val") and id(variable) not in seen:
            seen.add(id(variable))
            yield _describe(variable, level, 1)


def _describe(variable: Any, level: Level, repeats: int) -> dict[str, Any]:
    aval = variable.aval
    origin = trace_back(variable, level)
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
