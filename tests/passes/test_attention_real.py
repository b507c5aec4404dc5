"""Attention in the published cases, in our fixtures on four targets, and in dumps of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.passes.asking import ask_file
from tests.shared import SHARED, needs_shared, unpacked

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"
TARGETS = ("cpu", "tpu-v6e-1", "cuda-h100", "rocm-gfx950")
STAGES = ("before_optimizations", "after_optimizations")
SITES = "select route, direction, phase, recomputed, count(*) from attention group by 1, 2, 3, 4"
SIZES = "select batch, heads, kv_heads, q_length, kv_length, head_dim from attention"


def case(name: str) -> Path:
    assert SHARED is not None
    return next((SHARED / "cases").glob(f"{name}-*.hlo"))


@needs_shared
def test_case_11_is_cudnn_once_forward_and_once_backward() -> None:
    sql = (
        "select direction, kernel, causal, batch, heads, q_length, head_dim, score_values,"
        " workspace_bytes from attention order by direction desc"
    )
    forward, backward = "__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"
    assert ask_file(case("11"), sql) == [
        ("fwd", forward, 1, 2, 4, 128, 64, 0, 0),
        ("bwd", backward, 1, 2, 4, 128, 64, 0, 65536),
    ]
    assert ask_file(case("11"), SITES) == [
        ("cudnn", "bwd", "bwd", 0, 1),
        ("cudnn", "fwd", "fwd", 0, 1),
    ]


@needs_shared
def test_case_13_runs_the_forward_kernel_twice() -> None:
    sql = "select direction, phase, recomputed, kernel from attention order by id"
    assert ask_file(case("13"), sql) == [
        ("fwd", "fwd", 0, "fa_fwd"),
        ("fwd", "remat", 1, "fa_fwd"),
        ("bwd", "bwd", 0, "fa_dkv, fa_dq"),
    ]
    # Calls of kernels: 4; with the forward saved they would be 3.
    calls = "select count(*) from members where \"table\" = 'attention' and role = 'call'"
    assert ask_file(case("13"), calls) == [(4,)]


@needs_shared
def test_the_softmax_chain_of_gfx950_by_its_members() -> None:
    assert SHARED is not None
    path = SHARED / "gfx950/attention/xla/before_optimizations.txt"
    sql = """
        select m.role, i.name from members m join instructions i on i.id = m.instr
        where m."table" = 'attention' order by 1
    """
    assert ask_file(path, sql) == [
        ("div", "div.7"), ("exp", "exp.1"), ("mask", "select_n.3"), ("max", "reduce_max.7"),
        ("pv", "dot_general.3"), ("qk", "dot_general.2"), ("scale", "mul.3"),
        ("sum", "reduce_sum.7"),
    ]  # fmt: skip
    sql = "select route, direction, causal, softmax_dtype, score_shape, score_bytes from attention"
    assert ask_file(path, sql) == [("exposed", "fwd", 1, "f32", "f32[1,8,128,1,128]", 524288)]


@needs_shared
def test_the_call_of_transformer_engine_on_gfx950() -> None:
    assert SHARED is not None
    path = SHARED / "gfx950/attention/te/before_optimizations.txt"
    sql = "select route, direction, causal, window, fell_back from attention"
    assert ask_file(path, sql) == [("transformer_engine", "fwd", 1, None, 0)]
    assert ask_file(path, SIZES) == [(1, 8, 8, 128, 128, 64)]
    operands = """
        select json_array_length(c.operand_layouts) from custom_calls c join attention a
        on a.instr = c.instr
    """
    assert ask_file(path, operands) == [(14,)]


# ---------------------------------------------------------------------------------- fixtures


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stage", STAGES)
def test_one_forward_and_one_backward_on_each_target(target: str, stage: str) -> None:
    path = FIXTURES / "attention" / "xla-train" / target / f"{stage}.txt"
    sql = "select route, direction, causal, recomputed, fell_back from attention order by 2"
    assert ask_file(path, sql) == [("exposed", "bwd", 1, 0, 0), ("exposed", "fwd", 1, 0, 0)]
    assert ask_file(path, SIZES) == [(1, 8, 8, 128, 128, 64)] * 2
    product = 2 * 8 * 128 * 128 * 64
    rows = ask_file(path, "select direction, flops from attention")
    flops = {str(direction): count for direction, count in rows}
    # The TPU compiler makes the scores again in the backward.
    again = target.startswith("tpu") and stage == STAGES[1]
    assert flops == {"fwd": 2 * product, "bwd": (5 if again else 4) * product}
    gradients = ask_file(path, "select evidence from attention where direction = 'bwd'")
    assert "gradient products: dv, dp, dq, dk" in json.loads(str(gradients[0][0]))


@pytest.mark.parametrize("target", ["cuda-h100", "rocm-gfx950"])
def test_scores_of_8_gib_at_production_sizes(target: str) -> None:
    path = FIXTURES / "attention" / "xla-train-production" / target / "after_optimizations.txt"
    sql = (
        "select direction, score_shape, score_bytes, score_values, score_written_bytes"
        " from attention order by 1 desc"
    )
    assert ask_file(path, sql) == [
        # Two arrays forward: the scores in f32 and the probabilities in bf16.
        ("fwd", "f32[128,4096,4096]", 8 << 30, 2, 12 << 30),
        # And backward: what P is made of in f32, dP in bf16.
        ("bwd", "bf16[128,4096,4096]", 8 << 30, 2, 12 << 30),
    ]
    assert ask_file(path, SIZES)[0] == (4, 32, 32, 4096, 4096, 128)
    fused = FIXTURES / "attention" / "cudnn-train-production/cuda-h100/after_optimizations.txt"
    assert ask_file(fused, "select sum(score_values) from attention") == [(0,)]


@pytest.mark.parametrize(
    ("folder", "route", "directions"),
    [
        ("cudnn/cuda-h100", "cudnn", ["fwd"]),
        ("cudnn-train/cuda-h100", "cudnn", ["bwd", "fwd"]),
        ("te-train/rocm-gfx950", "transformer_engine", ["bwd", "fwd"]),
        ("aiter-train/rocm-gfx950", "aiter", ["bwd", "fwd"]),
        ("triton-train/cuda-h100", "triton", ["bwd", "fwd"]),
        ("triton-train-gfx950/rocm-gfx950", "triton", ["bwd", "fwd"]),
        ("splash-train/tpu-v6e-1", "mosaic", ["bwd", "fwd"]),
        ("xla/cpu", "exposed", ["fwd"]),
    ],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_site_a_direction_by_every_library(
    folder: str, route: str, directions: list[str], stage: str
) -> None:
    path = FIXTURES / "attention" / folder / f"{stage}.txt"
    found = ask_file(path, "select route, direction from attention order by direction")
    assert found == [(route, direction) for direction in directions]
    sizes = ask_file(path, SIZES)
    depth = 128 if folder.startswith("splash-train") else 64
    assert sizes == [(1, 8, 8, 128, 128, depth)] * len(directions)


@pytest.mark.parametrize("target", TARGETS)
def test_grouped_heads_on_each_target(target: str) -> None:
    """8 heads of queries over 2 of keys, forward and backward."""
    path = FIXTURES / "attention" / "gqa-train" / target / "after_optimizations.txt"
    assert ask_file(path, SIZES) == [(3, 8, 2, 192, 192, 64)] * 2
    product = 2 * 3 * 8 * 192 * 192 * 64
    sql = "select direction, causal, flops from attention order by 1"
    assert ask_file(path, sql) == [("bwd", 1, 4 * product), ("fwd", 1, 2 * product)]


@pytest.mark.parametrize("target", TARGETS)
def test_no_mask_and_other_lengths_of_queries_and_keys(target: str) -> None:
    path = FIXTURES / "attention" / "bidirectional" / target / "after_optimizations.txt"
    assert ask_file(path, SIZES) == [(3, 8, 2, 96, 160, 64)]
    assert ask_file(path, "select causal, causal_fraction from attention") == [(0, 1.0)]


def test_a_window_that_a_kernel_names() -> None:
    path = FIXTURES / "attention" / "cudnn-window-train" / "cuda-h100/after_optimizations.txt"
    sql = "select distinct causal, window, round(causal_fraction * 192 * 192) from attention"
    # 48 rows that see 1 to 48 keys, then 144 that see 48.
    assert ask_file(path, sql) == [(1, 48, 48 * 49 // 2 + 144 * 48)]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("one-fell-back/cuda-h100", [("cudnn", "bwd", 0), ("cudnn", "fwd", 0),
                                     ("exposed", "bwd", 1), ("exposed", "fwd", 1)]),
        ("forward-only-fused/cuda-h100", [("exposed", "bwd", 1), ("triton", "fwd", 0)]),
    ],
)  # fmt: skip
def test_what_fell_back(folder: str, expected: object) -> None:
    path = FIXTURES / "attention" / folder / "after_optimizations.txt"
    assert ask_file(path, "select route, direction, fell_back from attention order by 1, 2") == (
        expected
    )


@pytest.mark.parametrize(
    ("folder", "again"),
    [
        ("cudnn-full-remat/cuda-h100", 1), ("cudnn-saved/cuda-h100", 0),
        ("splash-full-remat/tpu-v6e-1", 1), ("splash-saved/tpu-v6e-1", 0),
        ("triton-full-remat/cuda-h100", 1),
    ],
)  # fmt: skip
def test_a_forward_that_is_saved_runs_once(folder: str, again: int) -> None:
    path = FIXTURES / "attention" / folder / "after_optimizations.txt"
    sql = "select count(*), coalesce(sum(recomputed), 0) from attention where direction = 'fwd'"
    assert ask_file(path, sql) == [(1 + again, again)]


@pytest.mark.parametrize(
    ("folder", "again"),
    [
        ("full-published/rocm-gfx950-8", True),
        ("full-tensor/rocm-gfx950-8", True),
        ("full-accumulated/rocm-gfx950-8", True),
        ("minimal-with-context-published/rocm-gfx950-8", False),
        ("none-published/rocm-gfx950-8", False),
        ("none-v6e/tpu-v6e-8", False),
    ],
)
def test_a_llama_by_its_checkpoint_policy(folder: str, again: bool) -> None:
    """Full rematerialization runs the forward again; what saves the context or all does not."""
    path = FIXTURES / "llama" / folder / "after_optimizations.txt"
    expected = [("exposed", "bwd", "bwd", 0, 1), ("exposed", "fwd", "fwd", 0, 1)]
    expected += [("exposed", "fwd", "remat", 1, 1)] if again else []
    assert ask_file(path, SITES) == expected
    ((evidence,),) = ask_file(path, "select evidence from attention where direction = 'bwd'")
    saved = "takes the probabilities that a forward made, by the flow of the values"
    assert (saved in json.loads(str(evidence))) == folder.startswith("none")
    runs = ask_file(path, "select distinct executions, causal from attention")
    assert len(runs) == 1
    assert runs[0][1] == 1


WRITTEN = """
    select a.phase, i.name, a.score_bytes, a.score_values, a.score_written_bytes
    from members m join attention a on a.id = m.row join instructions i on i.id = m.instr
    where m."table" = 'attention' and m.role = 'written' order by a.phase, i.name
