"""The async_pairs table: every start with its done, and what stands between them in the schedule.

`reference/definitions.md`, "Collectives", says what compute_between and heavy_between count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table
from hlo_lens_passes._collective_tables import KINDS

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "async_pairs",
    "an operation that is started and waited for: copies, slices, sends, receives, calls and"
    " collectives, in any spelling",
    (
        *COMMON,
        Column("wraps", "text", "identity", "the operation that runs, by its opcode"),
        Column(
            "collective",
            "enum",
            "structural",
            "logical kind of the collective it is or holds; NULL for none",
            values=KINDS,
        ),
        Column("start", "ref", "volatile", "the start; NULL where it is in another computation"),
        Column("done", "ref", "volatile", "the done; NULL where it is in another computation"),
        Column("updates", "refs", "volatile", "the updates between them, in order"),
        Column(
            "inside",
            "ref",
            "volatile",
            "start of the pair it is part of: of the nearest that runs its computation; NULL for"
            " none, and where only some callers are part of one",
        ),
        Column(
            "instructions_between",
            "int",
            "volatile",
            "instructions the text has between start and done; NULL where it is not scheduled",
            unit="instructions",
        ),
        Column(
            "compute_between",
            "int",
            "measure",
            "those of them that compute: no scalars, nothing that only moves or communicates",
            unit="instructions",
        ),
        Column(
            "heavy_between",
            "int",
            "measure",
            "those of these that hold a core for long: matmuls, kernels, reduce, sort, scatter,"
            " gather, while",
            unit="instructions",
        ),
        Column(
            "overlapped",
            "bool",
            "structural",
            "compute_between > 0 and not is_sync; NULL where the text is not scheduled",
            needs_configs=True,
        ),
        Column(
            "is_sync",
            "bool",
            "structural",
            "whether the start's backend_config makes it synchronous; NULL where it has no such"
            " field",
        ),
        Column("bytes", "bytes", "measure", "what the operation gives; of a send what it sends"),
        Column(
            "from_memory_space",
            "int",
            "structural",
            "S(n) of what it reads, 0 for the device's default; NULL where the text has no layout",
        ),
        Column("to_memory_space", "int", "structural", "S(n) of what it gives"),
        Column(
            "from_memory",
            "text",
            "structural",
            "that memory by name: device for S(0), host for S(5), vmem for S(1) of a TPU, else"
            " S(n)",
        ),
        Column("to_memory", "text", "structural", "name of the memory that it is given in"),
        Column(
            "host_move",
            "enum",
            "structural",
            "which way it moves a value between device and host memory; NULL where it does not",
            values=("to_host", "to_device"),
        ),
        Column(
            "thread", "text", "structural", "async_execution_thread of the start, where it has one"
        ),
    ),
    summary=Summary(
        "other asynchronous operations",
        order=50,
        by=(
            Cell("loop"),
            Cell("wraps", "operation"),
            Cell("{from_memory}→{to_memory}", "memory"),
        ),
        measures=(
            Measure("pairs", "rows"),
            Measure("runs", "executions"),
            Measure("overlap", "true", "overlapped"),
            Measure("bytes per run", "once", "bytes"),
            Measure("bytes per step", "per_step", "bytes"),
        ),
        unknown=(Cell("wraps"),),
        skip=(("collective", KINDS), ("host_move", ("to_host", "to_device"))),
        only=(("inside", (None,)),),
    ),
)

UNMATCHED = Rule(
    "unmatched-async",
    "warning",
    "A start is never waited for, or a done waits for nothing.",
    "Every start has one done behind it, which takes it or an update of it; a loop may carry it"
    " into the next iteration first. Here the text has a start whose value nobody takes, or a done"
    " whose operand no start gives. XLA accepts neither: the text was cut or edited.",
)


class AsyncPairsPass:
    """One row a start/done pair; the chained fusions of an async collective are a pair too."""

    __slots__ = ()

    name: Final = "async_pairs"
    tables: Final = (TABLE,)
    requires: Final = ("collectives",)
    rules: Final = (UNMATCHED,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._async_pairs_run import run

        return run(program, facts)


PASS = AsyncPairsPass()
