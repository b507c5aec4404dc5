"""The ledger: published values that its formulas give, what the documents contradict, the verb.

The documents are "Memory and Kernel Optimizations" (How to Scale Your Model on AMD, chapter 6),
"Group-GEMM in XLA", and the two MaxText pull requests 5474 (Gemma 4) and 5799 (Qwen3.5).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from hlo_lens import ledger
from hlo_lens.cli.ledger import as_markdown, value_text
from hlo_lens.ledger import FORMULAS, PRESETS, Decoder, Policy, Residual
from tests.conftest import Ran

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ledger.md"
GIB = 2**30
MIB = 2**20
TERA = 1e12

LLAMA_7B = Decoder(layers=32, batch=4, sequence=4096, width=4096, mlp_width=11008)
ONE_LAYER = Decoder(layers=1, batch=4, sequence=4096, width=4096, mlp_width=11008)
VOCABULARY = 32000


def rounded(value: float, digits: int) -> object:
    """Equal to what a document prints with so many digits behind the point, rounded or cut."""
    return pytest.approx(value, abs=10.0**-digits)


# --- saved activations -----------------------------------------------------------------------


def test_the_named_residuals_of_llama_7b_are_45_5_gib() -> None:
    """With the down projection's output among the 6D, as the document lists them."""
    assert ledger.named_residual_bytes(decoder=LLAMA_7B) == 45.5 * GIB


def test_a_pre_norm_layer_does_not_keep_the_down_projection() -> None:
    kept = ledger.named_residual_bytes(decoder=LLAMA_7B, dead_saved=False)
    inputs = ledger.layer_input_bytes(layers=32, batch=4, sequence=4096, width=4096)
    assert (kept / GIB, inputs / GIB) == (41.5, 4)
    assert kept + inputs == ledger.named_residual_bytes(decoder=LLAMA_7B)


def test_weak_scaling_leaves_the_named_residuals_at_45_5_gib() -> None:
    """Global batch 32 over 8 devices."""
    everywhere = Decoder(layers=32, batch=32, sequence=4096, width=4096, mlp_width=11008)
    assert ledger.named_residual_bytes(decoder=everywhere, shards=8) == 45.5 * GIB
    one_width = ledger.local_bytes(
        batch=32, sequence=4096, width=6 * 4096 + 2 * 11008, element_bytes=2, batch_shards=8
    )
    assert 32 * one_width == 45.5 * GIB


def test_a_replicated_dimension_gives_no_divisor() -> None:
    whole = ledger.local_bytes(batch=2, sequence=8, width=16, element_bytes=2)
    split = ledger.local_bytes(batch=2, sequence=8, width=16, element_bytes=2, width_shards=4)
    assert (whole, split) == (512, 128)


@pytest.mark.parametrize(
    ("policy", "widths"),
    [
        ("full", 0),
        ("save_qkv_proj", 3 * 4096),
        ("save_dot_with_context_except_mlp", 5 * 4096),
        ("minimal", 5 * 4096 + 2 * 11008),
        ("minimal_with_context", 6 * 4096 + 2 * 11008),
    ],
)
def test_what_each_preset_names(policy: Any, widths: int) -> None:
    found = ledger.named_residual_bytes(decoder=LLAMA_7B, policy=policy)
    assert found == 32 * 4 * 4096 * 2 * widths


def test_the_general_ledger_gives_the_named_one() -> None:
    narrow = Residual(4 * 4096 * 4096, 2)
    wide = Residual(4 * 4096 * 11008, 2)
    saved = ledger.saved_activation_bytes(layers=32, residuals=(*[narrow] * 6, wide, wide))
    assert saved == 45.5 * GIB


def test_other_terms_come_on_top_and_shards_divide() -> None:
    saved = ledger.saved_activation_bytes(
        layers=3, residuals=(Residual(1000, 4, shards=8), Residual(8, 0.5)), loss_bytes=1,
        backend_bytes=10, workspace_bytes=100,
    )  # fmt: skip
    assert saved == 3 * (500 + 4) + 111


def test_grouped_query_attention_keeps_narrower_keys_and_values() -> None:
    mixtral = Decoder(layers=1, batch=1, sequence=1, width=4096, mlp_width=14336, kv_width=1024)
    assert ledger.named_residual_bytes(decoder=mixtral, policy="save_qkv_proj") == 2 * 6144


@pytest.mark.parametrize(
    ("what", "published"),
    [
        ({"batch": 1, "sequence": 4096, "width": 32 * 512}, 128 * MIB),  # 5799: query kernel
        ({"batch": 15, "sequence": 4096, "width": 32 * 512}, 1.875 * GIB),  # of 15 layers
        ({"batch": 1, "sequence": 4096, "width": 2048}, (66.95 - 50.95) * MIB),  # a wi tile
    ],
)
def test_bytes_of_a_bf16_array_that_the_pull_requests_print(
    what: dict[str, int], published: float
) -> None:
    assert ledger.local_bytes(**what, element_bytes=2) == pytest.approx(published)


