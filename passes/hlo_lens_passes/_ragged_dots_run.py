"""Fills the ragged_dots table: what the pass of `hlo_lens_passes.ragged_dots` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.dumps import AFTER
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens_passes._ragged_directions import Directions
from hlo_lens_passes._ragged_feeds import Feeds
from hlo_lens_passes._ragged_keys import Keys
from hlo_lens_passes._ragged_masks import Masks
from hlo_lens_passes._ragged_native import (
    grouped_call,
    is_native,
    kernel_call,
    native,
    ragged_dot,
    whole,
)
from hlo_lens_passes._ragged_padded import NAME, batched, padded
from hlo_lens_passes._ragged_roles import Roles
from hlo_lens_passes._ragged_support import checks_of, target_of, why_not
from hlo_lens_passes.ragged_dots import PADDED

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._ragged_found import Class, Ragged

Row = Mapping[str, object]
_Cause = tuple[int | None, float, str]


def run(program: Program, facts: Facts) -> PassResult:
    """One row a ragged or grouped matmul, with its members, and the findings."""
    matmuls = facts.records_by_module("matmuls")
    calls = facts.records_by_module("custom_calls")
    platforms = {row["id"]: row["platform"] for row in facts.records("modules")}
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings: list[Finding] = []
    for position in range(len(program.modules)):
        found = list(_found(program, position, matmuls, calls))
        if not found:
            continue
        module = program.modules[position]
        analysis = program.analysis(module)
        keys, feeds = Keys(analysis), Feeds(analysis.graph, found)
        Directions(analysis, found, keys, feeds).assign()
        Roles(analysis, found, keys, feeds).assign()
        platform = platforms.get(position)
        told = target_of(program, position, platform if isinstance(platform, str) else None)
        after = module.is_scheduled or program.stages[position] == AFTER
        expanded: dict[_Cause, list[tuple[int, Ragged]]] = {}
        for one in found:
            number = len(rows)
            row = {
                **common(program, position, written_instruction(one.instr)),
                **_columns(one, after),
            }
            if after and one.lowering == "dense_padded":
                checks = checks_of(one, told)
                why = why_not(checks)
                row["why_not_grouped"] = why
                row["checks"] = [check.described() for check in checks]
                if one.factor is not None and one.factor > 1:
                    expanded.setdefault((one.groups, one.factor, why), []).append((number, one))
            rows.append(row)
            members += (
                Member("ragged_dots", number, role, position, instr)
                for role, instr in dict.fromkeys(
                    (role, written_instruction(instr).id) for role, instr in one.members
                )
            )
        findings += (_finding(position, why, alike) for (*_, why), alike in expanded.items())
    return PassResult({"ragged_dots": rows}, members, findings)


def _found(
    program: Program,
    position: int,
    matmuls: Mapping[int, Sequence[Row]],
    calls: Mapping[int, Sequence[Row]],
) -> Iterator[Ragged]:
    """The ragged dots of a module, in the order of the text."""
    kernels = {row["instr"]: row for row in calls.get(position, ()) if _is_kernel(row)}
    rows = {row["instr"]: row for row in matmuls.get(position, ())}
    if not rows and not kernels:
        return
    module = program.modules[position]
    analysis = program.analysis(module)
    masks = Masks(analysis.graph)
    expanded, named = masks.are_in(module), NAME in module.text
    for number in sorted({*rows, *kernels}, key=lambda one: one if isinstance(one, int) else -1):
        assert isinstance(number, int)
        instr = module.instruction(number)
        row = rows.get(number)
        one: Ragged | None = None
        if number in kernels:
            one = kernel_call(analysis.graph, instr, kernels[number])
        elif row is None:
            continue
        elif row["form"] == "ragged-dot":
            one = ragged_dot(analysis.graph, instr, row)
        elif row["form"] == "custom_call" and row["ragged"]:
            one = grouped_call(analysis.graph, instr, row)
        elif row["form"] == "convolution" and is_native(analysis.graph, instr):
            one = native(analysis.graph, instr, masks, row)
        else:
            if expanded:
                one = padded(analysis, instr, masks)
            if named and one is None:
                one = batched(analysis, instr)
        if one is not None:
            if one.kind is None and one.variant == "non_contracting":
                _by_phase(one, analysis)
            if row is not None:
                one.matmul, one.workspace = whole(row["id"]), whole(row["workspace_bytes"])
            yield one


def _by_phase(one: Ragged, analysis: ModuleAnalysis) -> None:
    """The class of a kernel whose sizes do not show what it contracts, by its name."""
    phase = analysis.phase(one.instr).phase
    kinds: dict[str | None, Class] = {"fwd": "fwd", "remat": "fwd", "bwd": "dgrad"}
    one.kind = kinds.get(phase)
    if one.kind is not None:
        one.evidence.append(f"phase {phase}")


def _is_kernel(row: Row) -> bool:
    """A kernel for groups of rows; not what makes its tables, and no library call."""
    return row["op"] == "grouped_gemm" and row["kernel"] is not None


def _columns(one: Ragged, after: bool) -> dict[str, object]:
    return {
        "class": one.kind,
        "direction": one.direction,
        "role": one.role,
        "projection": one.projection,
        "variant": one.variant,
        "lowering": one.lowering,
        "backend": one.backend,
        "groups": one.groups,
        "m": one.m,
        "n": one.n,
        "k": one.k,
        "flops": one.flops,
        "useful_flops": one.useful,
        "factor": one.factor,
        "split_k": one.split_k,
        "extra_bytes": _extra(one) if after else None,
        "workspace_bytes": one.workspace,
        "evidence": one.evidence,
        "matmul": one.matmul,
    }


def _extra(one: Ragged) -> int | None:
    return one.extra_bytes if one.lowering in ("dense_padded", "ragged-dot") else 0


def _finding(position: int, why: str, alike: Sequence[tuple[int, Ragged]]) -> Finding:
    """What ragged dots that are expanded for one reason cost."""
    first = alike[0][1]
    instr = written_instruction(first.instr)
    extra = sum(one.extra_bytes or 0 for _, one in alike)
    others = len(alike) - 1
    what = f"{instr.name} is a ragged dot run as a dense product"
    if others:
        more = "another" if others == 1 else f"{others} others"
        what = f"{instr.name} and {more} are ragged dots run as dense products"
    return Finding(
        PADDED.id,
        PADDED.level,
        f"{what} over {first.groups} groups: {first.factor:g} times the useful FLOP"
        f"{f' and {extra:,} extra bytes' if extra else ''}; {why}",
        module=position,
        instr=instr.id,
        evidence=tuple(("ragged_dots", number) for number, _ in alike),
        help="see `checks` of the rows for what a grouped lowering takes: a dtype, a flag, a chip",
    )
