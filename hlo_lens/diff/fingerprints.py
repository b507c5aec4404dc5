"""What the instructions of a module compute, free of names: operands as values, and classes.

What is equal is of one class, in both of two modules: up, what an instruction computes from the
parameters of its computation, and down, what becomes of its result. Spellings make no difference:
an element of a tuple is a value, by a get-tuple-element or by `x#1`; an asynchronous operation is
a start, by `OP-start` or by an `async-start` around it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hlo_lens.analysis import CallGraph, CallSite
from hlo_lens.diff.keys import Key, Numbers, attributes_of, plain_shape, result_shape
from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.hlo.attributes import strip_comments, whole_number
from hlo_lens.hlo.opcodes import sugar

Value: TypeAlias = tuple[int, tuple[int, ...]]
"""What an operand is: the position of the instruction that gives it, and a path of tuple indices
into what that gives."""

_BLANKS: Final = re.compile(r"\s+")
_OWN_STARTS: Final = ("all-gather-start", "all-reduce-start", "collective-permute-start")
_OWN_DONES: Final = ("all-gather-done", "all-reduce-done", "collective-permute-done")


@dataclass(slots=True)
class Body:
    """One computation: its instructions by position, and behind them the parameters that operands
    without a name imply.

    values: the operands of each; of a get-tuple-element the value that it is. nodes: all that is
    no get-tuple-element, operands before users. callees: the computations each calls. shapes: the
    results without layouts. base: what each node is by itself and by what it calls; up: its class;
    number: the class of the computation. first: the place of position 0 among all bodies of the
    module.
    """

    computation: Computation
    first: int
    keys: list[Key | None]
    shapes: list[str]
    values: list[tuple[Value, ...]]
    nodes: list[int]
    root: Value
    callees: dict[int, tuple[CallSite, ...]]
    base: list[int] = field(default_factory=list)
    up: list[int] = field(default_factory=list)
    number: int = -1
    _users: list[list[tuple[int, int, tuple[int, ...]]]] | None = None

    @property
    def users(self) -> list[list[tuple[int, int, tuple[int, ...]]]]:
        """Of each position, (user, which operand of it, path), for nodes that use it."""
        if self._users is None:
            users: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in self.keys]
            for node in self.nodes:
                for at, (producer, path) in enumerate(self.values[node]):
                    users[producer].append((node, at, path))
            self._users = users
        return self._users

    def key(self, node: int) -> Key:
        """The key of a node."""
        key = self.keys[node]
        assert key is not None
        return key

    def opcode(self, node: int) -> str:
        """The opcode as written; an implied one is a parameter."""
        return self.computation.opcodes[node] if node < self.computation.size else "parameter"

    def parameters(self) -> dict[int, int]:
        """The parameters by number, those included that are only implied."""
        implied = [one for one in self.computation.rows.implied if not one.operands]
        found: dict[int, int] = {}
        for node in self.nodes:
            if self.opcode(node) == "parameter":
                at = node - self.computation.size
                text = implied[at].argument if at >= 0 else self.computation.rows.arguments[node]
                number = whole_number(strip_comments(text).strip())
                if number is not None:
                    found[number] = node
        return found


class Bodies:
    """The computations of a module, but for those that only spell an asynchronous operation.

    hosts: of the instructions inside of these, by id, the id of the `async-start`. wrapped: by id
    of the `async-start`, the computation. of: the bodies of all others, by index. calling: the
    positions of the instructions of a computation that call others.
    """

    def __init__(self, graph: CallGraph, numbers: Numbers) -> None:
        self.module: Module = graph.module
        self.graph = graph
        self.hosts: dict[int, int] = {}
        self.numbers = numbers
        self._known: dict[tuple[str, str, str, str], Key] = {}
        self._sites: dict[Instruction, list[CallSite]] = {}
        self.calling: dict[Computation, list[int]] = {}
        for site in graph.sites:
            found = self._sites.get(site.caller)
            if found is None:
                found = self._sites[site.caller] = []
                self.calling.setdefault(site.caller.computation, []).append(site.caller.index)
            found.append(site)
        self._wrapped = dict(self._find_wrapped())
        self.wrapped = {caller.id: callee for callee, caller in self._wrapped.items()}
        self.of: dict[int, Body] = {}
        self.size = 0
        for computation in self.module.computations:
            if computation not in self._wrapped:
                body = self.of[computation.index] = _Reader(self, computation).body()
                self.size += len(body.keys)
        self._classify()

    def _find_wrapped(self) -> Iterator[tuple[Computation, Instruction]]:
        """The computations that hold one operation on their parameters for an `async-start`."""
        for caller, sites in self._sites.items():
            if caller.opcode != "async-start" or len(sites) != 1:
                continue
            callee = sites[0].callee
            if len(self.graph.callers(callee)) == 1 and _is_wrapper(callee):
                yield callee, caller
                for instr in callee.instructions:
                    self.hosts[instr.id] = caller.id

    def wrapped_by(self, start: Instruction) -> Instruction | None:
        """The operation that an `async-start` spells, where it does nothing else."""
        sites = self._sites.get(start, ())
        if len(sites) == 1 and sites[0].callee in self._wrapped:
            return sites[0].callee.root
        return None

    def sites(self, instr: Instruction) -> tuple[CallSite, ...]:
        """The calls of an instruction; of an `async-start` those of what it spells."""
        inner = self.wrapped_by(instr) if instr.opcode == "async-start" else None
        found = self._sites.get(inner or instr, ())
        return tuple(sorted(found, key=lambda site: site.kind)) if len(found) > 1 else tuple(found)

    def key(self, operation: str, shape: str, attributes: str, said: str = "") -> Key:
        """The key of what is told."""
        told = (operation, shape, attributes, said)
        found = self._known.get(told)
        if found is None:
            found = self._known[told] = Key(self.numbers, *told)
        return found

    def ids(self) -> list[int]:
        """The id of the instruction at each place; -1 for what is only implied."""
        found: list[int] = []
        for body in self.of.values():
            first, size = body.computation.first_id, body.computation.size
            found += range(first, first + size)
            found += [-1] * (len(body.keys) - size)
        return found

    def _classify(self) -> None:
        """Classes of all computations, called ones first. What calls itself is told by its place
        among those that do."""
        ordered = [each.index for each in self.graph.order]
        known = set(ordered)
        rings = [index for index in self.of if index not in known]
        for nth, index in enumerate(rings):
            self.of[index].number = self.numbers.of(("ring", nth))
        for index in (*reversed(ordered), *rings):
            body = self.of.get(index)
            if body is None:
                continue
            body.base = self._bases(body)
            body.up = ups(self, body)
            if body.number < 0:
                body.number = self.numbers.of(("computation", *_graph(body)))

    def _bases(self, body: Body) -> list[int]:
        base = [-1 if key is None else key.strong for key in body.keys]
        for node, sites in body.callees.items():
            called = [
                (site.kind, self.of[site.callee.index].number)
                for site in sites
                if site.callee.index in self.of
            ]
            base[node] = self.numbers.of(("calls", base[node], *called))
        return base


def _is_wrapper(computation: Computation) -> bool:
    """Whether a computation is one operation that takes its parameters in order."""
    if not computation.size or computation.rows.implied:
        return False
    root, parameters = computation.root, computation.parameters
    return root.opcode != "parameter" and (
        len(parameters) == computation.size - 1 and root.operands == parameters
    )


def ups(bodies: Bodies, body: Body, given: Mapping[Value, int] | None = None) -> list[int]:
    """The class up of each node. `given`: what some values of parameters are, by number."""
    up = [-1] * len(body.keys)
    given = given or {}
    plain, base = bodies.numbers.of, body.base
    for node in body.nodes:
        parts = [base[node]]
        if given and body.opcode(node) == "parameter":
            parts = [given.get((node, ()), parts[0])]
        for producer, path in body.values[node]:
            if not path:
                parts.append(up[producer])
            elif (told := given.get((producer, path[:1]))) is not None:
                parts.append(told if len(path) == 1 else plain((told, path[1:])))
            else:
                parts.append(plain(("element", up[producer], path)))
        up[node] = plain(("up", *parts))
    return up


def _graph(body: Body) -> list[Hashable]:
    """What tells a computation from others: its result, and how often each class of node is there
    and used. Two nodes of one class are not one node that is used twice."""
    producer, path = body.root
    if producer < 0:
        return []
    uses = [0] * len(body.keys)
    for node in body.nodes:
        for its, _ in body.values[node]:
            uses[its] += 1
    return [body.up[producer], path, *sorted((body.up[node], uses[node]) for node in body.nodes)]


def downs(bodies: Bodies, body: Body, ends: Mapping[int, int] | None = None) -> list[int]:
    """The class down of each node. `ends`: what the operands of the root are, by position, where
    their positions say nothing."""
    down = [-1] * len(body.keys)
    plain, users, root = bodies.numbers.of, body.users, body.root[0]
    ends = ends or {}
    for node in reversed(body.nodes):
        if node == root:
            parts: list[Hashable] = ["root", body.key(node).loose, body.root[1]]
        else:
            parts = ["down", body.base[node]]
        uses = [
            (down[user], ends.get(at, ~at) if user == root and ends else at, path)
            for user, at, path in users[node]
        ]
        down[node] = plain((*parts, *(sorted(uses) if len(uses) > 1 else uses)))
    return down


class _Reader:
    """Reads one computation into a Body."""

    def __init__(self, bodies: Bodies, computation: Computation) -> None:
        self.bodies = bodies
        self.computation = computation
        self.size = computation.size
        self.elements: dict[int, Value] = {}  # what get-tuple-elements are; implied ones below 0

    def body(self) -> Body:
        computation = self.computation
        implied = [~k for k, one in enumerate(computation.rows.implied) if not one.operands]
        self.beyond = {index: self.size + k for k, index in enumerate(implied)}
        keys = [self._key(index, opcode) for index, opcode in enumerate(computation.opcodes)]
        keys += [self._implied_key(index) for index in implied]
        shapes = [plain_shape(text) for text in computation.shape_texts]
        shapes += [plain_shape(computation.shape_of(index)) for index in implied]
        values = [self._values(index, key) for index, key in enumerate(keys[: self.size])]
        values += [()] * len(implied)
        callees = {
            index: sites
            for index in self.bodies.calling.get(computation, ())
            if (sites := self.bodies.sites(Instruction(computation, index)))
        }
        root = self._value(computation.root_index) if self.size else (-1, ())
        order = (*range(self.size, len(keys)), *range(self.size))  # operands stand above
        nodes = [index for index in order if keys[index] is not None]
        return Body(
            computation,
            self.bodies.size,
            keys,
            shapes,
            values,
            nodes,
            root,
            callees,
        )

    def _key(self, index: int, opcode: str) -> Key | None:
        computation = self.computation
        if opcode == "get-tuple-element" and computation.operand_indices(index):
            return None
        shape, tail = computation.shape_texts[index], computation.tails[index]
        if opcode in ("constant", "parameter"):
            said = _BLANKS.sub("", strip_comments(computation.rows.arguments[index]))
            return self.bodies.key(opcode, shape, attributes_of(tail), said)
        if opcode.endswith(("-start", "-update", "-done")):
            return self._async_key(index, opcode, shape, tail)
        return self.bodies.key(opcode, shape, attributes_of(tail))

    def _implied_key(self, index: int) -> Key:
        one = self.computation.rows.implied[~index]
        return self.bodies.key(one.opcode, one.shape, "", _BLANKS.sub("", one.argument))

    def _async_key(self, index: int, opcode: str, shape: str, tail: str) -> Key:
        written = sugar(opcode)
        if opcode in _OWN_STARTS or (written is not None and written[1] == "start"):
            return self._start_key(opcode[: -len("-start")], shape, tail)
        if opcode == "async-start":
            inner = self.bodies.wrapped_by(Instruction(self.computation, index))
            if inner is not None:
                return self._start_key(inner.opcode, shape, tail, inner.tail, opcode)
        elif opcode == "async-done" or opcode in _OWN_DONES or (written and written[1] == "done"):
            return self.bodies.key("async-done", shape, attributes_of(tail))
        elif opcode == "async-update" or written is not None:
            return self.bodies.key("async-update", "", attributes_of(tail))
        return self.bodies.key(opcode, shape, attributes_of(tail))

    def _start_key(
        self, operation: str, shape: str, tail: str, inner: str = "", opcode: str = ""
    ) -> Key:
        """The key of a start, however it is spelled: by what it runs and what that gives."""
        given = result_shape(opcode or f"{operation}-start", shape)
        attributes = attributes_of(tail)
        if inner:
            both = {*attributes.split(", ")[1:], *attributes_of(inner).split(", ")[1:]}
            attributes = "".join(f", {one}" for one in sorted(both))
        return self.bodies.key(f"{operation}-start", given, attributes)

    def _values(self, index: int, key: Key | None) -> tuple[Value, ...]:
        if key is None:
            return (self._value(index),)
        opcodes = self.computation.opcodes
        return tuple(
            [
                (at, ()) if at >= 0 and opcodes[at] != "get-tuple-element" else self._value(at)
                for at in self.computation.operand_indices(index)
            ]
        )

    def _value(self, index: int) -> Value:
        """What an operand is, through any get-tuple-elements: they stand in front of it."""
        walked: list[int] = []
        while (value := self.elements.get(index)) is None:
            operands = self.computation.operand_indices(index)
            if not operands or self.computation.opcode_of(index) != "get-tuple-element":
                value = (self.beyond.get(index, index), ())
                break
            walked.append(index)
            index = operands[0]
        for index in reversed(walked):
            at = Instruction(self.computation, index).tuple_index
            value = self.elements[index] = (value[0], (*value[1], -1 if at is None else at))
        return value
