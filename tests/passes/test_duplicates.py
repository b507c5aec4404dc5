"""The duplicates table on small texts: each form, and a text that looks alike and has none."""

from __future__ import annotations

import pytest

from tests.mutate import check_table
from tests.passes.asking import ask, findings

ROWS = (
    "select kind, form, count, kernels, times, bytes, phases, same_phase, value from duplicates"
    " order by id"
)
# Other names give other phases, and other orders other rows first.
NAMELESS = "select kind, form, count, kernels, times, value from duplicates order by 1, 2, 3, 4"


def found(text: str) -> list[str]:
    """The rules that have something to say."""
    return [rule for rule, _ in findings(text, "duplicates")]


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each `old` replaced, which it must have."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def fwd(name: str) -> str:
    return f', metadata={{op_name="jit(f)/jvp(L)/{name}"}}'


# -- sorts ----------------------------------------------------------------------------------------

# Two sorts by the same keys, with other arrays along: one permutation.
SORTS = f"""HloModule m, is_scheduled=true

less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT lt = pred[] compare(a, b), direction=LT
}}

less.1 {{
  a.1 = s32[] parameter(0)
  b.1 = s32[] parameter(1)
  c.1 = f32[] parameter(2)
  d.1 = f32[] parameter(3)
  ROOT lt.1 = pred[] compare(a.1, b.1), direction=LT
}}

ENTRY main {{
  keys = s32[64] parameter(0)
  others = s32[64] parameter(1)
  rows = f32[64] parameter(2)
  index = s32[64] iota(), iota_dimension=0
  one = (s32[64], s32[64]) sort(keys, index), dimensions={{0}}, to_apply=less{fwd("sort")}
  order = s32[64] get-tuple-element(one), index=1
  two = (s32[64], f32[64]) sort(keys, rows), dimensions={{0}}, to_apply=less.1{fwd("sort")}
  sorted = f32[64] get-tuple-element(two), index=1
  ROOT both = (s32[64], f32[64]) tuple(order, sorted)
}}
"""


def test_the_same_keys_sorted_twice() -> None:
    assert ask(SORTS, ROWS) == [("sort", "recomputed", 2, 2, 2, 512, "fwd", 1, "s32[64]")]
    assert found(SORTS) == ["sorted-twice"]
    assert ask(
        SORTS,
        "select role, i.name from members m join instructions i on i.id = m.instr"
        " where \"table\" = 'duplicates' order by i.id",
    ) == [("sort", "one"), ("sort", "two")]


def test_the_finding_names_the_sorts() -> None:
    assert findings(SORTS, "duplicates") == [
        (
            "sorted-twice",
            "s32[64] is sorted by equal keys more than once in fwd: in one and two, 2 runs in all"
            " phases.",
        )
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sort(keys, rows)", "sort(others, rows)"),
        ("compare(a.1, b.1), direction=LT", "compare(a.1, b.1), direction=GT"),
        ("compare(a.1, b.1)", "compare(b.1, a.1)"),
    ],
)
def test_other_keys_or_another_order_are_another_permutation(old: str, new: str) -> None:
    assert ask(changed(SORTS, (old, new)), ROWS) == []


def test_what_a_checkpoint_replays_is_no_finding() -> None:
    path = "jit(f)/transpose(jvp(L))/checkpoint/rematted_computation/sort"
    text = changed(SORTS, (f"less.1{fwd('sort')}", f'less.1, metadata={{op_name="{path}"}}'))
    assert ask(text, ROWS) == [("sort", "recomputed", 2, 2, 2, 512, "fwd, remat", 0, "s32[64]")]
    assert found(text) == []


def test_without_names_no_phase_is_told() -> None:
    text = SORTS.replace(fwd("sort"), "")
    assert ask(text, ROWS) == [("sort", "recomputed", 2, 2, 2, 512, None, None, "s32[64]")]
    assert found(text) == []


