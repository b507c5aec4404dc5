"""Performance counters of gfx950 turned into quantities, and throughput."""

from __future__ import annotations

from hlo_lens.ledger.formula import CHAPTER, DERIVED, GROUP_GEMM, formula

TOPIC = "Counters and throughput"
_COUNTERS = f"{CHAPTER}: Case study: Llama 7B (attention), gfx950 counter definitions"
_KIB_IN_GIB = 2**20
_FLOPS_PER_MOP = 512


@formula(
    "512·Σ SQ_INSTS_VALU_MFMA_MOPS_BF16", unit="FLOP", source=f"{_COUNTERS}, F_MFMA,BF16",
    topic=TOPIC,
)  # fmt: skip
def mfma_bf16_flops(*, mops: tuple[float, ...]) -> float:
    """BF16 matrix FLOPs that were issued, from the counter of all dispatches.

    What the matrix units did, padding and replay too; products in other dtypes and vector
    arithmetic are not in it.
    """
    return _FLOPS_PER_MOP * sum(mops)


@formula("Σ FETCH_SIZE[KiB] / 2²⁰", unit="GiB", source=f"{_COUNTERS}, R_HBM", topic=TOPIC)
def hbm_read_gib(*, fetch_size: tuple[float, ...]) -> float:
    """GiB read from HBM."""
    return sum(fetch_size) / _KIB_IN_GIB


@formula("Σ WRITE_SIZE[KiB] / 2²⁰", unit="GiB", source=f"{_COUNTERS}, W_HBM", topic=TOPIC)
def hbm_write_gib(*, write_size: tuple[float, ...]) -> float:
    """GiB written to HBM."""
    return sum(write_size) / _KIB_IN_GIB


@formula(
    "Σ TCC_HIT_sum / Σ (TCC_HIT_sum + TCC_MISS_sum)",
    unit="ratio",
    source=f"{_COUNTERS}, h_L2",
    topic=TOPIC,
)
def l2_hit_rate(*, hits: tuple[float, ...], misses: tuple[float, ...]) -> float:
    """Share of the requests to L2 that hit; ValueError where there was none."""
    requests = sum(hits) + sum(misses)
    if not requests:
        raise ValueError("no hit and no miss: there is no rate")
    return sum(hits) / requests


@formula(
    "T / t",
    unit="tokens/s",
    source=f"{CHAPTER}: both case studies; {GROUP_GEMM}: tables 8 and 9",
    topic=TOPIC,
)
def tokens_per_second(*, tokens: int, seconds: float) -> float:
    """Tokens a second on one device; `tokens` are its own, over all microbatches of a step."""
    return tokens / seconds


@formula("FLOP/s reached / FLOP/s of the device", unit="ratio", source=DERIVED, topic=TOPIC)
def model_flops_utilization(*, flops_per_second: float, peak_flops_per_second: float) -> float:
    """MFU: the FLOP/s that the model needed over what the device can do in that dtype."""
    return flops_per_second / peak_flops_per_second
