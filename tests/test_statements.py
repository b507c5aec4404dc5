"""What published optimisations say of communication, each sentence as a query on fixtures.

docs/statements.md shows the same sentences and queries, with what the commands print.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.program import load
from tests.test_readme import BLOCK, at_root, output_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "statements.md"

POLICIES = (
    "llama/none-published/rocm-gfx950-8",
    "llama/minimal-with-context-published/rocm-gfx950-8",
    "llama/full-published/rocm-gfx950-8",
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence of a source, and the query that gives its number for each fixture.

    `module` in the query counts the fixtures, from 0: before, after, and what is wrong.
    """

    name: str
    source: str
    says: str
    found: str  # what the fixtures give, and how it scales to what the source says
    fixtures: tuple[str, ...]
    sql: str
    rows: tuple[tuple[object, ...], ...]
    stage: str = "opt"

    @property
    def command(self) -> str:
        folders = " ".join(f"fixtures/hlo/{each}" for each in self.fixtures)
        return f'hlolens query {folders} --stage {self.stage} "{" ".join(self.sql.split())}"'


def pairs(name: str, target: str, *variants: str) -> tuple[str, ...]:
    return tuple(f"pairs/{name}-{variant}/{target}" for variant in variants)


V7X, V6E8, HAND = "tpu-tpu7x-8", "tpu-v6e-8", "hand-made"

