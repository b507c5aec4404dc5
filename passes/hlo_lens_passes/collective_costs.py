"""The collective_costs table: what each collective takes by a device spec, and which to look at.

An estimate, not a measurement: a ring over connections that nothing else uses. `_device_specs` has
the model; its numbers and their sources are `catalogues/devices.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.collectives import find_sites
from hlo_lens.facts import COMMON, Column, Finding, Member, PassResult, Rule, Table
from hlo_lens.hlo import Instruction
from hlo_lens_passes._collective_domains import reach
from hlo_lens_passes._collective_queues import Queues
from hlo_lens_passes._device_specs import Chosen, choose, estimate

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program

Row = Mapping[str, object]
_HIDING: Final = ("nothing", "light", "heavy")
_COMMON: Final = tuple(column.name for column in COMMON if column.name != "id")

TABLE = Table(
    "collective_costs",
    "what a logical collective is estimated to take, and its place among all of its module; the row"
    " has the id of its row in collectives",
    (
        *COMMON,
        Column("spec", "text", "volatile", "device spec of the estimates; NULL: none is known"),
        Column(
            "spec_from",
            "enum",
            "volatile",
            "what told the spec: the user (--spec, HLOLENS_SPEC, the config), the provenance.json"
            " of the compile, or the device in the file name of XLA's dump",
            values=("user", "side_file", "platform"),
        ),
        Column(
            "domain",
            "enum",
            "structural",
            "connections that its groups use: fast within one domain of the spec (NVLink, xGMI,"
            " ICI), slow between several; NULL without a spec, and where the text does not say who"
            " takes part",
            values=("fast", "slow"),
        ),
        Column(
            "bandwidth_us",
            "float",
            "volatile",
            "estimate of one run: wire_bytes ÷ bandwidth of these connections",
            unit="µs",
        ),
        Column(
            "latency_us",
            "float",
            "volatile",
            "estimate of one run: launch and steps of the ring, as far as the spec has them; NULL"
            " where it has neither",
            unit="µs",
        ),
        Column(
            "estimate_us",
            "float",
            "volatile",
            "estimate of one run, both together; NULL without a spec or without its bandwidth",
            unit="µs",
        ),
        Column(
            "estimate_step_us",
            "float",
            "volatile",
            "estimate_us × executions; NULL where one of them is",
            unit="µs",
        ),
        Column(
            "exposed",
            "bool",
            "structural",
            "is_sync, or nothing computes between start and done; NULL where the text is not"
            " scheduled",
        ),
        Column(
            "hidden_by",
            "enum",
            "structural",
            "what computes between start and done: nothing where it is exposed, light work, or"
            " heavy work (matmuls, kernels, …: heavy_between); NULL where exposed is",
            values=_HIDING,
        ),
        Column(
            "exposed_us",
            "float",
            "volatile",
            "estimate_step_us of one that is exposed; NULL of one that overlaps, as how long that"
            " compute takes is not known",
            unit="µs",
        ),
        Column(
            "hidden_us_max",
            "float",
            "volatile",
            "upper bound of what compute hides of estimate_step_us: all of it where it overlaps, 0"
            " where it is exposed",
            unit="µs",
        ),
        Column(
            "exposed_bytes",
            "bytes",
            "measure",
            "wire_bytes × executions of one that is exposed, 0 of one that overlaps",
        ),
        Column(
            "queue_before",
            "int",
            "measure",
            "other collectives that are started and not done on the same core (of a GPU: stream)"
            " where this one is started, in loops and calls around it too; NULL where the text is"
            " not scheduled",
            unit="collectives",
        ),
        Column(
            "weight",
            "float",
            "volatile",
            "what rank goes by: estimate_us, where the module has no estimates wire_bytes or their"
            " bound, × executions; of an unknown trip count its bound, else one run",
        ),
        Column(
            "rank",
            "int",
            "volatile",
            "place among the collectives of the module, 1 to look at first: by weight, those in"
            " front that no heavy work hides (light work is short); then those that it may hide",
        ),
    ),
)

SPEC_BROKEN: Final = Rule(
    "spec-broken",
    "warning",
    "A device spec of the user cannot be used.",
    "What --spec, HLOLENS_SPEC or `spec` in the config names is no known device and no TOML file of"
    " the form of hlo_lens_passes/catalogues/devices.toml, or a catalogue has a [[device]] that"
    " cannot be read. The message says what is wrong. Where the named spec is unknown, nothing is"
    " estimated.",
)


@dataclass(frozen=True, slots=True)
class CollectiveCostsPass:
    """One row a row of collectives, with its id."""

    name: str = "collective_costs"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("collectives",)
    rules: tuple[Rule, ...] = (SPEC_BROKEN,)

    def run(self, program: Program, facts: Facts) -> PassResult:
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


PASS = CollectiveCostsPass()
