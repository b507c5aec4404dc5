"""Where a value comes from and where it goes, through what only moves it and across calls.

A value is an element of what an instruction gives (`Value`). Going back or forward it passes
get-tuple-element and tuple, opt-barrier, start/done pairs, Sharding and host-placement custom
calls, the boundaries of fusions, calls, async computations, branches and whiles, and the opcodes
in `moves`. A while carry that the body hands on unchanged is passed too; one that changes is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from hlo_lens.analysis.calls import CallGraph, CallSite
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.attributes import whole_number
from hlo_lens.hlo.opcodes import sugar

MOVES = frozenset(("bitcast", "convert", "copy", "reshape"))
"""Opcodes that give their operand in another layout, shape or dtype."""

JOINED = "ConcatBitcast"
"""The custom call of TPU that puts an array together again which was copied in slices."""

_INDEX = re.compile(r", index=(\d+)", re.A)
_ONE_DIMENSION = re.compile(r"\{\[(\d+):(\d+)\]\}", re.A)
_COPIES = frozenset(("bitcast", "copy"))
PASSING = frozenset(("add-dependency", "domain", "opt-barrier", "optimization-barrier"))
PASSING_TARGETS = frozenset(
    (
        "MoveToDevice", "MoveToHost", "Sharding", "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
    )
)  # fmt: skip
# In which element of the tuple that a start gives the result is; all-reduce-start gives it bare.
_RESULT_OF_START = {
    "all-gather-start": (1,),
    "async-start": (1,),
    "async-update": (1,),
    "collective-permute-start": (1,),
    "copy-start": (0,),
    "recv": (0,),
}
# Longer chains of moves than this do not occur; a text with computations that call themselves
# would otherwise never end.
_MOST_STEPS = 4096
_MOST_VALUES = 1 << 16
# Loops, calls or tuples inside each other; real programs have a handful.
_MOST_NESTED = 64


@dataclass(frozen=True, slots=True)
class Value:
    """Element `path` of what `instr` gives; `()` is all of it.

    `via` holds the instructions through which the walk went into the computation of `instr`
    (outermost first): a parameter there is an operand of the last of them, whoever else calls.
    """

    instr: Instruction
    path: tuple[int, ...] = ()
    via: tuple[Instruction, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: equal for two values that are the same thing moved about.

    kind: `parameter` (of the entry, or of a computation whose caller is not known), `constant`,
    `carry` (element `path` of the parameter of a while body or condition, which each iteration
    changes), `operation` (anything that computes).
    """

    kind: Literal["parameter", "constant", "carry", "operation"]
    instr: Instruction
    path: tuple[int, ...] = ()


def trace(
    graph: CallGraph,
    value: Value,
    *,
    moves: frozenset[str] = MOVES,
    into_loops: bool = True,
) -> Value:
    """The value followed back to the instruction that computes it, or as far as it can be.

    With `into_loops` false it stops at what a while gives and its body changes: a while that runs
    no iteration gives its init instead of what the body computes.
    """
    for _ in range(_MOST_STEPS):
        before = _back(graph, value, moves)
        if before is None or (
            not into_loops and value.instr.opcode == "while" and len(before.via) > len(value.via)
        ):
            break
        value = before
    return value


def steps(graph: CallGraph, value: Value, *, moves: frozenset[str] = MOVES) -> Iterator[Value]:
    """The value, and every value that `trace` passes on the way back from it, to where it ends."""
    at: Value | None = value
    for _ in range(_MOST_STEPS):
        if at is None:
            return
        yield at
        at = _back(graph, at, moves)


def producer(
    graph: CallGraph,
    instr: Instruction,
    path: tuple[int, ...] = (),
    *,
    moves: frozenset[str] = MOVES,
) -> Instruction:
    """The instruction that computes this value; see `trace`. For the result of a while, what
    computes it in the body; for that of a fusion, what computes it inside."""
    return trace(graph, Value(instr, path), moves=moves).instr


def value_source(
    graph: CallGraph,
    instr: Instruction,
    path: tuple[int, ...] = (),
    *,
    moves: frozenset[str] = MOVES,
) -> Source:
    """Where this value comes from; see `Source` and `trace`."""
    value = trace(graph, Value(instr, path), moves=moves)
    opcode = value.instr.opcode
    if opcode == "constant":
        return Source("constant", value.instr, value.path)
    if opcode != "parameter":
        return Source("operation", value.instr, value.path)
    callers = graph.callers(value.instr.computation)
    carried = any(site.kind in ("body", "condition") for site in callers)
    return Source("carry" if carried else "parameter", value.instr, value.path)


