"""Assert in a test what a program was lowered to: with pytest, with unittest, or with neither.

    from hlo_lens.testing import assert_lowering

    assert_lowering(program).collectives("all-gather", phase="bwd").count(0)
    assert_lowering(program).table("matmuls").none("lhs_dtype = 'f32'", because="the MXU is bf16")
    assert_lowering(program).expect("gate.toml")

The judging is that of `hlolens check`.
"""

from typing import TYPE_CHECKING

from hlo_lens.testing.failures import LoweringError, LoweringWarning, NotJudgedError
from hlo_lens.testing.lowering import Lowering, Rows, RowsOf, assert_lowering

if TYPE_CHECKING:
    from hlo_lens.check.reading import ExpectationError as ExpectationError

__all__ = [
    "ExpectationError",
    "Lowering",
    "LoweringError",
    "LoweringWarning",
    "NotJudgedError",
    "Rows",
    "RowsOf",
    "assert_lowering",
]


def __getattr__(name: str) -> object:
    if name == "ExpectationError":  # the gate is imported where something is judged
        from hlo_lens.check.reading import ExpectationError

        return ExpectationError
    raise AttributeError(f"module 'hlo_lens.testing' has no attribute {name!r}")
