"""What is said of a program's kernels, before it is laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lens.facts import Cell, Facts, Finding, Measure, Summary
from hlo_lens.kernels.contract import Contract, contracts, lines_of
from hlo_lens.kernels.rows import CALLS, KERNELS, MATMULS, Filters, Kernels, Record, kernels_of
from hlo_lens.present.cells import Row
from hlo_lens.present.groups import Group, grouped, measured, total_runs
from hlo_lens.present.page import Column
from hlo_lens.present.quantities import UNKNOWN, count_text, executions_text, visible
from hlo_lens.present.reading import findings_of, not_read
from hlo_lens.present.report import Section, without_unknown

ATTENTION: Final = "attention"
_ABOUT: Final = (KERNELS, CALLS, MATMULS, ATTENTION)  # whose findings are told
COLLECTIVE: Final = "collective"
_NAMED: Final = 4  # kinds of helpers that are named in the head

SUMMARY: Final = Summary(
    "kernels",
    order=0,
    by=(Cell("op"), Cell("family"), Cell("called", "kernel"), Cell("phase"), Cell("loop")),
    measures=(
        Measure("calls", "rows"),
        Measure("runs", "executions"),
        Measure("FLOP", "per_step", "flops"),
        Measure("workspace", "each", "workspace_bytes"),
        Measure("on-chip", "each", "scoped_memory_bytes"),
    ),
)
_FLOP: Final = next(at for at, one in enumerate(SUMMARY.measures) if one.column == "flops")


@dataclass(frozen=True, slots=True)
class Report:
    """All that is said; see `present.report.Report`. `answer`: whether there is one of those that
    were asked for; None where nothing was."""

    name: str
    place: str
    head: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    answer: bool | None
    kernels: Kernels
    rows: tuple[Row, ...]
    groups: tuple[Group, ...]
    contracts: tuple[Contract, ...]


def kernels_report(
    facts: Facts,
    filters: Filters | None = None,
    *,
    helpers: bool = False,
    contract: bool = False,
    known_families: Iterable[str] = (),
) -> Report:
    """The kernels of the module that runs. `helpers`: those that do no work as well. `contract`:
    what each distinct one is called with. `known_families` may be asked for though none is there.

    Raises `NoSuchNameError` where a filter means nothing, `NotReadError` where the tables
    could not be filled.
    """
    filters = filters or Filters()
    found = kernels_of(facts, filters, known_families)
    # A name that is asked for is no helper to who asks.
    helpers = helpers or bool(filters.families or filters.targets or filters.kernels)
    rows = tuple(row for row in found.shown if helpers or found.value(row, "does_work"))
    groups = tuple(grouped(found.cells, found.table, SUMMARY, rows))
    distinct = contracts(found, rows)
    sections = [_table(found, groups, rows)] if groups else []
    if contract:
        sections += [_contract(found, one) for one in distinct]
    program = facts.program
    return Report(
        visible(program.name),
        visible(program.main.filename or ""),
        tuple(_head(found, rows, filters)),
        tuple(sections),
        tuple(_findings(found, rows, bool(filters))),
        bool(rows) if filters else None,
        found,
        rows,
        groups,
        distinct,
    )


# ---------------------------------------------------------------------------------- head


def _head(found: Kernels, rows: Sequence[Row], filters: Filters) -> Iterator[tuple[str, str]]:
    program = found.facts.program
    if len(program.modules) > 1:
        yield "stage", f"{program.stages[found.module]}; --stage chooses another"
    if program.main.truncated:
        yield "text", "cut off; what follows is of the part that is there"
    if not rows:
        yield "runs", _nothing(found, filters)
    else:
        yield from _all(found, rows, filters)
    if rows and all(found.value(row, "phase") is None for row in rows):
        yield "phase", _no_phase(found)
    yield from _again(found, rows)
    if not filters:
        yield from _attention(found)
    if len(rows) < len(found.shown):
        yield "left out", f"{_helpers(found)}; --all shows them"


def _all(found: Kernels, rows: Sequence[Row], filters: Filters) -> Iterator[tuple[str, str]]:
    """How many, of what kinds; collectives apart, where there are others."""
    apart = [row for row in rows if found.value(row, "op") == COLLECTIVE]
    others = [row for row in rows if found.value(row, "op") != COLLECTIVE]
    working = sum(1 for row in found.all if found.value(row, "does_work"))
    part = f" of {count_text(working)}" if filters and len(rows) < working else ""
    yield "runs", _counted(found, others or rows, part)
    if others and apart:
        yield "besides", f"{_counted(found, apart)}; hlolens collectives FILE says what they send"


def _counted(found: Kernels, rows: Sequence[Row], part: str = "") -> str:
    kinds = Counter(map(_kind(found), rows))
    listed = [f"{kind} ×{n}" if n > 1 else kind for kind, n in kinds.most_common(_NAMED)]
    if len(kinds) > _NAMED:
        listed.append(_others(len(kinds) - _NAMED))
    calls = "1 call" if len(rows) == 1 and not part else f"{count_text(len(rows))}{part} calls"
    return f"{calls}, {_runs_text(found, rows)} a step: {', '.join(listed)}"


def _kind(found: Kernels) -> Callable[[Row], str]:
    """`attention of cudnn`; what is on another core by its name, `scatter on SparseCore`."""

    def text(row: Row) -> str:
        if _is_described(found, row) and not found.value(row, "is_fusion"):
            return visible(str(found.value(row, "called")))
        return f"{found.value(row, 'op') or 'kernel'} of {found.value(row, 'family')}"

    return text


def _is_described(found: Kernels, row: Row) -> bool:
    """Whether what a reader calls it is no name of its own."""
    called = found.value(row, "called")
    return called not in (found.value(row, "kernel"), found.value(row, "target"))


def _others(number: int) -> str:
    return "1 other kind" if number == 1 else f"{number} other kinds"


def _runs_text(found: Kernels, rows: Sequence[Row]) -> str:
    text = executions_text(total_runs(found.table, rows), None)
    if text == UNKNOWN:
        return "an unknown number of runs"
    return f"{text} run{'' if text == '1' else 's'}"


def _nothing(found: Kernels, filters: Filters) -> str:
    """Why there is none, and what there is."""
    working = [row for row in found.all if found.value(row, "does_work")]
    if not filters:
        return "no kernel: no custom call that does work, and no fusion of a code generator"
    listed = ", ".join(
        visible(one)
        for one in dict.fromkeys(str(found.value(row, _tells(filters)) or "") for row in working)
        if one
    )
    here = f"there are {listed}" if listed else "there is no kernel at all"
    return f"no: no call of {_asked(filters)}; {here}"


def _tells(filters: Filters) -> str:
    """What a reader is told that there is instead."""
    if filters.targets:
        return "target"
    return "called" if filters.kernels else "family"


def _asked(filters: Filters) -> str:
    words = {
        "family": filters.families, "kernel": filters.kernels, "target": filters.targets,
        "phase": filters.phases, "loop": filters.loops,
    }  # fmt: skip
    told = [f"{what} {' or '.join(given)}" for what, given in words.items() if given]
    return visible(", ".join(told))


def _no_phase(found: Kernels) -> str:
    module = found.facts.records("modules")[found.module]
    if module.get("has_metadata") is False:
        return (
            "not known: the text has no op_names"
            ' (lowered.as_text("hlo", debug_info=True) keeps them)'
        )
    return "not known: no op_name tells it"


def _again(found: Kernels, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Kernels that run in the forward, and again for the backward."""
    value = found.value
    by_name: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        is_other = _is_described(found, row) and not value(row, "is_fusion")
        if not is_other and value(row, "op") not in ("fusion", "call"):  # names that say nothing
            by_name.setdefault((value(row, "family"), value(row, "called")), []).append(row)
    told, fusions = [], 0
    for (_, name), same in by_name.items():
        runs = [[row for row in same if value(row, "phase") == phase] for phase in ("fwd", "remat")]
        if not all(runs):
            continue
        if value(same[0], "is_fusion"):
            fusions += len(runs[1])
            continue
        first, again = (executions_text(total_runs(found.table, each), None) for each in runs)
        told.append(f"{visible(str(name))} {first} in the forward and {again} in a replay")
    if fusions:
        told.append(f"{count_text(fusions)} generated fusion{'s' * (fusions > 1)} in a replay")
    if told:
        yield "again", "; ".join(told)


