"""Ragged dots that became dense products, why, and what looks like them and is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import AFTER, Program
from tests.mutate import check_table
from tests.passes.asking import ask
from tests.passes.test_ragged_dots import SIZES, findings, members

MASK = """\
sum {
  p = s32[] parameter(0)
  q = s32[] parameter(1)
  ROOT pq = s32[] add(p, q)
}
fsum {
  fp = f32[] parameter(0)
  fq = f32[] parameter(1)
  ROOT fpq = f32[] add(fp, fq)
}
"""


def mask(width: str = "", of: str = "sizes", then: str = "LT", at: int = 1) -> str:
    """Whether a row [G,M] lies in a group: a sum of sizes up to its start and up to its end."""
    return f"""\
  zero = s32[] constant(0)
  ends = s32[4] reduce-window({of}, zero), window={{size=4 pad=3_0}}, to_apply=sum
  first = s32[1] constant({{0}})
  some = s32[3] slice(ends), slice={{[0:3]}}
  starts = s32[4] concatenate(first, some), dimensions={{0}}
  from{width} = s32[4,64] broadcast(starts), dimensions={{0}}
  to{width} = s32[4,64] broadcast(ends), dimensions={{0}}
  row{width} = s32[4,64] iota(), iota_dimension={at}
  behind{width} = pred[4,64] compare(from{width}, row{width}), direction=LE
  before{width} = pred[4,64] compare(row{width}, to{width}), direction={then}
  in{width} = pred[4,64] and(behind{width}, before{width})
"""


def masked(name: str, of: str, width: int) -> str:
    return f"""\
  wide.{name} = pred[4,64,{width}] broadcast(in), dimensions={{0,1}}
  each.{name} = f32[4,64,{width}] broadcast({of}), dimensions={{1,2}}
  z.{name} = f32[] constant(0)
  zs.{name} = f32[4,64,{width}] broadcast(z.{name}), dimensions={{}}
  kept.{name} = f32[4,64,{width}] select(wide.{name}, each.{name}, zs.{name})
"""


def padded(
    weights: str = "w = f32[4,16,16] parameter(1)",
    product: str = "  ROOT d = f32[64,16] dot(kept.x, w), lhs_contracting_dims={0,2},"
    " rhs_contracting_dims={0,1}\n",
    rows: str = masked("x", "x", 16),
    mask: str = mask(),
) -> str:
    return f"""\
HloModule m, is_scheduled=true
{MASK}
ENTRY main {{
  x = f32[64,16] parameter(0)
  {weights}
  sizes = s32[4] parameter(2)
{mask}{rows}{product}}}
"""


def test_all_groups_and_k_at_once_is_a_padded_ragged_dot() -> None:
    text = padded()
    sql = f"select class, variant, lowering, {SIZES}, flops, useful_flops, factor, split_k"
    useful = 2 * 64 * 16 * 16
    expected = ("fwd", "non_contracting", "dense_padded", 4, 64, 16, 16, 4 * useful, useful, 4.0, 1)
    assert ask(text, f"{sql} from ragged_dots") == [expected]
    assert members(text) == [
        ("compare", "before"), ("compare", "behind"), ("dot", "d"), ("mask", "kept.x"),
    ]  # fmt: skip
    assert json.loads(str(ask(text, "select evidence from ragged_dots")[0][0]))[:3] == [
        "mask", "iota compare", "cumulative group sizes",
    ]  # fmt: skip
    check_table(text, "ragged_dots")


def test_the_masked_copy_less_the_rows_is_extra() -> None:
    text = padded()
    assert ask(text, "select extra_bytes from ragged_dots") == [(4 * 64 * 16 * 4 - 64 * 16 * 4,)]
    before = text.replace(", is_scheduled=true", "")
    sql = "select extra_bytes, why_not_grouped from ragged_dots"
    assert ask(before, sql) == [(None, None)]
    assert findings(before) == []


def test_the_weights_tell_forward_from_data_gradient_where_sizes_are_the_same() -> None:
    product = (
        "  ROOT d = f32[64,16] dot(kept.x, w), lhs_contracting_dims={0,2},"
        " rhs_contracting_dims={0,2}\n"
    )
    assert ask(padded(product=product), "select class from ragged_dots") == [("dgrad",)]
    moved = (
        "  t = f32[4,16,16] transpose(w), dimensions={0,2,1}\n"
        "  b = f32[64,16] bitcast(t)\n"
        "  r = f32[64,4,16] transpose(kept.x), dimensions={1,0,2}\n"
        "  a = f32[64,64] reshape(r)\n"
        "  ROOT d = f32[64,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    )
    text = padded(product=moved)
    assert ask(text, f"select class, {SIZES} from ragged_dots") == [("dgrad", 4, 64, 16, 16)]
    check_table(text, "ragged_dots")


@pytest.mark.parametrize(("slices", "each"), [(8, 8), (4, 16), (2, 32)])
def test_slices_of_the_sum_are_not_groups(slices: int, each: int) -> None:
    """Split K: eight slices of 8 cut K, four of 16 are the groups, two of 32 hold two groups."""
    product = f"""\
  r = f32[64,4,16] transpose(kept.x), dimensions={{1,0,2}}
  a = f32[64,{slices},{each}] bitcast(r)
  b = f32[{slices},{each},16] bitcast(w)
  d = f32[{slices},64,16] dot(a, b), lhs_batch_dims={{1}}, lhs_contracting_dims={{2}}, \
rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
  fz = f32[] constant(0)
  ROOT s = f32[64,16] reduce(d, fz), dimensions={{0}}, to_apply=fsum
"""
    text = padded(product=product)
    expected = ("fwd", 4, 64, 16, 16, 4.0, slices)
    assert ask(text, f"select class, {SIZES}, factor, split_k from ragged_dots") == [expected]
    assert ("reduce", "s") in members(text)
    copies = 2 * 4 * 64 * 16 * 4 - 64 * 16 * 4
    assert ask(text, "select extra_bytes from ragged_dots") == [(copies + slices * 64 * 16 * 4,)]


def test_slices_may_cut_across_groups() -> None:
    """6 groups of 16 in 4 slices of 24."""
    text = padded(
        weights="w = f32[6,16,8] parameter(1)",
        product="""\
  r = f32[64,6,16] transpose(kept.x), dimensions={1,0,2}
  a = f32[64,4,24] bitcast(r)
  b = f32[4,24,8] bitcast(w)
  d = f32[4,64,8] dot(a, b), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, \
rhs_contracting_dims={1}
  fz = f32[] constant(0)
  ROOT s = f32[64,8] reduce(d, fz), dimensions={0}, to_apply=fsum
""",
    )
    text = text.replace("s32[4,64]", "s32[6,64]").replace("pred[4,64", "pred[6,64")
    text = text.replace("s32[4]", "s32[6]").replace("f32[4,64,16]", "f32[6,64,16]")
    text = text.replace("s32[3]", "s32[5]").replace("[0:3]", "[0:5]").replace("size=4", "size=6")
    text = text.replace("pad=3_0", "pad=5_0")
    expected = ("fwd", 6, 64, 8, 16, 6.0, 4)
    assert ask(text, f"select class, {SIZES}, factor, split_k from ragged_dots") == [expected]


def test_a_batch_that_nobody_adds_up_is_another_product() -> None:
    product = """\
  ROOT d = f32[4,64,16] dot(kept.x, w), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}
"""
    assert ask(padded(product=product), "select * from ragged_dots") == []


WEIGHT_GRADIENT = padded(
    weights="y = f32[64,8] parameter(1)",
    rows=masked("x", "x", 16) + masked("y", "y", 8),
    product="  ROOT d = f32[4,16,8] dot(kept.x, kept.y), lhs_batch_dims={0},"
    " lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={1}\n",
)


def test_a_weight_gradient_sums_all_rows_for_each_group() -> None:
    sql = f"select class, variant, {SIZES}, flops, factor from ragged_dots"
    expected = ("wgrad", "contracting", 4, 16, 8, 64, 4 * 2 * 16 * 8 * 64, 4.0)
    assert ask(WEIGHT_GRADIENT, sql) == [expected]
    check_table(WEIGHT_GRADIENT, "ragged_dots")


def test_fused_masks_write_nothing() -> None:
    text = f"""\