def test_before_optimization_there_are_no_kernels() -> None:
    text = changed(SORTS, (", is_scheduled=true", ""))
    assert ask(text, ROWS, stage="before_optimizations") == []
    assert found(text) == []  # of an unknown stage: rows, and nothing to say
    assert len(ask(text, ROWS)) == 1


# The order of one sort, sorted, and that sorted again.
INVERSE = changed(
    SORTS,
    ("two = (s32[64], f32[64]) sort(keys, rows)", "two = (s32[64], s32[64]) sort(order, index)"),
    ("to_apply=less.1", "to_apply=less"),
    ("  sorted = f32[64]", "  sorted = s32[64]"),
    ("(s32[64], f32[64]) tuple", "(s32[64], s32[64]) tuple"),
)


def test_an_inverse_by_sort() -> None:
    assert ask(INVERSE, ROWS) == [("sort", "inverse", 1, 1, 1, 512, "fwd", 1, "s32[64]")]
    assert findings(INVERSE, "duplicates") == [
        ("inverse-by-sort", "two of fwd: sorts the order that one made.")
    ]


def test_an_inverse_of_an_inverse_is_what_was_there() -> None:
    text = changed(
        INVERSE,
        (
            "  ROOT both = (s32[64], s32[64]) tuple(order, sorted)",
            "  three = (s32[64], s32[64]) sort(sorted, index), dimensions={0}, to_apply=less"
            + fwd("sort")
            + "\n  back = s32[64] get-tuple-element(three), index=1"
            "\n  ROOT both = (s32[64], s32[64]) tuple(sorted, back)",
        ),
    )
    evidence = ask(text, "select name, evidence from duplicates order by id")
    assert evidence == [
        ("two", '["sorts the order that one made"]'),
        ("three", '["sorts the order that two made", "so it gives what one gave"]'),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The sorted keys, sorted again: no permutation.
        ("get-tuple-element(one), index=1", "get-tuple-element(one), index=0"),
        # What went along was no index.
        ("sort(keys, index), dim", "sort(keys, others), dim"),
    ],
)
def test_not_everything_sorted_is_an_order(old: str, new: str) -> None:
    assert ask(changed(INVERSE, (old, new)), ROWS) == []


def test_a_sort_in_a_loop_that_does_not_change_its_keys() -> None:
    assert ask(LOOPED, ROWS) == [("sort", "recomputed", 1, 1, 8, 7 * 256, "fwd", 1, "s32[64]")]
    assert found(LOOPED) == ["sorted-twice"]
    own = changed(LOOPED, ("sort(keys)", "sort(state)"))
    assert ask(own, ROWS) == []


LOOPED = f"""HloModule m, is_scheduled=true

less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT lt = pred[] compare(a, b), direction=LT
}}

body {{
  carry = (s32[], s32[64], s32[64]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  keys = s32[64] get-tuple-element(carry), index=1
  state = s32[64] get-tuple-element(carry), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sorted = s32[64] sort(keys), dimensions={{0}}, to_apply=less{fwd("while/body/sort")}
  sum = s32[64] add(state, sorted){fwd("while/body/add")}
  ROOT out = (s32[], s32[64], s32[64]) tuple(next, keys, sum)
}}

condition {{
  carry.1 = (s32[], s32[64], s32[64]) parameter(0)
  i.1 = s32[] get-tuple-element(carry.1), index=0
  eight = s32[] constant(8)
  ROOT more = pred[] compare(i.1, eight), direction=LT
}}

ENTRY main {{
  keys.1 = s32[64] parameter(0)
  zero = s32[] constant(0)
  zeros = s32[64] broadcast(zero), dimensions={{}}
  init = (s32[], s32[64], s32[64]) tuple(zero, keys.1, zeros)
  ROOT loop = (s32[], s32[64], s32[64]) while(init), condition=condition, body=body
}}
"""


# -- norms ----------------------------------------------------------------------------------------

