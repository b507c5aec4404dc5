"""One step back from a value, by every way that it can have come, and one forward from it.

`dataflow.trace` follows the one thing that a value is; this goes to all that it depends on and to
all that depends on it. What enters a computation at one call leaves it there (`Value.via`), so no
way leads in by one caller and out by another. Computations that are applied to elements (reducers,
comparators) are not entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.analysis.dataflow import Value, called, is_invariant, tuple_index
from hlo_lens.hlo import Computation, Instruction

_ENTERED = {"fusion": "calls", "call": "to_apply", "async-start": "calls"}
_HANDED_ON = frozenset(("opt-barrier", "optimization-barrier", "domain"))
# Of several arrays at once: each result is that of its own operand. In which element of the tuple
# that a start gives the results are; `all-reduce-start` gives them bare.
_RESULTS = {
    "all-gather": (),
    "all-gather-start": (1,),
    "all-reduce": (),
    "all-reduce-start": (),
    "collective-permute": (),
    "collective-permute-start": (1,),
    "reduce-scatter": (),
}
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
    elif (own := _operand_of_result(instr, path)) is not None:
        yield from _operand(instr, *own, via)
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


def _operand_of_result(
    instr: Instruction, path: tuple[int, ...]
) -> tuple[int, tuple[int, ...]] | None:
    """Of a collective of several arrays, or its done: the operand that element `path` is of, and
    the element of that; None where it is of all."""
    opcode = instr.opcode
    if opcode.endswith("-done") and path:
        results = _RESULTS.get(f"{opcode.removesuffix('-done')}-start")
        return None if results is None else (0, (*results, *path))
    results = _RESULTS.get(opcode)
    if results is None or len(instr.computation.operand_indices(instr.index)) < 2:
        return None
    # A start gives its operands too, at 0.
    rest = path[len(results) :] if path[: len(results)] == results else path[1:]
    return (rest[0], rest[1:]) if rest else None


def inputs(graph: CallGraph, instr: Instruction) -> Iterator[tuple[int, Value, bool]]:
    """(position, value, whether it is that of a loop's iteration before): what an instruction is
    given. Of a get-tuple-element the element, of a parameter what each caller hands in, both at
    position 0; of others the operands."""
    if instr.opcode in ("get-tuple-element", "parameter"):
        yield from ((0, *one) for one in origins(graph, Value(instr)))
    else:
        for position, index in enumerate(instr.computation.operand_indices(instr.index)):
            yield position, Value(Instruction(instr.computation, index)), False


@dataclass(slots=True)
class Destinations:
    """One step forward from values: the way back of `origins`.

    `entered` says of a while, conditional or call that takes a value whether to go into it; where
    not, and of everything else that calls, its result depends on every operand.
    """

    graph: CallGraph
    entered: Callable[[Instruction], bool] = lambda _: True
    # Of an instruction: operand → (position, the element that `x#1` takes of it). Of instructions
    # with thousands of operands each asks where it stands.
    _places: dict[Instruction, dict[int, list[tuple[int, tuple[int, ...]]]]] = field(
        default_factory=dict
    )

    def of(self, value: Value) -> Iterator[tuple[Value, bool]]:
        """(value, whether it is what a call gives that the value was made in)."""
        instr, path = value.instr, value.path
        computation = instr.computation
        for index in computation.user_indices(instr.index):
            user = Instruction(computation, index)
            for position, element in self._operands(user).get(instr.index, ()):
                if not path or path[: len(element)] == element:
                    rest = path[len(element) :]
                    yield from ((one, False) for one in self._into(user, position, rest, value.via))
        if instr.is_root:
            yield from self._out_of(value)

    def _operands(self, user: Instruction) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
        known = self._places.get(user)
        if known is None:
            known = self._places[user] = {}
            computation = user.computation
            for position, operand in enumerate(computation.operand_indices(user.index)):
                element: tuple[int, ...] = ()
                while operand < 0 and (behind := computation.operand_indices(operand)):
                    index = tuple_index(Instruction(computation, operand))
                    element = element if index is None else (index, *element)
                    operand = behind[0]
                known.setdefault(operand, []).append((position, element))
        return known

    def _into(
        self, user: Instruction, position: int, path: tuple[int, ...], via: tuple[Instruction, ...]
    ) -> Iterator[Value]:
        opcode = user.opcode
        if opcode == "get-tuple-element":
            if not path or path[0] == tuple_index(user):
                yield Value(user, path[1:], via)
        elif opcode in _HANDED_ON or opcode == "async-update":
            yield Value(user, path, via)
        elif opcode == "async-done":
            if not path or path[0] == 1:
                yield Value(user, path[1:], via)
        elif len(via) >= _MOST_DEEP or len(path) >= _MOST_DEEP:
            yield Value(user, (), via)
        elif opcode == "tuple":
            yield Value(user, (position, *path), via)
        elif opcode in ("while", "conditional", "call") and self.entered(user):
            yield from self._entering(user, position, path, via)
        elif opcode.endswith("-done") and f"{opcode[:-5]}-start" in _RESULTS:
            results = _RESULTS[f"{opcode[:-5]}-start"]
            if not path or path[: len(results)] == results:
                yield Value(user, path[len(results) :], via)
        elif opcode in _RESULTS and len(user.computation.operand_indices(user.index)) > 1:
            yield Value(user, (*_RESULTS[opcode], position, *path), via)
        else:
            yield Value(user, (), via)

    def _entering(
        self, user: Instruction, position: int, path: tuple[int, ...], via: tuple[Instruction, ...]
    ) -> Iterator[Value]:
        callees, number = user.called, position
        if user.opcode == "while":
            if path and is_invariant(self.graph, user, path):
                yield Value(user, path, via)
        elif user.opcode == "conditional":
            if not position:
                yield Value(user, (), via)
                return
            callees, number = callees[position - 1 : position], 0
        for callee in callees:
            parameter = self.graph.parameter(callee, number)
            if parameter is not None:
                yield Value(parameter, path, (*via, user))

    def _out_of(self, value: Value) -> Iterator[tuple[Value, bool]]:
        """What a computation gives is what its callers give, and what a body is given next."""
        path, computation = value.path, value.instr.computation
        for caller, outer in _callers(self.graph, value):
            if caller.opcode == "while":
                if called(caller, "body") != computation:
                    continue
                for following in self._entering(caller, 0, path, outer):
                    yield following, False
            is_start = caller.opcode.endswith("-start")
            yield Value(caller, (1, *path) if is_start else path, outer), True


def _callers(
    graph: CallGraph, value: Value
) -> Iterator[tuple[Instruction, tuple[Instruction, ...]]]:
    """What calls the computation of a value, and the calls around that: the one by which the value
    was reached, else all."""
    if value.via:
        yield value.via[-1], value.via[:-1]
    else:
        sites = graph.callers(value.instr.computation)
        yield from ((one.caller, ()) for one in sites if one.kind not in ("apply", "custom_call"))


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
    instr, path = value.instr, value.path
    number = instr.parameter_number
    if number is None:
        return
    for caller, outer in _callers(graph, value):
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
