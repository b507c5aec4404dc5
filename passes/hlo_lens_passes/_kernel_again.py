"""The rule that a kernel runs again: what a forward kernel gave is computed once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import Finding, Member
from hlo_lens_passes._call_table import RUN_AGAIN

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import Instruction

# What a generic target launches is a kernel whatever its name says; of libraries these are.
_OPERATIONS: Final = frozenset(("attention", "grouped_gemm", "norm", "scaled_gemm"))
_TABLES_OF_GROUPS: Final = frozenset(("ragged_metadata",))


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A call of a kernel. row: in custom_calls; likeness: what is equal in calls of one kernel on
    arrays of one form; phase, executions, name: as the row has them."""

    row: int
    call: Instruction
    likeness: tuple[object, ...]
    name: str
    phase: str | None
    executions: int | None


@dataclass(frozen=True, slots=True)
class Again:
    """`later` computes what `first` did; `sure`: by the flow of values, else by its label."""

    first: Run
    later: Run
    sure: bool


def is_kernel(row: Mapping[str, object]) -> bool:
    """Whether a call counts: launched by a generic target, with a body, or a library's call of an
    operation listed above."""
    op = row["op"]
    if op in _TABLES_OF_GROUPS:
        return False
    told = row["kernel"] is not None or row["body_hash"] is not None
    return told or op == "kernel" or op in _OPERATIONS


def runs_again(analysis: ModuleAnalysis, runs: Sequence[Run]) -> list[Again]:
    """The runs that come again, each with the first that it repeats. `runs`: in text order."""
    groups: dict[object, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.likeness, []).append(run)
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        return []
    numbers = _numbers(analysis, [run for group in several for run in group])
    found: list[Again] = []
    for group in several:
        found += _in_group(group, numbers)
    return found


def _in_group(group: list[Run], numbers: Mapping[Instruction, int]) -> Iterator[Again]:
    """Those with the value of an earlier one; else, of those with the label, the ones for which an
    earlier one without it is left that no other repeats."""
    ordered = sorted(group, key=lambda run: run.phase == "remat")
    first_of: dict[int, Run] = {}
    labelled: list[Run] = []
    free = [run for run in ordered if run.phase != "remat"]
    for run in ordered:
        number = numbers.get(run.call)
        first = None if number is None else first_of.setdefault(number, run)
        if first is not None and first is not run:
            if first in free:
                free.remove(first)
            yield Again(first, run, True)
        elif run.phase == "remat":
            labelled.append(run)
    for run, first in zip(labelled, [one for one in free if one.phase != "bwd"], strict=False):
        yield Again(first, run, False)


def _numbers(analysis: ModuleAnalysis, runs: Sequence[Run]) -> dict[Instruction, int]:
    """The number of the value of each call, where it is one: what is called from several places on
    different values has none."""
    wanted: dict[object, list[Run]] = {}
    for run in runs:
        wanted.setdefault(run.call.computation, []).append(run)
    met: dict[Instruction, set[int]] = {}
    congruence = analysis.congruence
    # The entry comes first, and only once: an unrolled program has all its kernels there.
    few = 1 if set(wanted) == {analysis.module.entry} else None
    for context in islice(congruence.contexts(), few):
        for run in wanted.get(context.evaluation.computation, ()):
            value = congruence.numbers.unviewed(context.evaluation.values[run.call.index])
            met.setdefault(run.call, set()).add(value)
    return {call: values.pop() for call, values in met.items() if len(values) == 1}


def members(found: Again, position: int) -> Iterator[Member]:
    """Each row has the call of the other."""
    first, later = found.first, found.later
    yield Member("custom_calls", later.row, "first", position, first.call.id)
    yield Member("custom_calls", first.row, "again", position, later.call.id)


def findings(found: Sequence[Again], position: int) -> Iterator[Finding]:
    """One for the runs of a kernel in each phase, with the times it runs in a step."""
    kinds: dict[object, list[Again]] = {}
    for one in found:
        kinds.setdefault((one.first.name, one.later.phase, one.sure), []).append(one)
    for alike in kinds.values():
        head = alike[0]
        yield Finding(
            RUN_AGAIN.id,
            RUN_AGAIN.level,
            _message(alike),
            module=position,
            instr=head.later.call.id,
            evidence=tuple(
                ("custom_calls", run.row) for one in alike for run in (one.first, one.later)
            ),
        )


def _message(alike: Sequence[Again]) -> str:
    head = alike[0]
    where = f" in {head.later.phase}" if head.later.phase else ""
    later = _named([one.later for one in alike])
    earlier = _named(list({one.first.row: one.first for one in alike}.values()))
    why = (
        "same values: the operands, the attributes and the body are those of the first"
        if head.sure
        else "label: under rematted_computation; that the operands are the same is not shown"
    )
    return f"{head.first.name} runs again{where}: {later}, after {earlier}; {why}"


def _named(runs: Sequence[Run]) -> str:
    """`fa_fwd.2 (8x a step)`, or `fa_fwd.2 and 31 more (32x a step)`."""
    more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
    times = _times(runs)
    return f"{runs[0].call.name}{more}" + ("" if times is None else f" ({times}x a step)")


def _times(runs: Iterable[Run]) -> int | None:
    """How often they run in a step; None where that of one is not known."""
    counts = [run.executions for run in runs]
    return None if None in counts else sum(count for count in counts if count is not None)
