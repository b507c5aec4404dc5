"""Numbers: operations, integers that are calculated, series over the iterations of a loop."""

from __future__ import annotations

import pytest

from hlo_lens.analysis.values import Elementwise, Numbers, Origins, Series, progression

S32 = (-(2**31), 2**31 - 1)
U32 = (0, 2**32 - 1)


def test_an_operation_has_one_number() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    assert numbers.make("add", None, (x, y)) == numbers.make("add", None, (x, y))
    others = {
        numbers.make("add", None, (y, x)),
        numbers.make("add", "{0}", (x, y)),
        numbers.make("multiply", None, (x, y)),
    }
    assert len(others - {numbers.make("add", None, (x, y))}) == 3
    assert numbers[x].kind == "argument"
    assert len(numbers) == 6


def test_tuples_are_taken_apart() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    pair = numbers.packed([x, y])
    assert numbers.elements(pair) == (x, y)
    assert [numbers.element(pair, k) for k in (0, 1)] == [x, y]
    assert numbers.elements(x) is None
    # What is no tuple, or too short, has elements all the same: equal ones of equal values.
    assert numbers.element(x, 0) == numbers.element(x, 0) != numbers.element(y, 0)
    assert numbers.element(pair, 2) not in (x, y)
    assert numbers.packed([pair, pair]) == numbers.packed([numbers.packed([x, y])] * 2)


@pytest.mark.parametrize(
    ("operation", "operands", "result"),
    [
        ("add", (3, 4), 7),
        ("subtract", (3, 4), -1),
        ("negate", (3,), -3),
        ("divide", (-7, 2), -3),  # towards zero, as XLA does
        ("remainder", (-7, 2), -1),
        ("clamp", (0, 9, 5), 5),
        ("select", (1, 3, 4), 3),
        ("select", (0, 3, 4), 4),
        ("LT", (3, 4), 1),
        ("GE", (3, 4), 0),
        ("divide", (1, 0), None),
        ("xor", (1, 1), None),
        ("add", (1,), None),
        ("add", (2**31 - 1, 1), None),
        ("multiply", (2**20, 2**20), None),
    ],
)
def test_integers_are_calculated(
    operation: str, operands: tuple[int, ...], result: int | None
) -> None:
    numbers = Numbers()
    found = numbers.calculated(operation, tuple(map(numbers.integer, operands)), S32)
    assert found == (None if result is None else numbers.integer(result))


def test_what_wraps_around_is_not_known() -> None:
    numbers = Numbers()
    one, two = numbers.integer(1), numbers.integer(2)
    assert numbers.calculated("subtract", (one, two), U32) is None
    assert numbers.calculated("subtract", (one, two), S32) == numbers.integer(-1)


def series(numbers: Numbers, trips: int, start: int = 0, step: int = 1, level: int = 1) -> int:
    return numbers.series(progression(level, trips, start, step))


@pytest.mark.parametrize("trips", [2, 3, 7, 1000])
def test_counting_back_is_the_reverse_of_counting(trips: int) -> None:
    numbers = Numbers()
    forward = series(numbers, trips)
    back = numbers.calculated("subtract", (numbers.integer(trips - 1), forward), S32)
    assert back is not None
    known, reverse = numbers.series_of(forward), numbers.series_of(back)
    assert known is not None
    assert reverse == known.reversed()
    assert known.reversed().reversed() == known
    # What jax makes of an index that may be negative: it never is.
    low = numbers.calculated("LT", (forward, numbers.integer(0)), S32)
    assert low == numbers.integer(0)
    more = numbers.calculated("add", (forward, numbers.integer(trips)), S32)
    assert more is not None
    assert numbers.calculated("select", (low, more, forward), S32) == forward


def test_a_series_that_does_not_change_is_an_integer() -> None:
    numbers = Numbers()
    assert numbers.series(Series(1, 3, (5, 5, 5))) == numbers.integer(5)
    assert series(numbers, 1, start=4) == numbers.integer(4)
    known = series(numbers, 4)
    assert numbers.calculated("multiply", (known, numbers.integer(0)), S32) == numbers.integer(0)


def test_iterations_of_other_loops_are_not_mixed() -> None:
    numbers = Numbers()
    four = series(numbers, 4)
    assert numbers.calculated("add", (four, series(numbers, 5)), S32) is None
    assert numbers.calculated("add", (four, series(numbers, 4, level=2)), S32) is None
    assert numbers.calculated("add", (four, numbers.make("argument", 0)), S32) is None
    twice = numbers.calculated("add", (four, four), S32)
    assert twice == series(numbers, 4, step=2)


