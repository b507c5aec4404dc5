"""Fills the remat and remat_ops tables: what the pass of `hlo_lens_passes.remat` runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hlo_lens.analysis.calls import written_instruction
from hlo_lens.analysis.names import is_absolute
from hlo_lens.analysis.schedule import IDLE_TARGETS
from hlo_lens.facts import Finding, Member, PassResult, common
from hlo_lens.hlo import Instruction
from hlo_lens.program import AFTER, BEFORE
from hlo_lens_passes._remat_occurrences import (
    Occurrence,
    Occurrences,
    Operation,
    Work,
    fused_copies,
)
from hlo_lens_passes._remat_paths import depth_of, plain_path
from hlo_lens_passes._remat_verdicts import Verdict, compiler_verdicts, unlabelled, verdicts
from hlo_lens_passes.remat import RULES

if TYPE_CHECKING:
    from hlo_lens.analysis import Loop
    from hlo_lens.facts import Facts
    from hlo_lens.hlo import Module
    from hlo_lens.program import Program


@dataclass(slots=True)
class _Region:
    """A row in the making."""

    kind: str
    scope: str | None
    loop: Loop | None
    barrier: Instruction | None
    ops: list[tuple[Occurrence, Verdict]] = field(default_factory=list)

    def replayed(self, work: Work | None = None) -> list[Occurrence]:
        """What is replayed and no cheap operation, or only that of one kind of work."""
        return [
            one
            for one, verdict in self.ops
            if verdict.word == "replayed" and one.work is not None and work in (None, one.work)
        ]

    def count(self, work: Work) -> int:
        return len({one.unit for one in self.replayed(work)})

    @property
    def instr(self) -> Instruction:
        """What stands for it: its barrier, else what it replays, in its own loop if possible."""
        if self.barrier is not None:
            return self.barrier
        body = None if self.loop is None else self.loop.body
        nearest = min(
            (one for one, _ in self.ops),
            key=lambda one: (
                body not in (one.instr.computation, *(c.computation for c in one.via[-1:])),
                one.work is None,
            ),
        )
        return nearest.instr

    @property
    def verdict(self) -> str:
        if self.replayed():
            return "recomputed"
        words = {verdict.word for _, verdict in self.ops}
        return next(word for word in _CHEAPEST_FIRST if word in words)


_CHEAPEST_FIRST: Final = (
    "shared", "sole", "linearization", "fusion-duplicated", "replayed", "unknown",
)  # fmt: skip


def run(program: Program, facts: Facts) -> PassResult:
    """The rows of both tables, with their members, and the findings."""
    work = _Work(facts)
    found: list[tuple[int, Occurrences, list[_Region]]] = []
    findings: list[Finding] = []
    for position, module in enumerate(program.modules):
        occurrences = Occurrences(program.analysis(module), work.operations(position, module))
        found.append((position, occurrences, _regions(occurrences)))
        if not occurrences.any_names and occurrences.of_any:
            findings.append(_without_names(position, found[-1][2]))
        findings.extend(_saved_twice(position, occurrences, facts))
    shown = {
        _scope(region)
        for position, _, regions in found
        for region in regions
        if program.stages[position] == AFTER
    }
    writer = _Writer(program, facts, _undone(program, found), shown)
    for position, occurrences, regions in found:
        for region in regions:
            writer.add(position, occurrences, region)
    findings.extend(writer.findings)
    rows = {"remat": writer.regions, "remat_ops": writer.operations}
    return PassResult(rows, writer.members, findings)


class _Work:
    """The matmuls, kernels and collectives of the modules, by instruction id."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.matmuls = facts.records_by_module("matmuls")
        self.calls = facts.records_by_module("custom_calls")
        self.collectives = facts.records_by_module("collectives")

    def operations(self, position: int, module: Module) -> dict[int, Operation]:
        # A convolution is one call of a library where there is one. Most of a TPU text are matmuls.
        found = {
            Instruction(computation, index).id: Operation("kernel")
            for computation in module.computations
            for index, opcode in enumerate(computation.opcodes)
            if opcode == "convolution"
        }
        gathers = {row["id"]: row for row in self.collectives.get(position, ())}
        for member in self.facts.members("collectives"):
            row = gathers.get(member.row) if member.module == position else None
            if row is not None and member.role in ("operation", "permute", "start"):
                again = row["regather_of"]
                assert again is None or isinstance(again, int)
                found[member.instr] = Operation("collective", None, again, member.row)
        for row in self.calls.get(position, ()):
            if row["target"] not in IDLE_TARGETS:
                found.setdefault(_int(row["instr"]), Operation("kernel"))
        for row in self.matmuls.get(position, ()):
            if row["k"] == 1:
                found.pop(_int(row["instr"]), None)
                continue  # nothing is summed: XLA makes a multiplication of it
            flops = row["flops"]
            count = int(flops) if isinstance(flops, int | float) else None
            found[_int(row["instr"])] = Operation("matmul", count)
        return found


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


