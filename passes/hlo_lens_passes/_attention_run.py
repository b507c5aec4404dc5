"""Fills the attention table: what the pass of `hlo_lens_passes.attention` runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hlo_lens.analysis.collectives import shape_of
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.hlo import parse_shape
from hlo_lens.program import AFTER
from hlo_lens_passes._attention_exposed import Exposed, Finder, score_text
from hlo_lens_passes._attention_kernels import Fused, flops_of, fused_sites
from hlo_lens_passes._attention_masks import share
from hlo_lens_passes._attention_memory import Arrays, array_spelled, arrays_of
from hlo_lens_passes._attention_repeats import PRODUCTS, Repeated
from hlo_lens_passes._attention_sizes import told_of_site
from hlo_lens_passes._attention_table import (
    again,
    fell_back,
    in_memory,
    kernel_beside,
    repeated,
    share_a_length,
)
from hlo_lens_passes._attention_weights import AS_GIVEN

if TYPE_CHECKING:
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Instruction
    from hlo_lens.program import Program

Row = dict[str, Any]


def run(program: Program, facts: Facts) -> PassResult:
    """One row a site and direction, with its members, and the findings."""
    rows: list[Row] = []
    members: list[Member] = []
    findings: list[Finding] = []
    calls = facts.records_by_module("custom_calls")
    matmuls = facts.records_by_module("matmuls")
    again_rows = {m.row for m in facts.members("custom_calls") if m.role == "first"}
    for position in range(len(program.modules)):
        attention = [row for row in calls.get(position, ()) if row["op"] == "attention"]
        module = _Module(program, position, again_rows)
        sites = [*enumerate(module.sites(attention, matmuls.get(position, ())), len(rows))]
        for number, site in sites:
            members += (
                Member("attention", number, role, position, instr.id)
                for role, instrs in site.roles.items()
                for instr in instrs
                if not instr.implied
            )
        mine = [(number, site.row) for number, site in sites]
        rows += (site.row for _, site in sites)
        if program.stages[position] == AFTER:
            arrays = {number: str(site.arrays) for number, site in sites if site.arrays}
            twice = {number: [*map(str, site.repeated)] for number, site in sites}
            findings += (*fell_back(mine), *in_memory(mine, arrays), *again(mine))
            findings += repeated(mine, twice)
    return PassResult({"attention": rows}, members, findings)


@dataclass(frozen=True, slots=True)
class _Site:
    """A row, its members by role, what it computes more than once, and its scores in memory."""

    row: Row
    roles: Mapping[str, Sequence[Instruction]]
    repeated: Sequence[Repeated] = ()
    arrays: Arrays | None = None


class _Module:
    """The sites of one module."""

    def __init__(self, program: Program, position: int, again_rows: set[int]) -> None:
        self.program = program
        self.position = position
        self.analysis = program.analysis(program.modules[position])
        self.optimized = program.stages[position] == AFTER
        self.again_rows = again_rows

    def sites(self, calls: Sequence[Row], matmuls: Sequence[Row]) -> list[_Site]:
        """Each site, in the order of the text."""
        found = [
            _Site(self._fused(site), {"call": site.calls})
            for site in fused_sites(self.analysis, calls)
        ]
        fused = [site.row for site in found]
        finder = Finder(self.analysis, matmuls)
        exposed = finder.sites()
        if exposed:
            again = {*self._again(exposed, finder)}
            found += (self._exposed(site, finder, site in again, fused) for site in exposed)
        _judge_labelled([site.row for site in found])
        return sorted(found, key=lambda one: one.row["instr"])

    # -- fused ------------------------------------------------------------------------------------

    def _fused(self, site: Fused) -> Row:
        told = site.told
        row: Row = common(self.program, self.position, site.calls[0])
        evidence = [f"custom call {site.rows[0]['target']}", *told.why]
        if told.causal is None:
            evidence.append(f"whether it is causal is not told: {told.hidden}")
        again = any(one["id"] in self.again_rows for one in site.rows)
        if again:
            evidence.append("computes what an earlier call did")
        score, size = _score(told.score)
        causal_share = _share(told.causal, told.window, told.sizes.q_length, told.sizes.kv_length)
        workspace = [one["workspace_bytes"] for one in site.rows]
        if len(site.calls) > 1:
            evidence.append(f"{len(site.calls)} calls on the same arrays")
        return row | {
            "route": site.route,
            "direction": site.direction,
            "recomputed": None if site.direction is None else again and site.direction == "fwd",
            "kernel": site.kernel,
            "causal": told.causal,
            "window": told.window,
            **asdict(told.sizes),
            "score_shape": score,
            "score_bytes": size,
            "score_values": told.written if self.optimized else None,
            "score_written_bytes": _written(told.written, size) if self.optimized else None,
            "flops": flops_of(site.direction, told.sizes, told.v_dim),
            "causal_fraction": causal_share,
            "workspace_bytes": _total(workspace),
            "fell_back": False,
            "evidence": evidence,
        }

    # -- exposed ----------------------------------------------------------------------------------

    def _exposed(self, site: Exposed, finder: Finder, again: bool, fused: Sequence[Row]) -> _Site:
        row: Row = common(self.program, self.position, site.product)
        told = told_of_site(finder.values, site.softmax)
        sizes = told.sizes
        mask = site.softmax.mask
        lengths = sizes.q_length, sizes.kv_length
        score, size = _score(score_text(site))
        arrays = arrays_of(self.analysis.graph, site.written) if self.optimized else None
        twice = [*finder.repeats.of(site)]
        evidence = [*_evidence(site), *told.why, *map(str, twice)]
        if again:
            evidence.append("computes what an earlier site did")
        summed = [
            role for role in PRODUCTS if any(map(finder.values.products.is_sum, site.of(role)))
        ]
        if summed:
            evidence.append(f"a multiply and a sum, not a dot: {', '.join(summed)}")
        exponential = shape_of(site.softmax.exponential.instr)
        if arrays is not None and arrays.count:
            evidence.append(f"scores in memory: {arrays}")
            size = arrays.largest
        row |= {
            "route": "exposed",
            "direction": site.direction,
            "recomputed": again,
            "kernel": None,
            "causal": mask.causal(*lengths),
            "window": mask.window,
            **asdict(sizes),
            "score_shape": score,
            "score_bytes": size,
            "score_values": None if arrays is None else arrays.count,
            "score_written_bytes": None if arrays is None else arrays.total,
            "softmax_dtype": None if exponential is None else exponential.dtype,
            "flops": _flops(site, finder),
            "causal_fraction": mask.fraction(*lengths),
            "evidence": evidence,
        }
        neighbour = kernel_beside(row, fused)
        row["fell_back"] = neighbour is not None
        if neighbour is not None:
            evidence.append(f"another site is a {neighbour['route']} kernel")
            if not share_a_length(row, neighbour):
                evidence.append("whether that is as long is not told")
        roles: dict[str, Sequence[Instruction]] = {role: [*its] for role, its in site.roles.items()}
        if arrays is not None:
            roles["written"] = arrays.instrs
        return _Site(row, roles, twice, arrays)

    def _again(self, sites: Sequence[Exposed], finder: Finder) -> Iterator[Exposed]:
        """Forward sites that compute what one in front of them has, in a text with a backward."""
        forward = [site for site in sites if site.direction == "fwd"]
        if len(forward) < 2 or len(forward) == len(sites):
            return
        seen: set[object] = set()
        for site in sorted(forward, key=self._when):
            number = finder.saved.number(site.product)
            if number in seen:
                yield site
            seen.add(number)

    def _when(self, site: Exposed) -> tuple[bool, int, int]:
        """What runs first, first: the rematerialized last, else by where the program calls it."""
        at = site.product
        while (caller := self.analysis.graph.only_caller(at.computation)) is not None:
            at = caller.caller
        phase = self.analysis.phase(site.product).phase
        return phase in ("bwd", "remat"), at.index, site.product.id


def _judge_labelled(rows: Sequence[Row]) -> None:
    """A forward under `rematted_computation` runs again where there is another forward; where there
    is none, that of the forward pass was dead, and it is the only one."""
    forward = [row for row in rows if row["direction"] == "fwd"]
    another = any(row["phase"] not in ("remat", "bwd") for row in forward)
    for row in forward:
        if row["phase"] == "remat":
            row["evidence"].append("stands under rematted_computation")
            row["recomputed"] = row["recomputed"] or another
            if not row["recomputed"]:
                row["evidence"].append("no other forward is there")


def _evidence(site: Exposed) -> Iterator[str]:
    softmax = site.softmax
    if site.saved:
        yield "takes the probabilities that a forward made, by the flow of the values"
    elif softmax.maxima:
        yield "softmax over the keys: their maximum is subtracted"
    elif softmax.rows:
        yield "softmax over the keys: a number for each query is subtracted"
    else:
        yield "exponential of the scores, summed over the keys"
    if site.divided_after:
        yield "divided by the sum behind the product with V"
    elif not site.of("div") and not site.saved:
        yield "no division by the sum found"
    if site.mixed:
        yield "softmaxes of several scores are added or subtracted in front of one product with V"
    if site.as_given:
        yield AS_GIVEN
    if softmax.has_sink:
        yield "more than the keys takes part in the softmax (a sink)"
    if "tanh" in softmax.tree.opcodes:
        yield "scores capped by tanh"
    mask = softmax.mask
    if mask.by_position:
        yield "mask compares positions"
    if mask.hidden:
        yield "mask compares positions with what the text does not tell"
    elif mask.data:
        yield "part of the mask, or what is added to the scores, is data"
    if site.direction == "bwd":
        found = [role for role in ("dv", "dp", "dq", "dk") if site.of(role)]
        yield f"gradient products: {', '.join(found)}"


def _flops(site: Exposed, finder: Finder) -> int | None:
    """2·batch·m·n·k of each of its products, as often as it is issued."""
    total = 0
    for instr in dict.fromkeys(one for role in PRODUCTS for one in site.of(role)):
        product = finder.values.products.matrices(instr)
        if product is None:
            return None
        batch, rows, columns, summed = product.sizes
        total += 2 * batch * rows * columns * summed
    return total


def _score(text: str | None) -> tuple[str | None, int | None]:
    """dtype and dimensions of scores, and their bytes; None where the text is no array's."""
    spelled = None if text is None else array_spelled(text)
    return spelled, None if spelled is None else parse_shape(spelled).bytes


def _share(
    causal: bool | None, window: int | None, queries: int | None, keys: int | None
) -> float | None:
    if causal is False and window is None:
        return 1.0
    if not causal or queries is None or keys is None or queries != keys:
        return None
    return share(queries, keys, 0, None if window is None else window - 1)


def _total(sizes: Sequence[object]) -> int | None:
    known = [size for size in sizes if isinstance(size, int)]
    return sum(known) if known else None


def _written(count: int | None, size: int | None) -> int | None:
    """Bytes of so many arrays of a size."""
    if count == 0:
        return 0
    return None if count is None or size is None else count * size
