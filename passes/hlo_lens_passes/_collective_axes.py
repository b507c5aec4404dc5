"""Mesh axes of a group: as the mesh form names them, or matched against the header's meshes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Final

from hlo_lens.analysis.collectives import attribute, device_counts, kind_of
from hlo_lens.hlo import Instruction, Module
from hlo_lens.hlo.attributes import (
    parse_frontend_attributes,
    parse_ints,
    parse_source_target_pairs,
)
from hlo_lens.hlo.replica_groups import Axis, Mesh, ReplicaGroups, parse_replica_groups

_MESH: Final = re.compile(r"#sdy\.mesh<\[([^\]]*)\](?:, *device_ids=\[([\d, ]*)\])?")
_AXIS: Final = re.compile(r'"([^"]+)"=(\d+)')
_MADE_UP: Final = re.compile(r"axis_\d+\Z")
_MOST_AXES: Final = 6
"""Axes of more than one device that are tried in all combinations."""

Partition = frozenset[frozenset[int]]


def header_meshes(module: Module) -> tuple[Mesh, ...]:
    """The meshes that Shardy leaves in the header: `xla.sdy.meshes={mesh = #sdy.mesh<["x"=4]>}`."""
    text = module.header.get("frontend_attributes", "")
    if "sdy.meshes" not in text:
        return ()
    try:
        written = parse_frontend_attributes(text).get("xla.sdy.meshes", "")
        return tuple(mesh for found in _MESH.findall(written) if (mesh := _mesh(*found)).axes)
    except ValueError:
        return ()


def _mesh(axes: str, devices: str) -> Mesh:
    named = tuple((name, int(size)) for name, size in _AXIS.findall(axes))
    ids = parse_ints(devices.replace(" ", "")) if devices else None
    if ids is not None and len(ids) != prod(size for _, size in named):
        raise ValueError("the mesh and its device ids differ in size")
    return Mesh(named, ids)


def axes_of(operation: Instruction, meshes: tuple[Mesh, ...]) -> tuple[str, ...] | None:
    """The mesh axes over which the groups of a collective run; None where nothing names them.

    Names that the compiler made up (`axis_0`) give way to those of a header mesh whose axes give
    the same groups.
    """
    written = attribute(operation, "replica_groups")
    groups = None
    if written is not None and kind_of(operation.opcode) != "collective-permute":
        try:
            groups = parse_replica_groups(written)
        except ValueError:
            return None
    own = groups.axes if groups is not None and groups.form == "mesh" else None
    if own is not None and not all(map(_MADE_UP.match, own)):
        return own
    replicas, _ = device_counts(operation.computation.module)
    if not meshes or (replicas or 1) > 1:
        return own
    wanted = _permuted(operation) if groups is None else _partition(groups)
    matched = next((axes for mesh in meshes for axes in _matching(mesh, wanted)), None)
    return matched if matched is not None else own


def _partition(groups: ReplicaGroups) -> Partition | None:
    return None if groups.is_empty else frozenset(map(frozenset, groups.groups))


def _permuted(operation: Instruction) -> Partition | None:
    """The groups of devices among which a permute moves values."""
    text = attribute(operation, "source_target_pairs")
    if text is None:
        return None
    try:
        pairs = parse_source_target_pairs(text)
    except ValueError:
        return None
    groups: dict[int, frozenset[int]] = {}
    for source, target in pairs:
        merged = groups.get(source, frozenset((source,))) | groups.get(target, frozenset((target,)))
        groups.update(dict.fromkeys(merged, merged))
    return frozenset(groups.values())


def _matching(mesh: Mesh, wanted: Partition | None) -> Iterator[tuple[str, ...]]:
    """Combinations of axes, the fewest first, whose groups are those; no group means everybody."""
    wide = tuple(name for name, size in mesh.axes if size > 1)
    if wanted is None:
        yield wide
    elif len(wide) <= _MOST_AXES:
        for count in range(1, len(wide) + 1):
            for names in combinations(wide, count):
                if _groups_of_axes(mesh, names) == wanted:
                    yield names


@lru_cache(maxsize=256)
def _groups_of_axes(mesh: Mesh, names: tuple[str, ...]) -> Partition:
    grouped = tuple(Axis(name) for name in names)
    groups = ReplicaGroups("mesh", device_mesh=mesh, grouped=grouped).groups
    return frozenset(map(frozenset, groups))
