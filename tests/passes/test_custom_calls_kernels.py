"""Kernels in the custom_calls table: how they are launched, what is in them, whether one runs
again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.decode.test_kernels import MLIR, OPERATIONS, forget
from tests.mutate import check_table
from tests.passes.asking import ask, findings


def call(target: str, more: str = "", *, name: str = "c") -> str:
    return f"""\
HloModule m
ENTRY main {{
  a = f32[8]{{0}} parameter(0)
  ROOT {name} = f32[8]{{0}} custom-call(a), custom_call_target="{target}"{more}
}}
"""


def told(text: str, *columns: str) -> tuple[object, ...]:
    """Columns of the one call, JSON read."""
    (row,) = ask(text, f"select {', '.join(columns)} from custom_calls")
    return tuple(
        json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value
        for value in row
    )


LAUNCH = ("grid", "num_warps", "num_stages", "tiles")


# -- Triton


def test_a_triton_kernel_tells_its_launch_as_attributes_or_json() -> None:
    mlir = (
        ', backend_config={grid_x = 2 : i32, grid_y = 1 : i32, grid_z = 8 : i32, name = "f",'
        " num_stages = 3 : i32, num_warps = 4 : i32}"
    )
    as_json = (
        ', backend_config={"grid_x":"2","grid_y":1,"grid_z":8,"name":"f","num_stages":3,'
        '"num_warps":"4"}'
    )
    for more in (mlir, as_json):
        assert told(call("__gpu$xla.gpu.triton", more), *LAUNCH) == ([2, 1, 8], 4, 3, None)
    some = ', backend_config={name = "fa_dkv", num_warps = 4 : i32}'
    assert told(call("__gpu$xla.gpu.triton", some), *LAUNCH) == (None, 4, None, None)
    assert told(call("te_gemm_ffi"), *LAUNCH) == (None, None, None, None)


def opaque(*, autotuned: bool = False) -> str:
    """The attributes of a kernel that JAX has compiled, by jaxlib/gpu/triton.proto."""

    def part(number: int, data: bytes) -> bytes:
        size = len(data)
        length = bytes((size & 127 | 128, size >> 7)) if size > 127 else bytes((size,))
        return bytes((number << 3 | 2,)) + length + data

    def value(number: int, data: int) -> bytes:
        return bytes((number << 3, data))

    ir = MLIR.replace("func.func @mine", "func.func public @mine").encode()
    kernel = part(1, b"mine") + value(2, 8) + value(3, 64) + part(4, b"ptx") + part(5, ir)
    called = part(1, kernel) + value(2, 5) + value(3, 1)
    message = (
        part(2, part(1, b"f") + 2 * part(2, part(1, called))) if autotuned else part(1, called)
    )
    text = "".join(f"\\{byte:02X}" for byte in zlib.compress(message)[1:])
    return f', backend_config={{name = "mine", opaque = "x{text}"}}'


def test_a_kernel_that_jax_has_compiled_tells_its_launch_and_its_body() -> None:
    forget()
    columns = (*LAUNCH, "kernel", "settings", "body_ops", "body_from", "config")
    assert told(call("triton_kernel_call_ffi", opaque()), *columns) == (
        [5, 1, 1], 8, None, None, "mine", {"shared_memory_bytes": 64}, OPERATIONS, "mlir",
        {"name": "mine"},
    )  # fmt: skip
    tuned = told(call("triton_kernel_call_ffi", opaque(autotuned=True)), "grid", "settings")
    assert tuned == ([5, 1, 1], {"shared_memory_bytes": 64, "configurations": 2})
    damaged = opaque().replace("\\00", "\\FF")
    assert told(call("triton_kernel_call_ffi", damaged), "kernel", "grid", "body_hash") == (
        "mine", None, None,
    )  # fmt: skip


def test_the_tiles_of_a_kernel_that_xla_makes() -> None:
    gemm = (
        '{"fusion_backend_config":{"kind":"__triton_gemm","triton_gemm_config":{"block_m":"64",'
        '"block_n":"32","block_k":"16","split_k":"1","num_stages":"4","num_warps":"2"}}}'
    )
    assert told(call("__triton", f", backend_config={gemm}"), *LAUNCH) == (
        None, 2, 4, {"block_m": 64, "block_n": 32, "block_k": 16},
    )  # fmt: skip
    block = (
        '{"fusion_backend_config":{"block_level_fusion_config":{"num_warps":"8",'
        '"output_tiles":[{"sizes":["16","32"]}],"num_stages":1}}}'
    )
    assert told(call("__triton", f", backend_config={block}"), *LAUNCH) == (
        None, 8, 1, {"output_tiles": [[16, 32]]},
    )  # fmt: skip


def test_the_tiles_that_the_author_notes_or_names() -> None:
    noted = (
        ', frontend_attributes={kernel_metadata={\n"xprof_metadata":"{\\"block_q\\": 512,'
        ' \\"block_kv\\": 256, \\"use_fused_bwd_kernel\\": false, \\"q_layout\\": 1}"\n}}'
    )
    assert told(call("tpu_custom_call", noted), "tiles") == ({"block_q": 512, "block_kv": 256},)
    serialized = r', backend_config={name = "f", serialized_metadata = "{\22block_m\22: 64}"}'
    assert told(call("__gpu$xla.gpu.triton", serialized), "tiles") == ({"block_m": 64},)
    named = call("tpu_custom_call", name="gmm-tm_512-tk_1024-tn_2048-rhsbuf_2.3")
    assert told(named, "kernel", "op", "tiles", "buffers") == (
        "gmm-tm_512-tk_1024-tn_2048-rhsbuf_2",
        "grouped_gemm",
        {"tm": 512, "tk": 1024, "tn": 2048},
        [{"role": "rhs", "buffers": 2, "from": "name"}],
    )
    # A number in a name is no tile and no buffer by itself.
    assert told(call("tpu_custom_call", name="mha_bwd_2"), "tiles", "buffers") == (None, None)


def test_the_depth_that_the_author_notes() -> None:
    noted = (
        ', frontend_attributes={kernel_metadata={"tiles.tile_m":"128","dims.size_m":"4096",'
        '"rhs_buffer_count":"2"}}'
    )
    assert told(call("tpu_custom_call", noted), "tiles", "buffers") == (
        {"tile_m": 128},
        [{"role": "rhs", "buffers": 2, "from": "metadata"}],
    )


# -- what a kernel is, by its name


@pytest.mark.parametrize(
    ("kernel", "op", "direction"),
    [
        ("gmm_v2-g_8-m_4096-k_512-act_silu-n_1024-tm_128-tk_512-tn_256", "grouped_gemm", None),
        ("tgmm_megablox", "grouped_gemm", None),
        ("_ragged_contracting_dim_dot_kernel", "grouped_gemm", None),
        ("splash_mqa_fwd_segmented_residuals", "attention", "fwd"),
        ("splash_mha_dkv_no_residuals", "attention", "bwd"),
        ("pallas_flash_attention_fwd_res", "attention", "fwd"),
        ("pallas_flash_attention_vjp", "attention", "bwd"),
        ("flash_mha_bwd_dkv_block_q_major=128", "attention", "bwd"),
        ("RPA-bq_32-bkvp_16-p_64-", "attention", "fwd"),
        ("ragged_paged_attention_kernel", "attention", "fwd"),
        ("pallas_rms_norm", "norm", "fwd"),
        ("pallas_layer_norm_vjp", "norm", "bwd"),
        ("gmmlike", "kernel", None),
    ],
)
def test_what_kernels_of_libraries_compute(kernel: str, op: str, direction: str | None) -> None:
    path = f', metadata={{op_name="jit(f)/{kernel}/pallas_call"}}'
    assert told(call("tpu_custom_call", path), "kernel", "kernel_from", "op", "direction") == (
        kernel, "op_name", op, direction,
    )  # fmt: skip


def test_a_jitted_function_names_a_kernel_where_the_catalogue_knows_it() -> None:
    text = """\
