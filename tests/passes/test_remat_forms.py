"""Remat where XLA writes the replay in another form, layout or place than the forward."""
# ruff: noqa: E501 (texts stay as they are written)

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lens.facts import Facts
from hlo_lens.facts.sqlite import run_query
from hlo_lens.hlo import parse
from hlo_lens.program import Program, load
from tests.mutate import check_table
from tests.passes.asking import ask, ask_file, findings
from tests.passes.test_remat import BEHIND, NAMELESS, OPS, SCAN, changed, hlo
from tests.shared import needs_shared, unpacked

HLO = Path(__file__).parents[2] / "fixtures" / "hlo"
TURNED = "lhs_contracting_dims={0}, rhs_contracting_dims={1}"
Y2 = "y2 = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7"


# -- other layouts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replay", "wrong"),
    [
        # The operands exchanged, and the result turned back by its layout.
        (f"y3 = f32[8,4]{{0,1}} dot(w2, h2), {TURNED} @remat/dot_general:7\n  y2 = f32[4,8]{{1,0}} bitcast(y3)",
         "y3 = f32[8,4]{0,1} dot(w2, h2), lhs_contracting_dims={1}, rhs_contracting_dims={1} @remat/dot_general:7\n  y2 = f32[4,8]{1,0} bitcast(y3)"),
        # A convolution, as XLA for the TPU writes dots.
        ("y3 = f32[8,4] convolution(h2, w2), dim_labels=bf_io->fb @remat/dot_general:7\n  y2 = f32[4,8] transpose(y3), dimensions={1,0}",
         "y3 = f32[8,4] convolution(h2, w2), dim_labels=bf_oi->fb @remat/dot_general:7\n  y2 = f32[4,8] transpose(y3), dimensions={1,0}"),
        # A square weight, turned on the way.
        ("w3 = f32[8,8] transpose(w2), dimensions={1,0}\n  y2 = f32[4,8] dot(h2, w3), lhs_contracting_dims={1}, rhs_contracting_dims={1} @remat/dot_general:7",
         "w3 = f32[8,8] transpose(w2), dimensions={1,0}\n  y2 = f32[4,8] dot(h2, w3), lhs_contracting_dims={1}, rhs_contracting_dims={0} @remat/dot_general:7"),
        ("h3 = f32[2,2,8] reshape(h2)\n  y3 = f32[2,2,8] dot(h3, w2), lhs_contracting_dims={2}, rhs_contracting_dims={0} @remat/dot_general:7\n  y2 = f32[4,8] reshape(y3)",
         "h3 = f32[2,2,8] reshape(h2)\n  y3 = f32[2,2,8] dot(h3, w2), lhs_contracting_dims={2}, rhs_contracting_dims={1} @remat/dot_general:7\n  y2 = f32[4,8] reshape(y3)"),
    ],
    ids=["exchanged", "convolution", "turned", "reshaped"],
)  # fmt: skip
def test_a_replay_in_another_layout(replay: str, wrong: str) -> None:
    text = changed(BEHIND, (Y2, replay))
    words = "select verdict, basis, twin_name from remat_ops where opcode in ('dot', 'convolution', 'tanh')"
    assert ask(text, words) == [("replayed", "value", "y"), ("replayed", "value", "t")]
    check_table(text, NAMELESS)
    # The path and the line are the same; what is computed is not.
    other = changed(BEHIND, (Y2, wrong))
    assert ask(other, words)[0] == ("replayed", "name", "y")


def test_operations_on_elements_do_not_mind_the_order() -> None:
    text = changed(
        BEHIND,
        ("t2 = f32[4,8] tanh(y2) @remat/tanh:7",
         "y3 = f32[8,4] transpose(y2), dimensions={1,0}\n  t3 = f32[8,4] tanh(y3) @remat/tanh:7\n"
         "  t2 = f32[4,8] transpose(t3), dimensions={1,0}"),
    )  # fmt: skip
    assert ask(text, OPS)[:2] == [
        ("y2", "replayed", "value", "y"),
        ("t3", "replayed", "value", "t"),
    ]
    check_table(text, NAMELESS)


