"""Arguments, meshes and flags, as the command line has them."""

from __future__ import annotations

from typing import Any

import pytest

from hlo_lens.aot import (
    ArgumentError,
    ArgumentSpec,
    FlagError,
    parse_argument,
    parse_flags,
    parse_mesh,
)
from hlo_lens.aot.arguments import check_mesh


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "partition"),
    [
        ("bf16[64,128]", "bfloat16", (64, 128), ()),
        ("bf16[64,128]@fsdp,None", "bfloat16", (64, 128), ("fsdp", None)),
        ("bf16[64,128]@fsdp", "bfloat16", (64, 128), ("fsdp",)),
        ("f32[8,4]@(data,fsdp),tensor", "float32", (8, 4), (("data", "fsdp"), "tensor")),
        ("s32[8,4]@None,(data,)", "int32", (8, 4), (None, ("data",))),
        ("f32[]", "float32", (), ()),
        ("pred[3]", "bool", (3,), ()),
        ("float32[3]", "float32", (3,), ()),
        (" f8e4m3fn [ 2 , 3 ] @ a , None ", "float8_e4m3fn", (2, 3), ("a", None)),
    ],
)
def test_an_argument(text: str, dtype: str, shape: Any, partition: Any) -> None:
    spec = parse_argument(text)
    assert spec == ArgumentSpec(dtype, shape, partition)
    assert parse_argument(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("64,128", "write it as bf16[64,128]"),
        ("bf16", "write it as bf16[64,128]"),
        ("bf16[64,?]", "write it as bf16[64,128]"),
        ("half[64]", "no dtype 'half'; there are pred, s2"),
        ("f32[64]@a,b", "2 entries behind @ for 1 dimensions"),
        ("f32[64]@(a", "cannot read '(a' behind @"),
        ("f32[64]@a-b", "'a-b' is no name of a mesh axis"),
    ],
)
def test_no_argument(text: str, told: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_argument(text)
    assert told in caught.value.render()


def test_a_mesh_keeps_the_order_of_its_axes() -> None:
    assert list(parse_mesh(["fsdp=4,tensor=2"]).items()) == [("fsdp", 4), ("tensor", 2)]
    assert list(parse_mesh(["tensor=2", "fsdp=4"]).items()) == [("tensor", 2), ("fsdp", 4)]


@pytest.mark.parametrize("text", ["", "8", "fsdp", "fsdp=", "fsdp=0", "fsdp=x", "a b=2", "a=1,a=2"])
def test_no_mesh(text: str) -> None:
    with pytest.raises(ArgumentError, match="mesh axis"):
        parse_mesh([text])


def test_a_mesh_takes_all_devices() -> None:
    check_mesh({"fsdp": 4, "tensor": 2}, 8, "tpu:v6e-8")
    with pytest.raises(ArgumentError, match=r"fsdp=4 needs 4 devices, the target cpu:8 has 8"):
        check_mesh({"fsdp": 4}, 8, "cpu:8")


def test_flags_have_the_types_that_xla_wants() -> None:
    assert parse_flags(
        ["--xla_a=true", "xla_b=False", "-xla_c", "xla_d=3", "xla_e=0.5", "xla_f=a=b,c"]
    ) == {
        "xla_a": True, "xla_b": False, "xla_c": True, "xla_d": 3, "xla_e": 0.5, "xla_f": "a=b,c",
    }  # fmt: skip
    assert parse_flags("--xla_a=1 --xla_b=x") == {"xla_a": 1, "xla_b": "x"}
    assert parse_flags({"xla_a": True, "xla_b": 7}) == {"xla_a": True, "xla_b": 7}


def test_no_flag() -> None:
    with pytest.raises(FlagError, match="'-O3' is no XLA flag"):
        parse_flags(["-O3"])
