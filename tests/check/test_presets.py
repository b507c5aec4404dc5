"""Presets: each on a program that is so, on a twin that is not, and on one that cannot tell; and
what a person says to them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.check.judging import judge
from hlo_lens.check.model import Expectation, Verdict
from hlo_lens.check.places import HERE, ExpectationError
from hlo_lens.check.presets import presets
from hlo_lens.check.reading import expectation, named, read_text
from hlo_lens.check.sentences import expected_text
from hlo_lens.facts import Facts, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, BEFORE, Program, load
from tests.draft import Draft
from tests.mutate import strip_metadata

HLO = Path(__file__).parents[2] / "fixtures" / "hlo"
PLAIN = "plain/unrolled/rocm-gfx950"  # matmuls alone

MATMULS = """\
HloModule m, is_scheduled=true

ENTRY e {{
  a = {0}[8,8] parameter(0)
  b = {1}[8,8] parameter(1)
  ROOT c = f32[8,8] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{2}
}}
"""


@cache
def program(path: str, stage: str | None = None) -> Program:
    return load(HLO / path, stage=stage)


def without_metadata(path: str) -> Program:
    """Every stage of a fixture, without op_names."""
    whole = program(path)
    drafts = [Draft.of(Path(str(module.filename)).read_text()) for module in whole.modules]
    assert all(strip_metadata(draft, random.Random(0)) for draft in drafts)
    return Program([parse(draft.text()) for draft in drafts], whole.stages)


def judged(one: Program, preset: str) -> Verdict:
    registry = discover_passes()
    (verdict,) = judge(Facts(one), [named(preset, registry)])
    return verdict


@pytest.mark.parametrize(
    ("preset", "so", "not_so"),
    [
        (
            "no-regather-in-backward-loop",
            "pairs/hand-query-gather-once/hand-made",
            "pairs/hand-query-gather-twice/hand-made",
        ),
        (
            "gathered-once-in-backward-loop",
            "pairs/query-gather-once/tpu-tpu7x-8",
            "pairs/query-gather-twice/tpu-tpu7x-8",
        ),
        # FSDP: the forward gathers, and the backward again; each array once an iteration.
        (
            "gathered-once-in-backward-loop",
            "llama/full-tensor/rocm-gfx950-8",
            "pairs/hand-query-queue-twice/hand-made",
        ),
        (
            "attention-kernel-once",
            "attention/cudnn-saved/cuda-h100",
            "attention/cudnn-full-remat/cuda-h100",
        ),
        (
            "attention-kernel-once",
            "attention/splash-saved/tpu-v6e-1",
            "attention/splash-full-remat/tpu-v6e-1",
        ),
        (
            "attention-kernel-once",
            "attention/triton-train/cuda-h100",
            "attention/one-fell-back/cuda-h100",
        ),
        (
            "attention-scores-not-written",
            "attention/cudnn-train/cuda-h100",
            "attention/xla-train/cuda-h100",
        ),
        ("ragged-dots-grouped", "moe/ragged-grouped/rocm-gfx950", "moe/ragged-padded/rocm-gfx950"),
        ("ragged-dots-grouped", "moe/ragged-layer/tpu-v6e-1", "moe/ragged-layer/rocm-gfx950"),
        (
            "family-absent:family=cudnn",
            "attention/xla-train/cuda-h100",
            "attention/cudnn-train/cuda-h100",
        ),
        ("family-absent:family=cudnn", "moe/ragged/cuda-h100", "moe/hand-cudnn-ragged/hand-made"),
        ("remat-not-undone", "remat/full/rocm-gfx950", "remat/full/cpu"),
        (
            "residual-bytes:at_most=64 KiB",
            "remat/full-scanned/rocm-gfx950",
            "remat/none-scanned/rocm-gfx950",
        ),
        (
            "residual-bytes:at_most=64 KiB",
            "remat/offload-scanned/rocm-gfx950",  # of two stacks one lies on the host
            "remat/offload-scanned/cpu",  # which XLA for the CPU does not do
        ),
        (
            "collectives-overlapped:at_least=1 B",
            "plain/latency-hiding-on/rocm-gfx950-8",
            "plain/latency-hiding-off/rocm-gfx950-8",
        ),
    ],
)
def test_it_holds_of_what_is_so_and_not_of_its_twin(preset: str, so: str, not_so: str) -> None:
    assert judged(program(so), preset).outcome == "passed"
    verdict = judged(program(not_so), preset)
    assert (verdict.outcome, bool(verdict.offenders)) == ("failed", True)


@pytest.mark.parametrize(
    ("lhs", "rhs", "more", "outcome"),
    [
        ("bf16", "bf16", "", "passed"),
        ("f32", "f32", "", "failed"),
        ("f64", "f32", "", "failed"),
        ("f32", "f32", ", algorithm=dot_f32_f32_f32", "failed"),
        ("f32", "f32", ", algorithm=dot_bf16_bf16_f32", "passed"),
        ("f32", "f32", ", algorithm=dot_tf32_tf32_f32", "passed"),
        ("f32", "bf16", "", "passed"),
    ],
)
def test_a_matmul_in_f32_takes_two_operands_of_it(
    lhs: str, rhs: str, more: str, outcome: str
) -> None:
    text = MATMULS.format(lhs, rhs, more)
    assert judged(Program([parse(text)]), "no-f32-matmul").outcome == outcome


@pytest.mark.parametrize(
    "preset",
    [
        "no-regather-in-backward-loop",
        "gathered-once-in-backward-loop",
        "attention-kernel-once",
        "attention-scores-not-written",
        "ragged-dots-grouped",
        "remat-not-undone",
        "residual-bytes:at_most=1 GiB",
        "collectives-overlapped",
        "donation-honoured",
    ],
)
def test_where_there_is_none_of_it_nothing_passes(preset: str) -> None:
    verdict = judged(program(PLAIN), preset)
    assert (verdict.outcome, verdict.found) == ("failed", "no row is selected")


def test_without_a_matmul_nothing_passes() -> None:
    assert judged(program("attention/te/rocm-gfx950"), "no-f32-matmul").outcome == "failed"


def test_gathers_outside_of_a_loop_of_the_backward_tell_nothing_of_it() -> None:
    verdict = judged(program("plain/fsdp/rocm-gfx950-8"), "no-regather-in-backward-loop")
    assert (verdict.outcome, verdict.found) == ("failed", "no row is selected")


NAMELESS_LOOP = """\
HloModule m, num_partitions=2

