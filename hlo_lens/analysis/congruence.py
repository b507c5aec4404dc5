"""Which instructions compute the same value, through barriers, copies, calls, fusions and loops.

The program is run on numbers (`values.Numbers`) instead of arrays. What only moves a value or
changes its dtype gives the number of its operand; an opt-barrier too. A call, a fusion or an async
operation is its computation, run on the numbers of the operands. In the body of a while a number
says what a value is in iteration k: a slice that a backward loop takes of what a forward loop has
stacked is the value that was written in that iteration, and where the loop takes these slices in
the opposite order, its iterations are counted from the last. Elements of the carry that change are
told apart by their init and by what the first iterations make of them.

Transposes, and bitcasts to other layouts, are views of their operand: products and operations on
elements do not depend on the order that their operands are in (`values`, `views`, `contractions`).
Numbers do not depend on names, metadata, dtypes or the order of the text. Operations with side
effects, and constants that the text elides, are equal to nothing but themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from hlo_lens.analysis.calls import CallSite
from hlo_lens.analysis.contractions import Contraction
from hlo_lens.analysis.dataflow import called, is_invariant
from hlo_lens.analysis.joined import sliced
from hlo_lens.analysis.loops import tuple_width
from hlo_lens.analysis.multiplicity import runs_once
from hlo_lens.analysis.steps import Step, steps_of
from hlo_lens.analysis.values import Elementwise, Numbers, progression
from hlo_lens.analysis.views import View, within
from hlo_lens.hlo import Computation, Instruction

if TYPE_CHECKING:
    from hlo_lens.analysis.loops import Loop
    from hlo_lens.analysis.module_analysis import ModuleAnalysis

# Calls and loops inside each other; how often an instruction is run on numbers, and a computation
# is called, in the mean. What is beyond is equal to nothing. Real programs are far below: 5 and 2.
_MOST_NESTED: Final = 64
_MOST_RUNS: Final = 32
_MOST_CALLS: Final = 16
_FEW: Final = 1 << 14
# The range of a slice of an array with one dimension.
_RANGE: Final = re.compile(r"slice=\{\[(\d{1,18}):(\d{1,18})\]\}", re.A)
_SIZES: Final = re.compile(r"sizes=\{([0-9,]+)\}", re.A)
_DTYPE: Final = re.compile(r"([su])(\d{1,3})\[", re.A)
# What an operation applies to elements runs on no level of loops.
_APPLIED: Final = -1


@dataclass(slots=True)
class Evaluation:
    """A computation run on some arguments: the number of each instruction, by position.

    inner: what an instruction calls, by its position, and as what: `call`, `body` or `branch`.
    reads: for each level of loops, how many slices of stacks are taken in the order they were
    written in, and how many in the opposite order.
    """

    computation: Computation
    values: list[int]
    inner: dict[int, list[tuple[str, Evaluation]]] = field(default_factory=dict)
    reads: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def result(self) -> int:
        return self.values[self.computation.root_index]

    def note_reads(self, level: int, straight: int, reverse: int) -> None:
        so_far = self.reads.get(level, (0, 0))
        self.reads[level] = so_far[0] + straight, so_far[1] + reverse


@dataclass(frozen=True, slots=True)
class Context:
    """A computation where it is called. `via`: the calls, outermost first. `times`: how often it
    runs in one execution of the entry; None where a branch or a trip count leaves that open."""

    evaluation: Evaluation
    via: tuple[Instruction, ...]
    times: int | None


class Congruence:
    """The numbers of the values of a module. Equal numbers: the same value."""

    def __init__(self, analysis: ModuleAnalysis) -> None:
        self.analysis = analysis
        self.graph = analysis.graph
        self.numbers = Numbers()
        self.loops: dict[Instruction, Loop] = {loop.instr: loop for loop in analysis.loops}
        # Of each element that a loop changes, and hands from iteration to iteration: whose it is.
        self.carried: dict[int, Instruction] = {}
        self._ran = 0
        module = analysis.module
        self._most_steps = _FEW + _MOST_RUNS * module.instruction_count
        self._most_contexts = _FEW + _MOST_CALLS * len(module.computations)
        self._steps: dict[Computation, list[Step]] = {}
        self._known: dict[tuple[Computation, tuple[int, ...], int], Evaluation] = {}
        self._applied: dict[Computation, int] = {}
        # Operands of async starts that more operands are still to come for.
        self._waiting: dict[tuple[int, int], list[int]] = {}
        self._nested = 0

    @property
    def complete(self) -> bool:
        """Whether all of the program was run; where not, what is missing is equal to nothing."""
        return self._ran < self._most_steps

    @cached_property
    def entry(self) -> Evaluation | None:
        """The entry, run on its parameters; None where the text has none."""
        entry = self.analysis.module.entry
        if entry is None:
            return None
        count = len(entry.parameters)
        arguments = tuple(self.numbers.make("argument", n) for n in range(count))
        return self.run(entry, arguments, 0)

    def contexts(self) -> Iterator[Context]:
        """Every computation, each time it is called, callers first. Ends where they are too many.

        What operations apply to elements is left out, and so are the conditions of loops.
        """
        if self.entry is None:
            return
        waiting = [Context(self.entry, (), 1)]
        for context in waiting:  # grows while it is walked
            yield context
            if len(waiting) > self._most_contexts or len(context.via) >= _MOST_NESTED:
                continue
            for index, calls in context.evaluation.inner.items():
                caller = Instruction(context.evaluation.computation, index)
                for kind, evaluation in calls:
                    times = self._times(caller, kind, context.times)
                    waiting.append(Context(evaluation, (*context.via, caller), times))

    def _times(self, caller: Instruction, kind: str, times: int | None) -> int | None:
        if times is None or kind == "branch":
            return None
        if kind == "call":
            return times
        loop = self.loops.get(caller)
        return None if loop is None or loop.trip_count is None else times * loop.trip_count

    # -- a computation ----------------------------------------------------------------------------

    def run(self, computation: Computation, arguments: tuple[int, ...], level: int) -> Evaluation:
        """The computation on these arguments, `level` loops deep."""
        key = (computation, arguments, level)
        known = self._known.get(key)
        if known is not None:
            return known
        found = Evaluation(computation, [self._unknown(computation, -1)] * len(computation.opcodes))
        self._known[key] = found  # what calls itself meets this: nothing in it is known yet
        self._nested += 1
        if self._nested <= _MOST_NESTED and self.complete:
            self._run_steps(found, arguments, level)
        self._nested -= 1
        return found

    def _run_steps(self, found: Evaluation, arguments: tuple[int, ...], level: int) -> None:
        computation, values = found.computation, found.values
        steps = self._steps.get(computation)
        if steps is None:
            steps = self._steps[computation] = steps_of(computation)
        self._ran += len(steps)
        element = self.numbers.element
        for step in steps:
            operands: list[int] = []
            for base, path in step.operands:
                value = values[base] if base >= 0 else self._argument(arguments, ~base)
                for index in path:
                    value = element(value, index)
                operands.append(value)
            values[step.position] = _RUN[step.kind](self, found, step, operands, level)

    def _argument(self, arguments: tuple[int, ...], number: int) -> int:
        if number < len(arguments):
            return arguments[number]
        return self.numbers.make("argument", ("missing", number))

    def _unknown(self, computation: Computation, index: int) -> int:
        return self.numbers.make("unknown", (id(computation), index))

    # -- steps: (evaluation, step, operands, level) -> what the instruction gives -----------------

    def _move(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return operands[0] if operands else self._itself(found, step, operands, level)

    def _element(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        if not operands or not isinstance(step.detail, int):
            return self._itself(found, step, operands, level)
        return self.numbers.element(operands[0], step.detail)

    def _tuple(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return self.numbers.packed(operands)

    def _view(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return self.numbers.viewed(operands[0], cast(View, step.detail))

    def _itself(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return self._unknown(found.computation, step.position)

    def _constant(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """Constants of one text are one, whatever their dtype."""
        instr = Instruction(found.computation, step.position)
        text = instr.argument_text.strip()
        if step.detail == "[]" and instr.shape_text.startswith(("s", "u", "pred")):
            if text in ("true", "false"):
                return self.numbers.integer(int(text == "true"))
            if text.removeprefix("-").isdecimal() and len(text) < 24:
                return self.numbers.integer(int(text))
        if "..." in text:
            return self._itself(found, step, operands, level)
        return self.numbers.make("constant", (step.detail, text))

    def _general(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        numbers = tuple(operands)
        if step.applies:
            numbers += self._applied_by(found.computation, step.position)
        return self.numbers.make(step.opcode, step.detail, numbers)

    def _elementwise(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return self.numbers.elementwise(
            step.opcode, cast(Elementwise, step.detail), tuple(operands)
        )

    def _filled(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """An array of one number: equal in all its orders and dimensions of as many elements."""
        sizes = cast(tuple[str, ...], step.detail)
        known = all(size.isdecimal() and len(size) < 20 for size in sizes)
        count = math.prod(map(int, sizes)) if known else sizes
        return self.numbers.filled(count, operands[0])

    def _integer(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        opcode, direction = step.opcode, step.detail[-1] if isinstance(step.detail, tuple) else None
        bounds = _bounds(Instruction(found.computation, step.position).shape_text)
        calculated = self.numbers.calculated(direction or opcode, tuple(operands), bounds)
        return calculated if calculated is not None else self._general(found, step, operands, level)

    def _select(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        chosen = self.numbers.integer_of(operands[0]) if operands else None
        if chosen is None or len(operands) != 3:
            return self._elementwise(found, step, operands, level)
        return operands[1] if chosen else operands[2]

    def _collective(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """Of several operands, each result is that of its own; a start gives what its done does."""
        detail = step.detail
        applied = self._applied_by(found.computation, step.position)
        make = self.numbers.make
        if step.opcode == "all-gather" or step.opcode == "all-reduce":
            results = [make(step.opcode, detail, (one, *applied)) for one in operands]
            return results[0] if len(results) == 1 else self.numbers.packed(results)
        return make(step.opcode, detail, (*operands, *applied))

    def _slice(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """A slice of what a loop has stacked is what it wrote in that iteration, or part of it."""
        node = self.numbers[operands[0]] if operands else None
        stack = node if node is None or node.kind != "view" else self.numbers[node.operands[0]]
        if node is None or stack is None or stack.kind != "stack":
            return self._general(found, step, operands, level)
        moving, size = cast(tuple[int, str], stack.detail)
        attributes, result, given = cast(tuple[str, str, tuple[str, ...]], step.detail)
        at = operands[1 + moving] if 1 + moving < len(operands) else None
        others = [self.numbers.integer_of(n) for d, n in enumerate(operands[1:]) if d != moving]
        view: View | None = ()
        part = _part(attributes, result, moving, size, others)
        if node is not stack:
            # The slices in another order of their elements: that is so in each of them.
            view = _of_slices(cast(View, node.detail), moving, given[0], result)
            part = None if any(others) or None in others else ()
        index, written, _ = stack.operands
        wrote = self.numbers.series_of(index)
        reads = None if at is None else self.numbers.series_of(at)
        if wrote is not None and reads is not None and part is not None and view is not None:
            straight, reverse = reads == wrote, reads == wrote.reversed()
            found.note_reads(reads.level, straight, reverse)
            if straight and part:
                return sliced(self.numbers, part, written)
            if straight:
                return self.numbers.viewed(written, view)
        return self._general(found, step, operands, level)

    def _cut(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        if not operands:
            return self._general(found, step, operands, level)
        return sliced(self.numbers, step.detail, operands[0])

    def _concat(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """An array that was copied in slices, put together again: that array.

        The slices lie in memory where they were in the array, in whatever order they are given.
        """
        parts = [self.numbers[operand] for operand in operands]
        sources = {part.operands for part in parts}
        if len(sources) == 1 and all(part.kind == "slice" for part in parts):
            ranges = [_RANGE.search(str(part.detail)) for part in parts]
            at = 0
            for start, end in sorted((int(r[1]), int(r[2])) if r else (-1, -1) for r in ranges):
                at = end if start == at else -1
            detail = parts[0].detail
            whole = isinstance(detail, tuple) and detail[2] == (f"[{at}]",)
            if whole and step.detail is not None:
                return self.numbers.viewed(next(iter(sources))[0], cast(View, step.detail))
        return self._general(found, step, operands, level)

    def _product(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        return self.numbers.product(cast(Contraction, step.detail), operands[0], operands[1])

    def _call(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        instr = Instruction(found.computation, step.position)
        callee = called(instr, "calls") or called(instr, "to_apply")
        if callee is None:
            return self._general(found, step, operands, level)
        return self._inner(found, step.position, "call", callee, tuple(operands), level)

    def _custom_call(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        instr = Instruction(found.computation, step.position)
        callees = instr.called
        if len(callees) == 1 and runs_once(CallSite(instr, callees[0], "custom_call")):
            return self._inner(found, step.position, "call", callees[0], tuple(operands), level)
        return self._general(found, step, operands, level)

    def _border(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """Each array as the devices have their part of it, or as the whole that the parts are."""
        which, shardings = cast(tuple[str, tuple[str, ...]], step.detail)
        border = self.numbers.border
        results = [border(one, which, how) for one, how in zip(operands, shardings, strict=True)]
        return results[0] if len(results) == 1 else self.numbers.packed(results)

    def _start(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """What its done gives. Operands may come later, with an update: then it waits for that."""
        callee = called(Instruction(found.computation, step.position), "calls")
        if callee is None:
            return self._general(found, step, operands, level)
        if len(callee.parameters) > len(operands):
            self._waiting[id(found), step.position] = operands
            return self._itself(found, step, operands, level)
        return self._inner(found, step.position, "call", callee, tuple(operands), level)

    def _update(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        if len(operands) < 2:
            return self._move(found, step, operands, level)
        before = step.operands[0][0]
        bound = self._waiting.pop((id(found), before), None)
        if bound is None:
            return operands[0]
        start = before
        while found.computation.opcode_of(start).endswith("-update"):
            start = found.computation.operand_indices(start)[0]
        callee = called(Instruction(found.computation, start), "calls")
        bound = [*bound, *operands[1:]]
        if callee is None or len(callee.parameters) > len(bound):
            self._waiting[id(found), step.position] = bound
            return operands[0]
        return self._inner(found, start, "call", callee, tuple(bound), level)

    def _conditional(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        branches = Instruction(found.computation, step.position).called
        if len(branches) != len(operands) - 1:
            return self._itself(found, step, operands, level)
        results = [
            self._inner(found, step.position, "branch", branch, (operand,), level)
            for branch, operand in zip(branches, operands[1:], strict=True)
        ]
        elements = [self.numbers.elements(result) for result in results]
        counts = {None if each is None else len(each) for each in elements}
        which = operands[0]
        if len(counts) > 1 or None in counts:
            return self.numbers.make("conditional", None, (which, *results))
        columns = zip(*(each for each in elements if each is not None), strict=True)
        make = self.numbers.make
        return self.numbers.packed([make("conditional", None, (which, *c)) for c in columns])

    def _loop(self, found: Evaluation, step: Step, operands: list[int], level: int) -> int:
        """Its body is run until the elements that change are told apart, then once more, and again
        where it takes the stacks of another loop in the opposite order."""
        instr = Instruction(found.computation, step.position)
        loop = self.loops.get(instr)
        if loop is None or loop.body is None or not operands or step.detail == "":
            return self._itself(found, step, operands, level)
        if not tuple_width(instr):
            return self._itself(found, step, operands, level)
        carry = _Carry(self, loop, loop.body, operands[0], level)
        if carry.trips == 1:
            body = self.run(loop.body, (operands[0],), level + 1)
            self._note(found, step.position, "body", body, level)
            return body.result
        carry.tell_apart()
        body = carry.run()
        straight, reverse = body.reads.get(level + 1, (0, 0))
        if reverse > straight:
            carry.reverse = True
            body = carry.run()
        self._note(found, step.position, "body", body, level)
        return carry.results(body.result)

    # -- what calls -------------------------------------------------------------------------------

    def _inner(
        self,
        found: Evaluation,
        index: int,
        kind: str,
        callee: Computation,
        arguments: tuple[int, ...],
        level: int,
    ) -> int:
        inner = self.run(callee, arguments, level)
        self._note(found, index, kind, inner, level)
        return inner.result

    def _note(
        self, found: Evaluation, index: int, kind: str, inner: Evaluation, level: int
    ) -> None:
        found.inner.setdefault(index, []).append((kind, inner))
        for at, (straight, reverse) in inner.reads.items():
            if at <= level:
                found.note_reads(at, straight, reverse)

    def _applied_by(self, computation: Computation, index: int) -> tuple[int, ...]:
        """What each reducer, comparator, … of an instruction computes."""
        groups = computation.calls_of(index)
        if not groups:
            return ()
        return tuple(self._applied_number(callee) for group in groups.values() for callee in group)

    def _applied_number(self, callee: Computation) -> int:
        known = self._applied.get(callee)
        if known is None:
            self._applied[callee] = self._unknown(callee, -1)
            count = len(callee.parameters)
            arguments = tuple(self.numbers.make("argument", ("applied", n)) for n in range(count))
            known = self.run(callee, arguments, _APPLIED).result
            self._applied[callee] = known
        return known


def _part(
    attributes: str, result: str, moving: int, written: str, starts: Sequence[int | None]
) -> tuple[Hashable, ...] | None:
    """Which part of a slice of dimensions `written` a dynamic-slice takes: what a `slice` says of
    it, and () for all of it; None where that is not known. starts: in the other dimensions."""
    known = [start for start in starts if start is not None]
    if len(known) < len(starts):
        return None
    if written == result and not any(known):
        return ()
    found = _SIZES.search(attributes)
    sizes = found[1].split(",") if found else []
    if len(sizes) != len(known) + 1 or sizes.pop(moving) != "1":
        return None
    if written.count(",") + 1 != len(sizes):
        return None
    ranges = (f"[{at}:{at + int(size)}]" for at, size in zip(known, sizes, strict=True))
    return f", slice={{{','.join(ranges)}}}", result, (written,)


def _of_slices(view: View, moving: int, stacked: str, result: str) -> View | None:
    """The view of each slice, where a stack is seen in an order that leaves it in slices."""
    count, _, rest = stacked[1:-1].partition(",")
    if moving or result != f"[{rest}]" or not count.isdecimal():
        return None
    return within(view, int(count))


def _bounds(shape_text: str) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype."""
    found = _DTYPE.match(shape_text)
    if found is None:
        return 0, 1  # pred
    bits = int(found[2])
    return (0, 2**bits - 1) if found[1] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_RUN: Final = {
    "border": Congruence._border,
    "call": Congruence._call,
    "collective": Congruence._collective,
    "concat": Congruence._concat,
    "conditional": Congruence._conditional,
    "constant": Congruence._constant,
    "custom_call": Congruence._custom_call,
    "cut": Congruence._cut,
    "done": Congruence._move,
    "product": Congruence._product,
    "element": Congruence._element,
    "elementwise": Congruence._elementwise,
    "filled": Congruence._filled,
    "general": Congruence._general,
    "integer": Congruence._integer,
    "itself": Congruence._itself,
    "loop": Congruence._loop,
    "move": Congruence._move,
    "select": Congruence._select,
    "slice": Congruence._slice,
    "start": Congruence._start,
    "tuple": Congruence._tuple,
    "update": Congruence._update,
    "view": Congruence._view,
}


