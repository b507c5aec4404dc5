"""Replica groups of a collective: the list, iota and mesh forms as one value.

Grammar: `ParseCollectiveDeviceListBase` in xla/hlo/parser/hlo_parser.cc; expansion as in
xla/hlo/ir/tile_assignment.cc and xla/hlo/ir/replica_group.cc.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from math import prod

from hlo_lens.hlo.attributes import inside, parse_ints, split_list, strip_comments


@dataclass(frozen=True, slots=True)
class Iota:
    """The numbers 0, 1, 2, ... reshaped to `reshape_dims`, transposed by `transpose_perm`.

    Read in that order and cut into `dims`: `[2,4]<=[4,2]T(1,0)`. `transpose_perm` is the identity
    where the text has no T(...).
    """

    dims: tuple[int, ...]
    reshape_dims: tuple[int, ...]
    transpose_perm: tuple[int, ...]

    def expand(self) -> tuple[int, ...]:
        """All numbers in row-major order of `dims`. The last expansions are kept."""
        return _expand(self.reshape_dims, self.transpose_perm)


@lru_cache(maxsize=256)
def _expand(dims: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, ...]:
    return permuted(tuple(range(prod(dims))), dims, perm)


def permuted(
    values: tuple[int, ...], dims: tuple[int, ...], perm: tuple[int, ...]
) -> tuple[int, ...]:
    """Row-major `values` of an array of size `dims`, after its dimensions are put in `perm` order.

    Result dimension i is dimension perm[i], as in numpy.transpose.
    """
    strides = list(accumulate(reversed(dims), lambda a, b: a * b, initial=1))[-2::-1]
    offsets = [0]
    for dimension in perm:
        steps = [index * strides[dimension] for index in range(dims[dimension])]
        offsets = [offset + step for offset in offsets for step in steps]
    return tuple(values[offset] for offset in offsets)


_WORDS = re.compile(r"\w\s+\w")


def without_blanks(text: str) -> str:
    """`text` without blanks and comments; ValueError when that would join two words."""
    text = strip_comments(text)
    if _WORDS.search(text):
        raise ValueError(f"two words stand side by side in {text[:60]!r}")
    return "".join(text.split())


_IOTA = re.compile(r"\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?\Z")


def parse_iota(text: str) -> Iota:
    """`[2,4]<=[8]` or `[2,4]<=[4,2]T(1,0)`, without blanks.

    Raises:
        ValueError: another form, sizes that don't multiply to the same number, or no permutation.
    """
    found = _IOTA.match(text)
    if found is None:
        raise ValueError(f"expected an iota such as [2,4]<=[8], found {text[:60]!r}")
    dims, reshape = parse_ints(found[1]), parse_ints(found[2])
    perm = parse_ints(found[3]) if found[3] else tuple(range(len(reshape)))
    if prod(dims) != prod(reshape) or sorted(perm) != list(range(len(reshape))):
        raise ValueError(f"{text[:60]!r} doesn't rearrange its numbers one to one")
    return Iota(dims, reshape, perm)


@dataclass(frozen=True, slots=True)
class Axis:
    """A mesh axis, or the part of one that `'a':(pre)size` names: see the Shardy dialect."""

    name: str
    pre_size: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        return self.name if self.size is None else f"{self.name}:({self.pre_size}){self.size}"


@dataclass(frozen=True, slots=True)
class Mesh:
    """Named axes over devices. `devices` is None where they are 0, 1, 2, ... in order."""

    axes: tuple[tuple[str, int], ...]
    devices: Iota | tuple[int, ...] | None = None

    @property
    def device_count(self) -> int:
        return prod(size for _, size in self.axes)

    def device_ids(self) -> tuple[int, ...]:
        """Row-major over the axes."""
        if self.devices is None:
            return tuple(range(self.device_count))
        return self.devices.expand() if isinstance(self.devices, Iota) else self.devices

    def axis_size(self, axis: Axis) -> int:
        """How many devices the axis, or part of an axis, spans. KeyError for an unknown axis."""
        return dict(self.axes)[axis.name] if axis.size is None else axis.size


_MESH = re.compile(
    r"""\s*+mesh\s*+\[((?:[^\[\]'"]++|'[^']*+'|"[^"]*+"|\[[^\[\]]*+\])*+)\]
        (?:\s*+,?\s*+(device_ids\s*+=\s*+\((?:[^()]++|\([^()]*+\))*+\)))?""",
    re.VERBOSE,
)
_AXIS_SIZE = re.compile(r"(?:'([^']*)'|\"([^\"]*)\"|([\w.\-]+))\s*=\s*(\d+)")
_AXIS = re.compile(r"(?:'([^']*)'|\"([^\"]*)\"|([\w.\-]+))\s*(?::\s*\(\s*(\d+)\s*\)\s*(\d+))?")


def read_mesh(text: str) -> tuple[Mesh, int]:
    """The `mesh['a'=2,'b'=4], device_ids=([8])` that starts `text`, and where it ends."""
    found = _MESH.match(text)
    if found is None:
        raise ValueError(f"expected mesh['axis'=size,...], found {text[:60]!r}")
    axes = []
    listed = found[2]
    for part in split_list(found[1]):
        axis = _AXIS_SIZE.fullmatch(part)
        if part.startswith("device_ids"):
            listed = part
        elif axis is None:
            raise ValueError(f"expected 'axis'=size in a mesh, found {part!r}")
        else:
            axes.append((axis[1] or axis[2] or axis[3] or "", int(axis[4])))
    if len({name for name, _ in axes}) != len(axes):
        raise ValueError(f"an axis stands twice in {found.group()[:60]!r}")
    devices = None
    if listed is not None:
        ids = inside(listed.partition("=")[2], "()")
        devices = _mesh_devices(without_blanks(ids), tuple(size for _, size in axes))
    return Mesh(tuple(axes), devices), found.end()


def _mesh_devices(text: str, dims: tuple[int, ...]) -> Iota | tuple[int, ...]:
    if text.startswith("["):
        reshape = text.partition("<=")[2] or text
        return parse_iota(f"[{','.join(map(str, dims))}]<={reshape}")
    devices = parse_ints(text)
    if len(devices) != prod(dims):
        raise ValueError(f"the mesh has {prod(dims)} devices, but {len(devices)} ids are listed")
    return devices


def parse_axis(text: str) -> Axis:
    """`'a'` or `'a':(1)2`."""
    found = _AXIS.fullmatch(text)
    if found is None:
        raise ValueError(f"expected 'axis' or 'axis':(pre)size, found {text!r}")
    name = found[1] or found[2] or found[3] or ""
    return Axis(name) if found[5] is None else Axis(name, int(found[4]), int(found[5]))


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Who takes part in a collective together, in one of three written forms.

    The numbers are replica ids, partition ids or global ids; which of them depends on channel_id
    and use_global_device_ids of the instruction. No groups at all (`{}`) mean one group of
    everybody, whose size only the module knows.
    """

    form: str
    """"list", "iota" or "mesh"."""
    listed: tuple[tuple[int, ...], ...] = ()
    iota: Iota | None = None
    device_mesh: Mesh | None = None
    grouped: tuple[Axis, ...] = ()

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups as lists; those of iota and mesh forms are made when asked for."""
        if self.form == "list":
            return self.listed
        if self.iota is not None:
            ids = self.iota.expand()
        else:
            assert self.device_mesh is not None
            ids = _mesh_order(self.device_mesh, self.grouped)
        size = self.group_size or 1
        return tuple(ids[start : start + size] for start in range(0, len(ids), size))

    @property
    def group_count(self) -> int:
        """How many groups are written: 0 for `{}`."""
        if self.iota is not None:
            return self.iota.dims[0]
        if self.device_mesh is not None:
            return self.device_mesh.device_count // (self.group_size or 1)
        return len(self.listed)

    @property
    def group_size(self) -> int | None:
        """Members of the largest group; None for `{}`, where the module decides."""
        if self.iota is not None:
            return self.iota.dims[1]
        if self.device_mesh is not None:
            return prod(map(self.device_mesh.axis_size, self.grouped))
        return max(map(len, self.listed), default=None)

    @property
    def uneven(self) -> bool:
        """Whether groups differ in size."""
        return len(set(map(len, self.listed))) > 1

    @property
    def is_empty(self) -> bool:
        """Whether no group is written, which means everybody."""
        return self.form == "list" and not self.listed

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes a group spans, as written: `("a", "b:(1)2")`; () in other forms."""
        return tuple(map(str, self.grouped))

    @property
    def mesh(self) -> tuple[tuple[str, int], ...]:
        """Names and sizes of all mesh axes; () in other forms."""
        return () if self.device_mesh is None else self.device_mesh.axes


@lru_cache(maxsize=1 << 12)
def parse_replica_groups(text: str) -> ReplicaGroups:
    """`{{0,1},{2,3}}`, `{}`, `[2,4]<=[4,2]T(1,0)` or `mesh['a'=2,'b'=4] {'b'}`.

    Raises:
        ValueError: another form, an axis that the mesh lacks, or numbers that don't fit together.
    """
    compact = without_blanks(text)
    if compact.startswith("mesh["):
        return _parse_mesh_form(compact)
    if compact.startswith("["):
        iota = parse_iota(compact)
        if len(iota.dims) != 2:
            raise ValueError(f"expected [groups,members]<=..., found {compact[:60]!r}")
        return ReplicaGroups("iota", iota=iota)
    groups = [parse_ints(f"{{{inside(group)}}}") for group in split_list(inside(compact))]
    return ReplicaGroups("list", listed=tuple(group for group in groups if group))


def _parse_mesh_form(text: str) -> ReplicaGroups:
    mesh, end = read_mesh(text)
    axes = tuple(map(parse_axis, split_list(inside(text[end:].lstrip(",")))))
    cut_mesh(mesh, axes)
    return ReplicaGroups("mesh", device_mesh=mesh, grouped=axes)


def _mesh_order(mesh: Mesh, grouped: tuple[Axis, ...]) -> tuple[int, ...]:
    """Device ids with the grouped axes innermost, in the mesh's order as the reference has it.

    Parts of one axis keep the order in which they are written.
    """
    names = [name for name, _ in mesh.axes]
    sizes, places = cut_mesh(mesh, sorted(grouped, key=lambda axis: names.index(axis.name)))
    outer = [index for index in range(len(sizes)) if index not in places]
    return permuted(mesh.device_ids(), sizes, (*outer, *places))


def cut_mesh(mesh: Mesh, axes: Sequence[Axis]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The mesh as an array with a dimension for each of `axes` and for what lies between them.

    Returns its sizes in the mesh's order, and the dimension of each axis in the order of `axes`;
    an axis of size 1 has none.

    Raises:
        ValueError: an axis is unknown, overlaps another one, or doesn't divide its mesh axis.
    """
    known = {name for name, _ in mesh.axes}
    for axis in axes:
        if axis.name not in known:
            raise ValueError(f"the mesh has no axis {axis.name!r}, only {sorted(known)}")
    sizes: list[int] = []
    place: dict[Axis, int] = {}
    for name, size in mesh.axes:
        parts = [axis for axis in axes if axis.name == name]
        pieces, places = _cut_axis(size, parts)
        place |= {part: len(sizes) + at for part, at in places.items()}
        sizes += pieces
    return tuple(sizes), tuple(place[axis] for axis in axes if axis in place)


def _cut_axis(size: int, parts: Sequence[Axis]) -> tuple[list[int], dict[Axis, int]]:
    """An axis cut at its parts: sizes of the pieces, and the piece of each part.

    `a:(1)2, a:(4)2` of 8 gives [2, 2, 2] and the pieces 0 and 2.
    """
    spans = {
        part: (part.pre_size or 1, (part.pre_size or 1) * (part.size or size)) for part in parts
    }
    cuts = sorted({1, size, *chain.from_iterable(spans.values())})
    pieces = list(pairwise(cuts))
    places = {part: pieces.index(span) for part, span in spans.items() if span in pieces}
    missing = [part for part, (start, end) in spans.items() if part not in places and start != end]
    apart = len(set(places.values())) == len(places) and len(spans) == len(parts)
    if cuts[-1] != size or missing or not apart or any(end % start for start, end in pieces):
        shown = ", ".join(map(str, parts))
        raise ValueError(f"the mesh axes {shown} don't divide {size} devices between them")
    return [end // start for start, end in pieces], places
