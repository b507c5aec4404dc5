"""The residuals table: every value the forward keeps for the backward, and what loops stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

SIDE_FILE: Final = "saved_residuals.json"
KINDS: Final = ("stacked", "ys", "unread", "copy_of_input", "barrier", "direct")

TABLE = Table(
    "residuals",
    "a value that the forward keeps for the backward, or that a forward loop stacks",
    (
        *COMMON,
        Column(
            "kind",
            "enum",
            "identity",
            "stacked: a loop writes a slice an iteration and a backward loop reads them;"
            " copy_of_input: so written, but each slice is the one of an array the loop was given;"
            " ys: so written and used, not by a backward loop; unread: so written, used by"
            " nothing; barrier: a forward value that an opt-barrier hands to backward or remat;"
            " direct: a forward value outside of loops, or in one that holds all of forward and"
            " backward, that backward or remat computes with",
            values=KINDS,
        ),
        Column("forward_loop", "ref", "volatile", "the while that stacks it; NULL outside loops"),
        Column(
            "tuple_index",
            "int",
            "volatile",
            "element of the carry, of the barrier, or of a result that is a tuple",
        ),
        Column("shape", "text", "structural", "dtype and dimensions of the whole buffer"),
        Column(
            "bytes", "bytes", "measure", "size of the whole buffer; do not multiply by the trips"
        ),
        Column(
            "bytes_per_iteration", "bytes", "measure", "what one iteration stacks; NULL: no loop"
        ),
        Column(
            "saved_name",
            "text",
            "structural",
            f"checkpoint_name; only from {SIDE_FILE}, and only where shape and dtype allow one",
        ),
        Column(
            "offloaded",
            "bool",
            "structural",
            "whether it lies in host memory: memory space 5, or moved there by a custom call",
        ),
        Column("producer", "ref", "volatile", "what computes the value"),
        Column("input", "ref", "volatile", "of copy_of_input: where the array comes from"),
        Column(
            "backward_loop",
            "ref",
            "volatile",
            "the first while that slices it in the backward; NULL for none",
        ),
        Column("evidence", "text", "volatile", "why it is of this kind, as a sentence"),
    ),
    summary=Summary(
        "residuals",
        order=15,
        about="bytes are of the whole buffer, all iterations in it",
        by=(
            Cell("kind"),
            Cell("shape"),
            Cell("saved_name", "saved as"),
            Cell("offloaded", "where", words=("host", "device")),
        ),
        measures=(
            Measure("values", "rows"),
            Measure("bytes", "once", "bytes"),
        ),
    ),
    needs_op_names=True,
)

SAVES_NOTHING: Final = Rule(
    "policy-saves-nothing",
    "warning",
    "A checkpoint policy saves no value of its region.",
    "The region under jax.checkpoint has a policy, yet its backward takes nothing that the policy"
    " keeps: all of it is run again, as without one. Mostly a name in the policy is mistyped, or no"
    " checkpoint_name gives it any more: jax says nothing, and the HLO is that of full remat."
    f" `hlolens compile` asks the policy itself, and writes the answers to {SIDE_FILE}. No finding:"
    " nothing_saveable, a policy made with no name at all, one that saves something in another"
    " region, and one of which it is not known what it saves.",
)
OFFLOAD_IGNORED: Final = Rule(
    "offload-ignored",
    "warning",
    "A value that is to be offloaded is not in host memory.",
    f"{SIDE_FILE} has a residual that the policy offloads to the host, and in the optimized text no"
    " value of its dtype and size is in memory space 5 (of several devices: no part of it). The"
    " memory of the device that was to be freed is still in use. XLA for the CPU leaves all such"
    " values where they are.",
)
RULES: Final = (SAVES_NOTHING, OFFLOAD_IGNORED)


class ResidualsPass:
    """Rows in the order loops, barriers, values outside of loops; inside of these, text order.

    Members: `producer`; of what a loop stacks `while`, `write` (the dynamic-update-slice),
    `read` (each slice of a backward loop) and `backward` (each such loop); `barrier`; `user` (each
    backward instruction that takes a direct one).
    """

    __slots__ = ()

    name: Final = "residuals"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._residuals_run import run

        return run(program, facts)


PASS = ResidualsPass()
