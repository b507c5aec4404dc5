"""Which matched instructions are equal: the same in themselves, on matched operands and callees."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass

from hlo_lens.diff.fingerprints import Body, Value
from hlo_lens.diff.given import Route, calls
from hlo_lens.diff.keys import element_attributes
from hlo_lens.diff.model import Matching
from hlo_lens.diff.sides import Pairing, Side


def result(
    old: Side, new: Side, pairs: Mapping[int, Pairing], routes: dict[int, Route]
) -> Matching:
    """The matching that two sides hold, by ids. `pairs` and `routes` as a `Matcher` has them."""
    for pairing in _called_first(old, pairs):
        _route_results(pairing, pairs, routes)
    ids, theirs = old.bodies.ids(), new.bodies.ids()
    to_new, to_old = _by_id(old, ids, theirs), _by_id(new, theirs, ids)
    changed = [
        (ids[place], theirs[old.partners[place]]) for place in _changed(old, new, pairs, routes)
    ]
    _match_wrapped(old, new, to_new, to_old)
    for pairing in pairs.values():
        changed += _match_elements(pairing, routes, to_new, to_old)
    back = {
        old.partners[place]: {to: at for at, to in route.items()}
        for place, route in routes.items()
        if old.partners[place] >= 0
    }
    return Matching(
        old.bodies.module,
        new.bodies.module,
        to_new,
        to_old,
        tuple(sorted(changed)),
        _spelled(old, routes, set(pairs)),
        _spelled(new, back, {pairing.new.computation.index for pairing in pairs.values()}),
        old.bodies.hosts,
        new.bodies.hosts,
    )


# ---------------------------------------------------------------------------------- routes


def _called_first(old: Side, pairs: Mapping[int, Pairing]) -> list[Pairing]:
    order = [each.index for each in reversed(old.bodies.graph.order)]
    known = set(order)
    return [pairs[at] for at in (*order, *(at for at in pairs if at not in known)) if at in pairs]


def _route_results(
    pairing: Pairing, pairs: Mapping[int, Pairing], routes: dict[int, Route]
) -> None:
    """Find which element of the results of called computations is which: where a fusion gives
    one value more, or a loop carries one more."""
    for node in pairing.old.callees:
        other = pairing.to_new(node)
        if other < 0:
            continue
        for call in calls(pairing.old, pairing.new, node, other):
            inner = pairs.get(call.old.callee.index)
            if inner is None or call.old.kind in ("condition", "apply"):
                continue
            if inner.new.computation is call.new.callee and inner.old.number != inner.new.number:
                _route_result(inner, routes, pairing.old.first + node, call.old.kind == "body")


def _route_result(inner: Pairing, routes: dict[int, Route], place: int, is_loop: bool) -> None:
    root, other = inner.old.root[0], inner.new.root[0]
    if inner.old.opcode(root) != "tuple" or inner.new.opcode(other) != "tuple":
        return
    parameter = inner.old.first + inner.old.parameters().get(0, 0)
    known = routes.get(parameter) if is_loop else None
    route = dict(known or ())
    theirs: dict[Value, deque[int]] = {}
    for at, value in enumerate(inner.new.values[other]):
        theirs.setdefault(value, deque()).append(at)
    taken = set(route.values())
    for at, value in enumerate(inner.old.values[root]):
        if at in route:
            continue
        its = inner.translated(value, routes)
        places = theirs.get(its) if its is not None else None
        while places:
            to = places.popleft()
            if to not in taken:
                route[at] = to
                break
    routes[place] = route
    if is_loop and known is not None:
        routes[parameter] = route


# ---------------------------------------------------------------------------------- equality


def _changed(
    old: Side, new: Side, pairs: Mapping[int, Pairing], routes: Mapping[int, Route]
) -> Iterator[int]:
    """The places of the old nodes that have a partner and do not equal it."""
    others = list(new.bodies.of.values())
    firsts = [body.first for body in others]
    for index, body in old.bodies.of.items():
        pairing = pairs.get(index)
        for node in body.nodes:
            partner = old.partners[body.first + node]
            if partner < 0:
                continue
            its = pairing
            if its is None or its.to_new(node) < 0:  # it moved to another computation
                where = others[bisect_right(firsts, partner) - 1]
                its = Pairing(old, new, body, where)
            if not _equal(its, node, its.to_new(node), pairs, routes):
                yield body.first + node


def _equal(
    pairing: Pairing,
    node: int,
    other: int,
    pairs: Mapping[int, Pairing],
    routes: Mapping[int, Route],
) -> bool:
    old, new = pairing.old, pairing.new
    if old.key(node).exact != new.key(other).exact:
        return False
    if pairing.whole:
        return True
    values, others = old.values[node], new.values[other]
    return (
        len(values) == len(others)
        and ((node, ()) == old.root) == ((other, ()) == new.root)
        and all(
            pairing.translated(value, routes) == its
            for value, its in zip(values, others, strict=True)
        )
        and _call_the_same(pairing, node, other, pairs)
    )


def _call_the_same(pairing: Pairing, node: int, other: int, pairs: Mapping[int, Pairing]) -> bool:
    """Whether two nodes call computations that are matched with each other, or hold one graph."""
    sites, others = pairing.old.callees.get(node, ()), pairing.new.callees.get(other, ())
    if len(sites) != len(others):
        return False
    for site, its in zip(sites, others, strict=True):
        inner = pairs.get(site.callee.index)
        if inner is not None and inner.new.computation is its.callee:
            continue
        old = pairing.old_side.bodies.of.get(site.callee.index)
        new = pairing.new_side.bodies.of.get(its.callee.index)
        if old is None or new is None or old.number != new.number:
            return False
    return True


# ---------------------------------------------------------------------------------- ids


def _by_id(side: Side, ids: list[int], theirs: list[int]) -> list[int | None]:
    """By id, the id of the partner."""
    found: list[int | None] = [None] * side.bodies.module.instruction_count
    for place, partner in enumerate(side.partners):
        if partner >= 0 and ids[place] >= 0 and theirs[partner] >= 0:
            found[ids[place]] = theirs[partner]
    return found


def _match_wrapped(
    old: Side, new: Side, to_new: list[int | None], to_old: list[int | None]
) -> None:
    """Match what two matched `async-start`s wrap."""
    wrapped = old.bodies.wrapped, new.bodies.wrapped
    for start, inner in wrapped[0].items():
        partner = to_new[start]
        its = None if partner is None else wrapped[1].get(partner)
        if its is None or len(inner.parameters) != len(its.parameters):
            continue
        both = zip((*inner.parameters, inner.root), (*its.parameters, its.root), strict=True)
        for instr, other in both:
            to_new[instr.id], to_old[other.id] = other.id, instr.id


@dataclass(frozen=True, slots=True)
class _Element:
    """A get-tuple-element, and the value that it is. use: "root", "operand", or "none" where
    nothing takes it: that is no spelling of an operand."""

    id: int
    value: Value
    use: str
    attributes: str


def _match_elements(
    pairing: Pairing,
    routes: Mapping[int, Route],
    to_new: list[int | None],
    to_old: list[int | None],
) -> list[tuple[int, int]]:
    """Match the get-tuple-elements that are the same value and used as such. Gives the pairs that
    are not equal: other attributes; and roots that are another value."""
    ours = [(one, pairing.translated(one.value, routes)) for one in _elements(pairing.old)]
    theirs = list(_elements(pairing.new)) if ours else []

    def join(key: Callable[[_Element, Value | None], Hashable | None]) -> list[tuple[int, int]]:
        """Match those of one key that have no partner, in order."""
        free: dict[Hashable, deque[int]] = {}
        for one in theirs:
            if to_old[one.id] is None:
                free.setdefault(key(one, one.value), deque()).append(one.id)
        found = []
        for one, value in ours:
            its = key(one, value)
            if to_new[one.id] is None and its is not None and free.get(its):
                other = free[its].popleft()
                to_new[one.id], to_old[other] = other, one.id
                found.append((one.id, other))
        return found

    join(lambda one, value: value and (value, one.use, one.attributes))
    return [
        *join(lambda one, value: value and (value, one.use)),
        *join(lambda one, _: True if one.use == "root" else None),
    ]


def _elements(body: Body) -> Iterator[_Element]:
    """The get-tuple-elements of a body."""
    computation = body.computation
    at = [node for node, key in enumerate(body.keys) if key is None]
    if not at:
        return
    used = {its for index in range(computation.size) for its in computation.operand_indices(index)}
    root = computation.root_index
    for node in at:
        use = "root" if node == root else "operand" if node in used else "none"
        attributes = element_attributes(computation.tails[node])
        yield _Element(computation.first_id + node, body.values[node][0], use, attributes)


def _spelled(side: Side, routes: Mapping[int, Route], paired: set[int]) -> frozenset[int]:
    """The ids of what the other side has, if need be in another spelling: elements of what has a
    partner, and what an `async-start` wraps. Not what nothing takes, nor the root of one of the
    computations that are matched, `paired`: an operand alone may be spelled otherwise."""
    found = set(side.bodies.hosts)
    for index, body in side.bodies.of.items():
        for one in _elements(body):
            if one.use == "none" or (one.use == "root" and index in paired):
                continue
            node, path = one.value
            place = body.first + node
            route = routes.get(place)
            if side.partners[place] >= 0 and (route is None or not path or path[0] in route):
                found.add(one.id)
    return frozenset(found)
