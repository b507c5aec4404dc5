"""Which instructions are asked for: by rows and their members, by name, between two names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hlo_lens.facts import Cell, Summary
from hlo_lens.figure import Frame, NothingSelectedError, Select, View, draw, views
from hlo_lens.figure.selecting import Wanted, select
from hlo_lens.files import InputError
from tests.figure.texts import drawn, edges, facts_of, names, roles

CHAIN = """HloModule chain
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] exponential(a)
  c = f32[4] add(b, a)
  d = f32[4] sine(c)
  e = f32[4] cosine(d)
  ROOT f = f32[4] tanh(e)
}
"""

PRODUCTS = """HloModule products
ENTRY main {
  x = f32[4,4] parameter(0)
  a = f32[4,4] negate(x)
  b = f32[4,4] abs(a)
  p = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[4,4] sine(p)
  q = f32[4,4] dot(c, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT d = f32[4,4] cosine(q)
}
"""


def view(*selects: Select, **more: Any) -> View:
    return View("mine", "what was marked", select=selects, **more)


# --- members of rows ------------------------------------------------------------------------------


def test_the_members_of_a_row_are_drawn_with_their_roles() -> None:
    panel = drawn(CHAIN, marks=[{"before": "a", "after": "c d"}], table="marks", row=0)
    assert roles(panel) == {"a": ("before",), "c": ("after",), "d": ("after",)}
    assert all(node.selected for node in panel.nodes)
    assert edges(panel) == ["a>c", "c>d"]


def test_an_instruction_of_two_roles_has_both_once_each() -> None:
    marks = [{"one": "a b", "other": "b"}, {"one": "b"}]
    panel = drawn(CHAIN, marks=marks, table="marks")
    assert roles(panel) == {"a": ("one",), "b": ("one", "other")}


def test_rows_may_be_named_or_chosen_by_a_condition() -> None:
    marks = [{"of": "a", "size": "3"}, {"of": "b", "size": "5"}, {"of": "c", "size": "7"}]
    assert names(drawn(CHAIN, marks=marks, table="marks", row=[2, 0])) == ["a", "c"]
    assert names(drawn(CHAIN, marks=marks, table="marks", where="size > 4")) == ["b", "c"]
    panel = drawn(CHAIN, marks=marks, table="marks", row=[0, 1], where="size > 4", radius=0)
    assert names(panel) == ["b"]


def test_a_condition_may_ask_other_tables_and_end_in_a_comment() -> None:
    marks = [{"of": "a"}, {"of": "d"}]
    where = """EXISTS (SELECT 1 FROM members JOIN instructions ON instructions.id = members.instr
        WHERE members."table" = 'marks' AND members.row = marks.id AND opcode = 'sine') -- such"""
    assert names(drawn(CHAIN, marks=marks, table="marks", where=where, radius=0)) == ["d"]


def test_an_or_in_a_condition_stays_within_the_module() -> None:
    facts = facts_of(CHAIN, PRODUCTS, marks=[{"of": "a"}, {"of": "q", "module": "1"}])
    wanted = Wanted((Select("marks", "size = 0 OR size = 0"),))
    assert [one.name for one in select(facts, 0, wanted, 40).roles] == ["a"]
    assert [one.name for one in select(facts, 1, wanted, 40).roles] == ["q"]


def test_a_row_without_members_is_its_instruction() -> None:
    panel = drawn(PRODUCTS, table="instructions", where="opcode = 'dot'")
    assert roles(panel) == {"p": ("instructions",), "q": ("instructions",)}


def test_rows_are_drawn_in_order_until_the_figure_is_full() -> None:
    marks = [{"of": "a b"}, {"of": "c d"}, {"of": "e"}]
    panel = drawn(CHAIN, marks=marks, table="marks", nodes=4)
    assert names(panel) == ["a", "b", "c", "d"]
    assert panel.notes == ("2 of 3 rows of marks drawn",)


def test_a_view_may_limit_the_rows_and_that_is_told() -> None:
    marks = [{"of": "a b"}, {"of": "c d"}, {"of": "e"}]
    panel = drawn(CHAIN, marks=marks, view=view(Select("marks", order="id DESC", rows=2)))
    assert names(panel) == ["c", "d", "e"]
    assert panel.notes == ("2 of 3 rows of marks drawn",)
    assert drawn(CHAIN, marks=marks, view=view(Select("marks", rows=3))).notes == ()


def test_a_row_is_drawn_whole_or_not_at_all() -> None:
    marks = [{"of": "a"}, {"of": "b c d"}, {"of": "e"}]
    assert names(drawn(CHAIN, marks=marks, table="marks", nodes=3, radius=0)) == ["a"]


def test_what_two_rows_share_takes_its_room_once() -> None:
    marks = [{"of": "a b"}, {"of": "a b c"}]
    assert names(drawn(CHAIN, marks=marks, table="marks", nodes=3)) == ["a", "b", "c"]


def test_of_a_first_row_that_does_not_fit_the_products_are_drawn() -> None:
    panel = drawn(PRODUCTS, marks=[{"of": "a b p c q d"}], table="marks", nodes=3)
    assert names(panel) == ["p", "q"]
    assert panel.notes == ("2 of 6 instructions of a row of marks drawn",)


def test_of_a_row_that_does_not_fit_every_role_is_drawn() -> None:
    marks = [{"first": "a b c", "second": "d e f"}]
    panel = drawn(CHAIN, marks=marks, table="marks", nodes=4)
    assert names(panel) == ["a", "b", "d", "e"]


def test_a_select_may_take_a_part_of_the_room_and_some_of_each_role() -> None:
    marks = [{"of": "a b c", "to": "d"}, {"of": "e", "size": "1"}]
    first = Select("marks", "size = 0", members=2)
    panel = drawn(CHAIN, marks=marks, view=view(first, Select("marks", "size = 1")))
    assert names(panel) == ["a", "d", "e"]
    panel = drawn(CHAIN, marks=marks, view=view(Select("marks", "size = 0", each=1)))
    assert names(panel) == ["a", "d"]
    assert panel.notes == ("2 more “of” not drawn",)


def test_a_select_may_ask_for_some_roles_and_a_view_says_how_they_read() -> None:
    marks = [{"in": "a", "out": "c d"}]
    panel = drawn(CHAIN, marks=marks, view=view(Select("marks", roles=("out",))))
    assert names(panel) == ["c", "d"]
    panel = drawn(
        CHAIN, marks=marks, view=view(Select("marks"), names={"in": "goes in", "out": ""})
    )
    assert roles(panel) == {"a": ("goes in",), "c": (), "d": ()}
    assert all(node.selected for node in panel.nodes)
    words = {"out": "goes out", "out/sine": "a wave"}
    panel = drawn(CHAIN, marks=marks, view=view(Select("marks"), names=words))
    assert roles(panel) == {"a": ("in",), "c": ("goes out",), "d": ("a wave",)}


def test_a_single_instruction_of_a_row_is_drawn_with_its_neighbours() -> None:
    one, two = [{"of": "d"}], [{"of": "b d"}]
    assert names(drawn(CHAIN, marks=one, table="marks")) == ["c", "d", "e"]
    assert names(drawn(CHAIN, marks=one, table="marks", radius=0)) == ["d"]
    assert names(drawn(CHAIN, marks=one, view=view(Select("marks")))) == ["d"]  # the view says 0
    assert names(drawn(CHAIN, marks=two, table="marks")) == ["b", "d"]


# --- what is told of rows -------------------------------------------------------------------------


def test_rows_that_read_alike_are_told_once_with_their_number() -> None:
    marks = [{"of": name, "size": size} for name, size in zip("abcd", "5355", strict=True)]
    panel = drawn(CHAIN, marks=marks, view=view(Select("marks", label="of {size}")))
    assert panel.heading == ("3 × of 5", "of 3")


def test_a_table_without_a_view_is_told_by_what_a_report_groups_it_by() -> None:
    summary = Summary("marks", 1, by=(Cell("size"), Cell("of {size}")))
    marks = [{"of": "a", "size": "5"}, {"of": "b", "size": "3"}, {"of": "c", "size": "3"}]
    facts = facts_of(CHAIN, marks=marks, summary=summary)
    (panel,) = draw(facts, table="marks").panels
    assert panel.heading == ("5 · of 5", "2 × 3 · of 3")
    assert drawn(CHAIN, marks=marks, table="marks").heading == ()  # no summary


def test_a_finding_is_told_by_its_message() -> None:
    marks = [{"of": "a", "says": "too long"}, {"of": "d", "says": "too short"}]
    panel = drawn(CHAIN, marks=marks, table="findings", where="rule = 'marked'")
    assert names(panel) == ["a", "d"]
    assert panel.heading == ("too long", "too short")


# --- what is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"table": "mark"}, "--table: no table mark; did you mean marks"),
        (
            {"table": "marks", "where": "sise > 1"},
            "rows of marks: no column sise, did you mean size?",
        ),
        ({"table": "marks", "where": "size >"}, "rows of marks: "),
        ({"table": "marks", "where": "1; DROP TABLE marks"}, "rows of marks: "),
        ({"table": "marks", "where": "1) UNION SELECT 1 -- "}, "rows of marks: "),
        ({"table": "marks", "where": "0) OR (1=1"}, "rows of marks: a condition is one expression"),
        ({"table": "marks", "where": "0) OR (1=1", "row": 0}, "rows of marks: a condition is one"),
        (
            {"table": "marks", "where": "\"sise\" = 'sise'"},
            'rows of marks: no column "sise", did you mean size?',
        ),
        ({"table": "marks", "row": "a"}, "--row: a row is asked for by its id, not by 'a'"),
        ({"table": "marks", "row": [0.5]}, "--row: a row is asked for by its id, not by [0.5]"),
        ({"row": 1}, "--row and --where: they are about a table; name it with --table"),
        ({"where": "1"}, "--row and --where: "),
        ({"start": "a"}, "--from and --to: a path has two ends; give both"),
        ({"end": "a"}, "--from and --to: "),
        ({"view": "atention"}, "--view: no view 'atention'; did you mean attention?"),
        ({"around": "bb"}, "bb: no such instruction in chain"),
        ({"around": "exp"}, "exp: no such instruction in chain"),
        ({"start": "a", "end": "zz"}, "zz: no such instruction in chain"),
        ({"nodes": 0}, "--nodes: a figure draws at least 1 instruction, not 0"),
        ({"view": "remat", "nodes": -5}, "--nodes: a figure draws at least 1 instruction, not -5"),
        ({"radius": -1}, "--radius: a neighbour is 0 or more instructions away, not -1"),
        ({"keep": ["zz"]}, "--keep: no kind 'zz'; there are tuples, layout, constants"),
        ({"keep": "zz"}, "--keep: no kind 'zz'; there are "),
        ({"color": "x"}, "--color-by: colours tell phase or family, not 'x'"),
        ({"theme": "x"}, "--theme: no theme 'x'; there are light, dark, print"),
        ({"titles": ["a", "b"]}, "--title: 2 titles for 1 panel: 'b' would stand nowhere"),
        ({"table": "marks", "stage": "later"}, "no stage 'later'; there are "),
    ],
)
def test_what_is_not_there_is_a_sentence(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"^.*{re.escape(says)}"):
        drawn(CHAIN, marks=[{"of": "a"}], **asked)


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (Select("marks", "1) OR (1"), "a condition is one expression"),
        (Select("marks", "\"sise\" = 'sise'"), 'no column "sise"'),
        (Select("marks", order='"sise" DESC'), 'no column "sise"'),
    ],
)
def test_what_a_view_selects_by_is_a_condition(select: Select, says: str) -> None:
    with pytest.raises(InputError, match=f"rows of marks: {says}"):
        drawn(CHAIN, marks=[{"of": "a"}], view=view(select))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"table": "nope"}, "--table would"),
        ({"row": 1}, "--row would"),
        ({"where": "1"}, "--where would"),
        ({"start": "x", "end": "y"}, "--from, --to would"),
        ({"radius": 0}, "--radius would"),
        ({"nodes": 40, "keep": ["layout"]}, "--nodes, --keep would"),
    ],
)
def test_a_schedule_takes_no_choice_of_instructions(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"^--view overlap: it draws the schedule .*, so {says}"):
        drawn(CHAIN, view="overlap", **asked)


def test_without_a_program_there_is_no_figure() -> None:
    with pytest.raises(InputError, match="there is no program to draw"):
        draw([])


def test_a_kind_that_is_kept_and_a_title_may_be_one_text() -> None:
    text = CHAIN.replace("negate(x)", "copy(x)")
    assert "a" in names(drawn(text, keep="layout"))
    assert drawn(text, titles="one").title == "one"


def test_a_name_that_is_close_is_suggested() -> None:
    text = CHAIN.replace("b =", "fusion.12 =").replace("add(b", "add(fusion.12")
    with pytest.raises(
        InputError, match=r"no such instruction in chain; did you mean .*fusion\.12"
    ):
        drawn(text, around="fusion.21")


def test_a_name_that_two_have_is_told_with_the_places() -> None:
    text = """HloModule two
f {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
ENTRY main {
  x = f32[4] parameter(0)
  n = f32[4] call(x), to_apply=f
  ROOT r = f32[4] abs(n)
}
"""
    with pytest.raises(InputError, match="several instructions have that name: f/n, main/n"):
        drawn(text, around="n", radius=0)
    assert names(drawn(text, around="f/n", radius=0)) == ["n"]
    assert names(drawn(text, around="%r", radius=0)) == ["r"]
    assert names(drawn(text, around="#1", radius=0)) == ["n"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"table": "marks", "where": "size > 9"}, "no rows of marks where size > 9 in chain"),
        ({"table": "marks", "row": 7}, r"no rows of marks where id IN \(7\) in chain"),
        ({"table": "marks", "row": []}, r"no rows of marks where id IN \(\) in chain"),
        ({"table": "marks", "row": 0, "where": "size"}, r"where id IN \(0\) AND \(size\) in chain"),
        ({"view": "ragged"}, "no rows of ragged_dots in chain"),
        ({"start": "f", "end": "a"}, "no operand path from %f to %a"),
    ],
)
def test_where_nothing_is_what_was_asked_for_the_answer_is_no(
    asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(NothingSelectedError, match=says):
        drawn(CHAIN, marks=[{"of": "a"}], **asked)


def test_a_role_that_no_member_has_is_told_with_those_there_are() -> None:
    asked = view(Select("marks", roles=("two", "three")))
    says = "no row of marks has a member two, three; there are: one, other"
    with pytest.raises(NothingSelectedError, match=says):
        drawn(CHAIN, marks=[{"one": "a"}, {"other": "b"}], view=asked)


def test_rows_in_another_stage_are_pointed_to() -> None:
    stages = ("before_optimizations", "after_optimizations")
    facts = facts_of(CHAIN, PRODUCTS, marks=[{"of": "a", "module": "0"}], stages=stages)
    with pytest.raises(
        NothingSelectedError, match="there are some in before_optimizations: --stage"
    ):
        draw(facts, table="marks")
    (panel,) = draw(facts, table="marks", stage="before_optimizations", radius=0).panels
    assert [node.name for node in panel.nodes] == ["a"]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (Frame("mark", "x"), "no table mark"),
        (Frame("marks", "{colour}"), "a label of marks: .*colour"),
        (Frame("marks", "x", "sise"), "no column sise, did you mean size"),
        (Frame("marks", "x", "\"sise\" = 'sise'"), 'no column "sise", did you mean size'),
        (Frame("marks", "x", "0) OR (1"), "a condition is one expression"),
    ],
)
def test_a_frame_of_what_is_not_there_is_a_sentence(frame: Frame, says: str) -> None:
    with pytest.raises(InputError, match=says):
        drawn(CHAIN, marks=[{"of": "a"}], view=view(Select("marks"), frame=(frame,)))


# --- several stages -------------------------------------------------------------------------------


def test_the_stage_that_runs_is_drawn_or_the_one_a_view_prefers_or_that_is_asked_for() -> None:
    stages = ("before_optimizations", "after_optimizations")
    marks = [{"of": "a", "module": "0"}, {"of": "p", "module": "1"}]
    facts = facts_of(CHAIN, PRODUCTS, marks=marks, stages=stages)

    def of(**asked: Any) -> list[str]:
        (panel,) = draw(facts, radius=0, **asked).panels
        return [panel.stage, *(node.name for node in panel.nodes)]

    assert of(table="marks") == ["after_optimizations", "p"]
    early = view(Select("marks"), prefer_stage=("nowhere", "before_optimizations"))
    assert of(view=early) == ["before_optimizations", "a"]
    assert of(view=early, stage="after_optimizations") == ["after_optimizations", "p"]
    assert of(view=view(Select("marks"), prefer_stage=("nowhere",)))[0] == "after_optimizations"


def test_every_built_in_view_asks_for_tables_and_columns_that_are_there() -> None:
    facts = facts_of(CHAIN)
    for name, one in views().views.items():
        if one.lanes is None:
            with pytest.raises(NothingSelectedError):
                draw(facts, view=name)