def test_a_stack_that_is_read_in_another_layout() -> None:
    """A GPU keeps the slices of a stack as its products want them."""
    text = changed(
        SCAN,
        ("line = f32[1,4,8] dynamic-slice(stack, k, zero, zero), dynamic_slice_sizes={1,4,8}",
         "turned = f32[4,8,4]{1,2,0} bitcast(stack)\n"
         "  line = f32[1,8,4]{1,2,0} dynamic-slice(turned, k, zero, zero), dynamic_slice_sizes={1,8,4}"),
        ("h2 = f32[4,8] reshape(line)",
         "h3 = f32[8,4] reshape(line)\n  h2 = f32[4,8] transpose(h3), dimensions={1,0}"),
    )  # fmt: skip
    assert ask(text, OPS) == [("y2", "replayed", "value", "y"), ("t2", "replayed", "value", "t")]
    wrong = changed(
        text, ("h2 = f32[4,8] transpose(h3), dimensions={1,0}", "h2 = f32[4,8] reshape(h3)")
    )
    assert ask(wrong, OPS)[0] == ("y2", "replayed", "name", "y")


GATHER = (
    "all-gather({}), channel_id={}, replica_groups={}, dimensions={{0}}, use_global_device_ids=true"
)
PAIRS = "{{0,2},{1,3}}"
GATHERED = hlo(f"""
ENTRY main {{
  h = f32[4,8] parameter(0)
  shard = f32[4,8] parameter(1)
  g = f32[4,8] parameter(2)
  w = f32[8,8] {GATHER.format("shard", 1, PAIRS)} @fwd/dot_general:7
  y = f32[4,8] dot(h, w), PLAIN @fwd/dot_general:7
  k = (f32[4,8], f32[4,8]) tuple(h, shard)
  bar = (f32[4,8], f32[4,8]) opt-barrier(k)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  s2 = f32[4,8] get-tuple-element(bar), index=1
  w2 = f32[8,8] {GATHER.format("s2", 2, PAIRS)} @remat/dot_general:7
  y2 = f32[4,8] dot(h2, w2), PLAIN @remat/dot_general:7
  d = f32[4,8] multiply(g, y2) @bwd/mul:7
  ROOT out = (f32[4,8], f32[4,8]) tuple(y, d)
}}
""", partitions=4)  # fmt: skip


@pytest.mark.parametrize("groups", [PAIRS, "[2,2]<=[2,2]T(1,0)", "mesh['a'=2,'b'=2]{'a'}"])
def test_groups_in_another_spelling(groups: str) -> None:
    text = changed(GATHERED, (GATHER.format("s2", 2, PAIRS), GATHER.format("s2", 2, groups)))
    assert ask(text, OPS) == [("w2", "replayed", "value", "w"), ("y2", "replayed", "value", "y")]
    assert ask(text, "select matmuls, collectives from remat") == [(1, 1)]


# -- by name: which of several --------------------------------------------------------------------


