"""Operations without their dimensions of size 1."""

from __future__ import annotations

import pytest

from hlo_lens.analysis.degenerate import attributes_text, dimensions_text, sizes_of


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("f32[2,1,3]{2,1,0:T(8,128)}", "[2,3]"),
        ("(f32[2,1,3]{2,1,0}, s32[])", "([2,3],[])"),
        ("f32[1,1]", "[]"),
        ("pred[]", "[]"),
        ("(f32[4]{0}, /*index=1*/bf16[1,4])", "([4],[4])"),
        ("token[]", "[]"),
    ],
)
def test_dimensions(shape: str, text: str) -> None:
    assert dimensions_text(shape) == text


def test_sizes() -> None:
    assert sizes_of("f32[2,1,3]{2,1,0}") == ("2", "1", "3")
    assert sizes_of("f32[]") == sizes_of("(f32[2])") == ()


# An operation with dimensions of size 1 and without: (opcode, attributes, operands, result) twice.
WITH_AND_WITHOUT = [
    (
        ("dot", ", lhs_contracting_dims={2}, rhs_contracting_dims={1}", ["[1,4,8]", "[1,8,1]"]),
        ("dot", ", lhs_contracting_dims={1}, rhs_contracting_dims={0}", ["[4,8]", "[8]"]),
    ),
    (
        ("dot", ", lhs_batch_dims={0}, lhs_contracting_dims={1}", ["[1,8]", "[1,8]"]),
        ("dot", ", lhs_contracting_dims={0}", ["[8]", "[8]"]),
    ),
    (
        ("reduce", ", dimensions={0,2}", ["[1,4,8]"]),
        ("reduce", ", dimensions={1}", ["[4,8]"]),
    ),
    (
        ("slice", ", slice={[0:1],[2:4]}", ["[1,8]"]),
        ("slice", ", slice={[2:4]}", ["[8]"]),
    ),
    (
        ("dynamic-slice", ", dynamic_slice_sizes={1,1,8}", ["[1,4,8]"]),
        ("dynamic-slice", ", dynamic_slice_sizes={1,8}", ["[4,8]"]),
    ),
]


@pytest.mark.parametrize(("one", "other"), WITH_AND_WITHOUT)
def test_attributes_count_what_is_left(
    one: tuple[str, str, list[str]], other: tuple[str, str, list[str]]
) -> None:
    assert plain(*one) == plain(*other)


def plain(opcode: str, attributes: str, operands: list[str], result: str = "[]") -> str:
    return attributes_text(opcode, attributes, tuple(map(sizes_of, operands)), sizes_of(result))


def test_attributes_by_the_dimensions_of_the_result() -> None:
    gathered = plain("all-gather", ", dimensions={2}", ["[1,4,8]"], "[1,4,16]")
    assert gathered == plain("all-gather", ", dimensions={1}", ["[4,8]"], "[4,16]")
    assert gathered != plain("all-gather", ", dimensions={1}", ["[1,4,8]"], "[1,8,8]")
    spread = plain("broadcast", ", dimensions={0,2}", ["[1,8]"], "[1,4,8]")
    assert spread == plain("broadcast", ", dimensions={1}", ["[8]"], "[4,8]")
    assert spread != plain("broadcast", ", dimensions={0}", ["[8]"], "[8,4]")


def test_a_convolution_without_windows_of_one() -> None:
    window = ", dim_labels=b01f_01io->b01f, window={size=1x4 stride=1x2}"
    small = ", dim_labels=b0f_0io->b0f, window={size=4 stride=2}"
    one = plain("convolution", window, ["[2,1,8,3]", "[1,4,3,5]"], "[2,1,3,5]")
    assert one == plain("convolution", small, ["[2,8,3]", "[4,3,5]"], "[2,3,5]")
    wide = window.replace("size=1x4", "size=2x4")
    assert one != plain("convolution", wide, ["[2,1,8,3]", "[2,4,3,5]"], "[2,1,3,5]")


@pytest.mark.parametrize(
    ("opcode", "attributes"),
    [
        ("dot", ", lhs_contracting_dims={7}"),
        ("reduce", ", dimensions={9}"),
        ("slice", ", slice={[0:1]}"),
        ("convolution", ", dim_labels=x"),
        ("transpose", ", dimensions={4}"),
        ("tanh", ", anything=1"),
    ],
)
def test_what_cannot_be_counted_stays_as_it_is(opcode: str, attributes: str) -> None:
    assert plain(opcode, attributes, ["[4,8]", "[8,2]"]) == attributes
