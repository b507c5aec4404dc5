"""What is equal gets one number: keys, classes up and down, classes of computations."""

from __future__ import annotations

import pytest

from hlo_lens.analysis.calls import CallGraph
from hlo_lens.diff.fingerprints import Bodies, Body, downs
from hlo_lens.diff.keys import Numbers, attributes_of, given_shape
from hlo_lens.hlo import parse
from tests.diff.texts import SPELLED
from tests.mutate import harmless

TEXT = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] add(x, y)
  b = f32[8] add(x, y)
  c = f32[8] negate(a)
  d = f32[8] negate(b)
  e = f32[8] sine(b)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(c, d, e)
}
"""


def entry(text: str, numbers: Numbers | None = None) -> tuple[Bodies, Body]:
    module = parse(text)
    bodies = Bodies(CallGraph(module), numbers or Numbers())
    return bodies, bodies.of[module.entry.index]


def by_name(body: Body, classes: list[int]) -> dict[str, int]:
    return dict(zip(body.computation.names, classes, strict=True))


def test_what_computes_the_same_is_of_one_class_up() -> None:
    up = by_name(*(lambda body: (body, body.up))(entry(TEXT)[1]))
    assert up["a"] == up["b"]
    assert up["c"] == up["d"]
    assert len({up["x"], up["y"], up["a"], up["c"], up["e"], up["r"]}) == 6


def test_what_becomes_the_same_is_of_one_class_down() -> None:
    bodies, body = entry(TEXT)
    down = by_name(body, downs(bodies, body))
    assert down["a"] != down["b"]  # b becomes a sine too
    assert down["c"] != down["d"]  # other elements of the result
    assert len(set(down.values())) == len(down)


def test_a_class_is_the_same_in_both_modules_however_it_is_spelled() -> None:
    numbers = Numbers()
    _, body = entry(SPELLED, numbers)
    for name, rewritten in harmless(SPELLED):
        assert entry(rewritten, numbers)[1].number == body.number, name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a = f32[8] add(x, y)", "a = f32[8] add(y, x)"),
        ("sine(b)", "cosine(b)"),
        ("tuple(c, d, e)", "tuple(d, e, c)"),
        ("y = f32[8] parameter(1)", "y = f32[8] parameter(2)"),
    ],
)
def test_another_graph_is_of_another_class(old: str, new: str) -> None:
    numbers = Numbers()
    assert entry(TEXT, numbers)[1].number != entry(TEXT.replace(old, new), numbers)[1].number


def test_what_nobody_uses_is_part_of_the_graph() -> None:
    numbers = Numbers()
    unused = TEXT.replace("  ROOT", "  s = () send-done(x)\n  ROOT")
    assert entry(TEXT, numbers)[1].number != entry(unused, numbers)[1].number


def test_keys_tell_less_and_less() -> None:
    numbers = Numbers()
    bodies, _ = entry(TEXT, numbers)
    one = bodies.key("dot", "f32[8,8]{1,0}", ", sharding={replicated}")
    layout = bodies.key("dot", "f32[8,8]{0,1}", "")
    dtype = bodies.key("dot", "bf16[8,8]{1,0}", "")
    shape = bodies.key("dot", "bf16[16,8]{1,0}", "")
    assert one.exact != layout.exact
    assert one.strong == layout.strong
    assert one.strong != dtype.strong
    assert one.weak == dtype.weak
    assert dtype.weak != shape.weak
    assert one.loose == shape.loose


def test_attributes_say_what_is_computed() -> None:
    lists = ", channel_id=1, replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%add"
    iotas = ', dimensions={0}, replica_groups=[2,2]<=[4], metadata={op_name="x"}'
    other = ", dimensions={0}, replica_groups=[2,2]<=[2,2]T(1,0)"
    assert attributes_of(lists) == attributes_of(iotas)
    assert attributes_of(iotas) != attributes_of(other)


def test_a_start_gives_what_its_done_does() -> None:
    instructions = {one.name: one for one in parse(SPELLED).entry.instructions}
    assert given_shape(instructions["start"]) == "f32[32]"
    assert given_shape(instructions["cut"]) == "f32[4]"
    assert given_shape(instructions["red"]) == "f32[8]"
