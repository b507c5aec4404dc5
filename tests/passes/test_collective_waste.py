"""Why a collective could be absent, smaller, later or elsewhere; each kind beside a look-alike."""

from __future__ import annotations

import re

import pytest

from tests.fixtures import committed
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file, findings
from tests.shared import needs_shared, texts, unpacked
from tests.test_readme import BLOCK, ROOT, at_root, output_of

WASTE = (
    "select kind, number, saved_wire_bytes, kept_fraction, wasted_bytes, carry_index, blocked_by"
    " from collective_waste order by 1, 2, 3"
)
NAMED = (
    "select w.kind, c.name, p.name from collective_waste w"
    " join instructions c on (c.module, c.id) = (w.module, w.instr)"
    " left join instructions p on (p.module, p.id) = (w.module, w.partner) order by 1, 2"
)
LEAVES = (
    "select kind, i.name from collective_waste w"
    " join instructions i on (i.module, i.id) = (w.module, w.could_leave) order by 1, 2"
)


def kinds(text: str) -> list[object]:
    return [kind for (kind,) in ask(text, "select kind from collective_waste order by 1")]


def level(text: str, rule: str) -> object:
    """The level of the only finding of a rule, of the text as the last one of a compile."""
    text = text.replace("HloModule m,", "HloModule m, is_scheduled=true,")
    ((found,),) = ask(text, f"select level from findings where rule = '{rule}'")
    return found


def module(entry: str, *computations: str, header: str = "num_partitions=4") -> str:
    """A module of small computations and an ENTRY with these lines."""
    blocks = "\n\n".join((ADD, *computations))
    return f"HloModule m, {header}\n\n{blocks}\n\nENTRY main {{\n{entry}\n}}\n"


ADD = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}"""
MAX = """max {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] maximum(x, y)
}"""
ALL = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
REDUCE = f"{ALL}, to_apply=add"
GATHER = f"{ALL}, dimensions={{0}}"


def looped(
    body: str,
    root: str,
    *,
    carry: str,
    init: str,
    trips: int = 8,
    name: str = "loop",
    arg: str = "",
) -> tuple[str, str]:
    """The computations of a loop with the carry (s32[], carry…), and the lines that call it.

    The lines of the body see `st`, `i` and `zero`; `root` is what it gives behind the counter."""
    shape = f"(s32[], {carry})"
    condition = f"""{name}_condition {{
  st = {shape} parameter(0)
  i = s32[] get-tuple-element(st), index=0
  n = s32[] constant({trips})
  ROOT more = pred[] compare(i, n), direction=LT
}}"""
    computation = f"""{name}_body {{
  st = {shape} parameter(0)
  i = s32[] get-tuple-element(st), index=0
  zero = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
{body}
  ROOT out = {shape} tuple(next, {root})
}}"""
    lines = f"""  {name}_zero = s32[] constant(0)
  {name}_init = {shape} tuple({name}_zero, {init})
  {name} = {shape} while({name}_init), condition={name}_condition, body={name}_body"""
    return f"{computation}\n\n{condition}", lines


def element(name: str, shape: str, index: int, of: str = "st") -> str:
    return f"  {name} = {shape} get-tuple-element({of}), index={index}"


# ---------------------------------------------------------------------------- hoistable


def gathering(operand: str, *lines: str, trips: int = 8) -> str:
    """A loop that gathers `operand` in each iteration, and multiplies with it."""
    body, call = looped(
        "\n".join((
            element("h", "f32[4,16]", 1), element("w", "f32[4,16]", 2),
            element("ws", "f32[8,4,16]", 3), *lines,
            f"  full = f32[16,16] all-gather({operand}), {GATHER}",
            "  d = f32[4,16] dot(h, full), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        )),
        "d, w, ws", carry="f32[4,16], f32[4,16], f32[8,4,16]", init="h, w, ws", trips=trips,
    )  # fmt: skip
    entry = f"""  h = f32[4,16] parameter(0)
  w = f32[4,16] parameter(1)
  ws = f32[8,4,16] parameter(2)
{call}
  ROOT last = f32[4,16] get-tuple-element(loop), index=1"""
    return module(entry, body)


SLICED_BY_COUNTER = (
    "  cut = f32[1,4,16] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={1,4,16}",
    "  mine = f32[4,16] reshape(cut)",
)


def test_a_gather_of_the_same_weight_in_each_iteration() -> None:
    # 3 · 256 bytes in each of 8 iterations, instead of once
    assert check_table(gathering("w"), WASTE) == [("hoistable", 0, 5376, None, None, None, None)]
    assert ask(gathering("w"), LEAVES) == [("hoistable", "loop")]


def test_arithmetic_and_barriers_on_what_does_not_change() -> None:
    lines = (
        "  half = f32[] constant(0.5)",
        "  halves = f32[4,16] broadcast(half), dimensions={}",
        "  scaled = f32[4,16] multiply(w, halves)",
        "  pair = (f32[4,16], f32[4,16]) tuple(scaled, h)",
        "  kept = (f32[4,16], f32[4,16]) opt-barrier(pair)",
        "  again = f32[4,16] get-tuple-element(kept), index=0",
    )
    assert kinds(gathering("again", *lines)) == ["hoistable"]


@pytest.mark.parametrize(
    ("operand", "lines"),
    [
        ("mine", SLICED_BY_COUNTER),
        ("h", ()),
        ("other", ("  r = f32[] rng(zero, zero), distribution=rng_uniform",
                   "  rs = f32[4,16] broadcast(r), dimensions={}",
                   "  other = f32[4,16] add(w, rs)")),
        ("other", ('  other = f32[4,16] custom-call(w), custom_call_target="io",'
                   " custom_call_has_side_effect=true",)),
    ],
    ids=["a slice for each iteration", "the activation", "a random number", "a side effect"],
)  # fmt: skip
def test_what_each_iteration_has_anew_is_not_hoistable(
    operand: str, lines: tuple[str, ...]
) -> None:
    assert kinds(gathering(operand, *lines)) == []


def test_a_random_number_inside_of_what_is_called() -> None:
    noisy = """noisy {
  p = f32[4,16] parameter(0)
  z = f32[] constant(0)
  r = f32[] rng(z, z), distribution=rng_uniform
  rs = f32[4,16] broadcast(r), dimensions={}
  ROOT s = f32[4,16] add(p, rs)
}"""
    text = gathering("other", "  other = f32[4,16] call(w), to_apply=noisy")
    assert kinds(text.replace("loop_body {", f"{noisy}\n\nloop_body {{")) == []
    calm = noisy.replace("rng(z, z), distribution=rng_uniform", "negate(z)")
    assert kinds(text.replace("loop_body {", f"{calm}\n\nloop_body {{")) == ["hoistable"]


def test_a_loop_of_one_iteration_repeats_nothing() -> None:
    assert kinds(gathering("w", trips=1)) == []


def test_what_a_branch_gathers_is_not_sent_in_each_iteration() -> None:
    branches = f"""yes {{
  p = f32[4,16] parameter(0)
  ROOT ag = f32[16,16] all-gather(p), {GATHER}
}}

