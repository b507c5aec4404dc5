"""What is said of a program's collectives, before it is laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.collectives.chosen import BY_DEFAULT, Filters, keys_named
from hlo_lens.collectives.rows import (
    COLLECTIVES,
    COSTS,
    HIDING,
    NOTHING,
    Joined,
    Record,
    Sums,
    by_array,
    compute,
    joined,
    step_bytes,
    step_time,
    time_text,
)
from hlo_lens.facts import Cell, Facts, Finding, Pass, Summary, Table
from hlo_lens.present.cells import Row
from hlo_lens.present.groups import grouped
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import (
    UNKNOWN,
    Bounds,
    bytes_text,
    count_text,
    executions_text,
    visible,
)
from hlo_lens.present.reading import gravest_first
from hlo_lens.present.report import Section

_WORDS: Final = {"nothing": "nothing", "light": "light work", "heavy": "heavy work", None: UNKNOWN}
_FROM: Final = {
    "user": "as asked", "side_file": "provenance.json", "platform": "by the file name of the dump",
}  # fmt: skip
_RINGS: Final = "what one device sends, in a ring"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that agree on what they are grouped by: its texts, its values, the sums."""

    keys: tuple[str, ...]
    values: tuple[object, ...]
    sums: Sums


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said. `head` has pairs of a word and a sentence under the program's name.
    `of_arrays`: the groups count the arrays that collectives move, each for itself."""

    name: str
    place: str
    head: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    by: tuple[Cell, ...]
    groups: tuple[Group, ...]
    of_arrays: bool
    overlap: tuple[Group, ...]
    total: Sums
    joined: Joined


def collectives_report(
    facts: Facts,
    by: Sequence[str] = BY_DEFAULT,
    filters: Filters | None = None,
    top: int = 5,
) -> Report:
    """The collectives of the module that runs, grouped `by` columns of the table or short names.

    Raises `NoSuchNameError` where a name in `by` or in the filters means nothing, `NotReadError`
    where a pass that is needed failed.
    """
    compute(facts)
    keys = keys_named(facts.table(COLLECTIVES), by)
    found = joined(facts, filters or Filters())
    total = found.sums(found.rows)
    split = by_array(found, [name for cell in keys for name in cell.columns])
    groups = _groups(split, keys)
    overlap = _groups(found, keys_named(found.table, ("loop", "phase")))
    program = facts.program
    file = program.main.filename
    sections = [_grouped(split, keys, groups, arrays=split is not found)] if groups else []
    if found.scheduled:
        sections.append(_overlap(overlap, total))
    if top and found.rows:
        sections.append(_first(found, top))
    return Report(
        visible(program.name),
        visible(file or ""),
        tuple(_head(found, total, bool(filters))),
        tuple(sections),
        tuple(findings_of(found)),
        keys,
        groups,
        split is not found,
        overlap,
        total,
        found,
    )


def _groups(found: Joined, keys: tuple[Cell, ...]) -> tuple[Group, ...]:
    """The groups, what matters first."""
    summary = Summary("collectives", 0, by=keys)
    columns = [name for cell in keys for name in cell.columns]
    groups = [
        Group(
            group.keys,
            tuple(found.value(group.rows[0], name) for name in columns),
            found.sums(group.rows),
        )
        for group in grouped(found.cells, found.table, summary, found.rows)
    ]
    first = [(-group.sums.weight[0], -group.sums.weight[1]) for group in groups]
    return tuple(groups[at] for at in sorted(range(len(groups)), key=first.__getitem__))


# ---------------------------------------------------------------------------------- head


def _head(found: Joined, total: Sums, filtered: bool) -> Iterator[tuple[str, str]]:
    program = found.facts.program
    if len(program.modules) > 1:
        stage = program.stages[found.module]
        yield "stage", f"{stage}; --stage chooses another"
    if program.main.truncated:
        yield "text", "cut off; what follows is of the part that is there"
    if not found.rows:
        left = f"; {count_text(found.all)} are left out" if filtered and found.all else ""
        yield "sends", f"nothing: there are no collectives{' like that' if filtered else ''}{left}"
        return
    part = f" of {count_text(found.all)}" if len(found.rows) < found.all else ""
    count = "1 collective" if total.rows == 1 else f"{count_text(total.rows)}{part} collectives"
    yield (
        "sends",
        f"{step_bytes(total.sent)} per device and step in {count}, {_runs(total)}"
        f"{_hiding(found, total)}",
    )
    yield from _estimated(found, total)
    yield "first", _sentence(found, found.rows[0])


def _runs(sums: Sums) -> str:
    text = executions_text(sums.runs, None)
    return f"{text} run{'' if text == '1' else 's'}" if text != UNKNOWN else "runs not known"


def _hiding(found: Joined, total: Sums) -> str:
    """How much of what is sent may hide."""
    if not found.scheduled:
        return "; what hides them is not known, as the text is not scheduled"
    if total.sent is None or not total.sent.low:
        return ""
    parts = []
    for by, part in zip(HIDING, total.hidden, strict=True):
        if part is None or part == NOTHING:
            continue
        word = "exposed" if by == "nothing" else f"over {_WORDS[by]}"
        parts.append(f"{_share(part, total.sent)} {word}")
    return f": {', '.join(parts)}" if parts else ""


def _share(part: Bounds, whole: Bounds) -> str:
    if part.is_exact and whole.is_exact:
        return f"{part.low / whole.low:.0%}"
    return step_bytes(part)


def _estimated(found: Joined, total: Sums) -> Iterator[tuple[str, str]]:
    row = found.rows[0]
    spec, by = found.value(row, "spec"), found.value(row, "spec_from")
    if not isinstance(spec, str):
        broken = any(one.rule == "spec-broken" for one in found.facts.findings)
        why = "the spec that is asked for" if broken else "a spec of the device"
        yield "estimate", f"none: {why} is not known; --spec NAME (h100, mi355x, v6e, …) or FILE"
        return
    if total.time is None:
        yield "estimate", f"none: the spec {spec} has no bandwidth for these connections"
        return
    exposed = f", exposed {step_time(total.exposed)}" if found.scheduled else ""
    yield (
        "estimate",
        f"{step_time(total.time)} per step{exposed}; a ring on idle connections of {spec}"
        f" ({_FROM.get(str(by), by)})",
    )


def _sentence(found: Joined, row: Row) -> str:
    """The collective to look at first, as a sentence."""
    text = _texts(found, row)
    phase = "" if text["phase"] == UNKNOWN else f" {text['phase']}"
    where = f" in {text['loop']}" if found.value(row, "loop") is not None else ""
    time = f", about {text['time']}" if text["time"] != UNKNOWN else ""
    sums, one = found.sums((row,)), found.value(row, "wire_bytes")
    sent = f"{text['sent']} in {_runs(sums)}"
    if isinstance(one, int) and (sums.sent is None or not sums.sent.is_exact):
        sent = f"{bytes_text(one)} a run, {_runs(sums)}"
    hidden = {
        "nothing": "nothing hides it",
        "light": "only light work may hide it",
        "heavy": "heavy work may hide it",
        None: "",
    }[found.value(row, "hidden_by")]  # type: ignore[index]
    head = f"{text['name']}, {text['kind']}{phase}{where}"
    return "; ".join(filter(None, (f"{head}: sends {sent}{time}", hidden, text["source"])))


# ---------------------------------------------------------------------------------- sections


def _grouped(
    found: Joined, keys: tuple[Cell, ...], groups: Sequence[Group], *, arrays: bool
) -> Section:
    """`arrays`: a row is one of the arrays that a collective moves."""
    total = found.sums(found.rows)
    timed, hides = total.time is not None, found.scheduled
    columns = [Column(cell.heading) for cell in keys]
    headings = ["arrays" if arrays else "count", "runs", "sent per step"]
    headings += ["exposed"] if hides else []
    headings += ["est. per step"] if timed else []
    headings += ["est. exposed"] if timed and hides else []
    # The time that may be exposed follows from the other numbers, where there is no room.
    columns += [Column(one, right=True, spare=one == "est. exposed") for one in headings]

    def numbers(sums: Sums) -> tuple[str, ...]:
        cells = [count_text(sums.rows), executions_text(sums.runs, None), step_bytes(sums.sent)]
        cells += [step_bytes(sums.hidden[0])] if hides else []
        cells += [step_time(sums.time)] if timed else []
        cells += [step_time(sums.exposed)] if timed and hides else []
        return tuple(cells)

    names = ", ".join(cell.heading for cell in keys)
    blank = ("",) * (len(keys) - 1)
    return Section(
        f"by {names}",
        _RINGS + ("; est.: estimated" if timed else ""),
        tuple(columns),
        tuple((*group.keys, *numbers(group.sums)) for group in groups),
        ("total", *blank, *numbers(total)) if len(groups) > 1 else None,
    )


def _overlap(groups: Sequence[Group], total: Sums) -> Section:
    """Bytes that are sent per step, by what computes meanwhile."""
    columns = [Column("loop"), Column("phase"), Column("count", right=True)]
    columns += [
        Column(heading, right=True) for heading in ("exposed", "over light work", "over heavy work")
    ]

    def cells(sums: Sums) -> tuple[str, ...]:
        return (count_text(sums.rows), *map(step_bytes, sums.hidden))

    return Section(
        "exposed and overlapped",
        "bytes per step, by what computes between start and done",
        tuple(columns),
        tuple((*group.keys, *cells(group.sums)) for group in groups),
        ("total", "", *cells(total)) if len(groups) > 1 else None,
    )


def _first(found: Joined, top: int) -> Section:
    """Single collectives in order of rank."""
    timed = any(found.value(row, "estimate_us") is not None for row in found.rows)
    columns = [
        Column("", right=True), Column("collective", rigid=True), Column("operation"),
        Column("loop"), Column("phase", spare=True), Column("runs", right=True, spare=True),
        Column("sent per step", right=True),
    ]  # fmt: skip
    names = ["rank", "name", "kind", "loop", "phase", "runs", "sent"]
    if found.scheduled:
        columns.append(Column("hidden by"))
        names.append("hidden")
    if timed:
        columns.append(Column("est. per step", right=True))
        names.append("time")
    lines, below = [], []
    for row in found.rows[:top]:
        text = _texts(found, row)
        lines.append(tuple(text[name] for name in names))
        below.append(" · ".join(_details(found, row)))
    left = len(found.rows) - len(lines)
    notes = (f"{count_text(left)} more; --top {len(found.rows)} shows all",) if left else ()
    order = "the longest" if timed else "the most bytes"
    about = f"what no heavy work hides, {order} in front" if found.scheduled else order
    return Section("look at first", about, tuple(columns), tuple(lines), None, tuple(below), notes)


def _texts(found: Joined, row: Row) -> dict[str, str]:
    """The cells of one collective."""
    sums = found.sums((row,))
    loop, depth = found.value(row, "loop"), found.value(row, "loop_depth")
    if isinstance(loop, int):
        where = found.cells.loops(found.module).text(loop)
    else:
        where = "no loop" if depth == 0 else UNKNOWN
    one = found.value(row, "estimate_us")
    whole = sums.time
    if whole is None or not whole.is_exact:
        time = f"{time_text(round(one * 1000))} each" if isinstance(one, float) else UNKNOWN
    else:
        time = time_text(whole.low)
    return {
        "rank": str(found.value(row, "rank")),
        "name": visible(str(found.value(row, "name"))),
        "kind": str(found.value(row, "logical_kind")),
        "loop": where,
        "phase": str(found.value(row, "phase") or UNKNOWN),
        "runs": executions_text(sums.runs, None),
        "sent": step_bytes(sums.sent),
        "hidden": _WORDS[found.value(row, "hidden_by")],  # type: ignore[index]
        "time": time,
        "source": visible(str(found.value(row, "source") or "")),
    }


# What is said of a single collective: cells, in this order, as far as the table has their columns.
_DETAILS: Final = (
    Cell("moves {moves}"),
    Cell("{parameter}"),
    Cell("feeds {feeds_name}"),
    Cell("gather {gather_number} of it", blank=(1,)),
    Cell("for {regather_for}"),
    Cell("prefetched", words=("prefetched", "")),
    Cell("{groups}×{group_size} devices"),
    Cell("over {axes}"),
    Cell("{domain} connections", blank=("fast",)),
    Cell("is_sync", words=("synchronous", "")),
    Cell("{core}"),
    Cell("queued behind {queue_before}", blank=(0,)),
    Cell("{source}"),
)


def _details(found: Joined, row: Row) -> Iterator[str]:
    if shapes := found.value(row, "operand_shape"):
        yield _shortened(str(shapes))
    arrays = found.arrays.get(found.value(row, "id"), ())
    names = set(found.table.names)
    for cell in _DETAILS:
        if names.issuperset(cell.columns):
            text = found.cells.reader(found.table, cell)(row) or _several(cell, arrays)
            if text:
                yield text


def _several(cell: Cell, arrays: Sequence[Record]) -> str | None:
    """What a cell says of several arrays: the values that differ, the first ones by name."""
    (name, *_) = cell.columns
    if not arrays or name not in _NAMES:
        return None
    values = list(dict.fromkeys(str(one[name]) for one in arrays if one[name] is not None))
    left = f" and {count_text(len(values) - _MOST)} more" if len(values) > _MOST else ""
    listed = visible(", ".join(values[:_MOST]))
    return cell.text.format(**{name: listed + left}) if values else None


_NAMES: Final = ("moves", "parameter", "feeds_name")  # what arrays have each for itself
_MOST: Final = 3  # of these names that are listed


def _shortened(shapes: str) -> str:
    """`bf16[64,8] ×3, f32[8]`: equal shapes of a list once."""
    counts = Counter(shapes.split(", "))
    return ", ".join(f"{shape} ×{n}" if n > 1 else shape for shape, n in counts.items())


# ---------------------------------------------------------------------------------- findings


def findings_of(found: Joined) -> list[Finding]:
    """What there is to say of the collectives that are shown, the gravest first.

    A finding is about a collective whose row it has as evidence, or a row with the id of one in a
    column `collective`; and a device spec that cannot be used is told.
    """
    facts = found.facts
    facts.run(one for one in facts.registry.passes if one.rules and _is_about(one))
    shown = {found.value(row, "id") for row in found.rows}
    kept = [
        finding
        for finding in facts.findings
        if finding.rule == "spec-broken"
        or (finding.module == found.module and not shown.isdisjoint(_collectives(facts, finding)))
    ]
    return gravest_first(kept)


def _is_about(owner: Pass) -> bool:
    """Whether a pass owns a table of collectives or one that refers to them."""
    return any(table.name in _TABLES or _reference(table) is not None for table in owner.tables)


def _reference(table: Table) -> int | None:
    """Where a row has the id of a collective."""
    for at, column in enumerate(table.columns):
        if column.name == "collective" and column.type == "int":
            return at
    return None


def _collectives(facts: Facts, finding: Finding) -> Iterator[object]:
    """The ids of the collectives that a finding is about."""
    for name, id in finding.evidence:
        if name in _TABLES:
            yield id
            continue
        table = next((one for one in facts.tables if one.name == name), None)
        at = None if table is None else _reference(table)
        if table is not None and at is not None:
            own = table.position("id"), table.position("module")
            for row in facts.rows(name):
                if (row[own[0]], row[own[1]]) == (id, finding.module):
                    yield row[at]


_TABLES: Final = (COLLECTIVES, COSTS)
