"""Whether the groups of a collective stay within a host, where the compile says which host has
which device."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

from hlo_lens.analysis.collectives import attribute, device_counts, group_mode, kind_of
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_source_target_pairs
from hlo_lens.hlo.replica_groups import parse_replica_groups

SIDE_FILE: Final = "provenance.json"
# XLA's TPU topologies, as `hlolens compile` asks for them, have hosts of 2x2 chips, those of one or
# two devices a host for each chip; the devices of a host stand together.
_CHIPS_A_HOST: Final = 4


@dataclass(frozen=True, slots=True)
class Hosts:
    """The devices of a compile: how many there are, and how many each host has, one host behind
    the other."""

    devices: int
    each: int

    def within(self, operation: Instruction) -> bool | None:
        """Whether every group of a collective stays on one host; None where that is not known."""
        replicas, partitions = device_counts(operation.computation.module)
        if (replicas or 1) > 1 or partitions != self.devices:
            return None
        try:
            groups = _groups(operation)
        except ValueError:
            return None
        if groups is None:
            return None
        found = list(groups) or [range(self.devices)]
        return all(len({device // self.each for device in group}) <= 1 for group in found)


def _groups(operation: Instruction) -> Iterator[Iterable[int]] | None:
    """The groups, () where they are everybody; of a permute, each pair. None where not known."""
    kind = kind_of(operation.opcode) or ""
    if kind in ("collective-permute", "send", "recv"):
        pairs = attribute(operation, "source_target_pairs")
        return None if pairs is None else iter(parse_source_target_pairs(pairs))
    written = attribute(operation, "replica_groups")
    groups = () if written is None else parse_replica_groups(written).groups
    # Without a channel the numbers are those of replicas, of which there is one.
    if not groups or group_mode(operation, kind) in ("flattened_id", "cross_partition"):
        return iter(groups)
    return None


def hosts_of(provenance: Path | None) -> Hosts | None:
    """What the provenance of a compile says of its hosts; None where it does not say.

    A GPU topology is partitions × hosts × devices of each. The devices of the CPU are those of one
    process.
    """
    if provenance is None:
        return None
    try:
        target = json.loads(provenance.read_text(encoding="utf-8"))["target"]
        platform, devices = target["platform"], target["devices"]
        sizes = [int(size) for size in (target["topology"] or "1").split("x")]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    if type(devices) is not int or devices < 1:
        return None
    if platform == "cpu":
        return Hosts(devices, devices)
    if platform in ("cuda", "rocm") and len(sizes) == 3 and prod(sizes) == devices:
        return Hosts(devices, sizes[-1])
    if platform == "tpu" and (chips := prod(sizes)) > 0 and devices % chips == 0:
        cores = devices // chips
        if devices <= 2:
            return Hosts(devices, cores)
        if len(sizes) > 1 and sizes[0] % 2 == sizes[1] % 2 == 0:
            return Hosts(devices, _CHIPS_A_HOST * cores)
    return None
