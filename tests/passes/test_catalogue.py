"""The catalogue: what names mean, which entry wins, and how a user adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hlo_lens_passes._catalogue import CatalogueError, Entry, catalogue, configured


def said(target: str, *paths: Path) -> tuple[str, str | None, str | None]:
    """(family, op, direction) of a target, the user's catalogues being `paths`."""
    entry = catalogue(paths).target(target)
    return entry.family, entry.op, entry.direction


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("__cublas$gemm", ("cublas", "gemm", None)),
        ("__cublas$lt$matmul", ("cublaslt", "gemm", None)),
        ("__cublas$lt$matmul$f8", ("cublaslt", "gemm", None)),
        ("__cublas$lt$matmul$mx", ("cublaslt", "scaled_gemm", None)),
        ("__cublas$lt$groupedMatmul", ("cublaslt", "grouped_gemm", None)),
        ("__cublas$triangularSolve", ("cublas", "triangular_solve", None)),
        ("__cudnn$convForward", ("cudnn", "convolution", "fwd")),
        ("__cudnn$convBiasActivationForward", ("cudnn", "convolution", "fwd")),
        ("__cudnn$convForwardGraph", ("cudnn", "convolution", "fwd")),
        ("__cudnn$convBackwardInput", ("cudnn", "convolution", "bwd")),
        ("__cudnn$convBackwardFilter", ("cudnn", "convolution", "bwd")),
        ("__cudnn$norm", ("cudnn", "norm", None)),
        ("__cudnn$fmhaSoftmax", ("cudnn", "attention", "fwd")),
        ("__cudnn$fmhaSoftmaxF8", ("cudnn", "attention", "fwd")),
        ("__cudnn$fmhaScaleBiasSoftmaxDropout", ("cudnn", "attention", "fwd")),
        ("__cudnn$fmhaSoftmaxBackward", ("cudnn", "attention", "bwd")),
        ("__cudnn$fmhaSoftmaxBackwardF8", ("cudnn", "attention", "bwd")),
        ("__cudnn$fmhaScaleBiasSoftmaxDropoutBackward", ("cudnn", "attention", "bwd")),
        ("__cudnn$blockScaledDot", ("cudnn", "scaled_gemm", None)),
        ("__cusolver$cholesky", ("cusolver", "cholesky", None)),
        ("cusolver_getrf_ffi", ("cusolver", "lu", None)),
        ("hipsolver_gesvdj_ffi", ("hipsolver", "svd", None)),
        ("cusparse_csr_matvec_ffi", ("cusparse", "sparse_matvec", None)),
        ("lapack_sgetrf_ffi", ("lapack", "lu", None)),
        ("lapack_zheevd_ffi", ("lapack", "eigh", None)),
        ("te_gemm_ffi", ("transformer_engine", "gemm", None)),
        ("te_grouped_gemm_ffi", ("transformer_engine", "grouped_gemm", None)),
        ("te_norm_forward_ffi", ("transformer_engine", "norm", "fwd")),
        ("te_layernorm_forward_fp8", ("transformer_engine", "norm", "fwd")),
        ("te_fused_attn_forward_ffi", ("transformer_engine", "attention", "fwd")),
        ("te_fused_attn_backward_ffi", ("transformer_engine", "attention", "bwd")),
        ("te_dbias_quantize_ffi", ("transformer_engine", "quantize", None)),
        ("te_act_lu_ffi", ("transformer_engine", "activation", "fwd")),
        ("te_dact_dbias_quantize_ffi", ("transformer_engine", "activation", "bwd")),
        ("te_scaled_masked_softmax_backward_ffi", ("transformer_engine", "softmax", "bwd")),
        ("MhaFwdUnifiedJA", ("jax_aiter", "attention", "fwd")),
        ("MhaBwdUnifiedJA", ("jax_aiter", "attention", "bwd")),
        ("GemmFp8Mi350FwdJA", ("jax_aiter", "gemm", None)),
        ("__gpu$xla.gpu.triton", ("triton", "kernel", None)),
        ("mosaic_gpu_v2", ("mosaic_gpu", "kernel", None)),
        ("tpu_custom_call", ("mosaic_tpu", "kernel", None)),
        ("Sharding", ("sharding", "constraint", None)),
        ("SPMDFullToShardShape", ("sharding", "global_to_local", None)),
        ("xla.sdy.FuncResultSharding", ("sharding", "constraint", None)),
        ("MoveToHost", ("offload", "move_to_host", None)),
        ("annotate_device_placement", ("offload", "annotate_placement", None)),
        ("TopK", ("xla", "topk", None)),
        ("AllocateBuffer", ("buffer", "allocate", None)),
        ("X64SplitLow", ("xla", "x64_split", None)),
        ("hip_threefry2x32_ffi", ("jax_rocm", "rng", None)),
        ("xla_ffi_python_cpu_callback", ("callback", "host_callback", None)),
        ("SparseDenseMatmulGradOpWithOptimizerUpdate", ("sparsecore", "embedding_update", "bwd")),
        ("AwsNeuronTransferWithStaticRing", ("neuron", "weight_transfer", None)),
        ("AwsNeuronRmsNormBackward", ("neuron", "norm", "bwd")),
        ("__onednn$matmul", ("onednn", "gemm", None)),
        ("__cub$DeviceRadixSort", ("cub", "sort", None)),
        ("xla.gpu.ext.cub_sort_pairs", ("cub", "sort", None)),
    ],
)
def test_what_a_target_is(target: str, expected: tuple[str, str | None, str | None]) -> None:
    assert said(target) == expected


