"""Bytes that are kept from forward to backward."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_lens.ledger.decoder import DEAD, PRESETS, Decoder, Preset
from hlo_lens.ledger.formula import CHAPTER, DERIVED, check, formula

TOPIC = "Saved activations"


@dataclass(frozen=True, slots=True)
class Residual:
    """A value that is kept: its elements over all devices, bytes of each, and its shards."""

    elements: int
    element_bytes: float
    shards: int = 1

    def __post_init__(self) -> None:
        check({"elements": self.elements, "element_bytes": self.element_bytes})
        check({"shards": self.shards})

    @property
    def local_bytes(self) -> float:
        """Bytes on one device: |r|·w / s."""
        return self.elements * self.element_bytes / self.shards


@formula(
    "B·S·D·w / (p_B·p_D)",
    unit="bytes",
    source=f"{CHAPTER}: Sharding and collectives, M_local",
    topic=TOPIC,
)
def local_bytes(
    *,
    batch: int,
    sequence: int,
    width: int,
    element_bytes: float,
    batch_shards: int = 1,
    width_shards: int = 1,
) -> float:
    """Bytes of a [B, S, D] value on one device.

    `batch` is that of all devices. Replicated dimensions give no divisor; under weak scaling
    `batch` grows with `batch_shards`, and the bytes on a device stay.
    """
    return batch * sequence * width * element_bytes / (batch_shards * width_shards)


@formula(
    "Σ_l Σ_r |r|·w_r / s_r + M_loss + M_backend + M_workspace",
    unit="bytes",
    source=f"{CHAPTER}: Activations in training memory, M_saved,local",
    topic=TOPIC,
)
def saved_activation_bytes(
    *,
    layers: int,
    residuals: tuple[Residual, ...],
    loss_bytes: float = 0,
    backend_bytes: float = 0,
    workspace_bytes: float = 0,
) -> float:
    """Bytes on one device that must outlive the forward pass, for layers that are all alike.

    What must be kept, no peak: buffers alias, temporaries share memory, and a library call may
    have a workspace that the JAX expression does not show.
    """
    kept = sum(residual.local_bytes for residual in residuals)
    return layers * kept + loss_bytes + backend_bytes + workspace_bytes


@formula(
    "L·B·S·w·Σ width of the named values / s;  minimal_with_context: L·B·S·w·(6D + 2F)",
    unit="bytes",
    source=f"{CHAPTER}: Activations in training memory, M_named; MaxText policy surface",
    topic=TOPIC,
)
def named_residual_bytes(
    *,
    decoder: Decoder,
    element_bytes: float = 2,
    policy: Preset = "minimal_with_context",
    shards: int = 1,
    dead_saved: bool = True,
) -> float:
    """Bytes on one device of the values that a policy names.

    Only those: a layer's input (`layer_input_bytes`), statistics, logits and temporaries come on
    top. The document counts the down projection's output (mlpwo), one D of its 6D, and so does this
    unless `dead_saved=False`: no backward of a pre-norm layer reads it, and `jax.checkpoint` does
    not keep it. What such a layer stacks has the document's size all the same, because its input,
    as large, is kept too; but full keeps that as well, and thus 5D + 2F less (41.5 GiB, where the
    document measured 46.3 and 45.8 GiB less for the whole program).
    """
    names = [name for name in PRESETS[policy] if dead_saved or name != DEAD]
    width = sum(decoder.widths[name] for name in names)
    return decoder.layers * decoder.tokens * width * element_bytes / shards


@formula(
    "L·B·S·D·w / s",
    unit="bytes",
    source=f"{DERIVED}: {CHAPTER} names it (full keeps the inputs to the remat boundary)",
    topic=TOPIC,
)
def layer_input_bytes(
    *, layers: int, batch: int, sequence: int, width: int, element_bytes: float = 2, shards: int = 1
) -> float:
    """Bytes on one device of the layers' inputs, which every policy but none keeps."""
    return layers * batch * sequence * width * element_bytes / shards