def test_half_of_gemma_4s_fused_weight_is_507_mb() -> None:
    half = ledger.local_bytes(batch=64, sequence=2816, width=2 * 704, element_bytes=2)
    assert half / 1e6 == rounded(507, 0)


# --- executed FLOPs --------------------------------------------------------------------------


def test_full_remat_of_llama_7b_replays_229_80_tflop() -> None:
    """212.21 of projections, which count the dead replay of the down projection, and 17.59."""
    parts = [
        ledger.replay_flops(decoder=LLAMA_7B, part=part) / TERA
        for part in ("projections", "attention", "all")
    ]
    assert parts == [rounded(212.21, 2), rounded(17.59, 2), rounded(229.80, 2)]
    assert ledger.projection_flops(decoder=LLAMA_7B) / TERA == rounded(212.21, 2)
    attention = ledger.attention_flops(layers=32, batch=4, sequence=4096, attention_width=4096)
    assert attention / TERA == rounded(17.59, 2)


def test_without_the_dead_replay_it_is_182_52_tflop() -> None:
    without = ledger.replay_flops(decoder=LLAMA_7B, dead_replay=False)
    with_it = ledger.replay_flops(decoder=LLAMA_7B)
    assert with_it - without == 2 * 16384 * 4096 * 11008 * 32
    assert without / TERA == rounded(182.52, 2)


def test_the_ordinary_step_of_llama_7b_is_702_28_tflop() -> None:
    step = ledger.step_flops(decoder=LLAMA_7B, vocabulary=VOCABULARY)
    assert step / TERA == rounded(702.28, 2)
    head = ledger.head_flops(tokens=16384, width=4096, vocabulary=VOCABULARY)
    assert step == pytest.approx(3 * (229.797930205184e12 + head))


def test_full_remat_replays_32_7_percent_of_it() -> None:
    published = ledger.replay_fraction(decoder=LLAMA_7B, vocabulary=VOCABULARY)
    real = ledger.replay_fraction(decoder=LLAMA_7B, vocabulary=VOCABULARY, dead_replay=False)
    assert 100 * published == rounded(32.7, 1)
    assert 100 * real == rounded(26.0, 1)


def test_the_head_does_not_explain_the_8_7_percent_of_one_layer() -> None:
    """Counted on one layer with the head: 38.072 TFLOP under full against 35.031 without."""
    counted = 38.072 - 35.031
    assert 100 * counted / 35.031 == rounded(8.7, 1)
    for dead, percent in ((True, 20.9), (False, 16.6)):
        fraction = ledger.replay_fraction(
            decoder=ONE_LAYER, vocabulary=VOCABULARY, dead_replay=dead
        )
        assert 100 * fraction == rounded(percent, 1)
        assert ledger.replay_flops(decoder=ONE_LAYER, dead_replay=dead) / TERA > 1.8 * counted
    step = ledger.step_flops(decoder=ONE_LAYER, vocabulary=VOCABULARY)
    assert step / TERA == pytest.approx(35.031, rel=0.02)  # the step itself is as counted


def test_executed_flops_operation_by_operation() -> None:
    step = ledger.step_flops(decoder=LLAMA_7B, vocabulary=VOCABULARY)
    executed = ledger.executed_flops(
        ordinary_flops=step, operation_flops=(212.21e12, 17.59e12, 1e18), replays=(1, 1, 0)
    )
    assert executed / TERA == rounded(702.28 + 229.80, 1)
    with pytest.raises(ValueError, match="2 operation_flops, but 1 replays"):
        ledger.executed_flops(ordinary_flops=1, operation_flops=(1, 2), replays=(1,))


def test_ten_forward_products_and_eight_replayed() -> None:
    """A layer has nine, the head is the tenth; full remat leaves the head and mlpwo alone."""
    assert len(LLAMA_7B.matmuls()) + 1 == 10
    again = ledger.replayed("full", fused_attention=False)
    assert len(again) == 8
    assert ledger.DEAD not in again
    assert len(ledger.replayed("full", fused_attention=False, dead_replay=True)) == 9


@pytest.mark.parametrize(
    ("policy", "fused", "plain"),
    [
        ("none", (), ()),
        ("minimal_with_context", (), ("scores",)),
        ("minimal", ("scores", "context"), ("scores", "context")),
        (
            "save_dot_with_context_except_mlp",
            ("mlpwi_0", "mlpwi_1"),
            ("scores", "mlpwi_0", "mlpwi_1"),
        ),
        (
            "save_qkv_proj",
            ("scores", "context", "out_proj", "mlpwi_0", "mlpwi_1"),
            ("scores", "context", "out_proj", "mlpwi_0", "mlpwi_1"),
        ),
    ],
)
def test_what_each_policy_replays(
    policy: Policy, fused: tuple[str, ...], plain: tuple[str, ...]
) -> None:
    assert ledger.replayed(policy) == fused
    assert ledger.replayed(policy, fused_attention=False) == plain


