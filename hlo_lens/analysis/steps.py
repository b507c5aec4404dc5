"""What each instruction of a computation does to values, as `congruence` runs it on numbers."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final, NamedTuple

from hlo_lens.analysis.calls import CALLING_OPCODES
from hlo_lens.analysis.dataflow import (
    MOVES,
    PASSING,
    PASSING_TARGETS,
    tuple_index,
)
from hlo_lens.analysis.degenerate import attributes_text, dimensions_text, sizes_of
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.opcodes import sugar
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY, PLACEMENT, structural_attributes

_NOT_COMPUTED: Final = (
    COMMENTARY
    | IDENTITY
    | PLACEMENT
    | {"api_version", "operand_layout_constraints", "output_to_operand_aliasing"}
)
_MOVES: Final = MOVES | PASSING | {"reduce-precision"}
_SIDE_EFFECTS: Final = frozenset(("infeed", "outfeed", "recv", "rng", "send"))
# Collectives of several arrays in one: each result is that of its own operand.
_ELEMENTWISE: Final = frozenset(("all-gather", "all-reduce", "collective-permute"))
_SIMPLE: Final = {
    "call": "call",
    "conditional": "conditional",
    "constant": "constant",
    "copy-start": "copy_start",
    "fusion": "call",
    "tuple": "tuple",
    "while": "loop",
}
_INTEGERS: Final = ("s", "u", "pred")
_KINDS: Final = {"dynamic-slice": "slice", "select": "select"}
_REARRANGING: Final = frozenset(("broadcast", "transpose"))
# In front of how many operands stand those that say where a slice begins.
_AT_STARTS: Final = {"dynamic-slice": 1, "dynamic-update-slice": 2}
_DIRECTION: Final = re.compile(r"direction=(\w\w)")

Operand = tuple[int, tuple[int, ...]]
"""Element `path` of the instruction at a position; of parameter n, where the position is ~n."""


class Step(NamedTuple):
    """One instruction: how it is run (the name of a method), on what, and what else counts.

    kind: `move` (its operand 0), `element`, `tuple`, `constant`, `integer` (calculated, where its
    operands are integers), `select`, `general`, `collective`, `itself` (equal to nothing else),
    `call`, `custom_call`, `loop`, `conditional`, `start`, `update`, `done`, `copy_start`, `slice`,
    `concat`.
    """

    position: int
    kind: str
    opcode: str
    operands: tuple[Operand, ...]
    detail: Hashable = None

    @property
    def applies(self) -> bool:
        """Whether it may apply a computation to elements."""
        return self.opcode in CALLING_OPCODES or self.kind == "custom_call"


def steps_of(computation: Computation) -> list[Step]:
    """The steps of a computation, operands before what takes them."""
    return _sorted([_step(computation, index) for index in range(len(computation.opcodes))])


def _step(computation: Computation, index: int) -> Step:
    opcode = computation.opcodes[index]
    instr = Instruction(computation, index)
    if opcode == "parameter":
        return Step(index, "move", opcode, ((~(instr.parameter_number or 0), ()),))
    operands = tuple(
        (one, ()) if one >= 0 else _operand(computation, one)
        for one in computation.operand_indices(index)
    )
    if opcode == "get-tuple-element":
        return Step(index, "element", opcode, operands, tuple_index(instr))
    if opcode in _MOVES:
        return Step(index, "move", opcode, operands)
    if opcode in _SIMPLE:
        return Step(index, _SIMPLE[opcode], opcode, operands, dimensions_text(instr.shape_text))
    if opcode == "custom-call":
        return _custom_call(instr, operands)
    if opcode in _SIDE_EFFECTS:
        return Step(index, "itself", opcode, operands)
    operation, dash, part = opcode.rpartition("-")
    if dash and part in ("update", "done"):
        return Step(index, part, operation, operands)
    if opcode == "async-start" or (part == "start" and sugar(opcode) is not None):
        return Step(index, "start", opcode, operands)
    if opcode in _ELEMENTWISE or part == "start":
        name = operation if part == "start" else opcode
        return Step(index, "collective", name, operands, _attributes(instr, name))
    return _operation(instr, opcode, operands)


def _operation(instr: Instruction, opcode: str, operands: tuple[Operand, ...]) -> Step:
    index, dimensions = instr.index, dimensions_text(instr.shape_text)
    attributes = _attributes(instr, opcode)
    detail = attributes, dimensions
    if dimensions == "[]" and instr.shape_text.startswith(_INTEGERS):
        direction = _DIRECTION.search(attributes) if opcode == "compare" else None
        return Step(index, "integer", opcode, operands, (*detail, direction and direction[1]))
    if opcode in _REARRANGING and _moves_only(instr, attributes, dimensions):
        return Step(index, "move", opcode, operands)
    if opcode in _AT_STARTS and operands:
        first = _AT_STARTS[opcode]
        starts = zip(operands[first:], _sizes(instr)[0], strict=False)
        operands = (*operands[:first], *(start for start, size in starts if size != "1"))
    return Step(index, _KINDS.get(opcode, "general"), opcode, operands, detail)


def _moves_only(instr: Instruction, attributes: str, dimensions: str) -> bool:
    """Whether a broadcast or transpose changes nothing but dimensions of size 1."""
    given = _sizes(instr)
    rank = dimensions.count(",") + (dimensions != "[]")
    identity = f", dimensions={{{','.join(map(str, range(rank)))}}}" if rank else ""
    return bool(given) and attributes == identity and dimensions == _text(given[0])


def _text(sizes: tuple[str, ...]) -> str:
    return f"[{','.join(size for size in sizes if size != '1')}]"


def _custom_call(instr: Instruction, operands: tuple[Operand, ...]) -> Step:
    target = instr.custom_call_target or ""
    if target in PASSING_TARGETS:
        return Step(instr.index, "move", target, operands)
    if "custom_call_has_side_effect=true" in instr.tail:
        return Step(instr.index, "itself", target, operands)
    if target == "ConcatBitcast":
        return Step(instr.index, "concat", target, operands, dimensions_text(instr.shape_text))
    detail = _attributes(instr, ""), dimensions_text(instr.shape_text), _kernel(instr)
    return Step(instr.index, "custom_call", f"custom-call {target}", operands, detail)


def _kernel(instr: Instruction) -> str | None:
    """The name of the kernel that a generic target launches, where the config has one."""
    if "name" not in instr.tail:
        return None
    try:
        config = instr.backend_config
        name = None if config is None else config.get("name") or config.get("kernel_name")
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _attributes(instr: Instruction, opcode: str) -> str:
    """The attributes that say what an instruction computes."""
    if not instr.tail:
        return ""
    text = structural_attributes(instr.tail, without=_NOT_COMPUTED)
    return attributes_text(opcode, text, _sizes(instr), sizes_of(instr.shape_text)) if text else ""


def _sizes(instr: Instruction) -> tuple[tuple[str, ...], ...]:
    """The sizes of the first two operands."""
    of = instr.computation
    return tuple(sizes_of(of.shape_of(one)) for one in of.operand_indices(instr.index)[:2])


def _operand(computation: Computation, position: int) -> Operand:
    """`x#1#0` is element (1, 0) of x; a parameter that the text only implies is ~number."""
    path: list[int] = []
    while position < 0:
        operands = computation.operand_indices(position)
        instr = Instruction(computation, position)
        if not operands:
            position = ~(instr.parameter_number or 0)
            break
        path.append(tuple_index(instr) or 0)
        position = operands[0]
    return position, tuple(reversed(path))


def _sorted(steps: list[Step]) -> list[Step]:
    """Operands first. That is the order of the text, unless somebody changed it."""
    if all(base < step.position for step in steps for base, _ in step.operands):
        return steps
    order: list[Step] = []
    entered = [False] * len(steps)
    done = [False] * len(steps)
    for start in range(len(steps)):
        waiting = [start]
        while waiting:
            index = waiting[-1]
            if entered[index]:
                waiting.pop()
                if not done[index]:
                    done[index] = True
                    order.append(steps[index])
            else:
                entered[index] = True
                waiting += [b for b, _ in steps[index].operands if b >= 0 and not entered[b]]
    return order