STATEMENTS = (
    Statement(
        "policies-static",
        "AMD",
        "FSDP-8 under none, minimal_with_context and full: 8 collectives in each text, results of"
        " 1.076 GiB, and 0, 1, 1 all-gathers under the checkpoint.",
        "9, 1.601 GiB, and 0, 1, 1: [llama.md](llama.md) lists what this program has besides.",
        POLICIES,
        """
        SELECT module, count(*) AS collectives, round(sum(result_bytes) / 1073741824.0, 3) AS gib,
          sum(under_checkpoint AND logical_kind = 'all-gather') AS labelled
        FROM collectives GROUP BY module
        """,
        ((0, 9, 1.601, 0), (1, 9, 1.601, 1), (2, 9, 1.601, 1)),
    ),
    Statement(
        "policies-executed",
        "AMD",
        "Equal counts in the text do not show what runs: loops must be counted. AllGather and"
        " ReduceScatter raise the cost of full.",
        "133 runs and 32.7 GiB in all three: full sends nothing more. Without a checkpoint the"
        " backward gathers in each of the 32 layers, too.",
        POLICIES,
        """
        SELECT module, sum(executions) AS runs,
          round(sum(executions * wire_bytes) / 1073741824.0, 1) AS sent_gib,
          sum(executions * (logical_kind = 'all-gather' AND in_backward_loop)) AS backward_gathers
        FROM collectives GROUP BY module
        """,
        ((0, 133, 32.7, 32), (1, 133, 32.7, 32), (2, 133, 32.7, 32)),
    ),
    Statement(
        "policies-replayed",
        "AMD",
        "A gather is replayed only where it is inside of what is computed again.",
        "The label does not tell: the labelled gather of minimal_with_context feeds the backward's"
        " own products alone. Under full, 6 of the 7 weights of 32 layers feed replayed ones.",
        POLICIES,
        """
        SELECT module, sum(executions * (regather_for IS 'replay')) AS for_replay,
          sum(executions * (regather_for IS 'backward')) AS for_backward
        FROM collective_values WHERE loop IS NOT NULL GROUP BY module
        """,
        ((0, 0, 224), (1, 0, 224), (2, 192, 32)),
    ),
    Statement(
        "outside-of-the-checkpoint",
        "AMD",
        "A collective outside of the checkpointed region runs once; one inside runs again when it"
        " is replayed.",
        "Inside: 4 layers, and 4 replays. In front of the loop: 1, and no replay.",
        pairs("fake-quant", V7X, "in-loop", "absmax"),
        """
        SELECT module, sum(executions) AS runs, sum(executions * under_checkpoint) AS replayed
        FROM collectives WHERE logical_kind = 'all-reduce' AND dtype = 'bf16' GROUP BY module
        """,
        ((0, 8, 4), (1, 1, 0)),
    ),
    Statement(
        "there-and-back",
        "AMD",
        "A ragged all-to-all sends rows to the owners of their experts, and another returns them.",
        "2 in the forward; a training step has 4.",
        ("moe/expert-parallel/rocm-gfx950-8", "moe/expert-parallel-train/rocm-gfx950-8"),
        """
        SELECT module, sum(logical_kind = 'ragged-all-to-all') AS ragged FROM collectives
        GROUP BY module
        """,
        ((0, 2), (1, 4)),
    ),
    Statement(
        "worst-case-buffer",
        "AMD",
        "Without a buffer factor the receive buffer is that of the worst case.",
        "What dispatch gives is as large as what all 8 devices of the group send.",
        ("moe/expert-parallel/rocm-gfx950-8",),
        """
        SELECT operand_shape, group_size, 1.0 * result_bytes / operand_bytes AS factor
        FROM collectives WHERE logical_kind = 'ragged-all-to-all' ORDER BY text_line
        """,
        (("bf16[64,128]", 8, 8.0), ("bf16[512,128]", 8, 0.125)),
    ),
    Statement(
        "experts-alone",
        "GEMM",
        "The ragged products are taken out of their layers, and run alone (AMD: its fixtures have"
        " no ragged all-to-all).",
        "No collective in any of the four.",
        tuple(
            f"moe/{each}/rocm-gfx950"
            for each in ("dense-masked", "fixed-capacity", "ragged-padded", "ragged-grouped")
        ),
        """
        SELECT module, (SELECT count(*) FROM collectives WHERE collectives.module = modules.module)
          AS collectives FROM modules
        """,
        ((0, 0), (1, 0), (2, 0), (3, 0)),
    ),
    Statement(
        "axes",
        "GEMM",
        "FSDP shards parameters and gradients, tensor parallelism splits products, expert"
        " parallelism distributes experts.",
        "Parameters and their gradients move over fsdp, activations over tensor and expert. The"
        " rest is the embedding's rows (fsdp) and gradient (tensor), and the router's gradient.",
        ("llama/full-tensor/rocm-gfx950-8", "moe/expert-parallel-train/rocm-gfx950-8"),
        """
        SELECT axes, sum(moves = 'parameter') AS parameters, sum(moves = 'gradient') AS gradients,
          sum(moves = 'activation') AS activations
        FROM collectives WHERE axes IS NOT NULL GROUP BY axes
        """,
        (('["expert"]', 0, 1, 10), ('["fsdp"]', 3, 3, 2), ('["tensor"]', 0, 1, 6)),
    ),
    Statement(
        "experts-without-fsdp",
        "GEMM",
        "The reduced model of 671B has its experts spread over 8 devices (EP=8), and no FSDP.",
        "No weight of an expert travels, and no gradient of one: 0 parameters, and the replicated"
        " router's gradient is all that is summed.",
        ("moe/expert-parallel-train/rocm-gfx950-8", "moe/expert-parallel-train/tpu-v6e-8"),
        """
        SELECT module, sum(moves = 'parameter') AS parameters,
          group_concat(parameter) FILTER (WHERE moves = 'gradient') AS gradients
        FROM collectives GROUP BY module
        """,
        ((0, 0, "args[0]"), (1, 0, "args[0]")),
    ),
    Statement(
        "absmax",
        "5799",
        "Each layer pays a max all-reduce in forward and replay, 30 in a micro-batch; hoisted it is"
        " one a weight for the whole stack, and the loops hold 0 for 2.",
        "2 in the loops, 8 runs (4 layers × 2; the source: 15 iterations × 2), then 0 and 1. XLA"
        " joins those of both weights. 8 devices, the source has 32.",
        pairs("fake-quant", V7X, "in-loop", "absmax", "gather8"),
        """
        SELECT c.module, sum(c.loop IS NOT NULL) AS in_loops, sum(c.executions) AS runs,
          max(c.arrays) AS weights, max(c.group_size) AS devices
        FROM collectives c
          JOIN call_sites s ON (s.module, s.instr) = (c.module, c.instr)
          JOIN instructions r ON (r.module, r.computation) = (s.module, s.callee)
        WHERE r.opcode = 'maximum' GROUP BY c.module
        """,
        ((0, 2, 8, 2, 8), (1, 0, 1, 2, 8), (2, 0, 1, 2, 8)),
    ),
    Statement(
        "codes",
        "5799",
        "Codes travel as 1 byte an element instead of 2. The SparseCore gathers 8-bit floats; uint8"
        " falls back to the TensorCore.",
        "Half the bytes, on these cores. Wrong: codes that are widened before they travel save"
        " nothing. No scale is gathered here: they are replicated.",
        pairs("fake-quant", V7X, "absmax", "gather8", "uint8", "late"),
        """
        SELECT module, dtype, core, count(*) AS gathers, sum(executions * wire_bytes) AS sent
        FROM collectives WHERE logical_kind = 'all-gather' GROUP BY module, dtype, core
        """,
        (
            (0, "bf16", "sparsecore", 4, 14680064),
            (1, "f8e4m3fn", "sparsecore", 4, 7340032),
            (2, "u8", "tensorcore", 4, 7340032),
            (3, "bf16", "sparsecore", 4, 14680064),
        ),
    ),
    Statement(
        "positions-lowered",
        "5799",
        "Before optimization the backward loop has 4 permutes of int32 ids (2 without segments),"
        " each of half a shard; with the reordered ids saved, 0. Those outside stay.",
        "1 and 0, with one id array and one permute in a reorder; 1 stays outside. Half of"
        " s32[2,128]. Wrong: ids saved in natural order change nothing.",
        pairs("positions", V7X, "replayed", "saved", "natural"),
        """
        SELECT module, sum(loop IS NOT NULL) AS in_loops, sum(loop IS NULL) AS outside,
          sum(executions) AS runs, operand_shape
        FROM collectives WHERE logical_kind = 'collective-permute' GROUP BY module
        """,
        ((0, 1, 1, 5, "s32[2,64]"), (1, 0, 1, 1, "s32[2,64]"), (2, 1, 1, 5, "s32[2,64]")),
        stage="before_optimizations",
    ),
    Statement(
        "positions-compiled",
        "5799",
        "For v7x XLA moves those permutes out of the loop anyway, so their number stays; the loops"
        " lose 47 instructions, 4 selects of ids among them.",
        "1 permute in each, none in a loop; 11 instructions less, 1 select among them (one reorder"
        " of one array).",
        pairs("positions", V7X, "replayed", "saved", "natural"),
        """
        SELECT module, sum(opcode = 'collective-permute-start') AS permutes,
          sum(opcode = 'collective-permute-start' AND loop_depth > 0) AS in_loops,
          sum(loop_depth > 0) AS instructions_in_loops,
          sum(opcode = 'select' AND dtype = 's32' AND loop_depth > 0) AS selects
        FROM instructions GROUP BY module
        """,
        ((0, 1, 0, 203, 1), (1, 1, 0, 192, 0), (2, 1, 0, 203, 1)),
    ),
    Statement(
        "query-gathers",
        "5799",
        "The query weight is gathered once in the forward and 2 times in the backward, then once:"
        " 3 → 2 in the module, 15 × 128 MiB less in a micro-batch; no other collective changes.",
        "The same counts behind the partitioner; 4 layers × 512 KiB less; 8 devices, the source has"
        " 256. Later stages of these compilers merge the two: [pairs.md](pairs.md).",
        pairs("query-gather", V7X, "twice", "once"),
        """
        SELECT module, sum(it AND phase = 'fwd') AS forward,
          sum(it AND in_backward_loop) AS backward,
          sum(it * executions * result_bytes) / 1024 AS kib, max(group_size) AS devices,
          sum(NOT it) AS others
        FROM (SELECT *, logical_kind = 'all-gather' AND parameter_number = 1 AS it FROM collectives)
        GROUP BY module
        """,
        ((0, 1, 2, 6144, 8, 5), (1, 1, 1, 4096, 8, 5)),
        stage="after_spmd_partitioner",
    ),
    Statement(
        "query-gradient",
        "5799",
        "After optimization too, 2 gathers and then 1; the gradient is still scattered. A plain"
        " constraint makes that an all-reduce.",
        "Hand-made. The constraint sends as much as the second gather did.",
        pairs("hand-query-gather", HAND, "twice", "once", "constrained"),
        """
        SELECT module, sum(logical_kind = 'all-gather') AS gathers,
          sum(logical_kind = 'reduce-scatter') AS scattered,
          sum(logical_kind = 'all-reduce') AS summed, sum(executions * wire_bytes) AS sent
        FROM collectives WHERE in_backward_loop GROUP BY module
        """,
        ((0, 2, 1, 0, 5505024), (1, 1, 1, 0, 3670016), (2, 1, 0, 1, 5505024)),
    ),
    Statement(
        "query-queue",
        "5799",
        "The gather for dx is queued behind the reduce-scatters of dK and dV on one SparseCore, 18"
        " compute instructions ahead of its use; the replay's, which replaces it, is the first.",
        "Hand-made: behind 2, 3 ahead of its use; of the same shard (its second gather).",
        pairs("hand-query-queue", HAND, "twice", "once"),
        """
        SELECT module, c.name, core, queue_before, issued_before_use, gather_number, feeds_name
        FROM collectives c JOIN collective_costs USING (module, id)
        WHERE logical_kind = 'all-gather' ORDER BY module, c.text_line
        """,
        (
            (0, "gathered-start", "sparsecore", 0, 2, 1, "q"),
            (0, "again-start", "sparsecore", 2, 3, 2, "dx"),
            (1, "gathered-start", "sparsecore", 0, 2, 1, "q"),
        ),
    ),
    Statement(
        "query-landed",
        "5799",
        "The matmul for dx then reads the replay's gather through a bitcast, 566 compute"
        " instructions after it lands.",
        "Hand-made: 5 after; the second gather lands right in front of it.",
        pairs("hand-query-queue", HAND, "twice", "once"),
        """
        SELECT dx.module, landed.name, w.opcode AS reads,
          (SELECT count(*) FROM instructions i JOIN opcodes o USING (module, opcode)
            WHERE i.module = dx.module AND o.class IN ('contraction', 'custom', 'elementwise')
              AND i.text_line > landed.text_line AND i.text_line < dx.text_line) AS computed
        FROM instructions dx
          JOIN edges e ON (e.module, e.user, e.operand) = (dx.module, dx.id, 1)
          JOIN instructions w ON (w.module, w.id) = (e.module, e.producer)
          LEFT JOIN edges b ON (b.module, b.user) = (w.module, w.id) AND w.opcode = 'bitcast'
          JOIN instructions landed
            ON (landed.module, landed.id) = (w.module, coalesce(b.producer, w.id))
        WHERE dx.name = 'dx' ORDER BY dx.module
        """,
        ((0, "again", "async-done", 0), (1, "gathered", "bitcast", 5)),
    ),
    Statement(
        "norm-scales",
        "5474",
        "A convert between the all-reduce and the FP32 carry keeps 8 reductions of norm gradients a"
        " layer in the loop; multiplied in FP32 they leave it.",
        "Hand-made, one scale: 4 runs, then 1. Wrong: reduced in the loop and behind it.",
        pairs("hand-norm-scale", HAND, "in-loop", "hoisted", "wrong"),
        """
        SELECT c.module, c.loop_name, c.executions AS runs, c.dtype, w.kind, w.blocked_by
        FROM collectives c
          LEFT JOIN collective_waste w ON (w.module, w.collective) = (c.module, c.id)
        ORDER BY c.module, runs DESC
        """,
        (
            (0, "while", 4, "bf16", "accumulate_only", "convert"),
            (1, None, 1, "f32", None, None),
            (2, "while", 4, "bf16", "accumulate_only", "convert"),
            (2, None, 1, "f32", None, None),
        ),
    ),
    Statement(
        "norm-scale-sharded",
        "5474",
        "A scale that alone is sharded is left out of the combined reduction: each layer pays its"
        " own collective.",
        "Replicated: 1 of two arrays, once, in BF16 as in FP32 (the convert keeps nothing in the"
        " loop of this compiler). Sharded: 1 for the other scale, and 3 in the loops, 12 runs.",
        pairs("norm-scale", V6E8, "bf16", "f32", "sharded"),
        """
        SELECT module, max(arrays) AS combined, sum(loop IS NULL) AS outside,
          sum(loop IS NOT NULL) AS in_loops, sum(executions) AS runs,
          (SELECT blocked_by FROM collective_waste w
            WHERE w.module = c.module AND w.kind = 'left_out') AS left_out_by
        FROM collectives c GROUP BY module
        """,
        ((0, 2, 1, 0, 1, None), (1, 2, 1, 0, 1, None), (2, 1, 1, 3, 13, "sharding")),
    ),
)

