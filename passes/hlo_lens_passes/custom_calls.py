"""The custom_calls table: every custom call, what library it goes to and under which contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lens.facts import PassResult, Rule, Table
from hlo_lens_passes._call_table import RULES, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


@dataclass(frozen=True, slots=True)
class CustomCallsPass:
    """One row a written custom call, in fusions and called computations too."""

    name: str = "custom_calls"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._custom_calls_run import run

        return run(program, facts)


PASS = CustomCallsPass()
