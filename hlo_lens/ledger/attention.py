"""Working sets of attention: score arrays in HBM, one tile on chip, row statistics."""

from __future__ import annotations

from hlo_lens.ledger.formula import CHAPTER, formula

TOPIC = "Attention working sets"
_SECTION = f"{CHAPTER}: Forward and backward working sets"


@formula("c·B·H·S_q·S_k·w", unit="bytes", source=f"{_SECTION}, M_standard", topic=TOPIC)
def standard_attention_bytes(
    *,
    batch: int,
    heads: int,
    query_sequence: int,
    key_sequence: int | None = None,
    element_bytes: float = 4,
    live_arrays: int = 1,
) -> float:
    """Bytes of HBM for the score-shaped arrays of standard attention, FP32 unless said otherwise.

    Masked logits, exponentials and probabilities may be alive together: `live_arrays` 3.
    """
    pairs = query_sequence * (key_sequence or query_sequence)
    return live_arrays * batch * heads * pairs * element_bytes


@formula(
    "w·[(B_q + 2·B_k)·d + B_q·B_k + B_q·d_v]", unit="bytes", source=f"{_SECTION}, M_tile",
    topic=TOPIC,
)  # fmt: skip
def attention_tile_bytes(
    *,
    query_tile: int,
    key_tile: int,
    head_dim: int,
    value_head_dim: int | None = None,
    element_bytes: float = 2,
) -> float:
    """Bytes on chip for one tile of a flash-style kernel: Q, K, V, scores and output.

    The document's form counts the V tile as B_k·d, not B_k·d_v, so it is exact only where both
    widths agree; and it has one width w for operands and for scores and output, which kernels
    accumulate in FP32. Staging depth and layout are the kernel's.
    """
    operands = (query_tile + 2 * key_tile) * head_dim
    results = query_tile * key_tile + query_tile * (value_head_dim or head_dim)
    return element_bytes * (operands + results)


@formula("B·H·S·w", unit="bytes", source=f"{_SECTION} (the O(BHS) row statistics)", topic=TOPIC)
def row_statistics_bytes(
    *, batch: int, heads: int, sequence: int, element_bytes: float = 4
) -> float:
    """Bytes of HBM for one statistic a row, such as the log-sum-exp that backward needs."""
    return batch * heads * sequence * element_bytes
