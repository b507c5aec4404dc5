"""Device specifications: what XLA has to know of a GPU that is not there.

XLA's GPU compiler takes a `GpuTargetConfigProto` in place of a device. `gpus.toml` holds its fields
for each chip, with their source; a plugin that embeds its own is asked first, since the two were
made for each other.
"""

from __future__ import annotations

import mmap
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

__all__ = ["DeviceSpec", "device_spec"]

_OURS = (
    "hlo_lens/aot/gpus.toml, after xla/backends/gpu/target_config/specs"
    " (jax-cuda13-pjrt 0.12.0.1)"
)
# Words of an enumeration stand without quotes in a text proto.
_ENUMERATIONS = frozenset(("feature_extension",))
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
    fields = tomllib.loads(files(__package__).joinpath("gpus.toml").read_text())[chip]
    description, text = fields["device_description_str"], "".join(_text_proto(fields))
    if plugin is None:
        return DeviceSpec(description, text, _OURS)
    with plugin.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        own = _embedded(data, description)
        if own is not None:
            return DeviceSpec(description, own, f"embedded in {plugin.name}")
        text, left_out = _understood(data, text)
    source = f"{_OURS}; without {', '.join(left_out)}, which this XLA does not know"
    return DeviceSpec(description, text, source if left_out else _OURS)


def _text_proto(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The fields of a message as a text proto, a line each."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name} {{\n"
            yield from _text_proto(value, f"{indent}  ")
            yield f"{indent}}}\n"
        elif isinstance(value, list):
            yield f"{indent}{name} {{\n"
            for key, clock, units, operations in value:
                rate = {"clock_rate_ghz": clock, "units_per_core": units}
                rate["ops_per_clock"] = operations
                info = {"rate_infos": {"key": key, "value": rate}}
                yield from _text_proto(info, f"{indent}  ")
            yield f"{indent}}}\n"
        elif isinstance(value, bool):
            yield f"{indent}{name}: {str(value).lower()}\n"
        elif isinstance(value, str) and name not in _ENUMERATIONS:
            yield f'{indent}{name}: "{value}"\n'
        else:
            yield f"{indent}{name}: {value}\n"


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