def _attention(found: Kernels) -> Iterator[tuple[str, str]]:
    """Attention that is in no kernel, where the table is there."""
    facts = found.facts
    if ATTENTION not in facts.registry.owners or not_read(facts, ATTENTION) is not None:
        return
    sites = [row for row in facts.records(ATTENTION) if row["module"] == found.module]
    exposed = [row for row in sites if row.get("route") == "exposed"]
    if not exposed:
        return
    fell = sum(1 for row in exposed if row.get("fell_back"))
    part = f" of {len(sites)}" if len(exposed) < len(sites) else ""
    text = f"{len(exposed)}{part} attention site{'s' * (len(sites) > 1)} in no kernel"
    back = f", {fell} of which fell back: others here are fused" if fell else ""
    yield "exposed", f"{text}{back}; hlolens lowering FILE says which"


def _helpers(found: Kernels) -> str:
    rows, value = found.helpers, found.value
    kinds = Counter(
        " ".join(filter(None, map(_text, (value(row, "family"), value(row, "op"))))) for row in rows
    )
    listed = [f"{name} ×{n}" if n > 1 else name for name, n in kinds.most_common(_NAMED)]
    if len(kinds) > _NAMED:
        listed.append(_others(len(kinds) - _NAMED))
    count = "1 call" if len(rows) == 1 else f"{count_text(len(rows))} calls"
    return f"{count} that do{'es' * (len(rows) == 1)} no work: {', '.join(listed)}"