# -- regions --------------------------------------------------------------------------------------


def _regions(found: Occurrences) -> list[_Region]:
    regions: dict[object, _Region] = {}
    judged = verdicts(found)
    first: dict[object, Instruction] = {}
    scopes = _scopes(found, judged)
    for one in judged:
        if one.barrier is not None:
            first.setdefault((scopes[one], found.loop_of(one)), one.barrier)
    for one, verdict in judged.items():
        loop = found.loop_of(one)
        # What takes nothing from the barrier, such as a broadcast, goes with what does.
        barrier = one.barrier or first.get((scopes[one], loop))
        _put(regions, _Region("framework", scopes[one], loop, barrier), one, verdict)
    for one, verdict in compiler_verdicts(found).items():
        _put(regions, _Region("compiler", None, found.loop_of(one), None), one, verdict)
    if not found.any_names:
        for one, verdict in unlabelled(found):
            region = _Region("unlabelled", None, found.loop_of(one), one.barrier)
            _put(regions, region, one, verdict)
    return list(regions.values())


def _scopes(found: Occurrences, ones: Iterable[Occurrence]) -> dict[Occurrence, str | None]:
    """The scope of each: for one without an op_name, that of what takes it."""
    ones = list(ones)
    takers: dict[int, str] = {}
    for one in ones:
        if one.scope is not None:
            for operand in found.numbers[one.number].operands:
                takers.setdefault(operand, one.scope)
    only = set(takers.values())
    fallback = only.pop() if len(only) == 1 else None
    return {one: one.scope or takers.get(one.number, fallback) for one in ones}


def _put(
    regions: dict[object, _Region], region: _Region, one: Occurrence, verdict: Verdict
) -> None:
    loop = None if region.loop is None else region.loop.instr
    key = region.kind, region.scope, loop, region.barrier
    regions.setdefault(key, region).ops.append((one, verdict))


_Scope = tuple[str, ...]


def _undone(
    program: Program, found: Sequence[tuple[int, Occurrences, list[_Region]]]
) -> dict[int, dict[_Scope, int]]:
    """For the modules before and after optimization, each scope in which something was replayed
    before: how much of that is not after."""
    stages = {program.stages[one[0]]: one for one in found}
    if BEFORE not in stages or AFTER not in stages:
        return {}
    if len({program.modules[stages[stage][0]].name for stage in (BEFORE, AFTER)}) > 1:
        return {}  # texts of two programs, as where one of them is left from an earlier compile
    before, after = (_replayed(*stages[stage][1:]) for stage in (BEFORE, AFTER))
    undone = {
        scope: sum((counts - after.get(scope, Counter())).values())
        for scope, counts in before.items()
    }
    return {stages[stage][0]: undone for stage in (BEFORE, AFTER)}


def _replayed(found: Occurrences, regions: Iterable[_Region]) -> dict[_Scope, Counter[Work]]:
    """How many of each kind of work are replayed in a scope."""
    each: dict[_Scope, Counter[Work]] = {}
    for region in regions:
        if region.kind == "framework":
            each.setdefault(_scope(region), Counter()).update(_counts(found, region))
    return each


def _counts(found: Occurrences, region: _Region) -> dict[Work, int]:
    """How many of each kind of work are replayed in a region; of matmuls and collectives, which
    XLA merges, how many products and arrays."""
    products = {one.unit: found.products(one) for one in region.replayed("matmul")}
    arrays = (found.results_of(one.number) for one in region.replayed("collective"))
    return {
        "matmul": sum(products.values()),
        "kernel": region.count("kernel"),
        "collective": sum(map(len, arrays)),
    }


def _scope(region: _Region) -> _Scope:
    return plain_path(region.scope) if region.scope else ()


# -- rows -----------------------------------------------------------------------------------------