def constant_value(graph: CallGraph, instr: Instruction) -> bool | int | float | complex | None:
    """The one number this value is, also of a broadcast scalar; None where that is not known.

    Converted from float to integer it is cut off, as XLA does; other conversions keep it.
    """
    moves = MOVES | {"broadcast"}
    number = number_of(trace(graph, Value(instr), moves=moves, into_loops=False))
    if isinstance(number, float) and instr.shape_text[:1] in ("s", "u"):
        return int(number) if abs(number) < 2**64 else None
    return number


def number_of(value: Value) -> bool | int | float | complex | None:
    """The number that a constant, or an element of a tuple constant, is; None for everything
    else: other opcodes, arrays of several numbers, elided ones."""
    if value.instr.opcode != "constant":
        return None
    try:
        literal = value.instr.literal
        shape = value.instr.shape
        before = 0
        for index in value.path:
            leaves = (leaf for element in shape.elements[:index] for leaf in element.leaves())
            before += sum(leaf.element_count or 0 for leaf in leaves if leaf.is_array)
            shape = shape.elements[index]
        if literal is None or literal.elided or not shape.is_array or shape.element_count != 1:
            return None
        return next(islice(literal.values(), before, None), None)
    except (ValueError, IndexError):
        return None


def through(instr: Instruction, opcodes: frozenset[str] = MOVES) -> Instruction:
    """Operand 0 of operand 0 …, while the opcode is one of `opcodes`; inside one computation."""
    while instr.opcode in opcodes:
        operands = instr.computation.operand_indices(instr.index)
        if not operands:
            break
        instr = Instruction(instr.computation, operands[0])
    return instr


def is_invariant(graph: CallGraph, loop: Instruction, path: tuple[int, ...]) -> bool:
    """Whether the body of a while hands element `path` of its carry on unchanged."""
    known = graph.invariant_carries
    found = known.get((loop, path))
    if found is None:
        # A body that holds its own while gets this answer, which ends the walk.
        known[loop, path] = False
        # The walk goes into the loops of the body in turn; what lies too deep is not looked at.
        if graph.walking_into < _MOST_NESTED:
            graph.walking_into += 1
            found = known[loop, path] = _is_handed_on(graph, loop, path)
            graph.walking_into -= 1
    return bool(found)


def _is_handed_on(graph: CallGraph, loop: Instruction, path: tuple[int, ...]) -> bool:
    body = called(loop, "body")
    if body is None:
        return False
    value = Value(body.root, path)
    for _ in range(_MOST_STEPS):
        if value.instr.opcode == "parameter" and not value.via:
            return value.instr.computation is body and value.path == path
        before = _back(graph, value, _COPIES)
        if before is None:
            return False
        value = before
    return False


def operands(value: Value) -> Iterator[Value]:
    """The operands of its instruction, seen from the same call."""
    computation = value.instr.computation
    for index in computation.operand_indices(value.instr.index):
        yield Value(Instruction(computation, index), (), value.via)


def called(instr: Instruction, attribute: str) -> Computation | None:
    """The first computation under an attribute of the instruction (`body`, `calls`, …)."""
    callees = instr.computation.calls_of(instr.index).get(attribute)
    return callees[0] if callees else None


def tuple_index(instr: Instruction) -> int | None:
    """`index` of a get-tuple-element; None where it cannot be read."""
    match = _INDEX.match(instr.tail)
    return whole_number(match[1] if match else (attribute_text(instr, "index") or ""))


def attribute_text(instr: Instruction, name: str) -> str | None:
    """The raw text of an attribute; None where it is not there or cannot be read."""
    try:
        return instr.attribute(name)
    except ValueError:
        return None