def _text(cell: object) -> str:
    return "" if cell is None else visible(str(cell))


# ---------------------------------------------------------------------------------- sections


def _table(found: Kernels, groups: Sequence[Group], rows: Sequence[Row]) -> Section:
    """The groups; columns that nothing is known of are left out."""
    columns = [Column(cell.heading) for cell in SUMMARY.by]
    # What a run takes is in the contract of a kernel, where there is no room.
    columns += [
        Column(one.label, right=True, spare=one.column is not None) for one in SUMMARY.measures
    ]
    lines = [(*group.keys, *group.measures) for group in groups]
    sums = measured(found.table, SUMMARY, rows)
    multiplying = [row for row in rows if found.value(row, "matmuls")]
    flops = measured(found.table, SUMMARY, multiplying)[_FLOP] if multiplying else UNKNOWN
    rest = ("",) * (len(sums) - _FLOP - 1)
    total = ("total", *("",) * (len(SUMMARY.by) - 1), *sums[:_FLOP], flops, *rest)
    section = Section(
        "kernels by phase and loop",
        "FLOP of a step, of the matmuls in them" if flops != UNKNOWN else "",
        tuple(columns),
        tuple(lines),
        total if len(lines) > 1 else None,
    )
    return without_unknown(section, keep=("phase", "loop"))


def _contract(found: Kernels, contract: Contract) -> Section:
    family, op, called = (_text(contract.record.get(name)) for name in ("family", "op", "called"))
    return Section(
        f"{family} {op}: {called}" if op else f"{family}: {called}",
        "",
        (Column("", rigid=True), Column("")),
        tuple(lines_of(found, contract)),
    )


# ---------------------------------------------------------------------------------- findings


def evidence_of(record: Record) -> Iterator[tuple[str, object]]:
    """The rows of tables that a kernel is."""
    yield KERNELS, record["id"]
    if record["custom_call"] is not None:
        yield CALLS, record["custom_call"]
    ids = record["matmul_rows"]
    for id in ids if isinstance(ids, list) else ():
        yield MATMULS, id


def _findings(found: Kernels, rows: Sequence[Row], filtered: bool) -> Iterator[Finding]:
    """What is said of these tables; with a filter, of what is shown."""
    instructions = {found.value(row, "instr") for row in rows}
    shown = {one for row in rows for one in evidence_of(found.record(row))}
    for finding in findings_of(found.facts, _ABOUT):
        if finding.module not in (None, found.module):
            continue
        about = finding.instr in instructions or not shown.isdisjoint(finding.evidence)
        if not filtered or about:
            yield finding
