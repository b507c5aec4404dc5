"""The kernels table: custom calls, and fusions that a generator or a library makes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hlo_lens_passes.kernels import families

from hlo_lens.facts import Facts
from hlo_lens.hlo import parse
from hlo_lens.program import Program
from tests import shared
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"

# A layer scan, forward and backward: attention's forward kernel runs in both. In front of them a
# gemm that Triton makes, a sum that XLA makes itself, and a mark.
STEP = """\
HloModule step, is_scheduled=true

fwd_body {
  t = (s32[], f32[8,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8,64]{1,0} get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  first = (f32[8,64]{1,0}, u8[256]{0}) custom-call(x), custom_call_target="__cudnn$fmhaSoftmax", metadata={op_name="jit(f)/jvp(layer)/attention"}
  y = f32[8,64]{1,0} get-tuple-element(first), index=0
  ROOT r = (s32[], f32[8,64]{1,0}) tuple(next, y)
}

bwd_body {
  t = (s32[], f32[8,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[8,64]{1,0} get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  again = (f32[8,64]{1,0}, u8[256]{0}) custom-call(x), custom_call_target="__cudnn$fmhaSoftmax", metadata={op_name="jit(f)/transpose(jvp(layer))/checkpoint/rematted_computation/attention"}
  y = f32[8,64]{1,0} get-tuple-element(again), index=0
  back = (f32[8,64]{1,0}, u8[512]{0}) custom-call(x, y), custom_call_target="__cudnn$fmhaSoftmaxBackward", metadata={op_name="jit(f)/transpose(jvp(layer))/attention"}
  d = f32[8,64]{1,0} get-tuple-element(back), index=0
  ROOT r = (s32[], f32[8,64]{1,0}) tuple(next, d)
}

cond {
  t = (s32[], f32[8,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}

gemm {
  a = bf16[8,32]{1,0} parameter(0)
  b = bf16[32,64]{1,0} parameter(1)
  ROOT d = f32[8,64]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, backend_config={"sizes":["32"]}
}

own {
  a = f32[8,64]{1,0} parameter(0)
  ROOT n = f32[8,64]{1,0} negate(a)
}

ENTRY main {
  p = bf16[8,32]{1,0} parameter(0)
  w = bf16[32,64]{1,0} parameter(1)
  mark = bf16[8,32]{1,0} custom-call(p), custom_call_target="Sharding"
  made = f32[8,64]{1,0} fusion(mark, w), kind=kCustom, calls=gemm, metadata={op_name="jit(f)/jvp(embed)/dot_general"}, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"2","output_tiles":[{"sizes":["8","16"]}],"num_ctas":1,"num_stages":3}}}
  neg = f32[8,64]{1,0} fusion(made), kind=kLoop, calls=own, backend_config={"fusion_backend_config":{"kind":""}}
  zero = s32[] constant(0)
  start = (s32[], f32[8,64]{1,0}) tuple(zero, neg)
  forward = (s32[], f32[8,64]{1,0}) while(start), condition=cond, body=fwd_body
  mid = f32[8,64]{1,0} get-tuple-element(forward), index=1
  turn = (s32[], f32[8,64]{1,0}) tuple(zero, mid)
  backward = (s32[], f32[8,64]{1,0}) while(turn), condition=cond, body=bwd_body
  ROOT out = f32[8,64]{1,0} get-tuple-element(backward), index=1
}
"""  # noqa: E501

ALL = "select family, op, called from kernels order by text_line"


def fusion(body: str, config: str, *, opcode: str = "fusion", extra: str = "") -> str:
    """A module of one fusion around `body`, whose parameters are a bf16[64,128], b bf16[128,32]."""
    return f"""\
HloModule m
{extra}
fused {{
  a = bf16[64,128]{{1,0}} parameter(0)
  b = bf16[128,32]{{1,0}} parameter(1)
  {body}
}}
ENTRY main {{
  x = bf16[64,128]{{1,0}} parameter(0)
  y = bf16[128,32]{{1,0}} parameter(1)
  ROOT f = bf16[64,32]{{1,0}} {opcode}(x, y), kind=kCustom, calls=fused, backend_config={config}
}}
"""


DOT = (
    "ROOT d = bf16[64,32]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
)  # fmt: skip
SLICE = "ROOT d = bf16[64,32]{1,0} slice(a), slice={[0:64], [0:32]}"


def gpu(kind: str, more: str = "") -> str:
    return f'{{"fusion_backend_config":{{"kind":"{kind}"{more}}}}}'


# -- rows


def test_calls_and_generated_fusions_are_kernels_and_what_xla_emits_is_none() -> None:
    assert ask(STEP, f"{ALL.replace('op,', 'op, does_work, is_fusion,')}") == [
        ("cudnn", "attention", 1, 0, "__cudnn$fmhaSoftmax"),
        ("cudnn", "attention", 1, 0, "__cudnn$fmhaSoftmax"),
        ("cudnn", "attention", 1, 0, "__cudnn$fmhaSoftmaxBackward"),
        ("sharding", "constraint", 0, 0, "Sharding"),
        ("triton", "gemm", 1, 1, "__triton_nested_gemm_fusion (bf16×bf16→f32)"),
    ]


def test_kernel_by_phase_and_loop() -> None:
    sql = """
        select k.called, k.phase, l.name, sum(k.executions) from kernels k
        left join instructions l on l.module = k.module and l.id = k.loop
        where k.does_work group by 1, 2, 3 order by min(k.text_line)
    """
    assert ask(STEP, sql) == [
        ("__cudnn$fmhaSoftmax", "fwd", "forward", 4),
        ("__cudnn$fmhaSoftmax", "remat", "backward", 4),
        ("__cudnn$fmhaSoftmaxBackward", "bwd", "backward", 4),
        ("__triton_nested_gemm_fusion (bf16×bf16→f32)", "fwd", None, 1),
    ]


def test_that_no_kernel_of_a_family_is_anywhere() -> None:
    absent = "select not exists (select 1 from kernels where family = '{}')"
    found = [ask(STEP, absent.format(family))[0][0] for family in ("transformer_engine", "cudnn")]
    assert found == [1, 0]
    # As words of names it would be wrong: the forward's is a part of the backward's.
    forward = "select count(*) from kernels where target = '__cudnn$fmhaSoftmax'"
    without = STEP.replace("fmhaSoftmax\"", "fmhaSoftmaxBackward\"")  # fmt: skip
    assert (ask(STEP, forward), ask(without, forward)) == ([(2,)], [(0,)])


def test_a_fusion_has_the_sizes_of_its_matmul_and_its_launch() -> None:
    sql = (
        "select matmuls, flops, tiles, num_warps, num_stages, num_ctas, split_k, workspace_bytes,"
        " operand_layouts, result_layouts from kernels where is_fusion"
    )
    ((matmuls, flops, tiles, *launch, takes, gives),) = ask(STEP, sql)
    assert (matmuls, flops, launch) == (1, 2 * 8 * 64 * 32, [2, 3, 1, None, None])
    assert json.loads(str(tiles)) == {"output": [8, 16], "contracted": [32]}
    assert json.loads(str(takes)) == ["bf16[8,32]{1,0}", "bf16[32,64]{1,0}"]
    assert json.loads(str(gives)) == ["f32[8,64]{1,0}"]


def test_a_call_has_what_custom_calls_has_and_leads_there() -> None:
    sql = """
        select k.called, k.workspace_bytes, k.flops, k.matmuls from kernels k
        join custom_calls c using (module, instr)
        where c.target = k.target and c.direction = k.direction order by k.text_line
    """
    assert ask(STEP, sql) == [
        ("__cudnn$fmhaSoftmax", 256, None, 0),
        ("__cudnn$fmhaSoftmax", 256, None, 0),
        ("__cudnn$fmhaSoftmaxBackward", 512, None, 0),
    ]


def test_members_are_the_call_or_the_fusion_and_its_matmuls() -> None:
    sql = """
        select m.role, i.name from members m
        join instructions i on i.module = m.module and i.id = m.instr
        where m."table" = 'kernels' order by m.id
    """
    assert ask(STEP, sql) == [
        ("call", "first"), ("call", "again"), ("call", "back"), ("call", "mark"),
        ("fusion", "made"), ("matmul", "d"),
    ]  # fmt: skip


GEMM_CALL = """\
HloModule m
ENTRY main {
  a = bf16[8,64]{1,0} parameter(0)
  b = bf16[64,32]{1,0} parameter(1)
  ROOT c = (bf16[8,32]{1,0}, s8[4096]{0}) custom-call(a, b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
}
"""  # noqa: E501


def test_a_gemm_call_is_its_own_matmul() -> None:
    sql = "select family, op, matmuls, flops, workspace_bytes from kernels"
    assert ask(GEMM_CALL, sql) == [("cublas", "gemm", 1, 2 * 8 * 32 * 64, 4096)]
    roles = "select role from members where \"table\" = 'kernels'"
    assert ask(GEMM_CALL, roles) == [("call",), ("matmul",)]
    # What is multiplied is not known where the config does not tell.
    silent = GEMM_CALL.replace("lhs_contracting", "other")
    assert ask(silent, sql) == [("cublas", "gemm", 1, None, 4096)]


# -- whose a fusion is


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (gpu("__triton_gemm"), ("triton", "__triton_gemm")),
        (gpu("__cudnn$fusion"), ("cudnn", "__cudnn$fusion")),
        ('{"fusion_config":{"kind":"__ynn_fusion"}}', ("ynnpack", "__ynn_fusion")),
        ('{"fusion_config": {"kind": "__xnn_fusion"}}', ("xnnpack", "__xnn_fusion")),
        ('{"fusion_config":{"kind":"__onednn_fusion"}}', ("onednn", "__onednn_fusion")),
        # XLA of 2023 wrote the config as a string.
        ('"{\\"kind\\":\\"__triton_gemm\\"}"', ("triton", "__triton_gemm")),
        (
            gpu("__custom_fusion", ',"custom_fusion_config":{"name":"cutlass_gemm"}'),
            ("cutlass", "cutlass_gemm"),
        ),
        (
            gpu("__custom_fusion", ',"custom_fusion_config":{"name":"mine"}'),
            ("xla_gpu", "mine"),
        ),
        (gpu("__new_generator"), ("unknown", "__new_generator")),
    ],
)
def test_the_config_of_a_fusion_says_whose_it_is(config: str, expected: tuple[str, str]) -> None:
    sql = "select family, target from kernels"
    assert ask(fusion(DOT, config), sql) == [expected]
    ((backend,),) = ask(fusion(DOT, config), "select backend from matmuls")
    assert backend == (None if expected[0] == "unknown" else expected[0])


@pytest.mark.parametrize(
    "config",
    [
        gpu(""),
        gpu("__dynamic_memcpy"),
        gpu("__custom_fusion"),
        gpu("__custom_fusion", ',"custom_fusion_config":{"name":"address_computation"}'),
        gpu("__custom_fusion", ',"custom_fusion_config":{"name":"dynamic_slice_fusion"}'),
        '{"note":"__triton_gemm"}',
        '{"fusion_backend_config":{"kind":["__triton"]}}',
        '{"fusion_backend_config":',
        '"__triton_gemm"',
    ],
)
def test_a_config_that_names_no_generator_makes_no_kernel(config: str) -> None:
    assert ask(fusion(SLICE, config), "select * from kernels") == []


def test_a_name_in_a_label_is_no_kernel() -> None:
    named = fusion(SLICE, '{}, metadata={op_name="jit(f)/__triton_gemm"}')
    assert ask(named.replace("fused", "__triton"), "select * from kernels") == []


@pytest.mark.parametrize(
    ("body", "op"),
    [
        (DOT, "gemm"),
        (SLICE, "fusion"),
        ("z = bf16[] constant(0)\n  ROOT d = bf16[64]{0} reduce(a, z), dimensions={1},"
         " to_apply=add", "reduction"),
        ("ROOT d = bf16[128,128]{1,0} all-gather(a), dimensions={0}, replica_groups={{0,1}}",
         "collective"),
        ("ROOT d = bf16[1,1,64]{2,1,0} convolution(a, b), window={size=3}, dim_labels=b0f_0io->b0f",
         "convolution"),
        ("s = s32[4]{0} iota(), iota_dimension=0\n  c = bf16[4,128,32]{2,1,0} broadcast(b),"
         " dimensions={1,2}\n  ROOT d = bf16[64,32]{1,0} ragged-dot(a, c, s),"
         " lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0},"
         " rhs_group_dims={0}", "grouped_gemm"),
        ("ROOT d = (bf16[64]{0}, bf16[64]{0}) fusion(a), kind=kLoop, calls=inner", "reduction"),
    ],
)  # fmt: skip
def test_what_a_fusion_computes_is_what_is_in_it(body: str, op: str) -> None:
    inner = """
add {
  p = bf16[] parameter(0)
  q = bf16[] parameter(1)
  ROOT s = bf16[] add(p, q)
}
inner {
  i = bf16[64,128]{1,0} parameter(0)
  o = bf16[] constant(0)
  ROOT r = bf16[64]{0} reduce(i, o), dimensions={1}, to_apply=add
}"""
    text = fusion(body, gpu("__triton"), extra=inner)
    assert ask(text, "select op from kernels") == [(op,)]


def test_a_fusion_in_a_generated_one_is_a_part_of_it() -> None:
    """XLA writes the tiles of a gemm's operands as fusions in the fusion, of the same kind."""
    config = gpu("__triton_nested_gemm_fusion")
    inner = """
nested {
  i = bf16[64,128]{1,0} parameter(0)
  ROOT n = bf16[64,128]{1,0} negate(i)
}"""
    body = (
        f"n = bf16[64,128]{{1,0}} fusion(a), kind=kCustom, calls=nested, backend_config={config}\n"
        f"  {DOT.replace('dot(a', 'dot(n')}"
    )
    nested = fusion(body, config, extra=inner)
    assert ask(nested, "select name, op from kernels") == [("f", "gemm")]
    # In a fusion of XLA's own it stands for itself.
    outer = nested.replace(f"calls=fused, backend_config={config}", "calls=fused")
    assert ask(outer, "select name, op from kernels") == [("n", "fusion")]


def test_a_fusion_around_a_call_is_that_call() -> None:
    config = gpu("__custom_fusion", ',"custom_fusion_config":{"name":"address_computation"}')
    around = fusion('ROOT d = bf16[64,32]{1,0} custom-call(a), custom_call_target="mine"', config)
    assert ask(around, "select called, is_fusion from kernels") == [("mine", 0)]


def test_a_fusion_that_runs_aside_is_a_kernel_once() -> None:
    text = fusion(DOT, gpu("__triton_gemm"))
    aside = text.replace(
        "ROOT f = bf16[64,32]{1,0} fusion(x, y)",
        "s = ((bf16[64,128]{1,0}, bf16[128,32]{1,0}), bf16[64,32]{1,0}, s32[]) fusion-start(x, y)",
    ).replace("}}\n}\n", "}}\n  ROOT f = bf16[64,32]{1,0} fusion-done(s)\n}\n")
    sql = "select op, flops, result_layouts from kernels"
    assert (
        ask(aside, sql) == ask(text, sql) == [("gemm", 2 * 64 * 32 * 128, '["bf16[64,32]{1,0}"]')]
    )


def test_tiles_of_several_outputs_are_a_list_each() -> None:
    tiles = ',"block_level_fusion_config":{"output_tiles":[{"sizes":["8"]},{"sizes":["8","4"]}]}'
    sql = "select tiles from kernels"
    ((told,),) = ask(fusion(SLICE, gpu("__triton", tiles)), sql)
    assert json.loads(str(told)) == {"output": [[8], [8, 4]]}
    broken = tiles.replace('"4"', '"x"')
    assert ask(fusion(SLICE, gpu("__triton", broken)), sql) == [(None,)]


# -- computations on another core


def on_sparsecore(body: str, called: str = "inner", target: str = "TODO(b/522284627)") -> str:
    """A module that hands `inner`, whose parameter is an s32[16], to the SparseCore."""
    return f"""\
HloModule m, is_scheduled=true
add {{
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT s = s32[] add(x, y)
}}
other {{
  ROOT p = s32[16]{{0}} parameter(0)
}}
inner {{
  p = s32[16]{{0:T(128)}} parameter(0)
  {body}
}}, execution_thread="sparsecore"
ENTRY main {{
  a = s32[16]{{0}} parameter(0)
  s = ((), (), s32[2]) custom-call-start(), async_execution_thread="sparsecore", custom_call_target="{target}", output_to_operand_aliasing={{{{}}: (0, {{}})}}, called_computations={{{called}}}
  u = ((s32[16]{{0}}), s32[16]{{0}}, s32[2]) custom-call-update(s, a)
  ROOT d = s32[16]{{0}} custom-call-done(u)
}}
"""  # noqa: E501


SCATTERED = (
    "i = s32[16,1]{1,0} iota(), iota_dimension=0\n  ROOT r = s32[16]{0:T(128)} scatter(p, i, p),"
    " update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
    " index_vector_dim=1, to_apply=add"
)


@pytest.mark.parametrize(
    ("body", "op", "called", "gives"),
    [
        ("ROOT all-gather.1 = s32[64]{0} all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}",
         "collective", "all-gather on SparseCore", "s32[64]{0}"),
        ("s = ((s32[16]{0}), s32[4]{0}, s32[]) reduce-scatter-start(p), dimensions={0},"
         " replica_groups={{0,1,2,3}}, to_apply=add\n  ROOT r = s32[4]{0} reduce-scatter-done(s)",
         "collective", "reduce-scatter on SparseCore", "s32[4]{0}"),
        (SCATTERED, "scatter", "scatter on SparseCore", "s32[16]{0:T(128)}"),
        ("ROOT r = s32[2]{0} gather(p, p), offset_dims={}, collapsed_slice_dims={0},"
         " start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
         "gather", "gather on SparseCore", "s32[2]{0}"),
        # A name is a label.
        ("ROOT all-gather.2 = s32[16]{0} negate(p)", "call", "call on SparseCore", "s32[16]{0}"),
    ],
)  # fmt: skip
def test_what_runs_on_another_core_is_what_its_computation_does(
    body: str, op: str, called: str, gives: str
) -> None:
    sql = "select op, called, target, operand_layouts, result_layouts, does_work from kernels"
    text = on_sparsecore(body)
    assert ask(text, sql) == [
        (op, called, "TODO(b/522284627)", '["s32[16]{0:T(128)}"]', json.dumps([gives]), 1)
    ]


def test_what_a_computation_on_another_core_calls_is_a_part_of_it() -> None:
    called = SCATTERED.replace("ROOT r", "ROOT q")
    text = on_sparsecore(
        "s = ((s32[16]{0}), s32[16]{0}, s32[]) call-start(p), to_apply=scatters\n"
        "  ROOT r = s32[16]{0} call-done(s)"
    ).replace("inner {", f"scatters {{\n  p = s32[16]{{0}} parameter(0)\n  {called}\n}}\ninner {{")
    assert ask(text, "select op, called from kernels") == [("scatter", "scatter on SparseCore")]
    check_table(text, "kernels", must_change=False)


@pytest.mark.parametrize(
    ("called", "target", "expected"),
    [
        ("inner, other", "TODO(b/522284627)", ("call", "TODO(b/522284627)", "[]")),
        ("missing", "TODO(b/522284627)", ("call", "TODO(b/522284627)", "[]")),
        # What another target does with a computation is not known.
        ("inner", "mine", (None, "mine", "[]")),
    ],
)
def test_a_call_that_hands_on_no_one_computation_keeps_its_name(
    called: str, target: str, expected: tuple[object, ...]
) -> None:
    sql = "select op, called, operand_layouts from kernels"
    assert ask(on_sparsecore(SCATTERED, called, target), sql) == [expected]


# -- what is no work


@pytest.mark.parametrize(
    ("target", "works"),
    [
        ("Sharding", 0), ("LayoutConstraint", 0), ("AllocateBuffer", 0),
        ("PrepareAsyncCallStart", 0), ("PrepareAsyncCallDone", 0), ("MaskAggregatorBlock", 0),
        ("TopK", 1), ("MoveToHost", 1), ("nobodys", 1),
    ],
)  # fmt: skip
def test_calls_that_do_no_work_are_marked(target: str, works: int) -> None:
    text = STEP.replace('"Sharding"', f'"{target}"')
    sql = f"select does_work, family = 'unknown' from kernels where target = '{target}'"
    assert ask(text, sql) == [(works, target == "nobodys")]


# -- rewrites, families, what fills it


def test_under_rewrites() -> None:
    check_table(STEP, "kernels")
    check_table(GEMM_CALL, "kernels")
    check_table(fusion(DOT, gpu("__cudnn$fusion")), "kernels")


def test_families_are_those_of_the_catalogue_the_users_and_of_fusions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[target]]\nnames = ["mine"]\nfamily = "ours"\nop = "gemm"\n')
    assert {"cudnn", "transformer_engine", "ynnpack", "cutlass"} <= {*families()}
    assert "ours" not in families()
    monkeypatch.setenv("HLOLENS_CATALOGUE", os.fspath(path))
    assert "ours" in families()


def test_every_stage_has_its_kernels() -> None:
    plain = fusion(DOT, gpu("")).replace(", calls=fused, backend_config=", ", calls=fused, x=")
    program = Program([parse(plain), parse(STEP)], ["before_optimizations", "after_optimizations"])
    assert {row["module"] for row in Facts(program).records("kernels")} == {1}


# -- real texts


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("attention/cudnn-full-remat/cuda-h100", [
            ("cudnn", "attention", "bwd", 2), ("cudnn", "attention", "fwd", 2),
            ("cudnn", "attention", "remat", 2),
        ]),
        ("attention/splash-full-remat/tpu-v6e-1", [
            ("mosaic_tpu", "attention", "bwd", 4), ("mosaic_tpu", "attention", "fwd", 2),
            ("mosaic_tpu", "attention", "remat", 2),
        ]),
        ("attention/te-train/rocm-gfx950", [
            ("transformer_engine", "attention", "bwd", 1),
            ("transformer_engine", "attention", "fwd", 1),
        ]),
    ],
)  # fmt: skip
def test_fused_attention_by_phase(folder: str, expected: list[tuple[object, ...]]) -> None:
    sql = (
        "select family, op, phase, sum(executions) from kernels"
        " where op = 'attention' group by 1, 2, 3 order by 3"
    )
    assert ask_file(FIXTURES / folder / "after_optimizations.txt", sql) == expected


