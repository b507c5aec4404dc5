"""What each instruction of a computation does to values, as `congruence` runs it on numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

from hlo_lens.analysis.calls import CALLING_OPCODES
from hlo_lens.analysis.contractions import Contraction, contraction
from hlo_lens.analysis.dataflow import (
    JOINED,
    MOVES,
    PASSING,
    PASSING_TARGETS,
    attribute_text,
    tuple_index,
)
from hlo_lens.analysis.degenerate import attributes_text, dimensions_text, sizes_of
from hlo_lens.analysis.values import Elementwise
from hlo_lens.analysis.views import View, bitcast, in_memory, inverse, is_identity, transposed
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.opcodes import sugar
from hlo_lens.hlo.replica_groups import ReplicaGroups, parse_replica_groups
from hlo_lens.hlo.structural import COMMENTARY, IDENTITY, PLACEMENT, structural_attributes

_NOT_COMPUTED: Final = (
    COMMENTARY
    | IDENTITY
    | PLACEMENT
    | {"api_version", "operand_layout_constraints", "output_to_operand_aliasing"}
)
# Each element of the result is computed from the elements at its place.
_ELEMENTWISE: Final = frozenset(
    (
        "abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "convert",
        "cosine", "count-leading-zeros", "divide", "erf", "exponential",
        "exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one", "logistic",
        "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real",
        "remainder", "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left",
        "shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan",
        "tanh", "xor",
    )
)  # fmt: skip
_MOVES: Final = MOVES | PASSING | {"reduce-precision"}
_SIDE_EFFECTS: Final = frozenset(
    ("infeed", "outfeed", "recv", "rng", "rng-get-and-update-state", "send")
)
# Collectives of several arrays in one: each result is that of its own operand.
_COLLECTIVES: Final = frozenset(("all-gather", "all-reduce", "collective-permute"))
_SIMPLE: Final = {
    "call": "call",
    "conditional": "conditional",
    "constant": "constant",
    "copy-start": "move",
    "fusion": "call",
    "tuple": "tuple",
    "while": "loop",
}
_INTEGERS: Final = ("s", "u", "pred")
_KINDS: Final = {"dynamic-slice": "slice", "select": "select", "slice": "cut"}
# In front of how many operands stand those that say where a slice begins.
_AT_STARTS: Final = {"dynamic-slice": 1, "dynamic-update-slice": 2}
_DIRECTION: Final = re.compile(r"direction=(\w\w)")
_DIMENSIONS: Final = re.compile(r", dimensions=\{([0-9,]*)\}", re.A)
# What jax makes of a function's sharding and of a shard_map. It says that they have side effects.
_NOTE: Final = "xla.sdy.FuncResultSharding"
_BORDERS: Final = {"xla.sdy.GlobalToLocalShape": "local", "xla.sdy.LocalToGlobalShape": "global"}
_SHARDING: Final = re.compile(r"<@[^<>]*>")
_MOST_DEVICES: Final = 1 << 20
# Of the config of a library call: how it is run, not what it computes.
_HOW: Final = re.compile(r"algorithm|workspace|layout")

Operand = tuple[int, tuple[int, ...]]
"""Element `path` of the instruction at a position; of parameter n, where the position is ~n."""


class Step(NamedTuple):
    """One instruction: how it is run (the name of a method), on what, and what else counts.

    kind: `move` (its operand 0), `view` (its operand 0, in another order), `element`, `tuple`,
    `constant`, `filled` (with a scalar), `elementwise`, `integer` (calculated, where its operands
    are integers), `select`, `general`, `collective`, `itself` (equal to nothing else), `call`,
    `custom_call`, `loop`, `conditional`, `start`, `update`, `done`, `slice`,
    `cut` (a slice), `concat`, `product` (of matrices), `border` (of a shard_map).
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
    if opcode in ("bitcast", "transpose"):
        return _rearranging(instr, operands)
    if opcode in _MOVES and not _rounds(instr):
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
    if opcode in _COLLECTIVES or part == "start":
        name = operation if part == "start" else opcode
        return Step(index, "collective", name, operands, _attributes(instr, name))
    return _operation(instr, opcode, operands)


