"""The matmuls table: every dot and gemm call, its sizes, dtypes, FLOPs and the converts around it.

FLOPs are 2·batch·m·n·k of one execution (reference/definitions.md, "Matmuls, ragged, attention").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts import PassResult, Rule, Table
from hlo_lens_passes._matmul_table import RULE, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


@dataclass(frozen=True, slots=True)
class MatmulsPass:
    """One row a matmul as written: dots of all forms, convolutions that are dots, gemm calls."""

    name: str = "matmuls"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("custom_calls",)
    rules: tuple[Rule, ...] = (RULE,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._matmuls_run import run

        return run(program, facts)


PASS = MatmulsPass()
