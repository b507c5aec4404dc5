"""Trip counts: every form that gives one, and beside it a text that looks alike and must not."""

from __future__ import annotations

import itertools

import pytest

from tests.analysis.loop_texts import CONDITION, STEP, loop_text, only_loop


def count(*args: str, **kwargs: str) -> tuple[int | None, str]:
    loop = only_loop(loop_text(*args, **kwargs))
    return loop.trip_count, loop.trips_kind


def compare(direction: str, left: str = "i", right: str = "n", bound: int = 10) -> str:
    return f"""
  n = s32[] constant({bound})
  ROOT go = pred[] compare({left}, {right}), direction={direction}
"""


def adding(step: int) -> str:
    return f"  one = s32[] constant({step})\n  next = s32[] add(i, one)"


UNKNOWN = (None, "unknown")

# -- init, step, bound and direction --------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "init", "step", "bound", "trips"),
    [
        ("LT", 0, 1, 10, 10),
        ("LT", 0, 2, 10, 5),
        ("LT", 0, 3, 10, 4),
        ("LT", 3, 1, 10, 7),
        ("LT", 10, 1, 10, 0),
        ("LT", 11, 1, 10, 0),
        ("LE", 0, 1, 10, 11),
        ("LE", 0, 4, 10, 3),
        ("GT", 10, -1, 0, 10),
        ("GT", 10, -3, 0, 4),
        ("GE", 10, -1, 0, 11),
        ("GE", 10, -5, 0, 3),
        ("NE", 0, 1, 10, 10),
        ("NE", 10, -2, 0, 5),
        ("NE", 10, 1, 10, 0),
        ("EQ", 10, 1, 10, 1),
        ("EQ", 9, 1, 10, 0),
    ],
)
def test_counts_of_constant_loops(
    direction: str, init: int, step: int, bound: int, trips: int
) -> None:
    found = count(compare(direction, bound=bound), adding(step), f"constant({init})")
    assert found == (trips, "inferred")


@pytest.mark.parametrize(
    ("direction", "init", "step", "bound"),
    [
        ("LT", 0, -1, 10),
        ("LT", 0, 0, 10),
        ("GT", 10, 1, 0),
        ("NE", 0, 3, 10),
        ("NE", 0, -1, 10),
        ("EQ", 10, 0, 10),
    ],
)
def test_a_loop_that_only_a_wrap_around_ends_is_unknown(
    direction: str, init: int, step: int, bound: int
) -> None:
    assert count(compare(direction, bound=bound), adding(step), f"constant({init})") == UNKNOWN


def test_operands_of_the_compare_may_be_swapped() -> None:
    assert count(compare("GT", "n", "i")) == (10, "inferred")
    assert count(compare("GE", "n", "i")) == (11, "inferred")
    assert count(compare("LT", "n", "i")) == (0, "inferred")


@pytest.mark.parametrize(
    ("opcode", "trips"),
    [("less-than", 10), ("less-than-or-equal-to", 11), ("not-equal-to", 10), ("greater-than", 0)],
)
def test_compare_opcodes_of_2018(opcode: str, trips: int) -> None:
    found = count(f"  n = s32[] constant(10)\n  ROOT go = pred[] {opcode}(i, n)")
    assert found == (trips, "inferred")


def test_loop_facts_besides_the_count() -> None:
    loop = only_loop(loop_text(compare("LT", bound=10), adding(2), "constant(4)"))
    assert (loop.induction_index, loop.trips.start, loop.step) == (0, 4, 2)
    assert loop.trips.evidence == "carry 0 from 4 in steps of 2 while 4, 6, … < 10"


# -- the range of the dtype -----------------------------------------------------------------------


def test_an_unsigned_counter_may_count_down_by_adding_its_largest_value() -> None:
    found = count(compare("GT", bound=0), adding(2**32 - 1), "constant(8)", dtype="u32")
    assert found == (8, "inferred")


def test_a_counter_that_leaves_its_dtype_is_unknown() -> None:
    assert count(compare("LE", bound=255), STEP, dtype="u8") == UNKNOWN
    assert count(compare("LT", bound=255), STEP, dtype="u8") == (255, "inferred")
    assert count(compare("LT", bound=127), adding(100), dtype="s8") == UNKNOWN


