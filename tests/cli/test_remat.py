"""`hlolens remat`: the three answers and their reasons, exit codes, formats, and the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.facts import Facts
from hlo_lens.program import load
from hlo_lens.remat import NoAnswerError, compare
from tests.cli.test_hostile_text import ACTS, PAYLOADS
from tests.conftest import Ran
from tests.passes.test_checkpointing import HEAD, KEEPS, ON_CPU, REPLAYS, TOLD
from tests.passes.test_residuals import loops
from tests.shared import needs_shared, unpacked
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]

ROOT = Path(__file__).resolve().parents[2]
REMAT = ROOT / "fixtures" / "hlo" / "remat"
PAGE = ROOT / "docs" / "remat-pair.md"

BEFORE, AFTER = "before_optimizations", "after_optimizations"
QUESTIONS = ("residuals_smaller", "work_replayed", "peak_lower")
LESS = TOLD | {"peak_memory_in_bytes": 4000}


def dump(
    folder: Path, before: str | None, after: str | None = None, told: object | None = None
) -> Path:
    """A folder of a compile, with what it says of memory."""
    folder.mkdir(parents=True, exist_ok=True)
    for text, stage in ((before, BEFORE), (after, AFTER)):
        if text is not None:
            (folder / f"{stage}.txt").write_text(text)
    if told is not None:
        (folder / "memory_analysis.json").write_text(json.dumps(told))
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """None and full, in both stages, with a lower peak: all three hold."""
    return (
        dump(tmp_path / "none", KEEPS2, KEEPS2, TOLD),
        dump(tmp_path / "full", REPLAYS, REPLAYS, LESS),
    )


# Two values are kept instead of one.
KEEPS2 = KEEPS.replace("multiply(x, t)", "multiply(d, t)")


def answers(cli: Cli, *args: object) -> tuple[list[bool | None], list[str], int]:
    """What is answered, why, and the exit code."""
    ran = cli("remat", *args, "--format", "json")
    assert ran.code in (0, 1), ran.err
    data = json.loads(ran.out)
    told = [data["answers"][name] for name in QUESTIONS]
    assert data["holds"] is (
        False if False in [one["answer"] for one in told]
        else None if None in [one["answer"] for one in told] else True
    )  # fmt: skip
    return [one["answer"] for one in told], [one["why"] for one in told], ran.code


# ---------------------------------------------------------------------------------- fixtures

T, F, N = True, False, None
ALIKE = ("tpu-v6e-1", "cuda-h100", "rocm-gfx950")


@pytest.mark.parametrize(
    ("baseline", "policy", "target", "expected"),
    [
        *(("none-scanned", "full-scanned", target, [T, T, T]) for target in ("cpu", *ALIKE[1:])),
        # On a v6e all of so small a program lies on the chip, and its peak is of that.
        ("none-scanned", "full-scanned", "tpu-v6e-1", [T, T, F]),
        *(("none", "full", target, [T, T, T]) for target in ALIKE),
        # The CPU undoes one of two replays, and the checkpoint costs memory.
        ("none", "full", "cpu", [N, T, F]),
        *(("none", "named", target, [T, T, T]) for target in ALIKE),
        *(("none-scanned", "named-scanned", target, [T, T, T]) for target in ("cpu", *ALIKE)),
        ("none-scanned", "offload-scanned", "rocm-gfx950", [T, T, T]),
        ("none-scanned", "twice-scanned", "cuda-h100", [F, T, F]),
        # Two layers of which the compiler undoes the one that is under a checkpoint.
        ("none", "half", "cpu", [N, F, F]),
        *(("none", "none", target, [F, F, F]) for target in ("cpu", *ALIKE)),
        *(("none-scanned", "none-scanned", target, [F, F, F]) for target in ("cpu", *ALIKE)),
        ("full-scanned", "none-scanned", "rocm-gfx950", [F, F, F]),
        ("full-scanned", "none-scanned", "cpu", [F, F, F]),
        # More is replayed, and more is kept for less of it.
        ("named-scanned", "full-scanned", "rocm-gfx950", [T, T, T]),
        ("full-scanned", "named-scanned", "rocm-gfx950", [F, F, F]),
    ],
)
def test_pairs_of_policies(
    cli: Cli, baseline: str, policy: str, target: str, expected: list[bool | None]
) -> None:
    found, why, code = answers(cli, REMAT / baseline / target, REMAT / policy / target)
    assert found == expected, why
    assert code == (0 if expected == [T, T, T] else 1)


@pytest.mark.parametrize("target", ["cpu", *ALIKE])
@pytest.mark.parametrize("form", ["", "-scanned"])
def test_a_mistyped_name_is_full_remat_with_a_warning(cli: Cli, form: str, target: str) -> None:
    none, full, typed = (REMAT / f"{case}{form}" / target for case in ("none", "full", "mistyped"))
    assert answers(cli, none, typed) == answers(cli, none, full)
    assert "policy-saves-nothing" not in cli("remat", none, full).out
    out = cli("remat", none, typed).out
    assert "\npolicy warning policy-saves-nothing  the policy SaveOnlyTheseNames of layer" in out
    if answers(cli, none, typed)[2] == 0:
        first = out.partition("\n")[0]
        assert first.startswith("holds  ")
        assert first.endswith("; but policy-saves-nothing")


def test_what_is_said_of_a_checkpoint_that_is_undone(cli: Cli) -> None:
    ran = cli("remat", REMAT / "none" / "cpu", REMAT / "full" / "cpu")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0] == (
        "does not hold the peak is not lower; not known whether residuals are smaller"
    )
    assert lines[4:7] == [
        "residuals smaller not known 64.0 KiB → 16.0 KiB in before_optimizations, but the"
        " compiler undid replays since",
        "work replayed yes 1 matmul, 2.1 MFLOP, 0.50 of the forward's; the compiler undid 1 replay",
        "peak lower no 352.0 KiB → 368.0 KiB",
    ]
    assert "undone 0 1 +1" in lines
    assert any(line.startswith("policy warning remat-undone ") for line in lines)


def test_what_is_said_where_nothing_or_the_other_way_round_is_compared(cli: Cli) -> None:
    none, full = REMAT / "none-scanned" / "cpu", REMAT / "full-scanned" / "cpu"
    same = cli("remat", none, none).out
    assert same.startswith(
        "does not hold  residuals are not smaller, no more work is replayed and the peak is not"
    )
    assert "\nboth are the same program\n" in same
    assert "192.0 KiB both" in same
    swapped = cli("remat", full, none).out
    assert "the baseline stands first: is it swapped?" in swapped
    assert "nothing; the baseline 1 matmul, 8.4 MFLOP" in swapped
    assert "same program" not in swapped


@needs_shared
def test_stacks_decide_where_values_outside_of_loops_are_not_exact(cli: Cli) -> None:
    none, minimal, full = (
        next(unpacked("dumps/tpu-maxtext.tar.xz").rglob(f"v6e_2x4.{name}.opt.hlo"))
        for name in ("none", "minimal_with_context", "full")
    )
    found, why, code = answers(cli, none, full)
    assert (found, code) == ([T, T, N], 1)
    assert why == [
        "5.3 GiB → 64.0 MiB in the stacks of loops",
        "8 matmuls, 6 collectives, 1.9 TFLOP, 0.64 of the forward's",
        "no memory_analysis.json beside the baseline and the policy",
    ]
    assert answers(cli, minimal, full)[0] == [T, T, N]
    assert answers(cli, none, minimal)[0] == [T, T, N]
    assert answers(cli, full, minimal)[0] == [F, F, N]


# ---------------------------------------------------------------------------------- reasons


def test_all_three(cli: Cli, pair: tuple[Path, Path]) -> None:
    assert answers(cli, *pair) == (
        [T, T, T],
        [
            "1.0 KiB → 512 B in before_optimizations",
            "1 matmul, 4.1 kFLOP, 1.00 of the forward's",
            "4.1 KiB → 3.9 KiB",
        ],
        0,
    )


def test_the_peak_needs_a_file_on_either_side_of_the_optimized_program(
    cli: Cli, pair: tuple[Path, Path]
) -> None:
    none, full = pair
    found, why, code = answers(cli, none, full, "--stage", "before")
    assert (found, code) == ([T, T, N], 1)
    assert why[2] == (
        "memory_analysis.json is of the program after optimization, which is not compared"
    )
    (none / "memory_analysis.json").unlink()
    found, why, code = answers(cli, none, full)
    assert (found, code) == ([T, T, N], 1)
    assert why[2] == "no memory_analysis.json beside the baseline"
    assert cli("remat", none, full).out.startswith("not known  whether the peak is lower\n")
    (none / "memory_analysis.json").write_text("{}")
    assert answers(cli, none, full)[1][2] == "memory_analysis.json of the baseline has no peak"


def test_a_peak_that_is_not_lower(cli: Cli, pair: tuple[Path, Path]) -> None:
    for told in (TOLD, TOLD | {"peak_memory_in_bytes": 4300}):
        dump(pair[1], None, None, told)
        found, _, code = answers(cli, *pair)
        assert (found, code) == ([T, T, F], 1)
    on_chip = {"temp_size_in_bytes": 0}
    for folder, peak in zip(pair, (4000, 4300), strict=True):
        dump(folder, None, None, TOLD | on_chip | {"peak_memory_in_bytes": peak})
    why = answers(cli, *pair)[1][2]
    assert why == "3.9 KiB → 4.2 KiB; no temporary lies in HBM, so that this says little of it"


def test_peaks_of_two_kinds_are_not_compared(cli: Cli, pair: tuple[Path, Path]) -> None:
    dump(pair[1], None, None, {key: size for key, size in LESS.items() if "peak" not in key})
    found, why, _ = answers(cli, *pair)
    assert (found[2], why[2]) == (None, "one is of peak_memory, the other of allocations")


def test_two_files_beside_one_side_file(cli: Cli, tmp_path: Path) -> None:
    dump(tmp_path, None, None, TOLD)
    for name, text in (("none", KEEPS2), ("full", REPLAYS)):
        (tmp_path / f"{name}.opt.hlo").write_text(text)
    files = [tmp_path / f"{name}.opt.hlo" for name in ("none", "full")]
    found, why, _ = answers(cli, *files)
    assert (found[2], why[2]) == (
        None,
        "both lie beside one memory_analysis.json, which is of one of them at most",
    )
    # Of a file against itself it is the same one.
    assert answers(cli, files[0], files[0])[0][2] is False


def test_residuals_outside_of_loops_need_the_text_before_optimization(
    cli: Cli, pair: tuple[Path, Path]
) -> None:
    found, why, code = answers(cli, *pair, "--stage", "opt")
    assert (found, code) == ([N, T, T], 1)
    assert why[0] == "baseline: outside of loops, results of fusions stand for what is kept"


def test_what_the_compiler_undid_is_kept(cli: Cli, tmp_path: Path) -> None:
    none = dump(tmp_path / "none", KEEPS2, KEEPS2)
    undone = dump(tmp_path / "undone", REPLAYS, KEEPS)
    found, why, code = answers(cli, none, undone)
    assert (found, code) == ([N, F, N], 1)
    assert why[0].endswith(" in before_optimizations, but the compiler undid replays since")
    assert why[1] == "nothing; the compiler undid 1 replay"


def test_cheap_operations_are_work_too(cli: Cli, tmp_path: Path) -> None:
    cheap = REPLAYS.replace("tuple(h, w)", "tuple(d, w)").replace("tanh(d2)", "tanh(h2)")
    cheap = re.sub(r"  d2 = .*\n", "", cheap)
    found, why, _ = answers(
        cli, *(dump(tmp_path / str(n), t) for n, t in enumerate((KEEPS2, cheap)))
    )
    assert found == [T, T, N]
    assert why[1] == "1 cheap operation and no other"


def test_copies_in_fusions_may_be_there_without_a_checkpoint(cli: Cli) -> None:
    none, named = REMAT / "none" / "rocm-gfx950", REMAT / "named" / "rocm-gfx950"
    found, why, _ = answers(cli, none, named)
    assert (found[1], why[1]) == (
        True,
        "2 cheap operations and no other before optimization; after it 2 cheap operations in"
        " fusions, as copies",
    )
    found, why, _ = answers(cli, none, named, "--stage", "opt")
    assert (found[1], why[1]) == (
        None,
        "2 cheap operations in fusions, as copies, which may be there without a checkpoint",
    )


def test_without_op_names(cli: Cli, tmp_path: Path) -> None:
    texts = [loops(), REPLAYS.replace("op_name", "op_type"), KEEPS.replace("op_name", "op_type")]
    stacks, replays, keeps = (dump(tmp_path / str(n), text) for n, text in enumerate(texts))
    found, why, code = answers(cli, keeps, replays)
    assert (found, code) == ([N, N, N], 1)
    assert why[0] == "what the baseline keeps is not known: the text has no op_names"
    assert why[1] == "what the baseline replays is not known: the text has no op_names"
    # What loops stack is told without, and so is what computes the same behind a barrier.
    found, why, _ = answers(cli, stacks, stacks)
    assert (found, why[0]) == ([F, N, N], "128 B both in the stacks of loops")
    assert answers(cli, replays, replays)[0] == [N, F, N]


def test_a_text_that_is_cut_off(cli: Cli, tmp_path: Path) -> None:
    whole = dump(tmp_path / "whole", KEEPS2)
    cut = dump(tmp_path / "cut", REPLAYS[: REPLAYS.index("  ROOT r")])
    found, why, code = answers(cli, whole, cut)
    assert (found, code) == ([N, N, N], 1)
    assert why[:2] == [
        "what the policy keeps is not known: the text is cut off",
        "what the policy replays is not known: the text is cut off",
    ]


def test_what_functions_keep_that_the_text_calls(cli: Cli, tmp_path: Path) -> None:
    layer = "layer {\n  h = f32[8,16] parameter(0)\n  ROOT t = f32[8,16] tanh(h)\n}\n"
    call = '  c = f32[8,16] call(h), to_apply=layer, metadata={op_name="jit(f)/jvp()/layer"}\n'
    text = KEEPS2.replace("ENTRY", f"{layer}ENTRY").replace("  d =", f"{call}  d =")
    calls = dump(tmp_path / "calls", text)
    found, why, _ = answers(cli, calls, dump(tmp_path / "full", REPLAYS))
    assert (found[0], why[0]) == (None, "baseline: functions called outside of loops may keep more")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda text: text.replace("tanh(d),", f"tanh(d), {ON_CPU},"),
            "they are compiled for gpu and for cpu",
        ),
        (
            lambda text: text.replace("HloModule m", "HloModule m, num_partitions=4"),
            "they are partitioned for 1 and for 4 devices",
        ),
        (
            lambda text: text.replace(
                "parameter(0)", "parameter(0), sharding={devices=[4,1]0,1,2,3}"
            ),
            "shapes are of one device in the baseline, global in the policy",
        ),
    ],
)
def test_programs_whose_sizes_cannot_be_compared(
    cli: Cli, tmp_path: Path, change: Callable[[str], str], why: str
) -> None:
    on_gpu = 'backend_config={"operation_queue_id":"0"}'
    text = KEEPS2.replace("tanh(d),", f"tanh(d), {on_gpu},")
    sides = dump(tmp_path / "none", text), dump(tmp_path / "full", change(REPLAYS))
    assert answers(cli, *sides) == ([N, N, N], [why] * 3, 1)


def test_notes(cli: Cli, tmp_path: Path) -> None:
    none = dump(tmp_path / "none", KEEPS2, KEEPS2)
    full = dump(tmp_path / "full", None, REPLAYS)
    assert "\nthe baseline alone has before_optimizations\n" in cli("remat", none, full).out
    wider = REPLAYS.replace("f32[16,16]", "f32[16,32]").replace("f32[8,16] dot", "f32[8,32] dot")
    wider = re.sub(r"f32\[8,16\] (tanh|sine|multiply)", r"f32[8,32] \1", wider)
    out = cli("remat", none, dump(tmp_path / "wider", wider), "--stage", "before").out
    assert "the forwards differ, 4.1 kFLOP and 8.2 kFLOP of matmuls" in out


# ---------------------------------------------------------------------------------- exit code 2


def test_what_cannot_be_done(cli: Cli, pair: tuple[Path, Path], tmp_path: Path) -> None:
    none, full = pair
    ran = cli("remat", none / f"{BEFORE}.txt", full / f"{AFTER}.txt")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "hlolens: error: no stage in common: the baseline has before_optimizations; the policy has"
        " after_optimizations (--stage says what a single file is)\n"
    )
    assert cli("remat", none / f"{BEFORE}.txt", full / f"{AFTER}.txt", "--stage", "opt").code == 1
    ran = cli("remat", tmp_path / "no", tmp_path / "nor")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("no such file or folder") == 2
    ran = cli("remat", "-", "-", stdin=KEEPS.encode())
    assert ran.code == 2
    assert "one of the two" in ran.err
    assert cli("remat").code == 2
    assert cli("remat", none, full, none).code == 2
    assert cli("remat", none, "--limit", "-1").code == 2


def test_standard_input_can_be_one(cli: Cli, pair: tuple[Path, Path]) -> None:
    before = pair[1] / f"{BEFORE}.txt"
    ran = cli("remat", "-", before, "--stage", "before", stdin=KEEPS2.encode())
    assert ran.code == 1
    assert "\n  baseline  m  <stdin>\n" in ran.out


@pytest.mark.parametrize("options", [[], ["--format", "json"]])
def test_a_pass_that_fails(
    cli: Cli, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    import hlo_lens_passes.residuals as module

    def crash(*args: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(type(module.PASS), "run", crash)
    for files in (pair, pair[:1]):
        ran = cli("remat", *files, *options)
        assert (ran.code, ran.out) == (2, "")
        assert "boom" in ran.err


def test_from_python(pair: tuple[Path, Path]) -> None:
    none, full = map(load, pair)
    joint = compare(none, Facts(full))
    assert joint.holds is True
    assert [stage.name for stage in joint.stages] == [BEFORE, AFTER]
    assert joint.stages[0].policy["saved_bytes"] == 512
    with pytest.raises(NoAnswerError):
        compare(load(pair[0], stage=BEFORE), load(pair[1], stage=AFTER))


# ---------------------------------------------------------------------------------- one program


def test_one_program(cli: Cli) -> None:
    ran = cli("remat", REMAT / "full-scanned" / "rocm-gfx950")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(
        "keeps  64.0 KiB in 1 value; replays 1 matmul, 8.4 MFLOP, 1.00 of the forward's; peak 544.0"
    )
    assert re.search(r"\n  stacked +bf16\[4,64,128\] +device +1 +64\.0 KiB\n", ran.out)
    assert re.search(r"\nrecomputed .*/checkpoint in while\.16 ×4\n", ran.out)
    assert re.search(r"\n  matmul +dot\.5 +dot\.4 +4 +8\.4 MFLOP\n", ran.out)
    before = cli("remat", REMAT / "full-scanned" / "rocm-gfx950", "--stage", "before").out
    assert "peak" not in before.partition("\n")[0]


@needs_shared
def test_the_twins_of_a_replay(cli: Cli) -> None:
    """Of gfx950/remat/full: %dot_general.9 and %tanh.6 are made again."""
    folder = REMAT / "full" / "rocm-gfx950"
    data = json.loads(cli("remat", folder, "--format", "json").out)
    (stage, _) = data["stages"]
    assert (stage["stage"], stage["checkpointing"]["saved_bytes"]) == (BEFORE, 16384)
    first = stage["regions"][0]["operations"]
    assert [(one["name"], one["verdict"], one["twin_name"]) for one in first[:2]] == [
        ("dot_general.9", "replayed", "dot_general.8"),
        ("tanh.6", "replayed", "tanh.5"),
    ]
    assert [row["kind"] for row in stage["kept"]] == ["barrier"]


def test_one_program_without_a_checkpoint(cli: Cli, tmp_path: Path) -> None:
    out = cli("remat", dump(tmp_path / "none", KEEPS2)).out
    assert out.startswith("keeps  1.0 KiB in 2 values; replays nothing\n")
    assert "\nreplayed\n  nothing: no instruction is labelled so\n" in out
    forward = HEAD.replace("  y =", "  ROOT y =") + "}\n"
    out = cli("remat", dump(tmp_path / "forward", forward)).out
    assert out.startswith("keeps  0 B in 0 values; replays nothing\n")
    assert "\n  nothing is seen to be kept for the backward\n" in out
    nameless = KEEPS.replace("op_name", "op_type")
    out = cli("remat", dump(tmp_path / "nameless", nameless)).out
    assert out.startswith("keeps  what is not known; replays what is not known\n")
    assert "\nreplayed\n  the text does not tell\n" in out


def test_one_program_whose_policy_is_mistyped_or_undone(cli: Cli) -> None:
    out = cli("remat", REMAT / "mistyped-scanned" / "rocm-gfx950").out
    assert "\nwarning policy-saves-nothing  " in out
    ran = cli("remat", REMAT / "half" / "cpu")
    assert ran.code == 0
    assert "the compiler undid 1 replay" in " ".join(ran.out.splitlines()[:2])
    assert re.search(r"\nundone .*/checkpoint\n", ran.out)
    assert "before optimization it was recomputed" in ran.out


def test_what_is_on_the_host(cli: Cli) -> None:
    out = cli("remat", REMAT / "offload-scanned" / "rocm-gfx950").out
    assert out.startswith("keeps  64.0 KiB in 1 value, and 64.0 KiB on the host; ")
    pair = cli("remat", REMAT / "none-scanned/rocm-gfx950", REMAT / "offload-scanned/rocm-gfx950")
    assert re.search(r"\n +on the host +0 B +64\.0 KiB +\+64\.0 KiB\n", pair.out)


# ---------------------------------------------------------------------------------- output


def many_dots(count: int) -> str:
    """REPLAYS with that many dots in its region."""
    label = "jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"
    dots = "".join(
        f"  e.{n} = f32[8,16] dot(h2, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        f' metadata={{op_name="{label}"}}\n'
        for n in range(count - 1)
    )
    return REPLAYS.replace("  t2 =", f"{dots}  t2 =")


def test_limit(cli: Cli, tmp_path: Path) -> None:
    folder = dump(tmp_path / "many", many_dots(15))
    out = cli("remat", folder).out
    assert out.count("\n  matmul ") == 12
    assert "\n  … 3 more lines; --limit 0 shows all\n" in out
    out = cli("remat", folder, "--limit", "0").out
    assert out.count("\n  matmul ") == 15
    assert "--limit" not in out
    data = json.loads(cli("remat", folder, "--format", "json", "--limit", "1").out)
    assert len(data["stages"][0]["regions"][0]["operations"]) == 16


def test_formats_and_output(cli: Cli, pair: tuple[Path, Path], tmp_path: Path) -> None:
    data: Any = json.loads(cli("remat", *pair, "--format", "json").out)
    assert (data["remat_version"], data["schema_version"], data["holds"]) == (1, 1, True)
    assert [stage["stage"] for stage in data["stages"]] == [BEFORE, AFTER]
    assert data["stages"][1]["policy"]["peak_bytes"] == 4000
    assert data["baseline"]["files"] == [str(pair[0] / f"{s}.txt") for s in (BEFORE, AFTER)]
    ran = cli("remat", *pair, "--format", "markdown", "-o", tmp_path / "pair.md")
    assert (ran.code, ran.out) == (0, "")
    page = (tmp_path / "pair.md").read_text()
    assert page.startswith(
        "## ✅ Holds: residuals are smaller, more work is replayed and the peak is lower\n"
    )
    assert "\n| peak lower | yes | 4.1 KiB → 3.9 KiB |\n" in page
    swapped = cli("remat", *pair[::-1], "--format", "markdown").out
    assert swapped.startswith("## ❌ Does not hold: ")
    before = cli("remat", *pair, "--stage", "before", "--format", "markdown").out
    assert before.startswith("## ❔ Not known: whether the peak is lower\n")
    one = cli("remat", pair[1], "--format", "markdown").out
    assert one.startswith("## Keeps: about 512 B in 1 value; ")
    assert "\n| matmul | d2 | d | 1 | 4.1 kFLOP |\n" in one


def test_colors_are_asked_for(cli: Cli, pair: tuple[Path, Path]) -> None:
    for files in (pair, pair[:1]):
        plain = cli("remat", *files).out
        assert "\x1b" not in plain
        colored = cli("remat", *files, "--color", "always").out
        assert "\x1b[" in colored
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_of_a_file_acts_nowhere(cli: Cli, tmp_path: Path, payload: str) -> None:
    text = REPLAYS.replace("/checkpoint/", f"/{PAYLOADS[payload]}/checkpoint/")
    folder = dump(tmp_path / "acts", None)
    for stage, content in ((BEFORE, text), (AFTER, KEEPS)):
        (folder / f"{stage}.txt").write_bytes(content.encode())
    for files in ((folder,), (folder, "--stage", "before"), (folder, folder)):
        for output_format in ("terminal", "markdown"):
            ran = cli("remat", *files, "--format", output_format)
            assert (ran.code, ran.err) == (int(files[-1] is folder and len(files) == 2), "")
            assert ACTS.search(ran.out) is None
            assert "<script" not in ran.out or output_format == "terminal"
        for rows in re.findall(r"(?:^\|.*\n)+", ran.out, re.MULTILINE):
            assert len({re.sub(r"\\.", "", row).count("|") for row in rows.splitlines()}) == 1, rows
        json.loads(cli("remat", *files, "--format", "json").out)


def test_completion() -> None:
    environment = os.environ | {
        "_HLOLENS_COMPLETE": "bash_complete", "COMP_WORDS": "hlolens rem", "COMP_CWORD": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "hlo_lens"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,remat\n"


def test_the_page_shows_what_its_commands_print() -> None:
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) == PAGE.read_text(encoding="utf-8").count("output of:") == 5
    for block in blocks:
        with at_root():
            assert block["output"] == output_of(block["command"], block["lines"], block["code"])
