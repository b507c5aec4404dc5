"""The duplicates table on compiled programs: numbers counted by hand in their texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.asking import ask_file
from tests.shared import needs_shared, unpacked

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"
RULES = (
    "select rule, name, message from findings where rule in ('sorted-twice', 'inverse-by-sort',"
    " 'norm-recomputed', 'rope-recomputed') order by instr"
)


def rows(name: str, sql: str) -> list[tuple[object, ...]]:
    return ask_file(FIXTURES / name / "after_optimizations.txt", sql)


def dump(name: str, sql: str) -> list[tuple[object, ...]]:
    """Of a MaxText program for the TPU."""
    path = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis" / f"{name}.opt.hlo"
    return ask_file(path, sql)


SORTS = (
    "select form, name, count, times, bytes, phases, same_phase from duplicates where kind = 'sort'"
)


def test_argsort_of_argsort_stays_on_the_tpu() -> None:
    """16384 assignments: two arrays of s32 are 131072 bytes."""
    assert rows("pairs/unsort-argsort/tpu-v6e-1", SORTS) == [
        ("inverse", "sort.2", 1, 1, 131072, "fwd", 1)
    ]
    assert rows("pairs/unsort-argsort/tpu-v6e-1", RULES) == [
        ("inverse-by-sort", "sort.2", "sort.2 of fwd: sorts the order that sort.0 made.")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "pairs/unsort-argsort/rocm-gfx950",  # XLA for GPUs has made a scatter of it
        "pairs/unsort-scatter/rocm-gfx950",
        "pairs/unsort-scatter/tpu-v6e-1",
        "pairs/unsort-same/rocm-gfx950",
        "pairs/unsort-same/tpu-v6e-1",
        "moe/ragged-layer/rocm-gfx950",
        "moe/ragged-layer/cuda-h100",
    ],
)
def test_a_scatter_in_its_place_is_none(name: str) -> None:
    assert rows(name, SORTS) == []


@pytest.mark.parametrize(
    ("name", "sort"),
    [("moe/ragged-layer/tpu-v6e-1", "sort.3"), ("moe/ragged-layer/cpu", "sort.17")],
)
def test_a_layer_of_experts_inverts_by_a_sort(name: str, sort: str) -> None:
    """128 assignments of s32, twice. The TPU's sort for a scatter has keys of its own: no row."""
    assert rows(name, SORTS) == [("inverse", sort, 1, 1, 1024, "fwd", 1)]


ROPE = (
    "select name, count, kernels, times, bytes, phases, same_phase from duplicates"
    " where kind = 'rope' and form = 'recomputed'"
)


def test_tables_in_each_iteration_of_both_loops() -> None:
    """Without remat XLA has sunk cos and sin into the loops over 32 layers: (32 + 32 - 1) times
    1024·64 f32, twice."""
    again = 63 * 1024 * 64 * 4 * 2
    assert rows("llama/none-v6e/tpu-v6e-8", ROPE) == [("cos.38", 4, 2, 64, again, "fwd, bwd", 1)]
    assert [rule for rule, _, _ in rows("llama/none-v6e/tpu-v6e-8", RULES)] == ["rope-recomputed"]


def test_tables_in_each_microbatch() -> None:
    """cos and sin of f32[32,128] in each of 4 microbatches, and in 16 replays: one is needed."""
    again = (4 + 16 - 1) * 32 * 128 * 4 * 2
    assert rows("llama/full-accumulated/rocm-gfx950-8", ROPE) == [
        ("cosine.1.1", 4, 4, 40, again, "other, remat", 1)
    ]


def test_tables_that_a_checkpoint_replays() -> None:
    again = 32 * 64 * 4096 * 4 * 2
    name = "llama/full-published/rocm-gfx950-8"
    assert rows(name, ROPE) == [("sine.1.1", 4, 2, 33, again, "other, remat", 0)]
    assert rows(name, RULES) == []


