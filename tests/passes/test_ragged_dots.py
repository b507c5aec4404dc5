"""The ragged_dots table: what ragged products became, in texts written for it and their twins."""

from __future__ import annotations

import json

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.asking import findings as all_findings

SIZES = "groups, m, n, k"
FORWARD = (
    "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
)
DGRAD = FORWARD.replace("rhs_contracting_dims={1}", "rhs_contracting_dims={2}")
WGRAD = "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"
BATCH = (
    "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1},"
    " lhs_ragged_dims={0}"
)


def findings(text: str) -> list[str]:
    """What this pass has to say."""
    rule = "ragged-dense-padded"
    return [message for one, message in all_findings(text, "ragged_dots") if one == rule]


def members(text: str) -> list[tuple[object, ...]]:
    return ask(
        text,
        "select role, i.name from members m join instructions i on i.id = m.instr"
        " where \"table\" = 'ragged_dots' order by role, i.name",
    )


# ---------------------------------------------------------------------------------- still there


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dims", "expected"),
    [
        # K = N: sizes cannot tell forward from data gradient.
        ("[64,16]", "[4,16,16]", "[64,16]", FORWARD, ("fwd", "non_contracting", 4, 64, 16, 16)),
        ("[64,16]", "[4,16,16]", "[64,16]", DGRAD, ("dgrad", "non_contracting", 4, 64, 16, 16)),
        ("[64,16]", "[64,8]", "[4,16,8]", WGRAD, ("wgrad", "contracting", 4, 16, 8, 64)),
        ("[4,64,16]", "[4,16,8]", "[4,64,8]", BATCH, (None, "batch", 4, 64, 8, 16)),
    ],
)
def test_class_and_variant_come_from_the_dimension_numbers(
    lhs: str, rhs: str, out: str, dims: str, expected: tuple[object, ...]
) -> None:
    text = f"""\
HloModule m
ENTRY main {{
  x = bf16{lhs} parameter(0)
  w = bf16{rhs} parameter(1)
  sizes = s32[4] parameter(2)
  ROOT r = bf16{out} ragged-dot(x, w, sizes), {dims}
}}
"""
    assert ask(text, f"select class, variant, {SIZES} from ragged_dots") == [expected]
    check_table(text, "ragged_dots")


def test_what_is_not_lowered_yet_issues_nothing_that_is_known() -> None:
    text = f"""\
HloModule m
ENTRY main {{
  x = bf16[64,16] parameter(0)
  w = bf16[4,16,8] parameter(1)
  sizes = s32[4] parameter(2)
  ROOT r = bf16[64,8] ragged-dot(x, w, sizes), {FORWARD}
}}
"""
    sql = "select lowering, flops, useful_flops, factor, why_not_grouped from ragged_dots"
    assert ask(text, sql) == [("ragged-dot", None, 2 * 64 * 16 * 8, None, None)]
    assert findings(text) == []


def fused(kind: str) -> str:
    """A ragged-dot in a custom fusion. Hand-made after Part 3 of the document on Triton's ragged
    dot ("XLA wraps the ragged-dot in a custom Triton fusion"): no compiler at hand makes it."""
    return f"""\
HloModule m, is_scheduled=true
ragged {{
  x = bf16[64,16] parameter(0)
  w = bf16[4,16,8] parameter(1)
  sizes = s32[4] parameter(2)
  ROOT r = bf16[64,8] ragged-dot(x, w, sizes), {FORWARD}
}}
ENTRY main {{
  a = bf16[64,16] parameter(0)
  b = bf16[4,16,8] parameter(1)
  c = s32[4] parameter(2)
  ROOT f = bf16[64,8] fusion(a, b, c), kind=kCustom, calls=ragged, \
backend_config={{"fusion_backend_config":{{"kind":"{kind}"}}}}
}}
"""


@pytest.mark.parametrize(
    ("kind", "lowering"),
    [
        ("__triton", "triton_fusion"),
        ("__triton_gemm", "triton_fusion"),
        ("__triton_nested_gemm_fusion", "triton_fusion"),
        ("__cudnn$fusion", "cudnn_fusion"),
        ("__custom_fusion", "ragged-dot"),
    ],
)
def test_the_fusion_around_a_ragged_dot_says_what_runs_it(kind: str, lowering: str) -> None:
    assert ask(fused(kind), "select lowering from ragged_dots") == [(lowering,)]


def test_a_kernel_issues_what_is_useful() -> None:
    text = fused("__triton")
    sql = "select class, flops, useful_flops, factor, why_not_grouped, checks from ragged_dots"
    useful = 2 * 64 * 16 * 8
    assert ask(text, sql) == [("fwd", useful, useful, 1.0, None, None)]
    assert members(text) == [("dot", "r"), ("fusion", "f")]
    check_table(text, "ragged_dots")


