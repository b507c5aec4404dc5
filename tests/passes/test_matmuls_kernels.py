"""The matmuls table: kernels around dots, contractions cut in slices, grouped kernels, scratch."""

from __future__ import annotations

import json

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask

# -- tiles and launch of Triton fusions

FUSION = """\
HloModule m, is_scheduled=true
fused {
  a = bf16[64,128]{1,0} parameter(0)
  b = bf16[128,32]{1,0} parameter(1)
  ROOT d = f32[64,32]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
      backend_config={"sizes":["16"]}
}
ENTRY main {
  x = bf16[64,128]{1,0} parameter(0)
  y = bf16[128,32]{1,0} parameter(1)
  ROOT f = f32[64,32]{1,0} fusion(x, y), kind=kCustom, calls=fused, backend_config=CONFIG
}
"""
NESTED = (
    '{"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":'
    '{"num_warps":"2","output_tiles":[{"sizes":["16","8"]}],"num_ctas":1,"num_stages":4}}}'
)
BLOCKS = (
    '"triton_gemm_config":{"block_m":"64","block_n":"256","block_k":"32","split_k":"SPLIT",'
    '"num_stages":"3","num_warps":"8"}'
)
OF_2023 = f'{{"kind":"__triton_gemm",{BLOCKS}}}'
OF_2024 = f'{{"fusion_backend_config":{{"kind":"__triton_gemm",{BLOCKS}}}}}'


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (NESTED, ({"output": [16, 8], "contracted": [16]}, 2, 4, None)),
        (OF_2023.replace("SPLIT", "1"), ({"output": [64, 256], "contracted": [32]}, 8, 3, 1)),
        (OF_2024.replace("SPLIT", "4"), ({"output": [64, 256], "contracted": [32]}, 8, 3, 4)),
        ('{"fusion_backend_config":{"kind":"__triton_gemm"}}', (None, None, None, None)),
    ],
)
def test_tiles_warps_and_stages_of_a_triton_fusion(
    config: str, expected: tuple[object, ...]
) -> None:
    sql = "select backend, tiles, num_warps, num_stages, split_k from matmuls"
    ((backend, tiles, *launch),) = ask(FUSION.replace("CONFIG", config), sql)
    assert backend == "triton"
    assert (tiles and json.loads(str(tiles)), *launch) == expected


def test_a_fused_dot_and_a_kernel_under_rewrites() -> None:
    check_table(FUSION.replace("CONFIG", NESTED), "matmuls")
    check_table(SPLIT, "matmuls")
    # A kernel's name stands in its metadata.
    check_table(GMM, "matmuls", skip=("strip-metadata",))


def test_a_launch_that_is_no_number_is_not_known() -> None:
    broken = OF_2023.replace("SPLIT", "x").replace('"64"', "[]").replace('"8"', "true")
    sql = "select tiles, num_warps, split_k from matmuls"
    ((tiles, *others),) = ask(FUSION.replace("CONFIG", broken), sql)
    assert (json.loads(str(tiles)), others) == ({"contracted": [32]}, [None, None])


# -- contractions that are cut

SPLIT = """\
HloModule m
add {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r)
}
product {
  a = bf16[64,8,64]{2,1,0} parameter(0)
  b = bf16[8,64,32]{2,1,0} parameter(1)
  ROOT d = f32[8,64,32]{2,1,0} dot(a, b), lhs_batch_dims={1}, lhs_contracting_dims={2},
      rhs_batch_dims={0}, rhs_contracting_dims={1}
}
sum {
  p = f32[8,64,32]{2,1,0} parameter(0)
  zero = f32[] constant(0)
  r = f32[64,32]{1,0} reduce(p, zero), dimensions={0}, to_apply=add
  ROOT c = bf16[64,32]{1,0} convert(r)
}
ENTRY main {
  x = bf16[64,512]{1,0} parameter(0)
  w = bf16[512,32]{1,0} parameter(1)
  xs = bf16[64,8,64]{2,1,0} bitcast(x)
  ws = bf16[8,64,32]{2,1,0} bitcast(w)
  f = f32[8,64,32]{2,1,0} fusion(xs, ws), kind=kCustom, calls=product
  ROOT g = bf16[64,32]{1,0} fusion(f), kind=kLoop, calls=sum
}
"""
SLICES = "select batch, m, n, k, flops, split_k from matmuls"


