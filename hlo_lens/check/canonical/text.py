"""A module as canonical text: equal for modules that differ in names, ids and spellings alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from hlo_lens.check.canonical import values
from hlo_lens.check.canonical.order import Body, Value, bodies
from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.structural import IDENTITY

T = TypeVar("T")
_Place: TypeAlias = tuple[Computation, Value]


@dataclass(frozen=True, slots=True)
class Line:
    """A line and what of the module it prints; None for the header and blank lines."""

    text: str
    computation: Computation | None = None
    instruction: Instruction | None = None

    @property
    def text_line(self) -> int | None:
        """The line of the original text; None for what is none of its lines."""
        if self.instruction is not None:
            return self.instruction.text_line
        return None if self.computation is None else self.computation.text_line


@dataclass(frozen=True, slots=True)
class CanonicalText:
    """The lines, in order."""

    lines: Sequence[Line]

    def __str__(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)


def canonical_text(module: Module) -> CanonicalText:
    """The canonical text of a module: `docs/filecheck.md` says what it is."""
    ordered = bodies(module.entry)
    names = _Names(ordered, module.entry)
    lines = [Line(_header(module))]
    for body in ordered:
        lines.append(Line(""))
        lines += _body_lines(body, names, is_entry=body.computation is module.entry)
    return CanonicalText(lines)


_COMMENTARY = frozenset(("frontend_attributes", "origin_recovery_table", "debug_attributes"))
_COUNTS = frozenset(("replica_count", "num_partitions"))  # 1 where the header does not say


def _header(module: Module) -> str:
    """The name and the fields, but those that are empty or say what holds without them."""
    printed = {
        name: values.header_field(name, value)
        for name, value in module.header.items()
        if name not in _COMMENTARY and not (name in _COUNTS and value == "1")
    }
    fields = "".join(f", {name}={value}" for name, value in printed.items() if value != "{}")
    return f"HloModule {module.name}{fields}"


# ---------------------------------------------------------------------------- names


class _Names:
    """Names that no other name begins with: as captured ones, they then stand for themselves
    alone. Counted from 1 through the module, in as many digits as the last of the kind has."""

    def __init__(self, ordered: Sequence[Body], entry: Computation) -> None:
        places: list[tuple[_Place, str]] = []
        called: dict[Computation, str] = {}
        for body in ordered:
            for value in body.order:
                at, path = value
                kind = "get-tuple-element" if path else body.operations[at].opcode
                places.append(((body.computation, value), kind))
            for opcode, attribute, callee in body.callees:
                called.setdefault(callee, f"{opcode}_{attribute}")
        self._values = dict(_numbered(places))
        printed = (body.computation for body in ordered)
        self._computations = dict(
            _numbered([(one, called[one]) for one in printed if one in called])
        )
        self._computations[entry] = "main"
        self._channels: dict[str, int] = {}

    def value(self, computation: Computation, value: Value) -> str:
        return self._values[computation, value]

    def computation(self, computation: Computation) -> str:
        return self._computations[computation]

    def channel(self, id: str) -> int:
        """Channels from 1, in the order of the text."""
        return self._channels.setdefault(id, len(self._channels) + 1)


def _numbered(kinds: Sequence[tuple[T, str]]) -> Iterator[tuple[T, str]]:
    last = Counter(kind for _, kind in kinds)
    number: Counter[str] = Counter()
    for thing, kind in kinds:
        number[kind] += 1
        yield thing, f"{kind}.{number[kind]:0{len(str(last[kind]))}}"


# ---------------------------------------------------------------------------- lines


def _body_lines(body: Body, names: _Names, *, is_entry: bool) -> Iterator[Line]:
    computation = body.computation
    entry = "ENTRY " if is_entry else ""
    signature = _signature(body, names)
    yield Line(f"{entry}%{names.computation(computation)} {signature}{{", computation)
    for value in body.order:
        root = "ROOT " if value == body.root else ""
        text, instruction = _value_text(body, value, names)
        yield Line(f"  {root}{text}", computation, instruction)
    yield Line("}", computation)


def _signature(body: Body, names: _Names) -> str:
    """`(parameter.1: f32[8]) -> f32[4] `, or nothing where a shape is left out."""
    computation = body.computation
    parameters = [
        (names.value(computation, (each.index, ())), values.shape(each.shape_text))
        for each in computation.parameters
    ]
    result = values.shape(computation.root.shape_text)
    if not result or not all(shape for _, shape in parameters):
        return ""
    return f"({', '.join(f'{name}: {shape}' for name, shape in parameters)}) -> {result} "


def _value_text(body: Body, value: Value, names: _Names) -> tuple[str, Instruction]:
    at, path = value
    computation = body.computation
    if path:
        taker = body.elements[value]
        of = names.value(computation, (at, path[:-1]))
        shape = values.shape(taker.shape_text)
        said, opcode, attributes = f"%{of}", "get-tuple-element", f", index={path[-1]}"
    else:
        taker = Instruction(computation, at)
        one = body.operations[at]
        operands = (f"%{names.value(computation, each)}" for each in body.operands[at])
        shape, opcode, said = one.shape, one.opcode, one.said or ", ".join(operands)
        attributes = "".join(
            f", {name}={_attribute(body, at, name, text, one.callees, names)}"
            for name, text in one.attributes.items()
        )
    head = f"%{names.value(computation, value)} = {shape}{' ' if shape else ''}"
    return f"{head}{opcode}({said}){attributes}", taker


def _attribute(
    body: Body,
    at: int,
    name: str,
    text: str,
    callees: Mapping[str, tuple[Computation, ...]],
    names: _Names,
) -> str:
    """The value of an attribute; what it names by the names of this text."""
    if name == "channel_id":
        return str(names.channel(text))
    if name == "control-predecessors":
        computation = body.computation
        listed = (f"%{names.value(computation, each)}" for each in body.predecessors(at))
        return f"{{{', '.join(listed)}}}"
    if name in callees:
        listed = (f"%{names.computation(each)}" for each in callees[name])
        return f"{{{', '.join(listed)}}}" if name.endswith("computations") else ", ".join(listed)
    return values.parted(text) if name in IDENTITY else text
