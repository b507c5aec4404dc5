"""A Program from what jax holds in memory: `Lowered` and `Compiled` stages."""

from __future__ import annotations

from typing import Any

from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program


def from_jax(stage: Any, *more: Any) -> Program:
    """The Program of jax's `Lowered` and `Compiled` objects, of one function, in any order.

        lowered = jax.jit(step).lower(x)
        hlo_lens.from_jax(lowered, lowered.compile())

    A `Lowered` is the stage before_optimizations, a `Compiled` after_optimizations. Nothing is
    compiled here. Told by what the objects can do, so that jax is not imported.

    Raises TypeError for anything else, ValueError where the backend gives no HLO text.
    """
    texts: list[tuple[str, str]] = []
    for each in (stage, *more):
        if hasattr(each, "runtime_executable"):
            texts += [(text, AFTER) for text in _compiled_texts(each)]
        elif hasattr(each, "compiler_ir") and hasattr(each, "compile"):
            texts.append((_lowered_text(each), BEFORE))
        else:
            raise TypeError(
                f"from_jax takes jax.stages.Lowered and Compiled, not {type(each).__name__}; "
                "lower a function with jax.jit(f).lower(...)"
            )
    texts.sort(key=lambda text: text[1] == AFTER)  # in the order of a compile
    return Program([parse(text) for text, _ in texts], [stage for _, stage in texts])


def _lowered_text(lowered: Any) -> str:
    computation = lowered.compiler_ir("hlo")
    if computation is None:
        raise ValueError("this Lowered has no HLO")
    return str(computation.as_hlo_module().to_string())  # with metadata, unlike as_text()


def _compiled_texts(compiled: Any) -> list[str]:
    executable = compiled.runtime_executable()
    if hasattr(executable, "hlo_modules"):
        return [module.to_string() for module in executable.hlo_modules()]
    text = compiled.as_text()
    if not text:
        raise ValueError("the backend of this Compiled gives no HLO text")
    return [text]