def test_a_batch_that_every_use_sums_over_is_a_cut_contraction() -> None:
    flops = 2 * 64 * 512 * 32
    assert ask(SPLIT, SLICES) == [(8, 64, 32, 64, flops, 8)]
    check_table(SPLIT, SLICES)
    # The split is a batch dimension behind the batch that the dot had before.
    both = SPLIT.replace("bf16[64,8,64]{2,1,0}", "bf16[2,64,8,64]{3,2,1,0}")
    both = both.replace("bf16[8,64,32]{2,1,0}", "bf16[2,8,64,32]{3,2,1,0}")
    both = both.replace("f32[8,64,32]{2,1,0}", "f32[2,8,64,32]{3,2,1,0}")
    both = both.replace("bf16[64,32]{1,0}", "bf16[2,64,32]{2,1,0}")
    both = both.replace("f32[64,32]{1,0}", "f32[2,64,32]{2,1,0}")
    both = both.replace("lhs_batch_dims={1}, lhs_contracting_dims={2}", "BATCH")
    both = both.replace("rhs_batch_dims={0}, rhs_contracting_dims={1}", "CONTRACTED")
    both = both.replace("BATCH", "lhs_batch_dims={0,2}, lhs_contracting_dims={3}")
    both = both.replace("CONTRACTED", "rhs_batch_dims={0,1}, rhs_contracting_dims={2}")
    assert ask(both.replace("dimensions={0}", "dimensions={1}"), SLICES) == [
        (16, 64, 32, 64, 2 * flops, 8)
    ]
    # The sum over the batch that it had is another one.
    assert ask(both, "select split_k from matmuls") == [(None,)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dimensions={0}", "dimensions={1}"),  # sums over rows
        ("s = f32[] add(l, r)", "s = f32[] maximum(l, r)"),
        ("ROOT c = bf16[64,32]{1,0} convert(r)", "ROOT c = f32[8,64,32]{2,1,0} tanh(p)"),
        ("lhs_batch_dims={1}", "lhs_batch_dims={0}"),  # does not stand before what is contracted
    ],
)
def test_a_batch_that_looks_alike_cuts_nothing(old: str, new: str) -> None:
    assert old in SPLIT
    assert ask(SPLIT.replace(old, new), "select split_k from matmuls") == [(None,)]


@pytest.mark.parametrize(
    ("view", "over", "slices"),
    [
        ("f32[8,32,64]{1,2,0} bitcast(p)", 0, 8),  # as a gemm gives what is stored the other way
        ("f32[64,8,32]{2,0,1} bitcast(p)", 1, 8),
        ("f32[64,8,32]{2,0,1} bitcast(p)", 0, None),  # sums over rows
        ("f32[8,2048]{1,0} reshape(p)", 0, 8),
        ("f32[4,2,64,32]{3,2,1,0} reshape(p)", 0, None),  # a part of the slices
        ("f32[512,32]{1,0} reshape(p)", 0, None),
    ],
)
def test_slices_are_followed_through_views(view: str, over: int, slices: int | None) -> None:
    text = SPLIT.replace("  zero =", f"  v = {view}\n  zero =")
    text = text.replace(
        "reduce(p, zero), dimensions={0}", f"reduce(v, zero), dimensions={{{over}}}"
    )
    assert ask(text, "select split_k from matmuls") == [(slices,)]


def test_one_more_use_of_the_products_makes_it_a_batch() -> None:
    used = SPLIT.replace("ROOT g =", "g =").replace(
        "calls=sum\n", "calls=sum\n  ROOT t = (f32[8,64,32], bf16[64,32]) tuple(n, g)\n"
    )
    used = used.replace("  g =", "  n = f32[8,64,32]{2,1,0} negate(f)\n  g =")
    assert ask(used, "select split_k from matmuls") == [(None,)]


def test_a_gemm_call_may_be_cut_too_and_says_its_scratch() -> None:
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"],'
        '"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":["1"],'
        '"rhs_batch_dimensions":["0"]},"epilogue":"DEFAULT"}}'
    )
    text = SPLIT.replace(
        "f = f32[8,64,32]{2,1,0} fusion(xs, ws), kind=kCustom, calls=product",
        "k = (f32[8,64,32]{2,1,0}, s8[4096]{0}) custom-call(xs, ws),"
        f' custom_call_target="__cublas$lt$matmul", backend_config={config}\n'
        "  f = f32[8,64,32]{2,1,0} get-tuple-element(k), index=0",
    )
    sql = "select target, batch, k, split_k, workspace_bytes from matmuls where form != 'dot'"
    assert ask(text, sql) == [("__cublas$lt$matmul", 8, 64, 8, 4096)]
    check_table(text, sql)
    no_scratch = text.replace("s8[4096]{0}", "f32[1024]{0}")
    assert ask(no_scratch, sql) == [("__cublas$lt$matmul", 8, 64, 8, None)]


# -- grouped kernels

KERNEL = """\
HloModule m, is_scheduled=true
ENTRY main {
  tables = s32[5]{0} parameter(0)
  first = s32[1]{0} parameter(1)
  a = LHS parameter(2)
  b = RHS parameter(3)
  ROOT NAME = OUT custom-call(tables, first, a, b), custom_call_target="tpu_custom_call",
      metadata={op_name="jit(f)/NAME/pallas_call"},
      backend_config={"custom_call_config":{"body":"TUzvUg=="}}
}
"""
GROUPED = "select form, ragged, lhs_dtype, batch, m, n, k, groups, flops from matmuls"


def kernel(name: str, lhs: str, rhs: str, out: str) -> str:
    text = KERNEL.replace("NAME", name).replace("LHS", lhs).replace("RHS", rhs)
    return text.replace("OUT", out)


GMM = kernel("gmm", "bf16[64,128]{1,0}", "bf16[4,128,32]{2,1,0}", "f32[64,32]{1,0}")
FLOPS = 2 * 64 * 128 * 32


