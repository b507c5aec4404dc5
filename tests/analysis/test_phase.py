"""Full op_names and phases: own name, callers' names, and what users agree on."""

from __future__ import annotations

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.hlo import parse


def phases(text: str) -> dict[str, tuple[str | None, str | None]]:
    """(phase, phase_from) by instruction; names are unique in these texts."""
    module = parse(text)
    analysis = ModuleAnalysis(module)
    return {
        instr.name: (found.phase, found.phase_from)
        for computation in module.computations
        for instr in computation.instructions
        for found in (analysis.phase(instr),)
    }


def full(text: str) -> dict[str, str | None]:
    module = parse(text)
    analysis = ModuleAnalysis(module)
    return {
        instr.name: analysis.full_op_name(instr)
        for computation in module.computations
        for instr in computation.instructions
    }


def named(op_name: str) -> str:
    return f', metadata={{op_name="{op_name}"}}'


FWD, BWD = named("jit(f)/jvp(g)/mul"), named("jit(f)/transpose(jvp(g))/mul")
REMAT = named("jit(f)/transpose(jvp(g))/checkpoint/rematted_computation/mul")
OTHER = named("jit(f)/add")


def entry(lines: str, before: str = "") -> str:
    return f"HloModule m\n{before}\nENTRY main {{\n{lines}\n}}\n"


# -- names ----------------------------------------------------------------------------------------


def test_own_names() -> None:
    found = phases(
        entry(f"""
  x = f32[4] parameter(0){named("x")}
  a = f32[4] negate(x){FWD}
  b = f32[4] negate(a){BWD}
  c = f32[4] negate(b){REMAT}
  ROOT d = f32[4] negate(c){OTHER}""")
    )
    assert [found[name] for name in "xabcd"] == [
        (phase, "own") for phase in ("other", "fwd", "bwd", "remat", "other")
    ]


def test_names_that_metadata_writes_otherwise() -> None:
    """An op_type in front, an escaped quote, an op_name in another string."""
    found = phases(
        entry("""
  x = f32[4] parameter(0), metadata={op_name="p[\\'a\\']"}
  a = f32[4] negate(x), metadata={op_type="mul" op_name="jit(f)/jvp(\\"q\\")/mul"}
  ROOT b = f32[4] negate(a), frontend_attributes={k="metadata={op_name=\\"jvp(\\"}"}""")
    )
    assert found == {"x": ("other", "own"), "a": ("fwd", "own"), "b": (None, None)}


def test_metadata_that_cannot_be_read_is_no_name() -> None:
    found = phases(
        entry(f"""
  x = f32[4] parameter(0), metadata={{op_name}}
  ROOT d = f32[4] negate(x){BWD}""")
    )
    assert found == {"x": ("bwd", "dataflow"), "d": ("bwd", "own")}


INNER = f"""
inner {{ a1 = f32[4] parameter(0)  ROOT i1 = f32[4] negate(a1){named("mul")} }}
"""
CALLED = f"""{INNER}
outer {{
  a2 = f32[4] parameter(0)
  i2 = f32[4] negate(a2){named("checkpoint/rematted_computation/mul")}
  i3 = f32[4] negate(i2){named("jit(f)/jvp(h)/mul")}
  i4 = f32[4] negate(i3)
  ROOT c2 = f32[4] call(i4), to_apply=inner{named("checkpoint/closed_call")}
}}
"""


def test_tails_are_read_behind_the_names_of_callers() -> None:
    text = entry(
        f"""
  x = f32[4] parameter(0)
  ROOT c = f32[4] call(x), to_apply=outer{named("jit(f)/transpose(jvp(g))/closed_call")}""",
        CALLED,
    )
    front = "jit(f)/transpose(jvp(g))/closed_call"
    names = full(text)
    assert names["i1"] == f"{front}/checkpoint/closed_call/mul"
    assert names["i2"] == f"{front}/checkpoint/rematted_computation/mul"
    assert names["i3"] == "jit(f)/jvp(h)/mul"
    assert names["i4"] is None
    found = phases(text)
    assert found["i1"] == ("bwd", "caller")
    assert found["i2"] == ("remat", "own")
    assert found["i3"] == ("fwd", "own")
    assert found["c2"] == ("bwd", "caller")
    assert found["c"] == ("bwd", "own")


