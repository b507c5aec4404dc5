"""Shapes and layouts: text such as `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}` as a value with sizes.

Grammar: `ParseShape` and `ParseLayout` in xla/hlo/parser/hlo_parser.cc. Text is printed back as
xla/shape_util.cc and xla/layout.cc print it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Final

from hlo_lens.hlo.attributes import parse_int, split_list, strip_comments, whole_number

DTYPE_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
    | {"pred": 8, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128}
    | {"f8e5m2": 8, "f8e4m3": 8, "f8e4m3fn": 8, "f8e4m3b11fnuz": 8, "f8e3m4": 8}
    | {"f8e5m2fnuz": 8, "f8e4m3fnuz": 8, "f8e8m0fnu": 8}
    | {"f4e2m1fn": 4, "f6e2m3fn": 6, "f6e3m2fn": 6, "token": 0, "opaque": 0}
)
"""Bits of one element; pred takes a byte, token and opaque nothing."""

_MAX_NESTING: Final = 100


def dtype_bits(name: str) -> int | None:
    """Bits of one element of this dtype; None for a dtype that isn't known."""
    return DTYPE_BITS.get(name)


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array lies in memory, field by field as the text gives it.

    `tiles` holds the tiles in the order they are applied, an entry None being `*` (this dimension
    is combined with the next more minor one). `tail_padding` and `dynamic_metadata_bytes` are in
    elements and bytes. `split_configs`, `physical_shape` and `level_types` stay text.
    `sparse_elements` is the size of a sparse array of 2018 (`f32[2,3]sparse{10}`).
    """

    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int | None, ...], ...] = ()
    element_bits: int | None = None
    memory_space: int = 0
    tail_padding: int | None = None
    index_type: str | None = None
    pointer_type: str | None = None
    split_configs: str | None = None
    physical_shape: str | None = None
    dynamic_metadata_bytes: int | None = None
    level_types: str | None = None
    sparse_elements: int | None = None

    def __str__(self) -> str:
        if self.sparse_elements is not None:
            return f"sparse{{{self.sparse_elements}}}"
        tiles = "".join(
            "(" + ",".join("*" if size is None else str(size) for size in tile) + ")"
            for tile in self.tiles
        )
        parts = (
            ("D({})", self.level_types),
            ("T{}", tiles or None),
            ("L({})", self.tail_padding),
            ("#({})", self.index_type),
            ("*({})", self.pointer_type),
            ("E({})", self.element_bits),
            ("S({})", self.memory_space or None),
            ("SC{}", self.split_configs),
            ("P({})", self.physical_shape),
            ("M({})", self.dynamic_metadata_bytes),
        )
        tail = "".join(pattern.format(value) for pattern, value in parts if value is not None)
        order = ",".join(map(str, self.minor_to_major))
        return f"{{{order}:{tail}}}" if tail else f"{{{order}}}"

    def __repr__(self) -> str:
        return f"Layout({str(self)!r})"


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a value: an array, a tuple, a token, an opaque value or a buffer.

    `dimensions` holds None for an unbounded `?` and the bound for `<=n`; `dynamic` says which
    dimensions are written so. A buffer `b(f32[8])` has the dtype, dimensions and layout of what it
    holds, with `is_buffer` set. `bytes` and `padded_bytes` are None where the text cannot say.
    """

    dtype: str
    dimensions: tuple[int | None, ...] = ()
    dynamic: tuple[bool, ...] = ()
    layout: Layout | None = None
    elements: tuple[Shape, ...] = ()
    is_buffer: bool = False
    bytes: int | None = field(init=False, compare=False)
    """Array: ceil(elements x bits / 8); tuple: the sum of its leaves; token and opaque: 0."""
    padded_bytes: int | None = field(init=False, compare=False)
    """As `bytes`, with the padding that tiles, L(n) and M(n) of the layout add."""

    def __post_init__(self) -> None:
        if self.is_tuple:
            logical = _sum([element.bytes for element in self.elements])
            padded = _sum([element.padded_bytes for element in self.elements])
        else:
            logical = padded = _size(self.element_count, self.bits)
            if self.layout is not None and logical is not None:
                if self.layout.sparse_elements is not None:
                    logical = padded = None
                else:
                    padded = _padded_size(self, self.layout)
        object.__setattr__(self, "bytes", logical)
        object.__setattr__(self, "padded_bytes", padded)

    @property
    def is_tuple(self) -> bool:
        return self.dtype == "tuple"

    @property
    def is_array(self) -> bool:
        """True for a plain array, scalars included; a buffer, token or opaque value is none."""
        return not self.is_buffer and self.dtype not in ("tuple", "token", "opaque", "unknown")

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def element_count(self) -> int | None:
        """The product of the dimensions, 1 for a scalar; None with a `?`, and for a tuple."""
        if self.is_tuple:
            return None
        known = [size for size in self.dimensions if size is not None]
        return prod(known) if len(known) == len(self.dimensions) else None

    @property
    def bits(self) -> int | None:
        """Bits of one element: E(n) of the layout, else of the dtype; None when not known."""
        if self.layout is not None and self.layout.element_bits is not None:
            return self.layout.element_bits
        return DTYPE_BITS.get(self.dtype)

    @property
    def memory_space(self) -> int | None:
        """The n of S(n), 0 for a layout without it; None for a tuple or where no layout stands."""
        return None if self.layout is None else self.layout.memory_space

    def leaves(self) -> tuple[Shape, ...]:
        """The shapes in this tuple that are no tuples, depth first; the shape itself else."""
        return tuple(self._walk())

    def _walk(self) -> Iterator[Shape]:
        if not self.is_tuple:
            yield self
        for element in self.elements:
            yield from element._walk()

    @property
    def without_layout(self) -> str:
        """dtype and dimensions of an array, `f32[8,16]`: a bounded one as its bound, ? unknown."""
        sizes = ",".join("?" if size is None else str(size) for size in self.dimensions)
        return f"{self.dtype}[{sizes}]"

    def __str__(self) -> str:
        if self.is_tuple:
            marked = (
                f"/*index={index}*/{element}" if index and index % 5 == 0 else str(element)
                for index, element in enumerate(self.elements)
            )
            return f"({', '.join(marked)})"
        dimensions = ",".join(
            "?" if size is None else f"<={size}" if dynamic else str(size)
            for size, dynamic in zip(self.dimensions, self.dynamic, strict=True)
        )
        text = f"{self.dtype}[{dimensions}]{'' if self.layout is None else self.layout}"
        return f"b({text})" if self.is_buffer else text

    def __repr__(self) -> str:
        return f"Shape({str(self)!r})"


