"""Fills the collective_waste table: what the pass of `hlo_lens_passes.collective_waste` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import COMMON, Finding, Member, PassResult, common
from hlo_lens_passes import _waste_in_loops as in_loops
from hlo_lens_passes import _waste_repeated as repeated
from hlo_lens_passes import _waste_too_large as too_large
from hlo_lens_passes._collective_logical import logical_collectives
from hlo_lens_passes._waste_parts import Communication, Reason
from hlo_lens_passes._waste_rules import HELP, RULES

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

_FINDERS: Final = (
    in_loops.hoistable,
    in_loops.collected,
    too_large.only_sliced,
    too_large.wide_wire,
    repeated.chained,
    repeated.duplicate,
    repeated.dtype_fallback,
)
_ORDER: Final = {kind: number for number, kind in enumerate(RULES)}


def run(program: Program, facts: Facts) -> PassResult:
    """One row a collective and reason, with its members, and the findings."""
    of_module: dict[object, list[Mapping[str, object]]] = {}
    for record in facts.records("collectives"):
        of_module.setdefault(record["module"], []).append(record)
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, collectives in of_module.items():
        assert isinstance(position, int)
        reasons = _reasons(program, position, collectives)
        final = program.modules[position].is_scheduled
        findings += _findings(reasons, position, len(rows), final=final)
        for reason in reasons:
            members += _members(reason, position, len(rows))
            rows.append(_row(program, position, reason))
    return PassResult({"collective_waste": rows}, members, findings)


def _reasons(program: Program, position: int, rows: Sequence[Mapping[str, object]]) -> list[Reason]:
    module = program.modules[position]
    analysis = program.analysis(module)
    logical = logical_collectives(module, analysis.graph)
    communication = Communication(analysis, logical, rows)
    found = [reason for find in _FINDERS for reason in find(communication)]
    return sorted(found, key=_rank)


def _rank(reason: Reason) -> tuple[int, int, int, int]:
    """What saves most comes first."""
    part = reason.part
    return -(reason.saved or 0), _ORDER[reason.kind], part.logical.instr.id, part.moved.number


def _row(program: Program, position: int, reason: Reason) -> dict[str, object]:
    part = reason.part
    if reason.instr == part.logical.instr:
        row = {column.name: part.row[column.name] for column in COMMON}
    else:
        row = common(program, position, reason.instr)
    return row | {
        "id": None,
        "kind": reason.kind,
        "collective": part.row["id"],
        "number": part.moved.number,
        "saved_wire_bytes": reason.saved,
        "kept_fraction": reason.kept_fraction,
        "wasted_bytes": reason.wasted,
        "could_leave": None if reason.could_leave is None else reason.could_leave.instr.id,
        "carry_index": reason.carry_index,
        "blocked_by": reason.blocked_by,
        "partner": None if reason.partner is None else reason.partner.id,
        "across_phases": reason.across_phases,
        "evidence": reason.evidence,
    }


def _members(reason: Reason, position: int, row: int) -> Iterator[Member]:
    roles = (("collective", reason.part.logical.instr), *reason.roles)
    for role, instr in dict.fromkeys((role, instr.id) for role, instr in roles):
        yield Member("collective_waste", row, role, position, instr)


def _findings(
    reasons: Sequence[Reason], position: int, first: int, *, final: bool
) -> Iterator[Finding]:
    """One for what has the same cause: the kind, the loop, the line of the source, the obstacle.

    final: whether no pass comes behind, which might still mend it.
    """
    causes: dict[object, list[tuple[int, Reason]]] = {}
    for number, reason in enumerate(reasons, first):
        if reason.across_phases:
            continue
        part, blocked = reason.part, reason.blocked_by
        cause = (reason.kind, part.kind, part.row["loop"], part.row["source"], blocked, reason.sure)
        causes.setdefault(cause, []).append((number, reason))
    for alike in causes.values():
        reason = alike[0][1]
        rule = RULES[reason.kind]
        others = len(alike) - 1
        saved = [one.saved for _, one in alike]
        message = reason.evidence
        if others:
            message += f"; and so {others} more {'array' if others == 1 else 'arrays'}"
        if None not in saved and any(saved):
            message += f"; {sum(filter(None, saved)):,} bytes less to send in a step"
        yield Finding(
            rule.id,
            rule.level if final and reason.sure and not _all_numbers(alike) else "note",
            message,
            module=position,
            instr=reason.instr.id,
            evidence=tuple(("collective_waste", number) for number, _ in alike),
            help=HELP[reason.kind],
        )


def _all_numbers(alike: Sequence[tuple[int, Reason]]) -> bool:
    """Whether it is about single numbers, as a loss."""
    shapes = [one.part.shape for _, one in alike]
    return all(shape is not None and not shape.rank for shape in shapes)
