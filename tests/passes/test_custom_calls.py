"""The custom_calls table: which library, which contract, once for each call that is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mutate import FROM_METADATA, check_table
from tests.passes.asking import ask, ask_file, findings
from tests.shared import SHARED, needs_shared


def call(target: str, *, result: str = "f32[8]{0}", more: str = "", name: str = "c") -> str:
    """A module with one custom call of one operand."""
    return f"""\
HloModule m
ENTRY main {{
  a = f32[8]{{0}} parameter(0)
  ROOT {name} = {result} custom-call(a), custom_call_target="{target}"{more}
}}
"""


def test_a_call_says_family_operation_and_direction() -> None:
    sql = "select target, family, op, direction from custom_calls"
    assert ask(call("__cudnn$fmhaSoftmax"), sql) == [
        ("__cudnn$fmhaSoftmax", "cudnn", "attention", "fwd")
    ]
    assert ask(call("__cudnn$fmhaSoftmaxBackward"), sql) == [
        ("__cudnn$fmhaSoftmaxBackward", "cudnn", "attention", "bwd")
    ]


def test_an_unknown_target_is_shown_as_unknown() -> None:
    sql = "select target, family, op, direction, workspace_bytes from custom_calls"
    text = call("my_target", result="(f32[8]{0}, u8[64]{0})")
    assert ask(text, sql) == [("my_target", "unknown", None, None, None)]


def test_that_no_call_of_a_family_is_there_is_a_query() -> None:
    sql = "select count(*) from custom_calls where family = 'cudnn'"
    assert ask(call("__cublas$gemm"), sql) == [(0,)]
    assert ask(call("__cudnn$norm"), sql) == [(1,)]
    # As an answer: is there none in the whole program, in loops and fusions and wrappers too?
    answer = "select not exists (select 1 from custom_calls where family = 'cudnn')"
    assert ask(call("__cublas$gemm"), answer) == [(1,)]
    assert ask(call("__cudnn$fmhaSoftmax"), answer) == [(0,)]
    # Every family that is there, with what it does.
    kinds = "select family, op, count(*) from custom_calls group by 1, 2"
    assert ask(call("__cublas$lt$matmul$f8"), kinds) == [("cublaslt", "gemm", 1)]


@pytest.mark.parametrize(
    ("one", "other", "column"),
    [
        ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward", "direction"),
        ("__cudnn$fmhaSoftmaxF8", "__cudnn$fmhaSoftmaxBackwardF8", "direction"),
        ("__cublas$lt$matmul", "__cublas$lt$matmul$mx", "op"),
        ("__cublas$lt$matmul", "__cublas$lt$groupedMatmul", "op"),
        ("MhaFwdUnifiedJA", "MhaBwdUnifiedJA", "direction"),
        ("te_fused_attn_forward_ffi", "te_fused_attn_backward_ffi", "direction"),
        ("te_gemm_ffi", "te_grouped_gemm_ffi", "op"),
        ("te_quantize_ffi", "te_dequantize_ffi", "op"),
    ],
)
def test_a_target_that_begins_like_another_is_another(one: str, other: str, column: str) -> None:
    sql = f"select family, {column} from custom_calls"
    ((family, first),), ((same, second),) = ask(call(one), sql), ask(call(other), sql)
    assert family == same
    assert first != second
    # The name alone is asked for, to its end.
    exact = f"select count(*) from custom_calls where target = '{one}'"
    assert [ask(call(name), exact) for name in (one, other)] == [[(1,)], [(0,)]]


# -- contract


def test_layouts_are_those_the_call_is_constrained_to() -> None:
    more = ", operand_layout_constraints={f32[8]{0}}, api_version=API_VERSION_TYPED_FFI"
    text = call("my_target", result="(f32[2,4]{0,1}, (s32[], u8[3]{0}))", more=more)
    sql = "select operand_layouts, result_layouts, api_version from custom_calls"
    ((operands, results, version),) = ask(text, sql)
    assert json.loads(str(operands)) == ["f32[8]{0}"]
    assert json.loads(str(results)) == ["f32[2,4]{0,1}", "s32[]", "u8[3]{0}"]
    assert version == "API_VERSION_TYPED_FFI"


def test_without_constraints_the_operands_own_layouts_are_shown() -> None:
    ((operands,),) = ask(call("my_target"), "select operand_layouts from custom_calls")
    assert json.loads(str(operands)) == ["f32[8]{0}"]


@pytest.mark.parametrize(
    ("target", "result", "expected"),
    [
        ("__cublas$lt$matmul", "(f32[8]{0}, s8[4194304]{0})", 4194304),
        ("__cudnn$fmhaSoftmax", "(f32[8]{0}, u8[0]{0})", 0),
        ("te_gemm_ffi", "(f32[8]{0}, u8[33554432]{0})", 33554432),
        ("__cublas$gemm", "f32[8]{0}", None),  # the text shows no workspace
        ("__cublas$gemm", "(f32[8]{0}, s8[2,2]{1,0})", None),  # a matrix is no scratch
        ("MhaFwdUnifiedJA", "(f32[8]{0}, u8[128]{0})", None),  # its last result is a value
        ("my_target", "(f32[8]{0}, u8[64]{0})", None),
    ],
)
def test_workspace_is_the_last_leaf_where_the_target_has_one(
    target: str, result: str, expected: int | None
) -> None:
    assert ask(call(target, result=result), "select workspace_bytes from custom_calls") == [
        (expected,)
    ]


def test_scoped_memory_is_what_is_used_before_what_was_asked_for() -> None:
    asked = '"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"100"}]'
    used = (
        '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"40"},'
        '{"memory_space":"1","offset":"64","size":"2"}]'
    )
    sql = "select scoped_memory_bytes from custom_calls"
    both = call("tpu_custom_call", more=f", backend_config={{{asked},{used}}}")
    assert ask(both, sql) == [(42,)]
    assert ask(call("tpu_custom_call", more=f", backend_config={{{asked}}}"), sql) == [(100,)]
    none = ', backend_config={"scoped_memory_configs":[]}'
    assert ask(call("tpu_custom_call", more=none), sql) == [(None,)]


def test_side_effects_and_threads() -> None:
    sql = "select has_side_effect, thread from custom_calls"
    assert ask(call("x"), sql) == [(0, None)]
    assert ask(call("x", more=", custom_call_has_side_effect=true"), sql) == [(1, None)]


def test_constraints_that_cannot_be_read_do_not_hide_the_call() -> None:
    text = call("__cublas$gemm", more=", operand_layout_constraints={words}")
    assert ask(text, "select target, op, operand_layouts from custom_calls") == [
        ("__cublas$gemm", "gemm", None)
    ]


def test_what_is_written_into_an_operand() -> None:
    sql = "select aliasing from custom_calls"
    assert ask(call("x"), sql) == [("[]",)]
    assert ask(call("x", more=", output_to_operand_aliasing={}"), sql) == [("[]",)]
    more = ", output_to_operand_aliasing={{1}: (0, {}), {}: (2, {0})}"
    assert ask(call("x", result="(f32[8]{0}, f32[8]{0})", more=more), sql) == [
        ('[{"output":[1],"operand":0},{"output":[],"operand":2,"operand_index":[0]}]',)
    ]
    assert ask(call("x", more=", output_to_operand_aliasing={{words}}"), sql) == [(None,)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('{"gemm_backend_config":{"epilogue":"BIAS_RELU","alpha_real":1}}', "BIAS_RELU"),
        ('{"gemm_backend_config":{"epilogue":"DEFAULT"}}', "DEFAULT"),
        ('{"gemm_backend_config":{"alpha_real":1}}', None),
        ('{"cudnn_conv_backend_config":{"activation_mode":"kRelu"}}', "kRelu"),
        ('{"onednn_matmul_config":{"fusions":{"ops":["BIAS","RELU"]}}}', "BIAS+RELU"),
        ("{fuse_bias = true, fuse_gelu = true, lhs_transposed = false}", "BIAS+GELU"),
        ("{fuse_bias = false, scaling_mode = 0 : i64}", "DEFAULT"),
        ("{scaling_mode = 0 : i64}", None),
    ],
)
def test_the_epilogue_is_in_the_words_of_the_config(config: str, expected: str | None) -> None:
    text = call("__cublas$lt$matmul", more=f", backend_config={config}")
    assert ask(text, "select epilogue from custom_calls") == [(expected,)]


def test_what_a_kernel_asks_for_is_not_what_it_has() -> None:
    asked = '"scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"100"}]'
    used = '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"40"}]'
    sql = "select vmem_limit_bytes, scoped_memory_bytes from custom_calls"
    for configs, expected in ((f"{asked},{used}", (100, 40)), (used, (None, 40))):
        text = call("tpu_custom_call", more=f", backend_config={{{configs}}}")
        assert ask(text, sql) == [expected]


# -- operands from collectives

GATHERED = """\
HloModule m, num_partitions=4
ENTRY main {
  a = bf16[8,64]{1,0} parameter(0)
  w = bf16[64,64]{1,0} parameter(1)
  gather = bf16[32,64]{1,0} all-gather(a), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
      use_global_device_ids=true
  moved = bf16[64,32]{0,1} bitcast(gather)
  copied = bf16[64,32]{1,0} copy(moved)
  ROOT c = bf16[64,64]{1,0} custom-call(copied, w), custom_call_target="te_gemm_ffi"
}
"""


def test_an_operand_that_a_collective_gives() -> None:
    sql = "select gathered_operands, gathered_by from custom_calls"
    assert ask(GATHERED, sql) == [(1, '[{"operand":0,"collective":"gather","kind":"all-gather"}]')]
    assert ("gathered", "gather") in members(GATHERED)
    # Work in between, or a gather beside it: the operand is another value.
    worked = GATHERED.replace("copy(moved)", "negate(moved)")
    assert ask(worked, sql) == [(0, "[]")]
    beside = GATHERED.replace("custom-call(copied, w)", "custom-call(w, w)")
    assert ask(beside, sql) == [(0, "[]")]


def test_start_and_done_are_passed_and_a_reduction_counts_too() -> None:
    text = """\
HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}
ENTRY main {
  a = f32[8]{0} parameter(0)
  start = f32[8]{0} all-reduce-start(a), replica_groups={{0,1}}, to_apply=add
  done = f32[8]{0} all-reduce-done(start)
  t = (f32[8]{0}, f32[8]{0}) tuple(a, done)
  e = f32[8]{0} get-tuple-element(t), index=1
  ROOT c = f32[8]{0} custom-call(a, e), custom_call_target="my_target"
}
"""
    sql = "select gathered_by from custom_calls"
    assert ask(text, sql) == [('[{"operand":1,"collective":"start","kind":"all-reduce"}]',)]


def test_a_call_that_does_no_work_is_not_asked() -> None:
    sql = "select gathered_operands, gathered_by from custom_calls"
    assert ask(call("LayoutConstraint"), sql) == [(None, None)]


# -- config


def config(more: str) -> object:
    ((text,),) = ask(call("x", more=more), "select config from custom_calls")
    return None if text is None else json.loads(str(text))


def test_config_is_json_whatever_the_text_is() -> None:
    assert config("") is None
    assert config(', backend_config={"a":{"b":["1"]}}') == {"a": {"b": ["1"]}}
    assert config(r', backend_config="{\"a\":1}"') == {"a": 1}
    assert config(", backend_config={n = 2 : i32, e = 1.5 : f64, s = array<i64: 1, 0>}") == {
        "n": 2,
        "e": 1.5,
        "s": [1, 0],
    }
    assert config(', backend_config="plain words"') == "plain words"


def test_a_long_text_is_its_size_and_hash() -> None:
    words = "word" * 100_000
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    assert config(f', backend_config={{"a":"{words}"}}') == {
        "a": {"bytes": 400_000, "sha256": digest}
    }


def test_a_kernels_body_and_its_locations_are_not_in_the_config() -> None:
    told = '{"body":"TUzvUgAA","debug_locations":"TUzvUgBB","collective_id":1}'
    found = config(f', backend_config={{"custom_call_config":{told}}}')
    assert found == {"custom_call_config": {"collective_id": 1}}
    # Mosaic GPU hashes its module, locations included (jax/experimental/mosaic/gpu/core.py).
    hashed = '{kernel_hash = "ab", module = "module {}", debug = false}'
    assert config(f", backend_config={hashed}") == {"debug": False}
    # What is only called so is no kernel.
    assert config(', backend_config={"module":"a name"}') == {"module": "a name"}


def test_a_config_of_many_small_parts_is_cut_as_a_whole() -> None:
    listed = ",".join(f'"key{n}"' for n in range(20_000))
    found = config(f', backend_config={{"a":[{listed}]}}')
    assert isinstance(found, dict)
    assert sorted(found) == ["bytes", "sha256"]


def test_what_json_cannot_hold_is_text() -> None:
    text = '{"a":Infinity,"b":NaN}'
    assert config(f", backend_config={text}") == text


# -- kernels


def kernel(text: str) -> tuple[object, ...]:
    """(kernel, kernel_from, op, direction) of the one call."""
    (row,) = ask(text, "select kernel, kernel_from, op, direction from custom_calls")
    return row


def test_the_config_names_the_kernel() -> None:
    mlir = ', backend_config={grid_x = 1 : i32, name = "fa_fwd"}'
    assert kernel(call("__gpu$xla.gpu.triton", more=mlir)) == (
        "fa_fwd", "config", "attention", "fwd",
    )  # fmt: skip
    spoken = ', backend_config={"custom_call_config":{"kernel_name":"mine"}}'
    assert kernel(call("tpu_custom_call", more=spoken)) == ("mine", "config", "kernel", None)


def test_the_path_of_the_pallas_call_names_it_else() -> None:
    named = ', metadata={op_name="jit(f)/pallas_call[name=fa_dq grid=(1,)]"}'
    assert kernel(call("tpu_custom_call", more=named)) == ("fa_dq", "op_name", "attention", "bwd")
    scope = ', metadata={op_name="jit(f)/jvp()/splash_mha_fwd_residuals/pallas_call"}'
    assert kernel(call("tpu_custom_call", more=scope)) == (
        "splash_mha_fwd_residuals", "op_name", "attention", "fwd",
    )  # fmt: skip


@pytest.mark.parametrize(
    "path", ["jit(f)/pallas_call", "jit(f)/while/body/pallas_call", "jit(f)/x"]
)
def test_a_path_that_names_no_kernel_is_no_evidence(path: str) -> None:
    text = call("tpu_custom_call", more=f', metadata={{op_name="{path}"}}', name="custom-call.4")
    assert kernel(text) == (None, None, "kernel", None)


def test_the_instruction_is_named_after_the_kernel() -> None:
    assert kernel(call("tpu_custom_call", name="ragged-dot-none.12")) == (
        "ragged-dot-none", "name", "grouped_gemm", None,
    )  # fmt: skip
    assert kernel(call("tpu_custom_call", name="pallas_call.3"))[0] is None


def test_of_an_instruction_by_another_name_the_op_name_ends_in_that_of_the_kernel() -> None:
    path = ', metadata={op_name="jit(f)/ragged_dot_general/ragged-dot-none"}'
    assert kernel(call("tpu_custom_call", more=path, name="v.31")) == (
        "ragged-dot-none", "op_name", "grouped_gemm", None,
    )  # fmt: skip
    path = path.replace("ragged-dot-none", "anything")
    assert kernel(call("tpu_custom_call", more=path, name="v.31"))[:2] == ("v", "name")


def test_what_a_kernel_computes_whose_name_is_lost_is_not_known() -> None:
    assert kernel(call("tpu_custom_call", name="custom-call.4")) == (None, None, None, None)


def test_a_target_that_says_what_it_is_launches_no_kernel_by_name() -> None:
    text = call("te_gemm_ffi", more=', backend_config={name = "not_a_kernel"}')
    assert kernel(text) == (None, None, "gemm", None)


# -- each call once

WRAPPED = """\
HloModule m, is_scheduled=true

