"""The ragged_dots table: every ragged or grouped matmul, what it is and what it became."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

LOWERINGS: Final = (
    "ragged-dot", "grouped_gemm", "cudnn_fusion", "triton_fusion", "mosaic_kernel", "triton_kernel",
    "tpu_native", "dense_padded",
)  # fmt: skip

TABLE = Table(
    "ragged_dots",
    "a matrix multiplication of groups of rows, each with a matrix of its own (ragged_dot),"
    " whatever the compiler made of it",
    (
        *COMMON,
        Column(
            "class",
            "enum",
            "identity",
            "by the dimension numbers: fwd contracts K of weights [G,K,N], dgrad N, wgrad the rows;"
            " of what has no dimension numbers any more, by the dimension of the weights, as they"
            " come into the program, that is contracted; NULL for a ragged batch and where nothing"
            " tells. Weights stored with in and out exchanged, [G,N,K], turn fwd and dgrad round;"
            " what it computes in the step is in direction",
            values=("fwd", "dgrad", "wgrad"),
        ),
        Column(
            "direction",
            "enum",
            "identity",
            "what it computes in the step, by phase and dataflow, however the weights are stored:"
            " the forward, also replayed, or a gradient of rows or weights; as class says where"
            " nothing else tells; NULL where not known, as of a lone dgrad without a name",
            values=("fwd", "dgrad", "wgrad"),
        ),
        Column(
            "role",
            "enum",
            "identity",
            "which projection of an expert, by dataflow: wo takes what others, wi, give, element by"
            " element; gradients by the weights, rows or cotangents they share; else NULL",
            values=("wi", "wo"),
        ),
        Column(
            "projection",
            "enum",
            "identity",
            "of two wi that of which a nonlinearity is taken is gate, the other up; a wi whose"
            " result is split in two is fused; wo is down; else NULL",
            values=("gate", "up", "fused", "down"),
        ),
        Column(
            "variant",
            "enum",
            "structural",
            "what the ragged dimension is: rows, a summed dimension, or a batch; NULL: not known",
            values=("non_contracting", "contracting", "batch"),
        ),
        Column(
            "lowering",
            "enum",
            "structural",
            "what it became: still a ragged-dot; a library's grouped gemm; a fusion of cuDNN or"
            " Triton; a kernel of Mosaic or Triton; a convolution that the TPU compiler runs over"
            " each group's rows only; or a dense product over all groups (of a ragged batch: of all"
            " rows)",
            values=LOWERINGS,
        ),
        Column("backend", "text", "structural", "library or compiler part that runs it, or NULL"),
        Column("groups", "int", "measure", "number of groups (experts)"),
        Column("m", "int", "measure", "as in matmuls; of a wgrad the rows of one matrix, K"),
        Column("n", "int", "measure", "as in matmuls"),
        Column("k", "int", "measure", "summed, of one group; of a wgrad all rows"),
        Column(
            "flops",
            "flops",
            "measure",
            "issued by one execution: of a dense product measured from the dot, all groups and"
            " slices counted; of a grouped one what is useful; NULL while it is a ragged-dot",
        ),
        Column(
            "useful_flops",
            "flops",
            "measure",
            "2·M·K·N, an upper bound, reached when the groups cover every row; of a batch of them,"
            " or of a ragged batch, times its size",
        ),
        Column("factor", "float", "measure", "flops ÷ useful_flops"),
        Column(
            "split_k",
            "int",
            "measure",
            "slices in which a dense product sums, 1: it is not cut; NULL for the others",
        ),
        Column(
            "extra_bytes",
            "bytes",
            "measure",
            "what only the expansion writes to memory in one execution: masked copies of rows, less"
            " the rows in them, and the slices of a split sum, but no masks; 0 where all is fused,"
            " and for what is grouped. A copy that several take counts in each. NULL before"
            " optimization",
        ),
        Column("workspace_bytes", "bytes", "measure", "scratch memory of a library call"),
        Column("evidence", "json", "volatile", "what told, as a list of words"),
        Column(
            "why_not_grouped",
            "text",
            "structural",
            "of a dense product, after optimization: `not supported`, `not enabled` or `unknown`,"
            " and which condition; NULL for the others",
        ),
        Column(
            "checks",
            "json",
            "volatile",
            "conditions of the grouped lowerings of the platform, as [{rule, answer, why}], answer"
            " being yes, no or unknown; NULL where why_not_grouped is",
        ),
        Column("matmul", "int", "volatile", "id of its row in matmuls; NULL where it has none"),
    ),
    summary=Summary(
        "ragged dots",
        order=32,
        about="a dense product computes every row for every group",
        by=(
            Cell("phase"),
            Cell("class"),
            Cell("role"),
            Cell("projection"),
            Cell("lowering"),
            Cell("groups", "groups"),
            Cell("split_k", "split K", blank=(1,)),
        ),
        measures=(
            Measure("ragged dots", "rows"),
            Measure("runs", "executions"),
            Measure("FLOP issued", "per_step", "flops", at_most="useful_flops"),
            Measure("FLOP useful", "per_step", "useful_flops"),
            Measure("bytes extra", "per_step", "extra_bytes"),
        ),
        unknown=(Cell("lowering"),),
    ),
    needs_op_names=True,
    needs_configs=True,
)

PADDED = Rule(
    "ragged-dense-padded",
    "warning",
    "A ragged dot runs as one dense product over all groups.",
    "XLA has no grouped kernel for it there, or was told not to use it, and lays the rows out for"
    " every group, masks what belongs to another one, and contracts groups and K at once"
    " (`ragged_dot_rewriter.cc`). Every row is multiplied by the weights of every group: FLOPs are"
    " `factor` times what is useful, and the masked copies are extra memory. `why_not_grouped` in"
    " `ragged_dots` says which condition of a grouped lowering does not hold, `checks` has all.",
)


class RaggedDotsPass:
    """One row a ragged dot: still there, grouped, in a kernel, or expanded."""

    __slots__ = ()

    name: Final = "ragged_dots"
    tables: Final = (TABLE,)
    requires: Final = ("matmuls", "custom_calls", "modules")
    rules: Final = (PADDED,)

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._ragged_dots_run import run

        return run(program, facts)


PASS = RaggedDotsPass()