no {{
  p = f32[4,16] parameter(0)
  z = f32[] constant(0)
  ROOT zs = f32[16,16] broadcast(z), dimensions={{}}
}}"""
    text = gathering("w").replace(
        f"  full = f32[16,16] all-gather(w), {GATHER}",
        "  odd = pred[] compare(i, one), direction=GT\n"
        "  full = f32[16,16] conditional(odd, w, w), true_computation=yes, false_computation=no",
    )
    text = text.replace("loop_body {", f"{branches}\n\nloop_body {{")
    assert kinds(text) == []


def nested(operand: str) -> str:
    """A gather in a loop of 4 iterations in one of 8."""
    inner, call = looped(
        "\n".join((
            element("h", "f32[4,16]", 1), element("w", "f32[4,16]", 2),
            f"  full = f32[16,16] all-gather(w), {GATHER}",
            "  d = f32[4,16] dot(h, full), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        )),
        "d, w", carry="f32[4,16], f32[4,16]", init=f"h, {operand}", trips=4, name="inner",
    )  # fmt: skip
    outer, outer_call = looped(
        "\n".join((
            element("h", "f32[4,16]", 1), element("w", "f32[4,16]", 2),
            element("ws", "f32[8,4,16]", 3), *SLICED_BY_COUNTER, call,
            element("d", "f32[4,16]", 1, "inner"),
        )),
        "d, w, ws", carry="f32[4,16], f32[4,16], f32[8,4,16]", init="h, w, ws", name="outer",
    )  # fmt: skip
    entry = f"""  h = f32[4,16] parameter(0)
  w = f32[4,16] parameter(1)
  ws = f32[8,4,16] parameter(2)
{outer_call}
  ROOT last = f32[4,16] get-tuple-element(outer), index=1"""
    return module(entry, inner, outer)


def test_it_leaves_as_many_loops_as_do_not_change_it() -> None:
    # 768 bytes in 32 iterations: once, or in each of the 8 outer ones
    assert check_table(nested("w"), WASTE) == [("hoistable", 0, 31 * 768, None, None, None, None)]
    assert ask(nested("w"), LEAVES) == [("hoistable", "outer")]
    assert check_table(nested("mine"), WASTE) == [
        ("hoistable", 0, 24 * 768, None, None, None, None)
    ]
    assert ask(nested("mine"), LEAVES) == [("hoistable", "inner")]


def statistic(of: str) -> str:
    """A loop in which the largest element of something is found over all devices."""
    body, call = looped(
        "\n".join((
            element("h", "f32[4,16]", 1), element("ws", "f32[8,4,16]", 2), *SLICED_BY_COUNTER,
            "  none = f32[] constant(0)",
            f"  most = f32[16] reduce({of}, none), dimensions={{0}}, to_apply=max",
            f"  all = f32[16] all-reduce(most), {ALL}, to_apply=max",
            "  rows = f32[4,16] broadcast(all), dimensions={1}",
            "  n = f32[4,16] divide(h, rows)",
        )),
        "n, ws", carry="f32[4,16], f32[8,4,16]", init="h, ws",
    )  # fmt: skip
    entry = f"""  h = f32[4,16] parameter(0)
  ws = f32[8,4,16] parameter(1)
{call}
  ROOT last = f32[4,16] get-tuple-element(loop), index=1"""
    return module(entry, MAX, body)


def test_a_statistic_of_each_layers_weights_is_known_in_front_of_the_loop() -> None:
    assert check_table(statistic("mine"), WASTE) == [("hoistable", 0, 0, None, None, None, "index")]
    assert kinds(statistic("h")) == []


# ---------------------------------------------------------------------------- accumulate_only


def accumulating(
    *lines: str, total: str = "total", reduce: str = "", more: str = "", condition: str = ""
) -> str:
    """A loop that reduces a gradient `g` as `red`, and carries `total`."""
    reduce = reduce or f"red = f32[16] all-reduce(g), {REDUCE}"
    body, call = looped(
        "\n".join((
            element("acc", "f32[16]", 1), element("xs", "f32[8,16]", 2),
            element("seen", "f32[16]", 3),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
            "  g = f32[16] reshape(cut)",
            f"  {reduce}", *lines,
        )),
        f"{total}, xs, {more or 'seen'}", carry="f32[16], f32[8,16], f32[16]", init="a, xs, a",
    )  # fmt: skip
    if condition:
        body = body.replace("  ROOT more =", f"{condition}\n  ROOT more =")
    entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[16] broadcast(z), dimensions={{}}
{call}
  sum = f32[16] get-tuple-element(loop), index=1
  last = f32[16] get-tuple-element(loop), index=3
  ROOT both = (f32[16], f32[16]) tuple(sum, last)"""
    return module(entry, MAX, body)


PLAIN_SUM = "  total = f32[16] add(acc, red)"


def test_a_reduction_that_is_only_added_to_a_carry() -> None:
    # 2 · 3/4 · 64 bytes in each of 8 iterations, instead of once
    assert check_table(accumulating(PLAIN_SUM), WASTE) == [
        ("accumulate_only", 0, 7 * 96, None, None, 1, None)
    ]
    assert ask(accumulating(PLAIN_SUM), NAMED) == [("accumulate_only", "red", "total")]
    assert ask(accumulating(PLAIN_SUM), LEAVES) == [("accumulate_only", "loop")]


HALF = "  half = f32[] constant(0.5)\n  halves = f32[16] broadcast(half), dimensions={}\n"


@pytest.mark.parametrize(
    ("lines", "blocked"),
    [
        ("  b = bf16[16] convert(red)\n  f = f32[16] convert(b)\n"
         "  total = f32[16] add(acc, f)", "convert"),
        (f"{HALF}  s = f32[16] multiply(red, halves)\n  total = f32[16] add(s, acc)",
         "scalar multiply"),
        (f"{HALF}  s = f32[16] divide(red, halves)\n  total = f32[16] add(s, acc)",
         "scalar divide"),
        ("  n = f32[16] negate(red)\n  total = f32[16] subtract(acc, n)", "negate"),
        ("  on = pred[16] compare(seen, acc), direction=GT\n", None),
    ],
    ids=["convert", "multiply", "divide", "subtract", "a compare with the sum"],
)  # fmt: skip
def test_what_stands_between_the_reduction_and_the_sum(lines: str, blocked: str | None) -> None:
    if blocked is None:
        assert kinds(accumulating(f"{PLAIN_SUM}\n{lines}", more="red")) == []
        return
    assert ask(accumulating(lines), "select kind, blocked_by from collective_waste") == [
        ("accumulate_only", blocked)
    ]


def test_select_with_zero_and_scatter_are_ways_to_add() -> None:
    masked = """  z = f32[] constant(0)
  zs = f32[16] broadcast(z), dimensions={}
  four = s32[] constant(4)
  on = pred[] compare(i, four), direction=LT
  ons = pred[16] broadcast(on), dimensions={}
  m = f32[16] select(ons, red, zs)
  total = f32[16] add(acc, m)"""
    scattered = """  at = s32[16,1] iota(), iota_dimension=0
  total = f32[16] scatter(acc, at, red), update_window_dims={}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"""
    blocked = "select kind, blocked_by from collective_waste"
    assert ask(accumulating(masked), blocked) == [("accumulate_only", "select")]
    assert ask(accumulating(scattered), blocked) == [("accumulate_only", "scatter")]