def test_a_convert_of_a_counter_that_wraps_before_is_unknown() -> None:
    wide = """
  c = s64[] convert(i)
  n = s64[] constant({})
  ROOT go = pred[] compare(c, n), direction=LT
"""
    assert count(wide.format(100), dtype="s8") == (100, "inferred")
    assert count(wide.format(200), dtype="s8") == UNKNOWN


# -- how the step is written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "step",
    [
        "  one = s32[] constant(1)\n  next = s32[] add(one, i)",
        "  one = s32[] constant(-1)\n  next = s32[] subtract(i, one)",
        "  one = s32[] constant(1)\n  c = s32[] copy(i)\n  next = s32[] add(c, one)",
        "  one = s32[] constant(1)\n  s = s32[] add(i, one)\n  next = s32[] copy(s)",
        "  one = s32[1] constant({1})\n  b = s32[1] bitcast(i)\n  s = s32[1] add(b, one)\n"
        "  next = s32[] reshape(s)",
        "  one = s32[] constant(1)\n  k = s32[] negate(i)\n  m = s32[] subtract(k, one)\n"
        "  next = s32[] negate(m)",
        "  one = s32[] constant(1)\n  t.1 = (s32[], f32[]) tuple(i, x)\n"
        "  o = (s32[], f32[]) opt-barrier(t.1)\n  j = s32[] get-tuple-element(o), index=0\n"
        "  next = s32[] add(j, one)",
        "  both = (f32[2], s32[]) constant(({0, 2}, 1))\n"
        "  one = s32[] get-tuple-element(both), index=1\n  next = s32[] add(i, one)",
        "  one = s32[] constant(1)\n  s = s32[] add(i, one)\n"
        "  cs = (s32[], s32[], u32[]) copy-start(s)\n  next = s32[] copy-done(cs)",
    ],
)
def test_steps_of_one(step: str) -> None:
    assert count(step=step) == (10, "inferred")


def test_two_additions_make_a_step_of_two() -> None:
    twice = "  one = s32[] constant(1)\n  s = s32[] add(i, one)\n  next = s32[] add(s, one)"
    assert count(step=twice) == (5, "inferred")


@pytest.mark.parametrize(
    "step",
    [
        "  two = s32[] constant(2)\n  next = s32[] multiply(i, two)",
        "  next = s32[] add(i, i)",
        "  d = s32[] convert(x)\n  next = s32[] add(i, d)",
        "  one = s32[] constant(1)\n  s = s32[] add(i, one)\n  zero = f32[] constant(0)\n"
        "  q = pred[] compare(x, zero), direction=GT\n  next = s32[] select(q, s, i)",
        "  next = s32[] constant(3)",
    ],
)
def test_steps_that_are_no_constant_are_unknown(step: str) -> None:
    assert count(step=step) == UNKNOWN


def test_an_element_that_takes_what_another_was_before() -> None:
    """A software pipeline carries the index of the iteration before."""
    text = """HloModule m
body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], s32[]) tuple(i, n)
}
cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(10)
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = s32[] constant(3)
  b = s32[] constant(4)
  t = (s32[], s32[]) tuple(a, b)
  ROOT w = (s32[], s32[]) while(t), condition=cond, body=body
}
"""
    assert only_loop(text).trip_count == 7
    assert only_loop(text.replace("constant(4)", "constant(5)")).trips_kind == "unknown"


# -- fusions, calls and tuples --------------------------------------------------------------------

FUSED_COMPARE = """
lt {
  q = s32[] parameter(0)
  m = s32[] parameter(1)
  ROOT l = pred[] compare(q, m), direction=LT
}
"""


def test_the_condition_may_be_a_fusion_that_takes_the_bound() -> None:
    condition = """
  n = s32[] constant(7)
  ROOT go = pred[] fusion(i, n), kind=kLoop, calls=lt
"""
    assert count(condition, before=FUSED_COMPARE) == (7, "inferred")
    swapped = condition.replace("(i, n)", "(n, i)")
    assert count(swapped, before=FUSED_COMPARE) == (0, "inferred")


