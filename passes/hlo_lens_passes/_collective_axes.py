"""Mesh axes of a group: as the mesh form names them, or matched against the meshes of the header,
of other groups of the text, or of the compile's side file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Final

from hlo_lens.analysis.collectives import (
    COLLECTIVE_OPCODES,
    attribute,
    device_counts,
    kind_of,
)
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

SIDE_FILE: Final = "mesh.json"

Partition = frozenset[frozenset[int]]


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes over which groups run, the size of each, and what names them: `text`, `header` or
    `side_file`."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    named_by: str


@dataclass(frozen=True, slots=True)
class Meshes:
    """The meshes that a module's collectives may run over, by what names them. text: those that
    the groups of some of its collectives name."""

    header: tuple[Mesh, ...]
    text: tuple[Mesh, ...]
    side_file: tuple[Mesh, ...]


def meshes_of(module: Module, side_file: Path | None) -> Meshes:
    """The meshes of the header, and that of the compile's side file where it fits the module."""
    beside = _side_mesh(side_file)
    _, partitions = device_counts(module)
    fits = beside is not None and beside.device_count == partitions
    beside_it = (beside,) if beside is not None and fits else ()
    return Meshes(header_meshes(module), _written_meshes(module), beside_it)


def _written_meshes(module: Module) -> tuple[Mesh, ...]:
    """The meshes with names of their own in the replica groups of a module."""
    found: dict[Mesh, None] = {}
    for computation in module.computations:
        if COLLECTIVE_OPCODES.isdisjoint(computation.opcodes):
            continue
        for index, opcode in enumerate(computation.opcodes):
            if opcode in COLLECTIVE_OPCODES and "=mesh[" in computation.tails[index]:
                mesh = _mesh_in(attribute(Instruction(computation, index), "replica_groups"))
                if mesh is not None:
                    found[mesh] = None
    return tuple(found)


@lru_cache(maxsize=256)
def _mesh_in(groups: str | None) -> Mesh | None:
    try:
        mesh = None if groups is None else parse_replica_groups(groups).device_mesh
    except ValueError:
        return None
    named = mesh is not None and not any(_MADE_UP.match(name) for name, _ in mesh.axes)
    return mesh if named else None


def _side_mesh(path: Path | None) -> Mesh | None:
    """`{"axes": {"data": 2, "model": 4}, "devices": 8}`, its devices in row-major order."""
    if path is None:
        return None
    try:
        axes = json.loads(path.read_text(encoding="utf-8"))["axes"]
        sizes = tuple(axes.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    if all(type(size) is int and size > 0 for _, size in sizes):
        return Mesh(sizes)
    return None


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


def axes_of(operation: Instruction, meshes: Meshes) -> Axes | None:
    """The mesh axes over which the groups of a collective run; None where nothing names them.

    Names that the compiler made up (`axis_0`) give way to those of a mesh whose axes give the same
    groups: one of the header, else one that other groups name, else that of the side file.
    """
    written = attribute(operation, "replica_groups")
    groups = None
    if written is not None and kind_of(operation.opcode) != "collective-permute":
        try:
            groups = parse_replica_groups(written)
        except ValueError:
            return None
    own = None if groups is None else _written(groups)
    if own is not None and not all(map(_MADE_UP.match, own.names)):
        return own
    replicas, _ = device_counts(operation.computation.module)
    if (replicas or 1) > 1:
        return own
    wanted = _permuted(operation) if groups is None else _partition(groups)
    known = ("header", meshes.header), ("text", meshes.text), ("side_file", meshes.side_file)
    for named_by, those in known:
        for mesh in those:
            for names in _matching(mesh, wanted):
                sizes = dict(mesh.axes)
                return Axes(names, tuple(sizes[name] for name in names), named_by)
    return own


def _written(groups: ReplicaGroups) -> Axes | None:
    mesh = groups.device_mesh
    if groups.form != "mesh" or mesh is None:
        return None
    return Axes(groups.axes, tuple(map(mesh.axis_size, groups.grouped)), "text")


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