def test_of_two_products_of_a_line_that_with_the_same_inputs_of_the_iteration() -> None:
    """Gate and up of an MLP. Through the layers everything depends on all weights."""
    two = changed(
        SCAN,
        ("f32[4,4,8], f32[4,8,8])", "f32[4,4,8], f32[4,8,8], f32[4,8,8])"),
        ("tuple(next, t, new, ws)", "tuple(next, t, new, ws, vs)"),
        ("tuple(next, d, stack, ws)", "tuple(next, d, stack, ws, vs)"),
        ("tuple(z, x, buffer, ws)", "tuple(z, x, buffer, ws, vs)"),
        ("tuple(z, g, s, ws)", "tuple(z, g, s, ws, vs)"),
        ("g = f32[4,8] parameter(2)", "g = f32[4,8] parameter(2)\n  vs = f32[4,8,8] parameter(3)"),
        ("t = f32[4,8] tanh(y) @loop/tanh:7",
         "vs = f32[4,8,8] get-tuple-element(p), index=4\n"
         "  vcut = f32[1,8,8] dynamic-slice(vs, i, zero, zero), dynamic_slice_sizes={1,8,8}\n"
         "  v = f32[8,8] reshape(vcut)\n  u = f32[4,8] dot(h, v), PLAIN @loop/dot_general:7\n"
         "  q = f32[4,8] tanh(y) @loop/tanh:7\n  t = f32[4,8] multiply(q, u) @loop/mul:7"),
        ("y2 = f32[4,8] dot(h2, w2), PLAIN @again/dot_general:7\n  t2 = f32[4,8] tanh(y2) @again/tanh:7",
         "vs = f32[4,8,8] get-tuple-element(p), index=4\n"
         "  vcut = f32[1,8,8] dynamic-slice(vs, k, zero, zero), dynamic_slice_sizes={1,8,8}\n"
         "  v2 = f32[8,8] reshape(vcut)\n"
         "  v3 = f32[8,8] maximum(v2, v2)\n  w3 = f32[8,8] maximum(w2, w2)\n"
         "  u2 = f32[4,8] dot(h2, v3), PLAIN @again/dot_general:7\n"
         "  y2 = f32[4,8] dot(h2, w3), PLAIN @again/dot_general:7\n"
         "  q2 = f32[4,8] tanh(y2) @again/tanh:7\n  t2 = f32[4,8] multiply(q2, u2) @again/mul:7"),
    )  # fmt: skip
    assert ask(two, OPS) == [
        ("u2", "replayed", "name", "u"),
        ("y2", "replayed", "name", "y"),
        ("q2", "replayed", "value", "q"),
        ("t2", "replayed", "value", "t"),
    ]
    check_table(two, NAMELESS)


def test_a_twin_by_name_with_the_operands_exchanged() -> None:
    """Its result is turned: what is computed from it is the forward's, turned."""
    text = changed(
        BEHIND,
        (Y2, f"w3 = f32[8,8] maximum(w2, w2)\n  y3 = f32[8,4] dot(w3, h2), {TURNED} @remat/dot_general:7\n"
             "  y2 = f32[4,8] transpose(y3), dimensions={1,0}"),
    )  # fmt: skip
    assert ask(text, OPS)[:2] == [
        ("y3", "replayed", "name", "y"),
        ("t2", "replayed", "value", "t"),
    ]


LESS = """
{0} {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
{1}  ROOT l = pred[] compare(a, b), direction=LT
}}
"""
SORTED = changed(
    BEHIND,
    ("ENTRY", LESS.format("two", "  c = s32[] parameter(2)\n  d = s32[] parameter(3)\n")
     + LESS.format("three", "".join(f"  {name} = s32[] parameter({k})\n" for k, name in enumerate("cdef", 2)))
     + "ENTRY"),
    ("  o =", "  keys = s32[4] parameter(4)\n  at = s32[4] iota(), iota_dimension=0\n"
     "  q = (s32[4], s32[4], s32[4]) sort(keys, at, at), dimensions={0}, to_apply=three @fwd/sort:8\n"
     "  q1 = s32[4] get-tuple-element(q), index=1\n  m = s32[4] multiply(q1, at) @fwd/mul:8\n  o ="),
    ("  one =", "  keys2 = s32[4] opt-barrier(keys)\n"
     "  r = (s32[4], s32[4]) sort(keys2, at), dimensions={0}, to_apply=two @remat/sort:8\n"
     "  r1 = s32[4] get-tuple-element(r), index=1\n  m2 = s32[4] multiply(r1, at) @remat/mul:8\n  one ="),
)  # fmt: skip


def test_a_sort_that_carries_one_array_more_in_the_forward() -> None:
    """XLA adds one to make a sort stable; the replay of it may be written without."""
    rows = "select name, verdict, basis, twin_name from remat_ops where name in ('r', 'm2')"
    assert ask(SORTED, rows) == [("r", "replayed", "name", "q"), ("m2", "replayed", "value", "m")]
    check_table(SORTED, NAMELESS)
    moved = changed(SORTED, ("to_apply=two @remat/sort:8", "to_apply=two @remat/sort:9"))
    assert ask(moved, rows)[0] == ("r", "sole", "opcode", None)


