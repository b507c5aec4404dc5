"""Which instructions of a schedule get a row of their own, and in which lane each bar stands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal

from hlo_lens.analysis.schedule import Schedule
from hlo_lens.figure.lanes_rows import BarKind, Found, Known, LanesView
from hlo_lens.hlo import Instruction
from hlo_lens.present.quantities import count_text, visible

StepKind = Literal["start", "done", "both", "work", "run"]

_CALLS: Final = frozenset(("call", "conditional", "while"))
_MOST_OUTSIDE = 3  # heavy instructions with a row each while nothing is under way
_MOST_OPCODES = 3  # told of a run
_MOST_NAMES = 2  # of heavy instructions, told of a run
_MOST_LEAVES = 2  # of the shape of a tuple


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the figure: the instructions at positions `first` to `last` of the schedule.

    kind: `start` or `done` of a bar, `both` where a bar is one instruction, `work` is another
    single instruction, `run` are one or more of which none is heavy or all have no room of their
    own. name: of the instruction, of a loop with its trips; "" for a run. lines: what is told of
    it. compute, heavy: how many of its instructions are that (`definitions.md`, "Collectives").
    """

    first: int
    last: int
    kind: StepKind
    name: str = ""
    shape: str = ""
    lines: tuple[str, ...] = ()
    compute: int = 0
    heavy: int = 0


@dataclass(frozen=True, slots=True)
class Bar:
    """What is under way from step `first` to step `last` of the figure, both included.

    start, done: names; None for an end that is not in this computation, where the bar is open, and
    both the same where the bar is one instruction. lines: what it is. words: what lies between.
    """

    first: int
    last: int
    lane: int
    kind: BarKind
    start: str | None
    done: str | None
    lines: tuple[str, ...]
    words: str