wrapped {
  p = f32[8]{0} parameter(0)
  ROOT inner = f32[8]{0} custom-call(p), custom_call_target="my_target"
}, execution_thread="sparsecore"

ENTRY main {
  a = f32[8]{0} parameter(0)
  start = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(a),
      async_execution_thread="sparsecore", calls=wrapped
  b = f32[8]{0} negate(a)
  done = f32[8]{0} async-done(start)
  ROOT r = f32[8]{0} add(b, done)
}
"""
SUGAR = """\
HloModule m, is_scheduled=true
ENTRY main {
  a = f32[8]{0} parameter(0)
  start = ((f32[8]{0}), (f32[8]{0}, u8[16]{0}), u32[]) custom-call-start(a),
      custom_call_target="te_gemm_ffi", async_execution_thread="host"
  done = (f32[8]{0}, u8[16]{0}) custom-call-done(start)
  ROOT r = f32[8]{0} get-tuple-element(done), index=0
}
"""


def members(text: str) -> list[tuple[object, ...]]:
    return ask(
        text,
        "select role, name from members join instructions using (module, instr)"
        " where \"table\" = 'custom_calls' order by instr",
    )


def test_a_call_in_an_async_wrapper_is_one_row() -> None:
    assert ask(WRAPPED, "select name, thread, executions from custom_calls") == [
        ("inner", "sparsecore", 1)
    ]
    assert members(WRAPPED) == [("call", "inner"), ("start", "start"), ("done", "done")]


def test_a_call_in_start_done_spelling_is_one_row_with_the_calls_own_result() -> None:
    sql = "select name, thread, workspace_bytes, result_layouts from custom_calls"
    assert ask(SUGAR, sql) == [("start", "host", 16, '["f32[8]{0}","u8[16]{0}"]')]
    assert members(SUGAR) == [("call", "start"), ("done", "done")]


def test_a_call_in_a_loop_is_one_row_that_runs_often() -> None:
    text = """\
