"""What a computation is given by its caller, and which of it is which of another computation's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from hlo_lens.analysis import CallSite
from hlo_lens.diff.fingerprints import Body, Value
from hlo_lens.diff.keys import Numbers, plain_shape
from hlo_lens.hlo import parse_shape

Route = dict[int, int]
"""Which element of a tuple is which of another one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A value that a computation is given: a parameter or an element of one (`inside`), what the
    caller gives (`outside`; None where that is not in sight), and its shape without layout."""

    inside: Value
    outside: Value | None
    shape: str


@dataclass(slots=True)
class Given:
    """What two matched computations are given.

    old, new: by value of their parameters, a number that says which value of the caller it is.
    old_ends, new_ends: the same by operand of their roots, where these are what a next iteration
    is given. parameters: by old parameter, the new one that is given the same, or a part of it.
    routes: by old parameter, which of its elements is which of the new one's.
    """

    old: dict[Value, int] = field(default_factory=dict)
    new: dict[Value, int] = field(default_factory=dict)
    old_ends: dict[int, int] = field(default_factory=dict)
    new_ends: dict[int, int] = field(default_factory=dict)
    parameters: dict[int, int] = field(default_factory=dict)
    routes: dict[int, Route] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that two matched nodes make, the `nth` of its kind of either."""

    node: int
    other: int
    old: CallSite
    new: CallSite
    nth: int


def calls(old: Body, new: Body, node: int, other: int) -> Iterator[Call]:
    """The calls of two nodes that are of one kind, in order."""
    seen: Counter[str] = Counter()
    sites, others = old.callees.get(node, ()), new.callees.get(other, ())
    for site, its in zip(sites, others, strict=False):
        if site.kind == its.kind:
            yield Call(node, other, site, its, seen[site.kind])
            seen[site.kind] += 1


def slots(callee: Body, values: Sequence[Value], caller: Body | None) -> list[Slot]:
    """The slots of a computation whose parameters, in order, are given `values`; none of them
    where nothing in sight calls it."""
    found: list[Slot] = []
    for number, node in sorted(callee.parameters().items()):
        value = values[number] if number < len(values) else None
        shape = callee.shapes[node]
        if not shape.startswith("("):
            found.append(Slot((node, ()), value, shape))
            continue
        outside = None if caller is None or value is None else _elements(caller, value)
        for at, element in enumerate(_element_shapes(shape)):
            its = outside[at] if outside is not None and at < len(outside) else None
            found.append(Slot((node, (at,)), its, element))
    return found


def _elements(caller: Body, value: Value) -> tuple[Value, ...] | None:
    """The elements of a value that a tuple instruction makes, or that are those of another."""
    producer, path = value
    if not path and caller.opcode(producer) == "tuple":
        return caller.values[producer]
    width = len(_element_shapes(caller.shapes[producer])) if not path else 0
    return tuple((producer, (at,)) for at in range(width)) or None


def _element_shapes(shape: str) -> list[str]:
    try:
        return [plain_shape(str(element)) for element in parse_shape(shape).elements]
    except ValueError:
        return []


def arguments(caller: Body, call: Call, site: CallSite, node: int) -> Sequence[Value]:
    """What a caller gives the parameters of a callee."""
    values = caller.values[node]
    if site.kind in ("body", "condition"):
        return values[:1]
    if site.kind == "branch":
        return values[1 + call.nth : 2 + call.nth]
    return () if site.kind == "apply" else values


def paired(
    old: Sequence[Slot],
    new: Sequence[Slot],
    old_keys: Sequence[Hashable],
    new_keys: Sequence[Hashable],
) -> Iterator[tuple[int, int]]:
    """Which slot of `old` is which of `new`, by position: those of equal keys in order, then those
    of equal shapes; never where one side has more of them than the other."""
    left = set(range(len(old))), set(range(len(new)))
    shapes = [slot.shape for slot in old], [slot.shape for slot in new]
    for keys in ((old_keys, new_keys), shapes):
        groups = [_groups(its, among) for its, among in zip(keys, left, strict=True)]
        for key, positions in groups[0].items():
            partners = groups[1].get(key, [])
            if len(positions) == len(partners):
                yield from zip(positions, partners, strict=True)
                left[0].difference_update(positions)
                left[1].difference_update(partners)


def _groups(keys: Sequence[Hashable], among: set[int]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = {}
    for at, key in enumerate(keys):
        if key is not None and at in among:
            found.setdefault(key, []).append(at)
    return found


def give(
    numbers: Numbers,
    fresh: Iterator[int],
    old: Sequence[Slot],
    new: Sequence[Slot],
    pairs: Sequence[tuple[int, int]],
) -> Given:
    """What both are given, as numbers: one for each pair of slots, and for any other slot one
    that only tells its shape."""
    given = Given(
        {slot.inside: numbers.of(("given", slot.shape)) for slot in old},
        {slot.inside: numbers.of(("given", slot.shape)) for slot in new},
    )
    for node, path in given.old:
        if path:
            given.routes[node] = {}
    for at, to in pairs:
        (node, path), (other, its) = old[at].inside, new[to].inside
        number = numbers.of(("given", next(fresh)))
        given.old[node, path] = given.new[other, its] = number
        if path and its:
            given.routes[node][path[0]] = its[0]
        given.parameters[node] = other
    return given


def goes_round(given: Given, old: Body, new: Body) -> None:
    """Note that the elements of the roots are what the next iteration is given."""
    for body, numbers, ends in ((old, given.old, given.old_ends), (new, given.new, given.new_ends)):
        parameter = body.parameters().get(0)
        if parameter is None or body.root[0] < 0 or body.opcode(body.root[0]) != "tuple":
            continue
        for at in range(len(body.values[body.root[0]])):
            number = numbers.get((parameter, (at,)))
            if number is not None:
                ends[at] = number
