"""Call sites in every spelling, and the order of callers before callees."""

from __future__ import annotations

from hlo_lens.analysis import CallGraph
from hlo_lens.hlo import parse


def sites(text: str) -> list[tuple[str, str, str]]:
    graph = CallGraph(parse(text))
    return [(site.caller.name, site.kind, site.callee.name) for site in graph.sites]


EVERY_KIND = """HloModule m

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
fused { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
wrapped { a = f32[4] parameter(0)  ROOT n = f32[4] exponential(a) }
called { a = f32[4] parameter(0)  ROOT n = f32[4] sine(a) }
host { a = f32[4] parameter(0)  ROOT n = f32[4] cosine(a) }
body { a = f32[4] parameter(0)  ROOT n = f32[4] abs(a) }
cond { a = f32[4] parameter(0)  ROOT n = pred[] constant(false) }
yes { a = f32[4] parameter(0)  ROOT n = f32[4] floor(a) }
no { a = f32[4] parameter(0)  ROOT n = f32[4] ceil(a) }

ENTRY main {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  p = pred[] constant(true)
  i = s32[] constant(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  s = ((f32[4]), f32[4], u32[]) async-start(f), calls=wrapped
  u = ((f32[4]), f32[4], u32[]) async-update(s), calls=wrapped
  d = f32[4] async-done(u), calls=wrapped
  k = f32[4] call(d), to_apply=called
  h = f32[4] custom-call(k), custom_call_target="HostExecute", called_computations={host}
  w = f32[4] while(h), condition=cond, body=body
  c = f32[4] conditional(p, w, w), true_computation=yes, false_computation=no
  b = f32[4] conditional(i, c, c), branch_computations={yes, no}
  r = f32[] reduce(b, zero), dimensions={0}, to_apply=add
  ar = f32[4] all-reduce(b), replica_groups={}, to_apply=add
  ars = f32[4] all-reduce-start(b), replica_groups={}, to_apply=add
  ard = f32[4] all-reduce-done(ars)
  rss = ((f32[4]), f32[2]) reduce-scatter-start(b), replica_groups={}, dimensions={0}, to_apply=add
  rsd = f32[2] reduce-scatter-done(rss)
  so = f32[4] sort(b), dimensions={0}, to_apply=less
  ROOT t = (f32[], f32[4]) tuple(r, so)
}
"""


def test_every_kind_of_call() -> None:
    assert sites(EVERY_KIND) == [
        ("f", "fusion", "fused"),
        ("s", "async", "wrapped"),
        ("k", "call", "called"),
        ("h", "custom_call", "host"),
        ("w", "condition", "cond"),
        ("w", "body", "body"),
        ("c", "branch", "yes"),
        ("c", "branch", "no"),
        ("b", "branch", "yes"),
        ("b", "branch", "no"),
        ("r", "apply", "add"),
        ("ar", "apply", "add"),
        ("ars", "apply", "add"),
        ("rss", "apply", "add"),
        ("so", "apply", "less"),
    ]


def test_a_call_in_sugar_is_a_call_of_its_operation() -> None:
    text = """HloModule m
f { a = f32[4] parameter(0)  ROOT n = f32[4] negate(a) }
ENTRY main {
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[4]) call-start(x), to_apply=f
  ROOT d = f32[4] call-done(s)
}
"""
    assert sites(text) == [("s", "call", "f")]


def test_a_name_inside_a_string_is_no_call() -> None:
    text = """HloModule m
f { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), frontend_attributes={k=", to_apply=main"}, dimensions={0}, to_apply=f
}
"""
    assert sites(text) == [("r", "apply", "f")]


def test_callees_the_text_lacks_are_left_out() -> None:
    text = EVERY_KIND.replace("calls=fused", "calls=gone")
    assert ("f", "fusion", "fused") not in sites(text)


def test_inline_computations_are_called() -> None:
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT c = f32[] add(a, b)
  }
}
"""
    assert [kind for _, kind, _ in sites(text)] == ["apply"]


def test_order_has_callers_first() -> None:
    graph = CallGraph(parse(EVERY_KIND))
    place = {computation.name: n for n, computation in enumerate(graph.order)}
    assert len(place) == len(graph.module.computations)
    for site in graph.sites:
        assert place[site.caller.computation.name] < place[site.callee.name]


def test_computations_that_call_themselves_have_no_order() -> None:
    text = """HloModule m
f { a = f32[4] parameter(0)  ROOT n = f32[4] call(a), to_apply=f }
ENTRY main { x = f32[4] parameter(0)  ROOT c = f32[4] call(x), to_apply=f }
"""
    assert [computation.name for computation in CallGraph(parse(text)).order] == ["main"]
