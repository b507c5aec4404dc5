"""`hlolens presets`: the list, one in full, and `check --preset` by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hlo_lens.check.presets import presets
from tests.conftest import Ran

Cli = Callable[..., Ran]
FULL = Path(__file__).parents[2] / "fixtures" / "hlo" / "attention" / "cudnn-full-remat"


def test_it_lists_what_there_is(cli: Cli) -> None:
    ran = cli("presets")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines() if line[0] != " "] == [*presets()]
    found = json.loads(cli("presets", "--format", "json").out)
    assert [one["name"] for one in found] == [*presets()]


def test_it_says_what_one_expects_and_takes(cli: Cli) -> None:
    ran = cli("presets", "residual-bytes")
    assert "{at_most}  a size, such as 4 GiB" in ran.out
    assert "is         <= {at_most}" in ran.out
    (one,) = json.loads(cli("presets", "residual-bytes", "--format", "json").out)
    assert one["expects"]["table"] == "residuals"
    assert [parameter["name"] for parameter in one["parameters"]] == ["at_most"]


def test_one_that_is_not_there_is_told(cli: Cli) -> None:
    ran = cli("presets", "residual-byte")
    assert (ran.code, ran.out) == (1, "")
    assert "no preset residual-byte; did you mean residual-bytes?" in ran.err


def test_check_judges_one_by_its_name(cli: Cli) -> None:
    ran = cli("check", FULL / "cuda-h100", "--preset", "attention-kernel-once")
    assert ran.code == 1
    assert "dot_product_attention_fwd.10" in ran.out
    assert "because: saving what the forward kernel gives spares its second run" in ran.out


def test_check_gives_a_preset_what_it_takes(cli: Cli) -> None:
    assert cli("check", FULL / "cuda-h100", "--preset", "family-absent:family=te_").code == 2
    ran = cli("check", FULL / "cuda-h100", "--preset", "family-absent:family=transformer_engine")
    assert (ran.code, "✓ family-absent-transformer_engine" in ran.out) == (0, True)
