"""One step back from a value, by every way that it can have come: operands, and across calls.

`dataflow.trace` follows the one thing that a value is; this goes to all that it depends on. What
enters a computation at one call leaves it there (`Value.via`), so no way leads in by one caller and
out by another. Computations that are applied to elements (reducers, comparators) are not entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.dataflow import Value, called, is_invariant, tuple_index
from hlo_lens.hlo import Computation, Instruction

_ENTERED = {"fusion": "calls", "call": "to_apply", "async-start": "calls"}
_HANDED_ON = frozenset(("opt-barrier", "optimization-barrier", "domain"))
_MOST_DEEP = 64  # calls inside each other, and tuples; a text may call itself


def origins(
    graph: CallGraph, value: Value, entered: Callable[[Computation], bool] = lambda _: True
) -> Iterator[tuple[Value, bool]]:
    """(value, whether it is that of a loop's iteration before), each a step behind `value`.

    `entered` says of a computation that a fusion, call or async-start calls whether to go into it;
    where not, the result depends on every operand. Whiles and conditionals are always entered.
    An async-start gives its operands at 0 and its result at 1.
    """
    instr, path, via = value.instr, value.path, value.via
    opcode = instr.opcode
    if opcode == "get-tuple-element":
        index = tuple_index(instr)
        more = () if index is None else (index, *path)
        yield from _operand(instr, 0, more, via)
    elif opcode == "tuple" and path:
        yield from _operand(instr, path[0], path[1:], via)
    elif opcode == "parameter":
        yield from _from_parameter(graph, value)
    elif opcode in _HANDED_ON or (opcode == "async-update" and path):
        yield from _operand(instr, 0, path, via)
    elif opcode == "async-done" and path:
        yield from _operand(instr, 0, (1, *path), via)
    elif opcode == "async-start" and path[:1] == (0,) and len(path) > 1:
        yield from _operand(instr, path[1], path[2:], via)
    elif len(via) >= _MOST_DEEP or len(path) >= _MOST_DEEP:
        return
    elif opcode == "while":
        yield from _from_while(graph, value)
    elif opcode == "conditional":
        yield from _operand(instr, 0, (), via)
        for branch in instr.called:
            yield Value(branch.root, path, (*via, instr)), False
    else:
        callee = called(instr, _ENTERED[opcode]) if opcode in _ENTERED else None
        if callee is not None and not callee.implied and entered(callee):
            inside = path[1:] if opcode == "async-start" else path
            yield Value(callee.root, inside, (*via, instr)), False
            return
        for index in instr.computation.operand_indices(instr.index):
            yield Value(Instruction(instr.computation, index), (), via), False


def _operand(
    instr: Instruction, position: int, path: tuple[int, ...], via: tuple[Instruction, ...]
) -> Iterator[tuple[Value, bool]]:
    indices = instr.computation.operand_indices(instr.index)
    if position < len(indices):
        yield Value(Instruction(instr.computation, indices[position]), path, via), False


def _from_while(graph: CallGraph, value: Value) -> Iterator[tuple[Value, bool]]:
    instr, path, via = value.instr, value.path, value.via
    body = called(instr, "body")
    if body is None or (path and is_invariant(graph, instr, path)):
        yield from _operand(instr, 0, path, via)
    else:
        yield Value(body.root, path, (*via, instr)), False


def _from_parameter(graph: CallGraph, value: Value) -> Iterator[tuple[Value, bool]]:
    instr, path, via = value.instr, value.path, value.via
    number = instr.parameter_number
    if number is None:
        return
    if via:
        callers = [(via[-1], via[:-1])]
    else:
        sites = graph.callers(instr.computation)
        callers = [(one.caller, ()) for one in sites if one.kind not in ("apply", "custom_call")]
    for caller, outer in callers:
        if caller.opcode == "while":
            yield from _operand(caller, 0, path, outer)
            body = called(caller, "body")
            if body is not None and not (path and is_invariant(graph, caller, path)):
                yield Value(body.root, path, (*outer, caller)), True
        elif caller.opcode == "conditional":
            for position, branch in enumerate(caller.called, 1):
                if branch == instr.computation:
                    yield from _operand(caller, position, path, outer)
        else:
            yield from _operand(caller, number, path, outer)
