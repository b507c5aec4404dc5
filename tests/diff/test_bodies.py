"""What one iteration holds more or less of."""

from __future__ import annotations

from hlo_lens.diff import BodyDelta, Count
from tests.diff.comparing import counts, diff
from tests.diff.texts import GATHERED_INSIDE, GATHERED_ONCE, SPELLED
from tests.mutate import harmless


def bodies(old: str, new: str) -> tuple[BodyDelta, ...]:
    (stage,) = diff(old, new).stages
    return stage.bodies


def test_the_gather_leaves_the_loop_for_the_outside() -> None:
    outside, loop = bodies(GATHERED_INSIDE, GATHERED_ONCE)
    gather = ("all-gather", "f32", "f32[8,8]")
    assert (outside.old, outside.new, outside.outside) == (None, None, True)
    assert outside.counts == (Count(*gather, 0, 1),)
    assert loop.old is not None
    assert loop.new is not None
    assert (loop.old.instr.name, loop.new.instr.name) == ("loop", "loop")
    assert loop.counts == (Count(*gather, 1, 0),)
    # p, one, next, d, t and r of the body; p, n and less of the condition
    assert loop.unchanged == 9
    assert not loop.same


def test_what_did_not_change_is_counted() -> None:
    outside, loop = bodies(GATHERED_ONCE, GATHERED_ONCE)
    assert (outside.counts, loop.counts) == ((), ())
    assert outside.same
    assert loop.same
    assert (outside.unchanged, loop.unchanged) == (6, 9)


def test_another_trip_count_is_a_difference_of_the_loop() -> None:
    _, loop = bodies(GATHERED_ONCE, GATHERED_ONCE.replace("constant(4)", "constant(5)"))
    assert loop.counts == ()
    assert not loop.same
    assert loop.old is not None
    assert loop.new is not None
    assert (loop.old.trip_count, loop.new.trip_count) == (4, 5)


def test_a_loop_that_one_side_alone_has() -> None:
    straight = """HloModule m
ENTRY main { x = f32[8,8] parameter(0)  ROOT y = f32[8,8] tanh(x) }
"""
    outside, loop = bodies(straight, GATHERED_ONCE)
    assert outside.outside
    assert (loop.old, loop.outside) == (None, False)
    assert all(count.old == 0 for count in loop.counts)
    assert loop.unchanged == 0
    _, gone = bodies(GATHERED_ONCE, straight)
    assert gone.new is None
    assert all(count.new == 0 for count in gone.counts)


def test_what_is_called_and_fused_runs_with_the_iteration() -> None:
    called = """HloModule m
inner { a = f32[8] parameter(0)  ROOT n = f32[8] negate(a) }
body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[8] get-tuple-element(p), index=1
  once = f32[8] call(h), to_apply=inner
  twice = f32[8] fusion(once), kind=kLoop, calls=inner
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[8]) tuple(next, twice)
}
go {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  zero = s32[] constant(0)
  x = f32[8] parameter(0)
  init = (s32[], f32[8]) tuple(zero, x)
  ROOT loop = (s32[], f32[8]) while(init), condition=go, body=body
}
"""
    found = diff(called, called.replace("n = f32[8] negate(a)", "n = f32[8] sine(a)"))
    assert counts(found, "loop") == {("negate", "f32[8]"): -2, ("sine", "f32[8]"): 2}
    assert counts(found, None) == {}


def test_spellings_are_no_difference() -> None:
    for _, rewritten in harmless(SPELLED):
        assert all(body.same for body in bodies(SPELLED, rewritten))