# -- other places ---------------------------------------------------------------------------------

BORDER = 'custom_call_target="xla.sdy.{}Shape", custom_call_has_side_effect=true, frontend_attributes={{xla.sdy.{}="#sdy.sharding_per_value<[{}]>"}}'
ROWS = '<@mesh, [{\\"d\\"}, {}]>'
WHOLE = "<@mesh, [{}, {}]>"


def test_a_residual_that_leaves_a_shard_map_and_comes_back() -> None:
    """Forward and backward are two shard_maps; what is saved goes through the whole program."""
    out = BORDER.format("LocalToGlobal", "out_shardings", ROWS)
    back = BORDER.format("GlobalToLocal", "in_shardings", f"{ROWS}, {WHOLE}, {ROWS}")
    text = changed(
        BEHIND,
        ("  kept = (f32[4,8], f32[8,8], f32[4,8]) tuple(h, w, ct)\n  bar = (f32[4,8], f32[8,8], f32[4,8]) opt-barrier(kept)",
         f"  i = f32[4,8] negate(h) @fwd/neg:6\n  hg = f32[8,8] custom-call(i), {out}\n  cg = f32[8,8] custom-call(ct), {out}\n"
         f"  bar = (f32[4,8], f32[8,8], f32[4,8]) custom-call(hg, w, cg), {back}"),
        ("dot(h, w)", "dot(i, w)"),
        ("  y =", "  PLACE\n  y ="),
    )  # fmt: skip
    move = "  i = f32[4,8] negate(h)" + text.split("  i = f32[4,8] negate(h)")[1].split("\n")[0]
    text = text.replace(move + "\n", "").replace("  PLACE", move)
    assert ask(text, OPS)[:2] == [
        ("y2", "replayed", "value", "y"),
        ("t2", "replayed", "value", "t"),
    ]
    # It comes back in other parts: another value, and only the name is left.
    columns = text.replace(f"[{ROWS}, {WHOLE}", '[<@mesh, [{}, {\\"d\\"}]>, ' + WHOLE)
    assert columns != text
    assert ask(columns, OPS)[0] == ("y2", "replayed", "name", "y")


def test_what_is_replayed_in_a_branch() -> None:
    """Barriers are followed into each branch for itself, whatever the branches hold."""
    branches = """
long {
  p = f32[4,8] parameter(0)
  n0 = f32[4,8] negate(p)
  n1 = f32[4,8] negate(n0)
  n2 = f32[4,8] negate(n1)
  ROOT c = f32[4,8] call(n2), to_apply=inside
}
inside {
  p = f32[4,8] parameter(0)
  ROOT t = f32[4,8] tanh(p)
}
short {
  p = f32[4,8] parameter(0)
  ROOT t = f32[4,8] negate(p)
}
"""
    inside = branches.index("inside {")
    ordered = (
        branches[inside : branches.index("short {")]
        + branches[:inside]
        + branches[branches.index("short {") :]
    )
    text = changed(
        BEHIND,
        ("ENTRY", f"{ordered}\nENTRY"),
        (
            "multiply(ct2, s)",
            "conditional(yes, ct2, s), true_computation=long, false_computation=short",
        ),
        ("  d =", "  yes = pred[] parameter(4)\n  d ="),
    )
    assert findings(text, "remat") == []
    assert ask(text, OPS)[0] == ("y2", "replayed", "value", "y")


