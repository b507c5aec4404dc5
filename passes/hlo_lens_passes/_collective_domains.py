"""Which connections a collective uses: those within a fast domain of devices, or those between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hlo_lens.analysis.collectives import attribute, device_counts, group_mode, kind_of
from hlo_lens.hlo import Instruction
from hlo_lens.hlo.attributes import parse_source_target_pairs
from hlo_lens.hlo.replica_groups import parse_replica_groups
from hlo_lens_passes._device_specs import Domain

_PAIRS: Final = ("collective-permute", "send", "recv")


@dataclass(frozen=True, slots=True)
class Reach:
    """The domain, and how many devices of a group the smallest share of a domain has."""

    domain: Domain
    each: int = 1


def reach(operation: Instruction, devices: int | None) -> Reach | None:
    """Which connections a collective uses where `devices` consecutive numbers are one fast domain;
    None for `devices`: all are. None where the text does not say who takes part.

    Numbers of devices are those of the compile, as XLA itself tells hosts apart by them.
    """
    if devices is None:
        return Reach("fast")
    try:
        groups = _groups(operation)
    except ValueError:
        return None
    if groups is None:
        return None
    fewest = None
    for group in groups:
        shares = Counter(device // devices for device in group)
        if len(shares) > 1:
            fewest = min(*shares.values(), *((fewest,) if fewest else ()))
    return Reach("fast") if fewest is None else Reach("slow", fewest)


def _groups(operation: Instruction) -> Iterable[Iterable[int]] | None:
    """The devices of each group, of a permute each pair; None where they are not known."""
    kind = kind_of(operation.opcode) or ""
    written: tuple[tuple[int, ...] | None, ...]
    if kind in _PAIRS:
        pairs = attribute(operation, "source_target_pairs")
        if pairs is None:
            return None
        # A pair without another device is no transfer.
        written = tuple(pair for pair in parse_source_target_pairs(pairs) if pair[0] != pair[1])
    else:
        groups = attribute(operation, "replica_groups")
        written = () if groups is None else parse_replica_groups(groups).groups
        written = written or (None,)
    mode = group_mode(operation, kind)
    if mode == "flattened_id" and None not in written:
        return (group for group in written if group is not None)
    replicas, partitions = device_counts(operation.computation.module)
    if replicas is None or partitions is None:
        return None
    return [_devices(group, mode, replicas, partitions) for group in written]


def _devices(
    group: tuple[int, ...] | None, mode: str, replicas: int, partitions: int
) -> Iterable[int]:
    """The devices of one group of replica or partition ids, None for everybody; of several such
    groups that differ by the other id, the first. A device is replica × partitions + partition."""
    if mode == "cross_partition":
        return range(partitions) if group is None else group
    firsts = [replica * partitions for replica in (range(replicas) if group is None else group)]
    if mode == "cross_replica":
        return firsts
    return [first + partition for first in firsts for partition in range(partitions)]
