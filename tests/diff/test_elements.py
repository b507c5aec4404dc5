"""Which element of a tuple a value is: seen wherever it is taken, however it is spelled."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fixtures.building import HLO
from hlo_lens.diff.changes import changed
from hlo_lens.hlo import Instruction, parse, parse_shape
from tests.diff.comparing import matched, names
from tests.diff.texts import GATHERED_INSIDE, SPELLED
from tests.mutate import harmless

TWO_RESULTS = """HloModule m
called {
  x = f32[8] parameter(0)
  both = (f32[8], f32[8]) custom-call(x), custom_call_target="two"
  ROOT one = f32[8] get-tuple-element(both), index=0
}
ENTRY main {
  x = f32[8] parameter(0)
  c = f32[8] call(x), to_apply=called
  pair = (f32[8], f32[8]) custom-call(c), custom_call_target="pair"
  unused = f32[8] get-tuple-element(pair), index=0
  ROOT first = f32[8] get-tuple-element(pair), index=0
}
"""


def other_element(text: str, name: str) -> str:
    """The element of index 0 becomes the one of index 1."""
    line = re.compile(rf"(\b{name} = .*, index=)0")
    assert line.search(text)
    return line.sub(r"\g<1>1", text)


@pytest.mark.parametrize("name", ["one", "unused", "first"])
def test_another_element_is_another_value_where_no_operation_takes_it(name: str) -> None:
    """The root of the entry or of what is called, and one that nothing takes."""
    found = matched(TWO_RESULTS, other_element(TWO_RESULTS, name))
    if name == "unused":
        assert names(found) == (["unused"], ["unused"], [])
        return
    assert names(found) == ([], [], [name])
    (group,) = changed(found)
    assert [(one.what, one.old, one.new) for one in group.aspects] == [("index", "0", "1")]


def test_what_is_returned_whole_is_not_its_element() -> None:
    text = TWO_RESULTS.replace("  unused = f32[8] get-tuple-element(pair), index=0\n", "")
    whole = text.replace("  ROOT first = f32[8] get-tuple-element(pair), index=0\n", "")
    whole = whole.replace("  pair =", "  ROOT pair =")
    assert names(matched(text, whole)) == (["first"], [], ["pair"])
    assert names(matched(whole, text)) == ([], ["first"], ["pair"])
    (group,) = changed(matched(text, whole))
    assert [(one.what, one.old, one.new) for one in group.aspects] == [("ROOT", "no", "yes")]


def test_the_same_element_of_another_operation_is_another_root() -> None:
    text = TWO_RESULTS.replace(
        "  ROOT first",
        '  more = (f32[8], f32[8]) custom-call(c), custom_call_target="more"\n  ROOT first',
    )
    found = matched(
        text,
        text.replace(
            "ROOT first = f32[8] get-tuple-element(pair)",
            "ROOT first = f32[8] get-tuple-element(more)",
        ),
    )
    assert names(found) == ([], [], ["first"])


def test_the_root_is_of_one_of_two_that_are_alike() -> None:
    """Nothing tells which; their order in the text does not either."""
    text = """HloModule m
    ENTRY main {
      x = f32[8] parameter(0)
      a = (f32[8], f32[8]) custom-call(x), custom_call_target="two"
      b = (f32[8], f32[8]) custom-call(x), custom_call_target="two"
      ROOT r = f32[8] get-tuple-element(a), index=0
    }
    """
    other = text.replace("get-tuple-element(a)", "get-tuple-element(b)")
    assert matched(text, other).same
    used = "ROOT r", "n = f32[8] negate(a#0)\n      ROOT r"
    assert not matched(text.replace(*used), other.replace(*used)).same


def test_a_sharding_of_an_element_counts() -> None:
    first = "ROOT first = f32[8] get-tuple-element(pair), index=0"
    found = matched(TWO_RESULTS, TWO_RESULTS.replace(first, f"{first}, sharding={{replicated}}"))
    assert names(found) == ([], [], ["first"])
    (group,) = changed(found)
    assert [one.what for one in group.aspects] == ["sharding"]


@pytest.mark.parametrize("text", [TWO_RESULTS, GATHERED_INSIDE, SPELLED])
@pytest.mark.parametrize("rewrite", ["elements-by-mark", "elements-by-instruction"])
def test_an_operand_may_be_spelled_in_both_ways(text: str, rewrite: str) -> None:
    written = dict(harmless(text)).get(rewrite)
    if rewrite == "elements-by-instruction":
        marked = dict(harmless(text)).get("elements-by-mark", text)
        written = dict(harmless(marked)).get(rewrite, text)
    if written is not None:
        assert matched(text, written).same
        assert matched(written, text).same


# -- committed programs

SMALL = 30_000  # characters
MOST = 4  # elements of one text, the root among them


def other_elements(text: str) -> Iterator[tuple[str, str]]:
    """(name, text) with another element of equal shape, for each get-tuple-element that has one;
    roots first."""
    lines = text.split("\n")
    elements = [
        one
        for computation in parse(text).computations
        for one in computation.instructions
        if one.opcode == "get-tuple-element" and one.index >= 0
    ]
    for one in sorted(elements, key=lambda one: not one.is_root):
        to = _other_index(one)
        if to is None:
            continue
        at = one.text_line - 1
        line = re.sub(r"\bindex=\d+", f"index={to}", lines[at], count=1)
        assert line != lines[at]
        yield one.name, "\n".join((*lines[:at], line, *lines[at + 1 :]))


def _other_index(element: Instruction) -> int | None:
    (operand,) = element.operands
    shapes = [str(one) for one in parse_shape(operand.shape_text).elements]
    match = re.search(r"index=(\d+)", element.tail)
    assert match is not None
    at = int(match[1])
    return next((to for to, one in enumerate(shapes) if to != at and one == shapes[at]), None)


def test_another_element_in_committed_programs_is_seen() -> None:
    seen, roots = 0, 0
    for file in sorted(HLO.rglob("*.txt")):
        if file.stat().st_size > SMALL:
            continue
        text = file.read_text()
        for name, other in list(other_elements(text))[:MOST]:
            assert not matched(text, other).same, (file, name)
            seen += 1
            roots += f"ROOT %{name} " in text
    assert seen >= 25, seen
    assert roots >= 10, roots