# Forward and replay call one computation, as before optimization; so does a second replay.
CALLED = hlo("""
layer {
  p = f32[4,8] parameter(0)
  q = f32[8,8] parameter(1)
  ROOT y = f32[4,8] dot(p, q), PLAIN @tail/dot_general:7
}
ENTRY main {
  h = f32[4,8] parameter(0)
  w = f32[8,8] parameter(1)
  g = f32[4,8] parameter(2)
  c = f32[4,8] call(h, w), to_apply=layer @fwd/closed_call:9
  k = (f32[4,8], f32[8,8], f32[4,8]) tuple(h, w, g)
  bar = (f32[4,8], f32[8,8], f32[4,8]) opt-barrier(k)
  h2 = f32[4,8] get-tuple-element(bar), index=0
  w2 = f32[8,8] get-tuple-element(bar), index=1
  g2 = f32[4,8] get-tuple-element(bar), index=2
  c2 = f32[4,8] call(h2, w2), to_apply=layer @remat/closed_call:9
  c3 = f32[4,8] call(g2, w2), to_apply=layer @remat/closed_call:9
  d = f32[4,8] multiply(c3, c2) @bwd/mul:7
  ROOT r = (f32[4,8], f32[4,8]) tuple(c, d)
}
""")


def test_runs_of_a_computation_that_is_replayed_twice() -> None:
    verdicts = "select name, verdict, times from remat_ops order by verdict"
    # Of the one call the forward has a twin, and of the other it has none.
    assert ask(CALLED, verdicts) == [("y", "replayed", 1), ("y", "sole", 1)]
    same = changed(CALLED, ("call(g2, w2)", "call(h2, w2)"))
    assert ask(same, verdicts) == [("y", "replayed", 2)]
    check_table(CALLED, NAMELESS)


def test_a_labelled_instruction_that_the_compiler_makes_again_stays_with_its_label() -> None:
    text = changed(BEHIND, ("  sq =", f"  {Y2.replace('y2 =', 'y2.remat =')}\n  sq ="))
    assert ask(text, "select distinct kind from remat_ops") == [("framework",)]


def test_a_loop_of_which_no_stack_is_known_keeps_what_nobody_knows() -> None:
    assert ask(SCAN, "select saved_bytes from remat") == [(512,)]
    hidden = changed(SCAN, ("s = f32[4,4,8] get-tuple-element(w), index=2",
                            's0 = f32[4,4,8] get-tuple-element(w), index=2\n  s = f32[4,4,8] custom-call(s0), custom_call_target="hides"'))  # fmt: skip
    assert ask(hidden, "select saved_bytes from remat") == [(None,)]


def test_members_of_regions_and_operations() -> None:
    members = (
        "select m.role, i.name from members m join instructions i on i.instr = m.instr"
        " where m.\"table\" = '{}' order by m.row, m.role, i.name"
    )
    assert ask(BEHIND, members.format("remat")) == [
        ("barrier", "bar"), ("given", "kept"), ("operation", "s"), ("operation", "sq"),
        ("replayed", "t2"), ("replayed", "y2"), ("twin", "t"), ("twin", "y"),
    ]  # fmt: skip
    assert ask(SCAN, members.format("remat"))[0] == ("loop", "v")
    assert ask(BEHIND, members.format("remat_ops"))[:4] == [
        ("operation", "y2"), ("twin", "y"), ("operation", "t2"), ("twin", "t"),
    ]  # fmt: skip


# -- how much is computed -------------------------------------------------------------------------


def unrolled(layers: int) -> str:
    """Layers of one line, each behind a barrier of its own, and their weights in another form."""
    lines = ["h0 = f32[8,8] parameter(0)"]
    for n in range(layers):
        lines += [
            f"w{n} = f32[8,8] parameter({n + 1})",
            f"y{n} = f32[8,8] dot(h{n}, w{n}), PLAIN @fwd/dot_general:7",
            f"h{n + 1} = f32[8,8] tanh(y{n}) @fwd/tanh:7",
        ]
    lines.append(f"g{layers} = f32[8,8] parameter({layers + 1})")
    for n in reversed(range(layers)):
        lines += [
            f"k{n} = (f32[8,8], f32[8,8], f32[8,8]) tuple(h{n}, w{n}, g{n + 1})",
            f"b{n} = (f32[8,8], f32[8,8], f32[8,8]) opt-barrier(k{n})",
            *(
                f"{name}{n} = f32[8,8] get-tuple-element(b{n}), index={k}"
                for k, name in enumerate(("bh", "bw", "bg"))
            ),
            f"m{n} = f32[8,8] maximum(bw{n}, bw{n})",
            f"z{n} = f32[8,8] dot(bh{n}, m{n}), PLAIN @remat/dot_general:7",
            f"t{n} = f32[8,8] tanh(z{n}) @remat/tanh:7",
            f"g{n} = f32[8,8] multiply(bg{n}, t{n}) @bwd/mul:7",
        ]
    body = "\n  ".join((*lines, "ROOT r = f32[8,8] negate(g0)"))
    return hlo(f"ENTRY main {{\n  {body}\n}}")


