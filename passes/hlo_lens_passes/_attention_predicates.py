"""Predicates of a mask as operations on positions: read from the text, to be evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.dataflow import attribute_text
from hlo_lens.analysis.views import row_major
from hlo_lens.hlo.attributes import strip_comments
from hlo_lens_passes._attention_axes import Axes, array_text, moved, sizes_in
from hlo_lens_passes._attention_grids import OPERATIONS, Grid, Node, Number
from hlo_lens_passes._attention_values import Spot, Values

if TYPE_CHECKING:
    from hlo_lens.analysis.dataflow import Value

_MOST_NODES: Final = 256
_MOST_LISTED: Final = 1 << 16
_KINDS: Final = {"b": "f", "f": "f", "p": "p", "s": "s", "u": "u"}
# Floats with all the integers that positions are.
_WIDE: Final = ("f32", "f64")


def grid_of(values: Values, value: Value, axes: Axes, keeps: bool) -> Grid | None:
    """A predicate of iotas and constants; None for another."""
    reader = _Reader(values)
    try:
        reader.read(value, axes, 0)
    except (IndexError, RecursionError, ValueError):
        return None
    return Grid(tuple(reader.nodes), keeps)


def made_of(values: Values, value: Value, axes: Axes) -> set[str]:
    """What a predicate is made of: `position` (iotas and arrays of constants), `data`, `unknown`
    (what cannot be followed)."""
    found: set[str] = set()
    seen = set()
    waiting = [(value, axes)]
    for count, (one, its) in enumerate(waiting):  # grows while it is walked
        spot = values.at_or_before(one, its)
        if spot is None or count > _MOST_NODES:
            found.add("unknown")
            continue
        opcode = spot.instr.opcode
        if (spot.instr, spot.axes) in seen:
            continue
        seen.add((spot.instr, spot.axes))
        if opcode == "iota":
            found.add("position")
        elif opcode == "constant":
            if values.number(one, its) is None:
                found.add("position")
        elif opcode in OPERATIONS and not spot.value.path:
            for number in range(len(spot.instr.computation.operand_indices(spot.instr.index))):
                operand = spot.operand(number)
                if operand is not None:
                    waiting.append((operand, spot.axes))
        else:
            found.add("data")
    return found


def list_of(spot: Spot) -> list[Number] | None:
    """The numbers of a constant that the text lists; None where it does not."""
    sizes = sizes_in(spot.instr)
    try:
        literal = spot.instr.literal
        count = spot.instr.shape.element_count
        if spot.value.path or not sizes or literal is None or literal.elided:
            return None
        if count is None or count > _MOST_LISTED:
            return None
        numbers = [one for one in literal.values() if not isinstance(one, complex)]
    except ValueError:
        return None
    return numbers if len(numbers) == count else None


class _Reader:
    """Nodes of one predicate, each once. Raises ValueError for what is none of positions."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._numbers: dict[Node, int] = {}
        self._known: dict[tuple[object, ...], int] = {}

    @property
    def nodes(self) -> list[Node]:
        return [*self._numbers]

    def _add(self, node: Node) -> int:
        if len(self._numbers) > _MOST_NODES:
            raise ValueError("too many operations")
        return self._numbers.setdefault(node, len(self._numbers))

    def read(self, value: Value, axes: Axes, depth: int) -> int:
        spot = self._values.at_or_before(value, axes)
        if spot is None or spot.value.path or depth > _MOST_NODES:
            raise ValueError("not known")
        key = (spot.instr, spot.value.via, spot.axes)
        if key not in self._known:
            self._known[key] = self._spot(spot, depth)
        return self._converted(self._known[key], spot, value)

    def _converted(self, number: int, spot: Spot, value: Value) -> int:
        """`at` passes conversions: to integers and to truth values they change a number."""
        if value.path:
            return number
        first, text = _kind(spot), array_text(value.instr)
        if first == "p" and text[:1] in "bf":
            return number  # of whatever dtype: it holds 0 and 1
        last = _kind_of(text)
        if first != "p" and last == "p":
            return self._add(Node("true", "p", (number,)))
        if first == "f" and last in "su":
            return self._add(Node("cut", last, (number,)))
        return number

    def _spot(self, spot: Spot, depth: int) -> int:
        opcode, kind = spot.instr.opcode, _kind(spot)
        if opcode == "constant":
            number = self._values.number(spot.value, spot.axes)
            if number is not None:
                whole = number if kind == "f" else int(number)
                return self._add(Node(opcode, kind, what=bool(number) if kind == "p" else whole))
            numbers = list_of(spot)
            if numbers is None:
                raise ValueError("not told")
            return self._leaf(spot, Node("listed", kind, what=tuple(numbers)))
        if opcode == "iota":
            return self._leaf(spot, Node(opcode, kind))
        if opcode not in OPERATIONS:
            raise ValueError(opcode)
        count = len(spot.instr.computation.operand_indices(spot.instr.index))
        operands = [spot.operand(number) for number in range(count)]
        args = [self.read(one, spot.axes, depth + 1) for one in operands if one is not None]
        what = ""
        if opcode == "compare":
            what = strip_comments(attribute_text(spot.instr, "direction") or "").strip()
        return self._add(Node(opcode, kind, tuple(args), what))

    def _leaf(self, spot: Spot, node: Node) -> int:
        sizes = sizes_in(spot.instr)
        if node.opcode == "iota":
            along = spot.instr.int_attribute("iota_dimension")
            if along is None or along >= len(sizes):
                raise ValueError("an iota of no dimension")
            steps = [(size, int(number == along)) for number, size in enumerate(sizes)]
        else:
            steps = row_major(sizes)
        batch, query, key = (moved(axis, steps) for axis in spot.axes)
        if any(stride for _, stride in batch):
            raise ValueError("another for each of the batch")
        return self._add(node._replace(along=(query, key)))


def _kind(spot: Spot) -> str:
    return _kind_of(array_text(spot.instr))


def _kind_of(text: str) -> str:
    """See `Node`. Raises ValueError for dtypes that do not hold every position."""
    kind = _KINDS.get(text[:1])
    if kind is None or (kind == "f" and not text.startswith(_WIDE)):
        raise ValueError(f"elements of {text[:40]}")
    return kind