class _Writer:
    """shown: the scopes that the optimized text has regions of. Others are gone from it."""

    def __init__(
        self,
        program: Program,
        facts: Facts,
        undone: dict[int, dict[_Scope, int]],
        shown: set[_Scope],
    ) -> None:
        self.program = program
        self.shown = shown
        self.facts = facts
        self.undone = undone
        self.forward: dict[tuple[int, _Scope], int | None] = {}
        # What is kept for what is behind each barrier, and for each backward loop.
        self.kept: dict[tuple[int, int], list[dict[str, object]]] = {}
        rows = {(row["module"], row["id"]): row for row in facts.records("residuals")}
        for member in facts.members("residuals"):
            if member.role == "barrier":
                row = rows[member.module, member.row]
                self.kept.setdefault((member.module, member.instr), []).append(row)
        for row in rows.values():
            if row["backward_loop"] is not None and row["kind"] in ("stacked", "copy_of_input"):
                key = _int(row["module"]), _int(row["backward_loop"])
                self.kept.setdefault(key, []).append(row)
        self.regions: list[dict[str, object]] = []
        self.operations: list[dict[str, object]] = []
        self.members: list[Member] = []
        self.findings: list[Finding] = []

    def add(self, position: int, found: Occurrences, region: _Region) -> None:
        number = len(self.regions)
        verdict, scope = region.verdict, _scope(region)
        undone = self.undone.get(position, {}).get(scope)
        evidence = _evidence(region)
        after = self.program.stages[position] == AFTER
        if undone and after:
            if verdict != "recomputed":
                verdict = "undone"
                evidence = f"before optimization it was recomputed; now: {evidence}"
            left = sum(_counts(found, region).values())
            self.findings.append(_undone_finding(position, number, region, undone, left))
        elif undone and scope not in self.shown:
            self.shown.add(scope)
            self.findings.append(_undone_finding(position, number, region, undone, 0))
        flops = _flops(region.replayed("matmul"))
        forward = self._forward(position, found, region)
        self.regions.append(
            common(self.program, position, written_instruction(region.instr))
            | {
                "kind": region.kind,
                "scope": region.scope,
                "depth": None if region.scope is None else depth_of(region.scope),
                "barrier": None if region.barrier is None else region.barrier.id,
                "verdict": verdict,
                "operations": len({one.instr for one, _ in region.ops}),
                "matmuls": region.count("matmul"),
                "kernels": region.count("kernel"),
                "collectives": region.count("collective"),
                "flops": flops,
                "forward_flops": forward,
                "recompute_factor": flops / forward if forward and flops is not None else None,
                "saved_bytes": self._saved(position, region),
                "undone": undone,
                "evidence": evidence,
            }
        )
        self._add_members(position, number, region)
        for one, verdict_on, times in _once(region.ops):
            self._add_operation(position, number, region.kind, one, verdict_on, times)

    def _forward(self, position: int, found: Occurrences, region: _Region) -> int | None:
        """Of the forward's matmuls under its scope; regions of one scope ask once."""
        if region.kind != "framework":
            return None
        key = position, _scope(region)
        if key not in self.forward:
            self.forward[key] = _forward_flops(found, key[1])
        return self.forward[key]

    def _saved(self, position: int, region: _Region) -> int | None:
        if region.barrier is not None:
            kept = self.kept.get((position, region.barrier.id), [])
        elif region.loop is not None:
            kept = self.kept.get((position, region.loop.instr.id), [])
            if not kept:
                return None
        else:
            return None
        sizes = [row["bytes"] for row in kept]
        return None if None in sizes else sum(map(_int, sizes))

    def _add_members(self, position: int, number: int, region: _Region) -> None:
        roles: dict[tuple[str, int], None] = {}
        if region.barrier is not None:
            roles["barrier", region.barrier.id] = None
            for operand in region.barrier.operands:
                if operand.opcode == "tuple":
                    roles["given", written_instruction(operand).id] = None
        if region.loop is not None:
            roles["loop", region.loop.instr.id] = None
        for one, verdict in region.ops:
            replayed = verdict.word == "replayed"
            roles["replayed" if replayed else "operation", written_instruction(one.instr).id] = None
            for twin in verdict.twins if replayed else ():
                roles["twin", written_instruction(twin).id] = None
        self.members += (Member("remat", number, role, position, instr) for role, instr in roles)

    def _add_operation(
        self,
        position: int,
        region: int,
        kind: str,
        one: Occurrence,
        verdict: Verdict,
        times: int | None,
    ) -> None:
        number = len(self.operations)
        instr = written_instruction(one.instr)
        twin = written_instruction(verdict.twins[0]) if verdict.twins else None
        self.operations.append(
            common(self.program, position, instr)
            | {
                "name": one.instr.name,
                "kind": kind,
                "region": region,
                "opcode": one.instr.opcode,
                "verdict": verdict.word,
                "work": one.work,
                "twin": None if twin is None else twin.id,
                "twin_name": None if twin is None else verdict.twins[0].name,
                "flops": None if one.operation is None else one.operation.flops,
                "times": times,
                "basis": verdict.basis,
                "evidence": verdict.evidence,
            }
        )
        self.members.append(Member("remat_ops", number, "operation", position, instr.id))
        self.members += (
            Member("remat_ops", number, "twin", position, twin)
            for twin in dict.fromkeys(written_instruction(twin).id for twin in verdict.twins)
        )