@pytest.mark.parametrize(("trips", "known"), [(200, True), (2000, False)])
def test_what_may_change_in_between_is_known_where_all_iterations_are_kept(
    trips: int, known: bool
) -> None:
    numbers = Numbers()
    each, five = series(numbers, trips), numbers.integer(5)
    for operation in ("EQ", "NE", "LT", "remainder", "divide", "maximum"):
        found = numbers.calculated(operation, (each, five), S32)
        assert (found is not None) == known, operation
        if found is not None:
            assert numbers.series_of(found) is not None
    # Lines stay lines.
    scaled = numbers.calculated("multiply", (each, five), S32)
    assert scaled == series(numbers, trips, step=5)
    assert numbers.calculated("maximum", (each, numbers.integer(0)), S32) == each


def test_views_that_undo_each_other_are_nothing() -> None:
    numbers = Numbers()
    x = numbers.make("argument", 0)
    turned = numbers.viewed(x, ((3, 1), (2, 3)))
    assert turned != x
    assert numbers.viewed(turned, ((2, 1), (3, 2))) == x
    assert numbers.viewed(x, ((6, 1),)) == x
    assert numbers.unviewed(turned) == numbers.unviewed(x) == x
    # One that cannot be put together with another stays on top of it.
    uneven = numbers.viewed(turned, ((2, 1), (3, 2)))
    assert uneven == x
    odd = numbers.viewed(turned, ((3, 2), (2, 1)))
    assert numbers.unviewed(odd) in (x, turned)


def test_an_operation_on_other_operands() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    turned = numbers.viewed(x, ((3, 1), (2, 3)))
    added = numbers.make("add", "[2,3]", (x, y))
    pair = numbers.element(x, 1)
    for number, expected in (
        (added, numbers.make("add", "[2,3]", (y, y))),
        (turned, numbers.viewed(y, ((3, 1), (2, 3)))),
        (pair, numbers.element(y, 1)),
    ):
        node = numbers[number]
        operands = (y, y) if node.kind == "add" else (y,)
        assert numbers.again(node, operands) == expected


def test_what_a_number_is_computed_from() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    product = numbers.make("dot", None, (x, y))
    turned, other = numbers.viewed(product, ((3, 1), (2, 3))), numbers.make("tanh", None, (x,))
    origins = Origins(numbers, [product, product])
    assert origins.arguments(turned) == origins.arguments(x) | origins.arguments(y)
    assert origins.arguments(other) == origins.arguments(x) != origins.arguments(y)
    assert origins.is_computed_from(product, product)
    assert origins.is_computed_from(turned, product)
    assert not origins.is_computed_from(other, product)
    later = numbers.make("add", None, (turned, other))
    assert origins.is_computed_from(later, product)
    assert origins.arguments(numbers.integer(3)) == 0


def test_a_product_whichever_operand_comes_first() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    one = numbers.matrices((1, 3, 4, 5), "", x, y)
    other = numbers.matrices((1, 4, 3, 5), "", y, x)
    assert other == numbers.viewed(one, ((4, 1), (3, 4)))
    assert numbers.unviewed(other) == one
    assert numbers.matrices((1, 3, 4, 6), "", x, y) != one
    again = numbers.again(numbers[one], (y, x))
    assert again == numbers.matrices((1, 3, 4, 5), "", y, x)


def test_operations_on_elements_do_not_mind_their_order() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    scalar = numbers.make("argument", 2)
    turn = ((3, 1), (2, 3))
    plain = Elementwise("")
    added = numbers.elementwise("add", plain, (x, y))
    turned = numbers.elementwise("add", plain, (numbers.viewed(x, turn), numbers.viewed(y, turn)))
    assert turned == numbers.viewed(added, turn)
    # An array of one number is the same in every order.
    filled = numbers.filled(6, scalar)
    assert numbers.viewed(filled, turn) == filled
    for order in (lambda a, b: (a, b), lambda a, b: (b, a)):
        one = numbers.elementwise("multiply", plain, order(x, filled))
        other = numbers.elementwise("multiply", plain, order(numbers.viewed(x, turn), filled))
        assert other == numbers.viewed(one, turn)
    # Only one of two in another order: that is another value.
    mixed = numbers.elementwise("add", plain, (numbers.viewed(x, turn), y))
    assert numbers.unviewed(mixed) != added
    assert numbers.again(numbers[added], (y, x)) == numbers.elementwise("add", plain, (y, x))


def test_what_a_value_is_a_view_of() -> None:
    numbers = Numbers()
    x, y = numbers.make("argument", 0), numbers.make("argument", 1)
    turned = numbers.viewed(x, ((3, 1), (2, 3)))
    below = numbers.under(y, turned)
    assert numbers.viewed(below, ((3, 1), (2, 3))) == y
    assert numbers.under(y, x) == y
    assert numbers.viewed(turned, ()) == turned
