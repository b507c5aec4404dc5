"""The moe table: every expert block, how its experts run, what routes to them, and what that takes.

Which products are experts is told by structure (`_moe_blocks`): axes that dataflow ties together
and a choice of experts for each token. Names decide nothing but the phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.facts import (
    COMMON,
    Cell,
    Column,
    Finding,
    Measure,
    Member,
    PassResult,
    Rule,
    Summary,
    Table,
    common,
)
from hlo_lens_passes._device_specs import choose
from hlo_lens_passes._moe_balance import Balance, balance_of
from hlo_lens_passes._moe_look import may_hold_experts
from hlo_lens_passes._moe_rows import Found, Part, flops_of, written

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._device_specs import Chosen

Row = Mapping[str, object]

TABLE = Table(
    "moe",
    "a block of experts in one phase: products with a matrix for each expert, and what takes each"
    " token to some of them; instr is the first of the products",
    (
        *COMMON,
        Column(
            "path",
            "enum",
            "identity",
            "how experts run: dense_masked puts every token through every expert and weighs the"
            " results; fixed_capacity puts tokens into a fixed number of slots an expert; ragged"
            " sorts them by expert and multiplies groups of rows (see ragged_dots)",
            values=("dense_masked", "fixed_capacity", "ragged"),
        ),
        Column(
            "experts",
            "int",
            "measure",
            "experts that the router chooses among; without a router those whose matrices are here,"
            " on one device",
        ),
        Column(
            "local_experts",
            "int",
            "measure",
            "experts whose matrices the products have, on one device; NULL where not known",
        ),
        Column(
            "capacity",
            "int",
            "measure",
            "slots of an expert (C), for each batch where tokens are dispatched batch by batch;"
            " NULL for the other paths",
        ),
        Column(
            "tokens", "int", "measure", "tokens that are routed, on one device; NULL: not known"
        ),
        Column(
            "top_k",
            "int",
            "measure",
            "experts chosen for each token; NULL where no top-k is seen, and"
            " where experts choose tokens, capacity each",
        ),
        Column(
            "shared_experts",
            "int",
            "measure",
            "width of the MLP that every token goes through beside its experts ÷ width of an expert"
            "; 0: none is seen; NULL where there is no router, or it does not divide",
        ),
        Column(
            "drops",
            "bool",
            "structural",
            "whether a token's choice can be dropped: where an expert has fewer slots than there"
            " are tokens for them; false where experts choose, and a token may be chosen by none;"
            " NULL where rows are exchanged, whose buffers may be too small",
        ),
        Column(
            "gated",
            "bool",
            "structural",
            "whether an expert multiplies two projections of a token; NULL where not known",
        ),
        Column(
            "routing_bytes",
            "bytes",
            "measure",
            "bytes read + written in one execution by what routes: sorts and top-k, gathers and"
            " scatters (indices, and the rows they move, read and written), all-to-alls, cumulative"
            " sums, and products that dispatch to slots and combine; as if each went to memory",
        ),
        Column(
            "all_to_all_bytes",
            "bytes",
            "measure",
            "wire_bytes_max of its all-to-alls in one execution (see collectives): of ragged ones"
            " the most that it can be; 0: none",
        ),
        Column(
            "gemm_flops",
            "flops",
            "measure",
            "issued in one execution by the products of the experts; of a ragged-dot before"
            " optimization, of all rows",
        ),
        Column(
            "routing_ops",
            "int",
            "measure",
            "operations that routing_bytes adds up; both NULL where none is seen but a router that"
            " may be the block's moves something in this phase",
        ),
        Column(
            "balance",
            "enum",
            "volatile",
            "which takes longer by an estimate, a rough one without overlap and launches: routing,"
            " routing_bytes ÷ memory_bandwidth of the device spec + all_to_all_bytes ÷ bandwidth of"
            " all links in its fast domain; compute, gemm_flops ÷ its peak_flops of dense BF16,"
            " whatever their dtype; evidence has the numbers and their sources; NULL without a"
            " device spec (see collective_costs) or without one of these numbers",
            values=("routing", "compute"),
        ),
        Column("evidence", "json", "volatile", "what told, as a list of words"),
    ),
    summary=Summary(
        "expert blocks",
        order=34,
        about="FLOP as issued; routing bytes read and written",
        by=(
            Cell("loop"),
            Cell("phase"),
            Cell("path"),
            Cell("experts"),
            Cell("top_k", "top-k"),
            Cell("capacity"),
            Cell("shared_experts", "shared", blank=(0,)),
            Cell("drops", words=("drops", "")),
            Cell("balance", "bound by"),
        ),
        measures=(
            Measure("blocks", "rows"),
            Measure("runs", "executions"),
            Measure("tokens", "each", "tokens"),
            Measure("expert FLOP per step", "per_step", "gemm_flops"),
            Measure("routing bytes per step", "per_step", "routing_bytes"),
            Measure("all-to-all bytes per step", "per_step", "all_to_all_bytes"),
        ),
    ),
)

DENSE: Final = Rule(
    "moe-dense-masked",
    "note",
    "Every token goes through every expert.",
    "The products compute each expert for each token, and weights that are zero for the experts a"
    " token did not choose take the results out again: FLOPs are experts ÷ top_k times what the"
    " choice asks for. No token is dropped and nothing is sorted, so that it is right for few"
    " experts and for checks. Ragged products (MaxText: sparse_matmul=True; jax.lax.ragged_dot)"
    " compute the chosen rows only.",
)
DROPS: Final = Rule(
    "moe-drops-tokens",
    "note",
    "An expert has a fixed number of slots: choices beyond it are dropped.",
    "Tokens are put into C slots of each expert by a mask. What does not fit is left out, and slots"
    " that nobody takes are computed all the same. The capacity factor is C·experts ÷"
    " (tokens·top_k): 1 is just enough if all experts are chosen equally often.",
)
ROUTING: Final = Rule(
    "moe-routing-heavy",
    "note",
    "Routing is estimated to take longer than the experts.",
    "By the device spec, what sorts, gathers, scatters and exchanges rows takes longer than the"
    " FLOPs of the experts: `evidence` of the row has both times. The estimate takes peak rates"
    " and no overlap; small experts, many chosen ones, and rows that are moved more than once do"
    " this.",
)


@dataclass(frozen=True, slots=True)
class MoePass:
    """One row a block of experts and phase."""

    name: str = "moe"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("matmuls", "ragged_dots", "collectives")
    rules: tuple[Rule, ...] = (DENSE, DROPS, ROUTING)

    def run(self, program: Program, facts: Facts) -> PassResult:
        matmuls, ragged = facts.records_by_module("matmuls"), facts.records_by_module("ragged_dots")
        rows: list[dict[str, object]] = []
        members: list[Member] = []
        findings: list[Finding] = []
        chosen: Chosen | None = None
        sent: dict[tuple[object, object], object] = {}
        for position, module in enumerate(program.modules):
            mine, grouped = matmuls.get(position, []), ragged.get(position, [])
            analysis = program.analysis(module)
            if not may_hold_experts(analysis, mine, bool(grouped)):
                continue
            for part in Found(analysis, mine, grouped).parts():
                if chosen is None:
                    chosen = choose(program)
                    sent = _sent(facts)
                number = len(rows)
                columns = _columns(part, position, sent)
                balance = _balance(chosen, columns)
                columns["balance"] = None if balance is None else balance.side
                told = [*part.block.told, *(["experts choose tokens"] if part.choice else [])]
                told += [balance.told] if balance is not None else []
                rows.append(
                    common(program, position, part.instr) | _phase(part) | columns
                    | {"evidence": told}
                )  # fmt: skip
                members += (
                    Member("moe", number, role, position, instr)
                    for role, instr in written(part.roles)
                )
                findings += _findings(position, number, rows[-1], part.block.among, balance)
        return PassResult({"moe": rows}, members, findings)


def _sent(facts: Facts) -> dict[tuple[object, object], object]:
    """wire_bytes_max of each collective, by the instructions that it is written as."""
    rows = {(row["module"], row["id"]): row for row in facts.records("collectives")}
    found = {(one["module"], one["instr"]): one["wire_bytes_max"] for one in rows.values()}
    for member in facts.members("collectives"):
        row = rows.get((member.module, member.row))
        if row is not None:
            found.setdefault((member.module, member.instr), row["wire_bytes_max"])
    return found


def _phase(part: Part) -> dict[str, object]:
    """Its phase where dataflow tells it and names do not."""
    return {"phase": part.key[0], "phase_from": "dataflow"} if part.inferred else {}


def _columns(
    part: Part, position: int, sent: Mapping[tuple[object, object], object]
) -> dict[str, object]:
    block = part.block
    router = part.router
    experts = block.experts if router is None else router.experts
    tokens = block.tokens if router is None else router.tokens
    top_k = None if router is None else router.top_k
    if part.choice is not None:
        experts, tokens, top_k = part.choice.experts, part.choice.tokens, None
    known = [size for size in part.bytes if size is not None]
    wires = [sent.get((position, instr.id)) for instr in part.sent]
    bytes_sent = [size for size in wires if isinstance(size, int)]
    # A router that no block is known of may be this one, computed again in another way.
    unknown = part.doubtful and not part.bytes
    drops: bool | None = None
    if part.choice is not None:
        drops = False
    elif block.path == "fixed_capacity" and block.capacity is not None and block.among is not None:
        drops = block.capacity < block.among
    elif not part.exchanged:
        drops = False
    return {
        "path": block.path,
        "experts": experts,
        "local_experts": block.experts,
        "capacity": block.capacity,
        "tokens": tokens,
        "top_k": top_k,
        "shared_experts": part.shared,
        "drops": drops,
        "gated": block.gated,
        "routing_bytes": sum(known) if len(known) == len(part.bytes) and not unknown else None,
        "all_to_all_bytes": sum(bytes_sent) if len(bytes_sent) == len(wires) else None,
        "gemm_flops": flops_of(part.products),
        "routing_ops": None if unknown else len(part.bytes),
    }


def _balance(chosen: Chosen, columns: Mapping[str, object]) -> Balance | None:
    routing, sent = columns["routing_bytes"], columns["all_to_all_bytes"]
    flops = columns["gemm_flops"]
    return balance_of(
        chosen.spec,
        routing if isinstance(routing, int) else None,
        sent if isinstance(sent, int) else None,
        flops if isinstance(flops, (int, float)) else None,
    )


def _findings(
    position: int,
    number: int,
    row: Mapping[str, object],
    among: int | None,
    balance: Balance | None,
) -> list[Finding]:
    """among: how many tokens share the slots."""
    told: list[tuple[Rule, str, str]] = []
    name, experts, top_k = row["name"], row["experts"], row["top_k"]
    again = row["phase"] in ("bwd", "remat")
    if row["path"] == "dense_masked" and not again:
        more = ""
        if isinstance(experts, int) and isinstance(top_k, int) and top_k:
            more = f" for a choice of {top_k}: {experts / top_k:g} times the FLOP it asks for"
        told.append((DENSE, f"{name}: every token goes through all {experts} experts{more}",
                     "a ragged product computes the chosen rows only"))  # fmt: skip
    if row["drops"] and not again:
        told.append((DROPS, f"{name}: {experts} experts of {row['capacity']} slots"
                     f"{_factor(row, among)}; what does not fit is dropped",
                     "raise the capacity factor, or use a path without drops"))  # fmt: skip
    if balance is not None and balance.side == "routing":
        told.append((ROUTING, f"{name}: routing is estimated at {balance.routing:.3g} us, the"
                     f" experts at {balance.compute:.3g} us",
                     "move rows once, in the narrowest dtype, and fuse the combine"))  # fmt: skip
    instr = row["instr"]
    assert isinstance(instr, int)
    return [
        Finding(rule.id, rule.level, message, module=position, instr=instr,
                evidence=(("moe", number),), help=help)
        for rule, message, help in told
    ]  # fmt: skip


def _factor(row: Mapping[str, object], among: int | None) -> str:
    """For how many tokens, and the capacity factor, where it is known."""
    if not among:
        return ""
    sizes = [row[name] for name in ("capacity", "experts", "top_k")]
    known = [size for size in sizes if isinstance(size, int) and size]
    if len(known) < len(sizes):
        return f" for {among} tokens"
    capacity, experts, top_k = known
    factor = capacity * experts / (among * top_k)
    return f" for {among} tokens that choose {top_k} (capacity factor {factor:g})"


PASS = MoePass()
