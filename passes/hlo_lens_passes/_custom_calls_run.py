"""Fills the custom_calls table: what the pass of `hlo_lens_passes.custom_calls` runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from hlo_lens.decode.kernels import body_of, get_ready, operations
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.hlo import Instruction
from hlo_lens_passes import _call_contract as contract
from hlo_lens_passes import _kernel_again as again
from hlo_lens_passes import _kernel_launch as launch
from hlo_lens_passes._call_config import config_text
from hlo_lens_passes._call_gathers import Gathered, gathered_operands
from hlo_lens_passes._calls import (
    attributes_of,
    config_of,
    custom_calls,
    entry_of,
    result_of,
    target_of,
)
from hlo_lens_passes._catalogue import Catalogue, catalogue
from hlo_lens_passes._kernel_names import kernel_name

if TYPE_CHECKING:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.program import Program

# What stands for no work of its own: nothing is asked of its operands.
_PLUMBING: Final = frozenset(("buffer", "layout", "sharding"))


def run(program: Program, broken: Sequence[Finding]) -> PassResult:
    """One row a written custom call, with its members, and the findings, the `broken` first."""
    known = catalogue()
    rows: list[dict[str, object]] = []
    members: list[Member] = []
    findings = [*broken]
    for position, module in enumerate(program.modules):
        analysis = program.analysis(module)
        runs: list[again.Run] = []
        calls = [*custom_calls(module.computations)]
        _prepare(analysis, calls, known)
        for call in calls:
            number = len(rows)
            row = {**common(program, position, call), **_row(analysis, call, known)}
            gathered = () if row["family"] in _PLUMBING else _gathered(analysis, call, row)
            members += _members(number, position, analysis, call, gathered)
            rows.append(row)
            if again.is_kernel(row):
                runs.append(_run(number, call, row))
        repeated = again.runs_again(analysis, runs)
        for one in repeated:
            members += again.members(one, position)
        findings += again.findings(repeated, position)
    return PassResult({"custom_calls": rows}, members, findings)


def _prepare(analysis: ModuleAnalysis, calls: Sequence[Instruction], known: Catalogue) -> None:
    """Where there are kernels with bodies to read, their reader begins while values are numbered:
    both take long, and whether a kernel runs again asks for both."""
    kernels = sum(entry_of(call, known).op == "kernel" for call in calls)
    if kernels:
        get_ready()
    if kernels > 1:
        _ = analysis.congruence.entry


def _row(analysis: ModuleAnalysis, call: Instruction, known: Catalogue) -> dict[str, object]:
    entry = entry_of(call, known)
    attributes = attributes_of(call)
    config = config_of(attributes)
    body = None if config is None else body_of(config)
    kernel, kernel_from = None, None
    if entry.op == "kernel":
        kernel, kernel_from = kernel_name(
            call, attributes, config, body, known.kernel, lambda: analysis.full_op_name(call)
        )
    launched = known.kernel(kernel) if kernel is not None else None
    result = result_of(call)
    frontend = attributes.get("frontend_attributes")
    return {
        "target": target_of(call),
        "family": entry.family,
        "op": (launched and launched.op) or _op(call, entry.op, kernel),
        "direction": (launched and launched.direction) or entry.direction,
        "kernel": kernel,
        "kernel_from": kernel_from,
        "operand_layouts": contract.operand_layouts(call, attributes),
        "result_layouts": None if result is None else [str(leaf) for leaf in result.leaves()],
        "aliasing": contract.aliasing(attributes),
        "api_version": attributes.get("api_version"),
        "epilogue": contract.epilogue(config),
        "workspace_bytes": contract.workspace_bytes(result) if entry.workspace else None,
        "scoped_memory_bytes": contract.scoped_memory(config),
        "vmem_limit_bytes": contract.vmem_limit(config),
        "thread": contract.thread(call, attributes),
        "has_side_effect": attributes.get("custom_call_has_side_effect") in ("true", "1"),
        "grid": launch.grid(config, body),
        "num_warps": launch.num_warps(config),
        "num_stages": launch.num_stages(config),
        "tiles": launch.tiles(config, frontend, kernel),
        "buffers": launch.buffers(config, frontend, body, kernel),
        "settings": launch.settings(config, body) if entry.op == "kernel" or body else None,
        "estimated_flops": launch.estimated_flops(config),
        "estimated_bytes": launch.estimated_bytes(config),
        "body_ops": None if body is None else operations(body),
        "body_hash": None if body is None else body.digest,
        "body_from": None if body is None else body.form,
        "body_bytes": None if body is None else body.size,
        "config": None if config is None else config_text(config),
    }


def _op(call: Instruction, op: str | None, kernel: str | None) -> str | None:
    """What a target computes; not known of a kernel whose name a text without op_names lost."""
    lost = op == "kernel" and kernel is None and not call.computation.module.has_metadata
    return None if lost else op


def _gathered(
    analysis: ModuleAnalysis, call: Instruction, row: dict[str, object]
) -> tuple[Gathered, ...]:
    """The operands that collectives give; two columns of the row are filled with them."""
    found = tuple(gathered_operands(analysis.graph, call))
    row["gathered_operands"] = len(found)
    row["gathered_by"] = [
        {"operand": one.operand, "collective": one.collective.name, "kind": one.kind}
        for one in found
    ]
    return found


def _run(number: int, call: Instruction, row: dict[str, object]) -> again.Run:
    shapes = row["operand_layouts"]
    likeness = (
        row["target"],
        row["kernel"],
        row["body_hash"],
        tuple(shape.partition("{")[0] for shape in shapes) if isinstance(shapes, list) else None,
    )
    name, phase, executions = row["kernel"] or row["target"], row["phase"], row["executions"]
    return again.Run(
        number,
        call,
        likeness,
        str(name),
        phase if isinstance(phase, str) else None,
        executions if isinstance(executions, int) else None,
    )


def _members(
    row: int,
    position: int,
    analysis: ModuleAnalysis,
    call: Instruction,
    gathered: tuple[Gathered, ...],
) -> Iterator[Member]:
    """The call itself, the starts and dones of the wrappers around it, and the collectives that
    give its operands."""
    yield Member("custom_calls", row, "call", position, call.id)
    starts = [call] if call.opcode == "custom-call-start" else []
    starts += [
        site.caller for site in analysis.graph.callers(call.computation) if site.kind == "async"
    ]
    for start in starts:
        if start != call:
            yield Member("custom_calls", row, "start", position, start.id)
        for done in _dones(start):
            yield Member("custom_calls", row, "done", position, done.id)
    for collective in dict.fromkeys(one.collective for one in gathered):
        yield Member("custom_calls", row, "gathered", position, collective.id)


def _dones(start: Instruction) -> Iterator[Instruction]:
    for user in start.users:
        if user.base_opcode == "async-done":
            yield user
        elif user.base_opcode == "async-update":
            yield from _dones(user)