def test_a_rotation_in_two_kernels() -> None:
    """q and k, in the forward and in the replay. Forward: input_transpose_fusion.1 writes two
    products of each in f32, and input_transpose_fusion.2 reads them, and makes the other two."""
    split = (
        "select phases, kernels, times, value from duplicates where kind = 'rope' and"
        " form = 'split' order by 1"
    )
    assert rows("llama/full-published/rocm-gfx950-8", split) == [
        *[("fwd", 2, 64, "f32[4,32,64,4096]")] * 2,
        *[("remat", 2, 64, "f32[4,32,64,4096]")] * 2,
    ]


def test_norms_that_xla_makes_again_for_want_of_memory() -> None:
    """`input_reduce_fusion.3.remat2` and `….10.remat3`: f32[4,4096] is 65536 bytes."""
    name = "llama/none-published/rocm-gfx950-8"
    norms = "select times, bytes, same_phase from duplicates where form = 'recomputed' order by 1"
    assert rows(name, norms) == [(2, 65536, 0), (64, 32 * 65536, 0)]
    assert rows(name, RULES) == []


# -- MaxText on the TPU ---------------------------------------------------------------------------


@needs_shared
def test_the_sorts_of_a_ragged_layer() -> None:
    """8 layers under full remat. Forward: the top-k of f32[1,512,16] (sort.149), the order of 2048
    assignments (150) and its inverse (151); the replay has the same (145, 146, 147), with one
    array less along. The backward inverts the inverse (148), and so gets what 146 gave."""
    name = "qwen3moe.raggeddot.full"
    topk, wide, narrow = 512 * 16 * 4, 3 * 2048 * 4, 2 * 2048 * 4
    assert dump(name, SORTS + " order by id") == [
        ("recomputed", "sort.149", 2, 16, 8 * topk, "fwd, remat", 0),
        ("recomputed", "sort.150", 2, 16, 8 * narrow, "fwd, remat", 0),
        ("recomputed", "sort.151", 2, 16, 8 * narrow, "fwd, remat", 0),
        ("inverse", "sort.151", 2, 16, 8 * (wide + narrow), "fwd, remat", 1),
        ("inverse", "sort.148", 1, 8, 8 * narrow, "bwd", 1),
    ]
    assert dump(name, RULES) == [
        ("inverse-by-sort", "sort.151",
         "sort.151 of fwd: sorts the order that sort.150 made."),
        ("inverse-by-sort", "sort.148",
         "sort.148 of bwd: sorts the order that sort.147 made; so it gives what sort.146 gave."),
    ]  # fmt: skip


@needs_shared
@pytest.mark.parametrize(
    ("name", "count", "times"),
    [
        ("llama2-7b.unroll32.full", 2 * 33, 33),  # one of the forward, one of each replay
        ("gemma2-9b.full.tpu7x", 4, 1 + 21),
        ("qwen3moe.raggeddot.full", 4, 1 + 8),
    ],
)
def test_the_tables_of_replayed_layers(name: str, count: int, times: int) -> None:
    """cos and sin of f32[1,512,1,64] in one kernel, once in the forward."""
    again = (times - 1) * 512 * 64 * 4 * 2
    rope = dump(name, ROPE.replace("name, ", ""))
    kernels = count // 2
    assert [row[:4] for row in rope] == [(count, kernels, times, again)]
    assert [row[-1] for row in rope] == [0]


@needs_shared
def test_the_norms_of_32_layers() -> None:
    """Two a layer, each with one statistic of the forward and one of the replay: f32[512]. That of
    the head has one, and is over several kernels."""
    norms = (
        "select form, count(*), sum(count), sum(bytes), max(same_phase) from duplicates"
        " where kind = 'norm' group by 1 order by 1"
    )
    assert dump("llama2-7b.unroll32.full", norms)[0] == ("recomputed", 64, 128, 64 * 2048, 0)
    assert dump("llama2-7b.unroll32.full", norms)[1][:2] == ("split", 1)
    assert dump("llama2-7b.unroll32.full", RULES) == []
