"""What is said of a program's lowerings, before it is laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlo_lens.facts import Cell, Facts, Finding
from hlo_lens.lowering.answers import answers, bounded, in_kernel, listed
from hlo_lens.lowering.tables import (
    ATTENTION,
    DUPLICATES,
    EXPERTS,
    MATMULS,
    RAGGED,
    TABLES,
    Lowered,
    Record,
    Rows,
    known,
)
from hlo_lens.present.cells import number_of
from hlo_lens.present.groups import Group
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import (
    UNKNOWN,
    bytes_text,
    count_text,
    executions_text,
    flops_text,
    visible,
)
from hlo_lens.present.reading import findings_of
from hlo_lens.present.report import Section, without_unknown


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said; see `present.report.Report`. `answers` are the sentences of the head that
    say what each kind of work became."""

    name: str
    place: str
    head: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    answers: tuple[tuple[str, str], ...]
    lowered: Lowered


def lowering_report(facts: Facts) -> Report:
    """The lowerings of the module that runs; of a table that cannot be read it says so."""
    found = Lowered(facts)
    said = tuple(answers(found))
    sections = (
        _ragged(found), _attention(found), _experts(found), _matmuls(found), _stages(found),
        _duplicates(found),
    )  # fmt: skip
    program = facts.program
    return Report(
        visible(program.name),
        visible(program.main.filename or ""),
        (*_head(found), *said),
        tuple(one for one in sections if one is not None and one.lines),
        tuple(
            finding
            for finding in findings_of(facts, TABLES)
            if finding.module in (None, found.module)
        ),
        said,
        found,
    )


def _head(found: Lowered) -> Iterator[tuple[str, str]]:
    program = found.facts.program
    if len(program.modules) > 1:
        yield "stage", f"{program.stages[found.module]}; --stage chooses another"
    if program.main.truncated:
        yield "text", "cut off; what follows is of the part that is there"
    about = found.facts.records("modules")[found.module]
    if about.get("has_metadata") is False:
        yield (
            "phase",
            "not known: the text has no op_names"
            ' (lowered.as_text("hlo", debug_info=True) keeps them)',
        )


# ---------------------------------------------------------------------------------- ragged dots

_PLACE: Final = (Cell("phase"), Cell("loop"))


def _ragged(found: Lowered) -> Section | None:
    rows = found.rows(RAGGED)
    # Of a forward, dgrad or wgrad the variant is known from that.
    variant = [Cell("variant")] if any(one["class"] is None for one in rows.records()) else []
    turned = any(one.get("direction") not in (None, one["class"]) for one in rows.records())
    direction = [Cell("direction", "computes")] if turned else []
    by = (
        *direction, Cell("class"), Cell("role"), Cell("projection"), *variant, Cell("lowering"),
        Cell("backend"), *_PLACE, Cell("g{groups} m{m} n{n} k{k}", "sizes"),
        Cell("split_k", "split-K"), Cell("why_not_grouped"),
    )  # fmt: skip
    headings = ("dots", "runs", "useful FLOP", "factor", "extra")

    def numbers(group: Group) -> tuple[str, ...]:
        return (
            count_text(len(group.rows)),
            executions_text(rows.runs(group.rows), None),
            bounded(rows.per_step("useful_flops", group.rows), flops_text),
            _each(rows, group, "factor", "×{:.3g}"),
            bounded(rows.per_step("extra_bytes", group.rows), bytes_text),
        )

    return _grouped(
        found, rows, "ragged dots", "useful FLOP and extra bytes are of a step",
        by, headings, numbers, below=("why_not_grouped", "why not grouped: "),
    )  # fmt: skip


# ---------------------------------------------------------------------------------- attention


def _attention(found: Lowered) -> Section | None:
    rows = found.rows(ATTENTION)
    by = (
        Cell("route"), Cell("direction"), *_PLACE, Cell("recomputed", "again"), Cell("kernel"),
        Cell("score_shape", "scores"),
    )  # fmt: skip
    headings = ("sites", "runs", "in memory", "written", "FLOP", "workspace")

    def numbers(group: Group) -> tuple[str, ...]:
        return (
            count_text(len(group.rows)),
            executions_text(rows.runs(group.rows), None),
            _each(rows, group, "score_values", "{}"),
            _each(rows, group, "score_written_bytes", bytes_text),
            bounded(rows.per_step("flops", group.rows), flops_text),
            _each(rows, group, "workspace_bytes", bytes_text),
        )

    def details(group: Group) -> str:
        return " · ".join(dict.fromkeys(map(_site_text, rows.records(group.rows))))

    return _grouped(
        found, rows, "attention", "in memory: how many arrays of scores are written; written: all"
        f" of them, in one run; FLOP of a step, {_whose_flops(rows.records())}",
        by, headings, numbers, details=details,
    )  # fmt: skip