def test_grouped_gemms_that_cudnn_makes() -> None:
    path = FIXTURES / "moe" / "hand-cudnn-ragged" / "hand-made" / "after_optimizations.txt"
    sql = "select family, op, count(*), sum(flops) from kernels group by 1, 2 order by 2"
    flops = "select ragged, count(*), sum(flops) from matmuls group by 1 order by 1"
    plain, ragged = ask_file(path, sql)
    assert [(plain[1], *plain[2:]), (ragged[1], *ragged[2:])] == [
        ("gemm" if is_ragged == 0 else "grouped_gemm", count, total)
        for is_ragged, count, total in ask_file(path, flops)
    ]
    assert (plain[0], ragged[0]) == ("triton", "cudnn")


@shared.needs_shared
def test_a_maxtext_step_has_no_call_of_a_gpu_library_and_splash_twice() -> None:
    folder = shared.unpacked("dumps/tpu-maxtext.tar.xz")
    (path,) = folder.rglob("qwen3moe.raggeddot.full.opt.hlo")
    sql = (
        "select phase, sum(executions) from kernels"
        " where kernel like 'splash_mha_fwd%' group by 1 order by 1"
    )
    assert ask_file(path, sql) == [("fwd", 8), ("remat", 8)]
    sql = "select distinct family, op from kernels where does_work order by 1, 2"
    assert ask_file(path, sql) == [("mosaic_tpu", "attention"), ("sparsecore", "scatter")]


@shared.needs_shared
def test_collectives_of_a_maxtext_step_that_run_on_the_sparsecore() -> None:
    (path,) = shared.unpacked("dumps/tpu-maxtext.tar.xz").rglob("gemma2-9b.full.tpu7x.opt.hlo")
    sql = (
        "select called, phase, count(*), sum(executions) from kernels"
        " where op = 'collective' group by 1, 2 order by 1, 2"
    )
    assert ask_file(path, sql) == [
        ("all-gather on SparseCore", "fwd", 15, 295),
        ("all-gather on SparseCore", "remat", 24, 504),
        ("reduce-scatter on SparseCore", "bwd", 14, 294),
        ("reduce-scatter on SparseCore", "other", 2, 2),
    ]
    # As `hlolens collectives` counts them.
    sql = """
        select kind || ' on SparseCore', phase, count(*), sum(executions) from collectives
        where kind <> 'all-reduce' group by 1, 2 order by 1, 2
    """
    assert ask_file(path, sql) == ask_file(
        path,
        """
        select called, phase, count(*), sum(executions) from kernels
        where op = 'collective' group by 1, 2 order by 1, 2
    """,
    )
