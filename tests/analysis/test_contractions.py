"""Matrix products: dots and convolutions of all layouts in one form."""

from __future__ import annotations

import pytest

from hlo_lens.analysis.contractions import Contraction, contraction, turned
from hlo_lens.analysis.views import inverse, transposed

WHOLE = "f32[3,4,7]"


def dot(attributes: str, *shapes: str) -> Contraction | None:
    left, right, *result = shapes
    return contraction("dot", attributes, left, right, *result or ("f32[]",))


def convolution(labels: str, *shapes: str, window: str = "") -> Contraction | None:
    attributes = f", dim_labels={labels}" + (f", window={{{window}}}" if window else "")
    left, right, result = shapes
    return contraction("convolution", attributes, left, right, result)


def test_a_dot() -> None:
    attributes = (
        ", lhs_batch_dims={0}, lhs_contracting_dims={1}"
        ", rhs_batch_dims={1}, rhs_contracting_dims={0}"
    )
    found = dot(attributes, "f32[3,5,4]", "f32[5,3,7]", WHOLE)
    assert found == (
        (3, 4, 7, 5),
        "",
        transposed("f32[3,5,4]", [0, 2, 1]),
        transposed("f32[5,3,7]", [1, 2, 0]),
        ((84, 1),),
    )
    assert turned(found.sizes) == (3, 7, 4, 5)


def test_free_and_summed_dimensions_of_several() -> None:
    found = dot(
        ", lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}",
        "f32[4,2,3]",
        "f32[2,3,5,6]",
        "f32[4,5,6]",
    )
    assert found is not None
    assert found.sizes == (1, 4, 30, 6)
    assert found.left == ((24, 1),)
    assert found.right == transposed("f32[6,30]", [1, 0])


# The same product of [4,5] and [5,7], as convolutions of all kinds of labels.
@pytest.mark.parametrize(
    ("labels", "shapes"),
    [
        ("bf_io->bf", ("f32[4,5]", "f32[5,7]", "f32[4,7]")),
        ("bf_oi->bf", ("f32[4,5]", "f32[7,5]", "f32[4,7]")),
        ("fb_io->bf", ("f32[5,4]", "f32[5,7]", "f32[4,7]")),
        ("bf_io->fb", ("f32[4,5]", "f32[5,7]", "f32[7,4]")),
    ],
)
def test_convolutions_without_windows_are_dots(labels: str, shapes: tuple[str, str, str]) -> None:
    found = convolution(labels, *shapes)
    assert found is not None
    assert found.sizes == (1, 4, 7, 5)
    given, result = labels.split("->")
    lhs, rhs = given.split("_")
    assert found.left == (((20, 1),) if lhs == "bf" else transposed("f32[5,4]", [1, 0]))
    assert found.right == (((35, 1),) if rhs == "oi" else transposed("f32[5,7]", [1, 0]))
    rows = ((28, 1),) if result == "bf" else transposed("f32[4,7]", [1, 0])
    assert found.result == rows


def test_a_part_of_an_operand_is_no_view_of_it() -> None:
    window = "size=4 stride=3 pad=-16_0 lhs_dilate=4"
    labels, rest = "0bf_0io->0bf", ("f32[4,5,7]", "f32[4,3,7]")
    assert convolution(labels, "f32[8,3,5]", *rest, window=window) is None
    assert convolution(labels, "f32[4,3,5]", *rest, window=window.replace("-16", "0")) is not None


def test_batch_dimensions_as_windows() -> None:
    """What XLA for the TPU writes for scores of attention."""
    found = convolution(
        "0b1f_0o1i->01bf",
        "bf16[2,6,8,4]",
        "bf16[2,6,8,4]",
        "f32[2,8,6,6]",
        window="size=2x8 stride=1x7 lhs_dilate=2x8",
    )
    assert found is not None
    assert found.sizes == (16, 6, 6, 4)
    assert found.left == found.right == transposed("f32[2,6,8,4]", [0, 2, 1, 3])
    assert found.result == ((2 * 8 * 36, 1),)


def test_a_summed_dimension_as_a_window_and_rows_as_another() -> None:
    summed = convolution("b0f_0io->b0f", "f32[4,3,5]", "f32[3,5,7]", "f32[4,1,7]", window="size=3")
    assert summed is not None
    assert summed.sizes == (1, 4, 7, 15)
    rows = convolution("0bf_io0->0bf", "f32[2,4,5]", "f32[5,7,1]", "f32[2,4,7]", window="size=1")
    assert rows is not None
    assert rows.sizes == (1, 8, 7, 5)
    assert rows.left == ((40, 1),)
    assert rows.result == inverse(((56, 1),))


