"""Executed FLOPs: of a step, of what rematerialization does again, and of both."""

from __future__ import annotations

from typing import Literal

from hlo_lens.ledger.decoder import ATTENTION, Decoder, Policy, replayed
from hlo_lens.ledger.formula import CHAPTER, DERIVED, MAXTEXT, formula

TOPIC = "Executed FLOPs"
_LLAMA = f"{CHAPTER}: Case study: Llama 7B"


@formula(
    "2·T·(2·D·H·d + 2·D·H_kv·d + 3·D·F)·L;  multi-head: 2·T·(4D² + 3DF)·L",
    unit="FLOP",
    source=f"{_LLAMA}, F_replay,full (its first summand)",
    topic=TOPIC,
)
def projection_flops(*, decoder: Decoder) -> float:
    """Forward FLOPs of the projections: Q, K, V, output, gate, up and down."""
    products = decoder.matmuls()
    return decoder.layers * sum(products[name] for name in products if name not in ATTENTION)


@formula(
    "2·L·B·S_q·S_k·(H·d + H·d_v)·c;  self-attention: 4·L·B·S²·H·d·c",
    unit="FLOP",
    source=f"{_LLAMA}, F_replay,full (its second summand); "
    f"{MAXTEXT}: calculate_tflops_training_per_device",
    topic=TOPIC,
)
def attention_flops(
    *,
    layers: int,
    batch: int,
    sequence: int,
    attention_width: int,
    value_width: int | None = None,
    key_sequence: int | None = None,
    causal_fraction: float = 0.5,
) -> float:
    """Forward FLOPs of attention's two products, Q·Kᵀ and P·V.

    The documents' ledgers count half of them for a causal mask, c = 0.5 (exactly (S+1)/2S). Dots of
    plain XLA do the full S×S work whatever the mask says: compare those with c = 1.
    """
    pairs = layers * batch * sequence * (key_sequence or sequence) * causal_fraction
    return 2 * pairs * (attention_width + (value_width or attention_width))


@formula(
    "2·T·D·V", unit="FLOP", source=f"{MAXTEXT}: calculate_tflops_training_per_device", topic=TOPIC
)
def head_flops(*, tokens: int, width: int, vocabulary: int) -> float:
    """Forward FLOPs of the vocabulary head."""
    return 2 * tokens * width * vocabulary


@formula(
    "3·(projections + attention + head)",
    unit="FLOP",
    source=f"{_LLAMA} (the ordinary model ledger)",
    topic=TOPIC,
)
def step_flops(*, decoder: Decoder, vocabulary: int, causal_fraction: float = 0.5) -> float:
    """FLOPs of a training step without replay: forward, and twice that for the backward.

    Matrix products only. The document does not print the vocabulary; its 702.28 TFLOP is that of
    32000 entries. A flash-style backward also does the scores again, which is not counted here.
    """
    head = head_flops(tokens=decoder.tokens, width=decoder.width, vocabulary=vocabulary)
    layer = sum(decoder.matmuls(causal_fraction).values())
    return 3 * (decoder.layers * layer + head)


@formula(
    "L·Σ forward FLOPs of the products that the policy replays",
    unit="FLOP",
    source=f"{_LLAMA}, F_replay,full",
    topic=TOPIC,
)
def replay_flops(
    *,
    decoder: Decoder,
    policy: Policy = "full",
    causal_fraction: float = 0.5,
    dead_replay: bool = True,
    fused_attention: bool = True,
    part: Literal["all", "projections", "attention"] = "all",
) -> float:
    """FLOPs of the matrix products that the backward does again under a remat policy.

    The document's 212.21 TFLOP of projections under full remat count all seven, the down projection
    too. Nothing reads its replayed result, so jax drops it as dead code: with `dead_replay=False`
    it is left out (164.93). The vocabulary head lies outside the layers and is not replayed.
    `fused_attention=False` is attention in plain XLA: its scores are replayed under every policy
    but none, and c should be 1.
    """
    products = decoder.matmuls(causal_fraction)
    names = replayed(policy, dead_replay=dead_replay, fused_attention=fused_attention)
    if part != "all":
        names = tuple(name for name in names if (name in ATTENTION) == (part == "attention"))
    return decoder.layers * sum(products[name] for name in names)


@formula("replay_flops / step_flops", unit="ratio", source=f"{_LLAMA} (the 32.7 %)", topic=TOPIC)
def replay_fraction(
    *,
    decoder: Decoder,
    vocabulary: int,
    policy: Policy = "full",
    causal_fraction: float = 0.5,
    dead_replay: bool = True,
    fused_attention: bool = True,
) -> float:
    """Replayed matrix products over those of the ordinary step.

    The document's 32.7 % count the dead replay of the down projection; without it, 26.0 %. For one
    layer with the head the same forms give 20.9 % and 16.6 %, where the document's counters found
    8.7 % more BF16 MFMA operations: the head, to which it puts the difference, is in the former
    already. Its one-layer program replays less than either form says.
    """
    again = replay_flops(
        decoder=decoder,
        policy=policy,
        causal_fraction=causal_fraction,
        dead_replay=dead_replay,
        fused_attention=fused_attention,
    )
    return again / step_flops(
        decoder=decoder, vocabulary=vocabulary, causal_fraction=causal_fraction
    )


@formula(
    "F_ordinary + Σ_i m_i·F_i",
    unit="FLOP",
    source=f"{CHAPTER}: What is rematerialization, F_executed",
    topic=TOPIC,
)
def executed_flops(
    *, ordinary_flops: float, operation_flops: tuple[float, ...], replays: tuple[int, ...]
) -> float:
    """FLOPs of a step with its replays, operation by operation.

    Only operations inside the rematerialized region are replayed; one whose replay is dead has
    m = 0. ValueError where the two lists differ in length.
    """
    if len(operation_flops) != len(replays):
        raise ValueError(
            f"{len(operation_flops)} operation_flops, but {len(replays)} replays: one each"
        )
    again = zip(replays, operation_flops, strict=True)
    return ordinary_flops + sum(times * flops for times, flops in again)


@formula(
    "6·T·P + 3·F_attn",
    unit="FLOP",
    source=f"{MAXTEXT}: calculate_tflops_training_per_device; "
    f"{DERIVED}: it gives the TFLOP/s × time of tables 8 and 9 of Group-GEMM in XLA",
    topic=TOPIC,
)
def training_flops(*, tokens: int, matmul_parameters: int, attention_flops: float = 0) -> float:
    """FLOPs of a training step from the weights that a token is multiplied with.

    `matmul_parameters` are the active ones (top-k experts, the head, no embedding, no norm scale);
    of fixed-capacity experts it counts no padding, of dense masked ones no unrouted expert.
    """
    return 6 * tokens * matmul_parameters + 3 * attention_flops