def _once(
    ops: Iterable[tuple[Occurrence, Verdict]],
) -> Iterator[tuple[Occurrence, Verdict, int | None]]:
    """The occurrences of one instruction under one verdict as one, with all their runs."""
    merged: dict[object, list[tuple[Occurrence, Verdict]]] = {}
    for one, verdict in ops:
        merged.setdefault((one.instr, verdict.word), []).append((one, verdict))
    for same in merged.values():
        times = [one.times for one, _ in same]
        yield (*same[0], None if None in times else sum(filter(None, times)))


def _flops(matmuls: Iterable[Occurrence]) -> int | None:
    """Of all their runs, in one execution of the entry; None where something is not known."""
    total = 0
    for one in matmuls:
        flops = None if one.operation is None else one.operation.flops
        if flops is None or one.times is None:
            return None
        total += flops * one.times
    return total


def _forward_flops(found: Occurrences, scope: _Scope) -> int | None:
    """Of the forward's matmuls under a scope, without copies in fusions, as none are in what is
    replayed; one that has lost its op_name is under it where it stands in the loop of one that has
    not."""
    matmuls = [one for one in found.of_forward if one.work == "matmul"]
    copies = fused_copies(found.analysis, (one.instr for one in matmuls))
    matmuls = [one for one in matmuls if one.instr not in copies]
    named = [one for one in matmuls if one.op_name and _stands_under(one.path, scope)]
    loops = {one.via[:1] for one in named if one.via and one.via[0].opcode == "while"}
    unnamed = [one for one in matmuls if one.op_name is None and one.via[:1] in loops]
    return _flops([*named, *unnamed])


def _stands_under(path: _Scope, scope: _Scope) -> bool:
    """Whether a path begins with a scope, behind the name of the program."""
    start = int(bool(path) and is_absolute(path[0]))
    return path[start : start + len(scope)] == scope


def _evidence(region: _Region) -> str:
    counts: dict[str, int] = {}
    for _, verdict in region.ops:
        counts[verdict.word] = counts.get(verdict.word, 0) + 1
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    first = next(
        (v.evidence for one, v in region.ops if v.word == "replayed" and one.work is not None),
        region.ops[0][1].evidence,
    )
    return f"{words}: {first}"


# -- findings -------------------------------------------------------------------------------------


def _without_names(position: int, regions: Sequence[_Region]) -> Finding:
    count = sum(len(region.ops) for region in regions)
    told = f"{count} instructions compute again what an earlier one does" if count else "no replay"
    return Finding(
        RULES[0].id,
        RULES[0].level,
        f"no op_names, so labels cannot tell what is rematerialized; by structure: {told}",
        module=position,
        help='print the text with debug information: lowered.as_text("hlo", debug_info=True)',
    )


def _undone_finding(position: int, row: int, region: _Region, undone: int, left: int) -> Finding:
    return Finding(
        RULES[1].id,
        RULES[1].level,
        f"the checkpoint at {region.scope} is undone for {undone} of {undone + left} operations:"
        " replayed before optimization, computed once after it",
        module=position,
        instr=written_instruction(region.instr).id,
        evidence=(("remat", row),),
        help="scan over the layers, or keep prevent_cse=True and a back end that honours barriers",
    )


def _saved_twice(position: int, found: Occurrences, facts: Facts) -> Iterator[Finding]:
    """Stacked residuals of one loop that hold the same value."""
    stacks: dict[tuple[int, int], int] = {}
    for context in found.congruence.contexts():
        computation = context.evaluation.computation
        for index in context.evaluation.inner:
            if computation.opcode_of(index) != "while":
                continue
            value = found.numbers.elements(context.evaluation.values[index])
            for element, number in enumerate(value or ()):
                known = found.numbers[number]
                if known.kind == "stack":
                    loop = Instruction(computation, index).id
                    stacks[loop, element] = known.operands[1]
    first: dict[tuple[object, int], dict[str, object]] = {}
    for row in facts.records("residuals"):
        if row["module"] != position or row["kind"] != "stacked":
            continue
        written = stacks.get((_int(row["forward_loop"]), _int(row["tuple_index"])))
        if written is None:
            continue
        other = first.setdefault((row["forward_loop"], written), row)
        if other is not row:
            yield Finding(
                RULES[2].id,
                RULES[2].level,
                f"{found.analysis.module.instruction(_int(row['forward_loop'])).name} stacks one"
                f" value twice, as elements {other['tuple_index']} and {row['tuple_index']}"
                f" ({row['shape']})",
                module=position,
                instr=_int(row["instr"]),
                evidence=(("residuals", _int(other["id"])), ("residuals", _int(row["id"]))),
                help="save it under one name, or by one policy",
            )
