"""Which instruction is which: by what it computes and what becomes of it, never by its name."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from hlo_lens.diff.matching import match
from tests.diff.comparing import case_file, matched, names, partners, program
from tests.diff.texts import GATHERED_INSIDE, GATHERED_ONCE, SPELLED, unrolled
from tests.draft import Draft
from tests.mutate import HARMLESS, harmless, rename, renumber_channels, reorder_computations

TEXTS = {
    "unrolled": unrolled(3),
    "inside": GATHERED_INSIDE,
    "once": GATHERED_ONCE,
    "spelled": SPELLED,
}
CASES = (
    ("pairs/fake-quant-absmax", "tpu:tpu7x-8"),
    ("pairs/unsort-argsort", "tpu:v6e-1"),
    ("pairs/positions-saved", "tpu:tpu7x-8"),
    ("pairs/gate-split-pad", "rocm:gfx950"),
    ("remat/full", "cpu"),
    ("remat/none", "cuda:h100"),
)


def spelled_otherwise(text: str) -> str:
    """Another compile of the program: other names, channels and order of computations."""
    draft = Draft.of(text)
    for rewrite in (rename, renumber_channels, reorder_computations):
        rewrite(draft, random.Random(1))
    return draft.text()


# -- the same program


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("rewrite", HARMLESS)
def test_no_harmless_rewrite_is_a_difference(name: str, rewrite: str) -> None:
    text = TEXTS[name]
    rewritten = dict(harmless(text)).get(rewrite)
    if rewritten is not None:
        assert matched(text, rewritten).same
        assert matched(rewritten, text).same


@pytest.mark.parametrize(("case", "target"), CASES)
def test_no_harmless_rewrite_of_a_compiled_program_is_a_difference(case: str, target: str) -> None:
    text = case_file(case, target).read_text()
    for rewritten in (*dict(harmless(text)).values(), spelled_otherwise(text)):
        assert matched(text, rewritten).same


def test_every_instruction_of_another_compile_has_the_partner_that_it_is() -> None:
    text = case_file("remat/full", "cpu").read_text()
    found = matched(text, spelled_otherwise(text))
    assert found.matched == found.old.instruction_count == found.new.instruction_count
    for at, its in enumerate(found.to_new):
        assert its is not None
        old, new = found.old.instruction(at), found.new.instruction(its)
        assert (old.opcode, old.shape_text) == (new.opcode, new.shape_text)


def test_what_an_async_start_wraps_is_the_operation_in_the_other_spelling() -> None:
    wrapped = dict(harmless(SPELLED))["respell-async"]
    found = matched(wrapped, SPELLED)
    inside = next(
        one for one in found.old.computations["wrapped_start"].instructions if one.is_root
    )
    assert inside.opcode == "all-gather"
    assert found.to_new[inside.id] is None
    partner = found.new_of(inside.id)
    assert partner is not None
    assert found.new.instruction(partner).name == "start"
    assert (found.only_old, found.only_new) == ([], [])


# -- negative twins: one thing is another


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kind=kLoop", "kind=kInput"),
        ("slice={[4:8]}", "slice={[8:12]}"),
        ("replica_groups={{0,1},{2,3}}", "replica_groups={{0,2},{1,3}}"),
        ("a = f32[8] parameter(0)\n  b", "a = f32[8]{0} parameter(0)\n  b"),
        ("m = f32[8] multiply(a, b)", "m = f32[8] multiply(b, a)"),
        ("tuple(m, b)", "tuple(b, m)"),
        ("get-tuple-element(pair), index=0", "get-tuple-element(pair), index=1"),
        ("dimensions={0}", "dimensions={0}, sharding={replicated}"),
        ("c = f32[] add(a, b)", "c = f32[] maximum(a, b)"),
        ("negate(second)", "negate(x)"),
    ],
)
def test_a_change_is_seen(old: str, new: str) -> None:
    assert old in SPELLED
    assert not matched(SPELLED, SPELLED.replace(old, new, 1)).same


def test_another_constant_is_another_program() -> None:
    assert not matched(GATHERED_ONCE, GATHERED_ONCE.replace("constant(4)", "constant(5)")).same


def test_exchanged_operands_change_their_user_and_nothing_else() -> None:
    text = unrolled(3)
    found = matched(text, text.replace("add(t1, x1)", "add(x1, t1)"))
    assert names(found) == ([], [], ["x2"])


SHARED = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] sine(x)
  b = f32[8] sine(x)
  c = f32[8] negate(a)
  d = f32[8] negate(b)
  e = f32[8] exponential(a)
  f = f32[8] exponential(b)
  ROOT r = (f32[8], f32[8], f32[8], f32[8]) tuple(c, d, e, f)
}
"""


def test_a_value_that_is_made_once_is_not_one_that_is_made_twice() -> None:
    once = SHARED.replace("negate(b)", "negate(a)").replace("exponential(b)", "exponential(a)")
    once = once.replace("  b = f32[8] sine(x)\n", "")
    found = matched(SHARED, once)
    assert not found.same
    assert len(found.only_old) == 1
    crossed = SHARED.replace("exponential(a)", "exponential(b)", 1).replace(
        "f = f32[8] exponential(b)", "f = f32[8] exponential(a)"
    )
    assert not matched(SHARED, crossed).same


@pytest.mark.parametrize("seed", range(8))
def test_of_what_is_alike_each_goes_with_its_neighbours(seed: int) -> None:
    for rewritten in dict(harmless(SHARED, seed=seed)).values():
        assert matched(SHARED, rewritten).same


# -- unchanged neighbourhoods


def test_layer_k_is_layer_k_though_all_layers_are_alike() -> None:
    old, new = unrolled(8), unrolled(8, without=(3,))
    found = matched(old, new)
    assert names(found) == (["t3"], [], ["x4"])
    assert all(name == its for name, its in partners(found).items())


