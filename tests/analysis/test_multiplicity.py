"""Executions: sums over call sites, bounds where something is not known."""

from __future__ import annotations

import pytest

from hlo_lens.analysis import ModuleAnalysis
from hlo_lens.hlo import parse
from tests.analysis.loop_texts import loop_text

Runs = tuple[int | None, int | None, int | None, str | None]


def runs(text: str, name: str) -> Runs:
    module = parse(text)
    found = ModuleAnalysis(module).executions(module.computations[name])
    return found.exact, found.minimum, found.maximum, found.trips_kind


def test_a_body_runs_its_trip_count_and_the_condition_once_more() -> None:
    assert runs(loop_text(), "main") == (1, 1, 1, None)
    assert runs(loop_text(), "body") == (10, 10, 10, "inferred")
    assert runs(loop_text(), "cond") == (11, 11, 11, "inferred")


def test_a_loop_that_never_runs() -> None:
    assert runs(loop_text(init="constant(10)"), "body") == (0, 0, 0, "inferred")
    assert runs(loop_text(init="constant(10)"), "cond") == (1, 1, 1, "inferred")


def test_an_unknown_trip_count_has_no_upper_bound() -> None:
    assert runs(loop_text(init="copy(b)"), "body") == (None, 0, None, "unknown")
    assert runs(loop_text(init="copy(b)"), "cond") == (None, 1, None, "unknown")


def test_a_bounded_trip_count() -> None:
    condition = """
  n = s32[] constant(10)
  lt = pred[] compare(i, n), direction=LT
  zero = f32[] constant(0)
  other = pred[] compare(x, zero), direction=GT
  ROOT go = pred[] and(lt, other)
"""
    assert runs(loop_text(condition), "body") == (None, 0, 10, "bounded")
    assert runs(loop_text(condition), "cond") == (None, 1, 11, "bounded")


SHARED = """HloModule m
silu { a = f32[4] parameter(0)  ROOT n = f32[4] logistic(a) }
twice {
  a = f32[4] parameter(0)
  b = f32[4] call(a), to_apply=silu
  ROOT c = f32[4] call(b), to_apply=silu
}
body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  y = f32[4] call(x), to_apply=twice
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[4]) tuple(next, y)
}
cond {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT go = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[4] parameter(0)
  s = f32[4] call(x), to_apply=silu
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, s)
  w = (s32[], f32[4]) while(t), condition=cond, body=body
  ROOT g = f32[4] get-tuple-element(w), index=1
}
"""


def test_a_shared_computation_is_a_sum_over_its_call_sites() -> None:
    """Once from the entry, twice in each of three iterations."""
    assert runs(SHARED, "twice") == (3, 3, 3, "inferred")
    assert runs(SHARED, "silu") == (7, 7, 7, "inferred")


def test_one_unknown_addend_leaves_a_lower_bound() -> None:
    text = SHARED.replace("z = s32[] constant(0)", "z = s32[] parameter(1)")
    assert runs(text, "silu") == (None, 1, None, "unknown")


def test_the_worst_trip_count_of_a_chain_counts() -> None:
    text = SHARED.replace("body=body", 'body=body, backend_config={"known_trip_count":{"n":"3"}}')
    assert runs(text, "silu") == (7, 7, 7, "annotated")


BRANCHES = """HloModule m
yes { a = f32[4] parameter(0)  ROOT n = f32[4] floor(a) }
no { a = f32[4] parameter(0)  ROOT n = f32[4] call(a), to_apply=yes }
ENTRY main {
  p = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT c = f32[4] conditional(p, x, x), true_computation=yes, false_computation=no
}
"""


def test_a_branch_runs_at_most_once() -> None:
    assert runs(BRANCHES, "no") == (None, 0, 1, None)
    assert runs(BRANCHES, "yes") == (None, 0, 2, None)


APPLIED = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] call(a, b), to_apply=plus }
plus { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add
}
"""


def test_what_is_applied_to_elements_is_not_known() -> None:
    assert runs(APPLIED, "add") == (None, None, None, None)
    assert runs(APPLIED, "plus") == (None, None, None, None)


def test_a_call_beside_an_application_is_a_lower_bound() -> None:
    text = APPLIED.replace("ROOT r =", "s = f32[] call(z, z), to_apply=plus\n  ROOT r =")
    assert runs(text, "plus") == (None, 1, None, None)


@pytest.mark.parametrize(
    ("callee", "expected"),
    [
        ("a = f32[8] parameter(0)  ROOT n = f32[8] negate(a)", (1, 1, 1, None)),
        ("a = f32[] parameter(0)  ROOT n = f32[] negate(a)", (None, None, None, None)),
        (
            "a = f32[8] parameter(0)  b = f32[8] parameter(1)  ROOT n = f32[8] add(a, b)",
            (None, None, None, None),
        ),
    ],
)
def test_a_custom_call_runs_what_takes_its_operands(callee: str, expected: Runs) -> None:
    text = f"""HloModule m
