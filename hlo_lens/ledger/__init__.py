"""Closed forms for a training step: bytes that are kept, FLOPs that run, experts, counters.

Functions of keyword arguments, in bytes, FLOPs and counts on one device unless they say otherwise;
a number outside its range raises ValueError. `FORMULAS` lists them with formula, unit and source.
They predict; what a program does is read from its text.
"""

from collections.abc import Mapping
from types import MappingProxyType

from hlo_lens.ledger import activations, attention, counters, flops, moe, parameters
from hlo_lens.ledger.activations import (
    Residual,
    layer_input_bytes,
    local_bytes,
    named_residual_bytes,
    saved_activation_bytes,
)
from hlo_lens.ledger.attention import (
    attention_tile_bytes,
    row_statistics_bytes,
    standard_attention_bytes,
)
from hlo_lens.ledger.counters import (
    hbm_read_gib,
    hbm_write_gib,
    l2_hit_rate,
    mfma_bf16_flops,
    model_flops_utilization,
    tokens_per_second,
)
from hlo_lens.ledger.decoder import DEAD, PRESETS, Decoder, Policy, Preset, replayed
from hlo_lens.ledger.flops import (
    attention_flops,
    executed_flops,
    head_flops,
    projection_flops,
    replay_flops,
    replay_fraction,
    step_flops,
    training_flops,
)
from hlo_lens.ledger.formula import LISTED, Formula, Parameter
from hlo_lens.ledger.moe import (
    balanced_group_sizes,
    capacity_path_flops,
    dense_masked_multiplier,
    dense_path_flops,
    dispatch_combine_flops,
    expert_capacity,
    expert_stack_bytes,
    maxtext_expert_capacity,
    mean_group_size,
    pad_waste,
    padded_flops,
    routed_rows,
    row_tiles,
    sparse_path_flops,
    useful_flops,
)
from hlo_lens.ledger.parameters import (
    attention_parameters,
    matmul_parameters,
    mla_parameters,
    model_parameters,
    moe_flops,
    moe_parameters,
)
from hlo_lens.ledger.symbols import SYMBOLS, Symbol

__all__ = [
    "DEAD",
    "FORMULAS",
    "PRESETS",
    "SYMBOLS",
    "Decoder",
    "Formula",
    "Parameter",
    "Policy",
    "Preset",
    "Residual",
    "Symbol",
    "attention_flops",
    "attention_parameters",
    "attention_tile_bytes",
    "balanced_group_sizes",
    "capacity_path_flops",
    "dense_masked_multiplier",
    "dense_path_flops",
    "dispatch_combine_flops",
    "executed_flops",
    "expert_capacity",
    "expert_stack_bytes",
    "hbm_read_gib",
    "hbm_write_gib",
    "head_flops",
    "l2_hit_rate",
    "layer_input_bytes",
    "local_bytes",
    "matmul_parameters",
    "maxtext_expert_capacity",
    "mean_group_size",
    "mfma_bf16_flops",
    "mla_parameters",
    "model_flops_utilization",
    "model_parameters",
    "moe_flops",
    "moe_parameters",
    "named_residual_bytes",
    "pad_waste",
    "padded_flops",
    "projection_flops",
    "replay_flops",
    "replay_fraction",
    "replayed",
    "routed_rows",
    "row_statistics_bytes",
    "row_tiles",
    "saved_activation_bytes",
    "sparse_path_flops",
    "standard_attention_bytes",
    "step_flops",
    "tokens_per_second",
    "training_flops",
    "useful_flops",
]

_ORDER = [module.TOPIC for module in (activations, flops, attention, moe, parameters, counters)]

FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {one.name: one for one in sorted(LISTED, key=lambda one: _ORDER.index(one.topic))}
)
"""Every formula by name, topic by topic."""
