"""The columns of the attention table, how it is shown, and the rules about its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hlo_lens.facts import COMMON, Cell, Column, Finding, Measure, Rule, Summary, Table

Row = dict[str, Any]
Numbered = Sequence[tuple[int, Row]]

ROUTES: Final = (
    "cudnn", "transformer_engine", "aiter", "triton", "mosaic", "exposed", "other",
)  # fmt: skip

TABLE: Final = Table(
    "attention",
    "an attention, its forward and its backward a row each: a kernel (the kernels of one backward"
    " together), or the products and the softmax that the text spells out; K and V are computed"
    " from data, or may be, and not weights",
    (
        *COMMON,
        Column(
            "route",
            "enum",
            "structural",
            "what computes it: the library or compiler of the kernel; exposed: products and a"
            " softmax of HLO's own; a product may be a dot, a convolution, a call of a gemm, or a"
            " multiply with a sum behind it, as of one query",
            values=ROUTES,
        ),
        Column(
            "direction",
            "enum",
            "identity",
            "forward or backward; NULL where the kernel's name does not fix it",
            values=("fwd", "bwd"),
        ),
        Column(
            "recomputed",
            "bool",
            "structural",
            "whether a forward runs again: under the label of rematerialization, or on the values"
            " of an earlier one; evidence says which",
        ),
        Column(
            "kernel", "text", "structural", "name of the kernel, else the target; of several, all"
        ),
        Column(
            "causal",
            "bool",
            "structural",
            "whether a query sees no key behind it: as the kernel's config says, else as the mask"
            " compares positions; NULL where the mask is data or not told",
        ),
        Column(
            "window",
            "int",
            "structural",
            "how many keys a query sees at most, itself included; NULL for no window, and where"
            " the text does not tell",
            unit="keys",
        ),
        Column("batch", "int", "measure", "sequences, on one device; NULL where not told apart"),
        Column("heads", "int", "measure", "heads of Q, on one device"),
        Column("kv_heads", "int", "measure", "heads of K and V: fewer where heads are grouped"),
        Column("q_length", "int", "measure", "queries of a sequence and head"),
        Column("kv_length", "int", "measure", "keys of a sequence and head"),
        Column("head_dim", "int", "measure", "depth of Q and K"),
        Column(
            "score_shape",
            "text",
            "structural",
            "dtype and dimensions of the scores: of the product that makes them, else of their"
            " gradient; of a cuDNN kernel, what its config names and a flash kernel does not write",
        ),
        Column(
            "score_bytes",
            "bytes",
            "measure",
            "size of the largest array that score_values counts; where it counts none, or is NULL,"
            " of one of score_shape",
        ),
        Column(
            "score_values",
            "int",
            "measure",
            "arrays with a number for each query and key that the site writes to memory, scores and"
            " what is computed from them (masks and constants are not): results of fusions and of"
            " instructions in none, in optimized text; of a stack that a loop writes, its slice of"
            " an iteration; those that a backward reads and the forward wrote count there",
            unit="arrays",
        ),
        Column(
            "score_written_bytes",
            "bytes",
            "measure",
            "size of all these arrays together, each in its own dtype, of one execution; they need"
            " not be in memory at the same time",
        ),
        Column(
            "softmax_dtype",
            "text",
            "structural",
            "dtype of the exponential, where exposed",
            dtypes=True,
        ),
        Column(
            "flops",
            "flops",
            "measure",
            "of one execution, for all queries × keys, masked ones too: the products of an exposed"
            " site, as often as they are issued; of a kernel 2 products forward, 5 backward (QKᵀ"
            " again, dV, dP, dQ, dK)",
        ),
        Column(
            "causal_fraction",
            "float",
            "measure",
            "part of the scores that positions leave: (S + 1) / 2S of a causal square, less of a"
            " window, 1 where nothing is left out; segments and padding are not counted; NULL"
            " where not known",
        ),
        Column(
            "workspace_bytes",
            "bytes",
            "measure",
            "scratch memory that its kernels take",
        ),
        Column(
            "fell_back",
            "bool",
            "structural",
            "whether it is exposed while another site of the module, with as many queries or keys,"
            " is a kernel; with a kernel whose lengths are not told too, as evidence says",
        ),
        Column("evidence", "json", "volatile", "what the row is known by, a list of texts"),
    ),
    summary=Summary(
        "attention",
        order=33,
        about="FLOP of all queries × keys; score bytes of all arrays in memory, of one run",
        by=(
            Cell("route"),
            Cell("direction"),
            Cell("phase"),
            Cell("loop"),
            Cell("kernel"),
            Cell("causal", words=("causal", "")),
            Cell("{q_length}×{kv_length}", "queries × keys"),
        ),
        measures=(
            Measure("sites", "rows"),
            Measure("runs", "executions"),
            Measure("in memory", "each", "score_values"),
            Measure("score bytes", "each", "score_written_bytes"),
            Measure("FLOP per step", "per_step", "flops"),
        ),
        unknown=(Cell("route"), Cell("kernel")),
    ),
    needs_op_names=True,
)

FELL_BACK: Final = Rule(
    "attention-fell-back",
    "warning",
    "Attention is spelled out while other attention of the module is a kernel.",
    "One site runs as a fused kernel (cuDNN, Transformer Engine, AITER, Triton, Mosaic), this one"
    " as products and a softmax with its scores in memory: often a shape, dtype, mask, bias or"
    " head_dim that the kernel does not take, or a backward without one. A kernel of other lengths"
    " says nothing; one of which they are not known is taken as alike. One finding is of the"
    " sites of a loop that are alike; its evidence are their rows and that of a kernel.",
)
IN_MEMORY: Final = Rule(
    "attention-scores-in-memory",
    "note",
    "Exposed attention writes its scores to memory.",
    "Arrays with a number for each query and key grow with the square of the sequence; a fused"
    " kernel keeps them on the chip. score_values counts the results of fusions and of"
    " instructions in none that are scores or computed from them, score_written_bytes is their size"
    " together, in one run. One finding is of the sites of a loop that are alike.",
)
AGAIN: Final = Rule(
    "attention-forward-twice",
    "note",
    "The forward of an exposed attention runs again in the backward.",
    "Its row is `recomputed`: it stands under rematted_computation, or computes what an earlier"
    " site did. A checkpoint policy that saves the output leaves one run. One finding is of the"
    " sites of a loop that are alike. Of kernels, `kernel-run-again` tells.",
)
TWICE: Final = Rule(
    "attention-product-twice",
    "note",
    "An exposed attention computes a product more than once in one phase.",
    "The compiler has copied a product into several fusions, as that of TPUs does with Q·Kᵀ for the"
    " maximum of the softmax and for its exponential: its FLOP are spent again, its result is not"
    " kept. The values are the same by `analysis.congruence`, and the loop and phase too; flops"
    " counts each. After optimization only. One finding is of the sites of a loop that are alike.",
)
RULES: Final = (FELL_BACK, IN_MEMORY, AGAIN, TWICE)


def share_a_length(site: Row, kernel: Row) -> bool | None:
    """Whether two have as many queries, or as many keys; None where neither is known of both."""
    both = [(site[name], kernel[name]) for name in ("q_length", "kv_length")]
    known = [one == other for one, other in both if None not in (one, other)]
    return any(known) if known else None


def kernel_beside(site: Row, kernels: Sequence[Row]) -> Row | None:
    """The kernel that a spelled out site would be: of its lengths, else of lengths not known."""
    for answer in (True, None):
        found = (one for one in kernels if share_a_length(site, one) is answer)
        if (first := next(found, None)) is not None:
            return first
    return None


def fell_back(rows: Numbered) -> Iterator[Finding]:
    kernels = {id(row): number for number, row in rows if row["route"] != "exposed"}
    fused = [row for _, row in rows if row["route"] != "exposed"]
    for alike in _alike([one for one in rows if one[1]["fell_back"]]):
        row = alike[0][1]
        kernel = kernel_beside(row, fused)
        if kernel is None:
            continue
        number = kernels[id(kernel)]
        why = (
            f"{_who(alike)} spelled out ({row['direction']}), while %{kernel['name']} is a"
            f" {kernel['route']} kernel ({kernel['direction']})"
        )
        yield _finding(FELL_BACK, why, alike, ("attention", number))


def in_memory(rows: Numbered, arrays: Mapping[int, str]) -> Iterator[Finding]:
    """arrays: dtypes and dimensions of what is written, by row."""
    for alike in _alike([one for one in rows if one[1]["score_values"]], arrays):
        number, row = alike[0]
        if number not in arrays:
            continue
        count, total = row["score_values"], row["score_written_bytes"]
        many = "1 array" if count == 1 else f"{count} arrays"
        each = "each " if len(alike) > 1 else ""
        size = "" if total is None else f", {total:,} bytes a run"
        why = (
            f"{_who(alike)} exposed attention ({row['direction']}): {each}{many} of scores in"
            f" memory, {arrays[number]}{size}"
        )
        yield _finding(IN_MEMORY, why, alike)


def repeated(rows: Numbered, twice: Mapping[int, Sequence[str]]) -> Iterator[Finding]:
    """twice: what a row computes more than once, in words."""
    # Names of fusions differ between layers that are alike.
    words = {
        number: "; ".join(text.split(" inside %")[0] for text in twice[number])
        for number, _ in rows
    }
    for alike in _alike([one for one in rows if words[one[0]]], words):
        number, row = alike[0]
        told = "; ".join(twice[number]) if len(alike) == 1 else words[number]
        why = f"{_who(alike)} exposed attention ({row['direction']}): {told}"
        yield _finding(TWICE, why, alike)


def again(rows: Numbered) -> Iterator[Finding]:
    exposed = [one for one in rows if one[1]["route"] == "exposed" and one[1]["recomputed"]]
    for alike in _alike(exposed):
        runs = [one["executions"] for _, one in alike]
        known = [one for one in runs if isinstance(one, int)]
        step = f"{sum(known):,} times a step" if len(known) == len(runs) else "in the backward"
        why = f"{_who(alike)} the forward of an exposed attention run again, {step}"
        yield _finding(AGAIN, why, alike)


def _alike(rows: Numbered, told: Mapping[int, str] | None = None) -> list[list[tuple[int, Row]]]:
    """Sites of one loop that are alike, in what is told of them too: unrolled layers are many."""
    names = ("route", "direction", "loop", "kernel", "score_shape", "score_values", "phase")
    groups: dict[tuple[object, ...], list[tuple[int, Row]]] = {}
    for number, row in rows:
        key = (*(row.get(name) for name in names), None if told is None else told.get(number))
        groups.setdefault(key, []).append((number, row))
    return [*groups.values()]


def _who(alike: Numbered) -> str:
    name = f"%{alike[0][1]['name']}"
    return f"{name} is" if len(alike) == 1 else f"{name} and {len(alike) - 1} more are"


def _finding(rule: Rule, why: str, alike: Numbered, *evidence: tuple[str, int]) -> Finding:
    first = alike[0][1]
    rows = tuple(("attention", number) for number, _ in alike)
    return Finding(rule.id, rule.level, why, first["module"], first["instr"], (*rows, *evidence))
