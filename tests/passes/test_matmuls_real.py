"""The matmuls table on real texts: what a query gives, beside what was counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.passes.asking import ask_file
from tests.shared import SHARED, needs_shared, unpacked


@needs_shared
def test_dots_of_the_cases() -> None:
    assert SHARED is not None
    sql = (
        "select name, lhs_dtype, rhs_dtype, out_dtype, algorithm, convert_before,"
        " json_extract(convert_after, '$.to'), json_extract(convert_after, '$.via'), phase"
        " from matmuls"
    )
    before = '[{"operand":0,"from":"bf16","to":"f32","via":"up_fusion"}]'
    assert ask_file(SHARED / "cases/25-bf16-dot-then-upcast.hlo", sql) == [
        ("dot.4", "bf16", "bf16", "bf16", None, None, "f32", "upcast_fusion", "bwd"),
        ("dot.5", "f32", "f32", "f32", "dot_bf16_bf16_f32", before, "bf16", "y.5", "fwd"),
    ]


@needs_shared
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("33a-named-policy-honoured", {"fwd": 1, "bwd": 2}),
        ("33b-named-policy-mistyped", {"fwd": 1, "remat": 1, "bwd": 2}),
    ],
)
def test_dots_by_phase_of_the_cases(file: str, expected: dict[str, int]) -> None:
    assert SHARED is not None
    sql = "select phase, count(*) from matmuls where form = 'dot' group by phase"
    rows = ask_file(SHARED / "cases" / f"{file}.hlo", sql)
    assert sorted(rows) == sorted(expected.items())


@needs_shared
def test_ragged_and_padded_lowering_of_one_ragged_dot() -> None:
    assert SHARED is not None
    sql = "select form, ragged, batch, m, n, k, flops from matmuls"
    grouped = SHARED / "gfx950/moe/ragged-grouped/gfx950_gpu_after_optimizations.txt"
    assert ask_file(grouped, sql) == [("custom_call", 1, 1, 64, 128, 128, 2097152)]
    padded = SHARED / "gfx950/moe/ragged-padded/gfx950_gpu_after_optimizations.txt"
    assert ask_file(padded, sql) == [("dot", 0, 8, 64, 128, 64, 8388608)]


@needs_shared
def test_tpu_convolutions_do_the_work_of_the_dots_before_optimization() -> None:
    """One step before and after: 8 devices share the global FLOPs, phase by phase."""
    dumps = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis"
    sql = (
        "select phase, sum(flops * executions) from matmuls"
        " where lhs_dtype = 'bf16' group by phase order by phase"
    )
    before = ask_file(dumps / "s.full.nowe.before.hlo", sql)
    after = ask_file(dumps / "s.full.nowe.opt.hlo", sql)
    assert [(phase, 8 * int(str(flops))) for phase, flops in after] == before


@needs_shared
def test_every_convolution_of_a_tpu_step_is_a_dot() -> None:
    dumps = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis"
    sql = (
        "select (select count(*) from matmuls where form = 'convolution'),"
        " (select instructions from opcodes where opcode = 'convolution')"
    )
    assert ask_file(dumps / "gemma2-9b.full.tpu7x.opt.hlo", sql) == [(59, 59)]
    assert ask_file(dumps / "v6e_2x4.full.opt.hlo", sql) == [(64, 64)]


@needs_shared
def test_two_quantize_calls_and_one_gemm_with_its_scratch() -> None:
    """TransformerEngine on an MI355: activations and weights to fp8, then one gemm, 64 MiB."""
    assert SHARED is not None
    sql = (
        "select (select count(*) from custom_calls where op = 'quantize'),"
        " (select count(*) from matmuls), target, backend, lhs_dtype, rhs_dtype, out_dtype,"
        " flops, workspace_bytes, dequantized from matmuls"
    )
    for name in ("fp8", "mxfp8"):
        path = SHARED / f"gfx950/precision/{name}/before_optimizations.txt"
        assert ask_file(path, sql) == [
            (
                2, 1, "te_gemm_v2_ffi", "transformer_engine", "f8e4m3fn", "f8e4m3fn", "bf16",
                2 * 128 * 256 * 256, 67109120, None,
            )
        ]  # fmt: skip


@needs_shared
def test_the_eight_of_the_padded_form_is_split_k_and_no_groups() -> None:
    assert SHARED is not None
    padded = SHARED / "gfx950/moe/ragged-padded/gfx950_gpu_after_optimizations.txt"
    sql = "select batch, k, batch * k, split_k, groups, backend, tiles, num_warps from matmuls"
    ((*found, tiles, warps),) = ask_file(padded, sql)
    assert found == [8, 64, 4 * 128, 8, None, "triton"]
    assert (json.loads(str(tiles)), warps) == ({"output": [1, 16, 16], "contracted": [64]}, 2)
    grouped = SHARED / "gfx950/moe/ragged-grouped/gfx950_gpu_after_optimizations.txt"
    sql = "select split_k, groups, k, workspace_bytes from matmuls"
    assert ask_file(grouped, sql) == [(None, 4, 128, 784)]


# -- native and dense, which look alike

# Of a device and layer: 512 tokens, each to 4 of 16 experts of [512, 512].
EXPERT: Final = 2 * (512 * 4) * 512 * 512
RAGGED: Final = (
    "select phase, count(*), max(groups), sum(flops), sum(executions) from matmuls where ragged"
    " group by phase order by phase"
)


@needs_shared
def test_native_ragged_convolutions_do_the_work_of_the_ragged_dots() -> None:
    """Gate, up and down: three products forward, three again, six backward in each of 8 layers.

    The text before optimization has them in a shard_map, in the sizes of a device.
    """
    dumps = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis"
    per_layer = [("bwd", 6), ("fwd", 3), ("remat", 3)]
    expected = [(phase, n, 16, n * EXPERT, n * 8) for phase, n in per_layer]
    for stage, form in (("before", "ragged-dot"), ("opt", "convolution")):
        file = dumps / f"qwen3moe.raggeddot.full.{stage}.hlo"
        assert ask_file(file, RAGGED) == expected
        assert ask_file(file, "select distinct form from matmuls where ragged") == [(form,)]


@needs_shared
def test_the_dense_twin_has_none_and_does_four_times_the_work() -> None:
    """All of 16 experts for each token, where the ragged form has 4."""
    dumps = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis"
    dense = dumps / "qwen3moe.dense.full.opt.hlo"
    assert ask_file(dense, RAGGED) == []
    sql = (
        "select phase, count(*), sum(flops) from matmuls where flops >= 4e9"
        " group by phase order by phase"
    )
    found = ask_file(dense, sql)
    assert found == [
        (phase, n, n * 4 * EXPERT) for phase, n in (("bwd", 6), ("fwd", 3), ("remat", 3))
    ]


# -- the ragged forms of our fixtures

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures/hlo"
AFTER: Final = "after_optimizations.txt"


def test_kernels_and_native_convolutions_of_one_layer_on_a_tpu() -> None:
    """Nine products: six kernels, forward and for the gradients of the rows, and three native
    convolutions for those of the weights. The kernel of the group tables is none."""
    path = FIXTURES / f"moe/ragged-layer/tpu-v6e-1/{AFTER}"
    sql = (
        "select form, backend, count(*), max(groups), sum(flops) from matmuls where ragged"
        " group by form, backend"
    )
    each = 2 * 128 * 128 * 256
    assert sorted(ask_file(path, sql), key=str) == [
        ("convolution", None, 3, 4, 3 * each),
        ("custom_call", "mosaic_tpu", 6, 4, 6 * each),
    ]
    # The three others are the router's.
    assert ask_file(path, "select count(*), sum(flops) from matmuls where not ragged") == [
        (3, 3 * 2 * 64 * 128 * 4)
    ]
    assert ask_file(path, "select count(*) from custom_calls where op = 'ragged_metadata'") == [
        (1,)
    ]


def test_a_device_with_one_expert_still_skips_the_rows_of_others() -> None:
    path = FIXTURES / f"moe/expert-parallel-train/tpu-v6e-8/{AFTER}"
    sql = "select form, count(*), min(groups), max(groups) from matmuls where ragged group by 1"
    assert ask_file(path, sql) == [("convolution", 3, 1, 1), ("custom_call", 6, 1, 1)]


def test_megablox_kernels_have_the_sizes_of_their_contract() -> None:
    path = FIXTURES / f"moe/megablox-layer/tpu-v6e-1/{AFTER}"
    sql = "select phase, m, n, k, groups, flops from matmuls order by phase, k, m"
    flops = 2 * 384 * 256 * 640
    assert ask_file(path, sql) == [
        ("bwd", 384, 640, 256, 6, flops),
        ("bwd", 256, 640, 384, 6, flops),
        ("bwd", 640, 256, 384, 6, flops),
        ("bwd", 384, 256, 640, 6, flops),
        ("fwd", 384, 640, 256, 6, flops),
        ("fwd", 384, 256, 640, 6, flops),
    ]


@pytest.mark.parametrize(
    ("target", "form", "groups", "factor"),
    [
        ("rocm-gfx950", "custom_call", 4, 1),
        ("tpu-v6e-1", "convolution", 4, 1),
        ("cuda-h100", "dot", None, 4),
        ("cpu", "dot", None, 4),
    ],
)
def test_a_ragged_contraction_on_each_target(
    target: str, form: str, groups: int | None, factor: int
) -> None:
    """Rows [64, 128] and [64, 128] give [4, 128, 128]: grouped, or a batch of four masked ones."""
    path = FIXTURES / f"moe/ragged-contracting/{target}/{AFTER}"
    flops = factor * 2 * 64 * 128 * 128
    assert ask_file(path, "select form, groups, flops from matmuls") == [(form, groups, flops)]


@pytest.mark.parametrize(("target", "slices"), [("cuda-h100", 16), ("rocm-gfx950", 8)])
def test_split_k_of_the_padded_form(target: str, slices: int) -> None:
    path = FIXTURES / f"moe/ragged-padded/{target}/{AFTER}"
    sql = "select split_k, batch * k, flops from matmuls"
    assert ask_file(path, sql) == [(slices, 4 * 128, 4 * 2 * 64 * 128 * 128)]


def test_a_gemm_call_that_is_cut() -> None:
    """cuBLASLt takes the slices as a batch; the sum over them is a fusion behind."""
    path = FIXTURES / f"moe/ragged-layer/cuda-h100/{AFTER}"
    sql = "select split_k, batch * k, workspace_bytes from matmuls where form = 'custom_call'"
    assert ask_file(path, sql) == [(8, 4 * 128, 4 << 20)]


# -- fp8


@pytest.mark.parametrize(
    ("target", "made", "level"),
    [
        ("cpu", "f32", "note"),
        ("tpu-v6e-1", "bf16", "note"),
        ("cuda-h100", "bf16", "warning"),
        ("rocm-gfx950", "bf16", "warning"),
    ],
)
def test_an_fp8_matmul_that_no_target_runs_in_fp8(target: str, made: str, level: str) -> None:
    folder = FIXTURES / f"plain/fp8-matmul/{target}"
    sides = ", ".join(f"{side} f8e4m3fn->{made} × scalar" for side in ("lhs", "rhs"))
    assert ask_file(folder / AFTER, "select dequantized from matmuls") == [(sides,)]
    missed = "select level from findings where rule = 'fp8-not-used'"
    assert ask_file(folder / AFTER, missed) == [(level,)]
    assert ask_file(folder / "before_optimizations.txt", missed) == []


@pytest.mark.parametrize("target", ["tpu-v6e-1", "cuda-h100", "rocm-gfx950"])
def test_fp8_operands_that_nothing_widens(target: str) -> None:
    path = FIXTURES / f"plain/fp8-quantized/{target}/{AFTER}"
    assert ask_file(path, "select lhs_dtype, rhs_dtype, dequantized from matmuls") == [
        ("f8e4m3fn", "f8e4m3fn", None)
    ]
    assert ask_file(path, "select * from findings where rule = 'fp8-not-used'") == []
