"""`hlolens lowering`: the sentence about each kind of work, the sections behind it, both stages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.facts import COMMON, Column, Facts, Pass, PassResult, Table, discover_passes
from hlo_lens.facts.columns import ColumnType
from hlo_lens.hlo import parse
from hlo_lens.lowering import Report, lowering_report
from hlo_lens.lowering.as_data import as_data
from hlo_lens.present.markdown import as_markdown
from hlo_lens.present.page import plain
from hlo_lens.present.terminal import as_lines
from hlo_lens.program import Program
from tests.cli.test_hostile_text import ACTS, PAYLOADS
from tests.cli.test_hostile_text import TEXT as HOSTILE
from tests.conftest import Ran
from tests.facts.toys import Toy
from tests.shared import needs_shared, unpacked
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]
Row = dict[str, object]

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures" / "hlo"
PAGE = ROOT / "docs" / "lowering.md"

# A product in bfloat16 whose operand was f32, forward and backward, in a loop of three iterations.
TEXT = """HloModule step, is_scheduled=true

%body (t: (s32[], f32[8,16], bf16[16,4])) -> (s32[], f32[8,16], bf16[16,4]) {
  %t = (s32[], f32[8,16], bf16[16,4]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,16] get-tuple-element(%t), index=1
  %w = bf16[16,4] get-tuple-element(%t), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %half = bf16[8,16] convert(%x)
  %y = bf16[8,4] dot(%half, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp(layer)/dot_general"}
  %g = bf16[8,16] dot(%y, %w), lhs_contracting_dims={1}, rhs_contracting_dims={1}, metadata={op_name="jit(f)/transpose(jvp(layer))/dot_general"}
  %wide = f32[8,16] convert(%g)
  ROOT %r = (s32[], f32[8,16], bf16[16,4]) tuple(%next, %wide, %w)
}

%cond (t: (s32[], f32[8,16], bf16[16,4])) -> pred[] {
  %t = (s32[], f32[8,16], bf16[16,4]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(3)
  ROOT %go = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[8,16], w: bf16[16,4]) -> f32[8,16] {
  %x = f32[8,16]{1,0} parameter(0)
  %w = bf16[16,4]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %init = (s32[], f32[8,16], bf16[16,4]) tuple(%zero, %x, %w)
  %loop = (s32[], f32[8,16], bf16[16,4]) while(%init), condition=%cond, body=%body
  ROOT %out = f32[8,16] get-tuple-element(%loop), index=1
}
"""  # noqa: E501


def made(name: str, columns: dict[str, ColumnType], rows: Sequence[Row]) -> Toy:
    """A pass that fills a table of that name with rows that run once in the entry."""
    told = {"phase": "fwd", "loop_depth": 0, "executions": 1, "executions_min": 1,
            "executions_max": 1}  # fmt: skip
    table = Table(
        name,
        f"one of the {name}",
        (*COMMON, *(Column(column, type, "structural", ".") for column, type in columns.items())),
    )
    filled: list[Row] = [{"module": 0, "instr": 0, **told, **row} for row in rows]
    return Toy(name, (table,), lambda *_: PassResult({name: filled}))


def ragged(*rows: Row) -> Toy:
    columns: dict[str, ColumnType] = {
        "class": "text", "role": "text", "projection": "text", "variant": "text",
        "lowering": "text", "backend": "text", "groups": "int", "m": "int", "n": "int", "k": "int",
        "split_k": "int", "useful_flops": "flops", "factor": "float", "extra_bytes": "bytes",
        "why_not_grouped": "text",
    }  # fmt: skip
    sizes: Row = {"groups": 4, "m": 64, "n": 128, "k": 32, "useful_flops": 1000, "factor": 1.0}
    return made("ragged_dots", columns, [{**sizes, **row} for row in rows])


def attention(*rows: Row) -> Toy:
    columns: dict[str, ColumnType] = {
        "route": "text", "direction": "text", "recomputed": "bool", "kernel": "text",
        "causal": "bool", "window": "int", "heads": "int", "score_shape": "text",
        "score_bytes": "bytes", "score_values": "int", "score_written_bytes": "bytes",
        "flops": "flops", "fell_back": "bool", "workspace_bytes": "bytes",
    }  # fmt: skip
    sizes: Row = {"recomputed": False, "causal": True, "heads": 8, "fell_back": False}
    return made("attention", columns, [{**sizes, **row} for row in rows])


def experts(*rows: Row) -> Toy:
    columns: dict[str, ColumnType] = {
        "path": "text", "experts": "int", "capacity": "int", "tokens": "int", "top_k": "int",
        "shared_experts": "int", "drops": "bool", "routing_bytes": "bytes",
        "all_to_all_bytes": "bytes", "gemm_flops": "flops", "balance": "text",
    }  # fmt: skip
    return made("moe", columns, rows)


def built_in(*tables: str, without: Sequence[str] = ()) -> list[object]:
    """The passes that fill these tables, and those that they need."""
    owners = discover_passes().owners
    found: dict[str, Pass] = {}
    wanted = list(tables)
    while wanted:
        owner = owners[wanted.pop()]
        if owner.name not in (*found, *without):
            found[owner.name] = owner
            wanted += owner.requires
    return list(found.values())


def report(*toys: Toy, text: str = TEXT, before: str | None = None) -> Report:
    """The report with these tables in place of the built-in ones, and without the others."""
    real = built_in("modules", "matmuls", without=[toy.name for toy in toys])
    texts = [text] if before is None else [before, text]
    stages = ["after_optimizations"] if before is None else ["before_optimizations",
                                                             "after_optimizations"]  # fmt: skip
    return lowering_report(Facts(Program(list(map(parse, texts)), stages), [*real, *toys]))


def answer(word: str, *toys: Toy) -> str:
    return dict(report(*toys).answers)[word]


def lines(found: Report, title: str) -> list[tuple[str, ...]]:
    return list(next(one.lines for one in found.sections if one.title == title))


# ---------------------------------------------------------------------------------- ragged dots


NATIVE = [
    {"class": kind, "lowering": "tpu_native", "phase": phase}
    for kind, phase in (("fwd", "fwd"), ("fwd", "remat"), ("dgrad", "bwd"), ("wgrad", "bwd"))
]
PADDED: Row = {
    "class": "fwd", "lowering": "dense_padded", "factor": 4.0, "split_k": 8,
    "why_not_grouped": "not enabled: xla_gpu_experimental_use_ragged_dot_grouped_gemm is off",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (NATIVE, "grouped, all 4 (fwd, fwd again in a replay, dgrad, wgrad): tpu_native ×4"),
        (
            [PADDED, PADDED],
            "not grouped: 2 padded to dense (fwd ×2), 4 times the useful FLOP; not enabled:"
            " xla_gpu_experimental_use_ragged_dot_grouped_gemm is off",
        ),
        (
            [NATIVE[0], PADDED, {**PADDED, "factor": 8.0, "why_not_grouped": "unknown"}],
            "1 of 3 grouped (tpu_native); 2 padded to dense, 4 – 8 times the useful FLOP; not"
            " enabled: xla_gpu_experimental_use_ragged_dot_grouped_gemm is off"
            " (and 1 other reason)",
        ),
        (
            [{"lowering": "ragged-dot"}, PADDED | {"why_not_grouped": None}],
            "not grouped; 1 padded to dense, 4 times the useful FLOP; 1 written as ragged-dot, not",
        ),
        ([{"class": "fwd", "lowering": "ragged-dot"}], "not lowered yet: 1 written as ragged-dot"),
        (
            [PADDED | {"factor": 1.0, "groups": 1}],
            "not grouped: 1 padded to dense (fwd), of one group: a plain product over all rows,"
            " whose useful FLOP are an upper bound, as tokens may not fill the rows; not enabled",
        ),
        (
            [PADDED | {"factor": 1.0, "groups": None}],
            "not grouped: 1 padded to dense (fwd), at no more FLOP than can be useful; not enabled",
        ),
        (
            [NATIVE[0], {"lowering": "triton_fusion"}],
            "grouped, all 2 (fwd, of no known class): tpu_native, triton_fusion",
        ),
        ([PADDED | {"factor": None, "why_not_grouped": None}], "not grouped: 1 padded to dense"),
        ([], "none is seen"),
    ],
)
def test_did_a_ragged_dot_become_a_grouped_gemm(rows: list[Row], said: str) -> None:
    assert answer("ragged dots", ragged(*rows)).startswith(said)


def test_ragged_dots_stand_with_their_cost_and_the_reason_below() -> None:
    found = report(ragged({**PADDED, "extra_bytes": 2048}))
    (section,) = (one for one in found.sections if one.title == "ragged dots")
    assert [column.heading for column in section.columns] == [
        "class", "lowering", "phase", "loop", "sizes", "split-K", "dots", "runs", "useful FLOP",
        "factor", "extra",
    ]  # fmt: skip
    assert section.lines == (
        ("fwd", "dense_padded", "fwd", "no loop", "g4 m64 n128 k32", "8", "1", "1", "1.0 kFLOP",
         "×4", "2.0 KiB"),
    )  # fmt: skip
    assert section.below[0].startswith("why not grouped: not enabled: xla_gpu")


# ---------------------------------------------------------------------------------- attention

FUSED: Row = {"route": "cudnn", "direction": "fwd", "kernel": "__cudnn$fmhaSoftmax"}
BACK: Row = {"route": "cudnn", "direction": "bwd", "phase": "bwd"}
EXPOSED: Row = {
    "route": "exposed", "direction": "fwd", "score_shape": "f32[2,8,128,128]",
    "score_bytes": 1 << 20, "score_values": 2, "score_written_bytes": 3 << 19,
}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([FUSED, BACK], "fused (cudnn) forward and backward"),
        ([FUSED, FUSED, BACK], "forward fused (cudnn ×2); backward fused (cudnn)"),
        (
            [FUSED, BACK, {**FUSED, "recomputed": True, "phase": "remat"}],
            "fused (cudnn) forward and backward; the forward again in a replay, fused (cudnn), 1 r",
        ),
        (
            [EXPOSED, {**EXPOSED, "direction": "bwd"}],
            "exposed forward and backward; scores f32[2,8,128,128] lie in memory: 4 values,"
            " 3.0 MiB in one run of each",
        ),
        (
            [FUSED, {**EXPOSED, "direction": "bwd"}],
            "forward fused (cudnn); backward exposed; scores",
        ),
        (
            [FUSED, {**EXPOSED, "fell_back": True, "score_values": 0}],
            "forward 1 of 2 fused (cudnn), 1 exposed; 1 fell back: others here are fused;"
            " scores f32[2,8,128,128] of 1.0 MiB never lie in memory",
        ),
        (
            [FUSED, EXPOSED, BACK, {**EXPOSED, "direction": "bwd"}],
            "1 of 2 fused (cudnn), 1 exposed, forward and backward; scores",
        ),
        ([EXPOSED, EXPOSED], "forward exposed ×2; scores"),
        ([{"route": "other", "direction": "fwd"}], "forward by a kernel that is not known"),
        ([{**FUSED, "direction": None}], "in no pass fused (cudnn)"),
        ([], "none is seen"),
    ],
)
def test_did_attention_stay_fused_forward_and_backward(rows: list[Row], said: str) -> None:
    assert answer("attention", attention(*rows)).startswith(said)


def test_sites_stand_with_their_scores_and_sizes() -> None:
    found = report(attention({**EXPOSED, "window": 64}, BACK))
    rows = lines(found, "attention")
    assert rows[0][0] == "exposed"
    assert "f32[2,8,128,128]" in rows[0]
    (section,) = (one for one in found.sections if one.title == "attention")
    assert section.below == ("causal, window 64, heads 8", "causal, heads 8")


def test_a_kernel_that_does_not_tell_its_mask_says_so() -> None:
    def below(row: Row) -> str:
        found = report(attention({**row, "causal": None}))
        (section,) = (one for one in found.sections if one.title == "attention")
        return section.below[0]

    assert below(FUSED) == "mask not told, heads 8"
    assert below(EXPOSED) == "heads 8"  # the matmuls show what is there


@pytest.mark.parametrize(
    ("rows", "said", "heading"),
    [
        (
            [{**FUSED, "flops": 3000}, {**BACK, "flops": 7000, "executions": 2}],
            "; attention kernels 17.0 kFLOP a step, not in the matmuls",
            "which the matmuls do not have",
        ),
        ([{**EXPOSED, "flops": 3000}], "", "which the matmuls have too"),
        (
            [{**EXPOSED, "flops": 3000}, {**BACK, "flops": 7000}],
            "; attention kernels 7.0 kFLOP a step, not in the matmuls",
            "of which the matmuls have those of exposed sites alone",
        ),
        ([FUSED], "", "which the matmuls do not have"),  # how many is not known
        ([{"route": "other", "flops": 4000}], "; attention kernels 4.0 kFLOP a step, not", ""),
    ],
)
def test_whether_the_matmuls_have_the_flops_of_attention(
    rows: list[Row], said: str, heading: str
) -> None:
    found = report(attention(*rows))
    matmuls = dict(found.answers)["matmuls"]
    assert matmuls.startswith(f"2, 6.1 kFLOP a step: dot ×2{said}")
    assert ("attention" in matmuls) == bool(said)
    (section,) = (one for one in found.sections if one.title == "attention")
    assert heading in section.about


# ---------------------------------------------------------------------------------- experts


def test_how_tokens_get_to_the_experts() -> None:
    block: Row = {
        "path": "fixed_capacity", "experts": 8, "capacity": 32, "top_k": 2, "drops": True,
        "routing_bytes": 4096, "gemm_flops": 5000, "balance": "routing",
    }  # fmt: skip
    toy = experts(block, {**block, "phase": "bwd"})
    assert answer("experts", toy) == (
        "fixed capacity, 8 experts, top-2, capacity 32; routing-heavy;"
        " what exceeds the capacity can be dropped"
    )
    assert lines(report(toy), "expert blocks")[0] == (
        "fixed_capacity", "fwd", "no loop", "8", "2", "32", "yes", "routing", "1", "1", "4.0 KiB",
        "5.0 kFLOP",
    )  # fmt: skip
    assert answer("experts", experts({"path": "ragged"})) == "ragged"


ROUTED: Row = {"path": "ragged", "routing_bytes": 4096, "all_to_all_bytes": 0, "gemm_flops": 5000}
NO_DEVICE = "no device spec tells which is heavier; --spec names the device"


@pytest.mark.parametrize(
    ("row", "notes"),
    [
        (ROUTED, (NO_DEVICE,)),
        (ROUTED | {"balance": "compute"}, ()),
        # No device would tell it.
        (ROUTED | {"routing_bytes": None}, ()),
    ],
)
def test_that_no_device_tells_which_is_heavier(row: Row, notes: tuple[str, ...]) -> None:
    (section,) = (one for one in report(experts(row)).sections if one.title == "expert blocks")
    assert section.notes == notes


def test_a_device_can_be_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "layer.hlo"  # without the side file that names the device
    folder = FIXTURES / "moe" / "ragged-layer" / "rocm-gfx950"
    path.write_text((folder / "after_optimizations.txt").read_text())
    bare = cli("lowering", path).out
    assert NO_DEVICE in bare
    named = cli("lowering", path, "--spec", "mi355x").out
    assert NO_DEVICE not in named
    assert re.search(r"\n  experts +ragged, 4 experts, top-2, tokens 64; compute-heavy\n", named)
    assert os.environ.get("HLOLENS_SPEC") is None
    assert cli("lowering", path).out == bare
    monkeypatch.setenv("HLOLENS_SPEC", "mi355x")
    assert cli("lowering", path).out == named
    ran = cli("lowering", path, "--spec", "mi9")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("hlolens: error: no device spec mi9; there are h100,")
    assert os.environ["HLOLENS_SPEC"] == "mi355x"


# ---------------------------------------------------------------------------------- matmuls


def test_matmuls_stand_with_flops_of_a_step_and_what_is_around_them() -> None:
    found = report()
    assert dict(found.answers)["matmuls"] == "2, 6.1 kFLOP a step: dot ×2"
    (section,) = (one for one in found.sections if one.title == "matmuls")
    assert section.lines == (
        ("fwd", "dot", "no", "bf16", "1", "3", "3.1 kFLOP", "50%"),
        ("bwd", "dot", "no", "bf16", "1", "3", "3.1 kFLOP", "50%"),
    )
    assert section.below == ("converts lhs f32->bf16", "converts result bf16->f32")


def test_a_table_that_is_not_there_or_failed_is_not_known_and_the_rest_is_told() -> None:
    def crash(*_: object) -> PassResult:
        raise RuntimeError("cannot cope")

    broken = Toy("attention", attention().tables, crash)
    found = report(broken, ragged())
    said = dict(found.answers)
    assert said["attention"] == "not known: pass attention: RuntimeError: cannot cope"
    assert said["experts"] == "not known: no pass fills the table moe"
    assert said["ragged dots"] == "none is seen"
    assert said["matmuls"].startswith("2, ")
    data = as_data(found)
    tables = data["tables"]
    assert isinstance(tables, dict)
    assert (tables["attention"], tables["moe"], tables["ragged_dots"]) == (None, None, [])
    assert data["not_known"] == [
        "pass attention: RuntimeError: cannot cope", "no pass fills the table moe",
        "no pass fills the table duplicates",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------- stages


def test_both_stages_stand_side_by_side() -> None:
    before = [{"class": "fwd", "lowering": "ragged-dot"}] * 3
    after = [{"class": "fwd", "lowering": "grouped_gemm", "module": 1}] * 3
    found = report(ragged(*before, *after), before=TEXT)
    assert dict(found.head)["stage"] == "after_optimizations; --stage chooses another"
    assert lines(found, "before and after") == [
        ("ragged dots", "ragged-dot ×3", "grouped_gemm ×3"),
        ("matmuls", "dot ×2", "dot ×2"),
    ]
    gone = report(ragged(*before), before=TEXT)
    assert dict(gone.answers)["ragged dots"] == "none is seen; before_optimizations has 3"
    assert lines(gone, "before and after")[0] == ("ragged dots", "ragged-dot ×3", "none")


def test_a_stage_can_be_chosen(cli: Cli) -> None:
    folder = FIXTURES / "moe" / "ragged-layer" / "rocm-gfx950"
    out = cli("lowering", folder).out
    assert "\nbefore and after  " in out
    out = cli("lowering", folder, "--stage", "before").out
    assert "before and after" not in out
    assert "before_optimizations.txt" in out.partition("\n")[0]


# ---------------------------------------------------------------------------------- texts


def test_a_program_without_any_of_them_says_so(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "none.hlo"
    path.write_text("HloModule m\n\nENTRY main {\n  ROOT p = f32[4] parameter(0)\n}\n")
    ran = cli("lowering", path)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"\n  ragged dots +none is seen\n", ran.out)
    assert re.search(r"\n  matmuls +none is seen\n", ran.out)
    assert "\n\n" not in ran.out


def test_a_text_without_names_and_one_that_is_cut_off(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nameless.hlo"
    path.write_text(re.sub(r", metadata=\{[^}]*\}", "", TEXT))
    out = cli("lowering", path).out
    assert re.search(r"\n  phase +not known: the text has no op_names", out)
    path.write_text(TEXT[: TEXT.index("  ROOT %out")])
    out = cli("lowering", path).out
    assert re.search(r"\n  text +cut off; what follows is of the part that is there\n", out)
    assert re.search(r"\n  ragged dots +none is seen in the part that is there\n", out)


# ---------------------------------------------------------------------------------- formats


def test_json_has_the_rows_of_each_table(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(TEXT)
    ran = cli("lowering", path, "--format", "json")
    assert (ran.code, ran.err) == (0, "")
    found: dict[str, Any] = json.loads(ran.out)
    assert (found["schema_version"], found["name"], found["before"]) == (1, "step", None)
    assert list(found["answers"]) == ["ragged dots", "attention", "experts", "matmuls"]
    assert [row["name"] for row in found["tables"]["matmuls"]] == ["y", "g"]
    assert found["tables"]["matmuls"][0]["convert_before"][0]["from"] == "f32"
    assert isinstance(found["findings"], list)


def test_markdown_has_the_same() -> None:
    text = as_markdown(report(ragged(PADDED), attention(EXPOSED)), "lowering")
    assert text.startswith("## step: lowering\n")
    assert "- **ragged dots**: not grouped: 1 padded to dense (fwd)" in text
    for title in ("### Ragged dots", "### Attention", "### Matmuls"):
        assert title in text
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({re.sub(r"\\.", "", row).count("|") for row in rows.splitlines()}) == 1, rows


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_cut_where_it_is_narrow(width: int) -> None:
    found = report(ragged({**PADDED, "extra_bytes": 2048}), attention(EXPOSED))
    text = plain(as_lines(found, width=width))
    for part in ("2.0 KiB", "1.5 MiB", "f32[2,8,128,128]", "3.1 kFLOP"):
        assert part in text


def test_columns_that_a_narrow_terminal_lacks_are_named() -> None:
    found = report(ragged({**PADDED, "extra_bytes": 2048}))
    narrow = " ".join(plain(as_lines(found, width=80)).split())
    assert (
        "4 columns left out: loop, sizes, split-K, useful FLOP; a wider terminal or --format json"
    ) in narrow
    assert "left out" not in plain(as_lines(found, width=200))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_file_holds_does_not_act(cli: Cli, tmp_path: Path, payload: str) -> None:
    path = tmp_path / "hostile.hlo"
    path.write_bytes(HOSTILE.replace("@", PAYLOADS[payload]).encode())
    for form in ("text", "markdown", "json"):
        ran = cli("lowering", path, "--format", form)
        assert ran.code == 0
        assert form == "json" or ACTS.search(ran.out) is None
        assert "<script" not in ran.out or form in ("json", "text")


def test_bad_input_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    ran = cli("lowering", tmp_path / "none.hlo")
    assert (ran.code, ran.out) == (2, "")
    assert "no such file or folder" in ran.err


# ---------------------------------------------------------------------------------- real texts


@pytest.mark.parametrize(
    ("folder", "word", "said"),
    [
        ("attention/cudnn-train/cuda-h100", "attention", "fused (cudnn) forward and backward"),
        ("attention/te-train/rocm-gfx950", "attention", "fused (transformer_engine) forward and"),
        ("attention/aiter-train/rocm-gfx950", "attention", "fused (aiter) forward and backward"),
        ("attention/splash-train/tpu-v6e-1", "attention", "fused (mosaic) forward and backward"),
        (
            "attention/triton-full-remat/cuda-h100",
            "attention",
            "fused (triton) forward and backward; the forward again in a replay, fused (triton), 2",
        ),
        (
            "attention/one-fell-back/cuda-h100",
            "attention",
            "1 of 2 fused (cudnn), 1 exposed, forward and backward; 2 fell back",
        ),
        ("attention/xla-train/rocm-gfx950", "attention", "exposed forward and backward; scores"),
        ("moe/ragged-layer-f16/rocm-gfx950", "ragged dots", "grouped, all 9 (fwd ×3, dgrad ×3, "),
        ("moe/ragged-layer/tpu-v6e-1", "ragged dots", "grouped, all 9 (fwd ×3, dgrad ×3, wgrad"),
        ("moe/ragged-padded/rocm-gfx950", "ragged dots", "not grouped: 1 padded to dense (fwd), 4"),
        (
            "moe/expert-parallel/rocm-gfx950-8",
            "ragged dots",
            "not grouped: 2 padded to dense (fwd ×2), of one group: a plain product over all rows",
        ),
        ("moe/dense-masked/rocm-gfx950", "ragged dots", "none is seen"),
        ("moe/dense-masked/rocm-gfx950", "experts", "dense masked, 4 experts"),
        ("moe/fixed-capacity/cuda-h100", "experts", "fixed capacity, 4 experts, capacity 16"),
    ],
)
def test_the_answers_about_the_fixtures(cli: Cli, folder: str, word: str, said: str) -> None:
    found = json.loads(cli("lowering", FIXTURES / folder, "--format", "json").out)
    assert found["answers"][word].startswith(said)
    assert found["not_known"] == []


@needs_shared
@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        (
            "qwen3moe.raggeddot.full.opt",
            "ragged dots",
            "grouped, all 12 (fwd ×3, fwd again in a replay ×3, dgrad ×3, wgrad ×3): tpu_native",
        ),
        ("qwen3moe.raggeddot.full.before", "ragged dots", "not lowered yet: 12 written as ragged"),
        ("qwen3moe.dense.full.opt", "ragged dots", "none is seen"),
        ("qwen3moe.dense.full.opt", "experts", "dense masked, 16 experts, top-4"),
        (
            "qwen3moe.dense.full.opt",
            "attention",
            "fused (mosaic) forward and backward; the forward again in a replay, fused (mosaic), 8",
        ),
        ("v6e_2x4.full.opt", "attention", "exposed forward and backward; the forward again in a"),
    ],
)
def test_the_answers_about_programs_of_maxtext(cli: Cli, name: str, word: str, said: str) -> None:
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob(f"{name}.hlo")
    found = json.loads(cli("lowering", path, "--format", "json").out)
    assert found["answers"][word].startswith(said)


# ---------------------------------------------------------------------------------- the page


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(PAGE.read_text())), ids=lambda block: block["command"]
)
def test_an_output_on_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_readme docs/lowering.md` puts it in place; look at what changed"
        )


def test_every_command_with_an_output_is_checked() -> None:
    assert len(list(BLOCK.finditer(PAGE.read_text()))) == PAGE.read_text().count("output of:") > 0
