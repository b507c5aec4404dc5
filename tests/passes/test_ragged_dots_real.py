"""Ragged dots in compiled texts: this repository's fixtures on four targets, and real dumps."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hlo_lens_passes._ragged_support import GROUPED

from hlo_lens.facts import Facts
from hlo_lens.program import load
from tests.passes.asking import ask_file
from tests.shared import needs_shared, texts, unpacked

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"
SIZES = "groups, m, n, k"
MAXTEXT = "dumps/tpu-maxtext.tar.xz"


def after(case: str, target: str) -> Path:
    return FIXTURES / case / target / "after_optimizations.txt"


def counted(file: Path) -> Counter[tuple[object, ...]]:
    """(class, role, projection) of the ragged dots of a file, counted."""
    return Counter(ask_file(file, "select class, role, projection from ragged_dots"))


NINE = Counter(
    (kind, role, projection)
    for kind in ("fwd", "dgrad", "wgrad")
    for role, projection in (("wi", "gate"), ("wi", "up"), ("wo", "down"))
)
# XLA puts the two forward products of one operand together, and the two weight gradients.
MERGED = Counter(
    [
        ("fwd", "wi", "fused"), ("fwd", "wo", "down"),
        ("dgrad", "wi", "gate"), ("dgrad", "wi", "up"), ("dgrad", "wo", "down"),
        ("wgrad", "wi", "fused"), ("wgrad", "wo", "down"),
    ]
)  # fmt: skip
SIX = Counter(
    (kind, role, projection)
    for kind in ("fwd", "dgrad", "wgrad")
    for role, projection in (("wi", "fused"), ("wo", "down"))
)


# ---------------------------------------------------------------------------------- one product


@pytest.mark.parametrize(
    ("case", "target", "lowering", "factor", "split_k", "extra"),
    [
        # The masked copy f16[64,4,128] less the rows is 48 KiB; slices are f32[split,64,128].
        ("moe/ragged-padded", "rocm-gfx950", "dense_padded", 4.0, 8, 49152 + 8 * 32768),
        ("moe/ragged-padded", "cuda-h100", "dense_padded", 4.0, 16, 49152 + 16 * 32768),
        ("moe/ragged-bf16", "rocm-gfx950", "dense_padded", 4.0, 8, 49152 + 8 * 32768),
        # f32[64,512] on a CPU, less f16[64,128].
        ("moe/ragged", "cpu", "dense_padded", 4.0, 1, 131072 - 16384),
        ("moe/ragged-grouped", "rocm-gfx950", "grouped_gemm", 1.0, None, 0),
        ("moe/ragged-bf16", "tpu-v6e-1", "mosaic_kernel", 1.0, None, 0),
    ],
)
def test_one_product_of_64_rows_and_four_experts(
    case: str, target: str, lowering: str, factor: float, split_k: int | None, extra: int | None
) -> None:
    useful = 2 * 64 * 128 * 128
    sql = f"select class, variant, lowering, {SIZES}, useful_flops, flops, factor, split_k,"
    sql += " extra_bytes from ragged_dots"
    sizes = (4, 64, 128, 128)
    measured = (useful, int(useful * factor), factor, split_k, extra)
    expected = ("fwd", "non_contracting", lowering, *sizes, *measured)
    assert ask_file(after(case, target), sql) == [expected]


@pytest.mark.parametrize(
    ("target", "lowering", "factor"),
    [
        ("cpu", "dense_padded", 4.0),
        ("cuda-h100", "dense_padded", 4.0),
        ("rocm-gfx950", "grouped_gemm", 1.0),
        ("tpu-v6e-1", "tpu_native", 1.0),
    ],
)
def test_a_summed_ragged_dimension(target: str, lowering: str, factor: float) -> None:
    sql = f"select class, variant, lowering, {SIZES}, factor from ragged_dots"
    expected = ("wgrad", "contracting", lowering, 4, 128, 128, 64, factor)
    assert ask_file(after("moe/ragged-contracting", target), sql) == [expected]


@pytest.mark.parametrize("target", ["cuda-h100", "rocm-gfx950", "tpu-v6e-1"])
def test_a_ragged_batch_has_only_its_name(target: str) -> None:
    sql = f"select class, variant, lowering, {SIZES}, factor from ragged_dots"
    expected = (None, "batch", "dense_padded", 4, 64, 128, 128, 1.0)
    assert ask_file(after("moe/ragged-batch", target), sql) == [expected]


def test_the_workspace_of_the_grouped_gemm() -> None:
    file = after("moe/ragged-grouped", "rocm-gfx950")
    assert ask_file(file, "select workspace_bytes from ragged_dots") == [(784,)]


# ---------------------------------------------------------------------------------- layers


@pytest.mark.parametrize(
    ("case", "target", "expected"),
    [
        ("moe/ragged-layer", "cpu", NINE),
        ("moe/ragged-layer", "cuda-h100", MERGED),
        ("moe/ragged-layer", "rocm-gfx950", MERGED),
        ("moe/ragged-layer", "tpu-v6e-1", NINE),
        ("moe/ragged-layer-f16", "rocm-gfx950", NINE),
        ("moe/ragged-layer-shared", "rocm-gfx950", MERGED),
        ("moe/ragged-layer-fused", "cpu", SIX),
        ("moe/ragged-layer-fused", "cuda-h100", SIX),
        ("moe/ragged-layer-fused", "rocm-gfx950", SIX),
        ("moe/ragged-layer-fused", "tpu-v6e-1", SIX),
        ("moe/expert-parallel-train", "rocm-gfx950-8", MERGED),
        ("moe/expert-parallel-train", "tpu-v6e-8", NINE),
        ("moe/hand-triton-ragged", "hand-made", NINE),
        ("moe/hand-cudnn-ragged", "hand-made", SIX),
    ],
)
def test_the_products_of_a_gated_layer(
    case: str, target: str, expected: Counter[tuple[object, ...]]
) -> None:
    assert counted(after(case, target)) == expected
    turned = "select count(*) from ragged_dots where direction is not class"
    assert ask_file(after(case, target), turned) == [(0,)]


@pytest.mark.parametrize("target", ["cpu", "cuda-h100", "rocm-gfx950", "tpu-v6e-1"])
def test_nine_before_optimization(target: str) -> None:
    file = FIXTURES / "moe/ragged-layer" / target / "before_optimizations.txt"
    assert counted(file) == NINE
    wanted = "dense_padded" if target == "cpu" else "ragged-dot"
    assert ask_file(file, "select distinct lowering from ragged_dots") == [(wanted,)]


def test_xla_tpu_has_kernels_for_rows_and_convolutions_for_weights() -> None:
    sql = "select lowering, class, count(*) from ragged_dots group by 1, 2 order by 1, 2"
    assert ask_file(after("moe/ragged-layer", "tpu-v6e-1"), sql) == [
        ("mosaic_kernel", "dgrad", 3),
        ("mosaic_kernel", "fwd", 3),
        ("tpu_native", "wgrad", 3),
    ]


def test_megablox_has_two_projections_here() -> None:
    assert counted(after("moe/megablox-layer", "tpu-v6e-1")) == Counter(
        (kind, role, projection)
        for kind in ("fwd", "dgrad", "wgrad")
        for role, projection in (("wi", None), ("wo", "down"))
    )


@pytest.mark.parametrize(
    ("case", "target", "rows", "runs"),
    [
        ("moe/ragged-scanned-f16", "rocm-gfx950", 6, 12),
        ("moe/ragged-unrolled-f16", "rocm-gfx950", 12, 12),
        ("moe/ragged-scanned", "cpu", 2, 4),
        ("moe/ragged-unrolled", "cpu", 4, 4),
        ("moe/ragged-scanned", "tpu-v6e-1", 2, 4),
        ("moe/ragged-unrolled", "tpu-v6e-1", 4, 4),
    ],
)
def test_two_layers_scanned_and_unrolled_are_the_same(
    case: str, target: str, rows: int, runs: int
) -> None:
    """The second layer takes the result of the first, and is no second product of it."""
    sql = "select count(*), sum(executions), sum(role = 'wi') from ragged_dots"
    assert ask_file(after(case, target), sql) == [(rows, runs, rows // 2)]


def test_dense_products_are_none() -> None:
    """Dense masked, fixed capacity, fused weights of dense experts, attention: none is ragged."""
    cases = [*FIXTURES.glob("moe/dense-*"), *FIXTURES.glob("moe/*capacity*")]
    cases += [*FIXTURES.glob("pairs/fused-weight-*"), *FIXTURES.glob("attention/xla*")]
    files = [file for case in cases for file in case.glob("*/*_optimizations.txt")]
    assert len(files) > 20
    for file in files:
        assert ask_file(file, "select * from ragged_dots") == [], file


def test_a_transposed_weight_is_told_where_dimension_numbers_are_gone() -> None:
    """hipBLASLt keeps the numbers that it was asked with; XLA's TPU kernel has none, and gets the
    weights transposed either way."""
    asked = "select class, groups, m, n, k from ragged_dots"
    for case, expected in (
        ("pairs/backward-weight-native-f16/rocm-gfx950", "dgrad"),
        ("pairs/backward-weight-transposed-f16/rocm-gfx950", "fwd"),
        ("pairs/backward-weight-native/tpu-v6e-1", "dgrad"),
        ("pairs/backward-weight-transposed/tpu-v6e-1", "dgrad"),
    ):
        file = FIXTURES / case / "after_optimizations.txt"
        assert ask_file(file, asked) == [(expected, 4, 1024, 256, 512)], case


# ---------------------------------------------------------------------------------- why not


BF16_ON_GFX950 = "not supported: hipBLASLt takes f16 on gfx950, not bf16"


@pytest.mark.parametrize(
    ("case", "target", "begins"),
    [
        ("moe/ragged-padded", "rocm-gfx950", "not enabled: hipBLASLt: --"),
        ("moe/ragged-bf16", "rocm-gfx950", BF16_ON_GFX950),
        # Slices are added up in f32, and the activation is computed in it: the dot takes bf16.
        ("moe/expert-parallel-train", "rocm-gfx950-8", BF16_ON_GFX950),
        ("moe/ragged-padded", "cuda-h100", "not enabled: cuDNN: "),
        ("moe/ragged-contracting", "cuda-h100", "not enabled: cuDNN: "),
        ("moe/ragged", "cpu", "not supported: CPU: "),
        ("moe/ragged-batch", "rocm-gfx950", "not supported: GPU: a ragged batch"),
        ("moe/ragged-grouped", "rocm-gfx950", "None"),
        ("moe/ragged-contracting", "rocm-gfx950", "None"),
        ("moe/ragged-layer-f16", "rocm-gfx950", "None"),
    ],
)
def test_the_conditions_agree_with_what_compilers_did(case: str, target: str, begins: str) -> None:
    for (why,) in ask_file(after(case, target), "select why_not_grouped from ragged_dots"):
        assert str(why).startswith(begins)


def test_one_finding_for_what_is_expanded_for_one_reason() -> None:
    facts = Facts(load(after("moe/ragged-layer", "rocm-gfx950")))
    facts.rows("ragged_dots")
    (finding,) = [one for one in facts.findings if one.rule == "ragged-dense-padded"]
    assert len(finding.evidence) == 7
    assert finding.message.endswith(
        "and 6 others are ragged dots run as dense products over 4 groups: 4 times the useful FLOP"
        " and 5,505,024 extra bytes; not supported: hipBLASLt takes f16 on gfx950, not bf16"
    )


# ---------------------------------------------------------------------------------- real dumps


@needs_shared
def test_the_published_case() -> None:
    """Groups 4, factor 4, mask sel.2; 65,536 FLOP issued against 16,384."""
    (file,) = texts("cases/15-*.hlo")
    sql = "select name, lowering, groups, factor, flops, useful_flops from ragged_dots order by id"
    assert ask_file(file, sql) == [
        ("native.1", "ragged-dot", 4, None, None, 16384),
        ("dense.2", "dense_padded", 4, 4.0, 65536, 16384),
    ]
    sql = (
        "select i.name from members m join instructions i on i.id = m.instr"
        " where \"table\" = 'ragged_dots' and role = 'mask'"
    )
    assert ask_file(file, sql) == [("sel.2",)]


@needs_shared
def test_the_published_pair_on_gfx950() -> None:
    (file,) = texts("gfx950/moe/ragged-grouped/*after_optimizations.txt")
    sql = "select class, lowering, groups, m, n, k, factor, workspace_bytes from ragged_dots"
    assert ask_file(file, sql) == [("fwd", "grouped_gemm", 4, 64, 128, 128, 1.0, 784)]
    ((dims,),) = ask_file(file, "select dims from matmuls")
    assert json.loads(str(dims))["lhs_ragged"] == [0]
    (file,) = texts("gfx950/moe/ragged-padded/*after_optimizations.txt")
    sql = "select class, lowering, groups, m, n, k, factor, split_k, flops from ragged_dots"
    flops = 2 * 64 * (4 * 128) * 128
    assert ask_file(file, sql) == [("fwd", "dense_padded", 4, 64, 128, 128, 4.0, 8, flops)]
    sql = (
        "select role, i.opcode from members m join instructions i on i.id = m.instr"
        " where \"table\" = 'ragged_dots' order by role"
    )
    assert ask_file(file, sql) == [
        ("compare", "compare"), ("compare", "compare"), ("dot", "dot"), ("mask", "select"),
        ("reduce", "reduce"),
    ]  # fmt: skip
    ((why,),) = ask_file(file, "select why_not_grouped from ragged_dots")
    assert why == f"not enabled: hipBLASLt: --{GROUPED}=false"
    for case in ("dense-masked", "fixed-capacity"):
        for file in texts(f"gfx950/moe/{case}/*.txt"):
            assert ask_file(file, "select * from ragged_dots") == []


@needs_shared
def test_qwen3_has_twelve_in_eight_layers() -> None:
    """Full remat: of each layer 3 forward, 3 replayed, 3 data and 3 weight gradients; 8 layers."""
    (dump,) = unpacked(MAXTEXT).rglob("qwen3moe.raggeddot.full.opt.hlo")
    found = ask_file(
        dump,
        "select phase, class, role, projection, lowering, groups, m, n, k, executions"
        " from ragged_dots",
    )
    rows = {("wi", "gate"), ("wi", "up"), ("wo", "down")}
    expected = Counter(
        (phase, kind, role, projection, "tpu_native", 16, *sizes, 8)
        for phase, kind, sizes in (
            ("fwd", "fwd", (2048, 512, 512)),
            ("remat", "fwd", (2048, 512, 512)),
            ("bwd", "dgrad", (2048, 512, 512)),
            ("bwd", "wgrad", (512, 512, 2048)),
        )
        for role, projection in rows
    )
    assert Counter(found) == expected
    (dense,) = unpacked(MAXTEXT).rglob("qwen3moe.dense.full.opt.hlo")
    assert ask_file(dense, "select * from ragged_dots") == []


@needs_shared
def test_qwen3_before_optimization_agrees() -> None:
    folder = unpacked(MAXTEXT)
    (before,) = folder.rglob("qwen3moe.raggeddot.full.before.hlo")
    (optimized,) = folder.rglob("qwen3moe.raggeddot.full.opt.hlo")
    sql = "select phase, class, role, projection, groups, m, n, k, useful_flops, executions"
    asked = f"{sql} from ragged_dots"
    assert Counter(ask_file(before, asked)) == Counter(ask_file(optimized, asked))


@needs_shared
def test_a_layer_without_a_gate_has_six() -> None:
    folder = unpacked(MAXTEXT)
    (file,) = folder.rglob("moe.v6e_2x2.ragged.instr1.*.hlo")
    assert counted(file) == Counter(
        (kind, role, projection)
        for kind in ("fwd", "dgrad", "wgrad")
        for role, projection in (("wi", None), ("wo", "down"))
    )
    assert ask_file(file, "select distinct lowering, groups from ragged_dots") == [
        ("tpu_native", 8)
    ]
