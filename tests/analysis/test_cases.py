"""Phases of the published cases equal what their YAML says; real dumps hold together."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.hlo import parse
from tests.shared import needs_shared, texts, unpacked

pytestmark = needs_shared


def analysed(path: Path) -> ModuleAnalysis:
    return ModuleAnalysis(parse(path.read_text(encoding="utf-8"), filename=path.name))


def own_phases(analysis: ModuleAnalysis, opcodes: str) -> dict[str, int]:
    """How many instructions of these opcodes have each phase by their own name."""
    counts: Counter[str] = Counter()
    for computation in analysis.module.computations:
        for opcode, phase in zip(computation.opcodes, analysis.phases(computation), strict=True):
            if re.fullmatch(opcodes, opcode) and phase.phase and phase.phase_from == "own":
                counts[phase.phase] += 1
    return dict(counts)


def stated(said: str, key: str, within: str) -> dict[str, int]:
    """The counts that a YAML text gives under `key: {fwd: 1, …}`, behind `within`; none is 0."""
    match = re.search(rf"\b{key}: \{{([^}}]*)\}}", said[said.index(within) :])
    assert match is not None
    pairs = re.findall(r"(\w+): (\d+)", match[1])
    return {phase: int(count) for phase, count in pairs if int(count)}


@pytest.mark.parametrize(
    ("case", "opcodes", "key", "within"),
    [
        ("01-remat-kept-before", "dot", "dot", "opcodes_by_phase"),
        ("01-remat-kept-before", "tanh", "tanh", "opcodes_by_phase"),
        ("03-fsdp-dup-all-gather-tpu", "all-gather(-start)?", "all-gather", "by_phase"),
        ("03-fsdp-dup-all-gather-tpu", "reduce-scatter", "reduce-scatter", "by_phase"),
        ("11-cudnn-fmha-fwd-bwd", "custom-call", "custom_calls_by_phase", "expect"),
        ("13-pallas-triton-kernels-full-remat", "custom-call", "kernels_by_phase", "expect"),
        ("33a-named-policy-honoured", "dot", "dot_by_phase", "  a:"),
        ("33b-named-policy-mistyped", "dot", "dot_by_phase", "  b:"),
    ],
)
def test_phases_of_the_cases(case: str, opcodes: str, key: str, within: str) -> None:
    (hlo,) = texts(f"cases/{case}.hlo")
    (yaml,) = texts(f"cases/{case[:2]}-*.yaml")
    expected = stated(yaml.read_text(encoding="utf-8"), key, within)
    assert own_phases(analysed(hlo), opcodes) == expected


def test_every_given_text_can_be_analysed() -> None:
    """Calls, loops, executions and phases of every text that is not an archive."""
    paths = texts("cases/*.hlo", "gfx950/**/*.txt", "dumps/gpu-aot/*.txt")
    for path in paths:
        analysis = analysed(path)
        for computation in analysis.module.computations:
            runs = analysis.executions(computation)
            assert runs.exact is None or runs.exact == runs.minimum == runs.maximum
            assert len(analysis.phases(computation)) == len(computation.names)
    assert len(paths) > 40


def test_what_is_asked_one_by_one_agrees_with_what_is_asked_at_once() -> None:
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob("s.full.nowe.opt.hlo")
    at_once = analysed(path)
    for computation in reversed(at_once.module.computations):
        assert at_once.phases(computation)
    for computation in list(at_once.module.computations)[::40]:
        alone = ModuleAnalysis(at_once.module)
        last = computation.instructions[len(computation.names) - 1]
        assert alone.phase(last) == at_once.phase(last)


def test_hardly_an_instruction_of_a_training_step_is_without_a_phase() -> None:
    """Half of the instructions of an optimized dump have no op_name; dataflow tells their phase."""
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob("v6e_2x4.none.opt.hlo")
    analysis = analysed(path)
    counts = Counter(
        phase.phase_from
        for computation in analysis.module.computations
        for phase in analysis.phases(computation)
    )
    total = sum(counts.values())
    assert 0.4 < counts["dataflow"] / total < 0.6
    assert counts[None] / total < 0.02