def test_a_reduce_scatter_needs_its_whole_input_behind_the_loop() -> None:
    body, call = looped(
        "\n".join((
            element("acc", "f32[4]", 1), element("xs", "f32[8,16]", 2),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
            "  g = f32[16] reshape(cut)",
            f"  part = f32[4] reduce-scatter(g), {REDUCE}, dimensions={{0}}",
            "  total = f32[4] add(acc, part)",
        )),
        "total, xs", carry="f32[4], f32[8,16]", init="a, xs",
    )  # fmt: skip
    entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[4] broadcast(z), dimensions={{}}
{call}
  ROOT sum = f32[4] get-tuple-element(loop), index=1"""
    text = module(entry, body)
    assert check_table(text, WASTE) == [("accumulate_only", 0, 7 * 48, None, None, 1, None)]
    ((rule, message),) = findings(text, "collective_waste")
    assert rule == "collective-accumulated"
    assert "behind it, 64 bytes of input are kept" in message
    assert level(text, rule) == "note"
    assert level(accumulating(PLAIN_SUM), rule) == "warning"


def test_a_reduce_scatter_as_a_tpu_fuses_it() -> None:
    fused = f"""all-reduce-scatter {{
  g = f32[16] parameter(0)
  red = f32[16] all-reduce(g), {REDUCE}
  me = u32[] partition-id()
  rank = s32[] convert(me)
  four = s32[] constant(4)
  at = s32[] multiply(rank, four)
  ROOT part = f32[4] dynamic-slice(red, at), dynamic_slice_sizes={{4}}
}}"""
    body, call = looped(
        "\n".join((
            element("acc", "f32[4]", 1), element("xs", "f32[8,16]", 2),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
            "  g = f32[16] reshape(cut)",
            "  part = f32[4] fusion(g), kind=kCustom, calls=all-reduce-scatter",
            "  total = f32[4] add(acc, part)",
        )),
        "total, xs", carry="f32[4], f32[8,16]", init="a, xs",
    )  # fmt: skip
    entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[4] broadcast(z), dimensions={{}}
{call}
  ROOT sum = f32[4] get-tuple-element(loop), index=1"""
    assert check_table(module(entry, fused, body), WASTE) == [
        ("accumulate_only", 0, 7 * 48, None, None, 1, None)
    ]


def test_of_an_unknown_number_of_iterations_what_is_saved_is_not_known() -> None:
    text = accumulating(PLAIN_SUM).replace("n = s32[] constant(8)", "n = s32[] custom-call()")
    text = text.replace("custom-call()", 'custom-call(), custom_call_target="f"')
    assert ask(text, WASTE) == [("accumulate_only", 0, None, None, None, 1, None)]