HloModule m, is_scheduled=true
{MASK}
inside {{
  x = f32[64,16] parameter(0)
  w = f32[4,16,16] parameter(1)
  sizes = s32[4] parameter(2)
{mask()}{masked("x", "x", 16)}\
  ROOT d = f32[64,16] dot(kept.x, w), lhs_contracting_dims={{0,2}}, rhs_contracting_dims={{0,1}}
}}
ENTRY main {{
  a = f32[64,16] parameter(0)
  b = f32[4,16,16] parameter(1)
  c = s32[4] parameter(2)
  ROOT f = f32[64,16] fusion(a, b, c), kind=kCustom, calls=inside
}}
"""
    assert ask(text, "select lowering, extra_bytes from ragged_dots") == [("dense_padded", 0)]


# ---------------------------------------------------------------------------------- twins


def test_a_mask_of_two_iotas_is_causal() -> None:
    causal = """\
  column = s32[4,64] iota(), iota_dimension=0
  row = s32[4,64] iota(), iota_dimension=1
  in = pred[4,64] compare(row, column), direction=LE
"""
    assert ask(padded(mask=causal), "select * from ragged_dots") == []


def test_a_mask_by_equality_is_routing() -> None:
    """Dense masked experts: each row through every expert, those not chosen masked."""
    one_hot = """\
  expert = s32[4,64] iota(), iota_dimension=0
  chosen = s32[64] parameter(3)
  of = s32[4,64] broadcast(chosen), dimensions={1}
  in = pred[4,64] compare(expert, of), direction=EQ
"""
    assert ask(padded(mask=one_hot), "select * from ragged_dots") == []
    along_groups = one_hot.replace("direction=EQ", "direction=LT")
    assert len(ask(padded(mask=along_groups), "select * from ragged_dots")) <= 1


def test_a_mask_by_an_integer_for_all_rows_of_no_group_is_none() -> None:
    text = padded(mask=mask(at=0))  # counts the groups instead of the rows
    assert ask(text, "select * from ragged_dots") == []


def test_rows_that_each_sequence_has_of_its_own_are_padded_no_ragged() -> None:
    """A batched dot with a padding mask: lengths of four sequences, each with its own rows."""
    own = masked("x", "x", 16).replace(
        "each.x = f32[4,64,16] broadcast(x), dimensions={1,2}", "each.x = f32[4,64,16] copy(x)"
    )
    text = padded(rows=own).replace("x = f32[64,16] parameter(0)", "x = f32[4,64,16] parameter(0)")
    assert len(ask(text, "select * from matmuls")) == 1
    assert ask(text, "select * from ragged_dots") == []


def test_a_select_of_something_else_than_zero_is_none() -> None:
    text = padded(rows=masked("x", "x", 16).replace("constant(0)", "constant(1)"))
    assert ask(text, "select * from ragged_dots") == []


def test_rows_for_one_group_are_masked_as_padding_is_and_need_a_name() -> None:
    text = """\
