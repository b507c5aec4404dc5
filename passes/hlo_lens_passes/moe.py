"""The moe table: every expert block, how its experts run, what routes to them, and what that takes.

Which products are experts is told by structure (`_moe_blocks`): axes that dataflow ties together
and a choice of experts for each token. Names decide nothing but the phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "moe",
    "a block of experts in one phase: products with a matrix for each expert, and what takes each"
    " token to some of them; instr is the first of the products",
    (
        *COMMON,
        Column(
            "path",
            "enum",
            "identity",
            "how experts run: dense_masked puts every token through every expert and weighs the"
            " results; fixed_capacity puts tokens into a fixed number of slots an expert; ragged"
            " sorts them by expert and multiplies groups of rows (see ragged_dots)",
            values=("dense_masked", "fixed_capacity", "ragged"),
        ),
        Column(
            "experts",
            "int",
            "measure",
            "experts that the router chooses among; without a router those whose matrices are here,"
            " on one device",
        ),
        Column(
            "local_experts",
            "int",
            "measure",
            "experts whose matrices the products have, on one device; NULL where not known",
        ),
        Column(
            "capacity",
            "int",
            "measure",
            "slots of an expert (C), for each batch where tokens are dispatched batch by batch;"
            " NULL for the other paths",
        ),
        Column(
            "tokens", "int", "measure", "tokens that are routed, on one device; NULL: not known"
        ),
        Column(
            "top_k",
            "int",
            "measure",
            "experts chosen for each token; NULL where no top-k is seen, and"
            " where experts choose tokens, capacity each",
        ),
        Column(
            "shared_experts",
            "int",
            "measure",
            "width of the MLP that every token goes through beside its experts ÷ width of an expert"
            "; 0: none is seen; NULL where there is no router, or it does not divide",
        ),
        Column(
            "drops",
            "bool",
            "structural",
            "whether a token's choice can be dropped: where an expert has fewer slots than there"
            " are tokens for them; false where experts choose, and a token may be chosen by none;"
            " NULL where rows are exchanged, whose buffers may be too small",
        ),
        Column(
            "gated",
            "bool",
            "structural",
            "whether an expert multiplies two projections of a token; NULL where not known",
        ),
        Column(
            "routing_bytes",
            "bytes",
            "measure",
            "bytes read + written in one execution by what routes: sorts and top-k, gathers and"
            " scatters (indices, and the rows they move, read and written), all-to-alls, cumulative"
            " sums, and products that dispatch to slots and combine; as if each went to memory",
        ),
        Column(
            "all_to_all_bytes",
            "bytes",
            "measure",
            "wire_bytes_max of its all-to-alls in one execution (see collectives): of ragged ones"
            " the most that it can be; 0: none",
        ),
        Column(
            "gemm_flops",
            "flops",
            "measure",
            "issued in one execution by the products of the experts; of a ragged-dot before"
            " optimization, of all rows",
        ),
        Column(
            "routing_ops",
            "int",
            "measure",
            "operations that routing_bytes adds up; both NULL where none is seen but a router that"
            " may be the block's moves something in this phase",
        ),
        Column(
            "balance",
            "enum",
            "volatile",
            "which takes longer by an estimate, a rough one without overlap and launches: routing,"
            " routing_bytes ÷ memory_bandwidth of the device spec + all_to_all_bytes ÷ bandwidth of"
            " all links in its fast domain; compute, gemm_flops ÷ its peak_flops of dense BF16,"
            " whatever their dtype; evidence has the numbers and their sources; NULL without a"
            " device spec (see collective_costs) or without one of these numbers",
            values=("routing", "compute"),
        ),
        Column("evidence", "json", "volatile", "what told, as a list of words"),
    ),
    summary=Summary(
        "expert blocks",
        order=34,
        about="FLOP as issued; routing bytes read and written",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("path"),
            Cell("experts"),
            Cell("top_k", "top-k"),
            Cell("capacity"),
            Cell("shared_experts", "shared", blank=(0,)),
            Cell("drops", words=("drops", "")),
            Cell("balance", "bound by"),
        ),
        measures=(
            Measure("blocks", "rows"),
            Measure("runs", "executions"),
            Measure("tokens", "each", "tokens"),
            Measure("expert FLOP per step", "per_step", "gemm_flops"),
            Measure("routing bytes per step", "per_step", "routing_bytes"),
            Measure("all-to-all bytes per step", "per_step", "all_to_all_bytes"),
        ),
    ),
    needs_op_names=True,
)

DENSE: Final = Rule(
    "moe-dense-masked",
    "note",
    "Every token goes through every expert.",
    "The products compute each expert for each token, and weights that are zero for the experts a"
    " token did not choose take the results out again: FLOPs are experts ÷ top_k times what the"
    " choice asks for. No token is dropped and nothing is sorted, so that it is right for few"
    " experts and for checks. Ragged products (MaxText: sparse_matmul=True; jax.lax.ragged_dot)"
    " compute the chosen rows only.",
)
DROPS: Final = Rule(
    "moe-drops-tokens",
    "note",
    "An expert has a fixed number of slots: choices beyond it are dropped.",
    "Tokens are put into C slots of each expert by a mask. What does not fit is left out, and slots"
    " that nobody takes are computed all the same. The capacity factor is C·experts ÷"
    " (tokens·top_k): 1 is just enough if all experts are chosen equally often.",
)
ROUTING: Final = Rule(
    "moe-routing-heavy",
    "note",
    "Routing is estimated to take longer than the experts.",
    "By the device spec, what sorts, gathers, scatters and exchanges rows takes longer than the"
    " FLOPs of the experts: `evidence` of the row has both times. The estimate takes peak rates"
    " and no overlap; small experts, many chosen ones, and rows that are moved more than once do"
    " this.",
)


class MoePass:
    """One row a block of experts and phase."""

    __slots__ = ()

    name: Final = "moe"
    tables: Final = (TABLE,)
    requires: Final = ("matmuls", "ragged_dots", "collectives")
    rules: Final = (DENSE, DROPS, ROUTING)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._moe_run import run

        return run(program, facts)


PASS = MoePass()
