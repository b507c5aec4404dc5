"""Shardings of values over devices: every written form as one value.

Grammar: `ParseSharding` and `ParseSingleSharding` in xla/hlo/parser/hlo_parser.cc; meaning as in
xla/hlo/ir/hlo_sharding.h and, for meshes, xla/hlo/ir/named_sharding.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, Final

from hlo_lens.hlo.attributes import braces, inside, parse_ints, split_list, strip_comments
from hlo_lens.hlo.metadata import Metadata, parse_metadata
from hlo_lens.hlo.replica_groups import (
    Axis,
    Iota,
    Mesh,
    cut_mesh,
    parse_axis,
    parse_iota,
    permuted,
    read_mesh,
    without_blanks,
)


@dataclass(frozen=True, slots=True)
class DimSharding:
    """How the mesh form splits one array dimension: by which axes, the major one first.

    `is_open` (written `?`) lets propagation split it further.
    """

    axes: tuple[Axis, ...] = ()
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding, or a tuple of them.

    `kind` is "replicated", "manual", "unknown", "unreduced", "maximal" (everything on `device`),
    "tiled" or "tuple" (its `elements`). It says what the sharding means: a tiled form that splits
    nothing and leaves all devices alike is "replicated", "manual" or "unreduced". `mesh` is there
    exactly when the text names a mesh; the fields about axes belong to that form. `text` is what
    was written, and devices keep the written order.
    """

    text: str
    kind: str
    device: int | None = None
    elements: tuple[Sharding, ...] = ()
    assignment: Iota | tuple[int, ...] = ()
    """The written device order of a tiled sharding without a mesh."""
    assignment_dims: tuple[int, ...] = ()
    """The written tile dimensions, those of `subgroup_types` at the end included."""
    subgroup_types: tuple[str, ...] = ()
    """What each tile dimension behind the array's own holds: "replicated", "manual", ..."""
    mesh: Mesh | None = None
    dims: tuple[DimSharding, ...] = ()
    replicated_axes: tuple[Axis, ...] = ()
    unreduced_axes: tuple[Axis, ...] = ()
    manual_axes: tuple[Axis, ...] = ()
    unreduced_kind: str | None = None
    """The reduction that is still due, where the text names it: "max" in `unreduced=max{'b'}`."""
    shard_as: int | None = None
    shard_like: int | None = None
    metadata: tuple[Metadata, ...] = field(default=(), compare=False)

    @property
    def tile_dims(self) -> tuple[int, ...]:
        """Into how many parts each dimension of the array is split; () when it isn't tiled."""
        if self.mesh is not None:
            size = self.mesh.axis_size
            return tuple(prod(map(size, dimension.axes)) for dimension in self.dims)
        return self.assignment_dims[: len(self.assignment_dims) - len(self.subgroup_types)]

    @property
    def shard_count(self) -> int:
        """How many different parts the value has: the product of `tile_dims`."""
        return prod(self.tile_dims)

    @property
    def is_split(self) -> bool:
        """Whether some dimension is split over devices; for a tuple, that of some element."""
        return self.shard_count > 1 or any(element.is_split for element in self.elements)

    @property
    def devices(self) -> tuple[int, ...]:
        """Device ids in row-major order over `tile_dims` and then those that hold the same part.

        Made when asked. () where the text names no device: replicated, manual, unknown and
        unreduced ones without a mesh, and tuples.
        """
        if self.device is not None:
            return (self.device,)
        if self.mesh is not None:
            split = [axis for dimension in self.dims for axis in dimension.axes]
            sizes, places = cut_mesh(self.mesh, split)
            rest = [index for index in range(len(sizes)) if index not in places]
            return permuted(self.mesh.device_ids(), sizes, (*places, *rest))
        return self.assignment.expand() if isinstance(self.assignment, Iota) else self.assignment

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that split some dimension, as written; () in other forms."""
        return tuple(str(axis) for dimension in self.dims for axis in dimension.axes)

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return f"Sharding({shown!r})"


@lru_cache(maxsize=1 << 13)
def parse_sharding(text: str) -> Sharding:
    """Read `{replicated}`, `{devices=[2,2]<=[4]}`, `{mesh['a'=2], [{'a'}]}`, a tuple of them, ...

    Equal texts give the same object.

    Raises:
        ValueError: the text isn't one sharding, or its numbers don't fit together.
    """
    text = text.strip()
    body = inside(text).strip()
    if body and not body.startswith("{"):
        return _single(text, body)
    elements = (_single(each, inside(each).strip()) for each in split_list(body))
    return Sharding(text, "tuple", elements=tuple(elements))


# Each part is one named group; a shape in front of `devices=` is text of 2018 and says nothing.
_PART = re.compile(
    rf"""[\s,]*+(?:
        devices=(?P<tiles>\[[^\[\]]*+\]\s*+
            (?: <=\s*+\[[^\[\]]*+\]\s*+(?:T\s*+\([^()]*+\))?
              | [0-9]++(?:\s*+,\s*+[0-9]++)*+ ))
      | device=\s*+(?P<device>-?[0-9]++)
      | maximal_mesh\[\s*+device_id\s*+=\s*+(?P<mesh_device>[0-9]++)\s*+\]
      | last_tile_dims=\s*+(?P<subgroups>\{{[^{{}}]*+\}})
      | shard_as\s++(?P<shard_as>[0-9]++)
      | shard_like\s++(?P<shard_like>[0-9]++)
      | metadata=\s*+(?P<metadata>{braces(3)})
      | (?P<special>(?:replicated|unreduced|manual)\s*+=\s*+\w*+\s*+(?:\{{[^{{}}]*+\}})?)
      | (?P<mesh>mesh\s*+\[)
      | (?P<dims>\[(?:[^\[\]{{}}]++|\{{[^{{}}]*+\}})*+\])
      | (?P<word>(?:replicated|manual|unknown|unreduced|maximal|last_tile_dim_replicate)\b)
      | (?P<shape>[a-z][a-z0-9]*\[[0-9,]*\](?:\{{[0-9,]*\}})?)
    )""",
    re.VERBOSE | re.DOTALL,
)


def _single(text: str, body: str) -> Sharding:
    body = strip_comments(body).rstrip()
    values: dict[str, Any] = {}
    position = 0
    while position < len(body):
        found = _PART.match(body, position)
        if found is None:
            rest = body[position : position + 60].strip()
            raise ValueError(f"expected a part of a sharding, found {rest!r}")
        part = found.lastgroup or ""
        position = found.end()
        if part == "mesh":
            mesh, length = read_mesh(body[found.start(part) :])
            position = found.start(part) + length
            values["mesh"] = mesh
        else:
            values.update(_PARTS[part](found[part]))
    sharding = _checked(Sharding(text, **_with_kind(values, body)))
    return replace(sharding, kind=_kind(sharding))


def _tiles(text: str) -> dict[str, Any]:
    dims_text, _, order = without_blanks(text).partition("]")
    dims = parse_ints(dims_text[1:])
    if order.startswith("<="):
        return {"assignment": parse_iota(dims_text + "]" + order), "assignment_dims": dims}
    devices = parse_ints(order)
    if len(devices) != prod(dims):
        raise ValueError(f"{len(devices)} devices don't fill the tiles {list(dims)}")
    return {"assignment": devices, "assignment_dims": dims}


def _word(text: str) -> dict[str, Any]:
    if text == "last_tile_dim_replicate":
        return {"subgroup_types": ("replicated",)}
    return {"kind": text}


def _special(text: str) -> dict[str, Any]:
    """`replicated={'b'}`, `manual={'c'}`, `unreduced=max{'a'}`."""
    name, _, value = text.partition("=")
    name, value = name.strip(), value.strip()
    kind, brace, axes = value.partition("{")
    values: dict[str, Any] = {f"{name}_axes": _axes(brace + axes)} if brace else {"kind": name}
    if name == "unreduced":
        values["unreduced_kind"] = kind.strip() or None
    elif kind.strip():
        raise ValueError(f"expected axes in braces after {name}=, found {value!r}")
    return values


def _axes(text: str) -> tuple[Axis, ...]:
    return tuple(map(parse_axis, split_list(inside(text))))


def _dims(text: str) -> dict[str, Any]:
    dims = []
    for each in split_list(text[1:-1]):
        names = split_list(inside(each))
        is_open = names[-1:] == ["?"]
        dims.append(DimSharding(tuple(map(parse_axis, names[: -1 if is_open else None])), is_open))
    return {"kind": "tiled", "dims": tuple(dims)}


def _metadata(text: str) -> dict[str, Any]:
    many = inside(text).lstrip().startswith("{")
    return {"metadata": tuple(map(parse_metadata, split_list(inside(text)) if many else [text]))}


_PARTS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "tiles": _tiles,
    "device": lambda text: {"kind": "maximal", "device": int(text)},
    "mesh_device": lambda text: {"kind": "maximal", "device": int(text)},
    "subgroups": lambda text: {"subgroup_types": tuple(split_list(inside(text)))},
    "shard_as": lambda text: {"shard_as": int(text)},
    "shard_like": lambda text: {"shard_like": int(text)},
    "metadata": _metadata,
    "special": _special,
    "dims": _dims,
    "word": _word,
    "shape": lambda text: {},
}


def _with_kind(values: dict[str, Any], body: str) -> dict[str, Any]:
    if "kind" in values:
        return values
    if "assignment" not in values and "mesh" not in values:
        raise ValueError(f"the sharding {body[:60]!r} says neither devices nor a mesh nor a kind")
    return {"kind": "tiled", **values}


def _checked(sharding: Sharding) -> Sharding:
    """The same sharding; ValueError when its mesh lacks an axis or one is used twice."""
    split = [axis for dimension in sharding.dims for axis in dimension.axes]
    special = (*sharding.replicated_axes, *sharding.unreduced_axes, *sharding.manual_axes)
    if sharding.mesh is not None:
        cut_mesh(sharding.mesh, (*split, *special))
    elif split or special:
        raise ValueError(f"the sharding {sharding.text[:60]!r} names axes but no mesh")
    if len(sharding.subgroup_types) > len(sharding.assignment_dims):
        raise ValueError(f"{sharding.text[:60]!r} has more subgroups than tile dimensions")
    return sharding


def _kind(sharding: Sharding) -> str:
    """The kind; a tiled form that splits nothing comes to what all of its devices hold alike."""
    mesh, subgroups = sharding.mesh, sharding.subgroup_types
    if sharding.kind != "tiled" or sharding.shard_count > 1 or not (mesh or subgroups):
        return sharding.kind
    if mesh is not None:
        manual = prod(map(mesh.axis_size, sharding.manual_axes))
        unreduced = prod(map(mesh.axis_size, sharding.unreduced_axes))
        rest = mesh.device_count // (manual * unreduced or 1)
        sizes = {"manual": manual, "unreduced": unreduced, "replicated": rest}
    else:
        last = sharding.assignment_dims[-len(subgroups) :]
        sizes = {
            kind: prod(size for size, each in zip(last, subgroups, strict=True) if each == kind)
            for kind in subgroups
        }
    held = [kind for kind, size in sizes.items() if size > 1]
    return "tiled" if len(held) > 1 else held[0] if held else "replicated"
