"""The schedule of a computation as lanes: what is under way while its instructions run.

Only in a scheduled text is the order of the instructions that of execution, and positions in it are
an order, not times. Which rows are bars, what is work, and what they are called is data of a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_lens.analysis.schedule import schedules
from hlo_lens.facts import Facts
from hlo_lens.figure.lanes_rows import BarKind, Bars, Found, LanesView, Rows, Verdict, Work
from hlo_lens.figure.lanes_steps import Bar, Layout, Step, in_steps
from hlo_lens.files import InputError
from hlo_lens.hlo import Computation, Instruction, Module
from hlo_lens.present.cells import loop_text, trips_text, unit_text
from hlo_lens.present.quantities import count_text, visible

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis

__all__ = ["Bar", "Bars", "Lanes", "LanesView", "Step", "Verdict", "Work", "lanes"]

_MOST_PLACES = 4  # other computations that are named

_ByComputation = Mapping[Computation, Sequence[Found]]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The schedule of one computation.

    heading: which computation it is and how often it runs, then sums over all its bars, drawn or
    not. positions: instructions in the schedule. kinds: of the bars that are drawn, with what such
    bars are called. The other fields are those of a `Panel`.
    """

    title: str
    name: str
    stage: str
    file: str | None
    computation: str
    heading: tuple[str, ...]
    steps: tuple[Step, ...]
    bars: tuple[Bar, ...]
    positions: int
    kinds: Mapping[BarKind, str] = field(default_factory=dict)
    about: tuple[str, ...] = ()
    total: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sha256: str = ""

    @property
    def width(self) -> int:
        """How many lanes there are."""
        return 1 + max((bar.lane for bar in self.bars), default=-1)


def lanes(facts: Facts, view: LanesView, computation: Computation | None = None) -> Lanes:
    """The lanes of a computation; without one, of that with the most bytes under way in a step.

    Raises `InputError` where the text is not scheduled, where nothing in it communicates or is
    waited for, and where the view names what is not there.
    """
    program = facts.program
    module = program.main if computation is None else computation.module
    position = program.index(module)
    _refuse_unscheduled(module, program.stages[position])
    analysis = program.analysis(module)
    rows = Rows(facts, position, analysis)
    found = _by_computation(view, rows.bars(view.bars))
    chosen = _choose(view, analysis, found) if computation is None else computation
    schedule = None if chosen is None else schedules(analysis.graph).of(chosen)
    if chosen is None or schedule is None:
        raise InputError(
            module.filename or module.name,
            "nothing in this module communicates or is started and waited for: there is no overlap"
            " to draw",
        )
    own = found.get(chosen, ())
    by_id = rows.cells.loops(position).by_id

    def name_of_loop(instr: Instruction) -> str | None:
        return loop_text(by_id[instr.id]) if instr.id in by_id else None

    layout = Layout(schedule, view, rows.work(view.work, chosen), name_of_loop)
    drawn = layout.chosen(own)
    steps = layout.steps(drawn)
    quiet = {"that only name values": layout.quiet} if layout.quiet else {}
    return Lanes(
        title=program.name,
        name=module.name,
        stage=program.stages[position],
        file=module.filename,
        computation=chosen.name,
        heading=(_place_text(analysis, chosen), *_sums(facts, view, own)),
        steps=steps,
        bars=in_steps(drawn, steps),
        positions=len(chosen.names),
        kinds={bar.kind: bar.label for bar in drawn},
        total=module.instruction_count,
        left_out=quiet,
        notes=tuple(_notes(analysis, own, drawn, found)),
        sha256=module.sha256,
    )


def _refuse_unscheduled(module: Module, stage: str) -> None:
    if not module.is_scheduled:
        raise InputError(
            module.filename or module.name,
            f"this text ({stage}) is not scheduled: its order is not that of execution; give the"
            " text after optimizations, whose first line says is_scheduled=true",
        )