def test_the_bound_may_be_inside_the_fusion() -> None:
    fused = """
lt {
  q = s32[] parameter(0)
  m = s32[] constant(6)
  ROOT l = pred[] compare(q, m), direction=LT
}
"""
    found = count("  ROOT go = pred[] fusion(i), kind=kLoop, calls=lt", before=fused)
    assert found == (6, "inferred")


def test_the_condition_may_be_called_and_give_a_tuple() -> None:
    called = """
f {
  q = (s32[], f32[]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  m = s32[] constant(9)
  l = pred[] compare(j, m), direction=LT
  ROOT t = (pred[]) tuple(l)
}
"""
    condition = """
  c = (pred[]) call(p), to_apply=f
  ROOT go = pred[] get-tuple-element(c), index=0
"""
    assert count(condition, before=called) == (9, "inferred")


def test_the_step_may_be_one_output_of_a_fusion() -> None:
    fused = """
f {
  q = s32[] parameter(0)
  v = f32[] parameter(1)
  one = s32[] constant(2)
  s = s32[] add(q, one)
  m = f32[] negate(v)
  ROOT t = (f32[], s32[]) tuple(m, s)
}
"""
    step = """
  f = (f32[], s32[]) fusion(i, x), kind=kLoop, calls=f
  next = s32[] get-tuple-element(f), index=1
"""
    assert count(step=step, before=fused) == (5, "inferred")


def test_an_element_may_be_taken_with_a_mark() -> None:
    text = loop_text(
        "  n = s32[] constant(4)\n  ROOT go = pred[] compare(p#0, n), direction=LT",
        "  one = s32[] constant(1)\n  next = s32[] add(p#0, one)",
    )
    assert only_loop(text).trip_count == 4


def test_a_carry_that_is_no_tuple() -> None:
    text = """HloModule m
body {
  p = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT n = s32[] add(p, one)
}
cond {
  p = s32[] parameter(0)
  n = s32[] constant(6)
  ROOT go = pred[] compare(p, n), direction=LT
}
ENTRY main {
  z = s32[] constant(0)
  ROOT w = s32[] while(z), condition=cond, body=body
}
"""
    loop = only_loop(text)
    assert (loop.trip_count, loop.induction_index, loop.step) == (6, None, 1)


# -- bounds and inits from outside ----------------------------------------------------------------

BOUND_IN_CARRY = """HloModule m
body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  kept = s32[] copy(n)
  ROOT r = (s32[], s32[]) tuple(next, kept)
}
cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  z = s32[] constant(0)
  c = s32[] copy(z)
  bound = s32[] constant(12)
  t = (s32[], s32[]) tuple(c, bound)
  ROOT w = (s32[], s32[]) while(t), condition=cond, body=body
}
"""


def test_the_bound_may_be_an_element_that_the_body_keeps() -> None:
    assert only_loop(BOUND_IN_CARRY).trip_count == 12


def test_a_bound_that_the_body_moves_too() -> None:
    away = BOUND_IN_CARRY.replace("copy(n)", "add(n, one)")
    assert only_loop(away).trips_kind == "unknown"
    nearer = BOUND_IN_CARRY.replace("copy(n)", "subtract(n, one)")
    assert only_loop(nearer).trip_count == 6


def test_a_bound_that_is_a_parameter_is_unknown() -> None:
    text = BOUND_IN_CARRY.replace("constant(12)", "parameter(0)")
    assert only_loop(text).trips_kind == "unknown"


NESTED = """HloModule m
inner_body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], s32[]) tuple(next, n)
}
inner_cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT go = pred[] compare(i, n), direction=LT
}
outer_body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  t = (s32[], s32[]) tuple(zero, n)
  inner = (s32[], s32[]) while(t), condition=inner_cond, body=inner_body
  m = s32[] get-tuple-element(inner), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], s32[]) tuple(next, m)
}
outer_cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  bound = s32[] constant(5)
  t = (s32[], s32[]) tuple(zero, bound)
  ROOT outer = (s32[], s32[]) while(t), condition=outer_cond, body=outer_body
}
"""


