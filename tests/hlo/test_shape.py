"""Shapes: what each written part means, sizes with and without padding, and printing back."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lens.hlo.shape import Layout, Shape, dtype_bits, parse_shape, parse_shapes
from tests.shared import needs_shared, texts, unpacked


def test_an_array_with_everything_a_tpu_prints() -> None:
    shape = parse_shape("bf16[2,300,512]{2,1,0:T(8,128)(2,1)S(1)}")
    assert shape.dtype == "bf16"
    assert shape.dimensions == (2, 300, 512)
    assert shape.dynamic == (False, False, False)
    assert shape.layout == Layout((2, 1, 0), tiles=((8, 128), (2, 1)), memory_space=1)
    assert (shape.rank, shape.element_count, shape.bits) == (3, 307200, 16)
    assert shape.memory_space == 1
    assert shape.is_array
    assert repr(shape) == "Shape('bf16[2,300,512]{2,1,0:T(8,128)(2,1)S(1)}')"


def test_every_layout_part_is_kept() -> None:
    text = (
        "f32[4,4]{1,0:D(D,C~)T(2,*)(2)L(4)#(u32)*(u16)E(32)S(5)SC(0:3,5)(1:2)"
        "P((f32[4]{0}, s32[]))M(8)}"
    )
    layout = parse_shape(text).layout
    assert layout == Layout(
        minor_to_major=(1, 0),
        tiles=((2, None), (2,)),
        element_bits=32,
        memory_space=5,
        tail_padding=4,
        index_type="u32",
        pointer_type="u16",
        split_configs="(0:3,5)(1:2)",
        physical_shape="(f32[4]{0},s32[])",
        dynamic_metadata_bytes=8,
        level_types="D,C~",
    )
    assert str(layout) == text.removeprefix("f32[4,4]").replace(" ", "")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[]", 4),
        ("f32[2,3]{1,0}", 24),
        ("pred[7]", 7),
        ("s4[9]", 5),
        ("s4[9]{0:E(4)}", 5),
        ("s4[9]{0:E(8)}", 9),
        ("u1[9]", 2),
        ("f6e2m3fn[4]", 3),
        ("c128[2]", 32),
        ("f8e4m3b11fnuz[3]", 3),
        ("f32[0,3]", 0),
        ("f32[<=4,2]", 32),
        ("f32[?,2]", None),
        ("token[]", 0),
        ("opaque[]", 0),
        ("b(f32[8]{0})", 32),
        ("()", 0),
        ("(f32[2], (s8[3], pred[]), token[])", 12),
        ("(f32[2], f32[?])", None),
        ("f99[2]", None),
        ("f32[2,3]sparse{10}", None),
    ],
)
def test_bytes(text: str, size: int | None) -> None:
    assert parse_shape(text).bytes == size


@pytest.mark.parametrize(
    ("text", "padded"),
    [
        ("f32[2,3]{1,0}", 24),
        ("f32[20,300]{1,0:T(8,128)}", 4 * 24 * 384),
        ("f32[20,300]{0,1:T(8,128)}", 4 * 304 * 128),  # rows of the tile go to dimension 1
        ("bf16[20,300]{1,0:T(8,128)(2,1)}", 2 * 24 * 384),  # the second tile divides the first
        ("f32[5000]{0:T(1024)(128)(2,1)}", 4 * 5120),
        ("s32[]{:T(128)S(2)}", 512),
        ("f32[100]{0:T(8,128)}", 4 * 8 * 128),  # an array of lower rank than its tile
        ("f32[3,5]{1,0:T(*,8)}", 4 * 16),  # * joins 3 and 5 into 15
        ("f32[0,300]{1,0:T(8,128)}", 0),
        ("s4[9]{0:T(16)E(4)}", 8),
        ("f32[10]{0:L(8)}", 64),
        ("f32[<=8]{0:M(32)}", 64),
        ("(f32[2]{0:T(128)}, token[])", 512),
        ("f32[?]{0:T(128)}", None),
    ],
)
def test_padded_bytes(text: str, padded: int | None) -> None:
    assert parse_shape(text).padded_bytes == padded


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("f32[2]", None),
        ("f32[2]{0}", 0),
        ("f32[2]{0:S(5)}", 5),
        ("b(f32[2]{0:S(1)})", 1),
        ("(f32[2]{0:S(1)})", None),
    ],
)
def test_memory_space(text: str, space: int | None) -> None:
    assert parse_shape(text).memory_space == space


def test_dynamic_dimensions() -> None:
    shape = parse_shape("f32[<=4,?,3]")
    assert shape.dimensions == (4, None, 3)
    assert shape.dynamic == (True, True, False)
    assert shape.element_count is None
    assert str(shape) == "f32[<=4,?,3]"


def test_tuples_and_buffers() -> None:
    shape = parse_shape("((f32[2], ()), b(s32[3]{0}), token[])")
    assert shape.is_tuple
    assert shape.element_count is None
    assert [str(leaf) for leaf in shape.leaves()] == ["f32[2]", "b(s32[3]{0})", "token[]"]
    buffer = shape.elements[1]
    assert (buffer.is_buffer, buffer.is_array, buffer.dtype) == (True, False, "s32")
    assert parse_shape("f32[2]").leaves() == (parse_shape("f32[2]"),)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("( f32 [ 2 , 3 ]\n{ 1, 0 } )", "(f32[2,3]{1,0})"),
        ("f32[/*a*/2] // rows\n{0}", "f32[2]{0}"),
        ("(s8[],s8[],s8[],s8[],s8[],s8[])", "(s8[], s8[], s8[], s8[], s8[], /*index=5*/s8[])"),
        ("f32[]{}", "f32[]"),
        ("f32[2]dense{0}", "f32[2]{0}"),
        ("f32[2]{0:S(0)}", "f32[2]{0}"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_shape(text)) == canonical
    assert parse_shape(canonical) == parse_shape(text)


def test_equal_texts_give_one_object() -> None:
    assert parse_shape("(f32[2]{0}, s32[])") is parse_shape("(f32[2]{0}, s32[])")
    assert hash(parse_shape("(f32[2],s32[])")) == hash(parse_shape("(f32[2], s32[])"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f32",
        "f32[2",
        "f32[-1]",
        "f32[2]{1}",
        "f32[2,2]{0,0}",
        "f32[2,2]{:S(1)}",
        "f32[2]{0:X(1)}",
        "f32[2]{0:S(1)S(2)}",
        "f32[2]{0:T(0)}",
        "f32[2]{0:T(8}",
        "f32[2]{0",
        "f32[1 2]",
        "f32[2] f32[3]",
        "(f32[2]",
        "(f32[2]))",
        "(f32[2],)",
        "b((f32[2]))",
        "b(f32[2]",
        "(" * 1000 + ")" * 1000,
        "b(" * 1000 + "f32[]" + ")" * 1000,
        "f32[]{:P(" * 1000,
    ],
)
def test_bad_text_says_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \S+"):
        parse_shape(text)


def test_shapes_in_braces() -> None:
    assert [str(shape) for shape in parse_shapes("{f32[2,2]{1,0}, (s32[], s8[]) /*x*/}")] == [
        "f32[2,2]{1,0}",
        "(s32[], s8[])",
    ]
    assert parse_shapes("{}") == ()
    with pytest.raises(ValueError, match="braces"):
        parse_shapes("f32[2]")


def test_dtype_bits() -> None:
    assert [dtype_bits(name) for name in ("pred", "bf16", "s4", "tuple")] == [8, 16, 4, None]


_DIMENSION = st.one_of(st.integers(0, 99).map(str), st.integers(1, 9).map("<={}".format))


@st.composite
def _arrays(draw: st.DrawFn) -> str:
    sizes = draw(st.lists(_DIMENSION, max_size=4))
    text = f"{draw(st.sampled_from(['f32', 'pred', 's4']))}[{','.join(sizes)}]"
    if not draw(st.booleans()) or not sizes:
        return text
    order = ",".join(map(str, draw(st.permutations(range(len(sizes))))))
    tail = draw(st.sampled_from(["", ":T(8,128)", ":T(8,128)(4,1)S(1)", ":E(4)", ":T(*,2)L(3)"]))
    return f"{text}{{{order}{tail}}}"


@given(
    st.recursive(
        _arrays(),
        lambda inner: st.lists(inner, max_size=7).map(lambda parts: "(" + ",".join(parts) + ")"),
    )
)
def test_printing_and_reading_are_inverse(text: str) -> None:
    shape = parse_shape(text)
    assert parse_shape(str(shape)) == shape
    assert re.sub(r"\s|/\*.*?\*/", "", str(shape)) == text
    assert shape.bytes is not None
    assert shape.padded_bytes is not None
    assert shape.padded_bytes >= shape.bytes


@given(st.text("f32[](){}:,<=?bTSEP*/ \n0123", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_shape(text), Shape)


_PRINTED = re.compile(r" = ((?:\([^=]*?\)|[a-z]\w*\[[^\]\s]*\](?:\{[^}\s]*\})?)) [a-z]")


@needs_shared
def test_shapes_of_real_dumps_print_back_as_they_were() -> None:
    paths = [
        *texts("dumps/gpu-aot/*.txt", "gfx950/**/*.txt", "cases/*.hlo"),
        *unpacked("dumps/tpu-maxtext.tar.xz").rglob("s.full.nowe.opt.hlo"),
    ]
    found = {text for path in paths for text in _PRINTED.findall(path.read_text())}
    assert len(found) > 400
    assert [text for text in sorted(found) if str(parse_shape(text)) != text] == []
