"""Checkpoint policies compared: residuals that are gone, and the work that the backward redoes."""

from __future__ import annotations

import pytest

from tests.diff.comparing import added, counts, diff_cases, moves, removed, table

SINGLE = ("cpu", "tpu:v6e-1", "cuda:h100", "rocm:gfx950")
DOT = {"tpu:v6e-1": "convolution"}
BACKWARD = {"cpu": "while.6", "tpu:v6e-1": "while.5"}
STACK = ("stacked", "fwd", "bf16[4,64,128]", 65536)


@pytest.mark.parametrize("target", SINGLE)
def test_full_remat_saves_no_stack_and_makes_the_dot_again(target: str) -> None:
    found = diff_cases("remat/none-scanned", "remat/full-scanned", target)
    what = ("kind", "phase", "shape", "bytes")
    assert removed(found, "residuals", *what) == [STACK, STACK]
    assert added(found, "residuals") == []
    assert removed(found, "matmuls") == []
    dot = DOT.get(target, "dot")
    assert added(found, "matmuls", "form", "phase", "executions") == [(dot, "remat", 4)]
    assert moves(found, "matmuls", "name") == []
    made = counts(found, BACKWARD.get(target, "while.16"), dot)
    assert list(made.values()) == [1]


@pytest.mark.parametrize("target", SINGLE)
def test_saved_dots_cost_a_stack_less_and_no_dot(target: str) -> None:
    found = diff_cases("remat/none-scanned", "remat/dots-saveable-scanned", target)
    assert removed(found, "residuals", "kind", "phase", "shape", "bytes") == [STACK]
    assert (removed(found, "matmuls"), added(found, "matmuls")) == ([], [])


@pytest.mark.parametrize("target", SINGLE)
def test_a_mistyped_name_is_full_remat(target: str) -> None:
    found = diff_cases("remat/full-scanned", "remat/mistyped-scanned", target)
    assert found.stages[0].matching.same
    assert table(found, "residuals").same
    assert table(found, "matmuls").same


def test_without_a_loop_the_replay_is_told_from_the_forward_that_computes_the_same() -> None:
    found = diff_cases("remat/none", "remat/full", "cpu")
    assert removed(found, "residuals", "kind", "shape") == [("direct", "bf16[64,128]")]
    assert added(found, "matmuls", "form", "phase") == [("dot", "remat")]
    assert removed(found, "matmuls") == []
    assert table(found, "matmuls").changed == ()