def test_a_bound_may_come_through_the_loop_around() -> None:
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import parse

    loops = ModuleAnalysis(parse(NESTED)).loops
    assert [(loop.instr.name, loop.trip_count) for loop in loops] == [("inner", 5), ("outer", 3)]
    by_index = NESTED.replace("tuple(zero, n)", "tuple(zero, i)")
    loops = ModuleAnalysis(parse(by_index)).loops
    assert [loop.trips_kind for loop in loops] == ["unknown", "inferred"]


AFTER_A_LOOP = """HloModule m
once {
  p = (s32[]) parameter(0)
  ROOT r = (s32[]) tuple(s32[] constant(-1))
}
is_zero {
  p = (s32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  ROOT eq = pred[] compare(k, s32[] constant(0)), direction=EQ
}
is_one {
  p = (s32[]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  ROOT eq = pred[] compare(k, s32[] constant(1)), direction=EQ
}
ENTRY main {
  k = s32[] parameter(0)
  t = (s32[]) tuple(k)
  first = (s32[]) while(t), condition=is_zero, body=once
  ROOT second = (s32[]) while(first), condition=is_one, body=once
}
"""


def test_what_a_loop_gives_is_its_init_where_it_does_not_run() -> None:
    # TensorFlow's `if` as of 2018: a while for each branch. With k = 1 only the second one runs.
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import parse

    loops = ModuleAnalysis(parse(AFTER_A_LOOP)).loops
    assert [(loop.instr.name, loop.trips_kind) for loop in loops] == [
        ("first", "unknown"),
        ("second", "unknown"),
    ]


# -- several conditions ---------------------------------------------------------------------------

AND = """
  n = s32[] constant(10)
  lt = pred[] compare(i, n), direction=LT
  zero = f32[] constant(0)
  other = pred[] compare(x, zero), direction=GT
  ROOT go = pred[] and(lt, other)
"""


def test_a_second_condition_leaves_a_bound() -> None:
    loop = only_loop(loop_text(AND))
    assert (loop.trip_count, loop.trips.most, loop.trips_kind) == (None, 10, "bounded")


def test_of_two_known_conditions_the_first_to_fail_ends_the_loop() -> None:
    both = AND.replace("compare(x, zero)", "compare(m, i)").replace(
        "zero = f32[] constant(0)", "m = s32[] constant(4)"
    )
    assert count(both) == (4, "inferred")


def test_either_of_two_conditions_says_nothing() -> None:
    assert count(AND.replace("and(", "or(")) == UNKNOWN


def test_not() -> None:
    condition = """
  n = s32[] constant(10)
  ge = pred[] compare(i, n), direction=GE
  ROOT go = pred[] not(ge)
"""
    assert count(condition) == (10, "inferred")
    neither = AND.replace("LT", "GE").replace("ROOT go = pred[] and", "o = pred[] or")
    loop = only_loop(loop_text(neither + "  ROOT go = pred[] not(o)\n"))
    assert (loop.trips.most, loop.trips_kind) == (10, "bounded")


def test_constant_conditions() -> None:
    assert count("  ROOT go = pred[] constant(false)") == (0, "inferred")
    assert count("  ROOT go = pred[] constant(true)") == UNKNOWN


def test_a_condition_that_the_body_computes_for_the_next_iteration() -> None:
    text = """HloModule m
body {
  p = (s32[], pred[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  n = s32[] constant(10)
  more = pred[] compare(next, n), direction=LT
  ROOT r = (s32[], pred[]) tuple(next, more)
}
cond {
  p = (s32[], pred[]) parameter(0)
  ROOT go = pred[] get-tuple-element(p), index=1
}
ENTRY main {
  z = s32[] constant(0)
  first = pred[] constant(true)
  t = (s32[], pred[]) tuple(z, first)
  ROOT w = (s32[], pred[]) while(t), condition=cond, body=body
}
"""
    assert only_loop(text).trip_count == 10
    assert only_loop(text.replace("constant(true)", "constant(false)")).trip_count == 0
    bounded = only_loop(text.replace("pred[] constant(true)", "pred[] parameter(0)"))
    assert (bounded.trips_kind, bounded.trips.most) == ("bounded", 10)


# -- what XLA noted -------------------------------------------------------------------------------

NOTED = ', backend_config={"known_trip_count":{"n":"11"}}'


def test_an_annotation_wins() -> None:
    loop = only_loop(loop_text(attributes=NOTED))
    assert (loop.trip_count, loop.trips_kind, loop.trips.inferred) == (11, "annotated", 10)


