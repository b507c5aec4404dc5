"""The attention table: every attention site, forward and backward apart, fused or spelled out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import PassResult
from hlo_lens_passes._attention_table import RULES, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


class AttentionPass:
    """One row a site and direction.

    Members: `call` (the kernels of a fused site); of an exposed one `qk`, `scale`, `mask`, `max`,
    `exp`, `sum`, `div`, `pv`, and backward `dp`, `dv`, `dq`, `dk`; `written` (what writes the
    arrays of scores that score_values counts).
    """

    __slots__ = ()

    name: Final = "attention"
    tables: Final = (TABLE,)
    requires: Final = ("custom_calls", "matmuls")
    rules: Final = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._attention_run import run

        return run(program, facts)


PASS = AttentionPass()