f {{ {callee} }}
ENTRY main {{
  x = f32[8]{{0}} parameter(0)
  ROOT c = f32[8] custom-call(x), custom_call_target="t", called_computations={{f}}
}}
"""
    assert runs(text, "f") == expected


def test_a_custom_call_runs_a_program_of_another_thread() -> None:
    text = """HloModule m
less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT l = pred[] compare(p, q), direction=LT
}, execution_thread="sparsecore"
f {
  a = f32[8] parameter(0)
  ROOT s = f32[8] custom-call(a), custom_call_target="sort", called_computations={less}
}, execution_thread="sparsecore"
ENTRY main {
  x = f32[8] parameter(0)
  s = ((f32[8]), f32[8], u32[]) custom-call(x, x), custom_call_target="t", to_apply=f
  ROOT d = f32[8] get-tuple-element(s), index=1
}
"""
    assert runs(text, "f") == (1, 1, 1, None)
    assert runs(text, "less") == (None, None, None, None), "of the thread it is applied on"


def test_fusions_and_asyncs_run_once_and_dones_do_not_count() -> None:
    text = """HloModule m
f { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
g { a = f32[4] parameter(0)  ROOT n = f32[4] fusion(a), kind=kLoop, calls=f }
ENTRY main {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(x), calls=g
  ROOT d = f32[4] async-done(s), calls=g
}
"""
    assert runs(text, "g") == (1, 1, 1, None)
    assert runs(text, "f") == (1, 1, 1, None)


def test_what_nothing_calls_is_not_known() -> None:
    text = BRANCHES + "\n\n"
    lone = text.replace("ENTRY", "lone { a = f32[] parameter(0)  ROOT b = f32[] abs(a) }\nENTRY")
    assert runs(lone, "lone") == (None, None, None, None)


def test_what_sugar_implies_runs_as_its_start() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) negate-start(x)
  ROOT d = f32[4] negate-done(s)
}
"""
    module = parse(text)
    (implied,) = module.entry.instructions["s"].called
    assert ModuleAnalysis(module).executions(implied).exact == 1


CUT = SHARED[: SHARED.index("ROOT g =")]


def test_a_cut_off_text_gives_lower_bounds() -> None:
    assert runs(CUT, "silu") == (None, 7, None, "inferred")
    scheduled = CUT.replace("HloModule m", "HloModule m, is_scheduled=true")
    assert runs(scheduled, "silu") == (7, 7, 7, "inferred")


def test_a_text_cut_off_before_its_entry_tells_no_executions() -> None:
    assert runs(SHARED[: SHARED.index("ENTRY")] + "ENTRY ma", "silu")[0] is None


def test_computations_that_call_themselves_are_not_known() -> None:
    text = """HloModule m
f { a = f32[4] parameter(0)  ROOT n = f32[4] call(a), to_apply=f }
ENTRY main { x = f32[4] parameter(0)  ROOT c = f32[4] call(x), to_apply=f }
"""
    assert runs(text, "f") == (None, None, None, None)


def test_call_chains_may_be_deep() -> None:
    depth = 3000
    callee = "{\n  a = f32[] parameter(0)\n  ROOT n = f32[] call(a), to_apply="
    parts = ["HloModule m", "f.0 {\n  a = f32[] parameter(0)\n  ROOT n = f32[] abs(a)\n}"]
    parts += [f"f.{n} {callee}f.{n - 1}\n}}" for n in range(1, depth)]
    parts.append(f"ENTRY e {callee}f.{depth - 1}\n}}\n")
    text = "\n\n".join(parts)
    assert runs(text, "f.0") == (1, 1, 1, None)
    module = parse(text)
    analysis = ModuleAnalysis(module)
    assert analysis.phase(module.computations["f.0"].root).phase is None
    assert analysis.loop_depth(module.computations["f.0"]) == 0