GROUPED = """\
HloModule m, is_scheduled=true
ENTRY main {
  x = f16[64,16] parameter(0)
  w = f16[4,16,16] parameter(1)
  sizes = s32[4] parameter(2)
  c = (f16[64,16], s8[784]) custom-call(x, w, sizes), \
custom_call_target="__cublas$lt$groupedMatmul", backend_config={"grouped_gemm_backend_config":\
{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["2"]}},"ragged_dot_dimension_numbers":{"dot_dimension_numbers":\
{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["2"]},\
"lhs_ragged_dimensions":["0"],"rhs_group_dimensions":["0"]}}}
  ROOT r = f16[64,16] get-tuple-element(c), index=0
}
"""


def test_a_grouped_gemm_has_its_dimension_numbers_in_its_config() -> None:
    sql = f"select class, variant, lowering, {SIZES}, factor, workspace_bytes from ragged_dots"
    expected = ("dgrad", "non_contracting", "grouped_gemm", 4, 64, 16, 16, 1.0, 784)
    assert ask(GROUPED, sql) == [expected]
    # Nothing here is as harmful rewrites want it: dtypes stand in matmuls.
    check_table(GROUPED, "ragged_dots", must_change=False)


def test_a_gemm_that_is_not_grouped_is_none() -> None:
    plain = GROUPED.replace("groupedMatmul", "matmul").replace("f16[4,16,16]", "f16[16,16]")
    config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
    config += '"rhs_contracting_dimensions":["1"]}}}'
    head, _, tail = plain.partition("backend_config=")
    text = f"{head}backend_config={config}\n{tail.partition(chr(10))[2]}"
    assert len(ask(text, "select * from matmuls")) == 1
    assert ask(text, "select * from ragged_dots") == []


def test_a_grouped_gemm_of_another_library_has_no_dimensions_to_tell() -> None:
    text = """\
HloModule m
ENTRY main {
  x = bf16[64,16] parameter(0)
  s = f32[4] parameter(1)
  w = bf16[4,16,8] parameter(2)
  sizes = s32[4] parameter(3)
  ROOT c = (bf16[64,8], u8[1024]) custom-call(x, s, w, s, sizes), \
custom_call_target="te_grouped_gemm_ffi"
}
"""
    sql = "select class, variant, lowering, backend, flops, workspace_bytes from ragged_dots"
    assert ask(text, sql) == [(None, None, "grouped_gemm", "transformer_engine", None, 1024)]


# ---------------------------------------------------------------------------------- kernels


