"""Where the many values that collectives give go: as `dataflow.consumers` says, in less time.

What a fusion does with each of its operands is found once, in one pass over what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from hlo_lens.analysis.calls import CallGraph, CallSite
from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import (
    PASSING,
    PASSING_TARGETS,
    called,
    is_invariant,
    tuple_index,
)
from hlo_lens.analysis.schedule import schedules
from hlo_lens.hlo import Computation, Instruction
from hlo_lens.hlo.opcodes import sugar
from hlo_lens_passes._calls import target_of

# What stands around a shard_map before partitioning: inside are the shapes of one device.
_SHARD_MAP_BOUNDARIES: Final = frozenset(
    (
        "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    )
)  # fmt: skip

# In which element of a start's tuple the result is; all-reduce-start gives it bare.
_RESULT_OF_START: Final = {
    "all-gather-start": (1,),
    "async-start": (1,),
    "async-update": (1,),
    "collective-permute-start": (1,),
    "copy-start": (0,),
    "recv": (0,),
}
# What a fused computation may not hold for one pass over it to do.
_CALLING: Final = frozenset(("call", "conditional", "while"))
_FEW: Final = 16  # operands that are looked through each time
_MOST_PLACES: Final = 1 << 16
_MOST_NESTED: Final = 64

Path = tuple[int, ...]
Place = tuple[Instruction, Path]
"""Element `path` of what an instruction gives."""


class Taken(NamedTuple):
    """`instr` computes with a value, as its operand `position`. None: the value goes out of the
    entry, or of the loop that the walk stays inside, as element `path` of that."""

    instr: Instruction
    position: int | None
    path: Path = ()


class _Through(NamedTuple):
    """What a fused computation does with one of its parameters: the elements of its result in which
    the value is, and what inside computes with it."""

    results: tuple[Path, ...]
    taken: tuple[Taken, ...]


_At = tuple[Computation, int, Path]
"""A place, as the walk has it: computation, position, element."""


_Via = tuple[Instruction, ...]
"""The calls of shared functions that a walk is inside of, outermost first."""

_User = tuple[int, int, Path]
"""Who takes an instruction: position, operand, element."""

_Users = dict[int | None, list[_User]]
"""Users by the element that they take, None: all of it."""


class Flow:
    """Who takes which value in a module."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph
        self._callees = schedules(graph).callees
        self._users: dict[tuple[int, int], _Users] = {}
        self._places: dict[tuple[int, int], dict[int, list[tuple[int, Path]]]] = {}
        self._through: dict[tuple[int, int, int], _Through | None] = {}

    def uses(
        self,
        starts: Iterable[Place],
        moves: frozenset[str],
        *,
        inside: Instruction | None = None,
        enter: bool = True,
    ) -> list[Taken]:
        """What computes with these values, through opcodes (and targets of custom calls) that
        `moves` names and through what `dataflow.consumers` passes.

        With `enter` false a fusion, call or loop that takes the value is what computes with it.
        `inside`: a while whose body the walk does not leave.
        """
        end = self.graph.module.entry if inside is None else called(inside, "body")
        queue: list[tuple[_At, _Via]] = [
            ((instr.computation, instr.index, path), ()) for instr, path in starts
        ]
        seen = {(id(of), index, path, via) for (of, index, path), via in queue}
        found: list[Taken] = []

        def go_on(place: _At, via: _Via) -> None:
            of, index, path = place
            key = id(of), index, path, via
            if key not in seen and len(path) <= _MOST_NESTED and len(via) <= _MOST_NESTED:
                seen.add(key)
                queue.append((place, via))

        for (of, index, path), via in queue:  # grows while it is walked
            if index < 0 or len(queue) > _MOST_PLACES:
                continue
            users = self._users.get((id(of), index))
            if users is None:
                users = self._users[id(of), index] = _by_element(self._find_users(of, index))
            for user, position, chosen in _taking(users, path):
                element = path
                if chosen:
                    if path[: len(chosen)] != chosen[: len(path)]:
                        continue
                    element = path[len(chosen) :]
                opcode = of.opcodes[user]
                if opcode in moves or opcode in PASSING or opcode == "get-tuple-element":
                    go_on((of, user, element), via)
                elif opcode == "tuple":
                    go_on((of, user, (position, *element)), via)
                elif opcode == "fusion" and enter:
                    for place in self._into_fusion(of, user, position, element, moves, found):
                        go_on(place, via)
                else:
                    at = Instruction(of, user)
                    for place in self._into(at, opcode, position, element, moves, enter, found):
                        go_on(place, (*via, at) if self._is_shared(at, place[0]) else via)
            if index == of.root_index:
                if of is end:
                    found.append(Taken(inside or Instruction(of, index), None, path))
                elif enter:
                    entered = bool(via) and of in via[-1].called
                    for site in self.graph.callers(of):
                        if not entered or site.caller == via[-1]:
                            for place in self._out_of(site, path):
                                go_on(place, via[:-1] if entered else via)
        return found

    def _is_shared(self, user: Instruction, callee: Computation) -> bool:
        """Whether a call goes into a function that others call too: a value leaves it where it came
        in."""
        return (
            user.opcode == "call"
            and callee is not user.computation
            and self.graph.only_caller(callee) is None
        )

    def _find_users(self, of: Computation, index: int) -> list[_User]:
        """Who takes an instruction: (user, operand position, element of it); what takes an element
        out of a tuple is one."""
        rows = of.rows
        opcodes, operands, bounds = rows.opcodes, rows.operands, rows.bounds
        found: list[_User] = []
        for user in of.user_indices(index):
            start, end = bounds[user], bounds[user + 1]
            if opcodes[user] == "get-tuple-element":
                element = tuple_index(Instruction(of, user))
                found += () if element is None else ((user, 0, (element,)),)
            elif rows.implied or end - start > _FEW:
                places = self._places.get((id(of), user))
                if places is None:
                    places = self._places[id(of), user] = _places_of(of, user)
                found += ((user, position, path) for position, path in places.get(index, ()))
            else:
                for position in range(end - start):
                    if operands[start + position] == index:
                        found.append((user, position, ()))
        return found

    def _into(
        self,
        user: Instruction,
        opcode: str,
        position: int,
        path: Path,
        moves: frozenset[str],
        enter: bool,
        found: list[Taken],
    ) -> Iterable[_At]:
        """Where a value goes on behind a user; what computes with it is added to `found`."""
        of, index = user.computation, user.index
        if opcode.endswith("-done"):
            result = _result_of_start(user, position)
            kept = not path or path[: len(result)] == result
            return ((of, index, path[len(result) :]),) if kept else ()
        if opcode == "copy-start":
            return ((of, index, (0, *path)),)
        if is_shard_map_boundary(user):
            shape = shape_of(user)
            several = shape is not None and shape.is_tuple
            return ((of, index, (position, *path) if several else path),)
        if opcode.endswith("-update") or (opcode == "custom-call" and _passes(user, moves)):
            return ((of, index, path),)
        inside = self._inside(user, opcode, position, path) if enter else []
        if not inside:
            found.append(Taken(user, position))
        return inside

    def _inside(self, user: Instruction, opcode: str, position: int, path: Path) -> list[_At]:
        """What an operand of a loop, branch, call or start is where it is taken."""
        if opcode == "while":
            inside = self._given(user.called, 0, path)
            if is_invariant(self.graph, user, path):
                inside.append((user.computation, user.index, path))
            return inside
        if opcode == "conditional":
            return self._given(user.called[position - 1 : position] if position else (), 0, path)
        if opcode in ("call", "fusion") or _plain(opcode) == "async-start":
            return self._given(user.called, position, path)
        return []

    def _given(self, callees: Iterable[Computation], number: int, path: Path) -> list[_At]:
        parameters = (self.graph.parameter(callee, number) for callee in callees)
        return [(one.computation, one.index, path) for one in parameters if one is not None]

    def _out_of(self, site: CallSite, path: Path) -> list[_At]:
        """Where the result of a called computation goes."""
        caller = site.caller
        if site.kind in ("fusion", "call", "branch"):
            return [(caller.computation, caller.index, path)]
        if site.kind == "async":
            return [(caller.computation, caller.index, (1, *path))]
        if site.kind == "body":
            next_iteration = self._given(caller.called, 0, path)
            return [(caller.computation, caller.index, path), *next_iteration]
        return []

    # -- fusions

    def _into_fusion(
        self,
        of: Computation,
        index: int,
        position: int,
        path: Path,
        moves: frozenset[str],
        found: list[Taken],
    ) -> Iterable[_At]:
        callees = self._callees.get((of.index, index))
        if callees is None:
            found.append(Taken(Instruction(of, index), position))
            return ()
        through = None if path else self._through_fusion(callees[0], position, moves)
        if through is None:
            return self._given((callees[0],), position, path)
        found += through.taken
        return [(of, index, result) for result in through.results]

    def _through_fusion(
        self, callee: Computation, number: int, moves: frozenset[str]
    ) -> _Through | None:
        key = callee.index, number, id(moves)
        if key not in self._through:
            self._through[key] = None  # what holds itself is not passed over
            self._through[key] = self._pass_over(callee, number, moves)
        return self._through[key]

    def _pass_over(
        self, callee: Computation, number: int, moves: frozenset[str]
    ) -> _Through | None:
        """One pass over what a fusion holds; None for one that calls, or is not in order."""
        rows, parameter = callee.rows, _parameter(callee, number)
        opcodes, operands, bounds = rows.opcodes, rows.operands, rows.bounds
        if parameter is None or rows.implied or not _CALLING.isdisjoint(opcodes):
            return None
        reached = {parameter}
        elements: dict[int, set[int]] = {}
        taken: list[Taken] = []
        for index in range(parameter + 1, len(opcodes)):
            given = operands[bounds[index] : bounds[index + 1]]
            if reached.isdisjoint(given):
                continue
            opcode = opcodes[index]
            if max(given) > index:
                return None
            if opcode in moves or opcode in PASSING:
                reached.add(index)
                continue
            for position, operand in enumerate(given):
                if operand not in reached:
                    continue
                if opcode == "tuple":
                    elements.setdefault(index, set()).add(position)
                elif opcode == "get-tuple-element":
                    element = tuple_index(Instruction(callee, index))
                    if operand not in elements or element in elements[operand]:
                        reached.add(index)
                elif opcode == "fusion":
                    inner = self._inner(callee, index, position, moves)
                    if inner is None:
                        return None
                    taken += inner.taken
                    if inner.results:
                        reached.add(index)
                        whole = () in inner.results
                        if not whole:
                            numbers = (path[0] for path in inner.results)
                            elements.setdefault(index, set()).update(numbers)
                elif opcode == "custom-call" or opcode.endswith("-start"):
                    return None
                else:
                    taken.append(Taken(Instruction(callee, index), position))
            if opcode == "tuple":
                reached.add(index)
        root = rows.root
        if root not in reached:
            results: tuple[Path, ...] = ()
        elif root in elements:
            results = tuple((element,) for element in sorted(elements[root]))
        else:
            results = ((),)
        return _Through(results, tuple(taken))

    def _inner(
        self, of: Computation, index: int, position: int, moves: frozenset[str]
    ) -> _Through | None:
        callees = self._callees.get((of.index, index))
        return None if callees is None else self._through_fusion(callees[0], position, moves)


