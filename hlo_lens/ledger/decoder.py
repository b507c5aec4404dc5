"""A decoder layer: its matrix products, the values it names, and what a policy keeps and replays.

Measured on jax 0.11 and 0.12 with a pre-norm Llama layer (RMSNorm, attention, residual, RMSNorm,
gated MLP, residual): what `jax.checkpoint` stacks and replays under each of MaxText's presets is
what this module says, names and matrix products one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, Literal

from hlo_lens.ledger.formula import check

Preset = Literal[
    "full", "save_qkv_proj", "save_dot_with_context_except_mlp", "minimal", "minimal_with_context"
]
Policy = Literal[
    "none",
    "full",
    "save_qkv_proj",
    "save_dot_with_context_except_mlp",
    "minimal",
    "minimal_with_context",
]

DEAD: Final = "mlpwo"
"""The output of the down projection: it goes into a sum, whose backward needs no operand.

`jax.checkpoint` therefore neither keeps it under a policy that names it, nor replays it under one
that does not. A layer that normalises it afterwards (post-norm) does need it.
"""

_QKV: Final = ("query_proj", "key_proj", "value_proj")
_MLP: Final = ("mlpwi_0", "mlpwi_1", "mlpwo")

PRESETS: Final[Mapping[Preset, tuple[str, ...]]] = MappingProxyType(
    {
        "full": (),
        "save_qkv_proj": _QKV,
        "save_dot_with_context_except_mlp": (*_QKV, "context", "out_proj"),
        "minimal": (*_QKV, "out_proj", *_MLP),
        "minimal_with_context": (*_QKV, "context", "out_proj", *_MLP),
    }
)
"""MaxText's remat_policy -> the `checkpoint_name`s it saves, fused variants left out."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The sizes of a stack of decoder layers on one device; ValueError where one is no size.

    `attention_width` (heads × head width) and `kv_width` (key/value heads × head width) are those
    of multi-head attention with heads as wide as the model where left out.
    """

    layers: int
    batch: int
    sequence: int
    width: int
    mlp_width: int
    attention_width: int | None = None
    kv_width: int | None = None

    def __post_init__(self) -> None:
        check(asdict(self))

    @property
    def tokens(self) -> int:
        """Tokens on the device."""
        return self.batch * self.sequence

    @property
    def widths(self) -> dict[str, int]:
        """Width of each named value of a layer, by `checkpoint_name`."""
        query = self.attention_width or self.width
        kv = self.kv_width or query
        return {
            "query_proj": query,
            "key_proj": kv,
            "value_proj": kv,
            "context": query,
            "out_proj": self.width,
            "mlpwi_0": self.mlp_width,
            "mlpwi_1": self.mlp_width,
            "mlpwo": self.width,
        }

    def matmuls(self, causal_fraction: float = 1.0) -> dict[str, float]:
        """Forward FLOPs of each matrix product of one layer, in order of execution.

        By the `checkpoint_name` of its result; `scores` is Q·Kᵀ, `context` is P·V, both over
        `causal_fraction` of the S×S pairs. The product's shape is [B·S, in] × [in, out].
        """
        widths = self.widths
        inputs = {"out_proj": widths["context"], "mlpwo": self.mlp_width}
        pairs = 2 * self.batch * self.sequence**2 * widths["context"] * causal_fraction
        products: dict[str, float] = {}
        for name, width in widths.items():
            if name == "context":
                products |= {"scores": pairs, "context": pairs}
            else:
                products[name] = 2 * self.tokens * inputs.get(name, self.width) * width
        return products


ATTENTION: Final = ("scores", "context")
"""The two matrix products of attention, which a fused kernel does as one."""


def replayed(
    policy: Policy, *, dead_replay: bool = False, fused_attention: bool = True
) -> tuple[str, ...]:
    """The matrix products of a layer that its backward does again under `policy`.

    Everything that the policy does not save, because the backward reads every one of them, save
    the `DEAD` one. The scores carry no name: a fused kernel has them again iff its context is not
    saved, attention in plain XLA under every policy but none.
    """
    if policy == "none":
        return ()
    saved = PRESETS[policy]
    found = [name for name in _FORWARD if name not in saved and (dead_replay or name != DEAD)]
    if fused_attention and "context" in saved:
        found.remove("scores")
    return tuple(found)


_FORWARD: Final = (*_QKV, *ATTENTION, "out_proj", *_MLP)
