"""`python -m benchmarks FILE` measures what it says."""

from __future__ import annotations

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
