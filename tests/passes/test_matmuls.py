"""The matmuls table: sizes, dtypes and FLOPs of dots in every spelling, and their converts."""

from __future__ import annotations

import json

import pytest

from hlo_lens.analysis.conv_dots import Axis, conv_as_dot
from hlo_lens.hlo import parse_shape
from hlo_lens.hlo.attributes import parse_dim_labels, parse_window
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file
from tests.shared import SHARED, needs_shared


def dot(lhs: str, rhs: str, out: str, attributes: str) -> str:
    return f"""\
HloModule m
ENTRY main {{
  a = {lhs} parameter(0)
  b = {rhs} parameter(1)
  ROOT d = {out} dot(a, b){attributes}
}}
"""


def sizes(text: str) -> tuple[object, ...]:
    """(batch, m, n, k, flops) of the one matmul."""
    (row,) = ask(text, "select batch, m, n, k, flops from matmuls")
    return row


def test_sizes_are_products_of_dimensions() -> None:
    dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert sizes(dot("f32[4,8]", "f32[8,16]", "f32[4,16]", dims)) == (1, 4, 16, 8, 1024)
    dims = (
        ", lhs_batch_dims={0,1}, rhs_batch_dims={0,2},"
        " lhs_contracting_dims={3}, rhs_contracting_dims={3}"
    )
    text = dot("f32[2,3,5,7]", "f32[2,11,3,7]", "f32[2,3,5,11]", dims)
    assert sizes(text) == (6, 5, 11, 7, 2 * 6 * 5 * 11 * 7)
    dims = ", lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}"
    assert sizes(dot("f32[2,3]", "f32[3,2]", "f32[]", dims)) == (1, 1, 1, 6, 12)


def test_a_dot_without_contracted_dimensions_is_an_outer_product() -> None:
    assert sizes(dot("f32[4]", "f32[8]", "f32[4,8]", "")) == (1, 4, 8, 1, 64)


def test_dimension_numbers_left_out_are_not_guessed() -> None:
    text = dot("f32[4,8]", "f32[8,16]", "f32[4,16]", "")  # as early 2018 printed them
    assert sizes(text) == (None, None, None, None, None)
    assert ask(text, "select lhs_dtype, out_dtype, dims from matmuls") == [("f32", "f32", None)]


@pytest.mark.parametrize(
    "dims",
    [
        ", lhs_contracting_dims={5}, rhs_contracting_dims={0}",
        ", lhs_contracting_dims={0,1}, rhs_contracting_dims={0}",
        ", lhs_contracting_dims={x}, rhs_contracting_dims={0}",
    ],
)
def test_numbers_that_do_not_fit_are_not_known(dims: str) -> None:
    assert sizes(dot("f32[4,8]", "f32[8,16]", "f32[4,16]", dims)) == (None,) * 5


def test_a_bound_counts_and_an_unbounded_dimension_is_not_known() -> None:
    dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert sizes(dot("f32[<=4,8]", "f32[8,16]", "f32[<=4,16]", dims))[4] == 1024
    assert sizes(dot("f32[?,8]", "f32[8,16]", "f32[?,16]", dims)) == (1, None, 16, 8, None)


def test_dtypes_algorithm_and_precision() -> None:
    sql = (
        "select lhs_dtype, rhs_dtype, accumulate_dtype, out_dtype, algorithm, operand_precision"
        " from matmuls"
    )
    dims = ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = dot("bf16[4,8]", "s8[8,16]", "f32[4,16]", f"{dims}, operand_precision={{high,default}}")
    assert ask(text, sql) == [("bf16", "s8", None, "f32", None, "high,default")]
    text = dot("f32[4,8]", "f32[8,16]", "f32[4,16]", f"{dims}, algorithm=dot_bf16_bf16_f32_x3")
    assert ask(text, sql) == [("f32", "f32", "f32", "f32", "dot_bf16_bf16_f32_x3", None)]
    text = dot(
        "f8e4m3fn[4,8]", "f8e5m2[8,16]", "f32[4,16]", f"{dims}, algorithm=dot_any_f8_any_f8_f32"
    )
    assert ask(text, sql)[0][2] == "f32"