def test_layers_that_differ_on_both_sides_are_matched_in_between() -> None:
    found = matched(unrolled(8, without=(2,)), unrolled(8, extra=(5,)))
    only_old, only_new, _ = names(found)
    assert only_old == []
    assert only_new in (["t2", "t5"], ["t2", "e5"])  # of two tanh in a row, one is new
    assert all(name[1:] == its[1:] for name, its in partners(found).items())


def test_the_body_is_matched_around_what_left_it() -> None:
    found = matched(GATHERED_INSIDE, GATHERED_ONCE)
    its = partners(found)
    assert {name: its[name] for name in ("h", "d", "t", "next", "less", "loop", "shard")} == {
        "h": "h", "d": "d", "t": "t", "next": "next", "less": "less", "loop": "loop",
        "shard": "shard",
    }  # fmt: skip


def test_an_element_of_a_carry_is_what_the_caller_puts_in_not_its_position() -> None:
    swapped = (
        GATHERED_INSIDE.replace("(s32[], f32[8,8], f32[2,8])", "(s32[], f32[2,8], f32[8,8])")
        .replace("w = f32[2,8] get-tuple-element(p), index=2", "w = f32[2,8] {element}(p), index=1")
        .replace("h = f32[8,8] get-tuple-element(p), index=1", "h = f32[8,8] {element}(p), index=2")
        .replace("{element}", "get-tuple-element")
        .replace("tuple(next, t, w)", "tuple(next, w, t)")
        .replace("tuple(zero, x, shard)", "tuple(zero, shard, x)")
        .replace("get-tuple-element(loop), index=1", "get-tuple-element(loop), index=2")
    )
    found = matched(GATHERED_INSIDE, swapped)
    only_old, only_new, changed = names(found)
    assert (only_old, only_new) == ([], [])
    assert {"d", "t", "all"}.isdisjoint(changed)
    assert partners(found)["w"] == "w"


def test_a_loop_is_known_by_what_it_holds() -> None:
    """Two loops without names change places; one of them has changed."""
    text = TWO_LOOPS.format(first="up", second="down", function="tanh")
    found = matched(text, TWO_LOOPS.format(first="down", second="up", function="sine"))
    its = partners(found)
    assert (its["one"], its["other"]) == ("other", "one")


TWO_LOOPS = """HloModule m
up {{ p = f32[8] parameter(0)  a = f32[8] exponential(p)  ROOT b = f32[8] {function}(a) }}
up_go {{ p = f32[8] parameter(0)  ROOT go = pred[] custom-call(p), custom_call_target="go" }}
down {{
  p = f32[8] parameter(0)
  a = f32[8] negate(p)
  c = f32[8] negate(a)
  ROOT b = f32[8] abs(c)
}}
down_go {{ p = f32[8] parameter(0)  ROOT go = pred[] custom-call(p), custom_call_target="go" }}
ENTRY main {{
  x = f32[8] parameter(0)
  one = f32[8] while(x), condition={first}_go, body={first}
  other = f32[8] while(one), condition={second}_go, body={second}
  ROOT y = f32[8] add(one, other)
}}
"""


# -- damaged and strange texts


STRANGE = {
    "rings": """HloModule m
a { p = f32[8] parameter(0)  ROOT c = f32[8] call(p), to_apply=b }
b { p = f32[8] parameter(0)  ROOT c = f32[8] call(p), to_apply=a }
ENTRY main { x = f32[8] parameter(0)  ROOT y = f32[8] call(x), to_apply=a }
""",
    "missing": """HloModule m
ENTRY main { x = f32[8] parameter(0)  ROOT y = f32[8] while(x), condition=gone, body=away }
""",
    "an element of nothing": """HloModule m
ENTRY main { x = f32[8] parameter(0)  g = f32[8] get-tuple-element()  ROOT r = f32[8] add(g, x) }
""",
    "implied parameters": """HloModule m
ENTRY main { ROOT y = f32[8] add(f32[8] parameter(0), f32[8] parameter(1)) }
""",
    "unreached": """HloModule m
lone { p = f32[8] parameter(0)  ROOT n = f32[8] negate(p) }
ENTRY main { ROOT x = f32[8] parameter(0) }
""",
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_texts_are_matched_as_far_as_they_go(name: str) -> None:
    text = STRANGE[name]
    assert matched(text, text).same
    for other in (*STRANGE.values(), unrolled(2)):
        found = matched(text, other)
        assert all(
            found.to_old[its] == at for at, its in enumerate(found.to_new) if its is not None
        )


def test_a_program_is_nothing_like_another() -> None:
    found = matched(unrolled(2), STRANGE["missing"])
    assert set(partners(found)) <= {"x0"}


# -- linear time


def work(old: str, new: str) -> int:
    """How many functions are called to match two texts."""
    programs = [program(text) for text in (old, new)]
    analyses = [one.analysis(one.main) for one in programs]
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        match(*analyses)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("case", ["same", "one layer", "every layer", "nothing alike"])
def test_twice_the_layers_are_twice_the_work(case: str) -> None:
    def both(layers: int) -> tuple[str, str]:
        old = unrolled(layers)
        every = tuple(range(layers))
        return old, {
            "same": old,
            "one layer": unrolled(layers, without=(layers // 2,)),
            "every layer": unrolled(layers, extra=every),
            "nothing alike": old.replace("tanh", "sine").replace("f32", "bf16"),
        }[case]

    single, double = work(*both(100)), work(*both(200))
    assert double < 2.2 * single


def test_files_of_the_tests_are_there() -> None:
    assert all(Path(case_file(case, target)).is_file() for case, target in CASES)