@pytest.mark.parametrize(
    ("attributes", "shapes"),
    [
        (", lhs_contracting_dims={9}", ("f32[3,4]", "f32[4,7]", "f32[3,7]")),
        (", lhs_contracting_dims={1}", ("f32[3,?]", "f32[4,7]", "f32[3,7]")),
        (", lhs_contracting_dims={1}, operand_precision={highest,default}",
         ("f32[3,4]", "f32[4,7]", "f32[3,7]")),
        (", lhs_contracting_dims={1}, sparsity=L.1@2:4", ("f32[3,4]", "f32[4,7]", "f32[3,7]")),
        (", lhs_batch_dims={0,0}", ("f32[3,4]", "f32[4,7]", "f32[3,7]")),
    ],
)  # fmt: skip
def test_dots_that_are_taken_as_they_are(attributes: str, shapes: tuple[str, str, str]) -> None:
    assert dot(attributes, *shapes) is None


def test_a_window_that_is_turned_round_may_be_a_batch_or_free() -> None:
    """As TPU text writes P·V, and grouped queries: o·N + (N-1-k) - (N-1) = i·(N-1) is o = k = i."""
    batch = contraction(
        "convolution",
        ", dim_labels=f0b_0oi->0fb, window={size=3stride=3pad=2_2lhs_dilate=2rhs_reversal=1}",
        "f32[7,3,5]",
        "f32[3,4,7]",
        "f32[3,4,5]",
    )
    as_dot = dot(
        ", lhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_batch_dims={0},"
        " rhs_contracting_dims={2}".replace(",  ", ", "),
        "f32[7,3,5]",
        "f32[3,4,7]",
        "f32[3,5,4]",
    )
    assert batch is not None
    assert as_dot is not None
    assert batch.sizes == as_dot.sizes == (3, 5, 4, 7)
    assert (batch.left, batch.right) == (as_dot.left, as_dot.right)
    free = contraction(
        "convolution",
        ", dim_labels=b0f_0oi->b0f, window={size=3pad=2_2rhs_reversal=1}",
        "f32[4,1,5]",
        "f32[3,7,5]",
        "f32[4,3,7]",
    )
    assert free is not None
    assert free.sizes == (1, 4, 21, 5)
    assert free.result == ((84, 1),)


@pytest.mark.parametrize(
    "window",
    ["size=3stride=3pad=2_2lhs_dilate=2", "size=3stride=3pad=1_1lhs_dilate=2rhs_reversal=1"],
)
def test_a_batch_is_paired_off_one_to_one(window: str) -> None:
    attributes = f", dim_labels=f0b_0oi->0fb, window={{{window}}}"
    shapes = "f32[7,3,5]", "f32[3,4,7]", "f32[3,4,5]"
    assert contraction("convolution", attributes, *shapes) is None


@pytest.mark.parametrize(
    ("labels", "shapes", "more"),
    [
        # A window that slides, one that is turned round, groups, labels that do not fit.
        ("b0f_0io->b0f", ("f32[4,8,5]", "f32[3,5,7]", "f32[4,6,7]"), ", window={size=3}"),
        ("b0f_0io->b0f", ("f32[4,3,5]", "f32[3,5,7]", "f32[4,1,7]"),
         ", window={size=3 rhs_reversal=1}"),
        ("b0f_0io->b0f", ("f32[4,1,5]", "f32[3,5,7]", "f32[4,3,7]"), ", window={size=3 pad=2_2}"),
        ("bf_io->bf", ("f32[4,10]", "f32[5,8]", "f32[4,8]"), ", feature_group_count=2"),
        ("bf_io->bf", ("f32[4]", "f32[5,8]", "f32[4,8]"), ""),
        ("b0f_0io->b0f", ("f32[4,3,5]", "f32[3,5,7]", "f32[4,1,7]"), ", window={size=2}"),
        ("x", ("f32[4,3]", "f32[3,5]", "f32[4,5]"), ""),
    ],
)  # fmt: skip
def test_convolutions_that_are_no_products(
    labels: str, shapes: tuple[str, str, str], more: str
) -> None:
    attributes = f", dim_labels={labels}{more.replace(' ', '').replace(',', ', ')}"
    assert contraction("convolution", attributes, *shapes) is None
