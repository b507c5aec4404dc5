"""The joint verdict on a pair of policies: fewer residual bytes, more work, a lower peak.

One of them proves little: more operations in the text do not show that memory is saved, and fewer
bytes kept do not show that they are computed again. Each is answered by itself, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.facts import Facts
from hlo_lens.facts.findings import PASS_FAILED
from hlo_lens.present.quantities import bytes_text, count_text, flops_text
from hlo_lens.program import AFTER, BEFORE, Program

Record = dict[str, object]

SIDES: Final = ("baseline", "policy")
MEMORY: Final = "memory_analysis.json"


class NoAnswerError(ValueError):
    """There is nothing to answer from: no stage that both have, or a pass that failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes, no, or None where it is not known; and the numbers or the reason, as a clause."""

    yes: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class StagePair:
    """A stage of both programs: the positions of its modules, and their rows of the tables
    checkpointing (baseline, policy) and modules (about)."""

    name: str
    at: tuple[int, int]
    baseline: Record
    policy: Record
    about: tuple[Record, Record]

    @property
    def rows(self) -> tuple[Record, Record]:
        return self.baseline, self.policy


@dataclass(frozen=True, slots=True)
class Joint:
    """A policy against a baseline; `stages` in the order of a compile, the last is the one that
    runs.

    smaller: whether the forward keeps fewer bytes on the device. replayed: whether the policy
    computes more again. lower: whether the peak is lower. notes: what a reader must know besides.
    """

    baseline: Facts
    policy: Facts
    stages: tuple[StagePair, ...]
    smaller: Answer
    replayed: Answer
    lower: Answer
    notes: tuple[str, ...]

    @property
    def answers(self) -> tuple[Answer, Answer, Answer]:
        return self.smaller, self.replayed, self.lower

    @property
    def holds(self) -> bool | None:
        """Whether the policy does what it is for: all three; None where that is not known."""
        told = [answer.yes for answer in self.answers]
        if False in told:
            return False
        return None if None in told else True


def compare(baseline: Program | Facts, policy: Program | Facts) -> Joint:
    """The joint verdict on `policy` against `baseline`, usually the program without a checkpoint.

    Raises `NoAnswerError` where they have no stage in common, or a pass failed.
    """
    sides = _facts(baseline), _facts(policy)
    stages = _stages(*sides)
    reason = _not_alike(stages[-1])
    if reason is not None:
        unknown = Answer(None, reason)
        return Joint(*sides, stages, unknown, unknown, unknown, ())
    smaller, replayed = _smaller(stages), _replayed(stages)
    lower = _lower(stages[-1], *(facts.program for facts in sides))
    return Joint(
        *sides, stages, smaller, replayed, lower, tuple(_notes(sides, stages, smaller, replayed))
    )


def _facts(given: Program | Facts) -> Facts:
    return given if isinstance(given, Facts) else Facts(given)


def row_of(facts: Facts, module: int) -> Record:
    """The row of a module in the table checkpointing.

    Raises `NoAnswerError` where there is none, because a pass failed.
    """
    for row in facts.records("checkpointing"):
        if row["module"] == module:
            return row
    failed = next((one.message for one in facts.findings if one.rule == PASS_FAILED.id), "")
    raise NoAnswerError(failed or "the table checkpointing is empty")


def _stages(baseline: Facts, policy: Facts) -> tuple[StagePair, ...]:
    """The stages that both have: sizes and replays are those of a stage."""
    old, new = baseline.program.stages, policy.program.stages
    common = [name for name in dict.fromkeys(old) if name in new]
    if not common:
        raise NoAnswerError(
            f"no stage in common: the baseline has {', '.join(old)}; the policy has"
            f" {', '.join(new)} (--stage says what a single file is)"
        )
    places = [(name, old.index(name), new.index(name)) for name in common]
    about = baseline.records("modules"), policy.records("modules")
    return tuple(
        StagePair(
            name,
            (at, to),
            row_of(baseline, at),
            row_of(policy, to),
            (about[0][at], about[1][to]),
        )
        for name, at, to in places
    )


_SCOPES: Final[dict[object, str]] = {"global": "global", "device": "of one device"}


def _not_alike(stage: StagePair) -> str | None:
    """Why the sizes of the two cannot be compared; None where they can."""
    old, new = stage.about
    if None not in (old["platform"], new["platform"]) and old["platform"] != new["platform"]:
        return f"they are compiled for {old['platform']} and for {new['platform']}"
    parts = [row["num_partitions"] or 1 for row in stage.about]
    if parts[0] != parts[1]:
        return f"they are partitioned for {parts[0]} and for {parts[1]} devices"
    scopes = [_SCOPES.get(row["size_scope"]) for row in stage.about]
    if None not in scopes and scopes[0] != scopes[1]:
        return f"shapes are {scopes[0]} in the baseline, {scopes[1]} in the policy"
    return None


# ---------------------------------------------------------------------------------- kept


def _smaller(stages: Sequence[StagePair]) -> Answer:
    """In the stage that runs; where that does not tell, in the last one before it that does,
    unless the compiler undid a replay since: what is not computed again is kept."""
    last = _smaller_in(stages[-1])
    if last.yes is not None:
        return last
    for stage in reversed(stages[:-1]):
        answer = _smaller_in(stage)
        if answer.yes is None:
            continue
        why = f"{answer.why} in {stage.name}"
        if any(row["undone_operations"] for row in stages[-1].rows):
            return Answer(None, f"{why}, but the compiler undid replays since")
        return Answer(answer.yes, why)
    return last


def _smaller_in(stage: StagePair) -> Answer:
    for name, row, about in zip(SIDES, stage.rows, stage.about, strict=True):
        if row["saved_bytes"] is None:
            return Answer(None, f"what the {name} keeps is not known: {_unseen(row, about)}")
    if stage.baseline["saved_exact"] and stage.policy["saved_exact"]:
        return _less(stage, "saved_bytes")
    if stage.baseline["stacked_bytes"] and stage.policy["stacked_bytes"]:
        answer = _less(stage, "stacked_bytes")
        return Answer(answer.yes, f"{answer.why} in the stacks of loops")
    return next(
        Answer(None, f"{name}: {inexact(stage.name, about)}")
        for name, row, about in zip(SIDES, stage.rows, stage.about, strict=True)
        if not row["saved_exact"]
    )


def inexact(stage: str, about: Record) -> str:
    """Why the residuals of a module, whose row of modules is `about`, are not exact."""
    if about["truncated"]:
        return "the text is cut off"
    if not about["has_metadata"]:
        return "without op_names, only what loops stack is seen"
    if stage == AFTER:
        return "outside of loops, results of fusions stand for what is kept"
    return "functions called outside of loops may keep more"


def _unseen(row: Record, about: Record) -> str:
    if about["truncated"]:
        return "the text is cut off"
    if not about["has_metadata"]:
        return "the text has no op_names"
    return "a size is not known" if row["saved_values"] else "nothing of it is seen in the text"


def _less(stage: StagePair, column: str) -> Answer:
    """Whether a number of bytes, known on both sides, is less in the policy."""
    old, new = (_int(row[column]) for row in stage.rows)
    if old == new:
        return Answer(False, f"{bytes_text(old)} both")
    return Answer(new < old, f"{bytes_text(old)} → {bytes_text(new)}")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


# ---------------------------------------------------------------------------------- replayed

HEAVY: Final = ("matmul", "kernel", "collective")


def _replayed(stages: Sequence[StagePair]) -> Answer:
    """Whether the policy computes more again than the baseline, in the stage that runs: FLOP of
    matmuls, else kernels and collectives, else cheap operations."""
    last = stages[-1]
    for name, row, about in zip(SIDES, last.rows, last.about, strict=True):
        if row["replayed_operations"] is None:
            return Answer(None, f"what the {name} replays is not known: {_unseen(row, about)}")
    why = work_text(last.policy)
    if last.baseline["replayed_operations"]:
        why += f"; the baseline {work_text(last.baseline)}"
    if undone := last.policy["undone_operations"]:
        why += f"; the compiler undid {counted('replay', undone)}"
    for old, new in zip(*map(_amounts, last.rows), strict=True):
        if old != new and None not in (old, new):
            return Answer(_int(new) > _int(old), why)
    old, new = (_int(row["duplicated_operations"]) for row in last.rows)
    if new <= old or undone:
        return Answer(False, why)
    # A fusion that computes a cheap value again may do so without a checkpoint, too.
    copies = f"{counted('cheap operation', new)} in fusions, as copies"
    first = stages[0]
    if first.name == BEFORE and first is not last:
        amounts = list(zip(*map(_amounts, first.rows), strict=True))
        if None not in amounts[-1] and _int(amounts[-1][1]) > _int(amounts[-1][0]):
            return Answer(True, f"{work_text(first.policy)} before optimization; after it {copies}")
    return Answer(None, f"{copies}, which may be there without a checkpoint")


def _amounts(row: Record) -> tuple[object, ...]:
    """What is replayed, the dearest first."""
    heavy = [row[f"replayed_{work}s"] for work in HEAVY]
    known = [count for count in heavy if isinstance(count, int)]
    return row["replayed_flops"], sum(known), row["replayed_operations"]


def work_text(row: Record) -> str:
    """What is replayed: "1 matmul, 11 collectives, 8.4 MFLOP, 1.00 of the forward's"."""
    told = [counted(work, row[f"replayed_{work}s"]) for work in HEAVY if row[f"replayed_{work}s"]]
    if not told:
        cheap = row["replayed_operations"]
        return f"{counted('cheap operation', cheap)} and no other" if cheap else "nothing"
    flops, factor = row["replayed_flops"], row["recompute_factor"]
    if row["replayed_matmuls"]:
        told.append("FLOP not known" if not isinstance(flops, int) else flops_text(flops))
    if isinstance(factor, float) and flops:
        told.append(f"{factor:.2f} of the forward's")
    return ", ".join(told)


def counted(what: str, count: object) -> str:
    """ "1 matmul", "2 matmuls"."""
    number = _int(count)
    return f"{count_text(number)} {what}{'' if number == 1 else 's'}"


# ---------------------------------------------------------------------------------- the peak


def _lower(stage: StagePair, *programs: Program) -> Answer:
    if stage.name != AFTER:
        return Answer(None, f"{MEMORY} is of the program after optimization, which is not compared")
    files = [program.side_files.get(MEMORY) for program in programs]
    missing = [name for name, file in zip(SIDES, files, strict=True) if file is None]
    if missing:
        return Answer(None, f"no {MEMORY} beside the {' and the '.join(missing)}")
    texts = [program.modules[at].filename for program, at in zip(programs, stage.at, strict=True)]
    if files[0] == files[1] and texts[0] != texts[1]:
        return Answer(None, f"both lie beside one {MEMORY}, which is of one of them at most")
    for name, row in zip(SIDES, stage.rows, strict=True):
        if row["peak_bytes"] is None:
            return Answer(None, f"{MEMORY} of the {name} has no peak")
    old, new = stage.rows
    if old["peak_from"] != new["peak_from"]:
        return Answer(None, f"one is of {old['peak_from']}, the other of {new['peak_from']}")
    answer = _less(stage, "peak_bytes")
    if not answer.yes and old["temp_bytes"] == new["temp_bytes"] == 0:
        why = "no temporary lies in HBM, so that this says little of it"
        return Answer(answer.yes, f"{answer.why}; {why}")
    return answer


# ---------------------------------------------------------------------------------- notes


def _notes(
    sides: tuple[Facts, Facts], stages: Sequence[StagePair], smaller: Answer, replayed: Answer
) -> Iterator[str]:
    texts = [
        [facts.program.modules[stage.at[side]].text for stage in stages]
        for side, facts in enumerate(sides)
    ]
    if texts[0] == texts[1]:
        yield "both are the same program"
    common = [stage.name for stage in stages]
    for name, facts in zip(SIDES, sides, strict=True):
        if alone := [stage for stage in facts.program.stages if stage not in common]:
            yield f"the {name} alone has {', '.join(alone)}"
    old, new = (row["replayed_operations"] for row in stages[-1].rows)
    if smaller.yes is replayed.yes is False and _int(new) < _int(old):
        yield "the policy keeps no less and replays less; the baseline stands first: is it swapped?"
    first = stages[0]
    forward = [row["forward_flops"] for row in first.rows]
    if first.name == BEFORE and None not in forward and forward[0] != forward[1]:
        flops = " and ".join(flops_text(_int(each)) for each in forward)
        yield f"the forwards differ, {flops} of matmuls before optimization: are they one model?"