def test_a_policy_that_names_the_down_projection_never_replays_it() -> None:
    assert ledger.replay_flops(decoder=LLAMA_7B, policy="minimal_with_context") == 0


def test_a_causal_mask_halves_attention_and_nothing_else() -> None:
    whole = LLAMA_7B.matmuls(1.0)
    half = LLAMA_7B.matmuls(0.5)
    assert {name for name in whole if whole[name] != half[name]} == {"scores", "context"}
    assert half["scores"] * 2 == whole["scores"] == 2 * 4 * 4096**2 * 4096


@pytest.mark.jax
@pytest.mark.parametrize("policy", get_args(Policy))
def test_the_ledger_says_what_jax_keeps_and_replays(policy: Policy) -> None:
    """The Llama fixture lowered: attention in plain XLA, so c = 1 and the scores have no name."""
    import jax
    import numpy as np

    from fixtures.models import llama
    from hlo_lens import from_jax
    from hlo_lens.facts import Facts

    sizes = llama.Sizes(layers=2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("fsdp",))
    function, arguments = llama.train_step(mesh, policy=policy, sizes=sizes)
    decoder = Decoder(sizes.layers, sizes.batch, sizes.sequence, sizes.width, sizes.mlp)
    work = {True: 0, False: 0}
    matmuls: Any = Facts(from_jax(jax.jit(function).lower(*arguments))).records("matmuls")
    for row in matmuls:
        work[row["phase"] == "remat"] += row["flops"] * row["executions"]
    assert work[False] == ledger.step_flops(
        decoder=decoder, vocabulary=sizes.vocabulary, causal_fraction=1
    )
    assert work[True] == ledger.replay_flops(
        decoder=decoder, policy=policy, causal_fraction=1, dead_replay=False, fused_attention=False
    )
    if policy != "none":
        assert stacked_bytes(jax.make_jaxpr(function)(*arguments), sizes.layers) == (
            ledger.named_residual_bytes(decoder=decoder, policy=policy, dead_saved=False)
            + ledger.layer_input_bytes(
                layers=sizes.layers, batch=sizes.batch, sequence=sizes.sequence, width=sizes.width
            )
        )


def stacked_bytes(jaxpr: Any, layers: int) -> int:
    """Bytes of what the first scan stacks, an element a layer."""

    def scans(inner: Any) -> Iterator[Any]:
        for equation in inner.eqns:
            if equation.primitive.name == "scan":
                yield equation
            for value in equation.params.values():
                if hasattr(value, "eqns"):
                    yield from scans(value)
                elif hasattr(value, "jaxpr"):
                    yield from scans(value.jaxpr)

    results = [each.aval for each in next(scans(jaxpr.jaxpr)).outvars]
    return sum(each.size * each.dtype.itemsize for each in results if each.shape[0] == layers)


# --- attention -------------------------------------------------------------------------------


def test_one_fp32_score_tensor_of_llama_7b_is_8_gib() -> None:
    scores = ledger.standard_attention_bytes(batch=4, heads=32, query_sequence=4096)
    assert scores == 8 * GIB
    three = ledger.standard_attention_bytes(
        batch=4, heads=32, query_sequence=4096, key_sequence=4096, live_arrays=3
    )
    assert three == 3 * scores


def test_a_tile_holds_q_k_v_scores_and_output() -> None:
    tile = ledger.attention_tile_bytes(query_tile=128, key_tile=64, head_dim=128)
    assert tile == 2 * ((128 + 2 * 64) * 128 + 128 * 64 + 128 * 128)


def test_the_tile_formula_counts_v_as_wide_as_k() -> None:
    """With d = 192, d_v = 128, its V tile is too large by B_k·64 elements."""
    printed = ledger.attention_tile_bytes(
        query_tile=128, key_tile=64, head_dim=192, value_head_dim=128
    )
    exact = 2 * (128 * 192 + 64 * 192 + 64 * 128 + 128 * 64 + 128 * 128)
    assert printed - exact == 2 * 64 * 64


def test_row_statistics_grow_with_the_rows_alone() -> None:
    assert ledger.row_statistics_bytes(batch=4, heads=32, sequence=4096) == 2 * MIB


# --- experts ---------------------------------------------------------------------------------


def test_dense_masked_does_e_over_k_times_the_routed_arithmetic() -> None:
    assert ledger.dense_masked_multiplier(experts=8, top_k=2) == 4
    with pytest.raises(ValueError, match="more than the 8 experts"):
        ledger.dense_masked_multiplier(experts=8, top_k=9)


def test_dense_over_sparse_path_is_that_multiplier() -> None:
    rows = ledger.routed_rows(batch=4, sequence=512, top_k=2)
    sparse = ledger.sparse_path_flops(rows=int(rows), contracting_width=64, output_width=32)
    dense = ledger.dense_path_flops(experts=8, tokens=2048, contracting_width=64, output_width=32)
    assert dense / sparse == ledger.dense_masked_multiplier(experts=8, top_k=2)


