"""What is said of one program or a pair, before it is laid out: answers, sections, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hlo_lens.facts import Facts, Finding
from hlo_lens.present import reading
from hlo_lens.present.cells import Cells
from hlo_lens.present.groups import grouped
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, bytes_text, count_text, flops_text, visible
from hlo_lens.present.reading import place_of
from hlo_lens.present.report import Section, without_unknown
from hlo_lens.remat.joint import (
    HEAVY,
    SIDES,
    Answer,
    Joint,
    Record,
    StagePair,
    counted,
    inexact,
    row_of,
    work_text,
)

_KEPT = ("stacked", "barrier", "direct", "copy_of_input")
_OWNERS = ("remat", "residuals")
_WORDS = {True: "yes", False: "no", None: "not known"}


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, and whose: "" where there is one program."""

    finding: Finding
    side: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said. headline: a word and what follows it; good: what the word says, None for
    not known or no answer. programs: what each side is called, and its name and file."""

    headline: tuple[str, str]
    good: bool | None
    programs: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, Answer], ...]
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    findings: tuple[Told, ...]


# ---------------------------------------------------------------------------------- a pair


def joint_report(joint: Joint) -> Report:
    """What there is to say about a pair; the stage that runs stands first."""
    told = [
        ("residuals smaller", joint.smaller),
        ("work replayed", joint.replayed),
        ("peak lower", joint.lower),
    ]
    sides = list(zip(SIDES, (joint.baseline, joint.policy), strict=True))
    return Report(
        _headline(joint),
        joint.holds,
        tuple(
            (name, place_of(facts.program, [stage.at[at] for stage in joint.stages]))
            for at, (name, facts) in enumerate(sides)
        ),
        tuple(told),
        joint.notes,
        tuple(map(_numbers, reversed(joint.stages))),
        tuple(Told(finding, name) for name, facts in sides for finding in findings_of(facts)),
    )


_CLAUSES = (
    ("residuals are smaller", "residuals are not smaller"),
    ("more work is replayed", "no more work is replayed"),
    ("the peak is lower", "the peak is not lower"),
)


def _headline(joint: Joint) -> tuple[str, str]:
    told = list(zip(_CLAUSES, joint.answers, strict=True))
    if joint.holds:
        rest = _and([yes for (yes, _), _ in told])
        warned = [one.rule for one in findings_of(joint.policy) if one.level != "note"]
        return "holds", f"{rest}; but {', '.join(dict.fromkeys(warned))}" if warned else rest
    unknown = [yes for (yes, _), answer in told if answer.yes is None]
    if joint.holds is None:
        return "not known", f"whether {_and(unknown)}"
    rest = _and([no for (_, no), answer in told if answer.yes is False])
    return "does not hold", f"{rest}; not known whether {_and(unknown)}" if unknown else rest


def _and(clauses: Sequence[str]) -> str:
    *others, last = clauses
    return f"{', '.join(others)} and {last}" if others else last


def answer_word(answer: Answer) -> str:
    """ "yes", "no" or "not known"."""
    return _WORDS[answer.yes]


# What is compared: its group, its label, the column, and whether 0 on both sides is left out.
_ROWS = (
    ("residuals", "values", "saved_values", False),
    ("residuals", "bytes", "saved_bytes", False),
    ("residuals", "of these stacked", "stacked_bytes", True),
    ("residuals", "on the host", "offloaded_bytes", True),
    ("residuals", "copies of inputs", "copied_input_bytes", True),
    ("replayed", "operations", "replayed_operations", False),
    ("replayed", "matmuls", "replayed_matmuls", False),
    ("replayed", "kernels", "replayed_kernels", True),
    ("replayed", "collectives", "replayed_collectives", True),
    ("replayed", "FLOP", "replayed_flops", False),
    ("replayed", "of the forward", "recompute_factor", False),
    ("replayed", "copies in fusions", "duplicated_operations", True),
    ("replayed", "undone", "undone_operations", True),
    ("memory", "peak", "peak_bytes", True),
    ("memory", "temporaries", "temp_bytes", True),
)


def _numbers(stage: StagePair) -> Section:
    """The numbers of one stage side by side."""
    lines: list[tuple[str, ...]] = []
    above = ""
    for group, label, column, sparse in _ROWS:
        old, new = (row[column] for row in stage.rows)
        if sparse and not old and not new:
            continue
        texts = [_number_text(column, value) for value in (old, new)]
        lines.append(("" if group == above else group, label, *texts, *_change(column, old, new)))
        above = group
    scopes = {row["size_scope"] for row in stage.about} - {None}
    about = f"{scopes.pop()} shapes" if len(scopes) == 1 else ""
    right = [Column(heading, right=True) for heading in (*SIDES, "change", "")]
    reasons: dict[str, list[str]] = {}
    for name, row, module in zip(SIDES, stage.rows, stage.about, strict=True):
        if not row["saved_exact"]:
            reasons.setdefault(inexact(stage.name, module), []).append(name)
    notes = [f"{_and(names)}: {reason}" for reason, names in reasons.items()]
    return Section(
        stage.name, about, (Column(""), Column(""), *right), tuple(lines), notes=tuple(notes)
    )


def _number_text(column: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if not isinstance(value, int):
        return UNKNOWN
    if column.endswith("_bytes"):
        return bytes_text(value)
    return flops_text(value) if column.endswith("_flops") else count_text(value)


def _change(column: str, old: object, new: object) -> tuple[str, str]:
    """The difference, and its share of the old number; "" where there is none."""
    if not isinstance(old, (int, float)) or not isinstance(new, (int, float)) or old == new:
        return "", ""
    sign = "+" if new > old else "−"
    share = f"{sign}{abs(new - old) / old:.0%}" if old else ""
    return f"{sign}{_number_text(column, abs(new - old))}", share


# ---------------------------------------------------------------------------------- one program


def program_report(facts: Facts) -> Report:
    """What one program keeps and replays, in the stage that runs.

    Raises `NoAnswerError` where a pass failed.
    """
    program = facts.program
    main = program.index(program.main)
    row = row_of(facts, main)
    notes = []
    if len(program.modules) > 1:
        notes.append(f"what follows is of {program.stages[main]}; --stage chooses another")
    return Report(
        _sentence(row),
        None,
        (("", place_of(program, range(len(program.modules)))),),
        (),
        tuple(notes),
        (_kept(facts, main, row), *_regions(facts, main, row)),
        tuple(map(Told, findings_of(facts))),
    )


def _sentence(row: Record) -> tuple[str, str]:
    """The first word, and the rest: what it keeps, replays and takes."""
    values, size = row["saved_values"], row["saved_bytes"]
    kept = "what is not known"
    if isinstance(values, int):
        about = "" if row["saved_exact"] else "about "
        kept = f"{about}{_sized(size)} in {counted('value', values)}"
    known = row["replayed_operations"] is not None
    told = [kept, f"replays {work_text(row) if known else 'what is not known'}"]
    if row["copied_input_bytes"]:
        told[0] += f", and copies of inputs of {_sized(row['copied_input_bytes'])}"
    if row["offloaded_bytes"]:
        told[0] += f", and {_sized(row['offloaded_bytes'])} on the host"
    if undone := row["undone_operations"]:
        told.append(f"the compiler undid {counted('replay', undone)}")
    if row["peak_bytes"] is not None:
        told.append(f"peak {_sized(row['peak_bytes'])}")
    return "keeps", "; ".join(told)


def _sized(size: object) -> str:
    return bytes_text(size if isinstance(size, int) else None)


def kept_rows(facts: Facts, module: int) -> list[tuple[object, ...]]:
    """The residuals of a module, without what no backward reads and what is made in a replay."""
    table = facts.table("residuals")
    at, kind, phase = (table.position(name) for name in ("module", "kind", "phase"))
    return [
        row
        for row in facts.rows(table.name)
        if row[at] == module and row[kind] in _KEPT and row[phase] != "remat"
    ]


def _kept(facts: Facts, module: int, row: Record) -> Section:
    """The residuals in the groups of a report."""
    table = facts.table("residuals")
    assert table.summary is not None
    rows = kept_rows(facts, module)
    groups = grouped(Cells(facts.program), table, table.summary, rows)
    columns = [Column(cell.heading) for cell in table.summary.by]
    columns += [Column(measure.label, right=True) for measure in table.summary.measures]
    lines = [(*group.keys, *group.measures) for group in groups]
    notes = [] if lines else ["nothing is seen to be kept for the backward"]
    if not row["saved_exact"]:
        about = facts.records("modules")[module]
        notes.append(inexact(facts.program.stages[module], about))
    section = Section("kept for the backward", "", tuple(columns), tuple(lines), notes=tuple(notes))
    return without_unknown(section)


_OPERATIONS = (
    Column("work"),
    Column("instruction"),
    Column("repeats"),
    Column("runs", right=True),
    Column("FLOP", right=True),
)


def _regions(facts: Facts, module: int, row: Record) -> Iterator[Section]:
    regions = [each for each in facts.records("remat") if each["module"] == module]
    operations: dict[object, list[Record]] = {}
    for each in facts.records("remat_ops"):
        if each["module"] == module:
            operations.setdefault(each["region"], []).append(each)
    if not regions:
        known = row["replayed_operations"] is not None
        why = "no instruction is labelled so" if known else "the text does not tell"
        yield Section("replayed", notes=(f"nothing: {why}" if known else why,))
    loops = Cells(facts.program).loops(module)
    for region in regions:
        loop = region["loop"]
        place = f"in {loops.text(loop)}" if isinstance(loop, int) else ""
        kind = "" if region["kind"] == "framework" else f"({region['kind']})"
        about = " ".join(filter(None, (kind, str(region["scope"] or ""), place)))
        yield _region(region, visible(about), operations.get(region["id"], []))


def _region(region: Record, about: str, operations: Sequence[Record]) -> Section:
    heavy = sorted(
        (one for one in operations if one["work"] and one["verdict"] == "replayed"),
        key=lambda one: HEAVY.index(str(one["work"])),
    )
    lines = [
        (
            str(one["work"]),
            visible(str(one["name"])),
            UNKNOWN if one["twin_name"] is None else visible(str(one["twin_name"])),
            _number_text("runs", one["times"]),
            _flops_of(one) if one["work"] == "matmul" else "",
        )
        for one in heavy
    ]
    columns = _OPERATIONS if any(line[-1] for line in lines) else _OPERATIONS[:-1]
    shown = {one["id"] for one in heavy}
    notes = list(_cheap(one for one in operations if one["id"] not in shown))
    if region["verdict"] == "undone":
        notes.append(visible(str(region["evidence"])))
    return Section(
        str(region["verdict"]),
        about,
        columns if lines else (),
        tuple(line[: len(columns)] for line in lines),
        notes=tuple(notes),
    )


def _flops_of(one: Record) -> str:
    flops, times = one["flops"], one["times"]
    known = isinstance(flops, int) and isinstance(times, int)
    return flops_text(flops * times) if known else UNKNOWN  # type: ignore[operator]


def _cheap(operations: Iterable[Record]) -> Iterator[str]:
    """The rest of a region: by verdict, how many of what."""
    verdicts: dict[str, Counter[str]] = {}
    for one in operations:
        verdicts.setdefault(str(one["verdict"]), Counter())[str(one["opcode"])] += 1
    for verdict, opcodes in verdicts.items():
        listed = [f"{name} ×{n}" if n > 1 else name for name, n in opcodes.most_common(_OPCODES)]
        left = sum(opcodes.values()) - sum(n for _, n in opcodes.most_common(_OPCODES))
        listed += [f"{count_text(left)} more"] if left else []
        yield f"{verdict}: {visible(', '.join(listed))}"


_OPCODES = 6  # that are named of what is cheap


# ---------------------------------------------------------------------------------- findings


def findings_of(facts: Facts) -> list[Finding]:
    """What the passes about residuals and remat have to say, the gravest first."""
    return reading.findings_of(facts, _OWNERS)