def test_loops_and_branches_in_a_function_are_named_from_the_function() -> None:
    """jax writes `while`, then `while/body/mul` in its body; a call begins anew."""
    text = f"""HloModule m
step {{
  i = s32[] constant(0)
  q = (f32[4]) parameter(0)
  in_step = f32[4] get-tuple-element(q), index=0{named("while/body/get")}
  in_call = f32[4] call(in_step), to_apply=called{named("while/body/closed_call")}
  in_branch = f32[4] conditional(i, in_call), branch_computations={{one}}{named("while/body/cond")}
  again = (f32[4]) while(q), condition=less, body=inner{named("while/body/while")}
  ROOT t = (f32[4]) tuple(in_branch)
}}
inner {{
  iq = (f32[4]) parameter(0)
  ii = f32[4] get-tuple-element(iq), index=0{named("while/body/while/body/mul")}
  ROOT it = (f32[4]) tuple(ii)
}}
one {{
  op = f32[4] parameter(0)
  o1 = f32[4] negate(op){named("while/body/cond/branch_0_fun/neg")}
  ROOT o2 = f32[4] negate(o1){named("neg")}
}}
called {{
  cp = f32[4] parameter(0)
  w = f32[4] call(cp), to_apply=deep{named("checkpoint")}
  ROOT k = f32[4] negate(w){named("while/body/closed_call")}
}}
deep {{
  dp = f32[4] parameter(0)
  ROOT d = f32[4] negate(dp){named("checkpoint/mul")}
}}
less {{
  lp = (f32[4]) parameter(0)
  ROOT l = pred[] constant(false)
}}
fn {{
  p = (f32[4]) parameter(0)
  ROOT loop = (f32[4]) while(p), condition=less, body=step{named("while")}
}}
ENTRY main {{
  x = (f32[4]) parameter(0)
  ROOT c = (f32[4]) call(x), to_apply=fn{named("jit(f)/transpose(jvp(g))/shard_map")}
}}
"""
    front = "jit(f)/transpose(jvp(g))/shard_map"
    names = full(text)
    assert names["loop"] == f"{front}/while"
    assert names["in_step"] == f"{front}/while/body/get"
    assert names["again"] == f"{front}/while/body/while"
    assert names["ii"] == f"{front}/while/body/while/body/mul"
    assert names["o1"] == f"{front}/while/body/cond/branch_0_fun/neg"
    assert names["o2"] == f"{front}/while/body/cond/neg"
    assert names["k"] == f"{front}/while/body/closed_call/while/body/closed_call"
    assert names["d"] == f"{front}/while/body/closed_call/checkpoint/checkpoint/mul"
    assert {phase for name, (phase, _) in phases(text).items() if names[name]} == {"bwd"}


def test_names_of_a_whole_computation() -> None:
    module = parse(
        entry(
            f"""
  x = f32[4] parameter(0)
  ROOT c = f32[4] call(x), to_apply=inner{named("jit(f)/jvp(g)/closed_call")}""",
            INNER,
        )
    )
    analysis = ModuleAnalysis(module)
    inner = module.computations["inner"]
    assert analysis.op_names(inner) == [None, "mul"]
    assert analysis.full_op_names(inner) == [None, "jit(f)/jvp(g)/closed_call/mul"]


def test_callers_that_agree() -> None:
    text = entry(
        f"""
  x = f32[4] parameter(0)
  c = f32[4] call(x), to_apply=inner{named("jit(f)/jvp(g)/closed_call")}
  ROOT d = f32[4] call(c), to_apply=inner{named("jit(f)/jvp(h)/closed_call")}""",
        INNER,
    )
    assert phases(text)["i1"] == ("fwd", "caller")
    assert full(text)["i1"] == "mul"


