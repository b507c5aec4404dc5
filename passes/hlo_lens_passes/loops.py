"""The loops table: every while, how often it runs, where it comes from, what it carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_TRIPS_KIND: Final = Column(
    "trips_kind",
    "enum",
    "volatile",
    "how trip_count is known: XLA noted it, or init, step and condition say it; bounded: only"
    " trip_count_max is known",
    values=("annotated", "inferred", "bounded", "unknown"),
)

TABLE = Table(
    "loops",
    "a while; executions are those of the while, not of its body",
    (
        *(_TRIPS_KIND if column.name == "trips_kind" else column for column in COMMON),
        Column("body", "text", "volatile", "name of the body; NULL where the text lacks it"),
        Column("condition", "text", "volatile", "name of the condition"),
        Column(
            "trip_count", "int", "measure", "times the body runs each time the while does", "times"
        ),
        Column(
            "trip_count_max", "int", "measure", "most times it can run; NULL: no bound", "times"
        ),
        Column(
            "trip_count_inferred",
            "int",
            "structural",
            "what init, step and condition say, also where XLA noted something else",
            "times",
        ),
        Column("evidence", "text", "volatile", "how the trip count is known, as a sentence"),
        Column(
            "induction_index", "int", "structural", "element of the carry the condition compares"
        ),
        Column("init", "int", "structural", "value of that element in the first iteration"),
        Column("step", "int", "structural", "what each iteration adds to it"),
        Column("parent", "ref", "volatile", "innermost while around it; NULL where callers differ"),
        Column(
            "compiler_made",
            "bool",
            "structural",
            "whether XLA made it out of something that is no loop: its op_name ends in an"
            " operation, not in `while`, or it is a windowed einsum. NULL without a name",
            needs_op_names=True,
        ),
        Column("origin_op", "text", "structural", "the operation a compiler-made loop stands for"),
        Column("carry_bytes", "bytes", "measure", "size of the carry"),
        Column(
            "stacked_bytes",
            "bytes",
            "measure",
            "size of the elements of the carry into which each iteration writes one slice, at an"
            " index that moves with the induction variable",
        ),
        Column(
            "stacked",
            "json",
            "structural",
            "those elements: [{element, dimension, step, bytes, bytes_per_iteration}, …]",
        ),
    ),
    summary=Summary(
        "loops",
        order=10,
        none="no loops",
        by=(
            Cell("instr", "loop"),
            Cell("phase"),
            Cell("trips_kind", "trip count is"),
            Cell("origin_op", "made out of"),
        ),
        measures=(
            Measure("loops", "rows"),
            Measure("runs", "executions"),
            Measure("carry", "each", "carry_bytes"),
            Measure("stacked", "each", "stacked_bytes"),
        ),
        held=("trip_count", "phase", "loop_depth"),
    ),
)

MISMATCH: Final = Rule(
    "trip-count-mismatch",
    "warning",
    "XLA noted another trip count than init, step and condition give.",
    "A while carries known_trip_count in its backend_config, but its init, step and condition are"
    " constants that give another number. The note is taken, as XLA itself takes it; a pass that"
    " changed the loop may have left it behind. Totals over the loop are off by that factor if the"
    " note is wrong.",
)
UNKNOWN: Final = Rule(
    "trip-count-unknown",
    "note",
    "The trip count of a while is not known.",
    "XLA noted none, and init, step and condition are not all constants, as in a loop that ends on"
    " computed data. Executions inside have no exact number: executions_min and executions_max"
    " bound them, and totals over the loop are bounds.",
)


class LoopsPass:
    """One row a while, in text order. Members: `while`, `condition` (root of the condition), and
    as `stacked` the dynamic-update-slices that write the stacked elements."""

    __slots__ = ()

    name: Final = "loops"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = (MISMATCH, UNKNOWN)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._loops_run import run

        return run(program, facts)


PASS = LoopsPass()