HloModule m, is_scheduled=true
ENTRY main {
  x = f32[64,16] parameter(0)
  w = f32[1,16,8] parameter(1)
  size = s32[] parameter(2)
  row = s32[64,16] iota(), iota_dimension=0
  end = s32[64,16] broadcast(size), dimensions={}
  in = pred[64,16] compare(row, end), direction=LT
  z = f32[] constant(0)
  zs = f32[64,16] broadcast(z), dimensions={}
  kept = f32[64,16] select(in, x, zs)
  b = f32[16,8] bitcast(w)
  ROOT d = f32[64,8] dot(kept, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(f)/ragged_dot_general"}
}
"""
    sql = f"select class, lowering, {SIZES}, factor from ragged_dots"
    assert ask(text, sql) == [("fwd", "dense_padded", 1, 64, 8, 16, 1.0)]
    assert findings(text) == []
    assert ask(text.replace("ragged_dot_general", "dot_general"), sql) == []


def test_only_a_name_tells_a_ragged_batch() -> None:
    text = """\
HloModule m, is_scheduled=true
ENTRY main {
  x = f32[4,64,16] parameter(0)
  w = f32[4,16,8] parameter(1)
  ROOT d = f32[4,64,8] dot(x, w), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}, metadata={op_name="jit(f)/ragged_dot_general"}
}
"""
    sql = f"select class, variant, lowering, {SIZES}, factor, extra_bytes from ragged_dots"
    assert ask(text, sql) == [(None, "batch", "dense_padded", 4, 64, 8, 16, 1.0, 0)]
    assert findings(text) == []
    assert ask(text.replace("ragged_dot_general", "dot_general"), sql) == []


# ---------------------------------------------------------------------------------- why not


def why(
    text: str, tmp_path: Path, target: dict[str, object], flags: list[str]
) -> tuple[object, ...]:
    """why_not_grouped and checks of a compile for a target with some flags."""
    file = tmp_path / "provenance.json"
    file.write_text(json.dumps({"target": target, "flags": flags}))
    program = Program([parse(text)], [AFTER], side_files={"provenance.json": file})
    return run_query([Facts(program)], "select why_not_grouped, checks from ragged_dots").rows[0]


F16 = padded().replace("f32", "f16")
BF16 = padded().replace("f32", "bf16")
OFF = "--xla_gpu_experimental_use_ragged_dot_grouped_gemm=false"
GFX950 = {"platform": "rocm", "chip": "gfx950"}
GFX942 = {"platform": "rocm", "chip": "gfx942"}
H100 = {"platform": "cuda", "chip": "h100"}


@pytest.mark.parametrize(
    ("text", "target", "flags", "begins"),
    [
        (F16, GFX950, [OFF], "not enabled: hipBLASLt: --xla_gpu_experimental_use_ragged"),
        (BF16, GFX950, [], "not supported: hipBLASLt takes f16 on gfx950, not bf16"),
        (BF16, GFX942, [OFF], "not enabled: hipBLASLt: --"),
        (padded(), GFX942, [], "not supported: hipBLASLt takes f16 or bf16 on gfx942, not f32"),
        (F16, {"platform": "rocm", "chip": "gfx90a"}, [], "not supported: hipBLASLt groups on"),
        (F16, GFX950, ["--xla_gpu_enable_cublaslt=false"], "not enabled: hipBLASLt: --xla_gpu"),
        (F16, H100, [], "not enabled: cuDNN: --xla_gpu_experimental_use_ragged_dot_fusion"),
        (padded(), H100, [], "not supported: cuDNN takes f16 or bf16, not f32"),
        (F16, {"platform": "cuda", "chip": "v100"}, [], "not supported: cuDNN needs"),
        (
            F16,
            H100,
            ["--xla_gpu_experimental_use_ragged_dot_fusion=true"],
            "unknown: cuDNN has to be",
        ),
        (F16, {"platform": "cpu"}, [], "not supported: CPU"),
        (F16, {"platform": "tpu", "chip": "v6e"}, [], "unknown: TPU"),
        (F16, GFX950, [], "unknown: every condition that is known holds"),
        (F16, {}, [], "unknown: GPU: the text does not tell CUDA from ROCm"),
        (padded(), {}, [], "not supported: cuDNN takes f16 or bf16, not f32"),
    ],
)
def test_why_it_is_not_grouped(
    text: str, target: dict[str, object], flags: list[str], begins: str, tmp_path: Path
) -> None:
    answer, checks = why(text, tmp_path, target, flags)
    assert str(answer).startswith(begins)
    for check in json.loads(str(checks)):
        assert set(check) == {"rule", "answer", "why"}
        assert check["answer"] in ("yes", "no", "unknown")


def test_flags_of_another_compile_stand_in_its_environment(tmp_path: Path) -> None:
    """As a dump of XLA has them beside it, under its name of the chip."""
    file = tmp_path / "provenance.json"
    file.write_text(json.dumps({"environment": {"XLA_FLAGS": f"--xla_dump_to=/tmp {OFF}"}}))
    module = parse(F16, filename="gfx950_gpu_after_optimizations.txt")
    program = Program([module], [AFTER], side_files={"provenance.json": file})
    (row,) = run_query([Facts(program)], "select why_not_grouped from ragged_dots").rows
    assert row == (f"not enabled: hipBLASLt: {OFF}",)


def test_flags_that_nobody_tells_are_not_known() -> None:
    (row,) = ask(F16, "select why_not_grouped from ragged_dots")
    assert str(row[0]).startswith("unknown: ")


def test_the_finding_says_what_it_costs() -> None:
    (message,) = findings(padded())
    assert "4 times the useful FLOP and 12,288 extra bytes" in message