# x / sqrt(mean(x²) + eps), its statistic reduced in both of two fusions.
NORMS = f"""HloModule m, is_scheduled=true

add {{
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r)
}}

first {{
  x = f32[8,64] parameter(0)
  square = f32[8,64] multiply(x, x)
  zero = f32[] constant(0)
  sum = f32[8] reduce(square, zero), dimensions={{1}}, to_apply=add
  part = f32[] constant(0.015625)
  parts = f32[8] broadcast(part), dimensions={{}}
  mean = f32[8] multiply(sum, parts)
  small = f32[] constant(1e-06)
  smalls = f32[8] broadcast(small), dimensions={{}}
  shifted = f32[8] add(mean, smalls)
  root = f32[8] rsqrt(shifted)
  roots = f32[8,64] broadcast(root), dimensions={{0}}
  ROOT scaled = f32[8,64] multiply(x, roots)
}}

second {{
  x.1 = f32[8,64] parameter(0)
  square.1 = f32[8,64] multiply(x.1, x.1)
  zero.1 = f32[] constant(0)
  sum.1 = f32[8] reduce(square.1, zero.1), dimensions={{1}}, to_apply=add
  part.1 = f32[] constant(0.015625)
  parts.1 = f32[8] broadcast(part.1), dimensions={{}}
  mean.1 = f32[8] multiply(sum.1, parts.1)
  small.1 = f32[] constant(1e-06)
  smalls.1 = f32[8] broadcast(small.1), dimensions={{}}
  shifted.1 = f32[8] add(mean.1, smalls.1)
  root.1 = f32[8] rsqrt(shifted.1)
  roots.1 = f32[8,64] broadcast(root.1), dimensions={{0}}
  ROOT scaled.1 = f32[8,64] multiply(x.1, roots.1)
}}

ENTRY main {{
  h = f32[8,64] parameter(0)
  other = f32[8,64] parameter(1)
  a = f32[8,64] fusion(h), kind=kInput, calls=first{fwd("mul")}
  b = f32[8,64] fusion(h), kind=kInput, calls=second{fwd("mul")}
  ROOT both = (f32[8,64], f32[8,64]) tuple(a, b)
}}
"""


def test_a_statistic_in_two_kernels() -> None:
    assert ask(NORMS, ROWS) == [("norm", "recomputed", 2, 2, 2, 32, "fwd", 1, "f32[8]")]
    assert findings(NORMS, "duplicates") == [
        (
            "norm-recomputed",
            "the statistic f32[8] of one norm is computed more than once in fwd: in a and b, 2 runs"
            " in all phases.",
        )
    ]
    roles = ask(
        NORMS, "select role, count(*) from members where \"table\" = 'duplicates' group by 1"
    )
    assert roles == [("apply", 2), ("kernel", 2), ("root", 2), ("statistic", 2)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fusion(h), kind=kInput, calls=second", "fusion(other), kind=kInput, calls=second"),
        # A sum of exponentials, as in a softmax, and of no squares.
        ("square.1 = f32[8,64] multiply(x.1, x.1)", "square.1 = f32[8,64] exponential(x.1)"),
        ("square.1 = f32[8,64] multiply(x.1, x.1)", "square.1 = f32[8,64] abs(x.1)"),
        # Of another product than a square.
        (
            "square.1 = f32[8,64] multiply(x.1, x.1)",
            "e.1 = f32[8,64] exponential(x.1)\n  square.1 = f32[8,64] multiply(x.1, e.1)",
        ),
    ],
)
def test_another_array_or_no_norm(old: str, new: str) -> None:
    text = changed(NORMS, (old, new))
    assert ask(text, ROWS) == []


def test_the_root_of_an_optimizer_is_no_norm() -> None:
    """It takes the root of an average over steps, element by element."""
    text = NORMS
    for n in ("", ".1"):
        text = changed(
            text,
            (f"reduce(square{n}, zero{n})", f"reduce(x{n}, zero{n})"),
        )
    assert ask(text, ROWS) == []


