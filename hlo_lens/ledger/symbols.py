"""The quantities that the formulas speak of: letter, meaning and range of each argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Symbol:
    """What an argument stands for; a number of it lies in `least` … `most`."""

    letter: str
    meaning: str
    least: float = 1
    most: float = math.inf

    @property
    def range_text(self) -> str:
        """The range in words: `at least 1`, `above 0`, `between 0 and 1`."""
        if self.most < math.inf:
            return f"between {self.least:g} and {self.most:g}"
        return "above 0" if self.least == _TINY else f"at least {self.least:g}"


_TINY: Final = 1e-30  # a divisor, or a size that is no count: anything above zero

SYMBOLS: Final[Mapping[str, Symbol]] = MappingProxyType({
    # shapes
    "layers": Symbol("L", "decoder layers"),
    "batch": Symbol("B", "sequences"),
    "sequence": Symbol("S", "tokens of a sequence"),
    "query_sequence": Symbol("S_q", "query positions"),
    "key_sequence": Symbol("S_k", "key positions; left out: as many as queries"),
    "tokens": Symbol("T", "tokens, batch × sequence"),
    "width": Symbol("D", "model width"),
    "mlp_width": Symbol("F", "width of the gated MLP"),
    "attention_width": Symbol("H·d", "heads × head width of queries; left out: the model width"),
    "value_width": Symbol("H·d_v", "heads × head width of values; left out: that of queries"),
    "kv_width": Symbol("H_kv·d", "key/value heads × head width; left out: that of queries"),
    "heads": Symbol("H", "query heads"),
    "kv_heads": Symbol("H_kv", "key/value heads"),
    "head_dim": Symbol("d", "width of a query and key head"),
    "value_head_dim": Symbol("d_v", "width of a value head; left out: as a query head"),
    "vocabulary": Symbol("V", "entries of the vocabulary"),
    # bytes and sharding
    "element_bytes": Symbol("w", "bytes of an element, or a dtype such as bf16", _TINY),
    "shards": Symbol("s", "product of the mesh axes that shard the value"),
    "batch_shards": Symbol("p_B", "devices that the batch is split over"),
    "width_shards": Symbol("p_D", "devices that the width is split over"),
    "residuals": Symbol("R_l", "saved values of a layer, each ELEMENTS:DTYPE[:SHARDS]"),
    "elements": Symbol("|r|", "elements of the whole value"),
    "loss_bytes": Symbol("M_loss", "bytes kept for the loss", 0),
    "backend_bytes": Symbol("M_backend", "bytes that the back end keeps", 0),
    "workspace_bytes": Symbol("M_workspace", "workspace of library calls", 0),
    # rematerialization
    "policy": Symbol("p", "MaxText's remat_policy"),
    "dead_saved": Symbol("", "count mlpwo, which a pre-norm layer's backward never reads"),
    "dead_replay": Symbol("", "count the replay of mlpwo, which is dead code and does not run"),
    "fused_attention": Symbol("", "attention is one kernel, its row state saved with the context"),
    "causal_fraction": Symbol("c", "part of the S×S scores that is counted", 0, 1),
    "part": Symbol("", "which part of the sum"),
    "ordinary_flops": Symbol("F_ordinary", "FLOPs of a step without replay", 0),
    "operation_flops": Symbol("F_i", "FLOPs of each replayed operation", 0),
    "replays": Symbol("m_i", "how often each of them is replayed", 0),
    # attention
    "live_arrays": Symbol("c", "score or probability arrays alive at once"),
    "query_tile": Symbol("B_q", "query rows of a tile"),
    "key_tile": Symbol("B_k", "key rows of a tile"),
    # experts
    "experts": Symbol("E", "experts"),
    "top_k": Symbol("k", "experts that a token is sent to"),
    "expert_width": Symbol("F", "width of an expert's gated MLP"),
    "shared_experts": Symbol("E_s", "experts that every token visits", 0),
    "shared_width": Symbol("F_s", "width of a shared expert; left out: as a routed one"),
    "rows": Symbol("M", "routed rows, batch × sequence × top-k"),
    "contracting_width": Symbol("K", "contracting width of the expert GEMM"),
    "output_width": Symbol("N", "output width of the expert GEMM"),
    "group_sizes": Symbol("n_e", "rows of each expert", 0),
    "row_tile": Symbol("T_M", "rows of a tile"),
    "groups": Symbol("G", "groups to split over"),
    "remainder": Symbol("", "which groups take the rows that are left over"),
    "capacity": Symbol("C", "rows reserved for an expert", 0),
    "capacity_factor": Symbol("f", "capacity over the mean share", _TINY),
    "buffer_factor": Symbol("f", "rows of the buffer over the routed rows", _TINY),
    "tokens_per_batch": Symbol("T", "what the capacity is a share of: tokens, or assignments"),
    # parameters
    "attention_parameters": Symbol("P_attn", "weights of a layer's attention", 0),
    "mlp_parameters": Symbol("P_mlp", "weights of a layer's MLP or experts", 0),
    "dense_layers": Symbol("L_d", "layers, of all, that have a dense MLP instead", 0),
    "dense_mlp_parameters": Symbol("P_d", "weights of the dense MLP of those", 0),
    "matmul_parameters": Symbol("P", "weights that a token is multiplied with", 0),
    "attention_flops": Symbol("F_attn", "forward FLOPs of attention's two products", 0),
    "tied_embedding": Symbol("", "embedding and vocabulary head are one table"),
    "query_rank": Symbol("r_q", "rank of the compressed queries; left out: not compressed"),
    "kv_rank": Symbol("r_kv", "rank of the compressed keys and values"),
    "rope_head_dim": Symbol("d_r", "width of the part of a head that carries positions"),
    # counters and throughput
    "mops": Symbol("SQ_INSTS_VALU_MFMA_MOPS_BF16", "counter values, one a dispatch", 0),
    "fetch_size": Symbol("FETCH_SIZE", "counter values in KiB, one a dispatch", 0),
    "write_size": Symbol("WRITE_SIZE", "counter values in KiB, one a dispatch", 0),
    "hits": Symbol("TCC_HIT_sum", "counter values, one a dispatch", 0),
    "misses": Symbol("TCC_MISS_sum", "counter values, one a dispatch", 0),
    "seconds": Symbol("t", "seconds of a step", _TINY),
    "flops_per_second": Symbol("", "FLOP/s reached", 0),
    "peak_flops_per_second": Symbol("", "FLOP/s of the device", _TINY),
})  # fmt: skip