class _Carry:
    """The carry of a while, in iteration k."""

    def __init__(
        self, congruence: Congruence, loop: Loop, body: Computation, init: int, level: int
    ) -> None:
        self.congruence = congruence
        self.numbers = congruence.numbers
        self.loop = loop
        self.body = body
        self.level = level
        self.trips = loop.trip_count
        self.reverse = False
        count = tuple_width(loop.instr)
        self.init = [self.numbers.element(init, k) for k in range(count)]
        graph = congruence.graph
        self.changing = [k for k in range(count) if not is_invariant(graph, loop.instr, (k,))]
        self.labels = {k: self.init[k] for k in self.changing}

    def run(self) -> Evaluation:
        return self.congruence.run(self.body, (self._values(),), self.level + 1)

    def _values(self) -> int:
        values = list(self.init)
        for k in self.changing:
            values[k] = self._leaf(k)
        return self.numbers.packed(values)

    def tell_apart(self) -> None:
        """Give elements that change differently different labels: their init, then that and what
        an iteration makes of it, and so on, until it is told apart from all that it depends on.
        What the loop does besides, such as to stack values, leaves the label as it is."""
        of: dict[int, set[int]] = {}
        distinct: dict[int, int] = {}
        open_ = set(self.changing)
        while open_:
            result = self.run().result
            of = of or self._dependent(result)
            self._drop_constant(result)
            open_.intersection_update(self.changing)
            new = {k: (self.labels[k], self._of(result, k)) for k in open_}
            self.labels |= {k: self.numbers.make("step", self.trips, new[k]) for k in new}
            for k in tuple(open_):
                others = of[k].intersection(self.changing)
                before = distinct.get(k, 0)
                distinct[k] = len({self.labels[other] for other in others})
                if distinct[k] in (before, len(others)):
                    open_.remove(k)

    def _dependent(self, result: int) -> dict[int, set[int]]:
        """For each element that changes, itself and those that it is computed from, in whatever
        iteration; of what has one label, all."""
        named: dict[int, set[int]] = {}
        for k in self.changing:
            named.setdefault(self._leaf(k), set()).add(k)
        found = {
            k: {k}.union(*(named[leaf] for leaf in self._leaves(self._of(result, k), named)))
            for k in self.changing
        }
        grown = True
        while grown:
            grown = False
            for others in found.values():
                more = set().union(*(found[other] for other in others)) - others
                others |= more
                grown = grown or bool(more)
        return found

    def _leaves(self, number: int, leaves: Collection[int]) -> set[int]:
        """The leaves that a number is computed from. What is older than all of them has none."""
        oldest = min(leaves, default=0)
        waiting, seen = [number], {number}
        for at in waiting:  # grows while it is walked
            if at not in leaves:
                more = {one for one in self.numbers[at].operands if one >= oldest} - seen
                seen |= more
                waiting.extend(more)
        return {one for one in seen if one in leaves}

    def _drop_constant(self, result: int) -> None:
        """Elements that each iteration gives as it got them, or as they were before the loop, do
        not change, though the text moves them about."""
        for k in tuple(self.changing):
            if self._of(result, k) in (self.init[k], self._leaf(k)):
                self.changing.remove(k)
                del self.labels[k]

    def _of(self, result: int, k: int) -> int:
        return self.numbers.element(result, k)

    def _leaf(self, k: int) -> int:
        trips = self.loop.trips
        if k == trips.induction_index and self.trips and trips.step and trips.start is not None:
            series = progression(self.level + 1, self.trips, trips.start, trips.step)
            return self.numbers.series(series.reversed() if self.reverse else series)
        leaf = self.numbers.make("carry", (self.trips, self.reverse), (self.labels[k],))
        self.congruence.carried.setdefault(leaf, self.loop.instr)
        return leaf

    def results(self, result: int) -> int:
        """What the while gives, where its body gives `result`."""
        values = list(self.init)
        ends = self._ends()
        for k in self.changing:
            values[k] = self._behind(k, self._of(result, k), ends)
        return self.numbers.packed(values)

    def _ends(self) -> tuple[int, ...]:
        """What ends the loop, where that is no count."""
        if self.trips is not None:
            return ()
        condition = self.loop.condition
        if condition is None:
            return (self.numbers.make("unknown", (id(self.body), "condition")),)
        return (self.congruence.run(condition, (self._values(),), self.level + 1).result,)

    def _behind(self, k: int, last: int, ends: tuple[int, ...]) -> int:
        """Element k behind the loop: an array to which each iteration has written a slice, or what
        the last iteration made of it."""
        below = self.numbers[last]
        # A back end may write to it in another order of its elements, and turn that back.
        view = cast(View, below.detail) if below.kind == "view" else ()
        number = self.numbers[below.operands[0]] if view else below
        if number.kind == "dynamic-update-slice" and self._is_leaf(k, number.operands, view):
            starts = number.operands[2:]
            moving = [d for d, start in enumerate(starts) if self._moves(start)]
            fixed = [start for d, start in enumerate(starts) if d not in moving]
            whole = all(self.numbers.integer_of(start) == 0 for start in fixed)
            if len(moving) == 1 and whole and isinstance(number.detail, tuple):
                operands = (starts[moving[0]], number.operands[1], self.labels[k])
                stack = self.numbers.make("stack", (moving[0], number.detail[2][1]), operands)
                return self.numbers.viewed(stack, view)
        return self.numbers.make("after", (self.trips, self.reverse), (self.labels[k], last, *ends))

    def _is_leaf(self, k: int, operands: tuple[int, ...], view: View) -> bool:
        """Whether the first operand, seen in this order, is element k as the iteration gets it."""
        return bool(operands) and self.numbers.viewed(operands[0], view) == self._leaf(k)

    def _moves(self, start: int) -> bool:
        series = self.numbers.series_of(start)
        return series is not None and series.level == self.level + 1