"""


def test_the_arrays_of_scores_of_a_llama_by_name() -> None:
    """The number that the mask fills in is an array of the entry, and none of scores."""
    path = FIXTURES / "llama" / "full-published" / "rocm-gfx950-8" / "after_optimizations.txt"
    sizes = (8 << 30, 2, 12 << 30)
    assert ask_file(path, WRITTEN) == [
        ("bwd", "fusion.162", *sizes), ("bwd", "gemm_fusion_dot.106", *sizes),
        ("fwd", "fusion.65", *sizes), ("fwd", "gemm_fusion_dot.109", *sizes),
        ("remat", "fusion.161", *sizes), ("remat", "gemm_fusion_dot.103", *sizes),
    ]  # fmt: skip


@pytest.mark.parametrize("folder", ["softcap", "xla", "xla-train"])
def test_all_products_of_a_text_of_attention_alone_are_its_own(folder: str) -> None:
    path = FIXTURES / "attention" / folder / "tpu-v6e-1" / "after_optimizations.txt"
    sql = "select sum(flops), (select sum(flops) from matmuls) from attention"
    ((mine, all_of_them),) = ask_file(path, sql)
    assert mine == all_of_them


# ---------------------------------------------------------------------------------- dumps


def dump(name: str) -> Path:
    return next(unpacked("dumps/tpu-maxtext.tar.xz").rglob(name))


@needs_shared
@pytest.mark.parametrize(
    ("name", "layers", "runs"),
    [
        # 32 layers in a row; 21 iterations of two layers, local and global; 8 iterations.
        ("llama2-7b.unroll32.full.opt.hlo", 32, 1),
        ("gemma2-9b.full.tpu7x.opt.hlo", 2, 21),
        ("qwen3moe.dense.full.opt.hlo", 1, 8),
        ("qwen3moe.raggeddot.full.opt.hlo", 1, 8),
        ("qwen3moe.raggeddot.full.before.hlo", 1, 8),
    ],
)
def test_splash_runs_twice_under_full_remat(name: str, layers: int, runs: int) -> None:
    path = dump(name)
    assert ask_file(path, SITES) == [
        ("mosaic", "bwd", "bwd", 0, layers),
        ("mosaic", "fwd", "fwd", 0, layers),
        ("mosaic", "fwd", "remat", 1, layers),
    ]
    sql = "select distinct executions, batch, heads, q_length, kv_length, head_dim from attention"
    assert ask_file(path, sql) == [(runs, 1, 4, 512, 512, 128)]
    kernels = """
        select count(*) from members m join attention a on a.id = m.row
        where m."table" = 'attention' and a.direction = 'bwd'
    """
    assert ask_file(path, kernels) == [(2 * layers,)]  # dq and dkv


@needs_shared
@pytest.mark.parametrize(
    ("name", "again", "saved", "shape"),
    [
        ("v6e_2x4.full.opt.hlo", True, False, "f32[2,16,2048,2048]"),
        ("v6e_2x4.minimal_with_context.opt.hlo", False, False, "f32[2,16,2048,2048]"),
        ("v6e_2x4.none.opt.hlo", False, True, "f32[2,16,2048,2048]"),
        ("s.full.nowe.opt.hlo", True, True, "f32[4,8,512,512]"),
    ],
)
def test_dots_of_a_tpu_dump(name: str, again: bool, saved: bool, shape: str) -> None:
    path = dump(name)
    expected = [("exposed", "bwd", "bwd", 0, 1), ("exposed", "fwd", "fwd", 0, 1)]
    expected += [("exposed", "fwd", "remat", 1, 1)] if again else []
    assert ask_file(path, SITES) == expected
    sql = "select distinct executions, causal, score_shape from attention where direction = 'fwd'"
    assert ask_file(path, sql) == [(4, 1, shape)]
    # Without the products of its own scores the backward takes what the forward left.
    own = """
        select count(*) from members m join attention a on a.id = m.row
        where m."table" = 'attention' and a.direction = 'bwd' and m.role = 'exp'
    """
    assert (ask_file(path, own) == [(0,)]) == saved


@needs_shared
@pytest.mark.parametrize(
    ("policy", "flops", "twice", "written"),
    [
        ("full", 1374389534720, ("fwd", "remat"),
         [("bwd", "fusion.852", 1 << 28), ("fwd", "fusion.866", 1 << 29),
          ("remat", "fusion.840", 1 << 29)]),
        ("minimal_with_context", 1236950581248, ("bwd", "fwd"),
         [("bwd", "fusion.789", 3 << 28), ("bwd", "fusion.793", 3 << 28),
          ("fwd", "fusion.808", 1 << 29)]),
        ("none", 962072674304, ("fwd",),
         [("bwd", "fusion.804", 1 << 28),
              ("fwd", "bitcast_dynamic-update-slice_fusion.20", 5 << 28),
              ("fwd", "bitcast_dynamic-update-slice_fusion.21", 5 << 28),
              ("fwd", "fusion.787", 5 << 28)]),
    ],
)  # fmt: skip
def test_a_tpu_makes_the_scores_twice_for_one_softmax(
    policy: str, flops: int, twice: tuple[str, ...], written: list[tuple[str, str, int]]
) -> None:
    path = dump(f"v6e_2x4.{policy}.opt.hlo")
    both = "select sum(flops * executions) from"
    assert ask_file(path, f"{both} attention") == [(flops,)]
    assert ask_file(path, f"{both} matmuls where batch = 32") == [(flops,)]
    sql = "select phase from attention where evidence like '%Q·Kᵀ is computed 2 times, in 2 fus%'"
    assert ask_file(path, f"{sql} order by 1") == [(phase,) for phase in twice]
    rows = [(phase, name, total) for phase, name, _, _, total in ask_file(path, WRITTEN)]
    assert rows == written


@needs_shared
def test_layers_with_other_masks_are_told_apart_by_what_splash_takes() -> None:
    """Of gemma2, local layers take blocks of a mask, global ones positions."""
    sql = """
        select direction, count(*) from attention where evidence like ?
        group by 1 order by 1
    """
    for words in ("blocks of its mask as data, s32[1,512,512]", "q_sequence s32[512,128]"):
        found = ask_file(dump("gemma2-9b.full.tpu7x.opt.hlo"), sql.replace("?", f"'%{words}%'"))
        assert found == [("bwd", 1), ("fwd", 2)]


@needs_shared
@pytest.mark.parametrize("name", ["moe.v6e_2x2.dense*.hlo", "moe.v6e_2x2.ragged*.hlo"])
def test_experts_and_their_router_alone_are_no_attention(name: str) -> None:
    assert ask_file(dump(name), SITES) == []
