"""What a type checker says of tests that use `hlo_lens.testing`: `make lint` asks mypy."""

from __future__ import annotations

from typing import assert_type

import numpy

from hlo_lens.facts.sqlite import QueryResult
from hlo_lens.notebook import TableRow, TableView
from hlo_lens.program import Program
from hlo_lens.pytest_plugin import Hlolens
from hlo_lens.testing import Lowering, LoweringError, Rows, RowsOf, assert_lowering


def test_of_a_user(hlolens: Hlolens) -> None:
    program = hlolens.load("step.hlo")
    assert_type(program, Program)
    assert_type(hlolens.compile(abs, 1, target="cpu"), Program)
    assert_type(hlolens.target, str | None)
    assert_type(hlolens.assert_lowering(program), Lowering)
    assert_type(program.query("SELECT 1"), QueryResult)


def test_of_what_is_stated(program: Program) -> None:
    lowering = assert_lowering(program)
    assert_type(lowering, Lowering)
    assert_type(lowering.expect("gate.toml").preset("no-f32-matmul"), Lowering)
    assert_type(lowering.unchanged_from("good.hlo", allow=["collectives"]), Lowering)
    assert_type(lowering.table("collectives").where("wire_bytes > 0", phase="bwd"), Rows)
    assert_type(lowering.collectives, RowsOf)  # any table, those of other packages too
    assert_type(lowering.collectives("all-gather", phase="bwd").count(0), Rows)
    assert_type(lowering.matmuls().every("k > 1").loops().count("<= 2", per="step"), Rows)
    assert_type(lowering.matmuls().sum("flops", "<= 1 TFLOP", per="step"), Rows)
    assert_type(lowering.table("matmuls").rows(), TableView)
    assert_type(lowering.matmuls().rows()[0], TableRow)
    lowering.matmuls().count(numpy.int64(2), show=["m", "n"]).max("m", numpy.float32(8))
    lowering.table("matmuls").count(1, per="second")  # type: ignore[arg-type]
    lowering.table("matmuls").count()  # type: ignore[call-arg]
    lowering.table("matmuls").every()  # type: ignore[call-arg]
    try:
        lowering.matmuls().none()
    except LoweringError as error:
        assert_type(error.program, Program | None)