def test_the_fixtures_of_64_tokens_have_capacity_16() -> None:
    """Four experts of width 128: `bf16[4,16,128]`; top-1 and factor 1 in either formula."""
    assert ledger.expert_capacity(tokens_per_batch=64, experts=4, capacity_factor=1) == 16
    maxtext = ledger.maxtext_expert_capacity(sequence=64, top_k=1, experts=4, capacity_factor=1)
    assert maxtext == 16


def test_the_capacity_formulas_differ_in_what_they_share_and_in_rounding() -> None:
    tokens = ledger.expert_capacity(tokens_per_batch=10, experts=4, capacity_factor=1.25)
    assert tokens == 3.75  # no whole number of rows
    assignments = ledger.maxtext_expert_capacity(
        sequence=10, top_k=2, experts=4, capacity_factor=1.25
    )
    assert assignments == int(5 * 1.25) == 6


@pytest.mark.parametrize(("sequence", "factor"), [(1, 0.5), (1, 1.5), (65, 0.75), (640, 1.25)])
def test_the_maximum_in_maxtexts_capacity_changes_nothing(sequence: int, factor: float) -> None:
    capacity = ledger.maxtext_expert_capacity(
        sequence=sequence, top_k=1, experts=64, capacity_factor=factor
    )
    assert capacity == int(math.ceil(sequence / 64) * factor)


def test_capacity_work_has_the_batch_in_it() -> None:
    """E·C·K·N as printed, and [E, B, C, M] as the code beside it has it."""
    printed = ledger.capacity_path_flops(
        experts=4, capacity=16, contracting_width=128, output_width=128
    )
    coded = ledger.capacity_path_flops(
        experts=4, capacity=16, contracting_width=128, output_width=128, batch=3
    )
    assert printed == 2 * 4 * 16 * 128 * 128
    assert coded == 3 * printed


@pytest.mark.parametrize(
    ("sequence", "width", "expert_width", "experts", "top_k", "percent"),
    [(3072, 4096, 14336, 8, 2, 14), (1024, 2048, 768, 128, 8, 89)],  # mixtral-8x7b, qwen3-30b-a3b
)
def test_dispatch_and_combine_are_no_trifle(
    sequence: int, width: int, expert_width: int, experts: int, top_k: int, percent: int
) -> None:
    capacity = ledger.maxtext_expert_capacity(
        sequence=sequence, top_k=top_k, experts=experts, capacity_factor=1.25
    )
    moved = ledger.dispatch_combine_flops(
        batch=1, sequence=sequence, experts=experts, capacity=capacity, width=width
    )
    computed = 3 * ledger.capacity_path_flops(
        experts=experts, capacity=capacity, contracting_width=width, output_width=expert_width
    )
    assert 100 * moved / computed == rounded(percent, 0)


def test_padding_of_the_worked_example() -> None:
    """Group sizes 3, 2, 4 and a row tile of 3: 3 + 3 + 6 rows for 9."""
    sizes = (3, 2, 4)
    assert ledger.pad_waste(group_sizes=sizes, row_tile=3) == pytest.approx(1 / 3)
    issued = ledger.padded_flops(group_sizes=sizes, row_tile=3, contracting_width=8, output_width=5)
    useful = ledger.useful_flops(group_sizes=sizes, contracting_width=8, output_width=5)
    assert (issued, useful) == (2 * 8 * 5 * 12, 2 * 8 * 5 * 9)


def test_three_tiles_of_three_rows_cannot_cover_groups_of_3_2_and_4() -> None:
    """Table 2 of Group-GEMM in XLA gives each tile to the group of its first row."""
    group_of = [0, 0, 0, 1, 1, 2, 2, 2, 2]
    written = {
        row
        for start in range(0, 9, 3)
        for row in range(start, start + 3)
        if group_of[row] == group_of[start]
    }
    assert set(range(9)) - written == {5}
    assert ledger.row_tiles(group_sizes=(3, 2, 4), row_tile=3) == 4


def test_padding_without_waste_and_without_rows() -> None:
    assert ledger.pad_waste(group_sizes=(256, 0, 512), row_tile=256) == 0
    with pytest.raises(ValueError, match="no row"):
        ledger.pad_waste(group_sizes=(0, 0), row_tile=256)


@pytest.mark.parametrize(
    ("rows", "groups", "remainder", "sizes"),
    [
        (1024, 4, "first", (256, 256, 256, 256)),  # as printed
        (1002, 4, "first", (251, 251, 250, 250)),  # as printed
        (1002, 4, "last", (250, 250, 250, 252)),  # what is said of the Triton autotuner
        (2, 4, "first", (1, 1, 0, 0)),
    ],
)
def test_balanced_group_sizes(
    rows: int, groups: int, remainder: Any, sizes: tuple[int, ...]
) -> None:
    found = ledger.balanced_group_sizes(rows=rows, groups=groups, remainder=remainder)
    assert found == sizes
    assert sum(found) == rows