NOT_ONLY_ADDED: dict[str, str] = {
    "used otherwise, too": accumulating(
        PLAIN_SUM, "  t = f32[16] tanh(red)", more="t"
    ),
    "the sum is used in the loop": accumulating(
        PLAIN_SUM, "  t = f32[16] tanh(acc)", more="t"
    ),
    "the new sum is used in the loop": accumulating(
        PLAIN_SUM, "  t = f32[16] tanh(total)", more="t"
    ),
    "carried as it is": accumulating("  total = f32[16] copy(red)"),
    "added to something else": accumulating(
        "  t = f32[16] tanh(seen)", "  total = f32[16] add(t, red)", more="t"
    ),
    "added to another element": accumulating(
        "  total = f32[16] add(seen, red)", more="acc"
    ),
    "scaled with the sum": accumulating(
        HALF, "  old = f32[16] multiply(acc, halves)", "  total = f32[16] add(old, red)"
    ),
    "scaled by an array": accumulating(
        "  s = f32[16] multiply(red, g)", "  total = f32[16] add(acc, s)"
    ),
    "the largest": accumulating(
        PLAIN_SUM, reduce=f"red = f32[16] all-reduce(g), {ALL}, to_apply=max"
    ),
    "read by the condition": accumulating(
        PLAIN_SUM, condition="  s = f32[16] get-tuple-element(st), index=1\n"
        "  f = f32[] constant(0)\n  most = f32[] reduce(s, f), dimensions={0}, to_apply=max"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ONLY_ADDED)
def test_look_alikes_of_a_sum(name: str) -> None:
    assert kinds(NOT_ONLY_ADDED[name]) == []


def microbatches(stack: str = "written") -> str:
    """Gradients of 4 layers are reduced and stacked, and the stack is added up over 8 batches."""
    inner, call = looped(
        "\n".join((
            element("xs", "f32[4,16]", 1), element("grads", "f32[4,16]", 2),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
            f"  red = f32[1,16] all-reduce(cut), {REDUCE}",
            "  written = f32[4,16] dynamic-update-slice(grads, red, i, zero)",
        )),
        f"xs, {stack}", carry="f32[4,16], f32[4,16]", init="xs, empty", trips=4, name="layers",
    )  # fmt: skip
    outer, outer_call = looped(
        "\n".join((
            element("acc", "f32[4,16]", 1), element("xs", "f32[4,16]", 2),
            "  z = f32[] constant(0)", "  empty = f32[4,16] broadcast(z), dimensions={}", call,
            element("grads", "f32[4,16]", 2, "layers"), "  total = f32[4,16] add(acc, grads)",
            "  other = f32[4,16] tanh(xs)",
        )),
        "total, other", carry="f32[4,16], f32[4,16]", init="a, xs", name="batches",
    )  # fmt: skip
    entry = f"""  xs = f32[4,16] parameter(0)
  z = f32[] constant(0)
  a = f32[4,16] broadcast(z), dimensions={{}}
{outer_call}
  ROOT sum = f32[4,16] get-tuple-element(batches), index=1"""
    return module(entry, inner, outer)


def test_layers_stack_what_microbatches_add_up() -> None:
    # 96 bytes for 4 layers in each of 8 batches, instead of for the 4 layers once
    assert check_table(microbatches(), WASTE) == [
        ("accumulate_only", 0, 4 * 7 * 96, None, None, 1, None)
    ]
    assert ask(microbatches(), LEAVES) == [("accumulate_only", "batches")]
    assert ask(microbatches(), NAMED) == [("accumulate_only", "red", "total")]


def test_each_layer_adds_to_its_slice_of_what_microbatches_carry() -> None:
    text = microbatches().replace(
        "  written = f32[4,16] dynamic-update-slice(grads, red, i, zero)",
        "  old = f32[1,16] dynamic-slice(grads, i, zero), dynamic_slice_sizes={1,16}\n"
        "  new = f32[1,16] add(old, red)\n"
        "  written = f32[4,16] dynamic-update-slice(grads, new, i, zero)",
    ).replace("tuple(layers_zero, xs, empty)", "tuple(layers_zero, xs, acc)").replace(
        "  total = f32[4,16] add(acc, grads)\n", "  total = f32[4,16] copy(grads)\n"
    )  # fmt: skip
    assert check_table(text, WASTE) == [("accumulate_only", 0, 4 * 7 * 96, None, None, 1, None)]
    assert ask(text, LEAVES) == [("accumulate_only", "batches")]


# ---------------------------------------------------------------------------- only_stacked


def stacking(*lines: str, stack: str = "written", header: str = "is_scheduled=true, ") -> str:
    body, call = looped(
        "\n".join((
            element("xs", "f32[8,16]", 1), element("all", "f32[8,16]", 2),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}", *lines,
        )),
        f"xs, {stack}", carry="f32[8,16], f32[8,16]", init="xs, a",
    )  # fmt: skip
    entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[8,16] broadcast(z), dimensions={{}}
{call}
  ROOT last = f32[8,16] get-tuple-element(loop), index=2"""
    return module(entry, body, header=f"{header}num_partitions=4")


RED = f"  red = f32[1,16] all-reduce(cut), {REDUCE}"
WRITE = "  written = f32[8,16] dynamic-update-slice(all, red, i, zero)"


def test_a_reduction_that_is_only_stacked() -> None:
    assert check_table(stacking(RED, WRITE), WASTE) == [("only_stacked", 0, 0, None, None, 2, None)]
    assert ask(stacking(RED, WRITE), NAMED) == [("only_stacked", "red", "written")]


def test_a_convert_in_front_of_the_stack() -> None:
    rounded = RED.replace("red =", "r =") + "\n  b = bf16[1,16] convert(r)\n"
    text = stacking(f"{rounded}  red = f32[1,16] convert(b)", WRITE)
    blocked = "select kind, blocked_by from collective_waste where kind = 'only_stacked'"
    assert ask(text, blocked) == [("only_stacked", "convert")]


def test_look_alikes_of_a_stack() -> None:
    start = f"""  start = f32[1,16] all-reduce-start(cut), {REDUCE}
  t = f32[8,16] tanh(xs)
  red = f32[1,16] all-reduce-done(start)"""
    scattered = f"""  wide = f32[4,16] broadcast(cut), dimensions={{0,1}}
  red = f32[1,16] reduce-scatter(wide), {REDUCE}, dimensions={{0}}"""
    read = "  old = f32[1,16] dynamic-slice(all, zero, zero), dynamic_slice_sizes={1,16}"
    used = "  t = f32[8,16] tanh(all)\n  written = f32[8,16] copy(t)"
    assert kinds(stacking(start, WRITE)) == []  # it hides behind the tanh
    assert kinds(stacking(scattered, WRITE)) == []  # its input would have to be kept
    assert kinds(stacking(RED, WRITE, read, "  t = f32[1,16] tanh(old)", header="")) == []
    assert kinds(stacking(RED, WRITE.replace("written", "w"), used, header="")) == []
    assert kinds(stacking(RED, WRITE, header="")) == []  # no schedule: it may hide


# ---------------------------------------------------------------------------- only_sliced


def sliced(*lines: str, root: str = "part", shape: str = "f32[4,8]") -> str:
    """An all-reduce of f32[16,8], and the place of a device."""
    entry = "\n".join((
        "  g = f32[16,8] parameter(0)", f"  red = f32[16,8] all-reduce(g), {REDUCE}",
        "  zero = s32[] constant(0)", "  me = u32[] partition-id()",
        "  table = s32[4] constant({0, 4, 8, 12})",
        "  entry = s32[1] dynamic-slice(table, me), dynamic_slice_sizes={1}",
        "  at = s32[] reshape(entry)", *lines,
        f"  ROOT r = {shape} negate({root})" if root else "",
    ))  # fmt: skip
    return module(entry)


PART = "  part = f32[4,8] dynamic-slice(red, at, zero), dynamic_slice_sizes={4,8}"


def test_an_all_reduce_of_which_each_device_keeps_its_part() -> None:
    # 512 bytes: an all-reduce sends 768, a reduce-scatter 384; three quarters are thrown away
    assert check_table(sliced(PART), WASTE) == [("only_sliced", 0, 384, 0.25, 384, None, None)]
    assert ask(sliced(PART), NAMED) == [("only_sliced", "red", "part")]


def test_the_place_may_be_calculated_and_the_slice_converted_and_fused() -> None:
    fused = """fused {
  r = f32[16,8] parameter(0)
  a = s32[] parameter(1)
  z = s32[] constant(0)
  b = bf16[16,8] convert(r)
  p = bf16[4,8] dynamic-slice(b, a, z), dynamic_slice_sizes={4,8}
  ROOT f = f32[4,8] convert(p)
}"""
    lines = """  rank = s32[] convert(me)
  four = s32[] constant(4)
  mine = s32[] multiply(rank, four)
  part = f32[4,8] fusion(red, mine), kind=kLoop, calls=fused"""
    text = sliced(lines).replace("ENTRY", f"{fused}\n\nENTRY")
    assert check_table(text, WASTE) == [("only_sliced", 0, 384, 0.25, 384, None, None)]


def test_in_any_spelling() -> None:
    start = sliced(PART).replace(
        f"  red = f32[16,8] all-reduce(g), {REDUCE}",
        f"  s = f32[16,8] all-reduce-start(g), {REDUCE}\n  red = f32[16,8] all-reduce-done(s)",
    )
    assert check_table(start, WASTE) == [("only_sliced", 0, 384, 0.25, 384, None, None)]
    gather = gathering("w").replace(
        f"full = f32[16,16] all-gather(w), {GATHER}",
        f"s = (f32[4,16], f32[16,16]) all-gather-start(w), {GATHER}\n"
        "  full = f32[16,16] all-gather-done(s)",
    )
    assert check_table(gather, WASTE) == [("hoistable", 0, 5376, None, None, None, None)]
    two = twice(TWICE).replace(
        f"  two = {TWICE}",
        f"  s = (f32[4,8], f32[16,8]) {TWICE[10:].replace('all-gather', 'all-gather-start')}\n"
        "  two = f32[16,8] all-gather-done(s)",
    )
    assert check_table(two, WASTE) == [("duplicate", 0, 384, None, None, None, None)]


def test_two_slices_of_one_place_are_one() -> None:
    again = "  again = f32[4,8] dynamic-slice(red, at, zero), dynamic_slice_sizes={4,8}"
    text = sliced(PART, again, "  sum = f32[4,8] add(part, again)", root="sum")
    assert check_table(text, WASTE) == [("only_sliced", 0, 384, 0.25, 384, None, None)]


def test_a_part_that_is_no_share_of_the_group_saves_what_is_not_known() -> None:
    half = PART.replace("f32[4,8]", "f32[8,8]").replace("{4,8}", "{8,8}")
    assert check_table(sliced(half, shape="f32[8,8]"), WASTE) == [
        ("only_sliced", 0, None, 0.5, 256, None, None)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        (PART.replace("at, zero", "zero, zero"),),
        (PART, "  t = f32[16,8] tanh(red)", "  ROOT both = (f32[4,8], f32[16,8]) tuple(part, t)"),
        (PART, "  ROOT both = (f32[4,8], f32[16,8]) tuple(part, red)"),
        ("  where = s32[] parameter(1)", PART.replace("at, zero", "where, zero")),
        ("  where = s32[] parameter(1)", "  there = s32[] add(at, where)",
         PART.replace("at, zero", "there, zero")),
    ],
    ids=["the same part on all", "used otherwise", "returned", "a place that is given",
         "a place of its own that moves"],
)  # fmt: skip
def test_look_alikes_of_a_missed_reduce_scatter(lines: tuple[str, ...]) -> None:
    assert kinds(sliced(*lines, root="" if "ROOT" in lines[-1] else "part")) == []


KERNEL = f"""  g = f32[4,8] parameter(0)
  full = f32[16,8] all-gather(g), {GATHER}
  out = (f32[16,8], u8[64]) custom-call(full), custom_call_target="kernel"
  y = f32[16,8] get-tuple-element(out), index=0
  zero = s32[] constant(0)
  me = u32[] partition-id()
  rank = s32[] convert(me)
  four = s32[] constant(4)
  at = s32[] multiply(rank, four)
  part = f32[4,8] dynamic-slice(y, at, zero), dynamic_slice_sizes={{4,8}}