def _by_element(users: Iterable[_User]) -> _Users:
    found: _Users = {}
    for user in users:
        found.setdefault(user[2][0] if user[2] else None, []).append(user)
    return found


def _taking(users: _Users, path: Path) -> list[_User]:
    """The users that take element `path`, in text order: of a wide tuple a few of many."""
    if None in users and len(users) == 1:
        return users[None]
    if path:
        found = [*users.get(None, ()), *users.get(path[0], ())]
    else:
        found = [user for some in users.values() for user in some]
    return sorted(found) if len(users) > 1 else found


def _parameter(computation: Computation, number: int) -> int | None:
    """Where parameter `number` is; None also where its number is not written plainly."""
    arguments, wanted = computation.rows.arguments, str(number)
    for index, opcode in enumerate(computation.opcodes):
        if opcode == "parameter" and arguments[index] == wanted:
            return index
    return None


def _places_of(computation: Computation, user: int) -> dict[int, list[tuple[int, Path]]]:
    """Where the operands of an instruction are: positions, and elements of `x#1#0`, by operand."""
    rows = computation.rows
    found: dict[int, list[tuple[int, Path]]] = {}
    for position, operand in enumerate(computation.operand_indices(user)):
        path: Path = ()
        while operand < 0 and rows.implied[~operand].operands:
            path = (Instruction(computation, operand).tuple_index or 0, *path)
            operand = rows.implied[~operand].operands[0]
        found.setdefault(operand, []).append((position, path))
    return found


def is_shard_map_boundary(instr: Instruction) -> bool:
    """Whether it gives its operands, each as an element of its result where it has several, with
    the shapes that they have in a shard_map, or outside of it."""
    return instr.opcode == "custom-call" and target_of(instr) in _SHARD_MAP_BOUNDARIES


def _passes(call: Instruction, moves: frozenset[str]) -> bool:
    target = target_of(call)
    return target in PASSING_TARGETS or target in moves


def _result_of_start(done: Instruction, position: int) -> Path:
    """Where in the tuple of its start (or update) the result of a done is."""
    operands = done.operands
    if position >= len(operands):
        return ()
    return _RESULT_OF_START.get(_plain(operands[position].opcode), ())


def _plain(opcode: str) -> str:
    written = sugar(opcode)
    return opcode if written is None else f"async-{written[1]}"
