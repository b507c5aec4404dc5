"""Device specifications of GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_lens.aot import KNOWN, parse_target
from hlo_lens.aot.specs import device_spec

CHIPS = [target.chip for target in map(parse_target, KNOWN) if target.platform in ("cuda", "rocm")]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_gpu_has_one(chip: str) -> None:
    spec = device_spec(chip)
    assert f'device_description_str: "{spec.description}"' in spec.text
    assert "gpu_device_info {" in spec.text
    assert "jax-cuda13-pjrt" in spec.source
    assert spec.text.count("{") == spec.text.count("}")
    assert (chip in spec.text) == chip.startswith("gfx")


def test_a_plugin_s_own_is_asked_first(tmp_path: Path) -> None:
    own = 'gpu_device_info {\n  core_count: 1\n}\ndevice_description_str: "NVIDIA B200"\n'
    library = tmp_path / "xla_cuda_plugin.so"
    library.write_bytes(b"\x7fELF\0\xff\0" + b"# a comment\n" + own.encode() + b"\0more\0")
    spec = device_spec("b200", library)
    assert (spec.text, spec.source) == (own, "embedded in xla_cuda_plugin.so")
    assert device_spec("h100", library) == device_spec("h100")
    assert spec.told()["description"] == "NVIDIA B200"
    assert spec.told()["sha256"] != device_spec("b200").told()["sha256"]


def test_fields_that_a_plugin_does_not_know_are_left_out(tmp_path: Path) -> None:
    """A library's descriptor names its fields; a text proto with any other would be refused."""
    text = device_spec("h100").text
    fields = re.findall(r"^  (\w+)", text, re.MULTILINE)
    assert {"core_count", "mem_clock_ghz", "scalar_unit_description"} <= set(fields)
    known = [name for name in fields if name not in ("mem_clock_ghz", "scalar_unit_description")]
    library = tmp_path / "plugin.so"

    def descriptor(names: list[str]) -> bytes:
        named = (b"\x0a" + bytes([len(name)]) + name.encode() for name in names)
        return b"\x7fELF\0" + b"\x12\x00".join(named)

    library.write_bytes(descriptor(["GpuDeviceInfoProto", *known]))
    spec = device_spec("h100", library)
    assert spec.source.endswith(
        "; without scalar_unit_description, mem_clock_ghz, which this XLA does not know"
    )
    assert re.findall(r"^  (\w+)", spec.text, re.MULTILINE) == known
    assert spec.text.count("{") == spec.text.count("}") < text.count("{")
    assert 'device_description_str: "NVIDIA H100 80GB HBM3"' in spec.text
    library.write_bytes(descriptor(["GpuDeviceInfoProto", *fields]))
    assert device_spec("h100", library) == device_spec("h100")
    library.write_bytes(b"no descriptor at all")
    assert device_spec("h100", library) == device_spec("h100")
