"""What takes an expert block's time by a device spec: its routing, or its matrix products.

An estimate, and a rough one: bytes of routing at the full bandwidth of the memory, bytes of
all-to-alls at that of the links, FLOPs at the peak of dense BF16. Nothing overlaps, kernels have
no launch, and a product that waits for its weights counts its FLOPs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from hlo_lens_passes._device_specs import Spec


@dataclass(frozen=True, slots=True)
class Peak:
    """Of one device: bytes a second of its memory, dense BF16 FLOP a second, and who says so."""

    memory: float
    flops: float
    source: str


_NVIDIA: Final = "NVIDIA data sheet, dense BF16"
_AMD: Final = "AMD data sheet, dense BF16"
_GOOGLE: Final = "Google Cloud, TPU7x: key specifications"
# By the name of a device spec (`catalogues/devices.toml`).
PEAKS: Final = {
    "h100": Peak(3.35e12, 989.4e12, _NVIDIA),
    "h200": Peak(4.8e12, 989.4e12, _NVIDIA),
    "b200": Peak(8e12, 2250e12, _NVIDIA),
    "gb200": Peak(8e12, 2500e12, _NVIDIA),
    "mi300x": Peak(5.3e12, 1307.4e12, _AMD),
    "mi355x": Peak(8e12, 2516.6e12, _AMD),
    "v4": Peak(1.2e12, 275e12, "Google Cloud, TPU v4"),
    "v5e": Peak(0.82e12, 197e12, "scaling book, TPU v5e"),
    "v5p": Peak(2.765e12, 459e12, _GOOGLE),
    "v6e": Peak(1.638e12, 918e12, _GOOGLE),
    # Two devices a chip.
    "tpu7x": Peak(3.69e12, 1153.5e12, _GOOGLE),
}


@dataclass(frozen=True, slots=True)
class Balance:
    """Microseconds of one run, and in words where they come from."""

    routing: float
    compute: float
    told: str

    @property
    def side(self) -> Literal["routing", "compute"]:
        return "routing" if self.routing > self.compute else "compute"


def balance_of(
    spec: Spec | None, routing: int | None, sent: int | None, flops: float | None
) -> Balance | None:
    """Of bytes that routing reads and writes, bytes sent in all-to-alls, FLOPs of the experts.

    None without a spec, for a device whose peaks are not known, and where a number is missing.
    """
    peak = None if spec is None else PEAKS.get(spec.name)
    if spec is None or peak is None or routing is None or sent is None or flops is None:
        return None
    link = None if spec.fast is None else spec.fast.bandwidth("all-to-all", None)
    if sent and link is None:
        return None
    moving = routing / peak.memory * 1e6
    sending = sent / link * 1e6 if sent and link is not None else 0.0
    compute = flops / peak.flops * 1e6
    told = (
        f"{spec.name}: routing {moving:.3g} us at {peak.memory / 1e12:g} TB/s"
        + (f" + {sending:.3g} us sent" if sent else "")
        + f", compute {compute:.3g} us at {peak.flops / 1e12:g} TFLOP/s ({peak.source})"
    )
    return Balance(moving + sending, compute, told)