@pytest.mark.parametrize(
    ("name", "lhs", "rhs", "out", "sizes"),
    [
        ("gmm", "bf16[64,128]", "bf16[4,128,32]", "f32[64,32]", (64, 32, 128)),
        ("gmm", "bf16[64,128]", "bf16[4,32,128]", "f32[64,32]", (64, 32, 128)),  # transposed
        ("tgmm", "bf16[64,128]", "bf16[64,32]", "f32[4,128,32]", (128, 32, 64)),
        ("tgmm", "bf16[128,64]", "bf16[64,32]", "f32[4,128,32]", (128, 32, 64)),
        ("ragged-dot-none", "bf16[64,128]", "bf16[4,128,32]", "f32[64,32]", (64, 32, 128)),
    ],
)
def test_a_grouped_kernel_has_the_sizes_of_its_contract(
    name: str, lhs: str, rhs: str, out: str, sizes: tuple[int, ...]
) -> None:
    assert ask(kernel(name, lhs, rhs, out), GROUPED) == [
        ("custom_call", 1, "bf16", 1, *sizes, 4, FLOPS)
    ]


def test_square_sizes_are_no_matter() -> None:
    square = kernel("gmm", "bf16[64,64]", "bf16[64,64,64]", "f32[64,64]")
    assert ask(square, GROUPED) == [("custom_call", 1, "bf16", 1, 64, 64, 64, 64, 2 * 64**3)]


def test_scales_between_the_operands_are_passed_over() -> None:
    scaled = GMM.replace("bf16[64,128]{1,0} parameter(2)", "s8[64,128]{1,0} parameter(2)")
    scaled = scaled.replace("  b =", "  s = f32[64,1]{1,0} parameter(4)\n  b =")
    scaled = scaled.replace("first, a, b", "first, a, s, b")
    assert ask(scaled, GROUPED) == [("custom_call", 1, "s8", 1, 64, 32, 128, 4, FLOPS)]


@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("bf16[64,128]", "bf16[4,96,32]", "f32[64,32]"),
        ("bf16[64,128]", "bf16[128,32]", "f32[64,32]"),  # no groups
        ("bf16[4,64,128]", "bf16[4,128,32]", "f32[4,64,32]"),  # a batch
    ],
)
def test_what_does_not_fit_leaves_the_sizes_open(lhs: str, rhs: str, out: str) -> None:
    assert ask(kernel("gmm", lhs, rhs, out), GROUPED) == [
        ("custom_call", 1, None, None, None, None, None, None, None)
    ]


@pytest.mark.parametrize("name", ["ragged-dot-metadata", "layer_norm", "flash_attention"])
def test_other_kernels_are_no_matmuls(name: str) -> None:
    other = kernel(name, "bf16[64,128]", "bf16[4,128,32]", "f32[64,32]")
    assert ask(other, "select * from matmuls") == []


def test_the_tiling_a_ragged_dot_was_asked_with() -> None:
    told = GMM.replace(
        "metadata=", 'frontend_attributes={ragged_dot_tiling="32,128,16"}, metadata='
    )
    ((tiles,),) = ask(told, "select tiles from matmuls")
    assert json.loads(str(tiles)) == {"output": [32, 16], "contracted": [128]}
    back = kernel("tgmm", "bf16[64,128]", "bf16[64,32]", "f32[4,128,32]").replace(
        "metadata=", 'frontend_attributes={ragged_dot_tiling="32,128,16"}, metadata='
    )
    ((tiles,),) = ask(back, "select tiles from matmuls")
    assert json.loads(str(tiles)) == {"output": [128, 16], "contracted": [32]}
    broken = told.replace("32,128,16", "32,128")
    assert ask(broken, "select tiles from matmuls") == [(None,)]


def test_a_grouped_kernel_under_rewrites() -> None:
    check_table(GMM, GROUPED)


# -- groups of what the text calls ragged

RAGGED = """\
HloModule m
ENTRY main {
  a = bf16[64,16] parameter(0)
  b = RHS parameter(1)
  g = SIZES parameter(2)
  ROOT d = OUT ragged-dot(a, b, g), DIMS
}
"""


@pytest.mark.parametrize(
    ("rhs", "sizes", "out", "dims", "groups"),
    [
        (
            "bf16[4,16,8]", "s32[4]", "bf16[64,8]",
            "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0},"
            " rhs_group_dims={0}", 4,
        ),
        (
            "bf16[64,8]", "s32[5]", "bf16[5,16,8]",
            "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}", 5,
        ),
        (
            "bf16[16,8]", "?", "bf16[64,8]",
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={0},"
            " rhs_group_dims={7}", None,
        ),
    ],
)  # fmt: skip
def test_groups_are_matrices_of_the_right_operand_or_sizes(
    rhs: str, sizes: str, out: str, dims: str, groups: int | None
) -> None:
    text = RAGGED.replace("RHS", rhs).replace("SIZES", sizes.replace("?", "s32[4]"))
    text = text.replace("OUT", out).replace("DIMS", dims)
    assert ask(text, "select ragged, groups from matmuls") == [(1, groups)]
