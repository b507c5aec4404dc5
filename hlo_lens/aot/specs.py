"""Device specifications: what XLA has to know of a GPU that is not there.

XLA's GPU compiler takes a `GpuTargetConfigProto` in place of a device. The ones here are XLA's own
(`xla/backends/gpu/target_config/specs`), as the wheel jax-cuda13-pjrt 0.12.0.1 embeds them; a
plugin that embeds its own is asked first, since the two were made for each other.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

__all__ = ["DeviceSpec", "device_spec"]

_FILES = {
    "a100": "nvidia_a100_sxm4_80gb",
    "h100": "nvidia_h100_80gb_hbm3",
    "h200": "nvidia_h200_141gb_hbm3e",
    "b200": "nvidia_b200",
    "gb300": "nvidia_gb300",
    "gfx942": "mi300x",
    "gfx950": "mi350x",
}
_OURS = "xla/backends/gpu/target_config/specs, as embedded in jax-cuda13-pjrt 0.12.0.1"
_DESCRIPTION = re.compile(r'device_description_str: "([^"]*)"')
_LONGEST = 1 << 16  # bytes of one specification; the real ones have 1 to 6 KiB


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A `stream_executor.GpuTargetConfigProto` as text, and where it comes from."""

    description: str  # "NVIDIA H100 80GB HBM3"
    text: str
    source: str

    def told(self) -> dict[str, str]:
        """What provenance says of it."""
        digest = sha256(self.text.encode()).hexdigest()
        return {"description": self.description, "source": self.source, "sha256": digest}


def device_spec(chip: str, plugin: Path | None = None) -> DeviceSpec:
    """The specification of `chip` ("h100", "gfx950"): the plugin library's own, else the one here.

    Raises KeyError for a chip that none is known of.
    """
    text = files(__package__).joinpath("gpu_specs", f"{_FILES[chip]}.txtpb").read_text()
    match = _DESCRIPTION.search(text)
    assert match is not None, chip
    if plugin is None:
        return DeviceSpec(match[1], text, _OURS)
    with plugin.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        own = _embedded(data, match[1])
        if own is not None:
            return DeviceSpec(match[1], own, f"embedded in {plugin.name}")
        text, left_out = _understood(data, text)
    source = f"{_OURS}; without {', '.join(left_out)}, which this XLA does not know"
    return DeviceSpec(match[1], text, source if left_out else _OURS)


def _embedded(data: mmap.mmap, description: str) -> str | None:
    """The text proto of the device `description` among the strings of a library."""
    found = data.find(f'device_description_str: "{description}"'.encode())
    if found < 0:
        return None
    start = data.rfind(b"\0", max(0, found - _LONGEST), found) + 1
    text = data[start : data.find(b"\0", found)].decode(errors="replace")
    begin = text.find("gpu_device_info {")
    return text[begin:] if begin >= 0 else None


def _understood(data: mmap.mmap, text: str) -> tuple[str, list[str]]:
    """`text` without the fields that a library's own descriptor of the message lacks, and these.

    A text proto with an unknown field is refused as a whole. A descriptor holds the name of a
    message, and of a field, behind 0x0A and its length (descriptor.proto).
    """
    found = data.find(_entry("GpuDeviceInfoProto"))
    if found < 0:
        return text, []
    around = data[max(0, found - _LONGEST) : found + _LONGEST]
    unknown = [
        name for name in re.findall(r"^  (\w+)", text, re.MULTILINE) if _entry(name) not in around
    ]
    for name in unknown:
        text = re.sub(rf"^  {name}( {{\n(.*\n)*?  }}|: .*)\n", "", text, flags=re.MULTILINE)
    return text, unknown


def _entry(name: str) -> bytes:
    return b"\x0a" + bytes([len(name)]) + name.encode()
