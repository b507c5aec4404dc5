"""Whether two modules are the same but for names, or line by line; if not, where they part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from itertools import zip_longest
from typing import Literal

from hlo_lens.diff.canonical import (
    callees,
    differing_attribute,
    differing_field,
    unblanked,
    without_layouts,
    written_attributes,
    written_header,
    written_lines,
)
from hlo_lens.diff.in_step import Pairs, by_graph, by_text, links, says
from hlo_lens.diff.parting import (
    Parting,
    Place,
    header_parting,
    line_parting,
    opening,
    parting,
    whole,
)
from hlo_lens.hlo import Computation, Instruction, Module

__all__ = ["By", "Parting", "Place", "elided_literals", "first_parting"]

By = Literal["program", "text"]


def first_parting(old: Module, new: Module, *, by: By) -> Parting | None:
    """Where two modules part first; None where they are the same.

    "program": all but names, ids, channel ids, metadata, frame tables and where kernels were
    written. The order of instructions counts where the text is scheduled, that of computations
    never. Asynchronous operations must be spelled the same way.

    "text": the lines, without metadata, frame tables, empty lines and blanks at their ends.

    Raises ValueError for another word.
    """
    if by not in ("program", "text"):
        raise ValueError(f'by is "program" or "text", not {by!r}')
    return _Comparison(old, new).first() if by == "program" else _lines(old, new)


def elided_literals(module: Module) -> int:
    """How many constants the text elides as `{...}`: nothing sees the values of these."""
    return sum(
        "..." in argument
        for computation in module.computations
        for opcode, argument in zip(computation.opcodes, computation.rows.arguments, strict=True)
        if opcode == "constant"
    )


def _lines(old: Module, new: Module) -> Parting | None:
    for one, other in zip_longest(written_lines(old), written_lines(new)):
        if one is None or other is None or one[1] != other[1]:
            return line_parting(one and (old, *one), other and (new, *other))
    return None


class _Comparison:
    """Walks two modules in step from their entries and pairs what stands in the same place."""

    def __init__(self, old: Module, new: Module) -> None:
        self.old, self.new = old, new
        self.found: Parting | None = None
        self.computations: Pairs[Computation] = Pairs()
        self.channels: Pairs[str] = Pairs()

    def first(self) -> Parting | None:
        field = differing_field(written_header(self.old), written_header(self.new))
        if field is not None:
            return header_parting(field, self.old, self.new)
        self._walk(self.old.entry, self.new.entry)
        for one, other in self._uncalled() if self.found is None else ():
            if one is None or other is None:
                sides = [None if each is None else opening(each) for each in (one, other)]
                message = "a computation that nothing calls is on one side only"
                return Parting("computation", None, message, *sides)
            self._walk(one, other)
            if self.found is not None:
                break
        return self.found

    def _walk(self, old: Computation, new: Computation) -> None:
        """Compare two computations and all that they call, until something is found."""
        self.computations.add(old, new)
        running = [self._bodies(old, new)]  # a stack of its own: calls may nest deep
        while running and self.found is None:
            called = next(running[-1], None)
            if called is None:
                running.pop()
            else:
                running.append(self._bodies(*called))

    def _bodies(
        self, old: Computation, new: Computation
    ) -> Iterator[tuple[Computation, Computation]]:
        """Compare two computations; gives what they call, to be compared before what follows."""
        if old.execution_thread != new.execution_thread:
            message = "another execution thread"
            self.found = Parting("computation", None, message, opening(old), opening(new))
            return
        pairs: Pairs[int] = Pairs()
        walk = by_text if self.old.is_scheduled else by_graph
        for at, beside in walk(old, new, pairs):
            one = None if at is None else Instruction(old, at)
            other = None if beside is None else Instruction(new, beside)
            if one is None or other is None:
                self.found = _one_sided(one, other)
                return
            self.found = _by_itself(one, other) or self._in_context(one, other, pairs)
            if self.found is not None:
                return
            yield from self._called(one, other)
            if self.found is not None:
                return

    def _in_context(self, old: Instruction, new: Instruction, pairs: Pairs[int]) -> Parting | None:
        """Whether operands, control predecessors and channels are those of the partner."""
        ours, theirs = (links(each.computation, each.index) for each in (old, new))
        operands = len(old.computation.operand_indices(old.index))
        if operands != len(new.computation.operand_indices(new.index)):
            return parting("operand", "another number of operands", old, new, ("end", None))
        for number, (link, beside) in enumerate(zip_longest(ours, theirs)):
            if link is not None and beside is not None and pairs.holds(link, beside):
                continue
            if number < operands:
                message = f"operand {number} is another value: {_apart(old, new, number)}"
                return parting("operand", message, old, new, ("operand", number))
            message = "another control predecessor"
            return parting("attribute", message, old, new, ("attribute", "control-predecessors"))
        channel, its = _channel(old), _channel(new)
        if channel is not None and its is not None and not self.channels.add(channel, its):
            message = "the channel is shared with other instructions"
            return parting("attribute", message, old, new, ("attribute", "channel_id"))
        return None

    def _called(
        self, old: Instruction, new: Instruction
    ) -> Iterator[tuple[Computation, Computation]]:
        """The computations that two instructions call and that are not paired yet."""
        ours, theirs = callees(old), callees(new)
        for name in dict.fromkeys((*ours, *theirs)):
            for one, other in zip_longest(ours.get(name, ()), theirs.get(name, ())):
                known = one in self.computations.to_new
                if one is None or other is None or not self.computations.add(one, other):
                    message = f"another computation in {name}"
                    self.found = parting("attribute", message, old, new, ("attribute", name))
                    return
                if not known:
                    yield one, other

    def _uncalled(self) -> Iterator[tuple[Computation | None, Computation | None]]:
        """What no walk has reached, callers first, with what may be the same on the other side."""
        waiting: defaultdict[Hashable, list[Computation]] = defaultdict(list)
        for computation in self.new.computations:
            if computation not in self.computations.to_old:
                waiting[says(computation)].append(computation)
        left: list[Computation] = []
        for computation in reversed(self.old.computations):
            if computation in self.computations.to_new:
                continue
            alike = waiting[says(computation)]
            while alike and alike[-1] in self.computations.to_old:
                alike.pop()
            if alike:
                yield computation, alike.pop()
            else:
                left.append(computation)
        beside = [
            computation
            for computation in reversed(self.new.computations)
            if computation not in self.computations.to_old
        ]
        yield from zip_longest(left, beside)


def _apart(old: Instruction, new: Instruction, number: int) -> str:
    """What tells two operands apart: what they are, or else where they stand."""
    one, other = old.operands[number], new.operands[number]
    if one.opcode != other.opcode:
        return f"{one.opcode} against {other.opcode}"
    return f"the {one.opcode} of line {one.text_line} against that of line {other.text_line}"


def _channel(instruction: Instruction) -> str | None:
    return written_attributes(instruction.tail).get("channel_id")


def _by_itself(old: Instruction, new: Instruction) -> Parting | None:
    """Whether two instructions say the same, apart from what they are connected with."""
    if old.opcode != new.opcode:
        return parting("opcode", "another operation", old, new, ("opcode", None))
    if old.is_root != new.is_root:
        return parting("root", "another root", old, new, ("root", None))
    if unblanked(old.shape_text) != unblanked(new.shape_text):
        ours, theirs = without_layouts(old.shape_text), without_layouts(new.shape_text)
        message = "another layout" if ours == theirs else "another shape"
        return parting("shape", message, old, new, ("shape", None))
    if old.opcode in ("constant", "parameter"):
        arguments = unblanked(old.argument_text), unblanked(new.argument_text)
        if arguments[0] != arguments[1]:
            return _arguments(old, new)
    name = differing_attribute(written_attributes(old.tail), written_attributes(new.tail))
    if name is None:
        return None
    message = f"another {name}" if name else "other attributes"
    return parting("attribute", message, old, new, ("attribute", name))


def _arguments(old: Instruction, new: Instruction) -> Parting:
    if old.opcode == "parameter":
        message = "another number of a parameter"
        return parting("parameter", message, old, new, ("argument", None))
    elided = "..." in old.argument_text or "..." in new.argument_text
    message = "a literal that one side elides" if elided else "another literal"
    return parting("literal", message, old, new, ("argument", None))


def _one_sided(old: Instruction | None, new: Instruction | None) -> Parting:
    message = f"an instruction that only the {'new' if old is None else 'old'} side has"
    sides = [None if each is None else whole(each) for each in (old, new)]
    return Parting("end", None, message, *sides)
