"""What a target's name means."""

from __future__ import annotations

import pytest

from hlo_lens.aot import KNOWN, TargetError, parse_target


@pytest.mark.parametrize(
    ("name", "platform", "chip", "topology", "devices"),
    [
        ("cpu", "cpu", "", "", 1),
        ("cpu:8", "cpu", "", "", 8),
        # A cloud's name of a TPU counts chips for v5e and v6e, TensorCores for the others.
        ("tpu:v6e-8", "tpu", "v6e", "2x4", 8),
        ("tpu:v6e-1", "tpu", "v6e", "1x1", 1),
        ("tpu:v5e-256", "tpu", "v5e", "16x16", 256),
        ("tpu:v5p-8", "tpu", "v5p", "2x2x1", 4),
        ("tpu:tpu7x-8", "tpu", "tpu7x", "2x2x1", 8),
        ("tpu:v6e:8x16", "tpu", "v6e", "8x16", 128),
        ("tpu:tpu7x:4x4x8", "tpu", "tpu7x", "4x4x8", 256),
        ("TPU:v6e-8", "tpu", "v6e", "2x4", 8),
        ("cuda:h100", "cuda", "h100", "1x1x1", 1),
        ("cuda:h100-8", "cuda", "h100", "1x1x8", 8),
        ("cuda:b200-16", "cuda", "b200", "1x2x8", 16),
        ("cuda:gb300:1x18x4", "cuda", "gb300", "1x18x4", 72),
        ("rocm:gfx950-8", "rocm", "gfx950", "1x1x8", 8),
        ("rocm:mi355x", "rocm", "gfx950", "1x1x1", 1),
    ],
)
def test_a_target(name: str, platform: str, chip: str, topology: str, devices: int) -> None:
    target = parse_target(name)
    assert (target.platform, target.chip) == (platform, chip)
    assert (target.topology, target.devices) == (topology, devices)
    assert target.name == name.lower()


def test_the_listed_targets_are_targets() -> None:
    assert {parse_target(name).platform for name in KNOWN} == {"cpu", "tpu", "cuda", "rocm"}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpu", "`hlolens targets` lists them"),
        ("cpu:0", "write cpu, or cpu:8"),
        ("cpu:many", "write cpu, or cpu:8"),
        ("tpu", "TPUs are v5e, v6e, v5p, tpu7x"),
        ("tpu:v6e", "v6e comes as v6e-1, v6e-4, v6e-8"),
        ("tpu:v6e-9", "v6e comes as v6e-1, v6e-4, v6e-8"),
        ("tpu:v7x-8", "TPUs are v5e, v6e, v5p, tpu7x"),
        ("tpu:v6e:2y4", "a topology is chips along each axis"),
        ("cuda", "there are cuda:a100, cuda:h100"),
        ("cuda:h101", "there are cuda:a100, cuda:h100"),
        ("cuda:h100-", "write cuda:h100-8 for eight devices"),
        ("cuda:h100:8", "partitions × hosts × devices"),
        ("cuda:gfx950", "there are cuda:a100"),
        ("rocm:h100", "there are rocm:gfx942, rocm:gfx950"),
    ],
)
def test_no_target(name: str, told: str) -> None:
    with pytest.raises(TargetError, match=rf"^no target {name!r}; ") as caught:
        parse_target(name)
    assert told in caught.value.render()