def test_an_annotation_in_a_quoted_config() -> None:
    quoted = ', backend_config="{\\"known_trip_count\\":{\\"n\\":\\"15\\"}}"'
    assert count(attributes=quoted) == (15, "annotated")


def test_an_annotation_tells_the_induction_variable_where_the_structure_does_not() -> None:
    noted = (
        ', backend_config={"known_trip_count":{"n":"4"},"known_init_step":{"init":"0","step":"2"},'
        '"known_induction_variable":{"tuple_index":"0"}}'
    )
    loop = only_loop(loop_text(init="copy(b)", attributes=noted))
    assert (loop.trip_count, loop.induction_index, loop.step) == (4, 0, 2)


def test_a_note_somewhere_else_is_no_annotation() -> None:
    elsewhere = """, metadata={op_name="known_trip_count\\":{\\"n\\":\\"7\\"}"}"""
    assert count(init="copy(b)", attributes=elsewhere) == UNKNOWN


def test_an_unknown_init() -> None:
    assert count(init="copy(b)") == UNKNOWN


# -- texts that are not whole ---------------------------------------------------------------------


def test_a_missing_condition_is_unknown() -> None:
    loop = only_loop(loop_text().replace("condition=cond", "condition=gone"))
    assert (loop.condition, loop.trips_kind) == (None, "unknown")


def test_shapes_left_out() -> None:
    text = loop_text().replace("i = s32[] get-tuple-element", "i = get-tuple-element")
    assert only_loop(text).trip_count == 10


def test_a_body_that_runs_its_own_loop_is_no_endless_search() -> None:
    step = "  w.1 = (s32[], f32[]) while(p), condition=cond, body=body\n"
    step += "  next = s32[] get-tuple-element(w.1), index=0"
    text = loop_text(step=step)
    assert CONDITION in text
    from hlo_lens.analysis import ModuleAnalysis
    from hlo_lens.hlo import parse

    assert {loop.trips_kind for loop in ModuleAnalysis(parse(text)).loops} == {"unknown"}


def test_shared_operands_do_not_multiply_the_work() -> None:
    step = "  one = s32[] constant(0)\n  d.0 = s32[] multiply(i, one)\n"
    step += "".join(f"  d.{k + 1} = s32[] add(d.{k}, d.{k})\n" for k in range(60))
    step += "  c = s32[] constant(1)\n  e = s32[] add(i, c)\n  next = s32[] add(e, d.60)"
    assert count(step=step) == (10, "inferred")


# -- against running the loop ---------------------------------------------------------------------

HOLDS = {
    "LT": int.__lt__,
    "LE": int.__le__,
    "GT": int.__gt__,
    "GE": int.__ge__,
    "NE": int.__ne__,
    "EQ": int.__eq__,
}


def run(dtype: str, direction: str, init: int, step: int, bound: int) -> int | None:
    """The iterations of an 8-bit loop, run as a machine does; None where it never ends."""
    low = -128 if dtype == "s8" else 0
    value = init
    for trips in range(257):
        if not HOLDS[direction](value, bound):
            return trips
        value = (value + step - low) % 256 + low
    return None


@pytest.mark.parametrize("direction", HOLDS)
@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_a_count_that_is_given_is_the_one_the_loop_runs(dtype: str, direction: str) -> None:
    """Where the counter wraps around the answer may be unknown, never wrong."""
    numbers = (0, 1, 7, 100, 127, *((-128, -5) if dtype == "s8" else (128, 255)))
    known = 0
    for init, bound, step in itertools.product(numbers, numbers, (-100, -3, -1, 0, 1, 2, 3, 100)):
        written = step if dtype == "s8" else step % 256
        condition = f"  n = s32[] constant({bound})\n  ROOT go = pred[] compare(i, n)"
        text = loop_text(
            f"{condition}, direction={direction}",
            f"  one = s32[] constant({written})\n  next = s32[] add(i, one)",
            f"constant({init})",
            dtype=dtype,
        )
        found = only_loop(text).trip_count
        assert found in (None, run(dtype, direction, init, step, bound)), text
        known += found is not None
    assert known > 100