# ---------------------------------------------------------------------------- sizes


_MOST: Final = 2**63 - 1


def _sum(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return _held(sum(known)) if len(known) == len(sizes) else None


def _size(count: int | None, bits: int | None) -> int | None:
    return None if count is None or bits is None else _held(-(-count * bits // 8))


def _held(size: int) -> int | None:
    """Sizes are 64-bit numbers, as in XLA; the text that says more is damaged."""
    return size if 0 <= size <= _MOST else None


def _padded_size(shape: Shape, layout: Layout) -> int | None:
    """Bytes with padding, as `ShapeUtil::ArraySize`.

    That counts the first tile only; the same, where each further tile divides the one before it.
    Split configurations SC(...) add nothing here: what they pad depends on the target.
    """
    order = layout.minor_to_major or tuple(range(shape.rank - 1, -1, -1))
    sizes = [size for index in reversed(order) if (size := shape.dimensions[index]) is not None]
    for tile in layout.tiles:
        sizes = _tiled(sizes, tile)
    count = prod(sizes)
    if layout.tail_padding:
        count = -(-count // layout.tail_padding) * layout.tail_padding
    size = _size(count, shape.bits)
    return None if size is None else size + (layout.dynamic_metadata_bytes or 0)


def _tiled(sizes: list[int], tile: tuple[int | None, ...]) -> list[int]:
    """Sizes, most major first, after one tile: `[20, 300]` under (8,128) is `[3, 3, 8, 128]`.

    The tile covers the most minor dimensions, so a second tile divides the first one. A tile of
    higher rank than the array sees dimensions of size 1 in front.
    """
    sizes = [1] * (len(tile) - len(sizes)) + sizes
    split = len(sizes) - len(tile)
    outer, inner, combined = sizes[:split], [], 1
    for size, extent in zip(sizes[split:], tile, strict=True):
        combined *= size
        if extent is None:
            continue
        outer.append(-(-combined // extent))
        inner.append(extent)
        combined = 1
    return outer + inner


# ---------------------------------------------------------------------------- reading

_PLAIN = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](?:\{([0-9,]+)\})?\Z", re.ASCII)
_HEAD = re.compile(r"([a-z][a-z0-9]*)\[([^\[\]]*)\]")
_BROKEN = re.compile(r"[\w.]\s+[\w.]")


@lru_cache(maxsize=1 << 16)
def parse_shape(text: str) -> Shape:
    """Read one shape; blanks and comments may stand anywhere. Equal texts give the same object.

    Raises:
        ValueError: the text isn't one whole shape, or tuples nest more than 100 deep.
    """
    found = _PLAIN.match(text)
    if found is not None:
        dtype, dimensions, order = found.groups()
        return _array(dtype, dimensions, None if order is None else Layout(_integers(order)))
    spaced = strip_comments(text).strip()
    if _BROKEN.search(spaced):
        raise ValueError(f"expected a shape, found two words side by side in {_short(text)}")
    compact = "".join(spaced.split())
    if compact != text:
        return parse_shape(compact)
    shape, end = _read(text)
    if end != len(text):
        raise ValueError(f"expected the end of the shape, found {_short(text[end:])}")
    return shape


UNKNOWN_SHAPE: Final = Shape("unknown")
"""The shape of an instruction whose text leaves it out: no dimensions, sizes None."""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The shapes of `{f32[2]{0}, s32[]}` or `(f32[2], s32[])`, as in operand_layout_constraints."""
    text = strip_comments(text).strip()
    if (text[:1], text[-1:]) not in (("{", "}"), ("(", ")")):
        raise ValueError(f"expected shapes in braces, found {_short(text)}")
    return tuple(map(parse_shape, split_list(text[1:-1])))


def _read(text: str) -> tuple[Shape, int]:
    """The shape that starts `text`, which has no blanks, and where it ends."""
    open_tuples: list[list[Shape]] = []
    position = 0
    while True:
        if text.startswith("(", position):
            if len(open_tuples) == _MAX_NESTING:
                raise ValueError(f"tuples nest more than {_MAX_NESTING} deep in {_short(text)}")
            open_tuples.append([])
            position += 1
            if not text.startswith(")", position):
                continue
        else:
            shape, position = _read_array(text, position)
            if not open_tuples:
                return shape, position
            open_tuples[-1].append(shape)
        while text.startswith(")", position):
            shape = Shape("tuple", elements=tuple(open_tuples.pop()))
            position += 1
            if not open_tuples:
                return shape, position
            open_tuples[-1].append(shape)
        if not text.startswith(",", position):
            raise ValueError(
                f"expected ',' or ')' in a tuple shape, found {_short(text[position:])}"
            )
        position += 1


def _read_array(text: str, position: int) -> tuple[Shape, int]:
    """An array, token, opaque value or buffer at `position`, and where it ends."""
    if text.startswith("b(", position):
        held, end = _read_plain(text, position + 2)
        if not held.is_array or not text.startswith(")", end):
            raise ValueError(f"a buffer holds one array, found {_short(text[position:])}")
        return _buffer(held), end + 1
    return _read_plain(text, position)


def _read_plain(text: str, position: int) -> tuple[Shape, int]:
    found = _HEAD.match(text, position)
    if found is None:
        raise ValueError(f"expected a shape such as f32[2,3], found {_short(text[position:])}")
    end = found.end()
    start = end
    if text.startswith(("sparse{", "dense{", "{"), end):
        end = _closing_brace(text, text.index("{", end)) + 1
    return _array_of_text(found[1], found[2], text[start:end]), end


def _buffer(held: Shape) -> Shape:
    return Shape(held.dtype, held.dimensions, held.dynamic, held.layout, is_buffer=True)


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for found in _BRACE.finditer(text, start):
        depth += 1 if found.group() == "{" else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"the layout {_short(text[start:])} doesn't end")


_BRACE = re.compile(r"[{}]")


@lru_cache(maxsize=1 << 14)
def _array_of_text(dtype: str, dimensions: str, layout: str) -> Shape:
    return _array(dtype, dimensions, _layout(layout))


def _array(dtype: str, dimensions: str, layout: Layout | None) -> Shape:
    if dimensions.isdecimal():
        sizes: tuple[int | None, ...] = (_dimension(dimensions),)
        dynamic: tuple[bool, ...] = (False,)
    elif not dimensions:
        sizes, dynamic = (), ()
    else:
        parts = dimensions.split(",")
        sizes = tuple(map(_dimension, parts))
        dynamic = tuple(part[0] in "<?" for part in parts)
    if layout is not None and layout.sparse_elements is None:
        order = layout.minor_to_major
        if len(order) != len(sizes) or set(order) != set(range(len(sizes))):
            raise ValueError(
                f"the layout {layout} doesn't order the {len(sizes)} dimensions of "
                f"{dtype}[{dimensions}]"
            )
    return Shape(dtype, sizes, dynamic, layout)


def _dimension(text: str) -> int | None:
    if text in ("?", "<=?"):
        return None
    number = whole_number(text.removeprefix("<="))
    if number is None or number > _MOST:
        raise ValueError(f"expected a dimension such as 8, <=8 or ?, found {_short(text)}")
    return number


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(parse_int, text.split(","))) if text else ()


# ---------------------------------------------------------------------------- layouts

_PART = re.compile(r"(SC|[DTLESPM#*])(?=\()")
_GROUP = re.compile(r"\(([^()]*)\)")
_FIELDS: Final = {
    "D": "level_types",
    "L": "tail_padding",
    "#": "index_type",
    "*": "pointer_type",
    "E": "element_bits",
    "S": "memory_space",
    "P": "physical_shape",
    "M": "dynamic_metadata_bytes",
}


def _layout(text: str) -> Layout | None:
    """`{1,0:T(8,128)S(1)}`, `sparse{10}` or blank; `{}` is no layout."""
    if text in ("", "{}", "dense{}"):
        return None
    if text.startswith("sparse{"):
        return Layout(sparse_elements=parse_int(text[7:-1]))
    order, _, tail = text.removeprefix("dense")[1:-1].partition(":")
    values: dict[str, object] = {}
    position = 0
    while position < len(tail):
        found = _PART.match(tail, position)
        if found is None:
            raise ValueError(f"{_short(tail[position:])} is no part of a layout")
        kind = found[1]
        end = _closing_group(tail, found.end())
        if kind in ("T", "SC"):
            while tail.startswith("(", end):
                end = _closing_group(tail, end)
        content = tail[found.end() : end]
        position = end
        name, value = _layout_field(kind, content)
        if name in values:
            raise ValueError(f"{kind}(...) stands twice in the layout {_short(text)}")
        values[name] = value
    return Layout(_integers(order), **values)  # type: ignore[arg-type]


def _layout_field(kind: str, content: str) -> tuple[str, object]:
    if kind == "T":
        return "tiles", tuple(map(_tile, _GROUP.findall(content)))
    if kind == "SC":
        return "split_configs", content
    inner = content[1:-1]
    return _FIELDS[kind], parse_int(inner) if kind in "LESM" else inner


def _tile(text: str) -> tuple[int | None, ...]:
    sizes = tuple(None if part == "*" else parse_int(part) for part in text.split(","))
    if any(size is not None and size <= 0 for size in sizes):
        raise ValueError(f"a tile has no size below 1, found ({text})")
    return sizes


def _closing_group(text: str, start: int) -> int:
    """Where the parenthesis that opens at `start` has closed."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index + 1
    raise ValueError(f"a parenthesis of the layout part {_short(text[start:])} doesn't close")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "the end of the text"