@pytest.mark.parametrize(
    ("config", "backend"),
    [
        ('{"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion"}}', "triton"),
        ('{"fusion_backend_config":{"kind":"__triton_gemm"}}', "triton"),
        ('{"kind":"__triton_gemm","triton_gemm_config":{}}', "triton"),
        ('{"fusion_backend_config":{"kind":"__cudnn$fusion"}}', "cudnn"),
        ('{"fusion_config":{"kind":"__ynn_fusion"}}', "ynnpack"),
        ('{"fusion_backend_config":{"kind":"__custom_fusion"}}', None),
        ('{"note":"__triton_gemm"}', None),
        ("{broken __triton_gemm", None),
    ],
)
def test_the_config_of_the_fusion_around_a_dot_says_what_computes_it(
    config: str, backend: str | None
) -> None:
    text = f"""\
HloModule m
fused {{
  a = f32[4,8] parameter(0)
  b = f32[8,16] parameter(1)
  ROOT d = f32[4,16] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY main {{
  a = f32[4,8] parameter(0)
  b = f32[8,16] parameter(1)
  ROOT f = f32[4,16] fusion(a, b), kind=kCustom, calls=fused, backend_config={config}
}}
"""
    if not config.endswith("}"):
        text = text.replace(config, f'"{config}"')
    assert ask(text, "select form, backend from matmuls") == [("dot", backend)]


def test_scaled_and_ragged_dots_are_rows_of_their_own_form() -> None:
    scaled = """\
HloModule m
ENTRY main {
  a = f8e4m3fn[2,32] parameter(0)
  b = f8e4m3fn[256,32] parameter(1)
  sa = f8e8m0fnu[2,1] parameter(2)
  sb = f8e8m0fnu[256,1] parameter(3)
  ROOT d = f32[2,256] scaled-dot(a, b, sa, sb), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
    sql = "select form, ragged, batch, m, n, k, flops from matmuls"
    assert ask(scaled, sql) == [("scaled-dot", 0, 1, 2, 256, 32, 32768)]
    ragged = """\
HloModule m
ENTRY main {
  a = bf16[64,16] parameter(0)
  b = bf16[4,16,8] parameter(1)
  g = s32[4] parameter(2)
  ROOT d = bf16[64,8] ragged-dot(a, b, g), lhs_contracting_dims={1}, rhs_contracting_dims={1},
      lhs_ragged_dims={0}, rhs_group_dims={0}
}
"""
    # 2·M·K·N bounds it: a row of the left operand meets one group.
    assert ask(ragged, sql) == [("ragged-dot", 1, 1, 64, 8, 16, 2 * 64 * 8 * 16)]


def test_a_dot_that_is_started_is_one_row_with_the_dots_own_result() -> None:
    text = """\