def _back(graph: CallGraph, value: Value, moves: frozenset[str]) -> Value | None:
    """One step back, or None where the instruction computes or the walk cannot go on."""
    instr, path, via = value.instr, value.path, value.via
    if len(path) > _MOST_NESTED or len(via) > _MOST_NESTED:
        return None
    opcode = instr.opcode
    if opcode == "get-tuple-element":
        index = tuple_index(instr)
        return None if index is None else _operand(instr, 0, (index, *path), via)
    if opcode == "tuple":
        return _operand(instr, path[0], path[1:], via) if path else None
    if _passes(instr, moves):
        return _operand(instr, 0, path, via)
    if opcode == "custom-call":
        whole = _joined_again(instr) if "copy" in moves else None
        return None if whole is None else Value(whole, path, via)
    if opcode == "parameter":
        return _back_from_parameter(graph, value)
    if opcode in ("fusion", "call"):
        callee = called(instr, "calls") or called(instr, "to_apply")
        return None if callee is None else Value(callee.root, path, (*via, instr))
    if opcode == "while":
        return _back_from_while(graph, value)
    return _back_from_async(value, opcode)


def _passes(instr: Instruction, moves: frozenset[str]) -> bool:
    """Whether the instruction gives its operand 0, perhaps in another form."""
    opcode = instr.opcode
    if opcode == "custom-call":
        return (attribute_text(instr, "custom_call_target") or "").strip('"') in PASSING_TARGETS
    return opcode in moves or opcode in PASSING


def _joined_again(call: Instruction) -> Instruction | None:
    """What is copied in slices that `JOINED` puts together again, in their order and
    none left out; None for anything else."""
    if (attribute_text(call, "custom_call_target") or "").strip('"') != JOINED:
        return None
    whole, end = None, 0
    for done in call.operands:
        start = done.operands[0] if done.opcode == "slice-done" and done.operands else None
        if start is None or start.opcode != "slice-start" or not start.operands:
            return None
        bounds = _ONE_DIMENSION.fullmatch(attribute_text(start, "slice") or "")
        if bounds is None or int(bounds[1]) != end or whole not in (None, start.operands[0]):
            return None
        whole, end = start.operands[0], int(bounds[2])
    try:
        return whole if whole is not None and whole.shape.dimensions == (end,) else None
    except ValueError:
        return None


def _operand(
    instr: Instruction, position: int, path: tuple[int, ...], via: tuple[Instruction, ...]
) -> Value | None:
    operands = instr.computation.operand_indices(instr.index)
    if position >= len(operands):
        return None
    return Value(Instruction(instr.computation, operands[position]), path, via)


def _back_from_parameter(graph: CallGraph, value: Value) -> Value | None:
    instr, path, via = value.instr, value.path, value.via
    if via:
        caller, outer = via[-1], via[:-1]
    else:
        site = graph.only_caller(instr.computation)
        if site is None or site.kind in ("apply", "custom_call"):
            return None
        caller, outer = site.caller, ()
    number = instr.parameter_number
    if number is None:
        return None
    if caller.opcode == "while":
        return _operand(caller, 0, path, outer) if is_invariant(graph, caller, path) else None
    if caller.opcode == "conditional":
        branches = caller.called
        if branches.count(instr.computation) != 1:
            return None
        return _operand(caller, 1 + branches.index(instr.computation), path, outer)
    return _operand(caller, number, path, outer)


def _back_from_while(graph: CallGraph, value: Value) -> Value | None:
    instr, path, via = value.instr, value.path, value.via
    if is_invariant(graph, instr, path):
        return _operand(instr, 0, path, via)
    body = called(instr, "body")
    # The whole tuple of a loop is the loop's; an element is what the body computes last.
    if body is None or (not path and body.root.shape_text.startswith("(")):
        return None
    return Value(body.root, path, (*via, instr))


def _back_from_async(value: Value, opcode: str) -> Value | None:
    instr, path, via = value.instr, value.path, value.via
    if opcode.endswith(("-done", "-update")):
        result = _result_of(instr, 0) if opcode.endswith("-done") else ()
        return _operand(instr, 0, (*result, *path), via)
    if opcode == "copy-start":
        return _operand(instr, 0, path[1:], via) if path and path[0] < 2 else None
    if _plain(opcode) == "async-start" and path:
        if path[0] == 0 and len(path) > 1:
            return _operand(instr, path[1], path[2:], via)
        callee = called(instr, "calls")
        if path[0] == 1 and callee is not None:
            return Value(callee.root, path[1:], (*via, instr))
    return None


def _result_of(done: Instruction, position: int) -> tuple[int, ...]:
    """Where in the tuple of its start (or update) the result of a done is."""
    start = _operand(done, position, (), ())
    return () if start is None else _RESULT_OF_START.get(_plain(start.instr.opcode), ())