def test_the_norm_of_all_gradients_is_no_norm() -> None:
    """One number, and no mean: nothing is normalized over a dimension."""
    text = NORMS
    for n in ("", ".1"):
        text = changed(
            text,
            (f"sum{n} = f32[8] reduce(square{n}, zero{n}), dimensions={{1}}",
             f"sum{n} = f32[] reduce(square{n}, zero{n}), dimensions={{0,1}}"),
            (f"mean{n} = f32[8] multiply(sum{n}, parts{n})", f"mean{n} = f32[] copy(sum{n})"),
            (f"shifted{n} = f32[8] add(mean{n}, smalls{n})",
             f"shifted{n} = f32[] add(mean{n}, small{n})"),
            (f"root{n} = f32[8] rsqrt(", f"root{n} = f32[] rsqrt("),
            (f"broadcast(root{n}), dimensions={{0}}", f"broadcast(root{n}), dimensions={{}}"),
        )  # fmt: skip
    assert ask(text, ROWS) == []


def test_a_power_or_a_root_and_a_division_are_a_norm_too() -> None:
    by_power = changed(
        NORMS,
        ("root = f32[8] rsqrt(shifted)", "half = f32[] constant(-0.5)\n"
         "  halves = f32[8] broadcast(half), dimensions={}\n"
         "  root = f32[8] power(shifted, halves)"),
        ("root.1 = f32[8] rsqrt(shifted.1)", "root.1 = f32[8] sqrt(shifted.1)"),
        ("multiply(x.1, roots.1)", "divide(x.1, roots.1)"),
    )  # fmt: skip
    assert ask(by_power, ROWS) == ask(NORMS, ROWS)


# The statistic in one kernel, the product in another.
SPLIT = changed(
    NORMS,
    ("  ROOT scaled = f32[8,64] multiply(x, roots)\n", ""),
    ("  roots = f32[8,64] broadcast(root), dimensions={0}\n", ""),
    ("  root = f32[8] rsqrt", "  ROOT root = f32[8] rsqrt"),
    ("  a = f32[8,64] fusion", "  a = f32[8] fusion"),
    ("  b = f32[8,64] fusion(h)", "  b = f32[8,64] fusion(h, a)"),
    ("(f32[8,64], f32[8,64]) tuple", "(f32[8], f32[8,64]) tuple"),
    (
        NORMS[NORMS.index("  square.1") : NORMS.index("  roots.1")],
        "  root.1 = f32[8] parameter(1)\n",
    ),
)


def test_a_norm_over_two_kernels_is_nothing_to_report() -> None:
    assert ask(SPLIT, ROWS) == [("norm", "split", 3, 2, 2, 32, "fwd", 0, "f32[8]")]
    assert found(SPLIT) == []


def test_what_xla_makes_again_for_want_of_memory_is_no_finding() -> None:
    text = changed(
        NORMS, ("  b = f32[8,64]", "  b.remat = f32[8,64]"), ("tuple(a, b)", "tuple(a, b.remat)")
    )
    assert ask(text, "select form, same_phase from duplicates") == [("recomputed", 0)]
    assert found(text) == []


# -- rope -----------------------------------------------------------------------------------------

ROPE = f"""HloModule m, is_scheduled=true

first {{
  at = f32[8,32] parameter(0)
  cos = f32[8,32] cosine(at)
  sin = f32[8,32] sine(at)
  ROOT one = (f32[8,32], f32[8,32]) tuple(cos, sin)
}}

second {{
  at.1 = f32[8,32] parameter(0)
  cos.1 = f32[8,32] cosine(at.1)
  sin.1 = f32[8,32] sine(at.1)
  ROOT two = (f32[8,32], f32[8,32]) tuple(cos.1, sin.1)
}}

ENTRY main {{
  angles = f32[8,32] parameter(0)
  others = f32[8,32] parameter(1)
  a = (f32[8,32], f32[8,32]) fusion(angles), kind=kLoop, calls=first{fwd("cos")}
  b = (f32[8,32], f32[8,32]) fusion(angles), kind=kLoop, calls=second{fwd("cos")}
  ROOT both = ((f32[8,32], f32[8,32]), (f32[8,32], f32[8,32])) tuple(a, b)
}}
"""


