"""What takes an expert block's time by a device spec: its routing, or its matrix products.

An estimate, and a rough one: bytes of routing at the peak of the memory, bytes of all-to-alls at
that of all links within a fast domain, FLOPs at the peak of dense BF16, whatever their dtype.
Nothing overlaps, kernels have no launch, and a product that waits for its weights counts its FLOPs
only. The numbers are those of the device spec (`_device_specs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from hlo_lens_passes._device_specs import Spec


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

    None without a spec, without a number of it that is needed, and where another is missing.
    """
    if spec is None or spec.memory_bandwidth is None or spec.peak_flops is None:
        return None
    if routing is None or sent is None or flops is None:
        return None
    link = None if spec.fast is None else spec.fast.bandwidth("all-to-all", None)
    if sent and link is None:
        return None
    moving = routing / spec.memory_bandwidth * 1e6
    sending = sent / link * 1e6 if sent and link is not None else 0.0
    compute = flops / spec.peak_flops * 1e6
    told = f"estimate for {spec.name}: routing {moving:.3g} us" + _at(
        spec, "memory_bandwidth", spec.memory_bandwidth, "B/s"
    )
    if sent and link is not None:
        told += f" + {sending:.3g} us sent" + _at(spec, "fast.link_bandwidth", link, "B/s")
    told += f", compute {compute:.3g} us" + _at(spec, "peak_flops", spec.peak_flops, "FLOP/s")
    return Balance(moving + sending, compute, told)


def _at(spec: Spec, key: str, number: float, unit: str) -> str:
    """The number that a time was divided by, and who says so, as far as the spec tells."""
    source = spec.sources.get(key)
    scaled = f"{number / 1e12:g} T" if number >= 1e12 else f"{number / 1e9:g} G"
    return f" at {scaled}{unit}" + (f" ({source})" if source else "")