body {{
  s = (s32[], f32[4,4], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  w = f32[2,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  g = f32[4,4] all-gather({0}), channel_id=1, replica_groups={{{{0,1}}}}, dimensions={{0}},
    use_global_device_ids=true
  d = f32[4,4] dot(x, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{op_name="jit(f)/{1}checkpoint/rematted_computation/dot"}}
  b = f32[4,4] dot(d, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{op_name="jit(f)/{1}dot"}}
  ROOT t = (s32[], f32[4,4], f32[2,4]) tuple(j, b, w)
}}

condition {{
  s = (s32[], f32[4,4], f32[2,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}}

ENTRY e {{
  x = f32[4,4] parameter(0)
  w = f32[2,4] parameter(1)
  k = f32[4,4] all-gather(w), channel_id=1, replica_groups={{{{0,1}}}}, dimensions={{0}},
    use_global_device_ids=true, metadata={{op_name="jit(f)/jvp()/gather"}}
  z = s32[] constant(0)
  t = (s32[], f32[4,4], f32[2,4]) tuple(z, k, w)
  ROOT l = (s32[], f32[4,4], f32[2,4]) while(t), condition=condition, body=body
}}
"""


@pytest.mark.parametrize(
    ("preset", "gathered", "outcome"),
    [
        # XLA drops the name of a loop that it takes an iteration out of: its matmuls tell.
        ("no-regather-in-backward-loop", "w", "failed"),
        ("no-regather-in-backward-loop", "n", "passed"),
        ("gathered-once-in-backward-loop", "w", "passed"),
    ],
)
def test_a_loop_of_the_backward_is_one_without_a_name(
    preset: str, gathered: str, outcome: str
) -> None:
    text = NAMELESS_LOOP.format(gathered, "transpose(jvp())/")
    text = text.replace("  one = s32", "  n = f32[2,4] negate(w)\n  one = s32")
    verdict = judged(Program([parse(text)]), preset)
    assert (verdict.outcome, "no row" in verdict.found) == (outcome, False)


def test_a_loop_of_both_passes_is_none_of_the_backward() -> None:
    text = NAMELESS_LOOP.format("w", "transpose(jvp())/")
    text = text.replace("transpose(jvp())/dot", "jvp()/dot")
    verdict = judged(Program([parse(text)]), "no-regather-in-backward-loop")
    assert (verdict.outcome, verdict.found) == ("failed", "no row is selected")


def test_that_a_family_is_absent_is_so_where_there_is_no_kernel() -> None:
    text = MATMULS.format("bf16", "bf16", "")
    assert judged(Program([parse(text)]), "family-absent:family=cudnn").outcome == "passed"


@pytest.mark.parametrize(
    ("preset", "path"),
    [
        ("no-regather-in-backward-loop", "pairs/hand-query-gather-twice/hand-made"),
        ("gathered-once-in-backward-loop", "pairs/hand-query-gather-twice/hand-made"),
        ("attention-kernel-once", "attention/cudnn-full-remat/cuda-h100"),
        ("attention-kernel-once", "attention/xla-train/rocm-gfx950"),
        ("remat-not-undone", "remat/full/cpu"),
        ("residual-bytes:at_most=1 GiB", "remat/none-scanned/rocm-gfx950"),
    ],
)
def test_what_only_names_tell_is_not_judged_without_them(preset: str, path: str) -> None:
    assert judged(without_metadata(path), preset).outcome == "not judged"


@pytest.mark.parametrize(
    ("preset", "path", "stage"),
    [
        ("attention-scores-not-written", "attention/xla/rocm-gfx950", BEFORE),
        ("ragged-dots-grouped", "moe/ragged-grouped/rocm-gfx950", BEFORE),
        ("family-absent:family=cudnn", "attention/cudnn-train/cuda-h100", BEFORE),
        ("collectives-overlapped:at_least=1 B", "plain/fsdp/rocm-gfx950-8", "after_spmd"),
        ("remat-not-undone", "remat/full/cpu", BEFORE),
        ("remat-not-undone", "remat/full/cpu", AFTER),
    ],
)
def test_what_another_stage_shows_is_not_judged(preset: str, path: str, stage: str) -> None:
    assert judged(program(path, stage), preset).outcome == "not judged"


def test_a_cut_off_text_is_not_judged() -> None:
    text = MATMULS.format("bf16", "bf16", "")
    cut = Program([parse(text[: text.index("ROOT")])])
    for preset in ("no-f32-matmul", "family-absent:family=cudnn"):
        assert judged(cut, preset).outcome == "not judged"


# --- what a person says ------------------------------------------------------------------------


def read(**given: Any) -> Expectation:
    return expectation(given, HERE, discover_passes())


def test_any_key_may_be_said_otherwise() -> None:
    as_it_is = read(preset="no-f32-matmul")
    changed = read(preset="no-f32-matmul", id="mine", severity="warning", because="slow")
    assert as_it_is.id == "no-f32-matmul"
    assert (changed.id, changed.severity, changed.because) == ("mine", "warning", "slow")
    assert changed.condition == as_it_is.condition


def test_a_where_narrows_that_of_the_preset() -> None:
    own = "phase = 'fwd' OR phase = 'remat' -- both"
    assert read(preset="no-f32-matmul", where=own).where == f"({own}\n)"
    preset = read(preset="ragged-dots-grouped", where="class = 'fwd'")
    assert preset.where == "(class = 'fwd')"
    assert read(preset="attention-kernel-once", where="loop_depth = 1").where == (
        "direction = 'fwd' AND (loop_depth = 1)"
    )


def test_the_where_of_a_preset_can_be_narrowed_by_an_and() -> None:
    # An OR at its top would take what is said behind it away.
    from hlo_lens.check.sentences import without_one_part

    for preset in presets().values():
        where = f"{preset.keys.get('where', 'a')} AND (b)"
        assert "(b)" in [part for part, _ in without_one_part(where)], preset.name


def test_a_where_that_leaves_its_parentheses_is_refused() -> None:
    with pytest.raises(ExpectationError, match=r"a \) in it ends it too early"):
        read(preset="attention-kernel-once", where="1) OR (1")


@pytest.mark.parametrize(
    ("given", "quantity", "where"),
    [
        ({"count": "<= 1"}, "count", "a AND (b)"),
        ({"sum": "flops", "is": "<= 1 GFLOP"}, "sum", "a AND (b)"),
        ({"every": "c"}, "every", "a"),
        ({"none": True}, "none", "a"),
    ],
    ids=str,
)
def test_another_quantity_is_of_the_rows_that_fulfil_it(
    given: Mapping[str, Any], quantity: str, where: str
) -> None:
    one = read(preset="attention-kernel-once", **given)
    a, b = presets()["attention-kernel-once"].keys["where"], one.condition and "c"
    condition = presets()["attention-kernel-once"].keys["every"]
    assert one.quantity == quantity
    assert one.where == where.replace("(b)", f"({condition})").replace("a", a, 1)
    assert (one.condition or "") == b


def test_a_parameter_is_a_literal_in_sql() -> None:
    one = named("family-absent:family=cudnn", discover_passes())
    assert (one.id, one.where) == ("family-absent-cudnn", "family = 'cudnn'")
    size = named("collectives-overlapped:at_least=2 MiB", discover_passes())
    assert size.where == "coalesce(wire_bytes, wire_bytes_max) >= 2097152"
    assert read(preset="collectives-overlapped").where.endswith(">= 1048576")
    kept = read(preset="residual-bytes", at_most="1.5 GiB")
    assert kept.compared is not None
    assert (kept.compared.text, kept.compared.value) == ("<= 1.5 GiB", 3 * 2**29)


def test_two_of_one_preset_have_ids_of_their_own() -> None:
    text = "".join(
        f'[[expect]]\npreset = "family-absent"\nfamily = "{one}"\n' for one in ("cudnn", "triton")
    )
    found = read_text(text.encode(), "gate.toml", discover_passes())
    assert [one.id for one in found] == ["family-absent-cudnn", "family-absent-triton"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["preset = 'no-f32-matmull'"], ":2: no preset 'no-f32-matmull'; did you mean 'no-f32-"),
        (["preset = 3"], ":2: no preset 3"),
        (["preset = {name = 'no-f32-matmul'}"], ":2: no preset a table"),
        (["preset = 'family-absent'"], ":2: family is missing: preset family-absent takes family"),
        (["preset = 'family-absent'", "family = 'cudn'"], ":3: no family 'cudn'; did you mean"),
        (["preset = 'family-absent'", "family = \"x' OR '1\""], ":3: no family \"x' OR '1\""),
        (["preset = 'family-absent'", "family = 3"], ":3: family is a text, not 3"),
        (["preset = 'no-f32-matmul'", "family = 'cudnn'"], ":3: no key 'family'; it belongs to"),
        (["table = 'loops'", "count = 1", "family = 'a'"], ":4: no key 'family'; it belongs to"),
        (["preset = 'residual-bytes'"], ":2: at_most is missing"),
        (["preset = 'residual-bytes'", "at_most = '<= 1 B'"], ":3: at_most: '<= 1 B' is no size"),
        (["preset = 'residual-bytes'", "at_most = 1", "is = '< 3'"], ":4: preset residual-"),
        (["preset = 'residual-bytes'", "at_most = 1", "count = 2"], ":4: preset residual-"),
        (["preset = 'no-f32-matmul'", "table = 'loops'"], ":3: preset no-f32-matmul is about"),
        (["preset = 'no-f32-matmul'", "where = ''"], ":3: where is empty: leave it out"),
    ],
    ids=str,
)
def test_what_a_preset_does_not_take_is_told(lines: list[str], said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        read_text("\n".join(["[[expect]]", *lines]).encode(), "gate.toml", discover_passes())
    assert f"gate.toml{said}" in str(told.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("family-absent:cudnn", "'cudnn' is no KEY=VALUE; write NAME:KEY=VALUE,…"),
        ("family-absent:", "'' is no KEY=VALUE"),
        ("family-absent:family=a,family=b", "'family=b' is no KEY=VALUE"),
        ("family-absent:family=cudn", "--preset family-absent:family=cudn: no family 'cudn'"),
        ("no-f32-matmul:x=1", "--preset no-f32-matmul:x=1: no key 'x'"),
        ("", "--preset : no preset ''"),
    ],
)
def test_what_the_command_line_cannot_mean_is_told(text: str, said: str) -> None:
    with pytest.raises(ExpectationError) as told:
        named(text, discover_passes())
    assert said in str(told.value)


def test_the_command_line_says_any_key() -> None:
    one = named("no-f32-matmul:where=phase = 'fwd',severity=warning", discover_passes())
    assert (one.where, one.severity) == ("(phase = 'fwd')", "warning")


@pytest.mark.parametrize("name", list(presets()))
def test_every_preset_says_what_it_is_for_and_what_does_not_pass(name: str) -> None:
    preset = presets()[name]
    assert preset.keys["because"]
    assert preset.about.partition(":")[0] != preset.about
    assert "pass" in preset.about


def test_it_is_told_in_words() -> None:
    def told(**given: Any) -> str:
        return expected_text(read(**given))

    overlapped = "Every collective is hidden by heavy work"
    assert told(preset="collectives-overlapped") == f"{overlapped} (at_least = 1 MiB)"
    assert told(preset="collectives-overlapped", at_least="2 MiB", where="loop_depth\n= 1") == (
        f"{overlapped} (at_least = 2 MiB), where loop_depth = 1"
    )
    assert told(preset="attention-kernel-once", none="causal") == (
        "attention where direction = 'fwd': none causal"
    )
