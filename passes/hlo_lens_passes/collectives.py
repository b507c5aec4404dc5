"""The tables of collectives: every logical one once, whatever its spelling, and its arrays.

`reference/definitions.md`, "Collectives", says what each column means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import PassResult
from hlo_lens_passes._collective_tables import COLLECTIVES, VALUES

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


class CollectivesPass:
    """One row a logical collective; its operations, starts and dones are members of the row. And a
    row for each array of it, of which what it feeds, and what moves it there, are members."""

    __slots__ = ()

    name: Final = "collectives"
    tables: Final = (COLLECTIVES, VALUES)
    requires: Final = ()
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._collective_logical import logical_collectives

        found = [
            logical_collectives(module, program.analysis(module).graph)
            for module in program.modules
        ]
        if not any(found):  # a program for one device does not wait for what describes them
            return PassResult({})
        from hlo_lens_passes._collectives_run import run

        return run(program, found)


PASS = CollectivesPass()