def _operation(instr: Instruction, opcode: str, operands: tuple[Operand, ...]) -> Step:
    index, dimensions = instr.index, dimensions_text(instr.shape_text)
    attributes = _attributes(instr, opcode)
    given = _given(instr)
    detail: Hashable = attributes, dimensions, given
    if dimensions == "[]" and instr.shape_text.startswith(_INTEGERS):
        direction = _DIRECTION.search(attributes) if opcode == "compare" else None
        return Step(index, "integer", opcode, operands, (detail, direction and direction[1]))
    if opcode in _ELEMENTWISE:
        return _elementwise(instr, operands, attributes)
    if opcode == "broadcast" and given == ("[]",):
        return Step(index, "filled", opcode, operands, sizes_of(instr.shape_text))
    if opcode == "broadcast" and _moves_only(instr, attributes, dimensions):
        return Step(index, "move", opcode, operands)
    if opcode in ("dot", "convolution") and (product := _product(instr)) is not None:
        return Step(index, "product", opcode, operands, product)
    if opcode in _AT_STARTS and operands:
        first = _AT_STARTS[opcode]
        if given[first - 1 : first] == (dimensions,):
            return Step(index, "move", opcode, operands[first - 1 :])  # all of it
        starts = zip(operands[first:], _sizes(instr)[0], strict=False)
        operands = (*operands[:first], *(start for start, size in starts if size != "1"))
        detail = attributes, dimensions, given[:first]
    return Step(index, _KINDS.get(opcode, "general"), opcode, operands, detail)


def _product(instr: Instruction) -> Contraction | None:
    of = instr.computation
    shapes = [of.shape_of(one) for one in of.operand_indices(instr.index)]
    if len(shapes) != 2:
        return None
    left, right = shapes
    attributes = structural_attributes(instr.tail, without=_NOT_COMPUTED)
    return contraction(instr.opcode, attributes, left, right, instr.shape_text)


def _elementwise(instr: Instruction, operands: tuple[Operand, ...], attributes: str) -> Step:
    """Reshaped and transposed arrays give the result reshaped and transposed."""
    opcode = instr.opcode
    # A convert that rounds: to what.
    kind = instr.shape_text.partition("[")[0] if opcode == "convert" else ""
    detail = Elementwise(attributes, kind)
    return Step(instr.index, _KINDS.get(opcode, "elementwise"), opcode, operands, detail)


def _given(instr: Instruction) -> tuple[str, ...]:
    """The dimensions of the operands: a reshape hands its operand on, in other dimensions."""
    of = instr.computation
    return tuple(dimensions_text(of.shape_of(one)) for one in of.operand_indices(instr.index))


def _moves_only(instr: Instruction, attributes: str, dimensions: str) -> bool:
    """Whether a broadcast changes nothing but dimensions of size 1."""
    given = _given(instr)
    rank = dimensions.count(",") + (dimensions != "[]")
    identity = f", dimensions={{{','.join(map(str, range(rank)))}}}" if rank else ""
    return attributes == identity and given == (dimensions,)


def _rounds(instr: Instruction) -> bool:
    """Whether a convert loses more than digits: one to integers, or to truth values."""
    if instr.opcode != "convert" or not instr.shape_text.startswith(_INTEGERS):
        return False
    of = instr.computation
    given = of.shape_of(of.operand_indices(instr.index)[0]) if instr.operands else ""
    return not given.startswith("pred" if instr.shape_text.startswith("pred") else _INTEGERS)