def test_rows_that_are_routed() -> None:
    gemma = ledger.routed_rows(batch=2, sequence=16384, top_k=8)
    assert gemma == 262_144  # 5474: the argsort, and bf16[262144, 2816]
    assert ledger.mean_group_size(tokens=2 * 16384, top_k=8, experts=128) == gemma / 128


@pytest.mark.parametrize(
    ("sequence", "top_k", "rows"),
    [
        (512, 6, 3840),  # deepseek2-16b
        (512, 8, 5120),  # deepseek3-test
        (1024, 8, 10240),  # gemma4-26b, qwen3-30b-a3b
        (1024, 1, 1280),  # llama4-17b-16e
        (3072, 4, 15360),  # mixtral-8x7b as tables 4 and 5 have it
        (4096, 8, 40960),  # mixtral-8x7b-large
        (2048, 8, 20480),  # qwen3-235b-a22b
    ],
)
def test_the_rows_of_the_micro_benchmark_are_1_25_times_the_routed_ones(
    sequence: int, top_k: int, rows: int
) -> None:
    """Against table 6, by which M has no capacity padding."""
    assert ledger.routed_rows(batch=1, sequence=sequence, top_k=top_k) != rows
    padded = ledger.routed_rows(batch=1, sequence=sequence, top_k=top_k, buffer_factor=1.25)
    assert padded == rows


SAVED_GB = {  # table 10 or 11: temp savings of the triton backend; experts, M, K, N
    "qwen3-235b-a22b": (50.4, 128, 2048 * 8, 4096, 1536),
    "gemma4-26b": (17.3, 128, 1024 * 8, 2816, 704),
    "qwen3-30b-a3b": (13.2, 128, 1024 * 8, 2048, 768),
}


@pytest.mark.parametrize("model", SAVED_GB)
def test_the_published_savings_follow_the_stack_of_inputs(model: str) -> None:
    """About three E·M·K stacks each; E·M·N stacks would be 8 to 13."""
    saved, experts, rows, contracting, output = SAVED_GB[model]
    inputs = ledger.expert_stack_bytes(experts=experts, rows=rows, output_width=contracting)
    outputs = ledger.expert_stack_bytes(experts=experts, rows=rows, output_width=output)
    assert saved * 1e9 / inputs == pytest.approx(3, abs=0.1)
    assert 7 < saved * 1e9 / outputs < 12


# --- parameters, and FLOPs of the models that were measured ------------------------------------

MLA = {"heads": 128, "head_dim": 128, "rope_head_dim": 64, "kv_rank": 512, "query_rank": 1536}


def gqa(width: int, heads: int, kv_heads: int, head_dim: int = 128) -> int:
    return ledger.attention_parameters(
        width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )


# width, expert width, experts and layers as the tables print them; vocabularies, heads and dense
# layers from the models' configurations: (layers, width, vocabulary, attention, experts, dense)
MODELS: dict[str, tuple[int, int, int, int, dict[str, int], dict[str, Any]]] = {
    "mixtral-8x22b": (
        56, 6144, 32768, gqa(6144, 48, 8), {"expert_width": 16384, "experts": 8, "top_k": 2}, {},
    ),
    "mixtral-8x7b": (
        32, 4096, 32000, gqa(4096, 32, 8), {"expert_width": 14336, "experts": 8, "top_k": 2}, {},
    ),
    "qwen3-30b-a3b": (
        48, 2048, 151936, gqa(2048, 32, 4), {"expert_width": 768, "experts": 128, "top_k": 8}, {},
    ),
    "qwen3-235b-a22b": (
        4, 4096, 151936, gqa(4096, 64, 4), {"expert_width": 1536, "experts": 128, "top_k": 8}, {},
    ),
    "llama4-17b-16e": (
        48, 5120, 202048, gqa(5120, 40, 8),
        {"expert_width": 8192, "experts": 16, "top_k": 1, "shared_experts": 1}, {},
    ),
    "deepseek2-16b": (
        27, 2048, 102400,
        ledger.mla_parameters(width=2048, heads=16, head_dim=128, rope_head_dim=64, kv_rank=512),
        {"expert_width": 1408, "experts": 64, "top_k": 6, "shared_experts": 2},
        {"dense_layers": 1, "dense_mlp_parameters": 3 * 2048 * 10944},
    ),
    "deepseek3-test": (
        61, 512, 129280, ledger.mla_parameters(width=512, **MLA),
        {"expert_width": 512, "experts": 256, "top_k": 8, "shared_experts": 1},
        {"dense_layers": 3, "dense_mlp_parameters": 3 * 512 * 18432},
    ),
}  # fmt: skip


def weights(model: str) -> float:
    """All weights of a model, in billions."""
    layers, width, vocabulary, attention, experts, dense = MODELS[model]
    of_layer = {key: value for key, value in experts.items() if key != "top_k"}
    total = ledger.model_parameters(
        layers=layers, width=width, vocabulary=vocabulary, attention_parameters=attention,
        mlp_parameters=ledger.moe_parameters(width=width, **of_layer), **dense,
    )  # fmt: skip
    return total / 1e9


