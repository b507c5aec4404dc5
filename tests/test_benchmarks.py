"""`python -m benchmarks FILE` measures what it says."""

from __future__ import annotations

import pytest

from benchmarks import diff
from benchmarks.__main__ import DEMO
from benchmarks.measure import Result, everything


def test_every_measurement_is_made() -> None:
    results = {result.what: result for result in everything(DEMO, DEMO.read_text(), 1)}
    assert list(results) == [
        "the C++ parse",
        "parse",
        "peak memory",
        "hlolens inspect",
        "python -c pass",
        "hlolens --version",
        "hlolens figure",
    ]
    assert results["hlolens --version"].ratio
    assert results["peak memory"].value.endswith(" MB")


def test_a_result_says_whether_it_meets_its_target() -> None:
    met = Result("parse", "40 ms", 0.4, 0.5, "the C++ parse")
    missed = Result("parse", "60 ms", 0.6, 0.5, "the C++ parse")
    assert (met.met, missed.met) == (True, False)
    assert str(met).endswith("0.40 x the C++ parse   at most 0.5: ok")
    assert str(missed).endswith("MISSED")


def test_without_the_reference_there_is_no_verdict() -> None:
    alone = Result("parse", "40 ms", None, 0.5, "the C++ parse")
    assert alone.met
    assert "needs the C++ parse" in str(alone)


def test_a_diff_is_measured_against_half_the_layers_and_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diff, "LAYERS", (2, 4))
    half, whole = diff.growth(1)
    assert (half.what, half.ratio) == ("2 layers", None)
    assert (whole.what, whole.ratio is not None) == ("4 layers", True)
    assert [result.what for result in diff.beside_a_report(DEMO, 1)] == [
        "hlolens inspect",
        "hlolens diff",
    ]
