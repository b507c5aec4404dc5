"""`hlolens kernels`: which kernels, in which pass, how often, what each takes, what is absent."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hlo_lens.facts import Column, Facts, Finding, PassResult, Rule, discover_passes
from hlo_lens.hlo import parse
from hlo_lens.kernels import Filters, NoSuchNameError, NotReadError, kernels_report
from hlo_lens.program import Program
from tests import shared
from tests.cli.test_hostile_text import ACTS, PAYLOADS
from tests.cli.test_hostile_text import TEXT as HOSTILE
from tests.cli.test_lowering import built_in
from tests.conftest import Ran
from tests.facts.toys import Toy
from tests.facts.toys import table as toy_table
from tests.test_readme import BLOCK, at_root, output_of

Cli = Callable[..., Ran]

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "fixtures" / "hlo" / "attention"
MOE = ROOT / "fixtures" / "hlo" / "moe"
PAGE = ROOT / "docs" / "kernels.md"

# A Pallas kernel in a loop of four iterations, forward, replayed and backward; a cuDNN call with
# scratch memory and one to the FP8 gemm outside of loops; a mark of Shardy's.
STEP = """HloModule step, is_scheduled=true

%fwd_body (t: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %t = (s32[], f32[8,64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,64] get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %fa_fwd.1 = f32[8,64]{1,0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton", operand_layout_constraints={f32[8,64]{1,0}}, api_version=API_VERSION_TYPED_FFI, metadata={op_name="jit(f)/jvp(layer)/pallas_call[name=fa_fwd]" source_file="/src/attn.py" source_line=7}, backend_config={grid_x = 2 : i32, grid_y = 1 : i32, grid_z = 8 : i32, ir = "ML\\EFR\\01", name = "fa_fwd", num_stages = 2 : i32, num_warps = 4 : i32}
  ROOT %r = (s32[], f32[8,64]) tuple(%next, %fa_fwd.1)
}

%fwd_cond (t: (s32[], f32[8,64])) -> pred[] {
  %t = (s32[], f32[8,64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(4)
  ROOT %go = pred[] compare(%i, %n), direction=LT
}

%bwd_body (t: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %t = (s32[], f32[8,64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,64] get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %fa_fwd.2 = f32[8,64]{1,0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton", operand_layout_constraints={f32[8,64]{1,0}}, api_version=API_VERSION_TYPED_FFI, metadata={op_name="jit(f)/transpose(jvp(layer))/checkpoint/rematted_computation/pallas_call[name=fa_fwd]" source_file="/src/attn.py" source_line=7}, backend_config={grid_x = 2 : i32, grid_y = 1 : i32, grid_z = 8 : i32, ir = "ML\\EFR\\01", name = "fa_fwd", num_stages = 2 : i32, num_warps = 4 : i32}
  %fa_bwd.1 = f32[8,64]{1,0} custom-call(%x, %fa_fwd.2), custom_call_target="__gpu$xla.gpu.triton", output_to_operand_aliasing={{}: (1, {})}, api_version=API_VERSION_TYPED_FFI, metadata={op_name="jit(f)/transpose(jvp(layer))/pallas_call[name=fa_bwd]"}, backend_config={name = "fa_bwd", num_warps = 8 : i32}
  ROOT %r = (s32[], f32[8,64]) tuple(%next, %fa_bwd.1)
}

%bwd_cond (t: (s32[], f32[8,64])) -> pred[] {
  %t = (s32[], f32[8,64]) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(4)
  ROOT %go = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (p: f32[8,64], q: f8e4m3fn[8,64], w: f8e4m3fn[64,64]) -> f32[8,64] {
  %p = f32[8,64]{1,0} parameter(0)
  %q = f8e4m3fn[8,64]{1,0} parameter(1)
  %w = f8e4m3fn[64,64]{1,0} parameter(2)
  %mark = f32[8,64]{1,0} custom-call(%p), custom_call_target="Sharding", metadata={op_name="jit(f)/jvp(layer)/sharding"}
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,64]) tuple(%zero, %mark)
  %forward = (s32[], f32[8,64]) while(%start), condition=%fwd_cond, body=%fwd_body
  %mid = f32[8,64] get-tuple-element(%forward), index=1
  %norm = (f32[8,64]{1,0}, u8[4096]{0}) custom-call(%mid), custom_call_target="__cudnn$norm", metadata={op_name="jit(f)/jvp(norm)/norm"}, backend_config={"cudnn_norm_backend_config":{"epsilon":1e-05,"kind":"LAYER_FWD_INFER"}}
  %gemm = (f32[8,64]{1,0}, s8[33554432]{0}) custom-call(%q, %w), custom_call_target="__cublas$lt$matmul$f8", metadata={op_name="jit(f)/jvp(head)/dot_general"}, backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"epilogue":"BIAS"}}
  %normed = f32[8,64] get-tuple-element(%norm), index=0
  %back = (s32[], f32[8,64]) tuple(%zero, %normed)
  %backward = (s32[], f32[8,64]) while(%back), condition=%bwd_cond, body=%bwd_body
  ROOT %out = f32[8,64] get-tuple-element(%backward), index=1
}
"""  # noqa: E501

# Triton makes two fusions of three: a gemm and a softmax; the third is XLA's own.
GENERATED = """HloModule generated, is_scheduled=true

%gemm (a: bf16[64,128], b: bf16[128,32]) -> f32[64,32] {
  %a = bf16[64,128]{1,0} parameter(0)
  %b = bf16[128,32]{1,0} parameter(1)
  ROOT %d = f32[64,32]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/jvp()/dot_general"}
}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%sum (a: f32[64,32]) -> f32[64] {
  %a = f32[64,32]{1,0} parameter(0)
  %z = f32[] constant(0)
  ROOT %r = f32[64]{0} reduce(%a, %z), dimensions={1}, to_apply=%add
}

%own (a: f32[64]) -> f32[64] {
  %a = f32[64]{0} parameter(0)
  ROOT %n = f32[64]{0} negate(%a)
}

ENTRY %main (a: bf16[64,128], b: bf16[128,32]) -> f32[64] {
  %a = bf16[64,128]{1,0} parameter(0)
  %b = bf16[128,32]{1,0} parameter(1)
  %gemm_fusion = f32[64,32]{1,0} fusion(%a, %b), kind=kCustom, calls=%gemm, metadata={op_name="jit(f)/jvp()/dot_general"}, backend_config={"fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"16","block_n":"32","block_k":"64","split_k":"1","num_stages":"3","num_warps":"2","num_ctas":"1"}}}
  %soft = f32[64]{0} fusion(%gemm_fusion), kind=kCustom, calls=%sum, metadata={op_name="jit(f)/jvp()/reduce_sum"}, backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"4","output_tiles":[{"sizes":["8"]}],"num_ctas":1,"num_stages":1}}}
  ROOT %loop = f32[64]{0} fusion(%soft), kind=kLoop, calls=%own, metadata={op_name="jit(f)/jvp()/neg"}
}
"""  # noqa: E501

NONE = "HloModule m\n\nENTRY main {\n  ROOT p = f32[4] parameter(0)\n}\n"


@pytest.fixture
def step(tmp_path: Path) -> Path:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    return path


@pytest.fixture
def fusions(tmp_path: Path) -> Path:
    path = tmp_path / "generated.hlo"
    path.write_text(GENERATED)
    return path


def data(cli: Cli, *args: object, code: int = 0) -> dict[str, Any]:
    ran = cli("kernels", *args, "--format", "json")
    assert (ran.code, ran.err) == (code, "")
    found: dict[str, Any] = json.loads(ran.out)
    return found


def lines(out: str, section: int = 1) -> list[list[str]]:
    """The cells of the lines of a section, without its title and headings."""
    text = out.split("\n\n")[section].splitlines()[2:]
    return [re.split(r"  +", line.strip()) for line in text if "─" not in line]


# ---------------------------------------------------------------------------------- what it says


def test_kernels_stand_by_what_they_do_with_pass_loop_and_runs(cli: Cli, step: Path) -> None:
    ran = cli("kernels", step)
    assert (ran.code, ran.err) == (0, "")
    assert lines(ran.out) == [
        ["attention", "triton", "fa_fwd", "fwd", "forward ×4", "1", "4", "–", "–"],
        ["attention", "triton", "fa_fwd", "remat", "backward ×4", "1", "4", "–", "–"],
        ["attention", "triton", "fa_bwd", "bwd", "backward ×4", "1", "4", "–", "–"],
        ["gemm", "cublaslt", "__cublas$lt$matmul$f8", "fwd", "no loop", "1", "1", "65.5 kFLOP",
         "32.0 MiB"],
        ["norm", "cudnn", "__cudnn$norm", "fwd", "no loop", "1", "1", "–", "4.0 KiB"],
        ["total", "5", "14", "65.5 kFLOP"],
    ]  # fmt: skip


def test_the_head_counts_and_says_what_runs_again(cli: Cli, step: Path) -> None:
    head = " ".join(cli("kernels", step).out.split("\n\n")[0].split())
    assert "runs 5 calls, 14 runs a step: attention of triton ×3, gemm of cublaslt," in head
    assert "again fa_fwd 4 in the forward and 4 in a replay" in head
    assert "left out 1 call that does no work: sharding constraint; --all shows them" in head


def test_calls_that_do_no_work_are_shown_when_asked_for(cli: Cli, step: Path) -> None:
    out = cli("kernels", step, "--all").out
    assert lines(out)[-2] == [
        "constraint", "sharding", "Sharding", "fwd", "no loop", "1", "1", "–", "–",
    ]  # fmt: skip
    assert "left out" not in out
    named = data(cli, step, "--family", "sharding")
    assert [group["called"] for group in named["groups"]] == ["Sharding"]


def test_fusions_of_a_code_generator_are_kernels_and_those_of_xla_are_not(
    cli: Cli, fusions: Path
) -> None:
    out = cli("kernels", fusions, "--contract").out
    assert lines(out)[:2] == [
        ["gemm", "triton", "__triton_gemm (bf16×bf16→f32)", "fwd", "no loop", "1", "1",
         "524.3 kFLOP"],
        ["reduction", "triton", "__triton (reduction)", "fwd", "no loop", "1", "1", "–"],
    ]  # fmt: skip
    assert "tiles output 16×32, contracted 64, 2 warps, 3 stages, 1 CTA" in out
    assert "matmul  m 64 n 32 k 128, 524.3 kFLOP" in out
    assert "tiles output 8, 4 warps, 1 stage, 1 CTA" in out
    assert "kLoop" not in out


def test_flops_are_of_a_step_and_of_the_matmuls_alone(cli: Cli) -> None:
    folder = ATTENTION / "cudnn-full-remat" / "cuda-h100"
    out = cli("kernels", folder).out
    assert "kernels by phase and loop  FLOP of a step, of the matmuls in them\n" in out
    # Four gemms of 2·512·384·1152 in loops of two; what fused attention computes is not in the sum.
    assert out.count("906.0 MFLOP") == 4
    assert lines(out)[-1] == ["total", "7", "14", "3.6 GFLOP"]
    gemms = data(cli, folder, "--family", "triton")["groups"]
    assert {(one["flops"], one["flops_per_step"]) for one in gemms} == {
        (2 * 512 * 384 * 1152, 2 * 2 * 512 * 384 * 1152)
    }


# Two operations that the SparseCore runs aside, and a kernel.
ASIDE = """HloModule aside, is_scheduled=true, num_partitions=4

%gathers (p: bf16[8,64]) -> bf16[32,64] {
  %p = bf16[8,64]{1,0} parameter(0)
  ROOT %ag = bf16[32,64]{1,0} all-gather(%p), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
}, execution_thread="sparsecore"

%picks (p: s32[16]) -> s32[2] {
  %p = s32[16]{0} parameter(0)
  %i = s32[2]{0} constant({1, 3})
  ROOT %g = s32[2]{0} gather(%p, %i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
}, execution_thread="sparsecore"

ENTRY %main (a: bf16[8,64], b: s32[16]) -> (bf16[32,64], s32[2], bf16[8,64]) {
  %a = bf16[8,64]{1,0} parameter(0)
  %b = s32[16]{0} parameter(1)
  %one.call-start = ((), (), s32[2]) custom-call-start(), async_execution_thread="sparsecore", custom_call_target="TODO(b/522284627)", called_computations={%gathers}
  %one.call-update = ((bf16[8,64]), bf16[32,64], s32[2]) custom-call-update(%one.call-start, %a)
  %two.call-start = ((), (), s32[2]) custom-call-start(), async_execution_thread="sparsecore", custom_call_target="TODO(b/522284627)", called_computations={%picks}
  %two.call-update = ((s32[16]), s32[2], s32[2]) custom-call-update(%two.call-start, %b)
  %k = bf16[8,64]{1,0} custom-call(%a), custom_call_target="__cudnn$fmhaSoftmax"
  %one.call-done = bf16[32,64]{1,0} custom-call-done(%one.call-update)
  %two.call-done = s32[2]{0} custom-call-done(%two.call-update)
  ROOT %out = (bf16[32,64]{1,0}, s32[2]{0}, bf16[8,64]{1,0}) tuple(%one.call-done, %two.call-done, %k)
}
"""  # noqa: E501


def test_what_runs_on_the_sparsecore_is_told_and_collectives_are_counted_apart(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "aside.hlo"
    path.write_text(ASIDE)
    out = cli("kernels", path, "--contract").out
    head = " ".join(out.split("\n\n")[0].split())
    assert "runs 2 calls, 2 runs a step: attention of cudnn, gather on SparseCore besides" in head
    assert (
        "besides 1 call, 1 run a step: all-gather on SparseCore; hlolens collectives FILE says"
    ) in head
    assert "again" not in head
    assert [line[:3] for line in lines(out)[1:3]] == [
        ["collective", "sparsecore", "all-gather on SparseCore"],
        ["gather", "sparsecore", "gather on SparseCore"],
    ]
    (part,) = (one for one in out.split("\n\n") if one.startswith("sparsecore collective: "))
    told = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in part.splitlines()[1:])
    assert (told["takes"], told["gives"]) == ("bf16[8,64]{1,0}", "bf16[32,64]{1,0}")
    assert told["target"] == "TODO(b/522284627)"
    # Where there is nothing else, they are what runs.
    head = cli("kernels", path, "--family", "sparsecore").out.split("\n\n")[0]
    assert "besides" in head
    path.write_text(ASIDE.replace("called_computations={%picks}", "called_computations={%gathers}")
                    .replace("__cudnn$fmhaSoftmax", "Sharding"))  # fmt: skip
    head = cli("kernels", path).out.split("\n\n")[0]
    assert "runs      2 calls, 2 runs a step: all-gather on SparseCore ×2" in head
    assert "besides" not in head


def test_a_fusion_around_a_call_is_that_call_and_counts_once(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "slice.hlo"
    path.write_text(
        """HloModule m

%around (a: f32[4,8]) -> f32[8] {
  %a = f32[4,8]{1,0} parameter(0)
  %s = f32[1,8]{1,0} slice(%a), slice={[0:1], [0:8]}
  %b = f32[8]{0} bitcast(%s)
  ROOT %c = f32[8]{0} custom-call(%b), custom_call_target="mine"
}

ENTRY %main (a: f32[4,8]) -> f32[8] {
  %a = f32[4,8]{1,0} parameter(0)
  ROOT %f = f32[8]{0} fusion(%a), kind=kCustom, calls=%around, backend_config={"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":{"name":"address_computation"}}}
}
"""  # noqa: E501
    )
    assert [group["called"] for group in data(cli, path)["groups"]] == ["mine"]
    alone = re.sub(r"custom-call\(%b\).*", "negate(%b)", path.read_text())
    path.write_text(alone.replace("address_computation", "cutlass_gemm"))
    (group,) = data(cli, path)["groups"]
    assert (group["family"], group["called"]) == ("cutlass", "cutlass_gemm")


def test_runs_of_a_loop_whose_trip_count_is_not_known_are_a_bound(
    cli: Cli, step: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bound.hlo"
    path.write_text(STEP.replace("%n = s32[] constant(4)", "%n = s32[] custom-call()"
                                 ', custom_call_target="n"'))  # fmt: skip
    groups = data(cli, path, "--kernel", "fa_fwd")["groups"]
    assert [group["runs"] for group in groups] == [{"min": 0, "max": None}] * 2
    out = cli("kernels", path, "--kernel", "fa_fwd").out
    assert "2 of 7 calls, an unknown number of runs a step" in " ".join(out.split())
    rows = list(csv.DictReader(io.StringIO(cli("kernels", path, "--format", "csv").out)))
    assert (rows[0]["called"], rows[0]["runs_min"], rows[0]["runs_max"]) == ("fa_fwd", "0", "")


def test_a_program_without_kernels_says_so(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "none.hlo"
    path.write_text(NONE)
    ran = cli("kernels", path)
    assert (ran.code, ran.err) == (0, "")
    assert "runs  no kernel: no custom call that does work, and no fusion" in ran.out
    assert data(cli, path)["groups"] == []
    ran = cli("kernels", path, "--family", "cudnn")
    assert ran.code == 1
    assert "no: no call of family cudnn; there is no kernel at all" in ran.out


def test_a_text_without_names_says_that_the_pass_is_not_known(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "nameless.hlo"
    path.write_text(re.sub(r", metadata=\{[^}]*\}", "", STEP))
    out = cli("kernels", path).out
    assert "phase     not known: the text has no op_names" in out
    assert lines(out)[0][:4] == ["attention", "triton", "fa_fwd", "–"]


def test_a_cut_off_text_is_marked(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "cut.hlo"
    path.write_text(STEP[: STEP.index("  %normed")])
    out = cli("kernels", path, "--family", "cudnn").out
    assert "cut off; what follows is of the part that is there" in out


def test_it_is_about_the_stage_that_runs(cli: Cli) -> None:
    folder = ATTENTION / "cudnn-train" / "cuda-h100"
    assert "stage  after_optimizations; --stage chooses another" in cli("kernels", folder).out
    assert data(cli, folder)["stage"] == "after_optimizations"
    assert data(cli, folder, "--stage", "before")["stage"] == "before_optimizations"


@pytest.mark.parametrize("name", ["custom_calls", "matmuls", "kernels"])
def test_a_failed_pass_is_no_empty_answer(name: str) -> None:
    def crash(*_: object) -> PassResult:
        raise RuntimeError("cannot cope")

    own = discover_passes().owners["kernels"]
    others = built_in("modules", *own.requires, "kernels", without=[name])
    broken = Toy(name, (discover_passes().table(name),), crash)
    with pytest.raises(NotReadError, match=f"pass {name}: RuntimeError"):
        kernels_report(Facts(Program([parse(STEP)]), [*others, broken]))


# ---------------------------------------------------------------------------------- contracts


def test_each_distinct_kernel_is_described_once(cli: Cli, step: Path) -> None:
    out = cli("kernels", step, "--contract").out
    titles = [part.splitlines()[0] for part in out.split("\n\n")[2:-1]]
    assert titles[:5] == [
        "triton attention: fa_fwd", "triton attention: fa_bwd",
        "cublaslt gemm: __cublas$lt$matmul$f8", "cudnn norm: __cudnn$norm", "– not known",
    ][: len(titles)]  # fmt: skip
    part = next(one for one in out.split("\n\n") if one.startswith("triton attention: fa_fwd"))
    told = dict(re.split(r"  +", line.strip(), maxsplit=1) for line in part.splitlines()[1:])
    assert told["runs"] == "4 fwd, 4 remat in 2 calls"
    assert told["target"] == "__gpu$xla.gpu.triton"
    assert (told["takes"], told["gives"]) == ("f32[8,64]{1,0}", "f32[8,64]{1,0}")
    assert told["ABI"] == "API_VERSION_TYPED_FFI"
    assert told["launch"] == "grid 2×1×8, 4 warps, 2 stages"
    assert told["body"].startswith("5 B; hash ")
    assert told["source"] == "/src/attn.py:7"


def test_what_a_call_writes_over_its_scratch_and_its_attributes(cli: Cli, step: Path) -> None:
    out = cli("kernels", step, "--contract").out
    assert re.search(r"\n  aliases +result is operand 1\n", out)
    assert re.search(r"\n  workspace +32\.0 MiB\n", out)
    assert re.search(r"\n  epilogue +BIAS\n", out)
    assert re.search(r"\n  attributes +epsilon 1e-05, kind LAYER_FWD_INFER\n", out)
    assert re.search(r"\n  matmul +m 8 n 64 k 64, 65\.5 kFLOP\n", out)


def test_an_operand_that_a_collective_gives_is_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "gathered.hlo"
    path.write_text(
        """HloModule m, num_partitions=4

ENTRY %main (p: bf16[8,64]) -> bf16[32,64] {
  %p = bf16[8,64]{1,0} parameter(0)
  %ag = bf16[32,64]{1,0} all-gather(%p), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  ROOT %c = bf16[32,64]{1,0} custom-call(%ag), custom_call_target="te_norm_forward_ffi"
}
"""  # noqa: E501
    )
    assert re.search(r"\n  gathered +operand 0 by ag\n", cli("kernels", path, "--contract").out)


# ---------------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (("--family", "cudnn"), ["__cudnn$norm"]),
        (("--family", "cu*"), ["__cublas$lt$matmul$f8", "__cudnn$norm"]),
        (("--family", "cudnn,cublaslt"), ["__cublas$lt$matmul$f8", "__cudnn$norm"]),
        (("--phase", "remat"), ["fa_fwd"]),
        (("--phase", "remat,bwd"), ["fa_fwd", "fa_bwd"]),
        (("--loop", "backward"), ["fa_fwd", "fa_bwd"]),
        (("--loop", "none"), ["__cublas$lt$matmul$f8", "__cudnn$norm"]),
        (("--kernel", "fa_fwd"), ["fa_fwd", "fa_fwd"]),
        (("--kernel", "fa_*", "--phase", "bwd"), ["fa_bwd"]),
        (("--target", "__cublas$lt$matmul$f8"), ["__cublas$lt$matmul$f8"]),
    ],
)
def test_what_is_there_is_shown_and_the_exit_code_is_0(
    cli: Cli, step: Path, args: tuple[str, ...], names: list[str]
) -> None:
    found = data(cli, step, *args)
    assert found["answer"] is True
    assert [group["called"] for group in found["groups"]] == names


@pytest.mark.parametrize(
    ("args", "said"),
    [
        # A part of a name is not the name.
        (("--target", "__cublas$lt$matmul"), "no call of target __cublas$lt$matmul; there are"),
        (("--kernel", "fa"), "no call of kernel fa; there are fa_fwd, fa_bwd,"),
        (("--family", "jax_aiter"), "no call of family jax_aiter; there are triton, cublaslt"),
        (("--family", "cudnn", "--phase", "bwd"), "no call of family cudnn, phase bwd; there are"),
        (("--family", "cudnn", "--loop", "forward"), "no call of family cudnn, loop forward;"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_no_and_the_exit_code_is_1(
    cli: Cli, step: Path, args: tuple[str, ...], said: str
) -> None:
    ran = cli("kernels", step, *args)
    assert (ran.code, ran.err) == (1, "")
    assert said in " ".join(ran.out.split())
    assert data(cli, step, *args, code=1)["answer"] is False


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--family", "cuddn"], "no family 'cuddn'; did you mean 'cudnn'?"),
        (["--family", "zz*"], "no family 'zz*'; there are"),
        (["--phase", "back"], "no phase 'back'; there are fwd, bwd, remat, other"),
        (["--loop", "forwards"], "no instruction is in a loop 'forwards'; did you mean 'forward'?"),
    ],
)
def test_a_name_that_means_nothing_is_an_error(
    cli: Cli, step: Path, args: list[str], said: str
) -> None:
    ran = cli("kernels", step, *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"hlolens: error: {said}")


def test_a_family_of_a_users_catalogue_may_be_asked_for(
    cli: Cli, step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[target]]\nnames = ["mine"]\nfamily = "ours"\nop = "gemm"\n')
    assert cli("kernels", step, "--family", "ours").code == 2
    monkeypatch.setenv("HLOLENS_CATALOGUE", str(path))
    assert cli("kernels", step, "--family", "ours").code == 1


def test_from_python_a_name_that_means_nothing_raises() -> None:
    facts, nobodys = Facts(Program([parse(STEP)])), Filters(families=("nobodys",))
    with pytest.raises(NoSuchNameError):
        kernels_report(facts, nobodys)
    assert kernels_report(facts, nobodys, known_families=["nobodys"]).answer is False


# ---------------------------------------------------------------------------------- findings


def test_findings_are_of_these_tables_and_with_a_filter_of_what_is_shown() -> None:
    rule = Rule("slow-call", "warning", "It is slow.", "Make it fast.")
    other = Rule("other-thing", "error", "Something else.", "Something else.")
    own = discover_passes().owners["custom_calls"]
    others = built_in("modules", "matmuls", "kernels", *own.requires, without=["custom_calls"])

    def run(program: Program, facts: Facts) -> PassResult:
        result = own.run(program, facts)
        ids = {row["called"]: n for n, row in enumerate(
            {"called": row["kernel"] or row["target"]} for row in result.rows["custom_calls"]
            if not isinstance(row, tuple)
        )}  # fmt: skip
        about = [
            Finding(rule.id, "warning", f"{name} is slow", 0, None, (("custom_calls", ids[name]),))
            for name in ("fa_bwd", "__cudnn$norm")
        ]
        return PassResult(result.rows, result.members, about)

    calls = Toy("custom_calls", own.tables, run, own.requires, (*own.rules, rule))
    toy = Toy(
        "toy", (toy_table("toys", Column("n", "int", "measure", "n")),),
        lambda *_: PassResult({}, (), [Finding(other.id, "error", "not about it", 0)]),
        (), (other,),
    )  # fmt: skip
    facts = Facts(Program([parse(STEP)]), [*others, calls, toy])
    facts.run_all()
    report = kernels_report(facts)
    assert [one.message for one in report.findings] == ["fa_bwd is slow", "__cudnn$norm is slow"]
    report = kernels_report(facts, Filters(families=("cudnn",)))
    assert [one.message for one in report.findings] == ["__cudnn$norm is slow"]


# ---------------------------------------------------------------------------------- formats


def test_json_has_every_call_with_its_contract(cli: Cli, step: Path) -> None:
    found = data(cli, step)
    assert (found["schema_version"], found["name"], found["answer"]) == (1, "step", None)
    assert found["left_out"] == 1
    first = found["kernels"][0]
    assert (first["name"], first["family"], first["runs"]) == ("fa_fwd", "triton", 8)
    assert [call["name"] for call in first["calls"]] == ["fa_fwd.1", "fa_fwd.2"]
    assert first["calls"][0]["operand_layouts"] == ["f32[8,64]{1,0}"]
    for name in ("kernels", "custom_calls"):
        assert set(first["calls"][0]) > set(discover_passes().table(name).names)
    gemm = next(one for one in found["kernels"] if one["op"] == "gemm")["calls"][0]
    assert (gemm["m"], gemm["matmul_rows"], gemm["custom_call"]) == (8, [0], 5)
    assert found["groups"][0] == {
        "op": "attention", "family": "triton", "called": "fa_fwd", "phase": "fwd",
        "loop": "forward ×4", "calls": 1, "runs": 4, "flops_per_step": None, "flops": None,
        "workspace_bytes": None, "scoped_memory_bytes": None,
    }  # fmt: skip


def test_markdown_has_the_same_and_a_file_takes_it(cli: Cli, step: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    ran = cli("kernels", step, "--contract", "--format", "markdown", "-o", path)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    text = path.read_text()
    assert text.startswith("## step: kernels\n")
    for title in ("### Kernels by phase and loop", "### Triton attention: fa_fwd"):
        assert title in text
    for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({re.sub(r"\\.", "", row).count("|") for row in rows.splitlines()}) == 1, rows


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_name_or_number_is_cut_where_it_is_narrow(
    cli: Cli, step: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = cli("kernels", step, "--contract").out
    for text in ("__cublas$lt$matmul$f8", "32.0 MiB", "65.5 kFLOP", "API_VERSION_TYPED_FFI"):
        assert text in out
    if width >= 100:
        assert max(map(len, out.splitlines()[1:])) <= width


def test_colors_are_asked_for(cli: Cli, step: Path) -> None:
    bare = cli("kernels", step).out
    colored = cli("kernels", step, "--color", "always").out
    assert "\x1b" not in bare
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == bare


def test_bad_input_is_a_sentence(cli: Cli, tmp_path: Path) -> None:
    ran = cli("kernels", tmp_path / "none.hlo")
    assert (ran.code, ran.out) == (2, "")
    assert "no such file or folder" in ran.err


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_file_holds_does_not_act(cli: Cli, tmp_path: Path, payload: str) -> None:
    path = tmp_path / "hostile.hlo"
    path.write_bytes(HOSTILE.replace("@", PAYLOADS[payload]).encode())
    for form in ("text", "markdown", "json", "csv"):
        ran = cli("kernels", path, "--contract", "--all", "--format", form)
        assert ran.code == 0
        assert form in ("json", "csv") or ACTS.search(ran.out) is None
        assert "<script" not in ran.out or form in ("json", "csv", "text")


def test_the_shell_completes_families_and_phases_behind_a_comma() -> None:
    def offered(option: str, begun: str) -> list[str]:
        environment = {
            **os.environ,
            "_HLOLENS_COMPLETE": "bash_complete",
            "COMP_WORDS": f"hlolens kernels x {option} {begun}",
            "COMP_CWORD": "4",
        }
        done = subprocess.run(
            [sys.executable, "-m", "hlo_lens"],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return [line.partition(",")[2] for line in done.stdout.split()]

    assert "cudnn" in offered("--family", "cud")
    assert "cudnn,mosaic_tpu" in offered("--family", "cudnn,mos")
    assert offered("--phase", "re") == ["remat"]


# ---------------------------------------------------------------------------------- real texts


@pytest.mark.parametrize(
    ("folder", "families"),
    [
        ("cudnn-train/cuda-h100", {"cudnn"}),
        ("te-train/rocm-gfx950", {"transformer_engine"}),
        ("aiter-train/rocm-gfx950", {"jax_aiter"}),
        ("splash-train/tpu-v6e-1", {"mosaic_tpu"}),
        ("triton-train/cuda-h100", {"triton"}),
    ],
)
def test_fused_attention_of_each_library_forward_and_backward(
    cli: Cli, folder: str, families: set[str]
) -> None:
    groups = data(cli, ATTENTION / folder, "--family", ",".join(families))["groups"]
    assert {group["op"] for group in groups if group["op"] != "reduction"} == {"attention"}
    assert {group["phase"] for group in groups} == {"fwd", "bwd"}


@shared.needs_shared
def test_the_forward_kernel_of_splash_attention_runs_twice(cli: Cli) -> None:
    folder = shared.unpacked("dumps/tpu-maxtext.tar.xz")
    (path,) = folder.rglob("qwen3moe.raggeddot.full.opt.hlo")
    groups = data(cli, path, "--kernel", "splash*")["groups"]
    assert {(group["called"], group["phase"], group["runs"]) for group in groups} == {
        ("splash_mha_fwd_segmented_residuals", "fwd", 8),
        ("splash_mha_fwd_segmented_residuals", "remat", 8),
        ("splash_mha_dq_segmented_no_residuals", "bwd", 8),
        ("splash_mha_dkv_segmented_no_residuals", "bwd", 8),
    }
    assert cli("kernels", path, "--family", "cudnn").code == 1


# ---------------------------------------------------------------------------------- the page


@pytest.mark.parametrize(
    "block", list(BLOCK.finditer(PAGE.read_text())), ids=lambda block: block["command"]
)
def test_an_output_on_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        assert block["output"] == output_of(block["command"], block["lines"], block["code"]), (
            "`python -m tests.test_readme docs/kernels.md` puts it in place; look at what changed"
        )


def test_every_command_with_an_output_is_checked() -> None:
    assert len(list(BLOCK.finditer(PAGE.read_text()))) == PAGE.read_text().count("output of:") > 0
