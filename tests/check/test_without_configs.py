"""A text that was printed without backend_config: what only that tells is not judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.reading import named
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, Program

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRITON = FIXTURES / "hlo/remat/half/rocm-gfx950/after_optimizations.txt"
ASYNC = FIXTURES / "demo/fsdp_train_step.opt.hlo"
_CONFIG = re.compile(r", backend_config=\{.*$", re.MULTILINE)


def outcome(text: str, preset: str) -> str:
    facts = Facts(Program([parse(text)], [AFTER]))
    (verdict,) = judge(facts, [named(preset, discover_passes())])
    return verdict.outcome


@pytest.mark.parametrize(
    ("file", "preset", "with_configs"),
    [
        (TRITON, "family-absent:family=triton", "failed"),
        (TRITON, "family-absent:family=cudnn", "passed"),
        (ASYNC, "collectives-overlapped:at_least=2 MiB", "passed"),
    ],
)
def test_generated_kernels_and_overlap_need_configs(
    file: Path, preset: str, with_configs: str
) -> None:
    text = file.read_text()
    assert outcome(text, preset) == with_configs
    assert outcome(_CONFIG.sub("", text), preset) == "not judged"


def test_what_needs_none_is_judged() -> None:
    text = ASYNC.read_text()
    preset = "gathered-once-in-backward-loop"
    assert outcome(text, preset) == outcome(_CONFIG.sub("", text), preset) == "passed"


def test_a_text_that_would_have_none_lacks_none() -> None:
    plain = "HloModule m\nENTRY e {\n  ROOT x = f32[2] parameter(0)\n}\n"
    assert not parse(plain).lacks_configs
    assert outcome(plain, "family-absent:family=triton") == "passed"