IDS = [statement.name for statement in STATEMENTS]


@pytest.mark.parametrize("statement", STATEMENTS, ids=IDS)
def test_the_query_gives_the_number(statement: Statement) -> None:
    folders = [ROOT / "fixtures" / "hlo" / each for each in statement.fixtures]
    programs = [Facts(load(folder, stage=statement.stage)) for folder in folders]
    assert tuple(run_query(programs, statement.sql).rows) == statement.rows


# ---------------------------------------------------------------------------------- the page


def table() -> str:
    rows = ["| | source | says | the fixtures |", "|---|---|---|---|"]
    for number, each in enumerate(STATEMENTS, 1):
        rows.append(f"| {number} | {each.source} | {each.says} | {each.found} |")
    return "\n".join(rows) + "\n"


def question(number: int, each: Statement) -> str:
    """What stands in front of an output."""
    folders = ", ".join(f"`{folder}`" for folder in each.fixtures)
    sql = textwrap.dedent(each.sql).strip()
    return (
        f"{number}. {folders}, `--stage {each.stage}`:\n\n```sql\n{sql}\n```\n\n"
        f"<!-- output of: {each.command} -->\n```\n"
    )


QUESTIONS = tuple(question(number, each) for number, each in enumerate(STATEMENTS, 1))


def test_the_page_has_the_sentences_and_their_queries() -> None:
    text = PAGE.read_text()
    assert table() in text
    places = [text.find(each) for each in QUESTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert text.count("output of:") == len(STATEMENTS)


@pytest.mark.parametrize("block", list(BLOCK.finditer(PAGE.read_text())), ids=IDS)
def test_an_output_on_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_statements` writes the page anew"
        )


if __name__ == "__main__":
    old = PAGE.read_text()
    before, _, rest = old.partition("| | source |")
    prose = rest[rest.index("\n\n") : rest.index("\n1. ") + 1]
    with at_root():
        shown = [
            f"{asked}{output_of(each.command, None)}```\n"
            for asked, each in zip(QUESTIONS, STATEMENTS, strict=True)
        ]
    PAGE.write_text(before + table().rstrip("\n") + prose + "\n".join(shown))
