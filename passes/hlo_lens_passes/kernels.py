"""The kernels table: custom calls, and fusions that a code generator or a library makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import PassResult
from hlo_lens_passes._kernel_table import TABLE

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program


def families() -> tuple[str, ...]:
    """Every family that is known, sorted, here or not: of the catalogue, the user's entries
    included, and of fusions."""
    from hlo_lens_passes._catalogue import catalogue
    from hlo_lens_passes._fusion_kernels import FAMILIES

    known = catalogue()
    entries = (
        entry
        for layer in (*known.targets, *known.kernels)
        for entry in (*layer.exact.values(), *(entry for _, entry in layer.globs))
    )
    return tuple(sorted({entry.family for entry in entries} | {*FAMILIES}))


class KernelsPass:
    """One row a custom call, of which those that do no work are marked, and one row a fusion whose
    config names a generator or library (`__triton_gemm`, `__cudnn$fusion`, `__ynn_fusion`, …)."""

    __slots__ = ()

    name: Final = "kernels"
    tables: Final = (TABLE,)
    requires: Final = ("custom_calls", "matmuls")
    rules: Final = ()

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._kernels_run import run

        return run(program, facts)


PASS = KernelsPass()