def _whose_flops(sites: Sequence[Record]) -> str:
    """Whether the matmuls have the FLOP of attention, too."""
    kernels = sum(map(in_kernel, sites))
    if not kernels:
        return "which the matmuls have too"
    if kernels == len(sites):
        return "which the matmuls do not have"
    return "of which the matmuls have those of exposed sites alone"


def _site_text(one: Record) -> str:
    """`causal, window 128, b1 h8 kv2 q128 kv128 d64, fell back`."""
    parts = []
    if one.get("causal") is not None:
        parts.append("causal" if one["causal"] else "not causal")
    elif in_kernel(one):
        parts.append("mask not told")
    if one.get("window"):
        parts.append(f"window {one['window']}")
    sizes = [("batch", "batch"), ("heads", "heads"), ("kv_heads", "KV heads"),
             ("q_length", "queries"), ("kv_length", "keys"), ("head_dim", "head size")]  # fmt: skip
    parts += [f"{word} {one[name]}" for name, word in sizes if one.get(name) is not None]
    if one.get("softmax_dtype") is not None:
        parts.append(f"softmax in {one['softmax_dtype']}")
    if one.get("fell_back"):
        parts.append("fell back: others here are fused")
    return visible(", ".join(parts))


# ---------------------------------------------------------------------------------- experts


def _experts(found: Lowered) -> Section | None:
    rows = found.rows(EXPERTS)
    by = (
        Cell("path"), *_PLACE, Cell("experts"), Cell("top_k", "top-k"), Cell("capacity"),
        Cell("tokens"), Cell("shared_experts", "shared"), Cell("drops"),
        Cell("balance", "heavier"),
    )  # fmt: skip
    headings = ("blocks", "runs", "routing", "all-to-all", "GEMM FLOP")

    def numbers(group: Group) -> tuple[str, ...]:
        return (
            count_text(len(group.rows)),
            executions_text(rows.runs(group.rows), None),
            bounded(rows.per_step("routing_bytes", group.rows), bytes_text),
            bounded(rows.per_step("all_to_all_bytes", group.rows), bytes_text),
            bounded(rows.per_step("gemm_flops", group.rows), flops_text),
        )

    section = _grouped(
        found, rows, "expert blocks", "bytes and FLOP are of a step", by, headings, numbers
    )
    if section is None or not any(map(_lacks_device, rows.records())):
        return section
    note = "no device spec tells which is heavier; --spec names the device"
    return replace(section, notes=(*section.notes, note))


def _lacks_device(one: Record) -> bool:
    """All is known that the estimate takes, but the device."""
    sizes = ("routing_bytes", "all_to_all_bytes", "gemm_flops")
    return one["balance"] is None and all(one.get(name) is not None for name in sizes)


# ---------------------------------------------------------------------------------- matmuls


def _matmuls(found: Lowered) -> Section | None:
    rows = found.rows(MATMULS)
    by = (
        Cell("phase"), Cell("form"), Cell("backend"), Cell("ragged"),
        Cell("{lhs_dtype}×{rhs_dtype}→{out_dtype}", "dtypes", merged=True),
    )  # fmt: skip
    total = rows.per_step("flops")

    def numbers(group: Group) -> tuple[str, ...]:
        part = rows.per_step("flops", group.rows)
        exact = part is not None and total is not None and part.is_exact and total.is_exact
        share = f"{part.low / total.low:.0%}" if exact and total.low else UNKNOWN  # type: ignore[union-attr]
        return (
            count_text(len(group.rows)),
            executions_text(rows.runs(group.rows), None),
            bounded(part, flops_text),
            share,
        )

    def details(group: Group) -> str:
        return " · ".join(_odd(rows.records(group.rows)))

    return _grouped(
        found, rows, "matmuls", "FLOP of a step, 2·batch·m·n·k",
        by, ("matmuls", "runs", "FLOP", "share"), numbers, details=details,
    )  # fmt: skip


def _odd(records: Sequence[Record]) -> Iterator[str]:
    """What stands around the matmuls of a group, and how they add up."""
    for column, word in (
        ("dequantized", "fp8 made wide in front: {}"), ("converts", "converts {}"),
        ("accumulate_dtype", "accumulates in {}"), ("operand_precision", "precision {}"),
        ("epilogue", "epilogue {}"), ("split_k", "split-K {}"),
    ):  # fmt: skip
        found = Counter(
            str(one[column])
            for one in records
            if one.get(column) not in (None, "default", "default,default", "DEFAULT", 1)
        )
        for text, n in found.most_common(_MOST):
            yield visible(word.format(text)) + (f" ×{n}" if n > 1 else "")
        if len(found) > _MOST:
            left = len(found) - _MOST
            yield f"{left} other kind{'s' * (left > 1)} of {column.replace('_', ' ')}"