def test_tables_of_one_argument_in_two_kernels() -> None:
    assert ask(ROPE, ROWS) == [("rope", "recomputed", 4, 2, 2, 2048, "fwd", 1, "f32[8,32]")]
    assert found(ROPE) == ["rope-recomputed"]


def test_cosines_of_another_argument() -> None:
    assert (
        ask(
            changed(
                ROPE,
                (
                    "fusion(angles), kind=kLoop, calls=second",
                    "fusion(others), kind=kLoop, calls=second",
                ),
            ),
            ROWS,
        )
        == []
    )


def test_a_cosine_alone_is_no_table() -> None:
    assert ask(ROPE.replace(" sine(", " tanh("), ROWS) == []


ROTATION = f"""HloModule m, is_scheduled=true

low {{
  x = f32[8,64] parameter(0)
  c = f32[8,32] parameter(1)
  s = f32[8,32] parameter(2)
  x1 = f32[8,32] slice(x), slice={{[0:8], [0:32]}}
  x2 = f32[8,32] slice(x), slice={{[0:8], [32:64]}}
  left = f32[8,32] multiply(x1, c)
  right = f32[8,32] multiply(x2, s)
  ROOT out = f32[8,32] subtract(left, right)
}}

high {{
  x.1 = f32[8,64] parameter(0)
  c.1 = f32[8,32] parameter(1)
  s.1 = f32[8,32] parameter(2)
  x1.1 = f32[8,32] slice(x.1), slice={{[0:8], [0:32]}}
  x2.1 = f32[8,32] slice(x.1), slice={{[0:8], [32:64]}}
  left.1 = f32[8,32] multiply(x2.1, c.1)
  right.1 = f32[8,32] multiply(x1.1, s.1)
  ROOT out.1 = f32[8,32] add(left.1, right.1)
}}

ENTRY main {{
  q = f32[8,64] parameter(0)
  k = f32[8,64] parameter(1)
  angles = f32[8,32] parameter(2)
  cos = f32[8,32] cosine(angles){fwd("cos")}
  sin = f32[8,32] sine(angles){fwd("sin")}
  a = f32[8,32] fusion(q, cos, sin), kind=kLoop, calls=low{fwd("sub")}
  b = f32[8,32] fusion(q, cos, sin), kind=kLoop, calls=high{fwd("add")}
  ROOT both = (f32[8,32], f32[8,32]) tuple(a, b)
}}
"""


def test_a_rotation_over_two_kernels() -> None:
    assert ask(ROTATION, ROWS) == [("rope", "split", 4, 2, 2, None, "fwd", 0, "f32[8,32]")]
    assert found(ROTATION) == []
    other = changed(ROTATION, ("b = f32[8,32] fusion(q,", "b = f32[8,32] fusion(k,"))
    assert ask(other, ROWS) == []


# -- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SORTS, INVERSE, LOOPED, NORMS, SPLIT, ROPE, ROTATION])
def test_names_and_order_do_not_matter(text: str) -> None:
    check_table(text, NAMELESS)


def test_one_of_two_branches_runs() -> None:
    fusion = "(f32[8,32], f32[8,32]) fusion(angles), kind=kLoop, calls="
    text = changed(
        ROPE,
        (f"a = {fusion}first", "which = pred[] parameter(2)\n  a = (f32[8,32], f32[8,32])"
         " conditional(which, angles, angles), true_computation=first, false_computation=second"),
        (f"  b = {fusion}second{fwd('cos')}\n", ""),
        ("((f32[8,32], f32[8,32]), (f32[8,32], f32[8,32])) tuple(a, b)",
         "((f32[8,32], f32[8,32])) tuple(a)"),
    )  # fmt: skip
    assert ask(text, ROWS) == []
