"""The published cases: every fact their YAML states that a table holds, by SQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.passes.asking import ask_file
from tests.shared import texts

COUNTS = {
    "opcode_counts": "select count(*) from instructions where opcode = '{}'",
    "opcodes": "select count(*) from instructions where opcode = '{}'",
    "custom_call_targets": "select count(*) from custom_calls where target = '{}'",
    "collectives": "select count(*) from collectives where kind = '{}'",
    "collectives_static": "select count(*) from collectives where kind = '{}'",
    "collectives_dynamic": "select sum(executions) from collectives where kind = '{}'",
    "kernels_by_name": "select count(*) from custom_calls where kernel = '{}'",
    "bytes_per_execution": "select operand_bytes from collectives where name = '{}'",
    "workspace_bytes": "select workspace_bytes from custom_calls where name = '{}'",
    "offload_annotations":
        "select count(*) from offload where kind in ('annotation', 'move')"
        " and '{}' in (direction, iif(is_matched, '', 'unmatched'))",
}  # fmt: skip
"""Fact -> the question whose answer the YAML gives for each key below it."""

BY_PHASE = {
    "dot_by_phase": "select count(*) from instructions where opcode = 'dot'",
    "kernels_by_phase": "select count(*) from custom_calls where true",
    "custom_calls_by_phase": "select count(*) from custom_calls where true",
}
# The cases define a phase as that of the instruction's own name.
PHASE = " and phase = '{}' and phase_from in ('own', 'caller')"
BY_NAME_AND_PHASE = {
    "opcodes_by_phase": "select count(*) from instructions where opcode = '{}'",
    "collectives_by_phase": "select count(*) from collectives where kind = '{}'",
}
SCALARS = {
    "trip_count": "select trip_count from loops",
    "opt_barriers": "select count(*) from instructions where opcode = 'opt-barrier'",
    "group_size": "select distinct group_size from collectives",
    "overlapped": "select sum(overlapped) from async_pairs",
    "wasted_output_bytes": "select sum(wasted_bytes) from collective_waste",
    "all_gather_output_bytes_each":
        "select distinct result_bytes from collectives where kind = 'all-gather'",
    "stacked_residuals_of_fwd_loop":
        "select json_array_length(stacked) from loops where phase = 'fwd'",
}  # fmt: skip
OTHER = (
    "select i.name from offload o join instructions i on i.module = o.module and i.id = o.matched"
    " where o.name = '{}'"
)
NAME = "(select name from instructions i where (i.module, i.id) = (c.module, c.{}))"
AGAIN = (
    f"select {NAME.format('source_instr')} || ', ' || {NAME.format('regather_of')} || ', ' || name"
    " from collectives c where is_regather"
)
FED = (
    "select feeds_name, feeds_operand, (select group_concat(i.name, ', ') from members m"
    " join instructions i on (i.module, i.id) = (m.module, m.instr) where m.role = 'path' and"
    " (m.\"table\", m.module, m.row) = ('collective_values', v.module, v.id))"
    " from collective_values v where name = '{}'"
)
PREFETCHED = (
    "select group_concat(name || ' ' || prefetch_carry, ', ') from collectives where prefetched"
)
PEELED = (
    f"select group_concat({NAME.format('peeled_of')}, ', ') from collectives c"
    " where peeled_of is not null and loop is null"
)
# Of what a row is about, the names of its members of one role.
WASTE_MEMBER = (
    "(select group_concat(distinct i.name) from members m join instructions i"
    " on (i.module, i.id) = (m.module, m.instr) where m.role = '{}'"
    " and (m.\"table\", m.module, m.row) = ('collective_waste', w.module, w.id))"
)
ACCUMULATED = (
    "select carry_index from collective_waste where kind = 'accumulate_only' and name = '{}'"
)
ONLY_SLICED = (
    f"select {WASTE_MEMBER.format('slice')}, kept_fraction, {WASTE_MEMBER.format('device')}"
    " from collective_waste w where kind = 'only_sliced' and name = '{}'"
)
TWICE = (
    f"select {WASTE_MEMBER.format('partner')}, name, {WASTE_MEMBER.format('barrier')}"
    " from collective_waste w where kind = 'duplicate'"
)
# Facts by phase whose phase remat is what is replayed, and where a table counts that.
REPLAYED = {
    "dot_by_phase": "select sum(matmuls) from remat",
    "opcodes_by_phase dot": "select sum(matmuls) from remat",
    "kernels_by_phase": "select sum(kernels) from remat",
}
# Which parameters labelled instructions are computed from, but for what comes through a barrier.
AROUND_THE_BARRIER = """
    with recursive above(instr) as (
        select instr from remat_ops union
        select e.producer from edges e join above a on e.user = a.instr
        join instructions i on i.instr = e.producer where i.name != '{}'
    ) select group_concat(name) from above join instructions using (instr)
    where opcode in ('parameter', 'opt-barrier')"""
# Of a dense product: what it contracts, what the ragged dot would, and what masks its rows.
EXPANDED = (
    "select m.k, r.k, r.factor, (select group_concat(i.name) from members e join instructions i"
    " on (i.module, i.id) = (e.module, e.instr) where e.role = 'mask'"
    " and (e.\"table\", e.module, e.row) = ('ragged_dots', r.module, r.id))"
    " from ragged_dots r join matmuls m using (module, instr)"
    " where lowering = 'dense_padded' and r.name = '{}'"
)
RAGGED = (
    "select groups, 'ragged ' || replace(variant, '_', '-') from ragged_dots"
    " where lowering = 'ragged-dot' and name = '{}'"
)
CONFIGURED = (
    "select t.value from custom_calls c, json_tree(c.config) t where c.name = '{}' and t.key = '{}'"
)
DTYPES = "select lhs_dtype, rhs_dtype, out_dtype, algorithm, phase from matmuls where name = '{}'"
AFTER = "select convert_after ->> 'to', convert_after ->> 'via' from matmuls where name = '{}'"
IN_FRONT = (
    "select c.value ->> 'from', c.value ->> 'operand', c.value ->> 'via'"
    " from matmuls, json_each(convert_before) c where name = '{}'"
)
PAIR_COLUMNS = {"instructions_between", "compute_between", "is_sync", "wraps", "bytes",
                "from_memory_space", "to_memory_space"}  # fmt: skip


def questions(facts: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """(what is asked, the SQL, the answer) for each stated fact that a table holds."""
    for fact, stated in facts.items():
        if fact in COUNTS:
            for key, answer in stated.items():
                yield f"{fact} {key}", COUNTS[fact].format(key), answer
        elif fact in BY_PHASE:
            for phase, answer in stated.items():
                yield f"{fact} {phase}", BY_PHASE[fact] + PHASE.format(phase), answer
        elif fact in BY_NAME_AND_PHASE:
            for key, phases in stated.items():
                for phase, answer in phases.items():
                    sql = BY_NAME_AND_PHASE[fact].format(key) + PHASE.format(phase)
                    yield f"{fact} {key} {phase}", sql, answer
        elif fact in SCALARS:
            yield fact, SCALARS[fact], stated
        elif fact == "pairs":
            for first, second in stated:
                yield f"counterpart of {first}", OTHER.format(first), second
        elif fact == "entry_parameters_in_host":
            for told in stated:
                columns = ", ".join(told).replace("index", "position")
                sql = f"select {columns} from offload where kind = 'parameter'"
                yield fact, sql, tuple(told.values())
        elif fact == "duplicate_groups":
            for group in stated:
                yield fact, AGAIN, ", ".join([group["source"], *group["members"]])
                yield f"{fact}, twice", TWICE, (*group["members"], *group["through"])
        elif fact == "accumulate_only":
            for one in stated:
                name = one["all-reduce"]
                yield f"{name} is added up", ACCUMULATED.format(name), one["carry_index"]
        elif fact in ("all_reduce_only_sliced", "custom_call_result_only_sliced_by_partition"):
            for one in stated:
                name = one.get("all-reduce") or one["custom_call"]
                device = one.get("index_from", "partition-id.1")
                answer = one["slice"], one["kept_fraction"], device
                yield f"{name} is only sliced", ONLY_SLICED.format(name), answer
        elif fact == "collective_feeding_custom_call":
            for fed in stated:
                answer = (fed["custom_call"], fed["operand"], ", ".join(fed["path"]))
                yield fact, FED.format(fed["collective"]), answer
        elif fact == "prefetched_for_next_iteration":
            answer = ", ".join(f"{one['collective']} {one['carry_index']}" for one in stated)
            yield fact, PREFETCHED, answer
            yield f"{fact}, peeled", PEELED, ", ".join(one["collective"] for one in stated)
        elif fact == "async_pairs":
            yield from pair_questions(stated)
        elif fact == "whiles":
            for name, loop in stated.items():
                columns = "trip_count, compiler_made, origin_op"
                sql = f"select {columns} from loops where name = '{name}'"
                made = int(loop["compiler_made"])
                yield name, sql, (loop["trip_count_inferred"], made, loop["origin_op"])
        elif fact == "collectives_in_loops":
            for loop, kinds in stated.items():
                for kind, answer in kinds.items():
                    yield f"{kind} in {loop}", (
                        "select count(*) from collectives c join instructions i"
                        " on i.module = c.module and i.id = c.loop"
                        f" where c.kind = '{kind}' and i.name = '{loop}'"
                    ), answer
        else:
            yield from lowering_questions(fact, stated)


def lowering_questions(fact: str, stated: Any) -> Iterator[tuple[str, str, object]]:
    """The same for what matmuls, ragged dots, attention and kernels became."""
    if fact == "backend_config":
        for name, fields in stated.items():
            for field, answer in fields.items():
                yield f"{name} {field}", CONFIGURED.format(name, field), answer
    elif fact == "score_matrices":
        yield fact, "select sum(coalesce(score_values, 0)) from attention", len(stated)
    elif fact == "ragged_dot":
        for one in stated:
            yield fact, RAGGED.format(one["name"]), (one["groups"], one["mode"])
    elif fact == "dense_expansion":
        for one in stated:
            answer = (one["contracting"], one["original_k"], one["factor"], one["mask"])
            yield fact, EXPANDED.format(one["dot"]), answer
    elif fact == "dot_flops":
        for name, answer in stated.items():
            dense = "lowering = 'dense_padded'"
            sql = f"select flops from ragged_dots where {dense} and name = '{name}'"
            if name == "native_equivalent":
                sql = f"select useful_flops from ragged_dots where {dense}"
            yield f"{fact} {name}", sql, answer
    elif fact == "dots":
        for dot in stated:
            name = dot["name"]
            answer = (*dot["in"], dot["out"], dot["algorithm"], dot["phase"])
            yield f"dtypes of {name}", DTYPES.format(name), answer
            after = dot["convert_after"]
            yield f"convert behind {name}", AFTER.format(name), (after["to"], after["via"])
            for one in dot.get("convert_before", ()):
                answer = (one["from"], one["operand"], one["via"])
                yield f"convert in front of {name}", IN_FRONT.format(name), answer


def replay_questions(facts: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """The same for what is replayed, and what a policy keeps instead."""
    by_phase = dict(facts)
    for opcode, phases in facts.get("opcodes_by_phase", {}).items():
        by_phase[f"opcodes_by_phase {opcode}"] = phases
    for fact, sql in REPLAYED.items():
        if "remat" in by_phase.get(fact, {}):
            yield f"{fact}, replayed", sql, by_phase[fact]["remat"]
    if "barrier_dataflow" in facts:
        barrier = facts["barrier_dataflow"].rpartition(" ")[2]
        yield "barrier_dataflow", AROUND_THE_BARRIER.format(barrier), None
        region = "select i.name from remat r join instructions i on i.instr = r.barrier"
        yield "barrier of the region", region, barrier
    if "stacked_residuals_of_fwd_loop" in facts:
        kept = "select count(*) from residuals where kind = 'stacked'"
        yield "residuals", kept, facts["stacked_residuals_of_fwd_loop"]


def pair_questions(pairs: list[dict[str, Any]]) -> Iterator[tuple[str, str, object]]:
    for pair in pairs:
        for column in sorted(PAIR_COLUMNS & set(pair)):
            sql = f"select {column} from async_pairs where name = '{pair['start']}'"
            answer = pair[column]
            yield f"{column} of {pair['start']}", sql, int(answer) if answer is True else answer


def cases() -> Iterator[Any]:
    for path in texts("cases/*.hlo"):
        (stated,) = texts(f"cases/{path.name[:2]}-*.yaml")
        facts = yaml.safe_load(stated.read_text(encoding="utf-8"))["expect"]
        letter = path.name[2]
        of_file = facts if letter == "-" else facts[letter]
        for what, sql, answer in (*questions(of_file), *replay_questions(of_file)):
            yield pytest.param(path, sql, answer, id=f"{path.name[:3]} {what}")


@pytest.mark.parametrize(("path", "sql", "answer"), list(cases()))
def test_what_a_case_states(path: Path, sql: str, answer: object) -> None:
    (row,) = ask_file(path, sql)
    found = row[0] if len(row) == 1 else row
    assert (found or 0) == answer if answer in (0, False) else found == answer
