"""Fills the collective_costs table: what the pass of `hlo_lens_passes.collective_costs` runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import find_sites
from hlo_lens.facts import COMMON, Finding, Member, PassResult
from hlo_lens.hlo import Instruction
from hlo_lens_passes._collective_domains import reach
from hlo_lens_passes._collective_queues import Queues
from hlo_lens_passes._device_specs import Chosen, choose, estimate
from hlo_lens_passes.collective_costs import SPEC_BROKEN

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

Row = Mapping[str, object]
_COMMON: Final = tuple(column.name for column in COMMON if column.name != "id")


def run(program: Program, facts: Facts) -> PassResult:
    """One row a logical collective, with the findings."""
    chosen = choose(program)
    collectives = facts.records("collectives")
    operations = _operations(program, facts.members("collectives"))
    rows: list[dict[str, object]] = []
    for position, module in enumerate(program.modules):
        own = [row for row in collectives if row["module"] == position]
        queues = Queues(program.analysis(module), own)
        described = [_row(row, chosen, operations.get((position, row["id"]))) for row in own]
        for row, costs in zip(own, described, strict=True):
            costs["queue_before"] = queues.before(row)
        _rank(own, described)
        rows += described
    findings = [Finding(SPEC_BROKEN.id, SPEC_BROKEN.level, why) for why in chosen.broken]
    return PassResult({"collective_costs": rows}, (), findings)


def _operations(
    program: Program, members: Iterable[Member]
) -> dict[tuple[int, object], Instruction]:
    """An operation of each row of collectives, by module and id."""
    rows = {(member.module, member.instr): member.row for member in members}
    found: dict[tuple[int, object], Instruction] = {}
    for position, module in enumerate(program.modules):
        for site in find_sites(module, program.analysis(module).graph):
            row = rows.get((position, site.instr.id))
            if row is not None:
                found.setdefault((position, row), site.operation)
    return found


def _row(row: Row, chosen: Chosen, operation: Instruction | None) -> dict[str, object]:
    costs: dict[str, object] = {"id": row["id"], **{name: row[name] for name in _COMMON}}
    hidden_by = _hidden_by(row)
    exposed = None if hidden_by is None else hidden_by == "nothing"
    costs |= {"hidden_by": hidden_by, "exposed": exposed, **_estimated(row, chosen, operation)}
    runs, one = row["executions"], costs.get("estimate_us")
    if isinstance(runs, int) and isinstance(one, float):
        whole = one * runs
        costs["estimate_step_us"] = whole
        if exposed is not None:
            costs["exposed_us"] = whole if exposed else None
            costs["hidden_us_max"] = 0.0 if exposed else whole
    sent = row["wire_bytes"]
    if exposed is False:
        costs["exposed_bytes"] = 0
    elif exposed and isinstance(sent, int) and isinstance(runs, int):
        costs["exposed_bytes"] = sent * runs
    return costs


def _hidden_by(row: Row) -> str | None:
    """What may hide a collective, by its row of collectives."""
    if row["is_sync"] is True:
        return "nothing"
    if row["compute_between"] is None:
        return None
    if row["compute_between"] == 0:
        return "nothing"
    return "heavy" if row["heavy_between"] else "light"


def _estimated(row: Row, chosen: Chosen, operation: Instruction | None) -> dict[str, object]:
    spec = chosen.spec
    if spec is None:
        return {}
    columns: dict[str, object] = {"spec": spec.name, "spec_from": chosen.by}
    reached = None if operation is None else reach(operation, spec.devices)
    if reached is None:
        return columns
    columns["domain"] = reached.domain
    sent, size = row["wire_bytes"], row["group_size"]
    if not isinstance(sent, int):
        return columns
    size = size if isinstance(size, int) else None
    found = estimate(spec, reached.domain, str(row["logical_kind"]), sent, size, reached.each)
    if found is None:
        return columns
    return columns | {
        "bandwidth_us": found.bandwidth,
        "latency_us": found.latency,
        "estimate_us": found.total,
    }


# ---------------------------------------------------------------------------------- the ranking


def _rank(rows: Sequence[Row], costs: Sequence[dict[str, object]]) -> None:
    """Fill in `weight` and `rank`."""
    timed = any(cost.get("estimate_us") is not None for cost in costs)
    order = []
    for at, (row, cost) in enumerate(zip(rows, costs, strict=True)):
        weight = cost["weight"] = _weight(row, cost, timed)
        order.append((cost["hidden_by"] == "heavy", -(weight or 0.0), at))
    for place, (*_, at) in enumerate(sorted(order), start=1):
        costs[at]["rank"] = place


def _weight(row: Row, cost: Row, timed: bool) -> float | None:
    sent = row["wire_bytes"] if row["wire_bytes"] is not None else row["wire_bytes_max"]
    amount = cost.get("estimate_us") if timed else sent
    runs = row["executions"] if row["executions"] is not None else row["executions_max"]
    if not isinstance(runs, int):
        least = row["executions_min"]
        runs = max(least, 1) if isinstance(least, int) else 1
    return float(amount * runs) if isinstance(amount, (int, float)) else None