def _plain(opcode: str) -> str:
    written = sugar(opcode)
    return opcode if written is None else f"async-{written[1]}"


def consumers(
    graph: CallGraph,
    instr: Instruction,
    path: tuple[int, ...] = (),
    *,
    moves: frozenset[str] = MOVES,
    enter: bool = True,
) -> tuple[Instruction, ...]:
    """Instructions that compute with this value, each once, nearest first.

    The same things are passed as in `trace`, forward. With `enter` false a fusion, call or start
    that takes the value is itself a consumer, and so is a while or conditional.
    """
    seen = {(instr, path)}
    found: dict[Instruction, None] = {}
    queue = [(instr, path)]
    for at, element in islice(queue, _MOST_VALUES):  # grows while it is walked
        for user, goes_on in _forward(graph, at, element, moves, enter):
            if goes_on is None:
                found[user] = None
            elif (user, goes_on) not in seen and len(goes_on) <= _MOST_NESTED:
                seen.add((user, goes_on))
                queue.append((user, goes_on))
    return tuple(found)


_Step = tuple[Instruction, tuple[int, ...] | None]


def _forward(
    graph: CallGraph, instr: Instruction, path: tuple[int, ...], moves: frozenset[str], enter: bool
) -> Iterator[_Step]:
    """Where element `path` goes: (instruction, element of it), or (consumer, None)."""
    computation = instr.computation
    for user_index in computation.user_indices(instr.index):
        user = Instruction(computation, user_index)
        for position, operand in enumerate(computation.operand_indices(user_index)):
            element = _through_implied(computation, operand, instr.index, path)
            if element is not None:
                yield from _into(graph, user, position, element, moves, enter)
    if instr.is_root and enter:
        for site in graph.callers(computation):
            yield from _out_of(graph, site, path)


def _through_implied(
    computation: Computation, operand: int, target: int, path: tuple[int, ...]
) -> tuple[int, ...] | None:
    """What is left of `path` where the operand is `target` or `target#i#j`; else None."""
    indices: list[int] = []
    while operand != target:
        if operand >= 0 or computation.opcode_of(operand) != "get-tuple-element":
            return None
        index = tuple_index(Instruction(computation, operand))
        if index is None:
            return None
        indices.append(index)
        operand = computation.operand_indices(operand)[0]
    wanted = tuple(reversed(indices))
    if not path:
        return ()
    return path[len(wanted) :] if path[: len(wanted)] == wanted else None


def _into(
    graph: CallGraph,
    user: Instruction,
    position: int,
    path: tuple[int, ...],
    moves: frozenset[str],
    enter: bool,
) -> Iterator[_Step]:
    opcode = user.opcode
    if opcode == "get-tuple-element":
        if not path or path[0] == tuple_index(user):
            yield user, path[1:]
    elif opcode == "tuple":
        yield user, (position, *path)
    elif _passes(user, moves) or opcode.endswith("-update"):
        yield user, path
    elif opcode.endswith("-done"):
        result = _result_of(user, position)
        if not path or path[: len(result)] == result:
            yield user, path[len(result) :]
    elif opcode == "copy-start":
        yield user, (0, *path)
    elif enter and opcode == "while":
        yield from _parameters(graph, user.called, 0, path)
        if is_invariant(graph, user, path):
            yield user, path
    elif enter and opcode == "conditional":
        branch = user.called[position - 1 : position] if position else ()
        yield from tuple(_parameters(graph, branch, 0, path)) or ((user, None),)
    elif enter and (opcode in ("fusion", "call") or _plain(opcode) == "async-start"):
        inside = tuple(_parameters(graph, user.called, position, path))
        yield from inside or ((user, None),)
    else:
        yield user, None


def _parameters(
    graph: CallGraph, callees: tuple[Computation, ...], number: int, path: tuple[int, ...]
) -> Iterator[_Step]:
    for callee in callees:
        parameter = graph.parameter(callee, number)
        if parameter is not None:
            yield parameter, path


def _out_of(graph: CallGraph, site: CallSite, path: tuple[int, ...]) -> Iterator[_Step]:
    """Where the result of a called computation goes."""
    if site.kind in ("fusion", "call", "branch"):
        yield site.caller, path
    elif site.kind == "async":
        yield site.caller, (1, *path)
    elif site.kind == "body":
        yield site.caller, path
        yield from _parameters(graph, site.caller.called, 0, path)
