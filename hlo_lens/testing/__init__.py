"""Assert in a test what a program was lowered to: with pytest, with unittest, or with neither.

    from hlo_lens.testing import assert_lowering

    assert_lowering(program).collectives("all-gather", phase="bwd").count(0)
    assert_lowering(program).table("matmuls").none("lhs_dtype = 'f32'", because="the MXU is bf16")
    assert_lowering(program).expect("gate.toml")

The judging is that of `hlolens check`.
"""

from hlo_lens.check.places import ExpectationError
from hlo_lens.testing.failures import (
    LoweringError,
    LoweringWarning,
    NotJudgedError,
    UnknownNameError,
)
from hlo_lens.testing.lowering import Lowering, Rows, RowsOf, assert_lowering

__all__ = [
    "ExpectationError",
    "Lowering",
    "LoweringError",
    "LoweringWarning",
    "NotJudgedError",
    "Rows",
    "RowsOf",
    "UnknownNameError",
    "assert_lowering",
]
