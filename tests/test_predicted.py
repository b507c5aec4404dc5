"""The ledger beside the committed llama texts: nothing between them is left without a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.predicted import (
    Study,
    against_full,
    compiled_rows,
    lowered_rows,
    page,
    studies,
)
from hlo_lens import ledger
from tests.fixtures.committed import ask

PAGE = Path(__file__).resolve().parents[1] / "docs" / "predicted.md"
STUDIES = {f"{study.case.name}-{study.target}": study for study in studies()}
MEMORY = ("temp", "peak")

each_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)


def published(policy: str) -> Study:
    return STUDIES[f"{policy}-published-rocm:gfx950-8"]


@pytest.mark.jax
def test_the_committed_page_is_what_the_command_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@each_study
def test_compiled_flops_and_bytes_are_the_ledgers_and_named_terms(study: Study) -> None:
    rows = compiled_rows(study)
    assert [row.quantity for row in rows if not row.explained] == []
    exact = [row for row in rows if not row.quantity.startswith(MEMORY)]
    assert [row.rest for row in exact] == [0] * len(exact)
    assert len(exact) == (4 if study.policy == "none" else 5)


@pytest.mark.jax
@each_study
def test_lowered_flops_and_bytes_are_the_ledgers(study: Study) -> None:
    *exact, products = lowered_rows(study)
    assert [row.rest for row in exact] == [0] * len(exact)
    assert products.explained


def test_minimal_with_context_stacks_the_published_45_5_gib() -> None:
    """Of other values than the form counts: the layers' inputs instead of mlpwo."""
    assert published("minimal-with-context").compiled.stacked == 45.5 * 2**30
    assert published("full").compiled.stacked == 4 * 2**30


def test_what_the_published_size_replays() -> None:
    """212.21 + 17.59 TFLOP, less the dead 47.28, and twice the scores; no policy: nothing."""
    decoder = ledger.Decoder(layers=32, batch=4, sequence=4096, width=4096, mlp_width=11008)
    full, scores = published("full").compiled, published("minimal-with-context").compiled
    assert full.replayed == ledger.replay_flops(
        decoder=decoder, causal_fraction=1, dead_replay=False, fused_attention=False
    )
    assert scores.replayed * 2 == ledger.attention_flops(
        layers=32, batch=4, sequence=4096, attention_width=4096, causal_fraction=1
    )
    assert published("none").compiled.replayed == 0


def test_only_the_program_that_does_not_fit_has_copies_of_xla() -> None:
    copied = {name: study.compiled.copies for name, study in STUDIES.items()}
    assert {name for name, copies in copied.items() if copies} == {"none-published-rocm:gfx950-8"}


def test_full_saves_the_named_values_without_mlpwo() -> None:
    stacked, temp, _ = against_full(published("minimal-with-context"), published("full"))
    assert (stacked.found, stacked.rest) == (41.5 * 2**30, 0)
    assert 0 < temp.rest < 2 * 2**30


@pytest.mark.parametrize(("policy", "transposed"), [("minimal-with-context", 4), ("full", 0)])
def test_stacks_that_are_transposed_between_the_loops(policy: str, transposed: int) -> None:
    sql = """SELECT name FROM instructions WHERE loop IS NULL AND fusion IS NULL
             AND opcode = 'fusion' AND name LIKE '%transpose%' AND bytes = 4 << 30"""
    assert len(ask(f"llama/{policy}-published", "rocm:gfx950-8", sql)) == transposed


def test_small_products_of_one_operand_are_merged() -> None:
    """Q, k, v: 3 × 256 rows; gate, up: 2 × 704; in forward, replay and weight gradients."""
    sql = "SELECT m, phase FROM matmuls WHERE m IN (3 * 256, 2 * 704)"
    rows = ask("llama/full-accumulated", "rocm:gfx950-8", sql)
    assert sorted(rows) == [(m, phase) for m in (768, 1408) for phase in ("bwd", "fwd", "remat")]
