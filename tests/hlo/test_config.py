"""Backend configs: JSON, MLIR attribute dictionaries and everything else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lens.hlo.config import parse_config, parse_mlir


@pytest.mark.parametrize(
    ("text", "kind", "raw", "value"),
    [
        ('{"a":[1,{"b":true}]}', "json", '{"a":[1,{"b":true}]}', {"a": [1, {"b": True}]}),
        (r'"{\"a\":\"x\\\"y\"}"', "json", r'{"a":"x\"y"}', {"a": 'x"y'}),
        ("{}", "json", "{}", {}),
        (
            '{kind: "__triton", sizes:[32,],}',
            "json",
            '{kind: "__triton", sizes:[32,],}',
            {"kind": "__triton", "sizes": [32]},
        ),
        ('{"s":"k: ,}"}', "json", '{"s":"k: ,}"}', {"s": "k: ,}"}),
        ("{grid_x = 1 : i32}", "mlir", "{grid_x = 1 : i32}", {"grid_x": 1}),
        (r'"{name = \"fa\"}"', "mlir", '{name = "fa"}', {"name": "fa"}),
        (
            "{broadcast_dimensions=[0,1]}",
            "mlir",
            "{broadcast_dimensions=[0,1]}",
            {"broadcast_dimensions": [0, 1]},
        ),
        ('"opaque text"', "string", "opaque text", None),
        ('""', "string", "", None),
        (r'"\001\000"', "string", "\x01\x00", None),
        ('"{not json"', "string", "{not json", None),
        ("{is_tma_allowed: ENABLE}", "raw", "{is_tma_allowed: ENABLE}", None),
        ("{" * 5000 + "}" * 5000, "raw", "{" * 5000 + "}" * 5000, None),
        ("[" * 100_000, "raw", "[" * 100_000, None),
        ('{"a":NaN}', "raw", '{"a":NaN}', None),
        ('{"a":-Infinity}', "raw", '{"a":-Infinity}', None),
        ('{"a":1e400}', "raw", '{"a":1e400}', None),
        ("{a = 1e400 : f64}", "raw", "{a = 1e400 : f64}", None),
    ],
)
def test_kinds(text: str, kind: str, raw: str, value: Any) -> None:
    config = parse_config(text)
    assert (config.kind, config.raw, config.value) == (kind, raw, value)


def test_get_walks_keys_and_positions() -> None:
    config = parse_config('{"a":{"b":[10,{"c":null,"d":0}]}}')
    assert config.get("a", "b", 0) == 10
    assert config.get("a", "b", 1, "d") == 0
    assert config.get("a", "b", 9) is None
    assert config.get("a", "x", "y") is None
    assert config.get("a", "b", "c") is None
    assert parse_config('"text"').get("a") is None


def test_an_unclosed_quote() -> None:
    with pytest.raises(ValueError, match="expected a quoted string"):
        parse_config('"text')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ("1 : i32", 1),
        ("-0x1F : i8", -31),
        ("1.5e-3 : f32", 0.0015),
        ("true", True),
        ("unit", True),
        (r'"a\22\0A\C3\A9b"', 'a"\né' + "b"),
        ('[1, "x", [false]]', [1, "x", [False]]),
        ("array<i64: 1, -2>", [1, -2]),
        ("array<i32>", []),
        ("array<i1: true, false>", [True, False]),
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>", [[1, 2], [3, 4]]),
        ("dense<0> : tensor<4xi64>", 0),
        ('dense<"0xAB"> : tensor<1xi8>', "0xAB"),
        ("dense<> : tensor<0xi8>", []),
        ("@kernel", "@kernel"),
        ("#triton.x<a, b -> c, [d]>", "#triton.x<a, b -> c, [d]>"),
        ("tensor<8x?xf32, #enc<{a = 1}>>", "tensor<8x?xf32, #enc<{a = 1}>>"),
        (
            '{flag, num_warps = 4 : i32, "q-k" = @f, ir.v = {z = []}}',
            {"flag": True, "num_warps": 4, "q-k": "@f", "ir.v": {"z": []}},
        ),
        (
            "{m = affine_map<(d0, d1) -> (d1)>, n = 1}",
            {"m": "affine_map<(d0, d1) -> (d1)>", "n": 1},
        ),
        ("{a = 1 : i32 // why\n, b = 2}", {"a": 1, "b": 2}),
    ],
)
def test_mlir(text: str, value: Any) -> None:
    assert parse_mlir(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{a = }",
        "{a = 1",
        "{a = 1 b}",
        "{1 = a}",
        "[1",
        "{a: 1}",
        "{} {}",
        "<(>",
        "{a=[(]}",
    ],
)
def test_bad_mlir_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_mlir(text)


@given(st.text('{}[]()<>:=,"\\a1 x', max_size=30))
def test_any_text_is_a_config(text: str) -> None:
    try:
        config = parse_config(text)
    except ValueError:
        assert text.strip()[:1] == '"'
    else:
        assert config.kind in ("json", "mlir", "string", "raw")