def _by_computation(view: LanesView, bars: Iterable[Found]) -> dict[Computation, list[Found]]:
    found: dict[Computation, list[Found]] = {}
    for bar in bars:
        own = found.setdefault(bar.computation, [])
        # Bars come source by source, so the first one tells whether an earlier source has any.
        if not (view.bars[bar.source].instead and own and own[0].source < bar.source):
            own.append(bar)
    return found


def _choose(view: LanesView, analysis: ModuleAnalysis, found: _ByComputation) -> Computation | None:
    """The computation with the most bytes in a step in bars of the first source, else with most of
    its bars; where these are equal, by the next source; else the first in the text."""

    def rank(computation: Computation) -> tuple[int, ...]:
        runs = analysis.executions(computation)
        weight = runs.exact if runs.exact is not None else max(runs.minimum or 0, 1)
        measures: list[int] = []
        for number in range(len(view.bars)):
            own = [bar for bar in found[computation] if bar.source == number]
            measures += [weight * sum(bar.size or 0 for bar in own), len(own)]
        return tuple(measures)

    return max(found, key=lambda one: (rank(one), -one.index), default=None)


# ---------------------------------------------------------------------------- words


def _place_text(analysis: ModuleAnalysis, computation: Computation) -> str:
    """`ENTRY %main`; `body %b of %while.5 ×32`; what else calls it."""
    name = f"%{visible(computation.name)}"
    if computation is analysis.module.entry:
        return f"ENTRY {name}"
    site = analysis.graph.only_caller(computation)
    if site is None:
        return name
    loop = analysis.loop(computation)
    trips = ""
    if loop is not None and loop.instr == site.caller and site.kind == "body":
        trips = f" {trips_text(loop)}"
    return f"{site.kind} {name} of %{visible(site.caller.name)}{trips}"


def _sums(facts: Facts, view: LanesView, bars: Sequence[Found]) -> Iterator[str]:
    """`9 collectives, 12.0 MiB: 5 hidden, 10.0 MiB; 4 synchronous, 2.0 MiB`: a line a source, of
    one execution of the computation."""
    for number, source in enumerate(view.bars):
        own = [bar for bar in bars if bar.source == number]
        if not own:
            continue
        table = facts.table(source.table)
        text = str if source.size is None else unit_text(table.column(source.size))
        kinds: dict[str, list[Found]] = {one.label: [] for one in source.verdicts}
        for bar in own:
            kinds.setdefault(bar.label, []).append(bar)
        parts = [_amount(some, label, text) for label, some in kinds.items() if some]
        if len(parts) == 1:
            yield f"{source.title}: {parts[0]}"
        else:
            yield f"{_amount(own, source.title, text)}: {', '.join(parts)}"


def _amount(bars: Sequence[Found], what: str, text: Callable[[int], str]) -> str:
    """`5 synchronous (10.0 MiB)`: how many, and their bytes as far as known."""
    known = [bar.size for bar in bars if bar.size is not None]
    least = "" if len(known) == len(bars) else "≥ "
    size = f" ({least}{text(sum(known))})" if known else ""
    return f"{count_text(len(bars))} {what}{size}"


def _notes(
    analysis: ModuleAnalysis, own: Sequence[Found], drawn: Sequence[Found], found: _ByComputation
) -> Iterator[str]:
    if len(drawn) < len(own):
        yield f"the largest {count_text(len(drawn))} of {count_text(len(own))} bars are drawn"
    drawn_in = {bar.computation for bar in own}
    others = sorted(
        (computation for computation in found if computation not in drawn_in),
        key=lambda one: (-len(found[one]), one.index),
    )
    if others:
        shown = [
            f"{_place_text(analysis, one)} ({count_text(len(found[one]))})"
            for one in others[:_MOST_PLACES]
        ]
        more = len(others) - len(shown)
        rest = f" and {count_text(more)} more" if more else ""
        yield f"there are bars in {', '.join(shown)}{rest} too"