def step_tflop(model: str, batch: int, sequence: int, scores: int, values: int) -> float:
    """TFLOP of a step of `batch` sequences on a device, as MaxText counts them."""
    layers, width, vocabulary, attention, experts, dense = MODELS[model]
    active = int(ledger.moe_flops(tokens=1, width=width, **experts) / 2)
    products = ledger.matmul_parameters(
        layers=layers, width=width, vocabulary=vocabulary, attention_parameters=attention,
        mlp_parameters=active, **dense,
    )  # fmt: skip
    pairs = ledger.attention_flops(
        layers=layers, batch=batch, sequence=sequence, attention_width=scores, value_width=values
    )
    tokens = batch * sequence
    step = ledger.training_flops(tokens=tokens, matmul_parameters=products, attention_flops=pairs)
    return step / TERA


def test_llama_7b_has_6_738_billion_parameters() -> None:
    total = ledger.model_parameters(
        layers=32, width=4096, vocabulary=32000, attention_parameters=gqa(4096, 32, 32),
        mlp_parameters=3 * 4096 * 11008,
    )  # fmt: skip
    assert total == 6_738_415_616


@pytest.mark.parametrize(
    ("model", "billions", "digits"),
    [
        ("mixtral-8x22b", 140.63, 2),
        ("mixtral-8x7b", 46.703, 3),
        ("qwen3-30b-a3b", 30.532, 3),
        ("qwen3-235b-a22b", 11.196, 3),
        ("llama4-17b-16e", 107.770, 3),
        ("deepseek2-16b", 15.706, 3),
        ("deepseek3-test", 15.851, 3),
    ],
)
def test_total_weights(model: str, billions: float, digits: int) -> None:
    """Total_weights of tables 8 and 9, and the 140.63 billion of the chapter."""
    assert weights(model) == rounded(billions, digits)


@pytest.mark.parametrize(
    ("model", "batch", "sequence", "widths", "seconds", "tflop_per_second"),
    [
        ("mixtral-8x7b", 1, 3072, (4096, 4096), 5.044, 48.057),
        ("mixtral-8x7b", 8, 4096, (4096, 4096), 52.107, 50.128),  # "large": the same weights
        ("qwen3-30b-a3b", 4, 1024, (4096, 4096), 20.676, 3.855),
        ("qwen3-235b-a22b", 16, 2048, (8192, 8192), 22.025, 14.110),
        ("llama4-17b-16e", 4, 1024, (5120, 5120), 10.249, 39.299),
        ("deepseek2-16b", 4, 512, (16 * 192, 16 * 128), 3.946, 7.744),
        ("deepseek3-test", 4, 512, (128 * 192, 128 * 128), 5.758, 10.910),
    ],
)
def test_the_tflop_of_tables_8_and_9_are_those_of_half_the_scores(
    model: str,
    batch: int,
    sequence: int,
    widths: tuple[int, int],
    seconds: float,
    tflop_per_second: float,
) -> None:
    """TFLOP/s/device × time; the times are printed to a millisecond."""
    found = step_tflop(model, batch, sequence, *widths)
    assert found == pytest.approx(seconds * tflop_per_second, rel=3e-4)


def test_the_mixtral_that_was_measured_is_not_that_of_the_configuration_tables() -> None:
    """Tables 4 and 5: 24 layers, 6144 × 20480, 32 experts. Tables 8 to 11: 46.703 billion."""
    one_layer = ledger.moe_parameters(width=6144, expert_width=20480, experts=32)
    assert 24 * one_layer / 1e9 == rounded(290, 0)


def test_deepseek2_does_not_have_the_dense_width_of_the_configuration_tables() -> None:
    """Tables 4 and 5 print mlp_dim 5632; the 15.706 billion need 10944."""
    less = 3 * 2048 * (10944 - 5632) / 1e9
    assert weights("deepseek2-16b") - less == rounded(15.674, 3)


def test_qwen3_235b_was_measured_with_4_layers() -> None:
    """Table 5 and its text: 94 layers; table 9: 4 layers, 11.196 billion."""
    one_layer = ledger.moe_parameters(width=4096, expert_width=1536, experts=128)
    assert 94 * one_layer / 1e9 > 220


def test_active_weights_are_those_of_top_k_shared_experts_and_router() -> None:
    work = ledger.moe_flops(
        tokens=10, width=8, expert_width=4, experts=16, top_k=2, shared_experts=1, shared_width=6
    )
    assert work == 2 * 10 * (3 * 8 * (2 * 4 + 6) + 8 * 16)


def test_more_dense_layers_than_layers_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="dense_layers is 3, more than the 2 layers"):
        ledger.matmul_parameters(
            layers=2, width=8, vocabulary=10, attention_parameters=1, mlp_parameters=1,
            dense_layers=3,
        )  # fmt: skip


