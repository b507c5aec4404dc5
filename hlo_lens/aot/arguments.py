"""Argument and mesh specifications of the command line: `bf16[64,128]@fsdp,None`, `fsdp=8`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

__all__ = ["ArgumentError", "ArgumentSpec", "check_mesh", "parse_argument", "parse_mesh"]


class ArgumentError(ValueError):
    """A specification that cannot be read: a sentence that says how to write it."""

    def render(self) -> str:
        """The sentence, for a person."""
        return str(self)


# One dimension is split over no axis (None), one, or several.
Entry = None | str | tuple[str, ...]

# HLO's names, with numpy's and ml_dtypes' for them.
_DTYPES = {
    "pred": "bool", "s2": "int2", "s4": "int4", "s8": "int8", "s16": "int16", "s32": "int32",
    "s64": "int64", "u2": "uint2", "u4": "uint4", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32",
    "f64": "float64", "c64": "complex64", "c128": "complex128",
    "f8e4m3": "float8_e4m3", "f8e3m4": "float8_e3m4", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fn": "float4_e2m1fn",
}  # fmt: skip
_SHORT = {name: short for short, name in _DTYPES.items()}
_NAMES = {**_DTYPES, **{name: name for name in _DTYPES.values()}}
_ARGUMENT = re.compile(r"\s*(?P<dtype>\w+)\s*\[(?P<shape>[\d,\s]*)\]\s*(?:@(?P<spec>.*))?")
_ENTRY = re.compile(r"\s*(?:\(([^()]*)\)|([^,()]*))\s*(?:,|$)")
_AXIS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """An array that a function takes: numpy's dtype name, its shape, how it is split.

    `partition` has an entry a dimension at most, as jax's PartitionSpec has.
    """

    dtype: str
    shape: tuple[int, ...]
    partition: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        """As `parse_argument` reads it."""
        text = f"{_SHORT.get(self.dtype, self.dtype)}[{','.join(map(str, self.shape))}]"
        entries = (
            f"({','.join(each)})" if isinstance(each, tuple) else str(each)
            for each in self.partition
        )
        return f"{text}@{','.join(entries)}" if self.partition else text


def parse_argument(text: str) -> ArgumentSpec:
    """The array of `bf16[64,128]@fsdp,None`: HLO's (or numpy's) dtype, shape, PartitionSpec.

    Without `@` the array is whole on every device. `(a,b)` splits a dimension over two axes.

    Raises `ArgumentError` where it is written otherwise.
    """
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise ArgumentError(
            f"no argument {text!r}; write it as bf16[64,128], or bf16[64,128]@fsdp,None"
        )
    dtype = _NAMES.get(match["dtype"])
    if dtype is None:
        raise ArgumentError(f"{text}: no dtype {match['dtype']!r}; there are {', '.join(_DTYPES)}")
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    partition = tuple(_entries(text, match["spec"])) if match["spec"] else ()
    if len(partition) > len(shape):
        raise ArgumentError(
            f"{text}: {len(partition)} entries behind @ for {len(shape)} dimensions"
        )
    return ArgumentSpec(dtype, shape, partition)


def _entries(text: str, spec: str) -> Iterable[Entry]:
    position = 0
    while position < len(spec):
        match = _ENTRY.match(spec, position)
        if match is None or match.end() == position:
            raise ArgumentError(f"{text}: cannot read {spec!r} behind @; write fsdp,None")
        position = match.end()
        several, one = match[1], (match[2] or "").strip()
        if several is not None:
            yield tuple(_axis(text, name.strip()) for name in several.split(",") if name.strip())
        else:
            yield None if one in ("None", "") else _axis(text, one)


def _axis(text: str, name: str) -> str:
    if not _AXIS.fullmatch(name):
        raise ArgumentError(f"{text}: {name!r} is no name of a mesh axis")
    return name


def parse_mesh(texts: Iterable[str]) -> dict[str, int]:
    """Axis sizes from `fsdp=4,tensor=2`, or from several such texts, in their order.

    Raises `ArgumentError` where one is written otherwise, or names an axis twice.
    """
    mesh: dict[str, int] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, size = (each.strip() for each in part.partition("="))
        if not equals or not _AXIS.fullmatch(name) or not size.isdigit() or int(size) < 1:
            raise ArgumentError(f"no mesh axis {part!r}; write it as fsdp=8")
        if name in mesh:
            raise ArgumentError(f"the mesh axis {name!r} is given twice")
        mesh[name] = int(size)
    return mesh


def check_mesh(mesh: Mapping[str, int], devices: int, target: str) -> None:
    """Raise `ArgumentError` unless `mesh` takes all of the target's devices."""
    needed = prod(mesh.values())
    if needed != devices:
        axes = ",".join(f"{name}={size}" for name, size in mesh.items())
        raise ArgumentError(
            f"the mesh {axes} needs {needed} devices, the target {target} has {devices}"
        )