def test_callers_that_differ_leave_the_phase_unknown() -> None:
    """A function shared by both passes belongs to neither."""
    text = entry(
        f"""
  x = f32[4] parameter(0)
  c = f32[4] call(x), to_apply=outer{named("jit(f)/jvp(g)/closed_call")}
  ROOT d = f32[4] call(c), to_apply=outer{named("jit(f)/transpose(jvp(g))/closed_call")}""",
        CALLED,
    )
    found = phases(text)
    assert (found["i1"], found["i2"]) == ((None, None), ("remat", "own"))


LOOP = """
body {{
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x1 = f32[4] get-tuple-element(p), index=1
  y = f32[4] negate(x1){body}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4]) tuple(next, y)
}}
cond {{
  q = (s32[], f32[4]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(j, n), direction=LT{cond}
}}
"""
LOOP_ENTRY = """
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body{loop}"""


def test_a_while_is_a_caller() -> None:
    text = entry(
        LOOP_ENTRY.format(loop=named("jit(f)/jvp()/while")),
        LOOP.format(body=named("body/mul"), cond=named("cond/lt")),
    )
    names = full(text)
    assert names["y"] == "jit(f)/jvp()/while/body/mul"
    assert names["go"] == "jit(f)/jvp()/while/cond/lt"
    found = phases(text)
    assert (found["y"], found["go"]) == (("fwd", "caller"), ("fwd", "caller"))


def test_what_dataflow_leaves_open_in_a_loop_is_told_by_the_while() -> None:
    text = entry(LOOP_ENTRY.format(loop=named("jit(f)/jvp()/while")), LOOP.format(body="", cond=""))
    assert phases(text)["next"] == ("fwd", "caller")


# -- dataflow -------------------------------------------------------------------------------------


def test_the_phase_that_all_compute_users_agree_on() -> None:
    found = phases(
        entry(f"""
  x = f32[4] parameter(0)
  a = f32[4] exponential(x)
  b = f32[4] negate(a){BWD}
  c = f32[4] sine(a){BWD}
  ROOT d = f32[4] add(b, c){BWD}""")
    )
    assert (found["a"], found["x"]) == (("bwd", "dataflow"), ("bwd", "dataflow"))


def test_users_that_differ_tell_nothing() -> None:
    found = phases(
        entry(f"""
  x = f32[4] parameter(0)
  a = f32[4] exponential(x)
  b = f32[4] negate(a){BWD}
  c = f32[4] sine(a){FWD}
  ROOT d = f32[4] add(b, c){BWD}""")
    )
    assert (found["a"], found["x"]) == ((None, None), (None, None))


def test_what_only_moves_a_value_is_looked_through() -> None:
    """Also where it has a name: a forward copy for a backward use."""
    found = phases(
        entry(f"""
  x = f32[4] parameter(0)
  a = f32[4] exponential(x)
  b = f32[4] copy(a){FWD}
  t = (f32[4], f32[4]) tuple(b, b)
  e = f32[4] get-tuple-element(t), index=1
  ROOT d = f32[4] negate(e){BWD}""")
    )
    assert found["a"] == found["t"] == found["e"] == ("bwd", "dataflow")
    assert found["b"] == ("fwd", "own")


def test_compute_users_without_a_name_are_asked_in_turn() -> None:
    found = phases(
        entry(f"""
  x = f32[4] parameter(0)
  a = f32[4] exponential(x)
  b = f32[4] sine(a)
  c = f32[4] cosine(a)
  e = f32[4] add(b, c){REMAT}
  ROOT d = f32[4] negate(e){BWD}""")
    )
    assert found["a"] == found["b"] == found["c"] == ("remat", "dataflow")


def test_the_result_of_the_entry_has_no_users() -> None:
    assert phases(entry("  ROOT x = f32[4] parameter(0)"))["x"] == (None, None)


def test_elements_taken_with_a_mark_have_users_too() -> None:
    found = phases(
        entry(f"""
  x = (f32[4], f32[4]) parameter(0)
  ROOT d = f32[4] negate(x#1){BWD}""")
    )
    assert found["x"] == ("bwd", "dataflow")


