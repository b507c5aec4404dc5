"""Which instructions compute the same value, and which only look as if they did."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.analysis.numbered import congruence, numbers, same
from tests.mutate import harmless

ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
SUM = """
sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}
"""


def module(*lines: str, before: str = "") -> str:
    """An entry of three arrays of 8 by 8, and a product of the first two."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"""HloModule m
{before}
ENTRY main {{
  x = f32[8,8]{{1,0}} parameter(0)
  w = f32[8,8]{{1,0}} parameter(1)
  v = f32[8,8]{{1,0}} parameter(2)
  a = f32[8,8]{{1,0}} dot(x, w), {ROWS}
{body}
}}
"""


def calling(inside: str, *lines: str) -> str:
    return module(*lines, before=inside)


DOT = f"""
f {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(p, q), {ROWS}
}}
"""
STARTED = f"""
f {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(p, q), {ROWS}
}}, execution_thread="sparsecore"
"""
BOTH = f"""
f {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  d = f32[8,8] dot(p, q), {ROWS}
  n = f32[8,8] negate(d)
  ROOT t = (f32[8,8], f32[8,8]) tuple(n, d)
}}
"""
# A pair of texts: in the first `b` is `a` again, in the second it only looks like it.
PAIRS: dict[str, tuple[str, str]] = {}


def pair(name: str, text: str, *changes: tuple[str, str]) -> None:
    other = text
    for old, new in changes:
        assert old in other, (name, old)
        other = other.replace(old, new)
    PAIRS[name] = text, other


pair(
    "a barrier, another weight",
    module(
        "t = (f32[8,8], f32[8,8], f32[8,8]) tuple(x, w, v)",
        "o = (f32[8,8], f32[8,8], f32[8,8]) opt-barrier(t)",
        "p = f32[8,8] get-tuple-element(o), index=0",
        "q = f32[8,8] get-tuple-element(o), index=1",
        f"ROOT b = f32[8,8] dot(p, q), {ROWS}",
    ),
    ("(o), index=1", "(o), index=2"),
)
pair(
    "copies",
    module(
        "c = f32[8,8]{0,1} copy(x)",
        "s = (f32[8,8]{0,1}, f32[8,8]{0,1}, u32[]) copy-start(c)",
        "d = f32[8,8]{0,1:S(1)} copy-done(s)",
        f"ROOT b = f32[8,8] dot(d, w), {ROWS}",
    ),
    ("copy(x)", "copy(v)"),
)
pair(
    "a round trip through bf16, and one through s32",
    module(
        "h = bf16[8,8] convert(x)",
        "c = f32[8,8] convert(h)",
        f"ROOT b = f32[8,8] dot(c, w), {ROWS}",
    ),
    ("bf16[8,8]", "s32[8,8]"),
)
pair(
    "rounded, and cut off",
    module("h = f32[8,8] reduce-precision(x), exponent_bits=8, mantissa_bits=7",
           f"ROOT b = f32[8,8] dot(h, w), {ROWS}"),
    ("reduce-precision(x), exponent_bits=8, mantissa_bits=7", "floor(x)"),
)  # fmt: skip
pair(
    "dimensions of size 1",
    module(
        "p = f32[1,8,8]{2,1,0} reshape(x)",
        "q = f32[8,1,8]{2,0,1} bitcast(w)",
        "ROOT b = f32[1,8,1,8] dot(p, q), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    ("rhs_contracting_dims={0}\n}", "rhs_contracting_dims={2}\n}"),
)
pair(
    "a bitcast of another layout is a transpose of it",
    module(
        "p = f32[8,8]{0,1} bitcast(x)",
        "q = f32[8,8]{1,0} transpose(p), dimensions={1,0}",
        f"ROOT b = f32[8,8] dot(q, w), {ROWS}",
    ),
    ("transpose(p), dimensions={1,0}", "copy(p)"),
)
pair(
    "tiles and a transpose cancel out",
    module(
        "c = f32[8,8]{1,0:T(4,2)} copy(x)",
        "p = f32[2,4,4,2]{3,2,1,0:T(4,2)} bitcast(c)",
        "q = f32[2,4,4,2]{3,2,1,0} transpose(p), dimensions={0,2,1,3}",
        "k = f32[8,8] reshape(q)",
        f"ROOT b = f32[8,8] dot(k, w), {ROWS}",
    ),
    ("{1,0:T(4,2)} copy", "{1,0} copy"),
)
pair(
    "operands exchanged, result transposed",
    module(
        "c = f32[8,8]{0,1} dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
        "ROOT b = f32[8,8]{1,0} bitcast(c)",
    ),
    ("bitcast(c)", "copy(c)"),
)
pair(
    "a product, and one of the same arrays in the other order",
    module(f"ROOT b = f32[8,8] dot(x, w), {ROWS}"),
    ("ROOT b = f32[8,8] dot(x, w)", "ROOT b = f32[8,8] dot(w, x)"),
)
pair(
    "other dimension numbers",
    module(f"ROOT b = f32[8,8] dot(x, w), {ROWS}"),
    (f"b = f32[8,8] dot(x, w), {ROWS}", f"b = f32[8,8] dot(x, w), {ROWS.replace('{0}', '{1}')}"),
)
pair(
    "a fusion",
    calling(DOT, "ROOT b = f32[8,8] fusion(x, w), kind=kOutput, calls=f"),
    ("fusion(x, w)", "fusion(w, x)"),
)
pair(
    "an output of a fusion",
    calling(BOTH, "k = (f32[8,8], f32[8,8]) fusion(x, w), kind=kOutput, calls=f",
            "ROOT b = f32[8,8] get-tuple-element(k), index=1"),
    ("(k), index=1", "(k), index=0"),
)  # fmt: skip
pair(
    "a computation with several callers",
    calling(DOT, "k = f32[8,8] call(x, v), to_apply=f", "ROOT b = f32[8,8] call(x, w), to_apply=f"),
    ("b = f32[8,8] call(x, w)", "b = f32[8,8] call(v, w)"),
)
pair(
    "an async operation",
    calling(STARTED,
            "k = ((f32[8,8], f32[8,8]), f32[8,8], s32[]) async-start(x, w), calls=f",
            "u = ((f32[8,8], f32[8,8]), f32[8,8], s32[]) async-update(k)",
            "ROOT b = f32[8,8] async-done(u)"),
    ("async-start(x, w)", "async-start(x, v)"),
)  # fmt: skip
pair(
    "operands that come with an update",
    calling(STARTED,
            "k = ((f32[8,8]), f32[8,8], s32[]) async-start(x), calls=f",
            "u = ((f32[8,8], f32[8,8]), f32[8,8], s32[]) async-update(k, w)",
            "ROOT b = f32[8,8] async-done(u)"),
    ("async-update(k, w)", "async-update(k, v)"),
)  # fmt: skip
pair(
    "a choice that is known",
    module(
        "n = pred[] constant(true)", "k = f32[8,8] negate(a)", "ROOT b = f32[8,8] select(n, a, k)"
    ),
    ("constant(true)", "constant(false)"),
)
pair(
    "placement",
    module('k = f32[8,8] custom-call(a), custom_call_target="Sharding", sharding={replicated}',
           'ROOT b = f32[8,8] custom-call(k), custom_call_target="MoveToHost"'),
    ("Sharding", "Something"),
)  # fmt: skip
pair(
    "all of an array sliced, all of it written",
    module("i = s32[] parameter(3)",
           "k = f32[8,8] dynamic-slice(a, i, i), dynamic_slice_sizes={8,8}",
           "ROOT b = f32[8,8] dynamic-update-slice(v, k, i, i)"),
    ("{8,8}\n", "{8,8}\n  l = f32[8,8] negate(k)\n"), ("(v, k,", "(v, l,"),
)  # fmt: skip
pair(
    "a convolution that is a dot",
    module(
        "c = f32[8,8] convolution(x, w), dim_labels=bf_io->fb",
        "ROOT b = f32[8,8] transpose(c), dimensions={1,0}",
    ),
    ("bf_io->fb", "bf_oi->fb"),
)
pair(
    "operations on elements, of other dimensions and in another order",
    module(
        "one = f32[] constant(1)",
        "ones = f32[8,8] broadcast(one), dimensions={}",
        "s = f32[8,8] subtract(ones, x)",
        "t = f32[8,8]{1,0} tanh(s)",
        "a2 = f32[8,8] multiply(t, x)",
        "y = f32[64] reshape(x)",
        "many = f32[64] broadcast(one), dimensions={}",
        "s2 = f32[64] subtract(many, y)",
        "k = f32[8,8] reshape(s2)",
        "z = f32[8,8]{0,1} bitcast(k)",
        "t2 = f32[8,8] tanh(z)",
        "z2 = f32[8,8] transpose(x), dimensions={1,0}",
        "m = f32[8,8] multiply(t2, z2)",
        "ROOT b2 = f32[8,8] transpose(m), dimensions={1,0}",
    )
    .replace("a = ", "a0 = ")
    .replace("a2 = ", "a = ")
    .replace("b2 = ", "b = "),
    ("multiply(t2, z2)", "multiply(t2, x)"),
)
pair(
    "padding, but for dimensions of size 1",
    module(
        "zero = f32[] constant(0)",
        "e = f32[8,12] pad(x, zero), padding=0_0x1_3",
        "y = f32[8,1,8] reshape(x)",
        "g = f32[8,1,12] pad(y, zero), padding=0_0x0_0x1_3",
        "ROOT n = f32[8,12] negate(e)",
    )
    .replace("a = ", "a0 = ")
    .replace("e = f32[8,12]", "a = f32[8,12]")
    .replace("negate(e)", "negate(a)")
    .replace("g = ", "b = "),
    ("padding=0_0x0_0x1_3", "padding=0_0x0_0x3_1"),
)
JOINED = (
    "k = s8[256] bitcast(a)",
    "p = s8[128] slice(k), slice={[0:128]}",
    "q = s8[128] slice(k), slice={[128:256]}",
    # The slices lie in memory where they were, in whatever order they are listed.
    'ROOT b = f32[8,8]{1,0} custom-call(q, p), custom_call_target="ConcatBitcast"',
)
pair("slices, joined", module(*JOINED), ("[128:256]", "[127:255]"))
pair("some of the slices, joined", module(*JOINED), ("(q, p)", "(p)"))
pair(
    "slices, joined in another layout",
    module(*JOINED),
    ('{1,0} custom-call(q, p)', "{0,1} custom-call(q, p)"),
)  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_value(name: str) -> None:
    assert same(PAIRS[name][0], "a", "b")


@pytest.mark.parametrize("name", PAIRS)
def test_another_value(name: str) -> None:
    assert not same(PAIRS[name][1], "a", "b")


@pytest.mark.parametrize("name", ["a barrier, another weight", "operands that come with an update"])
def test_spelling_does_not_matter(name: str) -> None:
    for how, text in harmless(PAIRS[name][0]):
        # A root that is the same: the names are new.
        equal = congruence(text).entry
        assert equal is not None
        dots = [n for n, o in enumerate(equal.computation.opcodes) if o == "dot"]
        assert equal.values[dots[0]] == equal.result, how


# -- operations that are never, or not by their operands alone, the same ---------------------------


@pytest.mark.parametrize(
    ("line", "is_same"),
    [
        ("f32[8,8] rng(n, n), distribution=rng_uniform", False),
        ("u64[2] rng-get-and-update-state(), delta=64", False),
        ("(u64[2], u32[8]) rng-bit-generator(k), algorithm=rng_threefry", True),
        ("((f32[8]), token[]) infeed(t)", False),
        ("f32[8,8] constant({...})", False),
        ("f32[2] constant({1, 2})", True),
        ('f32[8,8] custom-call(x), custom_call_target="kernel"', True),
        (
            'f32[8,8] custom-call(x), custom_call_target="k", custom_call_has_side_effect=true',
            False,
        ),
        ("s32[8,8] iota(), iota_dimension=1", True),
        ("u32[] partition-id()", True),
    ],
)
def test_random_numbers_side_effects_and_elided_constants(line: str, is_same: bool) -> None:
    text = module(
        "n = f32[] constant(0)",
        "t = token[] after-all()",
        "k = u64[2] parameter(3)",
        f"one = {line}",
        f"ROOT two = {line}",
    )
    assert same(text, "one", "two") == is_same


@pytest.mark.parametrize(
    ("cut", "part"),
    [
        ("f32[8] slice(row), slice={[0:8]}", "sum1"),
        ("f32[8] slice(row), slice={[8:16]}", "sine1"),
        ("f32[8] slice(row), slice={[8:17]}", None),
        ("f32[8] slice(row), slice={[0:16:2]}", None),
        ("f32[1,8] slice(rows), slice={[0:1], [0:8]}", "sum1"),
        ("f32[1,8] slice(rows), slice={[2:3], [0:8]}", "cos1"),
        ("f32[2,8] slice(rows), slice={[1:3], [0:8]}", None),
        ("f32[1,4] slice(rows), slice={[2:3], [4:8]}", None),
        ("f32[1,8] slice(turned), slice={[2:3], [0:8]}", None),
        ("f32[1,8] slice(padded), slice={[0:1], [0:8]}", "sum1"),
        ("f32[1,8] slice(padded), slice={[1:2], [0:8]}", "sine1"),
        ("f32[1,8] slice(padded), slice={[2:3], [0:8]}", "cos1"),
        # Of two that lie in one place, the larger; and what is filled with 0 hides what is less.
        ("f32[1,8] slice(both), slice={[1:2], [0:8]}", None),
        ("f32[1,8] slice(filled), slice={[1:2], [0:8]}", None),
    ],
)
def test_a_slice_of_what_is_put_together(cut: str, part: str | None) -> None:
    text = module(
        "least = f32[] constant(-inf)",
        "flat = f32[64] reshape(x)",
        "nil = f32[] constant(0)",
        "sum1 = f32[8] slice(flat), slice={[0:8]}",
        "sine1 = f32[8] sine(sum1)",
        "cos1 = f32[8] cosine(sum1)",
        "a1 = f32[1,8] reshape(sum1)",
        "b1 = f32[1,8] reshape(sine1)",
        "c1 = f32[1,8] reshape(cos1)",
        'more = f32[8] custom-call(sine1), custom_call_target="k"',
        "row = f32[24] concatenate(sum1, sine1, more), dimensions={0}",
        "rows = f32[3,8] concatenate(a1, b1, c1), dimensions={0}",
        "turned = f32[3,8] reshape(row)",
        "first = f32[3,8] pad(a1, least), padding=0_2x0_0",
        "second = f32[3,8] pad(b1, least), padding=1_1x0_0",
        "third = f32[3,8] pad(c1, least), padding=2_0x0_0",
        "two = f32[3,8] maximum(first, second)",
        "padded = f32[3,8] maximum(two, third)",
        "over = f32[3,8] pad(c1, least), padding=1_1x0_0",
        "both = f32[3,8] maximum(two, over)",
        "zeros = f32[3,8] pad(c1, nil), padding=2_0x0_0",
        "filled = f32[3,8] maximum(two, zeros)",
        f"ROOT got = {cut}",
    )
    known = numbers(text)
    found = [one for one in ("sum1", "sine1", "cos1") if known[one] & known["got"]]
    assert found == ([part] if part else [])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("f32[8,8] subtract(x, w)", "f32[8,8] subtract(w, x)"),
        ("f32[2,8] slice(x), slice={[0:2], [0:8]}", "f32[2,8] slice(x), slice={[1:3], [0:8]}"),
        ("f32[4,8] slice(x), slice={[0:4], [0:8]}", "f32[4,8] slice(x), slice={[0:8:2], [0:8]}"),
        ("f32[8] reduce(x, z), dimensions={0}, to_apply=sum", "f32[8] reduce(x, z), dimensions={1}, to_apply=sum"),
        ("f32[8] reduce(x, z), dimensions={0}, to_apply=sum", "f32[8] reduce(x, z), dimensions={0}, to_apply=max"),
        ("f32[8,8] broadcast(l), dimensions={0}", "f32[8,8] broadcast(l), dimensions={1}"),
        ("f32[8,8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=sum", "f32[8,8] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=sum"),
        ("f32[8,8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=sum", "f32[8,8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=max"),
        ("pred[8,8] compare(x, w), direction=LT", "pred[8,8] compare(x, w), direction=LE"),
        ("f32[8,8] reverse(x), dimensions={0}", "f32[8,8] reverse(x), dimensions={1}"),
        # Eight by eight again, in other dimensions.
        ("f32[2,2] slice(x), slice={[0:2], [0:2]}", "f32[2,2] slice(y), slice={[0:2], [0:2]}"),
        ("f32[4] reduce(u, z), dimensions={0,2}, to_apply=sum", "f32[4] reduce(u2, z), dimensions={0,2}, to_apply=sum"),
        ("f32[8,8] transpose(x), dimensions={1,0}", "f32[8,8] copy(x)"),
        ("s32[8,8] convert(x)", "u8[8,8] convert(x)"),
        ("pred[8,8] convert(x)", "s32[8,8] convert(x)"),
        ('f32[8,8] custom-call(x), custom_call_target="k"', 'f32[8,8] custom-call(x), custom_call_target="l"'),
        ('f32[8,8] custom-call(x), custom_call_target="k", backend_config={"name":"f"}', 'f32[8,8] custom-call(x), custom_call_target="k", backend_config={"name":"g"}'),
        ('f32[8,8] custom-call(x), custom_call_target="k", backend_config={is_training = true}', 'f32[8,8] custom-call(x), custom_call_target="k", backend_config={is_training = false}'),
    ],
)  # fmt: skip
def test_what_looks_alike_and_is_not(one: str, two: str) -> None:
    text = module(
        "z = f32[] constant(0)",
        "l = f32[8] parameter(3)",
        "y = f32[4,16] reshape(x)",
        "u = f32[2,4,8] reshape(x)",
        "u2 = f32[4,4,4] reshape(x)",
        f"one = {one}",
        f"again = {one}",
        f"ROOT two = {two}",
        before=SUM + SUM.replace("sum {", "max {").replace("add", "maximum"),
    )
    assert same(text, "one", "again")
    assert not same(text, "one", "two")


GEMM = (
    'f32[8,8] custom-call(x, w), custom_call_target="__cublas$gemm", backend_config='
    '{"gemm_backend_config":{"alpha_real":1,"selected_algorithm":"3","dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ('"rhs_contracting_dimensions":["0"]', '"rhs_contracting_dimensions":["1"]', False),
        ('"alpha_real":1', '"alpha_real":2', False),
        # Which of its kernels the library takes is not what it computes.
        ('"selected_algorithm":"3"', '"selected_algorithm":"7"', True),
    ],
)
def test_library_calls_say_in_their_config_what_they_compute(
    old: str, new: str, is_same: bool
) -> None:
    text = module(f"one = {GEMM}", f"ROOT two = {GEMM.replace(old, new)}")
    assert same(text, "one", "two") == is_same


def test_groups_are_numbers_however_they_are_written() -> None:
    forms = ("{{0,2},{1,3}}", "[2,2]<=[2,2]T(1,0)", "mesh['a'=2,'b'=2]{'a'}")
    gathers = [
        f"g{n} = f32[16,8] all-gather(x), channel_id={n + 1}, dimensions={{0}}, replica_groups={form}"
        for n, form in enumerate(forms)
    ]
    other = gathers[0].replace("g0", "g").replace("{{0,2},{1,3}}", "{{0,1},{2,3}}")
    text = module(*gathers, f"ROOT {other}")
    assert same(text, "g0", "g1", "g2")
    assert not same(text, "g0", "g")


def test_what_goes_out_of_a_shard_map_and_into_another_stays_on_its_device() -> None:
    border = 'custom_call_target="xla.sdy.{}Shape", custom_call_has_side_effect=true'
    shardings = 'frontend_attributes={xla.sdy.%s_shardings="#sdy.sharding_per_value<[%s]>"}'
    rows, columns = '<@mesh, [{\\"d\\"}, {}]>', '<@mesh, [{}, {\\"d\\"}]>'
    out = f"{border.format('LocalToGlobal')}, {shardings % ('out', f'{rows}, {columns}')}"
    back = f"{border.format('GlobalToLocal')}, {shardings % ('in', f'{rows}, {rows}')}"
    text = module(
        f"g = (f32[16,8], f32[8,16]) custom-call(a, w), {out}",
        "g0 = f32[16,8] get-tuple-element(g), index=0",
        "g1 = f32[8,16] get-tuple-element(g), index=1",
        f"l = (f32[8,8], f32[4,16]) custom-call(g0, g1), {back}",
        "b = f32[8,8] get-tuple-element(l), index=0",
        "c = f32[4,16] get-tuple-element(l), index=1",
        f"k = f32[8,8] custom-call(v), {border.format('GlobalToLocal')},"
        f" {shardings % ('in', '<@mesh, [{}, {}]>')}",
        'ROOT n = f32[8,8] custom-call(k), custom_call_target="xla.sdy.FuncResultSharding",'
        " custom_call_has_side_effect=true",
    )
    assert same(text, "a", "b")
    assert not same(text, "w", "c")  # it comes back in other parts
    assert not same(text, "a", "g0")
    assert same(text, "v", "k", "n")  # every device has all of it


def test_a_start_gives_what_its_done_does() -> None:
    text = module(
        "g = f32[16,8] all-gather(x), dimensions={0}, replica_groups={{0,1}}",
        "s = (f32[8,8], f32[16,8]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}",
        "ROOT d = f32[16,8] all-gather-done(s)",
    )
    assert same(text, "g", "d")


def test_of_several_arrays_in_one_collective_each_is_its_own() -> None:
    text = module(
        "g = f32[8,8] all-reduce(w), replica_groups={{0,1}}, to_apply=sum",
        "c = (f32[8,8], f32[8,8]) all-reduce(x, w), replica_groups={{0,1}}, to_apply=sum",
        "e = f32[8,8] get-tuple-element(c), index=0",
        "ROOT d = f32[8,8] get-tuple-element(c), index=1",
        before=SUM,
    )
    assert same(text, "g", "d")
    assert not same(text, "g", "e")


def test_branches_are_one_where_the_choice_is_one() -> None:
    branches = """
