"""The attention table: every attention site, forward and backward apart, fused or spelled out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts import PassResult, Rule, Table
from hlo_lens_passes._attention_table import RULES, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


@dataclass(frozen=True, slots=True)
class AttentionPass:
    """One row a site and direction.

    Members: `call` (the kernels of a fused site); of an exposed one `qk`, `scale`, `mask`, `max`,
    `exp`, `sum`, `div`, `pv`, and backward `dp`, `dv`, `dq`, `dk`; `written` (what writes the
    arrays of scores that score_values counts).
    """

    name: str = "attention"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("custom_calls", "matmuls")
    rules: tuple[Rule, ...] = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._attention_run import run

        return run(program, facts)


PASS = AttentionPass()
