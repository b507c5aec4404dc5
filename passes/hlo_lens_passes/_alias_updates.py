"""Arguments that are not donated, and of which an output is made element by element or in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis import Value
from hlo_lens.analysis.collectives import shape_of
from hlo_lens.analysis.dataflow import steps
from hlo_lens.hlo import Instruction
from hlo_lens_passes._alias_flow import outermost, ways_to
from hlo_lens_passes._host_moves import EntryArray

if TYPE_CHECKING:
    from hlo_lens.analysis import CallGraph

_ARITHMETIC: Final = frozenset(
    (
        "add", "clamp", "convert", "divide", "maximum", "minimum", "multiply", "negate", "power",
        "rsqrt", "select", "sqrt", "subtract",
    )
)  # fmt: skip
"""What an optimizer, a moving average or a counter does to each element."""

_MOST: Final = 512  # values between an output and an argument


@dataclass(frozen=True, slots=True)
class Update:
    """An argument that could be donated, the output that could have its memory, and what computes
    that."""

    argument: EntryArray
    result: EntryArray
    by: Instruction


def updates(
    graph: CallGraph, free: tuple[Sequence[EntryArray], Sequence[EntryArray]], at_least: int
) -> list[Update]:
    """The arguments of `free` of as many bytes, each with an output that is an update of it and
    has its shape and layout; each output for one argument."""
    arguments = {
        (one.value.instr, one.value.path): one
        for one in free[0]
        if (one.shape.bytes or 0) >= at_least
    }
    left = Counter(one.shape for one in arguments.values())
    found: list[Update] = []
    for result in free[1]:
        if not left[result.shape]:
            continue
        for key, by in _reached(graph, result):
            argument = arguments.get(key)
            if argument is not None and argument.shape == result.shape:
                left[result.shape] -= 1
                found.append(Update(arguments.pop(key), result, by))
                break
    return found


_Key = tuple[Instruction, tuple[int, ...]]


def _reached(graph: CallGraph, result: EntryArray) -> Iterator[tuple[_Key, Instruction]]:
    """The arguments that an output is an update of, nearest first, and what computes it last."""
    ways = ways_to(graph, result.value)
    for end in ways.ends:
        if ways.updates and end.instr.opcode == "parameter":
            yield (end.instr, end.path), outermost(ways.updates[0])
    waiting = [end for end in ways.ends if end.instr.opcode in _ARITHMETIC]
    last = outermost(waiting[0]) if waiting else None
    seen: set[Value] = set()
    for at in waiting:  # grows while it is walked
        if at in seen or len(seen) > _MOST:
            continue
        seen.add(at)
        for operand in at.instr.operands:
            *_, before = steps(graph, Value(operand, (), at.via))
            shape = shape_of(before.instr)
            if before.instr.opcode == "parameter":
                if not before.via and last is not None:
                    yield (before.instr, before.path), last
            elif before.instr.opcode in _ARITHMETIC and shape is not None:
                waiting += [before] if shape.dimensions == result.shape.dimensions else []