t {
  p = f32[8,8] parameter(0)
  ROOT r = f32[8,8] tanh(p)
}
e {
  p = f32[8,8] parameter(0)
  ROOT r = f32[8,8] sine(p)
}
"""
    call = "conditional({}, x, x), true_computation=t, false_computation=e"
    text = module(
        "c = pred[] parameter(3)",
        "d = pred[] parameter(4)",
        f"one = f32[8,8] {call.format('c')}",
        f"two = f32[8,8] {call.format('c')}",
        f"ROOT three = f32[8,8] {call.format('d')}",
        before=branches,
    )
    assert same(text, "one", "two")
    assert not same(text, "one", "three")


# -- loops ----------------------------------------------------------------------------------------

# Three layers of tanh(x·w): the forward stacks what each is given, the backward computes it again.
SCAN = """HloModule m
fwd {{
  p = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  kept = f32[{n},8] get-tuple-element(p), index=2
  ws = f32[{n},8,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  cut = f32[1,8,8] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={{1,8,8}}
  w = f32[8,8] reshape(cut)
  d = f32[8] dot(h, w), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  out = f32[8] tanh(d)
  part = f32[1,8] reshape({written})
  new = f32[{n},8] dynamic-update-slice(kept, part, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) tuple(next, out, new, ws)
}}
fwd_go {{
  p = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({n})
  ROOT go = pred[] compare(i, n), direction=LT
}}
bwd {{
  p = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = f32[8] get-tuple-element(p), index=1
  stack = f32[{n},8] get-tuple-element(p), index=2
  ws = f32[{n},8,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  n = s32[] constant({n})
  last = s32[] constant({last})
{index}
  row = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={{1,8}}
  x = f32[8] reshape(row)
  cut = f32[1,8,8] dynamic-slice(ws, {weight}, zero, zero), dynamic_slice_sizes={{1,8,8}}
  wb = f32[8,8] reshape(cut)
  d2 = f32[8] dot(x, wb), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  out2 = f32[8] tanh(d2)
  m = f32[8] multiply(g, out2)
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) tuple(next, m, stack, ws)
}}
bwd_go {{
  p = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant({n})
  ROOT go = pred[] compare(j, n), direction=LT
}}
ENTRY main {{
  x0 = f32[8] parameter(0)
  ws = f32[{n},8,8] parameter(1)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  buffer = f32[{n},8] broadcast(nil), dimensions={{}}
  t = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) tuple(z, x0, buffer, ws)
  forward = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) while(t), condition=fwd_go, body=fwd
  y = f32[8] get-tuple-element(forward), index=1
  s = f32[{n},8] get-tuple-element(forward), index=2
  u = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) tuple(z, y, s, ws)
  ROOT back = (s32[], f32[8], f32[{n},8], f32[{n},8,8]) while(u), condition=bwd_go, body=bwd
}}
"""
COUNTED_BACK = "  k = s32[] subtract(last, j)"
# What jax makes of an index that may be negative, before optimization.
WRAPPED = """  k0 = s32[] subtract(last, j)
  low = pred[] compare(k0, zero), direction=LT
  k1 = s32[] add(k0, n)
  k = s32[] select(low, k1, k0)"""


def scan(
    index: str = COUNTED_BACK, *, n: int = 4, weight: str = "k", written: str = "h", last: int = 0
) -> str:
    return SCAN.format(index=index, n=n, weight=weight, written=written, last=last or n - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 64, 257, 5000])
@pytest.mark.parametrize("index", [COUNTED_BACK, WRAPPED, "  k = s32[] copy(j)"])
def test_a_slice_of_a_stack_is_what_was_written_in_that_iteration(index: str, n: int) -> None:
    text = scan(index, n=n)
    assert same(text, "h", "x")
    assert same(text, "d", "d2")
    assert same(text, "out", "out2")


@pytest.mark.parametrize(
    "text",
    [
        scan(last=4),  # one further: the slice of another iteration
        scan("  k = s32[] add(j, one)"),
        scan("  two = s32[] constant(2)\n  k = s32[] multiply(j, two)"),
        scan("  k = s32[] copy(last)"),  # always the same
        scan("  k = s32[] maximum(j, one)"),
        scan(written="out"),  # what is stacked is another value
        scan().replace("tanh(d2)", "sine(d2)"),
        # Counted back in one of the two: the layer's input with the weight of another layer.
        scan(weight="j"),
        scan(weight="zero"),
    ],
)
def test_another_slice_is_another_value(text: str) -> None:
    assert not same(text, "out", "out2")


def test_the_weight_of_another_layer_does_not_hide_the_right_input() -> None:
    assert same(scan(weight="zero"), "h", "x")
    assert not same(scan(weight="zero"), "w", "wb")


def test_part_of_a_slice_is_that_part_of_what_was_written() -> None:
    half = "dynamic_slice_sizes={1,4}\n  part4 = f32[4] reshape(row)\n  x = f32[8] pad(part4, zf), padding=0_4"
    text = scan().replace("bwd {", "bwd {\n  zf = f32[] constant(0)", 1)
    text = text.replace("row = f32[1,8]", "row = f32[1,4]", 1)
    text = text.replace("dynamic_slice_sizes={1,8}\n  x = f32[8] reshape(row)", half, 1)
    text = text.replace(
        "out = f32[8] tanh(d)", "first = f32[4] slice(h), slice={[0:4]}\n  out = f32[8] tanh(d)"
    )
    assert same(text, "first", "part4")
    assert not same(text, "h", "part4")
    shifted = text.replace("dynamic-slice(stack, k, zero)", "dynamic-slice(stack, k, one)")
    assert not same(shifted, "first", "part4")


def test_a_stack_whose_slices_lie_in_another_order() -> None:
    """Back ends write and read a stack in the layout that suits them."""
    text = scan()
    # The weights, stacked by the forward in turned slices, and read back as they were.
    text = text.replace("f32[4,8], f32[4,8,8])", "f32[4,8], f32[4,8,8], f32[4,8,8])")
    text = text.replace(
        "part = f32[1,8] reshape(h)",
        "part = f32[1,8] reshape(h)\n"
        "  keep = f32[4,8,8]{2,1,0} get-tuple-element(p), index=4\n"
        "  turned = f32[4,8,8]{1,2,0} bitcast(keep)\n"
        "  piece = f32[1,8,8]{1,2,0} bitcast(w2)\n"
        "  put = f32[4,8,8]{1,2,0} dynamic-update-slice(turned, piece, i, zero, zero)\n"
        "  kept2 = f32[4,8,8]{2,1,0} bitcast(put)",
    )
    text = text.replace(
        "out = f32[8] tanh(d)", "w2 = f32[8,8]{1,0} negate(w)\n  out = f32[8] tanh(d)"
    )
    text = text.replace("tuple(next, out, new, ws)", "tuple(next, out, new, ws, kept2)")
    text = text.replace("tuple(next, m, stack, ws)", "tuple(next, m, stack, ws, saved)")
    text = text.replace("tuple(z, x0, buffer, ws)", "tuple(z, x0, buffer, ws, empty)")
    text = text.replace("tuple(z, y, s, ws)", "tuple(z, y, s, ws, s2)")
    text = text.replace(
        "  t = (s32[]", "  empty = f32[4,8,8] broadcast(nil), dimensions={}\n  t = (s32[]", 1
    )
    text = text.replace(
        "  u = (s32[]", "  s2 = f32[4,8,8] get-tuple-element(forward), index=4\n  u = (s32[]", 1
    )
    text = text.replace(
        "  m = f32[8] multiply",
        "  saved = f32[4,8,8]{2,1,0} get-tuple-element(p), index=4\n"
        "  seen = f32[4,8,8]{1,2,0} bitcast(saved)\n"
        "  line = f32[1,8,8]{1,2,0} dynamic-slice(seen, k, zero, zero), dynamic_slice_sizes={1,8,8}\n"
        "  w3 = f32[8,8]{0,1} reshape(line)\n"
        "  w4 = f32[8,8] transpose(w3), dimensions={1,0}\n"
        "  m = f32[8] multiply",
    )
    assert same(text, "piece", "w3")
    assert not same(text, "w2", "w3")
    assert same(text, "w2", "w4")
    assert not same(text.replace("dynamic-slice(seen, k,", "dynamic-slice(seen, one,"), "w2", "w4")


def test_what_differs_between_the_first_iterations_and_the_last() -> None:
    """Not all of a long loop is looked at: what may differ in between is not known."""
    at = "is = pred[] compare(i, five), direction=EQ\n  d0 = f32[8] select(is, d, h)\n  out = f32[8] tanh(d0)"
    for n in (10, 5000):
        text = scan(n=n).replace("out = f32[8] tanh(d)", f"five = s32[] constant(5)\n  {at}")
        assert not same(text, "d", "d0")
        assert not same(text, "h", "d0")
        never = text.replace("constant(5)", "constant(-1)")
        assert same(never, "h", "d0") == (n == 10)


def test_a_counter_of_its_own_counts_the_iterations_as_they_run() -> None:
    """In a loop that takes the slices in the opposite order, it is not that of the forward."""
    counter = "c = s32[] get-tuple-element(p), index=2\n  c1 = s32[] add(c, one)\n  v{0} = f32[8] broadcast(c1), dimensions={{}}"
    text = scan().replace("(s32[], f32[8], ", "(s32[], f32[8], s32[], ")
    for old, new in (("index=3", "index=4"), ("index=2", "index=3")):
        text = text.replace(old, new)
    text = text.replace(
        "  next = s32[] add(i, one)", f"  {counter.format(1)}\n  next = s32[] add(i, one)"
    )
    text = text.replace(
        "  next = s32[] add(j, one)", f"  {counter.format(2)}\n  next = s32[] add(j, one)"
    )
    text = text.replace("tuple(next, out,", "tuple(next, out, c1,").replace(
        "tuple(next, m,", "tuple(next, m, c1,"
    )
    text = text.replace("tuple(z, x0,", "tuple(z, x0, z,").replace("tuple(z, y,", "tuple(z, y, z,")
    assert same(text, "d", "d2")
    assert not same(text, "v1", "v2")
    assert same(text.replace(COUNTED_BACK.strip(), "k = s32[] copy(j)"), "v1", "v2")


def test_a_value_that_does_not_change_is_the_one_outside() -> None:
    text = scan().replace(
        "z = s32[] constant(0)", "z = s32[] constant(0)\n  n1 = f32[4,8,8] negate(ws)"
    )
    text = text.replace(
        "out = f32[8] tanh(d)", "n2 = f32[4,8,8] negate(ws)\n  out = f32[8] tanh(d)"
    )
    assert same(text, "n1", "n2")


def test_slices_that_are_fetched_one_iteration_early() -> None:
    """A pipelined loop takes the next slice while it computes with this one: a carry that changes,
    and no longer the slice of this iteration. Nothing is equal that is not."""
    text = scan().replace("tuple(next, m, stack, ws)", "tuple(next, m, stack, ws, ahead)")
    back = text.index("bwd {")
    head, tail = text[:back], text[back:]
    for old, new in (
        ("f32[4,8,8]) parameter(0)", "f32[4,8,8], f32[1,8]) parameter(0)"),
        ("ROOT r = (s32[], f32[8], f32[4,8], f32[4,8,8])", "ROOT r = (s32[], f32[8], f32[4,8], f32[4,8,8], f32[1,8])"),
        ("u = (s32[], f32[8], f32[4,8], f32[4,8,8]) tuple(z, y, s, ws)",
         "three = s32[] constant(3)\n  first = f32[1,8] dynamic-slice(s, three, z), dynamic_slice_sizes={1,8}\n"
         "  u = (s32[], f32[8], f32[4,8], f32[4,8,8], f32[1,8]) tuple(z, y, s, ws, first)"),
        ("back = (s32[], f32[8], f32[4,8], f32[4,8,8]) while", "back = (s32[], f32[8], f32[4,8], f32[4,8,8], f32[1,8]) while"),
        ("row = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={1,8}",
         "row = f32[1,8] get-tuple-element(p), index=4\n  k1 = s32[] subtract(k, one)\n  k2 = s32[] maximum(k1, zero)\n"
         "  ahead = f32[1,8] dynamic-slice(stack, k2, zero), dynamic_slice_sizes={1,8}"),
    ):  # fmt: skip
        assert old in tail
        tail = tail.replace(old, new)
    assert not same(head + tail, "d", "d2")


# A loop in a layer, and the whole loop once more where the layer is computed again.
INNER = """HloModule m
step {{
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = f32[8] get-tuple-element(p), index=1
  b = f32[8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  c = f32[8] add(a, b)
  e = f32[8] {op}(c)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[8]) tuple(next, {turn})
}}
go {{
  p = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({n})
  ROOT g = pred[] compare(i, n), direction=LT
}}
"""
ENTRY = """ENTRY main {
  x = f32[8] parameter(0)
  w = f32[8] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[8], f32[8]) tuple(z, x, w)
  o = (s32[], f32[8], f32[8]) opt-barrier(t)
  l1 = (s32[], f32[8], f32[8]) while(t), condition=go, body=step
  l2 = (s32[], f32[8], f32[8]) while(o), condition=go2, body=step2
  y1 = f32[8] get-tuple-element(l1), index=1
  y2 = f32[8] get-tuple-element(l2), index=1
  ROOT y = f32[8] add(y1, y2)
}
"""


def twice(**other: object) -> str:
    """A loop, and the same loop behind a barrier with `other` instead."""
    plain: dict[str, object] = {"op": "tanh", "turn": "e, b", "n": 5}
    second = INNER.format(**(plain | other)).replace("HloModule m\n", "")
    for name in ("step", "go"):
        second = second.replace(f"{name} {{", f"{name}2 {{")
    names = [line.split(" = ")[0].split()[-1] for line in second.splitlines() if " = " in line]
    for name in dict.fromkeys(names):
        second = second.replace(f" {name} = ", f" {name}_2 = ")
        for end in (")", ","):
            second = second.replace(f"({name}{end}", f"({name}_2{end}")
            second = second.replace(f" {name}{end}", f" {name}_2{end}")
    return INNER.format(**plain) + second + ENTRY


def test_a_loop_that_is_run_again() -> None:
    assert same(twice(), "y1", "y2")
    assert same(twice(), "e", "e_2")
    swapped = {"turn": "b, e"}
    plain = twice(**swapped).replace("tuple(next, e, b)", "tuple(next, b, e)")
    assert same(plain, "y1", "y2")


@pytest.mark.parametrize(
    "other",
    [{"op": "sine"}, {"n": 6}, {"turn": "c, b"}, {"turn": "e, e"}, {"turn": "b, e"}],
    ids=str,
)
def test_a_loop_that_is_another(other: dict[str, object]) -> None:
    assert not same(twice(**other), "y1", "y2")


def test_elements_of_one_init_are_told_apart_by_what_iterations_make_of_them() -> None:
    text = twice(turn="e, c").replace("tuple(next, e, b)", "tuple(next, e, c)")
    text = text.replace("tuple(z, x, w)", "tuple(z, x, x)")
    text = text.replace(
        "ROOT y = f32[8] add(y1, y2)",
        "q1 = f32[8] get-tuple-element(l1), index=2\n  ROOT y = f32[8] add(y1, q1)",
    )
    assert same(text, "y1", "y2")
    assert not same(text, "y1", "q1")
    alike = text.replace("tuple(next, e, c)", "tuple(next, e, e)").replace(
        "tuple(next_2, e_2, c_2)", "tuple(next_2, e_2, e_2)"
    )
    assert same(alike, "y1", "q1")


def test_loops_that_end_by_another_condition() -> None:
    """Where no count is known, how it ends is part of what it gives."""
    condition = """  e = f32[8] get-tuple-element(p), index=1
  i = f32[] reduce(e, f32[] constant(0)), dimensions={0}, to_apply=sum
  n = f32[] constant({...})""".replace("{...}", "1")  # fmt: skip
    text = SUM.join(["HloModule m\n", twice().removeprefix("HloModule m\n")])
    first = "  i = s32[] get-tuple-element(p), index=0\n  n = s32[] constant(5)"
    second = "  i_2 = s32[] get-tuple-element(p_2), index=0\n  n_2 = s32[] constant(5)"
    assert first in text
    assert second in text
    text = text.replace(first, condition)
    again = condition
    for name in ("e", "i", "n"):
        again = again.replace(f"  {name} = ", f"  {name}_2 = ")
    again = again.replace("(p)", "(p_2)").replace("reduce(e,", "reduce(e_2,")
    text = text.replace(second, again)
    assert same(text, "y1", "y2")
    assert not same(text.replace("n_2 = f32[] constant(1)", "n_2 = f32[] constant(2)"), "y1", "y2")


NESTED = """HloModule m
inner {
  p = (s32[], f32[8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  kept = f32[4,8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  t = f32[8] tanh(h)
  part = f32[1,8] reshape(h)
  new = f32[4,8] dynamic-update-slice(kept, part, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[4,8]) tuple(next, t, new)
}
go {
  p = (s32[], f32[8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT g = pred[] compare(i, n), direction=LT
}
unwind {
  p = (s32[], f32[8], f32[4,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g = f32[8] get-tuple-element(p), index=1
  stack = f32[4,8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  k = s32[] subtract(three, j)
  row = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={1,8}
  saved = f32[8] reshape(row)
  t2 = f32[8] tanh(saved)
  m = f32[8] multiply(g, t2)
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[8], f32[4,8]) tuple(next, m, stack)
}
fwd {
  p = (s32[], f32[8], f32[2,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h0 = f32[8] get-tuple-element(p), index=1
  kept = f32[2,8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  nil = f32[] constant(0)
  buffer = f32[4,8] broadcast(nil), dimensions={}
  a = (s32[], f32[8], f32[4,8]) tuple(zero, h0, buffer)
  l = (s32[], f32[8], f32[4,8]) while(a), condition=go, body=inner
  y = f32[8] get-tuple-element(l), index=1
  part = f32[1,8] reshape(h0)
  new = f32[2,8] dynamic-update-slice(kept, part, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[2,8]) tuple(next, y, new)
}
outer_go {
  p = (s32[], f32[8], f32[2,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)
  ROOT g = pred[] compare(i, n), direction=LT
}
bwd {
  p = (s32[], f32[8], f32[2,8]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  g0 = f32[8] get-tuple-element(p), index=1
  stack = f32[2,8] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  one = s32[] constant(1)
  nil = f32[] constant(0)
  k = s32[] subtract(one, j)
  row = f32[1,8] dynamic-slice(stack, k, zero), dynamic_slice_sizes={1,8}
  h1 = f32[8] reshape(row)
  buffer = f32[4,8] broadcast(nil), dimensions={}
  a = (s32[], f32[8], f32[4,8]) tuple(zero, h1, buffer)
  again = (s32[], f32[8], f32[4,8]) while(a), condition=go, body=inner
  y2 = f32[8] get-tuple-element(again), index=1
  s = f32[4,8] get-tuple-element(again), index=2
  b = (s32[], f32[8], f32[4,8]) tuple(zero, g0, s)
  back = (s32[], f32[8], f32[4,8]) while(b), condition=go, body=unwind
  g1 = f32[8] get-tuple-element(back), index=1
  next = s32[] add(j, one)
  ROOT r = (s32[], f32[8], f32[2,8]) tuple(next, g1, stack)
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  buffer = f32[2,8] broadcast(nil), dimensions={}
  a = (s32[], f32[8], f32[2,8]) tuple(z, x, buffer)
  w = (s32[], f32[8], f32[2,8]) while(a), condition=outer_go, body=fwd
  e = f32[8] get-tuple-element(w), index=1
  s = f32[2,8] get-tuple-element(w), index=2
  u = (s32[], f32[8], f32[2,8]) tuple(z, e, s)
  ROOT v = (s32[], f32[8], f32[2,8]) while(u), condition=outer_go, body=bwd
}
"""


def test_a_scan_in_a_checkpointed_layer_is_replayed_whole() -> None:
    """The backward runs the inner loop again, and then unwinds what that has stacked."""
    assert same(NESTED, "y", "y2")
    assert same(NESTED, "t", "t2")
    assert len(numbers(NESTED)["t"]) == 1  # in both places where its loop stands
    other = NESTED.replace("k = s32[] subtract(one, j)", "k = s32[] subtract(zero, j)")
    assert not same(other, "y", "y2")
    # It unwinds what it has stacked itself, of another layer.
    assert len(numbers(other)["t"]) == 2


# A loop, and a loop that does the same and stacks two values besides, as jax replays a scan.
STACKING = """HloModule m
plain {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  t = f32[8] tanh(h)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8]) tuple(next, t)
}
go {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT g = pred[] compare(i, n), direction=LT
}
stacks {
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  kept = f32[4,8] get-tuple-element(p), index=2
  kept2 = f32[4,8] get-tuple-element(p), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  t2 = f32[8] tanh(h)
  s = f32[8] sine(h)
  part = f32[1,8] reshape(t2)
  part2 = f32[1,8] reshape(s)
  new = f32[4,8] dynamic-update-slice(kept, part, i, zero)
  new2 = f32[4,8] dynamic-update-slice(kept2, part2, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(next, t2, new, new2)
}
go2 {
  p = (s32[], f32[8], f32[4,8], f32[4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT g = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  nil = f32[] constant(0)
  buffer = f32[4,8] broadcast(nil), dimensions={}
  a = (s32[], f32[8]) tuple(z, x)
  w = (s32[], f32[8]) while(a), condition=go, body=plain
  y = f32[8] get-tuple-element(w), index=1
  b = (s32[], f32[8], f32[4,8], f32[4,8]) tuple(z, x, buffer, buffer)
  v = (s32[], f32[8], f32[4,8], f32[4,8]) while(b), condition=go2, body=stacks
  y2 = f32[8] get-tuple-element(v), index=1
  ROOT out = f32[8] add(y, y2)
}
"""


def test_what_a_loop_stacks_besides_does_not_make_it_another() -> None:
    assert same(STACKING, "t", "t2")
    assert same(STACKING, "y", "y2")
    for old, new in (
        ("t2 = f32[8] tanh(h)", "t2 = f32[8] sine(h)"),
        ("tuple(next, t2, new, new2)", "tuple(next, s, new, new2)"),
        ("tuple(z, x, buffer, buffer)", "tuple(z, nils, buffer, buffer)"),
    ):
        other = STACKING.replace(old, new)
        assert other != STACKING
        other = other.replace("  b = ", "  nils = f32[8] broadcast(nil), dimensions={}\n  b = ")
        assert not same(other, "y", "y2"), new
        assert not same(other, "t", "t2"), new
    # What it hands on comes from what it stacks: then that counts.
    row = "row = f32[1,8] dynamic-slice(kept, zero, zero), dynamic_slice_sizes={1,8}\n"
    mixed = STACKING.replace(
        "  s = f32[8] sine(h)",
        f"  {row}  first = f32[8] reshape(row)\n  m = f32[8] add(t2, first)\n  s = f32[8] sine(h)",
    ).replace("tuple(next, t2, new, new2)", "tuple(next, m, new, new2)")
    assert not same(mixed, "y", "y2")


def test_how_often_a_computation_runs_in_each_place() -> None:
    times: dict[str, list[int | None]] = {}
    for context in congruence(NESTED).contexts():
        times.setdefault(context.evaluation.computation.name, []).append(context.times)
    assert times == {"main": [1], "fwd": [2], "bwd": [2], "inner": [8, 8], "unwind": [8]}


# -- how much is run ------------------------------------------------------------------------------


def layers(count: int) -> str:
    lines = ["h0 = f32[8,8] copy(x)"]
    for n in range(count):
        lines.append(f"d{n} = f32[8,8] dot(h{n}, w), {ROWS}")
        lines.append(f"h{n + 1} = f32[8,8] call(d{n}, v), to_apply=act")
    lines.append(f"ROOT r = f32[8,8] negate(h{count})")
    act = "\nact {\n  p = f32[8,8] parameter(0)\n  q = f32[8,8] parameter(1)\n  s = f32[8,8] add(p, q)\n  ROOT t = f32[8,8] tanh(s)\n}\n"
    return module(*lines, before=act)


def ran(text: str) -> int:
    return congruence(text)._ran


def test_twice_the_layers_are_twice_the_work() -> None:
    counts = [ran(layers(count)) for count in (50, 100, 200, 400)]
    grown = [later - earlier for earlier, later in pairwise(counts)]
    assert grown[1] == 2 * grown[0]
    assert grown[2] == 2 * grown[1]


def test_a_loop_is_run_a_few_times_however_often_it_runs() -> None:
    assert ran(scan(n=4)) == ran(scan(n=1000))


def test_what_is_called_again_on_the_same_values_is_not_run_again() -> None:
    lines = [f"c{n} = f32[8,8] call(x, w), to_apply=f" for n in range(100)]
    once, often = (
        calling(DOT, *lines[:count], "ROOT r = f32[8,8] negate(c0)") for count in (1, 100)
    )
    assert ran(often) - ran(once) == 99


def nested_calls(depth: int, call: str = "call(x), to_apply={}", each: int = 1) -> str:
    computations = ["z {\n  x = f32[8] parameter(0)\n  ROOT y = f32[8] tanh(x)\n}"]
    for n in range(depth):
        callee = f"f{n - 1}" if n else "z"
        lines = [f"  y{k} = f32[8] {call.format(callee)}" for k in range(each)]
        lines[-1] = lines[-1].replace("  y", "  ROOT y", 1)
        body = "\n".join(lines)
        computations.append(f"f{n} {{\n  x = f32[8] parameter(0)\n{body}\n}}")
    text = "\n".join(computations)
    return f"HloModule m\n{text}\nENTRY main {{\n  x = f32[8] parameter(0)\n  ROOT r = f32[8] call(x), to_apply=f{depth - 1}\n}}\n"


TUPLES = ["t0 = (f32[8,8], f32[8,8]) tuple(x, x)"]
TUPLES += [f"t{n + 1} = (f32[8,8], f32[8,8]) tuple(t{n}, t{n})" for n in range(3000)]
CIRCLE = """HloModule m
f {
  x = f32[8] parameter(0)
  n = f32[8] negate(x)
  ROOT y = f32[8] call(n), to_apply=g
}
g {
  x = f32[8] parameter(0)
  n = f32[8] call(x), to_apply=f
  ROOT y = f32[8] tanh(n)
}
ENTRY main {
  x = f32[8] parameter(0)
  ROOT r = f32[8] call(x), to_apply=f
}
"""


def hostile() -> Iterator[tuple[str, str]]:
    yield "deep calls", nested_calls(3000)
    yield "each called twice", nested_calls(60, each=2)
    yield "deep fusions", nested_calls(500, "fusion(x), kind=kLoop, calls={}")
    yield (
        "tuples of tuples",
        module(*TUPLES, 'ROOT r = f32[8,8] custom-call(t3000), custom_call_target="k"'),
    )
    yield (
        "a long chain",
        module(
            "n0 = f32[8,8] negate(x)", *(f"n{n + 1} = f32[8,8] negate(n{n})" for n in range(20000))
        ),
    )
    squares = (f"s{n + 1} = s64[] multiply(s{n}, s{n})" for n in range(60))
    yield "squares of squares", module("s0 = s64[] constant(3)", *squares)
    yield "a circle of calls", CIRCLE
    yield "a call of itself", CIRCLE.replace("to_apply=g", "to_apply=f")
    yield (
        "a body of itself",
        scan().replace(
            "tanh(d)",
            "tanh(d)\n  w2 = (s32[], f32[8], f32[4,8], f32[4,8,8]) while(p), condition=fwd_go, body=fwd",
        ),
    )
    yield "a transpose of nothing", module("ROOT b = f32[8,8] transpose()")
    yield "a bitcast of another layout", module("ROOT b = f32[8,8]{5,5} bitcast(x)")
    yield (
        "dimensions without end",
        module(f"ROOT b = f32[{','.join(['999999999'] * 90)}] bitcast(x)"),
    )
    yield (
        "groups without end",
        module(
            "ROOT b = f32[8,8] all-gather(x), dimensions={0}, replica_groups=[1,9000000000]<=[9000000000]"
        ),
    )
    yield "a dot of nothing", module("ROOT b = f32[8,8] dot()")
    yield (
        "a dot of dimensions that are not there",
        module(f"ROOT b = f32[8,8] dot(x, w), {ROWS.replace('{1}', '{7}')}"),
    )
    yield (
        "joined of nothing",
        module('ROOT b = f32[8,8] custom-call(), custom_call_target="ConcatBitcast"'),
    )
    yield "no entry at all", "HloModule m\nf {\n  ROOT x = f32[8] parameter(0)\n}\n"


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in hostile()])
def test_texts_that_no_compiler_wrote_come_to_an_end(text: str) -> None:
    before = time.process_time()
    numbers(text)
    assert time.process_time() - before < 5


def test_what_calls_itself_is_equal_to_nothing_else() -> None:
    found = numbers(CIRCLE)
    assert len(found["r"]) == 1
    assert found["r"].isdisjoint(found["x"])