def _rearranging(instr: Instruction, operands: tuple[Operand, ...]) -> Step:
    """A transpose; a bitcast is one where it goes by layouts that are not the usual ones."""
    index, opcode, text = instr.index, instr.opcode, instr.shape_text
    try:
        given = instr.computation.shape_of(instr.computation.operand_indices(index)[0])
        view = bitcast(given, text) if opcode == "bitcast" else _transpose(instr, given)
    except (IndexError, ValueError):
        detail = _attributes(instr, opcode), text, _given(instr)
        return Step(index, "general", opcode, operands, detail)
    if is_identity(view):
        return Step(index, "move", opcode, operands)
    return Step(index, "view", opcode, operands, view)


def _transpose(instr: Instruction, given: str) -> View:
    found = _DIMENSIONS.search(structural_attributes(instr.tail, without=_NOT_COMPUTED))
    text = found[1] if found else ""
    return transposed(given, [int(one) for one in text.split(",")] if text else [])


def _custom_call(instr: Instruction, operands: tuple[Operand, ...]) -> Step:
    target = instr.custom_call_target or ""
    if target in PASSING_TARGETS or target == _NOTE:
        return Step(instr.index, "move", target, operands)
    dimensions, given = dimensions_text(instr.shape_text), _given(instr)
    if target in _BORDERS:
        border = _BORDERS[target], _shardings(instr, len(operands))
        return Step(instr.index, "border", target, operands, border)
    if "custom_call_has_side_effect=true" in instr.tail:
        return Step(instr.index, "itself", target, operands)
    if target == JOINED:
        return Step(instr.index, "concat", target, operands, _from_memory(instr))
    detail = _attributes(instr, ""), dimensions, given, _config(instr)
    return Step(instr.index, "custom_call", f"custom-call {target}", operands, detail)


def _shardings(instr: Instruction, count: int) -> tuple[str, ...]:
    """How each operand is sharded; one text of all of them where they are not as many."""
    text = attribute_text(instr, "frontend_attributes") or ""
    found = tuple(_SHARDING.findall(text.replace("\\", "")))
    return found if len(found) == count else (text,) * count


def _from_memory(instr: Instruction) -> View | None:
    """What lies in memory, as an array of the shape that the instruction gives it."""
    try:
        return inverse(in_memory(instr.shape_text))
    except ValueError:
        return None


def _config(instr: Instruction) -> str | None:
    """What the config of a custom call says of what it computes: the name and the code of a
    kernel, the numbers of a library call."""
    try:
        config = instr.backend_config
    except ValueError:
        return None
    if config is None or config.kind != "json":
        return None if config is None else config.raw
    told: list[object] = [config.get("name"), config.get("kernel_name")]
    told.append(config.get("custom_call_config", "body"))
    if isinstance(config.value, dict):
        for key, value in sorted(config.value.items()):
            if key.endswith("_backend_config") and isinstance(value, dict):
                told += [(k, v) for k, v in sorted(value.items()) if not _HOW.search(k)]
    return repr(told)


def _attributes(instr: Instruction, opcode: str) -> str:
    """The attributes that say what an instruction computes."""
    if not instr.tail:
        return ""
    text = structural_attributes(instr.tail, without=_NOT_COMPUTED)
    if not text:
        return ""
    text = attributes_text(opcode, text, _sizes(instr), sizes_of(instr.shape_text))
    return _with_groups(text) if "replica_groups=" in text else text


@lru_cache(maxsize=1 << 10)
def _with_groups(attributes: str) -> str:
    """The attributes with replica groups as numbers, however they are written."""
    parts = attributes.split(", ")
    for at, part in enumerate(parts):
        name, _, value = part.partition("=")
        if name == "replica_groups":
            with suppress(ValueError):
                parts[at] = f"{name}={_groups(parse_replica_groups(value))}"
    return ", ".join(parts)


def _groups(groups: ReplicaGroups) -> str:
    """The numbers of the groups. Raises ValueError where they are too many."""
    mesh, iota = groups.device_mesh, groups.iota
    count = mesh.device_count if mesh else math.prod(iota.dims) if iota else 0
    if count > _MOST_DEVICES:
        raise ValueError(f"{count} devices")
    return "".join(f"{{{','.join(map(str, group))}}}" for group in groups.groups)


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
