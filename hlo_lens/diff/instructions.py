"""The instructions that changed, and what each loop has more or less of, as a report tells them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hlo_lens.analysis import Loop
from hlo_lens.diff.changes import changed
from hlo_lens.diff.model import BodyDelta, Count, Matching
from hlo_lens.diff.parting import differs_at
from hlo_lens.diff.values import ARROW, Mark
from hlo_lens.present.cells import loop_text, trips_text
from hlo_lens.present.quantities import count_text, visible

_BOOKKEEPING = frozenset(("parameter", "tuple", "get-tuple-element", "bitcast", "while"))
_OPCODES = 8  # that are named of what is no work
_CELL = 40  # characters of a value of an instruction

_WORK = (
    "dot", "convolution", "ragged-dot", "scaled-dot", "custom-call", "all-gather", "all-reduce",
    "reduce-scatter", "all-to-all", "ragged-all-to-all", "collective-permute",
    "collective-broadcast", "send", "recv", "async", "while", "conditional", "opt-barrier", "sort",
    "scatter", "gather",
)  # fmt: skip
"""Opcodes that are shown of what differs in a loop, in this order, before all others."""


@dataclass(frozen=True, slots=True)
class InstructionLine:
    """Instructions of both sides that differ in the same things. old, new: what the first of them
    has on either side; `source` is its file and line."""

    opcode: str
    number: str
    what: str
    old: str
    new: str
    first: str
    source: str


@dataclass(frozen=True, slots=True)
class Body:
    """What one iteration of two loops, or of several pairs of loops alike, has more or less of.

    others: what is no kernel, collective or matmul, which is shown when all is shown; rest: the
    same by opcode, in one line.
    """

    mark: Mark
    title: str
    counts: str
    work: tuple[Count, ...]
    others: tuple[Count, ...]
    rest: str


def changed_instructions(matching: Matching) -> Iterator[InstructionLine]:
    """Instructions that changed, those that do some work first."""
    groups = changed(matching)
    groups.sort(key=lambda each: by_work(each.opcode))
    for group in groups:
        first, *_ = group.aspects
        old, new = differing_parts(first.old, first.new)
        yield InstructionLine(
            visible(group.opcode),
            count_text(group.number),
            visible(", ".join(aspect.what for aspect in group.aspects)),
            old,
            new,
            visible(group.new.name),
            visible((group.new.source or "").rpartition("/")[2]),
        )


def differing_parts(old: str, new: str) -> tuple[str, str]:
    """Two texts where they are not the same, cut to what a line holds."""
    start = differs_at(old, new)
    return _part(old, start), _part(new, start)


def _part(text: str, start: int) -> str:
    if len(text) <= _CELL:
        return visible(text)
    start = max(0, min(start - _CELL // 3, len(text) - _CELL))
    piece = text[start : start + _CELL]
    return f"{'…' if start else ''}{visible(piece)}{'…' if start + _CELL < len(text) else ''}"


# ---------------------------------------------------------------------------------- loops


def bodies(deltas: Iterable[BodyDelta]) -> Iterator[Body]:
    """The bodies, those that differ in the same way as one."""
    alike: defaultdict[object, list[BodyDelta]] = defaultdict(list)
    for delta in deltas:
        trips = tuple(loop and trips_text(loop) for loop in (delta.old, delta.new))
        alike[delta.outside, trips, delta.counts].append(delta)
    return (_body(group[0], len(group)) for group in alike.values())


def _body(delta: BodyDelta, loops: int) -> Body:
    more = sum(max(count.new - count.old, 0) for count in delta.counts)
    fewer = sum(max(count.old - count.new, 0) for count in delta.counts)
    counts = [
        f"{count_text(number)} {what}"
        for number, what in ((fewer, "fewer"), (more, "more"), (delta.unchanged, "unchanged"))
        if number
    ]
    mark: Mark = "~"
    if not delta.outside:
        mark = "+" if delta.old is None else "−" if delta.new is None else "~"
    ordered = sorted(delta.counts, key=_weight)
    work = tuple(count for count in ordered if _place(count.opcode) < len(_WORK))
    others = tuple(count for count in ordered if _place(count.opcode) == len(_WORK))
    title = _loops_text(delta.old, delta.new)
    if loops > 1:
        title += f" and {count_text(loops - 1)} more like it"
    return Body(mark, title, ", ".join(counts), work, others, _rest(others))


def _loops_text(old: Loop | None, new: Loop | None) -> str:
    texts = [loop_text(loop) for loop in (old, new) if loop is not None]
    return ARROW.join(dict.fromkeys(texts)) or "outside of loops"


def by_work(opcode: str) -> tuple[bool, int]:
    """Where an opcode stands: what does some work first."""
    return opcode in _BOOKKEEPING, _place(opcode)


def _place(opcode: str) -> int:
    opcode = opcode.removesuffix("-start")
    return _WORK.index(opcode) if opcode in _WORK else len(_WORK)


def _weight(count: Count) -> tuple[int, int, str, str]:
    """The work that takes time first, then what differs most."""
    return _place(count.opcode), -abs(count.new - count.old), count.opcode, count.shape


def _rest(counts: Iterable[Count]) -> str:
    """How many more and fewer there are of each opcode: `fusion +2 −1, copy −1`."""
    more: Counter[str] = Counter()
    fewer: Counter[str] = Counter()
    for count in counts:
        more[count.opcode] += max(count.new - count.old, 0)
        fewer[count.opcode] += max(count.old - count.new, 0)
    texts = []
    for opcode in sorted(more, key=lambda opcode: (-more[opcode] - fewer[opcode], opcode)):
        signs = (("+", more[opcode]), ("−", fewer[opcode]))
        numbers = [f"{sign}{count_text(number)}" for sign, number in signs if number]
        texts.append(" ".join((visible(opcode), *numbers)))
    if len(texts) > _OPCODES + 1:
        texts[_OPCODES:] = [f"{len(texts) - _OPCODES} more opcodes"]
    return ", ".join(texts)