HloModule m
ENTRY main {
  a = bf16[4,8] parameter(0)
  b = bf16[8,16] parameter(1)
  s = ((bf16[4,8], bf16[8,16]), f32[4,16], u32[]) dot-start(a, b), lhs_contracting_dims={1},
      rhs_contracting_dims={0}
  d = f32[4,16] dot-done(s)
  ROOT c = bf16[4,16] convert(d)
}
"""
    sql = "select name, form, out_dtype, flops, converts from matmuls"
    assert ask(text, sql) == [("s", "dot", "f32", 1024, "result f32->bf16")]


# -- gemm calls

GEMM = """\
HloModule m
ENTRY main {
  a = bf16[4,8]{1,0} parameter(0)
  b = bf16[8,16]{1,0} parameter(1)
  ROOT c = (bf16[4,16]{1,0}, s8[32]{0}) custom-call(a, b), custom_call_target="TARGET",
      backend_config=CONFIG
}
"""
DIMS = (
    '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}'
)


def gemm(target: str, config: str) -> str:
    return GEMM.replace("TARGET", target).replace("CONFIG", config)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
def test_a_gemm_call_has_the_sizes_of_its_config(target: str) -> None:
    config = f'{{"gemm_backend_config":{{{DIMS},"epilogue":"BIAS_RELU"}}}}'
    sql = (
        "select form, target, backend, lhs_dtype, rhs_dtype, out_dtype, m, n, k, flops, epilogue"
        " from matmuls"
    )
    assert ask(gemm(target, config), sql) == [
        (
            "custom_call", target, "cublas" if target == "__cublas$gemm" else "cublaslt",
            "bf16", "bf16", "bf16", 4, 16, 8, 1024, "bias_relu",
        )
    ]  # fmt: skip


def test_a_config_of_2022_has_its_fields_at_the_top() -> None:
    quoted = f"{{{DIMS}}}".replace('"', '\\"')
    assert sizes(gemm("__cublas$gemm", f'"{quoted}"')) == (1, 4, 16, 8, 1024)


def test_precision_and_algorithm_of_a_config() -> None:
    precision = '"precision_config":{"operand_precision":["HIGHEST","DEFAULT"],"algorithm":"ALG"}'
    sql = "select algorithm, accumulate_dtype, operand_precision from matmuls"
    unset = precision.replace('"ALG"', '"ALG_UNSET"')
    text = gemm("__cublas$lt$matmul", f'{{"gemm_backend_config":{{{DIMS},{unset}}}}}')
    assert ask(text, sql) == [(None, None, "highest,default")]
    named = precision.replace('"ALG"', '"ALG_DOT_TF32_TF32_F32"')
    text = gemm("__cublas$lt$matmul", f'{{"gemm_backend_config":{{{DIMS},{named}}}}}')
    assert ask(text, sql) == [("dot_tf32_tf32_f32", "f32", "highest,default")]


def test_a_gemm_without_dimension_numbers_is_a_row_of_unknown_size() -> None:
    text = gemm("__cublas$gemm", "{}")
    sql = "select target, lhs_dtype, out_dtype, m, n, k, flops from matmuls"
    assert ask(text, sql) == [("__cublas$gemm", None, "bf16", None, None, None, None)]
    engine = gemm("te_gemm_ffi", "{contracting_dims = array<i64: 1, 0>}")
    assert ask(engine, sql) == [("te_gemm_ffi", "bf16", "bf16", None, None, None, None)]


CONTRACT = """\
HloModule m
ENTRY main {
  lhs = f8e4m3fn[LHS] parameter(0)
  rhs = f8e5m2[RHS] parameter(1)
  ls = f8e8m0fnu[4,8] parameter(2)
  rs = f8e8m0fnu[8,16] parameter(3)
  bias = bf16[0] parameter(4)
  one = f32[1] parameter(5)
  ROOT c = (bf16[4,16], u8[32]) custom-call(OPERANDS), custom_call_target="TARGET",
      backend_config={CONFIG}
}
"""
SIDES = "select lhs_dtype, rhs_dtype, out_dtype, batch, m, n, k, flops from matmuls"


@pytest.mark.parametrize(
    ("lhs", "rhs", "sizes"),
    [
        ("4,256", "16,256", (1, 4, 16, 256, 32768)),
        ("2,4,256", "2,16,256", (2, 4, 16, 256, 65536)),
        ("256", "256", (None, None, None, None, None)),
    ],
)
def test_a_block_scaled_dot_contracts_what_comes_last(
    lhs: str, rhs: str, sizes: tuple[object, ...]
) -> None:
    text = CONTRACT.replace("LHS", lhs).replace("RHS", rhs).replace("CONFIG", "")
    text = text.replace("OPERANDS", "lhs, rhs, ls, rs").replace("TARGET", "__op$block_scaled_dot")
    assert ask(text, SIDES) == [("f8e4m3fn", "f8e5m2", "bf16", *sizes)]


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ("lhs_axis_boundary = 1, rhs_axis_boundary = 1", (1, 4, 16, 256, 32768)),
        ("config = {lhs_axis_boundary = 1, rhs_axis_boundary = 1}", (1, 4, 16, 256, 32768)),
        (
            "lhs_axis_boundary = 1, rhs_axis_boundary = 1, lhs_transposed = true,"
            " rhs_transposed = true",
            (1, 256, 256, 4, 524288),
        ),
        ("lhs_axis_boundary = 1, rhs_axis_boundary = 1, collective_op = 1", (None,) * 5),
        ("contracting_dims = array<i64: 1, 0>", (None,) * 5),
    ],
)
def test_a_gemm_of_transformer_engine_has_each_operand_before_its_scale(
    config: str, sizes: tuple[object, ...]
) -> None:
    text = CONTRACT.replace("LHS", "4,256").replace("RHS", "256,16").replace("CONFIG", config)
    text = text.replace("OPERANDS", "lhs, ls, rhs, rs, bias, one, one")
    text = text.replace("TARGET", "te_gemm_v2_ffi")
    if "transposed" in config:  # both contract the 4 in front of the other way round
        text = text.replace("f8e5m2[256,16]", "f8e5m2[256,4]")
    assert ask(text, SIDES) == [("f8e4m3fn", "f8e5m2", "bf16", *sizes)]


@needs_shared
def test_gemms_of_transformer_engine_on_an_mi355() -> None:
    assert SHARED is not None
    sql = "select lhs_dtype, rhs_dtype, out_dtype, m, n, k from matmuls"
    for name in ("fp8", "mxfp8"):
        path = SHARED / f"gfx950/precision/{name}/before_optimizations.txt"
        assert ask_file(path, sql) == [("f8e4m3fn", "f8e4m3fn", "bf16", 128, 256, 256)]


@pytest.mark.parametrize("target", ["__cublas$triangularSolve", "__cudnn$convForward", "my_gemm"])
def test_a_call_that_is_no_gemm_is_no_matmul(target: str) -> None:
    config = f'{{"gemm_backend_config":{{{DIMS}}}}}'
    assert ask(gemm(target, config), "select * from matmuls") == []


# -- convolutions


@pytest.mark.parametrize(
    ("axis", "kind"),
    [
        (Axis(4, 4, 1), "contracted"),
        (Axis(4, 1, 4), "lhs"),
        (Axis(1, 4, 4, pad=3), "rhs"),
        (Axis(4, 4, 4, stride=3, lhs_dilate=4), "batch"),
        (Axis(1, 1, 1), "batch"),
        (Axis(8, 4, 4, stride=3, pad=-16, lhs_dilate=4), "batch"),  # the last four of eight
        (Axis(8, 4, 4, stride=3, lhs_dilate=4), "batch"),  # the first four
        (Axis(8, 4, 1, pad=-2), "contracted"),
        (Axis(8, 1, 4, pad=-3), "lhs"),
        (Axis(8, 1, 1, pad=-7), "batch"),
        (Axis(8, 4, 4, stride=3, pad=-20, lhs_dilate=4), None),  # beyond the end
        (Axis(8, 4, 4, stride=3, pad=-15, lhs_dilate=4), None),  # between two of them
        (Axis(8, 4, 1, pad=1), None),
        (Axis(8, 4, 1, lhs_dilate=0), None),
        (Axis(8, 3, 6), None),  # an ordinary convolution
        (Axis(4, 4, 4, pad=1), None),  # SAME padding
        (Axis(4, 1, 2, stride=2), None),  # every second input
        (Axis(4, 4, 7, pad=3), None),  # a full convolution
        (Axis(1, 4, 4, pad=2), None),
        (Axis(4, 4, 4, stride=3, lhs_dilate=4, pad=1), None),
        (Axis(4, 4, 4, stride=1, lhs_dilate=2), None),  # outputs share inputs
    ],
)
def test_which_spatial_dimensions_are_those_of_a_dot(axis: Axis, kind: str | None) -> None:
    assert axis.kind == kind
    assert kind is None or is_one_to_one(axis)


def is_one_to_one(axis: Axis) -> bool:
    """The definition itself: every pair that is multiplied, counted one by one."""
    pairs = []
    for output in range(axis.outputs):
        for position in range(axis.window):
            tap = axis.window - 1 - position if axis.reversed else position
            at = output * axis.stride + tap * axis.rhs_dilate - axis.pad
            if at % axis.lhs_dilate == 0 and 0 <= at // axis.lhs_dilate < axis.inputs:
                pairs.append((output, position, at // axis.lhs_dilate))
    size = max(axis.outputs, axis.window)
    if len(pairs) != size:
        return False
    outputs, positions, inputs = map(set, zip(*pairs, strict=True))
    read = min(axis.inputs, size)
    return (
        len(outputs) == axis.outputs
        and len(positions) == axis.window
        and len(inputs) == read == max(inputs) - min(inputs) + 1
    )


@pytest.mark.parametrize("inputs", [1, 3, 5])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("outputs", [1, 3])
def test_no_dimension_is_called_one_of_a_dot_that_is_none(
    inputs: int, window: int, outputs: int
) -> None:
    for stride in (1, 2, 3):
        for pad in (-8, -6, -4, -3, -2, -1, 0, 1, 2, 4):
            for lhs_dilate in (1, 2, 3, 4):
                for rhs_dilate in (1, 2):
                    for back in (False, True):
                        axis = Axis(
                            inputs, window, outputs, stride, pad, lhs_dilate, rhs_dilate, back
                        )
                        assert axis.kind is None or is_one_to_one(axis), axis


def conv(lhs: str, rhs: str, out: str, attributes: str) -> str:
    return dot(lhs, rhs, out, attributes).replace(" dot(", " convolution(")


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "attributes", "expected"),
    [
        ("f32[4,8]", "f32[8,16]", "f32[4,16]", ", dim_labels=bf_io->bf", (1, 4, 16, 8)),
        ("f32[8,4]", "f32[16,8]", "f32[16,4]", ", dim_labels=fb_oi->fb", (1, 4, 16, 8)),
        (
            "f32[512,8,4]", "f32[8,4,16]", "f32[512,16,1]",
            ", window={size=4}, dim_labels=bf0_i0o->bf0", (1, 512, 16, 32),
        ),
        (
            "f32[512,8,1]", "f32[8,4,16]", "f32[512,4,16]",
            ", window={size=4 pad=3_3 rhs_reversal=1}, dim_labels=bf0_i0o->b0f", (1, 512, 64, 8),
        ),
        (
            "f32[16,4,8]", "f32[16,8,2]", "f32[16,4,2]",
            ", window={size=16 stride=15 lhs_dilate=16}, dim_labels=0bf_0io->0bf", (16, 4, 2, 8),
        ),
        (
            "f32[8,4,6]", "f32[4,6,2]", "f32[4,4,2]",
            ", window={size=4 stride=3 pad=-16_0 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
            (4, 4, 2, 6),
        ),
        (
            "f32[5,8,4]", "f32[8,3,2]", "f32[5,1,2]",
            ", window={size=3 pad=-1_0}, dim_labels=bf0_i0o->b0f", (1, 5, 2, 24),
        ),
        (
            "f32[4,32]", "f32[8,16]", "f32[4,16]",
            ", dim_labels=bf_io->bf, feature_group_count=4", (4, 4, 4, 8),
        ),
    ],
)  # fmt: skip
def test_a_convolution_that_is_a_dot(
    lhs: str, rhs: str, out: str, attributes: str, expected: tuple[int, ...]
) -> None:
    text = conv(lhs, rhs, out, attributes)
    assert ask(text, "select form from matmuls") == [("convolution",)]
    batch, m, n, k = expected
    assert sizes(text) == (*expected, 2 * batch * m * n * k)


def test_a_convolution_that_is_none() -> None:
    attributes = ", window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
    text = conv("f32[1,8,8,4]", "f32[3,3,4,16]", "f32[1,8,8,16]", attributes)
    assert ask(text, "select * from matmuls") == []


def test_a_convolution_at_odds_with_its_shapes_is_none() -> None:
    labels, window = parse_dim_labels("0bf_0io->0bf"), parse_window("{size=4}")
    shapes = tuple(map(parse_shape, ("f32[4,4,8]", "f32[3,8,2]", "f32[1,4,2]")))
    assert conv_as_dot((shapes[0], shapes[1], shapes[2]), labels, window) is None
    assert conv_as_dot((shapes[0], shapes[0], shapes[0]), labels, None) is None


RAGGED = """\
HloModule m
fused {
  a = bf16[16,4,8] parameter(0)
  b = bf16[16,8,2] parameter(1)
  ROOT c = bf16[16,4,2] convolution(a, b), window={size=16 stride=15 lhs_dilate=16},
      dim_labels=0bf_0io->0bf
}
ENTRY main {
  x = bf16[16,4,8] parameter(0)
  y = bf16[16,8,2] parameter(1)
  ROOT f = bf16[16,4,2] fusion(x, y), kind=kOutput, calls=fused,
      backend_config={"convolution_algorithm_config":{"is_ragged_dot":true}}
}
"""


def test_a_native_ragged_convolution_has_its_groups_as_a_batch_and_works_on_each_row_once() -> None:
    sql = "select ragged, batch, m, n, k, groups, flops from matmuls"
    assert ask(RAGGED, sql) == [(1, 1, 4, 2, 8, 16, 2 * 4 * 2 * 8)]
    said = RAGGED.replace('dot":true', 'dot":true,"num_groups_in_ragged_dot":"8"')
    assert ask(said, sql) == [(1, 2, 4, 2, 8, 8, 2 * 2 * 4 * 2 * 8)]
    # A number that does not fit says nothing of which part of the batch the groups are.
    assert ask(said.replace('"8"', '"5"'), sql) == [(1, None, 4, 2, 8, None, None)]


def test_a_dense_convolution_of_the_same_shapes_is_not_ragged() -> None:
    sql = "select ragged, batch, m, n, k, groups, flops from matmuls"
    dense = [(0, 16, 4, 2, 8, None, 2 * 16 * 4 * 2 * 8)]
    assert ask(RAGGED.replace("true", "false"), sql) == dense
    # The words in metadata are no config.
    named = RAGGED.replace('{"convolution_algorithm_config":{"is_ragged_dot":true}}', '{"a":1}')
    named = named.replace("calls=fused", 'calls=fused, metadata={op_name="is_ragged_dot"}')
    assert ask(named, sql) == dense


def masked(mode: str, dims: str) -> str:
    config = (
        f'{{"mask_aggregator_config":{{"mask_dim_to_iteration_index":[{dims}],'
        f'"iteration_skipper_mode":"ITERATION_SKIPPER_MODE_{mode}"}}}}'
    )
    return RAGGED.replace('{"convolution_algorithm_config":{"is_ragged_dot":true}}', config)


@pytest.mark.parametrize(
    ("mode", "dims", "ragged"),
    [
        ("GROUP_STARTS", '"1","4"', 1),
        ("EARLY_EXIT", '"4"', 1),  # a device that has one group
        ("INVALID", '"1","4"', 0),
        ("GROUP_STARTS", "", 0),  # what only computes where groups start
    ],
)
def test_a_mask_whose_other_groups_are_skipped_makes_a_convolution_ragged(
    mode: str, dims: str, ragged: int
) -> None:
    assert ask(masked(mode, dims), "select ragged from matmuls") == [(ragged,)]


# -- converts

AROUND = """\
HloModule m
up {
  p = bf16[4,8]{1,0} parameter(0)
  c = f32[4,8]{1,0} convert(p)
  ROOT t = f32[8,4]{0,1} bitcast(c)
}
down {
  p = f32[4,16]{1,0} parameter(0)
  c = bf16[4,16]{1,0} convert(p)
  ROOT n = bf16[4,16]{1,0} negate(c)
}
ENTRY main {
  a = bf16[4,8]{1,0} parameter(0)
  b = f32[8,16]{1,0} parameter(1)
  f = f32[8,4]{0,1} fusion(a), kind=kLoop, calls=up
  d = f32[4,16]{1,0} dot(f, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  v = f32[4,16]{1,0} copy(d)
  ROOT g = bf16[4,16]{1,0} fusion(v), kind=kLoop, calls=down
}
"""


def converts(text: str) -> tuple[object, object, object]:
    """(converts, convert_before, convert_after) of the one matmul, JSON read."""
    ((short, before, after),) = ask(
        text, "select converts, convert_before, convert_after from matmuls"
    )
    read = [None if one is None else json.loads(str(one)) for one in (before, after)]
    return short, read[0], read[1]


def test_converts_are_seen_through_fusions_and_copies() -> None:
    assert converts(AROUND) == (
        "lhs bf16->f32, result f32->bf16",
        [{"operand": 0, "from": "bf16", "to": "f32", "via": "f"}],
        {"from": "f32", "to": "bf16", "via": "g"},
    )
    sql = (
        "select role, name from members join instructions using (module, instr)"
        " where \"table\" = 'matmuls'"
    )
    assert ask(AROUND, sql) == [("matmul", "d"), ("convert", "c"), ("convert", "c")]


def test_a_dot_inside_a_fusion_sees_the_converts_beside_it_and_outside() -> None:
    text = """\
HloModule m
fused {
  p = f32[4,8]{1,0} parameter(0)
  q = f32[8,16]{1,0} parameter(1)
  c = bf16[8,16]{1,0} convert(q)
  ROOT d = f32[4,16]{1,0} dot(p, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY main {
  a = bf16[4,8]{1,0} parameter(0)
  b = f32[8,16]{1,0} parameter(1)
  up = f32[4,8]{1,0} convert(a)
  f = f32[4,16]{1,0} fusion(up, b), kind=kOutput, calls=fused
  ROOT down = bf16[4,16]{1,0} convert(f)
}
"""
    assert converts(text) == (
        "lhs bf16->f32, rhs f32->bf16, result f32->bf16",
        [
            {"operand": 0, "from": "bf16", "to": "f32", "via": "up"},
            {"operand": 1, "from": "f32", "to": "bf16", "via": "c"},
        ],
        {"from": "f32", "to": "bf16", "via": "down"},
    )


def test_what_computes_in_between_hides_a_convert() -> None:
    text = AROUND.replace("v = f32[4,16]{1,0} copy(d)", "v = f32[4,16]{1,0} tanh(d)")
    text = text.replace("t = f32[8,4]{0,1} bitcast(c)", "t = f32[8,4]{0,1} negate(c)")
    assert converts(text) == (None, None, None)


def test_a_convert_outside_of_the_loop_is_not_next_to_the_dot() -> None:
    text = """\
HloModule m
body {
  p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,8] get-tuple-element(p), index=1
  w = f32[8,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,8], f32[8,8]) tuple(next, d, w)
}
condition {
  p = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = f32[8,8] parameter(0)
  b = bf16[8,8] parameter(1)
  up = f32[8,8] convert(b)
  zero = s32[] constant(0)
  t = (s32[], f32[8,8], f32[8,8]) tuple(zero, a, up)
  l = (s32[], f32[8,8], f32[8,8]) while(t), condition=condition, body=body
  y = f32[8,8] get-tuple-element(l), index=1
  ROOT down = bf16[8,8] convert(y)
}
"""
    assert converts(text) == (None, None, None)
    assert ask(text, "select executions, flops * executions from matmuls") == [(3, 3 * 1024)]


def test_rewrites_that_do_not_matter_do_not_matter() -> None:
    for text in (AROUND, RAGGED, gemm("__cublas$gemm", f'{{"gemm_backend_config":{{{DIMS}}}}}')):
        check_table(text, "matmuls")