FUSED = """
fused {{
  a1 = f32[4] parameter(0)
  c1 = f32[] constant(1){constant}
  b1 = f32[4] broadcast(c1), dimensions={{}}
  m1 = f32[4] multiply(a1, b1){inside}
  ROOT r1 = f32[4] negate(m1)
}}
"""


def test_the_root_of_a_fusion_is_used_by_the_fusion() -> None:
    text = entry(
        f"  x = f32[4] parameter(0)\n  ROOT f = f32[4] fusion(x), kind=kLoop, calls=fused{FWD}",
        FUSED.format(constant="", inside=""),
    )
    found = phases(text)
    assert {found[name] for name in ("a1", "c1", "b1", "m1", "r1")} == {("fwd", "dataflow")}


def test_a_fusion_without_a_name_is_what_it_holds() -> None:
    """A hoisted constant of another phase says nothing of the fusion."""
    lines = f"""
  x = f32[4] parameter(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  ROOT d = f32[4] negate(f){OTHER}"""
    found = phases(entry(lines, FUSED.format(constant=BWD, inside=FWD)))
    assert found["f"] == found["x"] == found["r1"] == ("fwd", "dataflow")


def test_a_fusion_without_any_name_has_the_phase_of_its_users() -> None:
    lines = f"""
  x = f32[4] parameter(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  ROOT d = f32[4] negate(f){BWD}"""
    found = phases(entry(lines, FUSED.format(constant="", inside="")))
    assert found["f"] == found["r1"] == found["m1"] == ("bwd", "dataflow")


def test_the_question_about_one_instruction_has_the_same_answer() -> None:
    """Asked for one by one, innermost first, phases are those of the whole module."""
    lines = f"""
  x = f32[4] parameter(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  ROOT d = f32[4] negate(f){BWD}"""
    module = parse(entry(lines, FUSED.format(constant="", inside="")))
    root = module.computations["fused"].root
    assert ModuleAnalysis(module).phase(root).phase == "bwd"


def test_what_sugar_implies_has_the_phase_of_its_start() -> None:
    module = parse(
        entry(f"""
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) negate-start(x){FWD}
  ROOT d = f32[4] negate-done(s)""")
    )
    analysis = ModuleAnalysis(module)
    (implied,) = module.entry.instructions["s"].called
    assert analysis.phase(implied.root).phase == "fwd"
    assert analysis.full_op_name(implied.root) == "jit(f)/jvp(g)/mul"


# -- functions with a jit of their own ------------------------------------------------------------


def jitted(caller: str, inside: str) -> str:
    """A function with its own jit, which a function calls that the program calls."""
    return entry(
        f"""  x = f32[4] parameter(0)
  b = f32[4] negate(x){named("jit(f)/broadcast")}
  ROOT c = f32[4] call(b), to_apply=layer{named(caller)}""",
        f"""gather {{
  p = f32[4] parameter(0)
  ROOT g = f32[4] negate(p){named(inside)}
}}

layer {{
  q = f32[4] parameter(0)
  ROOT d = f32[4] call(q), to_apply=gather{named("jit(gather)")}
}}
""",
    )


def test_what_a_called_function_names_by_its_own_jit_is_in_its_callers() -> None:
    text = jitted("jit(f)/transpose(jvp())/while/body/closed_call", "neg")
    found = phases(text)
    assert (found["d"], found["g"]) == (("bwd", "caller"), ("bwd", "caller"))
    names = full(text)
    assert names["d"] == "jit(f)/transpose(jvp())/while/body/closed_call/jit(gather)"
    assert names["g"] == f"{names['d']}/neg"


def test_a_name_that_starts_at_the_program_has_nothing_in_front() -> None:
    text = jitted("jit(f)/transpose(jvp())/while", "jit(f)/jvp()/neg")
    assert phases(text)["g"] == ("fwd", "own")
    assert full(text)["g"] == "jit(f)/jvp()/neg"


def test_where_the_entry_does_not_name_the_program_any_jit_starts_at_it() -> None:
    text = jitted("transpose(jvp())/while", "neg").replace("jit(f)/broadcast", "broadcast")
    assert phases(text)["d"] == ("other", "own")
    assert full(text)["g"] == "jit(gather)/neg"
