"""The custom_calls table: every custom call, what library it goes to and under which contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Finding, PassResult
from hlo_lens_passes._call_table import RULES, TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


class CustomCallsPass:
    """One row a written custom call, in fusions and called computations too."""

    __slots__ = ()

    name: Final = "custom_calls"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._calls import custom_calls
        from hlo_lens_passes._catalogue import catalogue

        broken = [Finding("catalogue-broken", "warning", why) for why in catalogue().broken]
        if not any(True for module in program.modules for _ in custom_calls(module.computations)):
            return PassResult({}, findings=broken)
        from hlo_lens_passes._custom_calls_run import run

        return run(program, broken)


PASS = CustomCallsPass()