HloModule m
body {
  p = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8]{0} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  c = f32[8]{0} custom-call(x), custom_call_target="my_target"
  ROOT t = (s32[], f32[8]{0}) tuple(next, c)
}
condition {
  p = (s32[], f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = f32[8]{0} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8]{0}) tuple(zero, a)
  ROOT w = (s32[], f32[8]{0}) while(t), condition=condition, body=body
}
"""
    assert ask(text, "select name, loop_depth, executions from custom_calls") == [("c", 1, 7)]


def test_rewrites_that_do_not_matter_do_not_matter() -> None:
    check_table(WRAPPED, "custom_calls")
    check_table(GATHERED, "custom_calls")
    check_table(SUGAR, "custom_calls")
    launched = call(
        "__gpu$xla.gpu.triton",
        more=', backend_config={name = "fa_fwd"}, metadata={op_name="jit(f)/jvp(g)/pallas_call"}',
    )
    check_table(launched, "custom_calls")
    # A kernel that only metadata or the instruction's name tells is not known without them.
    told = call("tpu_custom_call", more=', metadata={op_name="jit(f)/fa_dq/pallas_call"}')
    kernel_columns = {"kernel", "op", "direction"}
    check_table(told, "custom_calls", from_metadata=FROM_METADATA | kernel_columns)


# -- the user's catalogue


def test_a_users_catalogue_is_used_and_a_broken_one_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[[target]]\nnames = ["my_target"]\nfamily = "ours"\nworkspace = true\n')
    bad.write_text("[[target]]\n")
    monkeypatch.setenv("HLOLENS_CATALOGUE", f"{good}:{bad}")
    text = call("my_target", result="(f32[8]{0}, u8[64]{0})")
    assert ask(text, "select family, workspace_bytes from custom_calls") == [("ours", 64)]
    ((rule, message),) = findings(text, "custom_calls")
    assert rule == "catalogue-broken"
    assert "bad.toml" in message


def test_the_config_names_catalogues(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours.toml").write_text('[[target]]\nnames = ["my_target"]\nfamily = "ours"\n')
    (tmp_path / "hlolens.toml").write_text('catalogues = ["ours.toml"]\n')
    (tmp_path / "m.hlo").write_text(call("my_target"))
    monkeypatch.chdir(tmp_path)
    ran = cli("query", "m.hlo", "select family from custom_calls", "--format", "csv")
    assert (ran.code, ran.out.split()) == (0, ["family", "ours"])


# -- real texts


@needs_shared
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("07-async-no-overlap", {"__cublas$gemm": 1}),
        ("11-cudnn-fmha-fwd-bwd", {"__cudnn$fmhaSoftmax": 1, "__cudnn$fmhaSoftmaxBackward": 1}),
        ("13-pallas-triton-kernels-full-remat", {"__gpu$xla.gpu.triton": 4}),
        (
            "17-host-offload-annotations-before",
            {"MoveToHost": 1, "MoveToDevice": 1, "annotate_device_placement": 2},
        ),
        ("21-custom-call-operand-gathered", {"te_norm_forward_ffi": 1, "te_gemm_ffi": 1}),
    ],
)
def test_targets_of_the_cases(file: str, expected: dict[str, int]) -> None:
    assert SHARED is not None
    sql = "select target, count(*) from custom_calls group by target"
    rows = ask_file(SHARED / "cases" / f"{file}.hlo", sql)
    assert sorted(rows) == sorted(expected.items())


@needs_shared
def test_workspaces_phases_and_kernels_of_the_cases() -> None:
    assert SHARED is not None
    cases = SHARED / "cases"
    fmha = cases / "11-cudnn-fmha-fwd-bwd.hlo"
    assert ask_file(fmha, "select name, workspace_bytes, phase from custom_calls") == [
        ("custom-call.1", 0, "fwd"),
        ("custom-call.2", 65536, "bwd"),
    ]
    path = "$.cudnn_fmha_backend_config"
    sql = (
        f"select json_extract(config, '{path}.is_flash_attention'),"
        f" json_extract(config, '{path}.mask_type'), json_extract(config, '{path}.fmha_scale')"
        " from custom_calls where name = 'custom-call.1'"
    )
    assert ask_file(fmha, sql) == [(1, "CAUSAL", 0.125)]
    gathered = cases / "21-custom-call-operand-gathered.hlo"
    sql = "select workspace_bytes from custom_calls where name = 'custom-call.2'"
    assert ask_file(gathered, sql) == [(33554432,)]
    pallas = cases / "13-pallas-triton-kernels-full-remat.hlo"
    sql = "select kernel, phase, count(*) from custom_calls group by 1, 2 order by 1, 2"
    assert ask_file(pallas, sql) == [
        ("fa_dkv", "bwd", 1),
        ("fa_dq", "bwd", 1),
        ("fa_fwd", "fwd", 1),
        ("fa_fwd", "remat", 1),
    ]