# --- counters and throughput -----------------------------------------------------------------


def test_counters_become_the_quantities_of_the_table() -> None:
    """Standard XLA, one layer; the counters themselves are not published, so by their inverse."""
    mops = 36.377e12 / 512
    assert ledger.mfma_bf16_flops(mops=(mops / 2, mops / 2)) / TERA == pytest.approx(36.377)
    kib = 135.354 * 2**20
    assert ledger.hbm_read_gib(fetch_size=(kib - 1, 1)) == pytest.approx(135.354)
    assert ledger.hbm_write_gib(write_size=(49.304 * 2**20,)) == pytest.approx(49.304)
    assert ledger.l2_hit_rate(hits=(6000, 168), misses=(3832,)) == pytest.approx(0.6168)


def test_no_requests_have_no_hit_rate() -> None:
    with pytest.raises(ValueError, match="no rate"):
        ledger.l2_hit_rate(hits=(0,), misses=(0,))


@pytest.mark.parametrize(
    ("tokens", "seconds", "published"),
    [
        (16384, 0.745, 21992),  # Llama 7B, one GPU: none, minimal_with_context, full
        (16384, 0.676, 24237),
        (16384, 0.794, 20635),
        (16384, 0.763, 21473),  # FSDP-8
        (16384, 0.740, 22141),
        (16384, 0.864, 18963),
        (262144 // 8, 8.354, 3922.4),  # Mixtral 8x22B
        (262144 // 8, 20.599, 1590.7),
        (2048, 3.946, 519.018),  # table 8: deepseek2-16b
        (32768, 52.107, 628.859),  # mixtral-8x7b (large)
        (2 * 16384, 4.003, 8186),  # 5474
        (9 * 64 * 65536 // 128, 82.671, 3567),  # 5799
        (294912, 79.361, 3716),
        (294912, 78.349, 3764),
    ],
)
def test_tokens_per_second(tokens: int, seconds: float, published: float) -> None:
    """The times are printed to a millisecond."""
    found = ledger.tokens_per_second(tokens=tokens, seconds=seconds)
    assert found == pytest.approx(published, rel=2e-4)


@pytest.mark.parametrize(("tflops", "percent"), [(230.7, 25.1), (219.5, 23.9)])
def test_mfu_on_a_v6e(tflops: float, percent: float) -> None:
    found = ledger.model_flops_utilization(
        flops_per_second=tflops * TERA, peak_flops_per_second=918 * TERA
    )
    assert 100 * found == rounded(percent, 1)


# --- the list --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_is_described(name: str) -> None:
    formula = FORMULAS[name]
    assert formula.name == name
    assert getattr(ledger, name) is formula.function
    assert formula.summary.endswith(".")
    assert all((formula.expression, formula.unit, formula.source, formula.topic))
    assert all(parameter.symbol.meaning for parameter in formula.parameters)


def test_every_symbol_is_used() -> None:
    used = {one.name for formula in FORMULAS.values() for one in formula.parameters}
    assert used | {"elements"} == set(ledger.SYMBOLS)


def test_a_dataclass_argument_is_given_by_its_fields() -> None:
    formula = FORMULAS["projection_flops"]
    required = [one.name for one in formula.parameters if one.required]
    assert required == ["layers", "batch", "sequence", "width", "mlp_width"]
    values = {"layers": 32, "batch": 4, "sequence": 4096, "width": 4096, "mlp_width": 11008}
    assert formula.evaluate(values) == ledger.projection_flops(decoder=LLAMA_7B)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Decoder(0, 1, 1, 1, 1), "layers is 0, but must be at least 1"),
        (lambda: Residual(-1, 2), "elements is -1, but must be at least 1"),
        (lambda: Residual(1, 0), "element_bytes is 0, but must be above 0"),
        (
            lambda: ledger.attention_flops(
                layers=1, batch=1, sequence=1, attention_width=1, causal_fraction=1.5
            ),
            "causal_fraction is 1.5, but must be between 0 and 1",
        ),
        (
            lambda: ledger.tokens_per_second(tokens=1, seconds=math.nan),
            "seconds is nan, but must be above 0",
        ),
        (
            lambda: ledger.tokens_per_second(tokens=1, seconds=math.inf),
            "seconds is inf, but must be above 0",
        ),
        (
            lambda: FORMULAS["head_flops"].evaluate(
                {"tokens": 10**200, "width": 10**200, "vocabulary": 1}
            ),
            None,
        ),
        (
            lambda: FORMULAS["tokens_per_second"].evaluate({"tokens": 10**400, "seconds": 1.0}),
            "the result is too large for a float",
        ),
    ],
)
def test_numbers_out_of_range(call: Callable[[], object], sentence: str | None) -> None:
    if sentence is None:  # whole numbers have no largest
        assert call()
        return
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_committed_page_is_what_the_formulas_say() -> None:
    """`hlolens ledger --format markdown -o docs/ledger.md` makes it anew."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown(list(FORMULAS.values()))


# --- the verb --------------------------------------------------------------------------------

Cli = Callable[..., Ran]
LLAMA = ("layers=32", "batch=4", "sequence=4096", "width=4096", "mlp_width=11008")


def test_the_list_names_every_formula(cli: Cli) -> None:
    ran = cli("ledger")
    assert (ran.code, ran.err) == (0, "")
    assert set(FORMULAS) <= set(ran.out.split())
    listed = json.loads(cli("ledger", "--format", "json").out)
    assert [one["name"] for one in listed] == list(FORMULAS)


def test_a_result_comes_with_formula_arguments_and_source(cli: Cli) -> None:
    ran = cli("ledger", "named_residual_bytes", *LLAMA, "element_bytes=bf16")
    assert ran.code == 0
    assert ran.out.startswith("named_residual_bytes = 48855252992 bytes (45.5 GiB)\n")
    for part in ("L·B·S·w·(6D + 2F)", "element_bytes=2", "dead_saved=true", "M_named"):
        assert part in ran.out


def test_a_result_as_json(cli: Cli) -> None:
    ran = cli("ledger", "replay_flops", *LLAMA, "dead_replay=false", "--format", "json")
    data = json.loads(ran.out)
    assert (data["value"], data["unit"]) == (182518930210816, "FLOP")
    assert data["arguments"]["policy"] == "full"
    assert data["arguments"]["dead_replay"] is False


def test_lists_and_residuals(cli: Cli) -> None:
    assert (
        "= 0.333333 (33.3 %)" in cli("ledger", "pad_waste", "group_sizes=3, 2,4", "row_tile=3").out
    )
    assert (
        "251, 251, 250, 250 rows"
        in cli("ledger", "balanced_group_sizes", "rows=1002", "groups=4").out
    )
    ran = cli("ledger", "saved_activation_bytes", "layers=2", "residuals=4x8:bf16:2,10:s4")
    assert ran.out.startswith("saved_activation_bytes = 74 bytes\n")
    assert "residuals=32:2:2,10:0.5:1" in ran.out


def test_a_name_alone_is_explained(cli: Cli) -> None:
    ran = cli("ledger", "replay_flops")
    assert ran.code == 0
    assert "dead code" in ran.out
    assert "required" in ran.out
    assert "none, full, save_qkv_proj" in ran.out


def test_an_unknown_name_is_an_answer(cli: Cli) -> None:
    ran = cli("ledger", "named_residual_byte", "layers=1")
    assert ran.code == 1
    assert "did you mean named_residual_bytes" in ran.err
    assert "`hlolens ledger` lists them" in cli("ledger", "xyz").err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pad_waste", "group_size=3"), "has no 'group_size'; did you mean 'group_sizes'?"),
        (("pad_waste", "group_sizes=3"), "pad_waste also needs row_tile"),
        (("pad_waste", "3"), "'3' is no KEY=VALUE"),
        (("pad_waste", "row_tile=3", "row_tile=4"), "row_tile is given twice"),
        (("pad_waste", "row_tile=4k"), "row_tile=4k: expected a whole number"),
        (("pad_waste", "group_sizes=1,,2"), "expected whole numbers with commas"),
        (("pad_waste", "group_sizes=0", "row_tile=3"), "group_sizes have no row"),
        (("pad_waste", "group_sizes=-3", "row_tile=3"), "group_sizes is -3, but must be"),
        (("layer_input_bytes", "element_bytes=bf61"), "expected a dtype such as bf16"),
        (("replay_flops", "dead_replay=maybe"), "expected true or false"),
        (("replay_flops", "policy=fulll"), "expected one of none, full"),
        (("tokens_per_second", "seconds=fast"), "expected a number"),
        (("mfma_bf16_flops", "mops=a"), "expected numbers with commas"),
        (("saved_activation_bytes", "residuals=4:zz"), "expected ELEMENTS:DTYPE[:SHARDS]"),
        (("pad_waste", "row_tile=3", "--format", "markdown"), "it takes no KEY=VALUE"),
    ],
)
def test_what_cannot_be_computed(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    ran = cli("ledger", *arguments)
    assert ran.code == 2
    assert sentence in ran.err
    assert ran.out == ""


def test_results_for_people() -> None:
    assert value_text(0.5, "bytes") == "0.5 bytes"
    assert value_text(2 * 2**30, "bytes") == "2147483648 bytes (2.0 GiB)"
    assert value_text(512, "FLOP") == "512 FLOP"
    assert value_text(6_738_415_616, "parameters") == "6738415616 parameters (6.738 billion)"
    assert value_text(3.75, "rows") == "3.75 rows"


def test_presets_are_those_of_the_fixture() -> None:
    """Fused projections, which the ledger leaves out, apart."""
    from fixtures.models import llama

    for name, saved in llama.PRESETS.items():
        assert set(PRESETS[name]) == set(saved) & set(llama.NAMES)  # type: ignore[index]
    assert set(PRESETS) == set(llama.PRESETS)