"""


def test_a_kernel_that_gets_all_and_of_which_a_part_is_kept() -> None:
    text = module(KERNEL + "  ROOT r = f32[4,8] negate(part)")
    assert check_table(text, WASTE) == [("only_sliced", 0, 384, 0.25, 384, None, None)]
    assert ask(text, NAMED) == [("only_sliced", "out", "part")]
    assert level(text, "all-reduce-only-sliced") == "note"
    assert level(sliced(PART), "all-reduce-only-sliced") == "warning"


def test_a_kernel_whose_result_is_used_whole() -> None:
    text = module(KERNEL + "  ROOT r = (f32[4,8], f32[16,8]) tuple(part, y)")
    assert kinds(text) == []


# ---------------------------------------------------------------------------- gathered_then_sliced


def resharded(cut: str, shape: str, at: str) -> str:
    return module(f"""  g = f32[4,8] parameter(0)
  full = f32[16,8] all-gather(g), {GATHER}
  zero = s32[] constant(0)
  me = u32[] partition-id()
  rank = s32[] convert(me)
  step = s32[] constant(2)
  at = s32[] multiply(rank, step)
  part = {shape} dynamic-slice(full, {at}), dynamic_slice_sizes={cut}
  ROOT r = {shape} negate(part)""")


def test_gathered_by_rows_to_be_cut_by_columns() -> None:
    # a gather sends 384 bytes, an all-to-all 96
    text = resharded("{16,2}", "f32[16,2]", "zero, at")
    assert check_table(text, WASTE) == [("gathered_then_sliced", 0, 288, 0.25, 384, None, None)]


def test_gathered_to_be_cut_by_rows_again() -> None:
    text = resharded("{4,8}", "f32[4,8]", "at, zero")
    assert check_table(text, WASTE) == [("gathered_then_sliced", 0, None, 0.25, 384, None, None)]
    assert kinds(resharded("{4,8}", "f32[4,8]", "zero, zero")) == []


# ---------------------------------------------------------------------------- chained

TWO = "channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("first", "second", "saved"),
    [
        (f"f32[16] all-gather(g), {GATHER}", f"f32[16] all-reduce(one), {REDUCE}", 96),
        (f"f32[16] all-gather(g), {GATHER}", f"f32[64] all-gather(one), {GATHER}", 192),
        (f"f32[4] all-reduce(g), {REDUCE}", f"f32[4] all-reduce(one), {REDUCE}", 24),
        (f"f32[1] reduce-scatter(g), {REDUCE}, dimensions={{0}}",
         f"f32[4] all-gather(one), {GATHER}", 0),
    ],
    ids=["reduce a gather", "gather a gather", "reduce a reduction", "in two halves"],
)  # fmt: skip
def test_one_over_the_same_groups_directly_behind_another(
    first: str, second: str, saved: int
) -> None:
    text = module(f"  g = f32[4] parameter(0)\n  one = {first}\n  ROOT two = {second}")
    assert check_table(text, WASTE) == [("chained", 0, saved, None, None, None, None)]
    assert ask(text, NAMED) == [("chained", "two", "one")]


@pytest.mark.parametrize(
    "second",
    [f"f32[16] all-reduce(one), {TWO}, to_apply=add", f"f32[16] all-reduce(t), {REDUCE}"],
    ids=["over other groups", "with work between"],
)
def test_look_alikes_of_a_chain(second: str) -> None:
    text = module(f"""  g = f32[4] parameter(0)
  one = f32[16] all-gather(g), {GATHER}
  t = f32[16] tanh(one)
  two = {second}
  ROOT r = f32[16] add(two, t)""")
    assert kinds(text) == []


def test_a_number_that_keeps_two_in_order_is_no_chain() -> None:
    text = module(f"""  g = f32[4] parameter(0)
  token = f32[] parameter(1)
  one = (f32[4], f32[]) all-reduce(g, token), {REDUCE}
  r = f32[4] get-tuple-element(one), index=0
  t = f32[4] tanh(r)
  after = f32[] get-tuple-element(one), index=1
  ROOT two = (f32[4], f32[]) all-reduce(t, after), {REDUCE}""")
    assert kinds(text) == []


def test_what_the_last_iteration_gave_is_no_chain() -> None:
    body, call = looped(
        f"{element('g', 'f32[4]', 1)}\n  red = f32[4] all-reduce(g), {REDUCE}",
        "red", carry="f32[4]", init="g",
    )  # fmt: skip
    entry = f"  g = f32[4] parameter(0)\n{call}\n  ROOT r = f32[4] get-tuple-element(loop), index=1"
    assert kinds(module(entry, body)) == []


# ---------------------------------------------------------------------------- wide_wire


def test_widened_in_front_of_a_gather() -> None:
    text = module(f"""  g = bf16[4,8] parameter(0)
  wide = f32[4,8] convert(g)
  ROOT full = f32[16,8] all-gather(wide), {GATHER}""")
    assert check_table(text, WASTE) == [("wide_wire", 0, 192, None, None, None, None)]
    assert ask(text, NAMED) == [("wide_wire", "full", "wide")]


def narrowed(*lines: str, kind: str = f"f32[16,8] all-gather(g), {GATHER}") -> str:
    entry = ("  g = f32[4,8] parameter(0)", f"  full = {kind}", *lines)
    return module("\n".join(entry))


NARROW = "  n = bf16[16,8] convert(full)"


def test_narrowed_by_all_that_takes_a_gather() -> None:
    text = narrowed(NARROW, "  ROOT r = bf16[16,8] negate(n)")
    assert check_table(text, WASTE) == [("wide_wire", 0, 192, None, None, None, None)]


@pytest.mark.parametrize(
    "lines",
    [
        (NARROW, "  ROOT r = (bf16[16,8], f32[16,8]) tuple(n, full)"),
        ("  n = s16[16,8] convert(full)", "  ROOT r = s16[16,8] negate(n)"),
        ("  n = f64[16,8] convert(full)", "  ROOT r = f64[16,8] negate(n)"),
    ],
    ids=["returned as it is", "made integers", "made wider"],
)
def test_look_alikes_of_a_wide_gather(lines: tuple[str, ...]) -> None:
    assert kinds(narrowed(*lines)) == []


def test_quantized_and_scaled_in_front_of_a_gather() -> None:
    text = module(f"""  g = f8e4m3fn[4,8] parameter(0)
  scale = f32[8] parameter(1)
  f = f32[4,8] convert(g)
  scales = f32[4,8] broadcast(scale), dimensions={{1}}
  m = f32[4,8] multiply(f, scales)
  b = bf16[4,8] convert(m)
  ROOT full = bf16[16,8] all-gather(b), {GATHER}""")
    assert check_table(text, WASTE) == [("wide_wire", 0, 96, None, None, None, "scale")]
    other = text.replace("scale = f32[8]", "scale = f32[4,8]").replace(
        "broadcast(scale), dimensions={1}", "copy(scale)"
    )
    assert kinds(other) == []


def test_a_sum_may_be_wider_than_what_goes_in_but_not_than_in_and_out() -> None:
    front = f"""  g = bf16[4,8] parameter(0)
  wide = f32[4,8] convert(g)
  red = f32[4,8] all-reduce(wide), {REDUCE}
