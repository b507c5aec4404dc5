"""The collective_waste table: why a collective could be absent, smaller, later or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Summary, Table
from hlo_lens_passes._waste_rules import RULES

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "collective_waste",
    "one reason why an array of a logical collective could be sent never, once, later or smaller",
    (
        *COMMON,
        Column(
            "kind",
            "enum",
            "identity",
            "accumulate_only: the result is only added to what a loop carries; hoistable: its"
            " operand is the same in each iteration; duplicate: an earlier one of the same"
            " attributes has the same operand; only_sliced: of what an all-reduce gives, or a"
            " kernel behind a gather, each device uses its own part; gathered_then_sliced: so of an"
            " all-gather; chained: it takes what another over the same groups gives; wide_wire: a"
            " convert in front or behind shows that a narrower dtype would do; only_stacked: the"
            " result is only written into what a loop stacks; left_out: one like it is combined"
            " with others or has left the loop; dtype_fallback: its dtype keeps it off the"
            " SparseCore",
            values=tuple(RULES),
        ),
        Column("collective", "int", "volatile", "id of the row in collectives"),
        Column("number", "int", "volatile", "which of its arrays, from 0, as in collective_values"),
        Column(
            "saved_wire_bytes",
            "bytes",
            "measure",
            "what one device would not send in a step, were this mended; NULL: not known",
        ),
        Column(
            "kept_fraction",
            "float",
            "measure",
            "share of the result that the device uses; NULL for other kinds",
        ),
        Column("wasted_bytes", "bytes", "measure", "the rest of the result, per execution"),
        Column("could_leave", "ref", "volatile", "the outermost while that it could leave"),
        Column(
            "carry_index",
            "int",
            "volatile",
            "element of the carry of that while that it ends in; NULL where there are several",
        ),
        Column(
            "blocked_by",
            "text",
            "structural",
            "what stands in the way, several by commas; NULL: nothing in sight",
        ),
        Column(
            "partner",
            "ref",
            "volatile",
            "the instruction it shows by: operand, add, write, slice, convert, other collective",
        ),
        Column(
            "across_phases",
            "bool",
            "structural",
            "of a duplicate: whether the forward has one and the backward has it again, as a"
            " checkpoint wants; NULL where no name tells, and for other kinds",
            needs_op_names=True,
        ),
        Column("evidence", "text", "volatile", "what shows it, as a sentence"),
    ),
    summary=Summary(
        "avoidable communication",
        order=21,
        about="what one device would not send, were each mended by itself",
        by=(
            Cell("kind"),
            Cell("loop"),
            Cell("phase"),
            Cell("blocked_by"),
        ),
        measures=(
            Measure("arrays", "rows"),
            Measure("saved per step", "once", "saved_wire_bytes"),
        ),
        skip=(("across_phases", (True,)),),
    ),
)


class CollectiveWastePass:
    """Rows by what they save, then by kind and collective.

    Members: `collective`, and by kind what shows it: `operand`, `loop`; `add`, `subtract`,
    `scatter`, `write` (into a stack) and, by its opcode, what is in front of these; `slice`,
    `device` (what gives its number), `call`; `convert`; `partner`, `barrier`.
    """

    __slots__ = ()

    name: Final = "collective_waste"
    tables: Final = (TABLE,)
    requires: Final = ("collectives",)
    rules: Final = tuple(RULES.values())

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._collective_waste_run import run

        return run(program, facts)


PASS = CollectiveWastePass()
