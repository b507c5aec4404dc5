"""The duplicates table: sorts, norms and rotary tables that several kernels compute again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Cell, Column, Measure, PassResult, Rule, Summary, Table

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

TABLE = Table(
    "duplicates",
    "a redundant group: instructions that compute the same in several kernels, or again in one;"
    " a kernel is a fusion that is in no other, or an instruction outside of fusions; texts before"
    " optimization have none, and no rows",
    (
        *COMMON,
        Column(
            "kind",
            "enum",
            "identity",
            "sort: one order, by sorts of equal keys; norm: the statistic of a layer or RMS norm;"
            " rope: cosines and sines of one argument, and products with them",
            values=("sort", "norm", "rope"),
        ),
        Column(
            "form",
            "enum",
            "identity",
            "recomputed: the same value again, in another kernel or in iterations that do not"
            " change it; split: computed once, over several kernels, with values between them"
            " written to memory; inverse: a sort of the order that another sort made, where a"
            " scatter of 0, 1, 2, … to that order gives the same",
            values=("recomputed", "split", "inverse"),
        ),
        Column(
            "count",
            "int",
            "measure",
            "instructions that compute it, each where it is called; of inverse, the sorts that"
            " give the inverse",
        ),
        Column("kernels", "int", "measure", "kernels that these are in"),
        Column(
            "times",
            "int",
            "measure",
            "runs of these kernels in one execution of the entry; NULL: a trip count or branch"
            " leaves that open",
            unit="times",
        ),
        Column(
            "bytes",
            "bytes",
            "measure",
            "in one execution of the entry, of the values computed again beyond the first; of"
            " split, written between its kernels, of inverse, written by the sorts. NULL: not"
            " known, as for rope that is split",
        ),
        Column("phases", "text", "structural", "phases of its kernels, by commas, in their order"),
        Column(
            "same_phase",
            "bool",
            "structural",
            "whether a phase other than remat computes it more than once, or has such an inverse:"
            " what a checkpoint replays is what it was asked for. NULL where no name tells",
        ),
        Column("value", "text", "structural", "dtype and dimensions of what is computed"),
        Column(
            "evidence",
            "json",
            "volatile",
            "what shows it, as a list of sentences, and why it may be cheap",
        ),
    ),
    summary=Summary(
        "computed more than once",
        order=35,
        about="in one phase, what checkpoints replay left out; bytes of one step",
        by=(
            Cell("kind"),
            Cell("form"),
            Cell("phases"),
            Cell("value"),
        ),
        measures=(
            Measure("groups", "rows"),
            Measure("kernels", "once", "kernels"),
            Measure("runs", "once", "times"),
            Measure("bytes", "once", "bytes"),
        ),
        only=(("same_phase", (True,)),),
    ),
    needs_op_names=True,
)

SORTED_TWICE: Final = Rule(
    "sorted-twice",
    "warning",
    "Sorts of one phase have equal keys: they give the same order.",
    "Two sorts by the same keys, with the same comparator, are one permutation, whatever else they"
    " sort along; a sort in a loop that does not change its keys is one, too. Sort once, with an"
    " index along, and gather the rest by that index. What a checkpoint replays is left out. The"
    " rule stands on the values of the keys, not on names; XLA itself merges sorts only where all"
    " their operands are the same.",
)
INVERSE: Final = Rule(
    "inverse-by-sort",
    "note",
    "A permutation is inverted by sorting it.",
    "`argsort(order)`, where `order` comes of another sort, costs a whole sort. A scatter gives the"
    " same: `zeros(n).at[order].set(arange(n), unique_indices=True)`, or scatter the rows"
    " themselves by `order`. Of an inverse, the inverse is what was there before. Some back ends"
    " rewrite this themselves: in a text after optimization the sort is still there.",
)
NORM: Final = Rule(
    "norm-recomputed",
    "note",
    "Several kernels of one phase compute the statistic of one norm.",
    "The sum of squares of an array is reduced in more than one kernel of a phase, which reads the"
    " array each time. XLA copies a producer into each of its consumers' fusions where it takes"
    " that for cheap. Not meant, as it is no waste: that a norm takes one kernel for the statistic"
    " and others for the product, as a reduce must end before its result is used, and that each"
    " consumer multiplies for itself; nor what a checkpoint replays.",
)
ROPE: Final = Rule(
    "rope-recomputed",
    "note",
    "Cosines and sines of one argument are computed more than once in a phase.",
    "The tables of rotary embeddings depend on positions alone. Several kernels compute them, or a"
    " loop over layers or microbatches does in each iteration, though no iteration changes the"
    " argument. Made once in front of the loop, and kept from being sunk into it, they are read"
    " instead; that pays where cosines cost more than reading them. What a checkpoint replays is"
    " left out.",
)
RULES: Final = {
    ("sort", "recomputed"): SORTED_TWICE,
    ("sort", "inverse"): INVERSE,
    ("norm", "recomputed"): NORM,
    ("rope", "recomputed"): ROPE,
}


class DuplicatesPass:
    """Rows by kind: sorts, norms, rope; within a kind in the order of calls.

    Members: of sorts `sort`, and for an inverse `inverse` and `original`, what it gives back; of
    norms `statistic`, `root`, `apply`; of rope `cosine`, `sine`, `by_cosine`, `by_sine`; of all
    `kernel`, where a fusion is one.
    """

    __slots__ = ()

    name: Final = "duplicates"
    tables: Final = (TABLE,)
    requires: Final = ()
    rules: Final = tuple(RULES.values())

    def run(self, program: Program, facts: Facts) -> PassResult:
        from hlo_lens_passes._duplicates_run import run

        return run(program, facts)


PASS = DuplicatesPass()
