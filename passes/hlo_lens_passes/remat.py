"""The remat and remat_ops tables: what checkpoints compute again, and what only says it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

VERDICTS: Final = (
    "replayed", "shared", "sole", "linearization", "fusion-duplicated", "unknown",
)  # fmt: skip
BASES: Final = ("value", "name", "source", "use", "place", "opcode")
KINDS: Final = ("framework", "compiler", "unlabelled")
_KIND = Column(
    "kind",
    "enum",
    "identity",
    "framework: labelled `rematted_computation`; compiler: XLA's own rematerialization named it"
    " `.remat`; unlabelled: told by structure alone, in a text without op_names",
    values=KINDS,
)

REGIONS = Table(
    "remat",
    "a checkpointed region in the backward: what has one label, in one loop, behind one barrier",
    (
        *COMMON,
        _KIND,
        Column(
            "scope",
            "text",
            "identity",
            "op_name in front of the label, without the program; NULL: no label",
        ),
        Column("depth", "int", "structural", "checkpoints inside each other there, from 1"),
        Column(
            "barrier",
            "ref",
            "volatile",
            "the opt-barrier in front of it; NULL for none, as in every optimized TPU text",
        ),
        Column(
            "verdict",
            "enum",
            "structural",
            "recomputed: a matmul, kernel or collective is replayed; undone: one was before"
            " optimization, and is no more; else the cheapest that holds of what it has: shared,"
            " sole, linearization, fusion-duplicated, replayed (cheap operations alone), unknown",
            values=("recomputed", "undone", *VERDICTS),
        ),
        Column("operations", "int", "measure", "labelled instructions that compute something"),
        Column(
            "matmuls",
            "int",
            "measure",
            "matmuls replayed that sum over something; a windowed einsum is one",
        ),
        Column(
            "kernels",
            "int",
            "measure",
            "custom calls of kernels replayed, and convolutions that are no matmuls",
        ),
        Column("collectives", "int", "measure", "logical collectives replayed"),
        Column(
            "flops",
            "flops",
            "measure",
            "of the replayed matmuls, in one execution of the entry; NULL: a count is not known",
        ),
        Column(
            "forward_flops",
            "flops",
            "measure",
            "of all matmuls of the forward under its scope, in one execution of the entry",
        ),
        Column(
            "recompute_factor",
            "float",
            "measure",
            "flops ÷ forward_flops; regions of one scope add up",
        ),
        Column(
            "saved_bytes",
            "bytes",
            "measure",
            "forward values that its backward loop, or what is behind its barrier, reads; NULL"
            " where it has neither, and where no stack is known that its loop reads",
        ),
        Column(
            "undone",
            "int",
            "measure",
            "matmuls, kernels and arrays of collectives of its scope that were replayed before"
            " optimization and are not after it; NULL: one stage",
        ),
        Column("evidence", "text", "volatile", "why it has this verdict, as a sentence"),
    ),
    summary=Summary(
        "remat regions",
        order=16,
        about="FLOP is what one step replays; copies in fusions are not counted",
        by=(
            Cell("kind"),
            Cell("verdict"),
            Cell("scope"),
            Cell("depth", blank=(1,)),
        ),
        measures=(
            Measure("regions", "rows"),
            Measure("matmuls", "once", "matmuls"),
            Measure("kernels", "once", "kernels"),
            Measure("collectives", "once", "collectives"),
            Measure("FLOP", "once", "flops"),
            Measure("saved", "once", "saved_bytes"),
        ),
    ),
    needs_op_names=True,
)

OPERATIONS = Table(
    "remat_ops",
    "an instruction that a checkpoint, or the compiler, makes again, under one verdict",
    (
        *COMMON,
        _KIND,
        Column("region", "int", "volatile", "id of its row in remat"),
        Column("opcode", "text", "structural", "what it does"),
        Column(
            "verdict",
            "enum",
            "identity",
            "replayed: the forward computes the same; shared: the forward takes it, and has no"
            " other; sole: the forward never needed it, so nothing is done twice; linearization: a"
            " factor of a derivative; fusion-duplicated: a copy in a fusion of what is computed"
            " anyway; unknown",
            values=VERDICTS,
        ),
        Column(
            "work",
            "enum",
            "structural",
            "matmul, kernel (a convolution that is no matmul, too) or collective; NULL for what is"
            " cheap",
            values=("matmul", "kernel", "collective"),
        ),
        Column("twin", "ref", "volatile", "the forward instruction it repeats, or that takes it"),
        Column("twin_name", "text", "volatile", "name of that"),
        Column("flops", "flops", "measure", "of one run"),
        Column(
            "times",
            "int",
            "measure",
            "runs under this label in one execution of the entry",
            unit="times",
        ),
        Column(
            "basis",
            "enum",
            "structural",
            "what the verdict rests on. value: both compute the same from the same; name: path and"
            " source are the same, the form is another; source: the forward does the like from that"
            " line; use: who takes it; place: the loop around it; opcode: what derivatives are not"
            " made of",
            values=BASES,
        ),
        Column("evidence", "text", "volatile", "why, as a sentence"),
    ),
    needs_op_names=True,
)

RULES: Final = (
    Rule(
        "remat-without-names",
        "note",
        "The text has no op_names, so no label says what a checkpoint computes again.",
        "`lowered.as_text()` prints none unless it is asked for debug information. What stands"
        " behind a barrier, or in a loop that reads what another has stacked, and computes what an"
        " earlier instruction does, is in the table remat all the same, as `unlabelled`. That there"
        " is nothing proves nothing.",
    ),
    Rule(
        "remat-undone",
        "warning",
        "The compiler has undone a checkpoint.",
        "Before optimization a matmul, kernel or collective of the region is computed again behind"
        " its barrier; after optimization nothing of it is. Common subexpression elimination merges"
        " the two once the barriers are gone, as XLA for the CPU does with unrolled layers: the"
        " values stay in memory as if there were no checkpoint. Needs both stages.",
    ),
    Rule(
        "residual-saved-twice",
        "warning",
        "A forward loop stacks the same value twice for the backward.",
        "Two stacked residuals of a loop hold the same value, but for its dtype or shape, in each"
        " iteration. A policy that saves a named value and the product it names does that, and so"
        " do two policies put together. The bytes of one of them are for nothing.",
    ),
)


class RematPass:
    """Regions of a module in text order, framework before compiler; operations by region.

    Members of remat: `barrier`, `loop`, `replayed`, `twin` (of those), `operation` (the others).
    Members of remat_ops: `operation`, `twin`.
    """

    __slots__ = ()

    name: Final = "remat"
    tables: Final = (REGIONS, OPERATIONS)
    requires: Final = ("collectives", "custom_calls", "matmuls", "residuals")
    rules: Final = RULES

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._remat_run import run

        return run(program, facts)


PASS = RematPass()
