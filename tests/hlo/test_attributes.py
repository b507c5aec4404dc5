"""Attributes: the split into names and raw values, and each small value form."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lens.hlo.attributes import (
    Alias,
    DimLabels,
    OperandAlias,
    Window,
    c_unescape,
    parse_alias,
    parse_bool,
    parse_bools,
    parse_buffer_donor,
    parse_dim_labels,
    parse_frontend_attributes,
    parse_int,
    parse_ints,
    parse_output_to_operand_aliasing,
    parse_padding,
    parse_slice,
    parse_source_target_pairs,
    parse_statistics,
    parse_string,
    parse_window,
    split_attributes,
    split_list,
)


@pytest.mark.parametrize(
    ("tail", "values"),
    [
        ("", {}),
        ("  // nothing\n", {}),
        (", dimensions={0}", {"dimensions": "{0}"}),
        ("dimensions={0}, index=1", {"dimensions": "{0}", "index": "1"}),
        (", index = 1 , k\n=\n2 ", {"index": "1", "k": "2"}),
        (", calls=%a, %b, to_apply=c", {"calls": "%a, %b", "to_apply": "c"}),
        (", calls=a,b", {"calls": "a,b"}),
        (", branch_computations={%a, %b}", {"branch_computations": "{%a, %b}"}),
        (
            ", replica_groups=[2,4]<=[4,2]T(1,0), x=1",
            {"replica_groups": "[2,4]<=[4,2]T(1,0)", "x": "1"},
        ),
        (
            ", replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}, x=1",
            {"replica_groups": "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", "x": "1"},
        ),
        (", dim_labels=b01f_01io->b01f", {"dim_labels": "b01f_01io->b01f"}),
        (
            ', metadata={op_name="a}{,\\"b" x=1}, k=1',
            {"metadata": '{op_name="a}{,\\"b" x=1}', "k": "1"},
        ),
        (', backend_config="{\\"a\\":[1,2]}"', {"backend_config": '"{\\"a\\":[1,2]}"'}),
        (
            ', backend_config={"a":{"b":[{"c":"it\'s }"}]}}',
            {"backend_config": '{"a":{"b":[{"c":"it\'s }"}]}}'},
        ),
        (", x={{{{{{{{{1}}}}}}}}}, y=2", {"x": "{{{{{{{{{1}}}}}}}}}", "y": "2"}),
        (", literal=s32[2]{0} {1, 2}", {"literal": "s32[2]{0} {1, 2}"}),
        (
            ", outfeed_shape=(f32[2]{0}, /*index=1*/s32[])",
            {"outfeed_shape": "(f32[2]{0}, /*index=1*/s32[])"},
        ),
        (", a=/* one */1 /* , b=2 */, c=3 // d=4", {"a": "1", "c": "3"}),
        (", a={1 /* } */}", {"a": "{1 /* } */}"}),
        (", path='it', mode=x", {"path": "'it'", "mode": "x"}),
        (", a=1, a=2", {"a": "1"}),
        (", control-predecessors={%a.1}", {"control-predecessors": "{%a.1}"}),
    ],
)
def test_split(tail: str, values: dict[str, str]) -> None:
    assert split_attributes(tail) == values
    assert list(split_attributes(tail)) == list(values)


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (", a={1", "no '}' for '{1'"),
        (", a=[1}", "'}' closes nothing"),
        (", a=1}", "'}' closes nothing"),
        (', a="x', "a string doesn't end"),
        (", a={1 /* x", "a comment doesn't end"),
        (", a=1 b", None),
        (", %a, %b", "expected ', name=value'"),
        (") {", "expected ', name=value'"),
        (", a={x=1}, =2", "expected ', name=value'"),
    ],
)
def test_split_refuses(tail: str, message: str | None) -> None:
    if message is None:
        assert split_attributes(tail) == {"a": "1 b"}  # a value may hold blanks
    else:
        with pytest.raises(ValueError, match=message):
            split_attributes(tail)


@pytest.mark.parametrize(
    "piece", ["{", "'", '"', "(", "/*", "\\'", ", a", "{'", "x", ",a={b,", "{[("]
)
def test_split_is_linear(piece: str) -> None:
    start = time.perf_counter()
    with suppress(ValueError):
        split_attributes(", a=" + piece * 100_000)
    assert time.perf_counter() - start < 5


_VALUES = st.recursive(
    st.sampled_from(
        ["1", "%a", '"x,}"', "'y'", "[1,2]<=[2]T(1,0)", "{}", "b0f_0io->b0f", "f32[2]{0} {1, 2}"]
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda parts: "{" + ", ".join(parts) + "}"
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_.\-]{0,6}", fullmatch=True), _VALUES))
def test_split_undoes_joining(values: dict[str, str]) -> None:
    assert (
        split_attributes("".join(f", {name}={value}" for name, value in values.items())) == values
    )


def test_a_list() -> None:
    assert split_list(" a, {b, c} /* d, e */, (f, 'g,'), ") == ["a", "{b, c}", "(f, 'g,')", ""]
    assert split_list("  ") == []


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("plain", "plain"),
        (r"a\n\t\"\'\\\?b", "a\n\t\"'\\?b"),
        (r"caf\303\251", "café"),
        (r"\xc3\xa9\u00e9\U0001F600", "éé\U0001f600"),
        (r"\0001", "\x001"),
        (r"é\303\251", "éé"),
        (r"\377", r"\xff"),
        (r"\d\q", r"\d\q"),
        ("\\", "\\"),
    ],
)
def test_c_unescape(text: str, plain: str) -> None:
    assert c_unescape(text) == plain


def test_strings_numbers_and_lists() -> None:
    assert parse_string(r'"a\"b"') == 'a"b'
    assert parse_string("'a'") == "a"
    assert parse_int(" -3 ") == -3
    assert (parse_bool("true"), parse_bool("0")) == (True, False)
    assert parse_bools("{true, false}") == (True, False)
    assert parse_bools("true") == (True,)
    assert parse_ints("{1, /*x*/ -2}") == (1, -2)
    assert (parse_ints("{}"), parse_ints("[3]"), parse_ints("4")) == ((), (3,), (4,))
    assert parse_source_target_pairs("{{0,1},{1,2}}") == ((0, 1), (1, 2))
    assert parse_source_target_pairs("{}") == ()


def test_window() -> None:
    assert parse_window("{size=3x5 stride=2x1 pad=0_1x-1_0 rhs_reversal=1x0}") == Window(
        size=(3, 5),
        stride=(2, 1),
        pad=((0, 1), (-1, 0)),
        lhs_dilate=(1, 1),
        rhs_dilate=(1, 1),
        rhs_reversal=(True, False),
    )
    assert parse_window("{size=4}").pad == ((0, 0),)
    assert parse_window("{}").size == ()


def test_dimension_labels_padding_slices() -> None:
    assert parse_dim_labels("b01f_01io->b?01f") == DimLabels("b01f", "01io", "b?01f")
    assert parse_padding("0_0_0x-1_2") == ((0, 0, 0), (-1, 2, 0))
    assert parse_padding("") == ()
    assert parse_slice("{[0:4], [1:8:2]}") == ((0, 4, 1), (1, 8, 2))


def test_aliases() -> None:
    assert parse_alias("{ {0}: (1, {}, must-alias), {1,0}: (2, {3}), {}: 4 }") == (
        Alias((0,), 1, (), "must-alias"),
        Alias((1, 0), 2, (3,), "may-alias"),
        Alias((), 4, (), "may-alias"),
    )
    assert parse_output_to_operand_aliasing("{{}: (0, {}), {1}: (2, {0})}") == (
        OperandAlias((), 0, ()),
        OperandAlias((1,), 2, (0,)),
    )
    assert parse_buffer_donor("{ (1, {}), (2, {0}) }") == ((1, ()), (2, (0,)))


def test_dictionaries() -> None:
    assert parse_frontend_attributes(r'{k="v\n,",k2={"a":{1}},_x-y.z="w",e={}}') == {
        "k": "v\n,",
        "k2": '{"a":{1}}',
        "_x-y.z": "w",
        "e": "{}",
    }
    assert parse_frontend_attributes("{}") == {}
    assert parse_statistics("{visualizing_index=1,stat-1=33,stat-2=44.5}") == {
        "visualizing_index": 1,
        "stat-1": 33,
        "stat-2": 44.5,
    }


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_int, "1.5"),
        (parse_int, ""),
        (parse_bool, "yes"),
        (parse_string, "plain"),
        (parse_string, '"'),
        (parse_ints, "{1,}"),
        (parse_ints, "{1"),
        (parse_source_target_pairs, "{{0,1,2}}"),
        (parse_window, "{size=3x3 stride=2}"),
        (parse_window, "{sizes=3}"),
        (parse_window, "size=3"),
        (parse_window, "{pad=1_1_0 size=1}"),
        (parse_dim_labels, "b01f"),
        (parse_padding, "0"),
        (parse_slice, "{0:4}"),
        (parse_alias, "{ {0}: (1) }"),
        (parse_alias, "{ {0} }"),
        (parse_alias, "{ {0}: (0, {0}): {0, 1} }"),
        (parse_buffer_donor, "{ (one, {}) }"),
        (parse_frontend_attributes, "{a}"),
        (parse_statistics, "{a=b}"),
    ],
)
def test_bad_values_say_what_is_wrong(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse(text)
