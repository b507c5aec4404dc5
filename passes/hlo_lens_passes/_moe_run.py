"""Fills the moe table: what the pass of `hlo_lens_passes.moe` runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hlo_lens.facts import Finding, Member, PassResult, Rule, common
from hlo_lens_passes._device_specs import choose
from hlo_lens_passes._moe_balance import Balance, balance_of
from hlo_lens_passes._moe_look import may_hold_experts
from hlo_lens_passes._moe_rows import Found, Part, flops_of, written
from hlo_lens_passes.moe import DENSE, DROPS, ROUTING

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._device_specs import Chosen

Row = Mapping[str, object]


def run(program: Program, facts: Facts) -> PassResult:
    """One row a block of experts and phase, with its members, and the findings."""
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
                Member("moe", number, role, position, instr) for role, instr in written(part.roles)
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