HloModule m
gmm {
  p = f32[8]{0} parameter(0)
  ROOT k = f32[8]{0} custom-call(p), custom_call_target="tpu_custom_call",
      metadata={op_name="pallas_call"}
}
ENTRY main {
  a = f32[8]{0} parameter(0)
  ROOT c = f32[8]{0} call(a), to_apply=gmm, metadata={op_name="jit(f)/jit(gmm)"}
}
"""
    assert told(text, "kernel", "kernel_from", "op") == ("gmm", "op_name", "grouped_gemm")
    # The step of the user is jitted, too.
    assert told(text.replace("jit(gmm)", "jit(step)"), "kernel", "op") == ("k", "kernel")


# -- Mosaic

WINDOWED = """\
module @mine attributes {stable_mosaic.version = 15 : i64} {
  "stable_mosaic.func.func"() ({
  ^bb0(%arg0: i32, %arg1: memref<4xi32, #tpu.memory_space<smem>>):
    %0 = "stable_mosaic.memref.alloca"() : () -> memref<3x8x128xbf16, #tpu.memory_space<vmem>>
    %1 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
    "stable_mosaic.func.return"() : () -> ()
  }) {dimension_semantics = [#tpu.dimension_semantics<parallel>], function_type = (i32, memref<4xi32, #tpu.memory_space<smem>>, memref<8x128xbf16, #tpu.memory_space<vmem>>, memref<1x128xf8E4M3FN, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<i1, #tpu.memory_space<smem>>) -> (), iteration_bounds = array<i64: 16, -9223372036854775808>, scalar_prefetch = 1 : i64, scratch_operands = 1 : i64, sym_name = "mine", tpu.core_type = #tpu.core_type<tc>, window_params = [{transform_indices = @transform_0, window_bounds = array<i64: 8, 128>}, {pipeline_mode = #tpu.pipeline_mode<synchronous>, transform_indices = @transform_1, window_bounds = array<i64: 1, 128>}, {pipeline_mode = #tpu.pipeline_mode<double_buffered>, transform_indices = @transform_2, window_bounds = array<i64: 8, 128>}]} : () -> ()
}
"""  # noqa: E501


def mosaic(body: str, more: str = "") -> str:
    config = json.dumps({"body": body})[:-1] + more
    return call("tpu_custom_call", f', backend_config={{"custom_call_config":{config}}}}}')


def test_the_grid_and_the_buffers_of_a_mosaic_kernel() -> None:
    text = mosaic(WINDOWED)
    grid, buffers, settings, kernel, told_by = told(
        text, "grid", "buffers", "settings", "kernel", "kernel_from"
    )
    assert grid == [16, -1]
    assert buffers == [
        {"role": "prefetch", "shape": "s32[4]", "memory": "smem"},
        {"role": "window", "shape": "bf16[8,128]", "memory": "vmem"},
        {"role": "window", "shape": "f8e4m3fn[1,128]", "memory": "vmem", "buffers": 1},
        {"role": "window", "shape": "f32[8,128]", "memory": "vmem", "buffers": 2},
        {"role": "scratch", "shape": "pred[]", "memory": "smem"},
        {"role": "alloc", "shape": "bf16[3,8,128]", "memory": "vmem"},
    ]
    assert settings == {"dimension_semantics": ["parallel"], "core_type": "tc"}
    assert (kernel, told_by) == ("mine", "body")


def test_what_a_mosaic_kernel_asks_of_the_compiler() -> None:
    text = mosaic(
        MLIR,
        ',"has_communication":true,"collective_id":"7","needs_layout_passes":true,'
        '"allow_input_fusion":[],"cost_estimate":{"flops":"4096","transcendentals":0,'
        '"bytes_accessed":512},"input_memory_space_colors":[{"operand_index":"1","color":"1"}],'
        '"output_memory_space_colors":[{"color":0,"shape_index":[2]}]',
    )
    settings, flops, moved = told(text, "settings", "estimated_flops", "estimated_bytes")
    assert settings == {
        "has_communication": True,
        "collective_id": "7",
        "needs_layout_passes": True,
        "input_memory": {"1": "vmem"},
        "output_memory": {"2": "hbm"},
    }
    assert (flops, moved) == (4096, 512)


def test_the_operations_of_a_body() -> None:
    ops, size, told_by = told(mosaic(MLIR), "body_ops", "body_bytes", "body_from")
    assert (ops, size, told_by) == (OPERATIONS, len(MLIR), "mlir")
    assert told(mosaic("<mosaic_body>"), "body_ops", "body_bytes", "body_from") == (
        None, 13, "bytes",
    )  # fmt: skip
    assert told(call("tpu_custom_call"), "body_ops", "body_hash", "body_from") == (None,) * 3


def test_rewrites_that_do_not_matter_do_not_matter() -> None:
    for text in (mosaic(MLIR), mosaic(WINDOWED), call("triton_kernel_call_ffi", opaque()), LOOPS):
        check_table(text, "custom_calls")


def test_a_diff_shows_the_operations_that_differ_and_no_locations(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    forget()
    moved = MLIR.replace(": f32\n", ': f32 loc("k.py":3:4)\n', 1)
    other = MLIR.replace("%1 = arith.addf", "%2 = arith.mulf %0, %0 : f32\n    %1 = arith.addf")
    for name, body in (("old", MLIR), ("moved", moved), ("other", other)):
        (tmp_path / f"{name}.hlo").write_text(mosaic(body))
    old = str(tmp_path / "old.hlo")
    same = cli("diff", old, str(tmp_path / "moved.hlo"))
    assert (same.code, same.out.partition(":")[0]) == (0, "same")
    apart = cli("diff", old, str(tmp_path / "other.hlo"))
    assert apart.code == 1
    assert "body ops arith.mulf – → 1" in apart.out


# -- a kernel that runs again

KERNEL = (
    'custom_call_target="__gpu$xla.gpu.triton", backend_config={name = "fa_fwd", grid_x = 4 : i32}'
)
FORWARD = 'metadata={op_name="jit(f)/jvp(f)/pallas_call"}'
REMAT = 'metadata={op_name="jit(f)/transpose(jvp(f))/checkpoint/rematted_computation/pallas_call"}'
AGAIN = f"""\
HloModule m
ENTRY main {{
  q = bf16[8,64]{{1,0}} parameter(0)
  first = bf16[8,64]{{1,0}} custom-call(q), {KERNEL}, {FORWARD}
  kept = (bf16[8,64]{{1,0}}, bf16[8,64]{{1,0}}) tuple(q, first)
  barrier = (bf16[8,64]{{1,0}}, bf16[8,64]{{1,0}}) opt-barrier(kept)
  held = bf16[8,64]{{1,0}} get-tuple-element(barrier), index=0
  later = bf16[8,64]{{1,0}} custom-call(held), {KERNEL}, {REMAT}
  ROOT sum = bf16[8,64]{{1,0}} add(first, later)
}}
"""


def again(text: str) -> list[str]:
    return [said for rule, said in findings(text, "custom_calls") if rule == "kernel-run-again"]


def linked(text: str) -> list[tuple[object, ...]]:
    """(call, role, other call) of the members that link rows."""
    return ask(
        text,
        "select c.name, role, i.name from members m join custom_calls c on c.id = m.row"
        " join instructions i on i.module = m.module and i.instr = m.instr"
        " where m.\"table\" = 'custom_calls' and role in ('first', 'again') order by 1",
    )


def test_a_forward_kernel_that_backward_runs_again() -> None:
    (said,) = again(AGAIN)
    assert said.startswith(
        "fa_fwd runs again in remat: later (1x a step), after first (1x a step); same values"
    )
    assert linked(AGAIN) == [("first", "again", "later"), ("later", "first", "first")]
    check_table(AGAIN, lambda text: ["same values" in said for said in again(text)])


def test_the_same_values_need_no_label() -> None:
    (said,) = again(AGAIN.replace(f", {REMAT}", "").replace(f", {FORWARD}", ""))
    assert said.startswith("fa_fwd runs again: later")
    assert "same values" in said


def test_with_the_label_alone_the_values_are_not_shown_to_be_the_same() -> None:
    text = AGAIN.replace("custom-call(held)", "custom-call(worked)").replace(
        "  later =", "  worked = bf16[8,64]{1,0} negate(held)\n  later ="
    )
    (said,) = again(text)
    assert "label: under rematted_computation" in said


@pytest.mark.parametrize(
    "text",
    [
        # The same kernel in the next layer, on other values.
        AGAIN.replace(REMAT, FORWARD).replace("custom-call(held)", "custom-call(first)"),
        # Another kernel.
        AGAIN.replace(f"{KERNEL}, {REMAT}", f"{KERNEL.replace('fa_fwd', 'fa_dq')}, {REMAT}"),
        # The same target on the same operand with other attributes.
        AGAIN.replace(f"{KERNEL}, {REMAT}", f"{KERNEL.replace('4 : i32', '8 : i32')}, {FORWARD}"),
        # Labelled, and no earlier run: forward was dead, so nothing is done twice.
        AGAIN.replace("custom-call(q)", "negate(q)").replace(f", {KERNEL}, {FORWARD}", ""),
        # What is no kernel.
        AGAIN.replace("__gpu$xla.gpu.triton", "my_target"),
    ],
    ids=["layers", "kernels", "attributes", "sole", "unknown"],
)
def test_what_is_no_second_run(text: str) -> None:
    assert again(text) == []


LOOPS = f"""\
HloModule m
forward {{
  p = (s32[], bf16[8,64]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = bf16[8,64]{{1,0}} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  run = bf16[8,64]{{1,0}} custom-call(x), {KERNEL}, {FORWARD}
  ROOT t = (s32[], bf16[8,64]{{1,0}}) tuple(next, run)
}}
backward {{
  p = (s32[], bf16[8,64]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = bf16[8,64]{{1,0}} get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  rerun = bf16[8,64]{{1,0}} custom-call(x), {KERNEL}, {REMAT}
  ROOT t = (s32[], bf16[8,64]{{1,0}}) tuple(next, rerun)
}}
condition {{
  p = (s32[], bf16[8,64]{{1,0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(7)
  ROOT lt = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  a = bf16[8,64]{{1,0}} parameter(0)
  g = bf16[8,64]{{1,0}} parameter(1)
  zero = s32[] constant(0)
  s = (s32[], bf16[8,64]{{1,0}}) tuple(zero, a)
  w = (s32[], bf16[8,64]{{1,0}}) while(s), condition=condition, body=forward
  u = (s32[], bf16[8,64]{{1,0}}) tuple(zero, g)
  v = (s32[], bf16[8,64]{{1,0}}) while(u), condition=condition, body=backward
  x = bf16[8,64]{{1,0}} get-tuple-element(w), index=1
  y = bf16[8,64]{{1,0}} get-tuple-element(v), index=1
  ROOT sum = bf16[8,64]{{1,0}} add(x, y)
}}
"""


def test_runs_are_counted_in_loops() -> None:
    sql = "select kernel, phase, sum(executions) from custom_calls group by 1, 2"
    assert ask(LOOPS, sql) == [("fa_fwd", "fwd", 7), ("fa_fwd", "remat", 7)]
    (said,) = again(LOOPS)
    assert "rerun (7x a step), after run (7x a step); label" in said
