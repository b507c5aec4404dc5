"""The matmuls table: every dot and gemm call, its sizes, dtypes, FLOPs and the converts around it.

FLOPs are 2·batch·m·n·k of one execution (reference/definitions.md, "Matmuls, ragged, attention").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import PassResult
from hlo_lens_passes._matmul_table import RULE, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


class MatmulsPass:
    """One row a matmul as written: dots of all forms, convolutions that are dots, gemm calls."""

    __slots__ = ()

    name: Final = "matmuls"
    tables: Final = (TABLE,)
    requires: Final = ("custom_calls",)
    rules: Final = (RULE,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._matmuls_run import run

        return run(program, facts)


PASS = MatmulsPass()
