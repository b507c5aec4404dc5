"""Compile targets: what `cpu:8`, `tpu:v6e-8`, `cuda:h100` and `rocm:gfx950-8` mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

__all__ = ["KNOWN", "Target", "TargetError", "parse_target"]


class TargetError(ValueError):
    """A target that is none: a sentence that says what there is instead."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


@dataclass(frozen=True, slots=True)
class Target:
    """What to compile for.

    `topology` is XLA's: chips along each axis for a TPU ("2x4"), partitions × hosts × devices for
    a GPU ("1x1x8"), "" for the CPU. `devices` is the number of devices that jax sees there.
    """

    name: str
    platform: str  # "cpu", "tpu", "cuda", "rocm"
    chip: str  # "v6e", "h100", "gfx950"; "" for the CPU
    topology: str
    devices: int


# What a cloud calls `v6e-8` is 8 chips; `v5p-8` and `tpu7x-8` count TensorCores, two a chip.
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {
    2: "1x1x1", 8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4", 128: "4x4x4", 256: "4x4x8",
    512: "4x8x8", 1024: "8x8x8", 2048: "8x8x16", 4096: "8x16x16",
}  # fmt: skip
_TPU_SIZES = {"v5e": _FLAT, "v6e": _FLAT, "v5p": _CUBES, "tpu7x": _CUBES}

# jax devices a chip, where it is not one: each core is a device.
_CORES = {"v2": 2, "v3": 2, "v4": 2, "tpu7x": 2}

_GPUS = {
    "cuda": ("a100", "h100", "h200", "b200", "gb300"),
    "rocm": ("gfx942", "gfx950"),
}
# What people call the chip of an architecture; XLA tells AMD's apart by architecture only.
_ALIASES = {"mi300x": "gfx942", "mi325x": "gfx942", "mi350x": "gfx950", "mi355x": "gfx950"}
_DEVICES_A_HOST = 8

# What `hlolens targets` lists: one of each kind.
KNOWN = (
    "cpu",
    "cpu:8",
    *(f"tpu:{chip}-{size}" for chip in ("v5e", "v5p", "v6e", "tpu7x") for size in (8, 128)),
    *(f"{platform}:{chip}" for platform, chips in _GPUS.items() for chip in chips),
)

_SHAPE = re.compile(r"\d+(x\d+)*")


def parse_target(text: str) -> Target:
    """The target that `text` names.

        cpu  cpu:8                       the machine at hand, with 8 devices
        tpu:v6e-8  tpu:v6e:2x4           a cloud's name, or XLA's topology name
        cuda:h100  cuda:h100-8           one device, or eight on one host
        rocm:gfx950  rocm:gfx950:1x2x8   XLA's topology: partitions × hosts × devices

    Raises `TargetError` for anything else.
    """
    name = text.strip().lower()
    platform, _, rest = name.partition(":")
    if platform == "cpu":
        return _cpu(name, rest)
    if platform == "tpu":
        return _tpu(name, rest)
    if platform in _GPUS:
        return _gpu(name, platform, rest)
    raise TargetError(
        f"no target {text!r}; there are cpu, tpu:v6e-8, cuda:h100, rocm:gfx950 and "
        "more: `hlolens targets` lists them"
    )


def _cpu(name: str, rest: str) -> Target:
    if rest and not (rest.isdigit() and int(rest)):
        raise TargetError(f"no target {name!r}; write cpu, or cpu:8 for eight devices")
    return Target(name, "cpu", "", "", int(rest or 1))


def _tpu(name: str, rest: str) -> Target:
    chip, colon, topology = rest.partition(":")
    if not colon:
        chip, _, size = rest.partition("-")
        sizes = _TPU_SIZES.get(chip)
        if sizes is None:
            raise TargetError(
                f"no target {name!r}; TPUs are {', '.join(_TPU_SIZES)}, with a size behind them "
                "(tpu:v6e-8), or any topology that XLA knows (tpu:v6e:2x4)"
            )
        if not size.isdigit() or int(size) not in sizes:
            known = ", ".join(f"{chip}-{each}" for each in sizes)
            raise TargetError(f"no target {name!r}; {chip} comes as {known}")
        topology = sizes[int(size)]
    elif not _SHAPE.fullmatch(topology):
        raise TargetError(f"no target {name!r}; a topology is chips along each axis: tpu:v6e:2x4")
    return Target(name, "tpu", chip, topology, _count(topology) * _CORES.get(chip, 1))


def _gpu(name: str, platform: str, rest: str) -> Target:
    chip, colon, topology = rest.partition(":")
    if not colon:
        chip, dash, size = rest.partition("-")
        if dash and not (size.isdigit() and int(size)):
            raise TargetError(f"no target {name!r}; write {platform}:{chip}-8 for eight devices")
        topology = _hosts(int(size or 1))
    elif not _SHAPE.fullmatch(topology) or topology.count("x") != 2:
        raise TargetError(
            f"no target {name!r}; a topology is partitions × hosts × devices: "
            f"{platform}:{chip}:1x1x8"
        )
    chip = _ALIASES.get(chip, chip)
    if chip not in _GPUS[platform]:
        known = ", ".join(f"{platform}:{each}" for each in _GPUS[platform])
        raise TargetError(f"no target {name!r}; there are {known}")
    return Target(name, platform, chip, topology, _count(topology))


def _hosts(devices: int) -> str:
    """Partitions × hosts × devices: hosts of eight where they come out even, else one host."""
    if devices > _DEVICES_A_HOST and devices % _DEVICES_A_HOST == 0:
        return f"1x{devices // _DEVICES_A_HOST}x{_DEVICES_A_HOST}"
    return f"1x1x{devices}"


def _count(topology: str) -> int:
    return prod(int(size) for size in topology.split("x"))
