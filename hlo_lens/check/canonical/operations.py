"""What an instruction is, in one spelling: asynchronous ones are `OP-start` and `OP-done`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_lens.check.canonical import values
from hlo_lens.diff.canonical import callees, written_attributes
from hlo_lens.hlo import Computation, Instruction, parse_shape
from hlo_lens.hlo.attributes import strip_comments
from hlo_lens.hlo.opcodes import sugar
from hlo_lens.hlo.structural import IDENTITY

_PLACED: Final = ("sharding", "frontend_attributes", "control-predecessors", "backend_config")
_LEFT_OUT: Final = "operand_layout_constraints"
_OTHER_STARTS: Final = ("copy", "send", "recv")  # their -start is another operation than they are


@dataclass(frozen=True, slots=True)
class Operation:
    """An instruction without its name. said: what stands between its parentheses where these are
    no operands. attributes: as printed, but for those that name something or hold an id."""

    opcode: str
    shape: str
    said: str
    attributes: Mapping[str, str]
    callees: Mapping[str, tuple[Computation, ...]]

    @property
    def structure(self) -> str:
        """The attributes that name nothing, as one text."""
        return ", ".join(
            f"{name}={value}" for name, value in self.attributes.items() if name not in IDENTITY
        )


# Printers leave out all others that are empty.
_SAID_EMPTY: Final = frozenset(("dimensions", "replica_groups"))


def _written(tail: str) -> Mapping[str, str]:
    """The attributes but commentary and empty ones, as written."""
    attributes = written_attributes(tail, said_empty=_SAID_EMPTY)
    return {name or "unreadable": value for name, value in attributes.items()}


def operation(instruction: Instruction) -> Operation:
    """What an instruction is, however it is spelled."""
    opcode, shape = instruction.opcode, instruction.shape_text
    attributes: Mapping[str, str] = _written(instruction.tail)
    called: Mapping[str, tuple[Computation, ...]] = callees(instruction)
    if opcode in ("async-update", "async-done"):
        opcode = f"{_started(instruction)}-{opcode.rpartition('-')[2]}"
        attributes = {name: value for name, value in attributes.items() if name != "calls"}
        called = {}
    elif (inner := wrapped(instruction)) is not None:
        opcode, called = f"{inner.opcode}-start", callees(inner)
        own = {name: value for name, value in attributes.items() if name != "calls"}
        attributes = {**_written(inner.tail), **own}
    if opcode.endswith("-start") and opcode != "copy-start":
        shape = _start_shape(opcode, shape)
    said = ""
    if opcode == "constant":
        said = values.literal(instruction.argument_text, shape)
    elif opcode == "parameter":
        said = strip_comments(instruction.argument_text).strip()
    return Operation(opcode, values.shape(shape), said, _printed(attributes), called)


def _printed(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """In the order of the text, those that say where and how behind the others."""
    names = [name for name in attributes if name not in _PLACED and name != _LEFT_OUT]
    names += [name for name in _PLACED if name in attributes]
    return {
        name: attributes[name] if name in IDENTITY else values.attribute(name, attributes[name])
        for name in names
    }


def wrapped(start: Instruction) -> Instruction | None:
    """The one operation in the computation of an `async-start`; None where there is more in it,
    and for all other instructions."""
    called = start.called_by.get("calls", ()) if start.opcode == "async-start" else ()
    if len(called) != 1:
        return None
    root = called[0].root
    alone = [each for each in called[0].instructions if each.opcode != "parameter"] == [root]
    if not alone or root.opcode in _OTHER_STARTS or root.operands != called[0].parameters:
        return None
    return root


def _started(instruction: Instruction) -> str:
    """The operation that an `async-update` or `async-done` goes on with; async where not known."""
    at, seen = instruction, {instruction}
    while at.opcode in ("async-update", "async-done") and at.operands:
        at = at.operands[0]
        if at in seen:
            break
        seen.add(at)
    written = sugar(at.opcode)
    if written is not None and written[1] == "start":
        return written[0]
    inner = wrapped(at)
    return "async" if inner is None else inner.opcode


def _start_shape(opcode: str, text: str) -> str:
    """As XLA prints that of the opcode, without what is there for the hardware alone."""
    try:
        shape = parse_shape(text)
    except ValueError:
        return text
    if len(shape.elements) < 2 or opcode in ("send-start", "recv-start"):
        return text
    taken, given = shape.elements[:2]
    if opcode == "all-reduce-start":
        # The text of an async-start holds the operands too: `((f32[8]), f32[8])`.
        return str(given) if taken.is_tuple and len(shape.elements) > 1 else text
    if opcode in ("all-gather-start", "collective-permute-start"):
        single = taken.is_tuple and len(taken.elements) == 1
        return f"({taken.elements[0] if single else taken}, {given})"
    return f"({taken}, {given})"
