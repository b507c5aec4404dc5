"""The pairs of docs/pairs.md: what each is about, from the diff of its two sides alone."""

from __future__ import annotations

from hlo_lens.diff import ProgramDiff
from tests.diff.comparing import (
    added,
    changes,
    counts,
    diff_cases,
    moves,
    removed,
    table,
)

V7X, V6E, V6E8, ROCM = "tpu:tpu7x-8", "tpu:v6e-1", "tpu:v6e-8", "rocm:gfx950"
HAND = "hand-made"
PARTITIONED, BEFORE = "after_spmd_partitioner", "before_optimizations"
WHERE = ("logical_kind", "dtype", "phase", "executions")


def pair(old: str, new: str, target: str, *stage: str) -> ProgramDiff:
    return diff_cases(f"pairs/{old}", f"pairs/{new}", target, *stage)


def collectives(found: ProgramDiff) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Those that are gone, and those that are new."""
    return removed(found, "collectives", *WHERE), added(found, "collectives", *WHERE)


# -- (a) the query weight, gathered once or twice in the backward


def test_one_gather_of_the_backward_is_gone_behind_the_partitioner() -> None:
    found = pair("query-gather-twice", "query-gather-once", V7X, PARTITIONED)
    gather = ("all-gather", "bf16", "remat", 4)
    assert collectives(found) == ([gather], [])
    assert table(found, "collectives").changed == ()
    assert counts(found, "while.30", "all-gather") == {("all-gather", "bf16[512,512]"): -1}


def test_hand_made_gathers_once_and_then_an_all_reduce_instead() -> None:
    once = pair("hand-query-gather-twice", "hand-query-gather-once", HAND)
    assert collectives(once) == ([("all-gather", "bf16", "remat", 4)], [])
    wrong = pair("hand-query-gather-once", "hand-query-gather-constrained", HAND)
    assert collectives(wrong) == (
        [("reduce-scatter", "bf16", "bwd", 4)],
        [("all-reduce", "bf16", "bwd", 4)],
    )


# -- (b) an FP8 fake-quantised weight


def test_eight_all_reduces_become_one() -> None:
    found = pair("fake-quant-in-loop", "fake-quant-absmax", V7X)
    reduce = ("all-reduce", "bf16")
    assert collectives(found) == (
        [(*reduce, "fwd", 4), (*reduce, "remat", 4)],
        [(*reduce, "fwd", 1)],
    )
    assert table(found, "collectives").changed == ()


def test_the_gathers_move_half_the_bytes() -> None:
    found = pair("fake-quant-absmax", "fake-quant-gather8", V7X)
    assert collectives(found) == ([], [])
    assert changes(found, "collectives", "dtype") == [("bf16", "f8e4m3fn")] * 4
    assert changes(found, "collectives", "wire_bytes") == [(917504, 458752)] * 4
    assert changes(found, "collectives", "core") == []


def test_as_uint8_they_run_on_the_other_core() -> None:
    found = pair("fake-quant-absmax", "fake-quant-uint8", V7X)
    what = ("logical_kind", "dtype", "core", "executions")
    gone, new = removed(found, "collectives", *what), added(found, "collectives", *what)
    assert gone == [("all-gather", "bf16", "sparsecore", 4)] * 4
    assert new == [("all-gather", "u8", "tensorcore", 4)] * 4


def test_codes_that_are_widened_before_they_travel_change_nothing() -> None:
    found = pair("fake-quant-absmax", "fake-quant-late", V7X)
    assert table(found, "collectives").same
    assert table(found, "matmuls").same
    assert found.stages[0].matching.same


# -- (c) gradients of norm scales


def test_the_compiler_hoists_both_so_that_only_the_dtype_changes() -> None:
    found = pair("norm-scale-bf16", "norm-scale-f32", V6E8)
    assert collectives(found) == ([], [])
    assert changes(found, "collectives", "dtype") == [("bf16", "f32")]
    assert changes(found, "collectives", "executions") == []
    assert moves(found, "collectives", "name") == []


def test_a_sharded_scale_leaves_the_combined_reduction_for_the_loop() -> None:
    found = pair("norm-scale-f32", "norm-scale-sharded", V6E8)
    gone, new = collectives(found)
    assert gone == []
    assert new == [
        ("all-reduce", "f32", "bwd", 4),
        ("all-reduce", "f32", "bwd", 4),
        ("all-reduce", "f32", "fwd", 4),
    ]
    assert changes(found, "collectives", "operand_shape") == [
        ("f32[4,512], f32[4,512]", "f32[4,512]")
    ]


def test_hand_made_reductions_leave_the_loop_and_the_wrong_one_stays_there_too() -> None:
    hoisted = pair("hand-norm-scale-in-loop", "hand-norm-scale-hoisted", HAND)
    assert collectives(hoisted) == (
        [("all-reduce", "bf16", "bwd", 4)],
        [("all-reduce", "f32", "other", 1)],
    )
    assert counts(hoisted, "while", "all-reduce") == {("all-reduce", "bf16[512]"): -1}
    assert counts(hoisted, None, "all-reduce") == {("all-reduce", "f32[512]"): 1}
    wrong = pair("hand-norm-scale-hoisted", "hand-norm-scale-wrong", HAND)
    assert collectives(wrong) == ([], [("all-reduce", "bf16", "bwd", 4)])


# -- (d) the same permutation argsorted twice


def test_two_sorts_become_one() -> None:
    found = pair("unsort-argsort", "unsort-scatter", V6E)
    assert counts(found, None, "sort") == {("sort", "tuple"): -1}
    assert not found.same


def test_the_wrong_way_back_sorts_as_often_and_selects_otherwise() -> None:
    found = pair("unsort-scatter", "unsort-same", V6E)
    assert counts(found, None, "sort", "scatter") == {}
    assert not found.same
    assert len(found.stages[0].matching.only_old) > len(found.stages[0].matching.only_new)


def test_gpus_have_one_scatter_less() -> None:
    found = pair("unsort-argsort", "unsort-scatter", ROCM)
    assert counts(found, None, "sort", "scatter") == {("scatter", "s32[16384]"): -1}


# -- (e) positions reordered again in the backward, or saved


def test_the_replay_loses_its_permute_and_its_select() -> None:
    found = pair("positions-replayed", "positions-saved", V7X, BEFORE)
    assert collectives(found) == ([("collective-permute", "s32", "remat", 4)], [])
    compiled = pair("positions-replayed", "positions-saved", V7X)
    assert counts(compiled, "while.30", "select") == {("select", "s32[2,128,1]"): -1}
    assert collectives(compiled) == ([], [])


def test_saving_them_as_they_came_computes_what_it_did() -> None:
    found = pair("positions-replayed", "positions-natural", V7X, BEFORE)
    assert table(found, "collectives").same
    matching = found.stages[0].matching
    assert (matching.only_old, matching.only_new) == ([], [])
    assert all(body.counts == () for body in found.stages[0].bodies)
    # what is saved is handed on
    handed_on = {matching.old.instruction(at).opcode for at, _ in matching.changed}
    assert handed_on <= {"tuple", "call", "custom-call"}


# -- (f) data movement


def test_the_whole_weight_is_no_longer_joined_in_either_pass() -> None:
    weight = "bf16[8,256,1024]"
    loops = {V6E: ("while.4", "while.5"), ROCM: ("while.11", "while.16")}
    for target, names in loops.items():
        found = pair("fused-weight-sliced", "fused-weight-split", target)
        for name in names:
            assert counts(found, name, "fusion")["fusion", weight] < 0
    for name in loops[ROCM]:
        assert counts(found, name, "concatenate")["concatenate", weight] == -1


def test_a_grouped_gemm_reads_the_weight_as_it_lies() -> None:
    found = pair("backward-weight-transposed-f16", "backward-weight-native-f16", ROCM)
    assert counts(found, None, "transpose") == {("transpose", "f16[4,512,256]"): -1}
    ((old, new),) = changes(found, "matmuls", "dims")
    assert (old, new) != (None, None)
    assert (removed(found, "matmuls"), added(found, "matmuls")) == ([], [])


def test_on_a_tpu_both_weights_are_the_same_program() -> None:
    assert pair("backward-weight-transposed", "backward-weight-native", V6E).same


def test_gradients_are_concatenated_where_they_were_padded() -> None:
    found = pair("gate-split-pad", "gate-split-concat", ROCM)
    assert counts(found, None, "pad", "concatenate") == {
        ("pad", "bf16[1024,1024]"): -2,
        ("concatenate", "bf16[1024,1024]"): 2,
    }


def test_halves_in_the_wrong_order_are_one_changed_instruction() -> None:
    found = pair("gate-split-concat", "gate-split-swapped", ROCM, BEFORE)
    matching = found.stages[0].matching
    ((old, _),) = matching.changed
    assert matching.old.instruction(old).opcode == "concatenate"
    assert (matching.only_old, matching.only_new) == ([], [])
    assert all(each.same for each in found.stages[0].tables)
    assert not found.same


def test_two_products_become_a_gather_and_a_scatter() -> None:
    for target in (V6E, ROCM):
        found = pair("embedding-one-hot", "embedding-gather", target)
        assert len(removed(found, "matmuls")) == 2
        assert added(found, "matmuls") == []
        movement = counts(found, None, "gather", "scatter")
        assert {opcode for opcode, _ in movement} == {"gather", "scatter"}
        assert min(movement.values()) > 0
