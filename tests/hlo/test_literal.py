"""Literals: values by the dtype of the shape, elided arrays untouched."""

import math

import pytest

from hlo_lens.hlo.literal import Literal, Value, parse_shaped_literal
from hlo_lens.hlo.shape import parse_shape


def literal(text: str, shape: str) -> Literal:
    return Literal(text, parse_shape(shape))


@pytest.mark.parametrize(
    ("text", "shape", "value"),
    [
        ("-42", "s32[]", -42),
        ("18446744073709551615", "u64[]", 2**64 - 1),
        ("1.5e-3", "f32[]", 0.0015),
        ("1", "bf16[]", 1.0),
        ("-inf", "f32[]", -math.inf),
        ("true", "pred[]", True),
        ("0", "pred[]", False),
        ("(1, -inf)", "c64[]", complex(1, -math.inf)),
        ("/* x */ 3 // y", "s8[]", 3),
        ("f32[] 3", "f32[]", 3.0),
        ("{1}", "s32[1]", None),
        ("(1)", "(s32[])", None),
    ],
)
def test_scalar(text: str, shape: str, value: Value | None) -> None:
    assert literal(text, shape).scalar == value
    assert type(literal(text, shape).scalar) is type(value)


@pytest.mark.parametrize("text", ["nan", "-nan", "nan(0x7f)", "-nan(0x1)"])
def test_nan(text: str) -> None:
    value = literal(text, "f32[]").scalar
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "shape", "values"),
    [
        ("{1, 2, 3}", "s32[3]", [1, 2, 3]),
        ("{1 2 3}", "s32[3]{0}", [1, 2, 3]),
        ("{ { /*i0=0*/ 1, 2 }, { /*i0=1*/ 3, 4 } }", "f32[2,2]", [1, 2, 3, 4]),
        ("{true, 0}", "pred[2]", [True, False]),
        ("{101}", "pred[3]", [True, False, True]),
        ("{(1, 2), (3, 4)}", "c64[2]", [1 + 2j, 3 + 4j]),
        ("{ { }, { } }", "f32[2,0]", []),
        ("()", "()", []),
        (
            "( 1, {2, 3}, ( true, (4, 5) ) )",
            "(s32[], f32[2], (pred[], c64[]))",
            [1, 2, 3, True, 4 + 5j],
        ),
        ("(token[] , 1)", "(token[], s32[])", [1]),
        ("f32[2,2] { { 1, 2 }, { 3, 4 } }", "f32[2,2]", [1, 2, 3, 4]),
        ("f32[2,3]{[0, 1]: 4, [1, 2]: 5}", "f32[2,3]sparse{10}", [4, 5]),
        ("{1: 2, 3: 4}", "f32[9]sparse{10}", [2, 4]),
        ("7", "s32[3]", [7, 0, 0]),  # a bare number fills the first element, as in XLA
        ("{1, 2}", "s32[<=4]", [1, 2]),
    ],
)
def test_values(text: str, shape: str, values: list[Value]) -> None:
    assert list(literal(text, shape).values()) == values
    assert not literal(text, shape).elided


def test_elided_arrays_give_nothing() -> None:
    assert literal("{...}", "f32[100000000000]").elided
    assert list(literal("{ ... }", "f32[100000000000]").values()) == []
    mixed = literal("({...}, 3)", "(f32[9], s32[])")
    assert mixed.elided
    assert list(mixed.values()) == [3]


def test_a_literal_with_its_shape_in_front() -> None:
    assert parse_shaped_literal("s32[2]{0} {1, 2}") == literal("{1, 2}", "s32[2]{0}")
    assert parse_shaped_literal("(s32[], f32[2]) (1, {2, 3})") == literal(
        "(1, {2, 3})", "(s32[],f32[2])"
    )
    with pytest.raises(ValueError, match="expected a shape"):
        parse_shaped_literal("{1,2}")


def test_values_are_read_one_by_one() -> None:
    values = literal("{" + "1," * 3 + "oops}", "s32[4]").values()
    assert [next(values) for _ in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError, match="expected an integer"):
        next(values)


def test_repr_is_short() -> None:
    assert repr(literal("{" + "1, " * 100 + "}", "s32[100]")).count("1") < 20


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", "s32[]"),
        ("x", "s32[]"),
        ("1.5", "s32[]"),
        ("1 2", "s32[]"),
        ("2", "pred[]"),
        ("{1, 2}", "s32[3]"),
        ("{1, 2", "s32[2]"),
        ("{}", "s32[2]"),
        ("{1} }", "s32[1]"),
        ("(1)", "(s32[], s32[])"),
        ("(1, 2, 3)", "(s32[], s32[])"),
        ("{" * 5000, "s32[1]"),
        ("&", "s32[1]"),
    ],
)
def test_bad_text_says_what_is_wrong(text: str, shape: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        list(literal(text, shape).values())
