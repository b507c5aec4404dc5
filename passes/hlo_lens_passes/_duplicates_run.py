"""Fills the duplicates table: what the pass of `hlo_lens_passes.duplicates` runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.program import AFTER, BEFORE, PARTITIONED
from hlo_lens_passes._duplicate_norms import norms
from hlo_lens_passes._duplicate_occurrences import Group, Places, named
from hlo_lens_passes._duplicate_rope import ropes
from hlo_lens_passes._duplicate_sorts import sorts
from hlo_lens_passes.duplicates import RULES

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Module
    from hlo_lens.program import Program

# Without one of these there is no group. A cosine alone makes no table.
_SORTS: Final = frozenset(("sort",))
_RADIX: Final = ("DeviceRadixSort", "cub_sort")
_ROOTS: Final = frozenset(("power", "rsqrt", "sqrt"))


def run(program: Program, facts: Facts) -> PassResult:
    """One row a group, with its members, and the findings."""
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        after = program.stages[position] == AFTER
        if program.stages[position] in (BEFORE, PARTITIONED):
            continue  # it has no kernels yet, and what is equal is yet to be merged
        for group in _groups(program, module):
            members += _members(group, position, len(rows))
            if after and group.blamed:
                findings.append(_finding(group, position, len(rows)))
            rows.append(common(program, position, group.instr) | _row(group))
    return PassResult({"duplicates": rows}, members, findings)


def _groups(program: Program, module: Module) -> Iterator[Group]:
    opcodes = {opcode for computation in module.computations for opcode in computation.opcodes}
    has_sorts = not _SORTS.isdisjoint(opcodes) or (
        "custom-call" in opcodes and any(_sorts_by_radix(module))
    )
    has_norms = "reduce" in opcodes and not _ROOTS.isdisjoint(opcodes)
    has_ropes = {"cosine", "sine"} <= opcodes
    if not (has_sorts or has_norms or has_ropes):
        return
    places = Places(program.analysis(module))
    if has_sorts:
        yield from sorts(places)
    if has_norms:
        yield from norms(places)
    if has_ropes:
        yield from ropes(places)


def _sorts_by_radix(module: Module) -> Iterator[bool]:
    for computation in module.computations:
        for index, opcode in enumerate(computation.opcodes):
            if opcode == "custom-call":
                yield any(word in computation.tails[index] for word in _RADIX)


def _row(group: Group) -> dict[str, object]:
    same = None if group.unknown and not group.blamed else bool(group.blamed)
    return {
        "kind": group.kind,
        "form": group.form,
        "count": len(group.repeated),
        "kernels": group.kernel_count,
        "times": group.times,
        "bytes": group.bytes,
        "phases": ", ".join(group.phases) or None,
        "same_phase": same,
        "value": group.value,
        "evidence": json.dumps(list(group.evidence), ensure_ascii=False),
    }


def _members(group: Group, position: int, row: int) -> Iterator[Member]:
    told = [(role, written_instruction(one.instr)) for role, one in group.members]
    told += [
        ("kernel", written_instruction(one.kernel))
        for _, one in group.members
        if one.kernel != one.instr
    ]
    for role, instr in dict.fromkeys(told):
        yield Member("duplicates", row, role, position, instr.id)


def _finding(group: Group, position: int, row: int) -> Finding:
    rule = RULES[group.kind, group.form]
    instr = written_instruction(group.instr)
    return Finding(
        rule.id,
        rule.level,
        _message(group),
        position,
        instr.id,
        (("duplicates", row),),
    )


def _message(group: Group) -> str:
    blamed = [one for one in group.repeated if (one.phase or "") in group.blamed]
    where = " and ".join(filter(None, group.blamed))
    phase = f" of {where}" if where else ""
    kernels = named([one.kernel for one in blamed])
    value = group.value or "an array"
    if group.form == "inverse":
        return f"{kernels}{phase}: {'; '.join(group.evidence)}."
    what = {
        "sort": f"{value} is sorted by equal keys",
        "norm": f"the statistic {value} of one norm is computed",
        "rope": f"cosines and sines {value} of one argument are computed",
    }[group.kind]
    runs = "" if group.times is None else f", {group.times} runs in all phases"
    return f"{what} more than once{' in ' + where if where else ''}: in {kernels}{runs}."