"""
    assert kinds(module(front + "  ROOT r = f32[4,8] negate(red)")) == []
    both = module(front + "  n = bf16[4,8] convert(red)\n  ROOT r = bf16[4,8] negate(n)")
    assert check_table(both, WASTE) == [("wide_wire", 0, 96, None, None, None, None)]
    assert level(both, "wide-on-the-wire") == "note"


# ---------------------------------------------------------------------------- duplicate

FORWARD = ', metadata={op_name="jit(f)/jvp(m)/gather"}'
AGAIN = ', metadata={op_name="jit(f)/transpose(jvp(m))/checkpoint/rematted_computation/gather"}'


def twice(second: str, *, between: str = "", first: str = "") -> str:
    return module(f"""  w = f32[4,8] parameter(0)
  h = f32[8,16] parameter(1)
  one = f32[16,8] all-gather(w), {GATHER}{first}
  d = f32[16,16] dot(one, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
{between}
  two = {second}
  e = f32[16,16] dot(two, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[16,16] add(d, e)""")


TWICE = f"f32[16,8] all-gather(w), {GATHER}".replace("channel_id=1", "channel_id=7")
BARRIER = """  pair = (f32[4,8], f32[16,16]) tuple(w, d)
  kept = (f32[4,8], f32[16,16]) opt-barrier(pair)
  v = f32[4,8] get-tuple-element(kept), index=0"""


def test_the_same_gather_twice() -> None:
    assert check_table(twice(TWICE), WASTE) == [("duplicate", 0, 384, None, None, None, None)]
    assert ask(twice(TWICE), NAMED) == [("duplicate", "two", "one")]


def test_a_barrier_keeps_two_apart() -> None:
    text = twice(TWICE.replace("(w)", "(v)"), between=BARRIER)
    assert check_table(text, WASTE) == [("duplicate", 0, 384, None, None, None, "opt-barrier")]


def test_what_the_backward_has_again_is_a_row_and_no_finding() -> None:
    across = "select kind, across_phases from collective_waste"
    text = twice(TWICE.replace("(w)", "(v)") + AGAIN, between=BARRIER, first=FORWARD)
    assert ask(text, across) == [("duplicate", 1)]
    assert findings(text, "collective_waste") == []
    both = twice(TWICE + AGAIN, first=AGAIN)
    assert ask(both, across) == [("duplicate", 0)]
    assert [rule for rule, _ in findings(both, "collective_waste")] == ["collective-duplicated"]


def test_one_operand_twice_in_one_collective() -> None:
    text = module(f"""  w = f32[4] parameter(0)
  v = f32[4] parameter(1)
  ROOT all = (f32[16], f32[16], f32[16]) all-gather(w, v, w), {GATHER}""")
    assert check_table(text, WASTE) == [("duplicate", 2, 48, None, None, None, None)]


@pytest.mark.parametrize(
    ("second", "between"),
    [
        (f"f32[8,8] all-gather(w), {TWO}, dimensions={{0}}", ""),
        (TWICE.replace("(w)", "(v)"), "  v = f32[4,8] tanh(w)"),
        (TWICE.replace("(w)", "(v)").replace("f32[16", "bf16[16"), "  v = bf16[4,8] convert(w)"),
    ],
    ids=["other groups", "another value", "another dtype"],
)
def test_look_alikes_of_a_duplicate(second: str, between: str) -> None:
    text = twice(second, between=between)
    if "f32[8,8] all" in second:
        text = text.replace("f32[16,16] dot(two", "f32[8,16] dot(two")
    assert kinds(text) == []


def test_gathers_in_two_loops_are_no_duplicates() -> None:
    first, call = looped(
        "\n".join((
            element("h", "f32[16,8]", 1), element("ws", "f32[8,4,8]", 2),
            "  cut = f32[1,4,8] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={1,4,8}",
            "  w = f32[4,8] reshape(cut)", f"  full = f32[16,8] all-gather(w), {GATHER}",
            "  m = f32[16,8] multiply(h, full)",
        )),
        "m, ws", carry="f32[16,8], f32[8,4,8]", init="h, ws", name="forward",
    )  # fmt: skip
    second = first.replace("forward", "backward")
    entry = f"""  h = f32[16,8] parameter(0)
  ws = f32[8,4,8] parameter(1)
{call}
  m = f32[16,8] get-tuple-element(forward), index=1
{call.replace("forward", "backward").replace("zero, h,", "zero, m,")}
  ROOT last = f32[16,8] get-tuple-element(backward), index=1"""
    text = module(entry, first, second)
    assert ask(text, "select count(*) from collectives where is_regather") == [(1,)]
    assert kinds(text) == []


# ---------------------------------------------------------------------------- left_out


def scales(sharded: str, combined: str) -> str:
    """Gradients of three norm scales: two are reduced in one, the third is sharded."""
    body, call = looped(
        "\n".join((
            element("xs", "f32[8,16]", 1), element("as", "f32[8,16]", 2),
            element("bs", "f32[8,16]", 3), element("cs", "f32[8,4]", 4),
            "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
            "  g = f32[16] reshape(cut)", "  k = f32[16] negate(g)", "  l = f32[16] tanh(g)",
            combined, sharded,
            "  two = f32[1,16] reshape(a)",
            "  na = f32[8,16] dynamic-update-slice(as, two, i, zero)",
            "  three = f32[1,16] reshape(b)",
            "  nb = f32[8,16] dynamic-update-slice(bs, three, i, zero)",
            "  me = u32[] partition-id()", "  rank = s32[] convert(me)",
            "  four = s32[] constant(4)", "  at = s32[] multiply(rank, four)",
            "  part = f32[4] dynamic-slice(c, at), dynamic_slice_sizes={4}",
            "  one_part = f32[1,4] reshape(part)",
            "  nc = f32[8,4] dynamic-update-slice(cs, one_part, i, zero)",
        )),
        "xs, na, nb, nc", carry="f32[8,16], f32[8,16], f32[8,16], f32[8,4]", init="xs, a, a, c",
    )  # fmt: skip
    entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[8,16] broadcast(z), dimensions={{}}
  c = f32[8,4] broadcast(z), dimensions={{}}
{call}
  ra = f32[8,16] get-tuple-element(loop), index=2
  rb = f32[8,16] get-tuple-element(loop), index=3
  rc = f32[8,4] get-tuple-element(loop), index=4
  ROOT r = (f32[8,16], f32[8,16], f32[8,4]) tuple(ra, rb, rc)"""
    return module(entry, body)


COMBINED = f"""  both = (f32[16], f32[16]) all-reduce(g, k), {REDUCE}
{element("a", "f32[16]", 0, "both")}
{element("b", "f32[16]", 1, "both")}"""
APART = f"  a = f32[16] all-reduce(g), {REDUCE}\n  b = f32[16] tanh(k)"
SHARDED = f"  c = f32[16] all-reduce(l), {REDUCE}"


def test_one_scale_is_sharded_and_stays_by_itself() -> None:
    text = scales(SHARDED, COMBINED)
    assert check_table(text, WASTE) == [
        ("left_out", 0, None, None, None, 4, "sharding"),
        ("only_sliced", 0, 8 * 48, 0.25, 48, None, None),
    ]
    assert ask(text, NAMED)[0] == ("left_out", "c", "both")


def test_one_has_left_the_loop_and_another_has_not() -> None:
    text = scales(SHARDED, "  a = f32[16] negate(g)\n  b = f32[16] tanh(k)").replace(
        "  ROOT r = (f32[8,16], ",
        f"  behind = f32[8,16] all-reduce(ra), {REDUCE}\n  ROOT r = (f32[8,16], ",
    ).replace("tuple(ra, rb", "tuple(behind, rb")  # fmt: skip
    assert ask(text, NAMED)[0] == ("left_out", "c", "behind")


def test_without_one_that_is_combined_none_is_left_out() -> None:
    assert kinds(scales(SHARDED, APART)) == ["only_sliced"]
    other = COMBINED.replace("replica_groups={{0,1,2,3}}", "replica_groups={{0,1},{2,3}}")
    assert kinds(scales(SHARDED, other)) == ["only_sliced"]


def test_one_of_another_dtype_cannot_be_combined() -> None:
    """Three sums of gradients: two of float32 in one reduction, one of bfloat16 by itself."""

    def sums(single: str) -> str:
        body, call = looped(
            "\n".join((
                element("sa", "f32[16]", 1), element("sb", "f32[16]", 2),
                element("sc", "f32[16]", 3), element("xs", "f32[8,16]", 4),
                "  cut = f32[1,16] dynamic-slice(xs, i, zero), dynamic_slice_sizes={1,16}",
                "  g = f32[16] reshape(cut)", "  k = f32[16] negate(g)", COMBINED, single,
                "  ta = f32[16] add(sa, a)", "  tb = f32[16] add(sb, b)",
                "  tc = f32[16] add(sc, c)",
            )),
            "ta, tb, tc, xs", carry="f32[16], f32[16], f32[16], f32[8,16]", init="a, a, a, xs",
        )  # fmt: skip
        entry = f"""  xs = f32[8,16] parameter(0)
  z = f32[] constant(0)
  a = f32[16] broadcast(z), dimensions={{}}
{call}
  ra = f32[16] get-tuple-element(loop), index=1
  rb = f32[16] get-tuple-element(loop), index=2
  rc = f32[16] get-tuple-element(loop), index=3
  ROOT r = (f32[16], f32[16], f32[16]) tuple(ra, rb, rc)"""
        return module(entry, body)

    left_out = "select blocked_by from collective_waste where kind = 'left_out'"
    narrow = f"  h = bf16[16] convert(k)\n  l = bf16[16] all-reduce(h), {REDUCE}"
    assert check_table(sums(f"{narrow}\n  c = f32[16] convert(l)"), left_out) == [("dtype",)]
    assert ask(sums(f"  c = f32[16] all-reduce(k), {REDUCE}"), left_out) == []


# ---------------------------------------------------------------------------- dtype_fallback

FELL_BACK = 'frontend_attributes={async_collective_name="all-gather-start"}'


def offloading(dtype: str, attributes: str, other: str = "bf16") -> str:
    """One gather on the SparseCore, one by itself."""
    scattered = f"""offloaded {{
  p = {other}[64,128] parameter(0)
  ROOT g = {other}[256,128] all-gather(p), {GATHER}
}}, execution_thread="sparsecore\""""
    tiled = f"{dtype}[256,128]{{1,0:T(8,128)}}"
    return module(
        f"""  p = {other}[64,128] parameter(0)
  q = {dtype}[64,128] parameter(1)
  s = (({other}[64,128]), {other}[256,128]) async-start(p), calls=offloaded,
      async_execution_thread="sparsecore"
  d = {other}[256,128] async-done(s)
  g = {tiled} all-gather(q), {GATHER.replace("channel_id=1", "channel_id=2")}{attributes}
  ROOT r = ({other}[256,128], {tiled}) tuple(d, g)""",
        scattered,
    )


def test_a_dtype_that_the_sparse_core_does_not_run() -> None:
    text = offloading("u8", f", {FELL_BACK}")
    assert ask(text, WASTE) == [("dtype_fallback", 0, None, None, None, None, "u8")]
    assert ask(text, NAMED) == [("dtype_fallback", "g", "s")]


def test_look_alikes_of_a_fallback() -> None:
    assert kinds(offloading("u8", "")) == []  # never asynchronous
    assert kinds(offloading("bf16", f", {FELL_BACK}")) == []  # a dtype that is offloaded
    plain = offloading("u8", f", {FELL_BACK}").replace("sparsecore", "main")
    assert kinds(plain) == []  # nothing is offloaded


# ---------------------------------------------------------------------------- rows and findings


def test_members_are_what_shows_it() -> None:
    roles = (
        "select role, i.name from members m join instructions i"
        " on (i.module, i.id) = (m.module, m.instr)"
        " where \"table\" = 'collective_waste' order by 1"
    )
    assert ask(sliced(PART), roles) == [
        ("collective", "red"), ("device", "me"), ("slice", "part")
    ]  # fmt: skip
    assert ask(accumulating(PLAIN_SUM), roles) == [
        ("add", "total"), ("collective", "red"), ("loop", "loop")
    ]  # fmt: skip
    assert ask(gathering("w"), roles) == [
        ("collective", "full"), ("loop", "loop"), ("operand", "w")
    ]  # fmt: skip


def test_a_row_names_its_collective() -> None:
    sql = (
        "select c.name from collective_waste w join collectives c"
        " on (c.module, c.id) = (w.module, w.collective)"
    )
    assert ask(twice(TWICE), sql) == [("two",)]


def test_one_finding_for_what_has_one_cause() -> None:
    text = module(f"""  w = f32[4] parameter(0)
  v = f32[4] parameter(1)
  ROOT all = (f32[16], f32[16], f32[16], f32[16]) all-gather(w, v, w, v), {GATHER}""")
    ((rule, message),) = findings(text, "collective_waste")
    assert rule == "collective-duplicated"
    assert message == (
        "all has operand 0 again as 2; and so 1 more array; 96 bytes less to send in a step"
    )


def test_of_a_single_number_it_is_a_note() -> None:
    text = accumulating(PLAIN_SUM).replace("f32[16]", "f32[]").replace("f32[8,16]", "f32[8]")
    text = text.replace("f32[1,16] dynamic-slice(xs, i, zero)", "f32[1] dynamic-slice(xs, i)")
    text = text.replace("sizes={1,16}", "sizes={1}")
    assert kinds(text) == ["accumulate_only"]
    assert level(text, "collective-accumulated") == "note"


def test_of_a_text_that_passes_may_still_mend_it_is_a_note() -> None:
    levels = "select level from findings where rule like 'all-reduce%'"
    assert ask(sliced(PART), levels) == [("note",)]
    assert level(sliced(PART), "all-reduce-only-sliced") == "warning"


def test_what_nobody_takes_is_dead_and_no_duplicate() -> None:
    dead = twice(TWICE).replace("add(d, e)", "add(d, d)")
    dead = "".join(line for line in dead.splitlines(True) if not line.startswith("  e = "))
    assert kinds(dead) == []


def test_what_sends_nothing_wastes_nothing() -> None:
    alone = twice(TWICE).replace("{{0,1,2,3}}", "{{0},{1},{2},{3}}").replace("[16,8]", "[4,8]")
    assert kinds(alone.replace("[16,16]", "[4,16]")) == []


# ---------------------------------------------------------------------------- compiled programs

V7X, V6E, ROCM, HAND = "tpu:tpu7x-8", "tpu:v6e-8", "rocm:gfx950-8", "hand-made"
BY_KIND = (
    "select kind, blocked_by, count(*), sum(saved_wire_bytes) from collective_waste"
    " group by 1, 2 order by 1, 2"
)
PARTITIONED = "after_spmd_partitioner"


def pair(name: str, target: str, stage: str = "after_optimizations") -> list[tuple[object, ...]]:
    return committed.ask(f"pairs/{name}", target, BY_KIND, stage)


def test_the_query_weight_gathered_twice_in_an_iteration() -> None:
    weight = 7 * 64 * 512 * 2 * 4  # what a device sends of it in 4 iterations
    for name, target, stage in (
        ("hand-query-gather-twice", HAND, "after_optimizations"),
        ("query-gather-twice", V7X, PARTITIONED),
    ):
        found = [row for row in pair(name, target, stage) if row[0] == "duplicate"]
        assert found == [("duplicate", None, 1, weight)]
    assert pair("hand-query-gather-once", HAND) == []
    assert [row[0] for row in pair("query-gather-once", V7X, PARTITIONED)] == ["only_sliced"]


def test_the_plain_constraint_reduces_all_of_the_gradient() -> None:
    half = 7 * 64 * 512 * 2 * 4
    assert pair("hand-query-gather-constrained", HAND) == [("only_sliced", None, 1, half)]


def test_fp8_weights_widened_before_they_travel_and_absmax_in_the_loop() -> None:
    half = 4 * 4 * 7 * 64 * 1024  # 4 gathers of 4 iterations, one byte of two
    scaled = ("wide_wire", "scale", 4, half)
    assert pair("fake-quant-in-loop", V7X) == [("hoistable", "index", 4, 0), scaled]
    assert pair("fake-quant-absmax", V7X) == [scaled]
    assert pair("fake-quant-late", V7X) == [scaled]
    assert pair("fake-quant-gather8", V7X) == []
    assert pair("fake-quant-uint8", V7X) == [("dtype_fallback", "u8", 4, None)]


def test_gradients_of_norm_scales() -> None:
    assert pair("hand-norm-scale-in-loop", HAND) == [
        ("accumulate_only", "convert", 1, 3 * 2 * 7 * 512 * 2 // 8)
    ]
    assert pair("hand-norm-scale-hoisted", HAND) == []
    assert pair("norm-scale-bf16", V6E) == pair("norm-scale-f32", V6E) == []
    assert pair("norm-scale-sharded", V6E) == [
        ("left_out", "sharding", 1, None),
        ("only_sliced", None, 1, 4 * 7 * 512 * 4 // 8),
    ]


def test_the_output_head_is_gathered_twice_in_one_collective() -> None:
    sql = "select kind, number, saved_wire_bytes from collective_waste where kind = 'duplicate'"
    head = 7 * 32000 * 512 * 2
    for policy in ("full", "none", "minimal-with-context"):
        path = f"llama/{policy}-published"
        assert committed.ask(path, ROCM, sql) == [("duplicate", 2, head)]


def test_what_each_of_four_microbatches_reduces_and_gathers_again() -> None:
    sql = (
        "select w.kind, logical_kind, blocked_by, count(*) from collective_waste w"
        " join collectives c on (c.module, c.id) = (w.module, w.collective)"
        " group by 1, 2, 3 order by 1, 2, 3"
    )
    assert committed.ask("llama/full-accumulated", ROCM, sql) == [
        ("accumulate_only", "all-reduce", None, 1),
        ("accumulate_only", "all-reduce", "scalar multiply", 1),
        ("accumulate_only", "reduce-scatter", None, 1),
        ("accumulate_only", "reduce-scatter", "convert", 7),
        ("duplicate", "all-gather", None, 1),
        ("hoistable", "all-gather", None, 4),
    ]


@needs_shared
def test_what_real_tpu_programs_send_for_nothing() -> None:
    folder = unpacked("dumps/tpu-maxtext.tar.xz") / "dumps_vis"
    sql = f"select * from ({BY_KIND}) where kind in ('duplicate', 'hoistable', 'only_sliced')"
    assert ask_file(folder / "gemma2-9b.full.tpu7x.opt.hlo", sql) == [
        ("duplicate", None, 10, 125239296)
    ]
    assert ask_file(folder / "qwen3moe.raggeddot.full.opt.hlo", sql) == [
        ("duplicate", None, 3, 11010048),
        ("only_sliced", None, 2, 58834944),
    ]
    assert ask_file(folder / "qwen3moe.dense.full.opt.hlo", sql) == [
        ("duplicate", None, 3, 11010048),
        ("hoistable", None, 2, 802816),
        ("only_sliced", None, 1, 114688),
    ]


@needs_shared
@pytest.mark.parametrize("case", ["25", "29"])
def test_cases_that_waste_nothing(case: str) -> None:
    for path in texts(f"cases/{case}-*.hlo"):
        assert ask_file(path, "select kind from collective_waste") == []


# ---------------------------------------------------------------------------- the page

PAGE = (ROOT / "docs" / "collective-waste.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", list(BLOCK.finditer(PAGE)), ids=["rows", "why", "twice", "pair"])
def test_a_block_of_the_page_is_what_its_command_prints(block: re.Match[str]) -> None:
    with at_root():
        printed = output_of(block["command"], block["lines"])
    assert block["output"] == printed, "python -m tests.test_readme docs/collective-waste.md"


def test_every_output_of_the_page_is_checked() -> None:
    assert len(list(BLOCK.finditer(PAGE))) == PAGE.count("output of:") == 4
