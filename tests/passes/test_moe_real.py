"""Expert blocks of real texts: the published gfx950 products, MaxText's Qwen3 and probes on TPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.program import load
from tests.passes.asking import ask_file
from tests.shared import SHARED, needs_shared, unpacked

pytestmark = needs_shared

Rows = list[tuple[object, ...]]

# Qwen3's 16 experts of width 512, 512 tokens that choose 4, 8 layers; of one product of all tokens
# with all experts, and of one of the chosen rows.
ALL = 2 * 512 * 16 * 512 * 512
CHOSEN = 2 * 512 * 4 * 512 * 512


@cache
def _facts(name: str) -> Facts:
    folder = unpacked("dumps/tpu-maxtext.tar.xz")
    (path,) = folder.rglob(name)
    return Facts(load(path))


def asked(name: str, sql: str) -> Rows:
    return run_query([_facts(name)], sql).rows


def roles(name: str, phase: str) -> list[str]:
    sql = f"""select m.role from members m join moe on moe.id = m.row
              where m."table" = 'moe' and moe.phase = '{phase}' order by 1"""
    return [str(role) for (role,) in asked(name, sql)]


def rules(name: str) -> set[str]:
    _facts(name).rows("moe")
    return {one.rule for one in _facts(name).findings if one.rule.startswith("moe-")}


# -- the published products -----------------------------------------------------------------------


def product(case: str, stage: str) -> Path:
    assert SHARED is not None
    return SHARED / "gfx950" / "moe" / case / stage


def test_published_products() -> None:
    sql = "select path, experts, capacity, tokens, drops, gemm_flops from moe"
    before, after = "before_optimizations.txt", "gfx950_gpu_after_optimizations.txt"
    # f16 [64,4,128]: each of 64 tokens an output for each of 4 experts.
    assert ask_file(product("dense-masked", before), sql) == [
        ("dense_masked", 4, None, 64, 0, 2 * 64 * 4 * 128 * 128)
    ]
    # f16 [4,16,128]: 16 slots an expert.
    assert ask_file(product("fixed-capacity", before), sql) == [
        ("fixed_capacity", 4, 16, 64, 1, 2 * 4 * 16 * 128 * 128)
    ]
    grouped = 2 * 64 * 128 * 128
    assert ask_file(product("ragged-grouped", after), sql) == [
        ("ragged", 4, None, None, 0, grouped)
    ]
    # Padded: a contraction of 4·128, of which one group in four counts.
    assert ask_file(product("ragged-padded", after), sql) == [
        ("ragged", 4, None, None, 0, 4 * grouped)
    ]


# -- Qwen3 in MaxText -----------------------------------------------------------------------------

BLOCK = """select phase, path, experts, tokens, top_k, shared_experts, gated, executions, gemm_flops
           from moe order by id"""


def qwen(path: str, flops: int) -> Rows:
    """Three products forward, and again under full remat; six gradients."""
    return [
        (phase, path, 16, 512, 4, 0, 1, 8, count * flops)
        for phase, count in (("fwd", 3), ("remat", 3), ("bwd", 6))
    ]


def test_qwen_dense_is_four_times_the_chosen_rows() -> None:
    name = "qwen3moe.dense.full.opt.hlo"
    assert asked(name, BLOCK) == qwen("dense_masked", ALL)
    assert ALL == 4 * CHOSEN
    forward = roles(name, "fwd")
    assert [role for role in forward if role in ("gate", "up", "down", "router", "combine")] == [
        "combine", "down", "gate", "router", "up",
    ]  # fmt: skip
    assert rules(name) == {"moe-dense-masked"}


@pytest.mark.parametrize("stage", ["before", "opt"])
def test_qwen_ragged_computes_the_chosen_rows(stage: str) -> None:
    name = f"qwen3moe.raggeddot.full.{stage}.hlo"
    assert asked(name, BLOCK) == qwen("ragged", CHOSEN)
    assert rules(name) == set()


def test_what_routes_in_qwen() -> None:
    name = "qwen3moe.raggeddot.full.opt.hlo"
    # TPU packs a score and its place into 32 bits, and sorts rows of 16 to choose 4.
    top_k = 2 * 4 * 512 * 16
    # Rows by expert, and back: lists of 2,048 of keys, places and places once more.
    sorts = 2 * 2 * 3 * 4 * 2048
    # 2,048 rows of 512 bf16 there, and back; a row is read and written.
    gathers = 2 * (4 * 2048 + 2 * 2 * 2048 * 512)
    counts = 4 * 2048 + 2 * 4 * 2048
    ends = 3 * (2 * 4 * 16)
    (row,) = asked(name, "select routing_ops, routing_bytes from moe where phase = 'fwd'")
    assert row == (1 + 2 + 2 + 1 + 3, top_k + sorts + gathers + counts + ends)
    assert roles(name, "fwd") == [
        "dispatch", "dispatch", "dispatch", "down", "gate", "gather", "gather", "router",
        "scatter", "sort", "sort", "top_k", "up",
    ]  # fmt: skip
    # All-to-alls of the embedding are none of the experts'.
    assert asked(name, "select distinct all_to_all_bytes from moe") == [(0,)]


# -- probes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path", "flops"),
    # Two products of 8 experts, not gated: 512 to 1,024 and back, of 1,024 tokens that choose 2.
    [
        ("moe.v6e_2x2.dense.instrd.jax0.12.0.1.opt.hlo", "dense_masked", 2 * 1024 * 8 * 512 * 1024),
        ("moe.v6e_2x2.ragged.instr1.jax0.12.0.1.opt.hlo", "ragged", 2 * 1024 * 2 * 512 * 1024),
    ],
)
def test_probes_on_v6e(name: str, path: str, flops: int) -> None:
    sql = "select phase, path, experts, tokens, top_k, gated, gemm_flops from moe order by id"
    assert asked(name, sql) == [
        ("fwd", path, 8, 1024, 2, 0, 2 * flops),
        ("bwd", path, 8, 1024, 2, 0, 4 * flops),
    ]


def corpus(number: str) -> Path:
    return unpacked("corpus/hlo-corpus.tar.xz") / "valid" / f"{number}.hlo"


def test_deepseek_with_shared_experts() -> None:
    # 64 experts of width 1,408 and two shared ones (2,816), 6 chosen; a decode step has one token.
    sql = "select path, experts, tokens, top_k, shared_experts, gated, gemm_flops from moe"
    each = 3 * 2 * 64 * 2048 * 1408
    assert ask_file(corpus("14138"), sql) == [("dense_masked", 64, 64, 6, 2, 1, 64 * each)]
    assert ask_file(corpus("14137"), sql) == [("dense_masked", 64, 1, 6, 2, 1, each)]


def test_mixtral_with_an_expert_a_device() -> None:
    # 32 layers unrolled, no op_names: what is replayed is in the row of the forward. A device has
    # 8·1,024 rows, three products, and as many again; six gradients.
    sql = """select phase, path, experts, local_experts, capacity, tokens, top_k, drops, gated,
             gemm_flops from moe group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 having count(*) = 32"""
    flops = 6 * 2 * 8192 * 4096 * 14336
    block = ("fixed_capacity", 8, None, 1024, 4096, 2, 1, 1, flops)
    assert ask_file(corpus("09950"), sql) == [(None, *block), ("bwd", *block)]


@pytest.mark.parametrize(
    "name",
    ["llama2-7b.unroll32.full.opt.hlo", "gemma2-9b.full.tpu7x.opt.hlo", "s.full.nowe.opt.hlo"],
)
def test_dense_models_have_no_experts(name: str) -> None:
    assert asked(name, "select count(*) from moe") == [(0,)]