class Layout:
    """The rows of one schedule. `work` and `loops` (names with trips) are by position."""

    def __init__(
        self,
        schedule: Schedule,
        view: LanesView,
        work: Mapping[int, Known],
        loops: Callable[[Instruction], str | None],
    ) -> None:
        self._schedule = schedule
        self._computation = schedule.computation
        self._view = view
        self._work = work
        self._loops = loops
        opcodes = self._computation.opcodes
        self._is_loud = [
            opcode not in view.quiet and not opcode.endswith("-update") for opcode in opcodes
        ]
        self._loud = [0, *accumulate(self._is_loud)]
        self._heavy = [
            place for place in range(len(opcodes)) if schedule.between(place - 1, place + 1).heavy
        ]

    @property
    def quiet(self) -> int:
        """How many instructions only name values."""
        return len(self._computation.opcodes) - self._loud[-1]

    def chosen(self, bars: Sequence[Found]) -> list[Found]:
        """The bars that have room, by position: the largest of the first source come first."""
        order = sorted(bars, key=lambda bar: (bar.source, -(bar.size or 0), bar.first))
        taken: list[Found] = []
        for bar in order:
            tried = [*taken, bar]
            if max(lanes_of(tried)) >= self._view.lanes:
                continue
            if taken and self._folded_rows(tried) > self._view.steps:
                break
            taken = tried
        return sorted(taken, key=lambda bar: (bar.first, bar.last))

    def steps(self, bars: Sequence[Found]) -> tuple[Step, ...]:
        """The rows: each end of a bar, and heavy work as far as there is room, that in a bar first;
        all between in runs."""
        events = _events(bars, len(self._computation.opcodes))
        gaps = self._gaps(events)
        opened = self._opened(gaps, bars)
        found: list[Step] = [self._event(place, bars) for place in events]
        for gap in gaps:
            found += self._single(gap) if gap in opened else [self._run(*gap)]
        return tuple(sorted(found, key=lambda step: step.first))

    # -- what has a row

    def _gaps(self, events: Sequence[int]) -> list[tuple[int, int]]:
        """(first, last) of what lies between events and is not all quiet."""
        ends = (-1, *events, len(self._computation.opcodes))
        gaps = ((before + 1, after - 1) for before, after in pairwise(ends))
        return [(first, last) for first, last in gaps if self._count(first, last)]

    def _count(self, first: int, last: int) -> int:
        """Instructions from `first` to `last` that are not quiet."""
        return self._loud[max(last + 1, first)] - self._loud[first]

    def _folded_rows(self, bars: Sequence[Found]) -> int:
        events = _events(bars, len(self._computation.opcodes))
        return len(events) + len(self._gaps(events))

    def _opened(
        self, gaps: Sequence[tuple[int, int]], bars: Sequence[Found]
    ) -> frozenset[tuple[int, int]]:
        """The gaps whose heavy work has rows of its own: those in a bar, then those outside that
        are small; of these the smallest first."""
        room = self._view.steps - self._folded_rows(bars)
        found: set[tuple[int, int]] = set()
        sized: list[tuple[bool, int, tuple[int, int]]] = []
        for gap in gaps:
            heavy = self._heavy_in(*gap)
            if heavy:
                outside = not any(bar.first < gap[0] and gap[1] < bar.last for bar in bars)
                if not outside or len(heavy) <= _MOST_OUTSIDE:
                    sized.append((outside, len(list(self._pieces(gap, heavy))) - 1, gap))
        for _, more, gap in sorted(sized):
            if more <= room:
                found.add(gap)
                room -= more
        return frozenset(found)

    def _heavy_in(self, first: int, last: int) -> list[int]:
        return self._heavy[bisect_left(self._heavy, first) : bisect_right(self._heavy, last)]

    def _pieces(self, gap: tuple[int, int], heavy: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The heavy instructions of a gap one by one, and the runs between that are not quiet."""
        at = gap[0]
        for place in heavy:
            if self._count(at, place - 1):
                yield at, place - 1
            yield place, place
            at = place + 1
        if self._count(at, gap[1]):
            yield at, gap[1]

    # -- rows

    def _event(self, place: int, bars: Sequence[Found]) -> Step:
        starts = any(bar.start is not None and bar.first == place for bar in bars)
        ends = any(bar.done is not None and bar.last == place for bar in bars)
        alone = any(bar.first == bar.last == place for bar in bars)
        if alone or (starts and ends):
            return self._one(place, "both")
        return self._one(place, "start" if starts else "done" if ends else "work")

    def _single(self, gap: tuple[int, int]) -> Iterator[Step]:
        heavy = self._heavy_in(*gap)
        own = set(heavy)
        for first, last in self._pieces(gap, heavy):
            yield self._one(first, "work") if first in own else self._run(first, last)

    def _one(self, place: int, kind: StepKind) -> Step:
        instr = Instruction(self._computation, place)
        between = self._schedule.between(place - 1, place + 1)
        lines = self._told(place, instr.opcode) if place in self._work else ()
        name = self._loops(instr) or visible(instr.name)
        shape = "" if instr.opcode in _CALLS else _shape_text(instr)
        return Step(place, place, kind, name, shape, lines, between.compute, between.heavy)

    def _told(self, place: int, opcode: str) -> tuple[str, ...]:
        """What the tables know of the work at a position."""
        line = self._work[place].line
        return (f"inside: {line}" if opcode in _CALLS else line,) if line else ()

    def _run(self, first: int, last: int) -> Step:
        """What lies from `first` to `last`, without the quiet instructions at both ends."""
        loud = [place for place in range(first, last + 1) if self._is_loud[place]]
        first, last = loud[0], loud[-1]
        between = self._schedule.between(first - 1, last + 1)
        heavy = self._heavy_in(first, last)
        lines = [self._heavy_text(heavy)] if heavy else []
        own = set(heavy)
        light = [place for place in loud if place not in own]
        opcodes = Counter(self._computation.opcodes[place] for place in light)
        if len(light) == 1:
            name = visible(self._computation.names[light[0]])
            lines.append(f"%{name} ({visible(next(iter(opcodes)))})")
        elif light:
            lines.append(_opcodes_text(opcodes, "other" if heavy else "instructions"))
        return Step(
            first, last, "run", lines=tuple(lines), compute=between.compute, heavy=between.heavy
        )

    def _heavy_text(self, places: Sequence[int]) -> str:
        """`26 heavy: %dot.1, %dot.2 and 24 more; matmuls: 26`; of one what is told of it."""
        known = [self._work[place] for place in places if place in self._work]
        names = [f"%{visible(self._computation.names[place])}" for place in places[:_MOST_NAMES]]
        rest = len(places) - len(names)
        more = f" and {count_text(rest)} more" if rest else ""
        if len(places) == 1:
            said = [line for line in (one.line for one in known) if line]
        else:
            counts: Counter[str] = Counter()
            for one in known:
                counts.update(one.counts)
            said = [f"{title}: {count_text(count)}" for title, count in counts.items()]
        listed = f"; {', '.join(said)}" if said else ""
        return f"{count_text(len(places))} heavy: {', '.join(names)}{more}{listed}"


def in_steps(bars: Sequence[Found], steps: Sequence[Step]) -> tuple[Bar, ...]:
    """The bars by rows of the figure, each in its lane; `bars` in order of position."""
    firsts = [step.first for step in steps]

    def row(place: int) -> int:
        return max(bisect_right(firsts, place) - 1, 0)

    def name(instr: Instruction | None) -> str | None:
        return None if instr is None else visible(instr.name)

    found: list[Bar] = []
    for bar, lane in zip(bars, lanes_of(bars), strict=True):
        start, done = bar.start, bar.done
        if start is None and done is None:
            start = done = Instruction(bar.computation, bar.first)
        found.append(
            Bar(
                row(bar.first), row(bar.last), lane, bar.kind, name(start), name(done), bar.lines,
                bar.words,
            )
        )  # fmt: skip
    return tuple(found)


def lanes_of(bars: Sequence[Found]) -> list[int]:
    """The lane of each bar: the first that is free where it begins."""
    ends: list[int] = []
    lanes: dict[int, int] = {}
    for number in sorted(range(len(bars)), key=lambda n: (bars[n].first, bars[n].last, n)):
        bar = bars[number]
        lane = next((lane for lane, end in enumerate(ends) if end < bar.first), len(ends))
        ends[lane : lane + 1] = [bar.last]
        lanes[number] = lane
    return [lanes[number] for number in range(len(bars))]


def _events(bars: Sequence[Found], length: int) -> list[int]:
    """The positions where a bar begins or ends."""
    places = {place for bar in bars for place in (bar.first, bar.last)}
    return sorted(place for place in places if 0 <= place < length)


def _opcodes_text(counts: Counter[str], what: str) -> str:
    """`12 instructions: fusion ×7, copy ×5`."""
    total = counts.total()
    shown = [
        visible(opcode) if count == 1 else f"{visible(opcode)} ×{count_text(count)}"
        for opcode, count in counts.most_common(_MOST_OPCODES)
    ]
    rest = total - sum(count for _, count in counts.most_common(_MOST_OPCODES))
    more = f" and {count_text(rest)} more" if rest else ""
    return f"{count_text(total)} {what}: {', '.join(shown)}{more}"


def _shape_text(instr: Instruction) -> str:
    """The shape without layouts, of a long tuple its first leaves; as written where it cannot be
    read."""
    try:
        shape = instr.shape
    except ValueError:
        return visible(instr.shape_text)
    leaves = [leaf.without_layout for leaf in shape.leaves()]
    if not shape.is_tuple:
        return leaves[0]
    more = [f"… {len(leaves) - _MOST_LEAVES} more"] if len(leaves) > _MOST_LEAVES else []
    return f"({', '.join([*leaves[:_MOST_LEAVES], *more])})"
