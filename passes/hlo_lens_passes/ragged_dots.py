"""The ragged_dots table: every ragged or grouped matmul, what it is and what it became."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.dumps import AFTER
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

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.facts import Facts
    from hlo_lens.program import Program
    from hlo_lens_passes._ragged_found import Class, Ragged

Row = Mapping[str, object]
_Cause = tuple[int | None, float, str]

LOWERINGS: Final = (
    "ragged-dot", "grouped_gemm", "cudnn_fusion", "triton_fusion", "mosaic_kernel", "triton_kernel",
    "tpu_native", "dense_padded",
)  # fmt: skip

TABLE = Table(
    "ragged_dots",
    "a matrix multiplication of groups of rows, each with a matrix of its own (ragged_dot),"
    " whatever the compiler made of it",
    (
        *COMMON,
        Column(
            "class",
            "enum",
            "identity",
            "by the dimension numbers: fwd contracts K of weights [G,K,N], dgrad N, wgrad the rows;"
            " of what has no dimension numbers any more, by the dimension of the weights, as they"
            " come into the program, that is contracted; NULL for a ragged batch and where nothing"
            " tells. Weights stored with in and out exchanged, [G,N,K], turn fwd and dgrad round;"
            " what it computes in the step is in direction",
            values=("fwd", "dgrad", "wgrad"),
        ),
        Column(
            "direction",
            "enum",
            "identity",
            "what it computes in the step, by phase and dataflow, however the weights are stored:"
            " the forward, also replayed, or a gradient of rows or weights; as class says where"
            " nothing else tells; NULL where not known, as of a lone dgrad without a name",
            values=("fwd", "dgrad", "wgrad"),
        ),
        Column(
            "role",
            "enum",
            "identity",
            "which projection of an expert, by dataflow: wo takes what others, wi, give, element by"
            " element; gradients by the weights, rows or cotangents they share; else NULL",
            values=("wi", "wo"),
        ),
        Column(
            "projection",
            "enum",
            "identity",
            "of two wi that of which a nonlinearity is taken is gate, the other up; a wi whose"
            " result is split in two is fused; wo is down; else NULL",
            values=("gate", "up", "fused", "down"),
        ),
        Column(
            "variant",
            "enum",
            "structural",
            "what the ragged dimension is: rows, a summed dimension, or a batch; NULL: not known",
            values=("non_contracting", "contracting", "batch"),
        ),
        Column(
            "lowering",
            "enum",
            "structural",
            "what it became: still a ragged-dot; a library's grouped gemm; a fusion of cuDNN or"
            " Triton; a kernel of Mosaic or Triton; a convolution that the TPU compiler runs over"
            " each group's rows only; or a dense product over all groups (of a ragged batch: of all"
            " rows)",
            values=LOWERINGS,
        ),
        Column("backend", "text", "structural", "library or compiler part that runs it, or NULL"),
        Column("groups", "int", "measure", "number of groups (experts)"),
        Column("m", "int", "measure", "as in matmuls; of a wgrad the rows of one matrix, K"),
        Column("n", "int", "measure", "as in matmuls"),
        Column("k", "int", "measure", "summed, of one group; of a wgrad all rows"),
        Column(
            "flops",
            "flops",
            "measure",
            "issued by one execution: of a dense product measured from the dot, all groups and"
            " slices counted; of a grouped one what is useful; NULL while it is a ragged-dot",
        ),
        Column(
            "useful_flops",
            "flops",
            "measure",
            "2·M·K·N, an upper bound, reached when the groups cover every row; of a batch of them,"
            " or of a ragged batch, times its size",
        ),
        Column("factor", "float", "measure", "flops ÷ useful_flops"),
        Column(
            "split_k",
            "int",
            "measure",
            "slices in which a dense product sums, 1: it is not cut; NULL for the others",
        ),
        Column(
            "extra_bytes",
            "bytes",
            "measure",
            "what only the expansion writes to memory in one execution: masked copies of rows, less"
            " the rows in them, and the slices of a split sum, but no masks; 0 where all is fused,"
            " and for what is grouped. A copy that several take counts in each. NULL before"
            " optimization",
        ),
        Column("workspace_bytes", "bytes", "measure", "scratch memory of a library call"),
        Column("evidence", "json", "volatile", "what told, as a list of words"),
        Column(
            "why_not_grouped",
            "text",
            "structural",
            "of a dense product, after optimization: `not supported`, `not enabled` or `unknown`,"
            " and which condition; NULL for the others",
        ),
        Column(
            "checks",
            "json",
            "volatile",
            "conditions of the grouped lowerings of the platform, as [{rule, answer, why}], answer"
            " being yes, no or unknown; NULL where why_not_grouped is",
        ),
        Column("matmul", "int", "volatile", "id of its row in matmuls; NULL where it has none"),
    ),
    summary=Summary(
        "ragged dots",
        order=32,
        about="a dense product computes every row for every group",
        by=(
            Cell("phase"),
            Cell("class"),
            Cell("role"),
            Cell("projection"),
            Cell("lowering"),
            Cell("groups", "groups"),
            Cell("split_k", "split K", blank=(1,)),
        ),
        measures=(
            Measure("ragged dots", "rows"),
            Measure("runs", "executions"),
            Measure("FLOP issued", "per_step", "flops", at_most="useful_flops"),
            Measure("FLOP useful", "per_step", "useful_flops"),
            Measure("bytes extra", "per_step", "extra_bytes"),
        ),
        unknown=(Cell("lowering"),),
    ),
)

PADDED = Rule(
    "ragged-dense-padded",
    "warning",
    "A ragged dot runs as one dense product over all groups.",
    "XLA has no grouped kernel for it there, or was told not to use it, and lays the rows out for"
    " every group, masks what belongs to another one, and contracts groups and K at once"
    " (`ragged_dot_rewriter.cc`). Every row is multiplied by the weights of every group: FLOPs are"
    " `factor` times what is useful, and the masked copies are extra memory. `why_not_grouped` in"
    " `ragged_dots` says which condition of a grouped lowering does not hold, `checks` has all.",
)


@dataclass(frozen=True, slots=True)
class RaggedDotsPass:
    """One row a ragged dot: still there, grouped, in a kernel, or expanded."""

    name: str = "ragged_dots"
    tables: tuple[Table, ...] = (TABLE,)
    requires: tuple[str, ...] = ("matmuls", "custom_calls", "modules")
    rules: tuple[Rule, ...] = (PADDED,)

    def run(self, program: Program, facts: Facts) -> PassResult:
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


PASS = RaggedDotsPass()
