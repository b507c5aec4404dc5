"""Programs from what jax holds in memory."""

from __future__ import annotations

from typing import Any

import pytest

import hlo_lens
from hlo_lens.program import AFTER, BEFORE

HLO = "HloModule jit_f\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n"


class Text:
    """Stands in for jaxlib's HloModule and XlaComputation."""

    def __init__(self, text: str) -> None:
        self.text = text

    def as_hlo_module(self) -> Text:
        return self

    def to_string(self) -> str:
        return self.text


class Lowered:
    """What `from_jax` uses of jax.stages.Lowered."""

    def compiler_ir(self, dialect: str) -> Text:
        assert dialect == "hlo"
        return Text(HLO)

    def compile(self) -> Compiled:
        return Compiled()


class Compiled:
    """What `from_jax` uses of jax.stages.Compiled."""

    def runtime_executable(self) -> Any:
        return self

    def hlo_modules(self) -> list[Text]:
        return [Text(HLO.replace("jit_f", "jit_f, is_scheduled=true"))]


def test_lowered_and_compiled_are_two_stages_in_any_order() -> None:
    lowered = Lowered()
    assert hlo_lens.from_jax(lowered).stages == (BEFORE,)
    assert hlo_lens.from_jax(lowered.compile()).stages == (AFTER,)
    both = hlo_lens.from_jax(lowered.compile(), lowered)
    assert both.stages == (BEFORE, AFTER)
    assert both.main.is_scheduled


def test_anything_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"not str; lower a function with jax\.jit"):
        hlo_lens.from_jax("HloModule m")


@pytest.mark.jax
def test_a_real_function() -> None:
    import jax
    import jax.numpy as jnp

    lowered = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.ones((8, 8)))
    program = hlo_lens.from_jax(lowered, lowered.compile())
    assert program.stages == (BEFORE, AFTER)
    before, after = program.modules
    assert "dot" in before.entry.opcodes
    assert any("dot_general" in (each.op_name or "") for each in before.entry.instructions)
    assert after.is_scheduled
