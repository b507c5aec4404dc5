"""The matmuls table: operands made wide again from fp8, and the rule on fp8 gemms not used."""

from __future__ import annotations

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask, findings

# As a GPU runs it: each operand is dequantised in a fusion of its own.
WIDE = """\
HloModule m, is_scheduled=true
left {
  p = f8e4m3fn[128,256]{1,0} parameter(0)
  s = f32[] parameter(1)
  c = bf16[128,256]{1,0} convert(p)
  t = bf16[] convert(s)
  b = bf16[128,256]{1,0} broadcast(t), dimensions={}
  ROOT m = bf16[128,256]{1,0} multiply(c, b)
}
right {
  p = f8e4m3fn[256,64]{1,0} parameter(0)
  s = f32[] parameter(1)
  c = bf16[256,64]{1,0} convert(p)
  t = bf16[] convert(s)
  b = bf16[256,64]{1,0} broadcast(t), dimensions={}
  ROOT m = bf16[256,64]{1,0} multiply(b, c)
}
ENTRY main {
  x = f8e4m3fn[128,256]{1,0} parameter(0)
  w = f8e4m3fn[256,64]{1,0} parameter(1)
  xs = f32[] parameter(2)
  ws = f32[] parameter(3)
  l = bf16[128,256]{1,0} fusion(x, xs), kind=kLoop, calls=left
  r = bf16[256,64]{1,0} fusion(w, ws), kind=kLoop, calls=right
  ROOT d = bf16[128,64]{1,0} dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SCALED = "lhs f8e4m3fn->bf16 × scalar, rhs f8e4m3fn->bf16 × scalar"


def dequantized(text: str) -> object:
    ((found,),) = ask(text, "select dequantized from matmuls")
    return found


def said(text: str) -> list[str]:
    """The messages of the rule on fp8."""
    return [message for rule, message in findings(text, "matmuls") if rule == "fp8-not-used"]


def levels(text: str) -> list[tuple[object, ...]]:
    return ask(text, "select level from findings where rule = 'fp8-not-used'")


def test_operands_from_fp8_are_told_and_a_wide_matmul_of_them_is_a_finding() -> None:
    assert dequantized(WIDE) == SCALED
    assert levels(WIDE) == [("warning",)]
    (message,) = said(WIDE)
    assert message == (
        f"both operands come from fp8 ({SCALED}), but it runs in bf16×bf16: XLA had no fp8"
        " gemm for it: too old a GPU, CUDA or ROCm, or a compile that did not know them"
    )
    sql = (
        "select i.name from members join instructions i using (module, instr)"
        " where \"table\" = 'matmuls' and role = 'dequantize'"
    )
    assert ask(WIDE, sql) == [("c",), ("c",)]
    check_table(WIDE, "select dequantized from matmuls")


def test_before_optimization_it_is_how_an_fp8_matmul_is_written() -> None:
    before = WIDE.replace(", is_scheduled=true", "")
    assert dequantized(before) == SCALED
    assert said(before) == []


def test_an_fp8_matmul_has_nothing_dequantised() -> None:
    call = WIDE.replace(
        "dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        'custom-call(x, w, xs, ws), custom_call_target="__cublas$lt$matmul$f8",'
        ' backend_config={"gemm_backend_config":{"dot_dimension_numbers":{'
        '"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],'
        '"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}',
    )
    assert ask(call, "select lhs_dtype, rhs_dtype, dequantized, m from matmuls") == [
        ("f8e4m3fn", "f8e4m3fn", None, 128)
    ]
    assert said(call) == []
    dot = WIDE.replace("dot(l, r)", "dot(x, w)")
    assert (dequantized(dot), said(dot)) == (None, [])


@pytest.mark.parametrize("dtype", ["bf16", "s8", "f8e8m0fnu", "f4e2m1fn"])
def test_what_comes_from_other_dtypes_is_not_of_fp8(dtype: str) -> None:
    other = WIDE.replace("f8e4m3fn", dtype)
    assert (dequantized(other), said(other)) == (None, [])


def test_one_operand_from_fp8_is_a_note() -> None:
    weights = WIDE.replace("f8e4m3fn[128,256]", "bf16[128,256]")
    assert dequantized(weights) == "rhs f8e4m3fn->bf16 × scalar"
    assert levels(weights) == [("note",)]
    (message,) = said(weights)
    assert message.startswith("one operand comes from fp8 (rhs f8e4m3fn->bf16 × scalar)")
    assert "the other is bf16" in message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"f8e4m3fn": "f8e5m2"}, "no fp8 gemm takes two e5m2 operands"),
        ({"f8e4m3fn": "f8e4m3b11fnuz"}, "no fp8 gemm takes f8e4m3b11fnuz"),
        (
            {
                "xs = f32[] ": "xs = f32[128] ",
                "  s = f32[] parameter(1)\n  c = bf16[128,256]": (
                    "  s = f32[128] parameter(1)\n  c = bf16[128,256]"
                ),
                "  t = bf16[] convert(s)\n  b = bf16[128,256]{1,0} broadcast(t), dimensions={}": (
                    "  t = bf16[128] convert(s)\n"
                    "  b = bf16[128,256]{1,0} broadcast(t), dimensions={0}"
                ),
            },
            "the scale of lhs is no scalar",
        ),
        (
            {
                "c = bf16[128,256]": "c = f32[128,256]",
                "  b = bf16[128,256]": "  b = f32[128,256]",
                "ROOT m = bf16[128,256]{1,0} multiply(c, b)": (
                    "m = f32[128,256]{1,0} multiply(c, b)\n  ROOT n = bf16[128,256]{1,0} convert(m)"
                ),
            },
            "what is scaled of lhs is converted once more",
        ),
    ],
)
def test_why_there_is_no_fp8_gemm(changes: dict[str, str], why: str) -> None:
    text = WIDE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (message,) = said(text)
    assert why in message


def test_more_dimensions_than_a_gemm_has() -> None:
    text = WIDE.replace("[256,64]", "[256,8,8]").replace("{1,0} parameter(1)", " parameter(1)")
    text = text.replace("[256,8,8]{1,0}", "[256,8,8]").replace("bf16[128,64]{1,0}", "bf16[128,8,8]")
    assert dequantized(text) == SCALED
    (message,) = said(text)
    assert "one contracted and one other dimension" in message


def test_e5m2_with_e4m3_is_a_pair_that_gemms_take() -> None:
    mixed = WIDE.replace("f8e4m3fn[256,64]", "f8e5m2[256,64]")
    (message,) = said(mixed)
    assert "too old a GPU, CUDA or ROCm" in message


@pytest.mark.parametrize(
    ("config", "platform"),
    [
        ('backend_config={"fusion_config":{"kind":"__ynn_fusion"}}', "cpu"),
        ('backend_config={"flag_configs":[],"scoped_memory_configs":[]}', "tpu"),
    ],
)
def test_other_platforms_have_no_such_rewrite(config: str, platform: str) -> None:
    text = WIDE.replace("calls=left", f"calls=left, {config}")
    if platform == "tpu":
        text = text.replace("bf16[128,256]{1,0}", "bf16[128,256]{1,0:T(8,128)(2,1)}")
    assert levels(text) == [("note",)]
    (message,) = said(text)
    assert f"XLA for {platform} has no rewrite of this form" in message


# -- what may stand between

CHAIN = """\
HloModule m, is_scheduled=true
ENTRY main {
  x = f8e4m3fn[256,128]{1,0} parameter(0)
  w = bf16[256,64]{1,0} parameter(1)
  c = bf16[256,128]{1,0} convert(x)
  BETWEEN
  ROOT d = bf16[128,64]{1,0} dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("t = bf16[128,256]{1,0} transpose(c), dimensions={1,0}", "lhs f8e4m3fn->bf16"),
        (
            "y = bf16[128,256]{0,1} bitcast(c)\n  t = bf16[128,256]{1,0} copy(y)",
            "lhs f8e4m3fn->bf16",
        ),
        (
            "s = bf16[] constant(2)\n  b = bf16[256,128]{1,0} broadcast(s), dimensions={}\n"
            "  y = bf16[256,128]{1,0} divide(c, b)\n"
            "  t = bf16[128,256]{1,0} transpose(y), dimensions={1,0}",
            "lhs f8e4m3fn->bf16 × scalar",
        ),
        # What is divided by it is no dequantisation of it.
        (
            "s = bf16[] constant(2)\n  b = bf16[256,128]{1,0} broadcast(s), dimensions={}\n"
            "  y = bf16[256,128]{1,0} divide(b, c)\n"
            "  t = bf16[128,256]{1,0} transpose(y), dimensions={1,0}",
            None,
        ),
        ("y = bf16[256,128]{1,0} multiply(c, c)\n  t = bf16[128,256]{0,1} bitcast(y)", None),
        ("y = bf16[256,128]{1,0} exponential(c)\n  t = bf16[128,256]{0,1} bitcast(y)", None),
        ("y = bf16[256,128]{1,0} add(c, c)\n  t = bf16[128,256]{0,1} bitcast(y)", None),
    ],
)
def test_what_moves_or_scales_a_value_is_passed_and_what_computes_is_not(
    between: str, found: str | None
) -> None:
    assert dequantized(CHAIN.replace("BETWEEN", between)) == found


def test_a_convolution_of_a_tpu_has_operands_too() -> None:
    text = WIDE.replace(
        "dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "convolution(l, r), dim_labels=bf_io->bf",
    )
    assert dequantized(text) == SCALED