_MOST: Final = 3  # of what stands around matmuls that is listed


# ---------------------------------------------------------------------------------- stages

# What a kind of work is told apart by, and what it is called, in a text before and after.
_KINDS: Final = (
    (RAGGED, "ragged dots", ("lowering",)),
    (ATTENTION, "attention", ("route",)),
    (EXPERTS, "expert blocks", ("path",)),
    (MATMULS, "matmuls", ("backend", "form")),
)


def _stages(found: Lowered) -> Section | None:
    """What each kind of work is in the first stage, and what it became."""
    if found.before is None:
        return None
    lines = []
    for name, word, columns in _KINDS:
        sides = [
            listed(_kind_text(one, columns) for one in found.rows(name, module).records())
            for module in (found.before, found.module)
        ]
        if any(sides):
            lines.append((word, *(side or "none" for side in sides)))
    stages = [found.facts.program.stages[at] for at in (found.before, found.module)]
    return Section(
        "before and after", "as the texts write them, loops and calls once",
        (Column(""), *(Column(visible(stage)) for stage in stages)), tuple(lines),
    )  # fmt: skip


def _kind_text(one: Record, columns: Sequence[str]) -> str:
    """`fwd tpu_native` of a ragged dot and attention; the first column that says something."""
    return next((str(one[name]) for name in columns if one.get(name) is not None), "not known")


# ---------------------------------------------------------------------------------- duplicates


def _duplicates(found: Lowered) -> Section | None:
    rows = found.rows(DUPLICATES)
    by = (Cell("kind"), Cell("form"), Cell("phases"), Cell("loop"), Cell("value"))
    headings = ("groups", "instructions", "kernels", "bytes")

    def numbers(group: Group) -> tuple[str, ...]:
        records = rows.records(group.rows)
        sizes = [one["bytes"] for one in records if isinstance(one["bytes"], int)]
        return (
            count_text(len(records)),
            count_text(sum(number_of(one["count"]) for one in records)),
            count_text(sum(number_of(one["kernels"]) for one in records)),
            bytes_text(sum(sizes)) if len(sizes) == len(records) else UNKNOWN,
        )

    return _grouped(
        found, rows, "computed in several kernels", "bytes of a step", by, headings, numbers
    )


# ---------------------------------------------------------------------------------- layout


def _grouped(
    found: Lowered,
    rows: Rows,
    title: str,
    about: str,
    by: Sequence[Cell],
    headings: Sequence[str],
    numbers: Callable[[Group], tuple[str, ...]],
    *,
    details: Callable[[Group], str] | None = None,
    below: tuple[str, str] | None = None,
) -> Section | None:
    """The rows in groups; `below` is a column of `by`, and the words in front of it, that stands
    under a line instead of in it."""
    if rows.table is None or not rows:
        return None
    cells = known(rows.table, by)
    groups = rows.groups(found.cells, by)
    under = next((at for at, cell in enumerate(cells) if below and cell.text == below[0]), None)
    lines, notes = [], []
    for group in groups:
        keys = [key for at, key in enumerate(group.keys) if at != under]
        lines.append((*keys, *numbers(group)))
        text = details(group) if details else ""
        if under is not None and below is not None and group.keys[under] != UNKNOWN:
            text = below[1] + group.keys[under]
        notes.append(text)
    columns = [
        Column(cell.heading, spare=cell.heading in _SPARE)
        for at, cell in enumerate(cells)
        if at != under
    ]
    columns += [Column(heading, right=True, spare=heading in _SPARE) for heading in headings]
    once = notes[0] if len(notes) > 1 and len(set(notes)) == 1 else ""
    section = Section(
        title,
        about,
        tuple(columns),
        tuple(lines),
        below=() if once else tuple(notes),
        notes=(once,) if once else (),
    )
    return without_unknown(section, keep=("phase",))


# Columns that are left out where there is no room for all: JSON and wider terminals have them.
_SPARE: Final = frozenset(
    ("backend", "loop", "sizes", "split-K", "useful FLOP", "kernel", "workspace", "share", "tokens",
     "shared", "all-to-all", "phases")
)  # fmt: skip


def _each(rows: Rows, group: Group, column: str, text: str | Callable[[int], str]) -> str:
    """The value of the rows, or its range where they differ."""
    values = sorted(
        one[column]  # type: ignore[type-var]
        for one in rows.records(group.rows)
        if isinstance(one.get(column), (int, float))
    )
    if not values:
        return UNKNOWN
    shown = [text.format(one) if isinstance(text, str) else text(one) for one in values]  # type: ignore[arg-type]
    return shown[0] if shown[0] == shown[-1] else f"{shown[0]} – {shown[-1]}"
