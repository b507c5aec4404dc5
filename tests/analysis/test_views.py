"""Views: transposes and bitcasts against what they do to each element."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from hlo_lens.analysis.views import (
    View,
    bitcast,
    composed,
    exchanged,
    in_memory,
    inverse,
    transposed,
    within,
)


def taken(view: View) -> list[int]:
    """The elements that a view takes, in order."""
    found = [0]
    for size, stride in view:
        found = [at + k * stride for at in found for k in range(size)]
    return found


def strides(sizes: list[int]) -> list[int]:
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


def elements(sizes: list[int], order: list[int]) -> list[int]:
    """The elements of an array, its dimensions in that order."""
    each = strides(sizes)
    places = itertools.product(*(range(sizes[d]) for d in order))
    return [sum(k * each[d] for k, d in zip(place, order, strict=True)) for place in places]


def text(sizes: list[int], layout: str = "") -> str:
    return f"f32[{','.join(map(str, sizes))}]{layout}"


@pytest.mark.parametrize("seed", range(50))
def test_transposes_and_their_inverses(seed: int) -> None:
    r = random.Random(seed)
    sizes = [r.choice((1, 2, 3, 4, 6)) for _ in range(r.randint(0, 4))]
    order = r.sample(range(len(sizes)), len(sizes))
    expected = elements(sizes, order)
    view = transposed(text(sizes), order)
    assert taken(view) == expected
    assert taken(inverse(view)) == [expected.index(k) for k in range(len(expected))]
    again = r.sample(range(len(sizes)), len(sizes))
    outer = transposed(text([sizes[d] for d in order]), again)
    assert taken(composed(view, outer)) == [expected[k] for k in taken(outer)]


@pytest.mark.parametrize("seed", range(50))
def test_a_bitcast_leaves_the_elements_where_they_are(seed: int) -> None:
    r = random.Random(seed)
    sizes = [r.choice((1, 2, 3, 4)) for _ in range(3)]
    order, other = (r.sample(range(3), 3) for _ in range(2))
    # An array with the same sizes in memory, its dimensions named otherwise.
    result = [0] * 3
    for place in range(3):
        result[other[place]] = sizes[order[place]]
    layouts = [f"{{{','.join(str(d) for d in reversed(each))}}}" for each in (order, other)]
    view = bitcast(text(sizes, layouts[0]), text(result, layouts[1]))
    memory = elements(sizes, order)
    place_of = {element: k for k, element in enumerate(elements(result, other))}
    assert taken(view) == [memory[place_of[k]] for k in range(len(memory))]


@pytest.mark.parametrize(
    ("given", "result", "view"),
    [
        ("f32[4,8]{1,0}", "f32[8,4]{1,0}", ((32, 1),)),
        ("f32[4,8]{1,0}", "f32[8,4]{0,1}", ((8, 1), (4, 8))),
        ("f32[4,8]{0,1:S(1)}", "f32[4,8]{0,1}", ((32, 1),)),
        ("f32[4,8]", "f32[2,16]", ((32, 1),)),
        # Tiles of 8 by 128 as dimensions of their own.
        (
            "bf16[2,2048,2048]{2,1,0:T(8,128)(2,1)}",
            "bf16[2,256,16,8,128]{4,3,2,1,0:T(8,128)(2,1)}",
            ((512, 16384), (16, 128), (8, 2048), (128, 1)),
        ),
        # The same bytes: what lies in memory.
        ("f32[4,8]{0,1}", "s8[128]{0:T(1024)(128)(4,1)}", ((8, 1), (4, 8))),
        # Of one array the text leaves the tiles out.
        ("bf16[512,512]{0,1:S(1)}", "bf16[512,4,128]{0,2,1:T(8,128)(2,1)S(1)}", ((262144, 1),)),
        # Tiles that need padding are left out.
        ("bf16[1,128]{1,0:T(2,128)(2,1)}", "bf16[128]{0:T(256)(128)(2,1)}", ((128, 1),)),
    ],
)
def test_bitcasts_of_layouts_and_tiles(given: str, result: str, view: View) -> None:
    assert bitcast(given, result) == view


def test_tiles_come_one_inside_the_other() -> None:
    assert in_memory("f32[4,4]{1,0:T(2,2)}") == ((2, 8), (2, 2), (2, 4), (2, 1))
    assert in_memory("f32[4,4]{1,0:T(2,4)(2,1)}") == ((2, 8), (4, 1), (2, 4))
    back = inverse(in_memory("f32[4,4]{1,0:T(2,2)}"))
    assert composed(in_memory("f32[4,4]{1,0:T(2,2)}"), back) == ((16, 1),)


@pytest.mark.parametrize(
    "shape",
    ["f32[?,8]", "f32[<=4,8]", "f32[0]", f"f32[{','.join(['99999'] * 40)}]", "f32[4,8]{1,1}",
     "f32[4,8]{0}", "f32[4,8]{2,1,0}"],
)  # fmt: skip
def test_what_has_no_view(shape: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        bitcast(shape, "f32[8,4]{0,1}")


def test_what_is_no_transpose() -> None:
    for order in ([0], [0, 0], [1, 2], [2, 1, 0]):
        with pytest.raises(ValueError, match="no order"):
            transposed("f32[4,8]", order)


def test_views_that_do_not_go_together() -> None:
    turned = transposed("f32[4,6]", [1, 0])
    with pytest.raises(ValueError, match="unevenly"):
        composed(turned, ((6, 1), (4, 6)))
    with pytest.raises(ValueError, match="more elements"):
        composed(turned, ((48, 1),))


def test_matrices_exchanged() -> None:
    assert exchanged(3, 7, 4) == transposed("f32[3,4,7]", [0, 2, 1])
    assert composed(exchanged(3, 7, 4), exchanged(3, 4, 7)) == ((84, 1),)


def test_the_order_in_each_of_the_parts() -> None:
    turned = transposed("f32[5,4,6]", [0, 2, 1])
    assert within(turned, 5) == transposed("f32[4,6]", [1, 0])
    assert within(((120, 1),), 5) == ((24, 1),)
    # Parts that are taken apart, or in another order.
    assert within(transposed("f32[5,4,6]", [1, 0, 2]), 5) is None
    assert within(transposed("f32[5,4,6]", [2, 1, 0]), 5) is None
    assert within(turned, 7) is None
    assert within((), 5) is None