def kernel(name: str, lhs: str, rhs: str, out: str, op_name: str = "") -> str:
    return f"""\
HloModule m
ENTRY main {{
  table = s32[5] parameter(0)
  x = bf16{lhs} parameter(1)
  w = bf16{rhs} parameter(2)
  ROOT c = bf16{out} custom-call(table, x, w), custom_call_target="tpu_custom_call", \
metadata={{op_name="jit(f)/{op_name or "jvp()"}/x"}}, backend_config={{"custom_call_config":\
{{"kernel_name":"{name}"}}}}
}}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (kernel("gmm", "[64,16]", "[4,16,8]", "[64,8]"), ("fwd", 4, 64, 8, 16)),
        (kernel("gmm", "[64,16]", "[4,8,16]", "[64,8]"), ("dgrad", 4, 64, 8, 16)),
        (kernel("tgmm", "[16,64]", "[64,8]", "[4,16,8]"), ("wgrad", 4, 16, 8, 64)),
        (kernel("ragged-dot-none", "[64,16]", "[4,16,16]", "[64,16]"), ("fwd", 4, 64, 16, 16)),
        # K = N: megablox may contract either, and only the name tells the direction.
        (kernel("gmm", "[64,16]", "[4,16,16]", "[64,16]"), ("fwd", 4, 64, 16, 16)),
        (
            kernel("gmm", "[64,16]", "[4,16,16]", "[64,16]", "transpose(jvp())"),
            ("dgrad", 4, 64, 16, 16),
        ),
        (kernel("gmm", "[64,16]", "[4,16,16]", "[64,16]", "x"), (None, 4, 64, 16, 16)),
    ],
)
def test_a_kernel_is_read_by_its_contract(text: str, expected: tuple[object, ...]) -> None:
    assert ask(text, f"select class, {SIZES} from ragged_dots") == [expected]
    assert ask(text, "select lowering, factor from ragged_dots") == [("mosaic_kernel", 1.0)]
    ((evidence,),) = ask(text, "select evidence from ragged_dots")
    assert json.loads(str(evidence))[0].startswith("kernel name ")


def test_a_triton_kernel_is_no_mosaic_kernel() -> None:
    text = kernel("gmm", "[64,16]", "[4,16,8]", "[64,8]").replace(
        "tpu_custom_call", "__gpu$xla.gpu.triton"
    )
    text = (
        text.replace('"custom_call_config":', "")
        .replace('{"kernel', '"kernel')
        .replace('"}}', '"}')
    )
    assert ask(text, f"select lowering, class, {SIZES} from ragged_dots") == [
        ("triton_kernel", "fwd", 4, 64, 8, 16)
    ]


def test_xla_transposes_weights_for_its_kernel() -> None:
    """What is contracted is told by the weights as they come into the program."""
    text = kernel("ragged-dot-none", "[64,16]", "[4,16,16]{1,2,0}", "[64,16]").replace(
        "custom-call(table, x, w)", "custom-call(table, x, t)"
    )
    text = text.replace("  ROOT c", "  t = bf16[4,16,16]{2,1,0} bitcast(w)\n  ROOT c")
    assert ask(text, "select class from ragged_dots") == [("dgrad",)]
    rows = text.replace("bitcast(w)", "copy(w)")
    assert ask(rows, "select class from ragged_dots") == [("fwd",)]


# ---------------------------------------------------------------------------------- TPU


def native(config: str, labels: str = "0bf_0io->0bf") -> str:
    """[4,64,16] x [4,16,16], rows laid out for every group, what is another group's masked."""
    return f"""\
HloModule m, is_scheduled=true
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
inner {{
  w = f32[4,16,16] parameter(0)
  x = f32[64,16] parameter(1)
  mask = pred[4,64] parameter(2)
  rows = f32[4,64,16] broadcast(x), dimensions={{1,2}}
  conv = f32[4,64,16] convolution(rows, w), window={{size=4 stride=3 lhs_dilate=4}}, \
dim_labels={labels}
  m = pred[4,64,16] broadcast(mask), dimensions={{0,1}}
  z = f32[] constant(0)
  zs = f32[4,64,16] broadcast(z), dimensions={{}}
  s = f32[4,64,16] select(m, conv, zs)
  ROOT r = f32[64,16] reduce(s, z), dimensions={{0}}, to_apply=sum
}}
outer {{
  w = f32[4,16,16] parameter(0)
  x = f32[64,16] parameter(1)
  mask = pred[4,64] parameter(2)
  ROOT f = f32[64,16] fusion(w, x, mask), kind=kOutput, calls=inner, \
metadata={{op_name="jit(f)/ragged_dot_general"}}{config}
}}
ENTRY main {{
  w = f32[4,16,16] parameter(0)
  x = f32[64,16] parameter(1)
  mask = pred[4,64] parameter(2)
  ROOT g = f32[64,16] fusion(w, x, mask), kind=kCustom, calls=outer, \
metadata={{op_name="jit(f)/ragged_dot_general"}}{config}
}}
"""


SKIPS = (
    ', backend_config={"mask_aggregator_config":{"mask_dim_to_iteration_index":["1","2"],'
    '"iteration_skipper_mode":"ITERATION_SKIPPER_MODE_GROUP_STARTS"}}'
)
SAYS = ', backend_config={"convolution_algorithm_config":{"is_ragged_dot":true}}'


@pytest.mark.parametrize("config", [SKIPS, SAYS])
def test_a_native_ragged_dot_is_one_row_however_many_fusions_say_so(config: str) -> None:
    text = native(config)
    sql = f"select class, variant, lowering, {SIZES}, flops, factor from ragged_dots"
    useful = 2 * 64 * 16 * 16
    expected = ("fwd", "non_contracting", "tpu_native", 4, 64, 16, 16, useful, 1.0)
    assert ask(text, sql) == [expected]
    assert members(text) == [("convolution", "conv"), ("fusion", "f"), ("fusion", "g")]
    check_table(text, "ragged_dots")


def test_labels_say_which_dimension_of_the_weights_is_contracted() -> None:
    text = native(SKIPS, "0bf_0oi->0bf")
    assert ask(text, "select class from ragged_dots") == [("dgrad",)]


def test_a_dense_product_of_a_tpu_looks_alike_and_is_none() -> None:
    """True dense has neither word in its config (definitions.md)."""
    for config in ("", SAYS.replace("true", "false"), SKIPS.replace("GROUP_STARTS", "NONE")):
        text = native(config).replace("ragged_dot_general", "dot_general")
        assert len(ask(text, "select * from matmuls")) == 1
        assert ask(text, "select * from ragged_dots") == []
