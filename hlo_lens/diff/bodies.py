"""What one iteration of a loop holds more or less of than one of the matched loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from hlo_lens.analysis import Loop, ModuleAnalysis
from hlo_lens.diff.keys import given_shape
from hlo_lens.diff.model import BodyDelta, Count, Matching
from hlo_lens.hlo import Computation, Instruction

_OUTSIDE = -1
_Kind = tuple[str, str, str]  # opcode, dtype, shape
_Bag = Counter[_Kind]
_NONE: _Bag = Counter()


def body_deltas(
    matching: Matching, old: ModuleAnalysis, new: ModuleAnalysis
) -> tuple[BodyDelta, ...]:
    """What stands outside of loops, then the loops in the order of the new module, then those that
    the old one alone has."""
    found, others = _bags(old, matching.hosts_old), _bags(new, matching.hosts_new)
    old_loops = {loop.instr.id: loop for loop in old.loops}
    new_loops = {loop.instr.id: loop for loop in new.loops}
    pairs: list[tuple[int | None, int | None]] = [(_OUTSIDE, _OUTSIDE)]
    pairs += [(matching.to_old[id], id) for id in new_loops]
    pairs += [(id, None) for id in old_loops if matching.to_new[id] not in new_loops]
    return tuple(
        _delta(
            None if one is None else old_loops.get(one),
            None if its is None else new_loops.get(its),
            _NONE if one is None else found.get(one, _NONE),
            _NONE if its is None else others.get(its, _NONE),
        )
        for one, its in pairs
    )


def _delta(old: Loop | None, new: Loop | None, bag: _Bag, other: _Bag) -> BodyDelta:
    differ = sorted(kind for kind in bag.keys() | other.keys() if bag[kind] != other[kind])
    counts = tuple(Count(*kind, bag[kind], other[kind]) for kind in differ)
    return BodyDelta(old, new, counts, (bag & other).total())


def _bags(analysis: ModuleAnalysis, hosts: Mapping[int, int]) -> dict[int, _Bag]:
    """How often each kind of instruction stands in one iteration of each loop, by id of the while,
    and outside of loops. What is called twice counts twice."""
    module = analysis.module
    started = {
        start: module.instruction(id).opcode
        for id, start in hosts.items()
        if module.instruction(id).is_root
    }
    wrapped = {module.instruction(id).computation for id in hosts}
    weights = _weights(analysis)
    bags: dict[int, _Bag] = {}
    for computation in module.computations:
        shares = weights[computation.index]
        if not shares or computation in wrapped:
            continue
        held = Counter(_kinds(computation, started))
        for loop, times in shares.items():
            bag = bags.setdefault(loop, Counter())
            for kind, count in held.items():
                bag[kind] += times * count
    return bags


def _weights(analysis: ModuleAnalysis) -> list[dict[int, int]]:
    """By computation, how often one iteration of a loop runs it, by the id of its while. What is
    applied to elements is not part of that, and neither is what a loop inside runs."""
    module = analysis.module
    weights: list[dict[int, int]] = [{} for _ in module.computations]
    weights[module.entry.index][_OUTSIDE] = 1
    for computation in analysis.graph.order:
        shares = weights[computation.index]
        for site in analysis.graph.callers(computation):
            if site.kind in ("body", "condition"):
                shares[site.caller.id] = 1
            elif site.kind != "apply":
                for loop, times in weights[site.caller.computation.index].items():
                    shares[loop] = shares.get(loop, 0) + times
    return weights


def _kinds(computation: Computation, started: Mapping[int, str]) -> Iterator[_Kind]:
    """The kinds of what a computation holds. Elements of tuples are a matter of spelling, and so
    is what follows a start."""
    first = computation.first_id
    for index, opcode in enumerate(computation.opcodes):
        if opcode == "get-tuple-element" or opcode.endswith(("-update", "-done")):
            continue
        operation = started.get(first + index)
        shape = given_shape(Instruction(computation, index))
        if shape.startswith("("):  # of any width, and long
            dtype, shape = "tuple", ""
        else:
            dtype = shape.partition("[")[0]
        yield (opcode if operation is None else f"{operation}-start", dtype, shape)