@pytest.mark.parametrize("target", ["my_kernel", "", "sharding", "te", "__cudnn", "xte_gemm_ffi"])
def test_a_name_that_only_resembles_one_is_unknown(target: str) -> None:
    assert said(target) == ("unknown", None, None)


def test_a_variant_without_an_entry_keeps_its_library_and_no_direction() -> None:
    assert said("__cudnn$fmhaPagedSoftmax") == ("cudnn", "attention", None)
    assert said("__cublas$lt$somethingNew") == ("cublaslt", None, None)


def test_a_kernel_is_known_by_its_name() -> None:
    known = catalogue(())
    assert known.kernel("splash_mha_dkv_segmented_no_residuals") == Entry(
        op="attention", direction="bwd", source="jax/experimental/pallas/ops/tpu/splash_attention"
    )
    assert known.kernel("ragged-dot-metadata").op == "ragged_metadata"  # type: ignore[union-attr]
    assert known.kernel("ragged-dot-none").op == "grouped_gemm"  # type: ignore[union-attr]
    assert known.kernel("my_kernel") is None


def test_async_parts_belong_to_their_operation() -> None:
    known = catalogue(())
    assert known.opcode_class("all-gather-start") == "communication"
    assert known.opcode_class("dynamic-slice-done") == "indexing"
    assert known.opcode_class("async-start") == "control"
    assert known.opcode_class("quantum-start") == "unknown"


def test_an_exact_name_beats_a_pattern_and_the_longest_pattern_the_others(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [[target]]
        patterns = ["acme_*"]
        family = "acme"
        [[target]]
        patterns = ["acme_gemm*"]
        family = "acme"
        op = "gemm"
        [[target]]
        names = ["acme_gemm_bwd"]
        family = "acme"
        op = "gemm"
        direction = "bwd"
        """,
    )
    assert said("acme_norm", path) == ("acme", None, None)
    assert said("acme_gemm_fwd", path) == ("acme", "gemm", None)
    assert said("acme_gemm_bwd", path) == ("acme", "gemm", "bwd")


def test_a_users_entry_wins_even_as_a_pattern(tmp_path: Path) -> None:
    path = written(tmp_path, '[[target]]\npatterns = ["te_*"]\nfamily = "our_fork"\n')
    assert said("te_gemm_ffi", path) == ("our_fork", None, None)
    assert said("__cublas$gemm", path) == ("cublas", "gemm", None)


def test_the_first_file_wins_over_the_next(tmp_path: Path) -> None:
    first = written(tmp_path, '[[target]]\nnames = ["x"]\nfamily = "one"\n', "one.toml")
    second = written(tmp_path, '[[target]]\nnames = ["x"]\nfamily = "two"\n', "two.toml")
    assert said("x", first, second) == ("one", None, None)
    assert said("x", second, first) == ("two", None, None)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, '[[target]]\nnames = ["x"]\nfamily = "old"\n')
    assert said("x", path)[0] == "old"
    import os

    written(tmp_path, '[[target]]\nnames = ["x"]\nfamily = "new"\n')
    os.utime(path, ns=(1, 1))
    assert said("x", path)[0] == "new"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[target]\n", "not TOML"),
        ('[[targets]]\nnames=["x"]\nfamily="f"\n', "no 'targets' here"),
        ('target = "x"\n', "written [[target]]"),
        ('[[target]]\nnames=["x"]\n', "family is missing"),
        ('[[target]]\nfamily="f"\n', "names or patterns are missing"),
        ('[[target]]\nnames="x"\nfamily="f"\n', "is no value for names"),
        ('[[target]]\nnames=["x"]\nfamily="f"\ndirection="up"\n', "is no value for direction"),
        ('[[target]]\nnames=["x"]\nfamily="f"\nspeed="fast"\n', "no key 'speed'"),
        (
            '[[target]]\nnames=["x"]\nfamily="f"\n[[target]]\nnames=["x"]\nfamily="g"\n',
            "'x' is said twice",
        ),
    ],
)
def test_a_broken_file_is_left_out_and_described(tmp_path: Path, text: str, why: str) -> None:
    path = written(tmp_path, text)
    known = catalogue([path])
    (sentence,) = known.broken
    assert why in sentence
    assert str(path) in sentence
    assert known.target("__cublas$gemm").family == "cublas"


def test_a_missing_file_is_described(tmp_path: Path) -> None:
    (sentence,) = catalogue([tmp_path / "none.toml"]).broken
    assert "No such file" in sentence


@pytest.mark.parametrize("name", ["/dev/zero", "/dev", "a\0b", "deep.toml"])
def test_a_name_that_is_no_catalogue_is_described(tmp_path: Path, name: str) -> None:
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 100_000}")
    (sentence,) = catalogue([tmp_path / name]).broken
    assert sentence.startswith("catalogue ")


def test_environment_comes_before_the_nearest_config(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    written(tmp_path, '[tool.hlolens]\ncatalogues = ["outer.toml"]\n', "pyproject.toml")
    assert configured(inner, {"HLOLENS_CATALOGUE": "x.toml"}) == (
        Path("x.toml"),
        tmp_path / "outer.toml",
    )
    written(inner.parent, 'catalogues = ["inner.toml"]\n', "hlolens.toml")
    assert configured(inner, {}) == (inner.parent / "inner.toml",)


def test_a_project_without_our_table_is_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    written(tmp_path, 'catalogues = ["outer.toml"]\n', "hlolens.toml")
    written(inner, '[project]\nname = "uses-hlolens"\n', "pyproject.toml")
    assert configured(inner, {}) == (tmp_path / "outer.toml",)


def test_a_config_that_lists_no_paths_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 'catalogues = "one.toml"\n', "hlolens.toml")
    with pytest.raises(CatalogueError, match="is a list of paths"):
        configured(tmp_path, {})