def test_each_layer_has_its_own_twin_and_twice_the_layers_are_twice_the_numbers() -> None:
    counts = []
    for layers in (10, 20, 40):
        program = Program([parse(unrolled(layers))])
        sql = "select substr(name, 2) = substr(twin_name, 2), count(*) from remat_ops where work = 'matmul' group by 1"
        assert run_query([Facts(program)], sql).rows == [(1, layers)]
        counts.append(len(program.analysis(program.modules[0]).congruence.numbers))
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])


# -- fixtures and real dumps ----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["full-published", "full-accumulated", "full-tensor"])
def test_llama_is_found_by_value_in_all_its_layouts(case: str) -> None:
    """XLA for the GPU exchanges operands, fuses q, k and v, and turns the slices of stacks."""
    (folder,) = (HLO / "llama" / case).iterdir()
    facts = Facts(load(folder))
    bases = "select distinct verdict, basis from remat_ops where work is not null"
    assert run_query([facts], bases).rows == [("replayed", "value")]
    assert run_query([facts], "select 1 from remat_ops where verdict = 'sole'").rows == []


@pytest.mark.parametrize(("case", "permutes"), [("replayed", 1), ("natural", 1), ("saved", 0)])
def test_positions_that_are_exchanged_again_in_the_backward(case: str, permutes: int) -> None:
    """Before optimization, in a shard_map: a permute in a checkpointed layer, or in front of it."""
    facts = Facts(load(HLO / "pairs" / f"positions-{case}" / "tpu-tpu7x-8"))
    sql = "select verdict, matmuls, collectives from remat where module = 0"
    assert run_query([facts], sql).rows == [("recomputed", 1, permutes)]
    bases = "select distinct verdict, basis from remat_ops where work is not null"
    assert run_query([facts], bases).rows == [("replayed", "value")]


@pytest.mark.parametrize(
    "file", sorted((HLO / "remat").glob("*/*/provenance.json")), ids=lambda file: "-".join(file.parts[-3:-1])
)  # fmt: skip
def test_every_product_and_tanh_of_the_fixtures_is_found_by_its_value(file: Path) -> None:
    """Nothing is left to names, on no target; but where the forward was dead."""
    sql = (
        "select distinct verdict, basis from remat_ops where opcode in ('dot', 'convolution', 'tanh')"
        " and verdict not in ('shared', 'fusion-duplicated')"
    )
    found = run_query([Facts(load(file.parent))], sql).rows
    if "full-grad" not in file.parts:
        assert set(found) <= {("replayed", "value")}


@needs_shared
def test_what_is_computed_from_a_windowed_einsum_that_is_replayed_by_name() -> None:
    """Gate and up are rings in the forward, and gathered in the replay: silu takes the gate."""
    (path,) = unpacked("dumps/tpu-maxtext.tar.xz").rglob("v6e_2x4.full.opt.hlo")
    sql = (
        "select o.opcode, o.verdict, t.full_op_name like '%/mlp/jit(silu)/%' from remat_ops o"
        " join instructions i on i.instr = o.instr join instructions t on t.instr = o.twin"
        " where i.full_op_name like '%/mlp/jit(silu)/%' and o.verdict = 'replayed' order by 1"
    )
    opcodes = ("add", "divide", "exponential", "multiply", "negate")
    assert ask_file(path, sql) == [(opcode, "replayed", 1) for opcode in opcodes]
    names = "select count(*) from remat_ops where basis = 'name' and work = 'matmul'"
    assert ask_file(path, names) == [(2,)]
