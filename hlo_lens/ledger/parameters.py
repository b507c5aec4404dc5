"""Weights of attention, of experts and of whole models, and FLOPs of an expert layer."""

from __future__ import annotations

from hlo_lens.ledger.formula import CHAPTER, DERIVED, GROUP_GEMM, MAXTEXT, formula

TOPIC = "Parameters"
_TOTALS = f"{DERIVED}: it gives total_weights of tables 8 and 9 of {GROUP_GEMM}"


@formula("2·D·H·d + 2·D·H_kv·d", unit="parameters", source=_TOTALS, topic=TOPIC)
def attention_parameters(*, width: int, heads: int, kv_heads: int, head_dim: int) -> int:
    """Weights of grouped-query attention: Q, K, V and output."""
    return 2 * width * head_dim * (heads + kv_heads)


@formula(
    "D·r_q + r_q·H·(d + d_r) + D·(r_kv + d_r) + r_kv·H·(d + d_v) + H·d_v·D",
    unit="parameters",
    source=f"{MAXTEXT}: calculate_mla_tflops_per_device; {_TOTALS}",
    topic=TOPIC,
)
def mla_parameters(
    *,
    width: int,
    heads: int,
    head_dim: int,
    rope_head_dim: int,
    value_head_dim: int | None = None,
    kv_rank: int,
    query_rank: int | None = None,
) -> int:
    """Weights of multi-head latent attention; `head_dim` is the part without positions.

    Without `query_rank` the queries are one product of D·H·(d + d_r) weights.
    """
    value = value_head_dim or head_dim
    query = heads * (head_dim + rope_head_dim)
    queries = query_rank * (width + query) if query_rank else width * query
    keys_values = width * (kv_rank + rope_head_dim) + kv_rank * heads * (head_dim + value)
    return queries + keys_values + heads * value * width


@formula(
    "3·D·(E·F + E_s·F_s) + D·E",
    unit="parameters",
    source=f"{CHAPTER}: Case study: Mixtral 8x22B (140.63 billion in all); {_TOTALS}",
    topic=TOPIC,
)
def moe_parameters(
    *,
    width: int,
    expert_width: int,
    experts: int,
    shared_experts: int = 0,
    shared_width: int | None = None,
) -> int:
    """Weights of an expert layer: gate, up and down of every expert, and the router.

    Those that a token is multiplied with are `moe_flops` of one token, halved.
    """
    shared = shared_experts * (shared_width or expert_width)
    return 3 * width * (experts * expert_width + shared) + width * experts


@formula(
    "2·T·(3·D·(k·F + E_s·F_s) + D·E)",
    unit="FLOP",
    source=f"{MAXTEXT}: calculate_routed_and_shared_ffn_tflops_per_device",
    topic=TOPIC,
)
def moe_flops(
    *,
    tokens: int,
    width: int,
    expert_width: int,
    experts: int,
    top_k: int,
    shared_experts: int = 0,
    shared_width: int | None = None,
) -> float:
    """Forward FLOPs of an expert layer without drops or padding: top-k experts, shared, router."""
    shared = shared_experts * (shared_width or expert_width)
    return 2 * tokens * (3 * width * (top_k * expert_width + shared) + width * experts)


@formula(
    "L·P_attn + (L − L_d)·P_mlp + L_d·P_d + V·D",
    unit="parameters",
    source=f"{MAXTEXT}: calculate_tflops_training_per_device",
    topic=TOPIC,
)
def matmul_parameters(
    *,
    layers: int,
    width: int,
    vocabulary: int,
    attention_parameters: int,
    mlp_parameters: int,
    dense_layers: int = 0,
    dense_mlp_parameters: int = 0,
) -> int:
    """Weights that a token is multiplied with, the vocabulary head among them.

    Of an expert layer, `mlp_parameters` are then the active ones: `moe_flops` of a token, halved.
    """
    if dense_layers > layers:
        raise ValueError(f"dense_layers is {dense_layers}, more than the {layers} layers")
    mlps = (layers - dense_layers) * mlp_parameters + dense_layers * dense_mlp_parameters
    return layers * attention_parameters + mlps + vocabulary * width


@formula(
    "L·P_attn + (L − L_d)·P_mlp + L_d·P_d + 2·V·D + (2L + 1)·D",
    unit="parameters",
    source=f"{CHAPTER}: the 6.738 billion of Llama 7B, the 140.63 billion of Mixtral 8x22B; "
    f"{_TOTALS}",
    topic=TOPIC,
)
def model_parameters(
    *,
    layers: int,
    width: int,
    vocabulary: int,
    attention_parameters: int,
    mlp_parameters: int,
    dense_layers: int = 0,
    dense_mlp_parameters: int = 0,
    tied_embedding: bool = False,
) -> int:
    """Weights of a model: layers, embedding and head, and two norm scales a layer and one behind.

    Scales inside attention (QK norms, those of latent attention) are left out. Neither document
    prints vocabularies or key/value heads; the published sums are met with those of the models'
    configurations.
    """
    products = matmul_parameters(
        layers=layers,
        width=width,
        vocabulary=vocabulary,
        attention_parameters=attention_parameters,
        mlp_parameters=mlp_parameters,
        dense_layers=dense_layers,
        dense_mlp_parameters=dense_mlp_parameters,
    )
    embedding = 0 if tied_embedding else vocabulary * width
    return products + embedding + (2 * layers + 1) * width
