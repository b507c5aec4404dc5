"""The custom_calls table on the published cases, real dumps and our fixtures, by SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.facts import Facts
from hlo_lens.program import load
from tests.decode.test_kernels import forget
from tests.passes.asking import ask_file
from tests.shared import SHARED, needs_shared, unpacked

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures/hlo"
AGAIN = "kernel-run-again"


def shared(path: str) -> Path:
    assert SHARED is not None
    return SHARED / path


def maxtext(name: str) -> Path:
    return unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis" / name


def again(path: Path) -> list[str]:
    facts = Facts(load(path))
    facts.rows("custom_calls")
    return [one.message for one in facts.findings if one.rule == AGAIN]


def loaded(value: object) -> Any:
    return json.loads(str(value))


# -- cases


@needs_shared
def test_cudnn_attention_runs_once_forward_and_once_backward() -> None:
    case = shared("cases/11-cudnn-fmha-fwd-bwd.hlo")
    sql = (
        "select direction, phase, sum(executions), workspace_bytes, epilogue, gathered_operands"
        " from custom_calls group by 1, 2"
    )
    assert ask_file(case, sql) == [
        ("bwd", "bwd", 1, 65536, None, 0),
        ("fwd", "fwd", 1, 0, None, 0),
    ]
    assert again(case) == []


@needs_shared
def test_the_forward_kernel_is_run_again_in_backward() -> None:
    case = shared("cases/13-pallas-triton-kernels-full-remat.hlo")
    sql = "select grid, num_warps, num_stages from custom_calls where kernel = 'fa_fwd'"
    assert ask_file(case, sql) == [("[1,1,1]", 4, 2)] * 2
    (said,) = again(case)
    assert said.startswith(
        "fa_fwd runs again in remat: fa_fwd.2 (1x a step), after fa_fwd.1 (1x a step); same values"
    )
    linked = (
        "select role, count(*) from members where \"table\" = 'custom_calls'"
        " and role in ('first', 'again') group by 1"
    )
    assert ask_file(case, linked) == [("again", 1), ("first", 1)]


@needs_shared
def test_the_operand_that_is_gathered_in_front_of_the_kernel() -> None:
    case = shared("cases/21-custom-call-operand-gathered.hlo")
    sql = "select name, gathered_operands, gathered_by, epilogue, aliasing from custom_calls"
    norm, gemm = ask_file(case, sql)
    assert norm == ("custom-call.1", 0, "[]", None, "[]")
    assert (gemm[0], gemm[1], gemm[3], gemm[4]) == ("custom-call.2", 1, "DEFAULT", "[]")
    assert loaded(gemm[2]) == [{"operand": 0, "collective": "all-gather.1", "kind": "all-gather"}]


# -- gfx950


@needs_shared
def test_the_contract_of_transformer_engine_attention() -> None:
    """14 operands; a BF16 output, the FP32 row state, the RNG state and bytes."""
    te = shared("gfx950/attention/te/before_optimizations.txt")
    sql = (
        "select family, op, direction, operand_layouts, result_layouts, workspace_bytes,"
        " api_version, json_extract(config, '$.attn_heads') from custom_calls"
    )
    ((family, op, direction, operands, results, workspace, version, heads),) = ask_file(te, sql)
    assert (family, op, direction) == ("transformer_engine", "attention", "fwd")
    assert len(loaded(operands)) == 14
    assert [shape.partition("[")[0] for shape in loaded(results)] == ["bf16", "f32", "u32", "u8"]
    assert (workspace, version, heads) == (1, "API_VERSION_TYPED_FFI", 8)


@needs_shared
@pytest.mark.parametrize("case", ["fp8", "mxfp8"])
def test_two_quantize_calls_and_one_gemm_with_workspace(case: str) -> None:
    path = shared(f"gfx950/precision/{case}/before_optimizations.txt")
    sql = (
        "select op, count(*), max(workspace_bytes) from custom_calls"
        " where family = 'transformer_engine' group by 1 order by 1"
    )
    (gemm, calls, workspace), quantize = ask_file(path, sql)
    assert (gemm, calls, quantize) == ("gemm", 1, ("quantize", 2, None))
    assert isinstance(workspace, int)
    assert workspace > 0
    # The new amax is written into the operand that holds the old one.
    sql = "select distinct aliasing from custom_calls where op = 'quantize'"
    assert ask_file(path, sql) == [('[{"output":[4],"operand":2}]',)]


# -- MaxText: one forward kernel a layer, and once more under full remat


@needs_shared
@pytest.mark.parametrize(
    ("name", "layers", "tile"),
    [
        ("gemma2-9b.full.tpu7x.opt.hlo", 42, 512),  # 21 iterations of a local and a global layer
        ("llama2-7b.unroll32.full.opt.hlo", 32, 512),
        ("qwen3moe.raggeddot.full.opt.hlo", 8, 512),
    ],
)
def test_splash_attention_runs_forward_twice_under_full_remat(
    name: str, layers: int, tile: int
) -> None:
    path = maxtext(name)
    sql = (
        "select direction, phase, sum(executions), min(json_extract(tiles, '$.block_q'))"
        " from custom_calls where family = 'mosaic_tpu' and op = 'attention'"
        " group by 1, 2 order by 1, 2"
    )
    assert ask_file(path, sql) == [
        ("bwd", "bwd", 2 * layers, None),  # dQ, and dK with dV
        ("fwd", "fwd", layers, tile),
        ("fwd", "remat", layers, tile),
    ]
    (said,) = again(path)
    assert f"({layers}x a step); same values" in said


@needs_shared
def test_the_kernels_of_gemma_are_local_and_global() -> None:
    sql = (
        "select count(distinct body_hash), count(*) from custom_calls"
        " where kernel = 'splash_mha_fwd_segmented_residuals'"
    )
    assert ask_file(maxtext("gemma2-9b.full.tpu7x.opt.hlo"), sql) == [(2, 4)]


@needs_shared
def test_a_program_that_saves_what_attention_gives_runs_no_kernel_again() -> None:
    for name in ("v6e_2x4.minimal_with_context.opt.hlo", "v6e_2x4.none.opt.hlo"):
        path = maxtext(name)
        sql = "select count(*) from custom_calls where family like 'mosaic%'"
        assert ask_file(path, sql) == [(0,)]
        assert again(path) == []


# -- our fixtures, with jaxlib and without it


def test_the_kernels_of_the_fixtures_without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_lens.decode.kernels._context", lambda: None)
    forget()
    sql = "select kernel, body_from, body_ops is null, length(body_hash) from custom_calls"
    splash = FIXTURES / "attention/splash-train/tpu-v6e-1/after_optimizations.txt"
    assert ask_file(splash, sql) == [
        ("splash_mha_fwd_residuals", "bytes", 1, 16),
        ("splash_mha_dq_no_residuals", "bytes", 1, 16),
        ("splash_mha_dkv_no_residuals", "bytes", 1, 16),
    ]
    forget()


@pytest.mark.jax
def test_the_kernels_of_the_fixtures_with_jaxlib() -> None:
    forget()
    splash = FIXTURES / "attention/splash-train/tpu-v6e-1/after_optimizations.txt"
    sql = (
        "select kernel, body_from, json_extract(body_ops, '$.\"tpu.matmul\"'), grid,"
        " (select count(*) from json_each(buffers) where value ->> 'role' = 'window')"
        " from custom_calls"
    )
    assert ask_file(splash, sql) == [
        ("splash_mha_fwd_residuals", "mlir", 2, "[8,1,1]", 9),
        ("splash_mha_dq_no_residuals", "mlir", 3, "[8,1,1]", 9),
        ("splash_mha_dkv_no_residuals", "mlir", 4, "[1,8,1]", 11),
    ]
    for case in ("triton-train/cuda-h100", "triton-train-gfx950/rocm-gfx950"):
        path = FIXTURES / "attention" / case / "after_optimizations.txt"
        sql = (
            "select kernel, json_extract(body_ops, '$.\"tt.dot\"'), grid, num_warps"
            " from custom_calls"
        )
        assert [(row[0], row[1]) for row in ask_file(path, sql)] == [
            ("mha_forward", 2),
            ("mha_preprocess_backward", None),
            ("mha_backward", 7),
        ]


@pytest.mark.jax
def test_a_kernel_is_the_same_before_and_after_optimization() -> None:
    forget()
    sql = "select body_hash, body_ops from custom_calls"
    for case in ("splash/tpu-v6e-1", "triton/cuda-h100", "triton-gfx950/rocm-gfx950"):
        folder = FIXTURES / "attention" / case
        before, after = (
            ask_file(folder / f"{stage}_optimizations.txt", sql) for stage in ("before", "after")
        )
        assert before == after
